// SPDX-License-Identifier: Apache-2.0
//! One Bloom filter per block, searched one after the other, as in SkimpyStash. The thesis compares
//! its map with this. The experiment `thesis-index` measures both.
//!
//! It is as fast as we could make it: a slow rival proves nothing.

use senko_io::{AlignedBuf, PAGE_SIZE, prefetch};
use senko_store::KeyHash;
use senko_store::index::bloom_map::{Column, Filter};

/// Bytes of a cache line.
const LINE: usize = 64;

/// One Bloom filter per block, searched from the newest to the oldest.
pub struct Sequential {
    filter: Filter,
    blocks: usize,
    /// Bytes from one filter to the next: a line more than a filter has. So the lines of one
    /// position in all filters do not fall into the same few cache sets.
    stride: usize,
    memory: AlignedBuf,
}

impl Sequential {
    /// Filters prefetched ahead of the current one.
    const AHEAD: usize = 16;
    /// Filters of the first and the largest group that go through the hash functions together.
    const FIRST_GROUP: usize = 16;
    const LARGEST_GROUP: usize = 256;

    /// Filters without elements.
    pub fn new(filter: Filter, blocks: u32) -> Sequential {
        let blocks = blocks as usize;
        let stride = (filter.positions as usize).div_ceil(LINE * 8) * LINE + LINE;
        let mut memory = AlignedBuf::new((stride * blocks).div_ceil(PAGE_SIZE));
        memory.prefer_large();
        Sequential {
            filter,
            blocks,
            stride,
            memory,
        }
    }

    /// Sets a block's filter.
    pub fn set(&mut self, block: u32, column: &Column) {
        let filter = &mut self.memory[block as usize * self.stride..][..self.stride];
        for (bytes, word) in filter.as_chunks_mut::<8>().0.iter_mut().zip(column.words()) {
            *bytes = word.to_le_bytes();
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    #[inline]
    fn has(&self, block: usize, position: u32) -> bool {
        self.memory[block * self.stride + position as usize / 8] >> (position % 8) & 1 == 1
    }

    #[inline]
    fn ask(&self, block: usize, position: u32) {
        let at = block * self.stride + position as usize / 8;
        prefetch(&self.memory[at..=at]);
    }

    /// The number of false candidates before the block, one filter after the other. The test of a
    /// filter ends at the first position with a zero. The first two positions of later filters are
    /// prefetched, because half of the tests end at the first position and a quarter at the second.
    pub fn find_plain(&self, key: KeyHash, block: u32) -> Option<u32> {
        let positions = self.filter.positions_of(key);
        let positions = positions.all();
        let ask = |block: usize| {
            positions
                .iter()
                .take(2)
                .for_each(|position| self.ask(block, *position))
        };
        (self.blocks.saturating_sub(Self::AHEAD)..self.blocks)
            .rev()
            .for_each(ask);
        let mut wrong = 0;
        for at in (0..self.blocks).rev() {
            if at >= Self::AHEAD {
                ask(at - Self::AHEAD);
            }
            if positions.iter().all(|position| self.has(at, *position)) {
                if at == block as usize {
                    return Some(wrong);
                }
                wrong += 1;
            }
        }
        None
    }

    /// Asks for what [`find_staged`](Self::find_staged) reads first.
    pub fn ask_first(&self, key: KeyHash) {
        let first = self.filter.positions_of(key).all()[0];
        for block in self.blocks.saturating_sub(Self::FIRST_GROUP)..self.blocks {
            self.ask(block, first);
        }
    }

    /// The same, by groups of filters. All filters of a group are tested at the first position, the
    /// remaining ones at the second, and so on. So no line is read needlessly, and many reads are
    /// under way at any time. The first group is small, for keys that are new.
    pub fn find_staged(&self, key: KeyHash, block: u32, left: &mut Vec<u32>) -> Option<u32> {
        let positions = self.filter.positions_of(key);
        let positions = positions.all();
        let mut wrong = 0;
        let mut size = Self::FIRST_GROUP;
        let (mut high, mut low) = (self.blocks, self.blocks.saturating_sub(size));
        (low..high)
            .rev()
            .for_each(|block| self.ask(block, positions[0]));
        loop {
            size = (size * 2).min(Self::LARGEST_GROUP);
            let lower = low.saturating_sub(size);
            let mut coming = low;
            left.clear();
            for at in (low..high).rev() {
                for _ in 0..2 {
                    if coming > lower {
                        coming -= 1;
                        self.ask(coming, positions[0]);
                    }
                }
                if self.has(at, positions[0]) {
                    self.ask(at, positions[1]);
                    left.push(at as u32);
                }
            }
            (lower..coming)
                .rev()
                .for_each(|block| self.ask(block, positions[0]));
            for (stage, position) in positions.iter().enumerate().skip(1) {
                let next = positions.get(stage + 1);
                left.retain(|at| {
                    let has = self.has(*at as usize, *position);
                    if has && let Some(next) = next {
                        self.ask(*at as usize, *next);
                    }
                    has
                });
            }
            for at in left.iter() {
                if *at == block {
                    return Some(wrong);
                }
                wrong += 1;
            }
            if low == 0 {
                return None;
            }
            (high, low) = (low, lower);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::hash_of;
    use senko_store::index::BloomMap;

    #[test]
    fn both_ways_to_search_filters_find_what_the_map_finds() {
        const PER_BLOCK: u64 = 70;
        let filter = Filter::for_elements(PER_BLOCK as u32);
        let blocks = 430;
        let mut map = BloomMap::new(filter, 0);
        let mut sequential = Sequential::new(filter, blocks);
        let mut column = Column::new(filter);
        for block in 0..blocks {
            column.clear();
            let first = u64::from(block) * PER_BLOCK;
            (first..first + PER_BLOCK).for_each(|number| column.insert(hash_of(number)));
            sequential.set(block, &column);
            map.push_blocks(std::slice::from_ref(&column));
        }
        let mut left = Vec::new();
        for number in (0..u64::from(blocks) * PER_BLOCK).step_by(7) {
            let (hash, block) = (hash_of(number), (number / PER_BLOCK) as u32);
            let wrong = map.newest_first(hash).position(|at| at == block).unwrap() as u32;
            assert_eq!(sequential.find_plain(hash, block), Some(wrong));
            assert_eq!(sequential.find_staged(hash, block, &mut left), Some(wrong));
        }
    }
}
