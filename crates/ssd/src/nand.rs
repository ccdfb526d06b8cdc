// SPDX-License-Identifier: Apache-2.0
//! The flash. Pages are programmed once between erases, in order within their block. Operations are
//! counted and timed.
//!
//! Translation layers call [`Nand::read`], [`Nand::program`], [`Nand::copy`] and [`Nand::erase`].
//! Each takes the earliest start of the operation and returns its end, when operations that depend
//! on it can begin. In write-amplification mode there is no time: all times are 0.
//!
//! Always holds, asserted in every run:
//! - NAND-1: a page is programmed only after all programmed pages of its block, in the order of
//!   page numbers since the erase.
//! - NAND-2: only a programmed page is read or copied.
//! - NAND-3: an erase removes the block's contents. [`Counts`] has every operation once, under its
//!   [`Cause`].
//!
//! Failing and worn blocks are replaced below the translation layer (`remap.rs`), as in real
//! controllers, so its block numbers stay valid.

mod by_cause; // arrays by cause, as objects in results

mod remap;
mod timeline;

use serde::{Deserialize, Serialize};

use crate::geometry::{Block, Divider, Geometry, Lpn, NONE, Ppn};
use crate::{Error, Time};
use remap::Remap;
use timeline::Timeline;

pub use remap::Endurance;
pub use timeline::Busy;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// From the cells to the plane's register, in nanoseconds.
    pub read_ns: Time,
    /// From the register to the cells.
    pub program_ns: Time,
    /// A block's erase.
    pub erase_ns: Time,
    /// Command and address cycles on the bus, for each transfer.
    pub command_ns: Time,
    /// A byte on the bus between plane and controller.
    pub bus_ns_per_byte: f64,
    /// The controller's share of each request.
    pub controller_ns: Time,
    /// A page into or out of the controller's RAM.
    pub ram_ns: Time,
    /// Whether erases run in the background, when their plane is idle.
    pub background_erase: bool,
    /// Whether pages are copied within a plane without crossing the bus.
    pub copy_back: bool,
}

/// The single-level mode of flash with several bits per cell: one bit per cell, faster, with fewer
/// pages in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SingleLevel {
    /// Bits per cell in normal mode. A block in single-level mode has this many times fewer pages.
    pub bits: u32,
    /// From the cells to the plane's register, in nanoseconds.
    pub read_ns: Time,
    /// From the register to the cells.
    pub program_ns: Time,
}

/// Why the flash was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Cause {
    /// The write buffer, or the host if there is none.
    Host,
    /// A write buffer completed a block from the flash's own contents.
    Pad,
    /// Garbage collection of a page-level layer.
    Gc,
    /// A merge of a layer with log blocks.
    Merge,
    /// The mapping table itself.
    Map,
    /// Wear levelling.
    Wear,
    /// A block that failed was replaced.
    Retire,
    /// Pages of the single-level cache moved to cells of more bits.
    Fold,
}

pub const CAUSES: usize = 8;

impl Cause {
    /// Every cause, in the order of the arrays in [`Counts`].
    pub const ALL: [Cause; CAUSES] = [
        Cause::Host,
        Cause::Pad,
        Cause::Gc,
        Cause::Merge,
        Cause::Map,
        Cause::Wear,
        Cause::Retire,
        Cause::Fold,
    ];

    /// The cause's name in results.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; CAUSES] = [
            "host", "pad", "gc", "merge", "map", "wear", "retire", "fold",
        ];
        NAMES[self as usize]
    }
}

/// The flash's operations, by cause (indexed by `Cause as usize`).
///
/// In results each is an object that names the causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Pages read, including those of copies.
    #[serde(with = "by_cause")]
    pub reads: [u64; CAUSES],
    /// Pages programmed, including those of copies.
    #[serde(with = "by_cause")]
    pub programs: [u64; CAUSES],
    #[serde(with = "by_cause")]
    pub erases: [u64; CAUSES],
    /// Copies that did not cross the bus; they are included above.
    pub copy_backs: u64,
}

impl Counts {
    pub fn all_reads(&self) -> u64 {
        self.reads.iter().sum()
    }

    pub fn all_programs(&self) -> u64 {
        self.programs.iter().sum()
    }

    pub fn all_erases(&self) -> u64 {
        self.erases.iter().sum()
    }

    pub fn add(&mut self, other: &Counts) {
        for cause in 0..CAUSES {
            self.reads[cause] += other.reads[cause];
            self.programs[cause] += other.programs[cause];
            self.erases[cause] += other.erases[cause];
        }
        self.copy_backs += other.copy_backs;
    }

