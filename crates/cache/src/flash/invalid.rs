// SPDX-License-Identifier: Apache-2.0
//! Invalid ranges: positions of a log that slots may still name, although their records must not be
//! read. They were flushed by `flush_all`, or their write failed, or they are hidden because the
//! device is out of use.
//!
//! Every flash slot that is met is checked here. A log in good health needs one comparison:
//! positions from `suspect` on are valid.
//!
//! Always holds: every invalid position is below `suspect`.

use std::ops::Range;

/// The most failed writes that are remembered. With more, every earlier position is invalid.
/// Usually a log stops accepting items long before that.
const MOST_RANGES: usize = 256;

/// The invalid positions.
#[derive(Debug, Default)]
pub(crate) struct InvalidRanges {
    suspect: u64,
    /// Every position before this was flushed.
    flushed: u64,
    /// Ranges of failed writes, in the order of their failure.
    unwritten: Vec<Range<u64>>,
    hidden: bool,
}

impl InvalidRanges {
    /// Whether the record at a position can't be read now.
    #[inline]
    pub fn has(&self, position: u64) -> bool {
        position < self.suspect && (self.hidden || self.for_good(position))
    }

    /// Whether it can never be read again.
    pub fn for_good(&self, position: u64) -> bool {
        position < self.flushed || self.unwritten.iter().any(|r| r.contains(&position))
    }

    /// Whether a failed write is the reason.
    pub fn is_unwritten(&self, position: u64) -> bool {
        position >= self.flushed && self.for_good(position)
    }

    /// The position before which everything was flushed.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Marks everything before `head` as flushed.
    pub fn flush(&mut self, head: u64) {
        self.flushed = head;
        self.forget(head);
    }

    /// Notes that a write of these positions failed. A record that begins before them and reaches
    /// into them fails its checksum.
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

    /// Notes that the log begins at `tail` now.
    pub fn forget(&mut self, tail: u64) {
        self.unwritten.retain(|r| r.end > tail);
        self.suspect();
    }

    /// Notes that the device is out of use, or back in use.
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
    fn failed_writes_are_invalid_until_their_region_is_reclaimed() {
        let mut invalid = InvalidRanges::default();
        assert!(!invalid.has(0));
        invalid.flush(10);
        invalid.unwritten(20..24, 0);
        invalid.unwritten(24..28, 0);
        invalid.unwritten(40..44, 0);
        let all: Vec<u64> = (0..60).filter(|&p| invalid.has(p)).collect();
        assert_eq!(all, (0..10).chain(20..28).chain(40..44).collect::<Vec<_>>());
        invalid.hide(true);
        assert!((0..60).all(|p| invalid.has(p)) && !invalid.for_good(30));
        invalid.hide(false);
        invalid.forget(32);
        assert!(!invalid.has(20) && invalid.has(40) && invalid.has(9));
    }

    /// 256 failed writes are remembered one by one. With one more, every position before the end of
    /// the last one becomes invalid.
    #[test]
    fn too_many_failed_writes_give_up_all() {
        let mut invalid = InvalidRanges::default();
        for n in 0..256 {
            invalid.unwritten(n * 10..n * 10 + 5, 0);
        }
        assert!(invalid.has(2554) && !invalid.has(2555) && !invalid.has(2549));
        assert_eq!(invalid.flushed(), 0);
        invalid.unwritten(2560..2565, 0);
        assert_eq!(invalid.flushed(), 2565);
        assert!(invalid.has(2549) && !invalid.has(2565));
    }
}
