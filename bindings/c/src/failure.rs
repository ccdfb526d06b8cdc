// SPDX-License-Identifier: Apache-2.0
//! The result code of a call, and the sentence that explains it. Every call of the library runs
//! inside [`guard`], which turns errors and panics into both.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use senko_dbm::DbmError;

/// Declares the codes of the header, with their words.
macro_rules! codes {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        $(pub(crate) const $name: c_int = $number;)*
        /// Words for a code of ours.
        fn words(code: c_int) -> Option<&'static CStr> {
            match code {
                $($name => Some($words),)*
                _ => None,
            }
        }
        #[cfg(test)]
        const CODES: &[(&str, c_int)] = &[$((stringify!($name), $number)),*];
    };
}

codes! {
    NOTFOUND = -30699, c"there is no such record";
    EXISTS = -30698, c"the key is there already";
    CONFLICT = -30697, c"the transaction conflicts with another; run it again";
    DAMAGED = -30696, c"the database is damaged";
    FOREIGN = -30695, c"the file is not a Senko database";
    NEWER = -30694, c"the database was written by a later version";
    NOTABLE = -30693, c"there is no such table";
    TXNFULL = -30692, c"the transaction is larger than its limit";
    READONLY = -30691, c"the transaction or the database reads only, or an earlier write failed";
    EXPIRED = -30690, c"the snapshot has ended: it was open for too long";
    TOOLONG = -30689, c"a key or a value is too long";
    ENDED = -30688, c"the transaction has ended";
    FORKED = -30687, c"the handle belongs to the parent process";
    PANIC = -30686, c"a fault of the library itself";
    UNSORTED = -30685, c"the key does not come after all keys of the table";
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    text: Cow<'static, str>,
}

impl Failure {
    /// With the words of the code.
    pub fn code(code: c_int) -> Failure {
        let text = words(code).and_then(|words| words.to_str().ok());
        Failure {
            code,
            text: text.unwrap_or_default().into(),
        }
    }

    pub fn invalid(text: impl Into<Cow<'static, str>>) -> Failure {
        Failure::with(libc::EINVAL, text)
    }

    pub fn with(code: c_int, text: impl Into<Cow<'static, str>>) -> Failure {
        let text = text.into();
        Failure { code, text }
    }
}

impl From<DbmError> for Failure {
    fn from(error: DbmError) -> Failure {
        let code = match &error {
            DbmError::Conflict => CONFLICT,
            DbmError::Io { .. } | DbmError::Open(_) => error.errno().unwrap_or(libc::EIO),
            DbmError::Damaged { .. } => DAMAGED,
            DbmError::Foreign(_) | DbmError::OlderVersion { .. } => FOREIGN,
            DbmError::NewerVersion { .. } => NEWER,
            DbmError::NoTable(_) => NOTABLE,
            DbmError::Exists => EXISTS,
            DbmError::Unsorted(_) => UNSORTED,
            DbmError::KeyTooLong(_) | DbmError::ValueTooLong(_) => TOOLONG,
            DbmError::TransactionTooLarge { .. } => TXNFULL,
            DbmError::NoSpace(_) => libc::ENOSPC,
            DbmError::ReadOnly(_) => READONLY,
            DbmError::SnapshotExpired => EXPIRED,
            DbmError::Invalid(_) => libc::EINVAL,
            // Errors that later versions of the engine may have.
            _ => libc::EIO,
        };
        Failure::with(code, error.to_string())
    }
}

#[derive(Default)]
struct Last {
    text: Cow<'static, str>,
    given: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Does the work of a call and returns the call's result.
pub(crate) fn guard(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("unknown");
            let text = format!("a fault of the library itself: {text}");
            // The value in it may panic when it is dropped.
            std::mem::forget(panic);
            Failure::with(PANIC, text)
        }
    };
    // A thread that is ending may have no place for the sentence any more.
    let _ = LAST.try_with(|last| last.borrow_mut().text = failure.text);
    failure.code
}

/// Words for what a call returned.
#[unsafe(no_mangle)]
pub extern "C" fn senko_strerror(error: c_int) -> *const c_char {
    match words(error) {
        Some(words) => words.as_ptr(),
        None if error == 0 => c"no error".as_ptr(),
        // SAFETY: takes a number only.
        None if error > 0 => unsafe { libc::strerror(error) },
        None => c"no error of this library".as_ptr(),
    }
}

/// The sentence for this thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn senko_message() -> *const c_char {
    let given = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        if *last.given.as_bytes() != *last.text.as_bytes() {
            let bytes = last.text.bytes().filter(|byte| *byte != 0).collect();
            last.given = CString::new::<Vec<u8>>(bytes).unwrap_or_default();
        }
        last.given.as_ptr()
    });
    given.unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        // SAFETY: it lives until the next failure of this thread.
        let text = unsafe { CStr::from_ptr(senko_message()) };
        text.to_str().expect("text").to_owned()
    }

    #[test]
    fn a_panic_becomes_a_number_and_a_sentence() {
        assert_eq!(guard(|| panic!("split of page {}", 7)), PANIC);
        assert_eq!(message(), "a fault of the library itself: split of page 7");
        assert_eq!(guard(|| Ok(())), 0);
        assert_eq!(guard(|| Err(DbmError::Exists.into())), EXISTS);
        assert_eq!(message(), "the key is there already");
    }

    #[test]
    fn each_code_is_in_the_header_with_words_of_its_own() {
        let header = include_str!("../include/senko_dbm.h");
        let mut all = std::collections::BTreeSet::new();
        for (name, code) in CODES {
            let define = |line: &str| {
                let mut words = line.split_whitespace().skip(1);
                words.next() == Some(&format!("SENKO_{name}"))
                    && words.next() == Some(&format!("({code})"))
            };
            assert!(header.lines().any(define), "{name} is not in the header");
            // SAFETY: words are strings that live forever.
            let words = unsafe { CStr::from_ptr(senko_strerror(*code)) };
            assert!(all.insert(words.to_owned()), "{name} has another's words");
        }
        assert_eq!(header.matches(" (-306").count(), CODES.len());
    }
}
