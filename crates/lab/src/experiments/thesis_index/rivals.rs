// SPDX-License-Identifier: Apache-2.0
//! What the index is compared with: a Bloom filter a block, searched one after the other (SkimpyStash's way, the thesis's comparison), and a hash index like FlashStore's.
//!
//! Both are made as fast as we know how: a slow rival proves nothing.

use senko_io::{AlignedBuf, PAGE_SIZE, prefetch};
use senko_store::KeyHash;
use senko_store::index::bloom_map::{Column, Filter};
use senko_workload::rng::mix64;

use super::measure::key;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A Bloom filter a block, searched from the newest to the oldest.
pub struct Sequential {
    filter: Filter,
    blocks: usize,
    /// Bytes from one filter to the next: a line more than a filter has, so that one position's lines of all filters do not fall into the same few sets of the cache.
    stride: usize,
    memory: AlignedBuf,
}

impl Sequential {
    /// Filters asked for ahead of the one at hand.
    const AHEAD: usize = 16;
    /// Filters of the first and the largest group that go through the hash functions together.
    const FIRST_GROUP: usize = 16;
    const LARGEST_GROUP: usize = 256;

    /// Filters without elements.
    pub fn new(filter: Filter, blocks: u32) -> Sequential {
        let blocks = blocks as usize;
        let stride = (filter.positions as usize).div_ceil(LINE * 8) * LINE + LINE;
        let mut memory = AlignedBuf::new((stride * blocks).div_ceil(PAGE_SIZE));
        memory.prefer_large();
        Sequential {
            filter,
            blocks,
            stride,
            memory,
        }
    }

