// SPDX-License-Identifier: Apache-2.0
//! New connections: the connection limit, the distribution over workers, and the counts when a
//! connection ends.
//!
//! Worker 0 accepts for all, so the limit needs no agreement between workers. At the limit a new
//! connection gets an error and is closed (memcached's `maxconns_fast`, its default), or accepting
//! stops until another one ends.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use senko_io::{ListenerId, SendMode};

use super::conns::{Conn, Link};
use super::{Worker, seconds};
use crate::connection::Newcomer;
use crate::route::Message;
use crate::session::Session;
use crate::settings::{Terms, TlsMode};
use crate::shared::ConnEntry;

/// memcached's message at its limit.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// A listening socket of a worker, as `stats conns` shows it.
#[derive(Clone, Debug)]
pub struct Door {
    pub listener: senko_io::Listener,
    /// `tcp:127.0.0.1:11211`, `unix:/path`.
    pub name: Arc<str>,
    pub terms: Terms,
}

/// A worker's listening sockets, and new connections that wait for room.
pub(super) struct Entrance {
    doors: Vec<Door>,
    /// The listener of each door, once it is open.
    open: Vec<ListenerId>,
    /// Sockets above the connection limit, if they wait instead of being refused.
    waiting: VecDeque<Newcomer>,
    stopped_ms: u64,
}

impl Entrance {
    pub fn new(doors: Vec<Door>) -> Entrance {
        Entrance {
            doors,
            open: Vec::new(),
            waiting: VecDeque::new(),
            stopped_ms: 0,
        }
    }

    /// Closes the waiting connections: none of them will be accepted.
    pub fn turn_away(&mut self) {
        self.waiting.clear();
    }

    fn door(&self, listener: ListenerId) -> Option<&Door> {
        let place = self.open.iter().position(|&id| id == listener)?;
        self.doors.get(place)
    }
}

impl Worker {
    pub(super) fn open_doors(&mut self) -> Result<(), String> {
        for door in &self.entrance.doors {
            let id = self
                .core
                .ev
                .listen(&door.listener)
                .map_err(|e| format!("cannot accept on {}: {e}", door.name))?;
            self.entrance.open.push(id);
        }
        Ok(())
    }

    pub(super) fn accepted(&mut self, listener: ListenerId, stream: OwnedFd) {
        let Some(door) = self.entrance.door(listener) else {
            return; // no listener of this worker's
        };
        let newcomer = Newcomer {
            stream,
            door: Arc::clone(&door.name),
            terms: door.terms,
            fill: 0,
        };
        // Dropped, so that its client goes to another server at once.
        if self.draining() || self.core.shared.is_draining() {
            return;
        }
        let shared = Arc::clone(&self.core.shared);
        if shared.conn_counts.current.load(Ordering::Relaxed) < shared.settings.max_connections {
            self.admit(newcomer);
        } else if shared.settings.refuse_fast {
            shared.conn_counts.rejected.fetch_add(1, Ordering::Relaxed);
            // A TLS client could not read the refusal.
            if newcomer.terms.tls == TlsMode::Off {
                self.refuse(newcomer.stream);
            }
            return;
        } else {
            self.entrance.waiting.push_back(newcomer);
        }
        if !shared.settings.refuse_fast
            && shared.conn_counts.current.load(Ordering::Relaxed) >= shared.settings.max_connections
        {
            self.stop_accepting();
        }
    }

    /// Handles a failed accept; the loop continues by itself after a pause.
    pub(super) fn accept_failed(&mut self, error: &std::io::Error) {
        tracing::warn!("a connection could not be accepted: {error}");
    }

    /// Counts a new connection and gives it to the worker with the fewest connections.
    fn admit(&mut self, newcomer: Newcomer) {
        let counts = &self.core.shared.conn_counts;
        counts.current.fetch_add(1, Ordering::Relaxed);
        counts.total.fetch_add(1, Ordering::Relaxed);
        let worker = self.core.outbox.mesh().welcome();
        if worker == self.index {
            self.adopt(newcomer);
        } else {
            self.core.outbox.send(worker, Message::Newcomer(newcomer));
        }
    }

