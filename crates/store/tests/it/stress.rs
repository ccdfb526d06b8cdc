// SPDX-License-Identifier: Apache-2.0
//! Real threads on one store: writers of all durabilities, readers, scans, snapshots, and all
//! background work at once.
//!
//! Keys belong to groups of [`GROUP`]. A batch always writes a whole group with one increasing
//! number, so each reader can detect a torn batch and a step back. `SENKO_STRESS_SECONDS` sets the
//! duration; a watchdog ends a run that makes no progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use senko_io::Device;
use senko_store::{Batch, Durability, Options, Store, StoreError, WriteOptions};
use senko_workload::Rng;

use crate::support::hooked::Hooked;
use crate::support::waiting;

const GROUP: u64 = 4;
const GROUPS: u64 = 300;
const WRITERS: u64 = 3;

fn key(group: u64, nth: u64) -> Vec<u8> {
    (group * GROUP + nth).to_be_bytes().to_vec()
}

fn value(number: u64, key: &[u8]) -> Vec<u8> {
    let len = 16 + (number * 31 + u64::from(key[7]) * 17) % 700;
    let mut value = number.to_le_bytes().to_vec();
    value.extend_from_slice(key);
    value.resize(len as usize, number as u8);
    value
}

/// The number in a value, if the value belongs to the key.
fn number(key: &[u8], got: &[u8]) -> u64 {
    let number = u64::from_le_bytes(got[..8].try_into().expect("8 bytes"));
    assert_eq!(got, value(number, key), "not what was written");
    number
}

struct Shared {
    store: Store,
    stop: AtomicBool,
    /// For each group: the last acknowledged number.
    acknowledged: Vec<AtomicU64>,
    /// For each group: the last number of a synced write.
    synced: Vec<AtomicU64>,
    /// For each thread: grows while it makes progress.
    steps: Vec<AtomicU64>,
    expired: AtomicU64,
    no_space: AtomicU64,
}

