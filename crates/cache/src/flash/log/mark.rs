// SPDX-License-Identifier: Apache-2.0
//! The state of a log, for a process that continues from it.

use super::{Log, Region};
use crate::words::{LogWord, State};

/// Where a log of an earlier process continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogMark {
    /// Positions before it may have been given out.
    pub head: u64,
    /// Positions before it are on the device.
    pub written: u64,
    pub tail: u64,
    pub flushed: u64,
    /// For each region the first page at which a record starts, and whether uploads had it.
    pub regions: Vec<u32>,
}

impl LogMark {
    /// Whether a log of this many pages, in regions of `region_pages`, can be in this state.
    pub fn fits(&self, pages: u64, region_pages: u64) -> bool {
        self.tail <= self.head
            && self.head - self.tail <= pages
            && self.head < 1 << 47
            && self.written <= self.head
            && self.flushed <= self.head
            && self.tail.is_multiple_of(region_pages)
            && self.regions.len() as u64 == pages / region_pages
            && (self.regions.iter())
                .all(|&word| u64::from(Region::of(word).first_record) <= region_pages)
    }
}

impl Log {
    /// Continues from the state of an earlier process. The head moves on to the start of a region.
    /// Pages given out before may or may not have been written, and must not share a generation
    /// with new writes (RESTART-4).
    pub fn go_on(&mut self, mark: &LogMark) {
        debug_assert!(mark.fits(self.pages, self.region_pages) && self.head == 0);
        self.head = mark.head.next_multiple_of(self.region_pages);
        self.tail = mark.tail;
        self.invalid.flush(mark.flushed);
        (self.lap, self.head_at) = (self.head / self.pages, self.head % self.pages);
        for (region, &word) in self.regions.iter_mut().zip(&mark.regions) {
            *region = Region::of(word);
        }
        // Only a lap can tell how much of it is dead.
        self.dead.all(self.used_bytes());
    }

    /// The state of the log, from which another process can continue.
    pub fn mark(&self) -> LogMark {
        LogMark {
            head: self.taken(),
            written: self.written_to(),
            tail: self.tail,
            flushed: self.invalid.flushed(),
            regions: self.regions.iter().map(Region::word).collect(),
        }
    }

    /// The log's state at a stop; `None` if its data is damaged.
    pub fn mark_of(&self, state: &State) -> Option<LogMark> {
        let first = (self.base / self.region_pages) as usize;
        Some(LogMark {
            head: state.log(self.number, LogWord::Opened)?,
            written: state.log(self.number, LogWord::Written)?,
            tail: state.log(self.number, LogWord::Tail)?,
            flushed: state.log(self.number, LogWord::Flushed)?,
            regions: (0..self.regions.len())
                .map(|n| state.region(first + n))
                .collect::<Option<_>>()?,
        })
    }
}
