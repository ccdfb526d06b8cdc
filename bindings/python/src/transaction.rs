// SPDX-License-Identifier: Apache-2.0
//! A transaction: `with` commits it, or rolls it back when the block raises.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyTuple};
use senko_dbm::{DbmError, Durability, Record, Table};

use crate::arguments::{Argument, maybe_truth, text};
use crate::bytes;
use crate::failure::{error, exception};
use crate::guard::Owned;
use crate::opened::Shared;
use crate::reads::{Reads, Source};

/// The transaction that the views of all tables share; `None` when it has ended.
pub type Running = Arc<Owned<Mutex<Option<senko_dbm::Transaction>>>>;

/// A table as a transaction sees it. Its `with` block commits, or rolls back when it raises.
///
/// ```python
/// >>> import senko_flash.dbm, tempfile
/// >>> folder = tempfile.TemporaryDirectory()
/// >>> db = senko_flash.dbm.open(folder.name + "/data", "c")
/// >>> log = db.table("log", create=True)
/// >>> with db.transaction() as tx:
/// ...     tx.update({"apple": "red"}, plum="blue")
/// ...     tx["pear"] = tx["apple"]
/// ...     tx.setdefault("plum", "white"), tx.pop("pear"), tx.pop("pear", None)
/// ...     tx.get("pear"), tx.keys(), tx.values(), len(tx)
/// ...     tx.items() == tx.range(), tx.range("b"), tx.prefix("a")
/// ...     tx.table("log")["1"] = "two are left"
/// (b'blue', b'red', None)
/// (None, [b'apple', b'plum'], [b'red', b'blue'], 2)
/// (True, [(b'plum', b'blue')], [(b'apple', b'red')])
/// >>> db.keys(), log["1"]
/// ([b'apple', b'plum'], b'two are left')
/// >>> one, other = db.transaction(), db.transaction()
/// >>> one.clear()
/// >>> one.rollback()
/// >>> other["plum"] = other["apple"]
/// >>> other.commit()
/// >>> db["plum"]
/// b'red'
/// >>> db.close()
/// >>> folder.cleanup()
///
/// ```
#[pyclass(extends = Reads, module = "senko_flash._native", frozen)]
pub struct Transaction {
    view: Arc<View>,
}

/// The table, and the transaction that sees it.
pub struct View {
    pub running: Running,
    pub table: Table,
    pub shared: Arc<Shared>,
    pub durability: Durability,
}

impl Source for View {
    fn value(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        self.on(py, |tx, table| tx.get(table, key))
    }
}

impl Transaction {
    pub fn new(py: Python<'_>, view: View) -> PyResult<Py<Transaction>> {
        let view = Arc::new(view);
        Py::new(
            py,
            Reads::of(view.clone()).add_subclass(Transaction { view }),
        )
    }
}

impl View {
    fn on<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut senko_dbm::Transaction, &Table) -> Result<T, DbmError> + Send,
    ) -> PyResult<T> {
        let mutex = self.running.get()?;
        let done = py.detach(|| {
            let mut running = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            running.as_mut().map(|tx| work(tx, &self.table))
        });
        done.ok_or_else(ended)?.map_err(exception)
    }
}

/// Records of a range between two checks for Ctrl-C.
const LOOK_EVERY: usize = 1 << 13;

impl View {
    /// The records of a range, in order. The transaction is unlocked between two parts, so that a
    /// signal handler may roll it back.
    fn range(&self, py: Python<'_>, mut from: Vec<u8>, to: Option<&[u8]>) -> PyResult<Vec<Record>> {
        let mut all = Vec::new();
        loop {
            let part = self.on(py, |tx, table| {
                tx.range_at_most(table, &from, to, LOOK_EVERY)
            })?;
            let count = part.len();
            all.extend(part);
            if count < LOOK_EVERY {
                return Ok(all);
            }
            if let Some((last, _)) = all.last() {
                // The first key after it.
                from = [last, &[0][..]].concat();
            }
            py.check_signals()?;
        }
    }
}

fn ended() -> PyErr {
    error::new_err("the transaction has ended")
}

/// A record for Python.
type Pair<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

