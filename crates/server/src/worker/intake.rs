// SPDX-License-Identifier: Apache-2.0
//! Memory for values that are coming in (INTAKE-1 to INTAKE-4 in `crate::intake`), as a worker
//! deals it out among its connections.

use super::Worker;
use super::conns::{Conn, ShardSet};
use crate::connection::ConnKey;
use crate::session::Wait;

/// Most connections that are tried in vain in a round.
const MOST_TRIES: usize = 16;

impl Worker {
    /// INTAKE-4: lets values in that waited for memory, in turn from both ends of the queue, if
    /// some was given back or a tick has passed.
    pub(super) fn admit_values(&mut self, tick: bool) {
        if self.crowded.is_empty() {
            return;
        }
        let returns = self.core.shared.intakes.iter().map(|i| i.returns()).sum();
        if !tick && self.room_returns == returns {
            return;
        }
        self.room_returns = returns;
        let mut tries = MOST_TRIES;
        while tries > 0 {
            let newest = self.newest_next;
            let next = if newest {
                self.crowded.pop_back()
            } else {
                self.crowded.pop_front()
            };
            let Some(at) = next else {
                return;
            };
            self.newest_next = !newest;
            if !self.waits_for_room(at) {
                continue;
            }
            let before = self.crowded.len();
            if let Some(conn) = self.conns.get(at) {
                conn.wait = None;
            }
            self.feed_again(at);
            if self.waits_for_room(at) && self.crowded.len() > before {
                tries -= 1;
                // It came back to the end; it keeps its place.
                if !newest && let Some(at) = self.crowded.pop_back() {
                    self.crowded.push_front(at);
                }
            }
        }
    }

    /// Those that wait longest are refused while what came of all their values takes more than
    /// `pending`, half of what closes connections.
    pub(super) fn bound_crowd(&mut self) {
        if self.crowded.is_empty() {
            return;
        }
        let conns = &mut self.conns;
        let memory = |conn: Option<&mut Conn>| conn.map_or(0, |conn| conn.unread_memory());
        let crowd = self.crowded.iter();
        let mut unread: usize = crowd.map(|&at| memory(conns.get(at))).sum();
        while unread > self.pending
            && let Some(at) = self.crowded.pop_front()
        {
            unread -= memory(self.conns.get(at));
            if !self.waits_for_room(at) {
                continue;
            }
            if let Some(conn) = self.conns.get(at) {
                conn.wait = None;
            }
            self.core.work.swallow = true;
            self.feed_again(at);
            self.core.work.swallow = false;
        }
    }

    fn waits_for_room(&mut self, at: ConnKey) -> bool {
        let conn = self.conns.get(at);
        conn.is_some_and(|conn| conn.wait == Some(Wait::Room))
    }

    /// INTAKE-3: takes memory back from values that do not move, where others wait for it.
    pub(super) fn free_room(&mut self) {
        let mut wanted = ShardSet::default();
        for (shard, intake) in self.core.shared.intakes.iter().enumerate() {
            let refusals = intake.refusals();
            if std::mem::replace(&mut self.room_refusals[shard], refusals) != refusals {
                wanted.add(shard);
            }
        }
        if wanted.is_empty() {
            return;
        }
        let steady_ms = self.core.shard.steady_ms();
        let still: Vec<ConnKey> = self
            .conns
            .iter()
            .filter(|(_, conn)| {
                let shard = conn.session.still_room(steady_ms);
                shard.is_some_and(|shard| wanted.has(shard))
            })
            .map(|(at, _)| at)
            .collect();
        for at in still {
            if let Some(conn) = self.conns.get(at) {
                conn.session
                    .give_up_room(&mut self.core.ctx(at, (conn.entry.as_deref(), conn.fd)));
                self.feed_again(at);
            }
        }
    }

    /// Another worker will not send the rest of a value.
    pub(super) fn value_ends(&mut self, at: ConnKey) {
        if let Some(conn) = self.conns.get(at) {
            conn.value_ends = true;
            self.feed_again(at);
        }
    }
}