    /// Sets a block's filter.
    pub fn set(&mut self, block: u32, column: &Column) {
        let filter = &mut self.memory[block as usize * self.stride..][..self.stride];
        for (bytes, word) in filter.as_chunks_mut::<8>().0.iter_mut().zip(column.words()) {
            *bytes = word.to_le_bytes();
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    #[inline]
    fn has(&self, block: usize, position: u32) -> bool {
        self.memory[block * self.stride + position as usize / 8] >> (position % 8) & 1 == 1
    }

    #[inline]
    fn ask(&self, block: usize, position: u32) {
        let at = block * self.stride + position as usize / 8;
        prefetch(&self.memory[at..=at]);
    }

    /// The number of false candidates before the block, one filter after the other: each is left at the first position without a one, and the first two positions of filters
    /// ahead (half of all filters are left at the first, a quarter at the second) have been asked for.
    pub fn find_plain(&self, key: KeyHash, block: u32) -> Option<u32> {
        let positions = self.filter.positions_of(key);
        let positions = positions.all();
        let ask = |block: usize| {
            positions
                .iter()
                .take(2)
                .for_each(|position| self.ask(block, *position))
        };
        (self.blocks.saturating_sub(Self::AHEAD)..self.blocks)
            .rev()
            .for_each(ask);
        let mut wrong = 0;
        for at in (0..self.blocks).rev() {
            if at >= Self::AHEAD {
                ask(at - Self::AHEAD);
            }
            if positions.iter().all(|position| self.has(at, *position)) {
                if at == block as usize {
                    return Some(wrong);
                }
                wrong += 1;
            }
        }
        None
    }

    /// Asks for what [`find_staged`](Self::find_staged) reads first.
    pub fn ask_first(&self, key: KeyHash) {
        let first = self.filter.positions_of(key).all()[0];
        for block in self.blocks.saturating_sub(Self::FIRST_GROUP)..self.blocks {
            self.ask(block, first);
        }
    }

    /// The same, by groups of filters: all of a group are tested at the first position, those that are left at the second, and so on, so that no line is read that a filter left
    /// before would not have needed, and many are on their way at any time. The first group is small, for keys that are new.
    pub fn find_staged(&self, key: KeyHash, block: u32, left: &mut Vec<u32>) -> Option<u32> {
        let positions = self.filter.positions_of(key);
        let positions = positions.all();
        let mut wrong = 0;
        let mut size = Self::FIRST_GROUP;
        let (mut high, mut low) = (self.blocks, self.blocks.saturating_sub(size));
        (low..high)
            .rev()
            .for_each(|block| self.ask(block, positions[0]));
        loop {
            size = (size * 2).min(Self::LARGEST_GROUP);
            let lower = low.saturating_sub(size);
            let mut coming = low;
            left.clear();
            for at in (low..high).rev() {
                for _ in 0..2 {
                    if coming > lower {
                        coming -= 1;
                        self.ask(coming, positions[0]);
                    }
                }
                if self.has(at, positions[0]) {
                    self.ask(at, positions[1]);
                    left.push(at as u32);
                }
            }
            (lower..coming)
                .rev()
                .for_each(|block| self.ask(block, positions[0]));
            for (stage, position) in positions.iter().enumerate().skip(1) {
                let next = positions.get(stage + 1);
                left.retain(|at| {
                    let has = self.has(*at as usize, *position);
                    if has && let Some(next) = next {
                        self.ask(*at as usize, *next);
                    }
                    has
                });
            }
            for at in left.iter() {
                if *at == block {
                    return Some(wrong);
                }
                wrong += 1;
            }
            if low == 0 {
                return None;
            }
            (high, low) = (low, lower);
        }
    }
}

/// Slots of a bucket, which is a cache line: their tags, then their pointers.
const SLOTS: usize = 10;
/// Where the pointers begin.
const POINTERS: usize = SLOTS * 2;
/// Keys a bucket, in the mean: nine tenths of the slots.
const KEYS_A_BUCKET: u64 = 9;
/// Keys that may be moved to make room for one.
const MOST_MOVES: usize = 2000;

/// An index like FlashStore's: a cuckoo hash table of tags of two bytes and pointers of four. A pointer here is the key's number, so that a key can be moved without a read.
pub struct HashIndex {
    buckets: usize,
    memory: AlignedBuf,
}

impl HashIndex {
    /// Of keys `0..keys`; nothing if some key found no place.
    pub fn build(keys: u64) -> Option<HashIndex> {
        let buckets = keys.div_ceil(KEYS_A_BUCKET).max(2) as usize;
        let mut memory = AlignedBuf::new((buckets * LINE).div_ceil(PAGE_SIZE));
        memory.prefer_large();
        let mut index = HashIndex { buckets, memory };
        (0..keys)
            .all(|number| index.insert(number as u32))
            .then_some(index)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Both buckets of a key, and its tag; no tag is zero, which marks free slots.
    #[inline]
    fn places(&self, key: KeyHash) -> ([usize; 2], u16) {
        let place = |hash: u64| ((u128::from(hash) * self.buckets as u128) >> 64) as usize;
        let other = mix64(key.order ^ 0x1234_5678_9abc_def1);
        ([place(key.order), place(other)], (key.check as u16).max(1))
    }

    #[inline]
    fn bucket(&self, bucket: usize) -> &[u8] {
        &self.memory[bucket * LINE..][..LINE]
    }

    fn tag(&self, bucket: usize, slot: usize) -> u16 {
        let bucket = self.bucket(bucket);
        u16::from_le_bytes([bucket[slot * 2], bucket[slot * 2 + 1]])
    }

    #[inline]
    fn pointer(&self, bucket: usize, slot: usize) -> u32 {
        let mut pointer = [0; 4];
        pointer.copy_from_slice(&self.bucket(bucket)[POINTERS + slot * 4..][..4]);
        u32::from_le_bytes(pointer)
    }

    fn set(&mut self, bucket: usize, slot: usize, tag: u16, pointer: u32) {
        let bucket = &mut self.memory[bucket * LINE..][..LINE];
        bucket[slot * 2..][..2].copy_from_slice(&tag.to_le_bytes());
        bucket[POINTERS + slot * 4..][..4].copy_from_slice(&pointer.to_le_bytes());
    }

    fn insert(&mut self, mut number: u32) -> bool {
        let mut came_from = None;
        for moves in 0..MOST_MOVES {
            let (buckets, tag) = self.places(key(u64::from(number)));
            let free = |bucket: usize| {
                (0..SLOTS)
                    .filter(|slot| self.tag(bucket, *slot) == 0)
                    .count()
            };
            let roomier = if free(buckets[0]) >= free(buckets[1]) {
                buckets[0]
            } else {
                buckets[1]
            };
            if let Some(slot) = (0..SLOTS).find(|slot| self.tag(roomier, *slot) == 0) {
                self.set(roomier, slot, tag, number);
                return true;
            }
            // Both are full: another key moves to its other bucket, not back to where the last one came from.
            let bucket = if came_from == Some(buckets[0]) {
                buckets[1]
            } else {
                buckets[0]
            };
            let slot = (mix64(u64::from(number) ^ moves as u64) % SLOTS as u64) as usize;
            let moved = self.pointer(bucket, slot);
            self.set(bucket, slot, tag, number);
            (number, came_from) = (moved, Some(bucket));
        }
        false
    }

    /// Asks for the buckets of a key.
    #[inline]
    pub fn ask(&self, key: KeyHash) {
        for bucket in self.places(key).0 {
            prefetch(self.bucket(bucket));
        }
    }

    /// The number of keys with the same tag that are met before the key with this number.
    #[inline]
    pub fn find(&self, key: KeyHash, number: u32) -> Option<u32> {
        let (buckets, tag) = self.places(key);
        let mut wrong = 0;
        for bucket in buckets {
            for (slot, bytes) in self.bucket(bucket)[..POINTERS]
                .as_chunks::<2>()
                .0
                .iter()
                .enumerate()
            {
                if u16::from_le_bytes(*bytes) == tag {
                    if self.pointer(bucket, slot) == number {
                        return Some(wrong);
                    }
                    wrong += 1;
                }
            }
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::measure::Filters;
    use super::*;

    #[test]
    fn both_ways_to_search_filters_find_what_the_map_finds() {
        let filters = Filters::build(30_100, 70);
        let mut left = Vec::new();
        for number in (0..30_100).step_by(7) {
            let (hash, block) = (key(number), filters.block(number));
            let wrong = filters
                .map
                .newest_first(hash)
                .position(|at| at == block)
                .unwrap() as u32;
            assert_eq!(filters.sequential.find_plain(hash, block), Some(wrong));
            assert_eq!(
                filters.sequential.find_staged(hash, block, &mut left),
                Some(wrong)
            );
        }
    }

    #[test]
    fn the_hash_index_knows_every_key() {
        let index = HashIndex::build(100_000).unwrap();
        assert!(index.bytes() < 720_000);
        for number in 0..100_000 {
            assert!(index.find(key(u64::from(number)), number).is_some());
        }
        assert_eq!(index.find(key(100_001), 100_001), None);
    }
}
