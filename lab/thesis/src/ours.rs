// SPDX-License-Identifier: Apache-2.0
//! The store's own sorted blocks (`senko_store::block`) behind the same trait, so that they are
//! measured like the thesis's.
//!
//! Compared with the thesis's blocks they also have a checksum in each page, a time in each
//! element, and a hash list in their head. Their page index in DRAM takes about a byte a page, and
//! one read suffices.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use senko_io::{Device, Engine, Purpose, Tag};
use senko_store::block::{Block, BlockWriter, bytes_expected};
use senko_store::element::Element;
use senko_store::index::{BlockMap, Candidates, IndexKind, MapEntry, MapOptions, ShardMap, build};
use senko_store::{Extent, KeyHash, SHARDS};
use senko_workload::fill_value;

use crate::{BlockIndex, Built, Geometry, Keys, Layout, Place, Reader, Wanted};

const TAG: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Admit,
};
/// Every version of a key is older.
const NOW: u64 = u64::MAX;

#[derive(Clone)]
pub struct StoreBlocks {
    name: &'static str,
    blocks: Arc<Vec<Block>>,
}

/// Sorts each block in memory and writes it once.
pub fn write(
    device: &dyn Device,
    keys: &Keys,
    geometry: &Geometry,
) -> Result<(StoreBlocks, Built)> {
    let start = Instant::now();
    let mut blocks = Vec::new();
    let mut value = vec![0; geometry.value_bytes];
    let mut sorted: Vec<(KeyHash, [u8; 8], u64)> = Vec::new();
    let mut first = 0;
    for number in 0..geometry.blocks() {
        sorted.clear();
        let members = geometry.members(number);
        sorted.extend(members.map(|element| {
            let wanted = keys.wanted(element);
            (wanted.hash, wanted.key, element)
        }));
        sorted.sort_unstable();
        let encoded = sorted.len() as u64 * (geometry.value_bytes as u64 + 8 + 16);
        let bytes = bytes_expected(sorted.len() as u64, encoded, geometry.page_bytes);
        let room = (bytes / senko_io::PAGE_SIZE as u64).min(device.pages() - first);
        let extent = Extent {
            first,
            pages: u32::try_from(room).context("a block has fewer than 2^32 pages")?,
        };
        let id = u64::from(number) + 1;
        let mut writer = BlockWriter::new(device, extent, id, geometry.page_bytes, TAG, bytes);
        for (hash, key, element) in &sorted {
            fill_value(&mut value, *element, 0);
            let taken = writer.push(
                *hash,
                &Element {
                    flags: 0,
                    key,
                    value: &value,
                    time: element + 1,
                    expiry: 0,
                },
            )?;
            ensure!(taken, "the flash file has no room for a block of the store");
        }
        let (record, block) = writer.finish()?;
        first = record.extent.end();
        blocks.push(block);
    }
    device
        .flush(TAG)
        .context("the flash file cannot be flushed")?;
    let built = Built {
        seconds: start.elapsed().as_secs_f64(),
        written: first * senko_io::PAGE_SIZE as u64,
    };
    let blocks = StoreBlocks {
        name: "store_bloom",
        blocks: Arc::new(blocks),
    };
    Ok((blocks, built))
}

impl StoreBlocks {
    /// The same blocks under another name, for results with another map over blocks.
    #[must_use]
    pub fn named(self, name: &'static str) -> StoreBlocks {
        StoreBlocks { name, ..self }
    }
}

impl Layout for StoreBlocks {
    fn name(&self) -> &'static str {
        self.name
    }

    fn look(&self, block: u32, wanted: &Wanted, reader: &mut Reader<'_>) -> Result<Place> {
        let block = &self.blocks[block as usize];
        let run = block.find(wanted.hash);
        if run.is_empty() {
            return Ok(None);
        }
        let bytes = reader.run(run.page, run.bytes())?;
        let Some(found) = block.search(run, bytes, wanted.hash, &wanted.key, NOW)? else {
            return Ok(None);
        };
        let Cow::Borrowed(value) = found.value else {
            bail!("an element of the experiment is longer than a page");
        };
        let start = value.as_ptr().addr() - bytes.as_ptr().addr();
        Ok(Some(start..start + value.len()))
    }

    fn dram_bytes(&self) -> u64 {
        let blocks = self.blocks.iter();
        blocks.map(|block| block.bytes_in_dram() as u64).sum()
    }
}

/// The store's better map over blocks, a map a shard.
pub struct StaticIndex(Vec<ShardMap>);

impl StaticIndex {
    /// Over the blocks of `geometry`, with `fingerprint_bits` an element beside the block's number.
    pub fn build(keys: &Keys, geometry: &Geometry, fingerprint_bits: f32) -> StaticIndex {
        let mut shards: Vec<Vec<MapEntry>> = (0..SHARDS).map(|_| Vec::new()).collect();
        for block in 0..geometry.blocks() {
            for number in geometry.members(block) {
                let key = keys.wanted(number).hash;
                shards[key.shard()].push(MapEntry { key, block });
            }
        }
        let options = MapOptions {
            kind: IndexKind::Static,
            blocks: geometry.blocks(),
            fingerprint_bits,
        };
        let maps = shards.iter_mut().map(|entries| {
            entries.sort_unstable_by_key(|entry| entry.key.order);
            build(&std::mem::take(entries), &options)
        });
        StaticIndex(maps.collect())
    }
}

impl BlockIndex for StaticIndex {
    fn candidates(&self, wanted: &Wanted, out: &mut Candidates) {
        self.0[wanted.hash.shard()].candidates(wanted.hash, out);
    }

    fn dram_bytes(&self) -> u64 {
        self.0.iter().map(|map| map.bytes() as u64).sum()
    }
}
