// SPDX-License-Identifier: Apache-2.0
//! DFTL: page-level mapping whose table lies on the flash, with the entries in use cached in RAM.
//!
//! Idea: translation pages hold the page table in order; a directory in RAM (GTD) has the place of
//! each. A host access needs its entry in the cached mapping table (`cmt.rs`). If it is missing,
//! the last entry leaves. If that entry is newer than the flash's, its translation page is read,
//! and written again with all newer entries of that page (batch update). Then the translation page
//! of the missing entry is read. Data and translation pages fill their own blocks. Garbage
//! collection takes the block with the fewest valid pages. Moved data pages whose entries are
//! cached are only changed there (lazy copying); the others' translation pages are written again,
//! each once a block.
//!
//! Source: A. Gupta, Y. Kim, B. Urgaonkar, "DFTL: a flash translation layer employing demand-based
//! selective caching of page-level address mappings", ASPLOS 2009, section 3. Option: `cmt-bytes`;
//! a cached entry takes 8 bytes (page and place), an entry in a translation page 4. Deviations: the
//! spare area keeps a page's place over power cuts, so recovery needs no log of the cache: it
//! scans, and writes the whole table again. A trim changes the entry. All map traffic, including
//! the collection of translation blocks, counts under the cause `map`. Translation page `t` has the
//! number `logical pages + t` in its spare area.

use std::collections::BTreeSet;

use crate::ftl::cmt::Cmt;
use crate::ftl::logs::newest_versions;
use crate::ftl::{FreeBlocks, Ftl, FtlCounts, Made, Mapping};
use crate::geometry::{Block, Lpn, NONE, Ppn};
use crate::nand::{Cause, Nand};
use crate::spec::Spec;
use crate::{Error, Time};

pub(super) const NAME: &str = "dftl";

/// With fewer erased blocks than this, blocks are collected. One collection takes up to two for the
/// moved pages before it frees a block, and a power cut may repeat it.
const RESERVE: usize = 6;

const CACHED_BYTES: u64 = 8;
const ENTRY_BYTES: u32 = 4;

/// The two kinds of blocks and of frontiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data = 0,
    Translation = 1,
}

struct Dftl {
    logical_pages: u32,
    pages: u32,
    page_bytes: u32,
    all_pages: u32,
    cmt_bytes: u64,
    cmt: Cmt,
    /// Entries in a translation page.
    entries: u32,
    /// Where each logical page lies, and after these, where each translation page lies (the GTD).
    /// Cache and translation pages together contain the first part.
    places: Vec<Ppn>,
    valid: Vec<u32>,
    /// Blocks that are full or given up, by valid pages.
    closed: BTreeSet<(u32, Block)>,
    /// The block to which each kind of page is written, or [`NONE`].
    frontiers: [Block; 2],
    free: FreeBlocks,
    counts: FtlCounts,
}

pub(super) fn make(spec: &mut Spec, nand: &Nand, logical_pages: u32) -> Made {
    let cmt_bytes: u64 = spec.take("cmt-bytes", 65536)?;
    let cached = (cmt_bytes / CACHED_BYTES).min(u64::from(logical_pages)) as u32;
    if cached == 0 {
        return Err(Error::Spec(format!(
            "{NAME}: cmt-bytes is {cmt_bytes}, and one cached entry takes {CACHED_BYTES}"
        )));
    }
    let geometry = nand.geometry();
    let entries = geometry.page_bytes / ENTRY_BYTES;
    let translation_pages = logical_pages.div_ceil(entries);
    let numbers = u64::from(logical_pages) + u64::from(translation_pages);
    let needed = numbers.div_ceil(u64::from(geometry.pages)) + RESERVE as u64 + 3;
    if needed > u64::from(nand.blocks()) || numbers >= u64::from(NONE) {
        return Err(Error::Spec(format!(
            "{NAME} needs {needed} blocks ({logical_pages} pages of data, {translation_pages} of the map, {} blocks for its work), and the flash has {}",
            RESERVE + 3,
            nand.blocks()
        )));
    }
    Ok(Box::new(Dftl {
        logical_pages,
        pages: geometry.pages,
        page_bytes: geometry.page_bytes,
        all_pages: geometry.all_pages(),
        cmt_bytes,
        cmt: Cmt::new(cached, logical_pages),
        entries,
        places: vec![NONE; numbers as usize],
        valid: vec![0; nand.blocks() as usize],
        closed: BTreeSet::new(),
        frontiers: [NONE; 2],
        free: FreeBlocks::new(nand, 0..nand.blocks()),
        counts: FtlCounts::default(),
    }))
}

