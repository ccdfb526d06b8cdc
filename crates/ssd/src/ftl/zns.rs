// SPDX-License-Identifier: Apache-2.0
//! Zones: the address space in pieces that are written in order and reset as a whole.
//!
//! Idea: a zone is `blocks` blocks of the flash, over which its pages are distributed in turn. Each
//! zone has a write pointer. The table has an entry for each zone and none for pages. There is no
//! collection: the host makes room by trimming a zone, which resets it. Source: NVMe Zoned
//! Namespace Command Set 1.1; Bjorling et al., "ZNS: Avoiding the block interface tax for
//! flash-based SSDs", USENIX ATC 2021. Deviations: a simulator that replays any trace can't refuse
//! requests. Writes that a zoned drive would refuse are handled as in host-aware zones (ZAC, ZBC).
//! - Above the pointer: the pointer skips the pages in between, which stay unwritten until the
//!   reset.
//! - Below it: the zone is rewritten, its pages are copied to fresh blocks together with the new
//!   one, under [`Cause::Merge`]. Each rewrite counts as a full merge. A host that keeps the rules
//!   causes none, and has a write amplification of 1.
//!
//! A zone is reset when the last of its written, untrimmed pages is trimmed.

use crate::ftl::{FreeBlocks, Ftl, FtlCounts, Made, Mapping};
use crate::geometry::{Block, Lpn, NONE, Ppn};
use crate::nand::{Cause, Nand};
use crate::spec::Spec;
use crate::{Error, Time};

pub(super) const NAME: &str = "zns";

#[derive(Clone, Debug, Default)]
struct Zone {
    /// Its blocks; empty if the zone is empty.
    blocks: Vec<Block>,
    /// The next page to be written, counted in the zone.
    pointer: u32,
    live: u32,
}

pub(super) struct Zns {
    blocks: u32,
    pages: u32,
    zones: Vec<Zone>,
    /// Which logical pages were written and not trimmed.
    live: Vec<bool>,
    free: Vec<FreeBlocks>,
    physical_blocks: u32,
    counts: FtlCounts,
}

pub(super) fn make(spec: &mut Spec, nand: &Nand, logical_pages: u32) -> Made {
    let blocks: u32 = spec.take("blocks", 4)?;
    let pages = u64::from(blocks) * u64::from(nand.pages_per_block());
    if blocks == 0 || blocks > nand.blocks() {
        return Err(Error::Spec(format!(
            "zns: a zone has 1 to {} blocks, and not {blocks}",
            nand.blocks()
        )));
    }
    let zones = u64::from(logical_pages).div_ceil(pages);
    let needed = (zones + 1) * u64::from(blocks);
    if needed > u64::from(nand.blocks()) {
        return Err(Error::Spec(format!(
            "zns: {zones} zones of {blocks} blocks, and one more to rewrite into, need {needed} blocks, and the flash has {}",
            nand.blocks()
        )));
    }
    let planes = nand.geometry().all_planes();
    Ok(Box::new(Zns {
        blocks,
        pages: pages as u32,
        zones: vec![Zone::default(); zones as usize],
        live: vec![false; logical_pages as usize],
        free: (0..planes)
            .map(|plane| FreeBlocks::new(nand, (plane..nand.blocks()).step_by(planes as usize)))
            .collect(),
        physical_blocks: nand.blocks(),
        counts: FtlCounts::default(),
    }))
}

impl Zns {
    /// Fresh blocks for a zone, each from the plane whose turn it is, or from the next one that has
    /// a block.
    fn fresh(&mut self, zone: usize) -> Vec<Block> {
        let planes = self.free.len();
        let first = zone * self.blocks as usize;
        let take = |at: usize| {
            let mut in_turn = (at..at + planes).map(|plane| plane % planes);
            in_turn.find_map(|plane| self.free[plane].take())
        };
        (first..first + self.blocks as usize)
            .map(take)
            .map(|block| block.expect("beside the zones there are blocks for another one"))
            .collect()
    }

    fn give(&mut self, nand: &mut Nand, blocks: Vec<Block>, at: Time, cause: Cause) -> Time {
        let mut done = at;
        for block in blocks {
            done = done.max(nand.erase(block, at, cause));
            let plane = nand.geometry().plane_of(block);
            self.free[plane as usize].give(nand, block);
        }
        done
    }

    /// The flash page for a page of a zone on these blocks.
    fn page_on(&self, blocks: &[Block], within: u32) -> Ppn {
        let block = blocks[(within % self.blocks) as usize];
        block * (self.pages / self.blocks) + within / self.blocks
    }

    /// Writes a page below the pointer: rewrites the zone to fresh blocks, in order.
    fn rewrite(&mut self, nand: &mut Nand, zone: usize, within: u32, lpn: Lpn, at: Time) -> Time {
        let to = self.fresh(zone);
        let from = std::mem::take(&mut self.zones[zone].blocks);
        let mut done = at;
        for page in 0..self.zones[zone].pointer {
            let target = self.page_on(&to, page);
            let logical = zone * self.pages as usize + page as usize;
            let written = if page == within {
                nand.program(target, lpn, at, Cause::Host)
            } else if self.live[logical] {
                let source = self.page_on(&from, page);
                nand.copy(source, target, at, Cause::Merge)
            } else {
                continue;
            };
            done = done.max(written);
        }
        if nand.is_off() {
            // Now only the contents of the old blocks count.
            self.zones[zone].blocks = from;
            return at;
        }
        self.zones[zone].blocks = to;
        self.counts.full_merges += 1;
        self.give(nand, from, done, Cause::Merge);
        done
    }

