// SPDX-License-Identifier: Apache-2.0
//! Reclaim where nothing may be evicted (`-M`): every live record of the region is written again,
//! whatever its size.
//!
//! The records that begin in one page go together. The one of several pages goes first, so the
//! small ones before it find its new front as wide as the old (KEEP-5). What has moved is forgotten
//! when the page is looked at again, so a walk that had to wait begins its page anew. A record
//! larger than a frame is copied frame by frame; its slot changes when all of it is placed
//! (KEEP-7).
//!
//! Always holds: no record of the region is passed over while a slot names it, unless the device
//! can't give it back; that is counted.

use senko_io::{PAGE_SIZE, PageBuf, Queue};

use super::fate::Fate;
use crate::flash::log::NoPlace;
use crate::index::Slot;
use crate::record::{self, At, Header, RECORD_HEADER};
use crate::shard::Shard;
use crate::types::FRAME_PAGES;

/// A record larger than a frame that is being copied.
#[derive(Debug)]
pub(crate) struct Copying {
    slot: Slot,
    hash: u64,
    header: Header,
    /// Where it is, the offset in its first page, and the pages that it takes there.
    from: u64,
    at: usize,
    pages: u64,
    /// Where it goes, bytes that it has pages for there, and bytes that are placed.
    to: u64,
    room: usize,
    placed: usize,
    /// Pages of the old place that were read.
    read: u64,
    /// The last of them, and the offset of the next byte in it.
    piece: Option<(PageBuf, usize, usize)>,
    failed: bool,
}

/// What became of a live record.
enum Moved {
    /// Done with: it has moved, or can't be read.
    Done,
    /// There is no place now.
    Waits,
}

impl Shard {
    /// A read of the region failed: its pages are tried one by one, and what can't be read then is
    /// passed over. Its slots are caught when they are followed (SHARD-2).
    pub(super) fn region_unread(&mut self, n: usize) {
        let keeps_all = self.keeps_all();
        let r = &mut self.reclaims[n];
        if keeps_all && r.failed_at != Some(r.next) {
            r.failed_at = Some(r.next);
            r.single_to = r.next + r.reading_pages;
        } else if keeps_all {
            r.next += 1;
        } else {
            r.next += r.reading_pages;
        }
        r.span = None;
    }

    /// Walks the pages of a frame; false if it has to wait for a place.
    pub(super) fn walk_kept<Q: Queue>(&mut self, queue: &mut Q, n: usize) -> bool {
        let mut walk = self.reclaims[n].walk.take().expect("a frame to walk");
        let generation = self.logs[n].generation(walk.first);
        let end = walk.pages as usize * PAGE_SIZE;
        while walk.at < end {
            let run = &walk.frame[walk.at..end];
            let position = walk.first + (walk.at / PAGE_SIZE) as u64;
            let records = records_of(run, generation);
            let mut pages = 1;
            let several = |&&(at, header): &&(usize, Header)| at + header.record_len() > PAGE_SIZE;
            let large = records.last().filter(several).copied();
            let small = &records[..records.len() - usize::from(large.is_some())];
            let mut copy = None;
            if let Some((at, header)) = large
                && let Fate::Reinsert(slot, hash) = self.fate(n, run, at, &header, position)
            {
                let end = at + header.record_len();
                pages = end.div_ceil(PAGE_SIZE);
                if let Some(bytes) = run.get(at..end) {
                    let moved = self.move_record(queue, n, slot, hash, &header, bytes);
                    if matches!(moved, Moved::Waits) {
                        self.reclaims[n].walk = Some(walk);
                        return false;
                    }
                } else if pages <= FRAME_PAGES {
                    // It goes on behind this frame: it is read again from its first page.
                    let r = &mut self.reclaims[n];
                    (r.next, r.span) = (position, Some(pages as u64));
                    return true;
                } else {
                    copy = Some((slot, hash, at, header));
                }
            }
            for &(at, header) in small {
                let Fate::Reinsert(slot, hash) = self.fate(n, run, at, &header, position) else {
                    continue;
                };
                let bytes = &run[at..at + header.record_len()];
                let moved = self.move_record(queue, n, slot, hash, &header, bytes);
                if matches!(moved, Moved::Waits) {
                    self.reclaims[n].walk = Some(walk);
                    return false;
                }
            }
            if let Some((slot, hash, at, header)) = copy {
                let Some(to) = self.begin_copy(queue, n, header.record_len()) else {
                    self.reclaims[n].walk = Some(walk);
                    return false;
                };
                self.reclaims[n].span = None;
                self.reclaims[n].copying = Some(Copying {
                    slot,
                    hash,
                    header,
                    from: position,
                    at,
                    pages: pages as u64,
                    to,
                    room: 0,
                    placed: 0,
                    read: 0,
                    piece: None,
                    failed: false,
                });
                return true;
            }
            walk.at += pages * PAGE_SIZE;
        }
        let r = &mut self.reclaims[n];
        r.next = walk.first + (walk.at / PAGE_SIZE) as u64;
        r.span = None;
        r.progress_ms = self.steady_ms;
        true
    }

