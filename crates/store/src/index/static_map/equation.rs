// SPDX-License-Identifier: Apache-2.0
//! The equation of a key's hash in one layer: its start row, its coefficients, its fingerprint.

use super::GROUP;
use crate::KeyHash;
use crate::hash::mix;

/// Seed of the first of several layers: its rows follow the order of blocks.
pub(super) const IN_ORDER: u32 = 0;

/// A key's hash in a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    place: u64,
    other: u64,
}

impl Spread {
    /// The hash of a key in the layer with this seed.
    #[inline]
    pub(super) fn of(key: KeyHash, seed: u32) -> Spread {
        let check = u64::from(key.check);
        if seed == IN_ORDER {
            // All keys of a shard have the same top byte.
            return Spread {
                place: key.order << 8,
                other: fold(
                    key.order ^ 0x2d35_8dcc_aa6c_78a5,
                    (check << 32 | check) ^ 0x8bb8_4b93_962e_acc9,
                ),
            };
        }
        let place = mix(key.order ^ mix(check << 32 | u64::from(seed)));
        Spread {
            place,
            other: fold(
                place ^ 0x2d35_8dcc_aa6c_78a5,
                (check << 32 | check) ^ 0x4b33_a62e_d433_d4a3,
            ),
        }
    }

    /// The first row that the key may read, in a layer of this many rows. All rows that it reads
    /// are within the layer.
    #[inline]
    pub(super) fn start(self, rows: usize) -> usize {
        let starts = rows.saturating_sub(GROUP - 1).max(1) as u64;
        ((u128::from(self.place) * u128::from(starts)) >> 64) as usize
    }

    /// The rows that it reads: bit i means the i-th row from the start. At least one bit is set.
    #[inline]
    pub(super) fn coefficients(self, rows: usize) -> u64 {
        if rows > GROUP {
            // The start itself is always read, so equations with neighbouring starts differ.
            self.other | 1
        } else {
            let within = self.other & (u64::MAX >> (GROUP - rows.max(1)));
            if within == 0 { 1 } else { within }
        }
    }
}

/// Both halves of the product, one over the other.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The bits from which fingerprints are cut, lowest first.
#[inline]
pub(super) fn fingerprint(key: KeyHash) -> u32 {
    key.check
}
