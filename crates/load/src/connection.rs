// SPDX-License-Identifier: Apache-2.0
//! One connection: its requests under way, in order, and the results of their answers.
//!
//! [`crate::engine`] adds requests and feeds received bytes, and [`crate::reply`] cuts these into
//! answers. Here each answer is matched with its request and counted. With `verify`, it is also
//! checked byte by byte.
//!
//! What always holds:
//! - LOAD-1: answers come in the order of the requests (so do memcached's), so the front of
//!   `pending` is the request of the next answer.
//! - LOAD-2: a get of n keys is one entry followed by n entries of [`Kind::Key`].
//! - LOAD-3: a quiet set is always followed by a request with an answer, which settles it.
//! - LOAD-4: every set in the ledger is ended there exactly once, even if the connection fails.

use std::collections::VecDeque;

use senko_io::{ConnId, SendBatch};

use crate::changes::{self, Change};
use crate::check::{FaultKind, Finding};
use crate::ledger::SetEnd;
use crate::reply::{Answers, BinaryParser, End, Parser, TextParser};
use crate::settings::Wire;
use crate::shared::Shared;
use crate::tally::{Stretch, Tally};
use crate::tls::Link;
use crate::tracks::{ChangeEnd, Mark};

mod checked; // the problem with a value or a number

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Get {
        /// Whether a set of the key follows the answer.
        then_set: bool,
    },
    /// A get of several keys; the keys follow.
    GetMany {
        keys: u32,
    },
    /// A key of a [`Kind::GetMany`].
    Key,
    Set,
    QuietSet,
    /// A change of the value on the server.
    Change(Change),
    /// A request that only asks for an answer.
    Sync,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub kind: Kind,
    pub key_id: u64,
    /// For a set, its version. For a read or a change, the oldest correct version.
    pub version: u32,
    /// For a read or a change: how many changes were proven when it was sent.
    pub mark: Mark,
    /// The start of its latency, in nanoseconds.
    pub due: u64,
    /// When it was sent, in nanoseconds.
    pub sent: u64,
}

/// A set to be sent because of an answer.
#[derive(Clone, Copy, Debug)]
pub struct FollowUp {
    pub key_id: u64,
    /// Whether it fills a miss. Otherwise it is the second half of a read-modify-write.
    pub refill: bool,
}

/// The value that is arriving, or that arrived as a part of the front request's answer.
#[derive(Default)]
struct Incoming {
    /// Its request, or its key in a request for several.
    asked: Option<Pending>,
    flags: u32,
    len: usize,
    /// Whether the front request has its value.
    found: bool,
    /// Whether the value was checked, or needs no check.
    settled: bool,
    /// Keys of the front get that are done.
    keys_done: u32,
    /// Parts of a value that was received in several pieces.
    gathered: Vec<u8>,
}

pub struct Conn {
    /// Its number in the event loop; `None` while there is no connection.
    pub id: Option<ConnId>,
    /// The batch to fill; `None` while it is on its way.
    pub batch: Option<Box<SendBatch>>,
    /// Requests under way, oldest first.
    pub pending: VecDeque<Pending>,
    /// How many more requests may be under way.
    pub free: usize,
    /// Whether it is in the engine's list of connections that can send.
    pub listed: bool,
    /// When to connect again, in nanoseconds, and the number of failures before.
    pub retry: (u64, u32),
    /// How often in a row it was given up because no answer came in time.
    pub silences: u32,
    pub link: Option<Box<Link>>,
    parser: Parser,
    incoming: Incoming,
}

impl Conn {
    /// A connection that is not connected yet.
    pub fn new(wire: Wire, pipeline: usize) -> Conn {
        Conn {
            id: None,
            batch: None,
            pending: VecDeque::with_capacity(pipeline * 2),
            free: pipeline,
            listed: false,
            retry: (0, 0),
            silences: 0,
            link: None,
            parser: new_parser(wire),
            incoming: Incoming::default(),
        }
    }

    /// Starts again with a connected socket, and a TLS session over it.
    pub fn connected(&mut self, id: ConnId, link: Option<Box<Link>>, wire: Wire, pipeline: usize) {
        self.id = Some(id);
        self.link = link;
        self.batch = Some(Box::default());
        self.free = pipeline;
        self.retry = (0, 0);
        self.parser = new_parser(wire);
        self.incoming = Incoming {
            gathered: std::mem::take(&mut self.incoming.gathered),
            ..Incoming::default()
        };
        self.incoming.gathered.clear();
    }

