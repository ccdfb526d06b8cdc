// SPDX-License-Identifier: Apache-2.0
//! What a put costs a drive: an engine puts records on a device in memory, and the device counts.
//!
//! The engine itself runs, so the figures follow its code and not a formula. Of more records than
//! [`MOST_RECORDS`], or than [`SIMULATED`] bytes have, it runs with a part. What its writes depend
//! on gets the same part: blocks and logs of the store, and cache and erase units of the DBM. All
//! records are put in order, then random ones of them are put again: first as many as there are
//! records, while the file gets its size, then as many that count. Neither engine has threads here,
//! so a plan always has the same figures. With threads the DBM writes about a tenth less or more
//! (`docs/measurements/engine-wear.md`).

use std::sync::Arc;

use anyhow::{Context, Result};
use senko_dbm::{Database, Table};
use senko_io::memory::MemoryDevice;
use senko_io::{Device, PAGE_SIZE};
use senko_store::{Batch, Store};
use senko_workload::{KeyChooser, Popularity, Rng};

/// Bytes of the records that an engine runs with, at most.
const SIMULATED: u64 = 64 << 20;
/// But at least so many records.
const LEAST_RECORDS: u64 = 128;
/// How many there are at most.
const MOST_RECORDS: u64 = 200_000;
/// Bytes of a key.
pub const KEY_BYTES: u64 = 8;
/// Bytes of a record at most.
pub const MOST_BYTES: u64 = 1 << 20;
/// Bytes that are put together at most.
const MOST_TOGETHER: u64 = 8 << 20;
/// Pages of the disk: engines never find it full.
const DISK: u64 = 1 << 24;
/// Pages of a new database's file.
const FIRST: u64 = 48;
/// Pages of an erase unit of the DBM where it has a part of the records.
const UNIT: u64 = 32;
/// Bytes from which the DBM writes whole units, by default.
const LARGE: u64 = 32 << 20;

/// An engine that keeps what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Store,
    Dbm,
}

/// Records, and how they are put.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub records: u64,
    /// Bytes of key and value, from [`KEY_BYTES`] to [`MOST_BYTES`].
    pub bytes: u64,
    /// The exponent of Zipf's law, by which records are put again.
    pub exponent: f64,
    /// Records that become durable together.
    pub together: u64,
    /// Bytes of the DBM's cache.
    pub cache: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug)]
pub struct Wear {
    /// Bytes written to the device for a byte put.
    pub written_over_put: f64,
    /// Bytes of the file at its largest, over those of the records.
    pub file_over_records: f64,
    /// Records that the engine ran with.
    pub records: u64,
}

/// An engine that is open on the device.
enum Open {
    Store(Store),
    Dbm(Database, Table),
}

impl Open {
    /// The engine, with a part of the records.
    fn new(engine: Engine, load: &Load, part: f64, device: Arc<dyn Device>) -> Result<Open> {
        let part_of = |bytes: u64| (bytes as f64 * part) as u64;
        match engine {
            Engine::Store => {
                let usual = senko_store::Options::default();
                let step = 64 << 10;
                // Values that lie in blocks do so here too, and blocks begin at whole MiB.
                let least = (8 * load.bytes.min(usual.inline_max as u64)).max(4 << 20);
                let block = part_of(usual.block_bytes).max(least);
                let options = senko_store::Options {
                    block_bytes: block.next_multiple_of(step),
                    background: false,
                    shrink_after: None,
                    ..usual
                };
                Ok(Open::Store(Store::open_device(device, options)?))
            }
            Engine::Dbm => {
                device.grow(FIRST).context("no memory for the device")?;
                let mut options = senko_dbm::Options {
                    cache_bytes: part_of(load.cache).max(1 << 20) as usize,
                    threads: 0,
                    ..senko_dbm::Options::default()
                };
                // A database of fewer bytes is not written by units.
                if part < 1.0 && load.records.saturating_mul(load.bytes) >= LARGE {
                    options.units.pages = UNIT;
                }
                let db = Database::open_device(device, options)?;
                let table = db.create_table("t")?;
                Ok(Open::Dbm(db, table))
            }
        }
    }

    /// Puts records that become durable together.
    fn put(&self, records: &[(u64, Vec<u8>)]) -> Result<()> {
        match self {
            Open::Store(store) => {
                let mut batch = Batch::new();
                for (key, value) in records {
                    batch.put(&key.to_be_bytes(), value);
                }
                store.write(&batch, senko_store::WriteOptions::synced())?;
                while store.maintain()? {}
            }
            Open::Dbm(db, table) => {
                let mut tx = db.begin();
                for (key, value) in records {
                    tx.put(table, &key.to_be_bytes(), value)?;
                }
                tx.commit(senko_dbm::Durability::Synced)?;
            }
        }
        Ok(())
    }
}

impl Load {
    /// Records that the engine runs with.
    fn simulated(&self) -> u64 {
        let most = (SIMULATED / self.bytes).clamp(LEAST_RECORDS, MOST_RECORDS);
        self.records.min(most)
    }

    /// Runs an engine, and counts.
    ///
    /// # Errors
    /// A load that no engine takes, or not enough memory.
    pub fn wear(&self, engine: Engine) -> Result<Wear> {
        let records = self.simulated();
        let device = MemoryDevice::new(DISK);
        let part = records as f64 / self.records as f64;
        let open = Open::new(engine, self, part, Arc::clone(&device) as _)?;
        let together = self.together.min((MOST_TOGETHER / self.bytes).max(1));
        let law = Popularity::Zipf {
            s: self.exponent,
            scrambled: true,
        };
        let (mut keys, mut rng) = (KeyChooser::new(&law, records)?, Rng::new(1));
        let mut values = Rng::new(2);
        let mut value = || {
            let words = (0..self.bytes - KEY_BYTES).step_by(8);
            let mut value: Vec<u8> = words
                .flat_map(|_| values.next_u64().to_le_bytes())
                .collect();
            value.truncate((self.bytes - KEY_BYTES) as usize);
            value
        };
        let mut put = |keys: &mut dyn Iterator<Item = u64>| -> Result<u64> {
            let mut most = 0;
            loop {
                let group: Vec<_> = keys
                    .take(together as usize)
                    .map(|key| (key, value()))
                    .collect();
                if group.is_empty() {
                    return Ok(most);
                }
                open.put(&group)?;
                most = most.max(device.stored());
            }
        };
        put(&mut (0..records))?;
        put(&mut (0..records).map(|_| keys.next_key(&mut rng)))?;
        let before = device.written();
        let most = put(&mut (0..records).map(|_| keys.next_key(&mut rng)))?;
        let over_bytes =
            |pages: u64| (pages * PAGE_SIZE as u64) as f64 / (records * self.bytes) as f64;
        Ok(Wear {
            written_over_put: over_bytes(device.written() - before),
            file_over_records: over_bytes(most),
            records,
        })
    }
}
