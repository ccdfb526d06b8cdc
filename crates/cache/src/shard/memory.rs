// SPDX-License-Identifier: Apache-2.0
//! Memory for items: chunks from the arena, by eviction where there is none left.
//!
//! A victim of the class that asks frees a chunk of the right size. Now and then a page moves to
//! the class whose items turn over fastest from the one whose items stay longest, so that the
//! classes age alike and the whole behaves like one queue.

use senko_io::Queue;

use crate::arena::{CHAINED, FREE, Handle, LINKED, MAX_CHUNK};
use crate::dram::item::{CHAIN_HEADER, ITEM_HEADER};
use crate::shard::Shard;
use crate::types::AllocError;

/// A page may move when this part of the items was evicted: moving one evicts all that lie in it,
/// whatever their age, so pages move seldom against what turns over anyway.
const TURNOVER: u64 = 8;
const REBALANCE_EVERY: u64 = 256;
/// Pages that items keep, however much the index wants.
pub(crate) const LEAST_PAGES: usize = 4;
/// Most victims for one chunk: a bound, far above what is ever needed.
const MOST_VICTIMS: usize = 4096;

impl Shard {
    /// Chunks for a record of `len` bytes, as an item with its header not yet written.
    pub(crate) fn take_item<Q: Queue>(
        &mut self,
        queue: &mut Q,
        len: usize,
    ) -> Result<Handle, AllocError> {
        let first_class = self.arena.class_for((len + ITEM_HEADER).min(MAX_CHUNK));
        let item = self.take_chunk(queue, first_class)?;
        self.arena.init_item(item, self.now, self.epoch);
        let mut left = len.saturating_sub(MAX_CHUNK - ITEM_HEADER);
        let mut last = item;
        while left > 0 {
            let class = self.arena.class_for((left + CHAIN_HEADER).min(MAX_CHUNK));
            let chunk = match self.take_chunk(queue, class) {
                Ok(chunk) => chunk,
                Err(e) => {
                    self.arena.free_item(item);
                    return Err(e);
                }
            };
            self.arena.chain(item, last, chunk);
            last = chunk;
            left = left.saturating_sub(MAX_CHUNK - CHAIN_HEADER);
        }
        Ok(item)
    }

    fn take_chunk<Q: Queue>(&mut self, queue: &mut Q, class: usize) -> Result<Handle, AllocError> {
        for _ in 0..MOST_VICTIMS {
            if self.arena.over_limit() && (!self.config.no_evict || self.keeps_all()) {
                match self.shed_page(queue) {
                    // What is free in pages that are in use may be taken all the same.
                    Err(AllocError::OutOfMemory) if self.keeps_all() => {}
                    result => {
                        result?;
                        continue;
                    }
                }
            }
            if let Some(chunk) = self.arena.alloc(class) {
                return Ok(chunk);
            }
            let made = if self.config.no_evict && !self.keeps_all() {
                Err(AllocError::OutOfMemory)
            } else {
                self.make_room(queue, class)
            };
            if made == Err(AllocError::OutOfMemory) && self.config.no_evict {
                self.classes.refused(class);
            }
            made?;
        }
        self.classes.refused(class);
        Err(AllocError::OutOfMemory)
    }

    /// Frees at least one chunk of a class or one page, or says why not.
    fn make_room<Q: Queue>(&mut self, queue: &mut Q, class: usize) -> Result<(), AllocError> {
        let items = self.dram_items;
        let next = || (items / TURNOVER).max(REBALANCE_EVERY) as u32;
        if self.classes.is_due(next) {
            if !std::mem::take(&mut self.index_grew) {
                self.index_share = 0;
                self.share_memory(0);
            }
            if self.rebalance(queue)? {
                return Ok(());
            }
        }
        if self.keeps_all() {
            return self.make_room_kept(queue, class);
        }
        if let Some(victim) = self.next_victim(class) {
            return self.evict(queue, victim);
        }
        self.shed_page(queue)
    }

    /// Makes segments of the index grow that are about to be full, at the cost of items; where
    /// nothing is evicted, only from memory that is left.
    pub(crate) fn grow_index<Q: Queue>(&mut self, queue: &mut Q, hash: u64) {
        while let Some(segment) = self.index.wants_growth(hash) {
            self.share_memory(self.index.growth_bytes(segment));
            while self.arena.over_limit() {
                let stays = self.config.no_evict && !self.keeps_all();
                if stays || self.shed_page(queue).is_err() {
                    return;
                }
            }
            if !self.index.grow(segment) {
                return;
            }
            self.index_grew = true;
        }
    }

    /// Limits items to the memory that the index leaves, once it has grown by `growth` bytes. While
    /// the index grows, it keeps what it gives back for its next growth. A wave takes and frees
    /// pages in turn. If items made room for each, they would go by the page, and not one by one in
    /// the policy's order.
    pub(crate) fn share_memory(&mut self, growth: usize) {
        self.index_share = self.index_share.max(self.index.bytes() + growth);
        let items = self.memory.saturating_sub(self.index_share);
        self.arena
            .set_limit((items / self.arena.page_bytes()).max(LEAST_PAGES));
    }

