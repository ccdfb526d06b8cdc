// SPDX-License-Identifier: Apache-2.0
//! The isolation area of FASTer (`faster.rs`): the log blocks of pages with a second chance.

use std::collections::VecDeque;

use crate::ftl::logs::Blocks;
use crate::geometry::{Block, Ppn};
use crate::nand::Nand;

/// The area, empty in FAST.
pub(super) struct Isolation {
    /// Its log blocks, the oldest first. Pages are appended to the last.
    blocks: VecDeque<Block>,
    most: u32,
}

impl Isolation {
    pub(super) fn new(most: u32) -> Self {
        Self {
            blocks: VecDeque::new(),
            most,
        }
    }

    /// The most log blocks that it may have. FAST has none.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Whether another log block needs the place of the oldest.
    pub(super) fn is_full(&self) -> bool {
        self.blocks.len() == self.most as usize
    }

    /// The next page of the last log block, if it has one.
    pub(super) fn next_page(&self, blocks: &mut Blocks, nand: &Nand) -> Option<Ppn> {
        blocks.append(nand, *self.blocks.back()?)
    }

    pub(super) fn add(&mut self, block: Block) {
        self.blocks.push_back(block);
    }

    pub(super) fn take_oldest(&mut self) -> Option<Block> {
        self.blocks.pop_front()
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
    }
}
