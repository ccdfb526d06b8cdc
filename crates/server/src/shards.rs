// SPDX-License-Identifier: Apache-2.0
//! The shards of a worker, and how all shards are dealt to the workers.
//!
//! A data directory has a fixed number of shards S, and each start a number of workers T. Neither
//! depends on the other: the hash of a key names its shard, and the deal names the shard's worker.
//!
//! ```text
//! hash -> shard (of S) -> worker = shard mod T, there at place shard div T
//! ```
//! - SHARDS-1. Worker n owns the shards n, n + T, n + 2T and so on. With more workers than shards,
//!   some own none. They serve connections, and other workers run their commands.
//! - SHARDS-2. [`Shards`] dereferences to one shard, the *current* one. Every step of a command on
//!   a key first turns to the shard of that key ([`Shards::turn_to`]). What concerns all shards of
//!   the worker is a method of [`Shards`] itself.
//! - SHARDS-3. A worker without shards has a stand-in: an empty shard that no key leads to. It
//!   knows the time, and counts what this worker answers from the flash of others.

use std::ops::{Deref, DerefMut};

use senko_cache::{
    Admission, CacheStats, DeviceHealth, Done, Evicted, Key, Pinned, Shard, ShardConfig,
    SlabClassStats,
};
use senko_io::{Completion, MappedMemory, Queue};

/// How the shards are dealt to the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    shards: usize,
    workers: usize,
}

impl Deal {
    /// A server has at least one of both.
    pub fn new(shards: usize, workers: usize) -> Deal {
        assert!(shards > 0 && workers > 0);
        Deal { shards, workers }
    }
    pub fn shards(self) -> usize {
        self.shards
    }
    pub fn workers(self) -> usize {
        self.workers
    }
    #[inline]
    pub fn shard_of(self, hash: u64) -> usize {
        Key { bytes: &[], hash }.shard(self.shards)
    }
    /// The worker that owns the shard of a hash.
    #[inline]
    pub fn worker_of(self, hash: u64) -> usize {
        match self.workers {
            1 => 0,
            workers => self.shard_of(hash) % workers,
        }
    }
    /// The shards of a worker.
    pub fn of(self, worker: usize) -> impl Iterator<Item = usize> {
        (worker..self.shards).step_by(self.workers)
    }
}

/// The shards of one worker.
#[derive(Debug)]
pub struct Shards {
    /// Those that it owns, or the stand-in.
    list: Vec<Shard>,
    /// The place of the current one.
    current: usize,
    /// The place of the one that gets freed frames first.
    first: usize,
    /// Whether pins have ended that answers wait for.
    pins_ended: bool,
    deal: Deal,
    me: usize,
}

pub const STAND_IN_BYTES: usize = 1 << 20;
/// Below it is the shard's own cursor of a walk, above it the shard's place.
const PLACE_BITS: u32 = 48;

impl Shards {
    /// The shards of worker `me`, in order. If it owns none, `like` says what the stand-in is.
    ///
    /// # Panics
    /// If the stand-in gets no memory.
    pub fn new(own: Vec<Shard>, (me, deal): (usize, Deal), like: &ShardConfig) -> Shards {
        let mut list = own;
        debug_assert_eq!(list.len(), deal.of(me).count());
        if list.is_empty() {
            let config = ShardConfig {
                memory: STAND_IN_BYTES,
                max_item: 1 << 10,
                flash: Vec::new(),
                ..like.clone()
            };
            list.push(Shard::new(config).expect("a megabyte suffices for an empty shard"));
        }
        Shards {
            list,
            current: 0,
            first: 0,
            pins_ended: false,
            deal,
            me,
        }
    }

    /// Turns to the shard of this hash. If another worker owns it, nothing changes: its item is in
    /// a frame already, and any shard can count the answer.
    #[inline]
    pub fn turn_to(&mut self, hash: u64) {
        if self.list.len() > 1 && self.deal.worker_of(hash) == self.me {
            self.current = self.deal.shard_of(hash) / self.deal.workers;
        }
    }

    /// Turns to the shard of this cursor of a walk over all; returns that shard's own cursor.
    pub fn turn_to_part(&mut self, cursor: u64) -> u64 {
        let place = (cursor >> PLACE_BITS) as usize;
        self.current = place.min(self.list.len() - 1);
        cursor & ((1 << PLACE_BITS) - 1)
    }

    /// The next cursor of a walk over all, after the current shard returned this one of its own.
    pub fn next_part(&self, own: Option<u64>) -> Option<u64> {
        let (place, next) = match own {
            Some(own) => (self.current, own),
            None => (self.current + 1, 0),
        };
        (place < self.list.len()).then_some((place as u64) << PLACE_BITS | next)
    }

    /// The shards that this worker owns, with their numbers.
    pub fn own(&self) -> impl Iterator<Item = (usize, &Shard)> {
        self.deal.of(self.me).zip(&self.list)
    }
    /// The same, to change them.
    pub fn own_mut(&mut self) -> impl Iterator<Item = (usize, &mut Shard)> {
        self.deal.of(self.me).zip(&mut self.list)
    }

    // ---- time ----

    pub fn set_now(&mut self, unix_ms: u64) {
        self.list
            .iter_mut()
            .for_each(|shard| shard.set_now(unix_ms));
    }
    pub fn set_steady(&mut self, ms: u64) {
        self.list.iter_mut().for_each(|shard| shard.set_steady(ms));
    }

    // ---- prefetch ----

    /// [`Shard::prefetch_line`] of the shard of this hash.
    pub fn prefetch_line(&mut self, hash: u64) {
        self.turn_to(hash);
        (**self).prefetch_line(hash);
    }
    /// [`Shard::prefetch_item`] of the shard of this hash.
    pub fn prefetch_item(&mut self, hash: u64) {
        self.turn_to(hash);
        (**self).prefetch_item(hash);
    }

