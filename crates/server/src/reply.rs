// SPDX-License-Identifier: Apache-2.0
//! The ordered answers of one connection. Some of them may still wait for flash or for another
//! shard.
//!
//! Commands of a connection are answered in order, but a command that needs flash must not delay
//! the parsing of later commands. A [`ReplyQueue`] is a sequence of [`Reply`]s. The last one is
//! open: commands that are answered at once append to it. So the queue is usually one `Vec`, and
//! nothing is allocated. A command that must wait gets its own reply, which is filled in later.
//! Everything before the first waiting reply may be sent.
//!
//! ```text
//!   front                                        back
//!   | ready bytes, pages | waiting | ready bytes | waiting | ready bytes (open) |
//!     `- fill_batch takes from here                           `- commands append here
//! ```
//! A reply may end in a [`Window`]: the rest of its value is still being read, and is sent as it
//! comes. Later replies wait for it.
//!
//! A virtual connection is a session that runs commands for another shard. Each of its commands has
//! its own reply, a *unit*. The requesting worker inserts it into its own queue:
//! [`ReplyQueue::next_unit`].
//!
//! Always holds:
//! - REPLY-1: bytes leave in the order of the commands.
//! - REPLY-2: a page or pin is owned by exactly one reply or batch.
//! - REPLY-3: recycled buffers keep at most [`KEPT`] bytes each, and at most [`SPARE`] are kept.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;

use senko_cache::Stream;
use senko_io::{PageBuf, Piece, PinnedBytes, SendBatch};

use crate::window::Window;

/// Capacity that one recycled buffer may keep.
const KEPT: usize = 64 << 10;
/// Capacity that the recycled buffers of all connections of a thread may keep together. It suffices
/// for a few busy connections, and bounds what a burst of thousands leaves.
const KEPT_IN_ALL: usize = 1 << 20;
thread_local! {
    /// The memory that recycled buffers of this thread's connections keep.
    static KEPT_NOW: Cell<usize> = const { Cell::new(0) };
}

/// Recycled replies that a connection keeps.
const SPARE: usize = 3;
/// Replies and parked commands for which an idle connection keeps room. A connection that once had
/// more under way must not hold that memory for life.
pub(crate) const KEPT_PLACES: usize = 8;
/// Most pieces in one batch.
pub const BATCH_PIECES: usize = 64;
/// A batch is closed when it has this many bytes.
pub const BATCH_BYTES: usize = 1 << 20;

/// An answer on its way to the requesting worker.
#[derive(Debug, Default)]
pub struct Answer {
    /// The bytes of the answer itself.
    pub bytes: Vec<u8>,
    /// The pinned memory between these bytes.
    pub lent: Vec<Lent>,
    /// The rest of its value, which the requesting worker reads.
    pub rest: Option<Box<Window>>,
}

/// Item memory of the answering worker, which a pin of its shard keeps in place.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// The number of the answer's own bytes before it.
    before: usize,
    address: usize,
    len: usize,
    pin: u64,
}

/// A pin of another worker's shard, as one number that also names the worker.
pub fn pin_of(worker: usize, pin: u64) -> u64 {
    debug_assert!(pin >> WORKER_BITS == 0);
    (worker as u64 + 1) << WORKER_BITS | pin
}

/// The worker, and that worker's number for the pin; no worker for a pin of this worker's own.
pub fn worker_of(pin: u64) -> (Option<usize>, u64) {
    let worker = (pin >> WORKER_BITS) as usize;
    (worker.checked_sub(1), pin & ((1 << WORKER_BITS) - 1))
}

/// Below it a pin has the number of its shard and the shard's own number for it.
const WORKER_BITS: u32 = 48;

impl Answer {
    /// The answer's pins, as another worker names them.
    pub fn pins(&self, worker: usize) -> impl Iterator<Item = u64> {
        self.lent.iter().map(move |lent| pin_of(worker, lent.pin))
    }

    /// Removes the `END` at its end.
    pub fn strip(&mut self, end: &[u8]) {
        if let Some(rest) = &mut self.rest {
            return rest.strip();
        }
        let after_lent = self.lent.last().map_or(0, |lent| lent.before);
        if self.bytes[after_lent..].ends_with(end) {
            self.bytes.truncate(self.bytes.len() - end.len());
        }
    }
}