    /// Writes a live record again.
    fn move_record<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        slot: Slot,
        hash: u64,
        header: &Header,
        bytes: &[u8],
    ) -> Moved {
        if !record::intact(bytes) {
            self.stats.flash_checksum_errors += 1;
            self.drop_flash_slot(hash, slot);
            return Moved::Done;
        }
        let pages = bytes.len().div_ceil(PAGE_SIZE) as u64;
        let before = self.logs[n].used_pages();
        if let Err(why) = self.logs[n].room_now(queue, pages, 0, self.steady_ms) {
            self.reclaims[n].taken += self.logs[n].used_pages() - before;
            self.reclaims[n].stuck = why == NoPlace::Space;
            return Moved::Waits;
        }
        self.admitter.spend_anyway(bytes.len());
        let header = read_mark(header, slot);
        self.write_again(queue, n, slot, hash, &header, bytes);
        let taken = self.logs[n].used_pages() - before;
        let r = &mut self.reclaims[n];
        r.taken += taken;
        (r.stuck, r.progress_ms) = (false, self.steady_ms);
        Moved::Done
    }

    /// Reserves pages for a copy; `None` if there are none now.
    fn begin_copy<Q: Queue>(&mut self, queue: &mut Q, n: usize, len: usize) -> Option<u64> {
        let before = self.logs[n].used_pages();
        let begun = self.logs[n].begin_stream(len, 0);
        self.logs[n].settle(queue, self.steady_ms);
        let taken = self.logs[n].used_pages() - before;
        let r = &mut self.reclaims[n];
        r.taken += taken;
        r.stuck = begun == Err(NoPlace::Space);
        if begun.is_ok() {
            self.admitter.spend_anyway(len);
        }
        begun.ok()
    }

    /// Goes on with a copy; false if it has to wait.
    pub(super) fn copy_on<Q: Queue>(&mut self, queue: &mut Q, n: usize) -> bool {
        let mut copying = self.reclaims[n].copying.take().expect("a copy");
        if !copying.failed && !self.place_piece(queue, n, &mut copying) {
            self.reclaims[n].copying = Some(copying);
            return false;
        }
        let total = copying.header.record_len();
        if copying.failed || copying.placed == total {
            if copying.failed {
                self.logs[n].break_stream();
                self.logs[n].died(copying.slot.len());
                self.drop_flash_slot(copying.hash, copying.slot);
            } else {
                self.end_copy(n, &copying);
            }
            let r = &mut self.reclaims[n];
            r.next = copying.from + copying.pages;
            r.progress_ms = self.steady_ms;
            return true;
        }
        let pages = (copying.pages - copying.read).min(FRAME_PAGES as u64);
        let first = copying.from + copying.read;
        self.reclaims[n].copying = Some(copying);
        match self.reclaim_fill(queue, n, first, pages) {
            Some(frame) => {
                self.reclaims[n].reading_pages = pages;
                self.copy_read(n, Some(frame));
                true
            }
            None => false,
        }
    }

    /// A piece of the record being copied is here; `None` if it can't be read.
    pub(super) fn copy_read(&mut self, n: usize, frame: Option<PageBuf>) {
        let pages = self.reclaims[n].reading_pages;
        let copying = self.reclaims[n].copying.as_mut().expect("a copy");
        let generation = self.logs[n].generation(copying.from);
        let Some(frame) = frame else {
            copying.failed = true;
            return;
        };
        let from = if copying.read == 0 { copying.at } else { 0 };
        if copying.read == 0 {
            let whole = matches!(record::peek(&frame, from, PAGE_SIZE), At::Record(header)
                if header == copying.header && record::head_intact(&frame[from..], &header, generation));
            copying.failed = !whole;
            self.stats.flash_checksum_errors += u64::from(!whole);
        }
        let len = pages as usize * PAGE_SIZE - from;
        let end = from + len.min(copying.header.record_len() - copying.placed);
        copying.read += pages;
        copying.piece = Some((frame, from, end));
    }

    /// Places what is left of a piece; false if it has to wait for a write buffer.
    fn place_piece<Q: Queue>(&mut self, queue: &mut Q, n: usize, copying: &mut Copying) -> bool {
        let Some((frame, mut from, end)) = copying.piece.take() else {
            return true;
        };
        while from < end {
            if copying.placed == copying.room {
                let most = (end - from).div_ceil(PAGE_SIZE) as u64;
                let Some((_, pages)) = self.logs[n].stream(most) else {
                    copying.piece = Some((frame, from, end));
                    return false;
                };
                copying.room += pages as usize * PAGE_SIZE;
                self.reclaims[n].taken += pages;
            }
            let len = (end - from).min(copying.room - copying.placed);
            let bytes = &frame[from..from + len];
            let log = &mut self.logs[n];
            if copying.placed == 0 {
                let generation = log.generation(copying.to);
                let head = copied_head(bytes, copying.slot, generation);
                log.put(copying.to, 0, &head);
                log.put(copying.to, RECORD_HEADER, &bytes[RECORD_HEADER..]);
            } else {
                log.put(copying.to, copying.placed, bytes);
            }
            log.settle(queue, self.steady_ms);
            copying.placed += len;
            from += len;
            self.reclaims[n].progress_ms = self.steady_ms;
        }
        true
    }

    /// All of a record is copied: its slot names the new place, if there is one still.
    fn end_copy(&mut self, n: usize, copying: &Copying) {
        let (slot, hash) = (copying.slot, copying.hash);
        if let Some((pos, now)) = self.index.find_same(hash, slot) {
            let moved = self.moved_slot(n, copying.to, now, hash, &copying.header);
            self.index.set(pos, moved);
            return;
        }
        // It was deleted or replaced meanwhile, or promoted: then its clean copy goes with the
        // region.
        let mut promoted = 0;
        self.index.find(hash, |s| {
            if s.is_dram() {
                let item = self.index.handle(s);
                if self.arena.flash_copy(item).with_hot(0) == slot.with_hot(0) {
                    promoted = item;
                }
            }
            false
        });
        if promoted != 0 {
            self.arena.set_flash_copy(promoted, Slot::EMPTY);
        }
        self.logs[n].died(slot.len());
    }

    /// Gives up the copy under way to a log whose device takes no more: the record stays where it
    /// is, and is copied anew when the device is back.
    pub(crate) fn cancel_copy(&mut self, n: usize) {
        let r = &mut self.reclaims[n];
        let Some(copying) = r.copying.take() else {
            return;
        };
        r.stale_read = r.reading;
        r.next = copying.from;
        self.logs[n].break_stream();
        self.logs[n].died(copying.slot.len());
    }
}

