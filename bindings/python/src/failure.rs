// SPDX-License-Identifier: Apache-2.0
//! The DBM's errors as Python's exceptions, each with the engine's sentence, and the store's class.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

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
    match (&failure, number(&failure)) {
        (DbmError::Conflict, _) => Conflict::new_err(text),
        (DbmError::KeyTooLong(_) | DbmError::ValueTooLong(_) | DbmError::Invalid(_), _) => {
            PyValueError::new_err(text)
        }
        (_, Some(number)) => error::new_err((number, text)),
        (_, None) => error::new_err(text),
    }
}

fn number(failure: &DbmError) -> Option<i32> {
    match failure {
        DbmError::NoSpace(_) => Some(NO_SPACE),
        failure => failure.errno(),
    }
}

/// The exception of an opening: as Python's own `open`, it has the name of the file.
pub fn of_opening(failure: DbmError, path: &Path) -> PyErr {
    let text = failure.to_string();
    match (&failure, number(&failure)) {
        (DbmError::Open(_), Some(number)) => error::new_err(with_name(number, text, path)),
        (DbmError::Foreign(_), _) => {
            let text = match begins_with(path, b"SENKOKV\0") {
                true => "a store of the unordered kind: open it with senko_flash.store".to_owned(),
                false => text,
            };
            error::new_err(with_name(INVALID, text, path))
        }
        _ => exception(failure),
    }
}

/// Whether a file's first bytes are these, by which the other engine marks its files.
pub fn begins_with(path: &Path, magic: &[u8; 8]) -> bool {
    let mut first = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && first == *magic
}

/// The arguments of an `OSError` with the name of a file.
pub fn with_name(number: i32, text: String, path: &Path) -> (i32, String, OsString) {
    // Python appends the name itself. So the most frequent failure has Python's own words.
    let text = match number {
        NO_ENTRY if !path.exists() => "No such file or directory".to_owned(),
        _ => text,
    };
    (number, text, path.as_os_str().to_owned())
}

/// ENOENT.
pub const NO_ENTRY: i32 = 2;
/// EINVAL: the file is of another kind.
pub const INVALID: i32 = 22;
/// ENOSPC.
pub const NO_SPACE: i32 = 28;

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
