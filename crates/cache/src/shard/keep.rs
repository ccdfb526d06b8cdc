// SPDX-License-Identifier: Apache-2.0
//! Reclaim when nothing may be evicted (`-M`): every live record of the region is written again,
//! whatever its size.
//!
//! The records that begin in one page move together. A record of several pages moves first, so that
//! the small records before it fit into its new front (KEEP-5). A walk that had to wait starts its
//! page again, and skips the records that have moved. Records of a page in which one crosses to or
//! from another page may cross again: a log that keeps all writes none such, and finds them if it
//! began without `-M`. A record larger than a frame is copied frame
//! by frame; its slot changes when all of it is placed (KEEP-7).
//!
//! Always holds: no record of the region is skipped while a slot names it, unless the device can't
//! read it; that is counted.

use senko_io::{PAGE_SIZE, Queue};

use super::fate::Fate;
use crate::flash::copying::{Copying, read_mark};
use crate::flash::log::NoPlace;
use crate::index::{Pos, Slot};
use crate::record::{self, At, Header};
use crate::shard::Shard;
use crate::types::FRAME_PAGES;

/// The result for a live record.
enum Moved {
    /// It is done: it has moved, or can't be read.
    Done,
    /// There is no place for it now.
    Waits,
}

impl Shard {
    /// Walks the pages of a frame; false if it has to wait for a place.
    pub(super) fn walk_kept<Q: Queue>(&mut self, queue: &mut Q, n: usize) -> bool {
        let mut walk = self.flash.reclaim_mut(n).take_walk();
        let generation = self.flash.log(n).generation(walk.first);
        let end = walk.pages as usize * PAGE_SIZE;
        while walk.at < end {
            let run = &walk.frame[walk.at..end];
            let position = walk.first + (walk.at / PAGE_SIZE) as u64;
            let left = self.region_left(n, position);
            let records = records_of(run, generation, left as usize * PAGE_SIZE);
            let several =
                |&&(at, header): &&(usize, Header)| record::end_at(at, &header) > PAGE_SIZE;
            let large = records.last().filter(several).copied();
            let small = &records[..records.len() - usize::from(large.is_some())];
            let ends = |&(at, header): &(usize, Header)| record::end_at(at, &header);
            let crosses = !large.as_ref().map_or(0, ends).is_multiple_of(PAGE_SIZE);
            let may_cross = crosses || record::is_marked(run);
            let (mut copy, mut next) = (None, walk.at + PAGE_SIZE);
            if let Some((at, header)) = large {
                let after = record::end_at(at, &header);
                let pages = after.div_ceil(PAGE_SIZE);
                if after > run.len() && !header.has_answer() {
                    return self.read_whole(n, position, pages, walk.at > 0);
                }
                // Others may begin in the page in which it ends.
                next = walk.at + after / PAGE_SIZE * PAGE_SIZE;
                if let Fate::Reinsert(slot, hash) = self.fate(n, run, at, &header, position) {
                    if let Some(bytes) = record::joined(run, at, &header) {
                        let record = (&header, &*bytes, may_cross);
                        let moved = self.move_record(queue, n, slot, hash, record);
                        if matches!(moved, Moved::Waits) {
                            self.flash.reclaim_mut(n).walk_waits(walk);
                            return false;
                        }
                    } else if pages <= FRAME_PAGES {
                        return self.read_whole(n, position, pages, walk.at > 0);
                    } else {
                        copy = header.pieces().map(|pieces| (slot, hash, (header, pieces)));
                    }
                }
            }
            for &(at, header) in small {
                let Fate::Reinsert(slot, hash) = self.fate(n, run, at, &header, position) else {
                    continue;
                };
                let record = (&header, &run[at..at + header.flash_len()], may_cross);
                let moved = self.move_record(queue, n, slot, hash, record);
                if matches!(moved, Moved::Waits) {
                    self.flash.reclaim_mut(n).walk_waits(walk);
                    return false;
                }
            }
            if let Some((slot, hash, record)) = copy {
                let Some(to) = self.begin_copy(queue, n, record.0.flash_len()) else {
                    self.flash.reclaim_mut(n).walk_waits(walk);
                    return false;
                };
                let copying = Copying::new(slot, hash, record, position, to);
                self.flash.reclaim_mut(n).copy_waits(copying);
                return true;
            }
            walk.at = next;
        }
        let next = walk.first + (walk.at / PAGE_SIZE) as u64;
        self.flash.walked(n, next);
        true
    }

    /// Pages from a position on in the oldest region.
    fn region_left(&self, n: usize, position: u64) -> u64 {
        let log = self.flash.log(n);
        (log.tail() + log.region_pages()).saturating_sub(position)
    }

