// SPDX-License-Identifier: Apache-2.0
//! Small items that leave DRAM next, by the order of their hashes.
//!
//! The policy has chosen them, and they wait until a cursor that passes over all hashes comes by
//! (`shard/seal.rs`). Until then they are items like all others: they are found, changed and
//! deleted. One that is read goes back to the policy.
//!
//! A bucket has the items of a range of hashes. They are linked through the same words as in the
//! policy's queues.

use super::policy::{NEXT, NOTE, PREV};
use crate::arena::{Arena, Handle};
use crate::key::{HashSeed, Key};

/// The largest record that is sorted. A larger one keeps the ready answer, and pages full of such
/// records would have more empty bytes than those by best fit.
pub(crate) const SMALL: usize = 1024;
/// The policy's byte in an item that waits here. No policy has this bit.
const LEAVING: u8 = 1 << 7;
/// Beside it: the item came from a region of flash that was reclaimed.
const TAKEN_BACK: u8 = 1 << 6;
/// Bytes of items in a bucket, about.
const BUCKET: usize = 4096;

/// The items that leave next.
#[derive(Debug)]
pub(crate) struct Leaving {
    seed: HashSeed,
    /// The first item of each bucket.
    heads: Vec<Handle>,
    /// Bytes of items that should wait here.
    target: usize,
    items: usize,
    bytes: usize,
}

impl Leaving {
    /// For about `target` bytes of items.
    pub fn new(target: usize, seed: HashSeed) -> Leaving {
        Leaving {
            seed,
            heads: vec![0; (target / BUCKET).next_power_of_two()],
            target,
            items: 0,
            bytes: 0,
        }
    }

    /// Whether enough items wait, once others have taken the place of `spare` bytes.
    pub fn is_full_with(&self, spare: usize) -> bool {
        self.bytes + spare >= self.target
    }
    /// Whether enough wait for a run.
    pub fn is_half_full(&self) -> bool {
        self.bytes >= self.target / 2
    }
    /// Whether a quarter more wait.
    pub fn is_overfull(&self) -> bool {
        self.bytes >= self.target + self.target / 4
    }
    /// Bytes of items that should wait.
    pub fn target(&self) -> usize {
        self.target
    }
    pub fn items(&self) -> usize {
        self.items
    }
    pub fn buckets(&self) -> usize {
        self.heads.len()
    }
    /// Bytes of its own memory.
    pub fn own_bytes(&self) -> usize {
        self.heads.len() * 4
    }

    /// The bucket of a hash.
    pub fn bucket_of(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.heads.len() as u128) >> 64) as usize
    }
    fn bucket(&self, arena: &Arena, item: Handle) -> usize {
        self.bucket_of(self.hash(arena, item))
    }
    /// The hash of an item's key.
    pub fn hash(&self, arena: &Arena, item: Handle) -> u64 {
        Key::new(arena.item_key(item), self.seed).hash
    }

    /// Whether an item waits here.
    pub fn has(arena: &Arena, item: Handle) -> bool {
        arena.u8(item, NOTE) & LEAVING != 0
    }

    /// Whether it came from a region of flash that was reclaimed, and waits since.
    pub fn was_taken_back(arena: &Arena, item: Handle) -> bool {
        arena.u8(item, NOTE) & TAKEN_BACK != 0 && Leaving::has(arena, item)
    }

    /// Adds an item of a region that is reclaimed.
    pub fn push_taken_back(&mut self, arena: &mut Arena, item: Handle) {
        self.push(arena, item);
        arena.set_u8(item, NOTE, LEAVING | TAKEN_BACK);
    }

    /// Adds an item that is in no other queue.
    pub fn push(&mut self, arena: &mut Arena, item: Handle) {
        let bucket = self.bucket(arena, item);
        let head = std::mem::replace(&mut self.heads[bucket], item);
        arena.set_u8(item, NOTE, LEAVING);
        arena.set_u32(item, PREV, 0);
        arena.set_u32(item, NEXT, head);
        if head != 0 {
            arena.set_u32(head, PREV, item);
        }
        self.items += 1;
        self.bytes += arena.item_bytes(item);
    }

    /// Takes an item out.
    pub fn remove(&mut self, arena: &mut Arena, item: Handle) {
        let (prev, next) = (arena.u32(item, PREV), arena.u32(item, NEXT));
        self.link(arena, item, prev, next);
        if next != 0 {
            arena.set_u32(next, PREV, prev);
        }
        arena.set_u8(item, NOTE, 0);
        self.items -= 1;
        self.bytes -= arena.item_bytes(item);
    }

    /// Puts a copy of an item in the item's place.
    pub fn moved(&mut self, arena: &mut Arena, from: Handle, to: Handle) {
        let (prev, next) = (arena.u32(from, PREV), arena.u32(from, NEXT));
        self.link(arena, from, prev, to);
        if next != 0 {
            arena.set_u32(next, PREV, to);
        }
    }

    /// Makes `next` follow what is before an item.
    fn link(&mut self, arena: &mut Arena, item: Handle, prev: Handle, next: Handle) {
        match prev {
            0 => {
                let bucket = self.bucket(arena, item);
                debug_assert_eq!(self.heads[bucket], item);
                self.heads[bucket] = next;
            }
            prev => arena.set_u32(prev, NEXT, next),
        }
    }

    /// Adds the items of a bucket to `items`, with their hashes.
    pub fn items_of(&self, arena: &Arena, bucket: usize, items: &mut Vec<(u64, Handle)>) {
        let mut item = self.heads[bucket];
        while item != 0 {
            items.push((self.hash(arena, item), item));
            item = arena.u32(item, NEXT);
        }
    }
}
