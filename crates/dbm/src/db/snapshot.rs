// SPDX-License-Identifier: Apache-2.0
//! Reading as of one commit: snapshots and cursors. Both own everything that they need, and may
//! move to another thread.

use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::commit::Node;
use crate::core::{Core, Seen};
use crate::keys::after_prefix;
use crate::pages::lookup::{Found, out_of_order};
use crate::pages::node::Page;
use crate::records::table::{Catalogue, TableInfo};
use crate::{DbmError, Table};

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// The database as of one moment. It never conflicts and never waits, and no commit waits for it.
/// It is cheap to clone.
///
/// ```
/// # let db = senko_dbm::example::database();
/// # let table = db.create_table("t")?;
/// let before = db.snapshot();
/// db.run(senko_dbm::Durability::None, |tx| tx.put(&table, b"key", b"value"))?;
/// assert_eq!(before.get(&table, b"key")?, None);
/// assert_eq!(db.snapshot().get(&table, b"key")?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), senko_dbm::DbmError>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    seen: Arc<Seen>,
}

impl Snapshot {
    pub(crate) fn new(seen: Seen) -> Snapshot {
        Snapshot {
            seen: Arc::new(seen),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.seen.core
    }

    /// Closes a transaction's snapshot ([`Seen::close`]).
    pub(crate) fn close(&mut self) -> Option<Arc<Node>> {
        Arc::get_mut(&mut self.seen)?.close()
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.seen.is_expired()
    }

    /// The number of the commit that it shows.
    pub fn commit(&self) -> u64 {
        self.seen.commit
    }

    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.seen.catalogue)
    }

    pub(crate) fn info(&self, table: &Table) -> Result<&TableInfo, DbmError> {
        let found = table.find(&self.seen.catalogue);
        found.ok_or_else(|| DbmError::NoTable(table.name().to_owned()))
    }

    /// The root of an existing table.
    pub(crate) fn root_of(&self, table: u32) -> u32 {
        let found = self.seen.catalogue.iter().find(|info| info.id == table);
        found.map_or(0, |info| info.root)
    }

    /// A read is valid only if the snapshot existed until its end.
    pub(crate) fn valid<T>(&self, read: Result<T, DbmError>) -> Result<T, DbmError> {
        if self.seen.is_expired() {
            return Err(DbmError::SnapshotExpired);
        }
        read
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`DbmError::NoTable`], or damage.
    pub fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>, DbmError> {
        self.value_at(self.info(table)?.root, key)
    }

    /// The value of a key below a root.
    pub(crate) fn value_at(&self, root: u32, key: &[u8]) -> Result<Option<Vec<u8>>, DbmError> {
        self.valid(self.core().pages.value_at(self.seen.commit, root, key))
    }

    /// Records of a table.
    ///
    /// # Errors
    /// [`DbmError::NoTable`].
    pub fn count(&self, table: &Table) -> Result<u64, DbmError> {
        self.info(table).map(|info| info.count)
    }

    /// The record with the lowest key.
    ///
    /// # Errors
    /// [`DbmError::NoTable`], or damage.
    pub fn first(&self, table: &Table) -> Result<Option<Record>, DbmError> {
        self.cursor(table, ..)?.next()
    }

    /// The record with the highest key.
    ///
    /// # Errors
    /// [`DbmError::NoTable`], or damage.
    pub fn last(&self, table: &Table) -> Result<Option<Record>, DbmError> {
        self.cursor(table, ..)?.previous()
    }

    /// The first key from `from` on (or after it, if not `inclusive`). The value is not read.
    ///
    /// # Errors
    /// [`DbmError::NoTable`], or damage.
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// db.run(senko_dbm::Durability::None, |tx| tx.put(&table, b"a", b"1"))?;
    /// let now = db.snapshot();
    /// assert_eq!(now.next_key(&table, b"", true)?.as_deref(), Some(&b"a"[..]));
    /// assert_eq!(now.next_key(&table, b"a", false)?, None);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn next_key(
        &self,
        table: &Table,
        from: &[u8],
        inclusive: bool,
    ) -> Result<Option<Vec<u8>>, DbmError> {
        let mut walk = self.walk(self.info(table)?.root, false);
        let there = walk
            .place(Some(from), inclusive)
            .and_then(|()| walk.settle());
        if !self.valid(there)? {
            return Ok(None);
        }
        goes_on((Some(from), inclusive), walk.key(), false)?;
        Ok(Some(walk.key().to_vec()))
    }

    /// A cursor over the keys of a range. [`Cursor::next`] goes up from its lower end,
    /// [`Cursor::previous`] down from its upper end.
    ///
    /// # Errors
    /// [`DbmError::NoTable`].
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// db.run(senko_dbm::Durability::None, |tx| {
    ///     tx.put(&table, b"a", b"1")?;
    ///     tx.put(&table, b"b", b"2")
    /// })?;
    /// let mut cursor = db.snapshot().cursor(&table, &b"b"[..]..)?;
    /// assert_eq!(cursor.next()?, Some((b"b".to_vec(), b"2".to_vec())));
    /// assert_eq!(cursor.next()?, None);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn cursor<'k>(
        &self,
        table: &Table,
        keys: impl RangeBounds<&'k [u8]>,
    ) -> Result<Cursor, DbmError> {
        let owned = |bound: Bound<&&[u8]>| bound.map(|key| key.to_vec());
        Ok(Cursor {
            root: self.info(table)?.root,
            snapshot: self.clone(),
            from: owned(keys.start_bound()),
            to: owned(keys.end_bound()),
            at: None,
            leaf: None,
        })
    }

    /// A cursor over the keys that begin with `prefix`.
    ///
    /// # Errors
    /// [`DbmError::NoTable`].
    pub fn prefix(&self, table: &Table, prefix: &[u8]) -> Result<Cursor, DbmError> {
        let mut cursor = self.cursor(table, prefix..)?;
        if let Some(end) = after_prefix(prefix) {
            cursor.to = Bound::Excluded(end);
        }
        Ok(cursor)
    }

    /// The first record from `from` on, or the last one up to it. `leaf` is that of a record
    /// before.
    fn step(
        &self,
        root: u32,
        (from, inclusive): (Option<&[u8]>, bool),
        back: bool,
        leaf: &mut Option<Found>,
    ) -> Result<Option<Record>, DbmError> {
        let mut walk = self.walk(root, back);
        walk.leaf = leaf.take();
        let placed = walk.place(from, inclusive);
        let record = placed.and_then(|()| {
            if !walk.settle()? {
                return Ok(None);
            }
            goes_on((from, inclusive), walk.key(), back)?;
            walk.copy().map(Some)
        });
        *leaf = walk.leaf;
        self.valid(record)
    }

    /// The leaf and the place on it from which records continue: forwards at the place, backwards
    /// before it. `cached` is used if it is that leaf.
    fn place(
        &self,
        root: u32,
        from: Option<&[u8]>,
        inclusive: bool,
        back: bool,
        cached: &mut Option<Found>,
    ) -> Result<(Found, usize), DbmError> {
        let below = back && !(inclusive && from.is_some());
        let usable = |found: &Found| {
            from.is_some_and(|key| match below {
                false => {
                    found.from.as_deref().is_none_or(|from| from <= key)
                        && found.to.as_deref().is_none_or(|to| key < to)
                }
                true => {
                    found.from.as_deref().is_none_or(|from| from < key)
                        && found.to.as_deref().is_none_or(|to| key <= to)
                }
            })
        };
        let found = match cached.take().filter(usable) {
            Some(found) => found,
            None => self
                .core()
                .pages
                .find(self.seen.commit, root, from, below)?,
        };
        let nth = match from {
            None if back => found.page.count(),
            None => 0,
            Some(key) => match found.page.search(key) {
                // Forwards, the place of the record; backwards, the one after it.
                Ok(nth) => nth + usize::from(inclusive == back),
                Err(nth) => nth,
            },
        };
        Ok((found, nth))
    }

    /// The records of a tree in one direction; see [`Walk::seek`].
    pub(crate) fn walk(&self, root: u32, back: bool) -> Walk<'_> {
        Walk {
            snapshot: self,
            root,
            back,
            leaf: None,
            nth: 0,
            is_at_end: true,
        }
    }

    /// The neighbour of a leaf, with the place where it begins.
    fn beside(
        &self,
        root: u32,
        found: &Found,
        back: bool,
    ) -> Result<Option<(Found, usize)>, DbmError> {
        let border = if back { &found.from } else { &found.to };
        let Some(border) = border else {
            return Ok(None);
        };
        let next = self
            .core()
            .pages
            .find(self.seen.commit, root, Some(border), back)?;
        let goes_on = match back {
            false => next.to.as_deref().is_none_or(|to| border.as_slice() < to),
            true => next
                .from
                .as_deref()
                .is_none_or(|from| from < border.as_slice()),
        };
        if !goes_on {
            return Err(out_of_order());
        }
        let nth = if back { next.page.count() } else { 0 };
        Ok(Some((next, nth)))
    }
}

