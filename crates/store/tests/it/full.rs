// SPDX-License-Identifier: Apache-2.0
//! A full store: every key can be deleted, and writes work again once there is room. With every
//! length of values and batches, with the background threads and without, after a reopening, and if
//! other files take the rest of the file system. Below its bound no overwrite fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use senko_io::Device;
use senko_io::memory::MemoryDevice;
use senko_store::{Batch, Options, Store, StoreError, WriteOptions};
use senko_workload::{Rng, rounds};

use crate::recorded::seed;
use crate::support::hooked::Hooked;
use crate::support::{ends, open, set_secret, ticking};

const MIB: u64 = 1 << 20;

fn options(background: bool) -> Options {
    Options {
        block_bytes: MIB,
        background,
        cache_bytes: 0,
        clock: ticking(3),
        ..Options::default()
    }
}

/// With large values, which have their own extents.
fn with_large(background: bool) -> Options {
    Options {
        inline_max: 8192,
        ..options(background)
    }
}

/// A device of this many MiB, which cannot grow.
fn fixed(mib: u64) -> Arc<MemoryDevice> {
    fixed_units(mib * 16)
}

/// The same, in units of 64 KiB.
fn fixed_units(units: u64) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(units * 16);
    device.grow(units * 16).unwrap();
    device
}

/// Deterministic contents of a key's value.
fn value(key: u64, bytes: u64) -> Vec<u8> {
    let mut value: Vec<u8> = (0..bytes).map(|at| (key ^ at) as u8).collect();
    for (byte, of_key) in value.iter_mut().zip(key.to_be_bytes()) {
        *byte = of_key;
    }
    value
}

fn check(store: &Store, key: u64, expected: Option<&[u8]>) {
    let got = store.get(&key.to_be_bytes()).unwrap();
    assert_eq!(got.as_deref(), expected, "key {key}");
}

fn write(
    store: &Store,
    keys: &[u64],
    batch: usize,
    bytes: impl Fn(u64) -> Option<u64>,
) -> Result<(), (usize, StoreError)> {
    for (nth, some) in keys.chunks(batch).enumerate() {
        let mut operations = Batch::new();
        for &key in some {
            match bytes(key) {
                Some(bytes) => operations.put(&key.to_be_bytes(), &value(key, bytes)),
                None => operations.delete(&key.to_be_bytes()),
            };
        }
        let written = store.write(&operations, WriteOptions::default());
        written.map_err(|error| (nth * batch, error))?;
    }
    Ok(())
}

/// Puts keys from `first` on until the store is full.
fn fill(store: &Store, first: u64, batch: u64, bytes: impl Fn(u64) -> u64) -> u64 {
    let mut next = first;
    loop {
        let keys: Vec<u64> = (next..next + batch).collect();
        match write(store, &keys, batch as usize, |key| Some(bytes(key))) {
            Ok(()) => next += batch,
            Err((_, StoreError::NoSpace(_))) => return next,
            Err((_, error)) => panic!("{error}"),
        }
    }
}

fn delete(store: &Store, keys: &[u64], batch: usize, what: &str) {
    if let Err((at, error)) = write(store, keys, batch, |_| None) {
        let of = keys.len();
        panic!("{what}: delete {at} of {of}: {error}; {:?}", store.stats());
    }
}

/// Deletes used to be refused, depending on the pace of the background: a log for deletes was
/// begun while older logs could no longer be sealed. And puts were refused after all keys were
/// deleted: the deletes lay in the active log, which nothing sealed.
#[test]
fn a_full_store_is_emptied_and_filled_again() {
    // MiB of the device, bytes of a value, puts and deletes of a batch.
    let cases: [(u64, u64, u64, usize); 9] = [
        (10, 60, 1000, 1000),
        (10, 1000, 1, 1),
        (20, 1000, 100, 7),
        (14, 2100, 100, 1),
        (20, 2100, 1, 500),
        (14, 6000, 1, 7),
        (20, 60_000, 4, 500),
        (10, 60_000, 1, 1),
        (10, 300_000, 1, 500),
    ];
    for (nth, (mib, bytes, puts, deletes)) in cases.into_iter().enumerate() {
        for background in [false, true] {
            let device = fixed(mib);
            let open = || open(&device, options(background));
            let what = format!("{mib} MiB, {bytes} bytes, {puts} and {deletes}, {background}");
            empty_and_fill(&open, nth as u64, bytes, (puts, deletes), &what);
            assert_eq!(device.pages(), mib * MIB / 4096);
        }
    }
}