    // ---- devices ----

    /// Passes a completion to the shard that asked for it.
    pub fn on_disk<Q: Queue>(&mut self, queue: &mut Q, completion: Completion) {
        let place = Shard::of_completion(&completion) / self.deal.workers;
        self.list[place].on_disk(queue, completion);
    }
    pub fn next_done<Q: Queue>(&mut self, queue: &mut Q) -> Option<Done> {
        let mut all = self.list.iter_mut();
        all.find_map(|shard| shard.next_done(queue))
    }
    pub fn tick<Q: Queue>(&mut self, queue: &mut Q) {
        self.in_turn(|shard| shard.tick(queue));
    }
    pub fn frames_freed<Q: Queue>(&mut self, queue: &mut Q) {
        self.in_turn(|shard| shard.frames_freed(queue));
    }
    pub fn frames_wanted(&self) -> bool {
        self.list.iter().any(Shard::frames_wanted)
    }
    pub fn hold_frames(&mut self, held: bool) {
        (self.list.iter_mut()).for_each(|shard| shard.hold_frames(held));
    }
    pub fn set_frames_lost(&mut self, lost: bool) {
        (self.list.iter_mut()).for_each(|shard| shard.set_frames_lost(lost));
    }
    /// Each part of a device, with the number of its shard.
    pub fn devices(&self) -> impl Iterator<Item = (usize, DeviceHealth)> {
        self.own()
            .flat_map(|(number, shard)| shard.devices().map(move |health| (number, health)))
    }
    /// All shards, another one first each time.
    fn in_turn(&mut self, each: impl FnMut(&mut Shard)) {
        self.first = (self.first + 1) % self.list.len();
        let (before, from) = self.list.split_at_mut(self.first);
        from.iter_mut().chain(before).for_each(each);
    }

    // ---- requests to all shards ----

    /// Applies flushes up to this number, where they were not applied before.
    pub fn flush(&mut self, number: u64) {
        for shard in &mut self.list {
            if shard.flushes() != number {
                shard.flush_all();
                shard.set_flushes(number);
            }
        }
    }
    /// The number of flushes that all shards have applied.
    pub fn flushes(&self) -> u64 {
        let all = self.list.iter().map(Shard::flushes);
        all.min().unwrap_or(0)
    }
    /// Turns to the fill of this number; 0: to none.
    pub fn turn_to_fill(&mut self, fill: u64) {
        for shard in &mut self.list {
            match fill {
                0 => shard.end_fill(),
                fill => shard.begin_fill(fill),
            }
        }
    }
    pub fn reset_stats(&mut self) {
        self.list.iter_mut().for_each(Shard::reset_stats);
    }
    /// Sets the limit of each shard; the caller has compared it with the bounds of one.
    pub fn set_dram_limit(&mut self, bytes: usize) {
        for (_, shard) in self.own_mut() {
            shard.set_dram_limit(bytes);
        }
    }

    /// [`Shard::tune`] with each shard's share.
    pub fn tune(&mut self, share: Admission, promote_after: u8) {
        for (_, shard) in self.own_mut() {
            shard.tune(share, promote_after);
        }
    }

    // ---- pins ----

    /// The share of memory for items that pins keep in place, in the shard with the most.
    pub fn pinned(&self) -> Pinned {
        let all = self.list.iter().map(Shard::pinned);
        all.max().unwrap_or(Pinned::Little)
    }
    pub fn unpin(&mut self, pin: u64) {
        let place = Shard::of_pin(pin) / self.deal.workers;
        self.pins_ended |= self.list[place].wants_pins();
        self.list[place].unpin(pin);
    }
    /// Whether pins have ended, since the last call, that answers wait for.
    pub fn take_pins_ended(&mut self) -> bool {
        std::mem::take(&mut self.pins_ended)
    }
    pub fn item_memory(&self) -> Vec<MappedMemory> {
        self.list.iter().map(Shard::item_memory).collect()
    }

    // ---- statistics ----

    /// Counters and gauges, added up.
    pub fn stats(&self) -> CacheStats {
        let mut sum = CacheStats::default();
        for shard in &self.list {
            sum.add(&shard.stats());
        }
        if self.own().next().is_none() {
            // Keys do not use the stand-in's memory.
            (sum.dram_limit, sum.index_bytes) = (0, 0);
        }
        sum
    }
    /// The slab classes in use, of one shard after the other.
    pub fn slab_classes(&self) -> Vec<SlabClassStats> {
        self.list.iter().flat_map(Shard::slab_classes).collect()
    }
    pub fn watch_evictions(&mut self, on: bool) {
        (self.list.iter_mut()).for_each(|shard| shard.watch_evictions(on));
    }
    pub fn take_evicted(&mut self) -> (Vec<Evicted>, u64) {
        let mut all = (Vec::new(), 0);
        for shard in &mut self.list {
            let (evicted, untold) = shard.take_evicted();
            all.0.extend(evicted);
            all.1 += untold;
        }
        all
    }
    /// The greatest CAS value given out.
    pub fn cas(&self) -> u64 {
        let all = self.own().map(|(_, shard)| shard.cas());
        all.max().unwrap_or(0)
    }

    // ---- the end ----

    pub fn close<Q: Queue>(&mut self, queue: &mut Q) {
        self.list.iter_mut().for_each(|shard| shard.close(queue));
    }
    pub fn is_closed(&self) -> bool {
        self.list.iter().all(Shard::is_closed)
    }
}

impl Deref for Shards {
    type Target = Shard;
    #[inline]
    fn deref(&self) -> &Shard {
        &self.list[self.current]
    }
}

impl DerefMut for Shards {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.list[self.current]
    }
}