/// Checks that a scan from a key has moved to a later one (backwards, to an earlier one). So it
/// ends whatever the tree is: a writer that was given forged pages makes others of them in DRAM.
fn goes_on(
    (from, inclusive): (Option<&[u8]>, bool),
    key: &[u8],
    back: bool,
) -> Result<(), DbmError> {
    let order = from.map(|from| if back { from.cmp(key) } else { key.cmp(from) });
    match order {
        None | Some(Ordering::Greater) => Ok(()),
        Some(Ordering::Equal) if inclusive => Ok(()),
        _ => Err(out_of_order()),
    }
}

/// A place in a tree, for many steps in one direction. The caller checks at the end whether the
/// snapshot was there all the time ([`Snapshot::valid`]).
pub(crate) struct Walk<'a> {
    snapshot: &'a Snapshot,
    root: u32,
    back: bool,
    leaf: Option<Found>,
    /// The record on the leaf; backwards, the one after it.
    nth: usize,
    is_at_end: bool,
}

impl Walk<'_> {
    /// Goes to the first record from `border` on; backwards, to the last one below it. Without a
    /// border, to the first or the last record of the tree.
    pub fn seek(&mut self, border: Option<&[u8]>) -> Result<(), DbmError> {
        self.place(border, !self.back)
    }

    /// Goes to the first record from `from` on; backwards, to the last one up to it.
    fn place(&mut self, from: Option<&[u8]>, inclusive: bool) -> Result<(), DbmError> {
        let (snapshot, back) = (self.snapshot, self.back);
        let (leaf, nth) = snapshot.place(self.root, from, inclusive, back, &mut self.leaf)?;
        (self.leaf, self.nth, self.is_at_end) = (Some(leaf), nth, false);
        Ok(())
    }

    /// Goes beyond the record.
    pub fn pass(&mut self) {
        match self.back {
            false => self.nth += 1,
            true => self.nth -= 1,
        }
    }

    /// Goes beyond all records.
    pub fn end(&mut self) {
        self.is_at_end = true;
    }

    /// Whether there is a record; the leaf is the one that has it.
    pub fn settle(&mut self) -> Result<bool, DbmError> {
        while let Some(leaf) = self.leaf.as_ref().filter(|_| !self.is_at_end) {
            let has_record = match self.back {
                false => self.nth < leaf.page.count(),
                true => self.nth > 0,
            };
            if has_record {
                return Ok(true);
            }
            match self.snapshot.beside(self.root, leaf, self.back)? {
                Some((leaf, nth)) => (self.leaf, self.nth) = (Some(leaf), nth),
                None => self.is_at_end = true,
            }
        }
        Ok(false)
    }

    fn record(&self) -> Option<(&Page, usize)> {
        let leaf = self.leaf.as_ref().filter(|_| !self.is_at_end)?;
        Some((&leaf.page, self.nth - usize::from(self.back)))
    }

    /// The key of the record; only after [`Walk::settle`] returned true.
    pub fn key(&self) -> &[u8] {
        self.record().map_or(b"", |(page, nth)| page.key(nth))
    }

    /// As [`Walk::key`], with the value.
    pub fn copy(&self) -> Result<Record, DbmError> {
        let Some((page, nth)) = self.record() else {
            return Ok(Record::default());
        };
        let value = self.snapshot.core().pages.value(page, nth)?;
        Ok((page.key(nth).to_vec(), value))
    }

    /// Goes up beyond the records of this leaf that are below `to`, and counts them.
    pub fn pass_leaf(&mut self, to: Option<&[u8]>) -> u64 {
        let Some(leaf) = &self.leaf else { return 0 };
        let end = match to {
            Some(to) => leaf.page.search(to).unwrap_or_else(|nth| nth),
            None => leaf.page.count(),
        };
        let passed = end.saturating_sub(self.nth);
        self.nth += passed;
        passed as u64
    }
}

