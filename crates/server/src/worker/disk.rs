// SPDX-License-Identifier: Apache-2.0
//! Device operations of a worker that ended, and whether frames came back.

use std::collections::VecDeque;

use senko_io::Completion;

/// Device reads that ended: this many are looked at in any round.
const TURN: usize = 16;

/// A worker's state of its devices' operations.
#[derive(Default)]
pub(super) struct Disk {
    /// Reads that ended and were not looked at yet.
    ended: VecDeque<Completion>,
    /// An operation was taken since this was asked last.
    moved: bool,
    /// Operations that were taken, now and when [`Disk::stands_still`] was asked last.
    taken: u64,
    taken_before: u64,
    /// Frames may have been returned since the shard was told.
    frames_freed: bool,
}

impl Disk {
    /// A read ended.
    pub fn ended(&mut self, completion: Completion) {
        self.ended.push_back(completion);
    }
    /// Reads that ended and wait to be looked at.
    pub fn waiting(&self) -> &VecDeque<Completion> {
        &self.ended
    }
    /// How many of them this round looks at, which had this many requests. One more for each eight
    /// requests, or a sixteenth of all.
    pub fn turn(&self, requests: usize) -> usize {
        let turn = (TURN + requests / 8).max(self.ended.len() / 16);
        turn.min(self.ended.len())
    }
    /// The next of them.
    pub fn next(&mut self) -> Option<Completion> {
        self.ended.pop_front()
    }

    /// An operation that ended goes to the shard.
    pub fn taken(&mut self) {
        self.moved = true;
        self.taken += 1;
    }
    /// Whether any has gone there since this was asked last.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }
    /// The same, but it will be asked again.
    pub fn has_moved(&self) -> bool {
        self.moved
    }
    /// Whether nothing ended since this was asked last, though `under_way` operations are with a
    /// device, or there are none: a device that does not answer moves nothing either.
    pub fn stands_still(&mut self, under_way: usize) -> bool {
        let before = std::mem::replace(&mut self.taken_before, self.taken);
        let busy = under_way > 0 || !self.ended.is_empty();
        !busy || before == self.taken
    }

    /// Frames may have come back, if `freed`.
    pub fn frames_freed(&mut self, freed: bool) {
        self.frames_freed |= freed;
    }
    /// Whether frames may have come back since this was asked last.
    pub fn take_frames_freed(&mut self) -> bool {
        std::mem::take(&mut self.frames_freed)
    }
}
