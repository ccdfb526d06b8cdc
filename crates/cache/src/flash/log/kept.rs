// SPDX-License-Identifier: Apache-2.0
//! A log that keeps every live record (`-M`): how many pages new records leave free, and whether
//! reclaim pays.
//!
//! `docs/architecture/no-eviction.md` has the argument. The sizes here are those of KEEP-4.

use senko_io::PAGE_SIZE;

use super::Log;

impl Log {
    /// Makes the log keep every live record. No record has more than `largest` pages.
    pub fn keep_all(&mut self, largest: u64) {
        let largest = largest.min(self.region_pages);
        self.kept = Some((2 * self.region_pages + largest, largest));
    }
    /// Pages that a record which is not yet in the log must leave free (KEEP-4).
    pub fn reserve(&self) -> u64 {
        self.kept.map_or(0, |(reserve, _)| reserve)
    }
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_pages() * PAGE_SIZE as u64
    }
    pub(super) fn region_bytes(&self) -> u64 {
        self.region_pages * PAGE_SIZE as u64
    }
    /// Notes that a slot or a clean copy is gone. Its record in this log has this many pages
    /// ([`crate::index::Slot::len`]).
    pub fn died(&mut self, pages: usize) {
        self.dead.died(pages);
    }
    /// Notes that a region was freed whose copies took this many pages.
    pub(super) fn gained(&mut self, taken: u64) {
        let gain = (self.region_pages as i64 - taken as i64) * PAGE_SIZE as i64;
        let (regions, used) = (self.regions.len() as u64, self.used_bytes());
        self.dead
            .reclaimed(gain, regions, self.region_bytes(), used);
    }
    /// Whether a new record of a page may find a place, now or after reclaim.
    pub fn may_take(&self) -> bool {
        self.free_pages() + self.discarding_pages() > self.reserve() || self.reclaim_pays()
    }
    pub(super) fn reclaim_pays(&self) -> bool {
        self.kept.is_none() || self.dead.pays(self.region_bytes(), self.used_bytes())
    }
}