/// A place in the keys of a table, as of a snapshot.
///
/// ```
/// # let db = senko_dbm::example::database();
/// # let table = db.create_table("t")?;
/// db.run(senko_dbm::Durability::None, |tx| {
///     tx.put(&table, b"a", b"1")?;
///     tx.put(&table, b"b", b"2")
/// })?;
/// let mut cursor = db.snapshot().cursor(&table, ..)?;
/// assert_eq!(cursor.next()?.unwrap().0, b"a");
/// assert_eq!(cursor.next()?.unwrap().0, b"b");
/// assert_eq!(cursor.previous()?.unwrap().0, b"a");
/// # Ok::<(), senko_dbm::DbmError>(())
/// ```
pub struct Cursor {
    snapshot: Snapshot,
    root: u32,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    /// The key that it returned last.
    at: Option<Vec<u8>>,
    leaf: Option<Found>,
}

impl Cursor {
    /// The next record. `None` at the end of the range, where the cursor stays on the last one.
    ///
    /// # Errors
    /// Damage, or [`DbmError::SnapshotExpired`].
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Record>, DbmError> {
        self.go(false)
    }

    /// The previous record. `None` at the beginning of the range, where the cursor stays on the
    /// first one.
    ///
    /// # Errors
    /// Damage, or [`DbmError::SnapshotExpired`].
    pub fn previous(&mut self) -> Result<Option<Record>, DbmError> {
        self.go(true)
    }

