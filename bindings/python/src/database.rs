// SPDX-License-Identifier: Apache-2.0
//! A table of an open database as a mapping. Every table of one opening shares the database.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, RwLock};

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use senko_dbm::{Cached, DbmError, Durability, Options, Table};

use crate::arguments::{self, Argument};
use crate::at_exit;
use crate::bytes;
use crate::failure::{closed, error, exception, of_opening};
use crate::guard::{Of, Owned};
use crate::interrupt::interruptible;
use crate::opened::Shared;
use crate::reads::{InOrder, Ordered, Source};
use crate::snapshot::Snapshot;
use crate::transaction::{self, Transaction};

/// The table that every database has from the start; it is the default of `senko dbm`.
const MAIN: &str = "main";

/// DRAM for pages if the caller gives no bound. dbm.gnu lets the system cache its whole file; 256
/// MiB hold more than a million records of 100 bytes.
const CACHE_BYTES: usize = 256 << 20;

/// The permissions of a new file.
const MOST_MODE: u64 = 0o7777;

/// A table of a database.
#[pyclass(extends = Ordered, subclass, module = "senko_flash._native", frozen)]
pub struct Database {
    view: Arc<View>,
}

/// A table, and the durability that its writes wait for.
struct View {
    shared: Arc<Shared>,
    table: Table,
    durability: Durability,
}

impl Source for View {
    fn value(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        self.shared.on(py, |db| db.get(&self.table, key))
    }

    fn bytes<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let make = |value: &[u8]| PyBytes::new(py, value);
        match self.shared.get_cached(&self.table, key, make)? {
            Cached::Found(value) => Ok(Some(value)),
            Cached::Absent => Ok(None),
            Cached::Unknown => Ok(self.value(py, key)?.map(|value| make(&value))),
        }
    }
}

impl InOrder for View {
    fn state(&self, py: Python<'_>) -> PyResult<(senko_dbm::Snapshot, Table)> {
        let state = self.shared.on(py, |db| Ok(db.snapshot()))?;
        Ok((state, self.table.clone()))
    }
}

impl View {
    /// Executes `work` in its own transaction.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        mut work: impl FnMut(&mut senko_dbm::Transaction, &Table) -> Result<T, DbmError> + Send,
    ) -> PyResult<T> {
        let once = |tx: &mut senko_dbm::Transaction| work(tx, &self.table);
        self.shared.write(py, |db| db.run(self.durability, once))
    }
}

fn durability_of(name: &Bound<'_, PyAny>) -> PyResult<Durability> {
    let all = [Durability::None, Durability::Buffered, Durability::Synced];
    Ok(all[arguments::durability(name)?])
}

/// Most bytes of a transaction if the caller gives no bound: enough for the longest value.
const TRANSACTION_BYTES: u64 = 2 << 30;

fn options(
    create: bool,
    mode: u32,
    cache_bytes: Option<u64>,
    transaction_bytes: Option<u64>,
) -> Options {
    let transaction_bytes = transaction_bytes.unwrap_or(TRANSACTION_BYTES);
    Options {
        transaction_bytes: usize::try_from(transaction_bytes).unwrap_or(usize::MAX),
        create,
        mode: Some(mode),
        cache_bytes: cache_bytes.map_or(CACHE_BYTES, |bytes| bytes as usize),
        ..Options::default()
    }
}

/// Opens the database and makes its table.
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
            DbmError::Foreign(_)
                | DbmError::Damaged { .. }
                | DbmError::NewerVersion { .. }
                | DbmError::OlderVersion { .. }
        )
    };
    if flag == 'n' && opened.as_ref().is_err_and(unusable) {
        // Nobody writes to it; otherwise opening it would have failed because of the lock.
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
    // One that is there need not be durable before a commit is.
    let table = match db.table(MAIN) {
        Err(DbmError::NoTable(_)) => db.create_table(MAIN)?,
        found => found?,
    };
    Ok((db, table))
}

