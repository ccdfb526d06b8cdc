// SPDX-License-Identifier: Apache-2.0
//! From a log to sorted blocks: each element that is still wanted is written once more, and never
//! again unless compaction moves it.
//!
//! The oldest frozen log is sealed first. Its elements come sorted. The newest `keep_versions` of
//! each key go into the block. Then one step swaps the log for the block (CHANGE-1). A snapshot
//! that needs an older version still holds the log.

use std::collections::HashMap;
use std::sync::Arc;

use senko_io::{Purpose, Tag};

use crate::block::{Block, BlockRecord, BlockWriter, bytes_expected, bytes_needed};
use crate::cache::record_cache::RecordCache;
use crate::core::Core;
use crate::core::change::Change;
use crate::core::state::counters::Counters;
use crate::core::version::{BlockHandle, LogHandle, Member, Version};
use crate::disk::space::Held;
use crate::element::Element;
use crate::hash::SHARDS;
use crate::index::{BlockMap, Candidates, IndexKind, MapEntry, MapOptions, ShardMap, build};
use crate::{KeyHash, StoreError};

/// Additional fingerprint bits in a generation of few blocks. It is small, and asked before the
/// large ones.
const YOUNG_BITS: f32 = 6.0;

/// Blocks being written, one after the other, and the entries of their maps.
pub(crate) struct Output<'c> {
    core: &'c Core,
    tag: Tag,
    /// The current block.
    open: Option<(BlockWriter<'c>, Held)>,
    /// The most elements and encoded bytes still to come.
    elements_left: u64,
    bytes_left: u64,
    finished: Vec<(Block, Held)>,
    /// One list for each shard; `block` counts the finished blocks.
    entries: Vec<Vec<MapEntry>>,
    /// The last key's hash and the number of its versions in the output so far. Each version gets
    /// its own place in the map.
    last: Option<(KeyHash, u32, u32)>,
    keep_versions: u32,
    pub elements: u64,
    pub bytes: u64,
}

