// SPDX-License-Identifier: Apache-2.0
//! FAB: flash-aware buffer.
//!
//! Idea: evict the whole logical block with the most pages in the buffer; of several, the block
//! that was written longest ago. Large groups cost a log-block layer the fewest merges a page, and
//! media files, which are written once in order, leave at once. Source: Jo, Kang, Park, Kim, Lee,
//! "FAB: Flash-Aware Buffer Management Policy for Portable Media Players", IEEE Trans. Consumer
//! Electronics 52(2), 2006, section III. Deviation: theirs is the player's whole cache and holds
//! pages that were read too; a write buffer holds written ones alone. No parameters, as in the
//! original.

use super::blockwise::{Blockwise, Order};
use super::groups::{Entered, Groups};
use super::{Buffer, Surroundings};
use crate::Error;
use crate::geometry::Lpn;
use crate::lists::BySize;
use crate::spec::Spec;

struct Fab {
    sizes: BySize,
}

pub(super) fn make(_: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let sizes = BySize::new(around.capacity, around.pages_per_block);
    Ok(Box::new(Blockwise::new(around, false, Fab { sizes })))
}

impl Order for Fab {
    fn written(&mut self, groups: &Groups, entered: Entered, _: Lpn) {
        self.sizes.touch(entered.slot, groups.count(entered.slot));
    }

    fn shrunk(&mut self, groups: &Groups, slot: u32) {
        // A block that lost a page is treated as the oldest of its new size, because its order
        // among them is no longer known.
        self.sizes.enter_first(slot, groups.count(slot));
    }

    fn removed(&mut self, _: &Groups, slot: u32) {
        self.sizes.remove(slot);
    }

    fn victim(&mut self, _: &Groups) -> u32 {
        self.sizes.largest().expect("a group is held")
    }

    fn bytes(&self) -> u64 {
        self.sizes.bytes()
    }
}
