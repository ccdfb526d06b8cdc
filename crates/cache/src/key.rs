// SPDX-License-Identifier: Apache-2.0
//! A key and its hash, computed once at the edge and carried through every layer.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Longest key, in bytes (memcached's limit).
pub const MAX_KEY: usize = 250;

/// The secret seed of the key hashes. An attacker who knows it can make keys that all have one
/// segment and one tag. Each look-up would compare all of them. So each data directory draws its
/// own seed, which the superblock keeps. A server without a data directory draws one at each start.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct HashSeed(pub u64);

impl fmt::Debug for HashSeed {
    /// Not the seed itself: settings are shown in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSeed(secret)")
    }
}

/// A key of 1 to 250 bytes with its XXH3 hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The key's bytes, decoded if the protocol sent base64.
    pub bytes: &'a [u8],
    /// XXH3-64 of the bytes with the seed: it decides shard, segment and tag, and is part of the
    /// flash format.
    pub hash: u64,
}

impl<'a> Key<'a> {
    /// Hashes the key. The caller has checked that its length is 1 to 250.
    #[inline]
    pub fn new(bytes: &'a [u8], seed: HashSeed) -> Key<'a> {
        debug_assert!(!bytes.is_empty() && bytes.len() <= MAX_KEY);
        Key {
            bytes,
            hash: xxh3_64_with_seed(bytes, seed.0),
        }
    }
    /// The number of the shard that owns this key, of `shards` shards.
    #[inline]
    pub fn shard(&self, shards: usize) -> usize {
        ((u128::from(self.hash.rotate_left(32)) * shards as u128) >> 64) as usize
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The 8-byte key to which XXH3 without a seed gives this hash: its steps for such keys, in
    /// reverse.
    fn forged(hash: u64) -> [u8; 8] {
        const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;
        const FLIP: u64 = 0x1cad_21f7_2c81_017c ^ 0xdb97_9083_e96d_d4de;
        let mut inverse = FACTOR;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(inverse)));
        }
        let mut h = hash ^ hash >> 28 ^ hash >> 56;
        h = h.wrapping_mul(inverse);
        h ^= (h >> 35) + 8;
        h = h.wrapping_mul(inverse);
        // The step is its own inverse after 64 rounds.
        for _ in 0..63 {
            h ^= h.rotate_left(49) ^ h.rotate_left(24);
        }
        (h ^ FLIP).rotate_left(32).to_le_bytes()
    }

    /// Keys were once hashed without a secret. Anyone could make 16,000 keys with the same segment
    /// and tag, and each look-up compared up to 16,000 keys.
    #[test]
    fn keys_that_are_made_to_collide_are_spread_by_a_seed() {
        const MANY: u64 = 16_000;
        const SAME: u64 = 0xffff_0000_3fff_ffff;
        let keys: Vec<[u8; 8]> = (0..MANY)
            .map(|n| forged(0x1234_0000_0567_89ab | n << 30))
            .collect();
        let places = |seed| {
            let hashes = keys.iter().map(|key| Key::new(key, seed).hash & SAME);
            hashes.collect::<HashSet<_>>().len()
        };
        assert_eq!(places(HashSeed::default()), 1, "the keys are forged well");
        for seed in [1, 0x9e37_79b9_7f4a_7c15, u64::MAX] {
            assert!(places(HashSeed(seed)) > MANY as usize - 5, "seed {seed}");
        }
    }
}
