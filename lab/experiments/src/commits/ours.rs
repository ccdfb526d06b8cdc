// SPDX-License-Identifier: Apache-2.0
//! The DBM as a contender, in the experiment's own process.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use senko_dbm::{Database, Durability, Options, Snapshot, Table};
use senko_workload::Rng;

use super::script::{self, Script, What};
use super::{Contender, Order, Ran, Work, belongs, key, value};

pub const OURS: &str = "senko";

pub struct Ours {
    db: Database,
    table: Table,
    durability: Durability,
    /// The next key of ascending work.
    next: AtomicU64,
    /// Changes so far, so that no two are equal.
    changes: AtomicU64,
}

impl Ours {
    /// A new database in `folder`, whose commits are synced or left to the system.
    pub fn new(folder: &Path, synced: bool, options: Options) -> Result<Ours> {
        std::fs::create_dir_all(folder)?;
        let db = Database::open(&folder.join("db"), options)?;
        let table = db.create_table("records")?;
        Ok(Ours {
            db,
            table,
            durability: if synced {
                Durability::Synced
            } else {
                Durability::Buffered
            },
            next: AtomicU64::new(0),
            changes: AtomicU64::new(1),
        })
    }

    /// Puts the keys below `keys`, ascending, and makes them durable.
    pub fn fill(&mut self, keys: u64) -> Result<()> {
        const AT_A_TIME: u64 = 1000;
        let mut next = 0;
        while next < keys {
            let mut tx = self.db.begin();
            for number in next..keys.min(next + AT_A_TIME) {
                tx.put(&self.table, &key(number), &value(number, 0))?;
            }
            tx.commit(Durability::Buffered)?;
            next += AT_A_TIME;
        }
        self.next.store(keys, Ordering::Relaxed);
        Ok(self.db.sync()?)
    }

    /// Waits until checkpoints and the cleaner have come to rest: nothing has moved for a while.
    /// Returns false if they are still at work after a minute.
    pub fn settle(&self) -> bool {
        const LOOK: Duration = Duration::from_millis(300);
        let state = || {
            let stats = self.db.stats();
            (stats.checkpoint, stats.file_bytes, stats.free_bytes)
        };
        let (since, mut before) = (Instant::now(), state());
        while since.elapsed() < Duration::from_secs(60) {
            thread::sleep(LOOK);
            let now = state();
            if now == before {
                return true;
            }
            before = now;
        }
        false
    }

    /// Ends with a checkpoint.
    pub fn close(self) -> Result<()> {
        Ok(self.db.close()?)
    }

    pub fn db(&self) -> &Database {
        &self.db
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    fn is_there(&self, snapshot: &Snapshot, number: u64) -> Result<()> {
        let found = snapshot.get(&self.table, &key(number))?;
        let found = found.with_context(|| format!("the record {number} is gone"))?;
        ensure!(belongs(number, &found), "the record {number} is another's");
        Ok(())
    }

    /// One thread's share of the work: commits, each timed.
    fn thread(&self, work: &Work, number: u64) -> Result<Vec<u64>> {
        let share = work.commits / work.threads + u64::from(number < work.commits % work.threads);
        let change = self.changes.fetch_add(1, Ordering::Relaxed);
        let mut rng = Rng::new(work.seed.wrapping_mul(1000).wrapping_add(change));
        let mut times = Vec::with_capacity(share as usize);
        for _ in 0..share {
            let since = Instant::now();
            let first = match work.order {
                Order::Ascending => self.next.fetch_add(work.records, Ordering::Relaxed),
                Order::Random(_) => 0,
                Order::Reads(keys) => {
                    self.is_there(&self.db.snapshot(), rng.below(keys))?;
                    times.push(since.elapsed().as_nanos() as u64);
                    continue;
                }
            };
            // A transaction that only puts has no conflicts.
            let mut tx = self.db.begin();
            for at in 0..work.records {
                let number = match work.order {
                    Order::Random(keys) => rng.below(keys),
                    _ => first + at,
                };
                tx.put(&self.table, &key(number), &value(number, change))?;
            }
            tx.commit(self.durability)?;
            times.push(since.elapsed().as_nanos() as u64);
        }
        Ok(times)
    }
}

impl Contender for Ours {
    fn run(&mut self, work: &Work) -> Result<Ran> {
        let this = &*self;
        let start = Instant::now();
        let done: Result<Vec<Vec<u64>>> = if work.threads == 1 {
            Ok(vec![this.thread(work, 0)?])
        } else {
            thread::scope(|scope| {
                let threads: Vec<_> = (0..work.threads)
                    .map(|number| scope.spawn(move || this.thread(work, number)))
                    .collect();
                let joined = threads.into_iter().map(|thread| {
                    let done = thread.join();
                    done.map_err(|_| anyhow!("a thread that committed panicked"))?
                });
                joined.collect()
            })
        };
        let seconds = start.elapsed().as_secs_f64();
        Ok(Ran::new(work.commits, seconds, done?.concat()))
    }

    fn script(&mut self, script: &Script) -> Result<Ran> {
        let (change, mut times) = (self.changes.fetch_add(1, Ordering::Relaxed), Vec::new());
        let mut rng = Rng::new(change);
        let bytes: Vec<u8> = (0..script::MOST_BYTES)
            .map(|_| rng.next_u64() as u8)
            .collect();
        let start = Instant::now();
        let mut since = start;
        for operations in script.each_transaction() {
            let mut tx = self.db.begin();
            for operation in operations {
                let (key, number) = (key(u64::from(operation.key)), usize::from(operation.number));
                match operation.what {
                    What::Get => {
                        let found = tx.get(&self.table, &key)?;
                        ensure!(found.is_some(), "the record {} is gone", operation.key);
                    }
                    What::Put => tx.put(&self.table, &key, &bytes[..number])?,
                    What::Scan => {
                        let found = tx.range_at_most(&self.table, &key, None, number)?;
                        ensure!(!found.is_empty(), "no record from {} on", operation.key);
                    }
                }
            }
            tx.commit(self.durability)?;
            let end = Instant::now();
            times.push((end - since).as_nanos() as u64);
            since = end;
        }
        Ok(Ran::new(
            script.transactions(),
            start.elapsed().as_secs_f64(),
            times,
        ))
    }

    fn check(&mut self, keys: u64) -> Result<()> {
        let snapshot = self.db.snapshot();
        for number in 0..keys {
            self.is_there(&snapshot, number)?;
        }
        Ok(())
    }
}

/// Bytes that a folder's files take on the device.
pub fn bytes_of(folder: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let about = entry?.metadata()?;
        bytes += if about.is_dir() {
            0
        } else {
            about.blocks() * 512
        };
    }
    Ok(bytes)
}
