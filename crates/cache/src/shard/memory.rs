// SPDX-License-Identifier: Apache-2.0
//! Memory for items: chunks from the arena, by eviction if none is left.
//!
//! A victim of the requesting class frees a chunk of the right size. Now and then a page moves from
//! the class whose items stay longest to the class whose items turn over fastest. So items of all
//! classes reach a similar age, and the classes together behave like one queue.

use senko_io::Queue;

use crate::arena::{CHAINED, FREE, Handle, LINKED, MAX_CHUNK};
use crate::dram::item::{CHAIN_HEADER, ITEM_HEADER};
use crate::shard::Shard;
use crate::types::AllocError;

/// The most victims for one chunk: a bound far above what is ever needed.
const MOST_VICTIMS: usize = 4096;

impl Shard {
    /// Chunks for a record of `len` bytes, as an item whose header is not yet written.
    pub(crate) fn take_item<Q: Queue>(
        &mut self,
        queue: &mut Q,
        len: usize,
    ) -> Result<Handle, AllocError> {
        let first_class = self.dram.arena().item_class(len);
        let item = self.take_chunk(queue, first_class)?;
        self.dram.init_item(item, self.now, self.epoch);
        let mut left = len.saturating_sub(MAX_CHUNK - ITEM_HEADER);
        let mut last = item;
        while left > 0 {
            let class = self
                .dram
                .arena()
                .class_for((left + CHAIN_HEADER).min(MAX_CHUNK));
            let chunk = match self.take_chunk(queue, class) {
                Ok(chunk) => chunk,
                Err(e) => {
                    self.dram.free_item(item);
                    return Err(e);
                }
            };
            self.dram.chain(item, last, chunk);
            last = chunk;
            left = left.saturating_sub(MAX_CHUNK - CHAIN_HEADER);
        }
        Ok(item)
    }

    fn take_chunk<Q: Queue>(&mut self, queue: &mut Q, class: usize) -> Result<Handle, AllocError> {
        for _ in 0..MOST_VICTIMS {
            if self.dram.arena().over_limit() && (!self.config.no_evict || self.keeps_all()) {
                match self.shed_page(queue) {
                    // Free chunks in used pages may still be taken.
                    Err(AllocError::OutOfMemory) if self.keeps_all() => {}
                    result => {
                        result?;
                        continue;
                    }
                }
            }
            if let Some(chunk) = self.dram.alloc(class) {
                return Ok(chunk);
            }
            let made = if self.config.no_evict && !self.keeps_all() {
                Err(AllocError::OutOfMemory)
            } else {
                self.make_room(queue, class)
            };
            if made == Err(AllocError::OutOfMemory) && self.config.no_evict {
                self.dram.refused(class);
            }
            made?;
        }
        self.dram.refused(class);
        Err(AllocError::OutOfMemory)
    }

