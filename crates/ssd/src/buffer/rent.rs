// SPDX-License-Identifier: Apache-2.0
//! Rent: logical blocks by how much room they have taken for how long.
//!
//! Idea: letting a block go costs a log-block layer about the same however many pages go, and holding it costs its pages for the time until it is written again, of which the time since
//! it was last written is the best simple estimate. So the block leaves for which age * pages^power is largest. Power 0 is LRU by block; a very large one is FAB; between them large blocks
//! leave early and old ones anyway, which neither does. A block that was written from its first page to its last, in order, leaves first, as in BPLRU.
//! Source: our own, made for the adaptive buffer, which chooses the power; the size-aware weighing follows Cao and Irani, "Cost-Aware WWW Proxy Caching Algorithms" (GreedyDual-Size), USITS 1997.
//! Options: `power`; `padding=true` makes blocks whole from the flash as BPLRU does.

use super::blockwise::{Blockwise, Order};
use super::groups::{Entered, Groups};
use super::lists::BySize;
use super::{Buffer, Surroundings};
use crate::Error;
use crate::geometry::{Lpn, NONE};
use crate::spec::Spec;

const DEFAULT_POWER: f64 = 2.0;

struct Rent {
    power: f64,
    padding: bool,
    pages_per_block: u32,
    /// Each number of pages to the power.
    weight: Vec<f64>,
    /// Page writes so far.
    now: u64,
    /// When each block was last written; 0 if it is to leave first.
    last: Vec<u64>,
    /// As in BPLRU: the page that a block's writes would go on with.
    next: Vec<u32>,
    /// Within a size the oldest is first, and so pays the most of its size.
    sizes: BySize,
}

pub(super) fn make(spec: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let power: f64 = spec.take("power", DEFAULT_POWER)?;
    if !(0.0..=16.0).contains(&power) {
        return Err(Error::spec(format!(
            "rent: power is a number from 0 to 16, and not {power}"
        )));
    }
    let order = Rent {
        power,
        padding: spec.take("padding", false)?,
        pages_per_block: around.pages_per_block,
        weight: (0..=around.pages_per_block)
            .map(|pages| f64::from(pages).powf(power))
            .collect(),
        now: 0,
        last: vec![0; around.capacity],
        next: vec![NONE; around.capacity],
        sizes: BySize::new(around.capacity, around.pages_per_block),
    };
    Ok(Box::new(Blockwise::new(around, order)))
}

impl Order for Rent {
    fn written(&mut self, groups: &Groups, entered: Entered, lpn: Lpn) {
        self.now += 1;
        let slot = entered.slot;
        let page = lpn % self.pages_per_block;
        let next = &mut self.next[slot as usize];
        if entered.new_group {
            *next = 0;
        }
        *next = if page == *next { page + 1 } else { NONE };
        let count = groups.count(slot);
        if *next == self.pages_per_block {
            self.last[slot as usize] = 0;
            self.sizes.enter_first(slot, count);
        } else {
            self.last[slot as usize] = self.now;
            self.sizes.touch(slot, count);
        }
    }

    fn shrunk(&mut self, groups: &Groups, slot: u32) {
        self.next[slot as usize] = NONE;
        // Its order among those of its new size is not known: it is taken as the oldest.
        self.sizes.enter_first(slot, groups.count(slot));
    }

    fn removed(&mut self, _: &Groups, slot: u32) {
        self.sizes.remove(slot);
    }

    fn victim(&mut self, _: &Groups) -> u32 {
        let mut victim = (0, f64::NEG_INFINITY);
        for (size, slot) in self.sizes.oldest_of_each() {
            let age = (self.now - self.last[slot as usize]) as f64;
            let rent = age * self.weight[size as usize];
            // Sizes come in ascending order: of two that owe the same, the larger leaves.
            if rent >= victim.1 {
                victim = (slot, rent);
            }
        }
        victim.0
    }

    fn pads(&self) -> bool {
        self.padding
    }

    fn spec(&self) -> Spec {
        let mut spec = Spec::plain("rent");
        if self.power != DEFAULT_POWER {
            spec = spec.with("power", self.power);
        }
        if self.padding {
            spec = spec.with("padding", true);
        }
        spec
    }

    fn bytes(&self) -> u64 {
        self.sizes.bytes() + 12 * self.last.len() as u64 + 8 * self.weight.len() as u64
    }
}
