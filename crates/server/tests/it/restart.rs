// SPDX-License-Identifier: Apache-2.0
//! A server with a data directory: stopped and started again, and started from a copy of the state
//! that a kill would leave.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::serve::client::{Client, DEVICE_PATIENCE, PATIENCE, Place};
use senko_cache::Superblock;
use senko_io::trace::{Record, TraceReader};
use senko_io::{FileOptions, FlashFile, Op, PAGE_SIZE};
use senko_server::server::{RunningServer, Server};
use senko_server::settings::{BackendChoice, FlashSpec, Settings};

/// Values of about a kilobyte: most of these are on flash.
const KEYS: usize = 60_000;

fn value(key: usize, version: usize) -> String {
    format!("{key}.{version}.").repeat(1000 / (key.to_string().len() + 3))
}

fn begin(threads: usize, change: impl FnOnce(&mut Settings)) -> Place {
    Place::start(BackendChoice::Auto, threads).restart(|settings| {
        let folder = settings.flash[0].path.parent().unwrap().to_path_buf();
        settings.data_dir = Some(folder.join("data"));
        settings.shared_memory = folder.clone();
        settings.flash = vec![FlashSpec {
            path: folder.join("warm-flash"),
            bytes: 128 << 20,
        }];
        change(settings);
    })
}

fn fill(client: &mut Client, keys: std::ops::Range<usize>, version: usize) {
    for part in keys.collect::<Vec<_>>().chunks(500) {
        let mut request = String::new();
        for &key in part {
            let value = value(key, version);
            request += &format!("set k{key} 0 0 {} noreply\r\n{value}\r\n", value.len());
        }
        client.ask(&(request + "mn\r\n"), "MN\r\n");
    }
}

