// SPDX-License-Identifier: Apache-2.0
//! The translation table: it maps a logical page to its versions, and these to their places in the
//! log (paper D, 2.1).
//!
//! The table has one word per page, in chunks that double, so it grows without making readers wait.
//! A word points to the page's newest version, and versions point to older ones as long as a
//! snapshot needs them. The contents of a version never change. It may lose its bytes in DRAM once
//! it has a place in the log, and the cleaner may change that place.
//!
//! PLACE-1: a version has bytes, a place, or both. PLACE-2: a version that an open snapshot sees is
//! in the chain. PLACE-3: only the holder of the writer's lock changes a word or a chain.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crate::pages::inner::Inner;
use crate::pages::node::Page;
use crate::pages::resident::Dram;
use crate::sync::{ArcSwapOption, AtomicBool, AtomicU64, Mutex};

/// A page as of a commit.
pub(crate) struct Version {
    pub id: u32,
    /// The commit from which on the page has this version.
    pub commit: u64,
    /// The page no longer exists.
    pub freed: bool,
    /// There until the drop, which takes it apart.
    body: Option<ArcSwapOption<Page>>,
    /// Its place on the device; 0: it was not written yet.
    place: AtomicU64,
    /// The previous version, if it may be needed. It is rarely read, so a lock costs less than an
    /// exchange that waits for readers.
    older: Mutex<Option<Arc<Version>>>,
    /// Whether it was read since the queue last asked (`resident.rs`).
    pub used: AtomicBool,
    /// An inner page's keys as numbers, after it was read twice.
    pub inner: OnceLock<Box<Inner>>,
    dram: Arc<Dram>,
}

impl Version {
    /// A page as of `commit`, or its end.
    pub fn new(
        id: u32,
        commit: u64,
        page: Option<Arc<Page>>,
        older: Option<Arc<Version>>,
        dram: &Arc<Dram>,
    ) -> Version {
        let freed = page.is_none();
        if !freed {
            dram.count_resident(true);
            dram.count_unwritten(true);
        }
        Version::made(id, commit, freed, page, 0, older, dram)
    }

    /// A page that is only in the log, older than any snapshot.
    pub fn placed(id: u32, place: u64, dram: &Arc<Dram>) -> Version {
        dram.space.hold(place);
        dram.count_cold(true);
        Version::made(id, 0, false, None, place, None, dram)
    }

    fn made(
        id: u32,
        commit: u64,
        freed: bool,
        page: Option<Arc<Page>>,
        place: u64,
        older: Option<Arc<Version>>,
        dram: &Arc<Dram>,
    ) -> Version {
        Version {
            id,
            commit,
            freed,
            body: Some(ArcSwapOption::new(page)),
            place: AtomicU64::new(place),
            older: Mutex::new(older),
            used: AtomicBool::new(false),
            inner: OnceLock::new(),
            dram: Arc::clone(dram),
        }
    }

    pub fn place(&self) -> u64 {
        self.place.load(Ordering::Acquire)
    }

    /// The bytes in DRAM, if they are there.
    pub fn body(&self) -> &ArcSwapOption<Page> {
        self.body.as_ref().expect("only the drop takes it")
    }

    pub fn older(&self) -> Option<Arc<Version>> {
        self.older.lock().clone()
    }

    /// Sets the previous version.
    pub fn set_older(&self, version: Option<Arc<Version>>) {
        // The lock is released before anything is dropped.
        let _before = std::mem::replace(&mut *self.older.lock(), version);
    }

    /// Sets the version's place, or changes it; the old one is released.
    pub fn set_place(&self, place: u64) {
        self.dram.space.hold(place);
        let old = self.place.swap(place, Ordering::AcqRel);
        if old == 0 {
            self.dram.count_unwritten(false);
        }
        self.dram.space.release(old);
    }

    /// Drops the bytes if they were not read since the last call and can be read again. Returns
    /// whether it still has them.
    pub fn age(&self) -> bool {
        let was_read = self.used.swap(false, Ordering::Relaxed);
        (was_read || !self.drop_body()) && self.body().load().is_some()
    }

    /// Drops the bytes, if they can be read again.
    pub fn drop_body(&self) -> bool {
        if self.place() == 0 {
            return false;
        }
        let Some(page) = self.body().swap(None) else {
            return false;
        };
        self.dram.count_resident(false);
        self.dram.count_cold(true);
        self.dram.spare.give(page);
        true
    }

    /// Keeps bytes that were read, for the next reader.
    pub fn keep_body(&self, page: &Arc<Page>) {
        if self.body().swap(Some(Arc::clone(page))).is_none() {
            self.dram.count_resident(true);
            self.dram.count_cold(false);
        }
        self.dram.queue.enter(self.id);
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        if let Some(page) = self.body.take().and_then(ArcSwapOption::into_inner) {
            self.dram.count_resident(false);
            self.dram.spare.give(page);
        } else if !self.freed {
            self.dram.count_cold(false);
        }
        if self.place() == 0 && !self.freed {
            self.dram.count_unwritten(false);
        }
        self.dram.space.release(self.place());
        // A long chain must not be dropped by recursion.
        let mut next = self.older.get_mut().take();
        while let Some(version) = next {
            next = Arc::into_inner(version).and_then(|mut version| version.older.get_mut().take());
        }
    }
}

/// Numbers for pages.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    pub next: u32,
    pub free: Vec<u32>,
}

impl Ids {
    pub fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}
