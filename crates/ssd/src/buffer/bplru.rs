// SPDX-License-Identifier: Apache-2.0
//! BPLRU: block padding LRU.
//!
//! Idea: three techniques. Block-level LRU: a write makes all pages of its block young, and the
//! oldest block is evicted as a whole. Page padding: the pages of that block that the buffer lacks
//! are read from the flash. So the block is written whole and in order, and BAST's merge is a
//! switch: one erase. LRU compensation: a block that was written from its first page to its last,
//! in order, is taken as the oldest, since sequential data is not written again soon. Source: Kim
//! and Ahn, "BPLRU: A Buffer Management Scheme for Improving Random Writes in Flash Storage", FAST
//! 2008, sections 3.1 to 3.3. Deviation: none; as in the paper, reads do not change the order.
//! Options: `padding` and `compensation` switch the techniques off, as in the paper's measurements.

use super::blockwise::{Blockwise, InOrder, Order};
use super::groups::{Entered, Groups};
use super::{Buffer, Surroundings};
use crate::Error;
use crate::geometry::Lpn;
use crate::lists::Lists;
use crate::spec::Spec;

struct Bplru {
    compensation: bool,
    /// One list, the oldest first.
    order: Lists,
    in_order: InOrder,
}

pub(super) fn make(spec: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let order = Bplru {
        compensation: spec.take_quietly("compensation", true)?,
        order: Lists::new(around.capacity, 1),
        in_order: InOrder::new(around),
    };
    let padding = spec.take_quietly("padding", true)?;
    Ok(Box::new(Blockwise::new(around, padding, order)))
}

impl Order for Bplru {
    fn written(&mut self, _: &Groups, entered: Entered, lpn: Lpn) {
        let slot = entered.slot;
        if !entered.new_group {
            self.order.unlink(slot);
        }
        if self.in_order.written(entered, lpn) && self.compensation {
            self.order.push_front(0, slot);
        } else {
            self.order.push_back(0, slot);
        }
    }

    fn shrunk(&mut self, _: &Groups, slot: u32) {
        self.in_order.broken(slot);
    }

    fn removed(&mut self, _: &Groups, slot: u32) {
        self.order.unlink(slot);
    }

    fn victim(&mut self, _: &Groups) -> u32 {
        self.order.front(0).expect("a group is held")
    }

    fn bytes(&self) -> u64 {
        self.order.bytes() + self.in_order.bytes()
    }
}
