// SPDX-License-Identifier: Apache-2.0
//! BAST: block-level mapping with a few log blocks, each for one data block.
//!
//! Idea: the first overwrite of a page gives its logical block a log block. Overwrites go to the
//! next page of that log block. When the log block is full, or another logical block needs it, it
//! is merged with the data block. The merge is a switch if the log block holds all pages in their
//! places, partial if it holds the first ones so, and full otherwise.
//!
//! Source: J. Kim, J. M. Kim, S. H. Noh, S. L. Min, Y. Cho, "A space-efficient flash translation
//! layer for CompactFlash systems", IEEE Transactions on Consumer Electronics 48(2), 2002, where it
//! is the log block scheme; the name is that of later papers. Options: `log-blocks`; `victim`, the
//! log block that is merged when all are in use: `lru`, the one written longest ago, `round-robin`,
//! the one opened longest ago, or `lowest`, the one of the lowest logical block. The paper leaves
//! the choice open. `rules=flashsim` has every write go to a log block, and merges only by
//! switching whole log blocks or fully, as the simulator FlashSim does (M. Bjorling's version of
//! 2011, `FTLs/bast_ftl.cpp`, whose victim is `lowest`). With `rules=paper`, deviations are: the
//! first version of a page goes to its place in the data block only as long as no later page was
//! programmed there; else it goes to the log. Today's flash must be programmed in order; the
//! paper's flash did not have to be. A logical block whose last page is trimmed gives its blocks
//! back.

use crate::ftl::logs::Blocks;
use crate::ftl::{Ftl, FtlCounts, Made, Mapping};
use crate::geometry::{Block, Lpn, NONE, Ppn};
use crate::nand::Nand;
use crate::spec::Spec;
use crate::{Error, Time};

pub(super) const NAME: &str = "bast";

#[derive(Clone, Copy, Debug)]
struct Log {
    lbn: u32,
    block: Block,
    /// The log block with the smallest value is merged first.
    age: u64,
}

/// The log block that is merged when all are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Lru,
    RoundRobin,
    Lowest,
}

struct Bast {
    blocks: Blocks,
    log_blocks: u32,
    victim: Victim,
    /// Every write goes to a log block, and no merge is partial.
    flashsim: bool,
    logs: Vec<Log>,
    /// The place in `logs` of each logical block's log block, or [`NONE`].
    log_of: Vec<u32>,
    clock: u64,
}

pub(super) fn make(spec: &mut Spec, nand: &Nand, logical_pages: u32) -> Made {
    let log_blocks: u32 = spec.take("log-blocks", 16)?;
    let victim: String = spec.take("victim", "lru".to_owned())?;
    let victim = match victim.as_str() {
        "lru" => Victim::Lru,
        "round-robin" => Victim::RoundRobin,
        "lowest" => Victim::Lowest,
        other => {
            return Err(Error::Spec(format!(
                "{NAME}: victim is lru, round-robin or lowest, not \"{other}\""
            )));
        }
    };
    let rules: String = spec.take_quietly("rules", "paper".to_owned())?;
    let flashsim = match rules.as_str() {
        "paper" => false,
        "flashsim" => true,
        other => {
            return Err(Error::Spec(format!(
                "{NAME}: rules is paper or flashsim, not \"{other}\""
            )));
        }
    };
    if log_blocks == 0 {
        return Err(Error::Spec(format!("{NAME} needs at least 1 log block")));
    }
    let blocks = Blocks::new(NAME, nand, logical_pages, log_blocks)?;
    let logical_blocks = blocks.data.len();
    Ok(Box::new(Bast {
        blocks,
        log_blocks,
        victim,
        flashsim,
        logs: Vec::new(),
        log_of: vec![NONE; logical_blocks],
        clock: 0,
    }))
}

impl Bast {
    fn open(&mut self, lbn: u32, block: Block) -> usize {
        self.log_of[lbn as usize] = self.logs.len() as u32;
        self.clock += 1;
        self.logs.push(Log {
            lbn,
            block,
            age: self.clock,
        });
        self.logs.len() - 1
    }

