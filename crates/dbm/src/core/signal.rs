// SPDX-License-Identifier: Apache-2.0
//! What the maintenance thread is asked to do.

use crate::sync::{Condvar, Mutex};

#[derive(Default)]
struct Asked {
    work: bool,
    /// Whether a commit that nobody waits for must become durable.
    sync: bool,
    end: bool,
}

#[derive(Default)]
pub(crate) struct Signal {
    asked: Mutex<Asked>,
    woken: Condvar,
}

impl Signal {
    fn ask(&self, set: impl FnOnce(&mut Asked)) {
        set(&mut self.asked.lock());
        self.woken.notify_one();
    }

    /// There is work.
    pub fn work(&self) {
        self.ask(|asked| asked.work = true);
    }

    /// Commits must become durable.
    pub fn sync(&self) {
        self.ask(|asked| asked.sync = true);
    }

    pub fn end(&self) {
        self.ask(|asked| asked.end = true);
    }

    /// Waits until something is asked for: whether to make commits durable, and whether there is
    /// work. Both are taken, so that commits that keep asking for a flush do not delay maintenance.
    /// `None` at the end.
    pub fn wait(&self) -> Option<(bool, bool)> {
        let mut asked = self.asked.lock();
        while !asked.work && !asked.sync && !asked.end {
            self.woken.wait(&mut asked);
        }
        let taken = std::mem::take(&mut *asked);
        asked.end = taken.end;
        (!taken.end).then_some((taken.sync, taken.work))
    }
}