    /// Takes received plaintext; sets that must follow go to `follow_ups`. `now` is in nanoseconds.
    ///
    /// # Errors
    /// One sentence, if the connection cannot go on.
    #[inline]
    pub fn receive(
        &mut self,
        data: &[u8],
        shared: &Shared<'_>,
        follow_ups: &mut VecDeque<FollowUp>,
        tally: &mut Tally,
        now: u64,
    ) -> Result<(), String> {
        self.silences = 0;
        let mut receiver = Receiver {
            shared,
            tally,
            now,
            pending: &mut self.pending,
            follow_ups,
            free: &mut self.free,
            incoming: &mut self.incoming,
            broken: None,
        };
        let fed = self.parser.feed(data, &mut receiver);
        match receiver.broken {
            Some(why) => Err(why),
            None => fed.map_err(|malformed| malformed.0),
        }
    }

    /// Ends a lost connection: everything under way has failed.
    pub fn fail(
        &mut self,
        shared: &Shared<'_>,
        tally: &mut Tally,
        why: &str,
        timed_out: bool,
        now: u64,
    ) {
        self.id = None;
        self.batch = None;
        self.link = None;
        let mut requests = 0;
        for pending in self.pending.drain(..) {
            match pending.kind {
                Kind::Get { .. } => tally.now.counts.failed_reads += 1,
                Kind::Key => {
                    tally.now.counts.failed_reads += 1;
                    continue;
                }
                Kind::Set | Kind::QuietSet => shared.end_set(pending.key_id, SetEnd::Lost, now),
                Kind::Change(change) => {
                    shared.end_change(pending.key_id, change, pending.mark, ChangeEnd::Lost);
                }
                Kind::GetMany { .. } | Kind::Sync => {}
            }
            requests += 1;
        }
        tally.now.counts.failed += requests;
        if timed_out {
            tally.now.counts.timeouts += requests;
        }
        // A connection that ends with nothing under way is still reported.
        tally.error(why, requests.max(1));
    }
}

/// Records how long the requests under way have waited, in nanoseconds.
pub fn record_waits(pending: &VecDeque<Pending>, now: u64, to: &mut Stretch) {
    for entry in pending {
        let wait = now.saturating_sub(entry.due);
        match entry.kind {
            Kind::Get { .. } | Kind::GetMany { .. } => to.get.record(wait),
            Kind::Set => to.set.record(wait),
            Kind::Change(_) => to.change.record(wait),
            Kind::Key | Kind::QuietSet | Kind::Sync => {}
        }
    }
}

fn new_parser(wire: Wire) -> Parser {
    match wire {
        Wire::Classic | Wire::Meta => Parser::Text(TextParser::default()),
        Wire::Binary => Parser::Binary(BinaryParser::default()),
    }
}

/// Borrowed parts of a connection while its parser runs.
struct Receiver<'a> {
    shared: &'a Shared<'a>,
    tally: &'a mut Tally,
    now: u64,
    pending: &'a mut VecDeque<Pending>,
    follow_ups: &'a mut VecDeque<FollowUp>,
    free: &'a mut usize,
    incoming: &'a mut Incoming,
    broken: Option<String>,
}