fn empty_and_fill(
    open: &dyn Fn() -> Store,
    seed: u64,
    bytes: u64,
    (puts, deletes): (u64, usize),
    what: &str,
) {
    let mut rng = Rng::new(seed);
    let mut store = open();
    let mut least = 0;
    for round in 0..3 {
        let stored = fill(&store, 0, puts, |_| bytes);
        assert!(
            stored > 0 && stored >= least,
            "{what}: round {round}: {stored}, not {least}: {:?}",
            store.stats()
        );
        least = stored * 3 / 4;
        if round == 1 {
            store.close().unwrap();
            store = open();
        }
        let mut keys: Vec<u64> = (0..stored).collect();
        if round > 0 {
            shuffle(&mut keys, &mut rng);
        }
        delete(&store, &keys, deletes, what);
        assert_eq!(store.len().unwrap(), 0, "{what}");
        println!("{what}: {stored} keys");
    }
}

fn shuffle(keys: &mut [u64], rng: &mut Rng) {
    for at in (1..keys.len()).rev() {
        keys.swap(at, rng.below(at as u64 + 1) as usize);
    }
}

/// Any order of writes, compactions and openings on any small device: no delete is refused, and the
/// store has what a model has. The order of keys in blocks is drawn, and the seed of that printed.
#[test]
fn no_order_of_writes_makes_a_delete_fail() {
    let first = seed("no order");
    for nth in 0..rounds(6) {
        any_order(nth, nth % 2 == 0, first + nth);
    }
}

fn any_order(seed: u64, background: bool, secret: u64) {
    let mut rng = Rng::new(seed);
    let units = 130 + rng.below(200);
    let bounded = seed.is_multiple_of(3);
    let device: Arc<dyn Device> = match bounded {
        true => Hooked::limited(seed, units * 16),
        false => fixed_units(units),
    };
    let open = || Store::open_device(Arc::clone(&device), options(background)).unwrap();
    open().close().unwrap();
    set_secret(&*device, secret);
    let mut store = open();
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let lengths = [10, 100, 1000, 2030, 2100, 4000, 9000, 100_000, 200_000];
    let mut next = 0;
    for step in 0..12 {
        let what = format!("seed {seed}, {units} units, step {step}");
        let batch = [1, 10, 100][rng.below(3) as usize];
        match rng.below(6) {
            // Fills it, with one length or all.
            0 | 1 => {
                let some = lengths[rng.below(9) as usize];
                let mixed = rng.below(2) == 0;
                let length = |key: u64| match mixed {
                    true => lengths[(key % 7) as usize],
                    false => some,
                };
                let batch = if some > 1000 || mixed {
                    batch.min(4)
                } else {
                    100
                };
                let end = fill(&store, next, batch as u64, length);
                model.extend((next..end).map(|key| (key, length(key))));
                next = end;
            }
            // Deletes some, and keys that are not there.
            2 | 3 => {
                let share = 1 + rng.below(4);
                let mut keys: Vec<u64> = model.keys().copied().collect();
                keys.retain(|_| rng.below(share) == 0);
                keys.truncate(if batch == 1 { 2000 } else { usize::MAX });
                let mut shuffled = keys.clone();
                shuffle(&mut shuffled, &mut rng);
                delete(&store, &shuffled, batch, &what);
                model.retain(|key, _| keys.binary_search(key).is_err());
                let absent: Vec<u64> = (next..next + 500).collect();
                delete(&store, &absent, 50, &what);
            }
            4 => {
                if let Err(error) = store.compact() {
                    panic!("{what}: compact: {error}: {:?}", store.stats());
                }
            }
            _ => {
                store.close().unwrap();
                store = open();
            }
        }
        assert!(device.pages() <= units * 16);
    }
    assert_eq!(store.len().unwrap(), model.len() as u64, "seed {seed}");
    for (&key, &length) in &model {
        check(&store, key, Some(&value(key, length)));
    }
    let keys: Vec<u64> = model.keys().copied().collect();
    delete(&store, &keys, 100, &format!("seed {seed}, the end"));
    assert!(store.is_empty().unwrap());
    store.put(b"key", b"value").unwrap();
}

