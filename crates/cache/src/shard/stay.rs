// SPDX-License-Identifier: Apache-2.0
//! Which items leave DRAM, and where memory comes from, if nothing may be evicted (`-M`) and there
//! is flash.
//!
//! An item leaves DRAM only for flash, and leaves the shard only as KEEP-1 allows. It stays in DRAM
//! while no log has room for it beyond the reserve (KEEP-4), or while another item with its tag is
//! on flash (KEEP-3). If no item can leave, an allocation ends as out of memory, and nothing is
//! lost. `docs/architecture/no-eviction.md` has the details; `keep.rs` is its reclaim.

use std::cell::Cell;

use senko_io::{PAGE_SIZE, Queue};

use crate::arena::{Arena, Handle};
use crate::flash::log::{Log, NoPlace};
use crate::index::{Index, Slot};
use crate::key::{HashSeed, Key};
use crate::record;
use crate::shard::Shard;
use crate::types::{AllocError, FRAME_PAGES};

/// The most items that must stay and that one search for a victim skips. They go to the head of
/// their queue, so that the next search sees others.
const MOST_PASSED: u32 = 64;

/// The facts that decide whether an item can leave.
pub(crate) struct Leaving<'a> {
    index: &'a Index,
    logs: &'a [Log],
    seed: HashSeed,
    epoch: u16,
    now: u32,
    /// A log may take a record.
    takes: bool,
}

impl Leaving<'_> {
    /// Whether an item that has no pins must stay in DRAM.
    pub fn must_stay(&self, arena: &Arena, item: Handle) -> bool {
        if arena.epoch(item) != self.epoch || record::expired(arena.item_expiry(item), self.now) {
            return false;
        }
        let hash = Key::new(arena.item_key(item), self.seed).hash;
        if self.index.find(hash, Slot::is_flash).is_some() {
            return true; // KEEP-3
        }
        if arena.flash_copy(item) != Slot::EMPTY {
            return false;
        }
        let pages = arena.header(item).record_len().div_ceil(PAGE_SIZE) as u64;
        !self.takes || self.logs.iter().all(|log| pages > log.most_pages())
    }
}

/// Pages of the largest record that flash takes, if it is larger than a frame; otherwise 0. It is
/// also 0 if items may be evicted.
pub(crate) fn whole_pages(logs: &[Log], keeps_all: bool) -> usize {
    let largest = logs.iter().map(Log::most_pages).max().unwrap_or(0) as usize;
    if keeps_all && largest > FRAME_PAGES {
        // In data of another start, the record may begin within its first page.
        largest + 1
    } else {
        0
    }
}

impl Shard {
    /// Whether nothing is evicted and there is flash. Then every item stays in one of the tiers
    /// (`docs/architecture/no-eviction.md`). A matching tag alone does not replace another slot
    /// then ([`Shard::link`]), so a store first checks whose slot it is.
    pub fn keeps_all(&self) -> bool {
        self.config.no_evict && !self.flash.logs().is_empty()
    }

    /// Whether a flash slot leads nowhere because a write failed, or because reclaim could not read
    /// its record.
    pub(crate) fn lost_by_device(&self, slot: Slot) -> bool {
        let log = self.flash.log(self.log_of(slot));
        !slot.expired(self.now)
            && log
                .position_of(self.index.page(slot), slot.lap())
                .is_none_or(|position| log.is_unwritten(position))
    }

    /// Notes that a record on flash has lost its slot, or the item whose clean copy it was.
    pub(crate) fn copy_died(&mut self, copy: Slot) {
        if copy == Slot::EMPTY || !self.keeps_all() {
            return;
        }
        let n = self.log_of(copy);
        if self
            .flash
            .log(n)
            .position_of(self.index.page(copy), copy.lap())
            .is_some()
        {
            self.flash.log_mut(n).died(copy.len());
        }
    }

    /// The facts that decide whether an item can leave DRAM; `None` if any item may be evicted.
    pub(crate) fn leaving(&self) -> Option<Leaving<'_>> {
        self.keeps_all().then(|| Leaving {
            index: &self.index,
            logs: self.flash.logs(),
            seed: self.config.hash_seed,
            epoch: self.epoch,
            now: self.now,
            takes: self.flash.takes_records(),
        })
    }

    /// The item of a class that leaves DRAM next.
    pub(crate) fn next_victim(&mut self, class: usize) -> Option<Handle> {
        if !self.keeps_all() {
            let pinned = |arena: &Arena, item| arena.pins(item) > 0;
            return self.dram.victim(class, &pinned);
        }
        let leaving = Leaving {
            takes: self.flash.takes_records(),
            index: &self.index,
            logs: self.flash.logs(),
            seed: self.config.hash_seed,
            epoch: self.epoch,
            now: self.now,
        };
        let passed = Cell::new(0);
        let stays = |arena: &Arena, item| {
            let stays = arena.pins(item) > 0 || leaving.must_stay(arena, item);
            passed.set(passed.get() + u32::from(stays));
            stays && passed.get() <= MOST_PASSED
        };
        let victim = self.dram.victim(class, &stays)?;
        let free =
            self.dram.arena().pins(victim) == 0 && !leaving.must_stay(self.dram.arena(), victim);
        free.then_some(victim)
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

    /// Moves a live, linked, unpinned item to flash, or says why it stays.
    pub(crate) fn demote_or_stay<Q: Queue>(
        &mut self,
        queue: &mut Q,
        item: Handle,
    ) -> Result<(), AllocError> {
        let hash = self.item_hash(item);
        if self.index.find(hash, Slot::is_flash).is_some() {
            return Err(AllocError::OutOfMemory); // KEEP-3
        }
        let header = self.dram.arena().header(item);
        if self.leave_clean(item, hash) {
            return Ok(());
        }
        let len = header.record_len();
        let pages = len.div_ceil(PAGE_SIZE) as u64;
        if self.flash.admitter_mut().affords(len) {
            for _ in 0..self.flash.logs().len() {
                let Some(n) = self.flash.choose_log() else {
                    break;
                };
                if pages > self.flash.log(n).most_pages() {
                    continue;
                }
                if self.flash.log(n).must_stream(len) {
                    match self.begin_stream(queue, n, item, hash, len) {
                        Err(AllocError::OutOfMemory) => continue,
                        result => return result,
                    }
                }
                let reserve = self.flash.log(n).reserve();
                match self.flash.room_now(queue, n, pages, reserve) {
                    Ok(()) => {
                        self.flash.admitter_mut().spend_anyway(len);
                        self.leave_for(queue, n, item, hash, len);
                        return Ok(());
                    }
                    Err(why) if self.may_wait(queue, n, pages, why) => {
                        return Err(AllocError::Busy);
                    }
                    Err(_) => {}
                }
            }
        }
        Err(AllocError::OutOfMemory)
    }

    /// Whether a log that has no place for a record of this many pages will have one once its
    /// device completes operations.
    pub(crate) fn may_wait<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        pages: u64,
        why: NoPlace,
    ) -> bool {
        if why == NoPlace::Buffers {
            return !self.flash.buffers_stall(n);
        }
        self.flash.log_mut(n).want(pages);
        self.reclaim(queue, n);
        self.flash.space_comes(n)
    }
}
