// SPDX-License-Identifier: Apache-2.0
//! Memory for arriving values (INTAKE-1 to INTAKE-4 in `crate::intake`), which a worker distributes
//! among its connections.

use std::collections::VecDeque;

use super::Worker;
use super::conns::{Conn, NumberSet};
use crate::connection::ConnKey;
use crate::session::Wait;

/// Most failed tries in a round.
const MOST_TRIES: usize = 16;

/// Connections that wait for memory for their values.
pub(super) struct Crowd {
    /// The connections, the newest at the back.
    waiting: VecDeque<ConnKey>,
    newest_next: bool,
    /// How often such memory had been given back at their last try.
    returns: u64,
    /// How often memory was refused, by shard, at the last tick.
    refusals: Vec<u64>,
}

impl Crowd {
    pub fn new(shards: usize) -> Crowd {
        Crowd {
            waiting: VecDeque::new(),
            newest_next: true,
            returns: 0,
            refusals: vec![0; shards],
        }
    }

    pub fn join(&mut self, at: ConnKey) {
        self.waiting.push_back(at);
    }

    /// The next one, from both ends in turn, and whether it was the newest.
    fn next(&mut self) -> Option<(ConnKey, bool)> {
        let newest = self.newest_next;
        let next = if newest {
            self.waiting.pop_back()
        } else {
            self.waiting.pop_front()
        };
        let at = next?;
        self.newest_next = !newest;
        Some((at, newest))
    }

    /// Puts a connection that failed again back in its place.
    fn last_to_front(&mut self) {
        if let Some(at) = self.waiting.pop_back() {
            self.waiting.push_front(at);
        }
    }

    /// Whether memory was given back since the last call.
    fn has_returns(&mut self, returns: u64) -> bool {
        std::mem::replace(&mut self.returns, returns) != returns
    }

    /// Whether a shard refused memory since the last call.
    fn was_refused(&mut self, shard: usize, refusals: u64) -> bool {
        std::mem::replace(&mut self.refusals[shard], refusals) != refusals
    }
}

impl Worker {
    /// INTAKE-4: admits values that waited for memory, in turn from both ends of the queue, if some
    /// was given back or a tick has passed.
    pub(super) fn admit_values(&mut self, tick: bool) {
        if self.crowd.waiting.is_empty() {
            return;
        }
        let returns = self.core.shared.intakes.iter().map(|i| i.returns()).sum();
        if !self.crowd.has_returns(returns) && !tick {
            return;
        }
        let mut tries = MOST_TRIES;
        while tries > 0 {
            let Some((at, newest)) = self.crowd.next() else {
                return;
            };
            if !self.waits_for_room(at) {
                continue;
            }
            let before = self.crowd.waiting.len();
            if let Some(conn) = self.conns.get(at) {
                conn.wait = None;
            }
            self.feed_again(at);
            if self.waits_for_room(at) && self.crowd.waiting.len() > before {
                tries -= 1;
                // It came back to the end, but keeps its place.
                if !newest {
                    self.crowd.last_to_front();
                }
            }
        }
    }

    /// While the received parts of all waiting values take more than `pending`, the values that
    /// wait longest are refused. That is half of the amount at which connections are closed.
    pub(super) fn bound_crowd(&mut self) {
        if self.crowd.waiting.is_empty() {
            return;
        }
        let conns = &mut self.conns;
        let memory = |conn: Option<&mut Conn>| conn.map_or(0, |conn| conn.unread_memory());
        let crowd = self.crowd.waiting.iter();
        let mut unread: usize = crowd.map(|&at| memory(conns.get(at))).sum();
        while unread > self.pending
            && let Some(at) = self.crowd.waiting.pop_front()
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

    /// INTAKE-3: takes memory back from values that have stalled, if others wait for it.
    pub(super) fn free_room(&mut self) {
        let mut wanted = NumberSet::default();
        for (shard, intake) in self.core.shared.intakes.iter().enumerate() {
            let refusals = intake.refusals();
            if self.crowd.was_refused(shard, refusals) {
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

    /// Handles another worker's message that the rest of a value will not come.
    pub(super) fn value_ends(&mut self, at: ConnKey) {
        if let Some(conn) = self.conns.get(at) {
            conn.value_ends = true;
            self.feed_again(at);
        }
    }
}
