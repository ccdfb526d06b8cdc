// SPDX-License-Identifier: Apache-2.0
//! Frees the oldest region. It walks the region's records, writes those with hits again, and drops
//! the rest.
//!
//! ```text
//! idle --(free pages below the mark)--> reading --> walking --(end of region)--> draining --(no reads pinned)--> idle
//!                                          ^---(next frame)---/
//! ```
//!
//! If nothing may be evicted, every live record is written again; then `keep.rs` walks the frames.
//!
//! Always holds: after the walk no slot of an intact record names the region. Slots of damaged
//! records stay. They name a past lap, so no operation follows them (SHARD-2). One pass over the
//! index each lap removes them before lap numbers repeat. Reinsertion takes at most half of a
//! region, so each round frees space.

use senko_io::{Completion, PAGE_SIZE, Queue};

use super::fate::Fate;
use crate::flash::log::NoPlace;
use crate::flash::reclaim::{Next, Read};
use crate::index::Slot;
use crate::record::{self, At, Header};
use crate::shard::Shard;
use crate::types::FRAME_PAGES;

impl Shard {
    /// Continues reclaim as far as possible now.
    pub(crate) fn reclaim<Q: Queue>(&mut self, queue: &mut Q, n: usize) {
        loop {
            match self.flash.reclaim_next(queue, n) {
                Next::Wait => return,
                Next::Copy => {
                    if !self.copy_on(queue, n) {
                        return;
                    }
                }
                Next::Walk => {
                    let went = if self.keeps_all() {
                        self.walk_kept(queue, n)
                    } else {
                        self.walk(queue, n)
                    };
                    if !went {
                        return;
                    }
                }
                Next::Free => {
                    let log = self.flash.log(n);
                    let (page, _) = log.place_of(log.tail());
                    self.index.freed(page, log.region_pages());
                    self.flash.free_oldest(queue, n);
                    self.stats.reclaim_regions += 1;
                    self.shed_in_vain = false;
                    self.sweep_for_region(n);
                }
                Next::Read(first, pages) => {
                    if !self.flash.read_to_walk(queue, n, first, pages) {
                        return;
                    }
                }
            }
        }
    }

    /// Handles a piece of the oldest region that was read.
    pub(crate) fn reclaim_read<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        completion: Completion,
    ) {
        let frame = completion.result.ok().and(completion.buf);
        match self.flash.reclaim_read(n, frame, self.keeps_all()) {
            Read::Well => {}
            Read::Failed => self.stats.flash_read_errors += 1,
            Read::Damaged => self.stats.flash_checksum_errors += 1,
        }
        self.reclaim(queue, n);
    }

    /// Walks the records of a frame; false if it has to wait for a write buffer.
    fn walk<Q: Queue>(&mut self, queue: &mut Q, n: usize) -> bool {
        let mut walk = self.flash.reclaim_mut(n).take_walk();
        let generation = self.flash.log(n).generation(walk.first);
        let end = walk.pages as usize * PAGE_SIZE;
        while walk.at < end {
            let page = walk.at / PAGE_SIZE;
            let run = &walk.frame[page * PAGE_SIZE..end];
            let in_page = record::skip_gap(run, walk.at % PAGE_SIZE, PAGE_SIZE);
            let position = walk.first + page as u64;
            let header = match record::peek(run, in_page, PAGE_SIZE) {
                At::Record(header) => header,
                _ => {
                    walk.at = (page + 1) * PAGE_SIZE;
                    continue;
                }
            };
            let after = record::end_at(in_page, &header);
            // It continues after this frame: read again from its start.
            let again = after > run.len() && page > 0 && after <= FRAME_PAGES * PAGE_SIZE;
            if again && !header.has_answer() {
                self.flash.reclaim_mut(n).read_again(position, None);
                return true;
            }
            if !record::intact_at(run, in_page, &header, generation) {
                walk.at = (page + 1) * PAGE_SIZE;
                continue;
            }
            match self.fate(n, run, in_page, &header, position) {
                Fate::Forget => {}
                Fate::Reinsert(..) if again => {
                    // Its slot is unchanged.
                    self.flash.reclaim_mut(n).read_again(position, None);
                    return true;
                }
                Fate::Reinsert(slot, hash) => {
                    let bytes = record::joined(run, in_page, &header);
                    if !self.reinsert(queue, n, slot, hash, &header, bytes.as_deref()) {
                        self.flash.reclaim_mut(n).walk_waits(walk);
                        return false;
                    }
                }
            }
            walk.at = page * PAGE_SIZE + after;
        }
        // A record may end in a page beyond the frame, and others begin there.
        let next = walk.first + (walk.at / PAGE_SIZE) as u64;
        self.flash.walked(n, next);
        true
    }

    /// Writes a record with hits again; false if it has to wait for a write buffer. The record is
    /// dropped if it has no bytes here (it is larger than a frame), if it is damaged, or if there
    /// is no space or budget.
    fn reinsert<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        slot: Slot,
        hash: u64,
        header: &Header,
        bytes: Option<&[u8]>,
    ) -> bool {
        let len = header.flash_len();
        let pages = len.div_ceil(PAGE_SIZE) as u64;
        let mut place = bytes.filter(|b| record::intact(b, header));
        if let Some(bytes) = place
            && self.take_back((slot, hash), header, bytes)
        {
            self.flash.reclaim_mut(n).reinsert(len);
            return true;
        }
        if place.is_some() {
            match self.flash.room_now(queue, n, pages, 0) {
                Ok(()) => {}
                Err(NoPlace::Buffers) => return false,
                Err(NoPlace::Space) => place = None,
            }
        }
        if place.is_some() && self.flash.admitter_mut().spend(len).is_err() {
            place = None;
            self.stats.drops_budget += 1;
        }
        let Some(bytes) = place else {
            self.drop_flash_slot(hash, slot);
            self.stats.reclaim_drops += 1;
            return true;
        };
        // The record now stores that it was hit, and the slot's hits are reset.
        let mut header = *header;
        let m = header.meta(0);
        header.set_marks(true, m.stale, m.won, m.binary_key);
        let at = (slot.with_hot(0), hash);
        self.write_again(queue, n, at, (&header, bytes), false);
        self.flash.reclaim_mut(n).reinsert(len);
        true
    }
}