/// The existing keys; each must have the value of this version.
fn present(client: &mut Client, keys: impl Iterator<Item = usize>, version: usize) -> Vec<usize> {
    let mut found = Vec::new();
    for key in keys {
        client.send(format!("get k{key}\r\n"));
        let answer = String::from_utf8(client.until(b"END\r\n")).unwrap();
        if answer != "END\r\n" {
            let value = value(key, version);
            let wanted = format!("VALUE k{key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
            assert_eq!(answer, wanted, "key {key}");
            found.push(key);
        }
    }
    found
}

fn cas(client: &mut Client, key: &str) -> u64 {
    client.send(format!("gets {key}\r\n"));
    let answer = String::from_utf8(client.until(b"END\r\n")).unwrap();
    let line = answer.lines().next().unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn what_was_on_flash_is_there_after_a_stop() {
    for threads in [1, 2] {
        let mut place = begin(threads, |_| {});
        let mut client = place.connect();
        fill(&mut client, 0..KEYS, 1);
        for key in (0..KEYS).step_by(10) {
            client.send(format!("delete k{key}\r\n"));
            client.until(b"\r\n");
        }
        let before = present(&mut client, (1..KEYS).step_by(97), 1);
        client.ask("set last 0 0 1\r\nx\r\n", "STORED\r\n");
        let last = cas(&mut client, "last");
        place = place.restart(|_| {});
        let warm = place.server().report().warm.clone().unwrap();
        assert!(
            warm.flash_items > KEYS as u64 / 4 && warm.why_empty.is_none(),
            "{warm:?}"
        );
        let mut client = place.connect();
        let after = present(&mut client, (1..KEYS).step_by(97), 1);
        assert!(
            after.len() * 4 > before.len(),
            "{} {}",
            after.len(),
            before.len()
        );
        assert!(after.iter().all(|key| before.contains(key)));
        assert!(present(&mut client, (0..KEYS).step_by(10), 1).is_empty());
        client.ask("set last 0 0 1\r\ny\r\n", "STORED\r\n");
        assert!(cas(&mut client, "last") > last);
    }
}

#[test]
fn a_stop_that_keeps_dram_keeps_all() {
    let mut place = begin(1, |settings| settings.keep_dram = true);
    let mut client = place.connect();
    fill(&mut client, 0..KEYS / 2, 1);
    client.ask("set c 0 0 1\r\n7\r\n", "STORED\r\n");
    client.ask("set soon 0 100 1\r\nx\r\n", "STORED\r\n");
    let cas_before = cas(&mut client, "c");
    let before = present(&mut client, (1..KEYS / 2).step_by(53), 1);
    place = place.restart(|_| {});
    assert!(place.server().report().warm.clone().unwrap().dram_items > 0);
    let mut client = place.connect();
    assert_eq!(present(&mut client, (1..KEYS / 2).step_by(53), 1), before);
    assert_eq!(cas(&mut client, "c"), cas_before);
    client.ask("incr c 1\r\n", "8\r\n");
    client.ask("get soon\r\n", "VALUE soon 0 1\r\nx\r\nEND\r\n");
    place.clock.fetch_add(101_000, Ordering::AcqRel);
    place = place.restart(|_| {});
    let mut client = place.connect();
    client.ask(
        "get soon\r\nget c\r\n",
        "END\r\nVALUE c 0 1\r\n8\r\nEND\r\n",
    );
    // Time does not go back when the clock does.
    client.ask("set later 0 50 1\r\nx\r\n", "STORED\r\n");
    place.clock.fetch_add(60_000, Ordering::AcqRel);
    place = place.restart(|_| {});
    place.clock.fetch_sub(1_000_000, Ordering::AcqRel);
    place = place.restart(|_| {});
    place.connect().ask(
        "get later\r\nget c\r\n",
        "END\r\nVALUE c 0 1\r\n8\r\nEND\r\n",
    );
}

#[test]
fn a_flush_to_come_comes_after_the_stop() {
    let mut place = begin(2, |settings| settings.keep_dram = true);
    let mut client = place.connect();
    fill(&mut client, 0..200, 1);
    client.ask("flush_all 100\r\n", "OK\r\n");
    place = place.restart(|_| {});
    let mut client = place.connect();
    assert_eq!(present(&mut client, 0..200, 1).len(), 200);
    place.clock.fetch_add(101_000, Ordering::AcqRel);
    assert!(present(&mut client, 0..200, 1).is_empty());
    place = place.restart(|_| {});
    assert!(present(&mut place.connect(), 0..200, 1).is_empty());
}

/// RESTART-6: when the clean mark is set, everything written is on the device.
#[test]
fn a_clean_stop_flushes_the_device_after_the_last_write() {
    let mut place = begin(2, |settings| {
        settings.trace = Some(settings.shared_memory.join("trace"));
    });
    fill(&mut place.connect(), 0..KEYS, 1);
    place.end();
    let trace = TraceReader::open(place.settings().trace.as_ref().unwrap()).unwrap();
    let records: Vec<Record> = trace.map(Result::unwrap).collect();
    let last = records.iter().rposition(|r| r.op == Op::Write).unwrap();
    assert!(last > 20, "{last}");
    assert!(records[last..].iter().any(|r| r.op == Op::Flush));
}

/// One worker saves its shard, then another increments the number of a due flush (`DataDir::finish`
/// notes it).
#[test]
fn a_flush_that_a_saved_shard_missed_comes_with_the_next_start() {
    let mut place = begin(2, |settings| settings.keep_dram = true);
    fill(&mut place.connect(), 0..200, 1);
    place = place.restart(|settings| {
        let path = settings.data_dir.as_ref().unwrap().join("super.senko");
        let options = FileOptions {
            bytes: Superblock::PAGES * PAGE_SIZE as u64,
            ..FileOptions::default()
        };
        let device = FlashFile::open(&path, &options).unwrap();
        let mut block = Superblock::read(&device).unwrap();
        assert!(block.clean != 0 && !block.flush_missed);
        block.flush_missed = true;
        block.write(&device).unwrap();
    });
    let warm = place.server().report().warm.clone().unwrap();
    assert_eq!(warm.dram_items, 200);
    // A kill before the first command changes nothing.
    let copy = start_copy(&place, 0, true);
    for port in [copy.local_port().unwrap(), place.port()] {
        let mut client = Client::connect(port);
        assert!(present(&mut client, 0..200, 1).is_empty());
        fill(&mut client, 0..200, 2);
        assert_eq!(present(&mut client, 0..200, 2).len(), 200);
    }
    copy.shutdown();
    copy.join().unwrap();
    // It was applied once.
    place = place.restart(|_| {});
    assert_eq!(present(&mut place.connect(), 0..200, 2).len(), 200);
}

/// A kill in the middle of a stop or a start leaves the files of the stop and the memory; only one
/// of them is valid, the other is outdated.
#[test]
fn a_kill_between_two_valid_states_finds_the_later_one() {
    let mut place = begin(2, |settings| settings.keep_dram = true);
    fill(&mut place.connect(), 0..KEYS, 1);
    let data = place.folder.join("data");
    let aside = place.folder.join("aside");
    std::fs::create_dir(&aside).unwrap();
    let copy = |from: &Path, to: &Path, prefix: &str| {
        let mut count = 0;
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            if name.to_str().unwrap().starts_with(prefix) {
                std::fs::copy(entry.path(), to.join(name)).unwrap();
                count += 1;
            }
        }
        count
    };
    // The memory from before the stop is still there: the clean mark was set, but the memory was
    // not removed.
    let memory = memory_folder(&place.folder);
    assert!(copy(&memory, &aside, "") > 6);
    fill(&mut place.connect(), 0..2000, 2);
    place.connect().ask("delete k2000\r\n", "DELETED\r\n");
    place.end();
    make_private(&memory);
    copy(&aside, &memory, "");
    // The files of this stop, for the next case.
    std::fs::remove_dir_all(&aside).unwrap();
    std::fs::create_dir(&aside).unwrap();
    let files = copy(&data, &aside, "i");
    assert_eq!(files, 4, "index and items of two shards");
    place = place.restart(|_| {});
    let warm = place.server().report().warm.clone().unwrap();
    assert!(warm.dram_items > 0 && warm.why_empty.is_none(), "{warm:?}");
    let mut client = place.connect();
    assert!(!present(&mut client, 0..2000, 2).is_empty());
    client.ask("get k2000\r\n", "END\r\n");

    // A start has begun, and the files of the stop before are still there: the clean mark was
    // removed, but the files were not.
    fill(&mut client, 2000..4000, 3);
    client.ask("delete k4000\r\n", "DELETED\r\n");
    copy(&aside, &data, "i");
    for memory in [true, false] {
        let copy = start_copy(&place, usize::from(memory), memory);
        let warm = copy.report().warm.clone().unwrap();
        let mut again = Client::connect(copy.local_port().unwrap());
        assert_eq!(warm.flash_items > 0, memory, "{warm:?}");
        let found = present(&mut again, 2000..4000, 3);
        assert!(memory || found.is_empty());
        again.ask("get k4000\r\n", "END\r\n");
        let rest = present(&mut again, (4001..KEYS).step_by(7), 1);
        assert_eq!(rest.is_empty(), !memory);
        copy.shutdown();
        copy.join().unwrap();
    }
}

fn files_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "super.senko").collect();
    names.sort();
    names
}

