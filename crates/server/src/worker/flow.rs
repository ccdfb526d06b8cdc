// SPDX-License-Identifier: Apache-2.0
//! A connection's bytes: received, passed to the session, sent as answers, and the limits on all of
//! that.
//!
//! ```text
//!  Received --feed--> session --dirty--> flush --Try--> Sent(all) --> flush again
//!     |  (tail: what was not consumed)              `-> Sent(short) --Wait--> Sent(all)
//!     `- the session's window is full, or the tail: the loop stops receiving
//! ```
//!
//! Always holds:
//! - FLOW-1: a connection has at most one batch in the loop, and none while its socket is lent
//!   (`lend.rs`).
//! - FLOW-2: the memory of a worker that one connection holds is bounded, and so is the total for
//!   all connections.
//!   - Unread bytes of one connection are at most [`MOST_TAIL`] and the receive buffers under way.
//!     Its answers are bounded by its session's window.
//!   - Requests that can't run yet may take half of the plan's `pending`. Beyond that, nothing is
//!     received from a connection that has any, until they have run ([`Worker::settle`]). The loop
//!     receives from the others in turn, [`SMALL_RECEIVE`] bytes from each. Beyond one and a half
//!     `pending` it receives nothing ([`Worker::give_back_buffers`]).
//!   - Requests of another worker's connection hold back that connection, and no other
//!     ([`Message::Hold`]).
//!   - While answers and parked commands take half of `pending`, each session's window is small
//!     ([`crate::context::Window`]). While answers that can leave take all of it, other workers
//!     keep their answers.
//!   - While copies for other workers take `pending`, no flash read begins for one
//!     ([`crate::context::Work::no_copies`]). Existing copies leave without such a read.
//!   - When unread bytes and slow readers' answers take `pending`, the slowest reader is closed; if
//!     none is slow, the connection that holds most. That happens at the end of a round, so no
//!     item is copied in it for which there is no room: it stays lent ([`Worker::hold`]).
//! - FLOW-3: a slow reader's answer holds no frame: it is copied. It may hold item memory. While
//!   more than an eighth of a shard is lent, or answers wait for it, readers that have been slow
//!   for [`PATIENCE_MS`] are closed one after the other ([`Worker::free_pinned`]). Answers wait
//!   before half is exceeded (PIN-1 in `session/executor.rs`).
//! - FLOW-4: a round runs a bounded number of requests, however many connections have sent many:
//!   one turn for each receive buffer, and a few whole turns ([`TURNS`]) of connections that go on
//!   with earlier input, with the round's events and again from the run queue. The others wait in
//!   that queue, in order. So a newcomer waits for two or three short rounds.

use senko_cache::Pinned;
use senko_io::{ConnId, Piece, RecvBuf, SendBatch, SendMode};

use super::Worker;
use super::accounts::Account;
use super::conns::{Conn, Link, NumberSet};
use crate::connection::ConnKey;
use crate::context::{Router, Window};
use crate::reply::worker_of;
use crate::route::Message;
use crate::session::{FeedState, Wait};

/// FLOW-4: whole turns with the events of a round, and as many from the run queue.
pub(super) const TURNS: usize = 16;
/// Unconsumed bytes at which the loop stops receiving.
const MOST_TAIL: usize = 64 << 10;
/// While many requests can't run yet: receive buffers that go back to the loop in a round, and
/// bytes of a receive.
const FEW_BUFFERS: usize = 8;
const SMALL_RECEIVE: usize = 2 << 10;
/// Bytes of commands that any connection may have at other workers, however far these are behind.
const FEW_BYTES: usize = 2 << 10;

/// How long a reader may be behind before it counts as slow.
const PATIENCE_MS: u64 = 500;

impl Worker {
    /// Handles bytes received from a socket. While much is unread, the buffer does not go back to
    /// the loop at once.
    pub(super) fn received(&mut self, id: ConnId, mut data: RecvBuf) {
        self.take_in(id, &mut data);
        if self.is_crowded() {
            self.withheld.push_back(data);
            self.core.ev.limit_receives(Some(SMALL_RECEIVE));
        }
    }

