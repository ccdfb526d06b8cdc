// SPDX-License-Identifier: Apache-2.0
//! The interface of ndbm over [`senko_dbm`]: a library that programs link or preload. Called from
//! C; `include/senko/ndbm.h` declares the calls, and docs/dbm/ndbm.md is for their users.
//!
//! Always holds: no panic leaves a call; no thread is started; a handle does nothing in the child
//! of a fork. The caller promises that a pointer is an open handle, and that a datum has its bytes.

mod failure; // errno, and the guard around every call
mod store; // databases of this process, each open once
mod transaction; // dbm_begin to dbm_commit
mod handle; // what dbm_open gives

use std::ffi::{CStr, c_char, c_int};

use failure::{Failure, guard, set_errno};
use handle::{Handle, OwnedBytes};

/// A key or a value: the `datum` of Debian's libraries.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Datum {
    dptr: *mut c_char,
    dsize: c_int,
}

/// The value for "there is none".
const NONE: Datum = Datum {
    dptr: std::ptr::null_mut(),
    dsize: 0,
};

impl Datum {
    /// The bytes. NULL with size 0 is empty.
    ///
    /// # Safety
    /// The bytes do not change for `'a`.
    unsafe fn bytes<'a>(self) -> Result<&'a [u8], Failure> {
        match usize::try_from(self.dsize) {
            Ok(0) => Ok(&[]),
            // SAFETY: the caller's promise.
            Ok(size) if !self.dptr.is_null() => unsafe {
                Ok(std::slice::from_raw_parts(self.dptr.cast(), size))
            },
            _ => Err(Failure::new(
                libc::EINVAL,
                "a datum has no bytes, or a size below 0",
            )),
        }
    }

    fn of(found: OwnedBytes) -> Datum {
        found.map_or(NONE, |(bytes, size)| match c_int::try_from(size) {
            Ok(dsize) => Datum {
                dptr: bytes.cast(),
                dsize,
            },
            Err(_) => NONE,
        })
    }
}

/// Does a call on a handle. The handle remembers a failure, and errno has its number; the caller
/// gets the result of `failed`.
///
/// # Safety
/// `db` is NULL or an open handle that no other call uses.
unsafe fn on<T>(
    db: *mut Handle,
    failed: T,
    work: impl FnOnce(&mut Handle) -> Result<T, Failure>,
) -> T {
    // SAFETY: the caller's promise.
    let Some(handle) = (unsafe { db.as_mut() }) else {
        set_errno(libc::EINVAL);
        return failed;
    };
    match guard(|| work(&mut *handle)) {
        Ok(done) => done,
        Err(failure) => {
            handle.failed = true;
            let number = failure.number;
            drop(failure);
            set_errno(number);
            failed
        }
    }
}

/// Opens a database.
///
/// # Safety
/// `name` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_open(name: *const c_char, flags: c_int, mode: c_int) -> *mut Handle {
    let opened = guard(|| {
        if name.is_null() {
            return Err(Failure::new(libc::EINVAL, "the name is NULL"));
        }
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        Handle::open(name, flags, mode as u32)
    });
    match opened {
        Ok(handle) => Box::into_raw(Box::new(handle)),
        Err(failure) => {
            let number = failure.number;
            drop(failure);
            set_errno(number);
            std::ptr::null_mut()
        }
    }
}

/// Closes a handle.
///
/// # Safety
/// `db` is NULL or an open handle, which is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_close(db: *mut Handle) {
    if db.is_null() {
        return;
    }
    // SAFETY: it was made by `dbm_open`, and is not used again.
    let handle = unsafe { Box::from_raw(db) };
    if let Err(failure) = guard(|| handle.close()) {
        set_errno(failure.number);
    }
}

/// The value of a key.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_fetch(db: *mut Handle, key: Datum) -> Datum {
    // SAFETY: the caller's promise.
    unsafe {
        on(db, NONE, |handle| {
            Ok(Datum::of(handle.fetch(key.bytes()?)?))
        })
    }
}

