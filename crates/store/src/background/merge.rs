// SPDX-License-Identifier: Apache-2.0
//! From several generations' maps to one: blocks stay where they are, only their hash lists are
//! read.
//!
//! Card. Idea: a static map must know all its keys when it is built. So blocks get a map of their
//! own first. Maps are merged when enough of about the same size have gathered, as an LSM tree
//! merges runs (O'Neil et al. 1996). Here 19 bytes a key are read and 2 kept in DRAM, and nothing
//! is rewritten. A key is in log4(blocks) builds. Paper A has no counterpart: its Bloom Filter Map
//! takes a block as a further column. A merge works through a few of the 256 shards at a time, so
//! its use of DRAM is bounded.
//!
//! Of each key the newest `keep_versions` blocks are entered, told by time (VERSION-3). A merge of
//! all generations also drops the tombstones of a key of which no block has anything else. From
//! then on the key is simply not there. A tombstone with a value below it stays, even if that value
//! is too old to be kept: without the tombstone, the next rebuild would bring the value back.
//!
//! A merge lasts for seconds, and blocks are compacted away meanwhile. It holds them for a few
//! shards only. Otherwise their space would be missing for as long. For the later shards they are
//! simply gone (VERSION-2). Their elements are in younger generations then, and could need a
//! tombstone. So no tombstone of these shards is dropped. Each merge begins with other shards, so
//! each shard has its turn.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::block::HashEntry;
use crate::core::Core;
use crate::core::state::counters::Counters;
use crate::core::version::{BlockHandle, Generation, Member, Version};
use crate::element::{LARGE, TOMBSTONE};
use crate::hash::SHARDS;
use crate::index::{MapEntry, MapOptions, ShardMap, build};
use crate::{KeyHash, StoreError};

/// Generations of about the same size that are merged.
const FAN_IN: usize = 4;

/// Elements whose hash entries are in memory at a time, about: 90 bytes each, with their map.
const ENTRIES_AT_A_TIME: u64 = 1 << 18;

/// All are merged when so much is not in the largest, which by then is full of what was overwritten
/// or moved.
const WHOLE_SHARE: f64 = 0.33;

/// When nothing else is to do, all are merged from this share on: misses and liveness are better
/// with one map.
const IDLE_SHARE: f64 = 0.02;

/// The result of a merge of some shards.
struct Merged {
    maps: Vec<ShardMap>,
    counts: MemberCounts,
    elements: u64,
}

/// Counts by member of the new generation.
struct MemberCounts {
    live: Vec<u64>,
    /// Dead elements with large values.
    dead_large: Vec<u64>,
}

impl MemberCounts {
    fn new(members: usize) -> MemberCounts {
        MemberCounts {
            live: vec![0; members],
            dead_large: vec![0; members],
        }
    }

    fn add(&mut self, part: &MemberCounts) {
        let live = self.live.iter_mut().zip(&part.live);
        let dead_large = self.dead_large.iter_mut().zip(&part.dead_large);
        live.chain(dead_large).for_each(|(sum, part)| *sum += part);
    }
}

/// A hash entry, and which member it is from.
struct Located {
    key: KeyHash,
    time: u64,
    flags: u8,
    member: u32,
}

impl Core {
    /// The generations that should be one; empty if none should. Any may be merged with any, since
    /// times decide (VERSION-3), so only their sizes count.
    pub fn merge_due(&self, idle: bool) -> Vec<Arc<Generation>> {
        let generations = self.generations();
        let all: u64 = generations
            .iter()
            .map(|generation| generation.elements)
            .sum();
        let largest = generations
            .iter()
            .map(|generation| generation.elements)
            .max();
        let others = all - largest.unwrap_or(0);
        let share = if idle { IDLE_SHARE } else { WHOLE_SHARE };
        if generations.len() >= 2
            && (idle || generations.len() >= FAN_IN)
            && others as f64 > all as f64 * share
        {
            return generations;
        }
        let class = |generation: &Generation| generation.elements.max(1).ilog2() / 2;
        let mut alike = [0; 33];
        for generation in &generations {
            alike[class(generation) as usize] += 1;
        }
        let Some(largest) = alike.iter().rposition(|&alike| alike >= FAN_IN) else {
            return Vec::new();
        };
        let small = |generation: &Arc<Generation>| class(generation) as usize <= largest;
        generations.into_iter().filter(small).collect()
    }

