// SPDX-License-Identifier: Apache-2.0
//! Transactions: they read a snapshot and their own writes, which stay private until the commit.

use std::sync::Arc;

use crate::commit::ranges::{Range, after};
use crate::commit::writes::{Changes, Own, Span};
use crate::commit::{Node, Work};
use crate::db::fairness::Tries;
use crate::db::merge::{Merged, count};
use crate::db::snapshot::Record;
use crate::db::submit::submit;
use crate::keys::after_prefix;
use crate::records::blob::{Blob, MAX_INLINE, MAX_VALUE_BYTES};
use crate::records::changes::MAX_KEY_BYTES;
use crate::upkeep::maintain::ask_for_sync;
use crate::writer::room::Size;
use crate::{DbmError, Durability, PendingCommit, Snapshot, Table};

/// A transaction. If it is dropped without a commit, it has no effect.
///
/// ```
/// # let db = senko_dbm::example::database();
/// # let table = db.create_table("t")?;
/// use senko_dbm::Durability;
/// let mut first = db.begin();
/// let mut second = db.begin();
/// for tx in [&mut first, &mut second] {
///     assert_eq!(tx.get(&table, b"seat")?, None);
///     tx.put(&table, b"seat", b"taken")?;
/// }
/// first.commit(Durability::Synced)?;
/// assert!(matches!(second.commit(Durability::Synced), Err(senko_dbm::DbmError::Conflict)));
/// # Ok::<(), senko_dbm::DbmError>(())
/// ```
pub struct Transaction {
    snapshot: Snapshot,
    work: Work,
    tries: Tries,
    /// The table and the key of the last append, if nothing was written since.
    appended: Option<(u32, Vec<u8>)>,
}

impl Transaction {
    pub(crate) fn new(snapshot: Snapshot, tries: Tries) -> Transaction {
        Transaction {
            snapshot,
            work: Work::default(),
            tries,
            appended: None,
        }
    }

    /// Before each step: whether it may take `more` bytes. `key` is the one that it writes.
    fn limit(&mut self, more: usize, key: Option<(u32, &[u8])>) -> Result<(), DbmError> {
        if self.snapshot.is_expired() {
            return Err(DbmError::SnapshotExpired);
        }
        self.tries.step();
        let limit = self.snapshot.core().options.transaction_bytes;
        match self.work.bytes() + more > limit {
            true => self.limit_exactly(more, key, limit),
            false => Ok(()),
        }
    }

    #[cold]
    fn limit_exactly(
        &mut self,
        more: usize,
        key: Option<(u32, &[u8])>,
        limit: usize,
    ) -> Result<(), DbmError> {
        self.work.reads.settle();
        let replaced = key.map_or(0, |(table, key)| self.work.writes.replaced(table, key));
        let bytes = self.work.bytes() + more - replaced.min(more);
        if bytes > limit {
            return Err(DbmError::TransactionTooLarge { bytes, limit });
        }
        Ok(())
    }

    /// The number of a table in the snapshot.
    fn number(&self, table: &Table) -> Result<u32, DbmError> {
        Ok(self.snapshot.info(table)?.id)
    }

    /// As [`Transaction::number`], for a write.
    fn number_to_write(&self, table: &Table) -> Result<u32, DbmError> {
        self.snapshot.core().latch.check()?;
        self.number(table)
    }

    /// The value of a key: its own write, or what the snapshot has. The commit conflicts if another
    /// transaction changes the key first.
    ///
    /// # Errors
    /// [`DbmError::NoTable`], damage, or the limit of a transaction.
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>, DbmError> {
        let info = self.snapshot.info(table)?;
        let (number, root) = (info.id, info.root);
        match self.work.writes.get(number, key) {
            Own::Put(value) => return Ok(Some(value.to_vec())),
            Own::Deleted => return Ok(None),
            Own::Untouched => {}
        }
        self.limit(key.len(), None)?;
        let found = self.snapshot.value_at(root, key)?;
        self.work.reads.key(number, key);
        Ok(found)
    }

