// SPDX-License-Identifier: Apache-2.0
//! Copies of a snapshot into a new database: backup, compaction and repair.
//!
//! A copy is named `NAME.part` until it is complete. Its trees are filled with ascending keys, so
//! its leaves are full, and it has no dead pages.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use senko_io::{FileId, Unfinished};

use crate::db::snapshot::Record;
use crate::db::verify::is_alone;
use crate::pages::lookup::{Border, Borders, check_borders, check_level, children};
use crate::pages::node::Page;
use crate::records::table::TableInfo;
use crate::{Database, DbmError, Durability, Options, Snapshot, Table};

/// Approximate bytes of records in one transaction of a copy.
const BATCH: usize = 1 << 20;

/// What a copy contains.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CopyReport {
    /// Tables that were copied.
    pub tables: u64,
    /// Records that were copied.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Records that could not be read; only [`Database::repair`] continues after it.
    pub lost: Vec<Lost>,
}

impl CopyReport {
    pub(crate) fn lose(&mut self, table: &str, (from, to): Borders, why: DbmError) {
        self.lost.push(Lost {
            table: table.to_owned(),
            from,
            to,
            missing: 0,
            why,
        });
    }

    /// Of a table, whose losses begin with number `lost`, this many records are missing.
    pub(crate) fn missing(&mut self, lost: usize, missing: u64) {
        for lost in &mut self.lost[lost..] {
            lost.missing = missing;
        }
    }

    /// Notes that this many records of a table are not missing after all.
    pub(crate) fn found(&mut self, table: &str, records: u64) {
        for lost in self.lost.iter_mut().filter(|lost| lost.table == table) {
            lost.missing = lost.missing.saturating_sub(records);
        }
    }
}

/// Records that could not be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lost {
    /// The table's name.
    pub table: String,
    /// Their keys begin here; `None`: with the table's first key.
    pub from: Option<Vec<u8>>,
    /// Their keys are below this; `None`: up to the table's last key.
    pub to: Option<Vec<u8>>,
    /// How many records of the table's count were not found. It is the same in all rows of a table.
    pub missing: u64,
    /// The damage of the page.
    pub why: DbmError,
}

/// The table of a leaf to which no page leads: the table that lost the range around its keys.
/// `None` if several tables lost such a range, or none did. Rows without a table say nothing.
pub(crate) fn owner<'a>(lost: &'a [Lost], leaf: &Page) -> Option<&'a str> {
    let (first, last) = (leaf.key(0), leaf.key(leaf.count() - 1));
    let is_around = |lost: &&Lost| {
        !lost.table.is_empty()
            && lost.from.as_deref().is_none_or(|from| from <= first)
            && lost.to.as_deref().is_none_or(|to| last < to)
    };
    let mut tables = lost.iter().filter(is_around).map(|lost| &*lost.table);
    let table = tables.next()?;
    tables.all(|other| other == table).then_some(table)
}

/// A new table for records whose own table is unknown: `name`, or with a number if a table has that
/// name.
pub(crate) fn unowned(to: &Database, name: &str) -> Result<Table, DbmError> {
    let mut free = name.to_owned();
    let mut number = 2;
    while to.table(&free).is_ok() {
        free = format!("{name}-{number}");
        number += 1;
    }
    to.create_table(&free)
}

/// How a copy handles an unreadable page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Damage {
    Ends,
    IsListed,
}

