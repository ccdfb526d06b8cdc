// SPDX-License-Identifier: Apache-2.0
//! Real threads: many writers of all durabilities, readers at the same time, and crashes while they
//! run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use senko_io::Op;
use senko_io::faulty::FaultyDevice;
use senko_store::Extent;
use senko_store::log::{Durability, Log};

use crate::support::watched::Watched;

use super::{append, commit, commit_all, get, hasher};

const WRITERS: u64 = 6;

/// Assigns times and appends, one writer at a time, as the engine does.
struct Engine {
    log: Log,
    last: Mutex<u64>,
}

impl Engine {
    /// A batch of two keys with the same value, which ends with the batch's time.
    fn put(&self, writer: u64, len: usize) -> (u64, senko_store::log::Ticket) {
        let mut last = self.last.lock().expect("no panic");
        *last += 1;
        let mut value = vec![writer as u8; len];
        value.extend_from_slice(&last.to_le_bytes());
        let one = (vec![b'a', writer as u8], Some(value.clone()));
        let other = (vec![b'b', writer as u8], Some(value));
        let ticket = append(&self.log, &[one, other], *last).expect("room");
        (*last, ticket)
    }
}

fn time_in(value: &[u8]) -> u64 {
    let end = value.len() - 8;
    u64::from_le_bytes(value[end..].try_into().expect("8 bytes"))
}

#[test]
fn writers_readers_and_crashes() {
    for seed in 0..6 {
        let pages = 4096;
        let extent = Extent::new(0, pages);
        let device = FaultyDevice::new(u64::from(pages), seed);
        let engine = Engine {
            log: Log::create(device.clone(), 1, extent, hasher()).expect("an extent"),
            last: Mutex::new(0),
        };
        // The latest time of each writer of which a synced commit returned.
        let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (engine, acknowledged, done) = (&engine, &acknowledged, &done);
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    scope.spawn(move || {
                        for nth in 0..60 {
                            let len = [10, 500, 3000, 20_000][(nth + writer) as usize % 4];
                            let (time, ticket) = engine.put(writer, len);
                            let durability = match writer % 3 {
                                0 => Durability::Synced,
                                1 => Durability::Buffered,
                                _ => Durability::None,
                            };
                            commit(&engine.log, ticket, durability);
                            if durability == Durability::Synced {
                                acknowledged[writer as usize].store(time, Ordering::SeqCst);
                            }
                        }
                    })
                })
                .collect();
            for _ in 0..2 {
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        for writer in 0..WRITERS as u8 {
                            let at = engine.log.last_time();
                            let one = get(&engine.log, &[b'a', writer], at);
                            let other = get(&engine.log, &[b'b', writer], at);
                            assert!(one == other, "half a batch is visible at {at}");
                            let value = one.flatten();
                            assert!(value.is_none_or(|value| time_in(&value) <= at));
                        }
                    }
                });
            }
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    engine.log.write_behind().expect("a sound device");
                    let sorted = engine.log.sorted().expect("no damage");
                    assert!(sorted.iter().len().is_multiple_of(2));
                    std::thread::yield_now();
                }
            });
            let mut crashes = 0;
            while writers.iter().any(|writer| !writer.is_finished()) || crashes < 5 {
                let known: Vec<u64> = acknowledged
                    .iter()
                    .map(|time| time.load(Ordering::SeqCst))
                    .collect();
                let image = device.crashed_copy(seed * 1000 + crashes);
                crashes += 1;
                let again = Log::replay(image, 1, extent, hasher()).expect("no damage");
                let at = again.last_time();
                for (writer, time) in known.into_iter().enumerate() {
                    assert!(time <= at, "{time} was acknowledged, {at} is the last");
                    let one = get(&again, &[b'a', writer as u8], at);
                    assert!(one == get(&again, &[b'b', writer as u8], at));
                    let found = one.flatten().map_or(0, |value| time_in(&value));
                    assert!(time <= found);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let log = &engine.log;
        assert_eq!(log.elements(), WRITERS * 60 * 2);
        commit_all(log, Durability::Synced);
        let again = Log::replay(device.crashed_copy(seed), 1, extent, hasher()).expect("sound");
        assert_eq!(again.elements(), WRITERS * 60 * 2);
    }
}

