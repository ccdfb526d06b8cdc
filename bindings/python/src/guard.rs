// SPDX-License-Identifier: Apache-2.0
//! Values that belong to the process that made them. The child of a fork must not use them, and
//! must not drop them: their locks may be held by a thread that does not exist in the child.

use std::sync::{PoisonError, RwLock};

use pyo3::{PyErr, PyResult, Python};

use crate::failure::{StoreFailure, error};

/// The kind of object that a value belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Database,
    Store,
}

impl Of {
    /// An error of a database or a store; `text` is the rest of the sentence.
    pub fn error(self, text: &str) -> PyErr {
        match self {
            Of::Database => error::new_err(text.to_owned()),
            Of::Store => StoreFailure::new_err(text.to_owned()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Of::Database => "database",
            Of::Store => "store",
        }
    }
}

/// A value that only one process may use.
pub struct Owned<T> {
    value: Option<T>,
    forks: u32,
    of: Of,
}

impl<T> Owned<T> {
    pub fn new(of: Of, value: T) -> Owned<T> {
        Owned {
            value: Some(value),
            forks: senko_io::forks(),
            of,
        }
    }

    pub fn is_ours(&self) -> bool {
        self.forks == senko_io::forks()
    }

    pub fn get(&self) -> PyResult<&T> {
        if self.is_ours() {
            return Ok(self.value.as_ref().expect("taken only by the drop"));
        }
        let name = self.of.name();
        Err(self.of.error(&format!(
            "the {name} was opened before a fork; open it again in the child"
        )))
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.value.take());
        }
    }
}

/// A snapshot. `close` ends it for all that share it.
pub struct Closable<T>(Owned<RwLock<Option<T>>>);

impl<T: Send + Sync> Closable<T> {
    pub fn new(of: Of, snapshot: T) -> Closable<T> {
        Closable(Owned::new(of, RwLock::new(Some(snapshot))))
    }

    /// Reads the snapshot. `close` waits until the work is done, so long work must release the GIL.
    pub fn read<R>(&self, work: impl FnOnce(&T) -> R) -> PyResult<R> {
        let lock = self.0.get()?;
        let snapshot = lock.read().unwrap_or_else(PoisonError::into_inner);
        let done = snapshot.as_ref().map(work);
        done.ok_or_else(|| self.0.of.error("the snapshot is closed"))
    }

    /// Ends the snapshot. Does nothing if it has ended.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        let lock = self.0.get()?;
        py.detach(|| drop(lock.write().unwrap_or_else(PoisonError::into_inner).take()));
        Ok(())
    }
}
