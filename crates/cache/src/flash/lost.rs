// SPDX-License-Identifier: Apache-2.0
//! What a log no longer has although slots may still name it: flushed by `flush_all`, never written because the write failed, hidden because the
//! device is out of use.
//!
//! Asked for every flash slot that is met, so a log in good health pays one comparison: positions from `suspect` on are there.
//!
//! Always holds: every position that is lost is below `suspect`.

use std::ops::Range;

/// Most failed writes that are remembered; with more, all that was placed is given up. A log rests long before.
const MOST_RANGES: usize = 256;

/// The positions lost.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    suspect: u64,
    /// Everything before this was flushed.
    flushed: u64,
    /// Ranges whose write failed, in the order of their failure.
    unwritten: Vec<Range<u64>>,
    hidden: bool,
}

impl Lost {
    /// Whether what was placed at a position can't be read now.
    #[inline]
    pub fn has(&self, position: u64) -> bool {
        position < self.suspect && (self.hidden || self.for_good(position))
    }

    /// Whether it never will.
    pub fn for_good(&self, position: u64) -> bool {
        position < self.flushed || self.unwritten.iter().any(|r| r.contains(&position))
    }

    /// Whether a failed write is the reason.
    pub fn is_unwritten(&self, position: u64) -> bool {
        position >= self.flushed && self.for_good(position)
    }

    /// Everything before this was flushed.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Everything before `head` is flushed.
    pub fn flush(&mut self, head: u64) {
        self.flushed = head;
        self.forget(head);
    }

    /// A write of these positions failed. A record that begins before them and reaches into them is found by its checksum.
    pub fn unwritten(&mut self, range: Range<u64>, tail: u64) {
        match self.unwritten.iter_mut().find(|r| r.end == range.start) {
            Some(before) => before.end = range.end,
            None => self.unwritten.push(range),
        }
        self.forget(tail);
        if self.unwritten.len() > MOST_RANGES {
            let end = self.unwritten.iter().map(|r| r.end).max();
            self.flush(end.unwrap_or(0));
        }
    }

    /// The log begins at `tail` now.
    pub fn forget(&mut self, tail: u64) {
        self.unwritten.retain(|r| r.end > tail);
        self.suspect();
    }

    /// The device is out of use, or back.
    pub fn hide(&mut self, on: bool) {
        self.hidden = on;
        self.suspect();
    }

    fn suspect(&mut self) {
        let unwritten = self.unwritten.iter().map(|r| r.end).max().unwrap_or(0);
        self.suspect = if self.hidden {
            u64::MAX
        } else {
            self.flushed.max(unwritten)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_writes_are_lost_until_their_region_is_reclaimed() {
        let mut lost = Lost::default();
        assert!(!lost.has(0));
        lost.flush(10);
        lost.unwritten(20..24, 0);
        lost.unwritten(24..28, 0);
        lost.unwritten(40..44, 0);
        let all: Vec<u64> = (0..60).filter(|&p| lost.has(p)).collect();
        assert_eq!(all, (0..10).chain(20..28).chain(40..44).collect::<Vec<_>>());
        lost.hide(true);
        assert!((0..60).all(|p| lost.has(p)) && !lost.for_good(30));
        lost.hide(false);
        lost.forget(32);
        assert!(!lost.has(20) && lost.has(40) && lost.has(9));
    }

    #[test]
    fn too_many_failures_give_up_all() {
        let mut lost = Lost::default();
        for n in 0..=MOST_RANGES as u64 {
            lost.unwritten(n * 10..n * 10 + 1, 0);
        }
        assert!(lost.has(5) && lost.has(MOST_RANGES as u64 * 10));
        assert!(!lost.has(MOST_RANGES as u64 * 10 + 1));
    }
}
