// SPDX-License-Identifier: Apache-2.0
//! The active log, the one after it, and the space reserved for deletes. Part of `core.rs`.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::space::Held;
use crate::version::LogHandle;

/// Who appends.
pub(crate) struct Writer {
    /// The log that takes the writes; also the first of the version's. None in a store that is only
    /// read.
    active: Option<Arc<LogHandle>>,
    /// The time of the last write.
    last_time: u64,
    /// Pages of the active log when it was last looked at whether it is to take more (SPACE-6).
    looked_at: u32,
    /// It is not.
    full: bool,
    /// It was taken for deletes, though there is no room for it.
    tight: bool,
}

impl Writer {
    /// Without a log so far.
    pub fn new(last_time: u64) -> Writer {
        Writer {
            active: None,
            last_time,
            looked_at: 0,
            full: false,
            tight: false,
        }
    }

    /// The log that takes the writes.
    pub fn active(&self) -> Option<Arc<LogHandle>> {
        self.active.clone()
    }

    /// Turns to a log; `tight`: it was taken for deletes, though there is no room for it.
    pub fn turn_to(&mut self, log: Arc<LogHandle>, tight: bool) {
        self.active = Some(log);
        self.looked_at = 0;
        self.full = false;
        self.tight = tight;
    }

    /// Whether the active log was taken for deletes, though there is no room for it.
    pub fn is_tight(&self) -> bool {
        self.tight
    }

    /// The log was sealed: there is none until [`Writer::turn_to`].
    pub fn let_go(&mut self) {
        self.active = None;
    }

    /// The time of a write at `now`: later than any before (WRITE-1).
    pub fn time_at(&self, now: u64) -> u64 {
        now.max(self.last_time + 1)
    }

    /// The last write has this time.
    pub fn wrote(&mut self, time: u64) {
        self.last_time = time;
    }

    /// Whether the active log is to accept no more, though there is room in it (SPACE-6).
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Says that it is to accept no more, or may.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Whether the log, of `pages` now, has another number of pages than at the last such question.
    pub fn has_another_page(&mut self, pages: u32) -> bool {
        std::mem::replace(&mut self.looked_at, pages) != pages
    }
}

/// An empty log, in the manifest, that can take writes at once.
#[derive(Default)]
pub(crate) struct Spare {
    log: Mutex<Option<Arc<LogHandle>>>,
}

impl Spare {
    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.log.lock().is_some()
    }

    /// Takes it into use.
    pub fn take(&self) -> Option<Arc<LogHandle>> {
        self.log.lock().take()
    }

    /// Prepares one for later.
    pub fn put(&self, log: Arc<LogHandle>) {
        *self.log.lock() = Some(log);
    }
}

/// Space for a log, so that a full store still takes deletes.
#[derive(Default)]
pub(crate) struct Reserve {
    held: Mutex<Option<Held>>,
}

impl Reserve {
    /// Whether it is there.
    pub fn is_there(&self) -> bool {
        self.held.lock().is_some()
    }

    /// Lets anyone have it; false if it was not there.
    pub fn give_up(&self) -> bool {
        self.held.lock().take().is_some()
    }

    /// Fills it where it is not there.
    pub fn fill(&self, take: impl FnOnce() -> Option<Held>) {
        let mut held = self.held.lock();
        if held.is_none() {
            *held = take();
        }
    }
}
