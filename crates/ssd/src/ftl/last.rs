// SPDX-License-Identifier: Apache-2.0
//! LAST: log blocks by locality: sequential ones, and random ones for hot and for cold pages.
//!
//! Idea: long writes go to sequential log blocks, each of one logical block, which usually merge by
//! switching or partially. Short writes go to the random log. A page whose last version is still in
//! the random log is hot and goes to the hot partition; any other goes to the cold one. Hot pages
//! become invalid together, and a block without valid pages is erased without a merge. If there is
//! none, the block that needs the fewest merges is freed.
//!
//! Source: S. Lee, D. Shin, Y.-J. Kim, J. Kim, "LAST: locality-aware sector translation for NAND
//! flash memory-based storage systems", ACM SIGOPS Operating Systems Review 42(6), 2008. Options:
//! `log-blocks`, all of them; `sequential-blocks` and `hot-blocks` of those, by default a quarter
//! each; `threshold`, in pages. Deviations: a layer here sees pages, not requests: a write counts
//! as long from the `threshold`th page in a row on (32 KB of 4 KB pages by default). The pages
//! before it in its logical block are copied before it, so the log block stays in order. The
//! partial merge would have had to copy them later anyway. The shares of the partitions are fixed,
//! where the paper lets them move.

use crate::ftl::logs::Blocks;
use crate::ftl::{Ftl, FtlCounts, Made, Mapping};
use crate::geometry::{Block, Lpn, NONE, Ppn};
use crate::nand::Nand;
use crate::spec::Spec;
use crate::{Error, Time};

pub(super) const NAME: &str = "last";

#[derive(Clone, Copy, Debug)]
struct Sequential {
    lbn: u32,
    block: Block,
    age: u64,
}

/// A part of the random log: its blocks, the oldest first. Pages are appended to the last.
#[derive(Clone, Debug, Default)]
struct Partition {
    blocks: Vec<Block>,
    most: u32,
}

const HOT: usize = 0;
const COLD: usize = 1;

struct Last {
    blocks: Blocks,
    log_blocks: u32,
    sequential_blocks: u32,
    threshold: u32,
    sequential: Vec<Sequential>,
    random: [Partition; 2],
    /// The page written last, and the number of successive pages up to it.
    previous: Lpn,
    in_a_row: u32,
    clock: u64,
}

pub(super) fn make(spec: &mut Spec, nand: &Nand, logical_pages: u32) -> Made {
    let log_blocks: u32 = spec.take("log-blocks", 16)?;
    let quarter = (log_blocks / 4).max(1);
    let sequential_blocks: u32 = spec.take("sequential-blocks", quarter)?;
    let hot_blocks: u32 = spec.take("hot-blocks", quarter)?;
    let threshold: u32 = spec.take("threshold", 8)?;
    let taken = u64::from(sequential_blocks) + u64::from(hot_blocks);
    if sequential_blocks == 0 || hot_blocks == 0 || taken >= u64::from(log_blocks) {
        return Err(Error::Spec(format!(
            "{NAME}: of {log_blocks} log blocks {sequential_blocks} are sequential and {hot_blocks} hot; each kind, and the cold rest, needs at least 1"
        )));
    }
    if threshold == 0 {
        return Err(Error::Spec(format!(
            "{NAME} needs a threshold of at least 1 page"
        )));
    }
    let partition = |most| Partition {
        blocks: Vec::new(),
        most,
    };
    Ok(Box::new(Last {
        blocks: Blocks::new(NAME, nand, logical_pages, log_blocks)?,
        log_blocks,
        sequential_blocks,
        threshold,
        sequential: Vec::new(),
        random: [
            partition(hot_blocks),
            partition(log_blocks - sequential_blocks - hot_blocks),
        ],
        previous: NONE,
        in_a_row: 0,
        clock: 0,
    }))
}

impl Last {
    fn sequential_of(&self, lbn: u32) -> Option<usize> {
        self.sequential.iter().position(|log| log.lbn == lbn)
    }

    fn merge_sequential(&mut self, nand: &mut Nand, log: usize, at: Time) -> Time {
        let Sequential { lbn, block, .. } = self.sequential.swap_remove(log);
        self.blocks.merge_log(nand, lbn, block, at)
    }

