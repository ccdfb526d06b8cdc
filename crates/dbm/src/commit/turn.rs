// SPDX-License-Identifier: Apache-2.0
//! A turn in the list of commits, for a transaction that lost too often (`fairness.rs`).
//!
//! Whoever comes to the end of the list meets the turn there (`commit.rs`). Commits that change
//! what its transaction is going to read wait until the turn is over. A waiting thread ends the
//! turn of a transaction that did nothing for [`PATIENCE`]. It may be suspended, or may itself wait
//! for the thread that it stops. Commits of the thread that has the turn pass, so a transaction may
//! commit others before its own end.
//!
//! TURN-1: at most one turn is taken at a time. TURN-2: no thread waits for a turn with a lock
//! held. TURN-3: all commits before the turn's node are in the snapshot of its transaction, and all
//! later ones met the turn, because a node takes over the turn of the node before it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::commit::reads::ReadSet;
use crate::sync::waiting::{Condvar, Mutex, MutexGuard};
use crate::sync::{AtomicBool, AtomicU64, ThreadId, this_thread};

/// The longest pause of a transaction that has the turn, while another thread waits for it.
const PATIENCE: Duration = Duration::from_millis(100);

/// A turn in the order of commits.
pub(crate) struct Turn {
    thread: ThreadId,
    /// What its transaction did so far.
    steps: AtomicU64,
    is_over: AtomicBool,
    /// What it will read, as far as is known: commits that change it wait. Without: all wait.
    reads: Mutex<Option<ReadSet>>,
    ended: Condvar,
}

impl Turn {
    pub fn new(reads: Option<ReadSet>) -> Arc<Turn> {
        Arc::new(Turn {
            thread: this_thread(),
            steps: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            reads: Mutex::new(reads),
            ended: Condvar::new(),
        })
    }

    fn reads(&self) -> MutexGuard<'_, Option<ReadSet>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub fn is_of_this_thread(&self) -> bool {
        self.thread == this_thread()
    }

    /// Whether a commit has to wait, which `touches` what was read or not.
    pub fn bars(&self, touches: impl FnOnce(&ReadSet) -> bool) -> bool {
        !self.is_of_this_thread() && self.reads().as_ref().is_none_or(touches)
    }

    /// Tells waiting threads that the transaction is alive.
    pub fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when the turn is over.
    pub fn wait(&self) {
        let mut reads = self.reads();
        while !self.is_over() {
            let steps = self.steps.load(Ordering::Relaxed);
            let waited = self.ended.wait_timeout(reads, PATIENCE);
            let (again, passed) = waited.unwrap_or_else(PoisonError::into_inner);
            reads = again;
            if passed.timed_out() && self.steps.load(Ordering::Relaxed) == steps {
                self.end_with(&mut reads);
            }
        }
    }

    pub fn end(&self) {
        self.end_with(&mut self.reads());
    }

    fn end_with(&self, reads: &mut Option<ReadSet>) {
        self.is_over.store(true, Ordering::Release);
        // A node may keep the turn for long.
        *reads = None;
        self.ended.notify_all();
    }
}
