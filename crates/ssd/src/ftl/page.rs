// SPDX-License-Identifier: Apache-2.0
//! The page-level layer: every logical page may lie in every page of the flash.
//!
//! Idea: a table names each logical page's place. Writes go to the next page of an open block; the
//! old version becomes invalid. When a plane has no free block beyond its reserve, garbage
//! collection moves the valid pages of a victim (`victims.rs`) to an open block and erases it.
//! Source: greedy and cost-benefit: Rosenblum and Ousterhout, "The design and implementation of a
//! log-structured file system", SOSP 1991; Kawaguchi, Nishioka and Motoda, "A flash-memory based
//! file system", USENIX 1995. FIFO and the closed forms: Desnoyers, "Analytic modeling of SSD write
//! performance", SYSTOR 2012. d-choices: Van Houdt, "A mean field model for a class of garbage
//! collection algorithms", SIGMETRICS 2013. Windowed: Hu et al., "Write amplification analysis in
//! flash-based solid state drives", SYSTOR 2009. Streams: Kang et al., "The multi-streamed
//! solid-state drive", HotStorage 2014, and NVMe's flexible data placement. Planes: a page goes to
//! the plane that is idle first, and idle planes take turns ("dynamic allocation"; in
//! write-amplification mode all are idle). Deviations: an age is counted in closings of blocks, not
//! in seconds, so that it does not depend on timings. Each plane collects by itself. Additional
//! streams share the configured ones (number modulo `streams`). Collection mixes the streams (FDP's
//! "initially isolated").
//!
//! Blocks of a plane: `reserve` free blocks, which only collection may take; an open block for each
//! stream and, with `separate`, one for collection. All others are closed or free. Without
//! `separate` collection fills the block that stream 0 writes to, as in the closed forms. Victims
//! are chosen when an open block is full and not before, so that then every block but the reserve
//! holds data.
//!
//! Collection treats a page as valid if the table says that its logical page lies there. There are
//! no valid bits.

mod collect; // frees blocks
mod single; // the cache of blocks in single-level mode
mod victims; // which block is collected

use std::cmp::Reverse;

use crate::ftl::{FreeBlocks, Ftl, FtlCounts, Made, Mapping};
use crate::geometry::{Block, Divider, Lpn, NONE, Ppn};
use crate::nand::{Cause, Nand};
use crate::spec::Spec;
use crate::{Error, Time};
use single::{Cache, Size};
use victims::{Policy, Victims};

pub(super) const NAME: &str = "page";
pub(super) const OPTIONS: &[&str] = &[
    "gc=greedy",
    "d=10",
    "window=64",
    "streams=1",
    "separate=false",
    "reserve=1",
    "background=2",
    "slc-blocks=0",
    "slc-share=0",
];

/// Pages whose table entries are loaded before any of them is written.
const TOUCHED_AHEAD: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Open {
    block: Block,
    /// Its next page to be written; the number of pages if there is no block.
    next: u32,
}

#[derive(Clone, Debug)]
struct Plane {
    free: FreeBlocks,
    /// One for each stream, and one for collection if that is separate.
    open: Vec<Open>,
    /// Valid pages; counted only if there are several planes.
    valid: u64,
    cache: Cache,
}

pub(super) struct Page {
    size: Size,
    streams: u32,
    separate: bool,
    reserve: u32,
    background: u32,
    pages: u32,
    by_pages: Divider,
    by_planes: Divider,
    places: Vec<Ppn>,
    victims: Victims,
    planes: Vec<Plane>,
    /// The most valid pages of a plane with which it surely has a block that is not full of them.
    most_valid: u64,
    /// The plane that each stream writes to next.
    turns: Vec<u32>,
    counts: FtlCounts,
    /// Pages of a victim that are being moved.
    moving: Vec<Ppn>,
}

