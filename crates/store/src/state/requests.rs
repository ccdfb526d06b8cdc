// SPDX-License-Identifier: Apache-2.0
//! Requests to the background threads, and the threads that wait for them. Part of `core.rs`;
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
    /// Incremented when a piece of work is done.
    done: u64,
    /// Incremented when the block thread found no work, or no space to do it in.
    idle_looks: u64,
    /// When the rate limit allows the next compaction.
    compact_from: Option<Instant>,
    /// Someone waits for space, so compaction ignores its rate limit.
    hurry: bool,
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

/// The result of a wait for the background.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// A piece of work was done.
    Done,
    /// The background looked for work after the call, and could do nothing.
    InVain,
    /// The background stops.
    Stopped,
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

    /// Notes the result of a look for work. `counts`: waiting writers count this look.
    pub fn looked(&self, work: Work, counts: bool) {
        let mut jobs = self.asked.lock();
        match work {
            Work::Done => {
                jobs.done += 1;
                jobs.asked += 1;
            }
            Work::Nothing => jobs.idle_looks += u64::from(counts),
        }
        drop(jobs);
        self.changed.notify_all();
    }

    /// Waits until the background did a piece of work, while `goes_on` says that it can. `hurry`:
    /// compaction ignores its rate limit.
    pub fn wait_for_work(&self, hurry: bool, goes_on: impl Fn() -> bool) -> Waited {
        let mut jobs = self.asked.lock();
        let (done, looks) = (jobs.done, jobs.idle_looks);
        jobs.hurry |= hurry;
        while !jobs.stop && jobs.done == done {
            // One look may have been under way already.
            if jobs.idle_looks >= looks + 2 || !goes_on() {
                jobs.hurry &= !hurry;
                return Waited::InVain;
            }
            jobs.asked += 1;
            self.changed.notify_all();
            self.changed.wait_for(&mut jobs, NAP);
        }
        if jobs.stop {
            Waited::Stopped
        } else {
            Waited::Done
        }
    }

    /// Whether someone waits for space.
    pub fn hurry(&self) -> bool {
        self.asked.lock().hurry
    }

    /// Whether the rate limit holds compaction back.
    pub fn compaction_waits(&self) -> bool {
        let from = self.asked.lock().compact_from;
        from.is_some_and(|from| Instant::now() < from)
    }

    /// Notes that a compaction ended and no writer waits for space any more. `next`, if given, is
    /// the earliest start of the next one.
    pub fn compacted(&self, next: Option<Instant>) {
        let mut jobs = self.asked.lock();
        jobs.hurry = false;
        if next.is_some() {
            jobs.compact_from = next;
        }
    }

    /// How often the block thread found nothing to do.
    #[cfg(test)]
    pub fn idle_looks(&self) -> u64 {
        self.asked.lock().idle_looks
    }

    /// Wakes the background although there is no work.
    #[cfg(test)]
    pub fn signal(&self) {
        self.changed.notify_all();
    }
}
