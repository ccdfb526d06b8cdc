// SPDX-License-Identifier: Apache-2.0
//! FAST: block-level mapping with log blocks that any logical block shares.
//!
//! Idea: one log block is for sequential writes. The first page of a logical block starts it; its
//! earlier content is then merged, by switching or partially. The successor of its last page is
//! appended. Another page of its logical block ends it with a merge. All other overwrites go to the
//! random log blocks, one page after the other. When these are full, the oldest is reclaimed: each
//! logical block with a valid page in it is merged fully.
//!
//! Source: S.-W. Lee, D.-J. Park, T.-S. Chung, D.-H. Lee, S. Park, H.-J. Song, "A log buffer-based
//! flash translation layer using fully-associative sector translation", ACM Transactions on
//! Embedded Computing Systems 6(3), 2007, section 3. Option: `log-blocks`, the sequential one
//! included. Deviations: the first version of a page goes to its data block as in `bast.rs`. The
//! page that ends the sequential log block goes to the random log. Merges copy the newest version
//! wherever it is, so a partial merge also removes the pages that it copies from the random log.

use std::collections::VecDeque;

use crate::ftl::logs::Blocks;
use crate::ftl::{Ftl, FtlCounts, Made, Mapping};
use crate::geometry::{Block, Lpn, Ppn};
use crate::nand::Nand;
use crate::spec::Spec;
use crate::{Error, Time};

pub(super) const NAME: &str = "fast";

/// FAST, and FASTer, which adds the isolation area (`faster.rs`).
pub(super) struct Fast {
    blocks: Blocks,
    log_blocks: u32,
    /// The logical block that is written in order, and its log block.
    sequential: Option<(u32, Block)>,
    /// Random log blocks, the oldest first. Pages are appended to the last.
    random: VecDeque<Block>,
    random_blocks: u32,
    /// FASTer's log blocks of pages with a second chance, the oldest first.
    isolated: VecDeque<Block>,
    isolation_blocks: u32,
}

pub(super) fn make(spec: &mut Spec, nand: &Nand, logical_pages: u32) -> Made {
    let log_blocks: u32 = spec.take("log-blocks", 16)?;
    Ok(Box::new(Fast::new(
        NAME,
        nand,
        logical_pages,
        log_blocks,
        0,
    )?))
}

impl Fast {
    pub(super) fn new(
        name: &str,
        nand: &Nand,
        logical_pages: u32,
        log_blocks: u32,
        isolation_blocks: u32,
    ) -> Result<Self, Error> {
        let least = u64::from(isolation_blocks) + 2;
        if u64::from(log_blocks) < least {
            return Err(Error::Spec(format!(
                "{name} needs at least {least} log blocks, one of them sequential and one random, not {log_blocks}"
            )));
        }
        Ok(Self {
            blocks: Blocks::new(name, nand, logical_pages, log_blocks)?,
            log_blocks,
            sequential: None,
            random: VecDeque::new(),
            random_blocks: log_blocks - 1 - isolation_blocks,
            isolated: VecDeque::new(),
            isolation_blocks,
        })
    }

    fn merge_sequential(&mut self, nand: &mut Nand, at: Time) -> Time {
        match self.sequential.take() {
            Some((lbn, block)) => self.blocks.merge_log(nand, lbn, block, at),
            None => at,
        }
    }

    /// Merges a logical block fully, including its sequential log block.
    fn merge(&mut self, nand: &mut Nand, lbn: u32, at: Time) -> Time {
        let merged = self.blocks.full_merge(nand, lbn, at);
        match self.sequential {
            Some((owner, block)) if owner == lbn => {
                self.sequential = None;
                self.blocks.release(nand, block, merged)
            }
            _ => merged,
        }
    }

    /// Merges all logical blocks with pages in a log block, and erases it.
    fn merge_all(&mut self, nand: &mut Nand, victim: Block, at: Time) -> Time {
        let mut done = at;
        for lbn in self.blocks.logical_blocks_in(nand, victim) {
            done = self.merge(nand, lbn, done);
        }
        self.blocks.release(nand, victim, done)
    }