impl<'c> Output<'c> {
    /// A writer for at most `elements` elements of `bytes` bytes.
    pub fn new(core: &'c Core, purpose: Purpose, elements: u64, bytes: u64) -> Output<'c> {
        Output {
            core,
            tag: Tag::store(purpose),
            open: None,
            elements_left: elements,
            bytes_left: bytes,
            finished: Vec::new(),
            entries: vec![Vec::new(); SHARDS],
            last: None,
            keep_versions: core.options.keep_versions,
            elements: 0,
            bytes: 0,
        }
    }

    /// Adds the next element, in the order of blocks.
    pub fn push(&mut self, hash: KeyHash, element: &Element<'_>) -> Result<(), StoreError> {
        loop {
            if self.open.is_none() {
                self.open_block(element.encoded_len() as u64)?;
            }
            let Some((writer, _)) = &mut self.open else {
                continue;
            };
            if writer
                .push(hash, element)
                .map_err(|error| self.core.failed(error))?
            {
                break;
            }
            if writer.elements() == 0 {
                let bytes = element.encoded_len();
                return Err(StoreError::Invalid(format!(
                    "an element of {bytes} bytes does not fit into a block"
                )));
            }
            self.finish_block()?;
        }
        self.elements += 1;
        let bytes = element.encoded_len() as u64;
        self.bytes += bytes;
        self.elements_left = self.elements_left.saturating_sub(1);
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        self.enter(hash);
        Ok(())
    }

    /// As [`Output::push`], without the value of an element that has expired at this second.
    pub fn push_at(
        &mut self,
        now: u64,
        hash: KeyHash,
        element: &Element<'_>,
    ) -> Result<(), StoreError> {
        match element.expired(now) {
            true => self.push(hash, &element.ended()),
            false => self.push(hash, element),
        }
    }

    /// Adds the element to the map's entries: one entry for each key and block, the newest block
    /// first.
    fn enter(&mut self, hash: KeyHash) {
        let block = self.finished.len() as u32;
        let nth = match self.last {
            Some((last, nth, last_block)) if last == hash => {
                if last_block == block {
                    return;
                }
                nth + 1
            }
            _ => 0,
        };
        self.last = Some((hash, nth, block));
        if nth < self.keep_versions {
            self.entries[hash.shard()].push(self.core.map_entry(hash, nth, block));
        }
    }

    fn open_block(&mut self, least: u64) -> Result<(), StoreError> {
        self.core.health.check_writable()?;
        let options = &self.core.options;
        let expected = bytes_expected(
            self.elements_left.max(1),
            self.bytes_left.max(least),
            options.page_bytes,
        );
        // A log's elements take a little more space in blocks than in the log. Up to a quarter more
        // than a block still becomes one block.
        let most = options.block_bytes + options.block_bytes / 4;
        let least = bytes_needed(1, least, options.page_bytes);
        let held = self
            .core
            .allocate_between(expected.min(most).max(least), least)?;
        let writer = BlockWriter::new(
            &*self.core.device,
            held.extent(),
            self.core.next_id(),
            options.page_bytes,
            self.tag,
            held.extent().bytes(),
        );
        self.open = Some((writer, held));
        Ok(())
    }

    fn finish_block(&mut self) -> Result<(), StoreError> {
        let Some((writer, mut held)) = self.open.take() else {
            return Ok(());
        };
        let (record, block) = writer.finish().map_err(|error| self.core.failed(error))?;
        // In whole parts; a block of full size has 128. So a new block often fits into the space of
        // an old one.
        let kept = record
            .extent
            .bytes()
            .next_multiple_of(self.core.block_part());
        self.core.space.shorten(&mut held, kept);
        self.finished.push((block, held));
        Ok(())
    }

    /// Ends the last block, makes all blocks durable, and returns them with their maps.
    pub fn finish(mut self) -> Result<Sealed, StoreError> {
        self.finish_block()?;
        let blocks = self.finished.len() as u32;
        if blocks > 0 {
            self.core
                .device
                .flush(self.tag)
                .map_err(StoreError::io("flushing a block"))
                .map_err(|error| self.core.failed(error))?;
        }
        let options = MapOptions {
            kind: self.core.options.index,
            blocks,
            fingerprint_bits: self.core.options.fingerprint_bits as f32 + YOUNG_BITS,
        };
        let maps = if blocks == 0 {
            Vec::new()
        } else {
            self.entries
                .iter()
                .map(|entries| build(entries, &options))
                .collect()
        };
        Ok(Sealed {
            blocks: self.finished,
            maps,
            elements: self.elements,
        })
    }
}

/// Blocks that are written and durable, but in no version yet.
pub(crate) struct Sealed {
    pub blocks: Vec<(Block, Held)>,
    pub maps: Vec<ShardMap>,
    pub elements: u64,
}

impl Sealed {
    /// The change that adds the blocks. `sealed_logs` and `removed` are not set.
    pub fn change(
        self,
        core: &Core,
        sealed_logs: Vec<u64>,
        removed: Vec<Member>,
    ) -> Result<Change, StoreError> {
        let mut added = Vec::with_capacity(self.blocks.len());
        let (mut min_time, mut max_time) = (u64::MAX, 0);
        for (block, held) in self.blocks {
            let record: &BlockRecord = block.record();
            min_time = min_time.min(record.min_time);
            max_time = max_time.max(record.max_time);
            let live = record.elements;
            let large = core.large.holders(&core.space, block.large())?;
            added.push(Arc::new(BlockHandle::new(block, held, large, live)));
        }
        Ok(Change {
            sealed_logs,
            removed,
            added,
            maps: self.maps,
            min_time,
            max_time,
            elements: self.elements,
        })
    }
}

/// Counts the versions of each key in a sorted stream.
#[derive(Default)]
pub(crate) struct Versions {
    hash: Option<KeyHash>,
    key: Vec<u8>,
    count: u32,
}

impl Versions {
    /// The number of this element among its key's versions; the newest has number 0.
    pub fn next(&mut self, hash: KeyHash, key: &[u8]) -> u32 {
        if self.hash == Some(hash) && self.key == key {
            self.count += 1;
        } else {
            self.hash = Some(hash);
            self.key.clear();
            self.key.extend_from_slice(key);
            self.count = 0;
        }
        self.count
    }
}

impl Core {
    /// The entry of a key's `nth` block in a map. A Bloom Filter Map can name several blocks for
    /// one key. A static map is asked for each version separately.
    pub fn map_entry(&self, hash: KeyHash, nth: u32, block: u32) -> MapEntry {
        let key = match self.options.index {
            IndexKind::Static => hash.nth(nth),
            IndexKind::BloomMap => hash,
        };
        MapEntry { key, block }
    }

