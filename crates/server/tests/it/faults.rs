// SPDX-License-Identifier: Apache-2.0
//! A server whose flash device fails, over real sockets and on both backends: reads or writes fail,
//! or the device stalls for a while or forever, or is gone. Whatever the device does, every
//! connection gets right answers, and the server reports the failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use senko_io::Op;
use senko_io::fault::{Fault, FaultSwitch};
use senko_server::settings::{BackendChoice, FlashSpec};

use crate::serve::client::{Client, PATIENCE, Place};

/// Keys whose items are on flash once [`fill`] has run.
const KEYS: usize = 800;
const EIO: Fault = Fault::Errno(5);
const ENODEV: Fault = Fault::Errno(19);
const ENOSPC: Fault = Fault::Errno(28);
const EVERYWHERE: std::ops::Range<u64> = 0..u64::MAX;

fn len_of(n: usize) -> usize {
    [100, 3000, 9000, 150_000][n % 4]
}

/// A value that names its key, its version and the offset of each part.
fn value(n: usize, version: usize) -> Vec<u8> {
    (0..len_of(n))
        .map(|at| b'a' + ((n * 31 + version * 17 + at * 7 + at / 251) % 26) as u8)
        .collect()
}

struct Bench {
    place: Place,
    switches: Vec<Arc<FaultSwitch>>,
}

/// Runs a test on both backends and with one worker or two, with `devices` flash files and a switch
/// for each.
fn on_both(devices: usize, test: impl Fn(&mut Bench)) {
    for (io, threads) in [
        (BackendChoice::Auto, 1),
        (BackendChoice::Auto, 2),
        (BackendChoice::Posix, 2),
    ] {
        let switches: Vec<_> = (0..devices).map(|_| FaultSwitch::new()).collect();
        let mut place = Place::start(io, threads);
        place.end();
        let files = (0..devices).map(|n| FlashSpec {
            path: place.folder.join(&format!("flash{n}")),
            bytes: 256 << 20,
        });
        let files: Vec<_> = files.collect();
        let place = place.restart(|settings| {
            settings.flash = files;
            settings.faults = switches.clone();
            settings.region = Some(1 << 20);
            settings.promote_after = 3;
            // Devices are to be taken out of use here, and soon.
            settings.patience = 1;
        });
        test(&mut Bench { place, switches });
    }
}

fn stats(client: &mut Client) -> impl Fn(&str) -> u64 + use<> {
    let stats = client.stats();
    move |name| stats.get(name)
}

/// Repeats an action until a statistic has the wanted value. The server takes devices out of use,
/// and tries them again, in its own time.
fn until(bench: &Bench, name: &str, wanted: impl Fn(u64) -> bool, mut each: impl FnMut()) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut client = bench.place.connect();
    loop {
        let now = stats(&mut client)(name);
        if wanted(now) {
            return;
        }
        assert!(Instant::now() < deadline, "{name} stays {now}");
        each();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Stores the keys, and after them enough items to push them out of DRAM. It repeats this if the
/// disk, busy with other work, did not take all in time.
fn fill(bench: &Bench) {
    let mut client = bench.place.connect();
    for _ in 0..5 {
        let before = stats(&mut client)("flash_drops_busy");
        until(bench, "flash_devices_out", |n| n == 0, || {});
        for n in 0..KEYS {
            client.store(&format!("f{n}"), &value(n, 0));
        }
        pad(&mut client, 80 << 20);
        if stats(&mut client)("flash_drops_busy") == before {
            break;
        }
    }
}

/// Stores this much under new keys: it has to go to flash, or is dropped.
fn pad(client: &mut Client, bytes: usize) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Larger values go straight to flash, and push nothing out.
    let text = vec![b'p'; 60_000];
    let mut stored = 0;
    while stored < bytes {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let len = len_of(n).min(text.len());
        client.store(&format!("pad{n}"), &text[..len]);
        stored += len;
    }
}

/// Stores until about a hundred more items have gone to flash.
fn until_items_go_to_flash(bench: &Bench) {
    let mut client = bench.place.connect();
    let before = stats(&mut client)("flash_demotions");
    let enough = |n| n > before + 100;
    until(bench, "flash_demotions", enough, || {
        pad(&mut client, 8 << 20)
    });
}

