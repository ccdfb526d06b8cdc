// SPDX-License-Identifier: Apache-2.0
//! Decides which thread writes the next group and which threads wait for it (called by `flush.rs`).
//!
//! Card: group commit with a leader. One of the waiting threads writes all pending commits. The end
//! of the flush wakes all others at once, and most of them find their commits done. The threads
//! that one flush released return together, each with its next commit. Without care the first of
//! them would flush alone, and the others would wait for that flush. So a leader first lets other
//! threads run, until as many wait as the last flush released. It yields its time slice a bounded
//! number of times. It sets no timer, and a single thread never yields.
//!
//! GROUP-1: at most one thread leads. GROUP-2: a thread that waits is woken by the next end of a
//! flush, whatever its result.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::error::DbmError;
use crate::sync::waiting::{Condvar, Mutex, MutexGuard};
use crate::sync::{AtomicUsize, yield_now};

/// Most time slices that a leader yields for each thread that it expects.
const YIELDS: usize = 2;

/// The threads that wait for commits to become durable.
#[derive(Default)]
pub(crate) struct Group {
    /// Whether a thread leads now. The standard library's lock and condition wake all waiters at
    /// once; `parking_lot` would wake one after the other.
    led: Mutex<bool>,
    ended: Condvar,
    /// Threads whose commits are applied but not durable.
    waiting: AtomicUsize,
    /// Threads that waited when the last group was written.
    released: AtomicUsize,
}

impl Group {
    fn led(&self) -> MutexGuard<'_, bool> {
        self.led.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when `is_done`, or with the error of `lead`, which one of the waiting threads calls.
    pub fn wait(
        &self,
        is_done: impl Fn() -> bool,
        lead: impl FnOnce() -> Result<(), DbmError>,
    ) -> Result<(), DbmError> {
        if is_done() {
            return Ok(());
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut led = self.led();
        while *led && !is_done() {
            led = self.ended.wait(led).unwrap_or_else(PoisonError::into_inner);
        }
        if is_done() {
            drop(led);
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return Ok(());
        }
        *led = true;
        drop(led);
        self.gather();
        let _leader = Leader(self);
        lead()
    }

    /// Lets the threads run that the last flush released.
    fn gather(&self) {
        let expected = self.released.load(Ordering::Acquire);
        for _ in 0..expected.saturating_sub(1) * YIELDS {
            if self.waiting.load(Ordering::Acquire) >= expected {
                break;
            }
            yield_now();
        }
        let gathered = self.waiting.load(Ordering::Acquire);
        self.released.store(gathered, Ordering::Release);
    }
}

/// Ends the lead, even if the thread panics.
struct Leader<'a>(&'a Group);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        *self.0.led() = false;
        // A sleeping thread counted itself before it saw the lead. A wake-up without waiters would
        // be a system call too.
        if self.0.waiting.load(Ordering::Acquire) > 0 {
            self.0.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Eight threads take numbers and wait for them. Each call of the leader ends all numbers taken
    /// so far. No thread is left waiting, and none returns before its number is done.
    #[test]
    fn all_that_wait_return_and_none_too_early() {
        let group = Group::default();
        let (taken, done, led) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let mine = taken.fetch_add(1, Ordering::SeqCst) + 1;
                        let is_done = || done.load(Ordering::SeqCst) >= mine;
                        let lead = || {
                            led.fetch_add(1, Ordering::SeqCst);
                            done.fetch_max(taken.load(Ordering::SeqCst), Ordering::SeqCst);
                            Ok(())
                        };
                        assert!(group.wait(is_done, lead).is_ok());
                        assert!(is_done());
                    }
                });
            }
        });
        assert_eq!(group.waiting.load(Ordering::SeqCst), 0);
        assert!(!*group.led());
        assert!((1..=16_000).contains(&led.load(Ordering::SeqCst)));
    }

    /// A leader that fails ends its lead: the next waiting thread leads, and gets the error too.
    #[test]
    fn a_leader_that_fails_leaves_the_lead() {
        let group = Group::default();
        for _ in 0..2 {
            let failed = group.wait(|| false, || Err(DbmError::NoSpace(1)));
            assert!(matches!(failed, Err(DbmError::NoSpace(1))));
        }
        assert_eq!(group.waiting.load(Ordering::SeqCst), 0);
    }
}
