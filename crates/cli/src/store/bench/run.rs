// SPDX-License-Identifier: Apache-2.0
//! The threads of a bench. Each loads, or runs the mix, as fast as the store allows, and measures
//! each call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use senko_store::{Batch, Durability, Store, StoreError, WriteOptions};
use senko_workload::drive::{self, DriveError, Stop};
use senko_workload::key::MAX_KEY_LEN;
use senko_workload::{Histogram, KeyChooser, KeySpace, Mix, Op, Rng};

use super::keys::Keys;
use crate::process::Interrupted;
use crate::store::progress::Bar;

/// Keys of a batch while loading.
const LOAD_BATCH: u64 = 64;

/// Operations after which a thread reports its progress.
const TELL: u64 = 32;

/// Faults that are shown.
const SAMPLES: usize = 10;

/// The length of a run.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    Operations(u64),
    For(Duration),
}

/// What to run.
pub struct BenchPlan<'p> {
    pub store: &'p Store,
    pub keys: &'p Keys,
    pub mix: &'p Mix,
    pub threads: u64,
    /// Keys of a multi_get; 1 for single gets.
    pub depth: usize,
    pub durability: Durability,
    pub amount: Amount,
    /// Share of the gets of absent keys, and those keys.
    pub absent: f64,
    pub absent_keys: &'p KeySpace,
    pub seed: u64,
}

/// The work of a thread, or of all of them.
#[derive(Default)]
pub struct Tally {
    pub operations: u64,
    pub gets: u64,
    pub hits: u64,
    /// Gets of absent keys.
    pub absent: u64,
    pub puts: u64,
    pub get: Histogram,
    pub put: Histogram,
    pub read_modify_write: Histogram,
    pub checked: u64,
    pub faults: u64,
    pub samples: Vec<String>,
    pub seconds: f64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.operations += other.operations;
        self.gets += other.gets;
        self.hits += other.hits;
        self.absent += other.absent;
        self.puts += other.puts;
        self.get.merge(&other.get);
        self.put.merge(&other.put);
        self.read_modify_write.merge(&other.read_modify_write);
        self.checked += other.checked;
        self.faults += other.faults;
        self.samples.extend(other.samples);
        self.samples.truncate(SAMPLES);
    }

    fn fault(&mut self, what: String) {
        self.faults += 1;
        if self.samples.len() < SAMPLES {
            self.samples.push(what);
        }
    }
}

/// Runs `work` on this many threads, shows their progress, and adds up their results.
fn on_threads(
    doing: &'static str,
    threads: u64,
    part: impl Fn(u64, Duration) -> f64,
    work: impl Fn(u64, &Stop, &AtomicU64) -> Result<Tally, StoreError> + Sync,
) -> Result<Tally> {
    let done = AtomicU64::new(0);
    let started = Instant::now();
    let mut bar = Bar::new(doing);
    let mut watch = |stop: &Stop| {
        if Interrupted::now().is_some() {
            stop.set();
        }
        let done = done.load(Ordering::Relaxed);
        let elapsed = started.elapsed();
        bar.show(Some(part(done, elapsed)), || {
            format!("{:.0}/s", done as f64 / elapsed.as_secs_f64().max(1e-3))
        });
    };
    let work = |nth: usize, stop: &Stop| work(nth as u64, stop, &done);
    let total = drive::on_threads(threads as usize, work, Tally::add, Some(&mut watch));
    let mut total: Tally = total.map_err(|failed| match failed {
        DriveError::Failed(error) => anyhow!(error),
        other => anyhow!("{other}"),
    })?;
    total.seconds = started.elapsed().as_secs_f64();
    Ok(total)
}

/// Puts every key once, then makes all puts durable.
pub fn load(plan: &BenchPlan<'_>) -> Result<Tally> {
    let keys = plan.keys.count.load(Ordering::Relaxed);
    let next = AtomicU64::new(0);
    let started = Instant::now();
    let mut total = on_threads(
        "loading",
        plan.threads,
        |done, _| done as f64 / keys.max(1) as f64,
        |_, stop, done| load_some(plan, keys, &next, stop, done),
    )?;
    plan.store.sync()?;
    total.seconds = started.elapsed().as_secs_f64();
    Ok(total)
}

