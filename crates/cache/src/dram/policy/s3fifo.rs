// SPDX-License-Identifier: Apache-2.0
//! S3-FIFO: three FIFO queues.
//!
//! Card. Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction" (SOSP
//! 2023), algorithm 1. New items enter a small queue (a tenth of the items). At its end, an item
//! that was read more than once moves to the main queue. Any other is evicted, and leaves its
//! fingerprint in the ghost queue. A new item with a fingerprint there enters the main queue. The
//! main queue re-enters items whose 2-bit counter is not 0. A hit is one byte written: no list
//! moves.
//!
//! Deviations: queues are per size class. The ghost queue is one direct-mapped table of 32-bit
//! fingerprints for all classes, so an entry leaves when another maps to its place, and not in FIFO
//! order. An item promoted from flash enters the main queue, because its slot has counted hits.
//! Until a class evicts for the first time, new items that find the small queue full enter the main
//! queue (`docs/measurements/dram-policy.md` has the gain). A search for a victim passes at most
//! [`MOST_PASSED`] items that were read: after a time of reads alone it would pass all of them.

use super::{List, NOTE, Policy};
use crate::arena::{Arena, Handle};

const COUNT: u8 = 3;
const IN_MAIN: u8 = 4;
/// Bytes of arena per ghost entry.
const ARENA_BYTES_PER_GHOST: usize = 512;

/// The most items with reads that one search for a victim passes.
const MOST_PASSED: usize = 64;

/// The queues.
#[derive(Debug)]
pub(super) struct S3Fifo {
    small: Vec<List>,
    main: Vec<List>,
    ghosts: Vec<u32>,
    /// Classes that have evicted.
    evicting: Vec<bool>,
}

impl S3Fifo {
    pub fn new(classes: usize, arena_bytes: usize) -> S3Fifo {
        let ghosts = (arena_bytes / ARENA_BYTES_PER_GHOST).next_power_of_two();
        S3Fifo {
            small: vec![List::default(); classes],
            main: vec![List::default(); classes],
            ghosts: vec![0; ghosts],
            evicting: vec![false; classes],
        }
    }

    fn ghost(&mut self, hash: u64) -> (&mut u32, u32) {
        let at = (hash >> 32) as usize & (self.ghosts.len() - 1);
        (&mut self.ghosts[at], hash as u32 | 1)
    }

    fn list(&mut self, class: usize, note: u8) -> &mut List {
        if note & IN_MAIN != 0 {
            &mut self.main[class]
        } else {
            &mut self.small[class]
        }
    }
}

impl Policy for S3Fifo {
    fn insert(&mut self, arena: &mut Arena, class: usize, item: Handle, hash: u64, known: bool) {
        let (place, print) = self.ghost(hash);
        let known = known || *place == print;
        if *place == print {
            *place = 0;
        }
        let (small, main) = (self.small[class].len, self.main[class].len);
        let filling = !self.evicting[class] && small * 10 > small + main;
        let note = if known || filling { IN_MAIN } else { 0 };
        arena.set_u8(item, NOTE, note);
        self.list(class, note).push(arena, item);
    }

    fn hit(&mut self, arena: &mut Arena, _class: usize, item: Handle) {
        let note = arena.u8(item, NOTE);
        if note & COUNT < COUNT {
            arena.set_u8(item, NOTE, note + 1);
        }
    }

    fn remove(&mut self, arena: &mut Arena, class: usize, item: Handle) {
        let note = arena.u8(item, NOTE);
        self.list(class, note).unlink(arena, item);
    }

    fn is_hot(&self, arena: &Arena, item: Handle) -> bool {
        arena.u8(item, NOTE) & COUNT > 0
    }

    fn moved(&mut self, arena: &mut Arena, class: usize, from: Handle, to: Handle) {
        let note = arena.u8(from, NOTE);
        self.list(class, note).moved(arena, from, to);
    }

    fn victim(
        &mut self,
        arena: &mut Arena,
        class: usize,
        pinned: &dyn Fn(&Arena, Handle) -> bool,
    ) -> Option<Handle> {
        // Each pass lowers a counter or moves an item from small to main, so after this many passes
        // every item has been seen with a counter of 0.
        let bound = 5 * (self.small[class].len + self.main[class].len) + 1;
        let mut passed = 0;
        for _ in 0..bound {
            let (small, main) = (self.small[class].len, self.main[class].len);
            if small + main == 0 {
                return None;
            }
            let from_small = main == 0 || small * 10 > small + main;
            let tail = if from_small {
                self.small[class].tail
            } else {
                self.main[class].tail
            };
            let note = arena.u8(tail, NOTE);
            let passes = passed < MOST_PASSED;
            if from_small && note & COUNT > 1 && passes {
                passed += 1;
                self.small[class].unlink(arena, tail);
                arena.set_u8(tail, NOTE, IN_MAIN);
                self.main[class].push(arena, tail);
            } else if pinned(arena, tail) {
                self.list(class, note).renew(arena, tail);
            } else if !from_small && note & COUNT > 0 && passes {
                passed += 1;
                arena.set_u8(tail, NOTE, note - 1);
                self.main[class].renew(arena, tail);
            } else {
                return Some(tail);
            }
        }
        None
    }

    fn evicted(&mut self, arena: &Arena, item: Handle, hash: u64) {
        self.evicting[arena.class_of(item)] = true;
        if arena.u8(item, NOTE) & IN_MAIN == 0 {
            let (place, print) = self.ghost(hash);
            *place = print;
        }
    }

    fn oldest(&self, class: usize) -> Option<Handle> {
        let tail = if self.main[class].len > 0 {
            self.main[class].tail
        } else {
            self.small[class].tail
        };
        Some(tail).filter(|&t| t != 0)
    }

    fn order(&self, arena: &Arena, class: usize) -> Vec<(Handle, bool)> {
        let of = |list: &List, proven| {
            let items = list.oldest_first(arena);
            items.into_iter().map(move |item| (item, proven))
        };
        of(&self.main[class], true)
            .chain(of(&self.small[class], false))
            .collect()
    }

    fn len(&self, class: usize) -> usize {
        self.small[class].len + self.main[class].len
    }

    fn bytes(&self) -> usize {
        (self.small.len() + self.main.len()) * size_of::<List>() + self.ghosts.len() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dram::item::Words;
    use senko_io::AlignedBuf;

    /// While a cache is only read, every item gets a count. Then the first search for a victim once
    /// passed all items of the class, millions in a large cache.
    #[test]
    fn a_search_passes_few_items() {
        let mut arena = Arena::for_items(AlignedBuf::new(4 << 20 >> 12));
        let mut policy = S3Fifo::new(1, 4 << 20);
        let items: Vec<Handle> = std::iter::from_fn(|| arena.alloc(0)).collect();
        for &item in &items {
            arena.init_item(item, 0, Words::None);
            policy.insert(&mut arena, 0, item, 0, true);
            policy.hit(&mut arena, 0, item);
        }
        assert!(items.len() > 10_000);
        let victim = policy.victim(&mut arena, 0, &|_, _| false);
        assert_eq!(victim, Some(items[MOST_PASSED]));
        let order = policy.order(&arena, 0);
        assert_eq!(order[0].0, items[MOST_PASSED]);
        assert_eq!(order[order.len() - MOST_PASSED].0, items[0]);
    }
}
