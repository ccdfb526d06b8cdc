// SPDX-License-Identifier: Apache-2.0
//! Device operations of a worker that ended, and whether frames were returned.

use std::collections::VecDeque;

use senko_io::Completion;

/// Ended device reads that are handled in any round.
const TURN: usize = 16;

#[derive(Default)]
pub(super) struct Disk {
    /// Reads that ended and were not handled yet.
    ended: VecDeque<Completion>,
    /// Whether an operation was handled since the last question.
    moved: bool,
    /// Operations handled so far, now and at the last call of [`Disk::stands_still`].
    taken: u64,
    taken_before: u64,
    /// Whether frames may have been returned since the shard was told.
    frames_freed: bool,
}

impl Disk {
    pub fn ended(&mut self, completion: Completion) {
        self.ended.push_back(completion);
    }
    /// Reads that ended and wait to be handled.
    pub fn waiting(&self) -> &VecDeque<Completion> {
        &self.ended
    }
    /// How many of them this round handles, if it had this many requests: one more for each eight
    /// requests, or a sixteenth of all.
    pub fn turn(&self, requests: usize) -> usize {
        let turn = (TURN + requests / 8).max(self.ended.len() / 16);
        turn.min(self.ended.len())
    }
    pub fn next(&mut self) -> Option<Completion> {
        self.ended.pop_front()
    }

    /// Passes an ended operation to the shard.
    pub fn taken(&mut self) {
        self.moved = true;
        self.taken += 1;
    }
    /// Whether any was passed to the shard since the last call.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }
    /// The same, without resetting the answer.
    pub fn has_moved(&self) -> bool {
        self.moved
    }
    /// Whether nothing ended since the last call, although `under_way` operations are at a device,
    /// or none are. A device that does not answer makes no progress either.
    pub fn stands_still(&mut self, under_way: usize) -> bool {
        let before = std::mem::replace(&mut self.taken_before, self.taken);
        let busy = under_way > 0 || !self.ended.is_empty();
        !busy || before == self.taken
    }

    /// Notes that frames may have been returned, if `freed`.
    pub fn frames_freed(&mut self, freed: bool) {
        self.frames_freed |= freed;
    }
    /// Whether frames may have been returned since the last call.
    pub fn take_frames_freed(&mut self) -> bool {
        std::mem::take(&mut self.frames_freed)
    }
}