    /// Seals the oldest frozen log; false if there is none. The caller holds `block_work`.
    pub fn seal_one(&self) -> Result<bool, StoreError> {
        self.health.check_writable()?;
        let version = self.current();
        if version.logs.len() < 2 {
            return Ok(false);
        }
        let Some(handle) = version.logs.last() else {
            return Ok(false);
        };
        let paced = handle.log.bytes_used();
        self.seal(&version, handle)?;
        self.pace.sealed(paced);
        Ok(true)
    }

    /// Seals a log that takes nothing more, which is the oldest. The caller holds `block_work`.
    pub fn seal(&self, version: &Version, handle: &Arc<LogHandle>) -> Result<(), StoreError> {
        self.health.check_writable()?;
        // The log's last bytes may still be in memory.
        handle
            .log
            .commit(handle.log.end(), crate::Durability::Buffered)
            .map_err(|error| self.failed(error))?;
        let now = self.options.clock.seconds();
        let log = &handle.log;
        let mut output = Output::new(self, Purpose::Admit, log.elements(), log.bytes_used());
        let mut versions = Versions::default();
        let mut overwritten = Overwritten::default();
        let sorted = log.sorted()?;
        let mut kept = self.cache.as_ref().map(RecordCache::seal);
        for (hash, element) in sorted.iter() {
            let nth = versions.next(hash, element.key);
            if nth >= self.options.keep_versions {
                continue;
            }
            if nth == 0 {
                overwritten.count(version, hash);
                if let Some(kept) = &mut kept {
                    kept.key(hash, element.time);
                }
            }
            output.push_at(now, hash, &element)?;
        }
        drop(sorted);
        if let Some(kept) = kept {
            kept.done();
        }
        let elements = output.elements;
        let change = output.finish()?.change(self, vec![log.id()], Vec::new())?;
        self.replace_blocks(change)?;
        overwritten.enter();
        Counters::add(&self.counters.seals, 1);
        Counters::add(&self.counters.sealed_elements, elements);
        Ok(())
    }
}

/// Counts for each block the elements that newer ones replace, as far as the maps know.
#[derive(Default)]
struct Overwritten {
    candidates: Candidates,
    dead: HashMap<u64, (Arc<BlockHandle>, u64)>,
}

impl Overwritten {
    /// Subtracts the counts after the newer elements are in blocks, because a failed seal is
    /// repeated.
    fn enter(self) {
        for (handle, dead) in self.dead.into_values() {
            handle.some_dead(dead);
        }
    }

    fn count(&mut self, version: &Version, hash: KeyHash) {
        for entry in &version.shards[hash.shard()].generations {
            self.candidates.clear();
            entry.map.candidates(hash, &mut self.candidates);
            if self.candidates.is_empty() {
                continue;
            }
            let member = entry.generation.members.get(self.candidates[0] as usize);
            if let Some(handle) = member.and_then(|&member| version.block(member)) {
                let dead = self.dead.entry(handle.id());
                dead.or_insert_with(|| (Arc::clone(handle), 0)).1 += 1;
                return;
            }
        }
    }
}
