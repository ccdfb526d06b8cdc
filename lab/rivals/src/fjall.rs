// SPDX-License-Identifier: Apache-2.0
//! fjall: an LSM tree in Rust, with settings as close to [`crate::rocksdb`]'s as possible.
//!
//! Blocks of 4 KiB, Bloom filters of 16 bits, indexes and filters pinned in memory, no compression,
//! a cache of blocks. It has no O_DIRECT: its reads go through the kernel's page cache, which the
//! memory cap counts. Lazy durability is its own buffer of the journal.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PinningPolicy,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use senko_lab::kv::{Durability, Engine, Maker, Tuning};
use serde_json::{Map, Value};

/// fjall.
pub struct Fjall;

/// Bits of a Bloom filter for each key.
const BLOOM_BITS: f32 = 16.0;
/// Bytes of a block.
const BLOCK: u32 = 4096;
/// Threads that flush and compact.
const WORKERS: usize = 2;
/// After this long without background activity, the background counts as done.
const QUIET: Duration = Duration::from_millis(200);

/// Bytes of a table in memory: what the tuning names, but no more than a sixteenth of the memory,
/// since full ones wait in memory for a slow device without a bound.
fn table_bytes(tuning: &Tuning) -> u64 {
    tuning.block_bytes.min(tuning.memory / 16).max(1 << 20)
}

impl Maker for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn describe(&self, tuning: &Tuning) -> String {
        format!(
            "fjall 3: Bloom filters of {BLOOM_BITS} bits, blocks of {BLOCK} B, no compression, cache {} MiB, tables of {} MiB in memory, \
             {WORKERS} workers, no O_DIRECT",
            tuning.cache >> 20,
            table_bytes(tuning) >> 20
        )
    }

    fn open(&self, folder: &Path, tuning: &Tuning) -> Result<Box<dyn Engine>> {
        let lazy = tuning.durability != Durability::Kill;
        let database = Database::builder(folder)
            .cache_size(tuning.cache)
            .journal_compression(CompressionType::None)
            .worker_threads(WORKERS)
            .manual_journal_persist(lazy)
            .open()?;
        let none = CompressionPolicy::all(CompressionType::None);
        let table = table_bytes(tuning);
        let space = database.keyspace("items", || {
            KeyspaceCreateOptions::default()
                .data_block_size_policy(BlockSizePolicy::all(BLOCK))
                .data_block_compression_policy(none.clone())
                .index_block_compression_policy(none)
                .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(
                    BloomConstructionPolicy::BitsPerKey(BLOOM_BITS),
                )))
                .filter_block_pinning_policy(PinningPolicy::all(true))
                .index_block_pinning_policy(PinningPolicy::all(true))
                .manual_journal_persist(lazy)
                .max_memtable_size(table)
        })?;
        Ok(Box::new(Open {
            database,
            space,
            power: tuning.durability == Durability::Power,
        }))
    }
}

struct Open {
    database: Database,
    space: Keyspace,
    power: bool,
}

impl Open {
    fn promise(&self) -> Result<()> {
        if self.power {
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Engine for Open {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.space.insert(key, value)?;
        self.promise()
    }

    fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mut batch = self.database.batch();
        for (key, value) in pairs {
            batch.insert(&self.space, *key, *value);
        }
        batch.commit()?;
        self.promise()
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.space.get(key)?;
        if let Some(found) = &found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn settle(&self) -> Result<()> {
        self.sync()?;
        self.space.rotate_memtable_and_wait()?;
        // A compaction may follow another.
        let mut before = usize::MAX;
        loop {
            let completed = self.database.compactions_completed();
            if completed == before
                && self.database.active_compactions() == 0
                && self.database.outstanding_flushes() == 0
            {
                return Ok(());
            }
            before = completed;
            thread::sleep(QUIET);
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn facts(&self) -> Result<Map<String, Value>> {
        let mut facts = Map::new();
        facts.insert("file_bytes".into(), self.database.disk_space()?.into());
        facts.insert("block_cache".into(), self.database.cache_size().into());
        facts.insert(
            "memory_tables".into(),
            self.database.write_buffer_size().into(),
        );
        Ok(facts)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()
    }
}
