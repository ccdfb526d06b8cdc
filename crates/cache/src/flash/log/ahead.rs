// SPDX-License-Identifier: Apache-2.0
//! Regions ahead of a log's head, for values that are written as they arrive (*uploads*).
//!
//! An upload must know its place before its value is here, and other records must not wait for it.
//! So uploads get whole regions of their own, right after the region of the head. Each takes the
//! next pages there, and writes them itself (`flash/upload.rs`). The head passes over these regions
//! when it comes to them.
//!
//! ```text
//!   tail           head   first              end             tail + pages
//!    |   records ..  |     | upload | upload |  |    free        |
//!    |  region | region    | region | region    |
//! ```
//!
//! - LOG-5: between the end of the head's region and `end` all pages belong to uploads. The head
//!   never enters them, and no slot names a page of them that was not written.
//! - LOG-6: a region of uploads is told to the next process before a slot names a page of it. So
//!   that process keeps the slot, although older pages were still in write buffers (RESTART-3).

use senko_io::{PAGE_SIZE, Queue};

use super::{Log, NoPlace, Region};

/// Marks a region of uploads in its word. The other bits are its first record.
const UPLOADS: u32 = 1 << 31;

impl Region {
    /// The region as another process finds it.
    pub(super) fn word(&self) -> u32 {
        self.first_record | if self.uploads { UPLOADS } else { 0 }
    }
    /// A region that an earlier process left.
    pub(super) fn of(word: u32) -> Region {
        Region {
            pins: 0,
            first_record: word & !UPLOADS,
            uploads: word & UPLOADS != 0,
        }
    }
}

/// Which positions belong to uploads.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The regions that the head has not passed yet.
    regions: Option<(u64, u64)>,
    /// The pages that the next upload may take.
    rest: Option<(u64, u64)>,
}

impl Ahead {
    /// Whether positions up to `end` are the head's, since regions of uploads begin no earlier.
    pub fn is_before(&self, end: u64) -> bool {
        self.regions.is_some_and(|(first, _)| end <= first)
    }
    /// The end of the regions, if the head has not passed them.
    pub fn regions_end(&self) -> Option<u64> {
        self.regions.map(|(_, end)| end)
    }
    /// Lets the head pass the regions, if it has not; returns their end.
    pub fn pass(&mut self) -> Option<u64> {
        self.regions.take().map(|(_, end)| end)
    }
    /// The rest of the regions is left empty.
    pub fn end(&mut self) {
        self.rest = None;
    }
}

impl Log {
    /// Leaves the oldest region, which may still have the head or open chunks if only uploads came
    /// for a lap. Returns whether all of it is on the device.
    pub fn leave_oldest<Q: Queue>(&mut self, queue: &mut Q, now_ms: u64) -> bool {
        let end = self.tail + self.region_pages;
        if self.head < end {
            self.pass();
        }
        while self.open.first().is_some_and(|chunk| chunk.first < end) {
            self.submit_oldest(queue, now_ms);
        }
        self.written_to() >= end
    }

    /// Takes pages for an upload of `pages` pages.
    pub fn take_ahead(&mut self, pages: u64) -> Result<u64, NoPlace> {
        if self.closed || self.is_streaming() {
            return Err(NoPlace::Buffers);
        }
        // Reclaim may be at work in the oldest region.
        let oldest_end = self.tail + self.region_pages;
        self.ahead.rest = self.ahead.rest.filter(|&(at, _)| at >= oldest_end);
        if let Some((at, end)) = self.ahead.rest
            && at + pages <= end
        {
            return Ok(self.give_ahead(at, pages, end));
        }
        let taken = match self.ahead.regions {
            Some((_, end)) => end,
            None => self.head.next_multiple_of(self.region_pages),
        };
        // The rest of the last region serves if the next one follows it on the device.
        let rest = self.ahead.rest.filter(|&(_, end)| end == taken);
        let mut at = rest.map_or(taken, |(at, _)| at);
        if at % self.pages + pages > self.pages {
            at = at.next_multiple_of(self.pages).max(taken);
        }
        let end = (at + pages).next_multiple_of(self.region_pages);
        // A region is left for the head.
        let needed = end + self.region_pages - taken;
        if needed > self.free_pages() {
            self.wanted = self.wanted.max(needed);
            return Err(NoPlace::Space);
        }
        let first = self.ahead.regions.map_or(taken, |(first, _)| first);
        self.ahead.regions = Some((first, end));
        self.note_taken();
        self.tell_opened(end);
        let mut region = taken;
        while region < end {
            let n = self.region_of(region);
            let none = self.region_pages as u32;
            (self.regions[n].first_record, self.regions[n].uploads) = (none, true);
            self.tell_region(n);
            region += self.region_pages;
        }
        Ok(self.give_ahead(at, pages, end))
    }

    fn give_ahead(&mut self, at: u64, pages: u64, end: u64) -> u64 {
        self.ahead.rest = Some((at + pages, end));
        self.page_bytes += pages * PAGE_SIZE as u64;
        let n = self.region_of(at);
        let first = (at % self.region_pages) as u32;
        if first < self.regions[n].first_record {
            self.regions[n].first_record = first;
            self.tell_region(n);
        }
        at
    }

    /// Gives back the pages that were just taken at a position.
    pub fn give_back(&mut self, at: u64, pages: u64) {
        let (next, end) = self.ahead.rest.expect("pages were taken");
        debug_assert_eq!(next, at + pages);
        self.ahead.rest = Some((at, end));
        self.page_bytes -= pages * PAGE_SIZE as u64;
    }

    /// Counts the bytes of a record that was uploaded.
    pub fn uploaded(&mut self, len: usize) {
        self.placed(len);
    }

    /// The most pages of an upload. With the end of the slice that may be left empty before it, the
    /// rest of its last region, and the region of the head, it finds room.
    pub fn most_ahead(&self) -> u64 {
        self.pages.saturating_sub(4 * self.region_pages) / 2
    }

    /// Whether the region of a position was given to uploads, whose slots name only written pages.
    pub fn is_of_uploads(&self, position: u64) -> bool {
        self.regions[self.region_of(position)].uploads
    }
}
