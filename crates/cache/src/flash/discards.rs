// SPDX-License-Identifier: Apache-2.0
//! Freed regions that the device is still discarding. Data written there before the end of the
//! discard might be discarded too.
//!
//! Always holds: these regions are the last of the log's free pages, in the order in which they
//! were freed. Discards may end in any order.

use std::collections::VecDeque;

/// The discards of one log.
#[derive(Debug, Default)]
pub(crate) struct Discards {
    /// Region, and whether its discard has ended.
    regions: VecDeque<(u64, bool)>,
    /// When the device last ended a discard, or got the first one.
    moved_ms: u64,
}

impl Discards {
    /// Regions that can't be written yet.
    pub fn regions(&self) -> u64 {
        self.regions.len() as u64
    }

    /// Notes that a region was freed and its discard submitted.
    pub fn begin(&mut self, region: u64, now_ms: u64) {
        if self.regions.is_empty() {
            self.moved_ms = now_ms;
        }
        self.regions.push_back((region, false));
    }

    /// Notes that the discard of a region ended, with or without success.
    pub fn end(&mut self, region: u64, now_ms: u64) {
        for (other, ended) in &mut self.regions {
            *ended |= *other == region;
        }
        while self.regions.front().is_some_and(|&(_, ended)| ended) {
            self.regions.pop_front();
        }
        self.moved_ms = now_ms;
    }

    /// Whether the device has ended no discard for longer than `limit_ms`.
    pub fn stall(&self, now_ms: u64, limit_ms: u64) -> bool {
        !self.regions.is_empty() && now_ms.saturating_sub(self.moved_ms) > limit_ms
    }
}

#[cfg(test)]
mod tests {
    use super::Discards;

    #[test]
    fn regions_are_given_out_in_the_order_in_which_they_were_freed() {
        let mut discards = Discards::default();
        for region in [7, 8, 0] {
            discards.begin(region, 1000);
        }
        discards.end(8, 1100);
        assert_eq!(discards.regions(), 3);
        discards.end(7, 1200);
        assert_eq!(discards.regions(), 1);
        assert!(!discards.stall(1300, 100) && discards.stall(1301, 100));
        discards.end(0, 1400);
        assert_eq!(discards.regions(), 0);
        assert!(!discards.stall(9000, 100));
    }
}