/// The intact records that begin in the first page of a run.
fn records_of(run: &[u8], generation: u32) -> Vec<(usize, Header)> {
    let mut records = Vec::new();
    let mut end = 0;
    while end < PAGE_SIZE {
        let at = record::skip_gap(run, end, PAGE_SIZE);
        let At::Record(header) = record::peek(run, at, PAGE_SIZE) else {
            break;
        };
        if !record::head_intact(&run[at..], &header, generation) {
            break;
        }
        records.push((at, header));
        end = record::next_offset(at, header.record_len());
    }
    records
}

/// A header that says what its slot knows: whether the item was read.
fn read_mark(header: &Header, slot: Slot) -> Header {
    let mut header = *header;
    let m = header.meta(0);
    header.set_marks(m.fetched || slot.hot() > 0, m.stale, m.won, m.binary_key);
    header
}

/// The header of a record at its new place, whose first bytes are `bytes`. Its checksum is what the
/// old one becomes with this header: the rest is not looked at, and what was damaged stays so.
fn copied_head(bytes: &[u8], slot: Slot, generation: u32) -> [u8; RECORD_HEADER] {
    let old = Header::read(bytes);
    let text = &bytes[RECORD_HEADER..old.prefix_len()];
    let mut head = record::flash_head(&read_mark(&old, slot), generation, text);
    let heads = crc32c::crc32c(&bytes[4..RECORD_HEADER]) ^ crc32c::crc32c(&head[4..]);
    let crc = crc32c::crc32c_combine(heads, old.crc, old.record_len() - RECORD_HEADER);
    head[..4].copy_from_slice(&crc.to_le_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_follows_its_header_to_another_place() {
        let mut header = Header::read(&[0; 32]);
        (header.value_len, header.key_len, header.cas) = (300_000, 3, 77);
        let mut record = vec![0; header.record_len()];
        let at = record::write_prefix(&mut record, &header, b"key");
        for (n, byte) in record[at..].iter_mut().enumerate() {
            *byte = (n * n) as u8;
        }
        let place = |record: &mut [u8], head: [u8; RECORD_HEADER]| {
            record[..RECORD_HEADER].copy_from_slice(&head);
        };
        let head = record::flash_head(&header, 5, &record[RECORD_HEADER..at]);
        place(&mut record, head);
        let crc = crc32c::crc32c(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        assert!(record::intact(&record));
        let head = copied_head(&record[..PAGE_SIZE], Slot(0).with_hot(2), 9);
        place(&mut record, head);
        let moved = Header::read(&record);
        assert!(record::intact(&record) && moved.fetched());
        assert!(
            record::head_intact(&record, &moved, 9) && !record::head_intact(&record, &moved, 5)
        );
        record[200_000] ^= 1;
        let head = copied_head(&record[..PAGE_SIZE], Slot(0), 10);
        place(&mut record, head);
        assert!(!record::intact(&record), "damage is not covered up");
    }
}
