// SPDX-License-Identifier: Apache-2.0
//! The admin thread's loop: takes connections, reads one request of each, answers it, closes.
//!
//! Anybody who reaches the port may connect, send half a request, or never read. So there is a
//! bound on each: connections (the oldest makes room), bytes of a head, and the time from accept to
//! close.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use senko_io::{
    BackendChoice, ConnId, Event, EventLoop, Listener, LoopConfig, SendBatch, SendMode, Waker,
};

use super::Watched;
use super::history::History;
use super::http::{self, Parsed};

/// Connections at a time.
pub(super) const MOST_CONNECTIONS: usize = 16;
/// A connection is closed so long after it was accepted, whatever it does.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait: how late the history may be.
const TICK: Duration = Duration::from_secs(10);

struct Conn {
    id: ConnId,
    accepted: Instant,
    /// The head so far.
    head: Vec<u8>,
    answered: bool,
}

/// The loop.
pub(super) struct Loop {
    ev: EventLoop,
    /// The oldest first.
    conns: VecDeque<Conn>,
    history: History,
}

impl Loop {
    pub(super) fn new(listener: &Listener) -> io::Result<Loop> {
        let mut ev = EventLoop::new(&LoopConfig {
            // A handful of requests a minute: no ring of locked memory for them.
            backend: BackendChoice::Posix,
            recv_buffers: 4,
            recv_buffer_bytes: 4 << 10,
            frames: Vec::new(),
            disk_threads: 1,
            max_connections: MOST_CONNECTIONS + 1,
        })?;
        ev.listen(listener)?;
        Ok(Loop {
            ev,
            conns: VecDeque::new(),
            history: History::default(),
        })
    }

    pub(super) fn waker(&self) -> Waker {
        self.ev.waker()
    }

    /// Runs until the server's end.
    pub(super) fn run(&mut self, watched: &Watched) -> io::Result<()> {
        let mut events = Vec::new();
        while !watched.end.load(Ordering::Acquire) {
            let now = Instant::now();
            let next = self.conns.front().map_or(TICK, |oldest| {
                (oldest.accepted + PATIENCE).saturating_duration_since(now)
            });
            self.ev.poll(Some(next.min(TICK)), &mut events)?;
            if let Some(started) = watched.started.get() {
                self.history.note(&started.shared, Instant::now());
            }
            for event in events.drain(..) {
                self.event(event, watched);
            }
            let now = Instant::now();
            while let Some(oldest) = self.conns.front()
                && now.saturating_duration_since(oldest.accepted) >= PATIENCE
            {
                let id = oldest.id;
                self.close(id);
            }
        }
        Ok(())
    }

    fn event(&mut self, event: Event, watched: &Watched) {
        match event {
            Event::Accepted { stream, .. } => {
                if let Some(oldest) = self.conns.front().map(|conn| conn.id)
                    && self.conns.len() >= MOST_CONNECTIONS
                {
                    self.close(oldest);
                }
                // A socket that the loop does not take is closed with `stream`.
                if let Ok(id) = self.ev.adopt(stream) {
                    self.conns.push_back(Conn {
                        id,
                        accepted: Instant::now(),
                        head: Vec::new(),
                        answered: false,
                    });
                }
            }
            Event::Received { conn, data } => self.received(conn, &data, watched),
            // A client that has ended its side may still wait for its answer.
            Event::Ended { conn, .. } => {
                if self.find(conn).is_some_and(|conn| !conn.answered) {
                    self.close(conn);
                }
            }
            Event::Sent { conn, .. } => self.close(conn),
            Event::AcceptFailed { error, .. } => {
                tracing::warn!("the admin listener cannot accept: {error}");
            }
            Event::Disk(_) | Event::Woken => {}
        }
    }

    fn find(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.iter_mut().find(|conn| conn.id == id)
    }

    fn received(&mut self, id: ConnId, data: &[u8], watched: &Watched) {
        // Only this much is ever looked at.
        let Some(at) = self.conns.iter().position(|conn| conn.id == id) else {
            return;
        };
        let conn = &mut self.conns[at];
        if conn.answered {
            return;
        }
        conn.head.extend_from_slice(data);
        let answer = match http::parse(&conn.head) {
            Parsed::Half => return,
            Parsed::Whole(request) => watched.answer(&request, &self.history),
            Parsed::Refused(status) => http::refusal(status),
        };
        conn.answered = true;
        conn.head = Vec::new();
        self.ev
            .send(id, Box::new(SendBatch::from(answer)), SendMode::Wait);
    }

    fn close(&mut self, id: ConnId) {
        self.conns.retain(|conn| conn.id != id);
        self.ev.close(id);
    }
}