/// A part of a reply, in order.
#[derive(Debug)]
enum Part {
    /// The next bytes of the reply itself, as many as this.
    Bytes(usize),
    /// A range of a frame.
    Page(PageBuf, Range<usize>),
    /// Memory kept in place by a pin.
    Pinned {
        ptr: *const u8,
        len: usize,
        pin: u64,
    },
}

impl Part {
    /// Bytes of item memory.
    fn pinned(&self) -> usize {
        match self {
            Part::Pinned { len, .. } => *len,
            Part::Bytes(_) | Part::Page(..) => 0,
        }
    }
}

/// One answer, or several successive answers that need not wait.
#[derive(Debug, Default)]
pub struct Reply {
    /// The reply's own bytes; commands append text here.
    pub bytes: Vec<u8>,
    /// How many of these bytes are already in a batch.
    taken: usize,
    /// How many of these bytes `parts` covers.
    covered: usize,
    parts: VecDeque<Part>,
    /// The rest of its value.
    rest: Option<Box<Window>>,
    waiting: bool,
}

impl Reply {
    /// Appends a line of text.
    #[inline]
    pub fn line(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }
    /// Appends a part of a frame without a copy.
    pub fn page(&mut self, buf: PageBuf, range: Range<usize>) {
        self.cover();
        self.parts.push_back(Part::Page(buf, range));
    }
    /// Ends in `left` bytes of a stream; then `END`, if `end`. Nothing may be appended afterwards.
    pub fn stream(&mut self, stream: Box<Stream>, left: usize, end: bool) {
        debug_assert!(self.rest.is_none());
        self.rest = Some(Box::new(Window::new(stream, left, end)));
        self.go_on();
    }
    /// Appends the pieces that came, and the end after the last one.
    fn go_on(&mut self) {
        let Some(mut rest) = self.rest.take() else {
            return;
        };
        while let Some((frame, range)) = rest.take() {
            self.page(frame, range);
        }
        if rest.left() > 0 {
            self.rest = Some(rest);
        } else if rest.ends() {
            self.bytes.extend_from_slice(b"END\r\n");
        }
    }
    fn pages(&self) -> usize {
        let parts = self.parts.iter();
        parts.filter(|part| matches!(part, Part::Page(..))).count()
    }
    /// Appends memory of this worker's shard, which does not change until `pin` is returned: the
    /// shard counts the pin ([`senko_cache::Shard::pin`]). This is not public, since a send reads
    /// the memory in place.
    pub(crate) fn pinned(&mut self, memory: &[u8], pin: u64) {
        self.cover();
        self.parts.push_back(Part::Pinned {
            ptr: memory.as_ptr(),
            len: memory.len(),
            pin,
        });
    }
    /// Appends another shard's answer. If this reply has no bytes yet, it takes the answer's
    /// buffer, and its own empty one is returned.
    pub fn take(&mut self, answer: Answer, worker: usize) -> Vec<u8> {
        let Answer { bytes, lent, rest } = answer;
        self.rest = rest;
        if lent.is_empty() && self.has_nothing() && self.taken == 0 {
            return std::mem::replace(&mut self.bytes, bytes);
        }
        let mut from = 0;
        for lent in lent {
            self.bytes.extend_from_slice(&bytes[from..lent.before]);
            from = lent.before;
            self.cover();
            self.parts.push_back(Part::Pinned {
                ptr: std::ptr::with_exposed_provenance(lent.address),
                len: lent.len,
                pin: pin_of(worker, lent.pin),
            });
        }
        self.bytes.extend_from_slice(&bytes[from..]);
        bytes
    }
    /// Adds the bytes appended since the last part as a new part.
    fn cover(&mut self) {
        let len = self.bytes.len() - self.covered;
        if len > 0 {
            self.parts.push_back(Part::Bytes(len));
            self.covered = self.bytes.len();
        }
    }
    /// Whether there is nothing to send and nothing to come.
    fn is_empty(&self) -> bool {
        self.has_nothing() && self.rest.is_none()
    }
    /// Whether there is nothing to send now.
    fn has_nothing(&self) -> bool {
        self.bytes.len() == self.taken && self.parts.is_empty()
    }
    fn len(&self) -> usize {
        let beyond: usize = self
            .parts
            .iter()
            .map(|part| match part {
                Part::Bytes(_) => 0,
                Part::Page(_, range) => range.len(),
                Part::Pinned { len, .. } => *len,
            })
            .sum();
        self.bytes.len() - self.taken + beyond
    }
    /// Bytes of memory that it takes, if it has an answer.
    fn memory(&self) -> usize {
        match self.is_empty() {
            true => 0,
            false => self.bytes.capacity() + self.parts.capacity() * size_of::<Part>(),
        }
    }
    /// Empties it for reuse; its pins go to `unpinned`.
    fn reset(&mut self, unpinned: &mut Vec<u64>) {
        self.bytes.clear();
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
        while let Some(part) = self.parts.pop_front() {
            if let Part::Pinned { pin, .. } = part {
                unpinned.push(pin);
            }
        }
        (self.taken, self.covered, self.waiting) = (0, 0, false);
        self.rest = None;
    }
}

