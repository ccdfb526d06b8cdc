// SPDX-License-Identifier: Apache-2.0
//! Iterators over records. They read a batch at a time with the GIL released, and check for Ctrl-C
//! between batches.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use senko_dbm::{Cursor, DbmError, Snapshot, Table};

use crate::failure::{exception, unpicklable};
use crate::guard::{Of, Owned};

/// The part of a record that an iterator returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Key,
    Value,
    Both,
    /// Key, value and the times, which only a store's records have.
    Entry,
}

/// A record in a batch. Only a store's records have the times: when it was written, when it
/// expires.
pub struct Row<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub time: u64,
    pub expires_at: u64,
}

/// Which records of a table, and in which order.
#[derive(Default)]
pub struct Span {
    pub from: Option<Vec<u8>>,
    pub to: Option<Vec<u8>>,
    pub reverse: bool,
}

/// Bounds of a batch: records and bytes. The last record may exceed them.
const BATCH_RECORDS: usize = 512;
const BATCH_BYTES: usize = 1 << 20;

/// Records in a row that Python has not requested yet.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// For each record: bytes of the key and of the value, the times.
    rows: Vec<(usize, usize, u64, u64)>,
    /// The next record, and where its bytes begin.
    next: usize,
    at: usize,
}

impl Batch {
    pub fn push(&mut self, row: &Row<'_>) {
        self.bytes.extend_from_slice(row.key);
        self.bytes.extend_from_slice(row.value);
        let (key, value) = (row.key.len(), row.value.len());
        self.rows.push((key, value, row.time, row.expires_at));
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= BATCH_RECORDS || self.bytes.len() >= BATCH_BYTES
    }

    /// Takes the next record.
    fn take(&mut self) -> Option<Row<'_>> {
        let &(key, value, time, expires_at) = self.rows.get(self.next)?;
        let (from, to) = (self.at, self.at + key + value);
        self.next += 1;
        self.at = to;
        let (key, value) = self.bytes[from..to].split_at(key);
        Some(Row {
            key,
            value,
            time,
            expires_at,
        })
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        (self.next, self.at) = (0, 0);
    }
}

/// Pushes some records; false if there are no more.
type More = dyn FnMut(&mut Batch) -> PyResult<bool> + Send;

struct State {
    more: Box<More>,
    batch: Batch,
    ended: bool,
}

impl State {
    /// Fills the batch if all of it was returned.
    fn fill(&mut self) -> PyResult<()> {
        if self.batch.next < self.batch.rows.len() || self.ended {
            return Ok(());
        }
        self.batch.clear();
        while !self.batch.is_full() && !self.ended {
            // Records before an error do not count.
            let more = (self.more)(&mut self.batch);
            self.ended = !more.inspect_err(|_| self.batch.clear())?;
        }
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
    /// Iterates over the records that `more` pushes; `more` returns false when there are no more.
    /// It is called with the GIL released.
    pub fn new(
        of: Of,
        part: Part,
        more: impl FnMut(&mut Batch) -> PyResult<bool> + Send + 'static,
    ) -> Records {
        let state = State {
            more: Box::new(more),
            batch: Batch::default(),
            ended: false,
        };
        Records {
            state: Owned::new(of, Mutex::new(state)),
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
        let values = part != Part::Key;
        Records::new(Of::Database, part, move |batch| {
            let push = |key: &[u8], value: &[u8]| {
                batch.push(&Row {
                    key,
                    value,
                    time: 0,
                    expires_at: 0,
                });
                !batch.is_full()
            };
            let count = match reverse {
                false => cursor.next_page(values, push),
                true => cursor.previous_page(values, push),
            };
            Ok(count.map_err(exception)? > 0)
        })
    }

    /// The object that `make` makes from the next record. It runs no Python code.
    pub fn next_with<T>(
        &self,
        py: Python<'_>,
        make: impl FnOnce(Row<'_>) -> T,
    ) -> PyResult<Option<T>> {
        let mutex = self.state.get()?;
        loop {
            if let Ok(mut state) = mutex.try_lock() {
                if let Some(row) = state.batch.take() {
                    return Ok(Some(make(row)));
                }
                if state.ended {
                    return Ok(None);
                }
            }
            py.check_signals()?;
            py.detach(|| {
                let mut state = mutex.lock().unwrap_or_else(PoisonError::into_inner);
                state.fill()
            })?;
        }
    }
}

#[pymethods]
impl Records {
    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable())
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok(match self.part {
            Part::Key => self
                .next_with(py, |row| bytes(row.key))?
                .map(Bound::into_any),
            Part::Value => self
                .next_with(py, |row| bytes(row.value))?
                .map(Bound::into_any),
            Part::Both => match self.next_with(py, |row| [bytes(row.key), bytes(row.value)])? {
                Some(pair) => Some(PyTuple::new(py, pair)?.into_any()),
                None => None,
            },
            Part::Entry => {
                let entry = self.next_with(py, |row| {
                    (bytes(row.key), bytes(row.value), row.time, row.expires_at)
                })?;
                match entry {
                    Some(entry) => Some(entry.into_pyobject(py)?.into_any()),
                    None => None,
                }
            }
        })
    }
}