    /// Whether requests that can't run yet take half of `pending`.
    fn is_crowded(&self) -> bool {
        self.conns.sums().backlog > self.pending / 2
    }

    /// While much is unread, the loop has a few buffers a round. It fills them from one connection
    /// after the other, and little of each. So a connection with nothing unread is served soon, and
    /// one that sends much adds little.
    pub(super) fn give_back_buffers(&mut self) {
        if self.withheld.is_empty() {
            return;
        }
        if self.is_crowded() {
            // A receive under way takes a whole buffer. Beyond `pending`, one a round brings less
            // than the round's requests use up. If all of them wait for another worker, nothing is
            // received: no connection has to be closed.
            let halves = 2 * self.conns.sums().backlog / self.pending;
            let few = [FEW_BUFFERS, FEW_BUFFERS, 1, 0][halves.min(3)];
            self.withheld.drain(..few.min(self.withheld.len()));
        } else {
            self.withheld.clear();
            self.core.ev.limit_receives(None);
        }
    }

    fn take_in(&mut self, id: ConnId, data: &mut RecvBuf) {
        let Some(at) = self.conns.of_socket(id) else {
            return;
        };
        self.need_socket(at);
        match self.conns.get(at) {
            None => return,
            Some(conn) if conn.tls.is_some() => return self.take_ciphered(at, data),
            Some(_) => {}
        }
        self.core.stats.bytes_read += data.len() as u64;
        self.input(at, data);
    }

    /// Takes input: in place if nothing comes before it, otherwise after the earlier bytes.
    pub(super) fn input(&mut self, at: ConnKey, data: &[u8]) {
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        if conn.closing {
            return;
        }
        conn.last_active = self.now_ms;
        if conn.tail.is_empty() && conn.takes_input() {
            let consumed = self.feed(at, data);
            if let Some(conn) = self.conns.get(at)
                && !conn.closing
            {
                conn.append(&data[consumed..]);
            }
        } else {
            conn.append(data);
            // A value is taken whatever the session waits for.
            if !conn.queued && !conn.is_stopped() {
                return self.go_on(at);
            }
        }
        self.settle(at);
    }

    /// As [`Worker::feed_again`]. But a connection with unread input goes behind those that wait
    /// for their turn, and waits if the turns are used up (FLOW-4).
    pub(super) fn go_on(&mut self, at: ConnKey) {
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        let is_next = self.turns > 0 && self.run.is_empty();
        if is_next || conn.unread() == 0 || conn.closing {
            return self.feed_again(at);
        }
        if !std::mem::replace(&mut conn.queued, true) {
            self.run.push_back(at);
        }
        self.mark_dirty(at);
        self.settle(at);
    }

    /// Runs a session again after an event that it may have waited for.
    pub(super) fn feed_again(&mut self, at: ConnKey) {
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        if conn.is_read_out() {
            // The flush checks the bytes to be sent, with all consequences.
            self.mark_dirty(at);
            return;
        }
        let feeds = !conn.closing || conn.session.waits_for_memory();
        if !conn.queued && !conn.is_stopped() && feeds {
            self.feed_tail(at);
        } else {
            self.mark_dirty(at);
        }
        self.settle(at);
    }

    fn feed_tail(&mut self, at: ConnKey) {
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        // The tail is taken out while the session reads it; no other code uses it meanwhile.
        let tail = std::mem::take(&mut conn.tail);
        let start = conn.tail_start;
        let consumed = self.feed(at, &tail[start..]);
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        if conn.closing {
            conn.tail_start = 0;
        } else {
            conn.tail = tail;
            conn.consume(consumed);
        }
    }

