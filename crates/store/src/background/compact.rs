// SPDX-License-Identifier: Apache-2.0
//! Compaction: live elements of the emptiest blocks move into new ones, and the space of the old
//! ones is freed.
//!
//! Card. Idea: greedy victim choice as in log-structured storage (Rosenblum and Ousterhout 1992); a
//! victim's elements are judged by its hash list and the maps, before any data is read. Paper A
//! proposes the removal of old versions "at the sort" (11.2); Senko removes them there too, and
//! here.
//!
//! Whether an element is alive:
//! - The map of its own generation was built over all elements of the generation, newest first. If
//!   it leads to another block, that block has a newer version.
//! - A map of another generation may lead to a block with later elements. Then that block's page is
//!   read and the keys are compared, because a map only guesses for keys that are not its members.
//!   Such reads go in batches.
//! - It does not look at elements in logs: at worst, it moves an element that will die soon.
//!
//! An element that is kept though it is dead costs only its move, since times decide (VERSION-3).

use std::cmp::Reverse;
use std::sync::Arc;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, ReadRequest, Tag};

use crate::background::seal::Output;
use crate::block::{BlockScan, HashEntry};
use crate::core::Core;
use crate::core::state::counters::Counters;
use crate::core::version::{BlockHandle, Generation, Member, ShardIndex, Version};
use crate::extent::UNIT_BYTES;
use crate::hash::SHARDS;
use crate::index::{BlockMap, Candidates};
use crate::{KeyHash, StoreError};

const RECLAIM: Tag = Tag::store(Purpose::Reclaim);

/// Blocks that are compacted at a time, at most.
const MAX_VICTIMS: usize = 16;

/// Blocks that are fuller than this are not worth a compaction.
const FULL: f64 = 0.98;

/// Small blocks are joined when this many have gathered.
const SMALL_BLOCKS: usize = 8;

/// Bytes that are read ahead from each victim.
const READ_AHEAD: usize = 512 << 10;

/// Shards whose hash entries are judged at a time.
const SHARDS_AT_A_TIME: usize = 16;

/// Pages of other blocks that are read at a time to compare keys.
const CHECKS_AT_A_TIME: usize = 256;

/// The share of the file that may be free, in pieces too short for a block.
const IN_PIECES: f64 = 1.0 / crate::disk::space::PIECES as f64;

/// A block to compact.
pub(crate) type Victim = (Member, Arc<BlockHandle>);

/// Why blocks are compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The bytes in use are above the bound.
    Space,
    /// Many small blocks.
    Small,
    /// The caller asked for it.
    Asked,
}

/// The space of all blocks, and the live part of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub blocks: u64,
    pub live: f64,
    pub logs: u64,
}

impl Usage {
    /// The bytes by which the blocks exceed what `ratio` allows for all space in use; negative
    /// below. The logs, a block that is being written, and free pieces between extents count
    /// against that allowance. In a small store these alone may exceed it. Then the blocks are
    /// allowed half of it all the same.
    pub fn excess(&self, ratio: f64, block_bytes: u64) -> f64 {
        let block = block_bytes as f64;
        let beside = self.logs as f64 + 1.25 * block;
        let whole = self.live * ratio * (1.0 - IN_PIECES) - beside;
        let least = self.live * (1.0 + (ratio - 1.0) / 2.0) + block / 2.0;
        self.blocks as f64 - whole.max(least)
    }

    /// When the excess reaches this many bytes, writers stop. Below that they are slowed down.
    pub fn slack(&self, block_bytes: u64) -> f64 {
        (self.live * 0.03).max(3.0 * block_bytes as f64)
    }
}

impl Core {
    /// The bytes in use.
    pub fn usage(&self, version: &Version) -> Usage {
        let mut usage = Usage::default();
        for (_, handle) in version.blocks() {
            let bytes = handle.bytes();
            usage.blocks += bytes;
            usage.live += bytes as f64 * handle.live_share().min(1.0);
        }
        usage.logs = version
            .logs
            .iter()
            .map(|handle| handle.held.extent().bytes())
            .sum();
        usage
    }

