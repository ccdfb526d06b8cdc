// SPDX-License-Identifier: Apache-2.0
//! Block-level mapping: one table entry a block, each page in its place.
//!
//! Idea: logical block `b` lies in physical block `data[b]`, page `i` in page `i`. If neither the
//! page nor any page after it was programmed yet, the page is programmed there. Any other write
//! replaces the block. The pages before the written one are copied into an erased block, the
//! written one is programmed, the pages after it are copied, and the old block is erased. So an
//! overwrite costs a block of copies and an erase, whatever its size.
//!
//! Source: the usual description of block-level FTLs, such as T.-S. Chung et al., "A survey of
//! Flash Translation Layer", Journal of Systems Architecture 55 (2009), section 3; the table's size
//! is the second column of table 2 in the thesis on key-value stores for SSDs (section 2.2.2).
//! Deviations: none in the mapping. A request of several pages causes several replacements, since a
//! layer here sees single pages. A write buffer that evicts blocks in order does not change that.

use crate::Time;
use crate::ftl::logs::Blocks;
use crate::ftl::{Ftl, FtlCounts, Made, Mapping};
use crate::geometry::{Lpn, NONE, Ppn};
use crate::nand::Nand;
use crate::spec::Spec;

pub(super) const NAME: &str = "block";

struct BlockLevel {
    blocks: Blocks,
}

pub(super) fn make(_: &mut Spec, nand: &Nand, logical_pages: u32) -> Made {
    Ok(Box::new(BlockLevel {
        blocks: Blocks::new(NAME, nand, logical_pages, 0)?,
    }))
}

impl Ftl for BlockLevel {
    fn write(&mut self, nand: &mut Nand, lpn: Lpn, _stream: u16, at: Time) -> Time {
        let blocks = &mut self.blocks;
        if let Some(page) = blocks.home(nand, lpn) {
            return blocks.program(nand, lpn, page, at);
        }
        let (lbn, within) = blocks.split(lpn);
        let old = std::mem::replace(&mut blocks.data[lbn as usize], NONE);
        let new = blocks.take();
        let first = nand.geometry().first_page(new);
        let mut done = at;
        for (place, other) in blocks.pages_of(lbn) {
            done = if place == within {
                done.max(blocks.program(nand, lpn, first + place, at))
            } else if blocks.newest[other as usize] != NONE {
                done.max(blocks.copy(nand, other, first + place, at))
            } else {
                done
            };
        }
        blocks.data[lbn as usize] = new;
        blocks.counts.full_merges += 1;
        blocks.release(nand, old, done)
    }

    fn trim(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time {
        if self.blocks.forget(lpn) {
            let (lbn, _) = self.blocks.split(lpn);
            return self.blocks.release_data(nand, lbn, at);
        }
        at
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppn> {
        self.blocks.locate(lpn)
    }

    fn recover(&mut self, nand: &mut Nand) {
        let found = self.blocks.scan(nand);
        let others = self.blocks.adopt(nand, found);
        debug_assert!(others.is_empty(), "every page is in its place");
    }

    fn counts(&self) -> FtlCounts {
        self.blocks.counts
    }

    fn mapping(&self) -> Mapping {
        self.blocks.data_table()
    }
}
