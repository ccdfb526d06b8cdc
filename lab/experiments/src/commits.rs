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
//! promise: synced, or left to the system. Every committed record is read back. An engine that is
//! not installed is reported as missing, with how to install it.

pub mod floor; // the floor as a contender
pub mod ours; // the DBM
pub mod rival; // other engines, each in its own process
pub mod script; // transactions of gets, puts and scans that are known before
pub mod turns; // rounds, medians, ratios
pub mod write; // the ways of a durable write

use anyhow::{Result, bail};

pub use script::Script;
pub use turns::{Turns, percentile_over};

/// Bytes of a key: a number, big-endian.
pub const KEY_BYTES: usize = 4;
/// Bytes of a value: the key's number, then the number of its last change.
pub const VALUE_BYTES: usize = 8;

/// The keys that a transaction puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The next ones, each once.
    Ascending,
    /// Keys below this number, at random.
    Random(u64),
    /// None: each transaction reads a random key below this number, and checks its value.
    Reads(u64),
}

/// A contender's task in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Transactions, of all threads together.
    pub commits: u64,
    /// Records per transaction.
    pub records: u64,
    pub threads: u64,
    pub order: Order,
    pub seed: u64,
}

impl Work {
    /// One thread that puts the next keys.
    pub fn ascending(commits: u64, records: u64) -> Work {
        Work {
            commits,
            records,
            threads: 1,
            order: Order::Ascending,
            seed: 1,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Ran {
    pub commits: u64,
    pub seconds: f64,
    /// Nanoseconds of each commit, ascending; empty if they were not measured.
    pub times: Vec<u64>,
}

impl Ran {
    /// From times in any order.
    pub fn new(commits: u64, seconds: f64, mut times: Vec<u64>) -> Ran {
        times.sort_unstable();
        Ran {
            commits,
            seconds,
            times,
        }
    }

    pub fn rate(&self) -> f64 {
        self.commits as f64 / self.seconds
    }

    /// The time in microseconds that this share of the commits does not exceed.
    pub fn percentile(&self, share: f64) -> f64 {
        percentile(&self.times, share)
    }
}

/// From ascending nanoseconds, in microseconds; NaN if there are none.
fn percentile(times: &[u64], share: f64) -> f64 {
    let at = (times.len() as f64 * share) as usize;
    let time = times.get(at.min(times.len().saturating_sub(1)));
    time.map_or(f64::NAN, |&time| time as f64 / 1e3)
}

pub trait Contender {
    fn run(&mut self, work: &Work) -> Result<Ran>;

    fn script(&mut self, script: &Script) -> Result<Ran> {
        let _ = script;
        bail!("it does single commits only")
    }

    /// Reads the keys below `keys` back. Each must exist with its own value.
    fn check(&mut self, keys: u64) -> Result<()>;

    /// Stops it while it waits.
    fn pause(&mut self) {}

    /// Lets it continue.
    fn resume(&mut self) {}
}

pub fn key(number: u64) -> [u8; KEY_BYTES] {
    (number as u32).to_be_bytes()
}

pub fn value(number: u64, change: u64) -> [u8; VALUE_BYTES] {
    ((number & 0xffff_ffff) | change << 32).to_le_bytes()
}

/// Whether a value is one of this key's.
pub fn belongs(number: u64, value: &[u8]) -> bool {
    value.len() == VALUE_BYTES && value[..4] == (number as u32).to_le_bytes()
}