    /// Passes bytes for one turn to the session; returns the bytes consumed.
    fn feed(&mut self, at: ConnKey, data: &[u8]) -> usize {
        let mut budget = self.core.shared.settings.requests_per_turn;
        self.core.window = match self.conns.sums().answers {
            answers if answers > self.pending => Window::One,
            answers if answers > self.pending / 2 => Window::Small,
            _ => Window::Wide,
        };
        self.core.work.no_copies = self.conns.sums().copies > self.pending;
        let Some(conn) = self.conns.get(at) else {
            return data.len();
        };
        if conn.slow_since != 0 && self.core.window == Window::Wide {
            // Its socket takes nothing now, so there is no hurry.
            self.core.window = Window::Small;
        }
        let fed = conn.session.feed(
            &mut self.core.ctx(at, (conn.entry.as_deref(), conn.fd)),
            data,
            &mut budget,
        );
        let before = conn.wait.take();
        if conn.session.watcher().is_some() && !conn.watches {
            conn.watches = true;
            self.watching.push(at);
        }
        match fed.state {
            // A session leaves only the start of a line or header unread. A longer rest can never
            // become a request.
            FeedState::NeedMore => {
                if conn.value_ends && fed.consumed == data.len() {
                    conn.value_ends = false;
                    conn.session
                        .end_value(&mut self.core.ctx(at, (conn.entry.as_deref(), conn.fd)));
                }
                conn.closing |= conn.ended || data.len() - fed.consumed > MOST_TAIL;
                if conn.ended {
                    conn.session.give_up_value();
                }
            }
            FeedState::Close => conn.closing = true,
            FeedState::Blocked(wait) => {
                conn.wait = Some(wait);
                if matches!(wait, Wait::Turn | Wait::Window) {
                    self.turns = self.turns.saturating_sub(1);
                    self.core.stats.whole_turns += 1;
                }
                match wait {
                    Wait::Turn => {
                        self.core.stats.conn_yields += 1;
                        conn.wait = None;
                        conn.queued = true;
                        self.run.push_back(at);
                    }
                    Wait::Heavy => {
                        conn.wait = None;
                        conn.queued = true;
                        self.heavy.push_back(at);
                    }
                    Wait::Memory if before != Some(Wait::Memory) => self.blocked.push(at),
                    Wait::Room if before != Some(Wait::Room) => self.crowd.join(at),
                    Wait::Memory | Wait::Room | Wait::Fetch | Wait::Window => {}
                }
            }
        }
        if let Some(worker) = self.core.outbox.take_behind()
            && conn.session.foreign_bytes() > FEW_BYTES
        {
            self.peers.pause(at, conn, worker);
        }
        if let Link::Socket(id) = conn.link
            && fed.consumed == data.len()
        {
            self.lend_socket(at, id);
        }
        // The answers so far to a line with many keys are sent with the rest.
        let goes_on = (self.conns.get(at)).is_some_and(|c| c.queued && c.session.is_in_keys());
        if !goes_on {
            self.mark_dirty(at);
        }
        fed.consumed
    }

    pub(super) fn mark_dirty(&mut self, at: ConnKey) {
        if let Some(conn) = self.conns.get(at)
            && !conn.dirty
        {
            conn.dirty = true;
            self.dirty.push(at);
        }
    }

