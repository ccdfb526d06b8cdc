// SPDX-License-Identifier: Apache-2.0
//! The admin thread's loop: accepts a connection, reads one request, answers it, and closes the
//! connection.
//!
//! Anybody who reaches the port may connect, send half a request, or never read. So there are
//! bounds on the connections, on the bytes of answers, on the bytes of a head, and on the time from
//! accept to close. If connections or answers exceed their bound, the oldest connection is closed.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use senko_io::{ConnId, Event, EventLoop, SendBatch, SendMode};

use super::Watched;
use super::history::History;
use super::http::{self, Parsed};

pub(super) const MOST_CONNECTIONS: usize = 16;
/// ADMIN-1: most bytes of unsent answers; a single answer may be larger.
const MOST_UNSENT: usize = 1 << 20;
/// A connection is closed this long after it was accepted, whatever it does.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait of the loop, which bounds how late a sample of the history is.
const TICK: Duration = Duration::from_secs(10);

struct Conn {
    id: ConnId,
    accepted: Instant,
    /// The part of the head so far.
    head: Vec<u8>,
    answered: bool,
    /// Bytes of the answer, until they are sent.
    unsent: usize,
}

pub(super) struct Loop {
    ev: EventLoop,
    /// Connections, oldest first.
    conns: VecDeque<Conn>,
    history: History,
}

impl Loop {
    pub(super) fn new(ev: EventLoop) -> Loop {
        Loop {
            ev,
            conns: VecDeque::new(),
            history: History::default(),
        }
    }

    pub(super) fn run(&mut self, watched: &Watched, end: &AtomicBool) -> io::Result<()> {
        let mut events = Vec::new();
        while !end.load(Ordering::Acquire) {
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
                // If the loop refuses a socket, dropping `stream` closes it.
                if let Ok(id) = self.ev.adopt(stream) {
                    self.conns.push_back(Conn {
                        id,
                        accepted: Instant::now(),
                        head: Vec::new(),
                        answered: false,
                        unsent: 0,
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
        // Only this many bytes are ever parsed.
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
        conn.unsent = answer.len();
        while let Some(oldest) = too_much(&self.conns, id) {
            self.close(oldest);
        }
        self.ev
            .send(id, Box::new(SendBatch::from(answer)), SendMode::Wait);
    }

    fn close(&mut self, id: ConnId) {
        self.conns.retain(|conn| conn.id != id);
        self.ev.close(id);
    }
}

/// ADMIN-1, ADMIN-2: closes the oldest connections with answers while the answers exceed their
/// bound. The connection that is answered now stays.
fn too_much(conns: &VecDeque<Conn>, now: ConnId) -> Option<ConnId> {
    let bytes: usize = conns.iter().map(|conn| conn.unsent).sum();
    let mut others = conns
        .iter()
        .filter(|conn| conn.unsent > 0 && conn.id != now);
    others
        .next()
        .filter(|_| bytes > MOST_UNSENT)
        .map(|conn| conn.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers to clients that do not read are bounded in bytes; the newest one is sent.
    #[test]
    fn the_oldest_answers_make_room() {
        let conn = |id, unsent| Conn {
            id: ConnId(id),
            accepted: Instant::now(),
            head: Vec::new(),
            answered: unsent > 0,
            unsent,
        };
        let mut conns = VecDeque::from([conn(1, 0), conn(2, MOST_UNSENT / 2), conn(3, 1)]);
        assert_eq!(too_much(&conns, ConnId(3)), None);
        conns.push_back(conn(4, MOST_UNSENT / 2));
        assert_eq!(too_much(&conns, ConnId(4)), Some(ConnId(2)));
        assert_eq!(too_much(&conns, ConnId(2)), Some(ConnId(3)));
        // A single answer may be larger than the bound for all.
        let large = VecDeque::from([conn(1, 0), conn(2, 2 * MOST_UNSENT)]);
        assert_eq!(too_much(&large, ConnId(2)), None);
        let mut asked: Vec<u64> = Vec::new();
        while let Some(ConnId(id)) = too_much(&conns, ConnId(4)) {
            conns.retain(|conn| conn.id != ConnId(id));
            asked.push(id);
        }
        assert_eq!(asked, [2], "no more leave than have to");
    }
}