/// Reads one key. It must have no value or its value of this version. Returns whether it has one.
/// If a part of a large value can't be read, the connection ends after the bytes before that part.
fn read(client: &mut Client, n: usize, version: usize) -> bool {
    client.send(format!("get f{n}\r\n"));
    let line = client.until(b"\r\n");
    if line == b"END\r\n" {
        return false;
    }
    let wanted = format!("VALUE f{n} 0 {}\r\n", len_of(n));
    assert_eq!(String::from_utf8_lossy(&line), wanted);
    let whole = client.expect_or_end(&[&value(n, version)[..], b"\r\nEND\r\n"].concat());
    if !whole {
        *client = client.again();
    }
    whole
}

/// Those of these keys that exist.
fn those_found(bench: &Bench, keys: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut client = bench.place.connect();
    keys.filter(|&n| read(&mut client, n, 0)).collect()
}

/// The number of these keys that exist.
fn read_all(bench: &Bench, keys: impl Iterator<Item = usize>) -> usize {
    those_found(bench, keys).len()
}

/// Items in DRAM are served whatever flash does.
fn serves_from_dram(bench: &Bench) {
    let mut client = bench.place.connect();
    for n in 0..50 {
        client.ask(&format!("set d{n} 0 0 2\r\n{n:02}\r\n"), "STORED\r\n");
        let wanted = format!("VALUE d{n} 0 2\r\n{n:02}\r\nEND\r\n");
        client.ask(&format!("get d{n}\r\n"), &wanted);
    }
}

#[test]
fn reads_that_fail_are_misses_until_the_device_is_well() {
    on_both(1, |bench| {
        fill(bench);
        // A busy disk takes fewer of them.
        let stored = those_found(bench, 400..KEYS);
        assert!(stored.len() > 100, "only {stored:?} are on flash");
        let before = stats(&mut bench.place.connect())("flash_device_outages");
        bench.switches[0].inject(Some(Op::Read), EVERYWHERE, EIO);
        let found = read_all(bench, 0..400);
        assert!(
            found < 380,
            "{found} of 400 were found on a device that reads nothing"
        );
        until(bench, "flash_devices_out", |n| n == 1, || {});
        let mut client = bench.place.connect();
        let stat = stats(&mut client);
        // Each worker judges its part of the device.
        let workers = bench.place.settings().threads as u64;
        let outages = stat("flash_device_outages") - before;
        assert!((1..=workers).contains(&outages), "{outages} outages");
        let (errors, out) = (stat("flash_read_errors"), stat("flash_misses_out"));
        assert!(errors >= 16 && out > 0, "{errors} {out} {found}");
        // The device gets no more reads: all reads but the first few were misses without one.
        assert!(errors < 40 * workers, "{errors}");
        serves_from_dram(bench);
        pad(&mut client, 8 << 20);
        bench.switches[0].clear();
        until(bench, "flash_devices_out", |n| n == 0, || {});
        let again = those_found(bench, 400..KEYS);
        let lost: Vec<_> = stored.iter().filter(|n| !again.contains(n)).collect();
        assert!(2 * lost.len() < stored.len(), "{lost:?} are lost");
        serves_from_dram(bench);
    });
}

#[test]
fn what_was_changed_while_a_device_was_out_stays_changed() {
    on_both(1, |bench| {
        fill(bench);
        bench.switches[0].inject(None, EVERYWHERE, ENODEV);
        let mut client = bench.place.connect();
        until(
            bench,
            "flash_devices_out",
            |n| n == 1,
            || {
                read_all(bench, 0..1);
                let mut client = bench.place.connect();
                pad(&mut client, 4 << 20);
            },
        );
        for n in 100..400 {
            // If the item was still in DRAM, the command finds it.
            let answer = match n % 4 {
                0 => client.text(&format!("delete f{n}\r\n"), "\r\n"),
                1 => client.text(&format!("set f{n} 0 0 3\r\nnew\r\n"), "\r\n"),
                2 => client.text(&format!("get f{n}\r\n"), "END\r\n"),
                _ => client.text(&format!("touch f{n} 1\r\n"), "\r\n"),
            };
            assert!(
                [
                    "DELETED\r\n",
                    "NOT_FOUND\r\n",
                    "STORED\r\n",
                    "END\r\n",
                    "TOUCHED\r\n"
                ]
                .contains(&answer.as_str())
                    || answer.starts_with("VALUE"),
                "{answer}"
            );
            if n % 4 == 2 && answer.starts_with("VALUE") {
                client.text(&format!("delete f{n}\r\n"), "\r\n");
            }
        }
        bench.place.clock.fetch_add(5000, Ordering::Relaxed);
        bench.switches[0].clear();
        until(bench, "flash_devices_out", |n| n == 0, || {});
        for n in 100..400 {
            let answer = client.text(&format!("get f{n}\r\n"), "END\r\n");
            let wanted = format!("VALUE f{n} 0 3\r\nnew\r\nEND\r\n");
            // A value that was reported as absent, deleted or expired never comes back; a new one
            // may have been dropped since.
            let right = answer == "END\r\n" || n % 4 == 1 && answer == wanted;
            assert!(right, "f{n}: {}", &answer[..answer.len().min(80)]);
        }
        assert!(
            read_all(bench, 400..KEYS) > 100,
            "what was not asked for is still there"
        );
    });
}

