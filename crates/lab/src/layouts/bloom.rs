// SPDX-License-Identifier: Apache-2.0
//! The Bloom Filter Map (paper A, figure 38).
//!
//! *Idea*: one Bloom filter a column (a block, or a page of a block), all of the same size; the bits of all columns for one position lie side by side in a row. The k positions of a
//! key are k rows, and the bits that are set in all of them name the columns that may hold the key. k = 9/13 of the bits an element (equation 1).
//! *Source*: paper A, 6.1. *Deviation*: the k positions come from one hash of the key, mixed anew for each.

use senko_workload::rng::mix64;

use super::{BlockIndex, Geometry, Keys, Wanted};

/// Enough for 63 bits an element.
const MOST_FUNCTIONS: u32 = 44;

/// Which use a map is of: positions in the map over blocks and in those over pages must not depend on each other, or a block that is a false
/// candidate would have false candidates among its pages.
#[derive(Clone, Copy, Debug)]
pub enum Over {
    /// Columns are blocks.
    Blocks,
    /// Columns are pages of a block.
    Pages,
}

/// Bloom filters side by side.
#[derive(Clone, Debug)]
pub struct BloomMap {
    columns: u32,
    rows: u64,
    functions: u32,
    salt: u64,
    /// Bits of a row: a power of two below 64, so that rows share words, or whole words.
    lane: usize,
    words: Vec<u64>,
}

impl BloomMap {
    /// For `columns` filters of `row_count` bits each, at `bits` bits an element.
    pub fn new(over: Over, columns: u32, row_count: u64, bits: u32) -> BloomMap {
        let row_count = row_count.max(1);
        let lane = match columns as usize {
            few @ 0..64 => few.max(1).next_power_of_two(),
            many => many.next_multiple_of(64),
        };
        BloomMap {
            columns,
            rows: row_count,
            functions: functions(bits),
            salt: match over {
                Over::Blocks => 0x426c_6f63_6b73_0000,
                Over::Pages => 0x5061_6765_7300_0000,
            },
            lane,
            words: vec![0; (lane * row_count as usize).div_ceil(64)],
        }
    }

    /// The bits at which the rows of a key begin.
    fn starts(&self, wanted: &Wanted) -> impl Iterator<Item = usize> + use<> {
        let (rows, lane) = (self.rows, self.lane);
        let mut state = wanted.hash.order ^ u64::from(wanted.hash.check) << 20 ^ self.salt;
        (0..self.functions).map(move |_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let row = (u128::from(mix64(state)) * u128::from(rows)) >> 64;
            row as usize * lane
        })
    }

    /// Puts a key into a column's filter.
    pub fn insert(&mut self, wanted: &Wanted, column: u32) {
        debug_assert!(column < self.columns);
        for start in self.starts(wanted) {
            let bit = start + column as usize;
            self.words[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// The columns that may hold the key, the highest first.
    pub fn candidates(&self, wanted: &Wanted, mut each: impl FnMut(u32)) {
        let mut starts = [0; MOST_FUNCTIONS as usize];
        for (start, row) in starts.iter_mut().zip(self.starts(wanted)) {
            *start = row;
        }
        let starts = &starts[..self.functions as usize];
        let row_mask = if self.lane < 64 {
            (1 << self.lane) - 1
        } else {
            !0
        };
        for word in (0..self.lane.div_ceil(64)).rev() {
            let mut left: u64 = row_mask;
            for start in starts {
                left &= self.words[start / 64 + word] >> (start % 64);
                if left == 0 {
                    break;
                }
            }
            while left != 0 {
                let bit = 63 - left.leading_zeros();
                left ^= 1 << bit;
                each(word as u32 * 64 + bit);
            }
        }
    }

    /// Bytes of the filters.
    pub fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }
}

/// Equation 1: 11 at 16 bits, 17 at 24.
pub fn functions(bits: u32) -> u32 {
    ((f64::from(bits) * 9.0 / 13.0).round() as u32).clamp(1, MOST_FUNCTIONS)
}

/// The map over all blocks.
pub struct BlockBloom(BloomMap);

impl BlockBloom {
    /// Over the blocks of `geometry`, at `bits` bits an element.
    pub fn build(keys: &Keys, geometry: &Geometry, bits: u32) -> BlockBloom {
        let row_count = geometry.per_block() * u64::from(bits);
        let mut map = BloomMap::new(Over::Blocks, geometry.blocks(), row_count, bits);
        for block in 0..geometry.blocks() {
            for number in geometry.members(block) {
                map.insert(&keys.wanted(number), block);
            }
        }
        BlockBloom(map)
    }
}

impl BlockIndex for BlockBloom {
    fn candidates(&self, wanted: &Wanted, out: &mut Vec<u32>) {
        self.0.candidates(wanted, |block| out.push(block));
    }

    fn dram_bytes(&self) -> u64 {
        self.0.bytes()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn equation_1() {
        assert_eq!([8, 16, 24].map(functions), [6, 11, 17]);
    }

    /// The seed is fixed, so the counts are too.
    #[test]
    fn members_are_candidates_and_others_hardly_ever() {
        let keys = Keys::new(3);
        let geometry = Geometry {
            elements: 100 * 320,
            page_bytes: 32 << 10,
            block_pages: 10,
            value_bytes: 1000,
        };
        for (bits, expected) in [(8, 0.0214), (16, 0.000_46)] {
            let index = BlockBloom::build(&keys, &geometry, bits);
            let mut out = Vec::new();
            let mut extra = 0;
            for number in 0..geometry.elements {
                out.clear();
                index.candidates(&keys.wanted(number), &mut out);
                assert!(out.contains(&((number / geometry.per_block()) as u32)));
                assert!(out.is_sorted_by(|one, next| one > next), "newest first");
                extra += out.len() - 1;
            }
            let rate = extra as f64 / (99 * geometry.elements) as f64;
            assert!(
                (rate / expected - 1.0).abs() < 0.1,
                "{bits} bits: {rate} false candidates a block, expected {expected}"
            );
        }
    }
}
