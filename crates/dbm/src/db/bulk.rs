// SPDX-License-Identifier: Apache-2.0
//! Writes without reads: batches, and the bulk load of records with ascending keys.

use crate::commit::Work;
use crate::commit::ranges::Range;
use crate::commit::writes::WriteSet;
use crate::db::fairness::Tries;
use crate::db::transaction::{check_record, commit_work};
use crate::{Database, DbmError, Durability, Snapshot, Table};

/// Approximate bytes of records in one commit of a bulk load.
const LOAD: usize = 1 << 20;

/// Puts and deletes that are gathered and committed together. A batch never conflicts.
///
/// ```
/// # let db = senko_dbm::example::database();
/// # let table = db.create_table("t")?;
/// use senko_dbm::{Batch, Durability};
/// let mut batch = Batch::new();
/// batch.put(&table, b"a", b"1")?;
/// batch.delete(&table, b"b");
/// db.write(batch, Durability::Synced)?;
/// assert_eq!(db.snapshot().count(&table)?, 1);
/// # Ok::<(), senko_dbm::DbmError>(())
/// ```
#[derive(Debug, Default)]
pub struct Batch {
    /// With the numbers of `tables`.
    writes: WriteSet,
    /// Each name once, with a number that no other has.
    tables: Vec<(u32, Table)>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The number of a table in this batch: the one that its database most likely has for it.
    fn number(&mut self, table: &Table) -> u32 {
        let known = self.tables.iter().rev().find(|(_, known)| known == table);
        if let Some((number, _)) = known {
            return *number;
        }
        let is_free = |number: &u32| self.tables.iter().all(|(taken, _)| taken != number);
        let number = std::iter::once(table.number()).chain(0..).find(is_free);
        let number = number.unwrap_or_default();
        self.tables.push((number, table.clone()));
        number
    }

    /// Writes a record, whether the key exists or not.
    ///
    /// # Errors
    /// The key or value is too long.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<(), DbmError> {
        check_record(key, value)?;
        let number = self.number(table);
        self.writes.write(number, key, Some(value));
        Ok(())
    }

    /// Deletes a key, if it exists.
    pub fn delete(&mut self, table: &Table, key: &[u8]) {
        if key.len() <= crate::MAX_KEY_BYTES {
            let number = self.number(table);
            self.writes.write(number, key, None);
        }
    }

    /// Deletes the keys from `from` up to (not including) `to`, or all later ones. Later puts of
    /// the batch stay.
    pub fn delete_range(&mut self, table: &Table, from: &[u8], to: Option<&[u8]>) {
        let range = Range {
            table: self.number(table),
            from: from.to_vec(),
            to: to.map(<[u8]>::to_vec),
        };
        self.writes.delete_range(range);
    }
}

impl Database {
    /// Commits a batch: all of it or nothing.
    ///
    /// # Errors
    /// [`DbmError::NoTable`] if one of its tables is not there or is dropped meanwhile, the limit
    /// of a transaction, and the errors of a commit except a conflict.
    pub fn write(&self, batch: Batch, durability: Durability) -> Result<(), DbmError> {
        let limit = self.core().options.transaction_bytes;
        let bytes = batch.writes.bytes();
        if bytes > limit {
            return Err(DbmError::TransactionTooLarge { bytes, limit });
        }
        let tables = batch.tables.clone();
        match self.commit_batch(batch, durability) {
            // It read nothing, so this means that a table was dropped since its snapshot.
            Err(DbmError::Conflict) => {
                let now = self.core().readers.catalogue();
                let gone = tables.iter().find(|(_, table)| table.find(&now).is_none());
                let gone = gone.or(tables.first());
                let name = gone.map_or(String::new(), |(_, table)| table.name().to_owned());
                Err(DbmError::NoTable(name))
            }
            done => done,
        }
    }

