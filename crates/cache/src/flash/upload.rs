// SPDX-License-Identifier: Apache-2.0
//! Large values on their way to flash, written as they arrive (*uploads*).
//!
//! ```text
//!  bytes --> piece in a buffer --full--> device      (two buffers for each upload, or more)
//!                                   `--> ... last piece written --> the shard makes its slot
//! ```
//!
//! An upload takes no memory for items. Its pages belong to it alone (`log/ahead.rs`), so it waits
//! for no other record, and none waits for it. It has no slot before its last write has ended. So
//! one that breaks off leaves nothing but its pages, which reclaim frees.
//!
//! Always holds:
//! - UPLOAD-1: a slot is made only after every write of the record has ended well.
//! - UPLOAD-2: while a write is under way its region is not reclaimed, whatever became of the
//!   upload. So no write reaches a page that has another owner.
//! - UPLOAD-3: an upload never holds up reclaim: in the oldest region it fails.
//! - UPLOAD-4: an upload has its two buffers from the start, so it waits for nothing but its own
//!   writes. While half of all buffers are free it takes more, since a client sends faster than a
//!   device writes one piece.

use std::sync::Arc;

use senko_io::{AlignedBuf, IoError, PAGE_SIZE, Purpose, Queue, Tag};

use super::{Flash, TOKEN_UPLOAD, token};
use crate::record::{FlashHead, Header, PIECE, Seal, TRAILER};
use crate::stream::Pin;
use crate::types::{FRAME_PAGES, UploadId};

/// Buffers of an upload: one is filled while the other is written.
const BUFFERS: usize = 2;
/// Most buffers of an upload, if many are free.
const MOST_BUFFERS: usize = 8;

#[derive(Debug)]
pub(crate) struct Upload {
    log: usize,
    position: u64,
    header: Header,
    seal: Seal,
    /// Bytes of the value, and then of the end of the answer, that are still to come.
    value_left: usize,
    end_left: usize,
    /// The number of the piece that is filled, and whether it has bytes.
    piece: usize,
    begun: bool,
    spare: Vec<Arc<AlignedBuf>>,
    writing: Vec<(usize, Arc<AlignedBuf>)>,
    /// Keeps its pages (UPLOAD-2).
    pin: Option<Pin>,
    failed: bool,
    dropped: bool,
}

impl Upload {
    pub fn header(&self) -> &Header {
        &self.header
    }
    /// The log and position of its record.
    pub fn place(&self) -> (usize, u64) {
        (self.log, self.position)
    }
    /// Bytes of the value that have not come.
    pub fn unfilled(&self) -> usize {
        self.value_left
    }
    /// Bytes of the record that were not sent to the device.
    pub fn unsent(&self) -> usize {
        self.header.flash_len().saturating_sub(self.piece * PIECE)
    }
    /// Whether it can't be stored any more.
    pub fn has_failed(&self) -> bool {
        self.failed
    }
    /// Whether all of it is on the device (UPLOAD-1).
    pub fn is_written(&self) -> bool {
        !self.failed
            && self.value_left + self.end_left == 0
            && !self.begun
            && self.writing.is_empty()
    }

    /// Adds bytes of the record to the piece under way, as many as it takes.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let Some(buf) = self.spare.last_mut() else {
            return 0;
        };
        let buf = Arc::get_mut(buf).expect("a spare buffer is not shared");
        if !self.begun {
            self.begun = true;
            let pieces = self.header.pieces().expect("an upload has pieces");
            if self.piece + 1 == pieces.count() {
                buf.fill(0); // its end is padded
            }
        }
        let (start, take) = (
            self.piece * PIECE,
            bytes.len().min(self.seal.left_in_piece()),
        );
        let mut put = |at: usize, part: &[u8]| {
            buf[at - start..at - start + part.len()].copy_from_slice(part);
        };
        self.seal.put(&bytes[..take], &mut put);
        if self.value_left + self.end_left == take {
            self.seal.finish(&mut put);
        }
        take
    }

    /// The bytes of its piece under way, if that is complete.
    fn full_piece(&self) -> Option<usize> {
        let pieces = self.header.pieces().expect("an upload has pieces");
        let last = self.value_left + self.end_left == 0;
        let full = self.begun && (last || self.seal.pieces_ended() > self.piece);
        full.then(|| pieces.bytes(self.piece))
    }
}

/// The uploads of a shard.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    all: Vec<Option<Upload>>,
    free: Vec<UploadId>,
    spare: Vec<Arc<AlignedBuf>>,
    /// Buffers that may still be made.
    unmade: usize,
    /// Buffers of all uploads.
    most: usize,
}