    fn close(&mut self, log: usize) -> Log {
        let closed = self.logs.swap_remove(log);
        self.log_of[closed.lbn as usize] = NONE;
        if let Some(moved) = self.logs.get(log) {
            self.log_of[moved.lbn as usize] = log as u32;
        }
        closed
    }

    fn merge(&mut self, nand: &mut Nand, log: usize, at: Time) -> Time {
        let Log { lbn, block, .. } = self.close(log);
        if self.flashsim && self.blocks.append(nand, block).is_some() {
            let merged = self.blocks.full_merge(nand, lbn, at);
            return self.blocks.release(nand, block, merged);
        }
        self.blocks.merge_log(nand, lbn, block, at)
    }

    fn victim(&self) -> usize {
        let first = (0..self.logs.len()).min_by_key(|log| {
            let Log { lbn, age, .. } = self.logs[*log];
            if self.victim == Victim::Lowest {
                u64::from(lbn)
            } else {
                age
            }
        });
        first.expect("there is at least one log block")
    }

    /// The page's place in its data block, if it may be programmed.
    fn home(&mut self, nand: &Nand, lpn: Lpn) -> Option<Ppn> {
        if self.flashsim {
            return None;
        }
        self.blocks.home(nand, lpn)
    }
}

impl Ftl for Bast {
    fn write(&mut self, nand: &mut Nand, lpn: Lpn, _stream: u16, at: Time) -> Time {
        if let Some(page) = self.home(nand, lpn) {
            return self.blocks.program(nand, lpn, page, at);
        }
        let (lbn, _) = self.blocks.split(lpn);
        let mut ready = at;
        let log = self.log_of[lbn as usize];
        if log != NONE {
            let Log { block, .. } = self.logs[log as usize];
            if let Some(page) = self.blocks.append(nand, block) {
                if self.victim == Victim::Lru {
                    self.clock += 1;
                    self.logs[log as usize].age = self.clock;
                }
                return self.blocks.program(nand, lpn, page, ready);
            }
            ready = self.merge(nand, log as usize, ready);
            if let Some(page) = self.home(nand, lpn) {
                return self.blocks.program(nand, lpn, page, ready);
            }
        } else if self.logs.len() == self.log_blocks as usize {
            ready = self.merge(nand, self.victim(), ready);
        }
        let block = self.blocks.take();
        self.open(lbn, block);
        let page = nand.geometry().first_page(block);
        self.blocks.program(nand, lpn, page, ready)
    }

    fn trim(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time {
        if !self.blocks.forget(lpn) {
            return at;
        }
        let (lbn, _) = self.blocks.split(lpn);
        let done = self.blocks.release_data(nand, lbn, at);
        let log = self.log_of[lbn as usize];
        if log == NONE {
            return done;
        }
        let Log { block, .. } = self.close(log as usize);
        self.blocks.release(nand, block, done)
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppn> {
        self.blocks.locate(lpn)
    }

    fn recover(&mut self, nand: &mut Nand) {
        self.logs.clear();
        self.log_of.fill(NONE);
        let found = self.blocks.scan(nand);
        for block in self.blocks.adopt(nand, found) {
            let lbn = nand.spare(block).iter().find(|lpn| **lpn != NONE);
            let (lbn, _) = self.blocks.split(*lbn.expect("it holds newest versions"));
            self.open(lbn, block);
        }
    }

    fn counts(&self) -> FtlCounts {
        self.blocks.counts
    }

    fn mapping(&self) -> Mapping {
        // A log block stores its own number, its data block's number, and the page number of each
        // of its pages.
        let logs = u64::from(self.log_blocks);
        let pages = u64::from(self.blocks.pages);
        self.blocks
            .data_table()
            .and(Mapping::table(logs, u64::from(self.blocks.all_blocks)))
            .and(Mapping::table(logs, self.log_of.len() as u64))
            .and(Mapping::table(logs * pages, pages + 1))
    }
}
