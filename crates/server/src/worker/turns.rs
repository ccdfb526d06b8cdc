// SPDX-License-Identifier: Apache-2.0
//! What a round does for whom: a request that came alone first, then a part of what waits.
//!
//! ```text
//!  events ── requests, small input ──▶ fed at once
//!     │ ├── much input ──▶ fed, while the round has long turns left ──▶ else `run`
//!     │ ├── Accepted ──▶ `arrivals`: some a round
//!     │ └── reads that ended ──▶ `ended`: some a round
//!  `run`: connections with unread input ── TURNS of them a round ──▶ fed
//! ```
//!
//! A round's answers leave at its end, so a request waits for what else its round does. Hundreds of
//! connections that send hundreds of requests each are work for a second. They have it in small
//! parts.
//!
//! Always holds:
//! - TURNS-1: a round has [`TURNS`] turns at most for connections whose input waits, and as many
//!   for those that bring much. Each turn is `requests_per_turn` requests.
//! - TURNS-2: while requests come, those whose input waits are passed over, [`PASSED`] rounds in a
//!   row at most. They have their turns in the order in which they came.
//! - TURNS-3: of newcomers a round takes [`ARRIVALS`], or a sixteenth where more wait.

use senko_io::{Event, Op};

use super::Worker;

/// TURNS-1: a turn of twenty requests takes about ten microseconds, and the kernel about as long to
/// send its answers.
const TURNS: usize = 8;
/// TURNS-2: a round that takes requests only is short.
const PASSED: usize = 3;
/// TURNS-3: a newcomer takes about five microseconds.
const ARRIVALS: usize = 16;
/// Input of so many bytes is fed at once, whoever else is fed: some tens of requests.
const SMALL_INPUT: usize = 4 << 10;
/// Device reads that ended: so many are looked at in any round.
const DISK_TURN: usize = 16;
/// Heavy commands and parts of them in a round: some tenths of a millisecond.
const HEAVY_TURN: usize = 4;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Long turns that this round has left for input that comes.
    long: usize,
    /// Requests came in this round.
    came: bool,
    /// Rounds in a row that passed over those whose input waits.
    passed: usize,
}

impl Worker {
    /// A round begins.
    pub(super) fn begin_turns(&mut self) {
        self.turns.long = TURNS;
        self.turns.came = false;
        // Who waits for a turn of heavy work has it before those who come now.
        self.core.work.heavy = if self.heavy.is_empty() { HEAVY_TURN } else { 0 };
    }

    /// Requests go first, and so do the answers that need no device. Only some of the device reads
    /// that ended are taken: one more for each eight connections that had requests, or a sixteenth.
    /// Hundreds of answers from flash take about a millisecond to send, and a hit in DRAM need not
    /// wait for them.
    pub(super) fn take_events(&mut self, events: &mut Vec<Event>) {
        let mut requests = 0;
        for event in events.drain(..) {
            match event {
                Event::Disk(completion) if completion.op == Op::Read => {
                    self.ended.push_back(completion);
                }
                event => {
                    requests += usize::from(matches!(event, Event::Received { .. }));
                    self.event(event);
                }
            }
        }
        self.turns.came = requests > 0;
        self.take_arrivals();
        let waiting = self.run.len().min(TURNS);
        let turn = (DISK_TURN + (requests + waiting) / 8).max(self.ended.len() / 16);
        let turn = turn.min(self.ended.len());
        self.expect_frames(turn);
        for _ in 0..turn {
            if let Some(completion) = self.ended.pop_front() {
                self.event(Event::Disk(completion));
            }
        }
    }

    /// TURNS-3
    fn take_arrivals(&mut self) {
        for _ in 0..ARRIVALS.max(self.arrivals.len() / 16) {
            let Some((listener, stream)) = self.arrivals.pop_front() else {
                return;
            };
            self.accepted(listener, stream);
        }
    }

    /// TURNS-1: whether a connection's input is so much that it has to wait for a turn. If not, and
    /// it is much, it has one of the round's. A value that comes in has few lines: it goes to its
    /// item's memory at once, and lies in no tail.
    pub(super) fn waits_for_turn(&mut self, input: &[u8]) -> bool {
        let few = self.core.shared.settings.requests_per_turn;
        if input.len() <= SMALL_INPUT || memchr::memchr_iter(b'\n', input).nth(few).is_none() {
            return false;
        }
        match self.turns.long.checked_sub(1) {
            Some(left) => {
                self.turns.long = left;
                self.core.stats.turns += 1;
                false
            }
            None => true,
        }
    }

    /// TURNS-1, TURNS-2: a turn for some of the connections that have unread input.
    pub(super) fn run_queue(&mut self) {
        let waiting = self.run.len();
        if waiting > TURNS && self.turns.came && self.turns.passed < PASSED {
            self.turns.passed += 1;
            self.core.stats.turn_rounds += 1;
            return;
        }
        self.turns.passed = 0;
        for _ in 0..waiting.min(TURNS) {
            let Some(at) = self.run.pop_front() else {
                return;
            };
            self.core.stats.turns += 1;
            if let Some(conn) = self.conns.get(at) {
                conn.queued = false;
                self.feed_again(at);
            }
        }
        self.core.stats.turn_rounds += u64::from(waiting > TURNS);
    }

    /// Heavy commands, of each connection that waits for one at a time, as far as a round has turns
    /// for them.
    pub(super) fn run_heavy(&mut self) {
        if self.heavy.is_empty() {
            return;
        }
        self.core.work.heavy = HEAVY_TURN;
        for _ in 0..self.heavy.len() {
            if self.core.work.heavy == 0 {
                return;
            }
            let Some(at) = self.heavy.pop_front() else {
                return;
            };
            // The next one is another connection's.
            let left = std::mem::replace(&mut self.core.work.heavy, 1);
            if let Some(conn) = self.conns.get(at) {
                conn.queued = false;
                self.feed_again(at);
            }
            let used = 1 - self.core.work.heavy.min(1);
            self.core.work.heavy = left - used;
        }
    }
}
