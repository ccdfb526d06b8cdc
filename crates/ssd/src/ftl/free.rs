// SPDX-License-Identifier: Apache-2.0
//! The pool of erased blocks. It does dynamic wear levelling: the least worn block is taken first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::geometry::Block;
use crate::nand::Nand;

/// Erased blocks, the least worn first; of equally worn ones, the lowest number first.
#[derive(Clone, Debug, Default)]
pub struct FreeBlocks {
    heap: BinaryHeap<Reverse<(u32, Block)>>,
}

impl FreeBlocks {
    pub fn new(nand: &Nand, blocks: impl Iterator<Item = Block>) -> Self {
        Self {
            heap: blocks
                .map(|block| Reverse((nand.erases(block), block)))
                .collect(),
        }
    }

    pub fn count(&self) -> usize {
        self.heap.len()
    }

    pub fn take(&mut self) -> Option<Block> {
        self.heap.pop().map(|Reverse((_, block))| block)
    }

    pub fn give(&mut self, nand: &Nand, block: Block) {
        self.heap.push(Reverse((nand.erases(block), block)));
    }
}