    /// Begins a sequential log block with a page and the pages before it in its logical block.
    fn begin(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time {
        let (lbn, within) = self.blocks.split(lpn);
        let mut ready = at;
        if let Some(log) = self.sequential_of(lbn) {
            ready = self.merge_sequential(nand, log, ready);
        } else if self.sequential.len() == self.sequential_blocks as usize {
            let oldest = (0..self.sequential.len()).min_by_key(|log| self.sequential[*log].age);
            ready = self.merge_sequential(nand, oldest.unwrap_or(0), ready);
        }
        let block = self.blocks.take();
        self.sequential.push(Sequential {
            lbn,
            block,
            age: self.clock,
        });
        let (_, copied) = self.blocks.copy_home(nand, lbn, 0..within, block, ready);
        let page = nand.geometry().first_page(block) + within;
        self.blocks.program(nand, lpn, page, copied)
    }

    /// Merges a logical block fully, including its sequential log block.
    fn merge(&mut self, nand: &mut Nand, lbn: u32, at: Time) -> Time {
        let merged = self.blocks.full_merge(nand, lbn, at);
        match self.sequential_of(lbn) {
            Some(log) => {
                let Sequential { block, .. } = self.sequential.swap_remove(log);
                self.blocks.release(nand, block, merged)
            }
            None => merged,
        }
    }

    /// Frees a block of a partition: the one that needs the fewest merges; of several, the oldest.
    fn reclaim(&mut self, nand: &mut Nand, partition: usize, at: Time) -> Time {
        let merges = |block: &Block| self.blocks.logical_blocks_in(nand, *block).len();
        let blocks = &self.random[partition].blocks;
        let Some(cheapest) = (0..blocks.len()).min_by_key(|place| merges(&blocks[*place])) else {
            return at;
        };
        let victim = self.random[partition].blocks.remove(cheapest);
        let mut done = at;
        for lbn in self.blocks.logical_blocks_in(nand, victim) {
            done = self.merge(nand, lbn, done);
        }
        self.blocks.release(nand, victim, done)
    }

    fn write_random(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time {
        let is_logged = self.blocks.locate(lpn).is_some_and(|page| {
            let block = nand.geometry().block_of(page);
            self.random.iter().any(|part| part.blocks.contains(&block))
        });
        let partition = if is_logged { HOT } else { COLD };
        let Partition { blocks, most } = &self.random[partition];
        let last = blocks.last().copied();
        let is_full = blocks.len() == *most as usize;
        let mut ready = at;
        let page = match last.and_then(|last| self.blocks.append(nand, last)) {
            Some(page) => page,
            None => {
                if is_full {
                    ready = self.reclaim(nand, partition, at);
                }
                let block = self.blocks.take();
                self.random[partition].blocks.push(block);
                nand.geometry().first_page(block)
            }
        };
        self.blocks.program(nand, lpn, page, ready)
    }
}

impl Ftl for Last {
    fn write(&mut self, nand: &mut Nand, lpn: Lpn, _stream: u16, at: Time) -> Time {
        let follows = self.previous != NONE && lpn == self.previous + 1;
        self.in_a_row = if follows { self.in_a_row + 1 } else { 1 };
        self.previous = lpn;
        self.clock += 1;
        let (lbn, within) = self.blocks.split(lpn);
        if let Some(log) = self.sequential_of(lbn) {
            let Sequential { block, age, .. } = &mut self.sequential[log];
            if nand.next_page(*block) == within {
                *age = self.clock;
                let page = nand.geometry().first_page(*block) + within;
                return self.blocks.program(nand, lpn, page, at);
            }
        }
        if let Some(page) = self.blocks.home(nand, lpn) {
            return self.blocks.program(nand, lpn, page, at);
        }
        if self.in_a_row >= self.threshold {
            self.begin(nand, lpn, at)
        } else {
            self.write_random(nand, lpn, at)
        }
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
        self.previous = NONE;
        self.sequential.clear();
        let found = self.blocks.scan(nand);
        let mut others = self.blocks.adopt(nand, found);
        // Hot and cold can't be distinguished. The blocks written last are assumed to be cold,
        // since the cold partition is larger.
        let cold = others.len().saturating_sub(self.random[COLD].most as usize);
        self.random[COLD].blocks = others.split_off(cold);
        self.random[HOT].blocks = others;
        while self.random[HOT].blocks.len() > self.random[HOT].most as usize {
            self.reclaim(nand, HOT, 0);
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
