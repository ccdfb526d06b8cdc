// SPDX-License-Identifier: Apache-2.0
//! The common parts of the layers of block granularity: data blocks in which each page has its
//! place, and the merges that return pages from log blocks.
//!
//! ```text
//! switch    the log block holds every page in its place        log block -> data block, erase the old one
//! partial   it holds the first pages in their places           copy the rest behind them, then switch
//! full      anything else                                      copy all pages into an erased block, erase the rest
//! ```
//!
//! For every layer, the simulator keeps one flat table of the newest version of each page
//! ([`Blocks::newest`]). Each layer's `mapping` reports the size of the tables that the layer
//! itself would need.
//!
//! Always holds:
//! - MERGE-1: outside a write there are at least [`SPARE`] erased blocks beyond the data blocks and
//!   the log blocks that the layer was built with. A merge needs one.
//! - MERGE-2: a block is erased only when no page's newest version lies in it, so the newest
//!   version survives a power cut at any operation.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::ftl::{FreeBlocks, FtlCounts, Mapping};
use crate::geometry::{Block, Lpn, NONE, Ppn};
use crate::nand::{Cause, Nand};
use crate::{Error, Time};

/// Erased blocks beyond data and log blocks: one for the target of a merge, and one to repeat a
/// merge that a power cut interrupted.
const SPARE: u32 = 2;

/// Data blocks, erased blocks, and where each page's newest version lies.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    pub pages: u32,
    pub logical_pages: u32,
    /// The newest version of each page, or [`NONE`] if it was never written or was trimmed.
    pub newest: Vec<Ppn>,
    /// The data block of each logical block, [`NONE`] if it has none.
    pub data: Vec<Block>,
    /// Pages of each logical block that have a version.
    live: Vec<u32>,
    pub free: FreeBlocks,
    pub counts: FtlCounts,
    pub all_blocks: u32,
}

/// The programmed pages of a block.
fn pages_in(nand: &Nand, block: Block) -> impl DoubleEndedIterator<Item = Ppn> + use<'_> {
    let first = nand.geometry().first_page(block);
    (first..first + nand.next_page(block)).filter(|page| nand.lpn(*page) != NONE)
}

/// For each number below `numbers`: the page with its newest version, as the spare areas say, or
/// [`NONE`]. Of two copies of a version, recovery takes the one in the block with more newest
/// versions, so that few blocks are needed. Within a block it takes the later one, which is the
/// copy.
pub(super) fn newest_versions(nand: &Nand, numbers: u32) -> Vec<Ppn> {
    let mut latest = vec![0u64; numbers as usize];
    for block in 0..nand.blocks() {
        for page in pages_in(nand, block) {
            let latest = &mut latest[nand.lpn(page) as usize];
            *latest = (*latest).max(nand.sequence(page));
        }
    }
    let is_latest = |page: &Ppn| nand.sequence(*page) == latest[nand.lpn(*page) as usize];
    let mut order: Vec<(u32, Block)> = (0..nand.blocks())
        .map(|block| {
            (
                pages_in(nand, block).filter(is_latest).count() as u32,
                block,
            )
        })
        .collect();
    order.sort_unstable_by_key(|(count, block)| (u32::MAX - count, *block));
    let mut newest = vec![NONE; numbers as usize];
    for (_, block) in order {
        for page in pages_in(nand, block).rev().filter(is_latest) {
            let newest = &mut newest[nand.lpn(page) as usize];
            if *newest == NONE {
                *newest = page;
            }
        }
    }
    newest
}

/// A block with newest versions after a power cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoveredBlock {
    pub block: Block,
    /// The sequence number of its latest page.
    pub last: u64,
}

