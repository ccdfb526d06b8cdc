// SPDX-License-Identifier: Apache-2.0
//! A seeded bijection over `0..n`.
//!
//! Zipf's ranks 0, 1, 2, ... would make the lowest key numbers the popular ones, and neighbours in
//! key order equally popular. This would favour engines that keep neighbours together.
//! [`crate::popularity`] passes ranks through this permutation.

use crate::rng::mix64;

/// A pseudo-random permutation by invertible mixing and cycle walking.
///
/// Idea: let 2^b be the next power of two at or above `n`. Over `b` bits these steps are
/// bijections: multiply by an odd number, add a constant, and exclusive-or with a copy of itself
/// shifted right. Three rounds of them scatter the ranks. A result at or above `n` is permuted
/// again until it is below `n` (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite
/// domains", CT-RSA 2002), fewer than two passes on average since `n` > 2^(b-1). YCSB hashes ranks
/// instead, which makes some keys collide and others unreachable; a bijection keeps Zipf's law
/// exact.
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    mask: u64,
    shift: u32,
    rounds: [(u64, u64); 3],
}

impl Permutation {
    /// A permutation of `0..n` chosen by `seed`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn new(n: u64, seed: u64) -> Self {
        assert!(n > 0, "a permutation of nothing has no elements");
        let bits = (64 - (n - 1).leading_zeros()).max(1);
        let mask = u64::MAX >> (64 - bits);
        let mut word = seed;
        let rounds = [(); 3].map(|()| {
            word = mix64(word);
            let add = word;
            word = mix64(word);
            (word | 1, add)
        });
        Self {
            n,
            mask,
            shift: bits.div_ceil(2),
            rounds,
        }
    }

    /// The place of `x`.
    ///
    /// # Panics
    /// If `x` is not below the size of the range.
    #[inline]
    pub fn apply(&self, x: u64) -> u64 {
        assert!(
            x < self.n,
            "{x} is outside the permuted range of {}",
            self.n
        );
        let mut x = x;
        loop {
            for &(multiply, add) in &self.rounds {
                x = x.wrapping_mul(multiply).wrapping_add(add) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x;
            }
        }
    }
}
