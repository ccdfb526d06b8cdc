// SPDX-License-Identifier: Apache-2.0
//! A record larger than a frame on its way from the oldest region to the head of its log, piece by
//! piece.
//!
//! Always holds: the placed bytes are the bytes that were read. Damage stays detectable, since the
//! new checksum follows from the old one.

use senko_io::{PAGE_SIZE, PageBuf, Queue};

use super::Flash;
use crate::index::Slot;
use crate::record::{self, At, FlashHead, Header, RECORD_HEADER};
use crate::types::FRAME_PAGES;

/// A record larger than a frame that is being copied.
#[derive(Debug)]
pub(crate) struct Copying {
    slot: Slot,
    hash: u64,
    header: Header,
    /// Its old place: position, offset in its first page, and number of pages.
    from: u64,
    at: usize,
    pages: u64,
    /// Its new place, the bytes that have pages there, and the bytes that are placed.
    to: u64,
    room: usize,
    placed: usize,
    /// Pages of the old place that were read.
    read: u64,
    /// The last page that was read, and the offset of the next byte in it.
    piece: Option<(PageBuf, usize, usize)>,
    failed: bool,
}

impl Copying {
    /// A record of the slot with this hash, at an offset of page `from`, to be copied to `to`.
    pub fn new(slot: Slot, hash: u64, header: Header, (from, at): (u64, usize), to: u64) -> Self {
        Copying {
            slot,
            hash,
            header,
            from,
            at,
            pages: (at + header.flash_len()).div_ceil(PAGE_SIZE) as u64,
            to,
            room: 0,
            placed: 0,
            read: 0,
            piece: None,
            failed: false,
        }
    }

    pub fn slot(&self) -> Slot {
        self.slot
    }
    pub fn hash(&self) -> u64 {
        self.hash
    }
    pub fn header(&self) -> &Header {
        &self.header
    }
    /// Position of its first page at the old place.
    pub fn from(&self) -> u64 {
        self.from
    }
    /// Position of the page after it there.
    pub fn end(&self) -> u64 {
        self.from + self.pages
    }
    /// Position of its first page at the new place.
    pub fn to(&self) -> u64 {
        self.to
    }
    /// Whether a piece of it could not be read.
    pub fn failed(&self) -> bool {
        self.failed
    }
    /// Whether all of it is placed.
    pub fn is_placed(&self) -> bool {
        self.placed == self.header.flash_len()
    }
    /// Position and pages of the piece to read next.
    pub(super) fn next_piece(&self) -> (u64, u64) {
        let pages = (self.pages - self.read).min(FRAME_PAGES as u64);
        (self.from + self.read, pages)
    }

    /// Takes a piece of `pages` pages that was read, or `None` if it can't be read. False if the
    /// first piece does not begin with the record.
    pub(super) fn take_piece(
        &mut self,
        frame: Option<PageBuf>,
        pages: u64,
        generation: u32,
    ) -> bool {
        let Some(frame) = frame else {
            self.failed = true;
            return true;
        };
        let from = if self.read == 0 { self.at } else { 0 };
        if self.read == 0 {
            let whole = matches!(record::peek(&frame, from, PAGE_SIZE), At::Record(header)
                if header == self.header && record::head_intact(&frame[from..], &header, generation));
            self.failed = !whole;
        }
        let len = pages as usize * PAGE_SIZE - from;
        let end = from + len.min(self.header.flash_len() - self.placed);
        self.read += pages;
        self.piece = Some((frame, from, end));
        !self.failed
    }
}

impl Flash {
    /// Places the rest of a piece; false if it has to wait for a write buffer.
    pub fn place_piece<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        copying: &mut Copying,
    ) -> bool {
        let Some((frame, mut from, end)) = copying.piece.take() else {
            return true;
        };
        let (log, r) = (&mut self.logs[n], &mut self.reclaims[n]);
        while from < end {
            let mut taken = 0;
            if copying.placed == copying.room {
                let most = (end - from).div_ceil(PAGE_SIZE) as u64;
                let Some((_, pages)) = log.stream(most) else {
                    copying.piece = Some((frame, from, end));
                    return false;
                };
                copying.room += pages as usize * PAGE_SIZE;
                taken = pages;
            }
            let len = (end - from).min(copying.room - copying.placed);
            let bytes = &frame[from..from + len];
            if copying.placed == 0 {
                let generation = log.generation(copying.to);
                let mut head = copied_head(bytes, copying.slot, generation);
                log.put(copying.to, 0, head.finish());
                log.put(copying.to, RECORD_HEADER, &bytes[RECORD_HEADER..]);
            } else {
                log.put(copying.to, copying.placed, bytes);
            }
            log.settle(queue, self.steady_ms);
            copying.placed += len;
            from += len;
            r.placed(taken, self.steady_ms);
        }
        true
    }
}

/// A header with what the slot knows: whether the item was read.
pub(crate) fn read_mark(header: &Header, slot: Slot) -> Header {
    let mut header = *header;
    let m = header.meta(0);
    header.set_marks(m.fetched || slot.hot() > 0, m.stale, m.won, m.binary_key);
    header
}

/// The header of a record at its new place; `bytes` are the record's first bytes. The checksum is
/// computed from the old one and the change of the header. The rest of the record is not read, so
/// damage there stays detectable.
fn copied_head(bytes: &[u8], slot: Slot, generation: u32) -> FlashHead {
    let old = Header::read(bytes);
    let text = &bytes[RECORD_HEADER..old.flash_prefix()];
    let mut head = FlashHead::new(&read_mark(&old, slot), generation, text);
    let heads = crc32c::crc32c(&bytes[..RECORD_HEADER - 4]) ^ head.crc();
    let body = old.flash_len() - RECORD_HEADER;
    head.set_crc(crc32c::crc32c_combine(
        heads,
        record::answer_crc(bytes),
        body,
    ));
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_follows_its_header_to_another_place() {
        let header = Header::new(3, 300_000, 0, 0, 77);
        let mut dram = vec![0; header.dram_len()];
        let at = record::write_prefix(&mut dram, &header, b"key");
        for (n, byte) in dram[at..].iter_mut().enumerate() {
            *byte = (n * n) as u8;
        }
        let body = dram.split_off(header.head_len());
        let mut head = FlashHead::new(&header, 5, &body[..at - header.head_len()]);
        head.append(&body);
        let mut record = [head.finish(), &body].concat();
        let whole = |record: &[u8], generation| {
            let header = Header::read(record);
            record::head_intact(record, &header, generation) && record::intact(record, &header)
        };
        let place = |record: &mut [u8], mut head: FlashHead| {
            record[..RECORD_HEADER].copy_from_slice(head.finish());
        };
        assert!(whole(&record, 5));
        let head = copied_head(&record[..PAGE_SIZE], Slot(0).with_hot(2), 9);
        place(&mut record, head);
        assert!(whole(&record, 9) && !whole(&record, 5));
        assert!(Header::read(&record).fetched());
        record[200_000] ^= 1;
        let head = copied_head(&record[..PAGE_SIZE], Slot(0), 10);
        place(&mut record, head);
        assert!(!whole(&record, 10), "damage is not covered up");
    }
}