impl Blocks {
    /// Erased flash for `logical_pages`, with `more` blocks beyond the data blocks.
    pub fn new(layer: &str, nand: &Nand, logical_pages: u32, more: u32) -> Result<Self, Error> {
        let pages = nand.pages_per_block();
        let logical_blocks = logical_pages.div_ceil(pages);
        let needed = u64::from(logical_blocks) + u64::from(more) + u64::from(SPARE);
        if needed > u64::from(nand.blocks()) {
            return Err(Error::Spec(format!(
                "{layer} needs {needed} blocks ({logical_blocks} for data, {more} for its log, {SPARE} for merges), and the flash has {}",
                nand.blocks()
            )));
        }
        Ok(Self {
            pages,
            logical_pages,
            newest: vec![NONE; logical_pages as usize],
            data: vec![NONE; logical_blocks as usize],
            live: vec![0; logical_blocks as usize],
            free: FreeBlocks::new(nand, 0..nand.blocks()),
            counts: FtlCounts::default(),
            all_blocks: nand.blocks(),
        })
    }

    /// The logical block of a page, and the page's place in it.
    pub fn split(&self, lpn: Lpn) -> (u32, u32) {
        (lpn / self.pages, lpn % self.pages)
    }

    pub fn locate(&self, lpn: Lpn) -> Option<Ppn> {
        let page = self.newest[lpn as usize];
        (page != NONE).then_some(page)
    }

    pub fn program(&mut self, nand: &mut Nand, lpn: Lpn, page: Ppn, at: Time) -> Time {
        let done = nand.program(page, lpn, at, Cause::Host);
        self.put(lpn, page);
        done
    }

    /// Notes where the newest version of a page is programmed.
    pub fn put(&mut self, lpn: Lpn, page: Ppn) {
        if self.newest[lpn as usize] == NONE {
            self.live[(lpn / self.pages) as usize] += 1;
        }
        self.newest[lpn as usize] = page;
    }

    /// Like [`Blocks::put`] for pages in ascending order that have no version yet, programmed from
    /// `first` on.
    pub fn put_new(&mut self, mut lpns: &[Lpn], first: Ppn) {
        for (lpn, page) in lpns.iter().zip(first..) {
            self.newest[*lpn as usize] = page;
        }
        while let Some(lpn) = lpns.first() {
            let lbn = lpn / self.pages;
            let of_block;
            (of_block, lpns) =
                lpns.split_at(lpns.partition_point(|lpn| *lpn < (lbn + 1) * self.pages));
            self.live[lbn as usize] += of_block.len() as u32;
        }
    }

    /// Forgets a page; returns whether it was the last of its logical block.
    pub fn forget(&mut self, lpn: Lpn) -> bool {
        if self.newest[lpn as usize] == NONE {
            return false;
        }
        self.newest[lpn as usize] = NONE;
        let live = &mut self.live[(lpn / self.pages) as usize];
        *live -= 1;
        *live == 0
    }

    /// Forgets all pages of some logical blocks.
    pub fn forget_blocks(&mut self, lpns: Range<Lpn>) {
        self.newest[lpns.start as usize..lpns.end as usize].fill(NONE);
        let blocks = lpns.start / self.pages..lpns.end.div_ceil(self.pages);
        self.live[blocks.start as usize..blocks.end as usize].fill(0);
    }

    pub fn take(&mut self) -> Block {
        self.free
            .take()
            .expect("MERGE-1: there is an erased block for each merge")
    }

    /// Erases a block without newest versions.
    pub fn release(&mut self, nand: &mut Nand, block: Block, at: Time) -> Time {
        let done = nand.erase(block, at, Cause::Merge);
        self.free.give(nand, block);
        done
    }

    /// Erases the data block of a logical block, if it has one.
    pub fn release_data(&mut self, nand: &mut Nand, lbn: u32, at: Time) -> Time {
        let block = std::mem::replace(&mut self.data[lbn as usize], NONE);
        if block == NONE {
            at
        } else {
            self.release(nand, block, at)
        }
    }

    /// The page's place in its data block, if it can still be programmed. A logical block without a
    /// data block gets one.
    pub fn home(&mut self, nand: &Nand, lpn: Lpn) -> Option<Ppn> {
        let (lbn, within) = self.split(lpn);
        if self.data[lbn as usize] == NONE {
            self.data[lbn as usize] = self.take();
        }
        let block = self.data[lbn as usize];
        (nand.next_page(block) <= within).then(|| nand.geometry().first_page(block) + within)
    }

