// SPDX-License-Identifier: Apache-2.0
//! Space is given back: an emptied store gives its file's space to the file system, loses nothing,
//! and can still be emptied when others took that space.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use senko_io::Device;
use senko_io::memory::MemoryDevice;
use senko_store::{Batch, Options, Store, StoreError, WriteOptions};
use senko_workload::Rng;

use crate::support::hooked::Hooked;
use crate::support::{Folder, open, ticking};

const MIB: u64 = 1 << 20;

fn options(background: bool) -> Options {
    Options {
        block_bytes: MIB,
        inline_max: 8192,
        background,
        clock: ticking(3),
        ..Options::default()
    }
}

fn value(key: u64) -> Vec<u8> {
    // Sometimes a value in its own extent.
    let len = if key % 500 == 499 { 100_000 } else { 1000 };
    let mut value = key.to_le_bytes().to_vec();
    value.resize(len, key as u8);
    value
}

fn put(store: &Store, key: u64) -> Result<(), StoreError> {
    store.put(&key.to_be_bytes(), &value(key)).map(drop)
}

fn check(store: &Store, keys: impl Iterator<Item = u64>) {
    let mut count = 0;
    for key in keys {
        let got = store.get(&key.to_be_bytes()).unwrap();
        assert_eq!(got.as_deref(), Some(&value(key)[..]), "key {key}");
        count += 1;
    }
    assert_eq!(store.scan().unwrap().count(), count);
}

/// The counts of bytes are those of the device, and go on after a close and a kill.
#[test]
fn what_was_put_and_written_is_counted() {
    let device = MemoryDevice::new(40_000);
    let store = open(&device, options(false));
    let mut bytes = 0;
    for key in (0..20_000u64).map(|key| key % 7000) {
        put(&store, key).unwrap();
        bytes += 8 + value(key).len() as u64;
    }
    let written = || device.written() * 4096;
    let stats = store.stats();
    assert!(stats.seals > 2 && stats.compactions > 0, "{stats:?}");
    assert_eq!((stats.bytes_put, stats.bytes_written), (bytes, written()));
    // A kill loses what was counted after the newest commit.
    let copy = device.copy();
    let killed = open(&copy, options(false)).stats();
    assert!(killed.bytes_put <= bytes && killed.bytes_put * 10 > bytes * 9);
    assert!(killed.bytes_written <= written());
    assert!(killed.bytes_written * 10 > written() * 9);
    // What the file had more of went back, and nothing else.
    let kept = device.stored();
    store.compact().unwrap();
    let grown = device.stored().max(kept);
    store.shrink().unwrap();
    let given = store.stats().bytes_discarded;
    assert!(
        given >= (grown - device.stored()) * 4096 && given > 0,
        "{given}"
    );
    store.close().unwrap();
    let again = open(&device, options(false)).stats();
    assert_eq!((again.bytes_put, again.bytes_discarded), (bytes, given));
    assert!(again.bytes_written * 100 > written() * 99, "{again:?}");
}

/// After everything was deleted and compacted, the file used to be longer than before: 555 MiB
/// instead of 492. Now its end is cut off and the rest is in holes, which are used again.
#[test]
fn an_emptied_store_is_small_again() {
    let device = Hooked::new(1);
    let mut store = open(&device, options(false));
    for round in 0..3 {
        for key in 0..30_000u64 {
            put(&store, key).unwrap();
        }
        let full = device.stored_pages() * 4096;
        assert!(full > 30 * MIB, "{full}");
        for key in 0..30_000u64 {
            store.delete(&key.to_be_bytes()).unwrap();
        }
        store.compact().unwrap();
        let before = store.stats();
        let shrunk = store.shrink().unwrap();
        let after = store.stats();
        assert_eq!(before.file_bytes - after.file_bytes, shrunk.cut);
        assert!(shrunk.cut + shrunk.punched > full / 2, "{shrunk:?}");
        let left = device.stored_pages() * 4096;
        assert_eq!(left, after.file_bytes - after.hole_bytes);
        assert!(left < 12 * MIB, "round {round}: {left} of {full}");
        assert_eq!(store.scan().unwrap().count(), 0);
        if round > 0 {
            store.close().unwrap();
            store = open(&device, options(false));
            let left = device.stored_pages() * 4096;
            assert!(left < 12 * MIB, "reopened: {left} of {full}");
        }
    }
}

