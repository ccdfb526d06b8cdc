// SPDX-License-Identifier: Apache-2.0
//! One state of the store as readers see it: logs, blocks, and the maps that lead to the blocks.
//!
//! A [`Version`] never changes; a change makes the next one and swaps it in. A reader loads the
//! current version without waiting. Everything that the version reaches stays until the reader
//! releases it, since blocks and logs hold their extents.
//!
//! ```text
//! Version -- logs, youngest first -------------------------------> Log (exact index)
//!         -- shards[256] -- generations, youngest first -- map --> member of the generation
//!         -- slots[member.slot] ---------------------------------> Block (page index)
//! ```
//!
//! Always holds:
//! - VERSION-1: each live version of a key is in a log or in a block of this `Version`. If it is in
//!   a block, the map of that block's generation in the key's shard leads to it.
//! - VERSION-2: if a member's slot is empty or holds another block, the member was compacted away,
//!   and its live elements are in a younger generation.
//! - VERSION-3: only the times of two versions of a key tell which is younger. The order of
//!   generations is only the search order.
//! - VERSION-4: a generation's `max_time` is no less than the time of any of its elements. So a
//!   look-up that has found an element ends where no later generation can have a younger one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::block::Block;
use crate::disk::space::Held;
use crate::hash::SHARDS;
use crate::index::{BlockMap, ShardMap};
use crate::log::Log;

/// A log in use, with the extents that it needs.
pub(crate) struct LogHandle {
    pub log: Log,
    /// The log's extent.
    pub held: Held,
    /// Extents of the large values that its elements name.
    large: Mutex<Vec<Arc<Held>>>,
}

impl LogHandle {
    /// For a log that names no large values yet.
    pub fn new(log: Log, held: Held) -> LogHandle {
        LogHandle {
            log,
            held,
            large: Mutex::new(Vec::new()),
        }
    }

    /// Also holds large values that the log's new elements name.
    pub fn hold_large(&self, held: impl IntoIterator<Item = Arc<Held>>) {
        self.large.lock().extend(held);
    }
}

/// A sealed block in use, with the extents that it needs.
pub(crate) struct BlockHandle {
    pub block: Block,
    /// The block's extent.
    pub held: Held,
    /// Extents of the large values that its elements name.
    pub large: Vec<Arc<Held>>,
    /// Elements that were live at the last count, less those overwritten since.
    live: AtomicU64,
    /// Elements with large values that were dead at the last count.
    dead_large: AtomicU64,
}

impl BlockHandle {
    pub fn new(block: Block, held: Held, large: Vec<Arc<Held>>, live: u64) -> BlockHandle {
        BlockHandle {
            block,
            held,
            large,
            live: AtomicU64::new(live),
            dead_large: AtomicU64::new(0),
        }
    }

    pub fn id(&self) -> u64 {
        self.block.record().id
    }

    /// The number of live elements, estimated. It errs by the maps' false candidates and by expired
    /// elements.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    pub fn set_live(&self, live: u64) {
        self.live.store(live, Ordering::Relaxed);
    }

    /// Sets the number of live elements after a count that found `before` here at its start.
    /// Elements overwritten since then are still subtracted.
    pub fn recount(&self, live: u64, before: u64) {
        let _ = self
            .live
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                Some(live.saturating_sub(before.saturating_sub(now)))
            });
    }

    /// Subtracts this many elements.
    pub fn some_dead(&self, dead: u64) {
        let _ = self
            .live
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
                Some(live.saturating_sub(dead))
            });
    }

    /// Sets the number of dead elements with large values.
    pub fn set_dead_large(&self, dead: u64) {
        self.dead_large.store(dead, Ordering::Relaxed);
    }

    /// The live share of the elements, from 0 to 1.
    pub fn live_elements_share(&self) -> f64 {
        (self.live() as f64 / (self.block.record().elements.max(1)) as f64).min(1.0)
    }

    /// The live share of the bytes, from 0 to 1. One dead large value can outweigh all elements
    /// beside it, so they are counted by themselves.
    pub fn live_share(&self) -> f64 {
        let large = self.large_bytes();
        if large == 0 {
            return self.live_elements_share();
        }
        let dead = self.dead_large.load(Ordering::Relaxed) as f64 / self.large.len() as f64;
        let own = self.held.extent().bytes() as f64 * self.live_elements_share();
        (own + large as f64 * (1.0 - dead.min(1.0))) / self.bytes() as f64
    }

    fn large_bytes(&self) -> u64 {
        self.large.iter().map(|held| held.extent().bytes()).sum()
    }

    /// Bytes that the block takes, with its large values.
    pub fn bytes(&self) -> u64 {
        self.held.extent().bytes() + self.large_bytes()
    }
}