    /// Takes a connection as this worker's own.
    pub(super) fn adopt(&mut self, newcomer: Newcomer) {
        let Newcomer {
            stream,
            door,
            terms,
            fill,
        } = newcomer;
        let fd = stream.as_raw_fd();
        let (stream, addr) = peer_name(stream, &door);
        let id = match self.core.ev.adopt(stream) {
            Ok(id) => id,
            Err(error) => {
                tracing::warn!("a connection could not be taken over: {error}");
                self.core
                    .shared
                    .conn_counts
                    .current
                    .fetch_sub(1, Ordering::Relaxed);
                self.core.outbox.mesh().goodbye(self.index);
                return;
            }
        };
        let second = seconds(self.now_ms);
        let entry = Arc::new(ConnEntry::new(addr, door.to_string(), second));
        self.core.shared.register(fd as u64, Arc::clone(&entry));
        let auth = &self.core.shared.auth;
        let guarded = terms.guarded && auth.is_on();
        let own = terms.only.or(self.core.shared.settings.only_protocol);
        let only = if guarded { own.or(auth.dialect()) } else { own };
        let mut session = Session::new(only);
        if guarded {
            session.ask_password();
        }
        session.fill_as(fill);
        let mut conn = Conn::new(Link::Socket(id), session, self.now_ms);
        (conn.entry, conn.fd) = (Some(entry), fd as u64);
        let ciphered = self.cipher(&mut conn, terms.tls);
        let at = self.conns.insert(conn);
        let socket = (fd as u64, fill);
        self.core.shared.name_socket(self.index, at.0, socket);
        self.tell_of_conn(at, "conn_new", None);
        if !ciphered {
            // Without its cipher a connection is not served at all.
            self.close(at);
            return;
        }
        if self.draining() {
            self.core.ev.end_input(id);
        }
    }

    /// Answers that there is no room, and closes.
    fn refuse(&mut self, stream: OwnedFd) {
        let Ok(id) = self.core.ev.adopt(stream) else {
            return;
        };
        let mut batch = self.spare.take();
        batch.bytes.extend_from_slice(TOO_MANY);
        self.core.ev.send(id, batch, SendMode::Try);
        // Bytes given to the loop before a close are still sent.
        self.core.ev.close(id);
    }

    /// Handles a closed socket of this worker.
    pub(super) fn left(&mut self, fd: u64) {
        self.core.shared.unregister(fd);
        self.core
            .shared
            .conn_counts
            .current
            .fetch_sub(1, Ordering::Relaxed);
    }

    fn stop_accepting(&mut self) {
        let counts = &self.core.shared.conn_counts;
        if counts.accepting.swap(0, Ordering::Relaxed) != 0 {
            counts.listen_disabled.fetch_add(1, Ordering::Relaxed);
            self.entrance.stopped_ms = self.now_ms;
            self.core.ev.set_accepting(false);
        }
    }

    /// Lets waiting connections in, and accepts again once there is room. Called every round,
    /// because connections of other workers may have ended.
    pub(super) fn reopen_doors(&mut self) {
        let shared = Arc::clone(&self.core.shared);
        let counts = &shared.conn_counts;
        if self.entrance.doors.is_empty()
            || counts.accepting.load(Ordering::Relaxed) != 0
            || self.draining()
        {
            return;
        }
        while counts.current.load(Ordering::Relaxed) < shared.settings.max_connections {
            match self.entrance.waiting.pop_front() {
                Some(newcomer) => self.admit(newcomer),
                None => {
                    let stopped = self.now_ms.saturating_sub(self.entrance.stopped_ms) * 1000;
                    counts
                        .listen_disabled_us
                        .fetch_add(stopped, Ordering::Relaxed);
                    counts.accepting.store(1, Ordering::Relaxed);
                    self.core.ev.set_accepting(true);
                    return;
                }
            }
        }
    }
}

/// The peer's address in memcached's form.
fn peer_name(stream: OwnedFd, door: &str) -> (OwnedFd, String) {
    if door.starts_with("unix:") {
        return (stream, door.to_string());
    }
    // The standard library returns the peer only for its own types, so the descriptor is wrapped
    // briefly.
    let stream = TcpStream::from(stream);
    let name = stream.peer_addr().map_or_else(
        |_| "<gone>".to_string(),
        |addr| match addr {
            std::net::SocketAddr::V4(v4) => format!("tcp:{v4}"),
            std::net::SocketAddr::V6(v6) => format!("tcp6:{v6}"),
        },
    );
    (OwnedFd::from(stream), name)
}
