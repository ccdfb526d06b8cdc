// SPDX-License-Identifier: Apache-2.0
//! The work for an engine: filling, and threads that get and put, in a closed loop or at a fixed
//! rate.
//!
//! Runs in the process with the engine, called by [`super::child`]. Always: the seed determines
//! keys and order. Every `CHECK_EVERY`-th value read is checked byte by byte. The first wrong value
//! or error ends the work.
//!
//! At a fixed rate a put is due at its time, even if the one before has not returned.
//! [`Worked::put_due`] measures from the due time to completion. So it includes the wait of puts
//! that arrive during a stall (no "coordinated omission"). [`Worked::put`] measures only the calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use senko_load::cpu::wake_promptly;
use senko_workload::drive::{DriveError, Stop, on_threads};
use senko_workload::permutation::Permutation;
use senko_workload::popularity::KeyChooser;
use senko_workload::{Histogram, Popularity, Rng};
use serde::{Deserialize, Serialize};

use super::items::{self, ItemShape, KEY_BYTES};
use super::{Asked, Engine};

/// One of this many values read is checked byte by byte.
const CHECK_EVERY: u64 = 16;
const MOST_THREADS: usize = 256;

/// Puts each key of a range once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    pub from: u64,
    /// The key number after the last.
    pub to: u64,
    pub shape: ItemShape,
    pub version: u32,
    /// In ascending order, by one thread; otherwise in random order.
    pub ascending: bool,
    /// Puts a call.
    pub batch: usize,
    pub threads: usize,
    pub seed: u64,
}

/// When the work ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// After this many gets and puts of all threads.
    Ops(u64),
    /// After this many seconds.
    Seconds(f64),
}

/// Gets and puts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub keys: u64,
    pub shape: ItemShape,
    /// Which keys, as in [`Popularity`].
    pub popularity: String,
    /// The share of gets; the rest are puts.
    pub gets: f64,
    /// The share of gets for keys that are not there.
    pub missing: f64,
    /// Gets that each thread has under way: 1 for single gets.
    pub depth: usize,
    pub threads: usize,
    pub amount: Amount,
    /// Operations a second of all threads; `None`: as fast as they return.
    pub rate: Option<f64>,
    pub version: u32,
    pub seed: u64,
}

impl Work {
    /// Single gets of existing keys, uniformly, by one thread.
    pub fn gets(keys: u64, shape: ItemShape, amount: Amount, seed: u64) -> Work {
        Work {
            keys,
            shape,
            popularity: "uniform".to_owned(),
            gets: 1.0,
            missing: 0.0,
            depth: 1,
            threads: 1,
            amount,
            rate: None,
            version: 1,
            seed,
        }
    }