impl Database {
    /// Copies everything committed so far into a new database at `to`, which must not exist.
    /// Commits continue meanwhile. `progress` gets the number of records so far, and ends the copy
    /// if it returns `false`.
    ///
    /// # Errors
    /// Damage, and the errors of making the copy; then there is no copy. An ended copy is
    /// [`DbmError::Invalid`].
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let folder = senko_dbm::example::Folder::new();
    /// use senko_dbm::{Database, Durability, Options};
    /// let table = db.create_table("t")?;
    /// db.run(Durability::None, |tx| tx.put(&table, b"key", b"value"))?;
    /// let path = folder.path().join("copy.db");
    /// db.backup(&path, |_| true)?;
    /// let copy = Database::open_to_read(&path, Options::default())?;
    /// assert_eq!(copy.snapshot().get(&copy.table("t")?, b"key")?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn backup(
        &self,
        to: &Path,
        progress: impl FnMut(u64) -> bool,
    ) -> Result<CopyReport, DbmError> {
        self.copy(to, Damage::Ends, progress)
    }

    /// As [`Database::backup`], but unreadable parts are skipped and listed.
    ///
    /// # Errors
    /// As [`Database::backup`], except damage.
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let folder = senko_dbm::example::Folder::new();
    /// let saved = db.repair(&folder.path().join("saved.db"), |_| true)?;
    /// assert_eq!(saved.records, 0);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn repair(
        &self,
        to: &Path,
        progress: impl FnMut(u64) -> bool,
    ) -> Result<CopyReport, DbmError> {
        self.copy(to, Damage::IsListed, progress)
    }

    fn copy(
        &self,
        to: &Path,
        damage: Damage,
        progress: impl FnMut(u64) -> bool,
    ) -> Result<CopyReport, DbmError> {
        let open = |error: std::io::Error| DbmError::Open(error.into());
        let (unfinished, file) = Unfinished::create(to).map_err(open)?;
        drop(file);
        let report = self.copy_to(unfinished.draft(), damage, progress)?;
        unfinished.finish().map_err(open)?;
        Ok(report)
    }

    /// Replaces a database by a copy of it, which has neither dead pages nor half-empty leaves. No
    /// process may have it open for writing. Until the copy is complete, the database is unchanged.
    /// The new file has the owner, the group and the rights of the old one.
    ///
    /// # Errors
    /// As [`Database::open`] and [`Database::backup`].
    ///
    /// ```
    /// # let folder = senko_dbm::example::Folder::new();
    /// use senko_dbm::{Database, Durability, Options};
    /// let path = folder.path().join("data.db");
    /// let db = Database::open(&path, Options::default())?;
    /// let table = db.create_table("t")?;
    /// db.run(Durability::Synced, |tx| tx.put(&table, b"key", b"value"))?;
    /// drop(db);
    /// assert_eq!(Database::compact(&path, Options::default(), |_| true)?.records, 1);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn compact(
        path: &Path,
        options: Options,
        progress: impl FnMut(u64) -> bool,
    ) -> Result<CopyReport, DbmError> {
        let create = false;
        let db = Database::open(path, Options { create, ..options })?;
        Ok(db.replace(progress)?.0)
    }

    /// As [`Database::compact`], for an open database. It must be the only handle, without
    /// transactions and snapshots. Afterwards it has the copy open.
    ///
    /// # Errors
    /// As [`Database::compact`]. [`DbmError::Open`] if another file has the name of the database by
    /// now. The database stays open and unchanged. Only if the copy was made and does not open, the
    /// handle accepts no more commits.
    ///
    /// ```
    /// # let folder = senko_dbm::example::Folder::new();
    /// use senko_dbm::{Database, Options};
    /// let mut db = Database::open(&folder.path().join("data.db"), Options::default())?;
    /// db.create_table("t")?;
    /// assert_eq!(db.reorganize(|_| true)?.tables, 1);
    /// assert!(db.table("t").is_ok());
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn reorganize(
        &mut self,
        progress: impl FnMut(u64) -> bool,
    ) -> Result<CopyReport, DbmError> {
        let path = self.place()?.path.clone();
        self.core().latch.check()?;
        // A checkpoint has a snapshot. After this one no other is due, because nobody writes. A
        // full database is reorganized because there is no room for one.
        match self.checkpoint() {
            Err(DbmError::NoSpace(_)) => {}
            done => done?,
        }
        if self.is_shared() {
            let text = "a database is reorganized when its other handles, its transactions and its \
                        snapshots have ended";
            return Err(DbmError::Invalid(text.to_owned()));
        }
        let (report, file) = self.replace(progress)?;
        let create = false;
        let options = Options {
            create,
            ..self.core().options.clone()
        };
        let opened = Database::open(&path, options).and_then(|copy| {
            if copy.place()?.file != file {
                let text = format!("another file took the name {} meanwhile", path.display());
                return Err(DbmError::Open(Arc::new(std::io::Error::other(text))));
            }
            Ok(copy)
        });
        match opened {
            Ok(copy) => *self = copy,
            Err(error) => {
                // A commit here would go into a file without a name.
                let text = format!("it was replaced by its copy, which did not open: {error}");
                self.core().latch.close(&text);
                return Err(error);
            }
        }
        Ok(report)
    }

    /// Puts a copy in the place of the file that this database has open.
    fn replace(&self, progress: impl FnMut(u64) -> bool) -> Result<(CopyReport, FileId), DbmError> {
        let open = |error: std::io::Error| DbmError::Open(error.into());
        let place = self.place()?;
        let (unfinished, file) = Unfinished::replacing(&place.path, place.file).map_err(open)?;
        drop(file);
        let report = self.copy_to(unfinished.draft(), Damage::Ends, progress)?;
        let copy = unfinished.id().map_err(open)?;
        unfinished.finish().map_err(open)?;
        Ok((report, copy))
    }

    fn copy_to(
        &self,
        to: &Path,
        damage: Damage,
        progress: impl FnMut(u64) -> bool,
    ) -> Result<CopyReport, DbmError> {
        let options = Options {
            threads: 0,
            transaction_bytes: usize::MAX,
            ..Options::default()
        };
        let copy = Database::open(to, options)?;
        let seen = self.core().see(false);
        let mut copying = Copying {
            from: Snapshot::new(seen),
            to: &copy,
            damage,
            progress,
            batch: Vec::new(),
            bytes: 0,
            reached: FxHashSet::default(),
            parts: FxHashSet::default(),
            report: CopyReport::default(),
        };
        let tables = copying.from.catalogue();
        for table in tables.iter() {
            copying.table(table)?;
        }
        if !copying.report.lost.is_empty() {
            copying.orphans()?;
        }
        let report = copying.report;
        copy.close()?;
        Ok(report)
    }
}

