// SPDX-License-Identifier: Apache-2.0
//! One key as of the newest commit, without a snapshot ([`Database::get`] and
//! [`Database::get_cached`]).
//!
//! A snapshot registers itself, so that the versions that it needs stay (PLACE-2). A single read
//! does not. It takes the number of the newest commit, reads as of that commit, and checks at the
//! end whether it is still the newest. A commit becomes visible before it drops a version
//! (`Writer::publish`). So nothing that the read needed was dropped if no commit came meanwhile.
//! Otherwise the result is discarded.
//!
//! NEWEST-1: a value is valid only if its commit is still the newest one after the read
//! (`Readers::is_newest`).

use std::sync::atomic::Ordering;

use crate::pages::Pages;
use crate::pages::inner::Inner;
use crate::pages::node::MAX_LEVEL;
use crate::{Database, DbmError, Table};

/// Tries before a snapshot is taken, while others commit.
const ATTEMPTS: usize = 3;

/// The answer of DRAM for a key ([`Database::get_cached`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached<T> {
    /// The key exists, with this result of its value.
    Found(T),
    /// The key does not exist.
    Absent,
    /// The device must be read, or another commit came meanwhile: call [`Database::get`].
    Unknown,
}

/// The value of a key if the path to it is in DRAM and has no newer version.
fn cached_value<T>(
    pages: &Pages,
    commit: u64,
    root: u32,
    key: &[u8],
    take: impl FnOnce(&[u8]) -> T,
) -> Option<Cached<T>> {
    let (mut id, mut above, mut likely) = (root, None, None);
    let mut level = MAX_LEVEL + 1;
    loop {
        let newest = pages.word(id)?.load();
        let version = newest.as_deref()?;
        if version.commit > commit || version.freed {
            return None;
        }
        let used = version.used.load(Ordering::Relaxed);
        if !used {
            version.used.store(true, Ordering::Relaxed);
        }
        let inner = version.inner.get();
        let told = inner.and_then(|inner| Some((inner, inner.place(key)?)));
        if let Some((inner, place)) = told {
            if inner.level >= level {
                return None;
            }
            level = inner.level;
            likely = inner.likely(place);
            id = inner.child(place);
            above = Some((newest, place));
            continue;
        }
        let body = version.body().load();
        let page = body.as_deref()?;
        if page.level() >= level {
            // Damage (TREE-3), which a read of the key tells.
            return None;
        }
        level = page.level();
        if level > 0 {
            if used && inner.is_none() {
                version.inner.get_or_init(|| Box::new(Inner::of(page)));
            }
            (id, above, likely) = (page.child(page.child_for(key, false)), None, None);
            continue;
        }
        let hinted = likely.as_ref().and_then(|likely| likely.find(page, key));
        if let Some((above, place)) = &above {
            let inner = above.as_ref().and_then(|above| above.inner.get());
            let at = std::ptr::from_ref(version).addr();
            inner.inspect(|inner| inner.keep(*place, at, page));
        }
        let Some(nth) = hinted.or_else(|| page.search(key).ok()) else {
            return Some(Cached::Absent);
        };
        return match page.value(nth) {
            (value, false) => Some(Cached::Found(take(value))),
            (_, true) => None,
        };
    }
}

impl Database {
    /// The current value of a key: the same as from a new snapshot, at less cost. Two calls may see
    /// different states.
    ///
    /// # Errors
    /// [`DbmError::NoTable`], or damage.
    pub fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>, DbmError> {
        let core = self.core();
        let missing = || DbmError::NoTable(table.name().to_owned());
        for _ in 0..ATTEMPTS {
            let (commit, root) = core.readers.root(table).ok_or_else(missing)?;
            let read = core.pages.value_at(commit, root, key);
            if core.readers.is_newest(commit) {
                return read;
            }
        }
        self.snapshot().get(table, key)
    }

    /// As [`Database::get`], but it never waits for the device. `take` turns the value into the
    /// result. It may be called although the answer is then [`Cached::Unknown`].
    ///
    /// # Errors
    /// [`DbmError::NoTable`].
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// use senko_dbm::Cached;
    /// db.run(senko_dbm::Durability::None, |tx| tx.put(&table, b"key", b"value"))?;
    /// assert_eq!(db.get_cached(&table, b"key", <[u8]>::len)?, Cached::Found(5));
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn get_cached<T>(
        &self,
        table: &Table,
        key: &[u8],
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<Cached<T>, DbmError> {
        let core = self.core();
        let missing = || DbmError::NoTable(table.name().to_owned());
        let (commit, root) = core.readers.root(table).ok_or_else(missing)?;
        let found = cached_value(&core.pages, commit, root, key, take);
        Ok(match found {
            Some(found) if core.readers.is_newest(commit) => found,
            _ => Cached::Unknown,
        })
    }
}