#[pymethods]
impl Database {
    #[new]
    #[pyo3(signature = (path, flag, mode, *, durability, cache_bytes, transaction_bytes))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        flag: &Bound<'_, PyAny>,
        mode: &Bound<'_, PyAny>,
        durability: &Bound<'_, PyAny>,
        cache_bytes: Argument<'_, '_>,
        transaction_bytes: Argument<'_, '_>,
    ) -> PyResult<PyClassInitializer<Database>> {
        let flags = ["r", "w", "c", "n"];
        let kind = ['r', 'w', 'c', 'n'][arguments::choice("flag", &flags, flag)?];
        let mode = arguments::whole("mode", 0..=MOST_MODE, mode)? as u32;
        let durability = durability_of(durability)?;
        let most = isize::MAX as u64;
        let bytes = |name, object| arguments::maybe_whole(name, 0..=most, object);
        let cache_bytes = bytes("cache_bytes", cache_bytes)?;
        let transaction_bytes = bytes("transaction_bytes", transaction_bytes)?;
        let create = matches!(kind, 'c' | 'n');
        let options = options(create, mode, cache_bytes, transaction_bytes);
        let place = path.clone();
        let db = interruptible(py, None, move |_| open(&place, kind, options))?;
        let (db, table) = db.map_err(|failure| of_opening(failure, &path))?;
        let shared = Arc::new(Shared {
            db: Owned::new(Of::Database, RwLock::new(Some(db))),
            path,
            writes: kind != 'r',
        });
        if shared.writes {
            at_exit::add(&shared);
        }
        Ok(Database::of(shared, table, durability))
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, value) = (bytes::of(key)?, bytes::of(value)?);
        self.view.run(py, |tx, table| tx.put(table, &key, &value))
    }

    fn __delitem__(&self, py: Python<'_>, key: Bound<'_, PyAny>) -> PyResult<()> {
        match self._take(py, &key)? {
            Some(_) => Ok(()),
            None => Err(PyKeyError::new_err(key.unbind())),
        }
    }

    /// Removes a key and returns its value.
    fn _take<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = bytes::of(key)?;
        let taken = self.view.run(py, |tx, table| {
            let value = tx.get(table, &key)?;
            if value.is_some() {
                tx.delete(table, &key)?;
            }
            Ok(value)
        })?;
        Ok(taken.map(|value| PyBytes::new(py, &value)))
    }

    /// The value of a key; if the key is missing, it is set to `default`. One transaction.
    #[pyo3(signature = (key, default=None))]
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (key, value) = (bytes::of(key)?, bytes::maybe(default)?.unwrap_or_default());
        if let Some(there) = self.view.value(py, &key)? {
            return Ok(PyBytes::new(py, &there));
        }
        let found = self.view.run(py, |tx, table| {
            if let Some(there) = tx.get(table, &key)? {
                return Ok(there);
            }
            tx.put(table, &key, &value)?;
            Ok(value.clone())
        })?;
        Ok(PyBytes::new(py, &found))
    }

    /// Removes every record, in one transaction.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let (table, durability) = (self.view.table.clone(), self.view.durability);
        self.view
            .shared
            .write_long(py, move |db| db.run(durability, |tx| tx.clear(&table)))
    }

    /// Returns when everything committed is on the device.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        match self.view.shared.writes {
            true => self.view.shared.write_long(py, senko_dbm::Database::sync),
            false => self.view.shared.on(py, |_| Ok(())),
        }
    }

    /// Replaces the database by a copy without the space of removed records. Until the copy is
    /// complete the database stays as it was. Transactions, snapshots and iterators must have
    /// ended.
    fn reorganize(&self, py: Python<'_>) -> PyResult<()> {
        self.view.shared.check_writes()?;
        let held = self.view.shared.alone(py, |db, stop| {
            let Some(db) = db else {
                return Ok(None);
            };
            // A concurrent checkpoint has its own snapshot. After a full one no other is due:
            // nobody writes meanwhile.
            match db.checkpoint() {
                Err(DbmError::NoSpace(_)) => {}
                done => done?,
            }
            let held = db.stats().open_snapshots;
            if held == 0 {
                db.reorganize(|_| !stop.load(Ordering::Relaxed))?;
            }
            Ok(Some(held))
        })?;
        match held.ok_or_else(closed)? {
            0 => Ok(()),
            held => Err(error::new_err(format!(
                "the database can be reorganized when its transactions, snapshots and iterators \
                 have ended, and {held} have not"
            ))),
        }
    }

    /// Copies all tables as they are now into a new database, while writes go on. Returns the
    /// number of tables and records, and the bytes of keys and values.
    fn backup<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
        // A copy needs no lock: a handle of the engine keeps the database open.
        let db = self.view.shared.on(py, |db| Ok(db.clone()))?;
        let work = move |stop: &'static std::sync::atomic::AtomicBool| {
            db.backup(&path, |_| !stop.load(Ordering::Relaxed))
        };
        let report = interruptible(py, None, work)?.map_err(exception)?;
        let dict = PyDict::new(py);
        for (name, count) in [
            ("tables", report.tables),
            ("records", report.records),
            ("bytes", report.bytes),
        ] {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }

    /// Closes the database for all of its tables. Does nothing if it is closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.view.shared.alone(py, |db, _| {
            db.take().map_or(Ok(()), senko_dbm::Database::close)
        })
    }

    /// A table of this database. If it is missing and `create` is true, it is made.
    #[pyo3(signature = (name, *, create))]
    fn _table(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        create: &Bound<'_, PyAny>,
    ) -> PyResult<Py<Database>> {
        let name = arguments::text("name", name)?;
        let create = arguments::truth("create", create)?;
        let shared = &self.view.shared;
        let table = match create {
            true => shared.write(py, |db| db.create_table(name))?,
            false => shared.find(py, name)?,
        };
        Py::new(
            py,
            Database::of(shared.clone(), table, self.view.durability),
        )
    }

    /// The names of the tables.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.view.shared.on(py, |db| {
            let tables = db.tables();
            Ok(tables.iter().map(|t| t.name().to_owned()).collect())
        })
    }

    /// Removes a table with its records. The table "main" stays: `clear` empties it.
    fn drop_table(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<()> {
        let name = arguments::text("name", name)?;
        if name == MAIN {
            let text = "the table \"main\" is the database itself; clear() empties it";
            return Err(PyValueError::new_err(text));
        }
        let name = name.to_owned();
        self.view.shared.write_long(py, move |db| {
            let table = db.table(&name)?;
            db.drop_table(&table)
        })
    }

    /// The present state, which does not change.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Py<Snapshot>> {
        let (snapshot, table) = self.view.state(py)?;
        Snapshot::new(py, snapshot, table, self.view.shared.clone())
    }

    /// A transaction. Its `with` block commits, or rolls back when it raises.
    #[pyo3(signature = (*, durability=None))]
    fn transaction(
        &self,
        py: Python<'_>,
        durability: Argument<'_, '_>,
    ) -> PyResult<Py<Transaction>> {
        let durability = durability.map_or(Ok(self.view.durability), durability_of)?;
        let tx = self.view.shared.write(py, |db| Ok(db.begin()))?;
        let running = Arc::new(Owned::new(Of::Database, Mutex::new(Some(tx))));
        let view = transaction::View {
            running,
            table: self.view.table.clone(),
            shared: self.view.shared.clone(),
            durability,
        };
        Transaction::new(py, view)
    }

    /// Counts of the database: bytes of the file, bytes put, written and given back since it was
    /// made, commits, conflicts, page reads, open snapshots.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.view.shared.on(py, |db| Ok(db.stats()))?;
        let dict = PyDict::new(py);
        dict.set_item("file_bytes", stats.file_bytes)?;
        dict.set_item("live_bytes", stats.live_bytes)?;
        dict.set_item("free_bytes", stats.free_bytes)?;
        dict.set_item("cached_bytes", stats.cached_bytes)?;
        dict.set_item("bytes_put", stats.bytes_put)?;
        dict.set_item("bytes_written", stats.bytes_written)?;
        dict.set_item("bytes_discarded", stats.bytes_discarded)?;
        dict.set_item("commit", stats.commit)?;
        dict.set_item("durable", stats.durable)?;
        dict.set_item("commits", stats.commits)?;
        dict.set_item("conflicts", stats.conflicts)?;
        dict.set_item("page_reads", stats.page_reads)?;
        dict.set_item("open_snapshots", stats.open_snapshots)?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let (path, table) = (self.view.shared.path.display(), self.view.table.name());
        format!("<senko_flash.dbm database {path}, table {table}>")
    }
}

impl Database {
    fn of(
        shared: Arc<Shared>,
        table: Table,
        durability: Durability,
    ) -> PyClassInitializer<Database> {
        let view = Arc::new(View {
            shared,
            table,
            durability,
        });
        Ordered::of(view.clone()).add_subclass(Database { view })
    }
}
