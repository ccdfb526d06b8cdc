// SPDX-License-Identifier: Apache-2.0
//! Writes that depend on the current value, by many threads at once, and the count of keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_store::{Options, Store, StoreError, WriteOptions};
use senko_workload::Rng;

use crate::support::hooked::Hooked;
use crate::support::{moved, small};

fn open() -> Store {
    let options = Options {
        block_bytes: 1 << 20,
        inline_max: 4096,
        ..Options::default()
    };
    Store::open_device(Hooked::new(3), options).unwrap()
}

fn number(bytes: Option<&[u8]>) -> u64 {
    bytes.map_or(0, |bytes| {
        u64::from_le_bytes(bytes[..8].try_into().unwrap())
    })
}

/// Several threads used to have no way to count in a store: between a get and a put, others'
/// changes are lost. Values are inline and large in turn, and other keys push the counters out of
/// logs into blocks meanwhile.
#[test]
fn no_update_is_lost() {
    const THREADS: u64 = 4;
    const EACH: u64 = 1500;
    let store = open();
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, calls) = (&store, &calls);
            scope.spawn(move || {
                for nth in 0..EACH {
                    let key = [b"counter", &[(nth % 3) as u8][..]].concat();
                    let counted = store.update(&key, |old| {
                        calls.fetch_add(1, Ordering::Relaxed);
                        let next = number(old) + 1;
                        let mut value = next.to_le_bytes().to_vec();
                        value.resize(if next.is_multiple_of(64) { 5000 } else { 8 }, 0);
                        Some(value)
                    });
                    counted.unwrap();
                    store
                        .put(&(thread << 32 | nth).to_be_bytes(), &[7; 1000])
                        .unwrap();
                }
            });
        }
    });
    for key in 0..3u8 {
        let value = store.get(&[b"counter", &[key][..]].concat()).unwrap();
        assert_eq!(
            number(value.as_deref()),
            THREADS * EACH / 3,
            "counter {key}"
        );
    }
    assert!(calls.load(Ordering::Relaxed) >= THREADS * EACH);
    assert_eq!(store.len().unwrap(), 3 + THREADS * EACH);
}

/// Of all threads that want a lock, exactly one gets it, each time.
#[test]
fn one_of_many_swaps() {
    let store = open();
    for round in 0..200u64 {
        let won = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (store, won) = (&store, &won);
                scope.spawn(move || {
                    let mine = thread.to_le_bytes();
                    let took = store.compare_and_swap(b"lock", None, Some(&mine)).unwrap();
                    if took.is_some() {
                        won.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(store.get(b"lock").unwrap().as_deref(), Some(&mine[..]));
                    }
                });
            }
        });
        assert_eq!(won.load(Ordering::Relaxed), 1, "round {round}");
        let held = store.get(b"lock").unwrap().unwrap();
        assert_eq!(
            store
                .compare_and_swap(b"lock", Some(b"nobody"), None)
                .unwrap(),
            None
        );
        let freed = store.compare_and_swap(b"lock", Some(&held), None).unwrap();
        assert!(freed.is_some() && !store.contains(b"lock").unwrap());
    }
}

/// A change that itself writes to the key was called for ever.
#[test]
fn a_change_that_writes_to_its_own_key_ends() {
    let store = open();
    let mut calls = 0u32;
    let ended = store.update(b"k", |_| {
        calls += 1;
        store.put(b"k", &calls.to_le_bytes()).unwrap();
        Some(b"never".to_vec())
    });
    assert!(matches!(ended, Err(StoreError::Conflict)), "{ended:?}");
    assert_eq!(calls, 1000);
    let left = store.get(b"k").unwrap();
    assert_eq!(left.as_deref(), Some(&1000u32.to_le_bytes()[..]));
}

#[test]
fn what_has_expired_is_no_value() {
    let clock = Arc::new(AtomicU64::new(1_700_000_000_000_000));
    let options = Options {
        clock: moved(&clock, 1),
        ..small()
    };
    let store = Store::open_device(Hooked::new(3), options).unwrap();
    let minute = WriteOptions {
        ttl: Some(std::time::Duration::from_secs(60)),
        ..WriteOptions::default()
    };
    assert!(
        store
            .compare_and_swap_with(b"k", None, Some(b"a"), minute)
            .unwrap()
            .is_some()
    );
    assert!(
        store
            .compare_and_swap(b"k", None, Some(b"b"))
            .unwrap()
            .is_none()
    );
    assert_eq!(
        (store.len().unwrap(), store.is_empty().unwrap()),
        (1, false)
    );
    clock.fetch_add(61_000_000, Ordering::Relaxed);
    assert_eq!((store.len().unwrap(), store.is_empty().unwrap()), (0, true));
    let seen = store.update(b"k", |old| {
        assert_eq!(old, None);
        Some(b"c".to_vec())
    });
    seen.unwrap();
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"c"[..]));
    store.update(b"k", |_| None).unwrap();
    assert!(!store.contains(b"k").unwrap());
    let error = store.compare_and_swap(b"", None, Some(b"b")).unwrap_err();
    assert!(matches!(error, StoreError::KeyLength(0)));
}

/// The count agrees with a model, whatever was overwritten, deleted, sealed and compacted.
/// `live_elements` is as documented: exact right after a compaction.
#[test]
fn keys_are_counted_exactly() {
    let store = Store::open_device(Hooked::new(3), small()).unwrap();
    let mut rng = Rng::new(9);
    let mut there = std::collections::BTreeSet::new();
    for nth in 0..20_000u64 {
        let key = rng.below(4000);
        if rng.below(3) == 0 {
            store.delete(&key.to_le_bytes()).unwrap();
            there.remove(&key);
        } else {
            store.put(&key.to_le_bytes(), &[1; 300]).unwrap();
            there.insert(key);
        }
        if nth % 5000 == 4999 {
            assert_eq!(store.len().unwrap(), there.len() as u64);
        }
    }
    store.compact().unwrap();
    assert_eq!(store.len().unwrap(), there.len() as u64);
    assert_eq!(store.stats().live_elements, there.len() as u64);
}

/// `open_us` used to be the time since the opening, and grew with each query.
#[test]
fn the_time_of_an_opening_does_not_grow() {
    let store = open();
    let first = store.stats().open_us;
    assert!(first > 0);
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert_eq!(store.stats().open_us, first);
}
