// SPDX-License-Identifier: Apache-2.0
//! Work that is due without a command: reclaim, streamed writes, parked reads, pages to empty, and
//! searches for expired items.

use std::ops::RangeInclusive;

use senko_io::Queue;

use crate::config::Admission;
use crate::dram::LEAST_PAGES;
use crate::index::PARTS;
use crate::record::{Header, Meta};
use crate::shard::Shard;
use crate::stats::{ClassCounts, SlabClassStats};
use crate::types::{Evicted, FlashRef, ItemRef, Scanned};

/// From this cursor on, a walk visits sorted records.
const RUNS_FROM: u64 = 1 << 47;

/// The most items of the page being emptied that leave DRAM in a tick.
const EMPTIED_BY_TICK: usize = 32;

impl Shard {
    /// Work that is due without a command: reclaim, expiry crawling, write budget. Call at least
    /// every 100 ms, and after disk completions.
    pub fn tick<Q: Queue>(&mut self, queue: &mut Q) {
        self.watch_devices(queue);
        for n in 0..self.flash.logs().len() {
            self.reclaim(queue, n);
        }
        self.pump_stream(queue);
        self.empty_some(queue, EMPTIED_BY_TICK);
        self.flash.retry_parked();
        self.flash.frames_freed(queue);
        if self.crawl() {
            self.shed_in_vain = false;
        }
    }

    /// Visits some live items (`lru_crawler metadump`, `stats cachedump`, `stats sizes`), from
    /// `cursor` (start with 0); returns the next cursor, or `None` at the end. A call visits those
    /// items of an index segment whose tags begin alike, some hundred. Tags do not change when a
    /// segment grows, so every item that stays is visited exactly once. Pages of sorted records
    /// come last, some at a time; an item that was promoted or left DRAM meanwhile may be visited
    /// twice, and one that reclaim took out of its run not at all.
    pub fn scan(&self, cursor: u64, mut each: impl FnMut(Scanned)) -> Option<u64> {
        // The runs come last: an item that leaves DRAM meanwhile is in a later one.
        if let Some(cursor) = cursor.checked_sub(RUNS_FROM) {
            let (pages, next) = self.index.walk_sorted(cursor)?;
            for page in pages.filter(|&page| self.place(page).is_some()) {
                each(Scanned::Flash(FlashRef(page.to_page().0)));
            }
            return Some(RUNS_FROM + next);
        }
        let (n, part) = (cursor as usize / PARTS, cursor as usize % PARTS);
        if n >= self.index.segments() {
            return None;
        }
        self.index.each_of_parts(n, part..part + 1, |slot| {
            if slot.is_dram() {
                let item = self.index.handle(slot);
                if !self.is_dead(item) {
                    each(Scanned::Dram(ItemRef(item)));
                }
            } else if !slot.expired(self.now) && self.place(slot).is_some() {
                each(Scanned::Flash(FlashRef(slot.0)));
            }
        });
        let next = cursor + 1;
        let is_last = next == (self.index.segments() * PARTS) as u64;
        if is_last {
            return self.index.sorted().map(|_| RUNS_FROM);
        }
        Some(next)
    }

    /// The slab classes in use.
    pub fn slab_classes(&self) -> Vec<SlabClassStats> {
        self.dram.slab_classes(self.now)
    }

    /// Whether evicted items are kept for [`Shard::take_evicted`].
    pub fn watch_evictions(&mut self, on: bool) {
        self.dram.watch_evictions(on);
    }

    /// The items that were evicted since the last call, a few hundred at most, and the number of
    /// further evicted items. Items that moved to flash are not among them.
    pub fn take_evicted(&mut self) -> (Vec<Evicted>, u64) {
        self.dram.take_evicted()
    }

    /// The number of the slab class of an item with this metadata.
    pub fn class_id(&self, meta: &Meta) -> u32 {
        self.class_of(meta) as u32 + 1
    }

    /// Counters of commands on the class of an item with this metadata.
    pub fn class_counts(&mut self, meta: &Meta) -> &mut ClassCounts {
        let class = self.class_of(meta);
        self.dram.counts(class)
    }

    /// The size class of a new item with this metadata.
    fn class_of(&self, meta: &Meta) -> usize {
        let len = Header::of(meta).dram_len();
        self.dram.arena().item_class(len, self.words(len))
    }

    /// The bytes for items and index that [`Shard::set_dram_limit`] accepts: at most those that
    /// were reserved at start.
    pub fn dram_bounds(&self) -> RangeInclusive<usize> {
        LEAST_PAGES * self.dram.arena().page_bytes()..=self.dram.reserved()
    }

    /// Changes the memory for items and index within the bytes that were reserved at start
    /// (`cache_memlimit`); false if it is above that or too small.
    ///
    /// The bounds are the same for all shards of a cache, whatever they hold: a limit that one
    /// shard takes holds for all. The index does not shrink. If it needs more than that, items keep
    /// a few pages.
    pub fn set_dram_limit(&mut self, bytes: usize) -> bool {
        if !self.dram_bounds().contains(&bytes) {
            return false;
        }
        self.dram.set_memory(bytes);
        self.share_memory(0);
        true
    }

    /// From now on items go to flash by this rule and budget, and come back after this number of
    /// hits (1 to 3).
    pub fn tune(&mut self, admission: Admission, promote_after: u8) {
        self.flash.admitter_mut().change(admission);
        self.config.promote_after = promote_after;
    }
}
