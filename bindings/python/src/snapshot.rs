// SPDX-License-Identifier: Apache-2.0
//! A state of the database that stays as it is, whatever is committed meanwhile.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use senko_dbm::Table;

use crate::bytes;
use crate::database::Shared;
use crate::failure::exception;
use crate::guard::Owned;
use crate::iteration::{Part, Records, Span};

/// A table as it was when the snapshot was taken.
#[pyclass(module = "senko_flash._native", frozen)]
pub struct Snapshot {
    pub inner: Owned<senko_dbm::Snapshot>,
    pub table: Table,
    pub shared: std::sync::Arc<Shared>,
}

#[pymethods]
impl Snapshot {
    /// Another table of the same state.
    fn table(&self, name: &str) -> PyResult<Snapshot> {
        Ok(Snapshot {
            inner: Owned::new(self.inner.get()?.clone()),
            table: self.shared.find(name)?,
            shared: self.shared.clone(),
        })
    }

    fn _get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (key, snapshot) = (bytes::of(key)?, self.inner.get()?);
        let found = py.detach(|| snapshot.get(&self.table, &key));
        Ok(found.map_err(exception)?.map(|v| PyBytes::new(py, &v)))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self._get(py, &key)?
            .ok_or_else(|| PyKeyError::new_err(key.unbind()))
    }

    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self._get(py, key)?.map(Bound::into_any).or(default))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self._get(py, key)?.is_some())
    }

    fn __len__(&self) -> PyResult<usize> {
        let count = self.inner.get()?.count(&self.table).map_err(exception)?;
        Ok(count as usize)
    }

    fn __iter__(&self) -> PyResult<Records> {
        let span = Span::default();
        Records::new(self.inner.get()?, &self.table, span, Part::Key).map_err(exception)
    }

    /// The records from `start` on and before `stop`.
    #[pyo3(signature = (start=None, stop=None, *, reverse=false))]
    fn range(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Records> {
        let (from, to) = (bytes::maybe(start)?, bytes::maybe(stop)?);
        let span = Span { from, to, reverse };
        Records::new(self.inner.get()?, &self.table, span, Part::Both).map_err(exception)
    }

    /// The records whose keys begin with `prefix`.
    #[pyo3(signature = (prefix, *, reverse=false))]
    fn prefix(&self, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Records> {
        let cursor = self.inner.get()?.prefix(&self.table, &bytes::of(prefix)?);
        cursor
            .and_then(|cursor| Records::over(cursor, reverse, Part::Both))
            .map_err(exception)
    }
}