pub(super) fn make(spec: &mut Spec, nand: &Nand, logical_pages: u32) -> Made {
    let policy = Policy::take(spec)?;
    let streams: u32 = spec.take("streams", 1)?;
    let separate = spec.take("separate", false)?;
    let reserve: u32 = spec.take("reserve", 1)?;
    let background = spec.take("background", 2)?;
    if streams == 0 || streams > 1 << 16 {
        return Err(Error::Spec("page: streams must be 1 to 65536".to_owned()));
    }
    if reserve == 0 {
        return Err(Error::Spec(
            "page: reserve must be at least 1, or collection has nowhere to begin".to_owned(),
        ));
    }
    let geometry = *nand.geometry();
    if geometry.pages > u32::from(u16::MAX) {
        return Err(Error::Geometry(
            "the page-level layer takes blocks of at most 65535 pages".to_owned(),
        ));
    }
    let size = Size::take(spec, nand)?;
    let planes = geometry.all_planes();
    let taken = u64::from(reserve) + u64::from(streams) + u64::from(separate) - 1 + size.fixed();
    let usable = u64::from(geometry.blocks).saturating_sub(taken) * u64::from(geometry.pages);
    // At least one page in a closed block must always be invalid.
    let most_valid = usable.saturating_sub(1);
    if most_valid * u64::from(planes) <= u64::from(logical_pages) {
        return Err(Error::Spec(format!(
            "page: {logical_pages} logical pages need more than the {} pages that remain besides the reserve and open blocks",
            usable * u64::from(planes)
        )));
    }
    let open = Open {
        block: NONE,
        next: geometry.pages,
    };
    let planes = (0..planes).map(|plane| Plane {
        free: FreeBlocks::new(nand, blocks_of(nand, plane)),
        open: vec![open; streams as usize + usize::from(separate)],
        valid: 0,
        cache: Cache::default(),
    });
    Ok(Box::new(Page {
        size,
        streams,
        separate,
        reserve,
        background,
        pages: geometry.pages,
        by_pages: Divider::new(geometry.pages),
        by_planes: Divider::new(geometry.all_planes()),
        places: vec![NONE; logical_pages as usize],
        victims: Victims::new(policy, nand),
        planes: planes.collect(),
        most_valid,
        turns: (0..streams).map(|n| n % geometry.all_planes()).collect(),
        counts: FtlCounts::default(),
        moving: vec![NONE; geometry.pages as usize],
    }))
}

fn blocks_of(nand: &Nand, plane: u32) -> impl Iterator<Item = Block> + use<> {
    let planes = nand.geometry().all_planes();
    (plane..nand.blocks()).step_by(planes as usize)
}

impl Page {
    /// The plane for a stream's next page: the first idle plane, starting with the one whose turn
    /// it is. If none is idle, it is the plane that will be idle first. A plane that can hold no
    /// more valid pages is skipped.
    #[inline]
    fn take_turn(&mut self, nand: &Nand, stream: usize, at: Time) -> usize {
        let planes = self.planes.len() as u32;
        if planes == 1 {
            return 0;
        }
        let mut plane = self.turns[stream];
        let (mut best, mut soonest) = (plane, Time::MAX);
        for _ in 0..planes {
            // Blocks are distributed over the planes in turn, so the block with this number is in
            // the plane.
            let free = nand.free_at(plane);
            if free < soonest && self.planes[plane as usize].valid < self.most_valid {
                (best, soonest) = (plane, free);
                if free <= at {
                    break;
                }
            }
            plane = if plane + 1 == planes { 0 } else { plane + 1 };
        }
        self.turns[stream] = if best + 1 == planes { 0 } else { best + 1 };
        best as usize
    }

    /// Makes sure that a stream's open block in a plane has a page left.
    fn open(&mut self, nand: &mut Nand, plane: usize, stream: usize, at: Time) {
        while self.planes[plane].open[stream].next == self.pages && !nand.is_off() {
            if self.planes[plane].free.count() > self.reserve as usize {
                self.open_free(plane, stream);
            } else {
                self.make_room(nand, plane, at);
            }
        }
    }

