// SPDX-License-Identifier: Apache-2.0
//! The keys that were changed since a fill began. A fill stores a peer's items, and none of them
//! may replace what a client has stored, deleted or touched here meanwhile, even if that has left
//! the cache since. The server notes every change, and asks before it stores a filled item.
//!
//! The keys are in a Bloom filter [Bloom 1970] of a fixed size, [`PROBES`] bits a key. A false
//! positive leaves a filled item out. The filter exists while a fill runs. Its memory is taken from
//! items, like that of a growing index.
//!
//! Always holds:
//! - FILL-1. While the filter of a fill exists, a key that was noted in it is never taken from that
//!   fill. A shard without that filter takes nothing from it. So a late item of an ended fill is
//!   refused, whatever was deleted since.
//! - FILL-2. A flush ends the fill: what was flushed does not come back.

use crate::key::Key;
use crate::shard::Shard;

/// Bits of the filter that a key sets.
const PROBES: u64 = 4;
/// The memory of items over that of the filter.
const SHARE: usize = 256;
/// The least and the most bytes of a filter.
const LEAST: usize = 4 << 10;
const MOST: usize = 64 << 20;

/// The changed keys of one fill.
#[derive(Debug)]
pub(super) struct Changes {
    /// The number of the fill.
    fill: u64,
    words: Vec<u64>,
}

impl Changes {
    fn new(fill: u64, memory: usize) -> Changes {
        let bytes = (memory / SHARE).clamp(LEAST, MOST);
        // A power of two, so that a mask finds a bit.
        let words = (bytes / 8 + 1).next_power_of_two() / 2;
        Changes {
            fill,
            words: vec![0; words],
        }
    }

    fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// The memory of a filter, if there is one.
    pub fn held(changes: Option<&Changes>) -> usize {
        changes.map_or(0, Changes::bytes)
    }

    /// The word and the bit of each probe.
    fn bits(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        // Shard and segment come from bits of the hash, which are the same in all keys here.
        let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = mixed ^ (mixed >> 29);
        let (start, step) = (mixed, mixed.rotate_left(32) | 1);
        let mask = self.words.len() as u64 - 1;
        (0..PROBES).map(move |n| {
            let bit = start.wrapping_add(n.wrapping_mul(step));
            ((bit >> 6 & mask) as usize, 1 << (bit & 63))
        })
    }

    fn add(&mut self, hash: u64) {
        for (word, bit) in self.bits(hash) {
            self.words[word] |= bit;
        }
    }

    fn may_have(&self, hash: u64) -> bool {
        let mut bits = self.bits(hash);
        bits.all(|(word, bit)| self.words[word] & bit != 0)
    }
}

impl Shard {
    /// From now on changes are noted for the fill of this number.
    pub fn begin_fill(&mut self, fill: u64) {
        self.changes = Some(Changes::new(fill, self.dram.reserved()));
        self.share_memory(0);
    }

    /// Takes no more items of a fill, and forgets what was changed.
    pub fn end_fill(&mut self) {
        if self.changes.take().is_some() {
            self.share_memory(0);
        }
    }

    /// Notes that a client changes this key, or tries to (FILL-1). Call it before each try of
    /// a change: a fill may have begun while the change waited.
    #[inline]
    pub fn note_change(&mut self, key: &Key<'_>) {
        if let Some(changes) = &mut self.changes {
            changes.add(key.hash);
        }
    }

    /// Whether an item of this fill may be stored under a key that has none. It stays true until
    /// the next change of the key.
    pub fn takes_filled(&self, key: &Key<'_>, fill: u64) -> bool {
        let changes = self.changes.as_ref();
        changes.is_some_and(|changes| changes.fill == fill && !changes.may_have(key.hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No key that was noted is forgotten, and few others are taken for noted ones while the filter
    /// has eight bits or more a key.
    #[test]
    fn noted_keys_are_found_and_few_others() {
        for memory in [1 << 20, 64 << 20] {
            let mut changes = Changes::new(1, memory);
            assert!(changes.bytes() <= (memory / SHARE).max(LEAST));
            assert!(2 * changes.bytes() > memory / SHARE);
            let keys = changes.bytes() as u64;
            // Hashes of one shard and segment: the highest bits are the same.
            let mut random = senko_workload::Rng::new(7);
            let mut hash = || random.next_u64() >> 12;
            let noted: Vec<u64> = (0..keys).map(|_| hash()).collect();
            noted.iter().for_each(|hash| changes.add(*hash));
            assert!(noted.iter().all(|hash| changes.may_have(*hash)));
            let wrong = (0..10_000).filter(|_| changes.may_have(hash())).count();
            assert!(wrong < 500, "{wrong} of 10000 in {memory} bytes");
        }
    }
}
