// SPDX-License-Identifier: Apache-2.0
//! The size of an experiment on stores, and the settings of every engine: sizes by scale, reduced
//! to the room on the disk.
//!
//! Called by the experiments named `store-...`. Always: the settings of the result name every
//! reduction. Ratios of data to memory stay those of the full scale, or become harder for engines
//! that read from the device.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use senko_io::FileSystem;
use serde_json::json;

use super::driver::{Amount, Fill, Work};
use super::limit::DEPTH;
use super::protocol::Opened;
use super::session::Session;
use super::{Durability, ItemShape, KEY_BYTES, Tuning};
use crate::Outcome;
use crate::rig::Bench;

/// Bytes of the disk that stay free for others.
const LEAVE_FREE: u64 = 3 << 30;

/// The size of an experiment, and the settings of its engines.
#[derive(Clone, Debug)]
pub struct Plan {
    pub tuning: Tuning,
    pub shape: ItemShape,
}

impl Plan {
    /// `keys` keys with values of `value_bytes`, or fewer if the disk has no room for `copies`
    /// times their bytes.
    pub fn new(
        bench: &Bench<'_>,
        outcome: &mut Outcome,
        keys: u64,
        value_bytes: usize,
        copies: f64,
    ) -> Result<Plan> {
        let shape = ItemShape { value_bytes };
        let free = FileSystem::of(bench.scratch.folder())?.free;
        let room = free.saturating_sub(LEAVE_FREE) as f64 / copies / shape.bytes() as f64;
        let fits = keys.min(room as u64 / 1000 * 1000);
        anyhow::ensure!(
            fits >= keys / 64,
            "{} has {:.1} GiB free, too little even for a sixty-fourth of the data; name another folder with --scratch",
            bench.scratch.folder().display(),
            free as f64 / (1u64 << 30) as f64
        );
        if fits < keys {
            outcome.setting(
                format!("cut_{value_bytes}"),
                format!("{keys} keys cut to {fits}: the disk has no room for more"),
            );
        }
        let tuning = Tuning {
            memory: bench.scaled(256 << 20, 768 << 20),
            cache: bench.scaled(32 << 20, 128 << 20),
            keys: fits,
            value_bytes,
            durability: Durability::Lazy,
            read_only: false,
            space_ratio: 1.3,
            block_bytes: bench.scaled(16 << 20, 64 << 20),
            bloom: false,
        };
        Ok(Plan { tuning, shape })
    }

    pub fn durable(mut self, durability: Durability) -> Plan {
        self.tuning.durability = durability;
        self
    }

    pub fn read_only(mut self) -> Plan {
        self.tuning.read_only = true;
        self
    }

    pub fn memory(mut self, memory: u64) -> Plan {
        self.tuning.memory = memory;
        self
    }

    pub fn cache(mut self, cache: u64) -> Plan {
        self.tuning.cache = cache;
        self
    }

    pub fn bloom(mut self) -> Plan {
        self.tuning.bloom = true;
        self
    }

    pub fn keys(&self) -> u64 {
        self.tuning.keys
    }

    /// Fills from one key number to another with single puts.
    pub fn fill(&self, from: u64, to: u64, seed: u64) -> Fill {
        Fill {
            from,
            to,
            shape: self.shape,
            version: 0,
            ascending: false,
            batch: 1,
            threads: 1,
            seed,
        }
    }

    /// Gets of all keys, uniformly, one at a time.
    pub fn gets(&self, seconds: f64, seed: u64) -> Work {
        Work::gets(self.keys(), self.shape, Amount::Seconds(seconds), seed)
    }

    /// Puts of all keys, uniformly, by one thread.
    pub fn puts(&self, amount: Amount, version: u32, seed: u64) -> Work {
        Work::puts(self.keys(), self.shape, amount, version, seed)
    }

    /// Writes the settings of every engine into the outcome.
    pub fn note(&self, outcome: &mut Outcome, prefix: &str) {
        let tuning = &self.tuning;
        let mut set = |name: &str, value: serde_json::Value| {
            outcome.setting(format!("{prefix}{name}"), value);
        };
        set("keys", json!(tuning.keys));
        set("key_bytes", json!(KEY_BYTES));
        set("value_bytes", json!(tuning.value_bytes));
        set("memory_bytes", json!(tuning.memory));
        set("cache_bytes", json!(tuning.cache));
        set("block_bytes", json!(tuning.block_bytes));
        set("space_ratio", json!(tuning.space_ratio));
        set("durability", json!(tuning.durability));
    }
}

/// The same gets with many under way, in the way that suits the engine best.
pub fn at_depth(opened: &Opened, work: Work) -> Work {
    if opened.deep_from_one_thread {
        Work {
            depth: DEPTH as usize,
            threads: 1,
            ..work
        }
    } else {
        Work {
            depth: 1,
            threads: DEPTH as usize,
            ..work
        }
    }
}

/// A folder of a run for one engine's files, removed with its owner.
#[derive(Debug)]
pub struct Home(PathBuf);

impl Home {
    /// A folder named after its contents.
    pub fn new(bench: &Bench<'_>, name: &str) -> Home {
        Home(bench.scratch.path(name))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Bytes of its files on the disk.
    pub fn bytes(&self) -> u64 {
        fn below(folder: &Path) -> u64 {
            fs::read_dir(folder)
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|entry| {
                    let metadata = entry.metadata().ok()?;
                    Some(if metadata.is_dir() {
                        below(&entry.path())
                    } else {
                        metadata.blocks() * 512
                    })
                })
                .sum()
        }
        below(&self.0)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Starts a process for an engine and opens it there.
pub fn start<'a>(
    bench: &'a Bench<'a>,
    engine: &str,
    home: &Home,
    plan: &Plan,
    first: Option<u64>,
) -> Result<(Session<'a>, Opened)> {
    // The memory of a store that is only read is measured as memory in use, without memory that the
    // allocator keeps for later.
    let purge = [("MIMALLOC_PURGE_DELAY", "0")];
    let environment = if plan.tuning.read_only {
        &purge[..]
    } else {
        &[]
    };
    let mut session = Session::start(bench, engine, plan.tuning.memory, environment)?;
    let opened = session
        .open(home.path(), &plan.tuning, first)
        .with_context(|| format!("{engine} cannot be opened"))?;
    Ok((session, opened))
}

/// `[a, b]` of a table's cell: a number with this many digits, or a dash.
pub fn cell(number: f64, digits: usize) -> String {
    if number.is_finite() {
        format!("{number:.digits$}")
    } else {
        "-".to_owned()
    }
}
