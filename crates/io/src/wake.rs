// SPDX-License-Identifier: Apache-2.0
//! Waking a loop from another thread: an event descriptor behind a flag.
//!
//! The flag is up from the first `wake` until the loop has seen it, so any number of wakes between two rounds of the loop cost one
//! system call. The loop lowers the flag *before* it reports the wake-up: whoever finds it up may rely on a report that
//! is still to come, and whoever finds it down makes a new one.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
}

/// Wakes a loop from any thread.
#[derive(Clone, Debug)]
pub struct Waker {
    bell: Arc<Bell>,
}

impl Waker {
    /// A waker on a new event descriptor; `flags` as for `eventfd`.
    pub(crate) fn new(flags: i32) -> io::Result<Waker> {
        // SAFETY: makes a new descriptor and touches nothing else.
        let fd = unsafe { libc::eventfd(0, flags | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Waker {
            bell: Arc::new(Bell {
                fd,
                rung: AtomicBool::new(false),
            }),
        })
    }

    /// Makes the loop's `poll` return with [`crate::Event::Woken`].
    pub fn wake(&self) {
        if !self.bell.rung.swap(true, Ordering::AcqRel) {
            let one = 1u64;
            // SAFETY: writes 8 bytes that live on this stack; the descriptor is open as long as `bell` lives. The
            // write can fail only when the counter is at its limit, and then the loop is awake already.
            unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
        }
    }

    /// The descriptor that becomes readable.
    pub(crate) fn fd(&self) -> RawFd {
        self.bell.fd.as_raw_fd()
    }

    /// Lowers the flag; true if it was up.
    pub(crate) fn lower(&self) -> bool {
        self.bell.rung.swap(false, Ordering::AcqRel)
    }

    /// Empties the descriptor's counter (non-blocking descriptors only).
    pub(crate) fn drain(&self) {
        let mut count = 0u64;
        // SAFETY: reads at most 8 bytes into this stack's variable.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
    }
}