    /// Reads a record of this many pages again from its first page, since it continues beyond the
    /// frame. If that was not the frame's first page, the next frame has as many pages as others.
    fn read_whole(&mut self, n: usize, position: u64, pages: usize, later: bool) -> bool {
        let left = self.region_left(n, position);
        let others = if later {
            left.min(FRAME_PAGES as u64)
        } else {
            0
        };
        let span = Some(others.max(pages as u64));
        self.flash.reclaim_mut(n).read_again(position, span);
        true
    }

    /// Writes a live record again: its head, its bytes, and whether it may cross pages.
    fn move_record<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        slot: Slot,
        hash: u64,
        (header, bytes, may_cross): (&Header, &[u8], bool),
    ) -> Moved {
        if !record::intact(bytes, header) {
            self.stats.flash_checksum_errors += 1;
            self.drop_flash_slot(hash, slot);
            return Moved::Done;
        }
        let pages = bytes.len().div_ceil(PAGE_SIZE) as u64;
        let before = self.flash.log(n).used_pages();
        if let Err(why) = self.flash.room_now(queue, n, pages, 0) {
            let taken = self.flash.log(n).used_pages() - before;
            let no_space = why == NoPlace::Space;
            self.flash.reclaim_mut(n).tried(taken, no_space);
            return Moved::Waits;
        }
        self.flash.admitter_mut().spend_anyway(bytes.len());
        let header = read_mark(header, slot);
        self.write_again(queue, n, (slot, hash), (&header, bytes), may_cross);
        let taken = self.flash.log(n).used_pages() - before;
        self.flash.moved(n, taken);
        Moved::Done
    }

    /// Reserves pages for a copy; `None` if there are none now.
    fn begin_copy<Q: Queue>(&mut self, queue: &mut Q, n: usize, len: usize) -> Option<u64> {
        let before = self.flash.log(n).used_pages();
        let begun = self.flash.log_mut(n).begin_stream(len, 0);
        self.flash.settle(queue, n);
        let taken = self.flash.log(n).used_pages() - before;
        let no_space = begun == Err(NoPlace::Space);
        self.flash.reclaim_mut(n).tried(taken, no_space);
        if begun.is_ok() {
            self.flash.admitter_mut().spend_anyway(len);
        }
        begun.ok()
    }

    /// Continues a copy; false if it has to wait.
    pub(super) fn copy_on<Q: Queue>(&mut self, queue: &mut Q, n: usize) -> bool {
        let mut copying = self.flash.reclaim_mut(n).take_copy();
        if !copying.failed() && !self.flash.place_piece(queue, n, &mut copying) {
            self.flash.reclaim_mut(n).copy_waits(copying);
            return false;
        }
        if copying.failed() {
            self.flash.log_mut(n).break_stream();
            self.flash.log_mut(n).died(copying.slot().len());
            self.drop_flash_slot(copying.hash(), copying.slot());
        } else if copying.is_placed() {
            self.end_copy(n, &copying);
        } else {
            let Some(whole) = self.flash.read_to_copy(queue, n, copying) else {
                return false;
            };
            self.stats.flash_checksum_errors += u64::from(!whole);
            return true;
        }
        self.flash.copied(n, &copying);
        true
    }

    /// Ends a copy: the record's slot names the new place, if the slot still exists.
    fn end_copy(&mut self, n: usize, copying: &Copying) {
        let (slot, hash) = (copying.slot(), copying.hash());
        if let Some((Pos::Wide(pos), now)) = self.index.find_same(hash, slot) {
            let pages = copying.header().flash_len().div_ceil(PAGE_SIZE);
            let to = (copying.to(), pages);
            let moved = self.moved_slot(n, to, now, hash, copying.header());
            self.index.set(pos, moved);
            return;
        }
        // It was deleted, replaced or promoted meanwhile. After a promotion, its clean copy is
        // reclaimed with the region.
        let mut promoted = 0;
        self.index.find(hash, |s| {
            if s.is_dram() {
                let item = self.index.handle(s);
                if self.dram.arena().flash_copy(item).with_hot(0) == slot.with_hot(0) {
                    promoted = item;
                }
            }
            false
        });
        if promoted != 0 {
            self.dram.set_flash_copy(promoted, Slot::EMPTY);
        }
        self.flash.log_mut(n).died(slot.len());
    }
}

/// The intact records that begin in the first page of a run. Of a packed one that continues beyond
/// the run, that is not known yet. It ends in its region, of which `left` bytes are left.
fn records_of(run: &[u8], generation: u32, left: usize) -> Vec<(usize, Header)> {
    let mut records = Vec::new();
    let mut end = 0;
    while end < PAGE_SIZE {
        let at = record::skip_gap(run, end, PAGE_SIZE);
        let At::Record(header) = record::peek(run, at, PAGE_SIZE) else {
            break;
        };
        end = record::end_at(at, &header);
        let unknown = end > run.len() && end <= left && !header.has_answer();
        if !unknown && !record::intact_at(run, at, &header, generation) {
            break;
        }
        records.push((at, header));
    }
    records
}