/// A store of one record had a file of 75 MB, and one of 201 MB after `compact` and `shrink`; its
/// backup had 155 MB. A second log was prepared, space for two whole blocks was kept, and the file
/// was not cut where its last block ended.
#[test]
fn a_tiny_store_and_its_copy_take_one_log() {
    let folder = Folder::new("tiny");
    let (path, copy) = (folder.0.join("data"), folder.0.join("copy"));
    let bytes = |path| std::fs::metadata(path).unwrap().len();
    let open = || Store::open(&path, Options::default()).unwrap();
    let store = open();
    store.put(b"colour", b"green").unwrap();
    store.close().unwrap();
    let new = bytes(&path);
    for round in 0..3 {
        let store = open();
        store.backup(&copy, |_| ()).unwrap();
        assert!(bytes(&copy) <= new, "{} of {new}", bytes(&copy));
        std::fs::remove_file(&copy).unwrap();
        store.compact().unwrap();
        store.shrink().unwrap();
        store.close().unwrap();
        assert!(
            bytes(&path) <= new,
            "round {round}: {} of {new}",
            bytes(&path)
        );
    }
    let store = open();
    assert_eq!(
        store.get(b"colour").unwrap().as_deref(),
        Some(&b"green"[..])
    );
    // A store that was larger had prepared its next log.
    let small = |background| Options {
        block_bytes: 8 * MIB,
        ..options(background)
    };
    let device = Hooked::new(7);
    let store = crate::support::open(&device, small(false));
    (0..20_000).for_each(|key| put(&store, key).unwrap());
    for key in 0..20_000u64 {
        store.delete(&key.to_be_bytes()).unwrap();
    }
    store.compact().unwrap();
    store.shrink().unwrap();
    let stored = device.stored_pages() * 4096;
    assert!(stored < 14 * MIB, "{stored}");
    check(&store, 0..0);
    store.close().unwrap();
    check(&crate::support::open(&device, small(false)), 0..0);
}

