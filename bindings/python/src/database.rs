// SPDX-License-Identifier: Apache-2.0
//! A table of an open database as a mapping. Every table of one opening shares the database.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use senko_dbm::{DbmError, Durability, Options, Table};

use crate::bytes;
use crate::failure::{closed, error, exception};
use crate::guard::Owned;
use crate::iteration::{Part, Records, Span};
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;

/// The table that a database has from the start; `senko dbm` takes it without being told.
const MAIN: &str = "main";

/// One opening. None when it is closed.
pub struct Shared {
    db: Owned<RwLock<Option<senko_dbm::Database>>>,
    path: PathBuf,
    writes: bool,
}

impl Shared {
    /// Works on the database with the GIL released. A closing waits until the work is done.
    fn on<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&senko_dbm::Database) -> Result<T, DbmError> + Send,
    ) -> PyResult<T> {
        let lock = self.db.get()?;
        let done = py.detach(|| {
            let db = lock.read().unwrap_or_else(PoisonError::into_inner);
            db.as_ref().map(work)
        });
        done.ok_or_else(closed)?.map_err(exception)
    }

    /// As `on`, for what changes the database.
    fn write<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&senko_dbm::Database) -> Result<T, DbmError> + Send,
    ) -> PyResult<T> {
        if !self.writes {
            return Err(error::new_err("the database was opened to be read"));
        }
        self.on(py, work)
    }

    /// A table by its name.
    pub fn find(&self, name: &str) -> PyResult<Table> {
        Python::attach(|py| self.on(py, |db| db.table(name)))
    }
}

/// A table of a database.
#[pyclass(subclass, module = "senko_flash._native", frozen)]
pub struct Database {
    shared: Arc<Shared>,
    table: Table,
    durability: Durability,
}

fn durability_of(name: &str) -> PyResult<Durability> {
    match name {
        "none" => Ok(Durability::None),
        "buffered" => Ok(Durability::Buffered),
        "synced" => Ok(Durability::Synced),
        _ => Err(PyValueError::new_err(format!(
            "durability is 'none', 'buffered' or 'synced', not {name:?}"
        ))),
    }
}

fn options(create: bool, mode: u32, cache_bytes: Option<usize>) -> Options {
    let usual = Options::default();
    Options {
        create,
        mode: Some(mode),
        one_file: true,
        cache_bytes: cache_bytes.unwrap_or(usual.cache_bytes),
        ..usual
    }
}

/// Opens the database, and finds its table.
fn open(
    path: &std::path::Path,
    flag: char,
    options: Options,
) -> Result<(senko_dbm::Database, Table), DbmError> {
    if flag == 'r' {
        let db = senko_dbm::Database::open_to_read(path, options)?;
        let table = db.table(MAIN)?;
        return Ok((db, table));
    }
    let mut opened = senko_dbm::Database::open(path, options.clone());
    let unusable = |error: &DbmError| {
        matches!(
            error,
            DbmError::Foreign(_) | DbmError::Damaged { .. } | DbmError::NewerVersion { .. }
        )
    };
    if flag == 'n' && opened.as_ref().is_err_and(unusable) {
        // Nobody writes to it, or the opening would have met the lock.
        let emptied = std::fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(path);
        emptied.map_err(|error| DbmError::Open(Arc::new(error)))?;
        opened = senko_dbm::Database::open(path, options);
    }
    let db = opened?;
    if flag == 'n' {
        for table in db.tables() {
            db.drop_table(&table)?;
        }
    }
    let table = db.create_table(MAIN)?;
    Ok((db, table))
}

