// SPDX-License-Identifier: Apache-2.0
//! Wakes a loop from another thread: an event descriptor behind a state word.
//!
//! ```text
//!          sleep               wake, which writes to the descriptor
//!  Awake ---------> Asleep ------------------------------------------> Rung
//!    ^ `------------------------------ wake ----------------------------^ |
//!    `----------------------------- lower ------------------------------'
//! ```
//!
//! A wake costs a system call only if the loop sleeps or is about to. A loop that is awake checks
//! the state before it sleeps. It resets the state *before* it reports the wake-up. A thread that
//! finds the state "rung" may rely on a report that is still to come; any other thread causes a new
//! one.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

#[derive(Debug)]
struct Bell {
    fd: OwnedFd,
    state: AtomicU8,
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
                state: AtomicU8::new(AWAKE),
            }),
        })
    }

    /// Makes the loop's `poll` return with [`crate::Event::Woken`].
    pub fn wake(&self) {
        if self.bell.state.swap(RUNG, Ordering::AcqRel) == ASLEEP {
            let one = 1u64;
            // SAFETY: writes 8 bytes that live on this stack; the descriptor is open as long as
            // `bell` lives. The write can fail only when the counter is at its limit, and then the
            // loop is awake already.
            unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
        }
    }

    /// The descriptor that becomes readable.
    pub(crate) fn fd(&self) -> RawFd {
        self.bell.fd.as_raw_fd()
    }

    /// Notes that the loop is about to sleep. False if it was woken already.
    pub(crate) fn sleep(&self) -> bool {
        let state = &self.bell.state;
        let before = state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        before != Err(RUNG)
    }

    /// Whether the loop was woken and has not reported that.
    pub(crate) fn is_rung(&self) -> bool {
        self.bell.state.load(Ordering::Acquire) == RUNG
    }

    /// Notes that the loop is awake; true if it was woken.
    pub(crate) fn lower(&self) -> bool {
        let state = &self.bell.state;
        // Only the loop itself sets this state.
        state.load(Ordering::Acquire) != AWAKE && state.swap(AWAKE, Ordering::AcqRel) == RUNG
    }

    /// Empties the descriptor's counter (non-blocking descriptors only).
    pub(crate) fn drain(&self) {
        let mut count = 0u64;
        // SAFETY: reads at most 8 bytes into this stack's variable.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
    }
}
