// SPDX-License-Identifier: Apache-2.0
//! What the store does on its own: one thread seals and compacts blocks, one merges maps, one writes what gathered in memory of the active log.
//!
//! Without threads (`background: false`) the same pieces of work are done by [`Core::maintain`], and by a writer that cannot go on otherwise.
//! A failure ends writing (C2); readers go on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::StoreError;
use crate::compact::Reason;
use crate::core::{Core, MAX_FROZEN};
use crate::version::{BlockHandle, Version};

/// How long the background waits before it looks again though nobody asked.
const NAP: Duration = Duration::from_millis(200);

/// Compactions that may go before a log that waits to be sealed.
const MOST_TURNS: u32 = 3;

/// Threads of a store; they end when told, and are joined on close.
pub(crate) struct Threads {
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    pub fn start(core: &Arc<Core>) -> std::io::Result<Threads> {
        let mut threads = Vec::new();
        for (name, work) in [
            ("senko-blocks", Core::block_thread as fn(&Core)),
            ("senko-maps", Core::map_thread),
            ("senko-log", Core::log_thread),
        ] {
            let core = Arc::clone(core);
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || {
                    let _latch = LatchOnPanic(&core);
                    work(&core);
                })?;
            threads.push(thread);
        }
        Ok(Threads { threads })
    }

    /// Waits for the pieces of work under way.
    pub fn join(self, core: &Core) {
        core.jobs.lock().stop = true;
        core.changed.notify_all();
        core.ask_to_write_chunks();
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// A thread that died would be waited for: writing ends instead.
pub(crate) struct LatchOnPanic<'c>(pub &'c Core);

impl Drop for LatchOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self
                .0
                .latch
                .set("a thread of the store panicked".to_owned());
            self.0.notify();
        }
    }
}

/// What a try to do a piece of work gave.
enum Work {
    Done,
    Nothing,
}

impl Core {
    fn block_thread(&self) {
        let piece = |core: &Core, _| {
            let done = core.block_piece();
            if matches!(done, Ok(Work::Nothing)) {
                core.shrink_if_idle();
            }
            done
        };
        self.work_until_stopped(piece, true);
    }

    /// Writes the active log's full chunks, so that an append does not have to.
    fn log_thread(&self) {
        loop {
            {
                let mut asked = self.chunks.lock();
                while !*asked {
                    self.chunks_wait.wait(&mut asked);
                }
                *asked = false;
            }
            if self.jobs.lock().stop {
                return;
            }
            if let Some(active) = self.current().logs.first()
                && let Err(error) = active.log.write_behind()
            {
                self.failed(error);
            }
        }
    }

    /// Tells the thread that writes chunks.
    pub fn ask_to_write_chunks(&self) {
        let mut asked = self.chunks.lock();
        if !std::mem::replace(&mut *asked, true) {
            self.chunks_wait.notify_one();
        }
    }

    fn map_thread(&self) {
        self.work_until_stopped(|core, idle| core.map_piece(idle), false);
    }

    /// Does pieces of work until there is none, waits until asked again, and so on.
    fn work_until_stopped(
        &self,
        piece: impl Fn(&Core, bool) -> Result<Work, StoreError>,
        counts: bool,
    ) {
        let mut seen = 0;
        let mut idle = false;
        loop {
            {
                let mut jobs = self.jobs.lock();
                // Whoever waits for work done shares the signal, so being woken alone says nothing.
                while jobs.asked == seen && !idle && !jobs.stop {
                    let held_back = jobs
                        .compact_from
                        .map(|from| from.saturating_duration_since(Instant::now()))
                        .filter(|wait| counts && !wait.is_zero());
                    let nap = held_back.map_or(NAP, |wait| wait.min(NAP));
                    let timed_out = self.changed.wait_for(&mut jobs, nap).timed_out();
                    idle = timed_out && jobs.asked == seen;
                }
                if jobs.stop {
                    return;
                }
                seen = jobs.asked;
            }
            let was_idle = std::mem::take(&mut idle);
            let result = if self.latch.get().is_some() {
                Ok(Work::Nothing)
            } else {
                piece(self, was_idle)
            };
            let mut jobs = self.jobs.lock();
            match result {
                Ok(Work::Done) => {
                    jobs.done += 1;
                    jobs.asked += 1;
                }
                Ok(Work::Nothing) | Err(StoreError::NoSpace(_)) => {
                    jobs.idle_looks += u64::from(counts);
                }
                Err(error) => {
                    let _ = self.latch.set(error.to_string());
                }
            }
            drop(jobs);
            self.changed.notify_all();
        }
    }

