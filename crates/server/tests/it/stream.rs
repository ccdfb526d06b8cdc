// SPDX-License-Identifier: Apache-2.0
//! Large values on their way from flash to real sockets: every byte or none, on each backend and
//! with one worker or two. What they take of DRAM (nothing), what a client can hold, and what
//! damage costs.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use senko_server::settings::BackendChoice;

use crate::serve::client::{Client, PATIENCE, Place, on_both};

const KIB: usize = 1 << 10;

/// A value that names its key and the offset of each part.
fn value(n: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| b'a' + ((n * 31 + at * 7 + at / 251) % 26) as u8;
    (0..len).map(byte).collect()
}

fn store_large(client: &mut Client, n: usize, len: usize) {
    client.store(&format!("large{n}"), &value(n, len));
}

/// Stores this many bytes under new keys. Values that were stored when DRAM was full leave it.
fn push_out(client: &mut Client, bytes: usize) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let filler = vec![b'.'; 1 << 20];
    let mut stored = 0;
    while stored < bytes {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let len = [70_000, 200_000, 330_000, 1 << 20][n % 4];
        client.store(&format!("filler{n}"), &filler[..len]);
        stored += len;
    }
}

/// A connection to a server whose DRAM is full.
fn full(place: &Place) -> Client {
    let mut client = place.connect();
    push_out(&mut client, 60 << 20);
    client
}

