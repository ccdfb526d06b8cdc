// SPDX-License-Identifier: Apache-2.0
//! The version that readers see, and the time up to which they see it whole. Part of `core.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use crate::core::version::{Life, Version};

/// The current version.
pub(crate) struct View {
    version: ArcSwap<Version>,
    /// Held while the next version is made from the current one. The replaced versions that a
    /// reader may have.
    replaced: Mutex<Vec<Life>>,
    /// Every write up to this time is completely visible.
    visible: AtomicU64,
}

impl View {
    /// A view of an empty store.
    pub fn empty() -> View {
        View {
            version: ArcSwap::from_pointee(Version::empty()),
            replaced: Mutex::default(),
            visible: AtomicU64::new(0),
        }
    }

    /// The current version; it stays as it is while it is held.
    pub fn current(&self) -> Arc<Version> {
        self.version.load_full()
    }

    /// The current version for a short use, cheaper than [`View::current`].
    pub fn glance(&self) -> Guard<Arc<Version>> {
        self.version.load()
    }

    /// The time up to which every write is completely visible.
    pub fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes all writes up to `time` visible (WRITE-2).
    pub fn show(&self, time: u64) {
        self.visible.store(time, Ordering::Release);
    }

    /// As [`View::show`], unless a later time is already visible.
    pub fn show_at_least(&self, time: u64) {
        self.visible.fetch_max(time, Ordering::AcqRel);
    }

    /// A version, and the time up to which it has every write. If the active log is the same before
    /// and after, then no write up to that time is in a later log, and no log was trimmed for a
    /// later one.
    pub fn moment(&self) -> (Arc<Version>, u64) {
        let mut version = self.current();
        loop {
            let time = self.visible();
            let again = self.version.load();
            let first = |version: &Version| version.logs.first().map(|handle| handle.log.id());
            if first(&version) == first(&again) {
                return (version, time);
            }
            version = Guard::into_inner(again);
        }
    }

    /// Makes the next version from the current one with a change. Another thread that changes it at
    /// the same time waits for a moment.
    pub fn publish(&self, change: impl FnOnce(&mut Version)) {
        let mut replaced = self.replaced.lock();
        let mut next = self.current().next();
        change(&mut next);
        let old = self.version.swap(Arc::new(next));
        replaced.retain(|life| !life.is_over());
        replaced.push(old.life());
    }

    /// The replaced versions that readers still have. What only they name has no other use.
    pub fn replaced(&self) -> Vec<Life> {
        let mut replaced = self.replaced.lock();
        replaced.retain(|life| !life.is_over());
        replaced.clone()
    }
}
