// SPDX-License-Identifier: Apache-2.0
//! Rent: evicts logical blocks by how much room they have taken for how long.
//!
//! Idea: evicting a block costs a log-block layer about the same for any number of pages. Holding
//! it costs its pages for the time until it is written again. The time since its last write is the
//! best simple estimate of that. So the block with the largest age * pages^power leaves. Power 0 is
//! LRU by block, and a very large power is FAB. With a power in between, large blocks leave early
//! and old ones leave anyway, which neither of the two does. A block that was written from its
//! first page to its last, in order, leaves first, as in BPLRU. The number of writes of a block can
//! also count. With `uses` above 0 the age is divided by that power of the number of runs of writes
//! to the block since it came. So blocks that are written often stay longer (as in `seldom`). With
//! `gaps` the mean time between those runs, or since it came if there was one, is added to the age.
//! So a newcomer leaves before blocks that have stayed for long, and the buffer resists loops
//! longer than itself. Source: our own, made for the adaptive buffer, which chooses the power; the
//! size-aware weighing follows Cao and Irani, "Cost-Aware WWW Proxy Caching Algorithms"
//! (GreedyDual-Size), USITS 1997. Options: `power`, `uses`, `gaps`; `padding=true` makes blocks
//! whole from the flash as BPLRU does.

use super::blockwise::{Blockwise, InOrder, Order, Runs};
use super::groups::{Entered, Groups};
use super::{Buffer, Surroundings};
use crate::Error;
use crate::geometry::Lpn;
use crate::lists::BySize;
use crate::spec::Spec;

struct Rent {
    /// Each number of pages to the power.
    weight: Vec<f64>,
    /// The exponent of a block's runs, and their inverse powers.
    uses_power: f64,
    share: Vec<f64>,
    gaps: bool,
    runs: Runs,
    /// When each block came.
    came: Vec<u64>,
    now: u64,
    /// When each block was last written; 0 if it should leave first.
    last: Vec<u64>,
    in_order: InOrder,
    /// Blocks by size. Within a size the oldest is first, and has the largest rent of its size.
    sizes: BySize,
}

pub(super) fn make(spec: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let power: f64 = spec.take_quietly("power", 2.0)?;
    if !(0.0..=16.0).contains(&power) {
        return Err(Error::Spec(format!(
            "rent: power is a number from 0 to 16, and not {power}"
        )));
    }
    let uses_power: f64 = spec.take_quietly("uses", 0.0)?;
    if !(0.0..=4.0).contains(&uses_power) {
        return Err(Error::Spec(format!(
            "rent: uses is a number from 0 to 4, and not {uses_power}"
        )));
    }
    let order = Rent {
        uses_power,
        share: (0..=Runs::MOST)
            .map(|uses| f64::from(uses.max(1)).powf(-uses_power))
            .collect(),
        gaps: spec.take_quietly("gaps", false)?,
        runs: Runs::new(around),
        came: vec![0; around.capacity],
        weight: (0..=around.pages_per_block)
            .map(|pages| f64::from(pages).powf(power))
            .collect(),
        now: 0,
        last: vec![0; around.capacity],
        in_order: InOrder::new(around),
        sizes: BySize::new(around.capacity, around.pages_per_block),
    };
    let padding = spec.take_quietly("padding", false)?;
    Ok(Box::new(Blockwise::new(around, padding, order)))
}

impl Rent {
    /// The block with the largest rent, if runs count: every block is checked.
    fn largest_of_all(&self, groups: &Groups) -> u32 {
        let mut victim = (0, f64::NEG_INFINITY);
        for slot in 0..groups.places() as u32 {
            let size = groups.count(slot);
            if size == 0 {
                continue;
            }
            let at = slot as usize;
            if self.last[at] == 0 {
                return slot;
            }
            let uses = self.runs.of(slot);
            let mut age = (self.now - self.last[at]) as f64 * self.share[uses as usize];
            if self.gaps {
                age += (self.now - self.came[at]) as f64 / f64::from(uses);
            }
            let rent = age * self.weight[size as usize];
            if rent > victim.1 {
                victim = (slot, rent);
            }
        }
        victim.0
    }
}

impl Order for Rent {
    fn written(&mut self, groups: &Groups, entered: Entered, lpn: Lpn) {
        self.now += 1;
        let slot = entered.slot;
        if entered.new_group {
            // The write that brings a block is counted, so a mean gap is never 0.
            self.came[slot as usize] = self.now - 1;
        }
        self.runs.written(entered);
        let count = groups.count(slot);
        if self.in_order.written(entered, lpn) {
            self.last[slot as usize] = 0;
            self.sizes.enter_first(slot, count);
        } else {
            self.last[slot as usize] = self.now;
            self.sizes.touch(slot, count);
        }
    }

    fn shrunk(&mut self, groups: &Groups, slot: u32) {
        self.in_order.broken(slot);
        // Its order among the blocks of its new size is unknown, so it is treated as the oldest.
        self.sizes.enter_first(slot, groups.count(slot));
    }

    fn removed(&mut self, _: &Groups, slot: u32) {
        self.sizes.remove(slot);
        self.runs.removed(slot);
    }

    fn victim(&mut self, groups: &Groups) -> u32 {
        if self.uses_power > 0.0 || self.gaps {
            return self.largest_of_all(groups);
        }
        let mut victim = (0, f64::NEG_INFINITY);
        for (size, slot) in self.sizes.oldest_of_each() {
            let age = (self.now - self.last[slot as usize]) as f64;
            let rent = age * self.weight[size as usize];
            // Sizes come in ascending order: of two with equal rent, the larger leaves.
            if rent >= victim.1 {
                victim = (slot, rent);
            }
        }
        victim.0
    }

    fn bytes(&self) -> u64 {
        let powers = self.weight.len() + self.share.len();
        self.sizes.bytes() + 24 * self.last.len() as u64 + 8 * powers as u64
    }
}
