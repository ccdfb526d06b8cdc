// SPDX-License-Identifier: Apache-2.0
//! Frees blocks: a victim's valid pages move to an open block, and it is erased. Blocks of the
//! single-level cache are folded the same way.

use super::{Open, Page, Plane};
use crate::Time;
use crate::geometry::{Block, Lpn, NONE, Ppn};
use crate::nand::{Cause, Nand};

impl Page {
    /// Frees a block of a plane that has none beyond the reserve. A cache that uses free space
    /// gives up blocks first.
    pub(super) fn make_room(&mut self, nand: &mut Nand, plane: usize, at: Time) {
        if self.size.gives_way() && self.fold(nand, plane, at).is_some() {
            return;
        }
        match self.victims.find(plane as u32) {
            Some(victim) => self.collect(nand, plane, victim, at, Cause::Gc),
            None => self
                .fold(nand, plane, at)
                .expect("all blocks but the reserve and open ones are closed, or of the cache"),
        };
    }

    pub(super) fn open_free(&mut self, plane: usize, which: usize) {
        let Plane { free, open, .. } = &mut self.planes[plane];
        let block = free.take().expect("a block of the reserve is free");
        open[which] = Open { block, next: 0 };
    }

    /// Notes that `pages` more of an open block are written.
    #[inline]
    pub(super) fn fill(&mut self, plane: usize, which: usize, pages: u32) {
        let open = &mut self.planes[plane].open[which];
        open.next += pages;
        self.victims.valid[open.block as usize] += pages as u16;
        if open.next == self.pages {
            self.victims.close(open.block);
        }
    }

    /// Notes that a page of the flash is no longer the latest version of anything.
    #[inline]
    pub(super) fn invalidate(&mut self, page: Ppn) {
        let block = self.by_pages.quotient(page);
        let valid = &mut self.victims.valid[block as usize];
        *valid -= 1;
        if u32::from(*valid) < self.victims.below {
            self.victims.lowered(block);
        }
        if self.planes.len() > 1 {
            self.planes[self.by_planes.remainder(block) as usize].valid -= 1;
        }
    }

    /// Notes that a logical page has a new place.
    #[inline]
    pub(super) fn moved(&mut self, lpn: Lpn, page: Ppn) {
        let old = std::mem::replace(&mut self.places[lpn as usize], page);
        if old != NONE {
            self.invalidate(old);
        }
    }

    /// The open block that collection fills.
    pub(super) fn collecting(&self) -> usize {
        if self.separate {
            self.streams as usize
        } else {
            0
        }
    }

    /// Moves a victim's valid pages and erases it; returns the end.
    pub(super) fn collect(
        &mut self,
        nand: &mut Nand,
        plane: usize,
        victim: Block,
        at: Time,
        cause: Cause,
    ) -> Time {
        if cause == Cause::Gc {
            self.victims.take(victim);
        }
        let first = nand.geometry().first_page(victim);
        let mut found = 0;
        for (page, lpn) in (first..).zip(nand.spare(victim)) {
            // Written always and counted if valid, without a branch that could not be predicted.
            self.moving[found] = page;
            found += usize::from(self.places[*lpn as usize] == page);
        }
        let which = self.collecting();
        let (mut begin, mut done) = (0, at);
        while begin < found {
            if self.planes[plane].open[which].next == self.pages {
                self.open_free(plane, which);
            }
            let Open { block, next } = self.planes[plane].open[which];
            let run = (found - begin).min((self.pages - next) as usize);
            let to = nand.geometry().first_page(block) + next;
            let from = &self.moving[begin..begin + run];
            done = done.max(nand.copy_run(from, to, at, cause));
            if nand.is_off() {
                // The table still names the victim, which was not erased.
                return done;
            }
            let written = &nand.spare(block)[next as usize..];
            for (page, lpn) in (to..).zip(written) {
                self.places[*lpn as usize] = page;
            }
            self.fill(plane, which, run as u32);
            begin += run;
        }
        self.victims.valid[victim as usize] = 0;
        if cause == Cause::Gc {
            self.counts.gc_blocks += 1;
            self.counts.gc_pages += found as u64;
        } else {
            self.counts.folded_blocks += 1;
            self.counts.folded_pages += found as u64;
        }
        done = nand.erase(victim, done, cause);
        self.planes[plane].free.give(nand, victim);
        done
    }

    /// Folds the plane's oldest block; returns the end. `None` if the cache has none there.
    pub(super) fn fold(&mut self, nand: &mut Nand, plane: usize, at: Time) -> Option<Time> {
        let oldest = self.planes[plane].cache.oldest()?;
        Some(self.collect(nand, plane, oldest, at, Cause::Fold))
    }
}