fn load_some(
    plan: &BenchPlan<'_>,
    keys: u64,
    next: &AtomicU64,
    stop: &Stop,
    done: &AtomicU64,
) -> Result<Tally, StoreError> {
    let mut tally = Tally::default();
    let mut batch = Batch::new();
    let (mut name, mut value) = ([0; MAX_KEY_LEN], Vec::new());
    let options = WriteOptions {
        durability: Durability::None,
        ..WriteOptions::default()
    };
    while !stop.is_set() {
        let first = next.fetch_add(LOAD_BATCH, Ordering::Relaxed);
        if first >= keys {
            break;
        }
        let some = first..(first + LOAD_BATCH).min(keys);
        batch.clear();
        // No other thread writes these keys, so a thread need not hold all of their turns at once.
        for key in some.clone() {
            let writing = plan.keys.write(key);
            batch.put(plan.keys.key(key, &mut name), writing.value(&mut value));
            if batch.bytes() >= 1 << 19 {
                plan.store.write(&batch, options)?;
                batch.clear();
            }
            writing.done();
        }
        if !batch.is_empty() {
            plan.store.write(&batch, options)?;
        }
        let count = some.end - some.start;
        tally.operations += count;
        tally.puts += count;
        done.fetch_add(count, Ordering::Relaxed);
    }
    Ok(tally)
}

/// Runs the mix.
pub fn run(plan: &BenchPlan<'_>) -> Result<Tally> {
    let part = |done: u64, elapsed: Duration| match plan.amount {
        Amount::Operations(operations) => done as f64 / operations.max(1) as f64,
        Amount::For(time) => elapsed.as_secs_f64() / time.as_secs_f64(),
    };
    let keys = plan.keys.count.load(Ordering::Relaxed);
    let chooser = KeyChooser::new(&plan.mix.popularity, keys)?;
    on_threads("running", plan.threads, part, |nth, stop, done| {
        let quota = match plan.amount {
            Amount::For(_) => u64::MAX,
            Amount::Operations(all) => all / plan.threads + u64::from(nth < all % plan.threads),
        };
        let end = match plan.amount {
            Amount::For(time) => Some(Instant::now() + time),
            Amount::Operations(_) => None,
        };
        let mut chooser = chooser.clone();
        chooser.start_at(keys / plan.threads * nth);
        Worker {
            plan,
            chooser,
            rng: Rng::for_stream(plan.seed, nth),
            tally: Tally::default(),
            name: [0; MAX_KEY_LEN],
            value: Vec::new(),
            waiting: Vec::new(),
        }
        .run(quota, end, stop, done)
    })
}

/// A get that waits for its multi_get.
struct Wanted {
    /// The number of a key that may exist, and the oldest version that it may have.
    key: Option<(u64, u32)>,
    name: Vec<u8>,
}

struct Worker<'p> {
    plan: &'p BenchPlan<'p>,
    chooser: KeyChooser,
    rng: Rng,
    tally: Tally,
    name: [u8; MAX_KEY_LEN],
    value: Vec<u8>,
    waiting: Vec<Wanted>,
}