/// Blocks were judged by the share of their elements that live. So a put was refused when the long
/// values of a full store were deleted, nearly all of its bytes, and the many short ones lived.
#[test]
fn what_few_long_values_took_is_found() {
    for background in [false, true] {
        let device = fixed(16);
        let store = open(&device, options(background));
        // In a block about nine long ones, and 1,800 short ones.
        let bytes = |key: u64| if key.is_multiple_of(200) { 100_000 } else { 10 };
        let end = fill(&store, 0, 200, bytes);
        let long: Vec<u64> = (0..end).step_by(200).collect();
        delete(&store, &long, 1, "long ones");
        let again = fill(&store, end, 200, bytes) - end;
        assert!(
            again >= end / 2,
            "{end} keys, then {again}: {:?}",
            store.stats()
        );
        delete(&store, &(0..end + again).collect::<Vec<_>>(), 100, "all");
    }
}

/// A store that was small when other files took the rest of the file system kept nothing for its
/// deletes: the 116th was refused.
#[test]
fn other_files_take_the_rest_at_any_size() {
    for first in [0, 1, 50, 300, 1500, 4000] {
        let device = Hooked::limited(1, 24 * MIB / 4096);
        let open = || open(&device, options(first % 100 == 0));
        let mut store = open();
        let keys: Vec<u64> = (0..first).collect();
        write(&store, &keys, 1, |_| Some(1008)).unwrap();
        device.fill_up();
        for round in 0..3 {
            let end = fill(&store, first, 1, |_| 1008);
            let keys: Vec<u64> = (0..end).collect();
            delete(&store, &keys, 1, &format!("{first}, round {round}"));
            store.compact().unwrap();
            store.close().unwrap();
            store = open();
            assert!(store.is_empty().unwrap());
        }
    }
}

/// `len` used to fail although nobody had a snapshot: the background, short of space, ended the one
/// that `len` had just taken.
#[test]
fn keys_are_counted_while_space_is_short() {
    let device = fixed(14);
    let store = Store::open_device(device, options(true)).unwrap();
    let stored = fill(&store, 0, 100, |_| 2100);
    std::thread::scope(|scope| {
        let deleting = scope.spawn(|| {
            for key in 0..stored {
                if let Err(error) = store.delete(&key.to_be_bytes()) {
                    panic!("delete {key} of {stored}: {error}; {:?}", store.stats());
                }
                let _ = store.put(b"other", &[1; 2100]);
            }
        });
        let mut before = u64::MAX;
        while !deleting.is_finished() {
            let keys = store.len().unwrap();
            assert!(keys <= before.saturating_add(1), "{keys} after {before}");
            before = keys;
            assert!(before > 0 || store.is_empty().is_ok());
        }
    });
}