    /// Moves a page from the class whose items stay longest to the one whose items go soonest;
    /// whether a page became free.
    fn rebalance<Q: Queue>(&mut self, queue: &mut Q) -> Result<bool, AllocError> {
        let mut slowest: Option<(f64, usize)> = None;
        let mut fastest: Option<(f64, usize)> = None;
        for class in 0..self.classes.len() {
            let pages = self.arena.class(class).pages();
            let evictions = f64::from(self.classes.take_half(class));
            if pages == 0 {
                continue;
            }
            let stay = self.policy.len(class) as f64 / (evictions + 0.5);
            if pages > 1 && slowest.is_none_or(|(s, _)| stay > s) {
                slowest = Some((stay, class));
            }
            if evictions > 0.0 && fastest.is_none_or(|(s, _)| stay < s) {
                fastest = Some((stay, class));
            }
        }
        match (slowest, fastest) {
            (Some((slow, from)), Some((fast, to))) if from != to && slow > 1.5 * fast => {
                self.empty_a_page(queue, from)
            }
            _ => Ok(false),
        }
    }

    /// Frees a page of some class: the one whose items stay longest, else any.
    pub(crate) fn shed_page<Q: Queue>(&mut self, queue: &mut Q) -> Result<(), AllocError> {
        if self.shed_in_vain {
            return Err(AllocError::OutOfMemory);
        }
        let mut order: Vec<(u64, usize)> = (0..self.classes.len())
            .filter(|&c| self.arena.class(c).pages() > 0)
            .map(|c| {
                let stay = self.policy.len(c) as u64 * 16 / (u64::from(self.classes.recent(c)) + 1);
                (stay + self.arena.class(c).pages() as u64, c)
            })
            .collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        for (_, class) in order {
            if self.empty_a_page(queue, class)? {
                return Ok(());
            }
        }
        self.shed_in_vain = self.keeps_all() && self.stream.is_none();
        // An item that is on its way to flash can't move, but it will go.
        Err(if self.stream.is_some() {
            AllocError::Busy
        } else {
            AllocError::OutOfMemory
        })
    }

    /// Evicts all items of one page of a class: that of its oldest item, or another if something
    /// there can't move.
    fn empty_a_page<Q: Queue>(&mut self, queue: &mut Q, class: usize) -> Result<bool, AllocError> {
        let oldest = self.next_victim(class).map(|item| self.arena.page_of(item));
        let pages = self.arena.class(class).pages();
        let others = (0..pages.min(8))
            .map(|n| self.arena.page_in_class(class, n))
            .collect::<Vec<_>>();
        for page in oldest.into_iter().chain(others) {
            if self.empty_page(queue, page, class)? {
                self.stats.slab_moves += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Evicts what lies in a page; false if a draft or a pinned item lies there.
    fn empty_page<Q: Queue>(
        &mut self,
        queue: &mut Q,
        page: usize,
        class: usize,
    ) -> Result<bool, AllocError> {
        let per_page = self.arena.class(class).per_page;
        let leaving = self.leaving();
        let can_leave = |item: Handle| {
            self.arena.pins(item) == 0
                && leaving
                    .as_ref()
                    .is_none_or(|leaving| !leaving.must_stay(&self.arena, item))
        };
        let movable = |chunk: Handle| match self.arena.state(chunk) {
            FREE => true,
            LINKED => can_leave(chunk),
            CHAINED => {
                let owner = self.arena.owner(chunk);
                self.arena.state(owner) == LINKED && can_leave(owner)
            }
            _ => false,
        };
        if !(0..per_page).all(|n| movable(self.arena.chunk_of(page, n, class))) {
            return Ok(false);
        }
        for n in 0..per_page {
            // The page may be released with its last chunk.
            if self.arena.release_if_empty(page) {
                return Ok(true);
            }
            let chunk = self.arena.chunk_of(page, n, class);
            let item = match self.arena.state(chunk) {
                LINKED => chunk,
                CHAINED => self.arena.owner(chunk),
                _ => continue,
            };
            match self.evict(queue, item) {
                // Another item of this page took the last room on flash, or this item's tag
                // (KEEP-3).
                Err(AllocError::OutOfMemory) if self.keeps_all() => return Ok(false),
                result => result?,
            }
            if self.arena.state(chunk) != FREE && !self.arena.release_if_empty(page) {
                // The item is being streamed to flash: it frees its chunks when that ends.
                return Err(AllocError::Busy);
            }
        }
        Ok(self.arena.release_if_empty(page))
    }

    /// Takes an item out of DRAM: to flash where that is allowed and worth it, else away.
    pub(crate) fn evict<Q: Queue>(
        &mut self,
        queue: &mut Q,
        item: Handle,
    ) -> Result<(), AllocError> {
        debug_assert_eq!(self.arena.state(item), LINKED);
        let class = self.arena.class_of(item);
        if self.is_dead(item) {
            self.stats.reclaimed += 1;
            if !self.arena.header(item).fetched() {
                self.stats.expired_unfetched += 1;
            }
            self.unlink_item(item);
            return Ok(());
        }
        self.demote(queue, item)?;
        self.classes.evicted(class);
        Ok(())
    }
}
