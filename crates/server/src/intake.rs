// SPDX-License-Identifier: Apache-2.0
//! The memory for arriving values: a budget for each shard, shared by the connections of all
//! workers.
//!
//! A value gets its memory when its command line arrives. Its client may then send the rest slowly
//! or never. Without a bound such values push every item out of DRAM.
//!
//! ```text
//! begin_store -> Intake::take -> the value comes in -> it ends, however -> Intake::give_back
//!                   | no room
//!                   `-> Wait::Room: the sender waits at its socket,
//!                       and Worker::admit_values tries again
//! ```
//!
//! - INTAKE-1. Arriving values hold at most an eighth of a shard's memory for items ([`SHARE`]). A
//!   single value may hold more, so that the largest item can be stored. A value that came whole
//!   with its line counts nothing here.
//! - INTAKE-2. A connection holds memory for one value at a time, and gives it back when that value
//!   ends, with or without success.
//! - INTAKE-3. While others wait for a shard's memory, a value gives up its memory if less than
//!   [`STEP`] bytes of it came within [`STILL_MS`]. Its command is answered
//!   `SERVER_ERROR out of memory storing object`, and the rest of the value is skipped.
//! - INTAKE-4. Waiting values are admitted in turn from both ends of their queue. So a newcomer
//!   waits at most for the next memory that is given up, however long the queue is. And newcomers
//!   do not block the first ones.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// INTAKE-1: this fraction of the shard's memory for items.
pub(crate) const SHARE: usize = 8;
/// INTAKE-3: this many bytes have to come within [`STILL_MS`].
pub(crate) const STEP: usize = 16 << 10;
/// INTAKE-3: milliseconds.
pub(crate) const STILL_MS: u64 = 500;

/// One shard's budget.
#[derive(Debug)]
pub struct Intake {
    held: AtomicUsize,
    most: AtomicUsize,
    /// How often a request for memory was refused.
    refusals: AtomicU64,
    /// Raised whenever memory is given back.
    returns: AtomicU64,
}

impl Default for Intake {
    /// Without a bound, until a shard tells its size.
    fn default() -> Intake {
        Intake {
            held: AtomicUsize::new(0),
            most: AtomicUsize::new(usize::MAX),
            refusals: AtomicU64::new(0),
            returns: AtomicU64::new(0),
        }
    }
}

impl Intake {
    /// Sets the bytes that the shard has for items.
    pub fn set_items(&self, bytes: usize) {
        self.most.store(bytes / SHARE, Ordering::Relaxed);
    }

    /// Takes memory for a value; false if there is none now.
    pub fn take(&self, bytes: usize) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        let taken = self
            .held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |held| {
                let fits = held == 0 || held.saturating_add(bytes) <= most;
                fits.then_some(held + bytes)
            });
        if taken.is_err() {
            self.refusals.fetch_add(1, Ordering::SeqCst);
        }
        taken.is_ok()
    }

    /// Notes that a value waits for memory of another kind that others hold.
    pub fn note_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::SeqCst);
    }

    pub fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
        self.returns.fetch_add(1, Ordering::SeqCst);
    }

    /// How often a request for memory was refused. A waiting session asks again at each tick.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::SeqCst)
    }

    /// How often memory was given back.
    pub fn returns(&self) -> u64 {
        self.returns.load(Ordering::SeqCst)
    }
}

/// The memory that the value of a connection holds (INTAKE-2).
#[derive(Debug)]
pub(crate) struct Room {
    pub shard: usize,
    pub bytes: usize,
    /// The shard's steady time (ms) at which the value last grew by [`STEP`], and the bytes since
    /// then.
    moved_ms: u64,
    came: usize,
}

impl Room {
    pub fn new(shard: usize, bytes: usize, now_ms: u64) -> Room {
        Room {
            shard,
            bytes,
            moved_ms: now_ms,
            came: 0,
        }
    }

    /// Notes that more of the value arrived.
    pub fn moves(&mut self, bytes: usize, now_ms: u64) {
        self.came += bytes;
        if self.came >= STEP {
            (self.came, self.moved_ms) = (0, now_ms);
        }
    }

    /// INTAKE-3: whether the value has stalled.
    pub fn is_still(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.moved_ms) >= STILL_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_come_in_take_an_eighth_or_are_alone() {
        let intake = Intake::default();
        intake.set_items(80);
        assert!(intake.take(30), "one alone may be larger");
        assert!(!intake.take(1) && intake.refusals() == 1);
        intake.give_back(30);
        assert!(intake.take(4) && intake.take(6) && !intake.take(1));
        assert_eq!((intake.refusals(), intake.returns()), (2, 1));
    }

    #[test]
    fn a_value_moves_by_whole_steps() {
        let mut room = Room::new(0, 100_000, 1000);
        assert!(!room.is_still(999 + STILL_MS) && room.is_still(1000 + STILL_MS));
        // A slow trickle counts as stalled.
        room.moves(STEP - 1, 1200);
        assert!(room.is_still(1000 + STILL_MS));
        room.moves(1, 1300);
        assert!(!room.is_still(1000 + STILL_MS) && room.is_still(1300 + STILL_MS));
    }
}
