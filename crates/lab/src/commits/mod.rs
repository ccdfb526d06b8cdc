// SPDX-License-Identifier: Apache-2.0
//! Transactions under test: the DBM, its rivals, and the floor of durable writes under them all.
//!
//! ```text
//!   an experiment: Turns -- each contender in turn, round by round, those that wait are stopped
//!     +- Floor (floor.rs): durable writes with nothing around them (write.rs)
//!     +- Ours (ours.rs): the DBM, in this process
//!     +- Rival (rival.rs): a C program over another engine's library (rival.c)
//! ```
//!
//! Always holds: every contender does the same transactions, on the same file system, with the same
//! promise: synced, or left to the system. Every record that it committed is read back. An engine
//! that is not installed is missing, with how to install it.

pub mod floor; // the floor as a contender
pub mod ours; // the DBM
pub mod rival; // other engines, each in a process of its own
pub mod turns; // rounds, medians, ratios
pub mod write; // the ways of a durable write

use anyhow::Result;

use crate::Outcome;
use crate::rig::Bench;

pub use turns::{Turns, percentile_over};

/// Bytes of a key: a number, big-endian.
pub const KEY_BYTES: usize = 4;
/// Bytes of a value: the key's number, then the number of its last change.
pub const VALUE_BYTES: usize = 8;

/// Which keys a transaction puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The next ones, each once.
    Ascending,
    /// Any of the first so many, at random.
    Random(u64),
    /// None: each transaction reads one of the first so many, at random, and checks it.
    Reads(u64),
}

/// A contender's task in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Transactions, of all threads together.
    pub commits: u64,
    /// Records that each puts.
    pub records: u64,
    /// Threads that commit.
    pub threads: u64,
    /// Which keys.
    pub order: Order,
    /// The seed of what is random.
    pub seed: u64,
}

/// What a turn showed.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Transactions that committed.
    pub commits: u64,
    /// Their time on the clock.
    pub seconds: f64,
    /// Nanoseconds of each commit, ascending; empty where nobody took them.
    pub times: Vec<u64>,
}

impl Ran {
    /// Of times in any order.
    pub fn new(commits: u64, seconds: f64, mut times: Vec<u64>) -> Ran {
        times.sort_unstable();
        Ran {
            commits,
            seconds,
            times,
        }
    }

    /// Transactions a second.
    pub fn rate(&self) -> f64 {
        self.commits as f64 / self.seconds
    }

    /// The time in microseconds below which this share of the commits lies.
    pub fn percentile(&self, share: f64) -> f64 {
        percentile(&self.times, share)
    }
}

/// Of ascending nanoseconds, in microseconds; not a number where there are none.
fn percentile(times: &[u64], share: f64) -> f64 {
    let at = (times.len() as f64 * share) as usize;
    let time = times.get(at.min(times.len().saturating_sub(1)));
    time.map_or(f64::NAN, |&time| time as f64 / 1e3)
}

/// Who takes turns.
pub trait Contender {
    /// Does the work, and takes its time.
    ///
    /// # Errors
    /// The engine's, in one sentence.
    fn run(&mut self, work: &Work) -> Result<Ran>;

    /// Reads the keys below `keys` back, each of which has to be there with its own value.
    ///
    /// # Errors
    /// If one is not.
    fn check(&mut self, keys: u64) -> Result<()>;

    /// It waits: stop it.
    fn pause(&mut self) {}

    /// It continues.
    fn resume(&mut self) {}
}

/// The name of a key's number.
pub fn key(number: u64) -> [u8; KEY_BYTES] {
    (number as u32).to_be_bytes()
}

/// A value of a key.
pub fn value(number: u64, change: u64) -> [u8; VALUE_BYTES] {
    ((number & 0xffff_ffff) | change << 32).to_le_bytes()
}

/// Whether a value is one of this key's.
pub fn belongs(number: u64, value: &[u8]) -> bool {
    value.len() == VALUE_BYTES && value[..4] == (number as u32).to_le_bytes()
}

/// Puts into the outcome what holds for every run, with the second probe of the machine. Nothing
/// here has a cap on its memory or its own core: engines may use both cores in the background.
///
/// # Errors
/// If the probe fails.
pub fn finish(bench: &Bench<'_>, outcome: &mut Outcome) -> Result<()> {
    bench.finish(outcome)?;
    for key in ["memory_cap", "memcached", "server_core", "load_core"] {
        outcome.settings.remove(key);
    }
    Ok(())
}
