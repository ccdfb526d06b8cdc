// SPDX-License-Identifier: Apache-2.0
//! Requests to the background threads, and the turns of all who do their work. Part of `core.rs`;
//! `jobs.rs` does the work.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// How long the background waits for a request before it looks for work anyway.
pub(crate) const NAP: Duration = Duration::from_millis(200);

/// The result of an attempt to do a piece of work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Done,
    Nothing,
}

#[derive(Default)]
struct Asked {
    stop: bool,
    /// Incremented when there may be work.
    asked: u64,
    /// Looks for work.
    looks: u64,
    /// When the rate limit allows the next compaction.
    compact_from: Option<Instant>,
}

/// Requests to the threads of the store, and the turns that they take.
#[derive(Default)]
pub(crate) struct Requests {
    asked: Mutex<Asked>,
    changed: Condvar,
    /// Whether full chunks of the active log wait to be written, and the signal for it.
    chunks: Mutex<bool>,
    chunks_wait: Condvar,
    /// Held while one thread works on blocks (seals or compacts), and while one merges maps.
    block_work: Mutex<()>,
    map_work: Mutex<()>,
    /// Compactions since the last seal.
    turns: AtomicU32,
}

impl Requests {
    /// The turn to seal or compact blocks.
    pub fn block_work(&self) -> MutexGuard<'_, ()> {
        self.block_work.lock()
    }

    /// The turn to merge maps.
    pub fn map_work(&self) -> MutexGuard<'_, ()> {
        self.map_work.lock()
    }

    /// Compactions since the last seal.
    pub fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Counts a compaction since the last seal.
    pub fn set_turns(&self, turns: u32) {
        self.turns.store(turns, Ordering::Relaxed);
    }

    /// Wakes the background.
    pub fn ask(&self) {
        self.asked.lock().asked += 1;
        self.changed.notify_all();
    }

    /// Makes the background end after the pieces of work under way.
    pub fn stop(&self) {
        self.asked.lock().stop = true;
        self.changed.notify_all();
        self.ask_to_write_chunks();
    }

    /// Whether the background is to end.
    pub fn stopping(&self) -> bool {
        self.asked.lock().stop
    }

    /// Wakes the thread that writes chunks.
    pub fn ask_to_write_chunks(&self) {
        let mut asked = self.chunks.lock();
        if !std::mem::replace(&mut *asked, true) {
            self.chunks_wait.notify_one();
        }
    }

    /// Waits until chunks must be written; false if the background ends.
    pub fn wait_for_chunks(&self) -> bool {
        let mut asked = self.chunks.lock();
        while !*asked {
            self.chunks_wait.wait(&mut asked);
        }
        *asked = false;
        drop(asked);
        !self.stopping()
    }

    /// Waits until there may be work that is newer than `seen`, or for the length of a nap. Returns
    /// whether the nap passed without a request, or `None` if the background ends. `held_back`: the
    /// nap ends when the compaction's rate limit does.
    pub fn next(&self, seen: &mut u64, held_back: bool) -> Option<bool> {
        let mut jobs = self.asked.lock();
        let mut idle = false;
        // Threads that wait for different work share the signal, so a wake-up alone does not mean
        // that there is work.
        while jobs.asked == *seen && !idle && !jobs.stop {
            let held_back = jobs
                .compact_from
                .map(|from| from.saturating_duration_since(Instant::now()))
                .filter(|wait| held_back && !wait.is_zero());
            let nap = held_back.map_or(NAP, |wait| wait.min(NAP));
            let timed_out = self.changed.wait_for(&mut jobs, nap).timed_out();
            idle = timed_out && jobs.asked == *seen;
        }
        if jobs.stop {
            return None;
        }
        *seen = jobs.asked;
        Some(idle)
    }

    /// Notes the result of a look for work. A piece of work may have made more, of either kind. A
    /// look that found none wakes nobody.
    pub fn looked(&self, work: Work) {
        let mut jobs = self.asked.lock();
        jobs.looks += 1;
        if work == Work::Done {
            jobs.asked += 1;
            drop(jobs);
            self.changed.notify_all();
        }
    }

    /// Whether the rate limit holds compaction back.
    pub fn compaction_waits(&self) -> bool {
        let from = self.asked.lock().compact_from;
        from.is_some_and(|from| Instant::now() < from)
    }

    /// Notes that a compaction ended; `next`, if given, is the earliest start of the next one.
    pub fn compacted(&self, next: Option<Instant>) {
        if next.is_some() {
            self.asked.lock().compact_from = next;
        }
    }

    /// How often the threads looked for work.
    #[cfg(test)]
    pub fn looks(&self) -> u64 {
        self.asked.lock().looks
    }

    /// Wakes the background although there is no work.
    #[cfg(test)]
    pub fn signal(&self) {
        self.changed.notify_all();
    }
}
