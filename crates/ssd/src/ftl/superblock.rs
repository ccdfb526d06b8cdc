// SPDX-License-Identifier: Apache-2.0
//! Superblock: adjacent logical blocks share their physical blocks, in which their pages lie
//! freely.
//!
//! Idea: `size` adjacent logical blocks are a superblock. It has as many physical blocks, and also
//! update blocks as long as any are left. A page goes to the next free page of its superblock. When
//! no update block is left, one is regained within a superblock. The best victim has a block
//! without valid pages. Otherwise it is the superblock written longest ago, where the valid pages
//! of the emptiest blocks are copied together. Only pages of neighbours are mixed, so the map of a
//! superblock is small, and hot pages gather in few blocks.
//!
//! Source: J.-U. Kang, H. Jo, J.-S. Kim, J. Lee, "A superblock-based flash translation layer for
//! NAND flash memory", EMSOFT 2006. Options: `log-blocks`, the update blocks of all superblocks
//! together; `size`. Deviations: the paper keeps the map of pages in the spare areas in three
//! levels, and caches parts of it. Here reading it costs nothing, and `mapping` counts it as being
//! on the flash. The paper also separates hot from cold pages when it collects; here pages are
//! copied in the order of their block.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::ftl::logs::Blocks;
use crate::ftl::{Ftl, FtlCounts, Made, Mapping};
use crate::geometry::{Block, Lpn, Ppn};
use crate::nand::Nand;
use crate::spec::Spec;
use crate::{Error, Time};

pub(super) const NAME: &str = "superblock";

#[derive(Clone, Debug, Default)]
struct Super {
    /// Its physical blocks, in the order in which they were taken. Pages are appended to the last.
    blocks: Vec<Block>,
    age: u64,
}

struct Superblocks {
    blocks: Blocks,
    log_blocks: u32,
    size: u32,
    supers: Vec<Super>,
    /// Those with update blocks, of which there are `log_blocks` at most.
    with_updates: BTreeSet<usize>,
    /// Update blocks in use: physical blocks of superblocks beyond their logical ones.
    updates: u32,
    valid: Vec<u32>,
    clock: u64,
}

pub(super) fn make(spec: &mut Spec, nand: &Nand, logical_pages: u32) -> Made {
    let log_blocks: u32 = spec.take("log-blocks", 16)?;
    let size: u32 = spec.take("size", 4)?;
    if log_blocks == 0 || size == 0 {
        return Err(Error::Spec(format!(
            "{NAME} needs at least 1 log block and a size of at least 1"
        )));
    }
    let layer = Superblocks::new(nand, logical_pages, log_blocks, size)?;
    Ok(Box::new(layer))
}

impl Superblocks {
    fn new(nand: &Nand, logical_pages: u32, log_blocks: u32, size: u32) -> Result<Self, Error> {
        let blocks = Blocks::new(NAME, nand, logical_pages, log_blocks)?;
        let supers = blocks.data.len().div_ceil(size as usize);
        Ok(Self {
            blocks,
            log_blocks,
            size,
            supers: vec![Super::default(); supers],
            with_updates: BTreeSet::new(),
            updates: 0,
            valid: vec![0; nand.blocks() as usize],
            clock: 0,
        })
    }

    fn super_of(&self, lpn: Lpn) -> usize {
        (lpn / self.blocks.pages / self.size) as usize
    }

    /// Logical blocks of a superblock; the last one has fewer.
    fn logical_blocks(&self, of: usize) -> usize {
        let first = of * self.size as usize;
        (self.blocks.data.len() - first).min(self.size as usize)
    }

    fn has_updates(&self, of: usize) -> bool {
        self.supers[of].blocks.len() > self.logical_blocks(of)
    }

    fn add(&mut self, of: usize) -> Block {
        let block = self.blocks.take();
        self.join(of, block);
        block
    }

    /// Makes a block the last of a superblock.
    fn join(&mut self, of: usize, block: Block) {
        self.supers[of].blocks.push(block);
        if self.has_updates(of) {
            self.updates += 1;
            self.with_updates.insert(of);
        }
    }

    fn remove(&mut self, nand: &mut Nand, of: usize, block: Block, at: Time) -> Time {
        self.updates -= u32::from(self.has_updates(of));
        self.supers[of].blocks.retain(|other| *other != block);
        if !self.has_updates(of) {
            self.with_updates.remove(&of);
        }
        self.blocks.release(nand, block, at)
    }

    /// Subtracts a page from the count of its present block, if it has one.
    fn leave(&mut self, nand: &Nand, lpn: Lpn) {
        if let Some(page) = self.blocks.locate(lpn) {
            self.valid[nand.geometry().block_of(page) as usize] -= 1;
        }
    }

