// SPDX-License-Identifier: Apache-2.0
//! Messages from other workers: sockets to own, commands for its shards, answers to this worker's
//! connections.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use super::Worker;
use super::conns::{Conn, Link};
use crate::connection::RemoteConn;
use crate::reply::Answer;
use crate::route::Message;
use crate::session::Session;

impl Worker {
    pub(super) fn read_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.core.outbox.mesh().take(self.index, &mut mail);
        if mail.iter().any(|m| matches!(m, Message::Commands { .. })) {
            // These may be younger than the round, and an item may have expired before they came.
            self.now_ms = self.core.read_clock(&mut self.timers);
        }
        self.coming.clear();
        for message in &mail {
            if let Message::Commands { bytes, .. } = message {
                self.note_keys(bytes);
            }
        }
        self.ask_for_noted();
        for message in mail.drain(..) {
            match message {
                Message::Newcomer(newcomer) => self.adopt(newcomer),
                Message::Commands {
                    origin,
                    bytes,
                    socket,
                } => {
                    let mesh = self.core.outbox.mesh();
                    mesh.took_commands(self.index, bytes.len());
                    self.commands(origin, &bytes, socket);
                    self.core.outbox.keep(bytes);
                }
                Message::Answer {
                    conn: at,
                    worker,
                    answer,
                } => {
                    let mesh = self.core.outbox.mesh();
                    mesh.taken(self.index, answer.bytes.len());
                    self.peers.answered(answer.bytes.len());
                    self.got_back(at, worker);
                    let conn = self.conns.get(at);
                    let waited_for = conn.is_some();
                    let left = match conn {
                        Some(conn) => conn.session.remote_reply(worker, answer),
                        None => answer,
                    };
                    self.unpinned.extend(left.pins(worker));
                    self.give_back_pins();
                    self.core.outbox.keep(left.bytes);
                    if waited_for {
                        self.feed_again(at);
                    }
                }
                Message::Sent {
                    conn: at,
                    worker,
                    buffer,
                } => {
                    self.core.outbox.keep(buffer);
                    self.peers.answered(0);
                    self.got_back(at, worker);
                    if let Some(conn) = self.conns.get(at) {
                        conn.session.remote_reply(worker, Answer::default());
                        self.feed_again(at);
                    }
                }
                Message::Unpin(pins) => {
                    self.unpinned.extend(pins);
                    self.give_back_pins();
                }
                Message::GiveUp(origin) => {
                    if let Some(at) = self.conns.of_origin(origin) {
                        self.value_ends(at);
                    }
                }
                Message::Hold(at) => {
                    if let Some(conn) = self.conns.get(at) {
                        conn.holds += 1;
                        self.settle(at);
                    }
                }
                Message::GoOn(at) => {
                    if let Some(conn) = self.conns.get(at) {
                        conn.holds -= 1;
                        self.feed_again(at);
                    }
                }
                Message::Refused(at) => {
                    if self.conns.get(at).is_some() {
                        self.close(at);
                    }
                }
                Message::Gone(origin) => {
                    self.peers.gone(origin);
                    if let Some(at) = self.conns.of_origin(origin) {
                        self.close(at);
                    }
                }
            }
        }
        self.mail = mail;
    }

    /// Runs commands of another worker's connection in its virtual connection.
    fn commands(&mut self, origin: RemoteConn, bytes: &[u8], socket: Option<RawFd>) {
        if self.peers.refuses(origin) {
            if socket.is_some() {
                self.core.outbox.give_back(origin);
            }
            return;
        }
        let at = self.conns.of_origin(origin).unwrap_or_else(|| {
            let link = Link::Virtual(origin);
            let mut conn = Conn::new(link, Session::remote(), self.now_ms);
            let (fd, fill) = (self.core.shared).socket_of(origin.worker, origin.conn.0);
            conn.fd = fd;
            conn.session.fill_as(fill);
            self.conns.insert(conn)
        });
        if let (Some(conn), Some(_)) = (self.conns.get(at), socket) {
            conn.borrowed = socket;
        }
        self.input(at, bytes);
    }

    /// Passes answers to workers that had too many, as far as they accept them now. After a tick
    /// the first answer goes in any case: that worker's answers may be stuck behind this very one.
    pub(super) fn hand_over(&mut self, tick: bool) {
        if !self.peers.holds_back() {
            return;
        }
        self.core.outbox.mesh().wait(self.index);
        let mut anyway = tick;
        // Connections that had a turn come after those that had none.
        let mut later = VecDeque::new();
        for at in self.peers.take_held_back() {
            let Some(conn) = self.conns.get(at) else {
                continue;
            };
            let full = match conn.link {
                Link::Virtual(origin) => self.core.outbox.mesh().full(origin.worker),
                Link::Socket(_) => false,
            };
            if full && !anyway {
                later.push_back(at);
                continue;
            }
            conn.held_back = false;
            if conn.session.replies().has_unit() {
                self.answer_origin(at, std::mem::take(&mut anyway));
            }
        }
        self.peers.put_back(later);
    }

    /// Lets connections continue that waited for a worker to catch up.
    pub(super) fn resume_paused(&mut self) {
        if !self.peers.has_paused() {
            return;
        }
        self.core.outbox.mesh().wait(self.index);
        for (at, worker) in self.peers.take_paused() {
            if self.core.outbox.mesh().congested(worker) {
                self.peers.pauses_still(at, worker);
            } else if let Some(conn) = self.conns.get(at) {
                conn.paused = false;
                self.feed_again(at);
            }
        }
    }
}