    /// The blocks to compact now, with the reason; none if there is no need.
    pub fn victims(&self, version: &Version, asked: bool) -> (Vec<Victim>, Reason) {
        let mut blocks: Vec<Victim> = version
            .blocks()
            .map(|(member, handle)| (member, Arc::clone(handle)))
            .collect();
        let block_bytes = self.options.block_bytes;
        let over = self
            .usage(version)
            .excess(self.options.space_ratio, block_bytes)
            > 0.0;
        if over || asked {
            // Counts change meanwhile, so each is read only once. Shares are not negative, so the
            // order of their bits is their order.
            blocks.sort_by_cached_key(|(_, handle)| handle.live_share().to_bits());
            let limit = if asked { 0.9999 } else { FULL };
            // If there is little space, little is moved at a time.
            let most = (self.space.left(2 * block_bytes) / 2) as f64;
            let mut live = 0.0;
            let mut chosen = Vec::new();
            for (member, handle) in blocks.iter().take(MAX_VICTIMS) {
                if handle.live_share() > limit {
                    break;
                }
                live += handle.held.extent().bytes() as f64 * handle.live_elements_share();
                if !chosen.is_empty() && live > most {
                    break;
                }
                chosen.push((*member, Arc::clone(handle)));
            }
            if !chosen.is_empty() {
                let reason = if asked { Reason::Asked } else { Reason::Space };
                return (chosen, reason);
            }
        }
        blocks.retain(|(_, handle)| handle.held.extent().bytes() < block_bytes / 4);
        if blocks.len() >= SMALL_BLOCKS {
            blocks.sort_by_key(|(_, handle)| handle.held.extent().bytes());
            blocks.truncate(MAX_VICTIMS);
            // Takes only as many victims as there is space for. A victim alone would be written
            // again as the same block, forever.
            let bytes = blocks
                .iter()
                .map(|(_, handle)| handle.held.extent().bytes());
            let mut left = self.space.left(bytes.sum());
            blocks.retain(|(_, handle)| {
                let bytes = handle.held.extent().bytes();
                let fits = bytes <= left;
                left = left.saturating_sub(bytes);
                fits
            });
            if blocks.len() >= SMALL_BLOCKS {
                return (blocks, Reason::Small);
            }
        }
        (Vec::new(), Reason::Asked)
    }

    /// Sets of blocks to compact for space, to be tried in turn until one frees some. The first set
    /// has the blocks that waste the most, as many as fit. Smaller sets of them follow, since the
    /// estimate of what lives may be wrong. Then each block comes alone, the longest first
    /// (ROOM-3). None if all that would free nothing, as far as the store knows.
    ///
    /// `thorough`: also each block with a dead element, however little that may be.
    pub fn wasteful(&self, version: &Version, thorough: bool) -> Vec<Vec<Victim>> {
        let part = self.block_part() as f64;
        let waste = |handle: &BlockHandle| {
            let record = handle.block.record();
            let pages = f64::from(record.data_pages) * f64::from(record.page_bytes)
                + f64::from(record.head_pages) * PAGE_SIZE as f64;
            let live = pages * handle.live_elements_share();
            let dead_large = handle.bytes() as f64 * (1.0 - handle.live_share());
            let own = handle.held.extent().bytes() as f64;
            (live, (own - live).max(dead_large))
        };
        let mut blocks: Vec<(Victim, (f64, f64))> = version
            .blocks()
            .map(|(member, handle)| ((member, Arc::clone(handle)), waste(handle)))
            .collect();
        let share = |(live, waste): (f64, f64)| waste / (live + waste).max(1.0);
        blocks.sort_by(|one, other| share(other.1).total_cmp(&share(one.1)));
        let most = self.space.stored_bytes();
        let most = self.space.left_in_file(most, self.longest()) as f64;
        let (mut taken, mut freed) = (0.0, 0.0);
        let mut chosen = Vec::new();
        for (victim, (live, waste)) in blocks.iter().take(MAX_VICTIMS) {
            if !chosen.is_empty() && taken + live + part > most {
                break;
            }
            taken += live;
            freed += waste;
            chosen.push(victim.clone());
        }
        let mut sets = Vec::new();
        // The last block ends within a part.
        if freed >= part + UNIT_BYTES as f64 / 8.0 || taken == 0.0 {
            let mut size = chosen.len();
            while size > 0 {
                sets.push(chosen[..size].to_vec());
                size /= 2;
            }
        }
        let worth = part.max(self.options.block_bytes as f64 / 16.0);
        blocks.retain(|((_, handle), (_, waste))| {
            // Of elements of different lengths the longest may be the dead ones.
            let dead = handle.block.record().elements.saturating_sub(handle.live());
            let dead_bytes = dead as f64 * self.longest() as f64;
            *waste >= part || dead_bytes >= worth || thorough && dead > 0
        });
        let bytes = |((_, handle), _): &(Victim, _)| handle.held.extent().bytes();
        blocks.sort_by_key(|block| Reverse(bytes(block)));
        sets.extend(blocks.into_iter().map(|(victim, _)| vec![victim]));
        sets
    }

