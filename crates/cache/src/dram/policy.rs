// SPDX-License-Identifier: Apache-2.0
//! Eviction policies of DRAM: the trait, and the lists that its implementations share.
//!
//! Each size class has its own queues, since a victim must free a chunk of the requesting class.
//! Pages move between classes by the age of their oldest items (`memory.rs`).

mod lru; // paper E's policy
mod s3fifo; // three FIFO queues

use crate::arena::{Arena, Handle};
use crate::config::PolicyKind;

/// Offset of an item's link to the previous chunk in its list.
pub(super) const PREV: usize = 0;
/// Offset of its link to the next chunk.
pub(super) const NEXT: usize = 4;
/// Offset of a byte for the policy: frequency and queue.
pub(super) const NOTE: usize = 14;

/// Orders the items of DRAM. An item is inserted once ([`Policy::insert`]), and removed once
/// ([`Policy::remove`]).
pub(crate) trait Policy: std::fmt::Debug + Send {
    /// Adds an item that became visible. `known`: it was requested before (promoted from flash), so
    /// it is not on probation.
    fn insert(&mut self, arena: &mut Arena, class: usize, item: Handle, hash: u64, known: bool);
    /// Notes that an item was read.
    fn hit(&mut self, arena: &mut Arena, class: usize, item: Handle);
    /// Removes an item, for whatever reason.
    fn remove(&mut self, arena: &mut Arena, class: usize, item: Handle);
    /// Whether an item was read lately.
    fn is_hot(&self, arena: &Arena, item: Handle) -> bool;
    /// Gives the place of an item in its queue to a copy of it, in another chunk of its class.
    fn moved(&mut self, arena: &mut Arena, class: usize, from: Handle, to: Handle);
    /// The item of a class that should be evicted next. It stays in its queue until
    /// [`Policy::remove`]. Items for which `pinned` holds are skipped.
    fn victim(
        &mut self,
        arena: &mut Arena,
        class: usize,
        pinned: &dyn Fn(&Arena, Handle) -> bool,
    ) -> Option<Handle>;
    /// Remembers a victim that is being evicted, not deleted. Called before `remove`.
    fn evicted(&mut self, arena: &Arena, item: Handle, hash: u64);
    /// The oldest item of a class, for comparisons between classes.
    fn oldest(&self, class: usize) -> Option<Handle>;
    /// The items of a class, oldest first, and for each whether it passed its probation (`known` of
    /// [`Policy::insert`]).
    fn order(&self, arena: &Arena, class: usize) -> Vec<(Handle, bool)>;
    /// The number of items of a class.
    fn len(&self, class: usize) -> usize;
    /// Bytes that the policy itself uses.
    fn bytes(&self) -> usize;
}

/// Makes a policy for an arena of `bytes` bytes with `classes` item classes.
pub(crate) fn make(kind: PolicyKind, classes: usize, bytes: usize) -> Box<dyn Policy> {
    match kind {
        PolicyKind::Lru => Box::new(lru::Lru::new(classes)),
        PolicyKind::S3Fifo => Box::new(s3fifo::S3Fifo::new(classes, bytes)),
    }
}

/// A doubly linked list through the items' headers; newest at the head.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    head: Handle,
    tail: Handle,
    len: usize,
}

impl List {
    fn push(&mut self, arena: &mut Arena, item: Handle) {
        arena.set_u32(item, PREV, 0);
        arena.set_u32(item, NEXT, self.head);
        if self.head == 0 {
            self.tail = item;
        } else {
            arena.set_u32(self.head, PREV, item);
        }
        self.head = item;
        self.len += 1;
    }

    fn unlink(&mut self, arena: &mut Arena, item: Handle) {
        let (prev, next) = (arena.u32(item, PREV), arena.u32(item, NEXT));
        if prev == 0 {
            self.head = next;
        } else {
            arena.set_u32(prev, NEXT, next);
        }
        if next == 0 {
            self.tail = prev;
        } else {
            arena.set_u32(next, PREV, prev);
        }
        self.len -= 1;
    }

    /// Puts a copy of an item in the item's place.
    fn moved(&mut self, arena: &mut Arena, from: Handle, to: Handle) {
        let (prev, next) = (arena.u32(from, PREV), arena.u32(from, NEXT));
        if prev == 0 {
            self.head = to;
        } else {
            arena.set_u32(prev, NEXT, to);
        }
        if next == 0 {
            self.tail = to;
        } else {
            arena.set_u32(next, PREV, to);
        }
    }

    /// The items, oldest first.
    fn oldest_first(&self, arena: &Arena) -> Vec<Handle> {
        let mut items = Vec::with_capacity(self.len);
        let mut item = self.tail;
        while item != 0 && items.len() < self.len {
            items.push(item);
            item = arena.u32(item, PREV);
        }
        items
    }

    /// Moves an item to the head.
    fn renew(&mut self, arena: &mut Arena, item: Handle) {
        if self.head != item {
            self.unlink(arena, item);
            self.push(arena, item);
        }
    }
}