/// Each put in a process of its own. A store full of large values used to refuse every delete after
/// an opening.
#[test]
fn a_store_of_large_values_is_emptied_after_each_opening() {
    // MiB of the device, of a log and of a block; bytes of a value.
    let cases = [
        (24, 1, 1, 600_000),
        (24, 4, 4, 600_000),
        (24, 1, 1, 2_000_000),
        (48, 1, 8, 3_000_000),
        (48, 1, 1, 5_000_000),
        (64, 4, 4, 20_000_000),
    ];
    for (mib, log, block, bytes) in cases {
        for background in [false, true] {
            let what = format!("{mib} MiB, {log} and {block}, {bytes} bytes, {background}");
            let options = || Options {
                log_bytes: log * MIB,
                block_bytes: block * MIB,
                ..options(background)
            };
            let device = fixed(mib);
            let open = || open(&device, options());
            let value = vec![7; bytes];
            let put = |key: u64| {
                let store = open();
                let done = store.put(&key.to_be_bytes(), &value);
                store.close().unwrap();
                match done {
                    Ok(_) => true,
                    Err(StoreError::NoSpace(_)) => false,
                    Err(error) => panic!("{what}: {error}"),
                }
            };
            open().put(b"short", b"value").unwrap();
            let stored = (0..).take_while(|&key| put(key)).count() as u64;
            assert!(stored > 0, "{what}");
            for key in 0..stored {
                let store = open();
                delete(&store, &[key], 1, &what);
                store.close().unwrap();
            }
            let store = open();
            store.compact().unwrap();
            assert_eq!(store.scan().unwrap().count(), 1, "{what}");
            let again = fill(&store, 0, 1, |_| bytes as u64);
            assert!(again >= stored * 3 / 4, "{what}: {again} of {stored}");
        }
    }
}

/// At the bound the logs could not be sealed for lack of space, and a put used to wait for that
/// forever, with the lock of all writers.
#[test]
fn a_full_store_says_so() {
    for background in [true, false] {
        for mib in [6, 7, 8, 9, 12] {
            ends(move || {
                let options = Options {
                    max_bytes: Some(mib * MIB),
                    inline_max: 4096,
                    ..options(background)
                };
                let store = open(&fixed(64), options);
                let stored = fill(&store, 0, 1, |_| 1000);
                assert!(stored * 1000 < mib * MIB, "the bound does not hold");
                for key in 0..stored {
                    check(&store, key, Some(&value(key, 1000)));
                }
                store.close().unwrap();
            });
        }
    }
}

/// Live data far below the bound: overwriting must be possible forever.
#[test]
fn overwrites_do_not_fail_below_the_bound() {
    for background in [false, true] {
        // 3 to 5 MiB are live.
        overwrite(with_large(background), 16, 3000);
        for mib in [16, 24] {
            let options = Options {
                inline_max: 4096,
                ..options(background)
            };
            // Four logs, a spare one, and the space for compaction are added to the live bytes.
            overwrite(options, mib, (mib - 9) * MIB * 6 / 10 / 1000);
        }
    }
}

fn overwrite(options: Options, mib: u64, keys: u64) {
    let options = Options {
        max_bytes: Some(mib * MIB),
        ..options
    };
    let (background, large) = (options.background, options.inline_max == 8192);
    let device = Hooked::new(1);
    let store = open(&device, options);
    let mut rng = Rng::new(5);
    let mut model = vec![None; keys as usize];
    for number in 0..60_000u64 {
        let key = rng.below(keys);
        let len = match large {
            true if rng.below(200) == 0 => 9000 + rng.below(40_000),
            true => rng.below(1500),
            false => 1000,
        };
        let written = value(key << 32 | number, len);
        if let Err(error) = store.put(&key.to_be_bytes(), &written) {
            let stats = store.stats();
            panic!("{background}, {mib} MiB, {keys} keys, put {number}: {error}; {stats:?}");
        }
        model[key as usize] = Some(written);
        if large && !background && number % 16 == 0 {
            store
                .maintain()
                .unwrap_or_else(|error| panic!("maintain at {number}: {error}"));
        }
    }
    assert!(device.pages() * 4096 <= mib * MIB);
    store.compact().unwrap();
    for (key, written) in (0..).zip(&model) {
        check(&store, key, written.as_deref());
    }
    let stats = store.stats();
    let bound = stats.live_bytes as f64 * 1.3 + (2 * MIB) as f64;
    assert!((stats.block_bytes as f64) < bound, "{stats:?}");
}

