// SPDX-License-Identifier: Apache-2.0
//! The common part of FAB, BPLRU, LB-CLOCK and PUD-LRU: they hold pages grouped by logical block
//! and evict whole blocks. An [`Order`] chooses the block.

use super::groups::{Entered, Groups};
use super::{Buffer, Outgoing, Surroundings};
use crate::geometry::{Lpn, NONE};

pub trait Order: Send {
    /// A page was written. Its group is new, has grown, or is unchanged.
    fn written(&mut self, groups: &Groups, entered: Entered, lpn: Lpn);

    /// A page was trimmed, and its group still has pages.
    fn shrunk(&mut self, groups: &Groups, slot: u32);

    /// A group is about to leave, or has lost its last page.
    fn removed(&mut self, groups: &Groups, slot: u32);

    /// The group that leaves next. There is at least one group.
    fn victim(&mut self, groups: &Groups) -> u32;

    fn bytes(&self) -> u64;
}

pub struct Blockwise<O> {
    groups: Groups,
    order: O,
    capacity: usize,
    padding: bool,
}

impl<O: Order> Blockwise<O> {
    /// An empty buffer. With `padding`, blocks are filled up from the flash when they leave.
    pub fn new(around: &Surroundings, padding: bool, order: O) -> Self {
        Self {
            groups: Groups::new(around),
            order,
            capacity: around.capacity,
            padding,
        }
    }

    fn evict(&mut self, out: &mut Outgoing) {
        let slot = self.order.victim(&self.groups);
        self.order.removed(&self.groups, slot);
        self.groups.let_go(slot, self.padding, out);
    }
}

impl<O: Order> Buffer for Blockwise<O> {
    fn len(&self) -> usize {
        self.groups.held()
    }

    fn contains(&self, lpn: Lpn) -> bool {
        self.groups.find(lpn).is_some()
    }

    fn write(&mut self, lpn: Lpn, out: &mut Outgoing) -> bool {
        if self.groups.held() == self.capacity && self.groups.find(lpn).is_none() {
            self.evict(out);
        }
        let entered = self.groups.enter(lpn);
        self.order.written(&self.groups, entered, lpn);
        entered.hit
    }

    fn read(&mut self, lpn: Lpn) -> bool {
        self.contains(lpn)
    }

    fn trim(&mut self, lpn: Lpn) {
        let Some(slot) = self.groups.find(lpn) else {
            return;
        };
        if self.groups.count(slot) == 1 {
            self.order.removed(&self.groups, slot);
            self.groups.remove(lpn);
        } else {
            self.groups.remove(lpn);
            self.order.shrunk(&self.groups, slot);
        }
    }

    fn drain(&mut self, out: &mut Outgoing) {
        while self.groups.held() > 0 {
            self.evict(out);
        }
    }

    fn table_bytes(&self) -> u64 {
        self.groups.bytes() + self.order.bytes()
    }
}

/// Which blocks were written in order so far, from their first page on.
pub struct InOrder {
    pages_per_block: u32,
    /// The page that each block's writes would continue with, [`NONE`] if they were not in order.
    next: Vec<u32>,
}

impl InOrder {
    pub fn new(around: &Surroundings) -> Self {
        Self {
            pages_per_block: around.pages_per_block,
            next: vec![NONE; around.capacity],
        }
    }

    /// Notes a write; returns whether the whole block was written in order now.
    pub fn written(&mut self, entered: Entered, lpn: Lpn) -> bool {
        let page = lpn % self.pages_per_block;
        let next = &mut self.next[entered.slot as usize];
        let in_order = page == if entered.new_group { 0 } else { *next };
        *next = if in_order { page + 1 } else { NONE };
        *next == self.pages_per_block
    }

    /// Notes that a block lost a page.
    pub fn broken(&mut self, slot: u32) {
        self.next[slot as usize] = NONE;
    }

    pub fn bytes(&self) -> u64 {
        4 * self.next.len() as u64
    }
}

/// How often blocks were written since they came. Writes to one block in a row are a run, which
/// counts once.
pub struct Runs {
    last_slot: u32,
    runs: Vec<u32>,
}

impl Runs {
    pub const MOST: u32 = 255;

    pub fn new(around: &Surroundings) -> Self {
        Self {
            last_slot: NONE,
            runs: vec![0; around.capacity],
        }
    }

    /// Notes a write; returns the block's runs with it.
    pub fn written(&mut self, entered: Entered) -> u32 {
        let runs = &mut self.runs[entered.slot as usize];
        if entered.new_group {
            *runs = 1;
        } else if self.last_slot != entered.slot {
            *runs = (*runs + 1).min(Self::MOST);
        }
        self.last_slot = entered.slot;
        *runs
    }

    pub fn of(&self, slot: u32) -> u32 {
        self.runs[slot as usize]
    }

    /// Notes that a block is gone.
    pub fn removed(&mut self, slot: u32) {
        if self.last_slot == slot {
            self.last_slot = NONE;
        }
    }
}