#[test]
fn writes_that_fail_leave_reads_alone() {
    for fault in [EIO, ENOSPC] {
        on_both(1, |bench| {
            fill(bench);
            bench.switches[0].inject(Some(Op::Write), EVERYWHERE, fault);
            let mut client = bench.place.connect();
            until(
                bench,
                "flash_devices_read_only",
                |n| n == 1,
                || pad(&mut client, 4 << 20),
            );
            let mut client = bench.place.connect();
            let before = stats(&mut client);
            pad(&mut client, 16 << 20);
            let stat = stats(&mut client);
            assert!(stat("flash_drops_error") > before("flash_drops_error"));
            // Probes, not items, find out whether the device works again. Their intervals double,
            // so there are few in whatever time this took.
            assert!(stat("flash_write_errors") - before("flash_write_errors") < 12);
            assert_eq!(stat("flash_devices_out"), 0);
            let found = read_all(bench, 0..200);
            assert!(found > 100, "{found} of 200 are still served");
            bench.switches[0].clear();
            until(bench, "flash_devices_read_only", |n| n == 0, || {});
            let before = stats(&mut client);
            until_items_go_to_flash(bench);
            let stat = stats(&mut client);
            assert_eq!(stat("flash_write_errors"), before("flash_write_errors"));
            // No slot of a failed write is followed, except for a record that begins before the
            // write and reaches into it. Each of the few failed writes has at most one such record.
            let followed = stat("flash_checksum_errors");
            assert!(
                followed < 8,
                "{followed} slots of failed writes were followed"
            );
            serves_from_dram(bench);
        });
    }
}

#[test]
fn some_bad_pages_cost_what_lies_in_them() {
    on_both(1, |bench| {
        fill(bench);
        // A few pages in many places, not all in a row.
        for n in 0..100 {
            let first = n * 640;
            bench.switches[0].inject(Some(Op::Read), first..first + 3, EIO);
        }
        let mut client = bench.place.connect();
        let before = stats(&mut client)("flash_device_outages");
        let found = read_all(bench, 0..KEYS);
        let stat = stats(&mut client);
        assert!(stat("flash_read_errors") > 0, "none was met");
        assert_eq!(stat("flash_device_outages"), before);
        assert!(found > KEYS * 8 / 10, "{found} of {KEYS}");
        // Unreadable items are forgotten, and not read again.
        let before = stats(&mut client)("flash_read_errors");
        read_all(bench, 0..KEYS);
        assert_eq!(stats(&mut client)("flash_read_errors"), before);
    });
}

/// Stalls the device for half a second. Returns whether that was a pause, and no more than that.
fn stalls_for_a_moment(bench: &Bench) -> bool {
    until(bench, "flash_devices_out", |n| n == 0, || {});
    fill(bench);
    let mut client = bench.place.connect();
    let before = stats(&mut client);
    bench.switches[0].inject(None, EVERYWHERE, Fault::Stall);
    let mut reader = bench.place.connect();
    for n in 0..100 {
        reader.send(format!("get f{n}\r\n"));
    }
    reader.send(b"mn\r\n");
    // DRAM does not wait until the device goes on, or is taken out of use.
    serves_from_dram(bench);
    // A store that must evict waits or drops its victim, and succeeds.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| pad(&mut bench.place.connect(), 80 << 20));
        std::thread::sleep(Duration::from_millis(500));
        bench.switches[0].clear();
        writer.join().unwrap();
    });
    let mut found = 0;
    for n in 0..100 {
        let line = reader.until(b"\r\n");
        if line != b"END\r\n" {
            reader.expect(&value(n, 0));
            reader.expect(b"\r\nEND\r\n");
            found += 1;
        }
    }
    reader.expect(b"MN\r\n");
    let stat = stats(&mut client);
    let same = |name| stat(name) == before(name);
    if !same("flash_device_outages") || same("flash_device_pauses") {
        return false;
    }
    assert!(found > 80, "{found} of 100");
    true
}