    /// As [`Transaction::get`], but the commit does not check whether another transaction changed
    /// the key.
    ///
    /// # Errors
    /// [`DbmError::NoTable`], or damage.
    pub fn get_untracked(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>, DbmError> {
        let info = self.snapshot.info(table)?;
        match self.work.writes.get(info.id, key) {
            Own::Put(value) => Ok(Some(value.to_vec())),
            Own::Deleted => Ok(None),
            Own::Untouched => self.snapshot.value_at(info.root, key),
        }
    }

    /// Writes a record, whether the key exists or not.
    ///
    /// # Errors
    /// The key or value is too long, [`DbmError::NoTable`], the limit of a transaction, or
    /// [`DbmError::ReadOnly`].
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<(), DbmError> {
        self.appended = None;
        let number = self.number_to_write(table)?;
        check_record(key, value)?;
        self.limit(key.len() + value.len(), Some((number, key)))?;
        self.work.writes.write(number, key, Some(value));
        Ok(())
    }

    /// Writes a record whose key must come after all keys of the table. For a sequence of appends,
    /// the last key is read only once. If two transactions append to a table at the same time, one
    /// of them conflicts.
    ///
    /// # Errors
    /// [`DbmError::Unsorted`], and as [`Transaction::put`].
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// use senko_dbm::DbmError;
    /// let mut tx = db.begin();
    /// tx.append(&table, b"a", b"1")?;
    /// tx.append(&table, b"b", b"2")?;
    /// assert!(matches!(tx.append(&table, b"b", b"3"), Err(DbmError::Unsorted(_))));
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn append(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<(), DbmError> {
        let number = self.number_to_write(table)?;
        let behind = match self.appended.take() {
            Some((of, last)) if of == number => *key > *last,
            _ => self
                .before(table, None)?
                .is_none_or(|(last, _)| *key > *last),
        };
        if !behind {
            return Err(DbmError::Unsorted(1));
        }
        self.put(table, key, value)?;
        self.appended = Some((number, key.to_vec()));
        Ok(())
    }

    /// Writes a record whose key must not exist.
    ///
    /// # Errors
    /// [`DbmError::Exists`], and as [`Transaction::put`].
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// let mut tx = db.begin();
    /// tx.insert(&table, b"key", b"value")?;
    /// assert!(matches!(tx.insert(&table, b"key", b""), Err(senko_dbm::DbmError::Exists)));
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<(), DbmError> {
        if self.get(table, key)?.is_some() {
            return Err(DbmError::Exists);
        }
        self.put(table, key, value)
    }

    /// Deletes a key, whether it exists or not.
    ///
    /// # Errors
    /// [`DbmError::NoTable`], the limit of a transaction, or [`DbmError::ReadOnly`].
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<(), DbmError> {
        self.appended = None;
        let number = self.number_to_write(table)?;
        self.limit(key.len(), Some((number, key)))?;
        if key.len() <= MAX_KEY_BYTES {
            self.work.writes.write(number, key, None);
        }
        Ok(())
    }

    /// Deletes the keys from `from` up to (not including) `to`, or all later ones. The transaction
    /// does not grow with the records that it deletes.
    ///
    /// # Errors
    /// As [`Transaction::delete`].
    pub fn delete_range(
        &mut self,
        table: &Table,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<(), DbmError> {
        self.appended = None;
        let number = self.number_to_write(table)?;
        self.limit(from.len() + to.map_or(0, <[u8]>::len), None)?;
        self.work.writes.delete_range(Range {
            table: number,
            from: from.to_vec(),
            to: to.map(<[u8]>::to_vec),
        });
        Ok(())
    }

    /// Deletes all records of a table.
    ///
    /// # Errors
    /// As [`Transaction::delete_range`].
    pub fn clear(&mut self, table: &Table) -> Result<(), DbmError> {
        self.delete_range(table, b"", None)
    }

    /// The first record from `from` on, including own writes. The commit conflicts if another
    /// transaction changes anything between.
    ///
    /// # Errors
    /// [`DbmError::NoTable`], damage, or the limit of a transaction.
    pub fn next(&mut self, table: &Table, from: &[u8]) -> Result<Option<Record>, DbmError> {
        self.step(table, Some(from), true, false)
    }

    /// The first record after `key`; see [`Transaction::next`].
    ///
    /// # Errors
    /// As [`Transaction::next`].
    pub fn next_after(&mut self, table: &Table, key: &[u8]) -> Result<Option<Record>, DbmError> {
        self.step(table, Some(key), false, false)
    }

    /// The last record before `key`, or the last of all without a key; see [`Transaction::next`].
    ///
    /// # Errors
    /// As [`Transaction::next`].
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// let mut tx = db.begin();
    /// tx.put(&table, b"b", b"2")?;
    /// assert_eq!(tx.before(&table, None)?.unwrap().0, b"b");
    /// assert_eq!(tx.before(&table, Some(b"b"))?, None);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn before(
        &mut self,
        table: &Table,
        key: Option<&[u8]>,
    ) -> Result<Option<Record>, DbmError> {
        self.step(table, key, false, true)
    }

    /// The record with the lowest key; see [`Transaction::next`].
    ///
    /// # Errors
    /// As [`Transaction::next`].
    pub fn first(&mut self, table: &Table) -> Result<Option<Record>, DbmError> {
        self.next(table, b"")
    }

    /// The record with the highest key; see [`Transaction::before`].
    ///
    /// # Errors
    /// As [`Transaction::next`].
    pub fn last(&mut self, table: &Table) -> Result<Option<Record>, DbmError> {
        self.before(table, None)
    }

    /// Records of a table, including own writes. Each key that the transaction wrote is looked up,
    /// and the records of deleted ranges are counted one by one. The commit conflicts if another
    /// transaction writes to the table.
    ///
    /// # Errors
    /// As [`Transaction::next`].
    pub fn count(&mut self, table: &Table) -> Result<u64, DbmError> {
        self.limit(0, None)?;
        let count = count(&self.snapshot, &self.work.writes, table)?;
        self.work.reads.range(Range {
            table: self.number(table)?,
            from: Vec::new(),
            to: None,
        });
        Ok(count)
    }

    /// All records from `from` up to (not including) `to`. The commit conflicts if another
    /// transaction changes the range.
    ///
    /// # Errors
    /// As [`Transaction::next`].
    pub fn range(
        &mut self,
        table: &Table,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<Vec<Record>, DbmError> {
        self.range_at_most(table, from, to, usize::MAX)
    }

    /// The first `most` records, and at least one, from `from` up to (not including) `to`. If there
    /// are fewer, these are all. The commit conflicts if another transaction changes a returned
    /// record, or adds one between them.
    ///
    /// # Errors
    /// As [`Transaction::next`].
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// let mut tx = db.begin();
    /// tx.put(&table, b"a", b"1")?;
    /// tx.put(&table, b"b", b"2")?;
    /// assert_eq!(tx.range_at_most(&table, b"", None, 1)?.len(), 1);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn range_at_most(
        &mut self,
        table: &Table,
        from: &[u8],
        to: Option<&[u8]>,
        most: usize,
    ) -> Result<Vec<Record>, DbmError> {
        let borders = from.len() + to.map_or(0, <[u8]>::len);
        self.limit(borders + MAX_KEY_BYTES, None)?;
        let mut range = Range {
            table: self.number(table)?,
            from: from.to_vec(),
            to: to.map(<[u8]>::to_vec),
        };
        let mut records = Vec::new();
        let (snapshot, writes) = (&self.snapshot, &self.work.writes);
        let mut merged = Merged::new(snapshot, writes, table, Some(from), false)?;
        while let Some(record) = merged.next()? {
            if to.is_some_and(|to| *record.0 >= *to) {
                break;
            }
            self.tries.step();
            if records.len() + 1 >= most {
                // Later records were not read.
                range.to = Some(after(&record.0));
                records.push(record);
                break;
            }
            records.push(record);
        }
        let empty = merged.empty();
        self.work.writes.note_empty(empty);
        self.work.reads.range(range);
        Ok(records)
    }

    /// All records whose keys begin with `prefix`; see [`Transaction::range`].
    ///
    /// # Errors
    /// As [`Transaction::next`].
    pub fn prefix(&mut self, table: &Table, prefix: &[u8]) -> Result<Vec<Record>, DbmError> {
        self.range(table, prefix, after_prefix(prefix).as_deref())
    }

    fn step(
        &mut self,
        table: &Table,
        from: Option<&[u8]>,
        inclusive: bool,
        back: bool,
    ) -> Result<Option<Record>, DbmError> {
        self.limit(from.map_or(0, <[u8]>::len) + MAX_KEY_BYTES, None)?;
        // Upwards a border is in the range, downwards it is not.
        let border = from.map(|from| match inclusive == back {
            true => after(from),
            false => from.to_vec(),
        });
        let (snapshot, writes) = (&self.snapshot, &self.work.writes);
        let mut merged = Merged::new(snapshot, writes, table, border.as_deref(), back)?;
        let record = merged.next()?;
        let empty = merged.empty();
        self.work.writes.note_empty(empty);
        // From the requested key to the found one.
        let found = record.as_ref().map(|(key, _)| key);
        let (from, to) = match back {
            false => (border.unwrap_or_default(), found.map(|key| after(key))),
            true => (found.cloned().unwrap_or_default(), border),
        };
        self.work.reads.range(Range {
            table: self.number(table)?,
            from,
            to,
        });
        Ok(record)
    }

    /// Commits: either everything or nothing. Returns when the commit is as durable as `durability`
    /// asks.
    ///
    /// # Errors
    /// With [`DbmError::Conflict`], another transaction changed something that this one read, and
    /// nothing was done. With [`DbmError::NoSpace`], nothing was done either. After an error of the
    /// device the database accepts no more commits. Only the next opening shows whether this one is
    /// there.
    pub fn commit(self, durability: Durability) -> Result<(), DbmError> {
        self.commit_numbered(durability).map(drop)
    }

    /// As [`Transaction::commit`]; returns the commit's number, which is its place in the serial
    /// order. A transaction that wrote nothing has the number of its snapshot.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// let mut tx = db.begin();
    /// tx.put(&table, b"key", b"value")?;
    /// let number = tx.commit_numbered(senko_dbm::Durability::None)?;
    /// assert_eq!(db.snapshot().commit(), number);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn commit_numbered(mut self, durability: Durability) -> Result<u64, DbmError> {
        commit_work(&mut self.snapshot, &mut self.work, self.tries, durability)
    }

    /// Gives the transaction its place in the order and returns. Other transactions then see it,
    /// and [`PendingCommit::wait`] returns when it is as durable as `durability` asks. The
    /// database's thread makes it durable meanwhile, together with other commits. With
    /// `Options::threads(0)` the waiting caller does it, or the next commit that waits. Only
    /// [`Durability::Synced`] has anything to wait for.
    ///
    /// # Errors
    /// As [`Transaction::commit`], except the errors of the flush.
    pub fn commit_async(mut self, durability: Durability) -> Result<PendingCommit, DbmError> {
        let core = Arc::clone(self.snapshot.core());
        let handed = match durability {
            Durability::Synced => Durability::None,
            other => other,
        };
        let wrote = !self.work.writes.is_empty();
        let number = commit_work(&mut self.snapshot, &mut self.work, self.tries, handed)?;
        if durability == Durability::Synced && wrote {
            ask_for_sync(&core);
        }
        // A transaction that only read needs no flush.
        let durability = if wrote { durability } else { handed };
        Ok(PendingCommit::new(core, number, durability))
    }
}

/// Keys and values have a limit.
pub(crate) fn check_record(key: &[u8], value: &[u8]) -> Result<(), DbmError> {
    if key.len() > MAX_KEY_BYTES {
        return Err(DbmError::KeyTooLong(key.len()));
    }
    if value.len() > MAX_VALUE_BYTES {
        return Err(DbmError::ValueTooLong(value.len()));
    }
    Ok(())
}

/// Commits a transaction's work; returns its number.
pub(crate) fn commit_work(
    snapshot: &mut Snapshot,
    work: &mut Work,
    tries: Tries,
    durability: Durability,
) -> Result<u64, DbmError> {
    if work.writes.is_empty() {
        return Ok(snapshot.commit());
    }
    let bytes = work.writes.bytes();
    let (changes, ranges) = work.writes.finish();
    let ops = &*changes.ops;
    let long = || {
        let lengths = ops.iter().map(|op| op.value.map_or(0, Span::len));
        lengths.filter(|length| *length > MAX_INLINE)
    };
    let size = Size {
        bytes: bytes - long().sum::<usize>(),
        parts: long().map(|length| length.div_ceil(Blob::PART)).sum(),
        changes: ops.len() + ranges.len(),
        only_deletes: ops.iter().all(|op| op.value.is_none()),
    };
    warm(snapshot, &changes)?;
    // Its own snapshot would hold the space that its commit releases.
    let start = snapshot.close().ok_or(DbmError::SnapshotExpired)?;
    work.reads.settle();
    let node = Node::new(changes, ranges, None);
    let core = snapshot.core();
    submit(core, node, start, &mut work.reads, tries, durability, &size)
}

/// Reads the leaves that a commit changes. So damaged or unreadable leaves make it fail before
/// anything is done.
fn warm(snapshot: &Snapshot, changes: &Changes) -> Result<(), DbmError> {
    let core = snapshot.core();
    if !core.pages.dram().has_cold() {
        return Ok(());
    }
    let mut last: Option<(u32, Option<Vec<u8>>)> = None;
    for op in &changes.ops {
        let key = op.key.of(&changes.arena);
        let on_last = last.as_ref().is_some_and(|(table, to)| {
            *table == op.table && to.as_deref().is_none_or(|to| key < to)
        });
        if on_last {
            continue;
        }
        let root = snapshot.root_of(op.table);
        let read = core.pages.find(snapshot.commit(), root, Some(key), false);
        last = Some((op.table, snapshot.valid(read)?.to));
    }
    Ok(())
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (snapshot, bytes) = (&self.snapshot, self.work.writes.bytes());
        write!(f, "Transaction({snapshot:?}, {bytes} bytes written)")
    }
}