/// A reply's place, which stays valid while the queue moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

/// The answers of one connection.
#[derive(Debug, Default)]
pub struct ReplyQueue {
    replies: VecDeque<Reply>,
    /// Number of the front reply.
    front: u64,
    waiting: usize,
    spare: Vec<Reply>,
    units: bool,
}

impl Drop for ReplyQueue {
    fn drop(&mut self) {
        let kept: usize = self.spare.iter().map(|reply| reply.bytes.capacity()).sum();
        // Sessions end on the thread on which they lived; in a test they may not.
        KEPT_NOW.set(KEPT_NOW.get().saturating_sub(kept));
    }
}

impl ReplyQueue {
    /// An empty queue; with `units`, one in which each command has its own reply.
    pub fn new(units: bool) -> ReplyQueue {
        let mut queue = ReplyQueue::default();
        queue.units = units;
        queue
    }
    /// The number of replies of any kind.
    pub fn len(&self) -> usize {
        self.replies.len()
    }
    /// The number of replies for which there is room.
    pub fn capacity(&self) -> usize {
        self.replies.capacity()
    }
    /// The number of replies that wait for flash or another shard.
    pub fn waiting(&self) -> usize {
        self.waiting
    }
    /// Whether there is nothing to send and nothing to wait for.
    pub fn is_empty(&self) -> bool {
        self.replies
            .iter()
            .all(|reply| !reply.waiting && reply.is_empty())
    }
    /// Whether something can be sent now.
    pub fn sendable(&self) -> bool {
        for reply in &self.replies {
            if reply.waiting || !reply.has_nothing() {
                return !reply.waiting;
            }
            if reply.rest.is_some() {
                break;
            }
        }
        false
    }

    // ---- a value that is being read ----

