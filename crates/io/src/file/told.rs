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
        ErrorKind::PermissionDenied => Some(libc::EACCES),
        ErrorKind::AlreadyExists => Some(libc::EEXIST),
        ErrorKind::NotADirectory => Some(libc::ENOTDIR),
        ErrorKind::IsADirectory => Some(libc::EISDIR),
        ErrorKind::InvalidInput => Some(libc::EINVAL),
        ErrorKind::InvalidFilename => Some(libc::ENAMETOOLONG),
        ErrorKind::FileTooLarge => Some(libc::EFBIG),
        ErrorKind::StorageFull => Some(libc::ENOSPC),
        ErrorKind::QuotaExceeded => Some(libc::EDQUOT),
        ErrorKind::ReadOnlyFilesystem => Some(libc::EROFS),
        ErrorKind::OutOfMemory => Some(libc::ENOMEM),
        ErrorKind::ResourceBusy => Some(libc::EBUSY),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that was put into a sentence used to lose its number unless it was one of four, and
    /// was EIO then for a program in C.
    #[test]
    fn a_sentence_keeps_the_number() {
        let numbers = [
            libc::ENOENT,
            libc::EACCES,
            libc::EEXIST,
            libc::ENOTDIR,
            libc::EISDIR,
            libc::EINVAL,
            libc::ENAMETOOLONG,
            libc::EFBIG,
            libc::ENOSPC,
            libc::EDQUOT,
            libc::EROFS,
            libc::ENOMEM,
            libc::EBUSY,
        ];
        for number in numbers {
            let error = io::Error::from_raw_os_error(number);
            let sentence = io::Error::new(error.kind(), "a sentence");
            assert_eq!(error_number(&sentence), Some(number), "{error}");
            assert_eq!(
                error_number(&told("a sentence".to_owned(), &error)),
                Some(number)
            );
            assert_eq!(crate::IoError::of(sentence), crate::IoError::Os(number));
        }
    }
}
