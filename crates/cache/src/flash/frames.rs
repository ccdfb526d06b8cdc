// SPDX-License-Identifier: Apache-2.0
//! Frames for reads: a read waits for one, fills it from write buffers or the device, and ends.
//!
//! ```text
//! start --> begin --> waiting --> reading --> ready --> taken by the shard --> end
//!              \--> all pages are in write buffers -------^          \--> parked, until there is memory
//! ```
//!
//! A record larger than a frame that comes to DRAM is read by helpers, a few at a time. The read
//! that found it, their owner, keeps the region. If it ends early, their frames come back.
//!
//! `shard/fetch.rs` looks at the data. Always holds: from the time it gets a frame until it ends, a
//! read that is no helper prevents the reclaim of its region.

use senko_io::{Completion, PageBuf, Purpose, Queue, Tag};

use super::health::{LOST_READ_MS, SILENT_MS};
use super::log::Log;
use super::read::{ReadOp, Stage};
use super::{Flash, TOKEN_READ, token};
use crate::index::Slot;
use crate::key::Key;
use crate::types::{FRAME_PAGES, Want};

impl Flash {
    /// Starts a read of a slot's record, which begins at this position of this log.
    /// [`Flash::begin`] continues it.
    pub fn start_read(
        &mut self,
        key: &Key<'_>,
        want: Want,
        user: u64,
        slot: Slot,
        (log, position): (usize, u64),
    ) -> u32 {
        let n = self.reads.start(key, want, user, slot);
        let op = self.reads.op(n);
        (op.log, op.position) = (log, position);
        op.pages = want.pages(slot.len()) as u64;
        n
    }

    /// A read in flight.
    pub fn read(&self, n: u32) -> &ReadOp {
        self.reads.look(n)
    }
    /// The same, for continuing with a record larger than a frame.
    pub fn read_mut(&mut self, n: u32) -> &mut ReadOp {
        self.reads.op(n)
    }

    /// Gets a frame and fills it from write buffers, or asks the device; true if all pages are here
    /// now.
    pub fn begin<Q: Queue>(&mut self, queue: &mut Q, n: u32) -> bool {
        // Frames go to the reads that have waited longest. Otherwise an answer could overtake an
        // earlier answer of its connection, and hold its frame until the earlier one got a frame.
        let frame = if !self.frames_wanted() {
            queue.frame(self.reads.op(n).pages as usize)
        } else {
            None
        };
        match frame {
            Some(frame) => self.read_piece(queue, n, frame),
            None => {
                let op = self.reads.op(n);
                op.stage = Stage::Waiting;
                op.since_ms = self.steady_ms;
                self.reads.waiting.push_back(n);
                false
            }
        }
    }

    /// Notes that a read's slot is that of a sorted record, or is not.
    pub fn tries(&mut self, n: u32, is_narrow: bool) {
        self.reads.op(n).try_slot(is_narrow);
    }

