// SPDX-License-Identifier: Apache-2.0
//! What connections make their worker hold, each by itself and all together.
//!
//! A connection's [`Account`] is counted anew whenever something happened to it
//! (`flow.rs::settle`), and the sums follow it. Only [`super::conns::Conns`] changes them, so they
//! are always those of the connections that are there.

use super::conns::{Conn, Link};

/// Bytes that one connection makes its worker hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Memory for unread bytes, and for what a slow reader has not taken.
    pub held: usize,
    /// Of these, memory for requests that came and could not run yet.
    pub backlog: usize,
    /// Answers. Those of a slow reader count as held.
    pub answers: usize,
    /// Of these, answers that leave whatever else happens: they are being sent to a socket, or can be.
    pub leaving: usize,
    /// Item memory that the answers of a slow reader refer to.
    pub pinned: usize,
}

impl Account {
    /// Counts a connection. `usual_answer` is what an answer of another worker takes that is not
    /// there yet.
    pub fn of(conn: &mut Conn, usual_answer: usize) -> Account {
        // Frames are counted where they belong.
        let (owned, ready) = conn.session.replies().owned_bytes();
        let slow = conn.slow_since != 0;
        let (waiting, leaving) = match conn.link {
            Link::Socket(_) if slow => (conn.session.foreign(), 0),
            Link::Socket(_) => (conn.session.foreign(), conn.in_batch + ready),
            // An answer read for another worker is copied out of its frame before it leaves.
            Link::Virtual(_) => (conn.session.replies().waiting(), 0),
        };
        let (queued, answers, pinned) = if slow {
            let queued = conn.session.replies().pinned();
            let queued: usize = queued.map(|(len, _)| len).sum();
            (owned, 0, conn.lent + queued)
        } else {
            (0, owned + conn.in_batch, 0)
        };
        let memory = conn.unread_memory();
        Account {
            held: memory + conn.copied + queued,
            backlog: if conn.has_backlog() { memory } else { 0 },
            answers: answers + waiting * usual_answer,
            leaving,
            pinned,
        }
    }
}

/// The accounts of all connections of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub held: usize,
    /// Of sockets.
    pub backlog: usize,
    /// Of virtual connections.
    pub backlog_of_others: usize,
    pub answers: usize,
    pub leaving: usize,
    pub pinned: usize,
}

impl Sums {
    /// A connection's account is `now`, and was `before`.
    pub(super) fn follow(&mut self, link: Link, before: Account, now: Account) {
        let follow = |sum: &mut usize, before: usize, now: usize| *sum = *sum + now - before;
        follow(&mut self.held, before.held, now.held);
        follow(&mut self.answers, before.answers, now.answers);
        follow(&mut self.leaving, before.leaving, now.leaving);
        follow(&mut self.pinned, before.pinned, now.pinned);
        let backlog = match link {
            Link::Socket(_) => &mut self.backlog,
            Link::Virtual(_) => &mut self.backlog_of_others,
        };
        follow(backlog, before.backlog, now.backlog);
    }
}