/// The memory stays valid if an index could not be written, for any shard, and any number of times.
/// Items on flash are saved even if DRAM's items could not be.
#[test]
fn a_stop_that_cannot_save_all_saves_what_it_can() {
    let mut place = begin(2, |settings| settings.keep_dram = true);
    fill(&mut place.connect(), 0..KEYS, 1);
    let data = place.folder.join("data");
    let names = ["index-0", "items-1", "index-1"];
    for (version, name) in names.into_iter().enumerate() {
        let draft = data.join(format!("{name}.senko.new"));
        std::fs::create_dir(&draft).unwrap();
        let why = place.end_badly();
        assert!(why.contains(name), "{why}");
        std::fs::remove_dir(&draft).unwrap();
        let left = files_in(&data);
        if name == "items-1" {
            assert!(why.contains("the items on flash were saved"), "{why}");
            assert_eq!(left, ["index-0.senko", "index-1.senko", "items-0.senko"]);
            assert!(
                !files_in(&place.folder)
                    .iter()
                    .any(|f| f.starts_with("senko-"))
            );
        } else {
            let other = if name == "index-0" { 1 } else { 0 };
            assert_eq!(
                left,
                [
                    format!("index-{other}.senko"),
                    format!("items-{other}.senko")
                ]
            );
        }
        place = place.restart(|_| {});
        let mut client = place.connect();
        let warm = place.server().report().warm.clone().unwrap();
        assert!(warm.flash_items > 0 && warm.why_empty.is_none(), "{warm:?}");
        assert_eq!(warm.dram_items > 0, name == "items-1", "{warm:?}");
        let found = present(&mut client, (0..KEYS).step_by(7), version + 1);
        assert!(found.len() > KEYS / 7 / 4, "{}", found.len());
        fill(&mut client, 0..KEYS, version + 2);
    }
}