/// Waits until a counter is at least this.
fn wait_for(client: &mut Client, name: &str, least: u64) {
    let deadline = Instant::now() + PATIENCE;
    while client.stat(name) < least {
        assert!(Instant::now() < deadline, "{name} stays below {least}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn values_of_all_sizes_come_whole_and_take_no_memory() {
    for threads in [1, 2] {
        on_both(threads, |place| {
            let socket = place.folder.join("socket");
            let path = socket.clone();
            let place = place.restart(move |settings| {
                settings.max_item = 2 << 20;
                settings.unix_socket = Some(path);
            });
            let mut client = full(&place);
            let sizes = [
                64 * KIB - 1,
                64 * KIB,
                64 * KIB + 1,
                65_474,
                65_475,
                128 * KIB - 90,
                128 * KIB - 70,
                128 * KIB,
                300_000,
                1024 * KIB,
                2000 * KIB,
            ];
            for (n, &len) in sizes.iter().enumerate() {
                store_large(&mut client, n, len);
            }
            client.store("small", b"tiny");
            push_out(&mut client, 160 << 20);
            client.store("small", b"tiny");
            let before = client.stats();
            for (n, &len) in sizes.iter().enumerate() {
                client.get(&format!("large{n}"), &value(n, len));
            }
            let after = client.stats();
            assert!(
                after.get("senko_streams") - before.get("senko_streams") > 6,
                "{}",
                after.0
            );
            for name in ["evictions", "flash_promotions", "flash_demotions"] {
                assert_eq!(after.get(name), before.get(name), "{name}");
            }
            // The other forms of the answer, large beside small.
            let (large, other) = (value(9, 1024 * KIB), value(8, 300_000));
            let text = |key: &str, value: &[u8]| {
                let line = format!("VALUE {key} 0 {}\r\n", value.len());
                [line.as_bytes(), value, b"\r\n"].concat()
            };
            let wanted = [
                text("large9", &large),
                text("small", b"tiny"),
                text("large8", &other),
                b"END\r\n".to_vec(),
            ];
            client.send(b"get large9 nope small large8\r\n");
            client.expect(&wanted.concat());
            client.send(b"mg large9 v s\r\nmg small v\r\nmg large8 v t\r\nmn\r\n");
            client.expect(format!("VA {} s{}\r\n", large.len(), large.len()).as_bytes());
            client.expect(&large);
            client.expect(b"\r\nVA 4\r\ntiny\r\nVA 300000 t-1\r\n");
            client.expect(&other);
            client.expect(b"\r\nMN\r\n");
            client.send(b"gets large8\r\n");
            let line = String::from_utf8(client.until(b"\r\n")).unwrap();
            assert!(line.starts_with("VALUE large8 0 300000 "), "{line}");
            client.expect(&other);
            client.expect(b"\r\nEND\r\n");
            let mut binary = place.connect();
            for n in [9, 8] {
                let key = format!("large{n}");
                let mut packet = vec![0x80, 0, 0, key.len() as u8];
                packet.resize(24, 0);
                packet[11] = key.len() as u8;
                packet.extend_from_slice(key.as_bytes());
                binary.send(packet);
            }
            for value in [&large, &other] {
                let head = binary.exactly(28);
                assert_eq!(head[..8], [0x81, 0, 0, 0, 4, 0, 0, 0]);
                binary.expect(value);
            }
            let mut local = Client::over(UnixStream::connect(&socket).unwrap());
            local.get("large8", &other);
            assert_eq!(client.stat("senko_streams_broken"), 0);
        });
    }
}

/// Clients that leave in the middle of a value leave no frame and no region behind.
#[test]
fn clients_that_vanish_in_the_middle_leave_nothing() {
    for threads in [1, 2] {
        on_both(threads, |place| {
            let place = place.restart(|settings| settings.max_item = 8 << 20);
            let mut client = full(&place);
            for n in 0..4 {
                store_large(&mut client, n, 6 << 20);
            }
            push_out(&mut client, 100 << 20);
            for round in 0..60 {
                let mut other = place.connect();
                other.send(b"get large0 large1 large2 large3\r\n");
                other.exactly(20 + round * 40_000);
                other.reset();
            }
            for n in 0..4 {
                client.get(&format!("large{n}"), &value(n, 6 << 20));
            }
            // Reclaim goes around: no region is pinned.
            let before = client.stat("flash_reclaimed_regions");
            push_out(&mut client, 400 << 20);
            wait_for(&mut client, "flash_reclaimed_regions", before + 10);
            assert_eq!(client.stat("senko_streams_stalled"), 0);
        });
    }
}

/// A byte of the flash file changes. The client gets the bytes before that piece and no more; then
/// the item is gone.
#[test]
fn a_damaged_piece_ends_the_connection() {
    for threads in [1, 2] {
        on_both(threads, |place| {
            let place = place.restart(|settings| settings.max_item = 2 << 20);
            let mut client = full(&place);
            let len = 340_000;
            for n in 0..6 {
                store_large(&mut client, n, len);
            }
            push_out(&mut client, 130 << 20);
            for n in 1..6 {
                flip(&place, n, n * 64 * KIB + 5000);
            }
            client.get("large0", &value(0, len));
            for n in 1..6 {
                let mut other = place.connect();
                other.send(format!("get large{n}\r\n"));
                let wanted = format!("VALUE large{n} 0 {len}\r\n");
                other.expect(wanted.as_bytes());
                let got = other.rest();
                assert!(value(n, len).starts_with(&got), "a wrong byte of {n}");
                assert!(got.len() <= n * 64 * KIB, "a byte of the damaged piece");
                wait_for(&mut client, "senko_streams_broken", n as u64);
                let deadline = Instant::now() + PATIENCE;
                loop {
                    let mut again = place.connect();
                    again.send(format!("get large{n}\r\n"));
                    if again.until(b"\r\n") == b"END\r\n" {
                        break;
                    }
                    assert!(Instant::now() < deadline, "it is forgotten");
                }
            }
        });
    }
}

/// Changes a byte of a large item on flash.
fn flip(place: &Place, n: usize, offset: usize) {
    let path = place.folder.join("flash");
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    let text = format!("VALUE large{n} 0 ");
    let pages = bytes.chunks(4096).enumerate();
    let begins = |page: &[u8]| page[32..].starts_with(text.as_bytes());
    let mut found = pages.filter(|(_, page)| begins(page));
    let (page, _) = found.next().expect("it is on flash");
    let at = page * 4096 + offset;
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(&[bytes[at] ^ 1]).unwrap();
    file.sync_all().unwrap();
}

/// A client that asks for a value and reads nothing keeps its region, for a while.
#[test]
fn a_reader_that_stands_still_is_closed_when_reclaim_has_waited() {
    for (io, threads) in [(BackendChoice::Auto, 1), (BackendChoice::Auto, 2)] {
        let place = Place::start(io, threads).restart(|settings| {
            settings.max_item = 12 << 20;
            settings.stall = 1;
        });
        let mut client = full(&place);
        for n in 0..2 {
            store_large(&mut client, n, 10 << 20);
        }
        push_out(&mut client, 100 << 20);
        let streams = client.stat("senko_streams");
        let mut still = place.connect();
        still.send(b"get large0 large1\r\n");
        wait_for(&mut client, "senko_streams", streams + 1);
        // Once around: reclaim waits.
        push_out(&mut client, 300 << 20);
        let deadline = Instant::now() + PATIENCE;
        while client.stat("senko_streams_stalled") == 0 {
            push_out(&mut client, 1 << 20);
            assert!(Instant::now() < deadline, "{}", client.stats().0);
        }
        let got = still.rest();
        let whole = 2 * (10 << 20) + 60;
        assert!(got.len() < whole, "{} of {whole}", got.len());
        let before = client.stat("flash_reclaimed_regions");
        push_out(&mut client, 300 << 20);
        wait_for(&mut client, "flash_reclaimed_regions", before + 10);
    }
}

/// Reads of small values once took each frame that came back, and the next piece of a large value
/// waited for as long as there were such reads.
#[test]
fn a_value_that_was_begun_is_not_starved() {
    let place = Place::start(BackendChoice::Auto, 1).restart(|settings| {
        settings.max_item = 2 << 20;
        settings.promote_after = 0;
    });
    let mut client = full(&place);
    for n in 0..4 {
        store_large(&mut client, n, 600_000);
    }
    for n in 0..2000 {
        client.store(&format!("small{n}"), &[b's'; 2000]);
    }
    push_out(&mut client, 120 << 20);
    let port = place.port();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for first in 0..8 {
            let ended = &ended;
            scope.spawn(move || {
                let (mut client, mut n) = (Client::connect(port), first * 250);
                while !ended.load(Ordering::Relaxed) {
                    let mut asked = String::new();
                    for _ in 0..200 {
                        n = (n + 7) % 2000;
                        asked += &format!("get small{n}\r\n");
                    }
                    client.send(asked + "mn\r\n");
                    client.until(b"MN\r\n");
                }
            });
        }
        for n in 0..40 {
            let behind = "get small1\r\n".repeat(31);
            client.send(format!("get large{}\r\n{behind}mn\r\n", n % 4));
            let got = client.until(b"MN\r\n");
            let large = value(n % 4, 600_000);
            assert!(got.windows(large.len()).any(|part| part == large));
        }
        ended.store(true, Ordering::Relaxed);
    });
}

/// Readers that are slow, but read, beside others: all get every byte.
#[test]
fn slow_readers_get_every_byte_and_hold_up_nobody() {
    on_both(2, |place| {
        let place = place.restart(|settings| settings.max_item = 8 << 20);
        let mut client = full(&place);
        for n in 0..3 {
            store_large(&mut client, n, 5 << 20);
        }
        push_out(&mut client, 100 << 20);
        let mut slow: Vec<Client> = (0..12).map(|_| place.connect()).collect();
        for (n, reader) in slow.iter_mut().enumerate() {
            reader.send(format!("get large{}\r\n", n % 3));
        }
        for n in 0..300 {
            client.ask(&format!("set k{n} 0 0 1\r\nx\r\n"), "STORED\r\n");
            client.get(&format!("k{n}"), b"x");
        }
        for (n, reader) in slow.iter_mut().enumerate() {
            reader.expect_value(&format!("large{}", n % 3), &value(n % 3, 5 << 20));
        }
    });
}