    /// Single puts of existing keys, uniformly, by one thread.
    pub fn puts(keys: u64, shape: ItemShape, amount: Amount, version: u32, seed: u64) -> Work {
        Work {
            gets: 0.0,
            version,
            ..Work::gets(keys, shape, amount, seed)
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

impl Times {
    /// The counted durations, in nanoseconds.
    pub(super) fn of(histogram: &Histogram) -> Times {
        let us = |ns: u64| ns as f64 / 1e3;
        Times {
            count: histogram.len(),
            mean_us: histogram.mean() / 1e3,
            p50_us: us(histogram.quantile(0.5)),
            p99_us: us(histogram.quantile(0.99)),
            p999_us: us(histogram.quantile(0.999)),
            max_us: us(histogram.max()),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worked {
    pub gets: u64,
    /// How many of them were found.
    pub found: u64,
    pub puts: u64,
    pub seconds: f64,
    /// Gets, each measured from its submission.
    pub get: Times,
    /// Calls to put, of single elements or batches.
    pub put: Times,
    /// Puts measured from when they were due; empty in a closed loop.
    pub put_due: Times,
}

impl Worked {
    pub fn gets_per_second(&self) -> f64 {
        self.gets as f64 / self.seconds
    }

    pub fn puts_per_second(&self) -> f64 {
        self.puts as f64 / self.seconds
    }

    /// Gets and puts a second.
    pub fn per_second(&self) -> f64 {
        (self.gets + self.puts) as f64 / self.seconds
    }
}

#[derive(Default)]
struct Tally {
    gets: u64,
    found: u64,
    puts: u64,
    get: Histogram,
    put: Histogram,
    put_due: Histogram,
}

impl Tally {
    fn merge(&mut self, other: &Tally) {
        self.gets += other.gets;
        self.found += other.found;
        self.puts += other.puts;
        self.get.merge(&other.get);
        self.put.merge(&other.put);
        self.put_due.merge(&other.put_due);
    }

    fn worked(&self, seconds: f64) -> Worked {
        Worked {
            gets: self.gets,
            found: self.found,
            puts: self.puts,
            seconds,
            get: Times::of(&self.get),
            put: Times::of(&self.put),
            put_due: Times::of(&self.put_due),
        }
    }
}

/// Nanoseconds since `start`.
fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Runs `one` in each of `threads` threads and merges their counts.
fn spread(threads: usize, one: impl Fn(usize, &Stop) -> Result<Tally> + Sync) -> Result<Worked> {
    ensure!(
        (1..=MOST_THREADS).contains(&threads),
        "between 1 and {MOST_THREADS} threads can work, not {threads}"
    );
    let start = Instant::now();
    let sum: Tally = on_threads(
        threads,
        one,
        |sum: &mut Tally, tally| sum.merge(&tally),
        None,
    )
    .map_err(|failed| match failed {
        DriveError::Failed(error) => error,
        other => anyhow!("{other}"),
    })?;
    Ok(sum.worked(start.elapsed().as_secs_f64()))
}

pub fn fill(engine: &dyn Engine, fill: &Fill) -> Result<Worked> {
    ensure!(
        fill.from < fill.to && fill.batch > 0,
        "there is nothing to fill"
    );
    let keys = fill.to - fill.from;
    let order = Permutation::new(keys, fill.seed);
    let next = AtomicU64::new(0);
    let threads = if fill.ascending { 1 } else { fill.threads };
    spread(threads, |_, stop| {
        let mut tally = Tally::default();
        let mut names = vec![[0; KEY_BYTES]; fill.batch];
        let mut values = vec![Vec::new(); fill.batch];
        while !stop.is_set() {
            let first = next.fetch_add(fill.batch as u64, Ordering::Relaxed);
            if first >= keys {
                break;
            }
            let count = (keys - first).min(fill.batch as u64) as usize;
            for (at, (name, value)) in names.iter_mut().zip(&mut values).take(count).enumerate() {
                let place = first + at as u64;
                let place = if fill.ascending {
                    place
                } else {
                    order.apply(place)
                };
                *name = items::present(fill.from + place);
                fill.shape.value(fill.from + place, fill.version, value);
            }
            let pairs: Vec<(&[u8], &[u8])> = names
                .iter()
                .zip(&values)
                .take(count)
                .map(|(name, value)| (&name[..], &value[..]))
                .collect();
            let start = Instant::now();
            match pairs[..] {
                [(key, value)] => engine.put(key, value)?,
                _ => engine.put_many(&pairs)?,
            }
            tally.put.record(since(start));
            tally.puts += count as u64;
        }
        Ok(tally)
    })
}

/// Seconds between wake-ups: a thread that slept before each operation would do little else.
const TICK: f64 = 0.0005;

/// The times at which the operations of a thread at a fixed rate are due.
struct Due {
    start: Instant,
    between: f64,
    next: f64,
}

impl Due {
    /// Waits for the next operation, and returns the time at which it was due.
    fn wait(&mut self) -> Instant {
        let due = self.start + Duration::from_secs_f64((self.next / TICK).ceil() * TICK);
        self.next += self.between;
        if let Some(left) = due.checked_duration_since(Instant::now()) {
            thread::sleep(left);
        }
        due
    }
}

/// Gets and puts.
/// A wrong value ends it, and so does a key that is lost, or found though it was never put.
pub fn work(engine: &dyn Engine, work: &Work) -> Result<Worked> {
    let popularity: Popularity = work
        .popularity
        .parse()
        .map_err(|error| anyhow!("{error}"))?;
    let chooser = KeyChooser::new(&popularity, work.keys).map_err(|error| anyhow!("{error}"))?;
    ensure!(work.depth > 0, "no get under way is none");
    ensure!(
        work.depth == 1 || (work.gets >= 1.0 && work.rate.is_none()),
        "many under way are gets alone, in a closed loop"
    );
    let start = Instant::now();
    let left = AtomicU64::new(match work.amount {
        Amount::Ops(ops) => ops,
        Amount::Seconds(_) => u64::MAX,
    });
    let end = match work.amount {
        Amount::Ops(_) => None,
        Amount::Seconds(seconds) => Some(start + Duration::from_secs_f64(seconds)),
    };
    spread(work.threads, |number, stop| {
        let mut worker = Worker {
            engine,
            work,
            chooser: chooser.clone(),
            rng: Rng::for_stream(work.seed, number as u64),
            tally: Tally::default(),
            value: Vec::new(),
        };
        let mut due = work.rate.map(|rate| {
            wake_promptly();
            let between = work.threads as f64 / rate;
            Due {
                start,
                between,
                next: between * number as f64 / work.threads as f64,
            }
        });
        let more =
            |now: Instant| !stop.is_set() && end.is_none_or(|end| now < end) && take_one(&left);
        if work.depth > 1 {
            worker.get_each(more)?;
            return Ok(worker.tally);
        }
        while more(Instant::now()) {
            let due = due.as_mut().map(Due::wait);
            worker.turn(due)?;
        }
        Ok(worker.tally)
    })
}

struct Worker<'a> {
    engine: &'a dyn Engine,
    work: &'a Work,
    chooser: KeyChooser,
    rng: Rng,
    tally: Tally,
    value: Vec<u8>,
}

impl Worker<'_> {
    fn turn(&mut self, due: Option<Instant>) -> Result<()> {
        let get = self.work.gets >= 1.0 || self.rng.next_f64() < self.work.gets;
        if get { self.get() } else { self.put(due) }
    }

    /// A key to get: its number, and whether it exists.
    fn choose(&mut self) -> (u64, bool) {
        let number = self.chooser.next_key(&mut self.rng);
        let missing = self.work.missing > 0.0 && self.rng.next_f64() < self.work.missing;
        (number, !missing)
    }

    fn name(number: u64, there: bool) -> [u8; KEY_BYTES] {
        if there {
            items::present(number)
        } else {
            items::absent(number)
        }
    }

    fn put(&mut self, due: Option<Instant>) -> Result<()> {
        let (number, _) = self.choose();
        let mut value = std::mem::take(&mut self.value);
        self.work.shape.value(number, self.work.version, &mut value);
        let start = Instant::now();
        self.engine.put(&items::present(number), &value)?;
        self.tally.put.record(since(start));
        if let Some(due) = due {
            self.tally.put_due.record(since(due));
        }
        self.tally.puts += 1;
        self.value = value;
        Ok(())
    }

    fn get(&mut self) -> Result<()> {
        let (number, there) = self.choose();
        let start = Instant::now();
        let found = self
            .engine
            .get(&Self::name(number, there), &mut self.value)?;
        self.tally.get.record(since(start));
        check(
            &mut self.tally,
            self.work.shape,
            (number, there),
            found.then_some(&self.value),
        )
    }

    /// Gets with many under way, until no more are left.
    fn get_each(&mut self, more: impl Fn(Instant) -> bool) -> Result<()> {
        let (engine, work) = (self.engine, self.work);
        let mut tally = std::mem::take(&mut self.tally);
        let mut first = Ok(());
        let mut keys = std::iter::from_fn(|| {
            let since = Instant::now();
            if !more(since) {
                return None;
            }
            let (number, there) = self.choose();
            Some(Asked {
                number,
                there,
                name: Self::name(number, there),
                since,
            })
        });
        let ended = engine.get_each(&mut keys, work.depth, &mut |asked, value| {
            tally.get.record(since(asked.since));
            let checked = check(&mut tally, work.shape, (asked.number, asked.there), value);
            if first.is_ok() {
                first = checked;
            }
        });
        self.tally = tally;
        ended.and(first)
    }
}

/// Takes one operation from those left for all threads; false if none is left.
fn take_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(1)
    })
    .is_ok()
}

/// Counts and checks what was read.
fn check(
    tally: &mut Tally,
    shape: ItemShape,
    (number, there): (u64, bool),
    value: Option<&[u8]>,
) -> Result<()> {
    let whole = tally.gets.is_multiple_of(CHECK_EVERY);
    tally.gets += 1;
    match value {
        Some(value) if there => {
            tally.found += 1;
            shape.check(number, value, whole)?;
        }
        None if !there => {}
        Some(_) => anyhow::bail!("a key beside number {number} was found, and nobody put it"),
        None => anyhow::bail!("key {number} was put and is not there"),
    }
    Ok(())
}
