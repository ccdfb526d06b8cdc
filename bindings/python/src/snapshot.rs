// SPDX-License-Identifier: Apache-2.0
//! A state of the database that does not change, whatever is committed later.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use senko_dbm::Table;

use crate::arguments::text;
use crate::failure::exception;
use crate::guard::{Closable, Of};
use crate::iteration::{Part, Records, Span};
use crate::opened::Shared;
use crate::reads::{InOrder, Ordered, Source};

/// A table in the state in which the snapshot was taken. Its `with` block closes it.
///
/// ```python
/// >>> import senko_flash.dbm, tempfile
/// >>> folder = tempfile.TemporaryDirectory()
/// >>> db = senko_flash.dbm.open(folder.name + "/data", "c")
/// >>> db.update(apple="red", plum="blue")
/// >>> log = db.table("log", create=True)
/// >>> with db.snapshot() as before:
/// ...     db["apple"] = log["1"] = "green"
/// ...     before["apple"], before.get("pear"), before.table("log").keys()
/// ...     before.keys(), list(before.values())
/// ...     list(before.items()) == list(before.range())
/// ...     list(before.range("b")), list(before.prefix("a", reverse=True))
/// ...     before.firstkey(), before.nextkey("apple"), len(before)
/// (b'red', None, [])
/// ([b'apple', b'plum'], [b'red', b'blue'])
/// True
/// ([(b'plum', b'blue')], [(b'apple', b'red')])
/// (b'apple', b'plum', 2)
/// >>> before.close()  # It is closed already.
/// >>> db.close()
/// >>> folder.cleanup()
///
/// ```
#[pyclass(extends = Ordered, module = "senko_flash._native", frozen)]
pub struct Snapshot {
    view: Arc<View>,
}

struct View {
    /// The views of all tables share it.
    inner: Arc<Closable<senko_dbm::Snapshot>>,
    table: Table,
    shared: Arc<Shared>,
}

impl Source for View {
    fn value(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        py.detach(|| self.inner.read(|snapshot| snapshot.get(&self.table, key)))?
            .map_err(exception)
    }
}

impl InOrder for View {
    fn state(&self, _py: Python<'_>) -> PyResult<(senko_dbm::Snapshot, Table)> {
        Ok((self.inner.read(Clone::clone)?, self.table.clone()))
    }
}

impl Snapshot {
    pub fn new(
        py: Python<'_>,
        snapshot: senko_dbm::Snapshot,
        table: Table,
        shared: Arc<Shared>,
    ) -> PyResult<Py<Snapshot>> {
        let inner = Arc::new(Closable::new(Of::Database, snapshot));
        Snapshot::with(
            py,
            View {
                inner,
                table,
                shared,
            },
        )
    }

    fn with(py: Python<'_>, view: View) -> PyResult<Py<Snapshot>> {
        let view = Arc::new(view);
        let class = Ordered::of(view.clone()).add_subclass(Snapshot { view });
        Py::new(py, class)
    }
}

#[pymethods]
impl Snapshot {
    /// Another table of the same state. It is closed together with this one.
    fn table(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Py<Snapshot>> {
        self.view.inner.read(|_| ())?;
        let view = View {
            inner: self.view.inner.clone(),
            table: self.view.shared.find(py, text("name", name)?)?,
            shared: self.view.shared.clone(),
        };
        Snapshot::with(py, view)
    }

    /// The records, in order, as an iterator.
    fn items(this: PyRef<'_, Self>, py: Python<'_>) -> PyResult<Records> {
        this.as_super().records(py, Span::default(), Part::Both)
    }

    /// The values, in the order of their keys, as an iterator.
    fn values(this: PyRef<'_, Self>, py: Python<'_>) -> PyResult<Records> {
        this.as_super().records(py, Span::default(), Part::Value)
    }

    /// Ends the snapshot, for all of its tables. Does nothing if it has ended. An iterator that
    /// began before continues, and keeps the state until the iterator ends.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.view.inner.close(py)
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        this.view.inner.read(|_| ())?;
        Ok(this)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let (path, table) = (self.view.shared.path.display(), self.view.table.name());
        format!("<senko_flash.dbm snapshot of {path}, table {table}>")
    }
}
