// SPDX-License-Identifier: Apache-2.0
//! The hash of a key, computed once where the key enters the store.
//!
//! It is SipHash-1-3 with 128 bits of output, keyed with the store's secret. The store takes two
//! elements with equal 96 bits for the same key when it decides which of them is dead. So without
//! the secret, nobody may be able to make two keys that collide. By chance, a pair of keys collides
//! with probability 2^-96. A look-up always compares the whole key.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128, SipHasher13};

/// Shards of the index: an element's shard is the top byte of its `order`.
pub const SHARDS: usize = 256;

/// 96 bits of a key's hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash {
    /// The place in a block: elements are sorted by it.
    pub order: u64,
    /// More bits, independent of `order`. Fingerprints are made of these.
    pub check: u32,
}

impl KeyHash {
    /// Which of the [`SHARDS`] parts of the index knows the key.
    pub fn shard(self) -> usize {
        (self.order >> 56) as usize
    }

    /// The hash under which a map stores the block of the `nth` youngest version of the key. For
    /// the youngest it is the key's own hash. It is in the key's shard.
    #[must_use]
    pub fn nth(self, nth: u32) -> KeyHash {
        if nth == 0 {
            return self;
        }
        const TOP: u64 = 0xff << 56;
        let step = u64::from(nth).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mix(self.order.wrapping_add(step) ^ u64::from(self.check));
        KeyHash {
            order: (self.order & TOP) | (mixed & !TOP),
            check: (mix(mixed ^ step) >> 32) as u32,
        }
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hashes keys with a store's secret.
#[derive(Clone, Debug)]
pub struct Hasher {
    keyed: SipHasher13,
}

impl Hasher {
    /// A hasher with the secret of a store.
    pub fn new(secret: [u8; 16]) -> Hasher {
        Hasher {
            keyed: SipHasher13::new_with_key(&secret),
        }
    }

    /// The hash of a key.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let mut hasher = self.keyed;
        hasher.write(key);
        let bits = hasher.finish128();
        KeyHash {
            order: bits.h1,
            check: bits.h2 as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stay_in_the_shard_and_differ() {
        let hasher = Hasher::new([7; 16]);
        for key in 0u32..1000 {
            let hash = hasher.hash(&key.to_le_bytes());
            let mut seen = std::collections::HashSet::new();
            for nth in 0..8 {
                let version = hash.nth(nth);
                assert_eq!(version.shard(), hash.shard());
                assert!(seen.insert(version));
            }
            assert_eq!(hash.nth(0), hash);
        }
    }

    #[test]
    fn another_secret_is_another_order() {
        let (one, other) = (Hasher::new([1; 16]), Hasher::new([2; 16]));
        assert_ne!(one.hash(b"key"), other.hash(b"key"));
    }
}
