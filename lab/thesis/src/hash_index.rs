// SPDX-License-Identifier: Apache-2.0
//! A hash index like FlashStore's, with which the thesis compares its map. The experiment
//! `thesis-index` measures both.
//!
//! It is as fast as we could make it: a slow rival proves nothing.

use senko_io::{AlignedBuf, PAGE_SIZE, prefetch};
use senko_store::KeyHash;
use senko_workload::rng::mix64;

use crate::data::hash_of;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Slots of a bucket, which is a cache line: their tags, then their pointers.
const SLOTS: usize = 10;
/// Where the pointers begin.
const POINTERS: usize = SLOTS * 2;
/// Average keys per bucket: nine tenths of the slots.
const KEYS_A_BUCKET: u64 = 9;
/// Most keys that are moved to make room for one.
const MOST_MOVES: usize = 2000;

/// An index like FlashStore's: a cuckoo hash table of tags of two bytes and pointers of four. A
/// pointer here is the key's number, so that a key can be moved without a read.
pub struct HashIndex {
    buckets: usize,
    memory: AlignedBuf,
}

impl HashIndex {
    /// An index of keys `0..keys`; `None` if some key found no place.
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
            let (buckets, tag) = self.places(hash_of(u64::from(number)));
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
            // Both are full: another key moves to its other bucket, but not back to where the last
            // one came from.
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

    /// Prefetches the buckets of a key.
    #[inline]
    pub fn ask(&self, key: KeyHash) {
        for bucket in self.places(key).0 {
            prefetch(self.bucket(bucket));
        }
    }

    /// The number of keys with the same tag that are found before the key with this number.
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
mod tests {
    use super::*;

    #[test]
    fn the_hash_index_knows_every_key() {
        let index = HashIndex::build(100_000).unwrap();
        assert!(index.bytes() < 720_000);
        for number in 0..100_000 {
            let hash = hash_of(u64::from(number));
            assert!(index.find(hash, number).is_some());
        }
        assert_eq!(index.find(hash_of(100_001), 100_001), None);
    }
}
