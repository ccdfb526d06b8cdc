// SPDX-License-Identifier: Apache-2.0
//! LB-CLOCK: a clock over logical blocks.
//!
//! Idea: blocks lie on a circle, each with a bit that a write sets. To make room, the hand moves on
//! and clears bits, until it reaches a block whose bit is clear. Of all blocks with clear bits, the
//! one with the most pages leaves; of several, the one whose bit has been clear for longest. So
//! recency decides which blocks may leave, and size decides which one does. The workload determines
//! which of the two weighs more. When the last page of a block is written in order, its bit is
//! cleared: sequential data is not written again soon. Source: Debnath, Subramanya, Du, Lilja,
//! "Large Block CLOCK (LB-CLOCK): A Write Caching Algorithm for Solid State Disks", MASCOTS 2009,
//! section III. Deviation: the original does not say exactly where the hand stops, nor how ties are
//! resolved; the rules above are our choice. Options: `padding=true` makes blocks whole as BPLRU
//! does, off by default; `sequential=false` leaves the last rule out.

use super::blockwise::{Blockwise, InOrder, Order};
use super::groups::{Entered, Groups};
use super::{Buffer, Surroundings};
use crate::Error;
use crate::geometry::Lpn;
use crate::lists::{BySize, Lists};
use crate::spec::Spec;

struct LbClock {
    sequential: bool,
    /// The circle, cut open at the hand, which is on a block or before the first one.
    circle: Lists,
    hand: Option<u32>,
    clear: BySize,
    in_order: InOrder,
}

pub(super) fn make(spec: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let order = LbClock {
        sequential: spec.take_quietly("sequential", true)?,
        circle: Lists::new(around.capacity, 1),
        hand: None,
        clear: BySize::new(around.capacity, around.pages_per_block),
        in_order: InOrder::new(around),
    };
    let padding = spec.take_quietly("padding", false)?;
    Ok(Box::new(Blockwise::new(around, padding, order)))
}

impl Order for LbClock {
    fn written(&mut self, groups: &Groups, entered: Entered, lpn: Lpn) {
        let slot = entered.slot;
        if entered.new_group {
            // Directly after the hand, which reaches it last.
            match self.hand {
                Some(hand) => self.circle.insert_before(hand, slot),
                None => self.circle.push_back(0, slot),
            }
        }
        if self.in_order.written(entered, lpn) && self.sequential {
            self.clear.touch(slot, groups.count(slot));
        } else {
            self.clear.remove(slot);
        }
    }

    fn shrunk(&mut self, groups: &Groups, slot: u32) {
        self.in_order.broken(slot);
        if self.clear.has(slot) {
            self.clear.enter_first(slot, groups.count(slot));
        }
    }

    fn removed(&mut self, _: &Groups, slot: u32) {
        if self.hand == Some(slot) {
            self.hand = self.circle.after(slot);
        }
        self.circle.unlink(slot);
        self.clear.remove(slot);
    }

    fn victim(&mut self, groups: &Groups) -> u32 {
        let mut at = self.hand.or(self.circle.front(0));
        while let Some(slot) = at {
            if self.clear.has(slot) {
                break;
            }
            self.clear.touch(slot, groups.count(slot));
            at = self.circle.after(slot).or(self.circle.front(0));
        }
        self.hand = at;
        self.clear.largest().expect("the hand found one")
    }

    fn bytes(&self) -> u64 {
        self.circle.bytes() + self.clear.bytes() + self.in_order.bytes()
    }
}