/// Free blocks between live ones become holes. All elements are there, also after an opening, and
/// later writes go into the holes.
#[test]
fn holes_between_blocks_are_used_again() {
    let device = Hooked::new(2);
    let store = open(&device, options(false));
    for key in 0..30_000u64 {
        put(&store, key).unwrap();
    }
    let full = device.stored_pages();
    for key in (0..30_000u64).filter(|key| key % 10 != 0) {
        store.delete(&key.to_be_bytes()).unwrap();
    }
    store.compact().unwrap();
    let shrunk = store.shrink().unwrap();
    assert!(shrunk.punched > 0, "{shrunk:?}");
    assert!(device.stored_pages() < full / 2, "{shrunk:?}");
    check(&store, (0..30_000).filter(|key| key % 10 == 0));
    store.close().unwrap();
    let store = open(&device, options(false));
    let holes = store.stats().hole_bytes;
    assert!(holes > 0);
    check(&store, (0..30_000).filter(|key| key % 10 == 0));
    for key in 0..30_000u64 {
        put(&store, key).unwrap();
    }
    assert!(store.stats().hole_bytes < holes / 2, "{:?}", store.stats());
    check(&store, 0..30_000);
    store.close().unwrap();
    let device: Arc<dyn Device> = device;
    let report = senko_store::verify_device(device, |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

/// A store gave space back, and other files took it. The reserve for deletes kept its storage, in
/// one piece, and the store finds it again. So the store can be emptied, even after it was closed
/// or its process was killed.
#[test]
fn a_shrunk_store_on_a_full_file_system_is_emptied() {
    for background in [false, true] {
        for kept in [1, 3, 10] {
            for ending in ["none", "closed", "killed", "crashed"] {
                empty_when_full(background, kept, ending);
            }
        }
    }
}

fn empty_when_full(background: bool, kept: u64, ending: &str) {
    let what = format!("background {background}, one of {kept} kept, {ending}");
    let mut device = Hooked::limited(3, 16 * MIB / 4096);
    let mut store = open(&device, options(background));
    let mut keys: Vec<u64> = Vec::new();
    for key in 0..9000 {
        match put(&store, key) {
            Ok(()) => keys.push(key),
            Err(StoreError::NoSpace(_)) => break,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    for &key in keys.iter().filter(|&key| key % kept != 0) {
        store.delete(&key.to_be_bytes()).unwrap();
    }
    keys.retain(|key| key % kept == 0);
    store.compact().unwrap();
    store.shrink().unwrap();
    device.fill_up();
    match ending {
        "closed" => {
            store.close().unwrap();
            store = open(&device, options(background));
        }
        "killed" => device = device.killed(5),
        "crashed" => {
            store.sync().unwrap();
            device = device.crashed(6);
        }
        _ => {}
    }
    if ending == "killed" || ending == "crashed" {
        store = open(&device, options(background));
    }
    let refused = (10_000..20_000).find(|&key| match put(&store, key) {
        Ok(()) => {
            keys.push(key);
            false
        }
        Err(StoreError::NoSpace(_)) => true,
        Err(error) => panic!("{what}: {error}"),
    });
    assert!(refused.is_some(), "{what}: the file system is not full");
    let reopen = |store: Store| {
        store.close().unwrap();
        open(&device, options(background))
    };
    if ending == "closed" {
        store = reopen(store);
    }
    check(&store, keys.iter().copied());
    for (nth, &key) in keys.iter().enumerate() {
        if let Err(error) = store.delete(&key.to_be_bytes()) {
            panic!(
                "{what}: delete {nth} of {}: {error}; {:?}",
                keys.len(),
                store.stats()
            );
        }
    }
    if ending == "closed" {
        store = reopen(store);
    }
    store
        .compact()
        .unwrap_or_else(|error| panic!("{what}: {error}; {:?}", store.stats()));
    assert_eq!(store.scan().unwrap().count(), 0, "{what}");
}

/// A reader of an earlier version holds the space of a log that was sealed, and may leave at any
/// time. A compaction used to take that space in pieces then. No log found a place, and every
/// delete was refused, also after a reopening.
#[test]
fn readers_come_and_go_while_a_full_store_is_emptied() {
    for seed in 0..10 {
        let (device, max_bytes) = match seed % 2 {
            0 => (Hooked::limited(seed, 16 * MIB / 4096), None),
            _ => (Hooked::new(seed), Some(16 * MIB)),
        };
        let options = Options {
            max_bytes,
            ..options(true)
        };
        let store = open(&device, options);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for nth in 0..2 {
                let (store, ended) = (&store, &ended);
                let mut rng = Rng::new(2 * seed + nth);
                scope.spawn(move || {
                    while !ended.load(Ordering::Relaxed) {
                        let mut scan = store.scan().unwrap();
                        for _ in 0..rng.below(200) {
                            // A store without space ends its snapshots.
                            if !matches!(scan.next(), Some(Ok(_))) {
                                break;
                            }
                        }
                    }
                });
            }
            let stored = (0..).find(|&key| match put(&store, key) {
                Ok(()) => false,
                Err(StoreError::NoSpace(_)) => true,
                Err(error) => {
                    ended.store(true, Ordering::Relaxed);
                    panic!("seed {seed}, put {key}: {error}");
                }
            });
            for key in 0..stored.unwrap() {
                if let Err(error) = store.delete(&key.to_be_bytes()) {
                    ended.store(true, Ordering::Relaxed);
                    panic!(
                        "seed {seed}, delete {key} of {stored:?}: {error}; {:?}",
                        store.stats()
                    );
                }
            }
            ended.store(true, Ordering::Relaxed);
        });
    }
}

/// A store shrinks and continues, and crashes at every write, flush, truncation and punch. After
/// each crash all records are there, and nothing is written to places without storage. The store
/// can be emptied on a full file system.
#[test]
fn a_crash_while_it_shrinks_loses_nothing() {
    let device = Hooked::new(4);
    let store = open(&device, options(false));
    for key in 0..6000 {
        put(&store, key).unwrap();
    }
    for key in (0..6000u64).filter(|key| key % 4 != 0) {
        store.delete(&key.to_be_bytes()).unwrap();
    }
    store.compact().unwrap();
    store.sync().unwrap();
    let images = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&images);
    let mut calls = 0;
    device.set_hook(move |device| {
        let mut taken = taken.lock();
        let seed = taken.len() as u64;
        calls += 1;
        // Most calls are then puts of a log's page.
        if calls > 100 && !device.in_commit() && calls % 40 != 0 {
            return;
        }
        taken.push(match seed % 3 {
            0 => device.killed(seed),
            1 => device.forked(seed),
            _ => device.crashed(seed / 3),
        });
    });
    let shrunk = store.shrink().unwrap();
    assert!(shrunk.punched > 0, "{shrunk:?}");
    let ended = images.lock().len();
    // Holes are filled, and it shrinks again.
    for key in 6000..8000 {
        put(&store, key).unwrap();
    }
    store.seal().unwrap();
    store.shrink().unwrap();
    device.clear_hook();
    drop(store);
    let images = std::mem::take(&mut *images.lock());
    assert!(
        ended > 7 && images.len() > ended + 20,
        "{ended} of {}",
        images.len()
    );
    for (nth, device) in images.iter().enumerate() {
        device.fill_up();
        let store = open(device, options(false));
        for key in (0..6000u64).filter(|key| key % 4 == 0) {
            let got = store.get(&key.to_be_bytes()).unwrap();
            assert_eq!(got.as_deref(), Some(&value(key)[..]), "image {nth}, {key}");
        }
        let keys = store.scan().unwrap().map(|entry| entry.unwrap().key);
        for keys in keys.collect::<Vec<_>>().chunks(50) {
            let mut batch = Batch::new();
            for key in keys {
                batch.delete(key);
            }
            if let Err(error) = store.write(&batch, WriteOptions::default()) {
                panic!("image {nth}: {error}; {:?}", store.stats());
            }
        }
        store
            .compact()
            .unwrap_or_else(|error| panic!("image {nth}: {error}; {:?}", store.stats()));
        assert_eq!(store.scan().unwrap().count(), 0, "image {nth}");
    }
}

/// Without a request, space that was free for a while is given back. Used space stays.
#[test]
fn what_is_free_for_a_while_goes_back_on_its_own() {
    let device = Hooked::new(5);
    let patient = || Options {
        shrink_after: None,
        ..options(true)
    };
    let store = open(&device, patient());
    for key in 0..30_000u64 {
        put(&store, key).unwrap();
    }
    for key in (0..30_000u64).filter(|key| key % 10 != 0) {
        store.delete(&key.to_be_bytes()).unwrap();
    }
    store.compact().unwrap();
    assert_eq!(store.stats().hole_bytes, 0);
    let before = device.stored_pages();
    store.close().unwrap();
    let soon = Options {
        shrink_after: Some(Duration::from_millis(1)),
        ..options(true)
    };
    let store = open(&device, soon);
    while device.stored_pages() > before / 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    check(&store, (0..30_000).filter(|key| key % 10 == 0));
    store.close().unwrap();
}

/// Ctrl-C in `senko store bench --compact` used to take effect only after the compaction. Now it
/// ends before the next piece, and the store has all elements.
#[test]
fn a_compaction_ends_between_two_pieces() {
    let device = Hooked::new(6);
    let store = open(&device, options(false));
    for key in (0..20_000).chain((0..20_000).filter(|key| key % 3 != 0)) {
        put(&store, key).unwrap();
    }
    let before = store.stats().compactions;
    let asked = std::cell::Cell::new(0);
    let done = store.compact_while(|| asked.replace(asked.get() + 1) < 4);
    assert!(!done.unwrap());
    assert_eq!(asked.get(), 5);
    assert!(store.stats().compactions <= before + 3);
    check(&store, 0..20_000);
    assert!(store.compact_while(|| true).unwrap());
    assert_eq!(store.stats().block_elements, 20_000);
    check(&store, 0..20_000);
}

/// The part of the background work that is done between two batches: as on a fast machine, as on a
/// slow one, or irregularly.
struct Pace {
    rng: Rng,
    percent: u64,
    pieces: u64,
}

impl Pace {
    fn new(seed: u64) -> Pace {
        let percent = [0, 3, 20, 60, 100][seed as usize % 5];
        let pieces = [1, 3, 1000][seed as usize / 5 % 3];
        let rng = Rng::new(seed);
        Pace {
            rng,
            percent,
            pieces,
        }
    }

    fn work(&mut self, store: &Store) {
        if self.rng.below(100) < self.percent {
            let pieces = 1 + self.rng.below(self.pieces);
            let mut done = 0;
            while done < pieces {
                match store.maintain() {
                    Ok(true) => done += 1,
                    Ok(false) | Err(StoreError::NoSpace(_)) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// Other users of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Nothing,
    /// They fill it.
    Fill,
    /// They fill it when the store has given space back.
    FillAfterShrink,
}

/// In a full store that was emptied, `compact` used to find no space: the deletes in the last log
/// took more space as a block than was reserved. It depended on the progress of the background.
#[test]
fn a_full_store_is_emptied_at_any_pace() {
    let all = [Others::Nothing, Others::Fill, Others::FillAfterShrink];
    for seed in 0..9 {
        // At 2,100 bytes, one value fits into a page: a block has twice the bytes of its log.
        let value = [1000, 100, 2100][(seed / 3) as usize];
        empty_at_a_pace(seed, all[seed as usize % 3], value);
    }
}

fn empty_at_a_pace(seed: u64, others: Others, value: usize) {
    let what = format!("seed {seed}, {others:?}, values of {value}");
    let device = Hooked::limited(seed, 16 * MIB / 4096);
    let mut pace = Pace::new(seed);
    let small = || Options {
        inline_max: 8192,
        ..options(false)
    };
    let key = |number: u64| format!("key{number}").into_bytes();
    let mut change = |store: &Store, keys: std::ops::Range<u64>, value: Option<&[u8]>| {
        let mut next = keys.start;
        while next < keys.end {
            let end = keys.end.min(next + 200);
            let mut batch = Batch::new();
            for number in next..end {
                match value {
                    Some(value) => batch.put(&key(number), value),
                    None => batch.delete(&key(number)),
                };
            }
            if let Err(error) = store.write(&batch, WriteOptions::default()) {
                return (next, Some(error));
            }
            next = end;
            pace.work(store);
        }
        (next, None)
    };
    let value = vec![7; value];
    let some = 5 * MIB / (value.len() as u64 + 40);
    let store = open(&device, small());
    assert!(change(&store, 0..some, Some(&value)).1.is_none(), "{what}");
    let mut first = 0;
    if others == Others::FillAfterShrink {
        first = some * 3 / 4;
        assert!(change(&store, 0..first, None).1.is_none(), "{what}");
        store.compact().unwrap();
        store.shrink().unwrap();
    }
    if others != Others::Nothing {
        device.fill_up();
    }
    let (end, full) = change(&store, some..1 << 40, Some(&value));
    assert!(matches!(full, Some(StoreError::NoSpace(_))), "{what}");
    store.close().unwrap();
    let store = open(&device, small());
    let (at, failed) = change(&store, first..end, None);
    if let Some(error) = failed {
        panic!("{what}: delete {at} of {end}: {error}; {:?}", store.stats());
    }
    store.close().unwrap();
    let store = open(&device, small());
    store
        .compact()
        .unwrap_or_else(|error| panic!("{what}: {end} keys: {error}; {:?}", store.stats()));
    assert_eq!(store.scan().unwrap().count(), 0, "{what}");
    let again = change(&store, 0..some / 5, Some(&value)).1;
    assert!(again.is_none(), "{what}: {again:?}");
}
