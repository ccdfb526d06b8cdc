// SPDX-License-Identifier: Apache-2.0
//! Unusual inputs and tight limits: bounds, settings at their ends, stores that are only read,
//! clones that outlive a close.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use senko_io::faulty::FaultyDevice;
use senko_io::{Device, Op};
use senko_store::{
    Batch, Durability, IndexKind, MAX_KEY_BYTES, Options, Store, StoreError, WriteOptions,
};

use crate::support::{ends, moved, open, ticking, waiting};

const MIB: u64 = 1 << 20;

fn small() -> Options {
    Options {
        block_bytes: MIB,
        inline_max: 4096,
        ..Options::default()
    }
}

fn device(mib: u64) -> Arc<dyn Device> {
    FaultyDevice::new(mib * 256, 1)
}

fn filler(nth: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![(nth % 251) as u8; bytes];
    value[..8].copy_from_slice(&nth.to_le_bytes());
    value
}

/// Overwritten large values were among many small live ones: their blocks never looked worth
/// compacting.
#[test]
fn the_space_of_dead_large_values_comes_back() {
    let device = device(512);
    let store = Store::open_device(
        Arc::clone(&device),
        Options {
            background: false,
            max_bytes: Some(200 * MIB),
            ..small()
        },
    )
    .unwrap();
    for round in 0..100u64 {
        let large = vec![round as u8; 10 << 20];
        store.put(b"large", &large).unwrap_or_else(|error| {
            panic!("round {round}: {error}: {:?}", store.stats());
        });
        for nth in 0..600u64 {
            let key = round * 600 + nth;
            store.put(&key.to_le_bytes(), &filler(key, 1000)).unwrap();
        }
        store.seal().unwrap();
        while store.maintain().unwrap() {}
    }
}

/// A put of a large value used to take space and write, and sealing used to write, although the
/// store was opened for reading.
#[test]
fn a_store_that_is_only_read_writes_nothing() {
    let device = FaultyDevice::new(64 * 256, 1);
    let store = open(&device, small());
    for key in 0..3000u64 {
        store.put(&key.to_le_bytes(), &filler(key, 1000)).unwrap();
    }
    drop(store);
    let options = Options {
        read_only: true,
        ..small()
    };
    let before = device.stats();
    let store = open(&device, options);
    let refused = |result: Result<(), StoreError>, what: &str| match result {
        Err(StoreError::ReadOnly(_)) => {}
        other => panic!("{what}: {other:?}"),
    };
    refused(store.put(b"key", b"small").map(|_| ()), "put");
    refused(store.put(b"key", &[1; 100_000]).map(|_| ()), "large put");
    refused(store.delete(b"key").map(|_| ()), "delete");
    refused(store.seal(), "seal");
    refused(store.compact(), "compact");
    refused(store.maintain().map(|_| ()), "maintain");
    store.sync().unwrap();
    assert!(store.stats().read_only);
    for key in 0..3000u64 {
        assert_eq!(
            store.get(&key.to_le_bytes()).unwrap().as_deref(),
            Some(&filler(key, 1000)[..])
        );
    }
    store.close().unwrap();
    let after = device.stats();
    for op in [Op::Write, Op::Flush] {
        assert_eq!(before.total(op), after.total(op), "{op:?}");
    }
}

/// Values between a log's limit and `inline_max` used to be refused.
#[test]
fn any_inline_max_works() {
    let options = Options {
        inline_max: usize::MAX,
        block_bytes: 64 * MIB,
        background: false,
        ..Options::default()
    };
    let store = Store::open_device(device(400), options).unwrap();
    let inline = store.options().inline_max;
    let key = vec![7; MAX_KEY_BYTES];
    for length in [0, 1, inline - 1, inline, inline + 1, 4 << 20, 9 << 20] {
        let value = vec![length as u8; length];
        store
            .put(&key, &value)
            .unwrap_or_else(|error| panic!("{length}: {error}"));
        assert_eq!(store.get(&key).unwrap().as_deref(), Some(&value[..]));
        store.seal().unwrap();
        assert_eq!(store.get(&key).unwrap().as_deref(), Some(&value[..]));
    }
    assert!(matches!(
        store.put(&vec![7; MAX_KEY_BYTES + 1], b""),
        Err(StoreError::KeyLength(_))
    ));
    assert!(matches!(store.get(b""), Err(StoreError::KeyLength(0))));
    assert!(matches!(store.contains(b""), Err(StoreError::KeyLength(0))));
}

