// SPDX-License-Identifier: Apache-2.0
//! The store's Bloom Filter Map in the thesis's two uses: over all blocks, and over the pages of
//! one block (paper A, figures 38 and 39).
//!
//! A map over pages takes another hash of the key than the map over blocks. If both used the same
//! bits for their positions, a block that is a false candidate would also have false candidates
//! among its pages.

use senko_store::index::bloom_map::{BloomMap, Filter, NewestFirst, best_hashes};
use senko_store::index::{BlockMap, Candidates};

use crate::{BlockIndex, Geometry, Keys, Wanted};

fn filter(positions: u64, bits: u32) -> Filter {
    Filter {
        positions: u32::try_from(positions.max(1)).expect("a filter has fewer than 2^32 bits"),
        hashes: best_hashes(bits),
    }
}

/// The map over the pages of a block.
pub struct PageMap(BloomMap);

impl PageMap {
    /// Without elements, for `pages` pages whose filters have `positions` bits each; `bits` is the
    /// nominal number per element.
    pub fn new(pages: u32, positions: u64, bits: u32) -> PageMap {
        PageMap(BloomMap::new(filter(positions, bits), pages))
    }

    /// An element lies in a page.
    pub fn insert(&mut self, wanted: &Wanted, page: u32) {
        self.0.insert(wanted.hash.nth(1), page);
    }

    /// The pages that may hold the key, the last first.
    pub fn candidates(&self, wanted: &Wanted) -> NewestFirst<'_> {
        self.0.newest_first(wanted.hash.nth(1))
    }

    /// Its DRAM, in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes() as u64
    }
}

/// The map over all blocks.
pub struct BlockBloom(BloomMap);

impl BlockBloom {
    /// Without elements, for `blocks` blocks of `per_block` elements at most.
    pub fn new(per_block: u64, blocks: u32, bits: u32) -> BlockBloom {
        BlockBloom(BloomMap::new(
            filter(per_block * u64::from(bits), bits),
            blocks,
        ))
    }

    /// An element lies in a block.
    pub fn insert(&mut self, wanted: &Wanted, block: u32) {
        self.0.insert(wanted.hash, block);
    }

    /// Over the blocks of `geometry`, at `bits` bits an element.
    pub fn build(keys: &Keys, geometry: &Geometry, bits: u32) -> BlockBloom {
        let mut map = BlockBloom::new(geometry.per_block(), geometry.blocks(), bits);
        for block in 0..geometry.blocks() {
            for number in geometry.members(block) {
                map.insert(&keys.wanted(number), block);
            }
        }
        map
    }
}

impl BlockIndex for BlockBloom {
    fn candidates(&self, wanted: &Wanted, out: &mut Candidates) {
        self.0.candidates(wanted.hash, out);
    }

    fn dram_bytes(&self) -> u64 {
        self.0.bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: [(u32, f64); 2] = [(8, 0.0214), (16, 0.000_46)];

    /// The seed is fixed, so the counts are too. The rates are the thesis's (5.4.2).
    #[test]
    fn false_candidates_among_blocks_are_as_many_as_the_thesis_says() {
        let keys = Keys::new(3);
        let geometry = Geometry {
            elements: 100 * 320,
            page_bytes: 32 << 10,
            block_pages: 10,
            value_bytes: 1000,
            first_element: 0,
            first_page: 0,
        };
        for (bits, expected) in RATES {
            let index = BlockBloom::build(&keys, &geometry, bits);
            let mut out = Candidates::new();
            let mut extra = 0;
            for number in 0..geometry.elements {
                out.clear();
                index.candidates(&keys.wanted(number), &mut out);
                assert!(out.contains(&((number / geometry.per_block()) as u32)));
                extra += out.len() - 1;
            }
            let rate = extra as f64 / (99 * geometry.elements) as f64;
            assert!(
                (rate / expected - 1.0).abs() < 0.1,
                "{bits} bits: {rate} false candidates a block, expected {expected}"
            );
        }
    }

    /// A page's filter is small: 32 elements. A false candidate in the block is no likelier to be
    /// one in its pages.
    #[test]
    fn false_candidates_among_pages_do_not_follow_those_among_blocks() {
        let keys = Keys::new(5);
        let (pages, per_page) = (512_u32, 32_u64);
        for (bits, expected) in RATES {
            let mut map = PageMap::new(pages, per_page * u64::from(bits), bits);
            let elements = u64::from(pages) * per_page;
            let mut block = BloomMap::new(filter(elements * u64::from(bits), bits), 1);
            for number in 0..elements {
                map.insert(&keys.wanted(number), (number / per_page) as u32);
                block.insert(keys.wanted(number).hash, 0);
            }
            let (mut keys_asked, mut found) = (0_u64, 0);
            let mut number = elements;
            while keys_asked < 1500 {
                let wanted = keys.wanted(number);
                number += 1;
                if block.newest_first(wanted.hash).next().is_some() {
                    keys_asked += 1;
                    found += map.candidates(&wanted).count();
                }
            }
            let rate = found as f64 / (keys_asked * u64::from(pages)) as f64;
            assert!(
                (rate / expected - 1.0).abs() < 0.3,
                "{bits} bits: {rate} false candidates a page, expected {expected}"
            );
        }
    }
}
