// SPDX-License-Identifier: Apache-2.0
//! RECORD-4 under a scheduler that tries interleavings: a store of one key in miniature, whose
//! writer, sealer and readers run at once.
//!
//! The writer appends to the active log, and now and then freezes it. The sealer passes the keys of
//! the oldest frozen log to the cache, and publishes the log as the block. Readers load a version,
//! and look into its logs, the cache and its block, as `lookup.rs` does. They offer the records
//! that they read. No reader may get an older value than one acknowledged before the read began, or
//! one that an earlier read returned.

use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

use super::*;

impl Locked for Mutex<Shard> {
    fn new(part: Shard) -> Self {
        Mutex::new(part)
    }

    fn with<R>(&self, work: impl FnOnce(&mut Shard) -> R) -> R {
        work(&mut self.lock().expect("no panic"))
    }
}

impl Counted for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn add(&self) {
        self.fetch_add(1, Ordering::AcqRel);
    }
}

/// The newest time of the key in a log or block; 0: it has no such key.
type Part = Arc<AtomicU64>;

#[derive(Clone)]
struct Version {
    /// Youngest first; the first takes the writes.
    logs: Vec<Part>,
    block: u64,
}

struct Mini {
    version: Mutex<Version>,
    cache: RecordCache<Mutex<Shard>, AtomicU64>,
    hash: KeyHash,
    acknowledged: AtomicU64,
    written: AtomicU64,
}

const KEY: &[u8] = b"key";
const WRITES: u64 = 4;

impl Mini {
    fn version(&self) -> Version {
        self.version.lock().expect("no panic").clone()
    }

    fn keep(&self, time: u64) {
        let hit = found(time, 8);
        let element = Element {
            flags: 0,
            key: KEY,
            value: &hit.value,
            time,
            expiry: hit.expiry,
        };
        self.cache.written(self.hash, &element);
    }

    fn write(self: &Arc<Mini>) {
        let mut late = Vec::new();
        for time in 1..=WRITES {
            let active = Arc::clone(&self.version().logs[0]);
            active.store(time, Ordering::Release);
            if time % 2 == 0 {
                // As if the writer reached the cache late, when its log may already be frozen and
                // sealed.
                let mini = Arc::clone(self);
                late.push(thread::spawn(move || mini.keep(time)));
            }
            self.acknowledged.store(time, Ordering::Release);
            // The freeze: no write goes into the old log after this.
            let mut version = self.version.lock().expect("no panic");
            version.logs.insert(0, Part::default());
        }
        self.written.store(1, Ordering::Release);
        for thread in late {
            thread.join().expect("no panic");
        }
    }

    fn seal(self: &Arc<Mini>) {
        loop {
            let written = self.written.load(Ordering::Acquire) == 1;
            let version = self.version();
            if version.logs.len() == 1 {
                if written {
                    return;
                }
                thread::yield_now();
                continue;
            }
            let time = version.logs.last().expect("a log").load(Ordering::Acquire);
            let mut sealing = self.cache.seal();
            sealing.key(self.hash, time);
            sealing.done();
            let mut version = self.version.lock().expect("no panic");
            version.logs.pop();
            version.block = time;
        }
    }

    fn get(&self) -> u64 {
        let ticket = self.cache.ticket();
        let version = self.version();
        for log in &version.logs {
            let time = log.load(Ordering::Acquire);
            if time > 0 {
                let kept = self.cache.get(self.hash, KEY, TimeBound::Exactly(time));
                if let Some(hit) = kept {
                    assert_eq!(hit.time, time);
                } else {
                    thread::yield_now();
                    self.cache.offer(ticket, self.hash, KEY, &found(time, 8));
                }
                return time;
            }
        }
        if let Some(hit) = self.cache.get(self.hash, KEY, TimeBound::UpTo(u64::MAX)) {
            return hit.time;
        }
        if version.block > 0 {
            // The device reads.
            thread::yield_now();
            self.cache
                .offer(ticket, self.hash, KEY, &found(version.block, 8));
        }
        version.block
    }

    fn read(self: &Arc<Mini>) {
        let mut last = 0;
        for _ in 0..5 {
            let least = self.acknowledged.load(Ordering::Acquire);
            let got = self.get();
            assert!(got >= least, "got {got} after {least} was acknowledged");
            assert!(got >= last, "got {got} after {last}");
            last = got;
        }
    }
}

fn run() {
    let mini = Arc::new(Mini {
        version: Mutex::new(Version {
            logs: vec![Part::default()],
            block: 0,
        }),
        cache: RecordCache::new(MIN_BYTES).expect("a cache"),
        hash: hasher().hash(KEY),
        acknowledged: AtomicU64::new(0),
        written: AtomicU64::new(0),
    });
    let works = [Mini::write, Mini::seal, Mini::read, Mini::read];
    let threads: Vec<_> = works
        .into_iter()
        .map(|work| {
            let mini = Arc::clone(&mini);
            thread::spawn(move || work(&mini))
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(mini.get(), WRITES);
    assert_eq!(mini.get(), WRITES);
}

#[test]
fn no_reader_goes_back_in_many_interleavings() {
    shuttle::check_random(run, 5000);
}

#[test]
fn no_reader_goes_back_when_few_switches_are_the_worst_ones() {
    shuttle::check_pct(run, 5000, 3);
}
