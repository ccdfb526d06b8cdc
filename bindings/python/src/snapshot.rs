// SPDX-License-Identifier: Apache-2.0
//! A state of the database that stays as it is, whatever is committed meanwhile.

use std::sync::Arc;

use pyo3::prelude::*;
use senko_dbm::Table;

use crate::failure::exception;
use crate::guard::Owned;
use crate::iteration::{Part, Records, Span};
use crate::opened::Shared;
use crate::reads::{InOrder, Ordered, Source};

/// A table as it was when the snapshot was taken.
#[pyclass(extends = Ordered, module = "senko_flash._native", frozen)]
pub struct Snapshot {
    view: Arc<View>,
}

struct View {
    inner: Owned<senko_dbm::Snapshot>,
    table: Table,
    shared: Arc<Shared>,
}

impl Source for View {
    fn value(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        let snapshot = self.inner.get()?;
        py.detach(|| snapshot.get(&self.table, key))
            .map_err(exception)
    }
}

impl InOrder for View {
    fn state(&self, _py: Python<'_>) -> PyResult<(senko_dbm::Snapshot, Table)> {
        Ok((self.inner.get()?.clone(), self.table.clone()))
    }
}

impl Snapshot {
    pub fn new(
        py: Python<'_>,
        snapshot: senko_dbm::Snapshot,
        table: Table,
        shared: Arc<Shared>,
    ) -> PyResult<Py<Snapshot>> {
        let view = Arc::new(View {
            inner: Owned::new(snapshot),
            table,
            shared,
        });
        Py::new(
            py,
            Ordered::of(view.clone()).add_subclass(Snapshot { view }),
        )
    }
}

#[pymethods]
impl Snapshot {
    /// Another table of the same state.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<Py<Snapshot>> {
        let snapshot = self.view.inner.get()?.clone();
        let table = self.view.shared.find(py, name)?;
        Snapshot::new(py, snapshot, table, self.view.shared.clone())
    }

    /// The records, in order, as an iterator.
    fn items(this: PyRef<'_, Self>, py: Python<'_>) -> PyResult<Records> {
        this.as_super().records(py, Span::default(), Part::Both)
    }

    /// The values, in the order of their keys, as an iterator.
    fn values(this: PyRef<'_, Self>, py: Python<'_>) -> PyResult<Records> {
        this.as_super().records(py, Span::default(), Part::Value)
    }

    fn __repr__(&self) -> String {
        let (path, table) = (self.view.shared.path.display(), self.view.table.name());
        format!("<senko_flash.dbm snapshot of {path}, table {table}>")
    }
}
