// SPDX-License-Identifier: Apache-2.0
//! Reads of a shard's flash by another worker, on that worker's own queue.
//!
//! ```text
//!  shard of the key:  read_afar: finds the place, counts the access
//!  asking worker:         \--> AfarRead::submit --> completion --> check_afar of its own shard
//! ```
//! The shard of the key keeps nothing about such a read, and the asking worker owes it nothing: no
//! pin, no report. A read whose connection was closed, or whose worker is stuck, holds up nobody.
//! Only a record that is longer than its slot says, and so may have pieces, is pinned
//! (`stream.rs`).
//!
//! - AFAR-1. A frame that passes the check holds the record that the slot named at the look-up.
//!   The key and both checksums are compared, and the header checksum is seeded with the
//!   generation. Within a generation a page is written once, and it holds one record of a key
//!   (LOG-4). So the region is not pinned: if it is reclaimed and written again meanwhile, the
//!   check fails.
//! - AFAR-2. Only a record that passes the check is used. After any other result the command runs
//!   at the shard of the key, which counts errors, judges the device and drops the slot.

use senko_io::{Completion, DeviceId, PAGE_SIZE, PageBuf, Purpose, Queue, Tag};

use super::fetch::{FrameMatch, find_record};
use crate::flash::{TOKEN_AFAR, token, untoken};
use crate::index::Slot;
use crate::key::{Key, MAX_KEY};
use crate::record::{self, PIECE};
use crate::shard::Shard;
use crate::stream::{PieceRead, Stream, Whence};
use crate::types::{Fetched, FlashRef, Want};

/// A read of another shard's flash.
#[derive(Debug)]
pub struct AfarRead {
    want: Want,
    slot: Slot,
    generation: u32,
    device: DeviceId,
    /// The device's page, and pages to read.
    page: u64,
    pages: usize,
    /// For a record that may have pieces.
    whence: Option<Whence>,
    key_len: u8,
    key: [u8; MAX_KEY],
}

impl AfarRead {
    /// Submits the read into a frame that [`Shard::read_afar`] took.
    pub fn submit<Q: Queue>(&self, queue: &mut Q, frame: PageBuf, number: u32) {
        queue.read(
            self.device,
            self.page,
            self.pages,
            frame,
            Tag::cache(Purpose::Lookup),
            token(TOKEN_AFAR, 0, u64::from(number)),
        );
    }

    /// Reads the first `pages` pages of a piece of a record, of any shard. Its completion has a
    /// number like that of such a read.
    pub fn submit_piece<Q: Queue>(
        piece: &PieceRead,
        queue: &mut Q,
        (pages, frame): (usize, PageBuf),
        number: u32,
    ) {
        piece.read(queue, pages, frame, token(TOKEN_AFAR, 0, u64::from(number)));
    }

    /// The number of such a read that ended; `None`: the completion is of the queue's own shard.
    #[inline]
    pub fn number(completion: &Completion) -> Option<u32> {
        let (kind, value) = untoken(completion.token);
        (kind == TOKEN_AFAR).then_some(value as u32)
    }

    fn key(&self) -> &[u8] {
        &self.key[..self.key_len as usize]
    }
}

impl Shard {
    /// Begins a read of what `Lookup::Flash` named here, for another worker and into a frame of its
    /// queue. With `Want::Answer` it counts as an access. `None`: the command must run here. The
    /// record is in a write buffer or due for promotion, or the queue has no frame.
    pub fn read_afar<Q: Queue>(
        &mut self,
        queue: &mut Q,
        key: &Key<'_>,
        at: FlashRef,
        want: Want,
    ) -> Option<(AfarRead, PageBuf)> {
        let (pos, slot) = self.index.find_same(key.hash, Slot(at.0))?;
        let (n, position) = self.place(slot)?;
        let log = self.flash.log(n);
        let pages = want.pages(slot.len());
        // LOG-2: a record whose last page is on the device is there as a whole.
        let last = position + slot.len().max(pages) as u64 - 1;
        let is_access = want == Want::Answer;
        if is_access && self.is_due(slot) || log.buffered(last).is_some() {
            return None;
        }
        let frame = queue.frame(pages)?;
        let has_rest = want != Want::Header && slot.len() == 0;
        let mut read = AfarRead {
            want,
            slot,
            generation: log.generation(position),
            device: log.device(),
            page: log.device_page(position),
            pages,
            whence: has_rest.then(|| self.whence(key.hash, slot, (n, position))),
            key_len: key.bytes.len() as u8,
            key: [0; MAX_KEY],
        };
        read.key[..key.bytes.len()].copy_from_slice(key.bytes);
        if is_access {
            self.count_access(&pos, slot);
        }
        Some((read, frame))
    }

    /// Checks the pages of a read of another shard's flash (AFAR-1); a hit is counted here.
    /// [`Fetched::Changed`]: the command must run at that shard.
    pub fn check_afar(&mut self, read: AfarRead, mut frame: PageBuf) -> Fetched {
        let run = &mut frame[..read.pages * PAGE_SIZE];
        let found = find_record(run, read.key(), read.generation);
        let FrameMatch::At(at, header) = found else {
            return Fetched::Changed;
        };
        let end = at + header.flash_len();
        let mut rest = None;
        let intact = match (run.get(at..end), header.pieces(), read.whence) {
            (Some(bytes), ..) => record::intact(bytes, &header),
            (None, Some(pieces), Some(whence)) => {
                let hcrc = record::hcrc(run);
                let stream = rest.insert(Stream::new(whence, pieces, hcrc));
                stream.is_on_device() && record::piece_intact(&run[..PIECE], hcrc, 0)
            }
            _ => read.want == Want::Header,
        };
        if !intact || record::expired(header.expiry, self.now()) {
            return Fetched::Changed;
        }
        match read.want {
            Want::Header => {
                Fetched::Header(self.flash_meta(&header, read.slot), FlashRef(read.slot.0))
            }
            _ => self.answer(frame, at, &header, read.slot, rest),
        }
    }
}