    /// The first reply, if the rest of its value is being read.
    fn streaming(&mut self) -> Option<&mut Reply> {
        let mut replies = self.replies.iter_mut();
        let first = replies.find(|reply| reply.waiting || !reply.is_empty())?;
        (!first.waiting && first.rest.is_some()).then_some(first)
    }
    /// The window of the first reply, if it may read another piece and have `most` ahead.
    pub(crate) fn wanting(&mut self, most: usize) -> Option<&mut Window> {
        let reply = self.streaming()?;
        let unsent = reply.pages();
        let rest = reply.rest.as_deref_mut();
        rest.filter(|rest| rest.wants(unsent, most))
    }
    /// The window of the first reply.
    pub(crate) fn window(&mut self) -> Option<&mut Window> {
        self.streaming()?.rest.as_deref_mut()
    }
    /// Takes a piece of the first reply's value.
    pub(crate) fn came(&mut self, ticket: u16, frame: PageBuf, range: Range<usize>) {
        if let Some(reply) = self.streaming() {
            if let Some(rest) = &mut reply.rest {
                rest.came(ticket, frame, range);
            }
            reply.go_on();
        }
    }
    /// Whether reclaim has waited for one of the values for this long.
    pub(crate) fn stalls(&mut self, now_ms: u64, limit_ms: u64) -> bool {
        let mut rests = self
            .replies
            .iter_mut()
            .filter_map(|reply| reply.rest.as_mut());
        rests.any(|rest| rest.stalls(now_ms, limit_ms))
    }
    /// Whether a reply before this one waits.
    pub(crate) fn waits_before(&self, place: Place) -> bool {
        let before = (place.0 - self.front) as usize;
        self.waiting > 1 && self.replies.iter().take(before).any(|reply| reply.waiting)
    }
    /// The place of the first reply, if it waits. Empty replies before it do not count.
    pub(crate) fn front_waiting(&self) -> Option<Place> {
        let index = self
            .replies
            .iter()
            .position(|reply| reply.waiting || !reply.is_empty())?;
        self.replies[index]
            .waiting
            .then_some(Place(self.front + index as u64))
    }
    /// Bytes in the queue, including frames and pinned memory, and values that are being read.
    pub fn queued_bytes(&self) -> usize {
        let rest = |reply: &Reply| reply.rest.as_ref().map_or(0, |rest| rest.left());
        let all = self.replies.iter();
        all.map(|reply| reply.len() + rest(reply)).sum()
    }
    /// The memory of the replies' own bytes (without frames and item memory), and how much of it
    /// can be sent now. An empty reply counts nothing: it keeps the room of an earlier one, and
    /// such room is bounded for all connections together ([`KEPT_IN_ALL`]).
    pub fn owned_memory(&self) -> (usize, usize) {
        let (mut owned, mut ready, mut waits) = (0, 0, false);
        for reply in &self.replies {
            waits |= reply.waiting;
            let memory = reply.memory();
            owned += memory;
            ready += if waits { 0 } else { memory };
            waits |= reply.rest.is_some();
        }
        (owned, ready)
    }

    /// Gives up memory that the replies do not use. Call it when they will wait for long.
    pub fn fit(&mut self) {
        for reply in &mut self.replies {
            let held = reply.bytes.len();
            if reply.bytes.capacity() > held + held / 4 {
                reply.bytes.shrink_to_fit();
            }
        }
    }
    /// Lengths and pins of the item memory in the replies.
    pub fn pinned(&self) -> impl Iterator<Item = (usize, u64)> {
        let parts = self.replies.iter().flat_map(|reply| &reply.parts);
        parts.filter_map(|part| match part {
            Part::Pinned { len, pin, .. } => Some((*len, *pin)),
            Part::Bytes(_) | Part::Page(..) => None,
        })
    }
    /// Frames held by replies that are not yet in a batch.
    pub fn pages(&self) -> usize {
        self.replies.iter().map(Reply::pages).sum()
    }
    /// Parts (frames, pins, runs of bytes) in the queue.
    pub fn parts(&self) -> usize {
        self.replies.iter().map(|reply| reply.parts.len()).sum()
    }

    /// The reply to which the next command writes.
    #[inline]
    pub(crate) fn begin(&mut self) -> Place {
        let ends = |reply: &Reply| reply.waiting || reply.rest.is_some();
        if self.units || self.replies.back().is_none_or(ends) {
            let reply = self.recycled();
            self.replies.push_back(reply);
        }
        Place(self.front + self.replies.len() as u64 - 1)
    }
    /// As [`ReplyQueue::begin`], for a command that is answered at once.
    #[inline]
    pub(crate) fn open(&mut self) -> &mut Reply {
        let place = self.begin();
        self.at(place)
    }
    /// As [`ReplyQueue::begin`], for a command that waits.
    pub(crate) fn reserve(&mut self) -> Place {
        let place = self.begin();
        self.wait(place)
    }
    #[inline]
    pub(crate) fn at(&mut self, place: Place) -> &mut Reply {
        let index = (place.0 - self.front) as usize;
        &mut self.replies[index]
    }
    /// Makes the command that began at `place`, and has written nothing, wait. Returns the place of
    /// its own reply.
    pub(crate) fn wait(&mut self, place: Place) -> Place {
        self.waiting += 1;
        let mut place = place;
        if !self.units && !self.at(place).is_empty() {
            let reply = self.recycled();
            self.replies.push_back(reply);
            place = Place(self.front + self.replies.len() as u64 - 1);
        }
        self.at(place).waiting = true;
        place
    }
    /// Ends the wait at `place`: its reply is complete.
    pub(crate) fn ready(&mut self, place: Place) {
        let reply = self.at(place);
        debug_assert!(reply.waiting);
        reply.waiting = false;
        self.waiting -= 1;
        // Empty answers (`noreply`) are not sent.
        while !self.units
            && self.replies.len() > 1
            && (self.replies.front()).is_some_and(|reply| !reply.waiting && reply.is_empty())
        {
            self.drop_front(&mut Vec::new());
        }
    }

