// SPDX-License-Identifier: Apache-2.0
//! The sending half of an engine: the connection for the next request, and the request's bytes.
//!
//! Once a round, [`super::Engine::run`] calls `send_requests`, which fills the batches of all
//! connections that have room.

use senko_io::SendMode;

use super::{Engine, LATE_SENDS_NS, LONGEST_WAIT_NS};
use crate::changes::Change;
use crate::connection::{Kind, Pending};
use crate::request::Set;
use crate::shared::SECOND_NS;
use crate::source::Request;
use crate::tracks::Mark;

/// After this many quiet sets, a request with an answer follows.
const QUIET_RUN: usize = 64;
/// A batch with this many bytes gets no more requests.
const MOST_BATCH_BYTES: usize = 1 << 20;

impl Engine<'_> {
    pub(super) fn send_requests(&mut self, now: u64, deadline: u64) {
        if self.schedule.is_some() {
            self.send_what_is_due(now, deadline);
            return;
        }
        if now >= deadline {
            self.exhausted = true;
            self.follow_ups.clear();
        }
        while let Some(at) = self.next_ready() {
            self.ready.pop_front();
            self.conns[at].listed = false;
            self.fill(at);
            self.flush(at);
        }
    }

    /// The connection whose turn it is. Connections lost since they were listed are dropped.
    fn next_ready(&mut self) -> Option<usize> {
        while let Some(&at) = self.ready.front() {
            let conn = &mut self.conns[at as usize];
            if conn.batch.is_some() {
                return Some(at as usize);
            }
            conn.listed = false;
            self.ready.pop_front();
        }
        None
    }

    /// Closed loop: as many requests as the connection may have under way.
    fn fill(&mut self, at: usize) {
        let now = self.shared.now();
        let mut quiet = 0;
        while self.conns[at].free > 0 && self.batch_has_room(at) {
            let loud = if let Some(follow_up) = self.follow_ups.pop_front() {
                self.push_set(at, follow_up.key_id, now, now, follow_up.refill)
            } else if self.exhausted {
                break;
            } else if let Some(want) = self.source.want() {
                self.push(at, want, now, now)
            } else {
                self.exhausted = true;
                break;
            };
            quiet = if loud { 0 } else { quiet + 1 };
            if quiet == QUIET_RUN {
                self.push_sync(at, now);
                quiet = 0;
            }
        }
        if quiet > 0 {
            self.push_sync(at, now);
        }
    }

    fn batch_has_room(&self, at: usize) -> bool {
        self.conns[at]
            .batch
            .as_ref()
            .is_some_and(|batch| batch.bytes.len() < MOST_BATCH_BYTES)
    }

    /// Open loop: every request that is due and finds a connection with room. The connections take
    /// turns.
    fn send_what_is_due(&mut self, now: u64, deadline: u64) {
        if self.was_full {
            self.room_since = now;
        }
        while let Some(at) = self.next_ready() {
            if let Some(follow_up) = self.follow_ups.pop_front() {
                self.push_set(at, follow_up.key_id, now, now, follow_up.refill);
            } else if let Some(due) = self.take_due(now, deadline) {
                let Some(want) = self.source.want() else {
                    self.exhausted = true;
                    break;
                };
                self.push(at, want, due, now);
                self.tally.now.counts.due += 1;
                self.last_sent = (due, now);
            } else {
                break;
            }
            self.ready.pop_front();
            self.conns[at].listed = false;
            self.flush(at);
        }
        self.was_full = self.ready.is_empty();
        if now >= deadline {
            // Requests that follow answers do not belong to the schedule.
            self.follow_ups.clear();
        }
        if !self.exhausted && now > deadline.saturating_add(LATE_SENDS_NS) {
            self.give_up_on_schedule(now, deadline);
        }
    }

    fn take_due(&mut self, now: u64, deadline: u64) -> Option<u64> {
        let schedule = self.schedule.as_mut().filter(|_| !self.exhausted)?;
        if schedule.next_due() >= deadline {
            self.exhausted = true;
            return None;
        }
        let due = schedule.take(now)?;
        // If a request had to wait for a connection, that delay is the server's. Any other lateness
        // is this program's.
        if due >= self.room_since {
            self.tally.now.late.record(now - due);
        }
        Some(due)
    }

    /// Requests that were due before the end, but for which no connection had room. They count with
    /// the latency that they had already reached. Otherwise an overloaded server would look good by
    /// answering fewer requests.
    #[cold]
    fn give_up_on_schedule(&mut self, now: u64, deadline: u64) {
        while let Some(due) = self.take_due(deadline, deadline) {
            self.tally.now.counts.due += 1;
            self.tally.now.counts.unsent += 1;
            self.tally.now.get.record(now - due);
        }
        self.exhausted = true;
    }

    /// Appends a request; true if it will be answered.
    #[inline]
    fn push(&mut self, at: usize, want: Request, due: u64, now: u64) -> bool {
        match want {
            Request::Read(key_id) if self.shared.plan.settings.keys_per_get > 1 => {
                self.push_get_many(at, key_id, due, now)
            }
            Request::Read(key_id) => self.push_get(at, key_id, false, due, now),
            Request::Modify(key_id) => self.push_get(at, key_id, true, due, now),
            Request::Write(key_id) => return self.push_set(at, key_id, due, now, false),
            Request::Change(key_id, change) => {
                return self.push_change(at, key_id, change, due, now);
            }
        }
        true
    }

    #[inline]
    fn push_get(&mut self, at: usize, key_id: u64, then_set: bool, due: u64, now: u64) {
        let version = self.shared.floor(key_id);
        let mark = self.shared.mark(key_id);
        let conn = &mut self.conns[at];
        let Some(batch) = &mut conn.batch else { return };
        self.shared.writer().get(key_id, &mut batch.bytes);
        conn.pending.push_back(Pending {
            kind: Kind::Get { then_set },
            key_id,
            version,
            mark,
            due,
            sent: now,
        });
        conn.free -= 1;
    }

    fn push_get_many(&mut self, at: usize, first: u64, due: u64, now: u64) {
        self.many.clear();
        self.many.push(first);
        while self.many.len() < self.shared.plan.settings.keys_per_get
            && let Some(key_id) = self.source.another_read()
        {
            self.many.push(key_id);
        }
        let conn = &mut self.conns[at];
        let Some(batch) = &mut conn.batch else { return };
        self.shared
            .writer()
            .get_many(self.many.iter().copied(), &mut batch.bytes);
        let kind = Kind::GetMany {
            keys: self.many.len() as u32,
        };
        conn.pending.push_back(Pending {
            kind,
            key_id: first,
            version: 0,
            mark: Mark::default(),
            due,
            sent: now,
        });
        for &key_id in &self.many {
            let version = self.shared.floor(key_id);
            let mark = self.shared.mark(key_id);
            conn.pending.push_back(Pending {
                kind: Kind::Key,
                key_id,
                version,
                mark,
                due,
                sent: now,
            });
        }
        conn.free -= 1;
    }

    fn push_set(&mut self, at: usize, key_id: u64, due: u64, now: u64, refill: bool) -> bool {
        let Some(version) = self.shared.begin_set(key_id, self.step) else {
            // More sets of this key are under way than the ledger can count. A get replaces the
            // request, and no proof is lost.
            self.push_get(at, key_id, false, due, now);
            return true;
        };
        let settings = &self.shared.plan.settings;
        let quiet = settings.noreply;
        let len = self.shared.plan.value_len(key_id, version);
        let conn = &mut self.conns[at];
        let Some(batch) = &mut conn.batch else {
            return true;
        };
        let set = Set {
            key_id,
            version,
            class: self.shared.plan.classes.of(key_id),
            len,
            expire: settings.expire,
            quiet,
        };
        let unix = self
            .shared
            .unix_at_epoch
            .saturating_add((now / SECOND_NS) as u32);
        self.shared.writer().set(set, unix, &mut batch.bytes);
        let kind = if quiet { Kind::QuietSet } else { Kind::Set };
        conn.pending.push_back(Pending {
            kind,
            key_id,
            version,
            mark: Mark::default(),
            due,
            sent: now,
        });
        let counts = &mut self.tally.now.counts;
        counts.sets += 1;
        counts.refills += u64::from(refill);
        if !quiet {
            conn.free -= 1;
        }
        !quiet
    }

    fn push_change(&mut self, at: usize, key_id: u64, change: Change, due: u64, now: u64) -> bool {
        let version = self.shared.floor(key_id);
        if self.conns[at].batch.is_none() {
            return true;
        }
        let Some(mark) = self.shared.begin_change(key_id, change) else {
            return self.push_set(at, key_id, due, now, false);
        };
        let conn = &mut self.conns[at];
        let Some(batch) = &mut conn.batch else {
            return true;
        };
        self.shared
            .writer()
            .change(key_id, change, &mut batch.bytes);
        conn.pending.push_back(Pending {
            kind: Kind::Change(change),
            key_id,
            version,
            mark,
            due,
            sent: now,
        });
        self.tally.now.counts.changes += 1;
        conn.free -= 1;
        true
    }

    /// Ensures LOAD-3: quiet sets are followed by a request with an answer.
    fn push_sync(&mut self, at: usize, now: u64) {
        let conn = &mut self.conns[at];
        let Some(batch) = &mut conn.batch else { return };
        self.shared.writer().sync(&mut batch.bytes);
        conn.pending.push_back(Pending {
            kind: Kind::Sync,
            key_id: 0,
            version: 0,
            mark: Mark::default(),
            due: now,
            sent: now,
        });
        conn.free -= 1;
    }

    #[inline]
    fn flush(&mut self, at: usize) {
        let conn = &mut self.conns[at];
        let (Some(id), Some(mut batch)) =
            (conn.id, conn.batch.take_if(|batch| !batch.bytes.is_empty()))
        else {
            return;
        };
        if let Some(link) = &mut conn.link {
            let began = self.shared.now();
            let sealed = link.seal(&mut batch.bytes);
            let now = self.shared.now();
            self.tally.now.counts.cipher_ns += now - began;
            if let Err(why) = sealed {
                return self.lose(at, &why, false, now);
            }
        }
        self.io.send(id, batch, SendMode::Wait);
    }

    pub(super) fn is_done(&self) -> bool {
        self.exhausted
            && self.follow_ups.is_empty()
            && self.conns.iter().all(|conn| conn.pending.is_empty())
    }

    /// How long to wait for events, in nanoseconds.
    pub(super) fn longest_wait(&self) -> u64 {
        match &self.schedule {
            Some(schedule) if !self.exhausted && !self.ready.is_empty() => schedule
                .next_due()
                .saturating_sub(self.shared.now())
                .min(LONGEST_WAIT_NS),
            _ => LONGEST_WAIT_NS,
        }
    }
}
