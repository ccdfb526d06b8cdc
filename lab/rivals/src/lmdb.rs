// SPDX-License-Identifier: Apache-2.0
//! LMDB by `heed`: a B+ tree of 4 KiB pages in a memory map, copied on write.
//!
//! It has no cache and no O_DIRECT: its memory is the kernel's page cache, which the memory cap
//! counts. Reading ahead is off, since reads are at random. A put is a transaction. It is not
//! flushed unless durability requires it. Committed data survives a kill, because it is in the page
//! cache. It is filled in ascending order: at random each put would rewrite four pages.
//!
//! A value of 1000 bytes with its key lies in the leaf; larger ones than about 2000 have their own
//! pages.

#![allow(unsafe_code)]

use std::path::Path;

use anyhow::{Context, Result};
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, WithoutTls};
use senko_lab::kv::{Durability, Engine, Maker, Tuning};
use serde_json::{Map, Value};

pub struct Lmdb;

/// Threads that may read at once.
const READERS: u32 = 512;

impl Maker for Lmdb {
    fn name(&self) -> &'static str {
        "lmdb"
    }

    fn describe(&self, _: &Tuning) -> String {
        "LMDB by heed: a memory map without reading ahead, the kernel's page cache within the memory cap, no O_DIRECT, one transaction a put"
            .to_owned()
    }

    fn fill_ascending(&self) -> bool {
        true
    }

    fn open(&self, folder: &Path, tuning: &Tuning) -> Result<Box<dyn Engine>> {
        // Half-full leaves after splits, old copies, and the tree above.
        let map = usize::try_from(tuning.live_bytes() * 4 + (1 << 30))
            .context("the map would have more bytes than there are addresses")?
            .next_multiple_of(1 << 20);
        let mut flags = EnvFlags::NO_READ_AHEAD;
        if tuning.durability != Durability::Power {
            flags |= EnvFlags::NO_SYNC;
        }
        // SAFETY: the folder is this run's own, so nobody else changes or truncates the file under
        // the map; without flushes a power failure could damage it, and then the run is over.
        let env = unsafe {
            EnvOpenOptions::new()
                .read_txn_without_tls()
                .map_size(map)
                .max_readers(READERS)
                .flags(flags)
                .open(folder)
        }?;
        let mut transaction = env.write_txn()?;
        let table = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Box::new(Open { env, table }))
    }
}

struct Open {
    env: Env<WithoutTls>,
    table: Database<Bytes, Bytes>,
}

impl Engine for Open {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.table.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        // In ascending order after the last key, which it is told, pages are filled to the end.
        let last = self.table.last(&transaction)?.map(|(key, _)| key.to_vec());
        let ascending = pairs.windows(2).all(|two| two[0].0 < two[1].0)
            && match (&last, pairs.first()) {
                (Some(last), Some((first, _))) => &last[..] < *first,
                _ => true,
            };
        let flags = if ascending {
            PutFlags::APPEND
        } else {
            PutFlags::empty()
        };
        for (key, value) in pairs {
            self.table
                .put_with_flags(&mut transaction, flags, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let transaction = self.env.read_txn()?;
        let found = self.table.get(&transaction, key)?;
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn settle(&self) -> Result<()> {
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn facts(&self) -> Result<Map<String, Value>> {
        let mut facts = Map::new();
        facts.insert("file_bytes".into(), self.env.real_disk_size()?.into());
        facts.insert("map_bytes".into(), self.env.info().map_size.into());
        Ok(facts)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()
    }
}
