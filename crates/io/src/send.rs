// SPDX-License-Identifier: Apache-2.0
//! The data of a send: the batch, which moves into the loop and comes back.
//!
//! The server fills a batch, [`crate::EventLoop::send`] takes it, [`crate::Event::Sent`] returns
//! it. The loop turns the pieces into an array of ranges inside the batch, so a send allocates
//! nothing once the batch has been used a few times.

use std::fmt;
use std::ops::Range;

use crate::PageBuf;

/// Most ranges of one send operation (the kernel's UIO_MAXIOV).
const MOST_RANGES: usize = 1024;
/// Most bytes of a range in one operation; far below the limit of the kernel's signed 32-bit
/// result.
const MOST_RANGE_BYTES: usize = 1 << 28;
/// Most bytes of one operation.
const MOST_SEND_BYTES: usize = 1 << 30;
/// Capacity that an empty batch keeps.
const KEEP_BYTES: usize = 64 << 10;
/// Pieces for which an empty batch keeps room.
const KEEP_PIECES: usize = 1024;

/// A part of an answer, in sending order.
#[derive(Debug)]
pub enum Piece {
    /// A range of the batch's own [`SendBatch::bytes`].
    Bytes(Range<usize>),
    /// A range of a frame that was read from a device: the transfer without a copy of paper B.
    Page(PageBuf, Range<usize>),
    /// Memory that the submitter keeps alive and unchanged until the batch comes back.
    Pinned(PinnedBytes),
}

/// Memory of another owner that a send reads in place. Only an unsafe call makes one, so that safe
/// code cannot make a socket read from an arbitrary address.
#[derive(Debug)]
pub struct PinnedBytes {
    ptr: *const u8,
    len: usize,
    pin: u64,
}

impl PinnedBytes {
    /// The `len` bytes at `ptr`; `pin` is the submitter's name for the pinned object.
    ///
    /// # Safety
    /// The bytes are initialised, and stay alive and unchanged until this value is dropped. A batch
    /// returns the pins of the pieces that it drops ([`SendBatch::clear`], [`SendBatch::spill`]).
    pub unsafe fn new(ptr: *const u8, len: usize, pin: u64) -> PinnedBytes {
        PinnedBytes { ptr, len, pin }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The submitter's name for the pinned object.
    pub fn pin(&self) -> u64 {
        self.pin
    }

    /// Skips the first bytes.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn skip(&mut self, bytes: usize) {
        assert!(bytes <= self.len, "no more than there is");
        self.ptr = self.ptr.wrapping_add(bytes);
        self.len -= bytes;
    }

