// SPDX-License-Identifier: Apache-2.0
//! A key and its hash, computed once at the edge and carried through every layer.

use xxhash_rust::xxh3::xxh3_64;

/// Longest key, in bytes (memcached's limit).
pub const MAX_KEY: usize = 250;

/// A key of 1 to 250 bytes with its XXH3 hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The bytes (decoded, where the protocol carries base64).
    pub bytes: &'a [u8],
    /// XXH3-64 of the bytes, seed 0: it decides shard, segment and tag, and is part of the flash format.
    pub hash: u64,
}

impl<'a> Key<'a> {
    /// Hashes the key. The caller has checked that its length is 1 to 250.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Key<'a> {
        debug_assert!(!bytes.is_empty() && bytes.len() <= MAX_KEY);
        Key {
            bytes,
            hash: xxh3_64(bytes),
        }
    }
    /// Which of `shards` owns this key.
    #[inline]
    pub fn shard(&self, shards: usize) -> usize {
        ((u128::from(self.hash.rotate_left(32)) * shards as u128) >> 64) as usize
    }
}