impl Dftl {
    /// Data, or the map itself.
    fn kind(&self, number: Lpn) -> Kind {
        if number < self.logical_pages {
            Kind::Data
        } else {
            Kind::Translation
        }
    }

    /// The number of the translation page that has the entry of a page.
    fn translation_of(&self, lpn: Lpn) -> Lpn {
        self.logical_pages + lpn / self.entries
    }

    /// Changes the count of valid pages of a block.
    fn count(&mut self, block: Block, more: i32) {
        let valid = self.valid[block as usize];
        let now = valid.wrapping_add_signed(more);
        if self.closed.remove(&(valid, block)) {
            self.closed.insert((now, block));
        }
        self.valid[block as usize] = now;
    }

    /// Notes that a number has a new place, or none.
    fn put(&mut self, number: Lpn, page: Ppn) {
        let old = std::mem::replace(&mut self.places[number as usize], page);
        if old != NONE {
            self.count(old / self.pages, -1);
        }
        if page != NONE {
            self.count(page / self.pages, 1);
        }
    }

    fn next(&mut self, nand: &Nand, kind: Kind) -> Ppn {
        let frontier = self.frontiers[kind as usize];
        if frontier != NONE && nand.next_page(frontier) < self.pages {
            return nand.geometry().first_page(frontier) + nand.next_page(frontier);
        }
        if frontier != NONE {
            self.closed
                .insert((self.valid[frontier as usize], frontier));
        }
        let block = self.free.take().expect("the reserve is large enough");
        self.frontiers[kind as usize] = block;
        nand.geometry().first_page(block)
    }

    /// Writes a translation page with all its present entries.
    fn write_map(&mut self, nand: &mut Nand, number: Lpn, at: Time) -> Time {
        let old = self.places[number as usize];
        let ready = if old == NONE {
            at
        } else {
            nand.read(old, at, Cause::Map)
        };
        let page = self.next(nand, Kind::Translation);
        let done = nand.program(page, number, ready, Cause::Map);
        self.put(number, page);
        let first = (number - self.logical_pages) * self.entries;
        self.cmt
            .clean(first..(first + self.entries).min(self.logical_pages));
        done
    }

    /// Brings the entry of a page into the cache.
    fn look_up(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time {
        self.counts.map_lookups += 1;
        if self.cmt.hit(lpn) {
            self.counts.map_hits += 1;
            return at;
        }
        let mut ready = at;
        if !self.cmt.has_room()
            && let Some((victim, dirty)) = self.cmt.victim()
        {
            if dirty {
                ready = self.write_map(nand, self.translation_of(victim), ready);
            }
            self.cmt.remove(victim);
        }
        let page = self.places[self.translation_of(lpn) as usize];
        if page != NONE {
            ready = nand.read(page, ready, Cause::Map);
        }
        self.cmt.insert(lpn);
        ready
    }

    /// Collects blocks until there are enough erased ones.
    fn make_room(&mut self, nand: &mut Nand, at: Time) -> Time {
        let mut done = at;
        while self.free.count() < RESERVE && !nand.is_off() {
            let Some((valid, victim)) = self.closed.pop_first() else {
                break;
            };
            assert!(valid < self.pages, "there is more flash than valid pages");
            done = self.collect(nand, victim, done);
        }
        done
    }

    fn collect(&mut self, nand: &mut Nand, victim: Block, at: Time) -> Time {
        let spare = nand.spare(victim).to_vec();
        let kind = spare
            .iter()
            .find(|number| **number != NONE)
            .map_or(Kind::Data, |number| self.kind(*number));
        let cause = match kind {
            Kind::Data => Cause::Gc,
            Kind::Translation => Cause::Map,
        };
        let mut changed = BTreeSet::new();
        let mut copied = at;
        for (page, number) in (nand.geometry().first_page(victim)..).zip(spare) {
            if number == NONE || self.places[number as usize] != page {
                continue;
            }
            let to = self.next(nand, kind);
            copied = copied.max(nand.copy(page, to, at, cause));
            self.put(number, to);
            if kind == Kind::Data {
                self.counts.gc_pages += 1;
                if self.cmt.contains(number) {
                    self.cmt.set_dirty(number);
                } else {
                    changed.insert(self.translation_of(number));
                }
            }
        }
        let mut done = copied;
        for number in changed {
            done = done.max(self.write_map(nand, number, copied));
        }
        self.counts.gc_blocks += 1;
        done = nand.erase(victim, done, cause);
        if nand.next_page(victim) == 0 {
            self.free.give(nand, victim);
        }
        done
    }
}

impl Ftl for Dftl {
    fn write(&mut self, nand: &mut Nand, lpn: Lpn, _stream: u16, at: Time) -> Time {
        let ready = self.make_room(nand, at);
        let ready = self.look_up(nand, lpn, ready);
        let page = self.next(nand, Kind::Data);
        let done = nand.program(page, lpn, ready, Cause::Host);
        self.put(lpn, page);
        self.cmt.set_dirty(lpn);
        done
    }

