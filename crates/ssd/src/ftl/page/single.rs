// SPDX-License-Identifier: Apache-2.0
//! A write cache of blocks in single-level mode.
//!
//! Idea: cells that hold one bit are programmed much faster than cells that hold three. So the
//! host's pages go to blocks in single-level mode first, which take a third of the pages. Such a
//! block is folded later: its valid pages are copied to blocks of more bits, and it is erased.
//! Folding happens when the drive is idle, and when the cache is full. In the second case writes
//! wait for it, and the sustained rate is below that of a drive without a cache: each page is
//! programmed twice. Source: drives call it SLC cache, TurboWrite or dynamic write acceleration.
//! Manufacturers publish its size and the rates with and without it, but not its policy.
//! Deviations: unknown. Blocks are folded in the order in which they were filled. A full cache
//! folds one block for each that it opens. Garbage collection does not touch its blocks. Cells of
//! one bit survive more cycles, which is not counted.
//!
//! Its size: `slc-blocks` blocks of each plane, in addition to the host's capacity; or `slc-share`
//! of the plane's free blocks, which shrinks as the drive fills. A cache of the second kind gives
//! its blocks back before anything is collected.

use std::collections::VecDeque;

use super::Page;
use crate::geometry::{Block, Lpn, Ppn};
use crate::nand::{Cause, Nand};
use crate::spec::Spec;
use crate::{Error, Time};

/// How many blocks of a plane the cache has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Size {
    None,
    Blocks(u32),
    /// A share of the free blocks, including its own.
    Share(f64),
}

impl Size {
    /// Takes the options `slc-blocks` and `slc-share`.
    pub(super) fn take(spec: &mut Spec, nand: &Nand) -> Result<Self, Error> {
        let blocks: u32 = spec.take_quietly("slc-blocks", 0)?;
        let share: f64 = spec.take_quietly("slc-share", 0.0)?;
        let wrong = |text: &str| Err(Error::Spec(format!("page: {text}")));
        if !(0.0..=1.0).contains(&share) {
            return wrong("slc-share must be 0 to 1");
        }
        let size = match (blocks > 0, share > 0.0) {
            (true, true) => return wrong("the SLC cache has slc-blocks or slc-share, not both"),
            (true, false) => Self::Blocks(blocks),
            (false, true) => Self::Share(share),
            (false, false) => Self::None,
        };
        if size != Self::None && nand.single_pages().is_none() {
            return wrong("an SLC cache needs a profile that has [slc]");
        }
        Ok(size)
    }

    /// Blocks of each plane that are not available for lasting data.
    pub(super) fn fixed(self) -> u64 {
        match self {
            Self::Blocks(blocks) => u64::from(blocks),
            _ => 0,
        }
    }

    /// Whether the cache uses free space.
    pub(super) fn gives_way(self) -> bool {
        matches!(self, Self::Share(_))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    /// The full ones, in the order in which they were filled.
    full: VecDeque<Block>,
    /// The block being filled, and its next page.
    open: Option<(Block, u32)>,
}

impl Cache {
    /// A block that accepts no more pages.
    pub(super) fn close(&mut self, block: Block) {
        self.full.push_back(block);
    }

    fn blocks(&self) -> usize {
        self.full.len() + usize::from(self.open.is_some())
    }

    /// The block to fold next: the one that was filled first.
    pub(super) fn oldest(&mut self) -> Option<Block> {
        let open = &mut self.open;
        self.full
            .pop_front()
            .or_else(|| open.take().map(|(block, _)| block))
    }
}

impl Page {
    /// The cache's next page in a plane. `None` if the cache can't get a block now, so that the
    /// write bypasses it.
    pub(super) fn single_page(&mut self, nand: &mut Nand, plane: usize, at: Time) -> Option<Ppn> {
        let pages = nand.single_pages()?;
        while !nand.is_off() {
            let own = &mut self.planes[plane];
            match own.cache.open {
                Some((block, next)) if next < pages => {
                    return Some(nand.geometry().first_page(block) + next);
                }
                Some((block, _)) => {
                    own.cache.open = None;
                    own.cache.close(block);
                }
                None => {}
            }
            let spare = own.free.count().saturating_sub(self.reserve as usize);
            let allowed = match self.size {
                Size::None => 0,
                Size::Blocks(blocks) => blocks as usize,
                Size::Share(share) => ((spare + own.cache.blocks()) as f64 * share) as usize,
            };
            if own.cache.blocks() >= allowed {
                self.fold(nand, plane, at)?;
                if allowed == 0 {
                    return None;
                }
            } else if spare > 0 {
                let block = own.free.take().expect("there are spare blocks");
                nand.open_single(block);
                own.cache.open = Some((block, 0));
            } else if self.size.gives_way() {
                return None;
            } else {
                self.make_room(nand, plane, at);
            }
        }
        None
    }

    /// Writes the cache's next page in a plane.
    pub(super) fn write_single(
        &mut self,
        nand: &mut Nand,
        plane: usize,
        page: Ppn,
        lpn: Lpn,
        at: Time,
    ) -> Time {
        let done = nand.program(page, lpn, at, Cause::Host);
        let block = self.by_pages.quotient(page);
        if let Some((_, next)) = &mut self.planes[plane].cache.open {
            *next += 1;
        }
        self.counts.slc_pages += 1;
        self.victims.valid[block as usize] += 1;
        self.planes[plane].valid += 1;
        self.moved(lpn, page);
        done
    }

    /// Folds a full block of the plane that has the most, while there is nothing else to do.
    pub(super) fn fold_idle(&mut self, nand: &mut Nand, at: Time) -> Option<Time> {
        if self.size == Size::None || nand.is_off() {
            return None;
        }
        let planes = self.planes.iter().enumerate();
        let (plane, most) = planes.max_by_key(|(_, plane)| plane.cache.full.len())?;
        if most.cache.full.is_empty() {
            return None;
        }
        self.fold(nand, plane, at)
    }
}
