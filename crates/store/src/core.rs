// SPDX-License-Identifier: Apache-2.0
//! The parts of an open store, and the one place where its state changes.
//!
//! Locks, always taken in this order: `block_work` and `map_work` (one piece of work of each kind at a time), `writer` (who appends), `state`
//! (manifest and superblock; held while they are written), `spare`, `publish` (the swap of versions, for moments only), `jobs` (what the
//! background does). Readers take none of them, and a writer that goes on to a prepared log waits for no commit of the manifest.
//!
//! What always holds:
//! - C1: a change of what blocks or logs there are is on flash (the manifest's commit) before a version shows it, and what a version no longer
//!   shows is let go only after that.
//! - C2: after a failed write or flush nothing is written any more (`latched`); a failed flush is never tried again.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use parking_lot::{Condvar, Mutex};
use senko_io::Device;

use crate::block::bytes_expected;
use crate::change::Change;
use crate::jobs::LatchOnPanic;
use crate::log::Log;
use crate::pace::Pace;
use crate::record_cache::RecordCache;
use crate::snapshot::Pin;
use crate::space::{Extent, Held, Space};
use crate::superblock::{LogRecord, Manifest, Superblock};
use crate::version::{Generation, LogHandle, Version};
use crate::{Hasher, Options, StoreError};

/// Logs that may wait to be sealed before writers wait.
pub(crate) const MAX_FROZEN: usize = 3;

/// A log for the deletes of a full store is sealed when it takes one in so many of what others may
/// take: then there is space to compact a block, and the deletes free more.
const TIGHT: u64 = 5;

/// Milliseconds that the reads of an ended snapshot are waited for, at most.
const RELEASE_MS: u32 = 100;

/// Who appends.
pub(crate) struct Writer {
    /// The log that takes the writes; also the first of the version's. None in a store that is only read.
    pub active: Option<Arc<LogHandle>>,
    /// The time of the last write.
    pub last_time: u64,
    /// Pages of the active log when it was last looked at whether it is to take more (S6).
    pub looked_at: u32,
    /// It is not.
    pub full: bool,
    /// It was taken for deletes, though there is no room for it.
    pub tight: bool,
}

/// What the manifest says, and who changes it.
pub(crate) struct State {
    pub superblock: Superblock,
    pub manifest: Manifest,
    pub next_generation: u64,
    /// The saved index of the last clean close, as long as the manifest names it.
    pub saved_index: Option<Held>,
    /// Extents of logs that the recovery found lost, as long as the manifest on flash names them.
    pub retired: Vec<Held>,
}

/// What the background is asked to do.
#[derive(Default)]
pub(crate) struct Jobs {
    pub stop: bool,
    /// Counts up when something may be to do.
    pub asked: u64,
    /// Counts up when a piece of work is done.
    pub done: u64,
    /// Counts up when the thread of the blocks found nothing to do, or no space to do it in.
    pub idle_looks: u64,
    /// When the rate limit lets compaction go on.
    pub compact_from: Option<Instant>,
    /// Someone waits for space: compaction goes without its rate limit.
    pub hurry: bool,
}

/// Counts of what was done since the opening.
#[derive(Default)]
pub(crate) struct Counters {
    pub puts: AtomicU64,
    pub deletes: AtomicU64,
    pub bytes_put: AtomicU64,
    pub gets: AtomicU64,
    pub hits: AtomicU64,
    pub seals: AtomicU64,
    pub sealed_elements: AtomicU64,
    pub compactions: AtomicU64,
    pub compacted_elements: AtomicU64,
    pub dropped_elements: AtomicU64,
    pub merges: AtomicU64,
    pub merged_elements: AtomicU64,
    pub snapshots_expired: AtomicU64,
    pub throttled_us: AtomicU64,
}

