// SPDX-License-Identifier: Apache-2.0
//! Key-value engines under test: the trait that each implements, the operations, and the process
//! that holds an engine.
//!
//! ```text
//!   an experiment: Session (session.rs) --- one JSON object a line, over pipes ---> child.rs, in a process of its own,
//!     reads the disk's counters, the                                                in a memory cap
//!     process's memory and processor time                                             +- driver.rs: threads that put and get
//!     before and after each request                                                   +- an Engine: ours (ours.rs) or a rival's
//! ```
//!
//! The experiment's process holds no engine, so that memory, processor time and a kill are the
//! engine's alone. Our engine runs in `senko-lab`. Rivals run in `senko-rivals`, which is built
//! separately (crate `senko_rivals`), because users of Senko alone do not need its libraries.
//! This crate knows rivals by [`Engine`] and [`Maker`] alone.
//!
//! Always holds: every value that an engine returns is compared with the value put there
//! ([`items`]), and a wrong byte ends the run. The same seed gives the same requests. Every engine
//! gets the same keys, values, threads, memory and durability.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use senko_io::Device;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub mod child; // the process with the engine: requests in, answers out
pub mod driver; // threads that fill, get and put
pub mod items; // key numbers to keys and values, and back
pub mod limit; // the device's own rate, on the engine's own file
pub mod ours; // our own store
pub mod plan; // sizes, and the settings of every engine
pub mod protocol; // requests and answers
pub mod rehearsal; // the test that every engine must pass
pub mod session; // the experiment's side of the pipes

pub use driver::{Amount, Fill, Times, Work, Worked};
pub use items::{ItemShape, KEY_BYTES};
pub use limit::DeviceReads;
pub use session::{Session, Step};

/// The name of our own engine.
pub const OURS: &str = "senko";

/// The possible loss of a put that has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The last puts, if the process is killed: they may be in the engine's own buffer.
    Lazy,
    /// Nothing, if the process is killed; the last puts, if the power fails.
    Kill,
    Power,
}

/// The settings for every engine, which each translates to its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Bytes of memory that the process may use, page cache included.
    pub memory: u64,
    /// Bytes of it for a cache of blocks or records, for engines that have one; 0 for none.
    pub cache: u64,
    pub keys: u64,
    pub value_bytes: usize,
    pub durability: Durability,
    /// Open it only for reading, if the engine can: no background work.
    pub read_only: bool,
    /// Space on the device over live data, for engines that bound it.
    pub space_ratio: f64,
    /// Bytes of a block, a log, or a table in memory.
    pub block_bytes: u64,
    /// Our store with the thesis's Bloom Filter Map in place of its own map (`--index bloom`).
    pub bloom: bool,
}

impl Tuning {
    /// Bytes of live data: keys and values.
    pub fn live_bytes(&self) -> u64 {
        self.keys * (KEY_BYTES + self.value_bytes) as u64
    }
}

/// A key that is requested together with others.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub number: u64,
    pub there: bool,
    pub name: [u8; KEY_BYTES],
    /// When it was submitted.
    pub since: Instant,
}

impl AsRef<[u8]> for Asked {
    fn as_ref(&self) -> &[u8] {
        &self.name
    }
}

/// Takes the results of [`Engine::get_each`]: the key, and its value if it was found.
pub type Found<'a> = dyn FnMut(Asked, Option<&[u8]>) + 'a;

/// An open key-value engine. Many threads use it.
pub trait Engine: Send + Sync {
    /// Puts one key with the durability of the settings.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Puts many keys at once.
    fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<()>;

    /// Reads one key into `value`, which is cleared before; false if it is absent.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Reads keys as they come, up to `depth` at a time, and answers each when its read is done.
    fn get_each(
        &self,
        keys: &mut dyn Iterator<Item = Asked>,
        depth: usize,
        found: &mut Found<'_>,
    ) -> Result<()> {
        let _ = depth;
        let mut value = Vec::new();
        for asked in keys {
            let there = self.get(&asked.name, &mut value)?;
            found(asked, there.then_some(&value[..]));
        }
        Ok(())
    }

    /// Returns when all puts are durable and the background work that they caused is done.
    fn settle(&self) -> Result<()>;

    fn sync(&self) -> Result<()>;

    /// The device that the engine reads from, if it shares it: the device's own limit is measured
    /// on it.
    fn device(&self) -> Option<Arc<dyn Device>> {
        None
    }

    /// The engine's own statistics: counters, settings, bytes of memory. A key `dram_bytes` is its
    /// own count of memory that grows with keys.
    fn facts(&self) -> Result<Map<String, Value>>;

    /// Closes it cleanly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// An engine that can be opened.
pub trait Maker: Sync {
    /// Its name in requests and tables: lower case.
    fn name(&self) -> &'static str;

    /// Its version and settings, in a sentence.
    fn describe(&self, tuning: &Tuning) -> String;

    /// Whether it is best filled in ascending order, because random order would slow it down very
    /// much.
    fn fill_ascending(&self) -> bool {
        false
    }

    /// Whether one thread has many gets under way; otherwise each thread has one.
    fn deep_from_one_thread(&self) -> bool {
        false
    }

    /// The file in `folder` that the engine reads from, if there is a single one: the device's own
    /// limit is measured on it.
    fn file_name(&self) -> Option<&'static str> {
        None
    }

    /// Opens it in `folder`, which exists and is empty or has the files of an earlier open.
    fn open(&self, folder: &Path, tuning: &Tuning) -> Result<Box<dyn Engine>>;
}

/// Our own engines, which `senko` holds as the process with an engine.
pub fn ours() -> &'static [&'static dyn Maker] {
    &[&ours::Ours]
}
