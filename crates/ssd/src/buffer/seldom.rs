// SPDX-License-Identifier: Apache-2.0
//! Seldom: evicts logical blocks by how long they were not written, relative to how often they were
//! written before.
//!
//! Idea: evict the block whose age / uses is largest. `uses` counts runs of writes to the block
//! since it came (consecutive writes to one block are a run). A block that was written ten times
//! stays ten times as long as a block that was written once. So it keeps a part of the blocks that
//! are written at intervals longer than the buffer's turnover, of which LRU keeps none. Source: our
//! own, made for the adaptive buffer as the candidate that resists loops and scans. Its ancestor is
//! least-frequently-used with age, by Robinson and Devarakonda, "Data Cache Management Using
//! Frequency-Based Replacement", SIGMETRICS 1990. It has no options.

use super::blockwise::{Blockwise, Order, Runs};
use super::groups::{Entered, Groups};
use super::{Buffer, Surroundings};
use crate::Error;
use crate::geometry::Lpn;
use crate::lists::BySize;
use crate::spec::Spec;

struct Seldom {
    now: u64,
    last: Vec<u64>,
    runs: Runs,
    /// By uses; among blocks with equal uses, the oldest is first.
    by_uses: BySize,
}

pub(super) fn make(_: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let order = Seldom {
        now: 0,
        last: vec![0; around.capacity],
        runs: Runs::new(around),
        by_uses: BySize::new(around.capacity, Runs::MOST),
    };
    Ok(Box::new(Blockwise::new(around, false, order)))
}

impl Order for Seldom {
    fn written(&mut self, _: &Groups, entered: Entered, _: Lpn) {
        self.now += 1;
        self.last[entered.slot as usize] = self.now;
        let uses = self.runs.written(entered);
        self.by_uses.touch(entered.slot, uses);
    }

    fn shrunk(&mut self, _: &Groups, _: u32) {}

    fn removed(&mut self, _: &Groups, slot: u32) {
        self.by_uses.remove(slot);
        self.runs.removed(slot);
    }

    fn victim(&mut self, _: &Groups) -> u32 {
        let mut victim = (0, 0, 1);
        for (uses, slot) in self.by_uses.oldest_of_each() {
            let age = self.now - self.last[slot as usize];
            // age / uses, compared without a division; of two that are equal, the one with fewer
            // uses leaves.
            if age * victim.2 > victim.1 * u64::from(uses) {
                victim = (slot, age, u64::from(uses));
            }
        }
        if victim.1 > 0 {
            return victim.0;
        }
        // Every block was written just now. There is at least one, and it leaves.
        let newest = self.by_uses.largest();
        newest.expect("a group is held")
    }

    fn bytes(&self) -> u64 {
        self.by_uses.bytes() + 12 * self.last.len() as u64
    }
}