/// An unreadable file of a stop does not count as missing: a start would remove the other files.
/// The files are not readable for other users.
#[test]
fn saved_files_that_cannot_be_read_are_kept() {
    use std::os::unix::fs::PermissionsExt;
    let mut place = begin(1, |settings| settings.keep_dram = true);
    let data = place.folder.join("data");
    fill(&mut place.connect(), 0..KEYS, 1);
    place.end();
    for name in ["index-0.senko", "items-0.senko"] {
        let (path, aside) = (data.join(name), place.folder.join("aside"));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
        std::fs::rename(&path, &aside).unwrap();
        // A link to itself can't be opened, even by root.
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let why = Server::start(place.settings().clone()).unwrap_err();
        assert!(why.0.contains(name) && why.0.contains("--reinit"), "{why}");
        std::fs::rename(&aside, &path).unwrap();
    }
    place = place.restart(|_| {});
    let warm = place.server().report().warm.clone().unwrap();
    assert!(warm.dram_items > 0 && warm.flash_items > 0, "{warm:?}");
}

/// A delayed flush also takes effect after a kill.
#[test]
fn time_and_a_flush_to_come_survive_a_kill() {
    let place = begin(2, |_| {});
    let mut client = place.connect();
    fill(&mut client, 0..KEYS, 1);
    for key in 0..100 {
        client.ask(&format!("set soon{key} 0 50 1\r\nx\r\n"), "STORED\r\n");
    }
    fill(&mut client, KEYS / 2..KEYS, 1);
    place.clock.fetch_add(60_000, Ordering::AcqRel);
    // The server notices the time, and a command that depends on it.
    client.ask("get soon0\r\n", "END\r\n");
    client.ask("flush_all 100\r\n", "OK\r\n");
    let copies = [start_copy(&place, 0, true), {
        // Another is started with a clock that is far behind: it continues from the last second of
        // the one before.
        place.clock.fetch_sub(1_000_000, Ordering::AcqRel);
        start_copy(&place, 1, true)
    }];
    for (n, copy) in copies.into_iter().enumerate() {
        let mut again = Client::connect(copy.local_port().unwrap());
        for key in 0..100 {
            again.ask(&format!("get soon{key}\r\n"), "END\r\n");
        }
        assert!(!present(&mut again, (KEYS / 2..KEYS).step_by(97), 1).is_empty());
        if n == 1 {
            place.clock.fetch_add(1_101_000, Ordering::AcqRel);
            let until = Instant::now() + PATIENCE;
            while !present(&mut again, (1..KEYS).step_by(7), 1).is_empty() {
                assert!(Instant::now() < until, "the flush does not come");
            }
        }
        copy.shutdown();
        copy.join().unwrap();
    }
}

/// The folder of a server's shared memory.
fn memory_folder(shared_memory: &Path) -> PathBuf {
    let names = files_in(shared_memory);
    let name = names.iter().find(|name| name.starts_with("senko-"));
    shared_memory.join(name.expect("a server has its folder"))
}