/// Keys and values at the ends of their ranges, in blocks and pages of every size.
#[test]
fn long_keys_in_small_blocks() {
    for page_bytes in [4096, 8192, 16_384, 32_768] {
        let options = Options {
            page_bytes,
            inline_max: 128 << 10,
            background: false,
            ..small()
        };
        let store = Store::open_device(device(64), options).unwrap();
        let inline = store.options().inline_max;
        let pairs: Vec<(Vec<u8>, usize)> = (0..24u8)
            .map(|nth| {
                let length = MAX_KEY_BYTES - usize::from(nth % 3);
                let value = [0, 1, inline - 1, inline, inline + 1][usize::from(nth) % 5];
                (vec![nth; length], value)
            })
            .collect();
        for (key, value) in &pairs {
            store.put(key, &vec![key[0]; *value]).unwrap();
        }
        for round in 0..3 {
            for (key, value) in &pairs {
                let got = store.get(key).unwrap();
                assert_eq!(got.as_deref(), Some(&vec![key[0]; *value][..]), "{round}");
            }
            assert_eq!(store.scan().unwrap().count(), pairs.len());
            if round == 0 {
                store.seal().unwrap();
            } else {
                store.compact().unwrap();
            }
        }
    }
}

#[test]
fn expiries_beyond_the_end_mean_for_long() {
    let clock = Arc::new(AtomicU64::new(1_700_000_000_500_000));
    let options = Options {
        background: false,
        clock: moved(&clock, 0),
        ..small()
    };
    let store = Store::open_device(device(64), options).unwrap();
    let mut batch = Batch::new();
    batch.put_expiring(b"batch", b"1", u64::MAX);
    store.write(&batch, WriteOptions::default()).unwrap();
    let with = |expires_at, ttl| WriteOptions {
        expires_at,
        ttl,
        ..WriteOptions::default()
    };
    store.put_with(b"at", b"1", with(u64::MAX, None)).unwrap();
    store
        .put_with(b"ttl", b"1", with(0, Some(Duration::MAX)))
        .unwrap();
    store
        .put_with(b"short", b"1", with(0, Some(Duration::from_millis(200))))
        .unwrap();
    store
        .put_with(b"longer", b"1", with(0, Some(Duration::from_millis(600))))
        .unwrap();
    store.put_with(b"past", b"1", with(5, None)).unwrap();
    let there = |key: &[u8]| store.get(key).unwrap().is_some();
    assert!(there(b"batch") && there(b"at") && there(b"ttl") && there(b"short"));
    assert!(!there(b"past"));
    clock.store(1_700_000_001_000_000, Ordering::Relaxed);
    assert!(!there(b"short") && there(b"longer"));
    clock.store(1_700_000_002_000_000, Ordering::Relaxed);
    assert!(!there(b"longer") && there(b"batch") && there(b"at") && there(b"ttl"));
}

#[test]
fn a_thousand_versions() {
    let options = Options {
        background: false,
        keep_versions: 1000,
        clock: ticking(1),
        ..small()
    };
    let store = Store::open_device(device(256), options).unwrap();
    let mut times = Vec::new();
    for nth in 0..1500u64 {
        times.push(store.put(b"key", &filler(nth, 1500)).unwrap());
        store.put(&nth.to_le_bytes(), &filler(nth, 1500)).unwrap();
    }
    for round in 0..3 {
        let history = store.history(b"key").unwrap();
        assert_eq!(history.len(), 1000, "round {round}");
        assert!(
            history
                .iter()
                .zip(times.iter().rev())
                .all(|(v, t)| v.time == *t)
        );
        for nth in [500usize, 501, 750, 1499] {
            let got = store.get_at(b"key", times[nth]).unwrap();
            assert_eq!(
                got.as_deref(),
                Some(&filler(nth as u64, 1500)[..]),
                "{round}"
            );
        }
        assert_eq!(store.get_at(b"key", times[499]).unwrap(), None);
        match round {
            0 => store.seal().unwrap(),
            _ => store.compact().unwrap(),
        }
    }
}

#[test]
fn bad_settings_leave_no_file() {
    let path = std::env::temp_dir().join(format!("senko-review-{}", std::process::id()));
    let options = Options {
        page_bytes: 5000,
        ..Options::default()
    };
    assert!(Store::open(&path, options).is_err());
    let left = path.exists();
    let _ = std::fs::remove_file(&path);
    assert!(!left, "a file was made");
}

