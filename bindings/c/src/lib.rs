// SPDX-License-Identifier: Apache-2.0
//! The C library of the DBM: the functions of `include/senko_dbm.h`, implemented with
//! [`senko_dbm`]. C programs call it. docs/dbm/c.md is their guide, and the header describes each
//! call.
//!
//! Always holds: no panic leaves a call (`failure.rs`); a parent's handle does nothing in the child
//! of a fork; every pointer is checked for NULL. As everywhere in C, the caller promises that a
//! pointer is one that this library returned and that was not given back.

mod failure; // error codes, their words, and the guard around every call
mod database; // open, close, tables, counts
mod transaction; // begin, get, put, commit
mod cursor; // positions in the keys of a table
mod bulk; // batches and loads

pub use bulk::*;
pub use cursor::*;
pub use database::*;
pub use failure::{senko_message, senko_strerror};
pub use transaction::*;

use std::ffi::{CStr, c_char, c_int, c_void};

use failure::{Failure, TOOLONG};

const VERSION: &CStr = c"0.1.0";

/// A key or a value, in C's form.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Val {
    pub size: usize,
    /// Where they are.
    pub data: *mut c_void,
}

impl Val {
    pub(crate) fn of(bytes: &[u8]) -> Val {
        Val {
            size: bytes.len(),
            data: bytes.as_ptr().cast_mut().cast(),
        }
    }

    /// Its bytes.
    ///
    /// # Safety
    /// `val` is NULL, or a value whose bytes do not change for `'a`.
    pub(crate) unsafe fn bytes<'a>(val: *const Val) -> Result<&'a [u8], Failure> {
        // SAFETY: the caller's promise.
        let val =
            unsafe { val.as_ref() }.ok_or_else(|| Failure::invalid("a key or value is NULL"))?;
        if val.size == 0 {
            return Ok(&[]);
        }
        if val.data.is_null() {
            return Err(Failure::invalid("a key or value has a size and no bytes"));
        }
        if isize::try_from(val.size).is_err() {
            let text = format!("a key or value cannot have {} bytes", val.size);
            return Err(Failure::with(TOOLONG, text));
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts(val.data.cast(), val.size) })
    }
}

/// Writes a result to the caller's variable.
///
/// # Safety
/// `to` is NULL or may be written.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::invalid("the place for a result is NULL"));
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// A string of the caller.
///
/// # Safety
/// `text` is NULL, or a string that does not change for `'a`.
pub(crate) unsafe fn string<'a>(text: *const c_char) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(Failure::invalid("a name is NULL"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// The library's version, and its numbers if the caller wants them.
///
/// # Safety
/// Each pointer is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_version(
    major: *mut c_int,
    minor: *mut c_int,
    patch: *mut c_int,
) -> *const c_char {
    for (to, number) in [(major, 0), (minor, 1), (patch, 0)] {
        if !to.is_null() {
            // SAFETY: the caller's promise.
            unsafe { to.write(number) };
        }
    }
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_package_and_of_the_header() {
        let (mut major, mut minor, mut patch) = (-1, -1, -1);
        // SAFETY: the numbers are on this stack.
        let text = unsafe { CStr::from_ptr(senko_version(&mut major, &mut minor, &mut patch)) };
        let package = env!("CARGO_PKG_VERSION");
        assert_eq!(text.to_str().expect("digits"), package);
        assert_eq!(format!("{major}.{minor}.{patch}"), package);
        let header = include_str!("../include/senko_dbm.h");
        for (name, number) in [("MAJOR", major), ("MINOR", minor), ("PATCH", patch)] {
            let line = format!("#define SENKO_VERSION_{name} {number}\n");
            assert!(header.contains(&line), "{line}");
        }
    }
}