    /// Merges generations; false if there was nothing to do. The caller holds `map_work`.
    pub fn merge(&self, generations: &[Arc<Generation>]) -> Result<bool, StoreError> {
        if generations.is_empty() {
            return Ok(false);
        }
        let version = self.current();
        let ids: Vec<u64> = generations.iter().map(|generation| generation.id).collect();
        let whole = version.shards[0].generations.len() == ids.len();
        let mut members: Vec<(Member, &Arc<BlockHandle>)> = generations
            .iter()
            .flat_map(|generation| &generation.members)
            .filter_map(|&member| Some((member, version.block(member)?)))
            .collect();
        if members.is_empty() {
            // Everything in them was compacted away; there is no map of no block.
            self.forget_generations(&ids);
            return Ok(true);
        }
        members.sort_by_key(|(_, handle)| handle.block.record().max_time);
        let elements: u64 = members
            .iter()
            .map(|(_, handle)| handle.block.record().elements)
            .sum();
        let id = self.manifests.lock().take_generations(1);
        let generation = Arc::new(Generation {
            id,
            members: members.iter().map(|&(member, _)| member).collect(),
            min_time: generations.iter().map(|g| g.min_time).min().unwrap_or(0),
            max_time: generations.iter().map(|g| g.max_time).max().unwrap_or(0),
            elements,
        });
        // The end of the store may cut a merge short. Then shards have other generations than the
        // first one, and a clean close saves them so. So all that this merge covers goes, or it
        // would be kept, and asked, forever.
        let covered: std::collections::HashSet<u64> =
            members.iter().map(|(_, handle)| handle.id()).collect();
        let mut ids = ids;
        for entry in version.shards.iter().flat_map(|shard| &shard.generations) {
            let old = &entry.generation;
            let gone = |&member: &Member| version.block(member).is_none();
            if !ids.contains(&old.id)
                && old
                    .members
                    .iter()
                    .all(|member| covered.contains(&member.id) || gone(member))
            {
                ids.push(old.id);
            }
        }
        let before: Vec<u64> = members.iter().map(|(_, handle)| handle.live()).collect();
        drop(version);
        let members = &generation.members;
        let mut counts = MemberCounts::new(members.len());
        let mut groups = shard_groups(elements);
        let first = id as usize % groups.len();
        groups.rotate_left(first);
        let mut all_there = true;
        for shards in groups {
            if self.requests.stopping() {
                // Shards that are done stay merged; the others keep their old maps.
                return Ok(false);
            }
            let version = self.current();
            let handles: Vec<Option<Arc<BlockHandle>>> = members
                .iter()
                .map(|&member| version.block(member).cloned())
                .collect();
            drop(version);
            all_there &= handles.iter().all(Option::is_some);
            let merged = self.merge_shards(&handles, shards.clone(), whole && all_there)?;
            counts.add(&merged.counts);
            Counters::add(&self.counters.merged_elements, merged.elements);
            self.publish_merge(&ids, &generation, shards, merged.maps);
        }
        if whole {
            let version = self.current();
            for (nth, &member) in members.iter().enumerate() {
                let Some(handle) = version.block(member) else {
                    continue;
                };
                // Of what lost to a block that went away meanwhile, only the count before knows.
                let most = if all_there { u64::MAX } else { before[nth] };
                handle.recount(counts.live[nth].min(most), before[nth]);
                handle.set_dead_large(counts.dead_large[nth]);
            }
        }
        Counters::add(&self.counters.merges, 1);
        Ok(true)
    }

    /// Builds the maps of some shards over `members`, as far as they are there.
    fn merge_shards(
        &self,
        members: &[Option<Arc<BlockHandle>>],
        shards: Range<usize>,
        whole: bool,
    ) -> Result<Merged, StoreError> {
        let mut by_shard: Vec<Vec<Located>> = Vec::new();
        by_shard.resize_with(shards.len(), Vec::new);
        for (nth, handle) in members.iter().enumerate() {
            let Some(handle) = handle else {
                continue;
            };
            let entries = handle.block.hashes(&*self.device, shards.clone())?;
            for HashEntry { key, time, flags } in entries {
                by_shard[key.shard() - shards.start].push(Located {
                    key,
                    time,
                    flags,
                    member: nth as u32,
                });
            }
        }
        let mut merged = Merged {
            maps: Vec::with_capacity(shards.len()),
            counts: MemberCounts::new(members.len()),
            elements: 0,
        };
        let options = MapOptions {
            kind: self.options.index,
            blocks: members.len() as u32,
            fingerprint_bits: self.merged_bits(members.len()),
        };
        for mut located in by_shard {
            merged.elements += located.len() as u64;
            // Of one key the newest first.
            located
                .sort_unstable_by(|one, other| (one.key, other.time).cmp(&(other.key, one.time)));
            let keys = located.chunk_by(|one, other| one.key == other.key);
            let mut entries = Vec::with_capacity(located.len());
            for versions in keys {
                self.enter_key(versions, whole, &mut entries, &mut merged.counts.live);
                for dead in versions.iter().skip(self.options.keep_versions as usize) {
                    let large = u64::from(dead.flags & LARGE != 0);
                    merged.counts.dead_large[dead.member as usize] += large;
                }
            }
            merged.maps.push(build(&entries, &options));
        }
        Ok(merged)
    }