fn write(shared: &Shared, thread: u64) {
    let mut rng = Rng::for_stream(7, thread);
    while !shared.stop.load(Ordering::Relaxed) {
        // Each group has one writer, so that its numbers grow.
        let group = rng.below(GROUPS / WRITERS) * WRITERS + thread;
        let next = shared.acknowledged[group as usize].load(Ordering::Relaxed) + 1;
        let mut batch = Batch::new();
        for nth in 0..GROUP {
            let key = key(group, nth);
            batch.put(&key, &value(next, &key));
        }
        let durability = match rng.below(20) {
            0 => Durability::Synced,
            1..10 => Durability::Buffered,
            _ => Durability::None,
        };
        let options = waiting(durability);
        match shared.store.write(&batch, options) {
            Ok(_) => shared.acknowledged[group as usize].store(next, Ordering::Release),
            Err(StoreError::NoSpace(_)) => {
                // A repeated attempt is not progress: the watchdog ends a run in which a write is
                // refused forever.
                shared.no_space.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(error) => panic!("a write: {error}"),
        }
        if durability == Durability::Synced {
            shared.synced[group as usize].store(next, Ordering::Relaxed);
        }
        shared.steps[thread as usize].fetch_add(1, Ordering::Relaxed);
    }
}

fn read(shared: &Shared, thread: u64) {
    let mut rng = Rng::for_stream(8, thread);
    let mut seen = vec![0; GROUPS as usize];
    while !shared.stop.load(Ordering::Relaxed) {
        shared.steps[thread as usize].fetch_add(1, Ordering::Relaxed);
        let group = rng.below(GROUPS);
        let keys: Vec<Vec<u8>> = (0..GROUP).map(|nth| key(group, nth)).collect();
        let least = shared.acknowledged[group as usize].load(Ordering::Acquire);
        let seen = &mut seen[group as usize];
        match rng.below(400) {
            0 => match scan(shared) {
                Ok(()) | Err(StoreError::SnapshotExpired) => {}
                Err(error) => panic!("a scan: {error}"),
            },
            1..20 => {
                let snapshot = shared.store.snapshot().expect("a snapshot");
                let first = snapshot.get(&keys[0]);
                std::thread::sleep(Duration::from_micros(rng.below(3000)));
                let last = snapshot.get(&keys[GROUP as usize - 1]);
                let (first, last) = match (first, last) {
                    (Ok(first), Ok(last)) => (first, last),
                    (Err(StoreError::SnapshotExpired), _)
                    | (_, Err(StoreError::SnapshotExpired)) => {
                        shared.expired.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    other => panic!("a snapshot: {other:?}"),
                };
                let first = first.map_or(0, |got| number(&keys[0], &got));
                let last = last.map_or(0, |got| number(&keys[GROUP as usize - 1], &got));
                assert_eq!(first, last, "a torn batch in a snapshot");
                assert!(first >= least, "a snapshot without what was acknowledged");
            }
            20..150 => {
                let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let numbers: Vec<u64> = shared
                    .store
                    .multi_get(&asked)
                    .into_iter()
                    .zip(&keys)
                    .map(|(got, key)| got.expect("a get").map_or(0, |got| number(key, &got)))
                    .collect();
                assert!(
                    numbers.iter().all(|&it| it == numbers[0]),
                    "a torn batch: {numbers:?}"
                );
                assert!(numbers[0] >= least.max(*seen), "group {group} went back");
                *seen = numbers[0];
            }
            _ => {
                let key = &keys[rng.below(GROUP) as usize];
                let got = shared.store.get(key).expect("a get");
                let got = got.map_or(0, |got| number(key, &got));
                assert!(
                    got >= least.max(*seen),
                    "group {group}: {got} after {seen} and {least}"
                );
                *seen = got;
            }
        }
    }
}

fn scan(shared: &Shared) -> Result<(), StoreError> {
    let mut groups = vec![(0, 0); GROUPS as usize];
    for entry in shared.store.scan()? {
        let entry = entry?;
        let at = u64::from_be_bytes(entry.key[..].try_into().expect("8 bytes"));
        let number = number(&entry.key, &entry.value);
        let (first, count) = &mut groups[(at / GROUP) as usize];
        assert!(*count == 0 || *first == number, "a torn batch in a scan");
        *first = number;
        *count += 1;
    }
    for (group, (_, count)) in groups.iter().enumerate() {
        assert!(
            *count == 0 || *count == GROUP,
            "group {group} has {count} keys in a scan"
        );
    }
    Ok(())
}

/// Requests everything that is otherwise done in the background.
fn disturb(shared: &Shared, thread: u64) {
    let mut rng = Rng::for_stream(9, thread);
    while !shared.stop.load(Ordering::Relaxed) {
        shared.steps[thread as usize].fetch_add(1, Ordering::Relaxed);
        let done = match rng.below(20) {
            0 => shared.store.compact(),
            1..4 => shared.store.seal(),
            4..8 => shared.store.maintain().map(|_| ()),
            _ => shared.store.sync(),
        };
        match done {
            Ok(()) | Err(StoreError::NoSpace(_)) => {}
            Err(error) => panic!("background work: {error}"),
        }
        std::thread::sleep(Duration::from_millis(rng.below(20)));
    }
}

fn seconds() -> u64 {
    std::env::var("SENKO_STRESS_SECONDS").map_or(3, |text| {
        text.parse().expect("SENKO_STRESS_SECONDS is not a number")
    })
}

/// Ends the process with a report if a thread makes no progress for this long, since a hanging test
/// reports nothing.
const STANDSTILL: Duration = Duration::from_secs(120);

fn run(options: &Options, device: &Arc<Hooked>) -> Arc<Shared> {
    let store = Store::open_device(Arc::clone(device) as Arc<dyn Device>, options.clone());
    let shared = Arc::new(Shared {
        store: store.expect("opening"),
        stop: AtomicBool::new(false),
        acknowledged: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
        synced: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
        steps: (0..WRITERS + 3).map(|_| AtomicU64::new(0)).collect(),
        expired: AtomicU64::new(0),
        no_space: AtomicU64::new(0),
    });
    let threads: Vec<_> = (0..WRITERS + 3)
        .map(|thread| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let work = std::panic::AssertUnwindSafe(|| match thread {
                    0..WRITERS => write(&shared, thread),
                    WRITERS => disturb(&shared, thread),
                    _ => read(&shared, thread),
                });
                let result = std::panic::catch_unwind(work);
                shared.stop.store(
                    result.is_err() || shared.stop.load(Ordering::Relaxed),
                    Ordering::Relaxed,
                );
                result.is_ok()
            })
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(seconds());
    let mut last: Vec<(u64, Instant)> = vec![(0, Instant::now()); shared.steps.len()];
    while !threads.iter().all(|thread| thread.is_finished()) {
        std::thread::sleep(Duration::from_millis(20));
        if Instant::now() > end {
            shared.stop.store(true, Ordering::Relaxed);
        }
        for (nth, (steps, last)) in shared.steps.iter().zip(&mut last).enumerate() {
            let steps = steps.load(Ordering::Relaxed);
            if steps != last.0 || threads[nth].is_finished() {
                *last = (steps, Instant::now());
            } else if last.1.elapsed() > STANDSTILL {
                eprintln!("thread {nth} stands still: {:?}", shared.store.stats());
                std::process::abort();
            }
        }
    }
    let ok: Vec<bool> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap_or(false))
        .collect();
    assert!(ok.iter().all(|&ok| ok), "threads failed: {ok:?}");
    let steps: Vec<u64> = shared
        .steps
        .iter()
        .map(|steps| steps.load(Ordering::Relaxed))
        .collect();
    println!(
        "steps {steps:?}, {} snapshots expired, {} writes without space, {:?}",
        shared.expired.load(Ordering::Relaxed),
        shared.no_space.load(Ordering::Relaxed),
        shared.store.stats()
    );
    shared
}