/// On a full device or tmpfs of 64 MiB, `delete` used to stop after 17,000 of 60,480 keys, and
/// `compact` failed: the reserve for deletes existed only under `--max-size`. Now every key of a
/// full store can be deleted, and no delete fails. A compaction makes room, and the store can hold
/// as much as before. Closing it in between makes no difference.
#[test]
fn a_full_store_takes_deletes_and_has_room_again() {
    const MAX: u64 = 16 * MIB;
    for background in [false, true] {
        // What stops the store from growing.
        let bounds: [(&str, Arc<dyn Device>, _); 3] = [
            ("setting", Hooked::new(1), Some(MAX)),
            ("device", fixed(MAX / MIB), None),
            ("file system", Hooked::limited(1, MAX / 4096), None),
        ];
        for (bound, device, max_bytes) in bounds {
            let open = || {
                let options = Options {
                    max_bytes,
                    ..with_large(background)
                };
                Store::open_device(Arc::clone(&device), options).unwrap()
            };
            let mut store = open();
            let mut least = 0;
            for round in 0..4u64 {
                let what = format!("{bound}, {background}, round {round}");
                let first = round << 32;
                let bytes = |key: u64| if key % 500 == 499 { 100_000 } else { 1000 };
                let keys: Vec<u64> = (first..fill(&store, first, 1, bytes)).collect();
                let stored = keys.len() as u64;
                // Logs, the spare one and the space for a compaction take a large share of such a
                // small bound.
                assert!(
                    stored * 1000 > MAX / 4 && stored >= least && stored < MAX / 1000,
                    "{what}: full at {stored} elements, not {least}: {:?}",
                    store.stats()
                );
                if round == 0 {
                    least = stored * 3 / 4;
                }
                if round % 2 == 1 {
                    store.close().unwrap();
                    store = open();
                }
                for &key in &keys {
                    check(&store, key, Some(&value(key, bytes(key))));
                }
                delete(&store, &keys, 1, &what);
                if round >= 2 {
                    store.close().unwrap();
                    store = open();
                }
                compact_to_nothing(&store, &what);
                assert!(device.pages() * 4096 <= MAX);
            }
        }
    }
}

fn compact_to_nothing(store: &Store, what: &str) {
    if let Err(error) = store.compact() {
        panic!("{what}: {error}; {:?}", store.stats());
    }
    assert_eq!(store.scan().unwrap().count(), 0, "{what}");
}

/// Free space in pieces that were all too short for a log used to count as room for one. So a
/// delete was refused in a full store that was reopened. The positions of the pieces depend on the
/// device's size, so many sizes are tried.
#[test]
fn deletes_of_a_full_store_find_room_however_its_free_space_lies() {
    for units in (150..450u64).step_by(15) {
        let device = fixed_units(units);
        let store = open(&device, with_large(true));
        let keys: Vec<u64> = (0..fill(&store, 0, 500, |_| 700)).collect();
        store.close().unwrap();
        let store = open(&device, with_large(units % 2 == 0));
        let what = format!("{units} units");
        delete(&store, &keys, 500, &what);
        compact_to_nothing(&store, &what);
    }
}

/// Logs of an eighth of a block's size make small blocks, which are joined. In a full store there
/// was space to move only one, and that was repeated forever: a put neither failed nor returned.
#[test]
fn small_blocks_of_a_full_store_are_not_moved_for_ever() {
    for background in [false, true] {
        let options = Options {
            block_bytes: 8 * MIB,
            log_bytes: MIB,
            max_bytes: Some(64 * MIB),
            ..with_large(background)
        };
        let store = open(&Hooked::new(1), options);
        let keys: Vec<u64> = (0..fill(&store, 0, 1, |_| 1000)).collect();
        assert!(keys.len() as u64 * 1000 > 16 * MIB, "{}", keys.len());
        delete(&store, &keys, 1, "small blocks");
        compact_to_nothing(&store, "small blocks");
    }
}
