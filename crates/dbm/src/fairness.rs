// SPDX-License-Identifier: Apache-2.0
//! Fairness: a thread whose transactions failed again and again gets a turn.
//!
//! Card: with optimistic validation the first committer wins, so a long transaction may lose to
//! short ones forever. A thread whose transactions met [`TRIES`] conflicts in a row begins its next
//! one with a turn (`turn.rs`): a node in the list of commits, before the transaction's snapshot.
//! Commits that change what the last try read wait until the turn is over; all others pass. If the
//! transaction fails even so, because it read something else this time, its next turn stops all
//! commits. So it commits at the latest with the second try after [`TRIES`]. The turn ends with the
//! commit, or when the transaction is dropped.
//!
//! Conflicts are counted by thread. So a loop around `begin` and `commit` is served like
//! `Database::run`, in every language.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::commit::Node;
use crate::core::Core;
use crate::reads::ReadSet;
use crate::sync::thread_local;
use crate::turn::Turn;

/// Conflicts in a row after which a thread takes a turn.
const TRIES: u32 = 8;
thread_local! {
    /// The database of the thread's last transaction with a conflict, and its conflicts in a row.
    static CONFLICTS: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
    /// What that transaction read, after [`TRIES`] of them.
    static READS: RefCell<ReadSet> = RefCell::default();
}

/// The turn of a transaction, which ends with it.
pub(crate) struct Taken {
    turn: Arc<Turn>,
    /// The conflicts in a row before it.
    conflicts: u32,
}

impl Taken {
    pub fn turn(&self) -> &Arc<Turn> {
        &self.turn
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.turn.end();
    }
}

impl Core {
    /// Takes a turn, if the thread's last transactions all met conflicts. It must be taken before
    /// the transaction's snapshot.
    pub fn take_turn(self: &Arc<Core>) -> Option<Taken> {
        let (core, conflicts) = CONFLICTS.with(Cell::get);
        if conflicts < TRIES || core != Arc::as_ptr(self).addr() {
            return None;
        }
        self.take_turn_after(conflicts)
    }

    #[cold]
    fn take_turn_after(self: &Arc<Core>, conflicts: u32) -> Option<Taken> {
        CONFLICTS.with(|kept| kept.set((0, 0)));
        let reads = READS.try_with(RefCell::take).unwrap_or_default();
        let turn = Turn::new((conflicts == TRIES).then_some(reads));
        let newest = Arc::clone(&self.registry.lock().visible.node);
        let number = Node::append_turn(&newest, &turn)?;
        let taken = Taken { turn, conflicts };
        // TURN-3. If it fails, so does the transaction's commit.
        self.apply_until(number, false).ok()?;
        Some(taken)
    }

    /// Counts a conflict of a transaction that read `reads`.
    #[cold]
    pub fn count_conflict(self: &Arc<Core>, reads: ReadSet, taken: Option<&Taken>) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
        let address = Arc::as_ptr(self).addr();
        let (core, before) = CONFLICTS.with(Cell::get);
        let before = match taken {
            Some(taken) => taken.conflicts,
            None if core == address => before,
            None => 0,
        };
        let conflicts = before.saturating_add(1);
        CONFLICTS.with(|kept| kept.set((address, conflicts)));
        if conflicts == TRIES {
            let _ = READS.try_with(|kept| kept.replace(reads));
        }
    }

    /// A transaction of the thread committed.
    pub fn count_commit(&self) {
        if CONFLICTS.with(Cell::get).1 > 0 {
            CONFLICTS.with(|kept| kept.set((0, 0)));
        }
    }
}