impl Uploads {
    /// Uploads that share this many bytes of buffers.
    pub fn new(bytes: usize) -> Uploads {
        Uploads {
            unmade: bytes / PIECE,
            most: bytes / PIECE,
            ..Uploads::default()
        }
    }

    /// Buffers that no upload has.
    fn unused(&self) -> usize {
        self.spare.len() + self.unmade
    }

    fn take_buffer(&mut self) -> Arc<AlignedBuf> {
        self.spare.pop().unwrap_or_else(|| {
            self.unmade -= 1;
            Arc::new(AlignedBuf::new(FRAME_PAGES))
        })
    }

    fn take_buffers(&mut self) -> Option<Vec<Arc<AlignedBuf>>> {
        let enough = self.unused() >= BUFFERS;
        enough.then(|| (0..BUFFERS).map(|_| self.take_buffer()).collect())
    }

    /// Gives an upload whose buffers are all being written another one, while half of all are free.
    fn add_buffer(&mut self, id: UploadId) {
        let enough = self.unused() > self.most / 2;
        if enough && self.of(id).writing.len() < MOST_BUFFERS {
            let buf = self.take_buffer();
            self.of(id).spare.push(buf);
        }
    }

    /// Takes back a buffer that an upload has beside the one that it fills, or that others need.
    fn give_back(&mut self, id: UploadId) {
        let few = self.unused() <= self.most / 2;
        let upload = self.of(id);
        let held = upload.spare.len() + upload.writing.len();
        if held > BUFFERS && (few || upload.spare.len() > 1) {
            let buf = upload.spare.remove(0);
            self.spare.push(buf);
        }
    }

    fn of(&mut self, id: UploadId) -> &mut Upload {
        self.all[id as usize]
            .as_mut()
            .expect("an upload that has not ended")
    }

    /// Frees an upload that was dropped, once none of its writes is under way.
    fn sweep(&mut self, id: UploadId) {
        let upload = self.of(id);
        if upload.failed && upload.writing.is_empty() {
            upload.pin = None;
        }
        if upload.dropped && upload.writing.is_empty() {
            let buffers = std::mem::take(&mut upload.spare);
            self.all[id as usize] = None;
            self.spare.extend(buffers);
            self.free.push(id);
        }
    }
}

/// Where and how an upload is written.
#[derive(Debug)]
pub(crate) struct Begin<'a> {
    pub log: usize,
    pub position: u64,
    pub header: Header,
    /// Everything between the checksums and the value.
    pub text: &'a [u8],
}

impl Flash {
    /// Whether this many bytes of buffers suffice for an upload.
    pub fn may_upload(bytes: usize) -> bool {
        bytes / PIECE >= BUFFERS
    }

    /// Whether there are buffers for another upload.
    pub fn uploads_free(&self) -> bool {
        self.uploads.unused() >= BUFFERS
    }

    /// Begins an upload at pages that its log gave out; `None` if there are no buffers.
    pub fn begin_upload(&mut self, begin: Begin<'_>) -> Option<UploadId> {
        let spare = self.uploads.take_buffers()?;
        let log = &self.logs[begin.log];
        let generation = log.generation(begin.position);
        let mut head = FlashHead::new(&begin.header, generation, begin.text);
        let mut upload = Upload {
            log: begin.log,
            position: begin.position,
            seal: head.seal(),
            value_left: begin.header.value_len as usize,
            end_left: TRAILER.len(),
            header: begin.header,
            piece: 0,
            begun: false,
            spare,
            writing: Vec::new(),
            pin: Some(Pin::new(log.streams(), begin.position)),
            failed: false,
            dropped: false,
        };
        upload.put(head.finish());
        upload.put(begin.text);
        let id = match self.uploads.free.pop() {
            Some(id) => id,
            None => {
                self.uploads.all.push(None);
                self.uploads.all.len() as UploadId - 1
            }
        };
        self.uploads.all[id as usize] = Some(upload);
        Some(id)
    }

    /// An upload that has not ended.
    pub fn upload(&self, id: UploadId) -> &Upload {
        self.uploads.all[id as usize]
            .as_ref()
            .expect("an upload that has not ended")
    }