impl Counters {
    pub fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// An open store.
pub(crate) struct Core {
    pub device: Arc<dyn Device>,
    pub options: Options,
    pub hasher: Hasher,
    pub space: Arc<Space>,
    pub version: ArcSwap<Version>,
    pub writer: Mutex<Writer>,
    pub state: Mutex<State>,
    /// An empty log, in the manifest, that can take writes at once.
    pub spare: Mutex<Option<Arc<LogHandle>>>,
    /// Space for a log, so that a full store still takes deletes.
    pub reserve: Mutex<Option<Held>>,
    /// Held while the next version is made of the current one.
    pub publish: Mutex<()>,
    pub jobs: Mutex<Jobs>,
    pub changed: Condvar,
    /// Whether full chunks of the active log wait to be written, and who is told.
    pub chunks: Mutex<bool>,
    pub chunks_wait: Condvar,
    /// Held while one thread works on blocks (seals or compacts), and while one merges maps.
    pub block_work: Mutex<()>,
    pub map_work: Mutex<()>,
    /// Compactions since the last seal.
    pub turns: AtomicU32,
    /// Time up to which every write can be seen whole.
    pub visible: AtomicU64,
    /// Why nothing is written any more.
    pub latch: OnceLock<String>,
    /// Extents of large values by their first page.
    pub large: Mutex<HashMap<u64, Weak<Held>>>,
    /// Snapshots, oldest first.
    pub pins: Mutex<VecDeque<Weak<Pin>>>,
    pub pace: Pace,
    /// Records that look-ups had to read, where [`Options::cache_bytes`] allows any.
    pub cache: Option<RecordCache>,
    pub counters: Counters,
    /// Microseconds that the opening took.
    pub open_us: u64,
    /// Whether the opening made the store.
    pub made: bool,
    pub closed: AtomicBool,
}

impl Core {
    /// The current version; it stays as it is while it is held.
    pub fn current(&self) -> Arc<Version> {
        self.version.load_full()
    }

    /// A version, and the time up to which it has every write: with the same active log before and after, no write up to the time is in a
    /// later log, and none was trimmed for a later one.
    pub fn moment(&self) -> (Arc<Version>, u64) {
        let mut version = self.current();
        loop {
            let time = self.visible.load(Ordering::Acquire);
            let again = self.version.load();
            let first = |version: &Version| version.logs.first().map(|handle| handle.log.id());
            if first(&version) == first(&again) {
                return (version, time);
            }
            version = Guard::into_inner(again);
        }
    }

    /// The generations of the first shard, which are those of all between merges.
    pub fn generations(&self) -> Vec<Arc<Generation>> {
        let version = self.current();
        let entries = version.shards[0].generations.iter();
        entries.map(|entry| Arc::clone(&entry.generation)).collect()
    }

