// SPDX-License-Identifier: Apache-2.0
//! The parts of an open store.
//!
//! Each part owns its state. Its file in `state/` has all the code that changes it.
//!
//! Locks, always taken in this order: `writer` (appends); the turns of block work and map work (one
//! piece of work of each kind at a time); `manifests` (held during a write of the manifest);
//! `spare`; the swap of versions (for moments only); `requests` (work of the background). Readers
//! take none of them. A writer that continues in a prepared log does not wait for a commit of the
//! manifest. The background prepares a log only if nobody holds `writer`.
//!
//! Always holds:
//! - CHANGE-1: a change of blocks or logs is on flash (the manifest's commit) before a version
//!   shows it. Extents that a version no longer shows are released only after that.
//! - CHANGE-2: after a failed write or flush nothing is written any more (`health`); a failed flush
//!   is never tried again.

pub(crate) mod change; // a change of blocks and logs
pub(crate) mod pace; // how long writers wait
pub(crate) mod reserve; // the space that stays free
pub(crate) mod state; // the parts that change
pub(crate) mod version; // one state of the store, as readers see it

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, MutexGuard};
use senko_io::Device;

use crate::cache::record_cache::RecordCache;
use crate::core::pace::Pace;
use crate::core::state::counters::Counters;
use crate::core::state::health::Health;
use crate::core::state::logs::{Spare, Writer};
use crate::core::state::manifests::{Manifests, Target};
use crate::core::state::pins::Pins;
use crate::core::state::requests::Requests;
use crate::core::state::view::View;
use crate::core::version::{Generation, LogHandle, Version};
use crate::disk::large::LargeValues;
use crate::disk::mark::Mark;
use crate::disk::space::Space;
use crate::disk::wear::Wear;
use crate::log::Log;
use crate::{Hasher, Options, StoreError};

/// An open store.
pub(crate) struct Core {
    pub device: Arc<dyn Device>,
    pub options: Options,
    pub hasher: Hasher,
    pub space: Arc<Space>,
    pub view: View,
    pub writer: Mutex<Writer>,
    pub manifests: Mutex<Manifests>,
    pub spare: Spare,
    /// Bytes of the longest element, as far as it is known.
    pub longest: AtomicU64,
    pub requests: Requests,
    pub health: Health,
    pub mark: Mark,
    pub large: LargeValues,
    pub pins: Pins,
    pub pace: Pace,
    /// Records that look-ups had to read, if [`Options::cache_bytes`] is not 0.
    pub cache: Option<RecordCache>,
    pub counters: Counters,
    pub wear: Arc<Wear>,
    pub opened: Opened,
}

/// Facts about the opening.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opened {
    /// Microseconds that it took.
    pub took_us: u64,
    /// Whether the opening made the store.
    pub made: bool,
}

impl Core {
    /// The current version; it stays as it is while it is held.
    pub fn current(&self) -> Arc<Version> {
        self.view.current()
    }

    /// The generations of the first shard. Between merges all shards have the same ones.
    pub fn generations(&self) -> Vec<Arc<Generation>> {
        let version = self.current();
        let entries = version.shards[0].generations.iter();
        entries.map(|entry| Arc::clone(&entry.generation)).collect()
    }

    /// Latches after an error that leaves unknown what reached the device (CHANGE-2); returns the
    /// same error.
    pub fn failed(&self, error: StoreError) -> StoreError {
        self.health.failed(&error);
        if self.health.is_latched() {
            self.requests.ask();
        }
        error
    }

    /// The device and the places for a commit of the manifest.
    pub fn target(&self) -> Target<'_> {
        Target {
            device: &*self.device,
            space: &self.space,
            health: &self.health,
            visible: self.view.visible(),
        }
    }

    /// Commits the manifest, as it is now.
    pub fn commit(&self) -> Result<(), StoreError> {
        self.manifests.lock().commit(&self.target())
    }

    /// A new number for a log or block.
    pub fn next_id(&self) -> u64 {
        self.manifests.lock().take_id()
    }

    /// Makes an empty log and commits the manifest that names it.
    pub fn make_log(
        &self,
        manifests: &mut MutexGuard<'_, Manifests>,
    ) -> Result<Arc<LogHandle>, StoreError> {
        manifests.commit_with(&self.target(), |manifests| self.enter_log(manifests))
    }

    /// Makes an empty log and enters it into the manifest, which is still to be committed.
    fn enter_log(&self, manifests: &mut Manifests) -> Result<Arc<LogHandle>, StoreError> {
        // Counts as a commit: the manifest in memory may already name more than the durable one.
        let _latch = self.health.latch_on_panic();
        let bytes = self.options.log_bytes;
        let held = self.space.allocate_log(bytes)?;
        self.health.check_writable()?;
        let id = manifests.take_id();
        let (device, hasher) = (Arc::clone(&self.device), self.hasher.clone());
        let log = Log::create(device, id, held.extent(), hasher)?;
        manifests.add_log(id, &held);
        Ok(Arc::new(LogHandle::new(log, held)))
    }
}
