// SPDX-License-Identifier: Apache-2.0
//! Memory that connections hold of their worker, each by itself and all together.
//!
//! A connection's [`Account`] is counted again whenever something happened to it
//! (`flow.rs::settle`), and the sums follow it. Only [`super::conns::Conns`] changes them, so they
//! always match the existing connections.

/// Bytes that one connection makes its worker hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Memory for unread bytes, and for what a slow reader has not taken.
    pub held: usize,
    /// Of these, memory for requests that came and could not run yet.
    pub backlog: usize,
    /// Answers. Those of a slow reader count as held.
    pub answers: usize,
    /// Of these, answers that leave whatever else happens: they are being sent to a socket, or can
    /// be.
    pub leaving: usize,
    /// Of these, copies for another worker: existing copies, and those that reads under way will
    /// add.
    pub copies: usize,
    /// Item memory that the answers of a slow reader refer to.
    pub pinned: usize,
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
    pub copies: usize,
    pub pinned: usize,
}

impl Sums {
    /// The account of a connection, a virtual one or not, is `now`, and was `before`.
    pub(super) fn follow(&mut self, virtual_one: bool, before: Account, now: Account) {
        let follow = |sum: &mut usize, before: usize, now: usize| *sum = *sum + now - before;
        follow(&mut self.held, before.held, now.held);
        follow(&mut self.answers, before.answers, now.answers);
        follow(&mut self.leaving, before.leaving, now.leaving);
        follow(&mut self.copies, before.copies, now.copies);
        follow(&mut self.pinned, before.pinned, now.pinned);
        let backlog = match virtual_one {
            false => &mut self.backlog,
            true => &mut self.backlog_of_others,
        };
        follow(backlog, before.backlog, now.backlog);
    }
}
