// SPDX-License-Identifier: Apache-2.0
//! A page of DRAM is emptied: all of its items go elsewhere, so that it can serve another size
//! class or the index.
//!
//! An item that was read lately moves to another chunk of its class, and keeps its place in the
//! policy's queue. If no chunk is free, the item that the policy chooses leaves DRAM. The other
//! items of the page leave, and so does every item of several chunks. If nothing is evicted (`-M`),
//! they leave for flash, and an item that must stay in DRAM moves as a hot one does.
//!
//! A page holds up to ten thousand items, and each of them may have to be copied to a write buffer.
//! So a page is emptied some items at a time, by the allocations and ticks that come by. None of
//! its chunks is given out meanwhile, and the page is free once its last chunk is. An item that
//! can't move now is passed over. If some are left after a few passes, the page goes back to its
//! class, and another one is tried later.
//!
//! A class that has no item to evict can't wait for that. It takes a reserved page, which is then
//! replaced by emptying another. Only if that is not yet done, or if memory is too small for a
//! reserve, a page is emptied at once ([`Shard::shed_page`]).

use senko_io::Queue;

use crate::arena::{CHAINED, FREE, Handle, LINKED};
use crate::shard::Shard;
use crate::types::AllocError;

/// The page that is being emptied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emptying {
    page: usize,
    class: usize,
    /// The chunk that comes next.
    next: usize,
    /// Passes over the page that are done.
    passes: usize,
}

/// Passes over a page before it is given up.
const MOST_PASSES: usize = 4;
/// Chunks that are looked at for each item that may leave: some are free.
const CHUNKS_PER_ITEM: usize = 8;

impl Shard {
    /// Begins to empty a page of a class, unless a page is being emptied. It is the page of the
    /// class's oldest item, or, after pages that could not be emptied, any other.
    pub(super) fn empty_page_of(&mut self, class: usize) {
        if self.emptying.is_some() || self.keeps_all() && !self.flash.takes_records() {
            return;
        }
        let pages = self.dram.arena().class(class).pages();
        let oldest = (self.emptied_in_vain == 0)
            .then(|| self.next_victim(class))
            .flatten()
            .map(|item| self.dram.arena().page_of(item));
        let page = oldest.or_else(|| {
            let n = self.emptied_in_vain.checked_rem(pages)?;
            Some(self.dram.arena().page_in_class(class, n))
        });
        let Some(page) = page else { return };
        self.dram.set_emptied(page, true);
        self.dram.release_if_empty(page);
        self.emptying = Some(Emptying {
            page,
            class,
            next: 0,
            passes: 0,
        });
    }

    /// Frees the chunks of at most `most` items of the page that is being emptied. If there is
    /// none, but items use more memory than they may, it begins with a page of the class whose
    /// items stay longest.
    pub(super) fn empty_some<Q: Queue>(&mut self, queue: &mut Q, most: usize) {
        if self.config.no_evict && !self.keeps_all() {
            return;
        }
        if self.emptying.is_none() && self.dram.arena().lacks_reserve() {
            let classes = self.dram.slowest_classes();
            // Other classes take their turn after pages that could not be emptied.
            let n = (self.emptied_in_vain / MOST_PASSES).checked_rem(classes.len());
            if let Some(n) = n {
                self.empty_page_of(classes[n]);
            }
        }
        // If the log is busy, it goes on later.
        let _ = self.empty_on(queue, most);
    }

    /// A chunk of the page that is being emptied, for an allocation whose victims all lay there.
    /// Its item leaves soon.
    pub(super) fn chunk_of_emptied(&mut self, class: usize) -> Option<Handle> {
        let emptying = self.emptying.filter(|emptying| emptying.class == class)?;
        self.dram.alloc_emptied(emptying.page)
    }

