// SPDX-License-Identifier: Apache-2.0
//! Iterators over records. They read a batch at a time with the GIL released, and look for Ctrl-C
//! between batches.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use senko_dbm::{Cursor, DbmError, Snapshot, Table};

use crate::failure::exception;
use crate::guard::Owned;

/// The part of a record that an iterator gives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Key,
    Value,
    Both,
    /// Both with the times, which only a store's records have.
    Entry,
}

/// Key, value, when it was written, when it expires.
pub type Row = (Vec<u8>, Vec<u8>, u64, u64);

/// Which records of a table, and in which order.
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
    next: Box<dyn FnMut() -> PyResult<Option<Row>> + Send>,
    batch: std::vec::IntoIter<Row>,
    ended: bool,
}

impl State {
    fn fill(&mut self) -> PyResult<()> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_RECORDS && bytes < BATCH_BYTES {
            let Some(row) = (self.next)()? else {
                self.ended = true;
                break;
            };
            bytes += row.0.len() + row.1.len();
            batch.push(row);
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
}

impl Records {
    /// Over the rows that `next` gives. It is called with the GIL released.
    pub fn new(
        part: Part,
        next: impl FnMut() -> PyResult<Option<Row>> + Send + 'static,
    ) -> Records {
        let state = State {
            next: Box::new(next),
            batch: Vec::new().into_iter(),
            ended: false,
        };
        Records {
            state: Owned::new(Mutex::new(state)),
            part,
        }
    }

    pub fn of_table(
        snapshot: &Snapshot,
        table: &Table,
        span: Span,
        part: Part,
    ) -> Result<Records, DbmError> {
        let from = span.from.as_deref().map_or(Unbounded, Included);
        let to = span.to.as_deref().map_or(Unbounded, Excluded);
        let cursor = snapshot.cursor(table, (from, to))?;
        Ok(Records::over(cursor, span.reverse, part))
    }

    pub fn over(mut cursor: Cursor, reverse: bool, part: Part) -> Records {
        Records::new(part, move || {
            let record = match reverse {
                false => cursor.next(),
                true => cursor.previous(),
            };
            let row = |(key, value)| (key, value, 0, 0);
            Ok(record.map_err(exception)?.map(row))
        })
    }

    /// The next record.
    pub fn record(&self, py: Python<'_>) -> PyResult<Option<Row>> {
        let mutex = self.state.get()?;
        if let Ok(mut state) = mutex.try_lock()
            && let Some(row) = state.batch.next()
        {
            return Ok(Some(row));
        }
        py.check_signals()?;
        py.detach(|| {
            let mut state = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            if state.batch.len() == 0 && !state.ended {
                state.fill()?;
            }
            Ok(state.batch.next())
        })
    }
}

#[pymethods]
impl Records {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((key, value, time, expires_at)) = self.record(py)? else {
            return Ok(None);
        };
        Ok(Some(match self.part {
            Part::Key => PyBytes::new(py, &key).into_any(),
            Part::Value => PyBytes::new(py, &value).into_any(),
            Part::Both => {
                PyTuple::new(py, [PyBytes::new(py, &key), PyBytes::new(py, &value)])?.into_any()
            }
            Part::Entry => {
                let entry = (
                    PyBytes::new(py, &key),
                    PyBytes::new(py, &value),
                    time,
                    expires_at,
                );
                entry.into_pyobject(py)?.into_any()
            }
        }))
    }
}
