// SPDX-License-Identifier: Apache-2.0
//! A large value on its way from flash to a connection: the window of pieces that are read ahead.
//!
//! ```text
//!  Executor::read_ahead --next--> Afar::read_piece -> device -> Session::done --came--> Reply::page --> socket
//! ```
//! A reply that ends in a window is sent as far as it goes, and the replies after it wait. Only the
//! first reply of a connection reads ahead, so a window that waits for its turn holds no frame.
//!
//! Always holds:
//! - WINDOW-1: pieces are sent in order, each after it was checked (STREAM-1).
//! - WINDOW-2: a window begins with at most [`LEAST_PIECES`] pieces under way or unsent, beside
//!   those in the batch that is being sent. Each batch that its reader takes at once doubles that,
//!   up to [`most_pieces`], and a slow reader has one. What a slow reader does not take is copied
//!   out of the frames, as any answer is (FLOW-3).
//! - WINDOW-3: a window that ends early, for whatever reason, keeps no frame and no region.
//! - WINDOW-4: while a window lacks a frame and has no piece under way, no other read of its worker
//!   begins, and the answers behind it hold no frame. Otherwise reads of others could take every
//!   frame that comes back, and its own answers hold the last one.

use std::collections::VecDeque;
use std::ops::Range;

use senko_cache::{PieceRead, Stream};
use senko_io::PageBuf;

/// Pieces that are read ahead at first: 256 KiB.
const LEAST_PIECES: usize = 4;
/// A slow reader may hold as much in its batch, and as much behind it, outside of frames (FLOW-3).
const MOST_PIECES: usize = 4;

/// The most pieces that one value reads ahead with these frames of its worker, as pages and count:
/// a sixteenth of the frames that hold a piece.
pub fn most_pieces(frames: &[(usize, usize)]) -> usize {
    let holds_a_piece = |(pages, _): &&(usize, usize)| *pages >= PieceRead::PAGES;
    let frames: usize = frames
        .iter()
        .filter(holds_a_piece)
        .map(|(_, count)| count)
        .sum();
    (frames / 16).clamp(LEAST_PIECES, MOST_PIECES)
}

/// The rest of a value.
#[derive(Debug)]
pub struct Window {
    stream: Box<Stream>,
    /// Bytes that are still to come from pieces.
    left: usize,
    /// Of these, bytes for which no read has begun.
    unread: usize,
    /// Pieces under way, in order.
    ahead: VecDeque<Ahead>,
    /// Most pieces now.
    most: usize,
    /// Whether `END` follows the value.
    end: bool,
    /// When reclaim was first seen to wait for it.
    awaited_ms: Option<u64>,
}

#[derive(Debug)]
struct Ahead {
    ticket: u16,
    piece: Option<(PageBuf, Range<usize>)>,
}

impl Window {
    /// The next `left` bytes of a stream; then `END`, if `end`.
    pub fn new(stream: Box<Stream>, left: usize, end: bool) -> Window {
        Window {
            stream,
            left,
            unread: left,
            ahead: VecDeque::new(),
            most: LEAST_PIECES,
            end,
            awaited_ms: None,
        }
    }

    pub fn left(&self) -> usize {
        self.left
    }
    /// Whether `END` follows.
    pub fn ends(&self) -> bool {
        self.end
    }
    /// Removes the `END`.
    pub fn strip(&mut self) {
        self.end = false;
    }
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
    pub fn has(&self, ticket: u16) -> bool {
        self.ahead.iter().any(|ahead| ahead.ticket == ticket)
    }
    /// Whether no piece is under way.
    pub fn is_dry(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Whether another piece may be read, beside `unsent` pieces that came, if at most `most` may
    /// be ahead.
    pub fn wants(&self, unsent: usize, most: usize) -> bool {
        self.unread > 0 && self.ahead.len() + unsent < self.most.min(most)
    }

    /// Begins to read the next piece.
    pub fn next(&mut self, ticket: u16) -> Option<PieceRead> {
        let read = self.stream.next_read()?;
        self.unread = self.unread.saturating_sub(read.data());
        self.ahead.push_back(Ahead {
            ticket,
            piece: None,
        });
        Some(read)
    }

    /// Takes a piece that came.
    pub fn came(&mut self, ticket: u16, frame: PageBuf, range: Range<usize>) {
        let mut all = self.ahead.iter_mut();
        if let Some(ahead) = all.find(|ahead| ahead.ticket == ticket) {
            ahead.piece = Some((frame, range));
        }
    }

    /// The next piece, if it came.
    pub fn take(&mut self) -> Option<(PageBuf, Range<usize>)> {
        let (frame, mut range) = self.ahead.front_mut()?.piece.take()?;
        self.ahead.pop_front();
        range.end = range.end.min(range.start + self.left);
        self.left -= range.len();
        Some((frame, range))
    }

    /// Notes whether the reader takes what it gets.
    pub fn pace(&mut self, slow: bool) {
        self.most = match slow {
            true => 1,
            false => (2 * self.most).min(MOST_PIECES),
        };
    }

    /// Whether reclaim has waited for it for this long.
    pub fn stalls(&mut self, now_ms: u64, limit_ms: u64) -> bool {
        if !self.stream.is_awaited() {
            self.awaited_ms = None;
            return false;
        }
        let since = *self.awaited_ms.get_or_insert(now_ms);
        now_ms.saturating_sub(since) >= limit_ms
    }
}