    /// The next page of a block, if it is not full.
    pub fn append(&self, nand: &Nand, block: Block) -> Option<Ppn> {
        let next = nand.next_page(block);
        (next < self.pages).then(|| nand.geometry().first_page(block) + next)
    }

    /// The pages of a logical block, each with its place.
    pub fn pages_of(&self, lbn: u32) -> impl Iterator<Item = (u32, Lpn)> + use<> {
        let first = lbn * self.pages;
        let end = (first + self.pages).min(self.logical_pages);
        (0..).zip(first..end)
    }

    /// Whether all pages of `block` are in their places and are the newest existing versions. Then
    /// it can become the data block of `lbn`.
    fn leads(&self, nand: &Nand, lbn: u32, block: Block) -> bool {
        let first = nand.geometry().first_page(block);
        self.is_data(nand, block) == Some(lbn)
            && self
                .pages_of(lbn)
                .take(nand.next_page(block) as usize)
                .all(|(within, lpn)| {
                    let page = self.newest[lpn as usize];
                    page == NONE || page == first + within
                })
    }

    pub fn copy(&mut self, nand: &mut Nand, lpn: Lpn, to: Ppn, at: Time) -> Time {
        let done = nand.copy(self.newest[lpn as usize], to, at, Cause::Merge);
        self.newest[lpn as usize] = to;
        done
    }

    /// Copies the newest versions of the pages with places in `within` to the same places in
    /// `block`; returns their number and the end. All copies may begin at once: the planes order
    /// them.
    pub fn copy_home(
        &mut self,
        nand: &mut Nand,
        lbn: u32,
        within: Range<u32>,
        block: Block,
        at: Time,
    ) -> (u32, Time) {
        let first = nand.geometry().first_page(block);
        let (mut copied, mut done) = (0, at);
        for (place, lpn) in self.pages_of(lbn) {
            let page = self.newest[lpn as usize];
            if within.contains(&place) && page != NONE && page != first + place {
                done = done.max(self.copy(nand, lpn, first + place, at));
                copied += 1;
            }
        }
        (copied, done)
    }

    /// Merges a logical block with a log block that has only pages of it: by switching, partially,
    /// or fully. The log block is then the data block or erased.
    pub fn merge_log(&mut self, nand: &mut Nand, lbn: u32, log: Block, at: Time) -> Time {
        if !self.leads(nand, lbn, log) {
            let merged = self.full_merge(nand, lbn, at);
            return self.release(nand, log, merged);
        }
        let (copied, filled) = self.copy_home(nand, lbn, nand.next_page(log)..self.pages, log, at);
        if copied == 0 {
            self.counts.switch_merges += 1;
        } else {
            self.counts.partial_merges += 1;
        }
        let done = self.release_data(nand, lbn, filled);
        self.data[lbn as usize] = log;
        done
    }

    /// Copies all pages of a logical block into an erased block, which replaces its data block. The
    /// log blocks that held them stay.
    pub fn full_merge(&mut self, nand: &mut Nand, lbn: u32, at: Time) -> Time {
        if self.live[lbn as usize] == 0 {
            return self.release_data(nand, lbn, at);
        }
        self.counts.full_merges += 1;
        let block = self.take();
        let (_, copied) = self.copy_home(nand, lbn, 0..self.pages, block, at);
        let done = self.release_data(nand, lbn, copied);
        self.data[lbn as usize] = block;
        done
    }

    /// The logical pages whose newest version lies in a block, in the order of the block.
    pub fn live_in(&self, nand: &Nand, block: Block) -> Vec<Lpn> {
        let first = nand.geometry().first_page(block);
        (first..)
            .zip(nand.spare(block))
            .filter(|(page, lpn)| **lpn != NONE && self.newest[**lpn as usize] == *page)
            .map(|(_, lpn)| *lpn)
            .collect()
    }