fn make_private(folder: &Path) {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(folder)
        .unwrap();
}

/// Copies the state that a kill at this moment would leave, with or without the shared memory, and
/// starts a server on the copy.
fn start_copy(place: &Place, number: usize, memory: bool) -> RunningServer {
    Server::start(copy_of(place, number, memory)).unwrap()
}

/// The copy, as settings of a server on it.
fn copy_of(place: &Place, number: usize, memory: bool) -> Settings {
    let to = place.folder.join(&format!("copy{number}"));
    std::fs::create_dir(&to).unwrap();
    std::fs::create_dir(to.join("data")).unwrap();
    let copy = |from: &Path, to: &Path| {
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_file() && name != "flash" {
                std::fs::copy(&path, to.join(name)).unwrap();
            }
        }
    };
    copy(&place.folder, &to);
    if memory {
        let from = memory_folder(&place.folder);
        let to = to.join(from.file_name().unwrap());
        make_private(&to);
        copy(&from, &to);
    }
    copy(&place.folder.join("data"), &to.join("data"));
    Settings {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        memory: 64 << 20,
        threads: place.server().report().threads,
        flash: vec![FlashSpec {
            path: to.join("warm-flash"),
            bytes: 128 << 20,
        }],
        data_dir: Some(to.join("data")),
        shared_memory: to.clone(),
        keep_dram: place.settings().keep_dram,
        clock: Some(std::sync::Arc::clone(&place.clock)),
        patience: DEVICE_PATIENCE,
        ..Settings::default()
    }
}

/// A memory limit too small for the saved index is refused, with the size that is enough;
/// everything is still there then.
#[test]
fn too_little_memory_for_the_kept_index_is_refused_with_what_is_enough() {
    const MANY: usize = 800_000;
    let mut place = begin(1, |_| {});
    let mut client = place.connect();
    for from in (0..MANY).step_by(1000) {
        let sets: String = (from..from + 1000)
            .map(|key| format!("set s{key} 0 0 90 noreply\r\n{key:090}\r\n"))
            .collect();
        client.ask(&(sets + "mn\r\n"), "MN\r\n");
    }
    let killed = copy_of(&place, 0, true);
    let index = client.stat("flash_index_bytes");
    assert!(index > 6 << 20, "{index}");
    place.end();
    for mut settings in [killed, place.settings().clone()] {
        // It leaves the shard less memory than the index takes.
        settings.memory = 31 << 20;
        let mut refused = 0;
        let server = loop {
            match Server::start(settings.clone()) {
                Ok(server) => break server,
                Err(why) => {
                    let (_, least) = why.0.split_once("give --memory ").expect(&why.0);
                    let least: u64 = least.split_once('m').unwrap().0.parse().unwrap();
                    assert!(least << 20 > settings.memory, "{why}");
                    settings.memory = least << 20;
                    refused += 1;
                }
            }
        };
        assert!((1..=2).contains(&refused), "{refused}");
        assert!(settings.memory < 48 << 20, "{}", settings.memory);
        let warm = server.report().warm.clone().unwrap();
        assert!(
            warm.flash_items > MANY as u64 / 2 && warm.why_empty.is_none(),
            "{warm:?}"
        );
        server.shutdown();
        server.join().unwrap();
    }
}

