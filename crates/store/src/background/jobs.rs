// SPDX-License-Identifier: Apache-2.0
//! The background work of a store. One thread seals logs and compacts blocks, one merges maps, and
//! one writes full chunks of the active log.
//!
//! Without threads (`background: false`) [`Core::maintain`] does the same work. With or without
//! them, a writer that cannot continue takes a turn and does a piece itself. A failure ends writing
//! (CHANGE-2); readers continue.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::StoreError;
use crate::background::compact::{Reason, Victim};
use crate::core::Core;
use crate::core::state::requests::Work;
use crate::core::version::Version;
use crate::options::MAX_FROZEN;

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
            let working = core.requests.block_work();
            let done = core.block_piece();
            drop(working);
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
        held_back: bool,
    ) {
        let mut seen = 0;
        while let Some(idle) = self.requests.next(&mut seen, held_back) {
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
            self.requests.looked(work);
        }
    }

    /// Does the most urgent piece of work on blocks. The caller holds `block_work`.
    fn block_piece(&self) -> Result<Work, StoreError> {
        match self.prepare_spare() {
            Ok(true) => return Ok(Work::Done),
            // Compaction comes before sealing.
            Ok(false) | Err(StoreError::NoSpace(_)) => {}
            Err(error) => return Err(error),
        }
        let version = self.current();
        let (victims, reason) = self.victims(&version, false);
        let usage = self.usage(&version);
        let block_bytes = self.options.block_bytes;
        let excess = usage.excess(self.options.space_ratio, block_bytes) / usage.slack(block_bytes);
        self.pace.set_space(excess);
        let frozen = version.logs.len() > 1;
        // The compaction rate is kept by waiting between compactions, without the lock of block
        // work. So logs are sealed meanwhile, and do not cut the wait short.
        let held_back = self.requests.compaction_waits() && excess <= 0.5;
        // Logs wait for a few compactions at most, unless there is no space to seal them.
        let turns = self.requests.turns();
        let urgent = reason == Reason::Space && (turns < MOST_TURNS || excess > 1.0);
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
        match self.seal_one()? {
            true => Ok(Work::Done),
            false => Ok(Work::Nothing),
        }
    }

    /// Makes the next log before it is needed.
    fn prepare_spare(&self) -> Result<bool, StoreError> {
        // A writer that is at it takes its own next log, or needs the space.
        let Some(writer) = self.writer.try_lock() else {
            return Ok(false);
        };
        let mut manifests = self.manifests.lock();
        if self.spare.is_there() || !self.room_for_spare(&writer) {
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
        let _working = self.requests.block_work();
        self.piece_for_caller()
    }

    fn piece_for_caller(&self) -> Result<bool, StoreError> {
        match self.block_piece() {
            Ok(Work::Done) => Ok(true),
            Ok(Work::Nothing) => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Does a piece of work, or waits for the one under way, since too many logs wait to be sealed.
    /// False if there is nothing to do, or no space.
    pub fn work_off(&self) -> Result<bool, StoreError> {
        let _working = self.requests.block_work();
        if self.current().logs.len() <= MAX_FROZEN {
            return Ok(true);
        }
        match self.piece_for_caller() {
            Err(StoreError::NoSpace(_)) => Ok(false),
            other => other,
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
    /// emptiest block, which may have none.
    fn compact_what_fits(&self, version: &Version, victims: &[Victim]) -> Result<u64, StoreError> {
        match self.compact(version, victims) {
            Err(StoreError::NoSpace(_)) if victims.len() > 1 => {
                self.compact(version, &victims[..1])
            }
            other => other,
        }
    }

    /// Compacts blocks that waste space, until a compaction freed some or dropped elements; false
    /// if none did (ROOM-3). The caller holds `block_work`.
    pub fn compact_waste(&self, thorough: bool) -> Result<bool, StoreError> {
        let sets = self.wasteful(&self.current(), thorough);
        let state = |version: &Version| (self.usage(version).blocks, self.counters.dropped());
        for victims in sets {
            let version = self.current();
            if victims
                .iter()
                .any(|&(member, _)| version.block(member).is_none())
            {
                continue;
            }
            let before = state(&version);
            match self.compact(&version, &victims) {
                // The free space may be in pieces that are too short.
                Err(StoreError::NoSpace(_)) => continue,
                other => other?,
            };
            let after = state(&self.current());
            if after.0 < before.0 || after.1 > before.1 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::core::state::requests::NAP;
    use crate::extent::{UNIT_BYTES, UNIT_PAGES};

    #[test]
    fn idle_threads_sleep() {
        let device = senko_io::faulty::FaultyDevice::new(1 << 20, 1);
        let core = Arc::new(crate::open::open(device, Options::default()).unwrap());
        let threads = Threads::start(&core).unwrap();
        let looks = || core.requests.looks();
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
        let most = 6 + 2 * (start.elapsed().as_millis() / NAP.as_millis()) as u64;
        let counted = looks() - before;
        assert!(counted <= most, "{counted} looks, not {most}");
        threads.join(&core);
    }

    /// A writer without space and the map thread used to wake each other without a pause: 1.5
    /// million times in 30 seconds. Threads look for work when a piece was done, when a log was
    /// frozen, and after a nap.
    #[test]
    fn a_writer_without_space_wakes_nobody_in_vain() {
        let device = senko_io::faulty::FaultyDevice::new(10 << 8, 1);
        let options = Options {
            block_bytes: 1 << 20,
            ..Options::default()
        };
        let core = Arc::new(crate::open::open(device, options).unwrap());
        let threads = Threads::start(&core).unwrap();
        let start = Instant::now();
        let put =
            |key: u64| core.write_one(&key.to_be_bytes(), Some(&[1; 1000]), Default::default());
        let stored = (0..).take_while(|&key| put(key).is_ok()).count() as u64;
        for key in 0..stored {
            core.write_one(&key.to_be_bytes(), None, Default::default())
                .unwrap();
        }
        let counters = &core.counters;
        let count = |counter: &std::sync::atomic::AtomicU64| {
            counter.load(std::sync::atomic::Ordering::Relaxed)
        };
        let pieces =
            count(&counters.seals) + count(&counters.compactions) + count(&counters.merges);
        let naps = (start.elapsed().as_millis() / NAP.as_millis()) as u64;
        let (looks, most) = (core.requests.looks(), 2 * (3 * pieces + naps) + 10);
        assert!(stored > 1000 && looks <= most, "{looks} looks, not {most}");
        threads.join(&core);
    }

    /// Some layouts of blocks made a full store refuse a delete, in one test three of 33. The
    /// blocks that wasted the most did not fit into the free pieces together. So the first that
    /// fitted alone was moved, a small one, which freed nothing. No other was tried.
    #[test]
    fn a_block_that_frees_nothing_is_not_the_last_to_be_tried() {
        let options = Options {
            block_bytes: 1 << 20,
            background: false,
            cache_bytes: 0,
            ..Options::default()
        };
        let device = senko_io::faulty::FaultyDevice::new(128 * UNIT_PAGES, 1);
        let core = crate::open::open(device, options).unwrap();
        let put = |key: u64, value: &[u8]| {
            let put = core.write_one(&key.to_be_bytes(), Some(value), Default::default());
            put.unwrap();
        };
        // Two long blocks, and a small one that replaces half of their elements.
        for key in 0..60 {
            put(key, &[1; 30_000]);
            if key % 30 == 29 {
                core.seal_everything().unwrap();
            }
        }
        (0..60).step_by(2).for_each(|key| put(key, b"short"));
        core.seal_everything().unwrap();
        let blocks = || core.usage(&core.current()).blocks / UNIT_BYTES;
        let before = blocks();
        assert!((29..=33).contains(&before), "{before} units");
        // Free are nine units in a row, for the live half of a block, and eight single ones.
        let mut all: Vec<_> = std::iter::from_fn(|| core.allocate(UNIT_BYTES).ok()).collect();
        all.sort_by_key(|held| held.extent().first);
        let row = all
            .windows(9)
            .position(|row| row[8].extent().first - row[0].extent().first == 8 * UNIT_PAGES);
        drop(all.drain(row.unwrap()..row.unwrap() + 9));
        let mut nth = 0;
        all.retain(|_| {
            nth += 1;
            nth % 2 == 1 || nth > 16
        });
        assert_eq!(core.space.stored_bytes(), 17 * UNIT_BYTES);
        assert!(core.compact_waste(true).unwrap(), "{:?}", core.space);
        assert!(blocks() + 5 < before, "{} units, not {before}", blocks());
    }
}