/// All threads learn of a failure, none waits forever, and everything acknowledged before it
/// survives.
#[test]
fn a_device_that_fails_under_many_writers() {
    for seed in 0..40 {
        let extent = Extent::new(0, 2048);
        let device = FaultyDevice::new(2048, seed);
        let op = if seed % 2 == 0 { Op::Write } else { Op::Flush };
        device.fail_nth(op, 1 + seed / 2, 5);
        let engine = Engine {
            log: Log::create(device.clone(), 1, extent, hasher()).expect("an extent"),
            last: Mutex::new(0),
        };
        let acknowledged = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let (engine, acknowledged) = (&engine, &acknowledged);
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    let key = [b'k', writer as u8];
                    for nth in 0u64.. {
                        let mut last = engine.last.lock().expect("no panic");
                        let time = *last + 1;
                        let change = (key.to_vec(), Some(nth.to_le_bytes().to_vec()));
                        let Ok(ticket) = append(&engine.log, &[change], time) else {
                            break;
                        };
                        *last = time;
                        drop(last);
                        let synced = writer % 2 == 0;
                        let durability = if synced {
                            Durability::Synced
                        } else {
                            Durability::Buffered
                        };
                        if engine.log.commit(ticket, durability).is_err() {
                            break;
                        }
                        if synced {
                            acknowledged
                                .lock()
                                .expect("no panic")
                                .push((key, time, nth));
                        }
                    }
                });
            }
        });
        let image = device.crashed_copy(seed);
        let again = Log::replay(image, 1, extent, hasher()).expect("no damage");
        for (key, time, nth) in acknowledged.into_inner().expect("no panic") {
            let value = get(&again, &key, time)
                .flatten()
                .expect("it was acknowledged");
            assert_eq!(value, nth.to_le_bytes());
        }
    }
}

/// A batch of several writes releases the log in between, and a thread that commits then ends a
/// page early. A log that has room by its own count must still accept the batch: a log used to stay
/// full and empty at once, and the engine tried forever.
#[test]
fn commits_beside_a_batch_as_large_as_the_log() {
    let extent = Extent::new(0, 2048);
    for seed in 0..10 {
        let device = FaultyDevice::new(2048, seed);
        let log = Log::create(device.clone(), 1, extent, hasher()).expect("an extent");
        let len = 5000 - 1 - 1 - 2 - 7 - 4;
        let count = Log::limit(extent.pages) / 5000;
        let batch: Vec<_> = (0..count as u32)
            .map(|nth| (nth.to_le_bytes().to_vec(), Some(vec![1; len])))
            .collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (log, done) = (&log, &done);
            for durability in [
                Durability::Buffered,
                Durability::Synced,
                Durability::Buffered,
            ] {
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        commit_all(log, durability);
                    }
                });
            }
            let result = append(log, &batch, 1);
            done.store(true, Ordering::Relaxed);
            result.expect("a log that is empty has room");
        });
        assert_eq!(log.elements(), count);
        commit_all(&log, Durability::Synced);
        let again = Log::replay(device.crashed_copy(seed), 1, extent, hasher()).expect("sound");
        assert_eq!(again.elements(), count);
    }
}

#[test]
fn those_who_come_during_a_flush_share_the_next_one() {
    let extent = Extent::new(0, 64);
    // The first flush waits until all other writers have appended.
    let (entered, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (first, barriers) = (AtomicBool::new(true), [entered.clone(), leave.clone()]);
    let slow = Watched::new(FaultyDevice::new(64, 1), move |op, _, done| {
        if op == Op::Flush && !done && first.swap(false, Ordering::SeqCst) {
            for barrier in &barriers {
                barrier.wait();
            }
        }
    });
    let engine = Engine {
        log: Log::create(slow.clone(), 1, extent, hasher()).expect("an extent"),
        last: Mutex::new(0),
    };
    let appended = Barrier::new(9);
    std::thread::scope(|scope| {
        let (engine, appended) = (&engine, &appended);
        let sync = |ticket| engine.log.commit(ticket, Durability::Synced);
        scope.spawn(move || {
            let (_, ticket) = engine.put(0, 10);
            sync(ticket).expect("a sound device");
        });
        entered.wait();
        for writer in 1..=8 {
            scope.spawn(move || {
                let (_, ticket) = engine.put(writer, 10);
                appended.wait();
                sync(ticket).expect("a sound device");
            });
        }
        appended.wait();
        leave.wait();
    });
    // All eight appended before the first flush ended: one page and one flush for them all.
    let stats = slow.inner.stats();
    let count = |op| stats.get(senko_io::Purpose::Log, op).ops;
    assert_eq!(count(Op::Flush), 2);
    assert_eq!(count(Op::Write), 2);
    assert_eq!(engine.log.bytes_used(), 2 * 4096);
}