impl Receiver<'_> {
    #[cold]
    fn break_off(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    /// Quiet sets before the request that is being answered are done; whether they were stored is
    /// unknown.
    #[inline]
    fn settle_quiet(&mut self) {
        while let Some(Pending {
            kind: Kind::QuietSet,
            key_id,
            ..
        }) = self.pending.front()
        {
            self.shared.end_set(*key_id, SetEnd::Refused, self.now);
            self.pending.pop_front();
            self.tally.now.counts.requests += 1;
        }
    }

    /// The front request was answered.
    #[inline]
    fn complete(&mut self) {
        let Some(front) = self.pending.pop_front() else {
            return;
        };
        let latency = self.now.saturating_sub(front.due);
        let stretch = &mut self.tally.now;
        match front.kind {
            Kind::Get { .. } => stretch.get.record(latency),
            Kind::GetMany { keys } => {
                stretch.get.record(latency);
                self.pending.drain(..keys as usize);
            }
            Kind::Set => stretch.set.record(latency),
            Kind::Change(_) => stretch.change.record(latency),
            Kind::Sync | Kind::QuietSet | Kind::Key => {}
        }
        stretch.counts.requests += u64::from(front.kind != Kind::Sync);
        *self.free += 1;
        self.incoming.found = false;
        self.incoming.keys_done = 0;
    }

    fn missed(&mut self, key_id: u64) {
        self.tally.now.counts.reads += 1;
        if self.shared.plan.settings.set_on_miss {
            self.follow_ups.push_back(FollowUp {
                key_id,
                refill: true,
            });
        }
    }

    /// The front get has the answers for all its keys.
    fn end_many(&mut self, keys: u32) {
        for at in self.incoming.keys_done..keys {
            let key_id = self.pending[1 + at as usize].key_id;
            self.missed(key_id);
        }
        self.complete();
    }

    fn end_single(&mut self, key_id: u64, then_set: bool) {
        if !self.incoming.found {
            self.missed(key_id);
        }
        // A set that refills the miss already writes the key.
        if then_set
            && self
                .follow_ups
                .back()
                .is_none_or(|last| last.key_id != key_id)
        {
            self.follow_ups.push_back(FollowUp {
                key_id,
                refill: false,
            });
        }
        self.complete();
    }

    /// The key of the front get to which this value belongs. The keys before it were misses.
    fn match_many(&mut self, key: &[u8], keys: u32) -> Option<Pending> {
        let found = self.shared.plan.space.parse(key);
        while self.incoming.keys_done < keys {
            let asked = self.pending[1 + self.incoming.keys_done as usize];
            self.incoming.keys_done += 1;
            if found == Some(asked.key_id) {
                return Some(asked);
            }
            self.missed(asked.key_id);
        }
        None
    }
}

impl Answers for Receiver<'_> {
    #[inline]
    fn value(&mut self, key: &[u8], flags: u32, len: usize) {
        self.settle_quiet();
        let verify = self.shared.plan.settings.verify;
        let asked = match self.pending.front().copied() {
            Some(
                front @ Pending {
                    kind: Kind::Get { .. },
                    ..
                },
            ) if !self.incoming.found => front,
            // The meta protocol answers a number as a value.
            Some(
                front @ Pending {
                    kind: Kind::Change(Change::Incr | Change::Decr),
                    ..
                },
            ) if !self.incoming.found => return self.begin_number(front, len),
            Some(Pending {
                kind: Kind::GetMany { keys },
                ..
            }) => match self.match_many(key, keys) {
                Some(asked) => asked,
                None => {
                    let text = format!(
                        "the server sent the value of a key that was not asked for: {}",
                        key.escape_ascii()
                    );
                    return self.break_off(text);
                }
            },
            _ => {
                return self.break_off("the server sent a value that was not asked for".to_owned());
            }
        };
        let counts = &mut self.tally.now.counts;
        counts.reads += 1;
        counts.hits += 1;
        counts.value_bytes += len as u64;
        let incoming = &mut *self.incoming;
        incoming.found = true;
        if !verify {
            incoming.settled = true;
            return;
        }
        incoming.asked = Some(asked);
        (incoming.flags, incoming.len, incoming.settled) = (flags, len, false);
        incoming.gathered.clear();
        if !key.is_empty() && self.shared.plan.space.parse(key) != Some(asked.key_id) {
            self.incoming.settled = true;
            self.tally.now.counts.verified += 1;
            self.fault(Finding::plain(
                FaultKind::Wrong,
                format!("the answer names the key {}", key.escape_ascii()),
            ));
        } else if len > self.shared.plan.longest(asked.key_id) {
            // No value is that long. It is not gathered, so that a damaged length costs no memory.
            self.incoming.settled = true;
            self.tally.now.counts.verified += 1;
            self.fault(Finding::plain(
                FaultKind::Wrong,
                format!("a value of {len} bytes, longer than any written"),
            ));
        }
    }

    #[inline]
    fn body(&mut self, part: &[u8]) {
        if self.incoming.settled {
            return;
        }
        if part.len() == self.incoming.len {
            self.check(part);
        } else {
            self.incoming.gathered.extend_from_slice(part);
        }
    }

    #[inline]
    fn value_end(&mut self) {
        if !self.incoming.settled {
            let gathered = std::mem::take(&mut self.incoming.gathered);
            self.check(&gathered);
            self.incoming.gathered = gathered;
        }
        if self.shared.plan.settings.wire == Wire::Classic {
            return;
        }
        match self.pending.front().copied() {
            Some(Pending {
                kind: Kind::Get { then_set },
                key_id,
                ..
            }) => self.end_single(key_id, then_set),
            Some(
                front @ Pending {
                    kind: Kind::Change(change),
                    ..
                },
            ) => self.changed(front, change),
            _ => {}
        }
    }

    fn end(&mut self, end: End<'_>) {
        match end {
            End::Failed(text) => return self.failed(text),
            End::Absent(text) => return self.absent(text),
            _ => {}
        }
        self.settle_quiet();
        let Some(front) = self.pending.front().copied() else {
            return self.break_off("the server sent an answer that was not asked for".to_owned());
        };
        match (end, front.kind) {
            (End::NoMore, Kind::Get { then_set }) => self.end_single(front.key_id, then_set),
            (End::NoMore | End::Sync, Kind::GetMany { keys }) => self.end_many(keys),
            (End::Stored, Kind::Set) => {
                self.tally.now.counts.stored += 1;
                self.shared.end_set(front.key_id, SetEnd::Stored, self.now);
                self.complete();
            }
            (End::Sync, Kind::Sync) => self.complete(),
            (End::Number(number), Kind::Change(change @ (Change::Incr | Change::Decr))) => {
                self.check_number(Some(number), front);
                self.changed(front, change);
            }
            (End::Stored, Kind::Change(change @ (Change::Append | Change::Prepend))) => {
                self.changed(front, change);
            }
            (end, kind) => self.break_off(format!("the server answered {end:?} to {kind:?}")),
        }
    }
}

