// SPDX-License-Identifier: Apache-2.0
//! Iterators over the records of a snapshot. They read a batch at a time with the GIL released, and
//! look for Ctrl-C between batches.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use senko_dbm::{Cursor, DbmError, Record, Snapshot, Table};

use crate::failure::exception;
use crate::guard::Owned;

/// The part of a record that an iterator gives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Key,
    Value,
    Both,
}

/// Which records, and in which order.
#[derive(Default)]
pub struct Span {
    pub from: Option<Vec<u8>>,
    pub to: Option<Vec<u8>>,
    pub reverse: bool,
}

/// Bounds of a batch: records, and bytes, of which the last record may be over.
const BATCH_RECORDS: usize = 512;
const BATCH_BYTES: usize = 1 << 20;

struct State {
    cursor: Cursor,
    batch: std::vec::IntoIter<Record>,
    ended: bool,
}

impl State {
    fn fill(&mut self, reverse: bool) -> Result<(), DbmError> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_RECORDS && bytes < BATCH_BYTES {
            let record = match reverse {
                false => self.cursor.next()?,
                true => self.cursor.previous()?,
            };
            let Some(record) = record else {
                self.ended = true;
                break;
            };
            bytes += record.0.len() + record.1.len();
            batch.push(record);
        }
        self.batch = batch.into_iter();
        Ok(())
    }
}

/// An iterator over keys, values or records.
#[pyclass(module = "senko_flash._native", frozen)]
pub struct Records {
    state: Owned<Mutex<State>>,
    part: Part,
    reverse: bool,
}

impl Records {
    pub fn new(
        snapshot: &Snapshot,
        table: &Table,
        span: Span,
        part: Part,
    ) -> Result<Records, DbmError> {
        let from = span.from.as_deref().map_or(Unbounded, Included);
        let to = span.to.as_deref().map_or(Unbounded, Excluded);
        Records::over(snapshot.cursor(table, (from, to))?, span.reverse, part)
    }

    pub fn over(cursor: Cursor, reverse: bool, part: Part) -> Result<Records, DbmError> {
        let state = State {
            cursor,
            batch: Vec::new().into_iter(),
            ended: false,
        };
        Ok(Records {
            state: Owned::new(Mutex::new(state)),
            part,
            reverse,
        })
    }

    /// The next record.
    pub fn record(&self, py: Python<'_>) -> PyResult<Option<Record>> {
        let mutex = self.state.get()?;
        if let Ok(mut state) = mutex.try_lock()
            && let Some(record) = state.batch.next()
        {
            return Ok(Some(record));
        }
        py.check_signals()?;
        py.detach(|| {
            let mut state = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            if state.batch.len() == 0 && !state.ended {
                state.fill(self.reverse)?;
            }
            Ok(state.batch.next())
        })
        .map_err(exception)
    }
}

#[pymethods]
impl Records {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((key, value)) = self.record(py)? else {
            return Ok(None);
        };
        Ok(Some(match self.part {
            Part::Key => PyBytes::new(py, &key).into_any(),
            Part::Value => PyBytes::new(py, &value).into_any(),
            Part::Both => {
                PyTuple::new(py, [PyBytes::new(py, &key), PyBytes::new(py, &value)])?.into_any()
            }
        }))
    }
}