    /// Enters one key's versions, newest first.
    fn enter_key(
        &self,
        versions: &[Located],
        whole: bool,
        entries: &mut Vec<MapEntry>,
        live: &mut [u64],
    ) {
        if whole
            && versions
                .iter()
                .all(|version| version.flags & TOMBSTONE != 0)
        {
            return;
        }
        let mut seen: [u32; 8] = [u32::MAX; 8];
        let mut places = 0;
        for version in versions.iter().take(self.options.keep_versions as usize) {
            live[version.member as usize] += 1;
            let known = seen[..places.min(8)].contains(&version.member);
            if known {
                continue;
            }
            entries.push(self.map_entry(version.key, places as u32, version.member));
            if places < 8 {
                seen[places] = version.member;
            }
            places += 1;
        }
    }

    /// Fingerprint bits of a merged generation: fewer blocks, more bits, since the large ones count
    /// for DRAM and the small ones for misses.
    fn merged_bits(&self, members: usize) -> f32 {
        let all = self.current().blocks().count().max(1);
        let share = members as f32 / all as f32;
        let more = (1.0 / share.clamp(1.0 / 64.0, 1.0)).log2();
        self.options.fingerprint_bits as f32 + more
    }

    /// Puts the new maps of some shards in the place of the old ones.
    fn publish_merge(
        &self,
        old: &[u64],
        generation: &Arc<Generation>,
        shards: Range<usize>,
        maps: Vec<ShardMap>,
    ) {
        self.view.publish(|next| {
            for (shard, map) in shards.zip(maps) {
                let index = Arc::make_mut(&mut next.shards[shard]);
                index
                    .generations
                    .retain(|entry| !old.contains(&entry.generation.id));
                next.add_map(shard, generation, map);
            }
        });
    }

    /// Takes generations without blocks out of all shards.
    fn forget_generations(&self, ids: &[u64]) {
        self.view.publish(|next| {
            for shard in &mut next.shards {
                let index = Arc::make_mut(shard);
                index
                    .generations
                    .retain(|entry| !ids.contains(&entry.generation.id));
            }
        });
    }

    /// Maps of all blocks as one generation, as after a crash: on both cores, from the hash lists.
    pub fn rebuild(
        &self,
        mut members: Vec<(Member, Arc<BlockHandle>)>,
    ) -> Result<Version, StoreError> {
        members.sort_by_key(|(_, handle)| handle.block.record().max_time);
        let records = || members.iter().map(|(_, handle)| handle.block.record());
        let elements: u64 = records().map(|record| record.elements).sum();
        let generation = Arc::new(Generation {
            id: 0,
            members: members.iter().map(|&(member, _)| member).collect(),
            min_time: records().map(|record| record.min_time).min().unwrap_or(0),
            max_time: records().map(|record| record.max_time).max().unwrap_or(0),
            elements,
        });
        let mut version = self.current().next();
        if members.is_empty() {
            return Ok(version);
        }
        let there: Vec<_> = members
            .iter()
            .map(|(_, handle)| Some(Arc::clone(handle)))
            .collect();
        let groups = shard_groups(elements);
        // A store whose maps are one group of shards is built by this thread.
        let threads = match groups.len() {
            1 => 1,
            most => std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(most.min(8)),
        };
        let next = std::sync::atomic::AtomicUsize::new(0);
        let results: Vec<Result<HashMap<usize, Merged>, StoreError>> =
            std::thread::scope(|scope| {
                let work = || {
                    let mut done = HashMap::new();
                    loop {
                        let nth = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(shards) = groups.get(nth) else {
                            return Ok(done);
                        };
                        done.insert(nth, self.merge_shards(&there, shards.clone(), true)?);
                    }
                };
                let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
                let mine = std::iter::once(work());
                let joined = others
                    .into_iter()
                    .map(|thread| thread.join().expect("a build does not panic"));
                mine.chain(joined).collect()
            });
        let mut counts = MemberCounts::new(members.len());
        for done in results {
            for (nth, merged) in done? {
                counts.add(&merged.counts);
                for (shard, map) in groups[nth].clone().zip(merged.maps) {
                    version.add_map(shard, &generation, map);
                }
            }
        }
        for (nth, (_, handle)) in members.iter().enumerate() {
            handle.set_live(counts.live[nth]);
            handle.set_dead_large(counts.dead_large[nth]);
        }
        Ok(version)
    }
}

/// The shards in runs of which each has about [`ENTRIES_AT_A_TIME`] elements.
fn shard_groups(elements: u64) -> Vec<Range<usize>> {
    let groups = elements.div_ceil(ENTRIES_AT_A_TIME).clamp(1, SHARDS as u64) as usize;
    let size = SHARDS.div_ceil(groups);
    (0..SHARDS)
        .step_by(size)
        .map(|first| first..(first + size).min(SHARDS))
        .collect()
}
