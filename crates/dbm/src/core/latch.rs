// SPDX-License-Identifier: Apache-2.0
//! Why a database accepts no more commits.

use std::sync::OnceLock;

use crate::error::DbmError;

/// Closed once, and never opened again.
pub(crate) struct Latch {
    /// The fork count at the opening; in a child process it is another.
    forks: u32,
    why: OnceLock<String>,
}

impl Latch {
    pub fn new() -> Latch {
        Latch {
            forks: senko_io::forks(),
            why: OnceLock::new(),
        }
    }

    /// Ends writing, with the reason. The first reason stays.
    pub fn close(&self, why: &dyn ToString) {
        let _ = self.why.set(why.to_string());
    }

    /// An error if writing has ended.
    pub fn check(&self) -> Result<(), DbmError> {
        if senko_io::forks() != self.forks {
            let why = "the database belongs to the process that opened it, not to its child";
            return Err(DbmError::ReadOnly(why.to_owned()));
        }
        match self.why.get() {
            Some(why) => Err(DbmError::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }
}