impl Receiver<'_> {
    /// The server made the front request's change.
    #[inline]
    fn changed(&mut self, front: Pending, change: Change) {
        self.tally.now.counts.changed += 1;
        self.shared
            .end_change(front.key_id, change, front.mark, ChangeEnd::Done);
        self.complete();
    }

    /// The front request's key does not exist. For a change this is a miss; no other request gets
    /// this answer.
    fn absent(&mut self, text: &[u8]) {
        let Some(Pending {
            kind: Kind::Change(change),
            key_id,
            mark,
            ..
        }) = self.pending.front().copied()
        else {
            return self.failed(text);
        };
        self.tally.now.counts.absent += 1;
        self.shared
            .end_change(key_id, change, mark, ChangeEnd::Absent);
        self.follow_ups.push_back(FollowUp {
            key_id,
            refill: true,
        });
        self.complete();
    }

    /// A number comes as a value of this many bytes.
    fn begin_number(&mut self, asked: Pending, len: usize) {
        if len > changes::LONGEST_COUNTER {
            return self.break_off(format!("the server sent a number of {len} bytes"));
        }
        let verify = self.shared.plan.settings.verify;
        let incoming = &mut *self.incoming;
        incoming.asked = Some(asked);
        (incoming.len, incoming.found, incoming.settled) = (len, true, !verify);
        incoming.gathered.clear();
    }

    #[cold]
    fn failed(&mut self, text: &[u8]) {
        let shown = String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned();
        self.tally.error(&shown, 1);
        let quiet = matches!(
            self.pending.front(),
            Some(Pending {
                kind: Kind::QuietSet,
                ..
            })
        );
        if quiet && self.shared.plan.settings.wire != Wire::Classic {
            // These dialects report a quiet set that failed, and its request is handled with the
            // next answer.
            return;
        }
        // The classic dialect reports nothing for a quiet set, so the error belongs to the next
        // request.
        self.settle_quiet();
        let Some(front) = self.pending.front().copied() else {
            return self.break_off(format!("the server sent \"{shown}\" and nothing was asked"));
        };
        self.tally.now.counts.failed += 1;
        match front.kind {
            Kind::Get { .. } => self.tally.now.counts.failed_reads += 1,
            Kind::GetMany { keys } => {
                self.tally.now.counts.failed_reads += u64::from(keys - self.incoming.keys_done);
                self.pending.drain(1..=keys as usize);
            }
            Kind::Set | Kind::QuietSet => {
                self.shared.end_set(front.key_id, SetEnd::Refused, self.now)
            }
            Kind::Change(change) => {
                self.shared
                    .end_change(front.key_id, change, front.mark, ChangeEnd::Refused);
            }
            Kind::Sync | Kind::Key => {}
        }
        self.pending.pop_front();
        *self.free += 1;
        self.incoming.found = false;
        self.incoming.keys_done = 0;
    }
}
