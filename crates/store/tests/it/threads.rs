// SPDX-License-Identifier: Apache-2.0
//! The background: how its rate is limited, and the effect of its failure. Also a sync while other
//! threads fill one log after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use senko_io::faulty::FaultyDevice;
use senko_store::{Durability, Options, Store, StoreError};

use crate::support::hooked::Hooked;
use crate::support::watched::Watched;
use crate::support::{small, waiting};

const MIB: u64 = 1 << 20;
/// A state that has not come after this long will not come.
const PATIENCE: Duration = Duration::from_secs(120);

/// Compactions while a part of the store is overwritten again and again. After each piece, all
/// pending work is done; the test also checks how far the store came by itself.
fn compactions(rate: Option<u64>) -> u64 {
    let options = Options {
        compaction_rate: rate,
        ..small()
    };
    let device = FaultyDevice::new(64 * MIB / 4096, 1);
    let store = Store::open_device(device, options).unwrap();
    let put = |key: u64| {
        store.put(&key.to_le_bytes(), &[key as u8; 1000]).unwrap();
        while store.maintain().unwrap() {}
    };
    // 8 MiB, and then less than writers are held up for, which ends the rate limit.
    (0..8000).for_each(put);
    let before = store.stats().compactions;
    let mut at = 0;
    while store.stats().compactions == before {
        put(at * 7 % 8000);
        at += 1;
        assert!(at < 20_000, "it is compacted some time");
    }
    for _ in 0..600 {
        put(at * 7 % 8000);
        at += 1;
    }
    store.stats().compactions - before
}

/// The rate limit must be paid for one compaction's writes before the next begins. At a byte a
/// second that takes longer than the test, on any machine; at a rate that no device reaches, there
/// is no wait.
#[test]
fn compaction_keeps_to_its_rate() {
    // How many there are depends on the store's secret, but not by much.
    for rate in [None, Some(u64::MAX)] {
        let free = compactions(rate);
        assert!(free > 1, "{free} at {rate:?}");
    }
    assert_eq!(compactions(Some(1)), 1);
}

fn key(thread: u64, nth: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&thread.to_le_bytes());
    key[8..].copy_from_slice(&nth.to_le_bytes());
    key
}

/// Writers used to wait forever for a thread of the store that had panicked.
#[test]
fn a_dead_thread_ends_writing_and_nothing_else() {
    for (thread, durability) in [
        ("senko-blocks", Durability::Buffered),
        ("senko-maps", Durability::Buffered),
        ("senko-log", Durability::None),
    ] {
        let inner = FaultyDevice::new(256 * MIB / 4096, 1);
        let armed = Arc::new(AtomicBool::new(false));
        let is_armed = Arc::clone(&armed);
        // The thread panics in its next call of the device.
        let device = Watched::new(Arc::clone(&inner), move |_, _, done| {
            let here = std::thread::current();
            if !done && is_armed.load(Ordering::Relaxed) && here.name() == Some(thread) {
                panic!("a thread dies, as the test wants");
            }
        });
        let options = Options {
            block_bytes: MIB,
            ..Options::default()
        };
        let store = Store::open_device(device, options).unwrap();
        let write = waiting(durability);
        let value = |nth: u64| vec![nth as u8; 900];
        store.put(&key(9, 9), b"before").unwrap();
        armed.store(true, Ordering::Relaxed);
        let counts: Vec<u64> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let store = &store;
                    scope.spawn(move || {
                        for nth in 0.. {
                            match store.put_with(&key(writer, nth), &value(nth), write) {
                                Ok(_) => {}
                                Err(StoreError::ReadOnly(why)) => {
                                    assert!(why.contains("panicked"), "{why}");
                                    return nth;
                                }
                                Err(other) => panic!("{thread}: {other}"),
                            }
                            if nth == 50_000 {
                                // The thread has work now. On a busy machine it begins later.
                                let begun = Instant::now();
                                while !store.stats().read_only {
                                    assert!(begun.elapsed() < PATIENCE, "{thread} lives");
                                    std::thread::sleep(Duration::from_millis(1));
                                }
                            }
                        }
                        unreachable!()
                    })
                })
                .collect();
            writers.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert!(store.stats().read_only);
        for (writer, &count) in (0..).zip(&counts) {
            for nth in (0..count).step_by(7) {
                let got = store.get(&key(writer, nth)).unwrap();
                assert_eq!(got.as_deref(), Some(&value(nth)[..]), "{thread} {nth}");
            }
        }
        assert!(store.get(&key(9, 9)).unwrap().is_some());
        // A failed put may have entered the log before the failure was known.
        let failed = (0..)
            .zip(&counts)
            .filter(|(writer, count)| store.contains(&key(*writer, **count)).unwrap())
            .count();
        assert_eq!(
            store.scan().unwrap().map(Result::unwrap).count() as u64,
            counts.iter().sum::<u64>() + failed as u64 + 1
        );
        assert!(matches!(store.sync(), Err(StoreError::ReadOnly(_))));
        // It reports the failure as well, or has nothing to report; but it ends.
        let _ = catch_unwind(AssertUnwindSafe(|| store.close())).unwrap();
        // Data that was passed to the device is there afterwards.
        if durability == Durability::Buffered {
            let store = Store::open_device(inner, Options::default()).unwrap();
            for (writer, &count) in (0..).zip(&counts) {
                assert!(count == 0 || store.contains(&key(writer, count - 1)).unwrap());
            }
        }
    }
}