    /// Sends what can be sent, for every marked connection.
    pub(super) fn flush_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for at in dirty.drain(..) {
            self.flush(at);
        }
        // `flush` may have marked others (a closed connection made room). They wait for the next
        // round, which comes at once.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    pub(super) fn flush(&mut self, at: ConnKey) {
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        conn.dirty = false;
        match conn.link {
            Link::Virtual(_) => {
                self.answer_origin(at, false);
                return;
            }
            Link::Socket(id) => {
                let (core, disk) = (&mut self.core, &mut self.disk);
                if !self.streams.go_on(core, disk, at, conn) {
                    return self.close_for(at, "error");
                }
                if conn.sending {
                    // FLOW-1: its end brings the next one.
                } else if conn.tls.is_some() {
                    self.flush_ciphered(at, id);
                } else if conn.session.replies().sendable() {
                    let mut batch = self.spare.take();
                    if conn.session.replies().fill_batch(&mut batch) {
                        conn.sending = true;
                        conn.in_batch = batch.memory();
                        self.core.ev.send(id, batch, SendMode::Try);
                        // The pieces in it make room for others (WINDOW-2).
                        let (core, disk) = (&mut self.core, &mut self.disk);
                        if !self.streams.go_on(core, disk, at, conn) {
                            return self.close_for(at, "error");
                        }
                    } else {
                        self.spare.put(batch);
                    }
                }
            }
        }
        self.settle(at);
    }

    /// The count that other workers check before they send answers to this worker
    /// ([`crate::route::Mesh::full`]). Answers that are not ready may be stuck behind the answers
    /// of those workers, so they do not count. Unsent answers of slow readers may take as much
    /// again. Beyond that, slow readers are closed. Other connections cannot cause this.
    pub(super) fn answer_level(&self) -> usize {
        let sums = self.conns.sums();
        sums.leaving.max((sums.leaving + sums.held) / 2)
    }

    /// The workers with a shard of which at least this much is pinned.
    pub(super) fn pinned_at(&self, so_much: Pinned) -> NumberSet {
        let mut set = NumberSet::default();
        for worker in 0..self.core.shared.deal.workers() {
            let pinned = if worker == self.index {
                self.core.shard.pinned()
            } else {
                self.core.outbox.mesh().pinned(worker)
            };
            if pinned >= so_much {
                set.add(worker);
            }
        }
        set
    }

    /// FLOW-3: closes slow readers that hold much of some shard's memory. It closes a few of the
    /// slowest at each tick, since other shards take a round or two to report. If too much is lent,
    /// it closes all of them. A single reader may hold much, unless answers wait for it.
    pub(super) fn free_pinned(&mut self) {
        if self.conns.sums().pinned == 0 {
            return;
        }
        let much = self.pinned_at(Pinned::Much);
        if much.is_empty() {
            return;
        }
        let (wanted, too_much) = (
            self.pinned_at(Pinned::Wanted),
            self.pinned_at(Pinned::TooMuch),
        );
        let (now_ms, me) = (self.now_ms, self.index);
        let (mut late, mut waits) = (Vec::new(), false);
        for (at, conn) in self.conns.iter() {
            if conn.account().pinned == 0 || now_ms.saturating_sub(conn.slow_since) < PATIENCE_MS {
                continue;
            }
            let mut of = conn.lent_of;
            for (_, pin) in conn.session.replies().pinned() {
                of.add(worker_of(pin).0.unwrap_or(me));
            }
            if of.meets(much) {
                waits |= of.meets(wanted);
                late.push((conn.slow_since, at, of.meets(too_much)));
            }
        }
        late.sort_unstable_by_key(|&(since, at, _)| (since, at));
        let few = match late.len() {
            1 if !waits => 0,
            n => n.div_ceil(8),
        };
        for (n, (_, at, too_much)) in late.into_iter().enumerate() {
            if n < few || too_much {
                self.close_slow(at);
            }
        }
    }

    /// Passes ready answers to the requesting worker, as far as that worker accepts them; with
    /// `anyway`, at least one.
    pub(super) fn answer_origin(&mut self, at: ConnKey, mut anyway: bool) {
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        let Link::Virtual(origin) = conn.link else {
            return;
        };
        if conn.sending || self.send_for(at) {
            return;
        }
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        let outbox = &mut self.core.outbox;
        let mut any = false;
        while std::mem::take(&mut anyway) || !outbox.mesh().full(origin.worker) {
            let Some(unit) = conn.session.replies().next_unit(|| outbox.empty()) else {
                break;
            };
            any = true;
            // The answer returns the socket.
            conn.borrowed = None;
            self.peers.answered(unit.bytes.len());
            outbox.answer(origin, unit);
        }
        if conn.session.replies().has_unit() {
            self.peers.hold_back(at, conn);
        }
        if any && conn.wait == Some(Wait::Window) {
            self.feed_again(at);
        } else {
            self.settle(at);
        }
    }

    pub(super) fn sent(
        &mut self,
        id: ConnId,
        batch: Box<SendBatch>,
        result: std::io::Result<usize>,
    ) {
        let Some(at) = self.conns.of_socket(id) else {
            match self.peers.sent_for(id) {
                Some((at, origin)) => self.sent_for(at, origin, batch, result),
                None => self.recycle(batch), // the connection was closed meanwhile
            }
            return;
        };
        if let Some(conn) = self.conns.get(at) {
            conn.in_batch = 0;
            // With TLS, answers were counted when they were encrypted, without TLS's overhead, as
            // memcached counts.
            if let (Ok(sent), None) = (&result, &conn.tls) {
                self.core.stats.bytes_written += *sent as u64;
            }
        }
        match result {
            Ok(sent) if sent == batch.len() => {
                let mut quiet = false;
                if let Some(conn) = self.conns.get(at) {
                    conn.was_sent(self.now_ms);
                    // The usual end of a request: everything was read and answered, and nothing is
                    // held back.
                    quiet = conn.is_read_out()
                        && conn.session.replies().is_empty()
                        && conn.receiving
                        && !conn.has_output()
                        && conn.account().held == 0;
                    if quiet {
                        self.conns.count(at, Account::default());
                    }
                }
                self.recycle(batch);
                if !quiet {
                    // Ready answers leave with the next flush. Before that, a session that waited
                    // for room may add more.
                    self.go_on(at);
                }
            }
            Ok(sent) => self.wait_for_room(at, id, batch, sent),
            Err(error) => {
                tracing::debug!("sending failed: {error}");
                self.recycle(batch);
                self.close_for(at, "error");
            }
        }
    }

    /// The socket's buffer is full. The rest of the batch waits in the loop, where it must not hold
    /// what others need.
    fn wait_for_room(&mut self, at: ConnKey, id: ConnId, mut batch: Box<SendBatch>, sent: usize) {
        let (mut lent, mut of) = self.hold(&mut batch, sent);
        let mut copied = batch.memory();
        // With TLS, the answers behind the ciphertext, of which nothing is lent.
        let plain = |conn: &mut Conn| conn.tls.as_mut()?.plain.take();
        if let Some(mut plain) = self.conns.get(at).and_then(plain) {
            (lent, of) = self.hold(&mut plain, 0);
            copied += plain.memory();
            if let Some(tls) = self.conns.get(at).and_then(|conn| conn.tls.as_mut()) {
                tls.plain = Some(plain);
            }
        }
        if let Some(conn) = self.conns.get(at) {
            conn.slow_since = self.now_ms.max(1);
            conn.session.replies().fit();
            (conn.copied, conn.lent, conn.lent_of) = (copied, lent, of);
        }
        self.core.ev.send(id, batch, SendMode::Wait);
        self.give_back_pins();
        // The next answer of this round must find it counted.
        self.settle(at);
        self.mark_dirty(at);
    }

    /// Makes the rest of a batch wait. Item memory may be lent for a while, up to a bound. Frames
    /// may not, because others wait for them. Returns the bytes lent, and their workers.
    fn hold(&mut self, batch: &mut SendBatch, sent: usize) -> (usize, NumberSet) {
        let (mut lent, mut of) = (0, NumberSet::default());
        let mut end = 0;
        for piece in &batch.pieces {
            end += piece.len();
            if end > sent
                && let Piece::Pinned(bytes) = piece
            {
                lent += bytes.len();
                of.add(worker_of(bytes.pin()).0.unwrap_or(self.index));
            }
        }
        // A round may bring many large answers, each to a full socket. One item is always lent,
        // since copying an answer larger than the bound would be worse. For a moment much more is
        // lent: copies count for more, and most readers are only a little late.
        let sums = self.conns.sums();
        // FLOW-2.
        let no_room = sums.held + sums.leaving + lent > 2 * self.pending;
        let lendable = sums.pinned == 0 || no_room || !of.meets(self.pinned_at(Pinned::TooMuch));
        let has_pages = has_pages(batch);
        if lent > 0 && lendable {
            drop_sent(batch, sent, &mut self.unpinned);
            batch.copy_pages();
        } else {
            batch.spill(sent, &mut self.unpinned);
            (lent, of) = (0, NumberSet::default());
        }
        batch.fit();
        self.disk.frames_freed(has_pages);
        (lent, of)
    }

    /// Empties a batch and keeps it for a later send.
    pub(super) fn recycle(&mut self, mut batch: Box<SendBatch>) {
        self.disk.frames_freed(has_pages(&batch));
        batch.clear(&mut self.unpinned);
        self.give_back_pins();
        self.spare.put(batch);
    }

    pub(super) fn give_back_pins(&mut self) {
        let core = &mut self.core;
        for pin in self.unpinned.drain(..) {
            match worker_of(pin) {
                (None, pin) => core.shard.unpin(pin),
                (Some(worker), pin) => core.outbox.unpin(worker, pin),
            }
        }
    }

    /// Checks a connection after a change: whether it is finished, and whether to receive from it.
    pub(super) fn settle(&mut self, at: ConnKey) {
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        let unread = conn.unread();
        let account = conn.counted(self.peers.usual_answer());
        self.conns.count(at, account);
        let sums = self.conns.sums();
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        let waits = conn.has_backlog();
        if let Link::Virtual(origin) = conn.link {
            // Only a connection with much unread is held back. Connections with nothing unread are
            // served, whatever waits here.
            let most = match sums.backlog_of_others > self.pending / 4 {
                true => 0,
                false => MOST_TAIL,
            };
            let holds = waits && unread > most;
            if std::mem::replace(&mut conn.holds_origin, holds) != holds {
                let message = match holds {
                    true => Message::Hold(origin.conn),
                    false => Message::GoOn(origin.conn),
                };
                self.core.stats.conns_held += u64::from(holds);
                self.core.outbox.send(origin.worker, message);
            }
        }
        let said = conn.session.replies().is_empty() && !conn.has_output();
        if conn.closing && !conn.sending && said {
            if conn.is_socket() {
                self.close(at);
            }
            return;
        }
        if let Link::Socket(id) = conn.link {
            // Nothing is received from a connection that waits for memory. So the kernel holds the
            // sender back, and the worker holds no bytes.
            let held_back = matches!(conn.wait, Some(Wait::Window | Wait::Memory | Wait::Room));
            let most = match waits && sums.backlog > self.pending / 2 {
                true => 0,
                false => MOST_TAIL,
            };
            let full = held_back || unread > most || conn.is_full();
            let receive = !conn.closing && !conn.ended && !conn.is_stopped() && !full;
            if receive != conn.receiving {
                conn.receiving = receive;
                self.core.ev.set_receiving(id, receive);
            }
        }
    }

    /// FLOW-2: closes slow readers until the held bytes are within their bound again. Readers that
    /// are only a little late, unread requests and answers on their way may take as much once more:
    /// they mean no harm, and senders are held back already.
    pub(super) fn enforce_bound(&mut self) {
        let now_ms = self.now_ms;
        loop {
            let sums = self.conns.sums();
            let beyond = sums.held + sums.leaving > 2 * self.pending;
            if sums.held <= self.pending && !beyond {
                return;
            }
            let longest = self
                .conns
                .iter()
                .filter(|(_, c)| {
                    let late =
                        c.slow_since != 0 && now_ms.saturating_sub(c.slow_since) >= PATIENCE_MS;
                    c.account().taken() > 0 && (late || beyond)
                })
                // If none is slow, the connection that takes most.
                .min_by_key(|(_, c)| match c.slow_since {
                    0 => (true, u64::MAX - c.account().taken() as u64),
                    since => (false, since),
                });
            let Some((at, _)) = longest else { return };
            self.close_slow(at);
        }
    }

    /// Closes a connection whose answers took too much memory, and logs that.
    fn close_slow(&mut self, at: ConnKey) {
        if self.timers.steady_ms() >= self.tell_of_slow_ms {
            self.tell_of_slow_ms = self.timers.steady_ms() + 10_000;
            tracing::warn!(
                "a connection was closed: unsent answers took the memory that there is for them; others are counted in stats"
            );
        }
        self.core.stats.slow_readers_closed += 1;
        if let Some(Link::Virtual(origin)) = self.conns.get(at).map(|conn| conn.link) {
            // The next bytes from there may begin in the middle of a request.
            self.peers.refuse(origin);
            let message = Message::Refused(origin.conn);
            self.core.outbox.send(origin.worker, message);
        }
        self.close_for(at, "error");
    }

    /// Handles a peer that will send no more, or is gone.
    pub(super) fn ended(&mut self, id: ConnId, error: Option<std::io::Error>) {
        let Some(at) = self.conns.of_socket(id) else {
            return;
        };
        self.need_socket(at);
        if let Some(error) = error {
            tracing::debug!("receiving failed: {error}");
            self.close_for(at, "error");
            return;
        }
        self.note_end(at);
        self.no_more(at);
    }

    /// The peer has sent its last message.
    pub(super) fn no_more(&mut self, at: ConnKey) {
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        conn.ended = true;
        // Earlier commands are still answered: a session with work continues, and a session that
        // waits for more input never gets it.
        if conn.takes_input() {
            conn.closing = true;
            conn.session.give_up_value();
        }
        self.settle(at);
    }

    /// Closes a connection at once; the results of its operations are dropped.
    pub(super) fn close(&mut self, at: ConnKey) {
        self.tell_of_end(at);
        let Some(mut conn) = self.conns.remove(at) else {
            return;
        };
        conn.session.cancel(&mut self.core.ctx(at, (None, 0)));
        // Its replies may have held frames.
        self.disk.frames_freed(true);
        match conn.link {
            Link::Socket(id) => {
                // Before another connection can get this descriptor number.
                self.left(conn.fd);
                self.core.shared.forget_socket(self.index, at.0);
                if let Some(tls) = conn.tls.take() {
                    self.part(id, tls, conn.sending);
                }
                self.close_socket(at, &conn, id);
                if self.core.shared.deal.workers() > 1 {
                    self.core.outbox.gone(at);
                }
            }
            Link::Virtual(origin) => {
                if conn.borrowed.is_some() {
                    self.core.outbox.give_back(origin);
                }
            }
        }
    }
}

pub(super) fn has_pages(batch: &SendBatch) -> bool {
    batch
        .pieces
        .iter()
        .any(|piece| matches!(piece, Piece::Page(..)))
}

/// Drops the first `sent` bytes of a batch without copying the rest; pins of completely sent pieces
/// go to `unpinned`.
pub(super) fn drop_sent(batch: &mut SendBatch, mut sent: usize, unpinned: &mut Vec<u64>) {
    if batch.pieces.is_empty() {
        batch.bytes.drain(..sent);
        return;
    }
    let mut whole = 0;
    for piece in &mut batch.pieces {
        if sent < piece.len() {
            match piece {
                Piece::Bytes(range) | Piece::Page(_, range) => range.start += sent,
                Piece::Pinned(bytes) => bytes.skip(sent),
            }
            break;
        }
        sent -= piece.len();
        whole += 1;
    }
    for piece in batch.pieces.drain(..whole) {
        if let Piece::Pinned(bytes) = piece {
            unpinned.push(bytes.pin());
        }
    }
}
