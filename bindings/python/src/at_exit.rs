// SPDX-License-Identifier: Apache-2.0
//! Databases and stores that are open when the program ends.
//!
//! Python drops the objects of a program at its end, but not all: those that a running daemon
//! thread refers to stay. What was written to them with the durability `none` would be lost. So all
//! that is open is flushed before the interpreter ends.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::prelude::*;

/// Something open that may hold writes in memory.
pub trait AtExit: Send + Sync {
    /// Whether this process opened it.
    fn is_ours(&self) -> bool;

    /// Makes what was written durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()>;
}

/// Locked only while the GIL is held. So no thread has it locked when Python forks.
static OPEN: Mutex<Vec<Weak<dyn AtExit>>> = Mutex::new(Vec::new());

/// Adds something that was opened to be written.
pub fn add(opened: &Arc<impl AtExit + 'static>) {
    let opened: Weak<dyn AtExit> = Arc::downgrade(opened) as Weak<dyn AtExit>;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|other| other.strong_count() > 0);
    open.push(opened);
}

/// Flushes everything that is open. `atexit` calls it. In the child of a fork there is nothing to
/// do for what the parent has open.
#[pyfunction]
fn flush_open(py: Python<'_>) {
    let open = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    for opened in open.iter().filter_map(Weak::upgrade) {
        if !opened.is_ours() {
            continue;
        }
        if let Err(error) = opened.flush(py) {
            error.write_unraisable(py, None);
        }
    }
}

/// Has the interpreter call [`flush_open`] at its end.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let flush = wrap_pyfunction!(flush_open, module)?;
    let atexit = module.py().import("atexit")?;
    atexit.call_method1("register", (flush,)).map(drop)
}
