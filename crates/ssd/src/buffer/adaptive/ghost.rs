// SPDX-License-Identifier: Apache-2.0
//! A candidate's ghost: the candidate itself, with page numbers only, above a small copy of the
//! drive's translation layer on its own flash.
//!
//! Pages that leave the candidate are written to the copy. The erases that the copy then makes are
//! the candidate's cost. The copy has only this many logical blocks: those that were written last.
//! A new logical block replaces the block that was written longest ago. It starts as if it had been
//! on the drive for long. Its pages on the drive's flash are in a separate data block, and none is
//! in a log block. Setting up this state costs the candidate nothing.

use crate::Error;
use crate::buffer::adaptive::Pages;
use crate::buffer::table::Table;
use crate::buffer::{Buffer, Leave, Outgoing, Surroundings, build};
use crate::ftl::{self, Ftl};
use crate::geometry::{Geometry, Lpn};
use crate::lists::Lists;
use crate::nand::{Endurance, Nand, SingleLevel};
use crate::spec::Spec;

/// Logical blocks in a copy of the translation layer, unless the drive has fewer.
const BLOCKS: u32 = 128;
/// More if any log block may hold pages of any logical block: a log block must hold pages of as
/// many blocks here as on the drive. LAST judges a block by the places of its pages in the log, so
/// it needs the most.
const SHARED_LOG: u32 = 512;
const PARTITIONED_LOG: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Each logical block, or zone of several, has its own place. If the layer has log blocks, it
    /// also has some of these for a while.
    Blocks,
    /// Several logical blocks share data blocks, in which pages may lie anywhere.
    Groups,
    /// Pages may lie anywhere.
    Pages,
}

impl Kind {
    fn of(layer: &str) -> Self {
        match layer {
            "block" | "bast" | "fast" | "faster" | "last" | "zns" => Self::Blocks,
            "superblock" => Self::Groups,
            _ => Self::Pages,
        }
    }
}

/// A small copy of the translation layer, with erased flash.
struct Model {
    nand: Nand,
    ftl: Box<dyn Ftl>,
    kind: Kind,
    logical_pages: u32,
    /// Blocks that are erased together.
    erased_at_once: u32,
    /// Pages of an extent, which enters and leaves as a whole: a logical block, or several that the
    /// layer maps together.
    extent: u32,
    places: Table,
    /// Maps extents of the copy to those of the drive.
    extents: Vec<u32>,
    /// The copy's extents, the one written longest ago first.
    order: Lists,
    used: u32,
    /// Pages of an extent that is brought in.
    entering: Vec<Lpn>,
    /// Erases for bringing extents in, which are no candidate's cost.
    moving: f64,
}

pub(super) struct Ghost {
    pub buffer: Box<dyn Buffer>,
    /// Pages that left with the last write or flush.
    pub out: Outgoing,
    model: Model,
    /// The cost up to the last judgement, and the pages held then.
    cost: f64,
    held: usize,
    /// Pages that left and that the copy sees, since the last judgement.
    left: u64,
}

impl Model {
    fn new(around: &Surroundings, scale: u32) -> Result<Self, Error> {
        let pages = around.pages_per_block;
        let name = around.ftl.name();
        let most = match name {
            "fast" | "faster" => SHARED_LOG,
            "last" => PARTITIONED_LOG,
            _ => BLOCKS,
        };
        let blocks = most.min(around.logical_pages.div_ceil(pages)).max(1);
        let (nand, ftl, mut spec) = Self::fit(&around.ftl, pages, blocks)?;
        let together = match spec.name() {
            "superblock" => spec.clone().take("size", 1)?,
            "zns" => spec.clone().take("blocks", 1)?,
            _ => 1,
        };
        let (nand, ftl, _) = match spec.take_optional::<u32>("log-blocks")? {
            // A copy of a share of the blocks has the same share of the log blocks, but at least as
            // many as the layer needs.
            Some(log) if scale > 1 => (log / scale..log)
                .filter(|log| *log >= 2)
                .map(|log| around.ftl.clone().with("log-blocks", log))
                .find_map(|spec| Self::fit(&spec, pages, blocks).ok())
                .unwrap_or((nand, ftl, spec)),
            _ => (nand, ftl, spec),
        };
        let extents = (blocks / together).max(1) as usize;
        Ok(Self {
            nand,
            ftl,
            kind: Kind::of(name),
            logical_pages: blocks * pages,
            erased_at_once: if name == "zns" { together } else { 1 },
            extent: pages * together,
            places: Table::new(extents),
            extents: vec![0; extents],
            order: Lists::new(extents, 1),
            used: 0,
            entering: Vec::new(),
            moving: 0.0,
        })
    }

