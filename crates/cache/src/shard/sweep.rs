// SPDX-License-Identifier: Apache-2.0
//! The index is searched for what is dead: expired, flushed, lost by a device.
//!
//! A pass over the index takes about five minutes, and each freed region asks for its share of a
//! pass too. A search visits some hundred slots, those of a segment whose tags begin alike: each
//! slot of an item in DRAM costs a look at the item. Tags do not change when a segment grows, so a
//! pass meets every slot that stays. A tick makes a few searches of those that are due.

use crate::index::{PARTS, Slot};
use crate::shard::Shard;

/// Searches become due this often. After this many times, all of the index was due once.
const CRAWL_MS: u64 = 100;
const CRAWL_STEPS: usize = 3000;
/// The most searches in a tick. If the index is large and there are few ticks, a pass takes longer.
const MOST_SEARCHES: usize = 16;

/// The searches of the index.
#[derive(Debug, Default)]
pub(super) struct Crawler {
    /// Number of the next search: a segment, and a part of it.
    next: usize,
    /// Searches that are due.
    due: usize,
    next_ms: u64,
}

impl Shard {
    /// Makes searches due after a region of a log was freed: the same fraction of the index as the
    /// region is of the log. So slots of damaged records, which no walk finds, are gone within a
    /// lap. If the ticks have not kept up with the regions, what is still due comes first.
    pub(crate) fn sweep_for_region(&mut self, n: usize) {
        let regions = (self.flash.log(n).pages() / self.flash.log(n).region_pages()) as usize;
        let share = self.searches().div_ceil(regions);
        while self.crawler.due > 2 * share {
            self.search();
        }
        self.crawler.due += share;
    }

    /// Makes some of the searches that are due. Returns whether it is time for other rare work.
    pub(super) fn crawl(&mut self) -> bool {
        let rare = self.now_ms >= self.crawler.next_ms;
        if rare {
            self.crawler.next_ms = self.now_ms + CRAWL_MS;
            let more = self.searches().div_ceil(CRAWL_STEPS);
            self.crawler.due = (self.crawler.due + more).min(self.searches());
        }
        for _ in 0..self.crawler.due.min(MOST_SEARCHES) {
            self.search();
        }
        rare
    }

    /// Searches of a pass over the index.
    fn searches(&self) -> usize {
        self.index.segments() * PARTS
    }

    fn search(&mut self) {
        let next = self.crawler.next;
        self.sweep(next / PARTS, next % PARTS, false);
        self.crawler.next = (next + 1) % self.searches();
        self.crawler.due -= 1;
    }

    /// Removes every item of a segment.
    pub(crate) fn clear_segment(&mut self, n: usize) {
        for part in 0..PARTS {
            self.sweep(n, part, true);
        }
    }

    /// Removes expired and flushed items from a part of a segment; with `all`, it removes every
    /// item. A pinned item is freed with its last pin.
    fn sweep(&mut self, n: usize, part: usize, all: bool) {
        let mut dead_items = Vec::new();
        let mut dead_slots = Vec::new();
        let mut invalid_copies = Vec::new();
        self.index.each_of_parts(n, part..part + 1, |slot| {
            if slot.is_dram() {
                let item = self.index.handle(slot);
                let copy = self.dram.arena().flash_copy(item);
                if all || self.is_dead(item) && self.dram.arena().pins(item) == 0 {
                    dead_items.push(item);
                } else if copy != Slot::EMPTY && self.is_gone(copy) {
                    invalid_copies.push(item);
                }
            } else if all || slot.expired(self.now) || self.is_gone(slot) {
                dead_slots.push(slot);
            }
        });
        self.stats.crawler_reclaimed += (dead_items.len() + dead_slots.len()) as u64;
        for item in invalid_copies {
            self.copy_died(self.dram.arena().flash_copy(item));
            self.dram.set_flash_copy(item, Slot::EMPTY);
        }
        for item in dead_items {
            self.unlink_dead(item);
        }
        for slot in dead_slots {
            self.index.remove_slot(n, slot);
            self.copy_died(slot);
            self.stats.drops_error +=
                u64::from(self.keeps_all() && !all && self.lost_by_device(slot));
        }
    }
}