/// An answered command holds in any server that is started from the memory at that moment.
#[test]
fn a_killed_server_comes_back_from_its_memory() {
    let place = begin(2, |_| {});
    let mut client = place.connect();
    fill(&mut client, 0..KEYS, 1);
    for key in (0..KEYS).step_by(10) {
        client.send(format!("delete k{key}\r\n"));
        client.until(b"\r\n");
    }
    fill(&mut client, 1..2000, 2);
    client.ask("set last 0 0 1\r\nx\r\n", "STORED\r\n");
    let last = cas(&mut client, "last");
    let copy = start_copy(&place, 0, true);
    let warm = copy.report().warm.clone().unwrap();
    assert!(
        warm.flash_items > KEYS as u64 / 4 && warm.why_empty.is_none(),
        "{warm:?}"
    );
    let mut again = Client::connect(copy.local_port().unwrap());
    assert!(present(&mut again, (2000..KEYS).step_by(10), 1).is_empty());
    // Whether they were deleted before or not.
    present(&mut again, 1..2000, 2);
    let rest = present(&mut again, (2001..KEYS).step_by(97), 1);
    assert!(rest.len() > KEYS / 97 / 4, "{}", rest.len());
    again.ask("set last 0 0 1\r\ny\r\n", "STORED\r\n");
    assert!(cas(&mut again, "last") > last);
    copy.shutdown();
    copy.join().unwrap();

    // An acknowledged flush holds on every shard, whether or not that shard had a command since.
    client.ask("flush_all\r\n", "OK\r\n");
    let copy = start_copy(&place, 1, true);
    let mut again = Client::connect(copy.local_port().unwrap());
    assert!(present(&mut again, (1..KEYS).step_by(7), 1).is_empty());
    copy.shutdown();
    copy.join().unwrap();
}

/// A directory that was made with two threads is started with other numbers of them, after a kill
/// and after a stop. Deletes and stores in between hold.
#[test]
fn threads_change_at_every_start() {
    for keep_dram in [false, true] {
        // With DRAM kept, it holds all.
        let memory = |threads: usize| match keep_dram {
            true => 192 << 20,
            false => (34 + 5 * threads as u64) << 20,
        };
        let mut place = begin(2, |settings| {
            settings.keep_dram = keep_dram;
            settings.memory = memory(2);
        });
        let keys = KEYS / 2;
        fill(&mut place.connect(), 0..keys, 1);
        for (round, threads) in [1, 3, 16, 8, 2].into_iter().enumerate() {
            let mut client = place.connect();
            let (gone, new) = (100 * round, 100 * round + 50);
            for key in gone..new {
                client.send(format!("delete k{key}\r\n"));
                client.until(b"\r\n");
            }
            fill(&mut client, new..new + 50, 2);
            client.ask("set last 0 0 1\r\nx\r\n", "STORED\r\n");
            let last = cas(&mut client, "last");
            let changed = 100 * (round + 1);
            let check = |client: &mut Client| {
                let of = |from: usize| (0..changed).filter(move |key| key % 100 / 50 == from);
                assert!(
                    present(client, of(0), 1).is_empty(),
                    "deleted keys are back"
                );
                let mut there = present(client, of(1), 2);
                there.extend(present(client, (changed..keys).step_by(53), 1));
                there
            };
            let before = check(&mut client);
            let copy = Server::start(Settings {
                threads,
                memory: memory(threads),
                ..copy_of(&place, round, true)
            });
            let copy = copy.unwrap();
            let warm = copy.report().warm.clone().unwrap();
            assert!(warm.why_empty.is_none(), "{warm:?}");
            let mut killed = Client::connect(copy.local_port().unwrap());
            let there = check(&mut killed);
            assert!(there.iter().all(|key| before.contains(key)));
            assert!(
                keep_dram || there.len() > before.len() / 4,
                "{}",
                there.len()
            );
            copy.shutdown();
            copy.join().unwrap();
            place = place.restart(|settings| {
                (settings.threads, settings.memory) = (threads, memory(threads));
            });
            let warm = place.server().report().warm.clone().unwrap();
            assert!(warm.why_empty.is_none(), "{warm:?}");
            let mut client = place.connect();
            let there = check(&mut client);
            assert!(there.iter().all(|key| before.contains(key)));
            let least = if keep_dram {
                before.len()
            } else {
                before.len() / 4
            };
            assert!(there.len() >= least, "{} of {}", there.len(), before.len());
            client.ask("set last 0 0 1\r\ny\r\n", "STORED\r\n");
            assert!(cas(&mut client, "last") > last);
        }
    }
}