    fn drop_front(&mut self, unpinned: &mut Vec<u64>) {
        if let Some(mut reply) = self.replies.pop_front() {
            self.front += 1;
            reply.reset(unpinned);
            self.recycle(reply);
            if self.replies.is_empty() {
                self.replies.shrink_to(KEPT_PLACES);
            }
        }
    }

    /// An empty reply, with the buffer of an earlier one if there is one.
    #[inline]
    fn recycled(&mut self) -> Reply {
        let Some(reply) = self.spare.pop() else {
            return Reply::default();
        };
        KEPT_NOW.set(KEPT_NOW.get().saturating_sub(reply.bytes.capacity()));
        reply
    }

    fn recycle(&mut self, mut reply: Reply) {
        if self.spare.len() == SPARE {
            return;
        }
        let kept = KEPT_NOW.get();
        if kept + reply.bytes.capacity() > KEPT_IN_ALL {
            reply.bytes = Vec::new();
        }
        KEPT_NOW.set(kept + reply.bytes.capacity());
        self.spare.push(reply);
    }

    /// Moves replies that can be sent into `batch` (which must be empty), up to [`BATCH_PIECES`]
    /// pieces and about [`BATCH_BYTES`] bytes. False if there was nothing.
    pub fn fill_batch(&mut self, batch: &mut SendBatch) -> bool {
        debug_assert!(batch.bytes.is_empty() && batch.pieces.is_empty());
        let mut total = 0;
        // This is never pushed to, because a reply is dropped here only after its parts have moved
        // on.
        let mut unpinned = Vec::new();
        while let Some(reply) = self.replies.front_mut() {
            if reply.waiting {
                break;
            }
            if batch.bytes.is_empty()
                && batch.pieces.is_empty()
                && reply.parts.is_empty()
                && reply.taken == 0
                && reply.rest.is_none()
            {
                // The usual case: a single buffer of bytes moves as a whole.
                std::mem::swap(&mut batch.bytes, &mut reply.bytes);
                total = batch.bytes.len();
            } else if !take(reply, batch, &mut total) || reply.rest.is_some() {
                break;
            }
            self.drop_front(&mut unpinned);
            if total >= BATCH_BYTES || batch.pieces.len() >= BATCH_PIECES {
                break;
            }
        }
        total > 0
    }

    /// Copies the frames in the queue into bytes, so that the frames are free for other
    /// connections.
    pub fn spill(&mut self) {
        for reply in self
            .replies
            .iter_mut()
            .filter(|reply| !reply.parts.is_empty())
        {
            reply.cover();
            let pinned = reply.parts.iter().map(Part::pinned).sum::<usize>();
            let mut bytes = Vec::with_capacity(reply.len() - pinned);
            let mut parts = VecDeque::new();
            let mut at = reply.taken;
            for part in reply.parts.drain(..) {
                let before = bytes.len();
                match part {
                    Part::Bytes(len) => {
                        bytes.extend_from_slice(&reply.bytes[at..at + len]);
                        at += len;
                    }
                    Part::Page(buf, range) => bytes.extend_from_slice(&buf[range]),
                    pinned => {
                        parts.push_back(pinned);
                        continue;
                    }
                }
                parts.push_back(Part::Bytes(bytes.len() - before));
            }
            (reply.taken, reply.covered) = (0, bytes.len());
            reply.bytes = bytes;
            reply.parts = parts;
        }
    }

    /// Whether [`ReplyQueue::next_unit`] would return a unit.
    pub fn has_unit(&self) -> bool {
        self.replies.front().is_some_and(|reply| !reply.waiting)
    }