    fn slice(&self) -> &[u8] {
        // SAFETY: whoever called `new` keeps the memory alive and unchanged until this value is
        // dropped, and `skip` only narrows it.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

impl Piece {
    /// Bytes of this piece.
    pub fn len(&self) -> usize {
        match self {
            Piece::Bytes(range) | Piece::Page(_, range) => range.len(),
            Piece::Pinned(bytes) => bytes.len(),
        }
    }

    /// Whether this piece is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes; `own` are the batch's own bytes.
    fn slice<'a>(&'a self, own: &'a [u8]) -> &'a [u8] {
        match self {
            Piece::Bytes(range) => &own[range.clone()],
            Piece::Page(frame, range) => &frame[range.clone()],
            Piece::Pinned(bytes) => bytes.slice(),
        }
    }
}

/// The data of one send. A connection makes it once; it moves into the loop and back, so a send
/// allocates nothing.
pub struct SendBatch {
    /// The batch's own bytes.
    pub bytes: Vec<u8>,
    /// The parts in order. If empty, the batch is all of `bytes`.
    pub pieces: Vec<Piece>,
    /// The ranges of the operation in flight; the kernel reads this array.
    ranges: Vec<libc::iovec>,
    /// The header of that operation. The kernel reads it, so a batch in flight does not move (it is
    /// boxed).
    header: libc::msghdr,
}

impl Default for SendBatch {
    fn default() -> SendBatch {
        SendBatch {
            bytes: Vec::new(),
            pieces: Vec::new(),
            ranges: Vec::new(),
            // SAFETY: a message header of zeros is valid: no name, no ranges, no control data.
            header: unsafe { std::mem::zeroed() },
        }
    }
}

impl From<Vec<u8>> for SendBatch {
    /// A batch of these bytes.
    fn from(bytes: Vec<u8>) -> SendBatch {
        SendBatch {
            bytes,
            ..SendBatch::default()
        }
    }
}

impl SendBatch {
    /// All bytes to send.
    pub fn len(&self) -> usize {
        if self.pieces.is_empty() {
            return self.bytes.len();
        }
        self.pieces.iter().map(Piece::len).sum()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that it takes: its capacity, not what it holds.
    pub fn memory(&self) -> usize {
        size_of::<SendBatch>()
            + self.bytes.capacity()
            + self.pieces.capacity() * size_of::<Piece>()
            + self.ranges.capacity() * size_of::<libc::iovec>()
    }

    /// Gives up memory that it does not use. Call it before it waits for long.
    pub fn fit(&mut self) {
        fit(&mut self.bytes);
        fit(&mut self.pieces);
    }

    /// The parts to send, in order.
    ///
    /// ```
    /// use senko_io::SendBatch;
    /// let batch = SendBatch::from(b"END\r\n".to_vec());
    /// assert_eq!(batch.slices().collect::<Vec<_>>(), [b"END\r\n"]);
    /// ```
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let whole = self.pieces.is_empty().then_some(self.bytes.as_slice());
        let parts = self.pieces.iter().map(|piece| piece.slice(&self.bytes));
        whole.into_iter().chain(parts)
    }

    /// Copies frames into `bytes`, so that the frames are free; pinned memory stays in place.
    pub fn copy_pages(&mut self) {
        if self.pieces.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        for piece in &mut self.pieces {
            if matches!(piece, Piece::Pinned(_)) {
                continue;
            }
            let start = bytes.len();
            bytes.extend_from_slice(piece.slice(&self.bytes));
            *piece = Piece::Bytes(start..bytes.len());
        }
        self.bytes = bytes;
    }

    /// Call it after a short [`SendMode::Try`]. It drops what was sent and copies the rest into
    /// `bytes`, so that frames and pins are free. Released pins are pushed to `unpinned`.
    pub fn spill(&mut self, sent: usize, unpinned: &mut Vec<u64>) {
        if self.pieces.is_empty() {
            self.bytes.drain(..sent);
            return;
        }
        let mut rest = Vec::with_capacity(self.len() - sent);
        let mut skip = sent;
        for piece in &self.pieces {
            let part = piece.slice(&self.bytes);
            let cut = skip.min(part.len());
            skip -= cut;
            rest.extend_from_slice(&part[cut..]);
        }
        self.bytes = rest;
        self.release(unpinned);
    }

    /// Empties the batch, keeping its capacity (at most 64 KiB of it); pins go to `unpinned`.
    pub fn clear(&mut self, unpinned: &mut Vec<u64>) {
        self.release(unpinned);
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES);
    }

    /// Drops the pieces and returns their pins.
    fn release(&mut self, unpinned: &mut Vec<u64>) {
        for piece in self.pieces.drain(..) {
            if let Piece::Pinned(bytes) = piece {
                unpinned.push(bytes.pin());
            }
        }
        self.pieces.shrink_to(KEEP_PIECES);
        self.ranges.clear();
        self.ranges.shrink_to(KEEP_PIECES);
    }

    /// Prepares the next operation, after `skip` bytes that were sent; returns the bytes that it
    /// covers.
    pub(crate) fn lay_out(&mut self, mut skip: usize) -> usize {
        self.ranges.clear();
        if self.pieces.is_empty() {
            return push_range(&mut self.ranges, &self.bytes[skip..]);
        }
        let mut total = 0;
        for piece in &self.pieces {
            let part = piece.slice(&self.bytes);
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            let rest = &part[skip..];
            skip = 0;
            let taken = push_range(&mut self.ranges, rest);
            total += taken;
            if taken < rest.len() || self.ranges.len() == MOST_RANGES || total >= MOST_SEND_BYTES {
                break;
            }
        }
        total
    }

    /// The operation's only range, if it has exactly one: start and bytes.
    pub(crate) fn single(&self) -> Option<(*const u8, u32)> {
        match self.ranges.as_slice() {
            [range] => Some((range.iov_base.cast(), range.iov_len as u32)),
            _ => None,
        }
    }

    /// The operation as a message header, valid until the next operation is prepared, or the batch
    /// is moved out of its box or dropped.
    pub(crate) fn header(&mut self) -> *const libc::msghdr {
        self.header.msg_iov = self.ranges.as_mut_ptr();
        self.header.msg_iovlen = self.ranges.len();
        &self.header
    }
}

/// Gives up unused capacity, if it is much of all.
fn fit<T>(vec: &mut Vec<T>) {
    if vec.capacity() > vec.len() + vec.len() / 4 {
        vec.shrink_to_fit();
    }
}

fn push_range(ranges: &mut Vec<libc::iovec>, part: &[u8]) -> usize {
    let taken = part.len().min(MOST_RANGE_BYTES);
    if taken > 0 {
        ranges.push(libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: taken,
        });
    }
    taken
}

impl fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SendBatch({} bytes in {} pieces)",
            self.len(),
            self.pieces.len()
        )
    }
}

/// When a send ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// It sends what fits into the socket's buffer now; the result may be short (0 if the buffer is
    /// full).
    Try,
    /// It ends when everything is sent, or with an error.
    Wait,
}

/// A batch on its way out of a connection.
pub(crate) struct Sending {
    pub(crate) batch: Box<SendBatch>,
    pub(crate) mode: SendMode,
    /// Bytes sent so far.
    pub(crate) sent: usize,
    /// Bytes of the whole batch.
    pub(crate) total: usize,
    /// Bytes that the operation in flight covers.
    pub(crate) covered: usize,
}

impl Sending {
    pub(crate) fn new(mut batch: Box<SendBatch>, mode: SendMode) -> Sending {
        let total = batch.len();
        let covered = batch.lay_out(0);
        Sending {
            batch,
            mode,
            sent: 0,
            total,
            covered,
        }
    }

    /// Takes the operation's result (bytes, or a negative error number). Returns the send's result
    /// if it ended. Otherwise it prepares the next operation and returns `None`.
    pub(crate) fn advance(&mut self, result: i32) -> Option<std::io::Result<usize>> {
        if result >= 0 {
            self.sent += result as usize;
            let short = (result as usize) < self.covered;
            if self.sent >= self.total || (short && self.mode == SendMode::Try) {
                return Some(Ok(self.sent));
            }
        } else {
            let would_block = -result == libc::EAGAIN;
            if self.mode == SendMode::Try && (would_block || self.sent > 0) {
                return Some(Ok(self.sent));
            }
            if !would_block && -result != libc::EINTR {
                return Some(Err(std::io::Error::from_raw_os_error(-result)));
            }
        }
        self.covered = self.batch.lay_out(self.sent);
        None
    }
}