    /// Frees at least one chunk of a class or one page, or says why not.
    fn make_room<Q: Queue>(&mut self, queue: &mut Q, class: usize) -> Result<(), AllocError> {
        if self.dram.rebalance_due() {
            if self.dram.forget_growth() {
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

    /// Makes segments of the index grow that are almost full, at the cost of items. If nothing may
    /// be evicted, it uses only free memory.
    pub(crate) fn grow_index<Q: Queue>(&mut self, queue: &mut Q, hash: u64) {
        while let Some(segment) = self.index.wants_growth(hash) {
            self.share_memory(self.index.growth_bytes(segment));
            while self.dram.arena().over_limit() {
                let stays = self.config.no_evict && !self.keeps_all();
                if stays || self.shed_page(queue).is_err() {
                    return;
                }
            }
            if !self.index.grow(segment) {
                return;
            }
            self.dram.index_grew();
        }
    }

    /// Limits items to the memory that the index leaves, once it has grown by `growth` bytes.
    pub(crate) fn share_memory(&mut self, growth: usize) {
        self.dram.share(self.index.bytes() + growth);
    }

    /// Moves a page from the class whose items stay longest to the class with the fastest turnover.
    /// Returns whether a page became free.
    fn rebalance<Q: Queue>(&mut self, queue: &mut Q) -> Result<bool, AllocError> {
        match self.dram.class_to_shrink() {
            Some(class) => self.empty_a_page(queue, class),
            None => Ok(false),
        }
    }

    /// Frees a page of some class: of the class whose items stay longest, otherwise of any.
    pub(crate) fn shed_page<Q: Queue>(&mut self, queue: &mut Q) -> Result<(), AllocError> {
        if self.shed_in_vain {
            return Err(AllocError::OutOfMemory);
        }
        for class in self.dram.slowest_classes() {
            if self.empty_a_page(queue, class)? {
                return Ok(());
            }
        }
        self.shed_in_vain = self.keeps_all() && self.stream.is_none();
        // An item on its way to flash can't move, but it will leave.
        Err(if self.stream.is_some() {
            AllocError::Busy
        } else {
            AllocError::OutOfMemory
        })
    }

    /// Evicts all items of one page of a class: the page of its oldest item, or another if an item
    /// there can't move.
    fn empty_a_page<Q: Queue>(&mut self, queue: &mut Q, class: usize) -> Result<bool, AllocError> {
        let oldest = self
            .next_victim(class)
            .map(|item| self.dram.arena().page_of(item));
        let pages = self.dram.arena().class(class).pages();
        let others = (0..pages.min(8))
            .map(|n| self.dram.arena().page_in_class(class, n))
            .collect::<Vec<_>>();
        for page in oldest.into_iter().chain(others) {
            if self.empty_page(queue, page, class)? {
                self.stats.slab_moves += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Evicts the items of a page; false if the page has a draft or a pinned item.
    fn empty_page<Q: Queue>(
        &mut self,
        queue: &mut Q,
        page: usize,
        class: usize,
    ) -> Result<bool, AllocError> {
        let per_page = self.dram.arena().class(class).per_page;
        let leaving = self.leaving();
        let can_leave = |item: Handle| {
            self.dram.arena().pins(item) == 0
                && leaving
                    .as_ref()
                    .is_none_or(|leaving| !leaving.must_stay(self.dram.arena(), item))
        };
        let movable = |chunk: Handle| match self.dram.arena().state(chunk) {
            FREE => true,
            LINKED => can_leave(chunk),
            CHAINED => {
                let owner = self.dram.arena().owner(chunk);
                self.dram.arena().state(owner) == LINKED && can_leave(owner)
            }
            _ => false,
        };
        if !(0..per_page).all(|n| movable(self.dram.arena().chunk_of(page, n, class))) {
            return Ok(false);
        }
        for n in 0..per_page {
            // The page may be freed with its last chunk.
            if self.dram.release_if_empty(page) {
                return Ok(true);
            }
            let chunk = self.dram.arena().chunk_of(page, n, class);
            let item = match self.dram.arena().state(chunk) {
                LINKED => chunk,
                CHAINED => self.dram.arena().owner(chunk),
                _ => continue,
            };
            match self.evict(queue, item) {
                // Another item of this page took the last room on flash, or has the same tag as
                // this item (KEEP-3).
                Err(AllocError::OutOfMemory) if self.keeps_all() => return Ok(false),
                result => result?,
            }
            if self.dram.arena().state(chunk) != FREE && !self.dram.release_if_empty(page) {
                // The item is being streamed to flash: it frees its chunks when the stream ends.
                return Err(AllocError::Busy);
            }
        }
        Ok(self.dram.release_if_empty(page))
    }

    /// Takes an item out of DRAM: to flash if that is allowed and worth it, otherwise it is
    /// dropped.
    pub(crate) fn evict<Q: Queue>(
        &mut self,
        queue: &mut Q,
        item: Handle,
    ) -> Result<(), AllocError> {
        debug_assert_eq!(self.dram.arena().state(item), LINKED);
        let class = self.dram.arena().class_of(item);
        if self.is_dead(item) {
            self.stats.reclaimed += 1;
            if !self.dram.arena().header(item).fetched() {
                self.stats.expired_unfetched += 1;
            }
            self.unlink_item(item);
            return Ok(());
        }
        self.demote(queue, item)?;
        self.dram.left(class);
        Ok(())
    }

    /// Frees a chunk of a class or a page by moving items to flash.
    pub(crate) fn make_room_kept<Q: Queue>(
        &mut self,
        queue: &mut Q,
        class: usize,
    ) -> Result<(), AllocError> {
        if let Some(victim) = self.next_victim(class) {
            match self.evict(queue, victim) {
                Err(AllocError::OutOfMemory) => {}
                result => return result,
            }
        }
        if !self.flash.takes_records() {
            return Err(AllocError::OutOfMemory);
        }
        self.shed_page(queue)
    }
}
