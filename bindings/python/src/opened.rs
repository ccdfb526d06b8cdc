// SPDX-License-Identifier: Apache-2.0
//! One opening of a database, which its tables, snapshots and transactions share. It releases the
//! GIL while it works, except for keys whose answer is in DRAM. Long work runs on another thread,
//! while this one checks for Ctrl-C.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use pyo3::prelude::*;
use senko_dbm::{Cached, DbmError, Table};

use crate::at_exit::AtExit;
use crate::failure::{closed, error, exception};
use crate::guard::Owned;
use crate::interrupt::interruptible;

/// One opening, for all of its tables.
pub struct Shared {
    /// `None` when it is closed.
    pub db: Owned<RwLock<Option<Opened>>>,
    /// As it was given.
    pub path: PathBuf,
    pub writes: bool,
}

impl AtExit for Shared {
    fn is_ours(&self) -> bool {
        self.db.is_ours()
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let lock = self.db.get()?;
        let done = py.detach(|| {
            let opened = lock.read().unwrap_or_else(PoisonError::into_inner);
            opened.as_ref().map_or(Ok(()), |opened| opened.db.sync())
        });
        done.map_err(exception)
    }
}

/// The number of this opening, which its tables know.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The database, and the tables that are in use. A reorganization replaces both.
pub struct Opened {
    pub db: senko_dbm::Database,
    pub tables: Mutex<Vec<Table>>,
    number: u64,
}

/// A table that was found, and its opening. It saves reads the search for its name.
pub type Known = OnceLock<(u64, Table)>;

impl Opened {
    pub fn new(db: senko_dbm::Database) -> Opened {
        Opened {
            db,
            tables: Mutex::default(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Replaces the database by a copy of itself. The tables are those of the copy then.
    pub fn reorganize(&mut self, going: impl FnMut(u64) -> bool) -> Result<(), DbmError> {
        let done = self.db.reorganize(going);
        *self
            .tables
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner) = Vec::new();
        self.number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        done.map(drop)
    }

    pub fn table(&self, name: &str) -> Result<Table, DbmError> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.iter().find(|table| table.name() == name) {
            return Ok(table.clone());
        }
        let table = self.db.table(name)?;
        tables.push(table.clone());
        Ok(table)
    }

    /// The answer for a key from DRAM alone. It waits only for locks that are held for a moment.
    fn get_cached<T>(
        &self,
        name: &str,
        known: &Known,
        key: &[u8],
        take: impl FnOnce(&[u8]) -> T,
    ) -> Cached<T> {
        let cached = |table: &Table| {
            // A removed table may exist again, as another one.
            let cached = self.db.get_cached(table, key, take);
            cached.unwrap_or(Cached::Unknown)
        };
        match known.get() {
            Some((number, table)) if *number == self.number => return cached(table),
            _ => {}
        }
        let Ok(tables) = self.tables.try_lock() else {
            return Cached::Unknown;
        };
        let Some(table) = tables.iter().find(|table| table.name() == name) else {
            return Cached::Unknown;
        };
        known.get_or_init(|| (self.number, table.clone()));
        cached(table)
    }
}

impl Shared {
    /// Works on the database with the GIL released. `close` waits until the work is done.
    pub fn on<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Opened) -> Result<T, DbmError> + Send,
    ) -> PyResult<T> {
        let lock = self.db.get()?;
        let done = py.detach(|| {
            let opened = lock.read().unwrap_or_else(PoisonError::into_inner);
            opened.as_ref().map(work)
        });
        done.ok_or_else(closed)?.map_err(exception)
    }

    /// The answer for a key of a table from DRAM alone, with the GIL held.
    pub fn get_cached<T>(
        &self,
        table: &str,
        known: &Known,
        key: &[u8],
        take: impl FnOnce(&[u8]) -> T,
    ) -> PyResult<Cached<T>> {
        let Ok(opened) = self.db.get()?.try_read() else {
            return Ok(Cached::Unknown);
        };
        let opened = opened.as_ref().ok_or_else(closed)?;
        Ok(opened.get_cached(table, known, key, take))
    }

    /// As `on`, for work that changes the database.
    pub fn write<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Opened) -> Result<T, DbmError> + Send,
    ) -> PyResult<T> {
        self.check_writes()?;
        self.on(py, work)
    }

    pub fn check_writes(&self) -> PyResult<()> {
        match self.writes {
            true => Ok(()),
            false => Err(error::new_err("the database was opened to be read")),
        }
    }

    /// Long work that Ctrl-C need not wait for. It has exclusive use of the opening, and may close
    /// or replace it.
    pub fn alone<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        work: impl FnOnce(&mut Option<Opened>, &AtomicBool) -> Result<T, DbmError> + Send + 'static,
    ) -> PyResult<T> {
        self.db.get()?;
        let shared = self.clone();
        interruptible(py, None, move |stop| {
            let lock = shared.db.get()?;
            let mut opened = lock.write().unwrap_or_else(PoisonError::into_inner);
            work(&mut opened, stop).map_err(exception)
        })?
    }

    /// As `write`, for long work. It runs to its end after Ctrl-C.
    pub fn write_long(
        self: &Arc<Self>,
        py: Python<'_>,
        work: impl FnOnce(&Opened) -> Result<(), DbmError> + Send + 'static,
    ) -> PyResult<()> {
        self.check_writes()?;
        let shared = self.clone();
        interruptible(py, None, move |_| {
            let lock = shared.db.get()?;
            let opened = lock.read().unwrap_or_else(PoisonError::into_inner);
            let done = opened.as_ref().map(work);
            done.ok_or_else(closed)?.map_err(exception)
        })?
    }

    /// A table by its name.
    pub fn find(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        self.on(py, |opened| opened.table(name))
    }
}
