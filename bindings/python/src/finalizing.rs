// SPDX-License-Identifier: Apache-2.0
//! A thread that takes the GIL while the interpreter ends. Before 3.14 Python ends such a thread
//! with `pthread_exit`, which unwinds its stack. Frames of Rust do not allow that: the process
//! would abort. So the thread waits here until the process has ended, as it does in Python 3.14
//! (CPython issue 87135).
//!
//! PyO3 does the same where a thread first takes the GIL, but not where it takes the GIL back after
//! a call. `build.rs` has the linker direct these calls to this file.

#![allow(unsafe_code)]

use pyo3::ffi::PyThreadState;

unsafe extern "C-unwind" {
    /// Python's function, by the name that the linker gives to it.
    fn __real_PyEval_RestoreThread(state: *mut PyThreadState);
}

/// Never dropped, unless the stack is unwound.
struct Parked;

impl Drop for Parked {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Takes the GIL back.
///
/// # Safety
/// As Python's function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_PyEval_RestoreThread(state: *mut PyThreadState) {
    let parked = Parked;
    // SAFETY: the caller's promise. If it unwinds, that ends in the drop of `parked`: nothing above
    // this frame is unwound.
    unsafe { __real_PyEval_RestoreThread(state) };
    std::mem::forget(parked);
}