    /// The layer on the least flash that it needs, and its specification with all options.
    fn fit(spec: &Spec, pages: u32, blocks: u32) -> Result<(Nand, Box<dyn Ftl>, Spec), Error> {
        let mut spare = (blocks / 8).max(4);
        loop {
            let geometry = Geometry::one_plane(blocks + spare, pages);
            let mut nand = Nand::new(geometry, None, &Endurance::default(), 0)?;
            // A layer may have a cache of single-level blocks, but here nothing takes time.
            nand.allow_single_level(SingleLevel {
                bits: 3,
                read_ns: 0,
                program_ns: 0,
            });
            match ftl::build(spec, &nand, blocks * pages) {
                Ok((ftl, spec)) => return Ok((nand, ftl, spec)),
                Err(error) if spare > 2 * blocks + 64 => return Err(error),
                Err(_) => spare += spare.div_ceil(4),
            }
        }
    }

    /// The copy's extent for one of the drive's. `on_flash` says which pages have been on the
    /// drive's flash.
    fn place(&mut self, extent: u32, on_flash: &Pages) -> u32 {
        if let Some(place) = self.places.get(extent) {
            self.order.unlink(place);
            self.order.push_back(0, place);
            return place;
        }
        let place = if (self.used as usize) < self.extents.len() {
            self.used += 1;
            self.used - 1
        } else {
            let oldest = self.order.front(0).expect("every place is in the list");
            self.order.unlink(oldest);
            self.places.remove(self.extents[oldest as usize]);
            self.replace(oldest, extent, on_flash);
            oldest
        };
        self.order.push_back(0, place);
        self.places.insert(extent, place);
        self.extents[place as usize] = extent;
        place
    }

    /// Replaces an extent of the copy by another extent of the drive.
    fn replace(&mut self, place: u32, extent: u32, on_flash: &Pages) {
        let (to, from) = (place * self.extent, extent * self.extent);
        if self.kind == Kind::Pages {
            // The copy holds no data, so pages of the old extent serve as pages of the new one, as
            // far as it has them.
            for page in 0..self.extent {
                if self.ftl.locate(to + page).is_some() && !on_flash.has(from + page) {
                    self.ftl.trim(&mut self.nand, to + page, 0);
                }
            }
            return;
        }
        let before = self.cost();
        self.ftl.trim_many(&mut self.nand, to..to + self.extent);
        self.entering.clear();
        for (first, mut bits) in on_flash.words(from..from + self.extent) {
            while bits != 0 {
                self.entering
                    .push(to + (first + bits.trailing_zeros() - from));
                bits &= bits - 1;
            }
        }
        self.ftl.write_many(&mut self.nand, &self.entering, 0);
        self.moving += (self.cost() - before) * f64::from(self.erased_at_once);
    }

    fn write(&mut self, lpn: Lpn, how: Leave, on_flash: &Pages) {
        let place = self.place(lpn / self.extent, on_flash);
        let copied = place * self.extent + lpn % self.extent;
        if how == Leave::Dirty || self.ftl.locate(copied).is_some() {
            self.ftl.write(&mut self.nand, copied, 0, 0);
        }
    }