#[test]
fn a_device_that_stalls_for_a_moment_loses_nothing() {
    on_both(1, |bench| {
        // If the machine itself is slow, the device may be taken out of use before it goes on, or
        // the server notices no pause: then there is another moment.
        let deadline = Instant::now() + 3 * PATIENCE;
        while !stalls_for_a_moment(bench) {
            assert!(
                Instant::now() < deadline,
                "answers from DRAM waited until the device was given up, or no pause was counted"
            );
        }
        let mut client = bench.place.connect();
        assert!(stats(&mut client)("flash_device_pause_ms") >= 300);
        client.ask("stats reset\r\n", "RESET\r\n");
        until(bench, "flash_device_pauses", |n| n == 0, || {});
    });
}

#[test]
fn a_device_that_stalls_for_ever_hangs_nobody() {
    on_both(1, |bench| {
        fill(bench);
        bench.switches[0].inject(None, EVERYWHERE, Fault::Stall);
        // Far more reads than there are frames, small and large, and commands that must read before
        // they can answer.
        let mut readers: Vec<Client> = (0..8).map(|_| bench.place.connect()).collect();
        for (which, reader) in readers.iter_mut().enumerate() {
            for n in (which..400).step_by(8) {
                reader.send(format!("get f{n}\r\n"));
            }
            reader.send(format!("touch f{} 0\r\nmn\r\n", 500 + which));
            reader.send(format!("incr f{} 1\r\nmn\r\n", 600 + which));
        }
        serves_from_dram(bench);
        for reader in &mut readers {
            reader.until(b"MN\r\n");
            reader.until(b"MN\r\n");
        }
        until(bench, "flash_devices_out", |n| n == 1, || {});
        let mut client = bench.place.connect();
        let stat = stats(&mut client);
        assert!(stat("flash_read_timeouts") > 0);
        // Everything that needs only DRAM continues, including eviction.
        serves_from_dram(bench);
        pad(&mut client, 80 << 20);
        client.store("f1", &value(1, 3));
        assert!(read(&mut client, 1, 3));
        // The device recovers.
        bench.switches[0].clear();
        until(bench, "flash_devices_out", |n| n == 0, || {});
        assert!(read(&mut client, 1, 3));
        let found = read_all(bench, 620..KEYS);
        assert!(found > 100, "{found} of 180 came back");
        // Now it stalls forever: the server can still be stopped.
        bench.switches[0].inject(None, EVERYWHERE, Fault::Stall);
        client.send(b"get f700 f701 f702 f703\r\nmn\r\n");
        client.until(b"MN\r\n");
        bench.place.end();
    });
}

/// Stores a value. False if it was refused, because it went straight to a device that failed: then
/// the key has no value.
fn try_store(client: &mut Client, key: &str, value: &[u8]) -> bool {
    client.send(format!("set {key} 0 0 {}\r\n", value.len()));
    client.send(value);
    client.send("\r\n");
    let answer = client.until(b"\r\n");
    if answer == b"STORED\r\n" {
        return true;
    }
    // It failed on its way to flash, or there was none for it, nor memory.
    let refused = [
        "SERVER_ERROR object not written to flash\r\n",
        "SERVER_ERROR out of memory storing object\r\n",
    ];
    assert!(refused.iter().any(|text| answer == text.as_bytes()));
    client.ask(&format!("get {key}\r\n"), "END\r\n");
    false
}

#[test]
fn large_items_are_written_to_a_device_that_stalls() {
    // An item larger than the write buffers used to wait in DRAM for the device, and with it
    // everything that needed memory for it.
    on_both(1, |bench| {
        let mut client = bench.place.connect();
        let large = vec![b'x'; 900_000];
        for n in 0..30 {
            client.store(&format!("large{n}"), &large);
        }
        bench.switches[0].inject(None, EVERYWHERE, Fault::Stall);
        let stored = (0..200).filter(|n| try_store(&mut client, &format!("large{n}"), &large));
        assert!(
            stored.count() > 150,
            "only what was on its way to the device is refused"
        );
        until(bench, "flash_devices_out", |n| n == 1, || {});
        bench.switches[0].clear();
        until(bench, "flash_devices_out", |n| n == 0, || {});
        // Repeated if the disk, busy with other work, did not take them in time.
        let found = (0..5).any(|_| {
            for n in 0..200 {
                client.store(&format!("large{n}"), &large);
            }
            let found = (0..200).filter(|n| {
                client.send(format!("get large{n}\r\n"));
                if client.until(b"\r\n") == b"END\r\n" {
                    return false;
                }
                client.expect(&large);
                client.expect(b"\r\nEND\r\n");
                true
            });
            found.count() > 50
        });
        assert!(found, "fewer than 50 of 200 are kept");
    });
}