/// A node that a proxy had taken out used to come back warm, with values that were replaced
/// elsewhere meanwhile.
#[test]
fn a_start_after_a_longer_absence_begins_empty() {
    let mut place = begin(2, |settings| settings.max_absence = Some(30));
    fill(&mut place.connect(), 0..KEYS, 1);
    place.end();
    place.clock.fetch_add(20_000, Ordering::AcqRel);
    place = place.restart(|_| {});
    let found = |place: &Place| present(&mut place.connect(), (1..KEYS).step_by(97), 1).len();
    assert!(found(&place) > 0);
    place.end();
    place.clock.fetch_add(31_000, Ordering::AcqRel);
    place = place.restart(|_| {});
    let why = |server: &RunningServer| server.report().warm.clone().unwrap().why_empty;
    assert!(why(place.server()).is_some_and(|why| why.contains("away for 32 s")));
    assert_eq!(found(&place), 0);
    // It works like a new one: items stored now come back.
    fill(&mut place.connect(), 0..KEYS, 1);
    place = place.restart(|_| {});
    assert!(found(&place) > 0 && why(place.server()).is_none());
}

/// The same after a kill; shared memory has the last second and a pending flush.
#[test]
fn a_killed_server_that_is_started_late_begins_empty() {
    let place = begin(2, |_| {});
    let mut client = place.connect();
    fill(&mut client, 0..KEYS, 1);
    client.ask("flush_all 1000\r\n", "OK\r\n");
    for (number, seconds, most) in [(0, 10, Some(30)), (1, 40, Some(30)), (2, 40, None)] {
        let settings = copy_of(&place, number, true);
        let before = settings.clock.as_ref().unwrap().load(Ordering::Acquire);
        let clock = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(before + seconds * 1000));
        let copy = Server::start(Settings {
            clock: Some(std::sync::Arc::clone(&clock)),
            max_absence: most,
            ..settings
        })
        .unwrap();
        let mut again = Client::connect(copy.local_port().unwrap());
        let there = present(&mut again, (1..KEYS).step_by(97), 1).len();
        assert_eq!(there == 0, number == 1, "{there} with {most:?}");
        again.ask("set late 0 0 1\r\nx\r\n", "STORED\r\n");
        clock.fetch_add(1_000_000, Ordering::AcqRel);
        let until = Instant::now() + PATIENCE;
        while again.text("get late\r\n", "END\r\n") != "END\r\n" {
            assert!(Instant::now() < until, "the flush does not come");
        }
        copy.shutdown();
        copy.join().unwrap();
    }
}

#[test]
fn other_settings_are_refused_until_told_to_start_over() {
    let mut place = begin(1, |_| {});
    fill(&mut place.connect(), 0..KEYS, 1);
    place.connect().ask("set last 0 0 1\r\nx\r\n", "STORED\r\n");
    let last = cas(&mut place.connect(), "last");
    place.end();
    let settings = place.settings().clone();
    let refused = |change: &dyn Fn(&mut Settings), says: &str| {
        let mut other = settings.clone();
        change(&mut other);
        let error = Server::start(other).unwrap_err().to_string();
        assert!(
            error.contains(says) && error.contains("--reinit"),
            "{error}"
        );
    };
    refused(&|s| s.flash[0].bytes = 64 << 20, "64 MiB are given");
    refused(&|s| s.flash[0].bytes = 256 << 20, "256 MiB are given");
    let flash = std::fs::metadata(&settings.flash[0].path).unwrap();
    assert_eq!(
        flash.len(),
        128 << 20,
        "a start that is refused takes no disk"
    );
    let second = FlashSpec {
        path: settings.shared_memory.join("second-flash"),
        bytes: 128 << 20,
    };
    refused(&|s| s.flash.push(second.clone()), "not of 2");
    assert!(!second.path.exists());
    refused(&|s| s.region = Some(64 << 10), "region");
    let other = settings.shared_memory.join("other-flash");
    refused(&|s| s.flash[0].path = other.clone(), "label");
    assert!(!other.exists());
    let elsewhere = settings.shared_memory.join("elsewhere");
    refused(
        &|s| s.data_dir = Some(elsewhere.clone()),
        "not of the given data directory",
    );
    std::fs::remove_dir_all(&elsewhere).unwrap();
    refused(&|s| s.data_dir = None, "a data directory that is not given");
    let superblock = settings.data_dir.as_ref().unwrap().join("super.senko");
    let good = std::fs::read(&superblock).unwrap();
    let mut bad = good.clone();
    // One page is enough.
    bad[200] ^= 1;
    std::fs::write(&superblock, &bad).unwrap();
    place = place.restart(|_| {});
    assert!(place.server().report().warm.clone().unwrap().flash_items > 0);
    place.end();
    let mut bad = std::fs::read(&superblock).unwrap();
    bad[200] ^= 1;
    bad[4096 + 200] ^= 1;
    std::fs::write(&superblock, &bad).unwrap();
    refused(&|_| {}, "super.senko");
    bad[8] = 9;
    bad[4096 + 8] = 9;
    std::fs::write(&superblock, &bad).unwrap();
    refused(&|_| {}, "version 9");
    let mut place = place.restart(|s| s.reinit = true);
    assert_eq!(place.server().report().warm.clone().unwrap().flash_items, 0);
    assert!(present(&mut place.connect(), (0..KEYS).step_by(7), 1).is_empty());
    place.connect().ask("set last 0 0 1\r\nx\r\n", "STORED\r\n");
    assert!(cas(&mut place.connect(), "last") > last);
    fill(&mut place.connect(), 0..KEYS, 2);
    place = place.restart(|s| s.reinit = false);
    assert!(place.server().report().warm.clone().unwrap().flash_items > 0);
    present(&mut place.connect(), (0..KEYS).step_by(7), 2);
}

