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
