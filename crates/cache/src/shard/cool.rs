// SPDX-License-Identifier: Apache-2.0
//! What "hit lately" means: a hand goes around the index and makes the hits that slots count hits of long ago.
//!
//! Card. 2Q (Johnson and Shasha, VLDB 1994) takes an item into its main queue when it is asked for again while it is on a list of as many
//! keys as were asked for last. Here the list is the two bits of each flash slot, and its length the pace of the hand: it goes around
//! once for two hits on flash an item that DRAM holds, so a hit counts for as many further ones as DRAM has items, on average.
//! An item that would leave DRAM before it is asked for again, as most would if all are asked for alike, is then answered
//! from flash, and DRAM keeps what is worth more. Differences: a hit is forgotten after none to two of these spans rather than exactly
//! one, and nothing is stored for it.

use crate::shard::Shard;

/// Fewest items that DRAM is taken to hold.
const LEAST_ITEMS: u64 = 1024;
/// Most lines in one go, so that a hit stays cheap where DRAM is tiny against flash; a hit counts for longer then.
const MOST_LINES: u64 = 8;

/// Where the hand stands.
#[derive(Debug, Default)]
pub(crate) struct Hand {
    segment: usize,
    line: usize,
    /// What the hand owes, in lines times twice the items that DRAM holds.
    owed: u64,
}

impl Shard {
    /// Moves the hand, after a hit on flash.
    pub(crate) fn cool(&mut self) {
        let span = 2 * self.dram_items.max(LEAST_ITEMS);
        let hand = &mut self.hand;
        hand.owed = (hand.owed + self.index.line_count()).min(span * MOST_LINES);
        while hand.owed >= span {
            hand.owed -= span;
            if self.index.cool(hand.segment, hand.line) {
                hand.line += 1;
            } else {
                hand.line = 0;
                hand.segment = (hand.segment + 1) % self.index.segments();
            }
        }
    }
}
