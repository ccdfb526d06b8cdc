// SPDX-License-Identifier: Apache-2.0
//! Sockets lent to the workers of other shards with a command: the worker that makes an answer also
//! sends it (LEND-1 to LEND-3 in `route.rs`).
//!
//! ```text
//!  worker of the connection                     worker of the shard
//!  feed -> lend_socket --Commands--> wakes it -> borrowed -> answer_origin -> send_for --Try--> sent_for
//!  got_back <------ Sent, which wakes nobody, or Answer with what the socket did not take ---------'
//! ```
//! The next request on the connection comes to the connection's own worker. That worker finds the
//! report in its inbox, or asks to be woken for it. Without a request, it reads the report with
//! other mail or at a tick.

use senko_io::{ConnId, SendBatch};

use super::Worker;
use super::conns::{Conn, Link};
use crate::connection::ConnKey;
use crate::connection::RemoteConn;
use crate::reply::Answer;

/// Longest answer that is sent for another worker: it usually fits into a socket's buffer. Larger
/// values are still lent, not copied.
const MOST_SENT_FOR: usize = 40 << 10;

impl Worker {
    /// Lends a connection's socket with the command that was just forwarded, if no other is under
    /// way.
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
        let Some((worker, command)) = lone else {
            return;
        };
        if let Some(socket) = self.core.ev.descriptor(id)
            && self.core.outbox.lend(worker, at, command, socket)
        {
            conn.lent_to = Some(worker);
        }
    }

    /// Notes an event that may have to wait for the socket of this connection.
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

    /// LEND-3: looks for reports that woke nobody.
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
            // In each round, since the wake-up may have had another reason.
            mesh.want(self.index);
        }
        if (waits || tick || self.draining()) && mesh.has_mail(self.index) {
            self.read_mail();
        }
    }

    /// Handles a worker's answer to a connection: if the socket was lent there, it is back.
    pub(super) fn got_back(&mut self, at: ConnKey, worker: usize) {
        match self.conns.get(at) {
            Some(conn) if conn.lent_to == Some(worker) => conn.lent_to = None,
            Some(_) => {}
            None => {
                if let Some(id) = self.peers.back_from(at, worker) {
                    self.close_back(id);
                }
            }
        }
    }

    /// Closes the socket of a connection that was removed from the table; LEND-1: only after its
    /// return.
    pub(super) fn close_socket(&mut self, at: ConnKey, conn: &Conn, id: ConnId) {
        match conn.lent_to {
            None => self.close_back(id),
            Some(worker) => {
                self.core.ev.set_receiving(id, false);
                self.peers.closed_while_lent(at, id, worker);
            }
        }
    }

    /// Closes a socket that is not lent. Until then no worker can end.
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
        let mut batch = self.spare.take();
        if !conn.session.replies().unit_batch(&mut batch, MOST_SENT_FOR) {
            self.spare.put(batch);
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

    /// Handles the end of a send for another worker.
    pub(super) fn sent_for(
        &mut self,
        at: ConnKey,
        origin: RemoteConn,
        batch: Box<SendBatch>,
        result: std::io::Result<usize>,
    ) {
        // The socket's own worker meets an error when it sends the rest.
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

    /// Leaves the unsent rest of an answer to the requesting worker.
    fn answer_with(&mut self, origin: RemoteConn, mut batch: Box<SendBatch>, sent: usize) {
        batch.spill(sent, &mut self.unpinned);
        let bytes = std::mem::take(&mut batch.bytes);
        let (lent, rest) = (Vec::new(), None);
        (self.core.outbox).answer(origin, Answer { bytes, lent, rest });
        self.recycle(batch);
    }
}

impl Drop for Worker {
    /// A worker may end before its sockets are back, because it failed or its time was over. It
    /// leaves them open, because other workers may still send on their numbers, which no new
    /// connection may get. The process is about to end.
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
