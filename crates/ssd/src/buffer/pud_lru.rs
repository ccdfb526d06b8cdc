// SPDX-License-Identifier: Apache-2.0
//! PUD-LRU: blocks by their predicted average update distance.
//!
//! Idea: the predicted average update distance (PUD) of a block combines how often and how recently
//! it was written. Blocks below a threshold are the frequently updated group and stay. The others
//! are the infrequently updated group. Of these the block with the most pages leaves, so that an
//! erase frees as much as it can. Source: Hu, Jiang, Tian, Xu, "PUD-LRU: An Erase-Efficient Write
//! Buffer Management Algorithm for Flash Memory SSD", MASCOTS 2010, section III. Choices, where the
//! original has no exact formula. Time counts page writes. An update is a run of writes to one
//! block (`runs=false`: each page is an update). The distance at time t is (S + t - last) / n,
//! where n counts the block's updates since it came and S spans them. With `memory` below 1, each
//! update first multiplies both by it. The threshold is `threshold` times the mean over the blocks
//! held. It is computed again whenever as many pages were written as the buffer holds. The lab's
//! `endurance-policies` measures how much each matters. Deviation: `padding=true` makes blocks
//! whole as BPLRU does; off by default.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::blockwise::{Blockwise, Order};
use super::groups::{Entered, Groups};
use super::{Buffer, Surroundings};
use crate::Error;
use crate::geometry::{Lpn, NONE};
use crate::lists::BySize;
use crate::spec::Spec;

/// A block's history since it came.
#[derive(Clone, Copy, Debug)]
struct History {
    held: bool,
    /// Updates; older ones are partly forgotten.
    updates: f64,
    /// The time from the first of them to the last.
    span: f64,
    last: u64,
    /// When this block's earliest entry in the queue is due; `u64::MAX` if it has none.
    queued: u64,
}

/// The history of a place without a block.
const NEVER: History = History {
    held: false,
    updates: 0.0,
    span: 0.0,
    last: 0,
    queued: u64::MAX,
};

struct PudLru {
    runs: bool,
    memory: f64,
    threshold: f64,
    now: u64,
    /// The distance up to which blocks are frequently updated.
    limit: f64,
    renew: u64,
    last_slot: u32,
    history: Vec<History>,
    /// Frequently updated blocks, ordered by when they cease to be so unless they are written
    /// before. Entries may be early, or for blocks that are gone; they are checked when they are
    /// due.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    infrequent: BySize,
}

pub(super) fn make(spec: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let capacity = around.capacity;
    let order = PudLru {
        runs: spec.take_quietly("runs", true)?,
        memory: spec.take_quietly("memory", 1.0)?,
        threshold: spec.take_quietly("threshold", 1.0)?,
        now: 0,
        limit: capacity as f64,
        renew: capacity as u64,
        last_slot: NONE,
        history: vec![NEVER; capacity],
        queue: BinaryHeap::with_capacity(3 * capacity),
        infrequent: BySize::new(capacity, around.pages_per_block),
    };
    if !(0.0..=1.0).contains(&order.memory) {
        return Err(Error::Spec(format!(
            "pud-lru: memory is a factor from 0 to 1, and not {}",
            order.memory
        )));
    }
    if !(order.threshold >= 0.0 && order.threshold.is_finite()) {
        return Err(Error::Spec(format!(
            "pud-lru: threshold is a factor of at least 0, and not {}",
            order.threshold
        )));
    }
    let padding = spec.take_quietly("padding", false)?;
    Ok(Box::new(Blockwise::new(around, padding, order)))
}

impl PudLru {
    fn distance(&self, history: &History) -> f64 {
        (history.span + (self.now - history.last) as f64) / history.updates
    }

    /// The time from which a block is infrequently updated, if it is not written again.
    fn due(&self, history: &History) -> u64 {
        let due = history.last as f64 - history.span + self.limit * history.updates;
        due.max(0.0) as u64 + 1
    }

    fn enqueue(&mut self, slot: u32) {
        let due = self.due(&self.history[slot as usize]);
        let history = &mut self.history[slot as usize];
        if due < history.queued {
            history.queued = due;
            self.queue.push(Reverse((due, slot)));
        }
    }

    /// Computes the threshold again. An infrequently updated block stays so until it is written.
    fn set_limit(&mut self, groups: &Groups) {
        let held = self.history.iter().filter(|history| history.held);
        let sum: f64 = held.map(|history| self.distance(history)).sum();
        self.limit = self.threshold * sum / groups.len().max(1) as f64;
        self.renew = self.now + groups.places() as u64;
        self.queue.clear();
        for slot in 0..self.history.len() as u32 {
            self.history[slot as usize].queued = u64::MAX;
            if self.history[slot as usize].held && !self.infrequent.has(slot) {
                self.enqueue(slot);
            }
        }
    }

    /// Moves the blocks whose time is over into the infrequently updated group. With `one`, it
    /// moves the next one in any case.
    fn expire(&mut self, groups: &Groups, mut one: bool) {
        while let Some(Reverse((due, slot))) = self.queue.peek().copied() {
            if due > self.now && !one {
                break;
            }
            self.queue.pop();
            let history = &mut self.history[slot as usize];
            if history.queued != due {
                continue;
            }
            history.queued = u64::MAX;
            if !history.held || self.infrequent.has(slot) {
                continue;
            }
            let really = self.due(&self.history[slot as usize]);
            if really > due {
                self.history[slot as usize].queued = really;
                self.queue.push(Reverse((really, slot)));
                continue;
            }
            self.infrequent.touch(slot, groups.count(slot));
            one = false;
        }
    }
}

impl Order for PudLru {
    fn written(&mut self, groups: &Groups, entered: Entered, _: Lpn) {
        self.now += 1;
        let slot = entered.slot;
        let same_run = self.runs && !entered.new_group && self.last_slot == slot;
        self.last_slot = slot;
        let now = self.now;
        let history = &mut self.history[slot as usize];
        if entered.new_group {
            *history = History {
                held: true,
                updates: 1.0,
                span: 0.0,
                last: now,
                queued: history.queued,
            };
        } else {
            let gap = (now - history.last) as f64;
            if same_run {
                history.span += gap;
            } else {
                history.span = history.span * self.memory + gap;
                history.updates = history.updates * self.memory + 1.0;
            }
            history.last = now;
        }
        // A written block is frequently updated until its distance exceeds the threshold.
        self.infrequent.remove(slot);
        self.enqueue(slot);
        if now >= self.renew {
            self.set_limit(groups);
        }
    }

    fn shrunk(&mut self, groups: &Groups, slot: u32) {
        if self.infrequent.has(slot) {
            self.infrequent.enter_first(slot, groups.count(slot));
        }
    }

    fn removed(&mut self, _: &Groups, slot: u32) {
        self.infrequent.remove(slot);
        self.history[slot as usize].held = false;
        if self.last_slot == slot {
            self.last_slot = NONE;
        }
    }

    fn victim(&mut self, groups: &Groups) -> u32 {
        self.expire(groups, false);
        if self.infrequent.largest().is_none() {
            self.expire(groups, true);
        }
        self.infrequent
            .largest()
            .expect("every block is in one of the groups")
    }

    fn bytes(&self) -> u64 {
        let places = self.history.len();
        let slabs = places * size_of::<History>()
            + self.queue.capacity() * size_of::<Reverse<(u64, u32)>>();
        self.infrequent.bytes() + slabs as u64
    }
}