/// Alternating small puts and batches that fit into no log used to freeze a log for each.
#[test]
fn a_batch_that_is_too_large_costs_nothing() {
    let options = Options {
        background: false,
        ..small()
    };
    let store = Store::open_device(device(64), options).unwrap();
    let mut batch = Batch::new();
    for nth in 0..600u64 {
        batch.put(&nth.to_le_bytes(), &filler(nth, 2000));
    }
    for nth in 0..50u64 {
        store.put(&nth.to_le_bytes(), b"small").unwrap();
        let refused = store.write(&batch, WriteOptions::default());
        assert!(matches!(refused, Err(StoreError::BatchTooLarge { .. })));
    }
    assert_eq!(store.stats().logs, 1);
    assert_eq!(store.stats().seals, 0);
    // One that just fits.
    let mut fits = Batch::new();
    for nth in 0..500u64 {
        fits.put(&nth.to_le_bytes(), &filler(nth, 2000));
    }
    store.write(&fits, WriteOptions::synced()).unwrap();
    assert_eq!(store.scan().unwrap().count(), 500);
}

/// Clones continue when the opened handle is dropped, and end without harm when another is closed.
#[test]
fn clones_outlive_their_store() {
    ends(|| {
        let shared = device(256);
        let store = Store::open_device(Arc::clone(&shared), small()).unwrap();
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let store = store.clone();
                std::thread::spawn(move || {
                    let mut acknowledged = 0;
                    for nth in 0..4000u64 {
                        let key = (thread << 32 | nth).to_le_bytes();
                        match store.put(&key, &filler(nth, 500)) {
                            Ok(_) => acknowledged = nth + 1,
                            Err(StoreError::ReadOnly(_)) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(30));
        store.close().unwrap();
        let acknowledged: Vec<u64> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let store = Store::open_device(shared, small()).unwrap();
        for (thread, &count) in acknowledged.iter().enumerate() {
            for nth in 0..count {
                let key = ((thread as u64) << 32 | nth).to_le_bytes();
                assert!(
                    store.get(&key).unwrap().is_some(),
                    "{thread} {nth} of {count}"
                );
            }
        }
    });
}

/// With a map that guesses, dead elements are removed too, and then nothing is left to do.
#[test]
fn a_bloom_store_comes_to_rest() {
    for keep_versions in [1, 2] {
        let options = Options {
            index: IndexKind::BloomMap,
            keep_versions,
            background: false,
            ..small()
        };
        let store = Store::open_device(device(64), options).unwrap();
        for round in 0..3u64 {
            for key in 0..2000u64 {
                store.put(&key.to_le_bytes(), &filler(round, 500)).unwrap();
            }
        }
        store.compact().unwrap();
        let most = 2000 * u64::from(keep_versions) * 5 / 4;
        assert!(store.stats().block_elements <= most, "{:?}", store.stats());
        for key in 0..2000u64 {
            store.delete(&key.to_le_bytes()).unwrap();
        }
        for _ in 0..2 {
            store.compact().unwrap();
        }
        assert_eq!(store.scan().unwrap().count(), 0);
        if keep_versions == 1 {
            assert!(store.stats().block_elements <= 20, "{:?}", store.stats());
        }
        let mut pieces = 0;
        while store.maintain().unwrap() {
            pieces += 1;
            assert!(pieces < 100, "there is always something to do");
        }
    }
}

#[test]
fn a_scan_at_the_bound_ends_cleanly() {
    ends(|| {
        let options = Options {
            // Not enough for the data twice.
            max_bytes: Some(14 * MIB),
            ..small()
        };
        let store = Store::open_device(device(64), options).unwrap();
        let keys = 5000u64;
        for key in 0..keys {
            store.put(&key.to_le_bytes(), &filler(key, 1000)).unwrap();
        }
        let mut scan = store.scan().unwrap();
        let snapshot = store.snapshot().unwrap();
        let first = scan.next().unwrap().unwrap();
        assert_eq!(&first.key[..8], &first.value[..8]);
        for round in 1..8u64 {
            for key in 0..keys {
                let value = filler(key + round * keys, 1000);
                store.put(&key.to_le_bytes(), &value).unwrap();
            }
        }
        let mut expired = false;
        for entry in scan {
            match entry {
                Ok(entry) => assert_eq!(&entry.key[..8], &entry.value[..8]),
                Err(StoreError::SnapshotExpired) => expired = true,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(expired);
        // It ends only if its space was needed as well.
        match snapshot.get(&1u64.to_le_bytes()) {
            Ok(value) => assert_eq!(value.as_deref(), Some(&filler(1, 1000)[..])),
            Err(error) => assert!(matches!(error, StoreError::SnapshotExpired), "{error}"),
        }
        assert!(store.stats().snapshots_expired >= 1);
        store.close().unwrap();
    });
}

#[test]
fn what_waits_for_nothing_is_there_after_a_sync() {
    let shared = FaultyDevice::new(64 * 256, 3);
    let options = Options {
        background: false,
        ..small()
    };
    let store = open(&shared, options.clone());
    let none = waiting(Durability::None);
    for key in 0..5000u64 {
        store
            .put_with(&key.to_le_bytes(), &filler(key, 1000), none)
            .unwrap();
    }
    store.sync().unwrap();
    let after = shared.crashed_copy(9);
    let store = Store::open_device(after, options).unwrap();
    for key in 0..5000u64 {
        assert!(store.get(&key.to_le_bytes()).unwrap().is_some(), "{key}");
    }
}

/// With several versions kept, a value may have expired when its log is sealed. It used to be
/// listed as a deletion at the time of its writing, which never happened.
#[test]
fn what_expired_is_told_from_what_was_deleted() {
    const START: u64 = 1_000_000;
    let now = Arc::new(AtomicU64::new(START * 1_000_000));
    let options = Options {
        keep_versions: 3,
        background: false,
        clock: moved(&now, 0),
        ..small()
    };
    let device = device(64);
    let store = Store::open_device(Arc::clone(&device), options.clone()).unwrap();
    let short = WriteOptions {
        expires_at: START + 10,
        ..WriteOptions::default()
    };
    let first = store.put_with(b"only", b"short", short).unwrap();
    let older = store.put_with(b"both", &[7; 100_000], short).unwrap();
    let newer = store.put(b"both", b"for ever").unwrap();
    let gone = store.put_with(b"deleted", b"short", short).unwrap();
    let deleted = store.delete(b"deleted").unwrap();
    let seen = |store: &Store, key: &[u8]| -> Vec<(u64, Option<usize>, u64)> {
        let history = store.history(key).unwrap();
        history
            .into_iter()
            .map(|it| (it.time, it.value.map(|value| value.len()), it.expires_at))
            .collect()
    };
    let end = START + 10;
    assert_eq!(seen(&store, b"only"), [(first, Some(5), end)]);
    now.store((START + 20) * 1_000_000, Ordering::Relaxed);
    store.seal().unwrap();
    let check = |store: &Store| {
        assert_eq!(seen(store, b"only"), [(first, None, end)]);
        assert_eq!(
            seen(store, b"both"),
            [(newer, Some(8), 0), (older, None, end)]
        );
        assert_eq!(
            seen(store, b"deleted"),
            [(deleted, None, 0), (gone, None, end)]
        );
        assert_eq!(store.get(b"only").unwrap(), None);
        assert_eq!(store.get_at(b"only", first).unwrap(), None);
        assert_eq!(store.scan().unwrap().count(), 1);
    };
    check(&store);
    store.close().unwrap();
    let report = senko_store::verify_device(Arc::clone(&device), |_, _| ()).unwrap();
    assert_eq!(report.problems, []);
    let store = Store::open_device(Arc::clone(&device), options).unwrap();
    check(&store);

    // A value sealed before it expired is dropped when its block is compacted. Keys with
    // only expired versions are removed, like deleted keys.
    let later = WriteOptions {
        expires_at: START + 30,
        ..WriteOptions::default()
    };
    let time = store.put_with(b"both", b"until later", later).unwrap();
    let last = store.put(b"both", b"for ever").unwrap();
    store.seal().unwrap();
    assert_eq!(seen(&store, b"both")[1], (time, Some(11), START + 30));
    now.store((START + 40) * 1_000_000, Ordering::Relaxed);
    store.compact().unwrap();
    store.compact().unwrap();
    let both = seen(&store, b"both");
    assert_eq!(both[0], (last, Some(8), 0));
    assert_eq!(both[1].0, time);
    assert_eq!(both[1].2, START + 30);
    assert_eq!(seen(&store, b"only"), []);
}