/// A flash file is taken from its data directory on request: the directory then refuses it, while a
/// server without a directory accepts it.
#[test]
fn a_flash_file_is_taken_from_its_directory() {
    let mut place = begin(1, |_| {});
    fill(&mut place.connect(), 0..KEYS, 1);
    place.end();
    let data_dir = place.settings().data_dir.clone();
    for reinit in [true, false] {
        place = place.restart(|s| {
            s.data_dir = None;
            s.reinit = reinit;
        });
        place.end();
    }
    let mut settings = place.settings().clone();
    settings.data_dir = data_dir;
    let error = Server::start(settings).unwrap_err().to_string();
    assert!(error.contains("is not the flash file"), "{error}");
}

/// Memory is gone without a clean stop: the cache is empty, with a reason, and no old item appears,
/// although the new cache writes where the old one did.
#[test]
fn lost_memory_is_an_empty_cache() {
    let place = begin(1, |_| {});
    fill(&mut place.connect(), 0..KEYS, 1);
    let copy = start_copy(&place, 0, false);
    let warm = copy.report().warm.clone().unwrap();
    assert_eq!((warm.flash_items, warm.dram_items), (0, 0));
    assert!(warm.why_empty.unwrap().contains("not stopped cleanly"));
    let mut client = Client::connect(copy.local_port().unwrap());
    assert!(present(&mut client, (0..KEYS).step_by(7), 1).is_empty());
    fill(&mut client, 0..KEYS, 2);
    assert!(!present(&mut client, (0..KEYS).step_by(7), 2).is_empty());
    copy.shutdown();
    copy.join().unwrap();
}

/// A copy of a data directory has its number, and so the names of its memory.
#[test]
fn a_copy_of_a_directory_in_use_is_refused() {
    let place = begin(1, |_| {});
    let to = place.folder.join("copy");
    std::fs::create_dir_all(to.join("data")).unwrap();
    std::fs::copy(place.folder.join("warm-flash"), to.join("flash")).unwrap();
    let data = place.folder.join("data").join("super.senko");
    std::fs::copy(data, to.join("data").join("super.senko")).unwrap();
    let mut settings = place.settings().clone();
    settings.data_dir = Some(to.join("data"));
    settings.flash[0].path = to.join("flash");
    let error = Server::start(settings).unwrap_err().to_string();
    assert!(error.contains("in use by another server"), "{error}");
}