    /// Of two blocks with the same part of a zone: the one to keep, and the other.
    ///
    /// One is old, the other is from a rewrite that the power cut interrupted. If the part has the
    /// rewrite's own page, the new block is kept and completed from the old one. Other parts have
    /// only copies, and the fuller one is kept.
    fn settle(&self, nand: &mut Nand, one: Block, other: Block) -> (Block, Block) {
        let rank = |block: Block| {
            let pages = nand.spare(block).iter();
            let first = nand.geometry().first_page(block);
            let written = (first..).zip(pages).filter(|(_, lpn)| **lpn != NONE);
            let sequences = written.map(|(page, _)| nand.sequence(page));
            sequences.fold((0, 0), |(latest, pages), sequence| {
                (sequence.max(latest), pages + 1)
            })
        };
        let (keep, drop) = if rank(one) >= rank(other) {
            (one, other)
        } else {
            (other, one)
        };
        if rank(keep).0 > rank(drop).0 {
            let first = |block| nand.geometry().first_page(block);
            let (from, to) = (first(drop), first(keep));
            for page in nand.next_page(keep)..nand.next_page(drop) {
                if nand.lpn(from + page) != NONE {
                    nand.copy(from + page, to + page, 0, Cause::Merge);
                }
            }
        }
        (keep, drop)
    }
}

impl Ftl for Zns {
    fn write(&mut self, nand: &mut Nand, lpn: Lpn, _: u16, at: Time) -> Time {
        if nand.is_off() {
            return at;
        }
        let (zone, within) = ((lpn / self.pages) as usize, lpn % self.pages);
        let done = if within < self.zones[zone].pointer {
            self.rewrite(nand, zone, within, lpn, at)
        } else {
            if self.zones[zone].blocks.is_empty() {
                self.zones[zone].blocks = self.fresh(zone);
            }
            self.zones[zone].pointer = within + 1;
            let page = self.page_on(&self.zones[zone].blocks, within);
            nand.program(page, lpn, at, Cause::Host)
        };
        if !std::mem::replace(&mut self.live[lpn as usize], true) {
            self.zones[zone].live += 1;
        }
        done
    }

    fn trim(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time {
        if nand.is_off() || !std::mem::replace(&mut self.live[lpn as usize], false) {
            return at;
        }
        let zone = &mut self.zones[(lpn / self.pages) as usize];
        zone.live -= 1;
        if zone.live > 0 {
            return at;
        }
        let blocks = std::mem::take(zone).blocks;
        self.give(nand, blocks, at, Cause::Host)
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppn> {
        if !self.live[lpn as usize] {
            return None;
        }
        let zone = &self.zones[(lpn / self.pages) as usize];
        Some(self.page_on(&zone.blocks, lpn % self.pages))
    }

    fn recover(&mut self, nand: &mut Nand) {
        let (blocks, pages) = (self.blocks as usize, self.pages);
        let mut parts: Vec<Option<Block>> = vec![None; self.zones.len() * blocks];
        let mut free = Vec::new();
        for block in 0..self.physical_blocks {
            let Some(lpn) = nand.spare(block).iter().find(|lpn| **lpn != NONE) else {
                free.push(block);
                continue;
            };
            let part = (lpn / pages) as usize * blocks + (lpn % pages) as usize % blocks;
            parts[part] = match parts[part] {
                None => Some(block),
                Some(other) => {
                    let (keep, drop) = self.settle(nand, block, other);
                    nand.erase(drop, 0, Cause::Merge);
                    free.push(drop);
                    Some(keep)
                }
            };
        }
        let planes = self.free.len();
        for (plane, pool) in self.free.iter_mut().enumerate() {
            let of_plane = free.iter().copied();
            *pool = FreeBlocks::new(
                nand,
                of_plane.filter(|block| *block as usize % planes == plane),
            );
        }
        self.live.fill(false);
        for zone in 0..self.zones.len() {
            self.zones[zone] = Zone::default();
            let found = &parts[zone * blocks..][..blocks];
            if found.iter().all(Option::is_none) {
                continue;
            }
            let mut fresh = self.fresh(zone).into_iter();
            for (at, part) in found.iter().enumerate() {
                let spare = fresh.next().expect("as many as the zone has blocks");
                let Some(block) = *part else {
                    self.zones[zone].blocks.push(spare);
                    continue;
                };
                let plane = nand.geometry().plane_of(spare);
                self.free[plane as usize].give(nand, spare);
                let end = (nand.next_page(block) - 1) * self.blocks + at as u32 + 1;
                let zone = &mut self.zones[zone];
                zone.blocks.push(block);
                zone.pointer = zone.pointer.max(end);
                for lpn in nand.spare(block).iter().filter(|lpn| **lpn != NONE) {
                    self.live[*lpn as usize] = true;
                    zone.live += 1;
                }
            }
        }
    }

    fn counts(&self) -> FtlCounts {
        self.counts
    }

    fn mapping(&self) -> Mapping {
        // The blocks of each zone, and the zone's pointer.
        let zones = self.zones.len() as u64;
        let blocks = Mapping::table(zones * u64::from(self.blocks), self.physical_blocks.into());
        blocks.and(Mapping::table(zones, u64::from(self.pages) + 1))
    }
}
