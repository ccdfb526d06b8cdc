// SPDX-License-Identifier: Apache-2.0
//! The seeded generator under every distribution, and the integer mixer that turns a key number
//! into "random" properties.
//!
//! All randomness in the workspace's benchmarks comes from a [`Rng`] whose seed is printed with the
//! result. The sequence for a seed never changes between versions (a test pins it), because
//! recorded results name seeds.

/// xoshiro256++.
///
/// Idea: 256 bits of state moved by shifts, rotations and exclusive-ors (period 2^256 - 1), with an
/// output function that adds and rotates, so that all 64 output bits are good. Seeded through
/// SplitMix64, as its authors advise, so that similar seeds give unrelated streams. Source:
/// Blackman and Vigna, "Scrambled Linear Pseudorandom Number Generators", ACM TOMS 47(4), 2021.
/// Deviation: none. This is our own code instead of a crate, so that the sequence never changes.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Rng {
    /// A generator for `seed`. Every seed is good, including 0.
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        let state = [(); 4].map(|()| {
            counter = counter.wrapping_add(GOLDEN);
            finalise(counter)
        });
        Self { state }
    }

    /// A generator for one of several parallel users (connections, threads) with one seed.
    pub fn for_stream(seed: u64, stream: u64) -> Self {
        Self::new(seed ^ mix64(stream.wrapping_add(GOLDEN)))
    }

    /// 64 uniform bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Uniform in the open interval (0, 1), so that the logarithms of the number and of its
    /// complement are finite.
    #[inline]
    pub fn next_f64(&mut self) -> f64 {
        unit_interval(self.next_u64())
    }

    /// Uniform in `0..bound`, without bias (Lemire, "Fast random integer generation in an
    /// interval", 2019).
    ///
    /// # Panics
    /// If `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below 0 does not exist");
        let mut wide = u128::from(self.next_u64()) * u128::from(bound);
        if (wide as u64) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (wide as u64) < threshold {
                wide = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (wide >> 64) as u64
    }

    /// True in `percent` of 100 draws.
    ///
    /// ```
    /// let mut rng = senko_workload::Rng::new(1);
    /// assert!(rng.chance(100) && !rng.chance(0));
    /// ```
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Fills `bytes` with random bytes.
    ///
    /// ```
    /// let mut bytes = [0; 5];
    /// senko_workload::Rng::new(1).fill(&mut bytes);
    /// assert_ne!(bytes, [0; 5]);
    /// ```
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }

    /// `len` random bytes.
    ///
    /// ```
    /// assert_eq!(senko_workload::Rng::new(1).bytes(3).len(), 3);
    /// ```
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

/// Maps 64 uniform bits to the open interval (0, 1), at the centres of 2^52 equal cells.
#[inline]
pub fn unit_interval(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
}

/// A bijective mixer of 64 bits (SplitMix64's step): equal inputs have equal outputs, and similar
/// inputs have unrelated ones.
#[inline]
pub fn mix64(x: u64) -> u64 {
    finalise(x.wrapping_add(GOLDEN))
}

#[inline]
fn finalise(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
