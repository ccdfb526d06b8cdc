// SPDX-License-Identifier: Apache-2.0
//! Why a call failed, in the form that programs of ndbm know: a number in `errno`. With
//! `SENKO_NDBM_MESSAGES=1` the explaining sentence goes to stderr. Every call runs inside
//! [`guard`].

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use senko_dbm::DbmError;

/// A number, and a sentence.
#[derive(Debug)]
pub struct Failure {
    pub number: c_int,
    pub text: String,
}

impl Failure {
    pub fn new(number: c_int, text: &str) -> Failure {
        let text = text.to_owned();
        Failure { number, text }
    }
}

impl From<DbmError> for Failure {
    fn from(error: DbmError) -> Failure {
        let number = match &error {
            DbmError::Io { .. } | DbmError::Open(_) => match error.errno() {
                // The error that other libraries return for a database that another process writes
                // to.
                Some(libc::EBUSY) => libc::EAGAIN,
                number => number.unwrap_or(libc::EIO),
            },
            DbmError::NoSpace(_) => libc::ENOSPC,
            DbmError::ReadOnly(_) => libc::EROFS,
            DbmError::Foreign(_)
            | DbmError::KeyTooLong(_)
            | DbmError::ValueTooLong(_)
            | DbmError::Invalid(_) => libc::EINVAL,
            DbmError::NewerVersion { .. } | DbmError::OlderVersion { .. } => libc::EOPNOTSUPP,
            _ => libc::EIO,
        };
        let text = error.to_string();
        Failure { number, text }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure {
            number: senko_io::error_number(&error).unwrap_or(libc::EIO),
            text: error.to_string(),
        }
    }
}

/// Does the work of a call. No panic leaves it.
pub fn guard<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        // The value in it may panic when it is dropped.
        std::mem::forget(panic);
        Err(Failure::new(libc::EIO, "a fault of the library itself"))
    });
    if let Err(failure) = &result
        && std::env::var_os("SENKO_NDBM_MESSAGES").is_some_and(|value| value == "1")
    {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "senko ndbm: {}", failure.text);
    }
    result
}

/// Sets `errno`, as the last step of a call.
pub fn set_errno(number: c_int) {
    // SAFETY: the place is this thread's own.
    unsafe { *libc::__errno_location() = number };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_number() {
        let failure = guard::<()>(|| panic!("split of page {}", 7)).expect_err("it panics");
        assert_eq!(failure.number, libc::EIO);
    }
}