    /// Loads the entries of pages that are about to be written, and the counts of the blocks where
    /// they lie. It loads many at once, so that the cache misses of a large table overlap.
    #[inline]
    fn touch(&self, lpns: &[Lpn]) {
        let counts = lpns.iter().map(|lpn| {
            let block = self.by_pages.quotient(self.places[*lpn as usize]);
            self.victims
                .valid
                .get(block as usize)
                .map_or(0, |valid| *valid)
        });
        std::hint::black_box(counts.fold(0, |sum: u16, valid| sum.wrapping_add(valid)));
    }

    /// Adds pages that were programmed from `first` on, all in the open block `block`.
    #[inline]
    fn place_run(&mut self, lpns: &[Lpn], first: Ppn, block: Block) {
        // None of the block's pages is overwritten before it is written, so one sum suffices.
        self.victims.valid[block as usize] += lpns.len() as u16;
        for (lpn, page) in lpns.iter().zip(first..) {
            let old = std::mem::replace(&mut self.places[*lpn as usize], page);
            if old != NONE {
                self.invalidate(old);
            }
        }
    }

    /// Blocks that are neither erased nor full, the one with the most room first. So the first can
    /// take the pages of a victim that a power cut kept from moving.
    fn reopen(&mut self, nand: &mut Nand, plane: usize) {
        let mut part: Vec<Block> = Vec::new();
        let mut free: Vec<Block> = Vec::new();
        self.planes[plane].cache = Cache::default();
        for block in blocks_of(nand, plane as u32) {
            match nand.next_page(block) {
                0 => free.push(block),
                _ if nand.is_single(block) => self.planes[plane].cache.close(block),
                next if next < self.pages => part.push(block),
                _ => self.victims.close(block),
            }
        }
        self.planes[plane].free = FreeBlocks::new(nand, free.into_iter());
        part.sort_by_key(|block| (nand.next_page(*block), *block));
        let which = self.collecting();
        self.planes[plane].open.fill(Open {
            block: NONE,
            next: self.pages,
        });
        for (rank, block) in part.into_iter().enumerate() {
            if rank == 0 {
                let next = nand.next_page(block);
                self.planes[plane].open[which] = Open { block, next };
            } else {
                // It may never be filled up, and is worth collecting for that.
                self.victims.close(block);
            }
        }
        // The power went during the collection of a victim. The victim has fewer valid pages than
        // the room of the block with the most room.
        while self.planes[plane].free.count() < self.reserve as usize && !nand.is_off() {
            if self.fold(nand, plane, 0).is_some() {
                continue;
            }
            let victim = self.victims.find_fewest(plane as u32);
            let victim = victim.expect("without a free block there is a closed one");
            if u32::from(self.victims.valid[victim as usize]) == self.pages {
                // Trimmed pages are valid again. The plane is skipped until enough of them are
                // overwritten.
                break;
            }
            self.collect(nand, plane, victim, 0, Cause::Gc);
        }
    }
}

impl Ftl for Page {
    fn write(&mut self, nand: &mut Nand, lpn: Lpn, stream: u16, at: Time) -> Time {
        let stream = usize::from(stream) % self.streams as usize;
        let plane = self.take_turn(nand, stream, at);
        if self.size != Size::None
            && let Some(page) = self.single_page(nand, plane, at)
        {
            return self.write_single(nand, plane, page, lpn, at);
        }
        if nand.is_off() {
            return at;
        }
        if self.planes[plane].open[stream].next == self.pages {
            self.open(nand, plane, stream, at);
        }
        if nand.is_off() {
            return at;
        }
        let Open { block, next } = self.planes[plane].open[stream];
        let page = nand.geometry().first_page(block) + next;
        let done = nand.program(page, lpn, at, Cause::Host);
        self.planes[plane].valid += 1;
        // The old version is counted as invalid before the block may be closed, as in a run of
        // pages.
        self.moved(lpn, page);
        self.fill(plane, stream, 1);
        done
    }