    /// Refuses writes after a failure.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        match self.latch.get() {
            None => Ok(()),
            Some(cause) => Err(StoreError::ReadOnly(cause.clone())),
        }
    }

    /// Refuses what callers write, after a failure and from the beginning of a close on.
    pub fn check_takes_writes(&self) -> Result<(), StoreError> {
        self.check_writable()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::ReadOnly(crate::open::CLOSED.to_owned()));
        }
        Ok(())
    }

    /// Latches after an error that leaves unknown what reached the device (C2); gives the error back.
    pub fn failed(&self, error: StoreError) -> StoreError {
        if matches!(error, StoreError::Io { .. }) {
            let _ = self.latch.set(error.to_string());
            self.notify();
        }
        error
    }

    /// Wakes the background.
    pub fn notify(&self) {
        self.jobs.lock().asked += 1;
        self.changed.notify_all();
    }

    /// Commits `state`'s manifest, as it is now.
    pub fn commit(&self, state: &mut State) -> Result<(), StoreError> {
        self.check_writable()?;
        // A panic lets go of what the manifest names: the latch is set before anyone can take it.
        let _latch = LatchOnPanic(self);
        state.manifest.last_time = state
            .manifest
            .last_time
            .max(self.visible.load(Ordering::Acquire));
        state.manifest.index = None;
        let committed = state
            .superblock
            .commit(&*self.device, &self.space, &state.manifest);
        match committed {
            Ok(()) => {
                state.saved_index = None;
                state.retired.clear();
                Ok(())
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// A new number for a log or block.
    pub fn next_id(&self) -> u64 {
        let mut state = self.state.lock();
        state.manifest.next_id += 1;
        state.manifest.next_id - 1
    }

    /// The shared holder of a large value's extent that a log or block names.
    pub fn large_holder(&self, extent: Extent) -> Result<Arc<Held>, StoreError> {
        let mut large = self.large.lock();
        if let Some(held) = large.get(&extent.first).and_then(Weak::upgrade) {
            return Ok(held);
        }
        let held = Arc::new(self.space.claim(extent)?);
        large.insert(extent.first, Arc::downgrade(&held));
        Ok(held)
    }

    /// Registers a large value's extent that was just taken.
    pub fn register_large(&self, held: Held) -> Arc<Held> {
        let held = Arc::new(held);
        let mut large = self.large.lock();
        if large.len() > 64 && large.len().is_power_of_two() {
            large.retain(|_, held| held.strong_count() > 0);
        }
        large.insert(held.extent().first, Arc::downgrade(&held));
        held
    }

    /// Takes space; where there is none, the oldest snapshot ends, and another try is made.
    pub fn allocate(&self, bytes: u64) -> Result<Held, StoreError> {
        self.allocate_between(bytes, bytes)
    }

    /// Takes up to `most` bytes in one piece, and at least `least`; see [`Space::allocate_between`].
    pub fn allocate_between(&self, most: u64, least: u64) -> Result<Held, StoreError> {
        self.with_expiry(|space| space.allocate_between(most, least))
    }

    fn with_expiry(
        &self,
        take: impl Fn(&Arc<Space>) -> Result<Held, StoreError>,
    ) -> Result<Held, StoreError> {
        loop {
            match take(&self.space) {
                Err(StoreError::NoSpace(why)) => {
                    if !self.expire_oldest_snapshot() {
                        return Err(StoreError::NoSpace(why));
                    }
                }
                Ok(held) => {
                    // After a failure, extents are let go that the manifest on the device may name: none of them is given out. The latch is
                    // set before they are let go, so whoever got one sees it.
                    self.check_writable()?;
                    return Ok(held);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The most that a log takes as blocks, or a block when it is compacted.
    fn sealed_most(&self) -> u64 {
        let most = self.options.block_bytes.max(self.options.log_bytes);
        most + most / 4
    }

    /// Space in which a log is sealed and then a block compacted (S6 of `space.rs`), and manifests.
    /// The sealed log gives its own place to the compaction.
    pub fn work_bytes(&self) -> u64 {
        let most = self.options.block_bytes.max(self.options.log_bytes);
        self.sealed_most() + most / 4 + 4 * crate::options::UNIT_BYTES
    }

    /// Whether a log with `elements` and `bytes` more takes as much as a block as there is kept for
    /// it (S6); `tight`: for one that was taken though there is no room for it.
    pub fn seals_to_the_most(&self, log: &Log, tight: bool, elements: u64, bytes: u64) -> bool {
        let most = self.sealed_most();
        let most = if tight { most / TIGHT } else { most };
        self.sealed_bytes(log, elements, bytes) > most
    }

    /// Whether the place of a log is kept, and with it the space to seal a short log and then to
    /// compact a block.
    pub fn reserve_is_whole(&self) -> bool {
        let there = self.reserve.lock().is_some() || self.spare.lock().is_some();
        let bytes = self.work_bytes() - self.options.log_bytes;
        there && self.space.left_in_file(bytes) >= bytes
    }

    /// Bytes of the blocks that a log with `elements` and `bytes` more becomes.
    fn sealed_bytes(&self, log: &Log, elements: u64, bytes: u64) -> u64 {
        let elements = log.elements() + elements;
        bytes_expected(elements, log.bytes_used() + bytes, self.options.page_bytes)
    }

    /// Bytes that sealing all logs takes, beyond the places that they give back.
    fn sealing_bytes(&self) -> u64 {
        let version = self.current();
        let more = version.logs.iter().map(|handle| {
            let sealed = self.sealed_bytes(&handle.log, 0, 0);
            sealed.saturating_sub(self.options.log_bytes)
        });
        more.sum()
    }

    /// Whether a log can be prepared without taking the space in which logs are sealed.
    pub fn room_for_spare(&self) -> bool {
        let bytes = self.work_bytes() + self.options.log_bytes;
        self.space.left(bytes) >= bytes
    }

    /// Whether space is kept for deletes and compaction, before `bytes` are taken. A store that has
    /// nothing but its first log, on a file system with plenty of room, keeps none: its file stays
    /// small.
    pub fn keeps_reserve(&self, bytes: u64) -> bool {
        let version = self.current();
        let more = version.logs.len() > 1 || version.blocks().next().is_some();
        let reserve = self.work_bytes() + self.options.log_bytes;
        more || self.space.bounded() || !self.space.plenty(reserve.saturating_add(bytes))
    }

    /// Takes the space for a log that deletes need, where it is free in one piece.
    pub fn refill_reserve(&self) {
        if self.keeps_reserve(0) {
            let mut log = self.reserve.lock();
            if log.is_none() {
                *log = self.space.allocate_log(self.options.log_bytes).ok();
            }
            drop(log);
            self.record_storage();
        }
    }

    /// Makes the manifest on flash say that what the reserve relies on has storage (S4 of
    /// `space.rs`).
    fn record_storage(&self) {
        if self.space.unrecorded() && self.latch.get().is_none() {
            let mut state = self.state.lock();
            // After a failure the store is latched; without space there is another try.
            let _ = self.commit(&mut state);
        }
    }

    /// Makes sure that values leave what deletes and compaction need: a log, in one piece, a block
    /// and manifests, all of it in the file already, since the file system may be full when it is
    /// needed. Otherwise a full store could never be emptied. Where there is less, snapshots end
    /// and the background is given the chance to free some.
    pub fn leave_reserve(&self, bytes: u64) -> Result<(), StoreError> {
        let mut last_look = false;
        while self.keeps_reserve(bytes) {
            self.refill_reserve();
            let wanted = self.work_bytes() + self.sealing_bytes();
            let wanted = wanted.saturating_add(bytes);
            let enough = self.space.left_in_file(wanted) >= wanted;
            if enough && self.reserve.lock().is_some() {
                self.record_storage();
                break;
            }
            if last_look {
                return Err(StoreError::NoSpace(
                    "all but what deletes and compaction need is in use".to_owned(),
                ));
            }
            // While nothing could be done, a reader may have let go of what was wanting: one more look.
            last_look = !self.expire_oldest_snapshot() && !self.wait_for_space()?;
        }
        Ok(())
    }

    /// Ends the oldest snapshot, and waits for the reads under way in it, since its space is not free before; false if there is none.
    pub fn expire_oldest_snapshot(&self) -> bool {
        let Some(version) = self.end_oldest_pin() else {
            return false;
        };
        Counters::add(&self.counters.snapshots_expired, 1);
        if Arc::ptr_eq(&version, &self.current()) {
            return true;
        }
        let held = Arc::downgrade(&version);
        drop(version);
        // A piece of work may hold it too, and is not waited for.
        for _ in 0..RELEASE_MS {
            if held.strong_count() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    fn end_oldest_pin(&self) -> Option<Arc<Version>> {
        let mut pins = self.pins.lock();
        while let Some(pin) = pins.pop_front() {
            if let Some(version) = pin.upgrade().and_then(|pin| pin.expire()) {
                return Some(version);
            }
        }
        None
    }

    /// Swaps in a version with `change`, after the manifest with the same change is durable (C1).
    pub fn replace_blocks(&self, change: Change) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let before = state.manifest.clone();
        change.enter(&mut state.manifest, &self.current());
        // One more record in the same commit costs nothing. Without space there is none; whoever needs it will see.
        let spare = if self.spare.lock().is_none() && self.room_for_spare() {
            self.enter_log(&mut state).ok()
        } else {
            None
        };
        if let Err(error) = self.commit(&mut state) {
            state.manifest = before;
            if self.latch.get().is_some() {
                // The commit may have reached the device all the same: what it names keeps its place as long as the process lives.
                std::mem::forget((change, spare));
            }
            return Err(error);
        }
        if spare.is_some() {
            *self.spare.lock() = spare;
        }
        let generation = state.next_generation;
        state.next_generation += 1;
        let _publishing = self.publish.lock();
        let mut next = self.current().next();
        change.apply(&mut next, generation);
        self.version.store(Arc::new(next));
        Ok(())
    }

    /// Makes an empty log that the manifest names.
    pub fn make_log(&self, state: &mut State) -> Result<Arc<LogHandle>, StoreError> {
        let before = state.manifest.clone();
        let made = self.enter_log(state)?;
        if let Err(error) = self.commit(state) {
            state.manifest = before;
            if self.latch.get().is_some() {
                // As in `replace_blocks`.
                std::mem::forget(made);
            }
            return Err(error);
        }
        Ok(made)
    }

    /// Makes an empty log and enters it into the manifest, which is still to be committed.
    fn enter_log(&self, state: &mut State) -> Result<Arc<LogHandle>, StoreError> {
        // As in `commit`: the manifest may name more already than what is durable.
        let _latch = LatchOnPanic(self);
        let bytes = self.options.log_bytes;
        let held = self.with_expiry(|space| space.allocate_log(bytes))?;
        let id = state.manifest.next_id;
        let log = Log::create(
            Arc::clone(&self.device),
            id,
            held.extent(),
            self.hasher.clone(),
        )?;
        state.manifest.next_id += 1;
        state.manifest.logs.push(LogRecord {
            id,
            extent: held.extent(),
            pages: 0,
        });
        Ok(Arc::new(LogHandle {
            log,
            held,
            large: Mutex::new(Vec::new()),
        }))
    }
}
