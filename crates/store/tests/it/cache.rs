// SPDX-License-Identifier: Apache-2.0
//! The cache of records in a store: the reads that it saves, and that it never returns an old
//! value, whatever operations overtake each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use senko_io::faulty::FaultyDevice;
use senko_io::{Op, PAGE_SIZE, Purpose};
use senko_store::{Options, WriteOptions};
use senko_workload::Rng;

use crate::support::watched::Watched;
use crate::support::{moved, open, small};

const MIB: u64 = 1 << 20;

fn options() -> Options {
    Options {
        inline_max: 2048,
        ..small()
    }
}

/// A device on which a test may slow down the reads of look-ups, after they have their pages.
fn device(delay: impl Fn() + Send + Sync + 'static) -> Arc<Watched> {
    let inner = FaultyDevice::new(64 * MIB / PAGE_SIZE as u64, 5);
    Watched::new(inner, move |op, tag, done| {
        if done && op == Op::Read && tag.purpose == Purpose::Lookup {
            delay();
        }
    })
}

#[test]
fn what_is_read_again_is_not_read_from_the_device() {
    for cache_bytes in [0, 1 << 20] {
        let device = device(|| ());
        let reads = || device.inner.stats().total(Op::Read).ops;
        let options = Options {
            cache_bytes,
            ..options()
        };
        let store = open(&device, options);
        for key in 0..50u64 {
            store.put(&key.to_le_bytes(), &[7; 100]).unwrap();
        }
        // From the log on the device.
        let before = reads();
        for _ in 0..10 {
            assert!(store.get(&3u64.to_le_bytes()).unwrap().is_some());
        }
        let cost = reads() - before;
        assert_eq!(cost, if cache_bytes == 0 { 10 } else { 1 });
        store.seal().unwrap();
        let before = reads();
        for _ in 0..10 {
            assert!(store.get(&3u64.to_le_bytes()).unwrap().is_some());
        }
        let keys: Vec<[u8; 8]> = (0..50u64).map(u64::to_le_bytes).collect();
        let asked: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        for _ in 0..10 {
            for got in store.multi_get(&asked) {
                assert_eq!(got.unwrap().as_deref(), Some(&[7; 100][..]));
            }
        }
        // Elements that are sealed unchanged stay in the cache.
        let cost = reads() - before;
        assert_eq!(cost, if cache_bytes == 0 { 510 } else { 49 });
        let stats = store.stats();
        assert!(stats.cache_dram_bytes <= cache_bytes);
        assert_eq!(stats.cache_records, if cache_bytes == 0 { 0 } else { 50 });
        assert_eq!(
            stats.cache_hits,
            if cache_bytes == 0 { 0 } else { 19 + 451 }
        );
        // A written element replaces the cached one; a new key has to be read first.
        let before = reads();
        store.put(&3u64.to_le_bytes(), b"newer").unwrap();
        store.put(&99u64.to_le_bytes(), b"newest").unwrap();
        for _ in 0..5 {
            for (key, value) in [(3u64, &b"newer"[..]), (99, b"newest")] {
                let got = store.get(&key.to_le_bytes()).unwrap();
                assert_eq!(got.as_deref(), Some(value));
            }
        }
        let cost = reads() - before;
        assert_eq!(cost, if cache_bytes == 0 { 10 } else { 1 });
        // Compaction moves elements, and cached records stay right.
        store.put(&3u64.to_le_bytes(), b"new").unwrap();
        store.delete(&4u64.to_le_bytes()).unwrap();
        store.compact().unwrap();
        for _ in 0..3 {
            let get = |key: u64| store.get(&key.to_le_bytes()).unwrap();
            assert_eq!(get(3).as_deref(), Some(&b"new"[..]));
            assert_eq!(get(4), None);
            assert_eq!(get(5).as_deref(), Some(&[7; 100][..]));
        }
    }
}