    fn read(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> (Option<Ppn>, Time) {
        let ready = self.make_room(nand, at);
        let ready = self.look_up(nand, lpn, ready);
        match self.locate(lpn) {
            Some(page) => (Some(page), nand.read(page, ready, Cause::Host)),
            None => (None, ready),
        }
    }

    fn trim(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time {
        let ready = self.make_room(nand, at);
        let done = self.look_up(nand, lpn, ready);
        if self.places[lpn as usize] != NONE {
            self.put(lpn, NONE);
            self.cmt.set_dirty(lpn);
        }
        done
    }

    fn locate(&self, lpn: Lpn) -> Option<Ppn> {
        let page = self.places[lpn as usize];
        (page != NONE).then_some(page)
    }

    fn recover(&mut self, nand: &mut Nand) {
        self.cmt.clear();
        self.closed.clear();
        self.frontiers = [NONE; 2];
        self.places = newest_versions(nand, self.places.len() as u32);
        self.valid.fill(0);
        for page in self.places.iter().filter(|page| **page != NONE) {
            self.valid[(page / self.pages) as usize] += 1;
        }
        for block in 0..nand.blocks() {
            let next = nand.next_page(block);
            let first = nand.spare(block).iter().find(|number| **number != NONE);
            let Some(kind) = first.map(|number| self.kind(*number)) else {
                continue;
            };
            let valid = self.valid[block as usize];
            if valid == 0 {
                let cause = [Cause::Gc, Cause::Map][kind as usize];
                nand.erase(block, 0, cause);
            } else if next < self.pages && self.frontiers[kind as usize] == NONE {
                self.frontiers[kind as usize] = block;
            } else {
                self.closed.insert((valid, block));
            }
        }
        let erased = (0..nand.blocks()).filter(|block| nand.next_page(*block) == 0);
        self.free = FreeBlocks::new(nand, erased);
        // It is unknown which entries the cache held, so the whole map is written.
        for first in (0..self.logical_pages).step_by(self.entries as usize) {
            let number = self.translation_of(first);
            let end = (first + self.entries).min(self.logical_pages);
            let is_mapped = |lpn| self.places[lpn as usize] != NONE;
            if self.places[number as usize] != NONE || (first..end).any(is_mapped) {
                self.make_room(nand, 0);
                self.write_map(nand, number, 0);
            }
        }
    }

    fn counts(&self) -> FtlCounts {
        self.counts
    }

    fn mapping(&self) -> Mapping {
        let cached = self.cmt_bytes / CACHED_BYTES;
        let all_pages = u64::from(self.all_pages);
        let translation_pages = self.places.len() as u64 - u64::from(self.logical_pages);
        let on_flash = Mapping {
            flash_bytes: translation_pages * u64::from(self.page_bytes),
            ..Mapping::default()
        };
        Mapping::table(cached, u64::from(self.logical_pages))
            .and(Mapping::table(cached, all_pages))
            .and(Mapping::table(translation_pages, all_pages))
            .and(on_flash)
    }
}
