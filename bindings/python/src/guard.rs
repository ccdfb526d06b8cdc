// SPDX-License-Identifier: Apache-2.0
//! Values that belong to the process that made them. The child of a fork may not use them, and does
//! not drop them either: a thread that the child does not have may hold one of their locks.

use pyo3::PyResult;

use crate::failure::error;

/// A value of one process.
pub struct Owned<T> {
    value: Option<T>,
    forks: u32,
}

impl<T> Owned<T> {
    pub fn new(value: T) -> Owned<T> {
        Owned {
            value: Some(value),
            forks: senko_io::forks(),
        }
    }

    fn check(&self) -> PyResult<()> {
        if self.forks == senko_io::forks() {
            return Ok(());
        }
        Err(error::new_err(
            "the database was opened before a fork; open it again in the child",
        ))
    }

    pub fn get(&self) -> PyResult<&T> {
        self.check()?;
        Ok(self.value.as_ref().expect("taken only by the drop"))
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.check().is_err() {
            std::mem::forget(self.value.take());
        }
    }
}