    /// Runs of pages fill an open block in one step, if flash and striping allow it.
    fn write_many(&mut self, nand: &mut Nand, lpns: &[Lpn], stream: u16) {
        if !nand.is_plain() || self.planes.len() > 1 || self.size != Size::None {
            for batch in lpns.chunks(TOUCHED_AHEAD) {
                self.touch(batch);
                for lpn in batch {
                    self.write(nand, *lpn, stream, 0);
                }
            }
            return;
        }
        let stream = usize::from(stream) % self.streams as usize;
        for batch in lpns.chunks(TOUCHED_AHEAD) {
            self.touch(batch);
            let mut rest = batch;
            while !rest.is_empty() {
                self.open(nand, 0, stream, 0);
                let Open { block, next } = self.planes[0].open[stream];
                let run;
                (run, rest) = rest.split_at(rest.len().min((self.pages - next) as usize));
                let first = nand.geometry().first_page(block) + next;
                nand.program_run(first, run);
                self.place_run(run, first, block);
                self.planes[0].open[stream].next += run.len() as u32;
                if next + run.len() as u32 == self.pages {
                    self.victims.close(block);
                }
            }
        }
    }

    fn trim(&mut self, _: &mut Nand, lpn: Lpn, at: Time) -> Time {
        let old = std::mem::replace(&mut self.places[lpn as usize], NONE);
        if old != NONE {
            self.invalidate(old);
        }
        at
    }

    /// Folds the cache first, as long as it has blocks. Then it collects a block of the plane with
    /// the fewest free blocks. It does so while these are fewer than reserve plus `background`, and
    /// only if at least a quarter of the victim is gained.
    fn idle(&mut self, nand: &mut Nand, at: Time) -> Option<Time> {
        if let Some(done) = self.fold_idle(nand, at) {
            return Some(done);
        }
        let wanted = (self.reserve + self.background) as usize;
        let planes = self.planes.iter().enumerate();
        let (plane, few) = planes.min_by_key(|(_, plane)| plane.free.count())?;
        if few.free.count() >= wanted || nand.is_off() {
            return None;
        }
        let victim = self.victims.find(plane as u32)?;
        let valid = u32::from(self.victims.valid[victim as usize]);
        if valid > self.pages - self.pages.div_ceil(4) {
            return None;
        }
        Some(self.collect(nand, plane, victim, at, Cause::Gc))
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppn> {
        match self.places[lpn as usize] {
            NONE => None,
            page => Some(page),
        }
    }

    fn recover(&mut self, nand: &mut Nand) {
        self.places.fill(NONE);
        self.victims = Victims::new(self.victims.policy(), nand);
        for block in 0..nand.blocks() {
            for (page, lpn) in (nand.geometry().first_page(block)..).zip(nand.spare(block)) {
                if *lpn == NONE {
                    continue;
                }
                let place = &mut self.places[*lpn as usize];
                // Of a page and its copy, it takes the one in the emptier block. A victim is full,
                // while the copy's block has room.
                let rank = |page: Ppn| {
                    let written = nand.next_page(nand.geometry().block_of(page));
                    (nand.sequence(page), Reverse(written))
                };
                if *place == NONE || rank(page) > rank(*place) {
                    *place = page;
                }
            }
        }
        self.planes.iter_mut().for_each(|plane| plane.valid = 0);
        for page in self.places.iter().filter(|page| **page != NONE) {
            let block = self.by_pages.quotient(*page);
            self.victims.valid[block as usize] += 1;
            self.planes[self.by_planes.remainder(block) as usize].valid += 1;
        }
        for plane in 0..self.planes.len() {
            self.reopen(nand, plane);
        }
    }

    fn counts(&self) -> FtlCounts {
        self.counts
    }

    fn mapping(&self) -> Mapping {
        let all_pages = self.victims.valid.len() as u64 * u64::from(self.pages);
        Mapping::table(self.places.len() as u64, all_pages)
    }
}