    /// The next complete unit, in order (only of a queue made with units). `empty` may return a
    /// buffer for a later unit in exchange.
    pub fn next_unit(&mut self, empty: impl FnOnce() -> Option<Vec<u8>>) -> Option<Answer> {
        debug_assert!(self.units);
        let reply = self.replies.front_mut().filter(|reply| !reply.waiting)?;
        let (mut lent, mut before) = (Vec::new(), 0);
        for part in reply.parts.drain(..) {
            match part {
                Part::Bytes(len) => before += len,
                Part::Pinned { ptr, len, pin } => lent.push(Lent {
                    before,
                    address: ptr.expose_provenance(),
                    len,
                    pin,
                }),
                Part::Page(..) => unreachable!("a frame is its loop's: what it held was copied"),
            }
        }
        let bytes = std::mem::replace(&mut reply.bytes, empty().unwrap_or_default());
        let rest = reply.rest.take();
        self.drop_front(&mut Vec::new());
        Some(Answer { bytes, lent, rest })
    }

    /// Moves the next complete unit into `batch` (which must be empty), if it is not empty, has
    /// only bytes, all of them, and at most `most`.
    pub fn unit_batch(&mut self, batch: &mut SendBatch, most: usize) -> bool {
        debug_assert!(self.units && batch.bytes.is_empty() && batch.pieces.is_empty());
        let Some(reply) = self.replies.front_mut().filter(|reply| !reply.waiting) else {
            return false;
        };
        let whole = reply.parts.is_empty() && reply.rest.is_none();
        if !whole || !(1..=most).contains(&reply.bytes.len()) {
            return false;
        }
        std::mem::swap(&mut batch.bytes, &mut reply.bytes);
        self.drop_front(&mut Vec::new());
        true
    }

    /// Whether the reply at `place` waits, and is the only one.
    pub(crate) fn is_all(&self, place: Place) -> bool {
        self.waiting == 1
            && self.front_waiting() == Some(place)
            && self.replies.iter().all(Reply::is_empty)
    }

    /// Drops everything; pins go to `unpinned`.
    pub(crate) fn clear(&mut self, unpinned: &mut Vec<u64>) {
        while !self.replies.is_empty() {
            self.drop_front(unpinned);
        }
        self.waiting = 0;
    }
}