    /// Moves before `key`: the next record is the first one from there on, the previous record the
    /// last one below. Keys outside of the range are never returned.
    ///
    /// # Errors
    /// Damage, or [`DbmError::SnapshotExpired`].
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// # db.run(senko_dbm::Durability::None, |tx| tx.put(&table, b"b", b"2"))?;
    /// let mut cursor = db.snapshot().cursor(&table, ..)?;
    /// assert_eq!(cursor.seek(b"a")?.unwrap().0, b"b");
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn seek(&mut self, key: &[u8]) -> Result<Option<Record>, DbmError> {
        let key = match &self.from {
            Bound::Included(from) | Bound::Excluded(from) if **from >= *key => {
                self.at = None;
                return self.next();
            }
            _ => key,
        };
        let at = (Some(key), true);
        let step = self.snapshot.step(self.root, at, false, &mut self.leaf)?;
        Ok(self.take(step, false))
    }

    /// Passes the next records (key and value) to `take`, up to the end of a page of the tree. So
    /// many records need only the work of one step. `take` returns whether to continue. Without
    /// `values` each value is empty, and long ones are not read. Returns the number of records, 0
    /// at the end of the range.
    ///
    /// # Errors
    /// As [`Cursor::next`]. The passed records do not count then, and the cursor stays in its
    /// place.
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// # db.run(senko_dbm::Durability::None, |tx| {
    /// #     tx.put(&table, b"a", b"1")?;
    /// #     tx.put(&table, b"b", b"2")
    /// # })?;
    /// let mut keys = Vec::new();
    /// let mut cursor = db.snapshot().cursor(&table, ..)?;
    /// let mut take = |key: &[u8], _: &[u8]| {
    ///     keys.push(key.to_vec());
    ///     true
    /// };
    /// while cursor.next_page(false, &mut take)? > 0 {}
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn next_page(
        &mut self,
        values: bool,
        take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<usize, DbmError> {
        self.page(false, values, take)
    }

    /// The previous records, in descending order; otherwise as [`Cursor::next_page`].
    ///
    /// # Errors
    /// As [`Cursor::next_page`].
    pub fn previous_page(
        &mut self,
        values: bool,
        take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<usize, DbmError> {
        self.page(true, values, take)
    }

    fn page(
        &mut self,
        back: bool,
        values: bool,
        take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<usize, DbmError> {
        let read = self.page_unchecked(back, values, take);
        let (count, at, found) = self.snapshot.valid(read)?;
        if at.is_some() {
            self.at = at;
        }
        self.leaf = found;
        Ok(count)
    }

    /// How many records it passed, the key of the last one, and its leaf.
    #[allow(clippy::type_complexity)]
    fn page_unchecked(
        &mut self,
        back: bool,
        values: bool,
        mut take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(usize, Option<Vec<u8>>, Option<Found>), DbmError> {
        let (from, inclusive) = Cursor::from(&self.at, if back { &self.to } else { &self.from });
        let (snapshot, root) = (&self.snapshot, self.root);
        let (mut found, mut nth) = snapshot.place(root, from, inclusive, back, &mut self.leaf)?;
        loop {
            let page = &found.page;
            let left = if back { nth } else { page.count() - nth };
            let mut count = 0;
            while count < left {
                let at = if back { nth - 1 - count } else { nth + count };
                let key = page.key(at);
                if !self.is_inside(key, back) {
                    break;
                }
                count += 1;
                let go_on = match page.value(at) {
                    _ if !values => take(key, b""),
                    (value, false) => take(key, value),
                    (reference, true) => take(key, &snapshot.core().pages.long_value(reference)?),
                };
                if !go_on {
                    break;
                }
            }
            if count > 0 {
                let last = if back { nth - count } else { nth + count - 1 };
                let last = page.key(last).to_vec();
                goes_on((from, inclusive), &last, back)?;
                return Ok((count, Some(last), Some(found)));
            }
            if left > 0 {
                return Ok((0, None, None));
            }
            match snapshot.beside(root, &found, back)? {
                Some(next) => (found, nth) = next,
                None => return Ok((0, None, None)),
            }
        }
    }

    /// Where to continue: after the last returned key, or at the border of the range.
    fn from<'a>(at: &'a Option<Vec<u8>>, border: &'a Bound<Vec<u8>>) -> (Option<&'a [u8]>, bool) {
        match (at, border) {
            (Some(at), _) => (Some(at), false),
            (None, Bound::Included(key)) => (Some(key), true),
            (None, Bound::Excluded(key)) => (Some(key), false),
            (None, Bound::Unbounded) => (None, true),
        }
    }

    fn go(&mut self, back: bool) -> Result<Option<Record>, DbmError> {
        let from = Cursor::from(&self.at, if back { &self.to } else { &self.from });
        let step = self.snapshot.step(self.root, from, back, &mut self.leaf)?;
        Ok(self.take(step, back))
    }

    /// Whether a key met on the way up or down is in the range.
    fn is_inside(&self, key: &[u8], back: bool) -> bool {
        match (if back { &self.from } else { &self.to }, back) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(to), false) => key <= to.as_slice(),
            (Bound::Excluded(to), false) => key < to.as_slice(),
            (Bound::Included(from), true) => key >= from.as_slice(),
            (Bound::Excluded(from), true) => key > from.as_slice(),
        }
    }

    /// Takes a record if it lies in the range.
    fn take(&mut self, record: Option<Record>, back: bool) -> Option<Record> {
        let record = record?;
        if !self.is_inside(&record.0, back) {
            return None;
        }
        self.at = Some(record.0.clone());
        Some(record)
    }
}

impl Iterator for Cursor {
    type Item = Result<Record, DbmError>;
    fn next(&mut self) -> Option<Result<Record, DbmError>> {
        Cursor::next(self).transpose()
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot(commit {})", self.seen.commit)
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cursor({:?}, at {:?})", self.snapshot, self.at)
    }
}