/// A block of a generation: its place in [`Version::slots`], and the number that the block there
/// must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub slot: u32,
    pub id: u64,
}

impl Member {
    fn new(slot: usize, handle: &BlockHandle) -> Member {
        Member {
            slot: slot as u32,
            id: handle.id(),
        }
    }
}

/// Blocks that share one map in each shard. Members are ordered by time, oldest first.
#[derive(Debug)]
pub(crate) struct Generation {
    pub id: u64,
    pub members: Vec<Member>,
    pub min_time: u64,
    pub max_time: u64,
    /// Elements of the members when the generation was made.
    pub elements: u64,
}

/// A generation's map of one shard.
#[derive(Clone)]
pub(crate) struct ShardGeneration {
    pub generation: Arc<Generation>,
    pub map: Arc<ShardMap>,
}

/// The maps of one shard, in descending order of `max_time`.
#[derive(Clone, Default)]
pub(crate) struct ShardIndex {
    pub generations: Vec<ShardGeneration>,
}

/// One state of the store.
pub(crate) struct Version {
    /// Youngest first; the first takes the writes.
    pub logs: Vec<Arc<LogHandle>>,
    pub slots: Vec<Option<Arc<BlockHandle>>>,
    /// One entry for each of the [`SHARDS`].
    pub shards: Vec<Arc<ShardIndex>>,
    /// Ends last: then the space of what only this version had is free.
    life: Arc<()>,
}

/// Tells whether a version and all that only it had are gone.
#[derive(Clone)]
pub(crate) struct Life(Weak<()>);

impl Life {
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Version {
    /// An empty state.
    pub fn empty() -> Version {
        Version {
            logs: Vec::new(),
            slots: Vec::new(),
            shards: (0..SHARDS).map(|_| Arc::default()).collect(),
            life: Arc::default(),
        }
    }

    /// The block of a member, if it still exists (VERSION-2).
    pub fn block(&self, member: Member) -> Option<&Arc<BlockHandle>> {
        let handle = self.slots.get(member.slot as usize)?.as_ref()?;
        (handle.id() == member.id).then_some(handle)
    }

    pub fn blocks(&self) -> impl Iterator<Item = (Member, &Arc<BlockHandle>)> {
        self.slots.iter().enumerate().filter_map(|(slot, handle)| {
            let handle = handle.as_ref()?;
            Some((Member::new(slot, handle), handle))
        })
    }

    /// A copy of the version, to be changed and then swapped in.
    pub fn next(&self) -> Version {
        Version {
            logs: self.logs.clone(),
            slots: self.slots.clone(),
            shards: self.shards.clone(),
            life: Arc::default(),
        }
    }

    pub fn life(&self) -> Life {
        Life(Arc::downgrade(&self.life))
    }

    /// Puts a block into a free slot.
    pub fn add_block(&mut self, handle: Arc<BlockHandle>) -> Member {
        let slot = self
            .slots
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
        let member = Member::new(slot, &handle);
        self.slots[slot] = Some(handle);
        member
    }

    /// No longer shows a block.
    pub fn remove_block(&mut self, member: Member) {
        if self.block(member).is_some() {
            self.slots[member.slot as usize] = None;
        }
    }

    /// Adds a generation's map of a shard, in the order of times.
    pub fn add_map(&mut self, shard: usize, generation: &Arc<Generation>, map: ShardMap) {
        let generations = &mut Arc::make_mut(&mut self.shards[shard]).generations;
        let at = generations.partition_point(|old| old.generation.max_time > generation.max_time);
        let new = ShardGeneration {
            generation: Arc::clone(generation),
            map: Arc::new(map),
        };
        generations.insert(at, new);
    }

    /// DRAM of the maps, in bytes. It grows with the keys.
    pub fn map_bytes(&self) -> usize {
        let entries = self.shards.iter().flat_map(|shard| &shard.generations);
        let bytes = entries.map(|entry| entry.map.bytes() + size_of::<ShardGeneration>());
        bytes.sum()
    }

    /// DRAM of the blocks with their page indexes, in bytes. It grows with the keys.
    pub fn block_bytes(&self) -> usize {
        let handles = self.blocks().map(|(_, handle)| handle);
        let bytes = handles.map(|handle| handle.block.bytes_in_dram() + size_of::<BlockHandle>());
        bytes.sum()
    }
}