/// Moves the parts of a ready reply into a batch; false if the batch is full before its end.
fn take(reply: &mut Reply, batch: &mut SendBatch, total: &mut usize) -> bool {
    reply.cover();
    if batch.pieces.is_empty() && !batch.bytes.is_empty() {
        batch.pieces.push(Piece::Bytes(0..batch.bytes.len()));
    }
    while let Some(part) = reply.parts.pop_front() {
        if batch.pieces.len() >= BATCH_PIECES || *total >= BATCH_BYTES {
            reply.parts.push_front(part);
            return false;
        }
        match part {
            Part::Bytes(len) => {
                let start = batch.bytes.len();
                batch
                    .bytes
                    .extend_from_slice(&reply.bytes[reply.taken..reply.taken + len]);
                reply.taken += len;
                *total += len;
                match batch.pieces.last_mut() {
                    Some(Piece::Bytes(range)) if range.end == start => range.end += len,
                    _ => batch.pieces.push(Piece::Bytes(start..start + len)),
                }
            }
            Part::Page(buf, range) => {
                *total += range.len();
                batch.pieces.push(Piece::Page(buf, range));
            }
            Part::Pinned { ptr, len, pin } => {
                *total += len;
                // SAFETY: the bytes are those of an item that a shard has pinned (`Reply::pinned`;
                // nothing outside this crate calls it). A shard keeps a pinned item's memory,
                // changes nothing in it, and lives as long as its server's loops
                // (`Mesh::release_memory`). The pin is returned only after the piece was dropped,
                // because the batch keeps it until then.
                let bytes = unsafe { PinnedBytes::new(ptr, len, pin) };
                batch.pieces.push(Piece::Pinned(bytes));
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(queue: &mut ReplyQueue) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let mut batch = SendBatch::default();
            if !queue.fill_batch(&mut batch) {
                return all;
            }
            if batch.pieces.is_empty() {
                all.extend_from_slice(&batch.bytes);
            }
            for piece in &batch.pieces {
                match piece {
                    Piece::Bytes(range) => all.extend_from_slice(&batch.bytes[range.clone()]),
                    other => panic!("unexpected piece {other:?}"),
                }
            }
        }
    }

    #[test]
    fn waiting_replies_hold_back_what_follows() {
        let mut queue = ReplyQueue::new(false);
        queue.open().line("one");
        let slot = queue.reserve();
        queue.open().line("three");
        queue.open().line("four");
        assert_eq!(sent(&mut queue), b"one\r\n");
        assert!(!queue.is_empty() && !queue.sendable());
        queue.at(slot).line("two");
        queue.ready(slot);
        assert_eq!(sent(&mut queue), b"two\r\nthree\r\nfour\r\n");
        assert!(queue.is_empty());
    }

    #[test]
    fn units_stay_apart() {
        let mut queue = ReplyQueue::new(true);
        let first = queue.reserve();
        let second = queue.begin();
        queue.at(second).line("b");
        queue.begin();
        assert!(queue.next_unit(|| None).is_none());
        queue.at(first).line("a");
        queue.ready(first);
        let mut next = || queue.next_unit(|| None).map(|answer| answer.bytes);
        assert_eq!(next().as_deref(), Some(b"a\r\n".as_slice()));
        assert_eq!(next().as_deref(), Some(b"b\r\n".as_slice()));
        assert_eq!(next().as_deref(), Some(b"".as_slice()));
        assert_eq!(next(), None);
    }

    #[test]
    fn empty_answers_do_not_gather() {
        let mut queue = ReplyQueue::new(false);
        for _ in 0..100 {
            let first = queue.reserve();
            let second = queue.reserve();
            queue.begin();
            queue.ready(second);
            queue.ready(first);
            assert!(queue.replies.len() <= 2 && queue.is_empty());
        }
    }

    /// Memory was taken for what is not copied. So a connection with 3 MB in place counted as one
    /// that holds 3 MB, and others were closed for it.
    #[test]
    fn memory_in_place_takes_none_when_frames_are_copied() {
        let value = vec![b'v'; 3 << 20];
        let mut queue = ReplyQueue::new(false);
        let mut there = Reply::default();
        there.bytes.extend_from_slice(b"VALUE k 0 3145728\r\n");
        there.pinned(&value, 7);
        there.bytes.extend_from_slice(b"\r\nEND\r\n");
        *queue.open() = there;
        queue.spill();
        let (owned, ready) = queue.owned_memory();
        assert!(owned == ready && ready < 4096, "{owned} {ready}");
        assert_eq!(queue.pinned().map(|(len, _)| len).sum::<usize>(), 3 << 20);
    }

    #[test]
    fn what_another_shard_lends_stays_in_its_place() {
        let memory = b"0123456789";
        let mut there = ReplyQueue::new(true);
        let reply = there.open();
        reply.bytes.extend_from_slice(b"VALUE ");
        reply.pinned(&memory[..4], 7);
        reply.pinned(&memory[4..], 8);
        reply.bytes.extend_from_slice(b"\r\nEND\r\n");
        let mut answer = there.next_unit(|| None).expect("one");
        answer.strip(b"END\r\n");
        assert_eq!(
            answer.pins(2).map(worker_of).collect::<Vec<_>>(),
            [(Some(2), 7), (Some(2), 8)]
        );
        assert_eq!(worker_of(7), (None, 7));
        let mut here = ReplyQueue::new(false);
        here.open().line("before");
        let place = here.reserve();
        let left = here.at(place).take(answer, 2);
        here.ready(place);
        assert_eq!(left, b"VALUE \r\n");
        let mut batch = SendBatch::default();
        assert!(here.fill_batch(&mut batch) && here.is_empty());
        let mut pins = Vec::new();
        batch.spill(0, &mut pins);
        assert_eq!(batch.bytes, b"before\r\nVALUE 0123456789\r\n");
        assert_eq!(pins, [pin_of(2, 7), pin_of(2, 8)]);
    }
}