fn pairs(py: Python<'_>, mut records: Vec<Record>, reverse: bool) -> Vec<Pair<'_>> {
    if reverse {
        records.reverse();
    }
    let pair = |(key, value): Record| (PyBytes::new(py, &key), PyBytes::new(py, &value));
    records.into_iter().map(pair).collect()
}

#[pymethods]
impl Transaction {
    /// Another table within the same transaction.
    fn table(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Py<Transaction>> {
        let name = text("name", name)?;
        self.view.on(py, |_, _| Ok(()))?;
        let view = View {
            running: self.view.running.clone(),
            table: self.view.shared.find(py, name)?,
            shared: self.view.shared.clone(),
            durability: self.view.durability,
        };
        Transaction::new(py, view)
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, value) = (bytes::of(key)?, bytes::of(value)?);
        self.view.on(py, |tx, table| tx.put(table, &key, &value))
    }

    fn __delitem__(&self, py: Python<'_>, key: Bound<'_, PyAny>) -> PyResult<()> {
        let name = bytes::of(&key)?;
        let there = self.view.on(py, |tx, table| {
            let there = tx.get(table, &name)?.is_some();
            if there {
                tx.delete(table, &name)?;
            }
            Ok(there)
        })?;
        match there {
            true => Ok(()),
            false => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// Removes a key and returns its value, or `default` if it is given.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            let text = format!("pop takes a key and a default, not {} more", default.len());
            return Err(PyTypeError::new_err(text));
        }
        let name = bytes::of(key)?;
        let taken = self.view.on(py, |tx, table| {
            let value = tx.get(table, &name)?;
            if value.is_some() {
                tx.delete(table, &name)?;
            }
            Ok(value)
        })?;
        match taken {
            Some(value) => Ok(PyBytes::new(py, &value).into_any()),
            None if default.is_empty() => Err(PyKeyError::new_err(key.clone().unbind())),
            None => default.get_item(0),
        }
    }

    /// Removes the first record and returns it.
    fn popitem<'py>(&self, py: Python<'py>) -> PyResult<Pair<'py>> {
        let first = self.view.on(py, |tx, table| {
            let first = tx.range_at_most(table, b"", None, 1)?.pop();
            if let Some((key, _)) = &first {
                tx.delete(table, key)?;
            }
            Ok(first)
        })?;
        match first {
            Some((key, value)) => Ok((PyBytes::new(py, &key), PyBytes::new(py, &value))),
            None => Err(PyKeyError::new_err("the database is empty")),
        }
    }

    /// The value of a key; if the key is missing, it is set to `default`.
    #[pyo3(signature = (key, default=None))]
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (key, value) = (bytes::of(key)?, bytes::maybe(default)?.unwrap_or_default());
        let found = self.view.on(py, |tx, table| {
            if let Some(there) = tx.get(table, &key)? {
                return Ok(there);
            }
            tx.put(table, &key, &value)?;
            Ok(value.clone())
        })?;
        Ok(PyBytes::new(py, &found))
    }

    /// Sets the keys of a mapping, or of pairs, to their values, and then the keyword arguments.
    #[pyo3(signature = (other=None, /, **more))]
    fn update(
        &self,
        py: Python<'_>,
        other: Argument<'_, '_>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        if let Some(other) = other {
            let pairs = match other.hasattr("keys")? {
                true => other.call_method0("items")?,
                false => other.clone(),
            };
            for pair in pairs.try_iter()? {
                let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
                self.__setitem__(py, &key, &value)?;
            }
        }
        for (key, value) in more.into_iter().flatten() {
            self.__setitem__(py, &key, &value)?;
        }
        Ok(())
    }

    /// Removes every record.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.view.on(py, |tx, table| tx.clear(table))
    }

    /// The number of records. The commit fails if another transaction changes it.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let count = self.view.on(py, |tx, table| tx.count(table))?;
        Ok(count as usize)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.keys(py)?)?.try_iter()
    }

    /// The keys, in order, as a list, read as `range` reads.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let records = self.items(py)?.into_iter();
        Ok(records.map(|(key, _)| key).collect())
    }

    /// The values, in the order of their keys, as a list, read as `range` reads.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let records = self.items(py)?.into_iter();
        Ok(records.map(|(_, value)| value).collect())
    }

    /// The records, in order, as a list, read as `range` reads.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Vec<Pair<'py>>> {
        self.range(py, None, None, None)
    }

    /// The records from `start` up to but not including `stop`, as a list. The commit fails if
    /// another transaction changed one of them, or added one between them.
    #[pyo3(signature = (start=None, stop=None, *, reverse=None),
        text_signature = "($self, start=None, stop=None, *, reverse=False)")]
    fn range<'py>(
        &self,
        py: Python<'py>,
        start: Argument<'_, 'py>,
        stop: Argument<'_, 'py>,
        reverse: Argument<'_, 'py>,
    ) -> PyResult<Vec<Pair<'py>>> {
        let reverse = maybe_truth("reverse", reverse)?;
        let (from, to) = (bytes::maybe(start)?, bytes::maybe(stop)?);
        let found = self
            .view
            .range(py, from.unwrap_or_default(), to.as_deref())?;
        Ok(pairs(py, found, reverse))
    }

    /// The records whose keys begin with `prefix`, as `range` returns them.
    #[pyo3(signature = (prefix, *, reverse=None),
        text_signature = "($self, prefix, *, reverse=False)")]
    fn prefix<'py>(
        &self,
        py: Python<'py>,
        prefix: &Bound<'py, PyAny>,
        reverse: Argument<'_, 'py>,
    ) -> PyResult<Vec<Pair<'py>>> {
        let reverse = maybe_truth("reverse", reverse)?;
        let prefix = bytes::of(prefix)?;
        let end = senko_dbm::keys::after_prefix(&prefix);
        let found = self.view.range(py, prefix.into_owned(), end.as_deref())?;
        Ok(pairs(py, found, reverse))
    }

    /// Commits. Raises Conflict if what was read has changed.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let (mutex, durability) = (self.view.running.get()?, self.view.durability);
        let done = py.detach(|| {
            let mut running = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            running.take().map(|tx| tx.commit(durability))
        });
        done.ok_or_else(ended)?.map_err(exception)
    }

    /// Ends without a change. Does nothing if it has ended.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        let mutex = self.view.running.get()?;
        py.detach(|| drop(mutex.lock().unwrap_or_else(PoisonError::into_inner).take()));
        Ok(())
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let mutex = self.view.running.get()?;
        let ended = py.detach(|| {
            let running = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            running.is_none()
        });
        // Committed or rolled back within the block.
        match (kind.is_none(), ended) {
            (true, false) => self.commit(py)?,
            _ => self.rollback(py)?,
        }
        Ok(false)
    }

    fn __repr__(&self) -> String {
        let (path, table) = (self.view.shared.path.display(), self.view.table.name());
        format!("<senko_flash.dbm transaction on {path}, table {table}>")
    }
}
