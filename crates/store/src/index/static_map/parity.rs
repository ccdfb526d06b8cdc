// SPDX-License-Identifier: Apache-2.0
//! The parities of 16 words at once: a look-up spends its time on these once the memory is loaded.
//!
//! Words are folded in pairs, halves at a time. The first word keeps the XOR of its halves in the
//! low half, the second in the high half. Then both are combined into one word. Four such steps
//! leave a nibble of each word. This takes a third of the time of counting ones in software (an
//! instruction for it would need a check at run time). Every x86-64 has vectors of two words, but
//! the compiler does not use them here. With them, a look-up in a cached map takes 19 ns instead of 26.

#![allow(unsafe_code)]

use super::READ;

/// Bytes of a group's columns that are read at once.
pub(super) const READ_BYTES: usize = READ * 8;

/// The parity of each of 16 words `(a & low) ^ (b & high)`, the first word's in the lowest bit.
#[inline]
pub(super) fn of_window(a: &[u8; READ_BYTES], b: &[u8; READ_BYTES], low: u64, high: u64) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64.
    return unsafe { vectors::of_window(a, b, low, high) };
    #[cfg(not(target_arch = "x86_64"))]
    return words::of_window(a, b, low, high);
}

/// The parity of each word, the first word's in the lowest bit.
#[inline]
pub(super) fn of_words(words: &[u64; READ]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64.
    return unsafe { vectors::of_words(words) };
    #[cfg(not(target_arch = "x86_64"))]
    return words::of_words(words);
}

/// `word` has the rest of 16 words in its nibbles; returns the parity of each.
#[inline]
fn of_nibbles(mut word: u64) -> u32 {
    word ^= word >> 2;
    word ^= word >> 1;
    let mut bits = word & 0x1111_1111_1111_1111;
    bits = (bits | (bits >> 3)) & 0x0303_0303_0303_0303;
    bits = (bits | (bits >> 6)) & 0x000f_000f_000f_000f;
    bits = (bits | (bits >> 12)) & 0x0000_00ff_0000_00ff;
    ((bits | (bits >> 24)) & 0xffff) as u32
}

/// The lower halves of lanes of 64, 32, 16 and 8 bits.
const HALVES: [u64; 4] = [
    0x0000_0000_ffff_ffff,
    0x0000_ffff_0000_ffff,
    0x00ff_00ff_00ff_00ff,
    0x0f0f_0f0f_0f0f_0f0f,
];

/// One step for two words: lanes of twice `SHIFT` bits become lanes of `SHIFT`.
#[inline]
fn fold(a: u64, b: u64, shift: u32, half: u64) -> u64 {
    ((a ^ (a >> shift)) & half) | ((b ^ (b << shift)) & !half)
}

#[cfg(target_arch = "x86_64")]
mod vectors {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_andnot_si128, _mm_cvtsi128_si64, _mm_or_si128, _mm_set_epi64x,
        _mm_set1_epi64x, _mm_slli_epi64, _mm_srli_epi64, _mm_unpackhi_epi64, _mm_xor_si128,
    };

    use super::{HALVES, READ, READ_BYTES, fold, of_nibbles};

    #[inline]
    #[target_feature(enable = "sse2")]
    fn two(bytes: &[u8; READ_BYTES], at: usize) -> __m128i {
        let word = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            i64::from_le_bytes(eight)
        };
        _mm_set_epi64x(word(at * 16 + 8), word(at * 16))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn of_window(
        a: &[u8; READ_BYTES],
        b: &[u8; READ_BYTES],
        low: u64,
        high: u64,
    ) -> u32 {
        let (low, high) = (_mm_set1_epi64x(low as i64), _mm_set1_epi64x(high as i64));
        let pair = |at: usize| {
            _mm_xor_si128(
                _mm_and_si128(two(a, at), low),
                _mm_and_si128(two(b, at), high),
            )
        };
        of_pairs(std::array::from_fn(pair))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn of_words(words: &[u64; READ]) -> u32 {
        let pair = |at: usize| _mm_set_epi64x(words[at * 2 + 1] as i64, words[at * 2] as i64);
        of_pairs(std::array::from_fn(pair))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn step<const SHIFT: i32>(a: __m128i, b: __m128i, half: u64) -> __m128i {
        let half = _mm_set1_epi64x(half as i64);
        let a = _mm_xor_si128(a, _mm_srli_epi64::<SHIFT>(a));
        let b = _mm_xor_si128(b, _mm_slli_epi64::<SHIFT>(b));
        _mm_or_si128(_mm_and_si128(a, half), _mm_andnot_si128(half, b))
    }

    /// `pairs[i]` has words 2i and 2i + 1.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn of_pairs(pairs: [__m128i; 8]) -> u32 {
        let eight = |at: usize| step::<32>(pairs[at], pairs[at + 4], HALVES[0]);
        let four = |at: usize| step::<16>(eight(at), eight(at + 2), HALVES[1]);
        let both = step::<8>(four(0), four(1), HALVES[2]);
        let (a, b) = (
            _mm_cvtsi128_si64(both),
            _mm_cvtsi128_si64(_mm_unpackhi_epi64(both, both)),
        );
        of_nibbles(fold(a as u64, b as u64, 4, HALVES[3]))
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod words {
    use super::super::word;
    use super::{HALVES, READ, READ_BYTES, fold, of_nibbles};

    #[inline]
    pub(super) fn of_window(
        a: &[u8; READ_BYTES],
        b: &[u8; READ_BYTES],
        low: u64,
        high: u64,
    ) -> u32 {
        let mut words = [0; READ];
        for (at, bits) in words.iter_mut().enumerate() {
            *bits = (word(a, at) & low) ^ (word(b, at) & high);
        }
        of_words(&words)
    }

    #[inline]
    pub(super) fn of_words(words: &[u64; READ]) -> u32 {
        let mut words = *words;
        for (step, half) in HALVES.into_iter().enumerate() {
            let to = READ >> (step + 1);
            for at in 0..to {
                words[at] = fold(words[at], words[at + to], 32 >> step, half);
            }
        }
        of_nibbles(words[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    #[test]
    fn parities_are_those_of_the_ones() {
        for round in 0..1000u64 {
            let random = |at: u64| mix(round * 100 + at);
            // Also tests sparse words, one bit at a time.
            let words: [u64; READ] = std::array::from_fn(|at| {
                if round < 64 {
                    1 << round
                } else {
                    random(at as u64)
                }
            });
            let expected = words
                .iter()
                .rev()
                .fold(0, |bits, word| bits << 1 | (word.count_ones() & 1));
            assert_eq!(of_words(&words), expected);
            assert_eq!(words::of_words(&words), expected);

            let bytes = |from: u64| -> [u8; READ_BYTES] {
                std::array::from_fn(|at| random(from + at as u64 / 8).to_le_bytes()[at % 8])
            };
            let (a, b, low, high) = (bytes(20), bytes(40), random(60), random(61));
            assert_eq!(
                of_window(&a, &b, low, high),
                words::of_window(&a, &b, low, high)
            );
        }
    }
}