#[pymethods]
impl Database {
    #[new]
    #[pyo3(signature = (path, flag="r", mode=0o666, *, durability="buffered", cache_bytes=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        flag: &str,
        mode: u32,
        durability: &str,
        cache_bytes: Option<usize>,
    ) -> PyResult<Database> {
        let kind = match flag {
            "r" => 'r',
            "w" => 'w',
            "c" => 'c',
            "n" => 'n',
            _ => {
                let text = format!("flag is 'r', 'w', 'c' or 'n', not {flag:?}");
                return Err(PyValueError::new_err(text));
            }
        };
        let durability = durability_of(durability)?;
        let options = options(matches!(kind, 'c' | 'n'), mode, cache_bytes);
        let (db, table) = py
            .detach(|| open(&path, kind, options))
            .map_err(exception)?;
        let shared = Arc::new(Shared {
            db: Owned::new(RwLock::new(Some(db))),
            path,
            writes: kind != 'r',
        });
        Ok(Database {
            shared,
            table,
            durability,
        })
    }

    fn _get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes::of(key)?;
        let found = self
            .shared
            .on(py, |db| db.snapshot().get(&self.table, &key))?;
        Ok(found.map(|value| PyBytes::new(py, &value)))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self._get(py, &key)?
            .ok_or_else(|| PyKeyError::new_err(key.unbind()))
    }

    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self._get(py, key)?.map(Bound::into_any).or(default))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self._get(py, key)?.is_some())
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, value) = (bytes::of(key)?, bytes::of(value)?);
        self.shared.write(py, |db| {
            db.run(self.durability, |tx| tx.put(&self.table, &key, &value))
        })
    }

    fn __delitem__(&self, py: Python<'_>, key: Bound<'_, PyAny>) -> PyResult<()> {
        match self._take(py, &key)? {
            Some(_) => Ok(()),
            None => Err(PyKeyError::new_err(key.unbind())),
        }
    }

    /// Removes a key, and gives its value.
    fn _take<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes::of(key)?;
        let taken = self.shared.write(py, |db| {
            db.run(self.durability, |tx| {
                let value = tx.get(&self.table, &key)?;
                if value.is_some() {
                    tx.delete(&self.table, &key)?;
                }
                Ok(value)
            })
        })?;
        Ok(taken.map(|value| PyBytes::new(py, &value)))
    }

    /// The value of a key, which is set to `default` if it is not there. One transaction.
    #[pyo3(signature = (key, default=None))]
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        if let Some(value) = self._get(py, key)? {
            return Ok(value);
        }
        let (key, value) = (bytes::of(key)?, bytes::maybe(default)?.unwrap_or_default());
        let found = self.shared.write(py, |db| {
            db.run(self.durability, |tx| {
                if let Some(there) = tx.get(&self.table, &key)? {
                    return Ok(there);
                }
                tx.put(&self.table, &key, &value)?;
                Ok(value.clone())
            })
        })?;
        Ok(PyBytes::new(py, &found))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let count = self.shared.on(py, |db| db.snapshot().count(&self.table))?;
        Ok(count as usize)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Records> {
        self.records(py, Span::default(), Part::Key)
    }

    /// The keys, in order, as a list.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let records = self.__iter__(py)?;
        let keys = PyList::empty(py);
        while let Some((key, _)) = records.record(py)? {
            keys.append(PyBytes::new(py, &key))?;
        }
        Ok(keys)
    }

    fn _values(&self, py: Python<'_>) -> PyResult<Records> {
        self.records(py, Span::default(), Part::Value)
    }

    /// The records from `start` on and before `stop`, of one snapshot.
    #[pyo3(signature = (start=None, stop=None, *, reverse=false))]
    fn range(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Records> {
        let (from, to) = (bytes::maybe(start)?, bytes::maybe(stop)?);
        self.records(py, Span { from, to, reverse }, Part::Both)
    }

    /// The records whose keys begin with `prefix`, of one snapshot.
    #[pyo3(signature = (prefix, *, reverse=false))]
    fn prefix(
        &self,
        py: Python<'_>,
        prefix: &Bound<'_, PyAny>,
        reverse: bool,
    ) -> PyResult<Records> {
        let prefix = bytes::of(prefix)?;
        self.shared.on(py, |db| {
            let cursor = db.snapshot().prefix(&self.table, &prefix)?;
            Records::over(cursor, reverse, Part::Both)
        })
    }

    /// The first key, or None.
    fn firstkey<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.key_from(py, b"", true)
    }

    /// The first key behind `key`, or None.
    fn nextkey<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.key_from(py, &bytes::of(key)?, false)
    }

    /// Removes every record, in one transaction.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.shared
            .write(py, |db| db.run(self.durability, |tx| tx.clear(&self.table)))
    }

    /// Returns when all that was committed is on the device.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        match self.shared.writes {
            true => self.shared.on(py, senko_dbm::Database::sync),
            false => self.shared.on(py, |_| Ok(())),
        }
    }

    /// Writes a checkpoint, so that the space of old records can be used again. The file does not
    /// shrink; `senko dbm compact` shrinks it.
    fn reorganize(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.write(py, senko_dbm::Database::checkpoint)
    }

    /// Closes the database for all of its tables. Nothing if it is closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let lock = self.shared.db.get()?;
        py.detach(|| {
            let db = lock.write().unwrap_or_else(PoisonError::into_inner).take();
            db.map_or(Ok(()), senko_dbm::Database::close)
        })
        .map_err(exception)
    }

    /// A table of this database. One that is not there is made if `create` is true.
    #[pyo3(signature = (name, *, create=false))]
    fn _table(&self, py: Python<'_>, name: &str, create: bool) -> PyResult<Database> {
        let table = match create {
            true => self.shared.write(py, |db| db.create_table(name))?,
            false => self.shared.on(py, |db| db.table(name))?,
        };
        Ok(Database {
            shared: self.shared.clone(),
            table,
            durability: self.durability,
        })
    }

    /// The names of the tables.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.shared.on(py, |db| {
            Ok(db.tables().iter().map(|t| t.name().to_owned()).collect())
        })
    }

    /// Removes a table with its records.
    fn drop_table(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.shared.write(py, |db| db.drop_table(&db.table(name)?))
    }

    /// The state of now, which stays as it is.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        Ok(Snapshot {
            inner: Owned::new(self.shared.on(py, |db| Ok(db.snapshot()))?),
            table: self.table.clone(),
            shared: self.shared.clone(),
        })
    }

    /// A transaction. Its `with` block commits, or rolls back when it raises.
    #[pyo3(signature = (*, durability=None))]
    fn transaction(&self, py: Python<'_>, durability: Option<&str>) -> PyResult<Transaction> {
        let durability = durability.map_or(Ok(self.durability), durability_of)?;
        let tx = self.shared.write(py, |db| Ok(db.begin()))?;
        Ok(Transaction {
            running: Arc::new(Owned::new(Mutex::new(Some(tx)))),
            table: self.table.clone(),
            shared: self.shared.clone(),
            durability,
        })
    }

    /// Counts of the database: bytes, commits, conflicts, page reads, open snapshots.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.shared.on(py, |db| Ok(db.stats()))?;
        let dict = PyDict::new(py);
        dict.set_item("file_bytes", stats.file_bytes)?;
        dict.set_item("live_bytes", stats.live_bytes)?;
        dict.set_item("free_bytes", stats.free_bytes)?;
        dict.set_item("cached_bytes", stats.cached_bytes)?;
        dict.set_item("commit", stats.commit)?;
        dict.set_item("durable", stats.durable)?;
        dict.set_item("commits", stats.commits)?;
        dict.set_item("conflicts", stats.conflicts)?;
        dict.set_item("page_reads", stats.page_reads)?;
        dict.set_item("open_snapshots", stats.open_snapshots)?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let (path, table) = (self.shared.path.display(), self.table.name());
        format!("<senko_flash.dbm database {path}, table {table}>")
    }
}

impl Database {
    fn records(&self, py: Python<'_>, span: Span, part: Part) -> PyResult<Records> {
        self.shared.on(py, |db| {
            Records::new(&db.snapshot(), &self.table, span, part)
        })
    }

    fn key_from<'py>(
        &self,
        py: Python<'py>,
        from: &[u8],
        inclusive: bool,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let found = self.shared.on(py, |db| {
            db.snapshot().next_key(&self.table, from, inclusive)
        })?;
        Ok(found.map(|key| PyBytes::new(py, &key)))
    }
}