#[test]
fn snapshots_see_their_own_values_and_what_expires_is_gone() {
    let clock = Arc::new(AtomicU64::new(1_700_000_000_000_000));
    let options = Options {
        clock: moved(&clock, 1),
        keep_versions: 2,
        ..options()
    };
    let store = open(&device(|| ()), options);
    let expires_at = 1_700_000_050;
    let expiring = WriteOptions {
        expires_at,
        ..WriteOptions::default()
    };
    store.put(b"key", b"old").unwrap();
    store.put_with(b"brief", b"here", expiring).unwrap();
    store.seal().unwrap();
    let snapshot = store.snapshot().unwrap();
    let time = store.put(b"key", b"new").unwrap();
    store.seal().unwrap();
    for _ in 0..3 {
        let now = |key: &[u8]| store.get(key).unwrap();
        let then = |key: &[u8]| snapshot.get(key).unwrap();
        assert_eq!(now(b"key").as_deref(), Some(&b"new"[..]));
        assert_eq!(then(b"key").as_deref(), Some(&b"old"[..]));
        assert_eq!(now(b"brief").as_deref(), Some(&b"here"[..]));
        assert_eq!(then(b"brief").as_deref(), Some(&b"here"[..]));
        let many = snapshot.multi_get(&[b"key", b"brief"]);
        assert_eq!(many[0].as_ref().unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(many[1].as_ref().unwrap().as_deref(), Some(&b"here"[..]));
        let before = store.get_at(b"key", time - 1).unwrap();
        assert_eq!(before.as_deref(), Some(&b"old"[..]));
        assert_eq!(store.history(b"key").unwrap().len(), 2);
    }
    assert!(store.stats().cache_hits > 0);
    clock.store(expires_at * 1_000_000, Ordering::Relaxed);
    assert_eq!(store.get(b"brief").unwrap(), None);
    store.compact().unwrap();
    assert_eq!(store.get(b"brief").unwrap(), None);
    assert_eq!(
        snapshot.get(b"brief").unwrap().as_deref(),
        Some(&b"here"[..])
    );
}

/// Reads that stop on request, after they have their page.
struct Gate {
    armed: AtomicBool,
    stopped: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

/// A reader has read the old value and stops while the key is overwritten and sealed. The cache
/// must not keep the offered record: before there were tickets, every later get would have found
/// the old value.
#[test]
fn a_read_that_a_seal_overtakes_leaves_nothing_old() {
    for (sealed, many) in [(true, false), (true, true), (false, false), (false, true)] {
        let (stopped, at_gate) = channel();
        let (let_go, go) = channel();
        let gate = Arc::new(Gate {
            armed: AtomicBool::new(false),
            stopped: Mutex::new(stopped),
            go: Mutex::new(go),
        });
        let inner = Arc::clone(&gate);
        let device = device(move || {
            if inner.armed.swap(false, Ordering::Relaxed) {
                inner.stopped.lock().send(()).unwrap();
                inner.go.lock().recv().unwrap();
            }
        });
        let store = open(&device, options());
        store.put(b"key", b"old").unwrap();
        if sealed {
            store.seal().unwrap();
        }
        gate.armed.store(true, Ordering::Relaxed);
        let reader = store.clone();
        let reading = std::thread::spawn(move || {
            if many {
                reader.multi_get(&[b"key"]).remove(0).unwrap()
            } else {
                reader.get(b"key").unwrap()
            }
        });
        at_gate.recv().unwrap();
        store.put(b"key", b"new").unwrap();
        store.seal().unwrap();
        let_go.send(()).unwrap();
        // It began before the put.
        assert_eq!(reading.join().unwrap().as_deref(), Some(&b"old"[..]));
        for _ in 0..3 {
            let got = store.get(b"key").unwrap();
            assert_eq!(got.as_deref(), Some(&b"new"[..]), "sealed {sealed}");
        }
        // The first of these gets filled the cache, the others found the record there.
        let stats = store.stats();
        assert_eq!((stats.cache_fills, stats.cache_hits), (1, 2));
    }
}

const KEYS: u64 = 40;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn value(number: u64, count: u64) -> Vec<u8> {
    let mut value = count.to_le_bytes().to_vec();
    value.resize(20 + (number * 37 + count * 11) as usize % 900, number as u8);
    value
}

fn count(number: u64, got: Option<senko_store::Value>) -> u64 {
    let Some(got) = got else {
        return 0;
    };
    let count = u64::from_le_bytes(got[..8].try_into().unwrap());
    assert_eq!(*got, value(number, count)[..], "not what was written");
    count
}

/// One writer increments each key, seals follow one another, and reads take up to milliseconds, so
/// they are overtaken all the time.
#[test]
fn no_reader_goes_back_while_seals_overtake_reads() {
    let turn = AtomicU64::new(0);
    let device = device(move || {
        let mut rng = Rng::new(turn.fetch_add(1, Ordering::Relaxed));
        if rng.below(3) == 0 {
            std::thread::sleep(Duration::from_micros(rng.below(4000)));
        }
    });
    let options = Options {
        cache_bytes: 64 << 10,
        ..options()
    };
    let store = open(&device, options);
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
    let stop = Arc::new(AtomicBool::new(false));
    let seconds = std::env::var("SENKO_STRESS_SECONDS").map_or(2, |text| {
        text.parse().expect("SENKO_STRESS_SECONDS is not a number")
    });
    let end = Instant::now() + Duration::from_secs(seconds);
    let running = |stop: &AtomicBool| !stop.load(Ordering::Relaxed) && Instant::now() < end;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(1);
            while running(&stop) {
                let number = rng.below(KEYS);
                let next = counts[number as usize].load(Ordering::Relaxed) + 1;
                store.put(&key(number), &value(number, next)).unwrap();
                counts[number as usize].store(next, Ordering::Release);
                if rng.below(4) == 0 {
                    std::thread::sleep(Duration::from_micros(rng.below(500)));
                }
            }
        });
        scope.spawn(|| {
            let mut turn = 0;
            while running(&stop) {
                store.seal().unwrap();
                turn += 1;
                if turn % 8 == 0 {
                    store.compact().unwrap();
                }
            }
        });
        for thread in 0..4 {
            let (store, counts, stop) = (&store, &counts, &stop);
            scope.spawn(move || {
                let mut rng = Rng::for_stream(2, thread);
                let mut seen = vec![0; KEYS as usize];
                while running(stop) {
                    let numbers: Vec<u64> =
                        (0..1 + rng.below(6)).map(|_| rng.below(KEYS)).collect();
                    let least: Vec<u64> = numbers
                        .iter()
                        .map(|&number| counts[number as usize].load(Ordering::Acquire))
                        .collect();
                    let keys: Vec<[u8; 8]> = numbers.iter().map(|&number| key(number)).collect();
                    let got = if let [key] = &keys[..] {
                        vec![store.get(key)]
                    } else {
                        let asked: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                        store.multi_get(&asked)
                    };
                    for ((&number, least), got) in numbers.iter().zip(least).zip(got) {
                        let got = count(number, got.unwrap());
                        let seen = &mut seen[number as usize];
                        if got < least.max(*seen) {
                            stop.store(true, Ordering::Relaxed);
                        }
                        assert!(
                            got >= least.max(*seen),
                            "key {number}: {got} after {seen}, with {least} acknowledged"
                        );
                        *seen = got;
                    }
                }
            });
        }
    });
    let stats = store.stats();
    println!("{stats:?}");
    assert!(stats.cache_hits > 0 && stats.cache_fills > 0 && stats.seals > 0);
    for number in 0..KEYS {
        let got = count(number, store.get(&key(number)).unwrap());
        assert_eq!(got, counts[number as usize].load(Ordering::Relaxed));
    }
}
