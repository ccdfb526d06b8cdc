// SPDX-License-Identifier: Apache-2.0
//! `--transfer sendfile` over real sockets: answers in order, slow and vanishing readers, and the log goes on behind them.

use std::io::Write;
use std::time::{Duration, Instant};

use senko_io::transfer::CachedFile;
use senko_io::{FileOptions, FlashFile};
use senko_server::settings::Transfer;

use crate::serve::client::{Client, PATIENCE, Place, Scratch, on_both};

/// Keys whose items lie on flash once [`fill`] has run.
const KEYS: usize = 1200;

fn len_of(n: usize) -> usize {
    [100, 3000, 9000, 50_000][n % 4]
}

fn value(n: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| b'a' + ((n * 31 + at * 7 + at / 251) % 26) as u8)
        .collect()
}

/// Whether the file system of the tests is one that sendfile is used on.
pub(crate) fn takes_sendfile() -> bool {
    let folder = Scratch::new();
    let options = FileOptions {
        bytes: 1 << 20,
        ..FileOptions::default()
    };
    let file = FlashFile::open(&folder.join("probe"), &options).unwrap();
    let opened = CachedFile::open(file.into());
    if let Err(error) = &opened {
        println!("skipped: {error}");
    }
    opened.is_ok()
}

/// Runs a test on both backends with servers that send by sendfile, where the file system is one that they take.
fn with_sendfile(threads: usize, test: impl Fn(Place)) {
    if !takes_sendfile() {
        return;
    }
    on_both(threads, |mut place| {
        place.end();
        std::fs::remove_file(place.folder.join("flash")).unwrap();
        let place = place.restart(|settings| {
            settings.transfer = Transfer::Sendfile;
            settings.promote_after = 3;
            settings.flash[0].bytes = 64 << 20;
            settings.region = Some(1 << 20);
        });
        test(place);
    });
}

/// Stores the keys, and after them as much as pushes them out of DRAM.
fn fill(client: &mut Client) {
    for n in 0..KEYS {
        client.store(&format!("f{n}"), &value(n, len_of(n)));
    }
    pad(client, 50 << 20);
}

fn pad(client: &mut Client, bytes: usize) {
    // Of the same sizes, since memory is given by sizes.
    let value = vec![b'p'; 50_000];
    let mut stored = 0;
    let mut n = 0;
    while stored < bytes {
        client.store(&format!("pad{n}"), &value[..len_of(n)]);
        stored += len_of(n);
        n += 1;
    }
}

fn stat(client: &mut Client, name: &str) -> u64 {
    let stats = client.text("stats\r\n", "END\r\n");
    let start = format!("STAT {name} ");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("{name} in {stats}"))
        .parse()
        .unwrap()
}

/// Reads the answer of a `get` of these keys; how many were there. A cache may have lost some, but what it has is right.
fn read_answer(client: &mut Client, keys: &[usize]) -> usize {
    let mut found = 0;
    let mut keys = keys.iter();
    loop {
        let line = String::from_utf8(client.until(b"\r\n")).unwrap();
        if line == "END\r\n" {
            return found;
        }
        let n = keys
            .find(|n| line == format!("VALUE f{n} 0 {}\r\n", len_of(**n)))
            .unwrap_or_else(|| panic!("{line:?} was not asked for, or not now"));
        client.expect(&value(*n, len_of(*n)));
        client.expect(b"\r\n");
        found += 1;
    }
}

