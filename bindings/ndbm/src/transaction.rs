// SPDX-License-Identifier: Apache-2.0
//! A transaction of a handle, an extension of ndbm: `dbm_begin` to `dbm_commit` or `dbm_abort`.
//! Called by `handle.rs`, which sends the handle's calls here while one is open.
//!
//! Always holds: what is read here is compared at the commit; what is written here shows in no
//! other handle before the commit. The transaction keeps its own database open, so it outlives the
//! change of the process from reader to writer and back.

use std::collections::BTreeMap;

use senko_dbm::{DbmError, Durability, Table, Transaction};

use crate::failure::Failure;
use crate::store::Content;

/// An open transaction.
pub struct Open {
    transaction: Transaction,
    /// `None` in a database that was never written to.
    table: Option<Table>,
    /// A walk inside it, apart from the handle's.
    walk: Option<Walk>,
}

/// A walk over the keys that the transaction saw at the start of the walk.
#[derive(Default)]
struct Walk {
    /// The key that it returned last.
    at: Option<Vec<u8>>,
    /// The keys that were stored or deleted since, and whether the walk has them.
    changed: BTreeMap<Vec<u8>, bool>,
    ended: bool,
}

/// A transaction that was open for too long has a number of its own.
fn failure(error: DbmError) -> Failure {
    let is_expired = matches!(error, DbmError::SnapshotExpired);
    let failure = Failure::from(error);
    match is_expired {
        true => Failure {
            number: libc::ETIMEDOUT,
            ..failure
        },
        false => failure,
    }
}

impl Open {
    pub fn begin(content: Content) -> Open {
        Open {
            transaction: content.db.begin(),
            table: content.table,
            walk: None,
        }
    }

    pub fn fetch(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let Some(table) = &self.table else {
            return Ok(None);
        };
        self.transaction.get(table, key).map_err(failure)
    }

    /// False if the key exists and must not be replaced.
    pub fn put(
        &mut self,
        table: &Table,
        key: &[u8],
        value: &[u8],
        replace: bool,
    ) -> Result<bool, Failure> {
        self.note(table, key)?;
        let put = match replace {
            true => self.transaction.put(table, key, value),
            false => self.transaction.insert(table, key, value),
        };
        match put {
            Ok(()) => Ok(true),
            Err(DbmError::Exists) => Ok(false),
            Err(error) => Err(failure(error)),
        }
    }

    /// False if there is no such key.
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool, Failure> {
        let found = self.transaction.get(table, key).map_err(failure)?;
        if found.is_none() {
            return Ok(false);
        }
        self.note(table, key)?;
        self.transaction.delete(table, key).map_err(failure)?;
        Ok(true)
    }

    /// Before a key changes: whether the walk has it. The commit does not compare this.
    fn note(&mut self, table: &Table, key: &[u8]) -> Result<(), Failure> {
        if let Some(walk) = &mut self.walk
            && !walk.changed.contains_key(key)
        {
            let found = self.transaction.get_untracked(table, key);
            let has = found.map_err(failure)?.is_some();
            walk.changed.insert(key.to_vec(), has);
        }
        Ok(())
    }

    /// The first key, or the next one in key order, of those that the transaction saw when the
    /// walk began.
    pub fn walk(&mut self, begin: bool) -> Result<Option<Vec<u8>>, Failure> {
        if begin {
            self.walk = None;
        }
        let Some(table) = &self.table else {
            return Ok(None);
        };
        let walk = self.walk.get_or_insert_default();
        while !walk.ended {
            let found = match &walk.at {
                None => self.transaction.first(table),
                Some(at) => self.transaction.next_after(table, at),
            };
            let Some((key, _)) = found.map_err(failure)? else {
                walk.ended = true;
                break;
            };
            let has = walk.changed.get(&key).copied().unwrap_or(true);
            walk.at = Some(key.clone());
            if has {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// False if another changed something that this one read; nothing was done then.
    pub fn commit(self, durability: Durability) -> Result<bool, Failure> {
        match self.transaction.commit(durability) {
            Ok(()) => Ok(true),
            Err(DbmError::Conflict) => Ok(false),
            Err(error) => Err(failure(error)),
        }
    }
}