    /// The block of a superblock with the fewest valid pages. It is the block being filled only if
    /// all others are full of valid pages.
    fn emptiest(&self, of: usize) -> Option<Block> {
        let (last, others) = self.supers[of].blocks.split_last()?;
        let best = others
            .iter()
            .min_by_key(|block| self.valid[**block as usize]);
        match best {
            Some(best) if self.valid[*best as usize] < self.blocks.pages => Some(*best),
            _ => Some(*last),
        }
    }

    /// The superblock that has to give up an update block.
    fn victim(&self) -> Option<usize> {
        let is_free = |of: usize| {
            self.emptiest(of)
                .is_some_and(|block| self.valid[block as usize] == 0)
        };
        let all = self.with_updates.iter().copied();
        all.min_by_key(|of| (!is_free(*of), self.supers[*of].age))
    }

    /// Regains an update block from a superblock.
    fn collect(&mut self, nand: &mut Nand, of: usize, at: Time) -> Time {
        let target = self.supers[of].blocks.len() - 1;
        let mut done = at;
        while self.supers[of].blocks.len() > target
            && let Some(victim) = self.emptiest(of)
        {
            let live = self.blocks.live_in(nand, victim);
            let mut copied = done;
            for lpn in &live {
                let to = self.next_page(nand, of, victim);
                self.leave(nand, *lpn);
                copied = copied.max(self.blocks.copy(nand, *lpn, to, done));
                self.valid[nand.geometry().block_of(to) as usize] += 1;
            }
            if live.is_empty() {
                self.blocks.counts.switch_merges += 1;
            } else {
                self.blocks.counts.full_merges += 1;
            }
            self.blocks.counts.gc_blocks += 1;
            self.blocks.counts.gc_pages += live.len() as u64;
            done = self.remove(nand, of, victim, copied);
        }
        done
    }

    /// The target for a page that is copied out of `victim`.
    fn next_page(&mut self, nand: &Nand, of: usize, victim: Block) -> Ppn {
        let last = self.supers[of].blocks.last().copied();
        let room = last
            .filter(|last| *last != victim)
            .and_then(|last| self.blocks.append(nand, last));
        match room {
            Some(page) => page,
            None => nand.geometry().first_page(self.add(of)),
        }
    }

    /// The next free page of a superblock, if the power is on, and when it is free.
    fn room(&mut self, nand: &mut Nand, of: usize, at: Time) -> (Option<Ppn>, Time) {
        let mut ready = at;
        loop {
            if nand.is_off() {
                return (None, ready);
            }
            let last = self.supers[of].blocks.last().copied();
            if let Some(page) = last.and_then(|last| self.blocks.append(nand, last)) {
                return (Some(page), ready);
            }
            if self.supers[of].blocks.len() < self.logical_blocks(of)
                || self.updates < self.log_blocks
            {
                self.add(of);
            } else if let Some(victim) = self.victim() {
                ready = self.collect(nand, victim, ready);
            }
        }
    }

    fn release_all(&mut self, nand: &mut Nand, of: usize, at: Time) -> Time {
        let mut done = at;
        while let Some(block) = self.supers[of].blocks.last().copied() {
            done = self.remove(nand, of, block, done);
        }
        done
    }
}

impl Ftl for Superblocks {
    fn write(&mut self, nand: &mut Nand, lpn: Lpn, _stream: u16, at: Time) -> Time {
        let of = self.super_of(lpn);
        self.clock += 1;
        self.supers[of].age = self.clock;
        let (page, ready) = self.room(nand, of, at);
        let Some(page) = page else {
            return ready;
        };
        self.leave(nand, lpn);
        self.valid[nand.geometry().block_of(page) as usize] += 1;
        self.blocks.program(nand, lpn, page, ready)
    }

    /// Pages of one superblock fill its last block in one step.
    fn write_many(&mut self, nand: &mut Nand, lpns: &[Lpn], stream: u16) {
        if !nand.is_plain() {
            for lpn in lpns {
                self.write(nand, *lpn, stream, 0);
            }
            return;
        }
        let extent = self.blocks.pages * self.size;
        for mut rest in lpns.chunk_by(|a, b| a / extent == b / extent) {
            let of = self.super_of(rest[0]);
            // Without blocks it has no pages yet.
            let new = self.supers[of].blocks.is_empty() && rest.is_sorted_by(|a, b| a < b);
            while !rest.is_empty() {
                // The first page may need room, which is found by age.
                self.clock += 1;
                self.supers[of].age = self.clock;
                let (Some(first), _) = self.room(nand, of, 0) else {
                    return;
                };
                let block = nand.geometry().block_of(first);
                let room = self.blocks.pages - nand.next_page(block);
                let run;
                (run, rest) = rest.split_at(rest.len().min(room as usize));
                // Counted first: a page may be in the run twice.
                self.valid[block as usize] += run.len() as u32;
                if new {
                    self.blocks.put_new(run, first);
                } else {
                    for (lpn, page) in run.iter().zip(first..) {
                        self.leave(nand, *lpn);
                        self.blocks.put(*lpn, page);
                    }
                }
                nand.program_run(first, run);
                self.clock += run.len() as u64 - 1;
                self.supers[of].age = self.clock;
            }
        }
    }

