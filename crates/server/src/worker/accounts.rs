// SPDX-License-Identifier: Apache-2.0
//! The memory of a worker that its connections hold, by connection and in total.
//!
//! A connection's [`Account`] is counted again after every change (`flow.rs::settle`), and the sums
//! with it. Only [`super::conns::Conns`] changes them, so they always match the existing
//! connections.

/// The bytes of a worker that one connection holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Memory for unread bytes, and for the unsent answers of a slow reader.
    pub held: usize,
    /// Of these, memory for requests that arrived and could not run yet.
    pub backlog: usize,
    /// Answers. A slow reader's answers count as held.
    pub answers: usize,
    /// Of these, answers that leave in any case: they are being sent to a socket, or can be.
    pub leaving: usize,
    /// Of these, copies for another worker: existing copies, and those that reads under way will
    /// add.
    pub copies: usize,
    /// Item memory in the answers of a slow reader.
    pub pinned: usize,
}

impl Account {
    /// What counts against the bound beyond which connections are closed.
    pub fn taken(&self) -> usize {
        self.held + self.leaving
    }
}

/// The accounts of all connections of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub held: usize,
    pub backlog: usize,
    /// The total of virtual connections.
    pub backlog_of_others: usize,
    pub answers: usize,
    pub leaving: usize,
    pub copies: usize,
    pub pinned: usize,
}

impl Sums {
    /// Replaces the account `before` of a connection (virtual or not) by `now`.
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
