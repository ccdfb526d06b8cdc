// SPDX-License-Identifier: Apache-2.0
//! Least recently used.
//!
//! Card. Paper E, section 3.1, tiers key-value pairs between DRAM and flash by LRU. Each size class
//! has one list. A hit moves the item to the head, and the victim is the tail. Deviation: lists are
//! per class (see `policy.rs`).

use super::{List, Policy};
use crate::arena::{Arena, Handle};

/// The lists.
#[derive(Debug)]
pub(super) struct Lru {
    lists: Vec<List>,
}

impl Lru {
    pub fn new(classes: usize) -> Lru {
        Lru {
            lists: vec![List::default(); classes],
        }
    }
}

impl Policy for Lru {
    fn insert(&mut self, arena: &mut Arena, class: usize, item: Handle, _hash: u64, _known: bool) {
        self.lists[class].push(arena, item);
    }
    fn hit(&mut self, arena: &mut Arena, class: usize, item: Handle) {
        self.lists[class].renew(arena, item);
    }
    fn remove(&mut self, arena: &mut Arena, class: usize, item: Handle) {
        self.lists[class].unlink(arena, item);
    }
    /// The list does not tell since when an item was not read.
    fn is_hot(&self, arena: &Arena, item: Handle) -> bool {
        arena.header(item).fetched()
    }
    fn moved(&mut self, arena: &mut Arena, class: usize, from: Handle, to: Handle) {
        self.lists[class].moved(arena, from, to);
    }
    fn victim(
        &mut self,
        arena: &mut Arena,
        class: usize,
        pinned: &dyn Fn(&Arena, Handle) -> bool,
    ) -> Option<Handle> {
        for _ in 0..self.lists[class].len {
            let tail = self.lists[class].tail;
            if !pinned(arena, tail) {
                return Some(tail);
            }
            self.lists[class].renew(arena, tail);
        }
        None
    }
    fn evicted(&mut self, _arena: &Arena, _item: Handle, _hash: u64) {}
    fn oldest(&self, class: usize) -> Option<Handle> {
        Some(self.lists[class].tail).filter(|&t| t != 0)
    }
    fn order(&self, arena: &Arena, class: usize) -> Vec<(Handle, bool)> {
        let items = self.lists[class].oldest_first(arena);
        items.into_iter().map(|item| (item, false)).collect()
    }
    fn len(&self, class: usize) -> usize {
        self.lists[class].len
    }
    fn bytes(&self) -> usize {
        self.lists.len() * size_of::<List>()
    }
}
