// SPDX-License-Identifier: Apache-2.0
//! Gets for which a worker reads another shard's flash (AFAR-1 to AFAR-5 in `afar.rs`), over real
//! sockets.

use senko_server::settings::{AdmissionRule, BackendChoice, PolicyKind};

use crate::across::one_at_each;
use crate::serve::client::{Client, Place, on_both};
use crate::serve::value;

const LEN: usize = 2000;
/// Keys that are on flash: the oldest of those that were stored.
const KEYS: usize = 2000;

/// A server whose oldest items are on flash, and never return to DRAM for a get.
fn full(place: Place, threads: usize) -> Place {
    let place = place.restart(|settings| {
        settings.admission.rule = AdmissionRule::All;
        settings.max_connections = 64;
        settings.threads = threads;
        settings.memory = (13 + 8 * threads as u64) << 20;
        settings.promote_after = 9;
        settings.policy = PolicyKind::Lru;
        settings.flash[0].bytes = 96 << 20;
        settings.flash[0].path.set_extension("small");
    });
    let mut client = place.connect();
    fill(&mut client);
    place
}

fn fill(client: &mut Client) {
    for n in 0..16_000 {
        client.send(format!("set f{n} 0 0 {LEN} noreply\r\n"));
        client.send(value(n, LEN));
        client.send(b"\r\n");
    }
    client.ask("mn\r\n", "MN\r\n");
}

fn get(client: &mut Client, n: usize) {
    client.get(&format!("f{n}"), &value(n, LEN));
}

/// Half of the keys are the other worker's. Each of these gets was once handed over to it. The
/// other worker has nothing else to do, so that nearly all of them are read here; how many depends
/// on its ticks.
#[test]
fn a_worker_reads_the_flash_of_a_worker_that_sleeps() {
    on_both(2, |place| {
        let place = full(place, 2);
        let mut clients = one_at_each(&place);
        let names = ["senko_read_afar", "senko_forwarded", "flash_hits"];
        let before = names.map(|name| clients[0].stat(name));
        for client in &mut clients {
            (0..KEYS).for_each(|n| get(client, n));
        }
        let grown = [0, 1, 2].map(|n| clients[0].stat(names[n]) - before[n]);
        let [afar, forwarded, hits] = grown;
        println!("{afar} read afar, {forwarded} handed over, {hits} hits on flash");
        assert!(hits > KEYS as u64 * 2 * 9 / 10, "{hits} hits on flash");
        assert!(
            forwarded < hits / 8,
            "{forwarded} of {hits} were handed over"
        );
        assert!(afar > hits / 4, "{afar} of {hits} were read");
    });
}

/// A connection that closes while its reads are under way leaves nothing behind: neither a frame
/// nor a region that cannot be reclaimed.
#[test]
fn connections_that_close_leave_nothing() {
    on_both(2, |place| {
        let place = full(place, 2);
        let mut client = place.connect();
        for round in 0..30 {
            let mut gone: Vec<Client> = (0..10).map(|_| place.connect()).collect();
            for (n, client) in (round * 601..).zip(&mut gone) {
                let gets = (0..60).map(|key| format!("get f{}\r\n", (n * 61 + key) % KEYS));
                client.send(gets.collect::<String>().as_bytes());
            }
            drop(gone);
            place.wait_for_connections_on(&mut client, 1);
        }
        // Flash is written several times over, so each region is reclaimed.
        for round in 0..10 {
            let before = client.stat("flash_reclaimed_regions");
            fill(&mut client);
            let grown = client.stat("flash_reclaimed_regions") - before;
            assert!(grown > 0 || round < 5, "reclaim stands still");
        }
        drop(client);
        // Frames that were lost would end this: nothing is read afar without a frame.
        for mut client in one_at_each(&place) {
            let before = client.stat("senko_read_afar");
            (0..KEYS).for_each(|n| get(&mut client, n));
            assert!(client.stat("senko_read_afar") > before);
        }
    });
}

/// An item that was flushed before the get was sent is never answered. The flushes come from
/// another connection, while gets are under way on this one.
#[test]
fn what_was_flushed_is_not_read() {
    for threads in [2, 3, 8] {
        let place = full(Place::start(BackendChoice::Auto, 2), threads);
        let mut other = place.connect();
        let mut clients: Vec<Client> = (0..threads).map(|_| place.connect()).collect();
        let mut afar = 0;
        for round in 0..5 {
            let before = other.stat("senko_read_afar");
            let keys = round * 40..round * 40 + 40;
            for client in &mut clients {
                for n in keys.clone() {
                    client.send(format!("get f{n}\r\n"));
                }
            }
            other.ask("flush_all\r\n", "OK\r\n");
            for client in &mut clients {
                client.send(b"get f0 f1 f2 f3\r\nmn\r\n");
            }
            for client in &mut clients {
                // Those that were sent before the flush are answered with their value, or missed.
                for n in keys.clone() {
                    let line = client.until(b"\r\n");
                    if line != b"END\r\n" {
                        assert_eq!(line, format!("VALUE f{n} 0 {LEN}\r\n").as_bytes());
                        client.expect(&value(n, LEN));
                        client.ask("", "\r\nEND\r\n");
                    }
                }
                client.ask("", "END\r\nMN\r\n");
            }
            afar += other.stat("senko_read_afar") - before;
            fill(&mut other);
        }
        println!("{threads} threads: {afar} read afar");
    }
}