    /// Moves what is alive in `victims`; returns the bytes written. The caller holds `block_work`.
    pub fn compact(&self, version: &Version, victims: &[Victim]) -> Result<u64, StoreError> {
        let mut alive = Vec::with_capacity(victims.len());
        for (member, handle) in victims {
            alive.push(self.alive(version, *member, handle)?);
        }
        let elements: u64 = victims
            .iter()
            .zip(&alive)
            .map(|(_, alive)| alive.iter().filter(|&&alive| alive).count() as u64)
            .sum();
        // Assumes that all elements have the same size. If a block is too small for them, another
        // one follows.
        let bytes: u64 = victims
            .iter()
            .zip(&alive)
            .map(|((_, handle), alive)| {
                let record = handle.block.record();
                let bytes = u64::from(record.data_pages) * u64::from(record.page_bytes);
                let living = alive.iter().filter(|&&alive| alive).count() as u64;
                bytes * living / (alive.len() as u64).max(1)
            })
            .sum();
        let now = self.options.clock.seconds();
        let mut output = Output::new(self, Purpose::Reinsert, elements, bytes);
        let mut sources = Vec::with_capacity(victims.len());
        for ((_, handle), alive) in victims.iter().zip(alive) {
            let scan = BlockScan::new(
                &*self.device,
                handle.block.record(),
                self.hasher.clone(),
                READ_AHEAD,
                RECLAIM,
            );
            sources.push(Source::start(scan, alive)?);
        }
        // There are only a few sources, so a search through all is as fast as a heap.
        while let Some(first) = first_source(&sources) {
            if let Some((hash, element)) = sources[first].scan.current() {
                output.push_at(now, hash, &element)?;
            }
            sources[first].next()?;
        }
        let dropped: u64 = sources.iter().map(|source| source.dropped).sum();
        let (moved, written) = (output.elements, output.bytes);
        let removed = victims.iter().map(|(member, _)| *member).collect();
        drop(sources);
        let change = output.finish()?.change(self, Vec::new(), removed)?;
        self.replace_blocks(change)?;
        Counters::add(&self.counters.compactions, 1);
        Counters::add(&self.counters.compacted_elements, moved);
        Counters::add(&self.counters.dropped_elements, dropped);
        Ok(written)
    }

    /// For each element of a block, in order: whether it is alive.
    fn alive(
        &self,
        version: &Version,
        member: Member,
        handle: &BlockHandle,
    ) -> Result<Vec<bool>, StoreError> {
        let mut alive = Vec::with_capacity(handle.block.record().elements as usize);
        let mut checks = Vec::new();
        let mut judge = Judge {
            version,
            member,
            keep_versions: self.options.keep_versions,
            candidates: Candidates::default(),
            own: Vec::new(),
        };
        for first in (0..SHARDS).step_by(SHARDS_AT_A_TIME) {
            let entries = handle
                .block
                .hashes(&*self.device, first..first + SHARDS_AT_A_TIME)?;
            let mut before: Option<(KeyHash, u32)> = None;
            for entry in entries {
                let rank = match before {
                    Some((key, rank)) if key == entry.key => rank + 1,
                    _ => 0,
                };
                before = Some((entry.key, rank));
                let verdict = judge.verdict(&entry, rank, &mut checks, alive.len());
                alive.push(verdict);
            }
            if checks.len() >= CHECKS_AT_A_TIME {
                self.compare(&mut checks, &mut alive)?;
            }
        }
        self.compare(&mut checks, &mut alive)?;
        Ok(alive)
    }

    /// Reads the pages of other blocks that may have a newer element, and marks an element as dead
    /// if they do.
    fn compare(&self, checks: &mut Vec<Check>, alive: &mut [bool]) -> Result<(), StoreError> {
        for batch in checks.chunks(CHECKS_AT_A_TIME) {
            let mut buffers: Vec<AlignedBuf> = batch
                .iter()
                .map(|check| {
                    AlignedBuf::new(check.other.block.find(check.entry.key).pages as usize)
                })
                .collect();
            let mut requests: Vec<ReadRequest<'_>> = batch
                .iter()
                .zip(&mut buffers)
                .map(|(check, buffer)| {
                    let run = check.other.block.find(check.entry.key);
                    let bytes = run.pages as usize * PAGE_SIZE;
                    ReadRequest::new(run.page, &mut buffer[..bytes])
                })
                .collect();
            self.device
                .read_batch(&mut requests, RECLAIM)
                .map_err(StoreError::io("reading pages to compact"))?;
            drop(requests);
            for (check, buffer) in batch.iter().zip(&buffers) {
                let run = check.other.block.find(check.entry.key);
                // Two keys with equal 96 bits are taken for the same key (see `hash.rs`).
                let newest =
                    check
                        .other
                        .block
                        .newest_of_hash(run, buffer, check.entry.key, &self.hasher)?;
                if newest.is_some_and(|time| time > check.entry.time) {
                    alive[check.at] = false;
                }
            }
        }
        checks.clear();
        Ok(())
    }
}

