// SPDX-License-Identifier: Apache-2.0
//! A record larger than a frame on its way from the oldest region to the head of its log, piece by
//! piece.
//!
//! Always holds: the placed bytes are the bytes that were read. A piece is placed after its
//! checksum was compared, and then gets that of its new place.

use senko_io::{PAGE_SIZE, PageBuf, Queue};

use super::Flash;
use crate::index::Slot;
use crate::record::{self, At, FlashHead, Header, Pieces, RECORD_HEADER};
use crate::types::FRAME_PAGES;

/// A record larger than a frame that is being copied.
#[derive(Debug)]
pub(crate) struct Copying {
    slot: Slot,
    hash: u64,
    header: Header,
    pieces: Pieces,
    /// Its old place: position and number of pages.
    from: u64,
    pages: u64,
    /// The checksums of head and key at the old place and at the new one.
    hcrcs: (u32, u32),
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
    /// A record of the slot with this hash, to be copied from one position to another.
    pub fn new(
        slot: Slot,
        hash: u64,
        (header, pieces): (Header, Pieces),
        from: u64,
        to: u64,
    ) -> Self {
        Copying {
            slot,
            hash,
            header,
            pieces,
            from,
            pages: header.flash_len().div_ceil(PAGE_SIZE) as u64,
            hcrcs: (0, 0),
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
    pub fn is_placed(&self) -> bool {
        self.placed == self.header.flash_len()
    }
    /// Position and pages of the piece to read next.
    pub(super) fn next_piece(&self) -> (u64, u64) {
        let pages = (self.pages - self.read).min(FRAME_PAGES as u64);
        (self.from + self.read, pages)
    }

    /// Takes a piece of `pages` pages that was read, or `None` if it can't be read. It gets head
    /// and checksum of its new place. The generations are those of both places. False if it is
    /// damaged.
    pub(super) fn take_piece(
        &mut self,
        frame: Option<PageBuf>,
        pages: u64,
        (old, new): (u32, u32),
    ) -> bool {
        let Some(mut frame) = frame else {
            self.failed = true;
            return true;
        };
        let n = self.read as usize / FRAME_PAGES;
        let piece = &mut frame[..self.pieces.bytes(n)];
        if n == 0 {
            let begins = matches!(record::peek(piece, 0, PAGE_SIZE), At::Record(header)
                if header == self.header && record::head_intact(piece, &header, old));
            self.hcrcs.0 = record::hcrc(piece);
            self.failed = !begins;
        }
        self.failed |= !record::piece_intact(piece, self.hcrcs.0, n);
        if n == 0 && !self.failed {
            let header = read_mark(&self.header, self.slot);
            let text = &piece[RECORD_HEADER..header.flash_prefix()];
            let mut head = FlashHead::new(&header, new, text);
            piece[..RECORD_HEADER].copy_from_slice(head.finish());
            self.hcrcs.1 = record::hcrc(piece);
        }
        record::set_sum(piece, self.hcrcs.1, n);
        let end = piece.len();
        self.read += pages;
        self.piece = Some((frame, 0, end));
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
            log.put(copying.to, copying.placed, &frame[from..from + len]);
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

#[cfg(test)]
mod tests {
    use senko_io::FramePool;

    use super::*;
    use crate::record::PIECE;

    /// The bytes of a large record as it is on flash.
    fn record(generation: u32) -> (Header, Vec<u8>) {
        let header = Header::new(3, 300_000, 0, 0, 77);
        let mut dram = vec![0; header.dram_len()];
        let at = record::write_prefix(&mut dram, &header, b"key");
        for (n, byte) in dram[at..].iter_mut().enumerate() {
            *byte = (n * n) as u8;
        }
        let body = &dram[header.head_len()..];
        let mut head = FlashHead::new(&header, generation, &body[..at - header.head_len()]);
        let (mut flash, mut seal) = (vec![0; header.flash_len()], head.seal());
        let mut put = |at: usize, part: &[u8]| flash[at..at + part.len()].copy_from_slice(part);
        seal.put(head.finish(), &mut put);
        seal.put(body, &mut put);
        seal.finish(&mut put);
        (header, flash)
    }

    /// Copies a record from generation 5 to 9, piece by piece; `None` if that fails.
    fn copied(flash: &[u8]) -> Option<Vec<u8>> {
        let frames = FramePool::new(&[(FRAME_PAGES, 1)]);
        let header = Header::read(flash);
        let pieces = header.pieces().expect("a large record");
        let mut copying = Copying::new(Slot(0).with_hot(2), 1, (header, pieces), 100, 200);
        let mut copy = Vec::new();
        for (n, piece) in flash.chunks(PIECE).enumerate() {
            let (first, pages) = copying.next_piece();
            assert_eq!(first, 100 + (n * FRAME_PAGES) as u64);
            let mut frame = frames.take(FRAME_PAGES).expect("a frame");
            frame[..piece.len()].copy_from_slice(piece);
            if !copying.take_piece(Some(frame), pages, (5, 9)) {
                return None;
            }
            let (frame, from, end) = copying.piece.take().expect("a piece");
            copy.extend_from_slice(&frame[from..end]);
        }
        Some(copy)
    }

    #[test]
    fn a_copy_has_the_checksums_of_its_new_place() {
        let whole = |record: &[u8], generation| {
            let header = Header::read(record);
            record::head_intact(record, &header, generation) && record::intact(record, &header)
        };
        let (_, flash) = record(5);
        assert!(whole(&flash, 5));
        let copy = copied(&flash).expect("it is whole");
        assert!(whole(&copy, 9) && !whole(&copy, 5));
        assert!(Header::read(&copy).fetched());
    }

    #[test]
    fn damage_in_any_piece_ends_a_copy() {
        let (_, flash) = record(5);
        for at in (0..flash.len()).step_by(PIECE / 2) {
            let mut damaged = flash.clone();
            damaged[at] ^= 1;
            assert!(copied(&damaged).is_none(), "{at}");
        }
        assert!(copied(&record(6).1).is_none(), "of another lap");
    }
}
