// SPDX-License-Identifier: Apache-2.0
//! Two base classes for reads. Databases, tables, snapshots and transactions of the DBM have them,
//! and so do stores and their snapshots.

use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use senko_dbm::Table;

use crate::arguments::{Argument, maybe_truth};
use crate::bytes;
use crate::failure::{exception, unpicklable};
use crate::iteration::{Part, Records, Span};

/// A source of values by key.
pub trait Source: Send + Sync {
    /// The value of a key. It is read with the GIL released.
    fn value(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>>;

    /// The same for Python. Records in DRAM may be returned at once, with the GIL held.
    fn bytes<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.value(py, key)?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }
}

/// Reads of single keys.
#[pyclass(subclass, module = "senko_flash._native", frozen)]
pub struct Reads {
    source: Arc<dyn Source>,
}

impl Reads {
    pub fn of(source: Arc<dyn Source>) -> PyClassInitializer<Reads> {
        PyClassInitializer::from(Reads { source })
    }
}

#[pymethods]
impl Reads {
    fn _get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.source.bytes(py, &bytes::of(key)?)
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self._get(py, key)?
            .ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self._get(py, key)?.map(Bound::into_any).or(default))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable())
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self._get(py, key)?.is_some())
    }
}

/// A source with its keys in order: a table of the DBM, now or in a snapshot.
pub trait InOrder: Source {
    /// A state that does not change, and the table in it.
    fn state(&self, py: Python<'_>) -> PyResult<(senko_dbm::Snapshot, Table)>;
}

/// Reads of many keys, in order. Each call sees one state.
#[pyclass(extends = Reads, subclass, module = "senko_flash._native", frozen)]
pub struct Ordered {
    source: Arc<dyn InOrder>,
}

impl Ordered {
    pub fn of(source: Arc<dyn InOrder>) -> PyClassInitializer<Ordered> {
        Reads::of(source.clone()).add_subclass(Ordered { source })
    }

    pub fn records(&self, py: Python<'_>, span: Span, part: Part) -> PyResult<Records> {
        let (snapshot, table) = self.source.state(py)?;
        py.detach(|| Records::of_table(&snapshot, &table, span, part))
            .map_err(exception)
    }

    fn key_from<'py>(
        &self,
        py: Python<'py>,
        from: &[u8],
        inclusive: bool,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (snapshot, table) = self.source.state(py)?;
        let found = py.detach(|| snapshot.next_key(&table, from, inclusive));
        Ok(found.map_err(exception)?.map(|key| PyBytes::new(py, &key)))
    }
}

#[pymethods]
impl Ordered {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let (snapshot, table) = self.source.state(py)?;
        let count = py.detach(|| snapshot.count(&table)).map_err(exception)?;
        Ok(count as usize)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Records> {
        self.records(py, Span::default(), Part::Key)
    }

    /// The keys, in order, as a list.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let records = self.__iter__(py)?;
        let keys = PyList::empty(py);
        while let Some(key) = records.next_with(py, |row| PyBytes::new(py, row.key))? {
            keys.append(key)?;
        }
        Ok(keys)
    }

    fn _values(&self, py: Python<'_>) -> PyResult<Records> {
        self.records(py, Span::default(), Part::Value)
    }

    /// The records from `start` up to but not including `stop`, of one snapshot.
    #[pyo3(signature = (start=None, stop=None, *, reverse=None),
        text_signature = "($self, start=None, stop=None, *, reverse=False)")]
    fn range(
        &self,
        py: Python<'_>,
        start: Argument<'_, '_>,
        stop: Argument<'_, '_>,
        reverse: Argument<'_, '_>,
    ) -> PyResult<Records> {
        let reverse = maybe_truth("reverse", reverse)?;
        let (from, to) = (bytes::maybe(start)?, bytes::maybe(stop)?);
        self.records(py, Span { from, to, reverse }, Part::Both)
    }

    /// The records whose keys begin with `prefix`, of one snapshot.
    #[pyo3(signature = (prefix, *, reverse=None),
        text_signature = "($self, prefix, *, reverse=False)")]
    fn prefix(
        &self,
        py: Python<'_>,
        prefix: &Bound<'_, PyAny>,
        reverse: Argument<'_, '_>,
    ) -> PyResult<Records> {
        let reverse = maybe_truth("reverse", reverse)?;
        let (snapshot, table) = self.source.state(py)?;
        let cursor = snapshot.prefix(&table, &bytes::of(prefix)?);
        Ok(Records::over(
            cursor.map_err(exception)?,
            reverse,
            Part::Both,
        ))
    }

    /// The first key, or None.
    fn firstkey<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.key_from(py, b"", true)
    }

    /// The first key after `key`, or None.
    fn nextkey<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.key_from(py, &bytes::of(key)?, false)
    }
}
