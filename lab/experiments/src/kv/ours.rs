// SPDX-License-Identifier: Apache-2.0
//! Our own store behind the lab's trait.
//!
//! It uses its default settings, except for those that every engine gets. These are the bytes of a
//! block and its log, the space for dead elements, and the bytes of the cache of records. All of
//! its reads go past the page cache.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use senko_io::{Device, FileOptions, FlashFile};
use senko_store::{Batch, IndexKind, Options, Store, WriteOptions};
use serde_json::{Map, Value};

use super::{Asked, Durability, Engine, Found, Maker, OURS, Tuning};

pub struct Ours;

const FILE: &str = "store";
/// Initial bytes of the store's file; it grows as needed.
const FIRST_BYTES: u64 = 64 << 10;
/// Background work counts as done if nothing happened for this long.
const QUIET: Duration = Duration::from_millis(100);

fn options(tuning: &Tuning) -> Options {
    Options {
        block_bytes: tuning.block_bytes,
        space_ratio: tuning.space_ratio,
        read_only: tuning.read_only,
        cache_bytes: tuning.cache,
        index: match tuning.bloom {
            true => IndexKind::BloomMap,
            false => Options::default().index,
        },
        ..Options::default()
    }
}

impl Maker for Ours {
    fn name(&self) -> &'static str {
        OURS
    }

    fn describe(&self, tuning: &Tuning) -> String {
        let options = options(tuning);
        format!(
            "the store of this commit: pages of {} B, blocks of {} MiB, {:?} map with fingerprints of {} bits, space at most {} times the live \
             bytes, direct reads and writes, cache of records {} MiB",
            options.page_bytes,
            options.block_bytes >> 20,
            options.index,
            options.fingerprint_bits,
            options.space_ratio,
            options.cache_bytes >> 20
        )
    }

    fn deep_from_one_thread(&self) -> bool {
        true
    }

    fn file_name(&self) -> Option<&'static str> {
        Some(FILE)
    }

    fn open(&self, folder: &Path, tuning: &Tuning) -> Result<Box<dyn Engine>> {
        let path = folder.join(FILE);
        // The file is opened as the store itself does it; here the device is shared too.
        let file = FileOptions {
            bytes: if path.exists() { 0 } else { FIRST_BYTES },
            ..FileOptions::default()
        };
        let device: Arc<dyn Device> = Arc::new(FlashFile::open(&path, &file)?);
        let store = Store::open_device(Arc::clone(&device), options(tuning))?;
        let durability = match tuning.durability {
            Durability::Lazy => senko_store::Durability::None,
            Durability::Kill => senko_store::Durability::Buffered,
            Durability::Power => senko_store::Durability::Synced,
        };
        let write = WriteOptions {
            durability,
            ..WriteOptions::default()
        };
        Ok(Box::new(Open {
            store,
            write,
            device,
        }))
    }
}

struct Open {
    store: Store,
    write: WriteOptions,
    device: Arc<dyn Device>,
}

impl Engine for Open {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.put_with(key, value, self.write)?;
        Ok(())
    }

    fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mut batch = Batch::new();
        for (key, value) in pairs {
            batch.put(key, value);
        }
        self.store.write(&batch, self.write)?;
        Ok(())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.store.get(key)?;
        let there = found.is_some();
        if let Some(found) = found {
            *value = found.into();
        }
        Ok(there)
    }

    fn get_each(
        &self,
        keys: &mut dyn Iterator<Item = Asked>,
        depth: usize,
        found: &mut Found<'_>,
    ) -> Result<()> {
        let mut first = Ok(());
        self.store
            .get_each(keys, depth, |asked, value| match value {
                Ok(value) => found(asked, value.as_deref()),
                Err(error) if first.is_ok() => first = Err(error),
                Err(_) => {}
            });
        Ok(first?)
    }

    fn settle(&self) -> Result<()> {
        self.store.seal()?;
        // The store's own threads may be at work too, and one piece of work leads to another.
        let work = || {
            let stats = self.store.stats();
            (stats.seals, stats.compactions, stats.merges)
        };
        let (mut before, mut since) = (work(), Instant::now());
        while since.elapsed() < QUIET {
            let worked = self.store.maintain()?;
            let now = work();
            if worked || now != before {
                (before, since) = (now, Instant::now());
            } else {
                thread::sleep(QUIET / 10);
            }
        }
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        Ok(self.store.sync()?)
    }

    fn device(&self) -> Option<Arc<dyn Device>> {
        Some(Arc::clone(&self.device))
    }

    fn facts(&self) -> Result<Map<String, Value>> {
        let stats = self.store.stats();
        let mut facts: Map<String, Value> = stats
            .named()
            .into_iter()
            .map(|(name, number)| (name.to_owned(), number.into()))
            .collect();
        let grows = stats.map_dram_bytes + stats.page_index_dram_bytes;
        facts.insert("dram_bytes".to_owned(), grows.into());
        Ok(facts)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.store.close()?)
    }
}