/// A large value is half written when its device fails, stalls or goes: the command is refused in
/// words that say so, and the old value is not left in its place.
///
/// If only writes stalled, the client once waited for ever. Before a `set` is refused, the old
/// value is read. That read ended, so the device did not stall any more, and the value was waited
/// for.
#[test]
fn a_device_fails_under_a_large_value() {
    for (fault, op) in [
        (EIO, Some(Op::Write)),
        (Fault::Stall, Some(Op::Write)),
        (ENODEV, None),
    ] {
        on_both(1, |bench| {
            let mut client = bench.place.connect();
            let large = vec![b'x'; 900_000];
            client.store("k", &value(3, 0));
            let written = stats(&mut client)("flash_written_bytes");
            let mut own = client.again();
            own.send(format!("set k 0 0 {}\r\n", large.len()));
            own.send(&large[..500_000]);
            let enough = |n| n > written + (128 << 10);
            until(bench, "flash_written_bytes", enough, || {});
            bench.switches[0].inject(op, EVERYWHERE, fault);
            own.send(&large[500_000..]);
            own.ask("\r\n", "SERVER_ERROR object not written to flash\r\n");
            own.ask("get k\r\nmn\r\n", "END\r\nMN\r\n");
            bench.switches[0].clear();
            for bad in ["flash_devices_out", "flash_devices_read_only"] {
                until(bench, bad, |n| n == 0, || {});
            }
            let uploads = stats(&mut client)("flash_uploads");
            until(
                bench,
                "flash_uploads",
                |n| n > uploads,
                || client.store("k", &large),
            );
            client.send("get k\r\n");
            client.expect_value("k", &large);
            assert_eq!(stats(&mut client)("store_no_memory"), 0);
        });
    }
}

#[test]
fn one_device_of_two_may_go() {
    for fault in [ENODEV, Fault::Stall] {
        on_both(2, |bench| {
            fill(bench);
            bench.switches[1].inject(None, EVERYWHERE, fault);
            until(
                bench,
                "flash_devices_out",
                |n| n == 1,
                || {
                    read_all(bench, 0..4);
                    let mut client = bench.place.connect();
                    pad(&mut client, 2 << 20);
                },
            );
            let found = read_all(bench, 100..300);
            // A stalled device keeps frames that the other device would need for large items.
            assert!(found > 40, "{found} of 200 on the device that is left");
            until_items_go_to_flash(bench);
            let stat = stats(&mut bench.place.connect());
            assert_eq!((stat("flash_devices"), stat("flash_devices_out")), (2, 1));
            bench.switches[1].clear();
            until(bench, "flash_devices_out", |n| n == 0, || {});
            assert!(read_all(bench, 300..KEYS) > 350);
        });
    }
}

#[test]
fn faults_that_come_and_go_leave_nothing_wrong() {
    on_both(1, |bench| {
        let mut versions = vec![0; KEYS];
        fill(bench);
        let mut client = bench.place.connect();
        let faults = [
            None,
            Some(EIO),
            None,
            Some(Fault::Stall),
            None,
            Some(ENOSPC),
        ];
        for (round, fault) in faults.into_iter().cycle().take(18).enumerate() {
            if let Some(fault) = fault {
                let op = [None, Some(Op::Read), Some(Op::Write)][round % 3];
                bench.switches[0].inject(op, EVERYWHERE, fault);
            } else {
                bench.switches[0].clear();
            }
            for n in (round * 37 % 100..KEYS).step_by(7) {
                if (n + round) % 3 == 0 {
                    versions[n] = round + 1;
                    try_store(&mut client, &format!("f{n}"), &value(n, round + 1));
                } else {
                    read(&mut client, n, versions[n]);
                }
            }
        }
        bench.switches[0].clear();
        until(bench, "flash_devices_out", |n| n == 0, || {});
        for (n, version) in versions.iter().enumerate() {
            read(&mut client, n, *version);
        }
    });
}
