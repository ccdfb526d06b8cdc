// SPDX-License-Identifier: Apache-2.0
//! The active log, the one after it, and the space reserved for deletes. Part of `core.rs`.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::space::Held;
use crate::version::LogHandle;

/// The state of the thread that appends.
pub(crate) struct Writer {
    /// The active log, which is also the version's first log. `None` in a store that is open for
    /// reading.
    active: Option<Arc<LogHandle>>,
    /// The time of the last write.
    last_time: u64,
    /// Pages of the active log when it was last checked whether it takes more (SPACE-6).
    looked_at: u32,
    /// The active log takes no more.
    full: bool,
    /// The active log was allocated for deletes, although the store is full.
    tight: bool,
}

impl Writer {
    /// A writer without a log.
    pub fn new(last_time: u64) -> Writer {
        Writer {
            active: None,
            last_time,
            looked_at: 0,
            full: false,
            tight: false,
        }
    }

    /// The active log.
    pub fn active(&self) -> Option<Arc<LogHandle>> {
        self.active.clone()
    }

    /// Makes a log the active one. `tight`: it was allocated for deletes, although the store is
    /// full.
    pub fn turn_to(&mut self, log: Arc<LogHandle>, tight: bool) {
        self.active = Some(log);
        self.looked_at = 0;
        self.full = false;
        self.tight = tight;
    }

    /// Whether the active log was allocated for deletes, although the store is full.
    pub fn is_tight(&self) -> bool {
        self.tight
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

    /// Whether the active log takes no more, although it has room (SPACE-6).
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Sets whether the active log takes no more.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Whether the log has another number of pages than at the last call; `pages` is the number
    /// now.
    pub fn has_another_page(&mut self, pages: u32) -> bool {
        std::mem::replace(&mut self.looked_at, pages) != pages
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

    /// Takes the log.
    pub fn take(&self) -> Option<Arc<LogHandle>> {
        self.log.lock().take()
    }

    /// Stores a log for later.
    pub fn put(&self, log: Arc<LogHandle>) {
        *self.log.lock() = Some(log);
    }
}

/// The space for a log that a full store needs for deletes.
#[derive(Default)]
pub(crate) struct Reserve {
    held: Mutex<Option<Held>>,
}

impl Reserve {
    /// Whether the space is reserved.
    pub fn is_there(&self) -> bool {
        self.held.lock().is_some()
    }

    /// Releases the space to all users; false if none was reserved.
    pub fn give_up(&self) -> bool {
        self.held.lock().take().is_some()
    }

    /// Reserves the space if it is not reserved.
    pub fn fill(&self, take: impl FnOnce() -> Option<Held>) {
        let mut held = self.held.lock();
        if held.is_none() {
            *held = take();
        }
    }
}
