// SPDX-License-Identifier: Apache-2.0
//! Faults on demand under a running loop. Tests use them to see how a whole server behaves when its
//! device fails.
//!
//! [`crate::faulty`] is a device in memory for tests of an engine; this is a switch on a real
//! [`crate::FlashFile`], so that sockets, threads and both backends take part. The check is where
//! operations enter the loop (`disk.rs`), behind a pointer that is null unless a test installed a
//! switch. A server without one pays a predictable branch for each device operation.
//!
//! Always holds: an operation held by [`Fault::Stall`] continues normally when the fault is
//! cleared.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Op;

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It ends at once with this error number.
    Errno(i32),
    /// It does not end until the fault is cleared.
    Stall,
}

#[derive(Clone, Debug)]
struct Rule {
    /// The kind of operations; `None`: all.
    op: Option<Op>,
    /// Those that touch one of these pages.
    pages: Range<u64>,
    fault: Fault,
}

/// A test's control over a device's faults.
#[derive(Debug, Default)]
pub struct FaultSwitch {
    armed: AtomicBool,
    rules: Mutex<Vec<Rule>>,
    met: AtomicU64,
}

impl FaultSwitch {
    /// A switch without faults.
    pub fn new() -> Arc<FaultSwitch> {
        Arc::new(FaultSwitch::default())
    }

    /// From now on, operations of this kind (`None`: all kinds) on one of these pages meet the
    /// fault. The first matching rule applies.
    pub fn inject(&self, op: Option<Op>, pages: Range<u64>, fault: Fault) {
        self.rules().push(Rule { op, pages, fault });
        self.armed.store(true, Ordering::Release);
    }

    /// The device is well again; operations that were held back continue with the loop's next poll.
    pub fn clear(&self) {
        self.armed.store(false, Ordering::Release);
        self.rules().clear();
    }

    /// Operations that have met a fault.
    pub fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    /// The fault that an operation meets.
    pub(crate) fn meets(&self, op: Op, page: u64, pages: u64) -> Option<Fault> {
        if !self.armed.load(Ordering::Acquire) {
            return None;
        }
        let touches = |rule: &&Rule| {
            rule.op.is_none_or(|of| of == op)
                && page < rule.pages.end
                && rule.pages.start < page + pages.max(1)
        };
        let fault = self.rules().iter().find(touches).map(|rule| rule.fault);
        if fault.is_some() {
            self.met.fetch_add(1, Ordering::Relaxed);
        }
        fault
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        // No code that can panic runs under this lock.
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
