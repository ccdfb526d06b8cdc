// SPDX-License-Identifier: Apache-2.0
//! The active log and the one after it. Part of `core.rs`.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::core::version::LogHandle;

/// The state of the thread that appends.
pub(crate) struct Writer {
    /// The active log, which is also the version's first log. `None` in a store that is open for
    /// reading.
    active: Option<Arc<LogHandle>>,
    /// The time of the last write.
    last_time: u64,
    /// The most that the active log may take as blocks, in bytes: after puts, and after deletes
    /// (SPACE-6).
    budgets: [u64; 2],
    /// A put found no space after this write and with this much space in use. Until one of them
    /// changes, there is none.
    refused: Option<(u64, u64)>,
}

impl Writer {
    /// A writer without a log.
    pub fn new(last_time: u64) -> Writer {
        Writer {
            active: None,
            last_time,
            budgets: [0; 2],
            refused: None,
        }
    }

    pub fn active(&self) -> Option<Arc<LogHandle>> {
        self.active.clone()
    }

    /// Makes a log the active one. It has no budget yet.
    pub fn turn_to(&mut self, log: Arc<LogHandle>) {
        self.active = Some(log);
        self.forget_budget();
    }

    /// The budget of the active log.
    pub fn budget(&self, deletes: bool) -> u64 {
        self.budgets[usize::from(deletes)]
    }

    /// Sets the budget of the active log. Deletes may use what puts may.
    pub fn set_budget(&mut self, budget: u64, deletes: bool) {
        self.budgets[1] = budget.max(if deletes { 0 } else { self.budgets[1] });
        if !deletes {
            self.budgets[0] = budget;
        }
    }

    /// Takes the budget back: space was used for something else.
    pub fn forget_budget(&mut self) {
        self.budgets = [0; 2];
    }

    /// Notes that a put found no space.
    pub fn refuse(&mut self, used: u64) {
        self.refused = Some((self.last_time, used));
    }

    /// Whether a put found no space, and nothing was written or released since.
    pub fn is_refused(&self, used: u64) -> bool {
        self.refused == Some((self.last_time, used))
    }

    /// Notes that the log was sealed. There is no active log until [`Writer::turn_to`].
    pub fn let_go(&mut self) {
        self.active = None;
    }

    /// The time of a write at `now`: later than any before (WRITE-1).
    pub fn time_at(&self, now: u64) -> u64 {
        now.max(self.last_time + 1)
    }

    /// Sets the time of the last write.
    pub fn wrote(&mut self, time: u64) {
        self.last_time = time;
    }
}

/// An empty log that the manifest already names, ready for use.
#[derive(Default)]
pub(crate) struct Spare {
    log: Mutex<Option<Arc<LogHandle>>>,
}

impl Spare {
    /// Whether a log is ready.
    pub fn is_there(&self) -> bool {
        self.log.lock().is_some()
    }

    pub fn take(&self) -> Option<Arc<LogHandle>> {
        self.log.lock().take()
    }

    /// Stores a log for later.
    pub fn put(&self, log: Arc<LogHandle>) {
        *self.log.lock() = Some(log);
    }
}