#[test]
fn answers_come_in_order_whatever_stands_between() {
    with_sendfile(1, |place| {
        let mut client = place.connect();
        fill(&mut client);
        let mut sender = client.second_handle();
        let writer = std::thread::spawn(move || {
            for n in (0..KEYS - 8).step_by(8) {
                let request = format!(
                    "get f{n}\r\nmn\r\nget f{} nothing f{} f{} nothing\r\nget nothing\r\n\
                     gets f{}\r\nget f{}\r\nset f{} 0 0 2\r\nhi\r\nget f{}\r\nmg f{} v\r\n",
                    n + 1,
                    n + 2,
                    n + 3,
                    n + 4,
                    n + 5,
                    n + 5,
                    n + 5,
                    n + 6,
                );
                sender.write_all(request.as_bytes()).unwrap();
            }
        });
        let mut found = 0;
        for n in (0..KEYS - 8).step_by(8) {
            found += read_answer(&mut client, &[n]);
            client.expect(b"MN\r\n");
            found += read_answer(&mut client, &[n + 1, n + 2, n + 3]);
            client.expect(b"END\r\n");
            let gets = client.until(b"\r\nEND\r\n");
            let tail = [value(n + 4, len_of(n + 4)), b"\r\nEND\r\n".to_vec()].concat();
            assert!(gets.ends_with(&tail), "gets f{}", n + 4);
            found += read_answer(&mut client, &[n + 5]);
            client.expect(b"STORED\r\n");
            client.expect(format!("VALUE f{} 0 2\r\nhi\r\nEND\r\n", n + 5).as_bytes());
            let line = client.until(b"\r\n");
            assert_eq!(line, format!("VA {}\r\n", len_of(n + 6)).as_bytes());
            client.expect(&value(n + 6, len_of(n + 6)));
            client.expect(b"\r\n");
        }
        writer.join().unwrap();
        let transfers = stat(&mut client, "flash_sendfile_transfers");
        // A connection has one transfer at a time; what comes up for an answer meanwhile is read, so the share depends on
        // how fast the client takes its bytes.
        assert!(transfers > found as u64 / 16, "{transfers} of {found}");
        assert_eq!(stat(&mut client, "flash_checksum_errors"), 0);
        // Device counts are shown about ten times a second.
        let deadline = Instant::now() + PATIENCE;
        while stat(&mut client, "flash_device_reads") < transfers {
            assert!(Instant::now() < deadline, "reads are not counted");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(stat(&mut client, "flash_hits") >= transfers);
    });
}

#[test]
fn a_hit_that_is_due_brings_the_item_to_dram() {
    with_sendfile(1, |place| {
        let mut client = place.connect();
        fill(&mut client);
        for _ in 0..4 {
            client.send(b"get f3\r\n");
            assert_eq!(read_answer(&mut client, &[3]), 1);
        }
        assert_eq!(stat(&mut client, "flash_sendfile_transfers"), 2);
        assert_eq!(stat(&mut client, "flash_promotions"), 1);
        // The two that sendfile answered were counted in no class.
        client.send(b"stats slabs\r\n");
        let slabs = String::from_utf8(client.until(b"END\r\n")).unwrap();
        let hits = slabs.lines().filter_map(|line| {
            let (_, count) = line.split_once(":get_hits ")?;
            count.parse::<u64>().ok()
        });
        assert_eq!(hits.sum::<u64>(), 4, "{slabs}");
    });
}

#[test]
fn a_slow_reader_gets_everything() {
    with_sendfile(1, |place| {
        let mut client = place.connect();
        fill(&mut client);
        let keys: Vec<usize> = (3..KEYS).step_by(4).collect();
        let mut slow = place.connect();
        let mut sender = slow.second_handle();
        let asked = keys.clone();
        let writer = std::thread::spawn(move || {
            for n in asked {
                sender
                    .write_all(format!("get f{n}\r\n").as_bytes())
                    .unwrap();
            }
        });
        // Fifteen megabytes wait for somebody who does not read; others are served, from flash too.
        let others: Vec<usize> = (1..KEYS).step_by(4).collect();
        let mut found = 0;
        for n in &others {
            client.send(format!("get f{n}\r\n").as_bytes());
            found += read_answer(&mut client, &[*n]);
        }
        assert!(found > others.len() * 9 / 10, "{found}");
        found = keys
            .iter()
            .map(|n| read_answer(&mut slow, &[*n]))
            .sum::<usize>();
        assert!(found > keys.len() * 9 / 10, "{found}");
        writer.join().unwrap();
    });
}

#[test]
fn clients_that_vanish_leave_no_region_behind() {
    with_sendfile(1, |place| {
        let mut client = place.connect();
        fill(&mut client);
        for round in 0..150 {
            let mut vanishing = place.connect();
            let mut request = Vec::new();
            for n in 0..40 {
                let key = (round * 41 + n * 7) % KEYS;
                request.extend_from_slice(format!("get f{key} f{}\r\n", key + 1).as_bytes());
            }
            vanishing.send(&request);
            if round % 3 == 0 {
                read_answer(
                    &mut vanishing,
                    &[(round * 41) % KEYS, (round * 41) % KEYS + 1],
                );
            }
            if round % 2 == 0 {
                vanishing
                    .stream
                    .shutdown(std::net::Shutdown::Write)
                    .unwrap();
            }
            vanishing.reset();
        }
        place.wait_for_connections(1);
        client.ask("mn\r\n", "MN\r\n");
        // A region that somebody still held would stop the log within a lap of 64 regions.
        let before = stat(&mut client, "flash_reclaimed_regions");
        pad(&mut client, 150 << 20);
        let after = stat(&mut client, "flash_reclaimed_regions");
        assert!(after > before + 70, "{before} {after}");
    });
}

#[test]
fn with_several_workers_and_an_end_in_the_middle() {
    with_sendfile(2, |mut place| {
        let mut client = place.connect();
        fill(&mut client);
        let mut clients: Vec<Client> = (0..6).map(|_| place.connect()).collect();
        for round in 0..20 {
            for (c, client) in clients.iter_mut().enumerate() {
                let n = (round * 53 + c * 200) % (KEYS - 3);
                client.send(format!("get f{n} f{} f{}\r\n", n + 1, n + 2).as_bytes());
            }
            for (c, client) in clients.iter_mut().enumerate() {
                let n = (round * 53 + c * 200) % (KEYS - 3);
                read_answer(client, &[n, n + 1, n + 2]);
            }
        }
        assert!(stat(&mut client, "flash_sendfile_transfers") > 20);
        // What was received is answered before the end.
        for client in &mut clients {
            for n in 0..50 {
                client.send(format!("get f{}\r\n", n * 4 + 3).as_bytes());
            }
        }
        for client in &mut clients {
            read_answer(client, &[3]);
        }
        place.end();
        for client in &mut clients {
            for n in 1..50 {
                read_answer(client, &[n * 4 + 3]);
            }
        }
    });
}
