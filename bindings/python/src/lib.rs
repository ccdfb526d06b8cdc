// SPDX-License-Identifier: Apache-2.0
//! The native half of the Python package `senko_flash`: the module `_native` over [`senko_dbm`],
//! [`senko_store`] and [`senko_ssd`]. The modules in `python/senko_flash` import it; docs/python
//! is for their users.
//!
//! Always holds: the GIL is released while the engine waits or works for long. Objects of a parent
//! process do nothing in the child of a fork.

#![deny(unsafe_code)]

mod failure; // the engine's errors as Python's exceptions
mod finalizing; // threads that meet the end of the interpreter
mod at_exit; // what is open when the program ends
mod guard; // objects of a process, refused in its children
mod bytes; // keys and values from Python
mod arguments; // numbers, choices and texts from Python
mod interrupt; // long work that Ctrl-C ends
mod iteration; // records in batches
mod reads; // base classes for everything that is read
mod opened; // one opening of a database
mod database; // a table of an open database, as a mapping
mod snapshot; // a state that does not change
mod transaction; // commits or rolls back
mod store; // the unordered store
mod simulation_error; // the simulator's errors as exceptions
mod requests; // a program's requests, as a workload
mod ssd; // the simulator

use pyo3::prelude::*;

/// The module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("error", module.py().get_type::<failure::error>())?;
    module.add("Conflict", module.py().get_type::<failure::Conflict>())?;
    module.add_class::<database::Database>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<iteration::Records>()?;
    module.add_class::<reads::Reads>()?;
    module.add_class::<reads::Ordered>()?;
    store::add(module)?;
    at_exit::register(module)?;
    ssd::add(module)
}