    /// Continues a read with the page of another slot, in the same frame. The read then waits for
    /// the device, or its page is here.
    pub fn read_other<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: u32,
        frame: PageBuf,
        slot: Slot,
        place: (usize, u64),
    ) {
        let op = self.reads.op(n);
        if std::mem::take(&mut op.pinned) {
            let (log, position) = (op.log, op.position);
            self.logs[log].pin(position, false);
            self.reads.unpinned |= self.reclaims[log].is_active();
        }
        let op = self.reads.op(n);
        op.go_on(slot, place);
        op.pages = 1;
        self.read_piece(queue, n, frame);
    }

    /// Reads the op's current piece into a frame; true if all its pages were in write buffers.
    pub fn read_piece<Q: Queue>(&mut self, queue: &mut Q, n: u32, mut frame: PageBuf) -> bool {
        let op = self.reads.op(n);
        let log = &mut self.logs[op.log];
        if !op.pinned && op.owner.is_none() {
            op.pinned = true;
            log.pin(op.position, true);
        }
        let first = op.position + op.piece;
        let from_device = log.copy_buffered(first, op.pages, &mut frame);
        if from_device == 0 {
            op.stage = Stage::Here(Ok(frame));
            return true;
        }
        let purpose = if op.piece == 0 {
            Purpose::Lookup
        } else {
            Purpose::LookupRest
        };
        let (device, page) = (log.device(), log.device_page(first));
        op.stage = Stage::Reading;
        op.since_ms = self.steady_ms;
        log.health.begin(self.steady_ms);
        self.reads.in_flight += 1;
        queue.read(
            device,
            page,
            from_device as usize,
            frame,
            Tag::cache(purpose),
            token(TOKEN_READ, self.shard, u64::from(n)),
        );
        false
    }

    /// Starts a helper for the next piece of a large record, in this frame, or in a new one if
    /// nobody else wants it. The helper then waits for the device, or its piece is here. `None` if
    /// there is no frame, or all pieces have begun.
    pub fn start_helper<Q: Queue>(
        &mut self,
        queue: &mut Q,
        owner: u32,
        frame: Option<PageBuf>,
    ) -> Option<u32> {
        let free = |queue: &mut Q| match self.frames_wanted() {
            true => None,
            false => queue.frame(FRAME_PAGES),
        };
        let frame = frame.or_else(|| free(queue))?;
        let op = self.reads.op(owner);
        let (piece, hash) = (op.next_piece()?, op.hash());
        let (user, want, slot) = (op.user, op.want(), op.slot());
        let (log, position) = (op.log, op.position);
        let key = Key { bytes: &[], hash };
        let n = self.reads.start(&key, want, user, slot);
        let op = self.reads.op(n);
        (op.log, op.position, op.owner) = (log, position, Some(owner));
        op.take_on(piece);
        self.read_piece(queue, n, frame);
        Some(n)
    }

    /// Continues a helper with the next piece, in the same frame, or ends it. True if the piece is
    /// here.
    pub fn help_on<Q: Queue>(&mut self, queue: &mut Q, n: u32, frame: PageBuf) -> bool {
        let owner = self.reads.look(n).owner;
        match owner.and_then(|owner| self.reads.op(owner).next_piece()) {
            Some(piece) => {
                self.reads.op(n).take_on(piece);
                self.read_piece(queue, n, frame)
            }
            None => {
                self.reads.end(n);
                false
            }
        }
    }

    /// Ends the helpers of a read that ends early.
    pub fn end_helpers(&mut self, owner: u32) {
        for n in 0..self.reads.len() {
            let op = self.reads.op(n);
            if op.owner != Some(owner) {
                continue;
            }
            if matches!(op.stage, Stage::Reading) {
                (op.stage, op.owner) = (Stage::LeftToDevice, None);
            } else {
                self.reads.ready.retain(|&other| other != n);
                self.reads.end(n);
            }
        }
    }

    /// Handles a read that the device ended. Returns three things: the read's log, whether only the
    /// device still knew of the read, and whether the state of the log's device became worse. In
    /// the second case the read's frame is free now.
    pub fn read_ended(&mut self, n: u32, completion: Completion) -> (usize, bool, bool) {
        self.reads.in_flight -= 1;
        let op = self.reads.op(n);
        let n_log = op.log;
        let log = &mut self.logs[n_log];
        log.health.end(self.steady_ms);
        let worse = log.health.note_read(completion.result, self.steady_ms);
        let left = matches!(op.stage, Stage::LeftToDevice);
        if left {
            self.reads.end(n);
            drop(completion);
        } else {
            let result = match (completion.result, completion.buf) {
                (Ok(()), Some(buf)) => Ok(buf),
                _ => Err(()),
            };
            op.stage = Stage::Here(result);
            self.reads.ready.push_back(n);
        }
        (n_log, left, worse)
    }

    /// Whether the next frames are for certain reads: those that wait for one, or those of others
    /// ([`Flash::hold_frames`]).
    pub fn frames_wanted(&self) -> bool {
        self.frames_held || !self.reads.waiting.is_empty()
    }
    /// Notes whether free frames are for others than waiting reads.
    pub fn hold_frames(&mut self, held: bool) {
        self.frames_held = held;
    }
    /// Notes whether a device holds frames for reads that are unknown here.
    pub fn set_frames_lost(&mut self, lost: bool) {
        self.frames_lost = lost;
    }

    /// Lets waiting reads start after frames were returned (answers were sent).
    pub fn frames_freed<Q: Queue>(&mut self, queue: &mut Q) {
        while let Some(&n) = self.reads.waiting.front() {
            let op = self.reads.op(n);
            if op.position < self.logs[op.log].tail() {
                op.stage = Stage::Gone;
                self.reads.waiting.pop_front();
                self.reads.ready.push_back(n);
                continue;
            }
            let pages = op.pages as usize;
            let Some(frame) = (!self.frames_held).then(|| queue.frame(pages)).flatten() else {
                return;
            };
            self.reads.waiting.pop_front();
            if self.read_piece(queue, n, frame) {
                self.reads.ready.push_back(n);
            }
        }
    }

    /// The read whose frame arrived first. If there is none, free frames are given to waiting reads
    /// first.
    pub fn next_ready<Q: Queue>(&mut self, queue: &mut Q) -> Option<u32> {
        if self.reads.ready.is_empty() {
            self.frames_freed(queue);
        }
        self.reads.ready.pop_front()
    }

    /// Takes the result of a read.
    pub fn take_stage(&mut self, n: u32) -> Stage {
        std::mem::replace(&mut self.reads.op(n).stage, Stage::Idle)
    }
    /// Notes that the item of a read waits for memory.
    pub fn park(&mut self, n: u32, frame: PageBuf) {
        self.reads.op(n).stage = Stage::Here(Ok(frame));
        self.reads.parked.push(n);
    }
    /// Retries items that waited for memory.
    pub fn retry_parked(&mut self) {
        while let Some(n) = self.reads.parked.pop() {
            self.reads.ready.push_back(n);
        }
    }

    /// Ends a read: its number is free, and its region may be reclaimed. Returns its purpose.
    pub fn end_read(&mut self, n: u32) -> u64 {
        let op = self.reads.op(n);
        let (user, log, position, pinned) = (op.user, op.log, op.position, op.pinned);
        self.reads.end(n);
        if pinned {
            self.logs[log].pin(position, false);
            self.reads.unpinned |= self.reclaims[log].is_active();
        }
        user
    }
    /// Whether reads or streams have ended since the last call for which a reclaim may have waited.
    pub fn take_unpinned(&mut self) -> bool {
        let mut logs = self.logs.iter();
        logs.any(|log| log.streams().take_freed()) | std::mem::take(&mut self.reads.unpinned)
    }

    /// Ends reads that a device has held for too long, and reads that wait for a frame which a
    /// device out of use may hold.
    pub fn give_up_old_reads(&mut self) {
        if self.reads.in_flight == 0 && self.reads.waiting.is_empty() {
            return;
        }
        let now = self.steady_ms;
        let held = |log: &Log| log.health().is_out() && log.health().is_busy();
        let frames_held = self.frames_lost || self.logs.iter().any(held);
        for n in 0..self.reads.len() {
            let op = self.reads.op(n);
            let age = now.saturating_sub(op.since_ms);
            let late = match op.stage {
                Stage::Reading => age > LOST_READ_MS,
                Stage::Waiting => frames_held && age > SILENT_MS,
                _ => false,
            };
            if late {
                self.give_up(n);
            }
        }
    }

    /// Ends all reads of a log whose device is out of use.
    pub fn give_up_reads_of(&mut self, log: usize) {
        for n in 0..self.reads.len() {
            if self.reads.op(n).log == log {
                self.give_up(n);
            }
        }
    }

    /// Ends a read that is at the device or waits for a frame, as a read that found nothing.
    fn give_up(&mut self, n: u32) {
        match self.reads.op(n).stage {
            Stage::Waiting => {
                self.reads.waiting.retain(|&other| other != n);
                self.reads.op(n).stage = Stage::GivenUp;
                self.reads.ready.push_back(n);
            }
            // The device has this read's number, so another number takes over its purpose.
            Stage::Reading => {
                let heir = self.reads.leave_to_device(n);
                self.reads.ready.push_back(heir);
            }
            _ => {}
        }
    }
}