struct Copying<'a, P> {
    from: Snapshot,
    to: &'a Database,
    damage: Damage,
    progress: P,
    batch: Vec<Record>,
    bytes: usize,
    /// Pages to which trees lead.
    reached: FxHashSet<u32>,
    /// Parts of long values to which records lead.
    parts: FxHashSet<u32>,
    report: CopyReport,
}

impl<P: FnMut(u64) -> bool> Copying<'_, P> {
    fn table(&mut self, table: &TableInfo) -> Result<(), DbmError> {
        let (records, lost) = (self.report.records, self.report.lost.len());
        let name = table.name.to_string();
        let to = self.to.create_table(&name)?;
        self.tree(&to, table.root, (None, None), None)?;
        self.put(&to)?;
        self.report.tables += 1;
        let found = self.report.records - records;
        if found != table.count && self.report.lost.len() == lost {
            let what = format!("{found} records were found, {} are counted", table.count);
            self.lose(&to, (None, None), DbmError::damaged(0, what))?;
        }
        let missing = table.count.saturating_sub(found);
        self.report.missing(lost, missing);
        Ok(())
    }

    /// Adds what could not be read to the report, or ends the copy.
    fn lose(&mut self, to: &Table, borders: Borders, why: DbmError) -> Result<(), DbmError> {
        if self.damage == Damage::Ends || matches!(why, DbmError::SnapshotExpired) {
            return Err(why);
        }
        self.report.lose(to.name(), borders, why);
        Ok(())
    }

    fn tree(
        &mut self,
        to: &Table,
        id: u32,
        borders: Borders,
        above: Option<u8>,
    ) -> Result<(), DbmError> {
        let (core, commit) = (Arc::clone(self.from.core()), self.from.commit());
        let is_new = self.reached.insert(id);
        let page = self.from.valid(core.pages.page_at(id, commit));
        let page = match page.and_then(|page| check_level(&page, above).map(|()| page)) {
            Ok(page) if is_new => page,
            Ok(_) => {
                let what = format!("page {id} has two places in the trees");
                return self.lose(to, borders, DbmError::damaged(0, what));
            }
            Err(why) => return self.lose(to, borders, why),
        };
        let misplaced = check_borders(&page, (&borders.0, &borders.1)).err();
        let is_misplaced = misplaced.is_some();
        if let Some(why) = misplaced {
            self.lose(to, borders.clone(), why)?;
        }
        if page.level() == 0 {
            return self.leaf(to, &page, (&borders.0, &borders.1));
        }
        // Without borders, the leaves below count as those to which no page leads.
        if !is_misplaced {
            for (child, borders) in children(&page, &borders) {
                self.tree(to, child, borders, Some(page.level()))?;
            }
        }
        Ok(())
    }

    /// Leaves whose path from the root is lost. The translation table still names them, and each
    /// belongs to one tree (TREE-1). Leaves whose table is unknown go into a separate table.
    fn orphans(&mut self) -> Result<(), DbmError> {
        let (core, commit) = (Arc::clone(self.from.core()), self.from.commit());
        let lost = self.report.lost.clone();
        let mut recovered = None;
        for id in 0..core.room.pages() as u32 {
            let version = core.pages.version_at(id, commit);
            let Some(version) = version.filter(|_| !self.reached.contains(&id)) else {
                continue;
            };
            let leaf = match self.from.valid(core.pages.page(&version)) {
                Ok(page) if page.level() == 0 && page.count() > 0 => page,
                Err(why @ DbmError::SnapshotExpired) => return Err(why),
                Ok(_) | Err(_) => continue,
            };
            let to = match (owner(&lost, &leaf), &recovered) {
                (Some(name), _) => self.to.table(name)?,
                (None, Some(table)) => Table::clone(table),
                (None, None) => {
                    let table = unowned(self.to, "recovered")?;
                    let why = DbmError::damaged(0, "the table of these records is lost");
                    self.lose(&table, (None, None), why)?;
                    self.report.tables += 1;
                    recovered.insert(table).clone()
                }
            };
            let before = self.report.records;
            self.leaf(&to, &leaf, (&None, &None))?;
            self.put(&to)?;
            let found = self.report.records - before;
            self.report.found(to.name(), found);
        }
        Ok(())
    }

    /// The records of a leaf that belong to it.
    fn leaf(
        &mut self,
        to: &Table,
        page: &Page,
        (from, below): (&Border, &Border),
    ) -> Result<(), DbmError> {
        let core = Arc::clone(self.from.core());
        for nth in 0..page.count() {
            let key = page.key(nth).to_vec();
            if from.as_ref().is_some_and(|from| key < *from)
                || below.as_ref().is_some_and(|below| key >= *below)
            {
                continue;
            }
            let value = core.pages.value(page, nth).and_then(|value| {
                if let (reference, true) = page.value(nth) {
                    is_alone(&mut self.parts, reference)?;
                }
                Ok(value)
            });
            match self.from.valid(value) {
                Ok(value) => self.record(to, key, value)?,
                Err(why) => {
                    let behind = [&key[..], &[0]].concat();
                    self.lose(to, (Some(key), Some(behind)), why)?;
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, to: &Table, key: Vec<u8>, value: Vec<u8>) -> Result<(), DbmError> {
        let bytes = key.len() + value.len();
        self.report.records += 1;
        self.report.bytes += bytes as u64;
        self.bytes += bytes;
        self.batch.push((key, value));
        if self.bytes >= BATCH {
            self.put(to)?;
        }
        Ok(())
    }

    fn put(&mut self, to: &Table) -> Result<(), DbmError> {
        let mut tx = self.to.begin();
        for (key, value) in self.batch.drain(..) {
            tx.put(to, &key, &value)?;
        }
        self.bytes = 0;
        tx.commit(Durability::None)?;
        if !(self.progress)(self.report.records) {
            return Err(DbmError::Invalid("the copy was ended".to_owned()));
        }
        Ok(())
    }
}