    /// Logical blocks with newest versions in a block: the number of merges needed to free it.
    pub fn logical_blocks_in(&self, nand: &Nand, block: Block) -> BTreeSet<u32> {
        let live = self.live_in(nand, block);
        live.iter().map(|lpn| self.split(*lpn).0).collect()
    }

    /// Whether the newest version of a page lies in a block.
    pub fn is_in(&self, nand: &Nand, lpn: Lpn, block: Block) -> bool {
        self.locate(lpn)
            .is_some_and(|page| nand.geometry().block_of(page) == block)
    }

    /// After a power cut: finds the newest version of every page, and erases blocks without any.
    /// Pages that an interrupted merge left are copies or older versions, so they go too. Blocks
    /// with newest versions are returned in the order of their numbers.
    pub fn scan(&mut self, nand: &mut Nand) -> Vec<RecoveredBlock> {
        self.newest = newest_versions(nand, self.logical_pages);
        self.data.fill(NONE);
        self.live.fill(0);
        let mut needed = vec![false; self.all_blocks as usize];
        for (lpn, page) in self.newest.iter().enumerate() {
            if *page != NONE {
                self.live[lpn / self.pages as usize] += 1;
                needed[nand.geometry().block_of(*page) as usize] = true;
            }
        }
        let mut found = Vec::new();
        for block in 0..self.all_blocks {
            if needed[block as usize] {
                let sequences = pages_in(nand, block).map(|page| nand.sequence(page));
                let last = sequences.max().unwrap_or(0);
                found.push(RecoveredBlock { block, last });
            } else if nand.next_page(block) > 0 {
                nand.erase(block, 0, Cause::Merge);
            }
        }
        self.free = FreeBlocks::new(
            nand,
            (0..self.all_blocks).filter(|block| nand.next_page(*block) == 0),
        );
        found
    }

    /// The logical block of which `block` holds only pages in their places, if there is one.
    fn is_data(&self, nand: &Nand, block: Block) -> Option<u32> {
        let mut of = None;
        for (place, lpn) in (0..).zip(nand.spare(block)) {
            if *lpn == NONE {
                continue;
            }
            let (lbn, within) = self.split(*lpn);
            if within != place || of.is_some_and(|of| of != lbn) {
                return None;
            }
            of = Some(lbn);
        }
        of
    }

    /// After [`Blocks::scan`]: turns blocks into data blocks where possible. If there are several
    /// for a logical block, they are merged. The other blocks are returned, in the order of their
    /// last writes.
    pub fn adopt(&mut self, nand: &mut Nand, found: Vec<RecoveredBlock>) -> Vec<Block> {
        let mut homes: Vec<(u32, Block)> = Vec::new();
        let mut others: Vec<RecoveredBlock> = Vec::new();
        for found in found {
            match self.is_data(nand, found.block) {
                Some(lbn) => homes.push((lbn, found.block)),
                None => others.push(found),
            }
        }
        homes.sort_unstable();
        for same in homes.chunk_by(|a, b| a.0 == b.0) {
            let lbn = same[0].0;
            self.data[lbn as usize] = same[0].1;
            if same.len() > 1 {
                self.full_merge(nand, lbn, 0);
                for (_, block) in &same[1..] {
                    self.release(nand, *block, 0);
                }
            }
        }
        others.sort_by_key(|found| (found.last, found.block));
        let mut logs = Vec::new();
        for RecoveredBlock { block, .. } in others {
            if self.live_in(nand, block).is_empty() {
                // A merge above took its last newest version.
                self.release(nand, block, 0);
            } else {
                logs.push(block);
            }
        }
        logs
    }

    pub fn data_table(&self) -> Mapping {
        Mapping::table(self.data.len() as u64, u64::from(self.all_blocks))
    }

    /// The size of the table of `blocks` log blocks in which any page may lie: the block, and the
    /// logical page of each of its pages.
    pub fn log_table(&self, blocks: u32) -> Mapping {
        let pages = u64::from(blocks) * u64::from(self.pages);
        Mapping::table(u64::from(blocks), u64::from(self.all_blocks))
            .and(Mapping::table(pages, u64::from(self.logical_pages) + 1))
    }
}
