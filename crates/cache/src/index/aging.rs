// SPDX-License-Identifier: Apache-2.0
//! CLOCK aging: a hand sweeps the index, and turns the recent flash hits of each slot into old
//! ones.
//!
//! Card. 2Q (Johnson and Shasha, VLDB 1994) keeps a list of recently requested keys. It takes an
//! item into its main queue when the item is requested again while its key is on the list. Here two
//! bits in each flash slot replace the list, and the pace of the hand replaces its length. The hand
//! goes around once while flash gets two hits per item in DRAM. So on average, a hit counts until
//! flash has had as many further hits as DRAM has items. If all items are equally popular, most
//! would leave DRAM before their next request. Such items are answered from flash, and DRAM keeps
//! the more popular items. Differences: a hit is forgotten after none to two of these spans rather
//! than exactly one, and nothing is stored for it.

use super::{Index, LINE, Segment, Slot, Sorted};
use crate::arena::SEGMENT_LINES;

/// The least number of items that DRAM is assumed to hold.
const LEAST_ITEMS: u64 = 1024;
/// The most lines in one step, so that a hit stays cheap if DRAM is tiny compared with flash. A hit
/// counts for longer then.
const MOST_LINES: u64 = 8;

/// The position of the hand.
#[derive(Debug, Default)]
pub(super) struct ClockHand {
    segment: usize,
    line: usize,
    /// How far the hand is behind, in lines times twice the items in DRAM.
    owed: u64,
}

impl Index {
    /// Moves the hand, after a hit on flash.
    pub fn age(&mut self, dram_items: u64) {
        let span = 2 * dram_items.max(LEAST_ITEMS);
        let narrow = self.sorted.as_ref().map_or(0, Sorted::lines);
        self.hand.owed = (self.hand.owed + self.line_count() + narrow).min(span * MOST_LINES);
        while self.hand.owed >= span {
            self.hand.owed -= span;
            if self.age_line(self.hand.segment, self.hand.line) {
                self.hand.line += 1;
            } else {
                self.hand.line = 0;
                let narrow = self.sorted.as_ref().map_or(0, Sorted::segments);
                self.hand.segment = (self.hand.segment + 1) % (self.segments() + narrow);
            }
        }
    }

    /// Turns recent flash hits in a line of a segment into old ones; false if the segment has no
    /// such line. Behind the index's own segments come those of sorted records.
    pub(super) fn age_line(&mut self, segment: usize, line: usize) -> bool {
        if let Some(n) = segment.checked_sub(self.segments()) {
            let sorted = self.sorted.as_ref();
            return sorted.is_some_and(|sorted| sorted.age_line(&mut self.lines, n, line));
        }
        let Segment { chunk, step, .. } = self.segments[segment];
        if line >= SEGMENT_LINES[step as usize] as usize {
            return false;
        }
        for at in line * LINE..(line + 1) * LINE {
            let slot = Slot(self.lines.u64(chunk, at * 8));
            if slot.is_flash() && slot.hits_lately() > 0 {
                self.lines.set_word(chunk, at * 8, slot.with_hot(1).0);
            }
        }
        true
    }
}
