// SPDX-License-Identifier: Apache-2.0
//! The common part of FAB, BPLRU, LB-CLOCK and PUD-LRU: they hold pages grouped by logical block
//! and evict whole blocks. An [`Order`] chooses the block.

use super::groups::{Entered, Groups};
use super::{Buffer, Outgoing, Surroundings};
use crate::geometry::Lpn;

/// Which block leaves next.
pub trait Order: Send {
    /// A page was written. Its group is new, has grown, or is unchanged.
    fn written(&mut self, groups: &Groups, entered: Entered, lpn: Lpn);

    /// A page was trimmed, and its group still has pages.
    fn shrunk(&mut self, groups: &Groups, slot: u32);

    /// A group is about to leave, or has lost its last page.
    fn removed(&mut self, groups: &Groups, slot: u32);

    /// The group that leaves next. There is at least one group.
    fn victim(&mut self, groups: &Groups) -> u32;

    /// Memory, in bytes.
    fn bytes(&self) -> u64;
}

/// A buffer that evicts whole blocks.
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