    fn trim(&mut self, lpn: Lpn) {
        if let Some(place) = self.places.get(lpn / self.extent) {
            let lpn = place * self.extent + lpn % self.extent;
            self.ftl.trim(&mut self.nand, lpn, 0);
        }
    }

    /// Erases so far, with blocks that are erased together counted once. If pages may lie anywhere,
    /// this includes erases still to come for the programmed pages, in blocks. A data block in its
    /// place needs none.
    fn cost(&self) -> f64 {
        let erases = self.nand.counts().all_erases() as f64 - self.moving;
        if self.kind == Kind::Blocks {
            return erases / f64::from(self.erased_at_once);
        }
        let programmed = self.nand.programmed_pages();
        erases + programmed as f64 / f64::from(self.nand.pages_per_block())
    }

    fn bytes(&self) -> u64 {
        let geometry = self.nand.geometry();
        // The flash keeps a logical page's number for each page, and a few words for each block.
        let flash = 4 * u64::from(geometry.all_pages()) + 12 * u64::from(geometry.all_blocks());
        let table = self.ftl.mapping().bits / 8 + 4 * u64::from(self.logical_pages);
        flash + table + self.places.bytes() + self.order.bytes() + 4 * self.extents.len() as u64
    }
}

impl Ghost {
    /// A ghost of `candidate`, as large as the buffer. Its copy has one in `scale` of the drive's
    /// blocks. With `by_extent`, its blocks are the extents that the layer maps together, unless
    /// these are larger than the buffer.
    pub fn new(
        candidate: &Spec,
        by_extent: bool,
        around: &Surroundings,
        scale: u32,
    ) -> Result<Self, Error> {
        let model = Model::new(around, scale)?;
        let mut around = around.clone();
        if by_extent && model.extent as usize <= around.capacity {
            around.pages_per_block = model.extent;
        }
        Ok(Self {
            buffer: build(candidate, &around)?.0,
            out: Outgoing::default(),
            model,
            cost: 0.0,
            held: 0,
            left: 0,
        })
    }

    /// Writes the pages that left to the copy, as far as it sees them.
    fn let_go(&mut self, seen: &impl Fn(Lpn) -> bool, on_flash: &Pages) {
        for (lpn, how) in self.out.pages.iter().filter(|(lpn, _)| seen(*lpn)) {
            self.left += u64::from(*how == Leave::Dirty);
            self.model.write(*lpn, *how, on_flash);
        }
    }

    pub fn write(&mut self, lpn: Lpn, seen: &impl Fn(Lpn) -> bool, on_flash: &Pages) {
        self.out.pages.clear();
        self.buffer.write(lpn, &mut self.out);
        self.let_go(seen, on_flash);
    }

    pub fn trim(&mut self, lpn: Lpn) {
        self.buffer.trim(lpn);
        self.model.trim(lpn);
    }

    pub fn drain(&mut self, seen: &impl Fn(Lpn) -> bool, on_flash: &Pages) {
        self.out.pages.clear();
        self.buffer.drain(&mut self.out);
        self.let_go(seen, on_flash);
    }

    /// Its cost since the last judgement, in erases. A page that is held now and was not then still
    /// has to be paid for, with `owed` each.
    pub fn settle(&mut self, owed: f64) -> f64 {
        let (cost, held) = (self.model.cost(), self.buffer.len());
        let more = held as f64 - self.held as f64;
        let since = cost - self.cost + more * owed;
        (self.cost, self.held) = (cost, held);
        since
    }

    /// Pages that left and that the copy sees, since the last call.
    pub fn take_left(&mut self) -> u64 {
        std::mem::take(&mut self.left)
    }

