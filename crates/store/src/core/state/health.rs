// SPDX-License-Identifier: Apache-2.0
//! Whether the store takes writes, and why not. Part of `core.rs`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::StoreError;

/// Why a store that is open for reading accepts no writes. The latch prevents every change on the
/// device.
pub(crate) const READ_ONLY: &str = "it was opened to be read";

/// Why a closed store accepts no writes.
pub(crate) const CLOSED: &str = "the store is closed";

/// The latch: once it is set, nothing is written any more (CHANGE-2).
#[derive(Default)]
pub(crate) struct Health {
    latch: OnceLock<String>,
    closed: AtomicBool,
}

impl Health {
    /// Ends writing; the first cause is kept.
    pub fn latch(&self, cause: impl Into<String>) {
        let _ = self.latch.set(cause.into());
    }

    /// Whether writing has ended.
    pub fn is_latched(&self) -> bool {
        self.latch.get().is_some()
    }

    /// Latches after an error that leaves unknown what reached the device (CHANGE-2).
    pub fn failed(&self, error: &StoreError) {
        if matches!(error, StoreError::Io { .. }) {
            self.latch(error.to_string());
        }
    }

    /// Refuses writes after a failure.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        match self.latch.get() {
            None => Ok(()),
            Some(cause) => Err(StoreError::ReadOnly(cause.clone())),
        }
    }

    /// Refuses callers' writes after a failure, and after a close has begun.
    pub fn check_takes_writes(&self) -> Result<(), StoreError> {
        self.check_writable()?;
        if self.is_closed() {
            return Err(StoreError::ReadOnly(CLOSED.to_owned()));
        }
        Ok(())
    }

    /// Refuses callers' writes from now on; true if they were refused already.
    pub fn close(&self) -> bool {
        self.closed.swap(true, Ordering::AcqRel)
    }

    /// Whether a close has begun.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Latches if the thread panics while the guard exists.
    pub fn latch_on_panic(&self) -> LatchOnPanic<'_> {
        LatchOnPanic(self)
    }
}

/// Other threads would wait for this dead thread, so writing ends instead.
pub(crate) struct LatchOnPanic<'h>(&'h Health);

impl Drop for LatchOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.latch("a thread of the store panicked");
        }
    }
}