    /// One piece of work on blocks: what is most urgent.
    fn block_piece(&self) -> Result<Work, StoreError> {
        let _working = self.block_work.lock();
        match self.prepare_spare() {
            Ok(true) => return Ok(Work::Done),
            // Then compaction comes first.
            Ok(false) | Err(StoreError::NoSpace(_)) => {}
            Err(error) => return Err(error),
        }
        let version = self.current();
        let hurry = self.jobs.lock().hurry;
        let (mut victims, mut reason) = self.victims(&version, false);
        if hurry && reason != Reason::Space {
            // The bound is nearer than what the ratio allows.
            (victims, reason) = self.victims(&version, true);
        }
        let usage = self.usage(&version);
        let block_bytes = self.options.block_bytes;
        let excess = usage.excess(self.options.space_ratio, block_bytes) / usage.slack(block_bytes);
        self.pace.set_space(excess);
        let frozen = version.logs.len() > 1;
        // Held to its rate by waiting its turn, not with the lock of this work: logs are sealed meanwhile, and do not cut the wait short.
        let early = self.jobs.lock().compact_from;
        let held_back = early.is_some_and(|from| Instant::now() < from) && excess <= 0.5 && !hurry;
        // Logs wait for a few compactions at most, unless there is no room for what they hold.
        let turns = self.turns.load(Ordering::Relaxed);
        let urgent = reason == Reason::Space && (turns < MOST_TURNS || excess > 1.0 || hurry);
        if !victims.is_empty() && !held_back && (urgent || !frozen) {
            self.turns.store(turns + 1, Ordering::Relaxed);
            let started = Instant::now();
            let written = match reason {
                Reason::Small => self.compact(&version, &victims)?,
                _ => self.compact_what_fits(&version, &victims)?,
            };
            self.jobs.lock().hurry = false;
            if let Some(rate) = self.options.compaction_rate
                && excess <= 0.5
            {
                let due = Duration::from_secs_f64(written as f64 / rate.max(1) as f64);
                self.jobs.lock().compact_from = started.checked_add(due);
            }
            return Ok(Work::Done);
        }
        drop(version);
        self.turns.store(0, Ordering::Relaxed);
        if !frozen {
            return Ok(Work::Nothing);
        }
        match self.seal_one() {
            Ok(true) => Ok(Work::Done),
            Ok(false) => Ok(Work::Nothing),
            Err(StoreError::NoSpace(_))
                if hurry && !victims.is_empty() && reason != Reason::Small =>
            {
                self.compact_what_fits(&self.current(), &victims)?;
                Ok(Work::Done)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the next log before it is needed.
    fn prepare_spare(&self) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        if self.spare.lock().is_some() || self.options.read_only || !self.room_for_spare() {
            return Ok(false);
        }
        let made = self.make_log(&mut state)?;
        *self.spare.lock() = Some(made);
        Ok(true)
    }

    fn map_piece(&self, idle: bool) -> Result<Work, StoreError> {
        let _working = self.map_work.lock();
        let due = self.merge_due(idle);
        if self.merge(&due)? {
            return Ok(Work::Done);
        }
        Ok(Work::Nothing)
    }

    /// One piece of whatever there is to do; false if there is nothing.
    pub fn maintain(&self) -> Result<bool, StoreError> {
        self.check_writable()?;
        {
            let _working = self.map_work.lock();
            if self.merge(&self.merge_due(false))? {
                return Ok(true);
            }
        }
        match self.block_piece() {
            Ok(Work::Done) => Ok(true),
            Ok(Work::Nothing) => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Waits until a frozen log was sealed; false if that will not happen.
    pub fn wait_for_seal(&self) -> Result<bool, StoreError> {
        self.check_takes_writes()?;
        if !self.options.background {
            let _working = self.block_work.lock();
            return match self.seal_one() {
                Err(StoreError::NoSpace(why)) => match self.compact_emptiest()? {
                    true => Ok(true),
                    false => Err(StoreError::NoSpace(why)),
                },
                other => other,
            };
        }
        // It may have been sealed just before the wait began.
        if self.wait_for_work(false)? || self.current().logs.len() <= MAX_FROZEN {
            return Ok(true);
        }
        // With haste, compaction may find the space that is wanting.
        if self.wait_for_space()? {
            return Ok(true);
        }
        Err(StoreError::NoSpace(
            "the logs are full, and there is no space to seal one".to_owned(),
        ))
    }

    /// Gives the background the chance to free space; false if it has nothing to do.
    pub fn wait_for_space(&self) -> Result<bool, StoreError> {
        self.check_takes_writes()?;
        if !self.options.background {
            let _working = self.block_work.lock();
            return match self.seal_one() {
                Ok(true) => Ok(true),
                Ok(false) | Err(StoreError::NoSpace(_)) => self.compact_emptiest(),
                Err(error) => Err(error),
            };
        }
        self.wait_for_work(true)
    }

    /// Waits until the background did a piece of work; false if it looked, after this call, and could do nothing.
    fn wait_for_work(&self, hurry: bool) -> Result<bool, StoreError> {
        let mut jobs = self.jobs.lock();
        let (done, looks) = (jobs.done, jobs.idle_looks);
        jobs.hurry |= hurry;
        while !jobs.stop && jobs.done == done {
            // One look may have been under way.
            if jobs.idle_looks >= looks + 2 || self.latch.get().is_some() {
                jobs.hurry &= !hurry;
                return self.check_writable().map(|()| false);
            }
            jobs.asked += 1;
            self.changed.notify_all();
            self.changed.wait_for(&mut jobs, NAP);
        }
        drop(jobs);
        // The background stops only for a close.
        self.check_takes_writes().map(|()| true)
    }

    /// Compacts the emptiest blocks, whether there is need or not; false if all are full.
    pub fn compact_emptiest(&self) -> Result<bool, StoreError> {
        let version = self.current();
        let (victims, reason) = self.victims(&version, true);
        if victims.is_empty() || reason == Reason::Small {
            return Ok(false);
        }
        self.compact_what_fits(&version, &victims)?;
        Ok(true)
    }

    /// Compacts these; where there is no space for what lives in them, the emptiest alone: if nothing of it lives, it takes none.
    /// At last the place that is kept for a log serves, until a log's place is free again.
    fn compact_what_fits(
        &self,
        version: &Version,
        victims: &[(u32, Arc<BlockHandle>)],
    ) -> Result<u64, StoreError> {
        let mut done = self.compact(version, victims);
        if matches!(done, Err(StoreError::NoSpace(_))) && victims.len() > 1 {
            done = self.compact(version, &victims[..1]);
        }
        let given = || self.reserve.lock().take().is_some();
        if matches!(done, Err(StoreError::NoSpace(_))) && given() {
            done = self.compact(version, &victims[..1]);
        }
        done
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn idle_threads_sleep() {
        let device = senko_io::faulty::FaultyDevice::new(1 << 20, 1);
        let core = Arc::new(crate::open::open(device, Options::default()).unwrap());
        let threads = Threads::start(&core).unwrap();
        let looks = || core.jobs.lock().idle_looks;
        let start = Instant::now();
        while looks() == 0 {
            std::thread::sleep(NAP / 20);
        }
        let before = looks();
        // What others signal to each other is nothing to do.
        for _ in 0..100 {
            core.changed.notify_all();
            std::thread::sleep(NAP / 100);
        }
        let most = 3 + (start.elapsed().as_millis() / NAP.as_millis()) as u64;
        let counted = looks() - before;
        assert!(counted <= most, "{counted} looks, not {most}");
        threads.join(&core);
    }
}
