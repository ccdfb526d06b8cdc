// SPDX-License-Identifier: Apache-2.0
//! The DBM's errors as Python's exceptions, each with the engine's sentence, and the store's class.

use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::{PyErr, create_exception};
use senko_dbm::DbmError;

create_exception!(
    senko_flash.dbm,
    error,
    PyOSError,
    "What the database reports: an OSError, with errno where the system gave one."
);
create_exception!(
    senko_flash.dbm,
    Conflict,
    error,
    "The transaction conflicts with another. Run it again, or use Database.run."
);

create_exception!(
    senko_flash.store,
    StoreFailure,
    PyOSError,
    "What the store reports: an OSError, with errno where the system gave one."
);

/// The exception of an error.
pub fn exception(failure: DbmError) -> PyErr {
    let text = failure.to_string();
    match (&failure, failure.errno()) {
        (DbmError::Conflict, _) => Conflict::new_err(text),
        (DbmError::KeyTooLong(_) | DbmError::ValueTooLong(_) | DbmError::Invalid(_), _) => {
            PyValueError::new_err(text)
        }
        (DbmError::Open(source), None) if source.kind() == std::io::ErrorKind::NotFound => {
            error::new_err((NO_ENTRY, text))
        }
        (_, Some(number)) => error::new_err((number, text)),
        (_, None) => error::new_err(text),
    }
}

/// ENOENT.
const NO_ENTRY: i32 = 2;

pub fn closed() -> PyErr {
    error::new_err("the database is closed")
}

/// An open object works in one process only.
pub fn unpicklable() -> PyErr {
    PyTypeError::new_err(
        "what belongs to an open database or store is not pickled or copied; open the file again \
         where it is needed",
    )
}
