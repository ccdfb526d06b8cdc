// SPDX-License-Identifier: Apache-2.0
//! The background work of a store. One thread seals logs and compacts blocks, one merges maps, and
//! one writes full chunks of the active log.
//!
//! Without threads (`background: false`) [`Core::maintain`] does the same work, and so does a
//! writer that cannot continue otherwise. A failure ends writing (CHANGE-2); readers continue.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::StoreError;
use crate::compact::Reason;
use crate::core::Core;
use crate::options::MAX_FROZEN;
use crate::state::requests::{Waited, Work};
use crate::version::{BlockHandle, Version};

/// The number of compactions that may run before a waiting log is sealed.
const MOST_TURNS: u32 = 3;

/// The threads of a store; they end when told to, and closing the store joins them.
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
                    let _latch = core.health.latch_on_panic();
                    work(&core);
                })?;
            threads.push(thread);
        }
        Ok(Threads { threads })
    }

    /// Waits for the pieces of work under way.
    pub fn join(self, core: &Core) {
        core.requests.stop();
        for thread in self.threads {
            let _ = thread.join();
        }
    }
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

    /// Writes the active log's full chunks, so that appends need not.
    fn log_thread(&self) {
        while self.requests.wait_for_chunks() {
            if let Some(active) = self.current().logs.first()
                && let Err(error) = active.log.write_behind()
            {
                self.failed(error);
            }
        }
    }

    fn map_thread(&self) {
        self.work_until_stopped(|core, idle| core.map_piece(idle), false);
    }

    /// Does pieces of work until none is left, then waits for the next request.
    fn work_until_stopped(
        &self,
        piece: impl Fn(&Core, bool) -> Result<Work, StoreError>,
        counts: bool,
    ) {
        let mut seen = 0;
        while let Some(idle) = self.requests.next(&mut seen, counts) {
            let result = if self.health.is_latched() {
                Ok(Work::Nothing)
            } else {
                piece(self, idle)
            };
            let work = match result {
                Ok(work) => work,
                Err(StoreError::NoSpace(_)) => Work::Nothing,
                Err(error) => {
                    self.health.latch(error.to_string());
                    Work::Nothing
                }
            };
            self.requests.looked(work, counts);
        }
    }

    /// Does the most urgent piece of work on blocks.
    fn block_piece(&self) -> Result<Work, StoreError> {
        let _working = self.requests.block_work();
        match self.prepare_spare() {
            Ok(true) => return Ok(Work::Done),
            // Compaction comes before sealing.
            Ok(false) | Err(StoreError::NoSpace(_)) => {}
            Err(error) => return Err(error),
        }
        let version = self.current();
        let hurry = self.requests.hurry();
        let (mut victims, mut reason) = self.victims(&version, false);
        if hurry && reason != Reason::Space {
            // The bound on the file is nearer than the one that the ratio sets.
            (victims, reason) = self.victims(&version, true);
        }
        let usage = self.usage(&version);
        let block_bytes = self.options.block_bytes;
        let excess = usage.excess(self.options.space_ratio, block_bytes) / usage.slack(block_bytes);
        self.pace.set_space(excess);
        let frozen = version.logs.len() > 1;
        // The compaction rate is kept by waiting between compactions, without the lock of block
        // work. So logs are sealed meanwhile, and do not cut the wait short.
        let held_back = self.requests.compaction_waits() && excess <= 0.5 && !hurry;
        // Logs wait for a few compactions at most, unless there is no space to seal them.
        let turns = self.requests.turns();
        let urgent = reason == Reason::Space && (turns < MOST_TURNS || excess > 1.0 || hurry);
        if !victims.is_empty() && !held_back && (urgent || !frozen) {
            self.requests.set_turns(turns + 1);
            let started = Instant::now();
            let written = match reason {
                Reason::Small => self.compact(&version, &victims)?,
                _ => self.compact_what_fits(&version, &victims)?,
            };
            let rate = self.options.compaction_rate.filter(|_| excess <= 0.5);
            let next = rate.and_then(|rate| {
                let due = Duration::from_secs_f64(written as f64 / rate.max(1) as f64);
                started.checked_add(due)
            });
            self.requests.compacted(next);
            return Ok(Work::Done);
        }
        drop(version);
        self.requests.set_turns(0);
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
        let mut manifests = self.manifests.lock();
        if self.spare.is_there() || self.options.read_only || !self.room_for_spare() {
            return Ok(false);
        }
        let made = self.make_log(&mut manifests)?;
        self.spare.put(made);
        Ok(true)
    }

    fn map_piece(&self, idle: bool) -> Result<Work, StoreError> {
        let _working = self.requests.map_work();
        let due = self.merge_due(idle);
        if self.merge(&due)? {
            return Ok(Work::Done);
        }
        Ok(Work::Nothing)
    }

    /// Does one piece of any work that is due; false if there is none.
    pub fn maintain(&self) -> Result<bool, StoreError> {
        self.health.check_writable()?;
        {
            let _working = self.requests.map_work();
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
        self.health.check_takes_writes()?;
        if !self.options.background {
            let _working = self.requests.block_work();
            return match self.seal_one() {
                Err(StoreError::NoSpace(why)) => match self.compact_emptiest()? {
                    true => Ok(true),
                    false => Err(StoreError::NoSpace(why)),
                },
                other => other,
            };
        }
        // A log may have been sealed just before the wait began.
        if self.wait_for_work(false)? || self.current().logs.len() <= MAX_FROZEN {
            return Ok(true);
        }
        // With haste, compaction may free the missing space.
        if self.wait_for_space()? {
            return Ok(true);
        }
        Err(StoreError::NoSpace(
            "the logs are full, and there is no space to seal one".to_owned(),
        ))
    }

    /// Lets the background free space; false if it has nothing to do.
    pub fn wait_for_space(&self) -> Result<bool, StoreError> {
        self.health.check_takes_writes()?;
        if !self.options.background {
            let _working = self.requests.block_work();
            return match self.seal_one() {
                Ok(true) => Ok(true),
                Ok(false) | Err(StoreError::NoSpace(_)) => self.compact_emptiest(),
                Err(error) => Err(error),
            };
        }
        self.wait_for_work(true)
    }

    /// Waits until the background did a piece of work. False if it looked for work after this call
    /// and found none.
    fn wait_for_work(&self, hurry: bool) -> Result<bool, StoreError> {
        match self
            .requests
            .wait_for_work(hurry, || !self.health.is_latched())
        {
            Waited::InVain => self.health.check_writable().map(|()| false),
            // The background stops only for a close.
            Waited::Done | Waited::Stopped => self.health.check_takes_writes().map(|()| true),
        }
    }

    /// Compacts the emptiest blocks, whether necessary or not; false if all blocks are full.
    pub fn compact_emptiest(&self) -> Result<bool, StoreError> {
        let version = self.current();
        let (victims, reason) = self.victims(&version, true);
        if victims.is_empty() || reason == Reason::Small {
            return Ok(false);
        }
        self.compact_what_fits(&version, &victims)?;
        Ok(true)
    }

    /// Compacts these blocks. If there is no space for their live elements, it compacts only the
    /// emptiest block, which may have none. If even that fails, it uses the space kept for a log,
    /// until the space of a log is free again.
    fn compact_what_fits(
        &self,
        version: &Version,
        victims: &[(u32, Arc<BlockHandle>)],
    ) -> Result<u64, StoreError> {
        let mut done = self.compact(version, victims);
        if matches!(done, Err(StoreError::NoSpace(_))) && victims.len() > 1 {
            done = self.compact(version, &victims[..1]);
        }
        // Without an active log, this space is for the next log.
        let given = || !self.current().logs.is_empty() && self.reserve.give_up();
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
    use crate::state::requests::NAP;

    #[test]
    fn idle_threads_sleep() {
        let device = senko_io::faulty::FaultyDevice::new(1 << 20, 1);
        let core = Arc::new(crate::open::open(device, Options::default()).unwrap());
        let threads = Threads::start(&core).unwrap();
        let looks = || core.requests.idle_looks();
        let start = Instant::now();
        while looks() == 0 {
            std::thread::sleep(NAP / 20);
        }
        let before = looks();
        // These errors signal something between threads, and are not failures.
        for _ in 0..100 {
            core.requests.signal();
            std::thread::sleep(NAP / 100);
        }
        let most = 3 + (start.elapsed().as_millis() / NAP.as_millis()) as u64;
        let counted = looks() - before;
        assert!(counted <= most, "{counted} looks, not {most}");
        threads.join(&core);
    }
}
