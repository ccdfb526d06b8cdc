// SPDX-License-Identifier: Apache-2.0
//! State between this worker and the others: connections that wait for another worker, lent
//! sockets, and the usual size of an answer between two workers.
//!
//! Always holds: a connection's marks `paused`, `held_back` and `needed` say whether it is in the
//! list of that name.

use std::collections::{HashSet, VecDeque};

use senko_io::ConnId;

use super::conns::{ByNumber, Conn};
use crate::connection::{ConnKey, RemoteConn};

/// State between this worker and the others.
#[derive(Default)]
pub(super) struct Peers {
    /// Connections that wait for another worker to catch up, and for which.
    paused: Vec<(ConnKey, usize)>,
    /// Virtual connections whose answers wait until another worker takes them.
    held_back: VecDeque<ConnKey>,
    /// Sends on sockets that other workers lent: the virtual connection, and the owner's
    /// connection.
    sends_for_others: ByNumber<ConnId, (ConnKey, RemoteConn)>,
    /// Lent sockets of closed connections, and the workers that have them.
    closed_lent: ByNumber<ConnKey, (ConnId, usize)>,
    /// Connections for whose sockets something waits.
    needed: Vec<ConnKey>,
    /// Connections of other workers that were closed here, and may still send until they are told.
    refused: HashSet<RemoteConn>,
    usual_answer: UsualAnswer,
}

/// The usual bytes of an answer between two workers, from recent ones.
struct UsualAnswer(usize);

impl Default for UsualAnswer {
    fn default() -> UsualAnswer {
        UsualAnswer(1 << 10)
    }
}

impl Peers {
    // ---- connections that wait ----

    /// Makes a connection wait until a worker has caught up.
    pub fn pause(&mut self, at: ConnKey, conn: &mut Conn, worker: usize) {
        conn.paused = true;
        self.paused.push((at, worker));
    }
    pub fn has_paused(&self) -> bool {
        !self.paused.is_empty()
    }
    /// Takes the connections that wait, with their workers, to check them.
    pub fn take_paused(&mut self) -> Vec<(ConnKey, usize)> {
        std::mem::take(&mut self.paused)
    }
    /// Puts back a connection that still waits.
    pub fn pauses_still(&mut self, at: ConnKey, worker: usize) {
        self.paused.push((at, worker));
    }

    /// Makes the answers of a virtual connection wait until the other worker takes them.
    pub fn hold_back(&mut self, at: ConnKey, conn: &mut Conn) {
        if !conn.held_back {
            conn.held_back = true;
            self.held_back.push_back(at);
        }
    }
    pub fn holds_back(&self) -> bool {
        !self.held_back.is_empty()
    }
    /// Takes the connections whose answers wait, to check them.
    pub fn take_held_back(&mut self) -> VecDeque<ConnKey> {
        std::mem::take(&mut self.held_back)
    }
    /// Puts back those that still wait. They come before those that were held back meanwhile.
    pub fn put_back(&mut self, mut later: VecDeque<ConnKey>) {
        later.append(&mut self.held_back);
        self.held_back = later;
    }

    // ---- lent sockets ----

    /// Notes that something waits for this connection's socket, which is lent.
    pub fn need(&mut self, at: ConnKey, conn: &mut Conn) {
        if !std::mem::replace(&mut conn.needed, true) {
            self.needed.push(at);
        }
    }
    /// Checks the connections for whose sockets something waits; `needed` says whether each still
    /// does. Returns whether any lent socket is still needed.
    pub fn look_over(&mut self, mut needed: impl FnMut(ConnKey) -> bool) -> bool {
        self.needed.retain(|&at| needed(at));
        !self.needed.is_empty() || !self.closed_lent.is_empty()
    }
    /// Notes that a closed connection's socket is still lent to a worker.
    pub fn closed_while_lent(&mut self, at: ConnKey, socket: ConnId, worker: usize) {
        self.closed_lent.insert(at, (socket, worker));
    }
    /// Handles a worker's answer to a closed connection: returns its socket, if it was lent there.
    pub fn back_from(&mut self, at: ConnKey, worker: usize) -> Option<ConnId> {
        let &(socket, to) = self.closed_lent.get(&at)?;
        (to == worker).then(|| {
            self.closed_lent.remove(&at);
            socket
        })
    }
    /// The sockets of closed connections that are still lent.
    pub fn closed_lent(&self) -> impl Iterator<Item = ConnId> {
        self.closed_lent.values().map(|&(socket, _)| socket)
    }

    /// Notes that an answer of a virtual connection is being sent on a socket that this worker
    /// borrowed.
    pub fn sends_for(&mut self, send: ConnId, at: ConnKey, origin: RemoteConn) {
        self.sends_for_others.insert(send, (at, origin));
    }
    /// Ends such a send: returns the virtual connection, and the owner's connection.
    pub fn sent_for(&mut self, send: ConnId) -> Option<(ConnKey, RemoteConn)> {
        self.sends_for_others.remove(&send)
    }

    // ---- connections that were closed here ----

    /// Notes that a connection of another worker was closed here: its further commands are dropped.
    pub fn refuse(&mut self, origin: RemoteConn) {
        self.refused.insert(origin);
    }
    pub fn refuses(&self, origin: RemoteConn) -> bool {
        self.refused.contains(&origin)
    }
    /// Notes that its worker knows.
    pub fn gone(&mut self, origin: RemoteConn) {
        self.refused.remove(&origin);
    }

    // ---- answers ----

    /// The usual bytes of an answer between two workers, used for an answer that has not arrived.
    pub fn usual_answer(&self) -> usize {
        self.usual_answer.0
    }
    /// Notes an answer of this many bytes.
    pub fn answered(&mut self, bytes: usize) {
        let before = self.usual_answer.0;
        self.usual_answer.0 = (before - before / 32 + bytes / 32).max(256);
    }
}