    /// Frees the chunks of at most `most` items of the page that is being emptied. Returns whether
    /// the page is free now.
    fn empty_on<Q: Queue>(&mut self, queue: &mut Q, most: usize) -> Result<bool, AllocError> {
        let Some(mut now) = self.emptying.take() else {
            return Ok(false);
        };
        let mut left = most;
        let mut chunks = most.saturating_mul(CHUNKS_PER_ITEM);
        while left > 0 && chunks > 0 && self.dram.arena().is_emptied(now.page) {
            if now.next == self.dram.arena().cut_of(now.page) {
                (now.next, now.passes) = (0, now.passes + 1);
                if now.passes == MOST_PASSES {
                    self.dram.set_emptied(now.page, false);
                    self.emptied_in_vain += 1;
                    return Ok(false);
                }
            }
            chunks -= 1;
            let arena = self.dram.arena();
            let chunk = arena.chunk_of(now.page, now.next, now.class);
            let item = match arena.state(chunk) {
                CHAINED => arena.owner(chunk),
                _ => chunk,
            };
            if arena.state(item) == LINKED && arena.pins(item) == 0 {
                match self.vacate(queue, item, now.class, &mut left) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) => {
                        self.emptying = Some(now);
                        return Err(error);
                    }
                }
            }
            now.next += 1;
        }
        if self.dram.arena().is_emptied(now.page) {
            self.emptying = Some(now);
            return Ok(false);
        }
        self.emptied_in_vain = 0;
        self.stats.slab_moves += 1;
        Ok(true)
    }

    /// Frees the chunk of an item in a page that is being emptied. A hot item goes to a free chunk
    /// of the class, or to that of the item that the policy chooses to leave DRAM. Returns whether
    /// the chunk is free, or the item is passed over, since it must stay and nothing leaves for it.
    /// It is neither if the chosen items lay in that page too, until `left` is 0.
    fn vacate<Q: Queue>(
        &mut self,
        queue: &mut Q,
        item: Handle,
        class: usize,
        left: &mut usize,
    ) -> Result<bool, AllocError> {
        let whole = self.dram.arena().next_in_chain(item) == 0;
        let leaving = self.leaving();
        let stays = leaving.is_some_and(|leaving| leaving.must_stay(self.dram.arena(), item));
        if stays && !whole {
            return Ok(true);
        }
        let moves = whole && !self.is_dead(item) && (stays || self.dram.is_hot(item));
        if !moves && whole && self.waits_for_run(queue, item)? {
            *left -= 1;
            if self.dram.arena().state(item) != LINKED {
                return Ok(true);
            }
            if let Some(chunk) = self.dram.alloc_in_pages(class) {
                self.relocate(item, chunk);
                return Ok(true);
            }
        }
        if moves && let Some(chunk) = self.dram.alloc_in_pages(class) {
            *left -= 1;
            self.relocate(item, chunk);
            return Ok(true);
        }
        while *left > 0 {
            let victim = moves
                .then(|| self.next_victim(class))
                .flatten()
                .unwrap_or(item);
            if victim == item && stays {
                return Ok(true);
            }
            *left -= 1;
            match self.evict(queue, victim) {
                // Another item took the last room on flash.
                Err(AllocError::OutOfMemory) if self.keeps_all() => return Ok(true),
                result => result?,
            }
            if victim == item {
                return Ok(true);
            }
            if let Some(chunk) = self.dram.alloc_in_pages(class) {
                self.relocate(item, chunk);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves an item of one chunk to a free chunk of its class.
    fn relocate(&mut self, item: Handle, chunk: Handle) {
        self.dram.copy_item(item, chunk);
        let hash = self.item_hash(chunk);
        let pos = self.slot_of(item, hash);
        self.index.set(pos, self.index.dram_slot(hash, chunk));
        self.dram.moved(item, chunk);
    }

    /// Frees a page of some class at once: of the class whose items stay longest, otherwise of any.
    pub(crate) fn shed_page<Q: Queue>(&mut self, queue: &mut Q) -> Result<(), AllocError> {
        if self.emptying.is_some() && self.empty_on(queue, usize::MAX)? {
            return Ok(());
        }
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

    /// Empties one page of a class at once: the page of its oldest item, or another if an item
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

    /// Empties a page; false if the page has a draft or a pinned item.
    fn empty_page<Q: Queue>(
        &mut self,
        queue: &mut Q,
        page: usize,
        class: usize,
    ) -> Result<bool, AllocError> {
        let cut = self.dram.arena().cut_of(page);
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
        if !(0..cut).all(|n| movable(self.dram.arena().chunk_of(page, n, class))) {
            return Ok(false);
        }
        if self.keeps_all() {
            return self.empty_chunks(queue, page, class);
        }
        self.dram.set_emptied(page, true);
        let emptied = self.empty_chunks(queue, page, class);
        self.dram.set_emptied(page, false);
        emptied
    }

    fn empty_chunks<Q: Queue>(
        &mut self,
        queue: &mut Q,
        page: usize,
        class: usize,
    ) -> Result<bool, AllocError> {
        for n in 0..self.dram.arena().cut_of(page) {
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
            let vacated = if self.keeps_all() {
                self.evict(queue, item)
            } else {
                let done = self.vacate(queue, item, class, &mut { usize::MAX });
                done.map(|_| ())
            };
            match vacated {
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
}