    fn commit_batch(&self, batch: Batch, durability: Durability) -> Result<(), DbmError> {
        let mut snapshot = Snapshot::new(self.core().see(true));
        let mut numbers = Vec::with_capacity(batch.tables.len());
        for (number, table) in &batch.tables {
            numbers.push((*number, snapshot.info(table)?.id));
        }
        let mut work = Work {
            writes: batch.writes.renumber(&numbers),
            ..Work::default()
        };
        commit_work(&mut snapshot, &mut work, Tries::default(), durability).map(drop)
    }

    /// Loads records whose keys ascend and come after all keys of the table. It reads no page for a
    /// record, fills the leaves, and flushes once at the end. Returns the number of records.
    ///
    /// A bulk load consists of several commits. If it fails, the loaded records are deleted again.
    /// A crash before its end leaves the first part of the records. No other transaction may write
    /// after the table's last key meanwhile.
    ///
    /// # Errors
    /// [`DbmError::Unsorted`] with the number of the record, a key or value that is too long,
    /// [`DbmError::NoTable`], and the errors of a commit.
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// use senko_dbm::{DbmError, Durability, keys};
    /// let records = (0..1000u64).map(|n| (keys::from_u64(n), n.to_string()));
    /// assert_eq!(db.bulk_load(&table, records, Durability::Synced)?, 1000);
    /// let wrong = db.bulk_load(&table, [(b"z", b"1"), (b"y", b"2")], Durability::Synced);
    /// assert!(matches!(wrong, Err(DbmError::Unsorted(2))));
    /// assert_eq!(db.snapshot().count(&table)?, 1000);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        table: &Table,
        records: impl IntoIterator<Item = (K, V)>,
        durability: Durability,
    ) -> Result<u64, DbmError> {
        let records = records.into_iter().map(Ok::<_, DbmError>);
        self.try_bulk_load(table, records, durability)
    }

    /// As [`Database::bulk_load`], for an iterator of records that may fail. Then the loaded
    /// records are deleted again, and its error is returned.
    ///
    /// # Errors
    /// The errors of [`Database::bulk_load`], and the first error of the records.
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// use senko_dbm::{DbmError, Durability};
    /// let lines = ["a 1", "b 2", "nonsense"].into_iter();
    /// let records = lines.map(|line| {
    ///     let record = line.split_once(' ');
    ///     record.ok_or_else(|| DbmError::Invalid(format!("no record: {line}")))
    /// });
    /// let refused = db.try_bulk_load(&table, records, Durability::Synced).unwrap_err();
    /// assert_eq!(refused.to_string(), "no record: nonsense");
    /// assert_eq!(db.snapshot().count(&table)?, 0);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn try_bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<DbmError>>(
        &self,
        table: &Table,
        records: impl IntoIterator<Item = Result<(K, V), E>>,
        durability: Durability,
    ) -> Result<u64, E> {
        let mut last = self.snapshot().last(table)?.map(|(key, _)| key);
        // The first key, once a commit has it.
        let (mut first, mut committed) = (None::<Vec<u8>>, false);
        let (mut batch, mut loaded) = (Batch::new(), 0);
        let load = || -> Result<(), E> {
            for record in records {
                let (key, value) = record?;
                let (key, value) = (key.as_ref(), value.as_ref());
                check_record(key, value)?;
                if last.as_deref().is_some_and(|last| key <= last) {
                    return Err(E::from(DbmError::Unsorted(loaded + 1)));
                }
                if batch.writes.bytes() > LOAD {
                    self.commit_batch(std::mem::take(&mut batch), Durability::None)?;
                    committed = true;
                }
                batch.put(table, key, value)?;
                first.get_or_insert_with(|| key.to_vec());
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
                loaded += 1;
            }
            match batch.is_empty() {
                true => Ok(()),
                // There is only one log, so the last commit makes all earlier ones as durable as
                // itself.
                false => Ok(self.commit_batch(std::mem::take(&mut batch), durability)?),
            }
        };
        let done = load();
        if let (Err(_), Some(first), true) = (&done, &first, committed) {
            let mut undo = Batch::new();
            undo.delete_range(table, first, None);
            // If that fails too, the first error is more useful.
            let _ = self.write(undo, Durability::None);
        }
        done.map(|()| loaded)
    }
}
