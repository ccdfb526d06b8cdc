// SPDX-License-Identifier: Apache-2.0
//! Answers for which a worker reads from another worker's shard while that worker waits (PARK-1 to
//! PARK-4 in `parked.rs`): they are the shard's own answers, and never older.

use std::sync::atomic::Ordering;

use senko_cache::AdmissionRule;

use crate::property::keys::twins;
use crate::serve::client::{Client, Place, on_both};
use crate::serve::value;
use crate::session::packet;

/// Two workers, and a connection at each.
pub(crate) fn one_at_each(place: &Place) -> [Client; 2] {
    let clients = [place.connect(), place.connect()];
    place.wait_for_connections(2);
    clients
}

const KEYS: usize = 64;

#[test]
fn every_dialect_says_the_same_at_either_worker() {
    on_both(2, |place| {
        let mut clients = one_at_each(&place);
        for key in 0..KEYS {
            clients[0].store(&format!("key{key}"), &value(key, key * 400));
        }
        // Larger than the values that are copied.
        clients[0].store("large", &value(7, 100_000));
        let before = clients[0].stat("senko_read_across");
        let hits = clients[0].stat("get_hits");
        for key in (0..KEYS).cycle().take(10 * KEYS) {
            let name = format!("key{key}");
            let get = packet(0x0c, name.as_bytes(), &[], &[], 0);
            let next = (key + 1) % KEYS;
            let requests = [
                format!("get {name}\r\nmn\r\n"),
                format!("gets {name}\r\nmn\r\n"),
                format!("get {name} no{key} key{next} {name}\r\nmn\r\n"),
                format!("mg {name} v k f s c t\r\nmn\r\n"),
                format!("mg {name} s\r\nmg no{key} v q\r\nmg no{key} k\r\nmn\r\n"),
                "get large\r\nmn\r\n".to_owned(),
            ];
            for request in requests {
                let [here, there] = clients.each_mut().map(|client| {
                    client.send(request.as_bytes());
                    client.until(b"MN\r\n")
                });
                assert_eq!(here, there, "{request}");
                assert!(
                    here.windows(5)
                        .any(|w| w == b"VALUE" || &w[..2] == b"VA" || &w[..2] == b"HD")
                );
            }
            let mut binary = [Client::connect(place.port()), Client::connect(place.port())];
            let [here, there] = binary.each_mut().map(|client| {
                client.send(&get);
                client.exactly(24 + 4 + name.len() + key * 400)
            });
            assert_eq!(here, there);
            assert!(here[24 + 4..].starts_with(name.as_bytes()));
        }
        // Half of eighteen hits arrived at the wrong worker. How many it read itself depends on how
        // busy the other one was.
        let asked = 10 * KEYS as u64;
        let across = clients[0].stat("senko_read_across") - before;
        assert!(across > asked, "{across}");
        // Each lookup counts once, wherever it was answered: eight hits for a text connection, one
        // for a binary one.
        assert_eq!(clients[1].stat("get_hits") - hits, asked * (2 * 8 + 2));
    });
}

#[test]
fn a_connection_reads_its_own_writes() {
    on_both(2, |place| {
        for mut client in one_at_each(&place) {
            for n in 0..2000 {
                let key = n % KEYS;
                client.ask(
                    &format!(
                        "set key{key} 0 0 4 noreply\r\n{n:04}\r\nget key{key}\r\ndelete key{key} noreply\r\nget key{key} key{key}\r\n"
                    ),
                    &format!("VALUE key{key} 0 4\r\n{n:04}\r\nEND\r\nEND\r\n"),
                );
            }
        }
    });
}

#[test]
fn a_flush_holds_at_once_for_keys_of_a_worker_that_sleeps() {
    on_both(2, |place| {
        for (mut client, mut other) in [(0, 1), (1, 0)].map(|_| (place.connect(), place.connect()))
        {
            for _ in 0..30 {
                for key in 0..8 {
                    other.store(&format!("key{key}"), b"old");
                }
                client.ask("flush_all\r\n", "OK\r\n");
                for key in 0..8 {
                    client.ask(&format!("get key{key}\r\n"), "END\r\n");
                }
            }
        }
    });
}

/// Its worker reads the clock when something arrives, and ten times a second.
#[test]
fn what_expires_is_gone_at_once_from_a_worker_that_sleeps() {
    on_both(2, |place| {
        for mut client in one_at_each(&place) {
            for _ in 0..30 {
                for key in 0..8 {
                    client.ask(&format!("set key{key} 0 10 3\r\nold\r\n"), "STORED\r\n");
                }
                place.clock.fetch_add(11_000, Ordering::Relaxed);
                for key in 0..8 {
                    client.ask(&format!("get key{key}\r\n"), "END\r\n");
                }
            }
        }
    });
}

#[test]
fn one_client_wins_a_stale_item() {
    on_both(2, |place| {
        let mut clients = one_at_each(&place);
        for n in 0..500 {
            let key = n % KEYS;
            clients[0].store(&format!("key{key}"), b"1");
            clients[1].ask(&format!("md key{key} I\r\n"), "HD\r\n");
            for client in &mut clients {
                client.send(format!("mg key{key} v\r\n"));
            }
            let mut marks = clients.each_mut().map(|client| client.until(b"\r\n1\r\n"));
            marks.sort();
            assert_eq!(marks, [&b"VA 1 X W\r\n1\r\n"[..], b"VA 1 Z X\r\n1\r\n"]);
        }
    });
}

/// Once an expired item of DRAM is gone, its tag may lead to another key's copy on flash.
#[test]
fn what_expires_beside_a_key_of_its_tag_is_a_miss() {
    on_both(2, |place| {
        // Flash is only as large as the twins need.
        let place = place.restart(|settings| {
            settings.admission.rule = AdmissionRule::All;
            settings.max_connections = 64;
            settings.memory = 29 << 20;
            settings.flash[0].bytes = 48 << 20;
            settings.flash[0].path.set_extension("small");
        });
        let mut clients = one_at_each(&place);
        let pairs: Vec<[&str; 2]> = twins()
            .chunks(2)
            .step_by(4)
            .map(|pair| [0, 1].map(|n| std::str::from_utf8(&pair[n]).unwrap()))
            .collect();
        let value = value(0, 2000);
        let mut fillers = 0..;
        let mut fill = |client: &mut Client, count| {
            for n in fillers.by_ref().take(count) {
                client.store(&format!("f{n:06}"), &value);
            }
        };
        // This settles what memory is used for; then items that are not requested go to flash.
        let [client, _] = &mut clients;
        fill(client, 12_000);
        for [_, lasting] in &pairs {
            client.store(lasting, &value);
        }
        for [expiring, _] in &pairs {
            client.send(format!("set {expiring} 0 100 2000\r\n"));
            client.send(&value);
            client.ask("\r\n", "STORED\r\n");
        }
        for _ in 0..200 {
            for [expiring, _] in &pairs {
                client.get(expiring, &value);
            }
            fill(client, 20);
        }
        assert_eq!(clients[0].stat("flash_hits"), 0);
        // At once, before any worker removes expired items.
        place.clock.fetch_add(101_000, Ordering::Relaxed);
        for [expiring, _] in &pairs {
            clients[0].ask(&format!("get {expiring}\r\n"), "END\r\n");
        }
        // Keys of both shards. How many are read across depends on how busy the other worker is, so
        // the count is over all rounds.
        assert!(clients[0].stat("senko_read_across") > 0);
        for [_, lasting] in &pairs {
            clients[0].get(lasting, &value);
        }
        assert_eq!(clients[0].stat("flash_hits"), pairs.len() as u64);
    });
}
