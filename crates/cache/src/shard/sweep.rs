// SPDX-License-Identifier: Apache-2.0
//! Segments of the index are searched for what is dead: expired, flushed, lost by a device.

use crate::index::Slot;
use crate::shard::Shard;

impl Shard {
    /// Cleans the index after a region of a log was freed. It visits the same fraction of the index
    /// as the region is of the log. So slots of damaged records, which no walk finds, are gone
    /// within a lap.
    pub(crate) fn sweep_for_region(&mut self, n: usize) {
        let regions = (self.flash.log(n).pages() / self.flash.log(n).region_pages()) as usize;
        for _ in 0..self.index.segments().div_ceil(regions) {
            self.crawl();
        }
    }

    /// Removes expired and flushed items from one segment; with `all`, it removes every item. A
    /// pinned item is freed with its last pin.
    pub(crate) fn sweep_segment(&mut self, n: usize, all: bool) {
        let mut dead_items = Vec::new();
        let mut dead_slots = Vec::new();
        let mut invalid_copies = Vec::new();
        self.index.each(n, |slot| {
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

    pub(super) fn crawl(&mut self) {
        self.sweep_segment(self.crawler, false);
        self.crawler = (self.crawler + 1) % self.index.segments();
    }
}