    fn reclaim(&mut self, nand: &mut Nand, at: Time) -> Time {
        let Some(victim) = self.random.pop_front() else {
            return at;
        };
        if self.isolation_blocks > 0 {
            self.isolate(nand, victim, at)
        } else {
            self.merge_all(nand, victim, at)
        }
    }

    /// Whether another isolated log block needs the place of the oldest.
    fn isolation_is_full(&self) -> bool {
        self.isolated.len() == self.isolation_blocks as usize
    }

    /// Copies the valid pages of a log block to the isolation area, and erases it.
    fn isolate(&mut self, nand: &mut Nand, victim: Block, at: Time) -> Time {
        let (mut ready, mut done) = (at, at);
        for lpn in self.blocks.live_in(nand, victim) {
            let last = self.isolated.back().copied();
            let to = match last.and_then(|last| self.blocks.append(nand, last)) {
                Some(page) => page,
                None => {
                    if self.isolation_is_full()
                        && let Some(oldest) = self.isolated.pop_front()
                    {
                        ready = self.merge_all(nand, oldest, done);
                    }
                    let block = self.blocks.take();
                    self.isolated.push_back(block);
                    nand.geometry().first_page(block)
                }
            };
            // A merge may have moved it.
            if self.blocks.is_in(nand, lpn, victim) {
                done = done.max(self.blocks.copy(nand, lpn, to, ready));
                self.blocks.counts.gc_pages += 1;
            }
        }
        self.blocks.release(nand, victim, done.max(ready))
    }

    fn write_random(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time {
        let mut ready = at;
        let last = self.random.back().copied();
        let page = match last.and_then(|last| self.blocks.append(nand, last)) {
            Some(page) => page,
            None => {
                if self.random.len() == self.random_blocks as usize {
                    ready = self.reclaim(nand, at);
                }
                let block = self.blocks.take();
                self.random.push_back(block);
                nand.geometry().first_page(block)
            }
        };
        self.blocks.program(nand, lpn, page, ready)
    }
}

impl Ftl for Fast {
    fn write(&mut self, nand: &mut Nand, lpn: Lpn, _stream: u16, at: Time) -> Time {
        let (lbn, within) = self.blocks.split(lpn);
        let own = self.sequential.filter(|(owner, _)| *owner == lbn);
        if let Some((_, block)) = own
            && nand.next_page(block) == within
        {
            let page = nand.geometry().first_page(block) + within;
            return self.blocks.program(nand, lpn, page, at);
        }
        if let Some(page) = self.blocks.home(nand, lpn) {
            return self.blocks.program(nand, lpn, page, at);
        }
        let mut ready = at;
        if own.is_some() || within == 0 {
            ready = self.merge_sequential(nand, at);
        }
        if within > 0 {
            return self.write_random(nand, lpn, ready);
        }
        let block = self.blocks.take();
        self.sequential = Some((lbn, block));
        let page = nand.geometry().first_page(block);
        self.blocks.program(nand, lpn, page, ready)
    }

    fn trim(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time {
        if self.blocks.forget(lpn) {
            let (lbn, _) = self.blocks.split(lpn);
            return self.merge(nand, lbn, at);
        }
        at
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppn> {
        self.blocks.locate(lpn)
    }

    fn recover(&mut self, nand: &mut Nand) {
        self.sequential = None;
        let found = self.blocks.scan(nand);
        self.random = self.blocks.adopt(nand, found).into();
        self.isolated.clear();
        // The two kinds of log blocks can't be distinguished, so the oldest are assumed to be
        // isolated.
        while self.random.len() > self.random_blocks as usize {
            if self.isolation_is_full() {
                self.reclaim(nand, 0);
            } else if let Some(block) = self.random.pop_front() {
                self.isolated.push_back(block);
            }
        }
    }

    fn counts(&self) -> FtlCounts {
        self.blocks.counts
    }

    fn mapping(&self) -> Mapping {
        self.blocks
            .data_table()
            .and(self.blocks.log_table(self.log_blocks))
    }
}
