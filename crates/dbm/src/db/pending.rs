// SPDX-License-Identifier: Apache-2.0
//! A commit that has its place in the order, and whose caller is not waiting for it yet.

use std::sync::Arc;

use crate::core::Core;
use crate::{DbmError, Durability};

/// A commit of [`crate::Transaction::commit_async`], which other transactions already see. If it is
/// dropped, the maintenance thread still makes it durable, without a report. With
/// `Options::threads` of 0 there is no such thread; then the next synced commit, `Database::sync`
/// or `close` does it.
///
/// ```
/// # let db = senko_dbm::example::database();
/// # let table = db.create_table("t")?;
/// use senko_dbm::Durability;
/// let mut pending = Vec::new();
/// for number in 0..100u8 {
///     let mut tx = db.begin();
///     tx.put(&table, &[number], b"value")?;
///     pending.push(tx.commit_async(Durability::Synced)?);
/// }
/// for commit in pending {
///     commit.wait()?; // the first one writes and flushes for all of them
/// }
/// assert_eq!(db.stats().durable, db.stats().commit);
/// # Ok::<(), senko_dbm::DbmError>(())
/// ```
#[must_use = "whether the commit is durable tells only `wait`"]
pub struct PendingCommit {
    core: Arc<Core>,
    number: u64,
    durability: Durability,
}

impl PendingCommit {
    pub(crate) fn new(core: Arc<Core>, number: u64, durability: Durability) -> PendingCommit {
        PendingCommit {
            core,
            number,
            durability,
        }
    }

    /// The commit's number, which is its place in the order.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether [`PendingCommit::wait`] would return at once, without an error.
    pub fn is_done(&self) -> bool {
        self.durability != Durability::Synced || self.core.progress.durable() >= self.number
    }

    /// Returns when the commit is as durable as requested. The first thread to wait writes for all
    /// commits up to then.
    ///
    /// # Errors
    /// The device's errors. The database then accepts no more commits, and only the next opening
    /// shows whether this one is there.
    pub fn wait(self) -> Result<(), DbmError> {
        match self.is_done() {
            true => Ok(()),
            false => self.core.write_until(self.number),
        }
    }
}

impl std::fmt::Debug for PendingCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PendingCommit({})", self.number)
    }
}