    fn trim(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time {
        self.leave(nand, lpn);
        // A superblock without valid pages has no blocks, and most pages are not the last one of
        // their logical block.
        if !self.blocks.forget(lpn) {
            return at;
        }
        let of = self.super_of(lpn);
        let valid = &self.valid;
        let blocks = &self.supers[of].blocks;
        if blocks.iter().all(|block| valid[*block as usize] == 0) {
            return self.release_all(nand, of, at);
        }
        at
    }

    /// Whole superblocks lose all their blocks in one step: no other superblock has pages there.
    fn trim_many(&mut self, nand: &mut Nand, lpns: Range<Lpn>) {
        let extent = self.blocks.pages * self.size;
        let mut next = lpns.start;
        while next < lpns.end {
            let of = self.super_of(next);
            let first = of as Lpn * extent;
            let end = (first + extent).min(self.blocks.logical_pages);
            if next == first && end <= lpns.end {
                self.blocks.forget_blocks(first..end);
                for block in &self.supers[of].blocks {
                    self.valid[*block as usize] = 0;
                }
                self.release_all(nand, of, 0);
                next = end;
            } else {
                self.trim(nand, next, 0);
                next += 1;
            }
        }
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppn> {
        self.blocks.locate(lpn)
    }

    fn recover(&mut self, nand: &mut Nand) {
        let mut found = self.blocks.scan(nand);
        // The last one is the one that was being filled.
        found.sort_by_key(|found| (nand.next_page(found.block) < self.blocks.pages, found.last));
        self.supers.fill(Super::default());
        self.with_updates.clear();
        self.updates = 0;
        self.valid.fill(0);
        for found in found {
            let live = self.blocks.live_in(nand, found.block);
            self.valid[found.block as usize] = live.len() as u32;
            if let Some(lpn) = live.first() {
                let of = self.super_of(*lpn);
                self.join(of, found.block);
            }
        }
        // An interrupted collection has one block too many.
        while self.updates > self.log_blocks
            && let Some(victim) = self.victim()
        {
            self.collect(nand, victim, 0);
        }
    }

    fn counts(&self) -> FtlCounts {
        self.blocks.counts
    }

    fn mapping(&self) -> Mapping {
        // In RAM: the physical blocks of each superblock. In the spare areas: for each page, its
        // block in the superblock, and its page in the block.
        let all_blocks = u64::from(self.blocks.all_blocks);
        let blocks = self.blocks.data.len() as u64 + u64::from(self.log_blocks);
        let places = u64::from(self.size + self.log_blocks) * u64::from(self.blocks.pages);
        let in_spare = Mapping::table(u64::from(self.blocks.logical_pages), places);
        Mapping {
            flash_bytes: in_spare.bits.div_ceil(8),
            ..Mapping::table(blocks, all_blocks)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::geometry::Geometry;
    use crate::nand::Endurance;
    use senko_workload::rng::Rng;

    const LOGICAL: u32 = 200;

    /// A look for a victim used to ask all superblocks of the drive. At most as many as there are
    /// update blocks can be one.
    #[test]
    fn only_superblocks_with_update_blocks_are_asked() {
        let mut nand =
            Nand::new(Geometry::one_plane(40, 8), None, &Endurance::default(), 0).unwrap();
        let mut layer = Superblocks::new(&nand, LOGICAL, 5, 3).unwrap();
        let mut rng = Rng::new(4);
        for step in 0..20_000 {
            let lpn = rng.below(u64::from(LOGICAL)) as Lpn;
            if step % 5 == 0 {
                layer.trim(&mut nand, lpn, 0);
            } else {
                layer.write(&mut nand, lpn, 0, 0);
            }
            let all = 0..layer.supers.len();
            let with: BTreeSet<usize> = all.filter(|of| layer.has_updates(*of)).collect();
            assert!(layer.with_updates == with && with.len() <= 5, "{step}");
            let blocks = 0..nand.blocks();
            let programmed: u64 = blocks.map(|b| u64::from(nand.next_page(b))).sum();
            assert_eq!(nand.programmed_pages(), programmed);
        }
        assert!(layer.counts().gc_blocks > 1000);
    }
}