    /// Takes bytes of the value; returns how many. Fewer than all: its buffers are being written.
    pub fn fill_upload<Q: Queue>(&mut self, queue: &mut Q, id: UploadId, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let n = self.upload(id).log;
            let stalls = self.device_stalls(n);
            if self.upload(id).spare.is_empty() {
                self.uploads.add_buffer(id);
            }
            let upload = self.uploads.of(id);
            upload.failed |= upload.spare.is_empty() && stalls;
            if upload.failed {
                let rest = bytes.len() - taken;
                upload.value_left -= rest;
                return bytes.len();
            }
            let n = upload.put(&bytes[taken..]);
            if n == 0 {
                break;
            }
            upload.value_left -= n;
            taken += n;
            self.write_piece(queue, id);
        }
        self.end_value(queue, id);
        taken
    }

    /// Adds the end of the answer after the last byte of the value.
    fn end_value<Q: Queue>(&mut self, queue: &mut Q, id: UploadId) {
        loop {
            let upload = self.uploads.of(id);
            let left = upload.end_left;
            if upload.value_left > 0 || left == 0 || upload.failed {
                return;
            }
            let n = upload.put(&TRAILER[TRAILER.len() - left..]);
            if n == 0 {
                return;
            }
            upload.end_left -= n;
            self.write_piece(queue, id);
        }
    }

    /// Sends the piece under way to the device, if it is complete.
    fn write_piece<Q: Queue>(&mut self, queue: &mut Q, id: UploadId) {
        let upload = self.uploads.of(id);
        let Some(bytes) = upload.full_piece() else {
            return;
        };
        let buf = upload
            .spare
            .pop()
            .expect("the piece under way has a buffer");
        let piece = upload.piece;
        upload.writing.push((piece, Arc::clone(&buf)));
        (upload.piece, upload.begun) = (piece + 1, false);
        let log = &mut self.logs[upload.log];
        log.health.begin(self.steady_ms);
        queue.write(
            log.device(),
            log.device_page(upload.position) + (piece * FRAME_PAGES) as u64,
            buf,
            0,
            bytes.div_ceil(PAGE_SIZE),
            Tag::cache(Purpose::Admit),
            token(TOKEN_UPLOAD, self.shard, u64::from(id) << 20 | piece as u64),
        );
    }

    /// Handles a write of an upload that ended. Returns the log, the bytes that were written, and
    /// whether the state of the log's device became worse.
    pub fn upload_written<Q: Queue>(
        &mut self,
        queue: &mut Q,
        value: u64,
        result: Result<(), IoError>,
    ) -> (usize, usize, bool) {
        let (id, piece) = ((value >> 20) as UploadId, value as usize & ((1 << 20) - 1));
        let upload = self.uploads.of(id);
        let at = upload.writing.iter().position(|&(n, _)| n == piece);
        let (_, buf) = upload
            .writing
            .swap_remove(at.expect("a write of this upload"));
        // The last one is the one that is filled.
        upload.spare.insert(0, buf);
        upload.failed |= result.is_err();
        let n = upload.log;
        let pieces = upload.header.pieces().expect("an upload has pieces");
        let bytes = pieces.bytes(piece).next_multiple_of(PAGE_SIZE);
        let log = &mut self.logs[n];
        log.health.end(self.steady_ms);
        let worse = log.health.note_write(result, self.steady_ms);
        if result.is_ok() {
            self.admitter.written(bytes as u64);
        }
        self.uploads.give_back(id);
        self.end_value(queue, id);
        self.uploads.sweep(id);
        (n, bytes, worse)
    }

    /// Ends an upload: it has its slot, or it was given up.
    pub fn end_upload(&mut self, id: UploadId) {
        let upload = self.uploads.of(id);
        upload.dropped = true;
        // A record that has its slot may be reclaimed; the writes of one that was given up go on.
        upload.failed |= !upload.writing.is_empty();
        self.uploads.sweep(id);
    }

    /// Fails an upload for good.
    pub fn fail_upload(&mut self, id: UploadId) {
        self.uploads.of(id).failed = true;
        self.uploads.sweep(id);
    }

    /// Fails the uploads to the oldest region of a log (UPLOAD-3), or `all` of the log.
    pub fn fail_uploads(&mut self, n: usize, all: bool) -> u64 {
        let end = self.logs[n].tail() + self.logs[n].region_pages();
        let mut failed = 0;
        for id in 0..self.uploads.all.len() {
            let upload = self.uploads.all[id].as_mut();
            let late = |u: &&mut Upload| u.log == n && !u.failed && (all || u.position < end);
            if let Some(upload) = upload.filter(late) {
                upload.failed = true;
                failed += 1;
                self.uploads.sweep(id as UploadId);
            }
        }
        failed
    }
}
