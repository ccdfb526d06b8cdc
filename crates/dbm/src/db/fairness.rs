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
//! `Database::run`, in every language. A transaction takes the count at its beginning. So other
//! transactions that the thread commits meanwhile do not change the count.

use std::cell::{Cell, RefCell};
use std::mem::take;
use std::sync::Arc;

use crate::commit::Node;
use crate::commit::reads::ReadSet;
use crate::commit::turn::Turn;
use crate::core::Core;
use crate::sync::thread_local;

/// Conflicts in a row after which a thread takes a turn.
const TRIES: u32 = 8;

thread_local! {
    /// The database of the thread's last transaction with a conflict, and its conflicts in a row.
    /// The thread's next transaction takes them.
    static CONFLICTS: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
    /// What that transaction read, after [`TRIES`] of them.
    static READS: RefCell<ReadSet> = RefCell::default();
}

/// The tries of a transaction, this one included, and its turn, which ends with it. Without
/// conflicts and turn for work that is not tried again.
#[derive(Default)]
pub(crate) struct Tries {
    /// The address of the database.
    core: usize,
    /// The conflicts in a row before it.
    conflicts: u32,
    turn: Option<Arc<Turn>>,
}

impl Tries {
    /// Takes the conflicts that the thread met last, and a turn if they are too many. It must come
    /// before the transaction's snapshot.
    pub fn begin(on: &Core) -> Tries {
        let (core, conflicts) = CONFLICTS.with(Cell::get);
        if conflicts == 0 || core != std::ptr::from_ref(on).addr() {
            return Tries::default();
        }
        CONFLICTS.with(|kept| kept.set((0, 0)));
        let turn = (conflicts >= TRIES).then(|| take_turn(on, conflicts));
        Tries {
            core,
            conflicts,
            turn: turn.flatten(),
        }
    }

    pub fn turn(&self) -> Option<&Arc<Turn>> {
        self.turn.as_ref()
    }

    /// Tells waiting threads that the transaction is alive.
    pub fn step(&self) {
        if let Some(turn) = &self.turn {
            turn.step();
        }
    }

    /// The transaction conflicted. It had read `reads`.
    #[cold]
    pub fn conflict(mut self, core: &Core, reads: ReadSet) {
        let conflicts = take(&mut self.conflicts).saturating_add(1);
        let core = std::ptr::from_ref(core).addr();
        CONFLICTS.with(|kept| kept.set((core, conflicts)));
        if conflicts == TRIES {
            let _ = READS.try_with(|kept| kept.replace(reads));
        }
    }

    /// The transaction committed.
    pub fn commit(mut self) {
        self.conflicts = 0;
    }
}

impl Drop for Tries {
    fn drop(&mut self) {
        match &self.turn {
            Some(turn) => turn.end(),
            // Something else between two tries.
            None if self.conflicts > 0 => {
                CONFLICTS.with(|kept| kept.set((self.core, self.conflicts)));
            }
            None => {}
        }
    }
}

#[cold]
fn take_turn(core: &Core, conflicts: u32) -> Option<Arc<Turn>> {
    let reads = READS.try_with(RefCell::take).unwrap_or_default();
    let turn = Turn::new((conflicts == TRIES).then_some(reads));
    let number = Node::append_turn(&core.readers.node(), &turn)?;
    // TURN-3. If it fails, so does the transaction's commit.
    if core.apply_until(number, false).is_err() {
        turn.end();
    }
    Some(turn)
}