fn options() -> Options {
    Options {
        block_bytes: 1 << 20,
        // A part of the data.
        cache_bytes: 128 << 10,
        ..Options::default()
    }
}

/// At the end, each group has the write that was acknowledged last.
fn check(store: &Store, shared: &Shared) {
    for group in 0..GROUPS {
        let acknowledged = shared.acknowledged[group as usize].load(Ordering::Relaxed);
        for nth in 0..GROUP {
            let key = key(group, nth);
            let got = store.get(&key).expect("a get");
            let got = got.map_or(0, |got| number(&key, &got));
            assert_eq!(got, acknowledged, "group {group}");
        }
    }
}

#[test]
fn threads_see_whole_batches_and_nothing_goes_back() {
    let device = Hooked::new(1);
    let shared = run(&options(), &device);
    check(&shared.store, &shared);
    let store = shared.store.clone();
    store.close().expect("closing");
    // The next store must not write to space that the clones of a closed store still hold.
    let image = device.killed(1);
    let store = Store::open_device(image as Arc<dyn Device>, options()).expect("opening again");
    check(&store, &shared);
}

#[test]
fn threads_at_the_bound_of_space() {
    let device = Hooked::new(2);
    let options = Options {
        max_bytes: Some(14 << 20),
        ..options()
    };
    let shared = run(&options, &device);
    // Half of the space is free, or can be made free. Readers may keep an ended snapshot's data for
    // longer than a put waits, if the machine does not run them. So with readers the number of
    // refused puts means nothing. Without readers no put is refused.
    for group in 0..GROUPS {
        let acknowledged = &shared.acknowledged[group as usize];
        let next = acknowledged.load(Ordering::Relaxed) + 1;
        let mut batch = Batch::new();
        for nth in 0..GROUP {
            let key = key(group, nth);
            batch.put(&key, &value(next, &key));
        }
        let written = shared.store.write(&batch, WriteOptions::default());
        written.unwrap_or_else(|error| panic!("{error}: {:?}", shared.store.stats()));
        acknowledged.store(next, Ordering::Relaxed);
    }
    let used = shared.store.stats().file_bytes;
    assert!(used <= 14 << 20, "the file has {used} bytes");
    check(&shared.store, &shared);
}

#[test]
fn a_store_that_is_dropped_while_busy_has_all_that_was_synced() {
    let device = Hooked::new(3);
    let no_cache = Options {
        cache_bytes: 0,
        ..options()
    };
    let shared = run(&no_cache, &device);
    // The power fails while the store's threads are still working.
    let image = device.crashed(77);
    let store = Store::open_device(image as Arc<dyn Device>, options()).expect("opening");
    for group in 0..GROUPS {
        let synced = shared.synced[group as usize].load(Ordering::Relaxed);
        let numbers: Vec<u64> = (0..GROUP)
            .map(|nth| {
                let key = key(group, nth);
                let got = store.get(&key).expect("a get");
                got.map_or(0, |got| number(&key, &got))
            })
            .collect();
        assert!(
            numbers.iter().all(|&it| it == numbers[0]),
            "a torn batch: {numbers:?}"
        );
        assert!(
            numbers[0] >= synced,
            "group {group}: {} of {synced}",
            numbers[0]
        );
    }
}