/// Stores a value.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_store(
    db: *mut Handle,
    key: Datum,
    content: Datum,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on(db, -1, |handle| {
            let replace = match flags {
                0 => false,
                1 => true,
                _ => {
                    return Err(Failure::new(
                        libc::EINVAL,
                        "there are no such flags to store",
                    ));
                }
            };
            let stored = handle.put(key.bytes()?, content.bytes()?, replace)?;
            Ok(c_int::from(!stored))
        })
    }
}

/// Deletes a key.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_delete(db: *mut Handle, key: Datum) -> c_int {
    // SAFETY: the caller's promise.
    let deleted = unsafe { on(db, None, |handle| Ok(Some(handle.delete(key.bytes()?)?))) };
    match deleted {
        Some(true) => 0,
        Some(false) => {
            set_errno(libc::ENOENT);
            -1
        }
        None => -1,
    }
}

/// The first key.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_firstkey(db: *mut Handle) -> Datum {
    // SAFETY: the caller's promise.
    unsafe { on(db, NONE, |handle| Ok(Datum::of(handle.walk(true)?))) }
}

/// The next key.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_nextkey(db: *mut Handle) -> Datum {
    // SAFETY: the caller's promise.
    unsafe { on(db, NONE, |handle| Ok(Datum::of(handle.walk(false)?))) }
}

/// Whether a call failed.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_error(db: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { db.as_ref() }.map_or(1, |handle| c_int::from(handle.failed))
}

/// Forgets that a call failed.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_clearerr(db: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(handle) = unsafe { db.as_mut() } {
        handle.failed = false;
    }
    0
}

/// The descriptor of the .dir file.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_dirfno(db: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(db, -1, |handle| handle.dirfno()) }
}

/// The descriptor of the .pag file.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_pagfno(db: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(db, -1, |handle| handle.pagfno()) }
}

/// Whether it was opened only for reading.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_rdonly(db: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { db.as_ref() }.map_or(0, |handle| c_int::from(handle.read_only()))
}

/// Begins a transaction.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_begin(db: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(db, -1, |handle| handle.begin().map(|()| 0)) }
}

/// Commits the transaction.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_commit(db: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { on(db, None, |handle| handle.commit().map(Some)) } {
        Some(true) => 0,
        Some(false) => {
            set_errno(libc::ECANCELED);
            -1
        }
        None => -1,
    }
}

/// Aborts the transaction.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dbm_abort(db: *mut Handle) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { on(db, -1, |handle| handle.abort().map(|()| 0)) }
}

/// The names that Berkeley DB's header gives to the same calls. Debian's Python is linked with
/// them.
macro_rules! berkeley {
    ($($name:ident = $call:ident($($arg:ident: $of:ty),*) $(-> $gives:ty)?;)*) => {$(
        #[doc = concat!("Berkeley DB's name of `", stringify!($call), "`.")]
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $of),*) $(-> $gives)? {
            // SAFETY: the caller's promise.
            unsafe { $call($($arg),*) }
        }
    )*};
}

berkeley! {
    __db_ndbm_open = dbm_open(name: *const c_char, flags: c_int, mode: c_int) -> *mut Handle;
    __db_ndbm_close = dbm_close(db: *mut Handle);
    __db_ndbm_fetch = dbm_fetch(db: *mut Handle, key: Datum) -> Datum;
    __db_ndbm_store = dbm_store(db: *mut Handle, key: Datum, content: Datum, flags: c_int) -> c_int;
    __db_ndbm_delete = dbm_delete(db: *mut Handle, key: Datum) -> c_int;
    __db_ndbm_firstkey = dbm_firstkey(db: *mut Handle) -> Datum;
    __db_ndbm_nextkey = dbm_nextkey(db: *mut Handle) -> Datum;
    __db_ndbm_error = dbm_error(db: *mut Handle) -> c_int;
    __db_ndbm_clearerr = dbm_clearerr(db: *mut Handle) -> c_int;
    __db_ndbm_dirfno = dbm_dirfno(db: *mut Handle) -> c_int;
    __db_ndbm_pagfno = dbm_pagfno(db: *mut Handle) -> c_int;
    __db_ndbm_rdonly = dbm_rdonly(db: *mut Handle) -> c_int;
}
