// SPDX-License-Identifier: Apache-2.0
//! Errors whose text is a sentence for people, and that keep the system's number for programs.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};

/// A sentence with the system's error number.
#[derive(Debug)]
struct Told {
    text: String,
    number: Option<i32>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Told {}

/// The same error, in a sentence of this crate.
pub(crate) fn told(text: String, error: &io::Error) -> io::Error {
    let number = error_number(error);
    io::Error::new(error.kind(), Told { text, number })
}

/// The system's number of an error, for callers that know errors by number. Errors that this crate
/// worded or found itself have one too.
pub fn error_number(error: &io::Error) -> Option<i32> {
    let inner = || error.get_ref()?.downcast_ref::<Told>()?.number;
    error.raw_os_error().or_else(inner).or(match error.kind() {
        ErrorKind::NotFound => Some(libc::ENOENT),
        ErrorKind::AlreadyExists => Some(libc::EEXIST),
        ErrorKind::InvalidInput => Some(libc::EINVAL),
        ErrorKind::ResourceBusy => Some(libc::EBUSY),
        _ => None,
    })
}