impl Worker<'_> {
    fn run(
        mut self,
        quota: u64,
        end: Option<Instant>,
        stop: &Stop,
        done: &AtomicU64,
    ) -> Result<Tally, StoreError> {
        for nth in 0..quota {
            let over = end.is_some_and(|end| Instant::now() >= end);
            if over || stop.is_set() {
                break;
            }
            match self.plan.mix.draw(&mut self.rng) {
                Op::Read => self.read()?,
                Op::Update => {
                    let key = self.choose();
                    self.put(key)?;
                }
                Op::Insert => {
                    let key = self.plan.keys.count.fetch_add(1, Ordering::Relaxed);
                    self.put(key)?;
                }
                Op::ReadModifyWrite => {
                    let key = self.choose();
                    let started = Instant::now();
                    self.get_one(key)?;
                    self.put_timed(key)?;
                    let took = started.elapsed().as_nanos() as u64;
                    self.tally.read_modify_write.record(took);
                }
            }
            self.tally.operations += 1;
            if nth % TELL == TELL - 1 {
                done.fetch_add(TELL, Ordering::Relaxed);
            }
        }
        self.get_waiting()?;
        Ok(self.tally)
    }

    /// An existing key. Keys that other threads are inserting now are excluded.
    fn choose(&mut self) -> u64 {
        let count = self.plan.keys.count.load(Ordering::Relaxed);
        let settled = count.saturating_sub(self.plan.threads);
        if settled > self.chooser.keys() {
            // A law that keeps its keys ignores this. A number of keys that is too large does not
            // occur.
            let _ = self.chooser.grow(settled);
        }
        self.chooser.next_key(&mut self.rng)
    }

    fn read(&mut self) -> Result<(), StoreError> {
        let absent = self.plan.absent > 0.0 && self.rng.next_f64() < self.plan.absent;
        let key = self.choose();
        if self.plan.depth > 1 {
            let (keys, name) = (self.plan.keys, &mut self.name);
            let wanted = if absent {
                Wanted {
                    key: None,
                    name: self.plan.absent_keys.write(key, name).to_vec(),
                }
            } else {
                Wanted {
                    key: Some((key, keys.oldest(key))),
                    name: keys.key(key, name).to_vec(),
                }
            };
            self.waiting.push(wanted);
            if self.waiting.len() < self.plan.depth {
                return Ok(());
            }
            return self.get_waiting();
        }
        let started = Instant::now();
        if absent {
            let name = self.plan.absent_keys.write(key, &mut self.name);
            let found = self.plan.store.get(name)?;
            self.seen(None, found.as_deref());
        } else {
            self.get_one(key)?;
        }
        self.tally.get.record(started.elapsed().as_nanos() as u64);
        Ok(())
    }

    fn get_one(&mut self, key: u64) -> Result<(), StoreError> {
        let keys = self.plan.keys;
        let oldest = keys.oldest(key);
        let found = self.plan.store.get(keys.key(key, &mut self.name))?;
        self.seen(Some((key, oldest)), found.as_deref());
        Ok(())
    }

    /// Does all waiting gets in one call; each has the latency of the call.
    fn get_waiting(&mut self) -> Result<(), StoreError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        let names: Vec<&[u8]> = waiting.iter().map(|wanted| &wanted.name[..]).collect();
        let started = Instant::now();
        let found = self.plan.store.multi_get(&names);
        let took = started.elapsed().as_nanos() as u64;
        self.tally.get.record_n(took, waiting.len() as u64);
        for (wanted, found) in waiting.iter().zip(found) {
            let found = found?;
            self.seen(wanted.key, found.as_deref());
        }
        Ok(())
    }

    /// Counts and checks the result of a get.
    fn seen(&mut self, key: Option<(u64, u32)>, found: Option<&[u8]>) {
        self.tally.gets += 1;
        let Some((key, oldest)) = key else {
            self.tally.absent += 1;
            if found.is_some() {
                self.tally
                    .fault("a key that was never put is there".to_owned());
            }
            return;
        };
        self.tally.hits += u64::from(found.is_some());
        if self.plan.keys.checks() {
            self.tally.checked += 1;
            if let Err(what) = self.plan.keys.check(key, oldest, found) {
                self.tally.fault(what);
            }
        }
    }

    fn put(&mut self, key: u64) -> Result<(), StoreError> {
        let took = self.put_timed(key)?;
        self.tally.put.record(took);
        Ok(())
    }

    fn put_timed(&mut self, key: u64) -> Result<u64, StoreError> {
        let writing = self.plan.keys.write(key);
        let value = writing.value(&mut self.value);
        let name = self.plan.keys.key(key, &mut self.name);
        let options = WriteOptions {
            durability: self.plan.durability,
            ..WriteOptions::default()
        };
        let started = Instant::now();
        self.plan.store.put_with(name, value, options)?;
        let took = started.elapsed().as_nanos() as u64;
        writing.done();
        self.tally.puts += 1;
        Ok(took)
    }
}