/// An element that is dead if another block has a newer version of it.
struct Check {
    entry: HashEntry,
    at: usize,
    other: Arc<BlockHandle>,
}

/// Judges the elements of one block by the maps.
struct Judge<'v> {
    version: &'v Version,
    member: Member,
    keep_versions: u32,
    candidates: Candidates,
    /// Generations by number, each with whether the block is a member.
    own: Vec<(u64, bool)>,
}

impl Judge<'_> {
    fn is_own(&mut self, generation: &Generation) -> bool {
        if let Some(&(_, own)) = self.own.iter().find(|(id, _)| *id == generation.id) {
            return own;
        }
        let own = generation.members.contains(&self.member);
        self.own.push((generation.id, own));
        own
    }

    /// Whether the element is alive as far as the maps say; a candidate that may be a guess is
    /// added to `checks`. `rank` counts the key's newer versions in this block.
    fn verdict(
        &mut self,
        entry: &HashEntry,
        rank: u32,
        checks: &mut Vec<Check>,
        at: usize,
    ) -> bool {
        if rank >= self.keep_versions {
            return false;
        }
        let shard: &ShardIndex = &self.version.shards[entry.key.shard()];
        for generation in &shard.generations {
            let members = &generation.generation.members;
            let own = self.is_own(&generation.generation);
            // A map leads to each of its members' elements. So an element that it does not lead to
            // is dead, whatever else the map guesses.
            if own && !self.own_map_leads_here(entry, rank, generation) {
                return false;
            }
            if own && generation.map.exact_for_members() {
                continue;
            }
            if self.keep_versions > 1 || generation.generation.max_time <= entry.time {
                continue;
            }
            self.candidates.clear();
            generation.map.candidates(entry.key, &mut self.candidates);
            for nth in 0..self.candidates.len() {
                let Some(&member) = members.get(self.candidates[nth] as usize) else {
                    continue;
                };
                let Some(other) = self.version.block(member) else {
                    continue;
                };
                if member != self.member && other.block.record().max_time > entry.time {
                    checks.push(Check {
                        entry: *entry,
                        at,
                        other: Arc::clone(other),
                    });
                }
            }
        }
        true
    }

    /// Whether the generation's map leads from the key to this block, as one of the newest blocks
    /// of the key.
    fn own_map_leads_here(
        &mut self,
        entry: &HashEntry,
        rank: u32,
        generation: &crate::core::version::ShardGeneration,
    ) -> bool {
        let members = &generation.generation.members;
        (0..self.keep_versions - rank).any(|nth| {
            self.candidates.clear();
            generation
                .map
                .candidates(entry.key.nth(nth), &mut self.candidates);
            (0..self.candidates.len()).any(|candidate| {
                let ordinal = self.candidates[candidate] as usize;
                members.get(ordinal) == Some(&self.member)
            })
        })
    }
}

/// A victim's live elements, in order.
struct Source<'s> {
    scan: BlockScan<&'s dyn Device>,
    alive: std::vec::IntoIter<bool>,
    /// Of the current element; `None` at the end.
    hash: Option<KeyHash>,
    dropped: u64,
}

impl<'s> Source<'s> {
    fn start(scan: BlockScan<&'s dyn Device>, alive: Vec<bool>) -> Result<Source<'s>, StoreError> {
        let mut source = Source {
            scan,
            alive: alive.into_iter(),
            hash: None,
            dropped: 0,
        };
        source.next()?;
        Ok(source)
    }

    fn next(&mut self) -> Result<(), StoreError> {
        loop {
            self.hash = self.scan.advance()?;
            if self.hash.is_none() || self.alive.next().unwrap_or(true) {
                return Ok(());
            }
            self.dropped += 1;
        }
    }

    /// The order of elements with equal hashes.
    fn rank(&self) -> Option<(&[u8], Reverse<u64>)> {
        let (_, element) = self.scan.current()?;
        Some((element.key, Reverse(element.time)))
    }
}

/// The source with the smallest element, if any source has an element left.
fn first_source(sources: &[Source<'_>]) -> Option<usize> {
    let left = (0..sources.len()).filter(|&nth| sources[nth].hash.is_some());
    left.min_by(|&one, &other| {
        let (one, other) = (&sources[one], &sources[other]);
        let hashes = one.hash.cmp(&other.hash);
        hashes.then_with(|| one.rank().cmp(&other.rank()))
    })
}
