// SPDX-License-Identifier: Apache-2.0
//! One opening of a database, which its tables, snapshots and transactions share. It releases the
//! GIL while it works, except for keys whose answer is in DRAM. Long work runs on another thread,
//! while this one checks for Ctrl-C.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};

use pyo3::prelude::*;
use senko_dbm::{Cached, Database, DbmError, Table};

use crate::at_exit::AtExit;
use crate::failure::{closed, error, exception};
use crate::guard::Owned;
use crate::interrupt::interruptible;

/// One opening, for all of its tables.
pub struct Shared {
    /// `None` when it is closed.
    pub db: Owned<RwLock<Option<Database>>>,
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
            opened.as_ref().map_or(Ok(()), Database::sync)
        });
        done.map_err(exception)
    }
}

impl Shared {
    /// Works on the database with the GIL released. `close` waits until the work is done.
    pub fn on<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Database) -> Result<T, DbmError> + Send,
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
        table: &Table,
        key: &[u8],
        take: impl FnOnce(&[u8]) -> T,
    ) -> PyResult<Cached<T>> {
        let Ok(opened) = self.db.get()?.try_read() else {
            return Ok(Cached::Unknown);
        };
        let opened = opened.as_ref().ok_or_else(closed)?;
        // A removed table is told by the read that follows.
        let cached = opened.get_cached(table, key, take);
        Ok(cached.unwrap_or(Cached::Unknown))
    }

    /// As `on`, for work that changes the database.
    pub fn write<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Database) -> Result<T, DbmError> + Send,
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
        work: impl FnOnce(&mut Option<Database>, &AtomicBool) -> Result<T, DbmError> + Send + 'static,
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
        work: impl FnOnce(&Database) -> Result<(), DbmError> + Send + 'static,
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
        self.on(py, |db| db.table(name))
    }
}
