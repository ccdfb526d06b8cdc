// SPDX-License-Identifier: Apache-2.0
//! Sockets lent to the workers of other shards with a command, so that the answer is sent from
//! where it is made (LEND-1 to LEND-3 in `route.rs`).
//!
//! ```text
//!  worker of the connection                     worker of the shard
//!  feed -> lend_socket --Commands--> wakes it -> borrowed -> answer_origin -> send_for --Try--> sent_for
//!  got_back <------ Sent, which wakes nobody, or Answer with what the socket did not take ---------'
//! ```
//! The next request on the connection comes to the first worker. That one finds the word in its
//! inbox, or asks to be woken for it. Without a request, other mail or a tick brings the word.

use senko_io::{ConnId, SendBatch};

use super::Worker;
use super::conns::{Conn, Link};
use crate::connection::ConnKey;
use crate::connection::RemoteConn;
use crate::reply::Answer;

/// Longest answer that is sent for another worker: what a socket's buffer mostly takes at once.
/// Larger values are lent, not copied, and stay so.
const MOST_SENT_FOR: usize = 40 << 10;

impl Worker {
    /// Lends a connection's socket with the command that was just forwarded, if that is all that is
    /// under way.
    pub(super) fn lend_socket(&mut self, at: ConnKey, id: ConnId) {
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        let free = !conn.sending && !conn.closing && !conn.is_stopped() && conn.lent_to.is_none();
        let free = free && conn.tls.is_none();
        let lone = if free && conn.takes_input() {
            conn.session.lone_foreign()
        } else {
            None
        };
        let Some((shard, command)) = lone else {
            return;
        };
        if let Some(socket) = self.core.ev.descriptor(id)
            && self.core.outbox.lend(shard, at, command, socket)
        {
            conn.lent_to = Some(shard);
        }
    }

    /// Something came that may have to wait for the socket of this connection.
    pub(super) fn need_socket(&mut self, at: ConnKey) {
        if self.is_lent(at) && self.core.outbox.mesh().has_mail(self.index) {
            self.read_mail();
        }
        if let Some(conn) = self.conns.get(at)
            && conn.lent_to.is_some()
        {
            self.peers.need(at, conn);
        }
    }

    fn is_lent(&mut self, at: ConnKey) -> bool {
        let conn = self.conns.get(at);
        conn.is_some_and(|conn| conn.lent_to.is_some())
    }

    /// LEND-3: looks for words that woke nobody.
    pub(super) fn look_for_mail(&mut self, tick: bool) {
        let conns = &mut self.conns;
        let waits = self.peers.look_over(|at| {
            let Some(conn) = conns.get(at) else {
                return false;
            };
            conn.needed = conn.lent_to.is_some();
            conn.needed
        });
        let mesh = self.core.outbox.mesh();
        if waits {
            // In each round, since the wake-up may have come for something else.
            mesh.want(self.index);
        }
        if (waits || tick || self.draining()) && mesh.has_mail(self.index) {
            self.read_mail();
        }
    }

    /// A shard answered a connection: its socket is back if it was lent there.
    pub(super) fn got_back(&mut self, at: ConnKey, shard: usize) {
        match self.conns.get(at) {
            Some(conn) if conn.lent_to == Some(shard) => conn.lent_to = None,
            Some(_) => {}
            None => {
                if let Some(id) = self.peers.back_from(at, shard) {
                    self.close_back(id);
                }
            }
        }
    }

    /// Closes the socket of a connection that was taken out of the table; LEND-1: not before it is
    /// back.
    pub(super) fn close_socket(&mut self, at: ConnKey, conn: &Conn, id: ConnId) {
        match conn.lent_to {
            None => self.close_back(id),
            Some(shard) => {
                self.core.ev.set_receiving(id, false);
                self.peers.closed_while_lent(at, id, shard);
            }
        }
    }

    /// Closes a socket that is not lent. Until then it keeps all workers from leaving.
    fn close_back(&mut self, id: ConnId) {
        self.core.ev.close(id);
        self.core.outbox.mesh().goodbye(self.index);
    }

    /// Sends the oldest answer of a virtual connection, if there is one, on the socket that was
    /// lent with its command. Returns true if it is being sent.
    pub(super) fn send_for(&mut self, at: ConnKey) -> bool {
        let Some(conn) = self.conns.get(at) else {
            return false;
        };
        let (Link::Virtual(origin), Some(socket)) = (conn.link, conn.borrowed) else {
            return false;
        };
        // Bytes that the socket does not accept would go to that worker.
        if self.core.outbox.mesh().full(origin.worker) {
            return false;
        }
        let mut batch = self.spare.pop().unwrap_or_default();
        if !conn.session.replies().unit_batch(&mut batch, MOST_SENT_FOR) {
            self.spare.push(batch);
            return false;
        }
        conn.borrowed = None;
        self.peers.answered(batch.bytes.len());
        match self.core.ev.send_for(socket, batch) {
            Ok(id) => {
                conn.sending = true;
                self.peers.sends_for(id, at, origin);
                true
            }
            Err(batch) => {
                self.answer_with(origin, batch, 0);
                self.feed_again(at);
                false
            }
        }
    }

    /// A send for another worker ended.
    pub(super) fn sent_for(
        &mut self,
        at: ConnKey,
        origin: RemoteConn,
        batch: Box<SendBatch>,
        result: std::io::Result<usize>,
    ) {
        // An error of the socket is found by its own worker when it sends the rest.
        let sent = result.unwrap_or(0);
        self.core.stats.bytes_written += sent as u64;
        if sent == batch.len() {
            self.core.stats.sent_for_others += 1;
            self.core.outbox.give_back(origin);
            self.recycle(batch);
        } else {
            self.answer_with(origin, batch, sent);
        }
        if let Some(conn) = self.conns.get(at) {
            conn.sending = false;
            self.feed_again(at);
        }
    }

    /// Leaves it to the worker that asked to send what is left of an answer.
    fn answer_with(&mut self, origin: RemoteConn, mut batch: Box<SendBatch>, sent: usize) {
        batch.spill(sent, &mut self.unpinned);
        let bytes = std::mem::take(&mut batch.bytes);
        let lent = Vec::new();
        self.core.outbox.answer(origin, Answer { bytes, lent });
        self.recycle(batch);
    }
}

impl Drop for Worker {
    /// A worker may leave before its sockets are back, since it failed or its time was over. It
    /// leaves them open: no newcomer may get their numbers while others may send on them. The
    /// process is about to end.
    fn drop(&mut self) {
        for (_, conn) in self.conns.iter() {
            if let (Link::Socket(id), Some(_)) = (conn.link, conn.lent_to) {
                self.core.ev.leave_open(id);
            }
        }
        for id in self.peers.closed_lent() {
            self.core.ev.leave_open(id);
        }
    }
}