    pub fn bytes(&self) -> u64 {
        self.buffer.table_bytes() + self.model.bytes()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::ftl::{FtlCounts, Mapping};
    use crate::geometry::Ppn;
    use std::ops::Range;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn model(ftl: &str) -> Model {
        let around = Surroundings {
            capacity: 16,
            pages_per_block: 8,
            logical_pages: 1024,
            ftl: ftl.parse().unwrap(),
        };
        Model::new(&around, 1).unwrap()
    }

    /// Changes of the cost once went unnoticed by tests: candidates would have been judged by other
    /// figures than their erases.
    #[test]
    fn cost_is_erases_and_what_is_owed() {
        let nowhere = Pages::new(1024);
        let mut pages = model("page");
        assert_eq!(pages.cost(), 0.0);
        for lpn in 0..3 {
            pages.write(lpn, Leave::Dirty, &nowhere);
        }
        // Three pages of a block of eight are programmed, and must be erased some day.
        assert_eq!(pages.cost(), 3.0 / 8.0);
        pages.moving = 0.25;
        assert_eq!(pages.cost(), 3.0 / 8.0 - 0.25);
        pages.moving = 0.0;
        while pages.nand.counts().all_erases() == 0 {
            pages.write(0, Leave::Dirty, &nowhere);
        }
        let blocks = 0..pages.nand.blocks();
        let programmed: u32 = blocks.map(|block| pages.nand.next_page(block)).sum();
        let erases = pages.nand.counts().all_erases() as f64;
        assert_eq!(pages.cost(), erases + f64::from(programmed) / 8.0);

        // A data block in its place needs no erase. A zone of two blocks is erased as one.
        for (ftl, together) in [("bast:log-blocks=2", 1.0), ("zns:blocks=2", 2.0)] {
            let mut blocks = model(ftl);
            blocks.write(0, Leave::Dirty, &nowhere);
            assert_eq!(blocks.cost(), 0.0, "{ftl}");
            blocks.moving = -6.0;
            assert_eq!(blocks.cost(), 6.0 / together, "{ftl}");
        }
    }

    struct Counting {
        ftl: Box<dyn Ftl>,
        calls: Arc<AtomicU32>,
    }

    impl Ftl for Counting {
        fn write(&mut self, nand: &mut Nand, lpn: Lpn, stream: u16, at: Time) -> Time {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.ftl.write(nand, lpn, stream, at)
        }

        fn write_many(&mut self, nand: &mut Nand, lpns: &[Lpn], stream: u16) {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.ftl.write_many(nand, lpns, stream);
        }

        fn trim(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.ftl.trim(nand, lpn, at)
        }

        fn trim_many(&mut self, nand: &mut Nand, lpns: Range<Lpn>) {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.ftl.trim_many(nand, lpns);
        }

        fn locate(&self, lpn: Lpn) -> Option<Ppn> {
            self.ftl.locate(lpn)
        }

        fn recover(&mut self, nand: &mut Nand) {
            self.ftl.recover(nand);
        }

        fn counts(&self) -> FtlCounts {
            self.ftl.counts()
        }

        fn mapping(&self) -> Mapping {
            self.ftl.mapping()
        }
    }

    /// Bringing an extent in took two calls for each of its pages. Below superblocks of 512 pages
    /// this was most of the time of a run.
    #[test]
    fn an_extent_is_replaced_in_two_steps() {
        let mut model = model("superblock:size=4,log-blocks=4");
        let places = model.extents.len() as u32;
        let everywhere = Pages(vec![u64::MAX; 64]);
        for extent in 0..places {
            model.write(extent * model.extent, Leave::Dirty, &everywhere);
        }
        let calls = Arc::new(AtomicU32::new(0));
        let (none, _) = ftl::build(&"page".parse().unwrap(), &model.nand, 8).unwrap();
        model.ftl = Box::new(Counting {
            ftl: std::mem::replace(&mut model.ftl, none),
            calls: Arc::clone(&calls),
        });
        for replaced in 1..=5 {
            let extent = places + replaced;
            model.write(extent * model.extent, Leave::Dirty, &everywhere);
            assert_eq!(calls.load(Ordering::Relaxed), 3 * replaced);
            let place = model.places.get(extent).unwrap() * model.extent;
            let mut pages = place..place + model.extent;
            assert!(pages.all(|page| model.ftl.locate(page).is_some()));
        }
    }
}