    pub fn since(&self, earlier: &Counts) -> Counts {
        let less = |now: &[u64; CAUSES], then: &[u64; CAUSES]| {
            std::array::from_fn(|at| now[at] - then[at])
        };
        Counts {
            reads: less(&self.reads, &earlier.reads),
            programs: less(&self.programs, &earlier.programs),
            erases: less(&self.erases, &earlier.erases),
            copy_backs: self.copy_backs - earlier.copy_backs,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Nand {
    geometry: Geometry,
    by_pages: Divider,
    by_planes: Divider,
    by_channels: Divider,
    seed: u64,
    /// For each block, the first page that may be programmed (NAND-1). Usually this is the number
    /// of pages programmed since its erase.
    next: Vec<u32>,
    programmed: u64,
    /// The spare areas: the logical page of each page, or [`NONE`] if it is erased or was skipped.
    lpns: Vec<Lpn>,
    /// The spare areas' sequence numbers, if power cuts are simulated.
    sequence: Option<Vec<u64>>,
    last_sequence: u64,
    last_host_sequence: u64,
    counts: Counts,
    timeline: Option<Timeline>,
    /// The timeline while time is stopped ([`Nand::stop_time`]).
    stopped: Option<Timeline>,
    copy_back: bool,
    single: Option<SingleLevel>,
    /// Blocks in single-level mode; empty if the flash has no such mode.
    is_single: Vec<bool>,
    remap: Remap,
    /// Operations until the power goes; after that, nothing is done.
    power: Option<u64>,
}

impl Nand {
    /// Erased flash. Without `timing` there is no time.
    ///
    /// # Errors
    /// If the geometry or the endurance is impossible.
    pub fn new(
        geometry: Geometry,
        timing: Option<Timing>,
        endurance: &Endurance,
        seed: u64,
    ) -> Result<Self, Error> {
        geometry.check()?;
        let pages = geometry.all_pages() as usize;
        Ok(Self {
            geometry,
            by_pages: Divider::new(geometry.pages),
            by_planes: Divider::new(geometry.all_planes()),
            by_channels: Divider::new(geometry.channels),
            seed,
            next: vec![0; geometry.all_blocks() as usize],
            programmed: 0,
            lpns: vec![NONE; pages],
            sequence: None,
            last_sequence: 0,
            last_host_sequence: 0,
            counts: Counts::default(),
            timeline: timing.map(|timing| {
                let planes = geometry.all_planes();
                let page = u64::from(geometry.page_bytes) + u64::from(geometry.spare_bytes);
                Timeline::new(timing, page, planes, geometry.channels)
            }),
            stopped: None,
            copy_back: timing.is_some_and(|timing| timing.copy_back),
            single: None,
            is_single: Vec::new(),
            remap: Remap::new(&geometry, endurance, seed)?,
            power: None,
        })
    }

    /// Keeps a sequence number in each page's spare area, which recovery after a power cut needs.
    /// Costs 8 bytes a page.
    pub fn keep_sequence(&mut self) {
        self.sequence
            .get_or_insert_with(|| vec![0; self.lpns.len()]);
    }

    pub fn allow_single_level(&mut self, single: SingleLevel) {
        self.single = Some(single);
        self.is_single = vec![false; self.next.len()];
    }

    /// Pages of a block in single-level mode; `None` where there is no such mode.
    pub fn single_pages(&self) -> Option<u32> {
        let single = self.single?;
        Some((self.geometry.pages / single.bits).max(1))
    }

    /// Puts an erased block into single-level mode, until its next erase.
    ///
    /// # Panics
    /// If it is not erased, or the flash has no such mode.
    pub fn open_single(&mut self, block: Block) {
        assert_eq!(self.next[block as usize], 0, "block {block} is not erased");
        self.is_single[block as usize] = true;
    }

    #[inline]
    pub fn is_single(&self, block: Block) -> bool {
        self.is_single.get(block as usize).copied().unwrap_or(false)
    }

    /// The cell times of a page's block, if it is in single-level mode.
    #[inline]
    fn single_of(&self, page: Ppn) -> Option<SingleLevel> {
        let single = self.single?;
        self.is_single(self.by_pages.quotient(page))
            .then_some(single)
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub fn pages_per_block(&self) -> u32 {
        self.geometry.pages
    }

    /// Blocks that the translation layer may use, numbered from 0.
    pub fn blocks(&self) -> u32 {
        self.geometry.all_blocks()
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub fn is_timed(&self) -> bool {
        self.timeline.is_some()
    }

    /// The logical page of a page according to its spare area, or [`NONE`] if it is erased or was
    /// skipped.
    pub fn lpn(&self, page: Ppn) -> Lpn {
        self.lpns[page as usize]
    }

    /// The spare areas of a block, up to the last page that was programmed.
    pub fn spare(&self, block: Block) -> &[Lpn] {
        let first = self.geometry.first_page(block) as usize;
        &self.lpns[first..first + self.next[block as usize] as usize]
    }

    /// The sequence number of a page's program: larger is later, 0 is erased. A copy has its
    /// source's number, so it does not count as a newer version.
    ///
    /// # Panics
    /// If sequence numbers are not kept ([`Nand::keep_sequence`]).
    pub fn sequence(&self, page: Ppn) -> u64 {
        self.sequence.as_ref().expect("sequence numbers are kept")[page as usize]
    }

    /// The sequence number of the last program under [`Cause::Host`].
    pub fn last_host_sequence(&self) -> u64 {
        self.last_host_sequence
    }

    /// The next page of the block that may be programmed, counted within the block. If the block is
    /// full, this is the number of pages.
    pub fn next_page(&self, block: Block) -> u32 {
        self.next[block as usize]
    }

    /// The sum of [`Nand::next_page`] over all blocks.
    pub fn programmed_pages(&self) -> u64 {
        self.programmed
    }

    /// How often the block that now has this number was erased.
    pub fn erases(&self, block: Block) -> u32 {
        self.remap.erases(block)
    }

    /// How often each physical block was erased, including spare ones.
    pub fn wear(&self) -> &[u32] {
        self.remap.wear()
    }

    /// Blocks that failed and were replaced.
    pub fn retired(&self) -> u32 {
        self.remap.retired()
    }

    /// Why the flash can accept no more writes, if it can't.
    pub fn worn_out(&self) -> Option<&str> {
        self.remap.worn_out()
    }

    /// Says that nothing will be issued before `now` any more.
    pub fn advance(&mut self, now: Time) {
        if let Some(timeline) = &mut self.timeline {
            timeline.advance(now);
        }
    }

    /// Treats everything issued so far as done at time 0, as after a preparation before a run.
    pub fn rest(&mut self) {
        if let Some(timeline) = &mut self.timeline {
            timeline.rest();
        }
    }

    /// How long cells and buses were busy since the drive was new; all 0 without time.
    pub fn busy(&self) -> Busy {
        let timeline = self.timeline.as_ref().or(self.stopped.as_ref());
        timeline.map_or(Busy::default(), Timeline::busy)
    }

    /// Makes operations take no time until [`Nand::resume_time`]. They are then only counted, which
    /// is faster.
    pub fn stop_time(&mut self) {
        if let Some(timeline) = self.timeline.take() {
            self.stopped = Some(timeline);
        }
    }

    /// Makes operations take time again.
    pub fn resume_time(&mut self) {
        if let Some(timeline) = self.stopped.take() {
            self.timeline = Some(timeline);
        }
    }

    /// When all operations issued to the plane of `block` are done.
    pub fn free_at(&self, block: Block) -> Time {
        match &self.timeline {
            Some(timeline) => timeline.free_at(self.by_planes.remainder(block)),
            None => 0,
        }
    }

    /// Cuts the power after `operations` more programs and erases; later ones do nothing. The
    /// caller then makes the translation layer recover from the flash's contents.
    pub fn cut_power_after(&mut self, operations: u64) {
        self.power = Some(operations);
    }

    pub fn is_off(&self) -> bool {
        self.power == Some(0)
    }

    pub fn power_on(&mut self) {
        self.power = None;
    }

    /// Whether an operation that changes the flash still has power.
    fn has_power(&mut self) -> bool {
        match &mut self.power {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    #[inline]
    fn place(&self, page: Ppn) -> (u32, u32) {
        let plane = self.by_planes.remainder(self.by_pages.quotient(page));
        (plane, self.by_channels.remainder(plane))
    }

    /// Reads a page.
    ///
    /// # Panics
    /// If it was not programmed (NAND-2).
    #[inline]
    pub fn read(&mut self, page: Ppn, at: Time, cause: Cause) -> Time {
        assert!(
            self.lpns[page as usize] != NONE || self.is_off(),
            "NAND-2: page {page} is read and was not programmed"
        );
        self.counts.reads[cause as usize] += 1;
        if self.timeline.is_none() {
            return at;
        }
        let (plane, channel) = self.place(page);
        self.spend_read(page, plane, channel, at)
    }

    #[inline]
    fn spend_read(&mut self, page: Ppn, plane: u32, channel: u32, at: Time) -> Time {
        let single = self.single_of(page).map(|single| single.read_ns);
        match &mut self.timeline {
            Some(timeline) => timeline.read(plane, channel, at, single),
            None => at,
        }
    }

    /// Programs a page with the contents of a logical page (or of anything that the layer numbers).
    ///
    /// # Panics
    /// If the page, or a higher one in its block, was programmed since the erase (NAND-1).
    #[inline]
    pub fn program(&mut self, page: Ppn, lpn: Lpn, at: Time, cause: Cause) -> Time {
        if !self.has_power() {
            return at;
        }
        self.last_sequence += 1;
        let sequence = self.last_sequence;
        if cause == Cause::Host {
            self.last_host_sequence = sequence;
        }
        self.set(page, lpn, sequence);
        self.counts.programs[cause as usize] += 1;
        self.spend_program(page, at)
    }

    /// Copies a page to another: a read and a program, or a copy-back if both are in one plane and
    /// the flash supports it.
    ///
    /// # Panics
    /// If the source was not programmed (NAND-2), or the target must not be programmed (NAND-1).
    #[inline]
    pub fn copy(&mut self, from: Ppn, to: Ppn, at: Time, cause: Cause) -> Time {
        let lpn = self.lpns[from as usize];
        if self.is_off() {
            return at;
        }
        assert!(
            lpn != NONE,
            "NAND-2: page {from} is copied and was not programmed"
        );
        if !self.has_power() {
            return at;
        }
        let sequence = self.sequence.as_ref().map_or(0, |all| all[from as usize]);
        self.set(to, lpn, sequence);
        self.counts.reads[cause as usize] += 1;
        self.counts.programs[cause as usize] += 1;
        if self.timeline.is_none() && !self.remap.programs_fail() {
            return at;
        }
        let ((source, source_bus), (target, _)) = (self.place(from), self.place(to));
        if self.copy_back && source == target && self.single.is_none() {
            self.counts.copy_backs += 1;
            let done = match &mut self.timeline {
                Some(timeline) => timeline.copy_back(source, at),
                None => at,
            };
            return self.check_program(to, done);
        }
        let read = self.spend_read(from, source, source_bus, at);
        self.spend_program(to, read)
    }

    /// Whether operations are only counted: no time, no failing programs, no power cut, no sequence
    /// numbers. Then runs of pages may be done in one step.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.timeline.is_none()
            && self.power.is_none()
            && self.sequence.is_none()
            && !self.remap.programs_fail()
    }

    /// Programs consecutive pages from `page` on, all in one block, for the host. It has the effect
    /// of [`Nand::program`] for each page, on flash that [`Nand::is_plain`].
    ///
    /// # Panics
    /// As [`Nand::program`] does (NAND-1), or if the run leaves its block.
    pub fn program_run(&mut self, page: Ppn, lpns: &[Lpn]) {
        debug_assert!(self.is_plain(), "a run of programs in no time");
        self.set_run(page, lpns.len());
        self.lpns[page as usize..page as usize + lpns.len()].copy_from_slice(lpns);
        self.last_sequence += lpns.len() as u64;
        self.last_host_sequence = self.last_sequence;
        self.counts.programs[Cause::Host as usize] += lpns.len() as u64;
    }

    /// Copies pages to consecutive ones from `to` on, all in one block, like [`Nand::copy`] for
    /// each page. Returns when the last one is done.
    ///
    /// # Panics
    /// As [`Nand::copy`] does (NAND-1, NAND-2), or if the run leaves its block.
    pub fn copy_run(&mut self, from: &[Ppn], to: Ppn, at: Time, cause: Cause) -> Time {
        if !self.is_plain() {
            let copies = from.iter().zip(to..);
            let done = copies.map(|(from, to)| self.copy(*from, to, at, cause));
            return done.max().unwrap_or(at);
        }
        self.set_run(to, from.len());
        for (from, to) in from.iter().zip(to as usize..) {
            let lpn = self.lpns[*from as usize];
            assert!(
                lpn != NONE,
                "NAND-2: page {from} is copied and was not programmed"
            );
            self.lpns[to] = lpn;
        }
        self.counts.reads[cause as usize] += from.len() as u64;
        self.counts.programs[cause as usize] += from.len() as u64;
        at
    }

    /// Moves a block's end of programmed pages past a run of pages, which begins at the end or
    /// later.
    fn set_run(&mut self, page: Ppn, pages: usize) {
        let block = self.by_pages.quotient(page);
        let within = page - self.geometry.first_page(block);
        let next = &mut self.next[block as usize];
        let end = within as usize + pages;
        assert!(
            within >= *next && end <= self.geometry.pages as usize,
            "NAND-1: pages {within} to {end} of block {block} are programmed after page {next}"
        );
        self.programmed += (end - *next as usize) as u64;
        *next = end as u32;
    }

    #[inline]
    fn set(&mut self, page: Ppn, lpn: Lpn, sequence: u64) {
        let block = self.by_pages.quotient(page);
        let within = page - self.geometry.first_page(block);
        let next = &mut self.next[block as usize];
        assert!(
            within >= *next,
            "NAND-1: page {within} of block {block} is programmed after page {}",
            *next - 1
        );
        self.programmed += u64::from(within + 1 - *next);
        *next = within + 1;
        self.lpns[page as usize] = lpn;
        if let Some(all) = &mut self.sequence {
            all[page as usize] = sequence;
        }
    }

    #[inline]
    fn spend_program(&mut self, page: Ppn, at: Time) -> Time {
        if self.timeline.is_none() && !self.remap.programs_fail() {
            return at;
        }
        let (plane, channel) = self.place(page);
        let single = self.single_of(page).map(|single| single.program_ns);
        let done = match &mut self.timeline {
            Some(timeline) => timeline.program(plane, channel, at, single),
            None => at,
        };
        self.check_program(page, done)
    }

    /// Sometimes a program fails. Then a spare block replaces the block, and all pages are copied
    /// to it.
    fn check_program(&mut self, page: Ppn, at: Time) -> Time {
        let block = self.geometry.block_of(page);
        if self.remap.program_fails(block) {
            self.replace(block, at)
        } else {
            at
        }
    }

    fn replace(&mut self, block: Block, at: Time) -> Time {
        if !self.remap.retire(block) {
            return at;
        }
        let programmed = self.programmed(block);
        self.counts.reads[Cause::Retire as usize] += programmed;
        self.counts.programs[Cause::Retire as usize] += programmed;
        self.spend_copies(block, programmed, at)
    }

    fn programmed(&self, block: Block) -> u64 {
        self.spare(block).iter().filter(|lpn| **lpn != NONE).count() as u64
    }

    /// The time for copying pages within the plane of a block.
    fn spend_copies(&mut self, block: Block, pages: u64, mut at: Time) -> Time {
        let plane = self.geometry.plane_of(block);
        let channel = self.geometry.channel_of(plane);
        if let Some(timeline) = &mut self.timeline {
            for _ in 0..pages {
                at = if self.copy_back {
                    timeline.copy_back(plane, at)
                } else {
                    let read = timeline.read(plane, channel, at, None);
                    timeline.program(plane, channel, read, None)
                };
            }
        }
        if self.copy_back {
            self.counts.copy_backs += pages;
        }
        at
    }

    /// Erases a block. If static wear levelling finds it much more worn than the least worn block
    /// of its plane, the two are swapped.
    pub fn erase(&mut self, block: Block, at: Time, cause: Cause) -> Time {
        if !self.has_power() {
            return at;
        }
        let pages = self.geometry.pages as usize;
        let first = block as usize * pages;
        let programmed = self.next[block as usize] as usize;
        self.lpns[first..first + programmed].fill(NONE);
        if let Some(all) = &mut self.sequence {
            all[first..first + programmed].fill(0);
        }
        self.programmed -= programmed as u64;
        self.next[block as usize] = 0;
        if let Some(single) = self.is_single.get_mut(block as usize) {
            *single = false;
        }
        self.counts.erases[cause as usize] += 1;
        let mut done = self.spend_erase(block, at);
        if self.remap.erase(block) {
            // The erase failed. There is nothing to copy.
            self.remap.retire(block);
        }
        if let Some(cold) = self.remap.colder(block) {
            // The cold block's pages move to the worn block, which is not erased often from now on.
            // The cold block is erased and gets the worn block's number.
            let moved = self.programmed(cold);
            self.counts.reads[Cause::Wear as usize] += moved;
            self.counts.programs[Cause::Wear as usize] += moved;
            self.counts.erases[Cause::Wear as usize] += 1;
            done = self.spend_copies(block, moved, done);
            self.remap.swap(block, cold);
            done = self.spend_erase(block, done);
            self.remap.erase(block);
        }
        done
    }

    fn spend_erase(&mut self, block: Block, at: Time) -> Time {
        let plane = self.geometry.plane_of(block);
        match &mut self.timeline {
            Some(timeline) => timeline.erase(plane, at),
            None => at,
        }
    }
}