/// Threads fill logs of 1 MiB without waiting for anything while another syncs. Every write that
/// returned before the sync began survives a power failure, however the logs changed meanwhile.
#[test]
fn a_sync_has_what_came_before_it_whatever_the_logs_do() {
    const WRITERS: usize = 3;
    const ROUNDS: u64 = 12;
    let device = Hooked::new(5);
    let options = Options {
        block_bytes: MIB,
        ..Options::default()
    };
    let store = Store::open_device(device.clone(), options.clone()).unwrap();
    let written: [AtomicU64; WRITERS] = Default::default();
    let stop = AtomicBool::new(false);
    let value = |nth: u64| vec![nth as u8; 700];
    let no_wait = waiting(Durability::None);
    std::thread::scope(|scope| {
        for (writer, written) in (0..).zip(&written) {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                for nth in 0..1_000_000 {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    // Few keys, so that the file stays small.
                    let mut bytes = value(nth);
                    bytes[..8].copy_from_slice(&nth.to_le_bytes());
                    let key = key(writer, nth % 500);
                    store.put_with(&key, &bytes, no_wait).unwrap();
                    written.store(nth + 1, Ordering::Release);
                }
            });
        }
        let rounds = catch_unwind(AssertUnwindSafe(|| {
            for round in 0..ROUNDS {
                // Until each writer filled about a log.
                let from: Vec<u64> = written
                    .iter()
                    .map(|it| it.load(Ordering::Acquire))
                    .collect();
                for (written, from) in written.iter().zip(from) {
                    while written.load(Ordering::Acquire) < from + 500 {
                        std::thread::yield_now();
                    }
                }
                let before: Vec<u64> = written
                    .iter()
                    .map(|it| it.load(Ordering::Acquire))
                    .collect();
                store.sync().unwrap();
                let image = device.crashed(round);
                let after = Store::open_device(image, options.clone()).unwrap();
                for (writer, &count) in (0..).zip(&before) {
                    for nth in count.saturating_sub(500)..count {
                        let got = after.get(&key(writer, nth % 500)).unwrap();
                        let got = got
                            .unwrap_or_else(|| panic!("round {round}: {nth} of {writer} is gone"));
                        let found = u64::from_le_bytes(got[..8].try_into().unwrap());
                        assert!(found >= nth, "round {round}: {found} instead of {nth}");
                        assert_eq!(got[8..], value(found)[8..]);
                    }
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        rounds.unwrap();
    });
    assert!(store.stats().seals > 3, "logs changed meanwhile");
}
