// SPDX-License-Identifier: Apache-2.0
//! Which items may leave DRAM if nothing may be evicted (`-M`) and there is flash.
//!
//! An item leaves DRAM only for flash, and leaves the shard only as KEEP-1 allows. It stays in DRAM
//! while no log has room for it beyond the reserve (KEEP-4), or while another item with its tag is
//! on flash (KEEP-3). If no item can leave, an allocation ends as out of memory, and nothing is
//! lost. `docs/architecture/no-eviction.md` has the details; `keep.rs` is its reclaim.

use std::cell::Cell;

use senko_io::PAGE_SIZE;

use crate::arena::{Arena, Handle};
use crate::flash::log::Log;
use crate::index::{Index, Slot};
use crate::key::{HashSeed, Key};
use crate::record;
use crate::shard::Shard;

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
        if record::is_dead(arena.head(item), self.epoch, self.now) {
            return false;
        }
        let hash = Key::new(arena.item_key(item), self.seed).hash;
        if self.index.find(hash, Slot::is_flash).is_some() {
            return true; // KEEP-3
        }
        if arena.flash_copy(item) != Slot::EMPTY {
            return false;
        }
        let pages = arena.header(item).flash_len().div_ceil(PAGE_SIZE) as u64;
        !self.takes || self.logs.iter().all(|log| pages > log.most_pages())
    }
}

impl Shard {
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
}
