// SPDX-License-Identifier: Apache-2.0
//! The translation table: from a logical page to its versions, and from there to their places in
//! the log (paper D, 2.1).
//!
//! One word a page, in chunks that double, so that the table grows and nobody who reads it waits. A
//! word leads to the page's newest version; versions lead to older
//! ones for as long as a snapshot needs them. A version never changes what it holds: it may lose
//! its bytes in DRAM once
//! it has a place in the log, and the cleaner may change that place.
//!
//! PLACE-1: bytes or place, at least one of them is there. PLACE-2: a version that an open snapshot
//! sees is in the chain. PLACE-3: only the holder of the writer's lock changes a word or a chain.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use crate::growing::Growing;
use crate::inner::Inner;
use crate::node::Page;
use crate::space::Space;

/// A page as of a commit.
pub(crate) struct Version {
    pub id: u32,
    /// The commit from which on the page is this.
    pub commit: u64,
    /// The page is no more.
    pub freed: bool,
    pub body: ArcSwapOption<Page>,
    /// Page of the device; 0: it was not written yet.
    place: AtomicU64,
    /// The version before, if anybody may need it.
    pub older: ArcSwapOption<Version>,
    /// Read since the hand came by.
    pub used: AtomicBool,
    /// An inner page's keys as numbers, once it was read twice.
    pub inner: OnceLock<Box<Inner>>,
    space: Arc<Space>,
}

impl Version {
    /// A page as of `commit`, or the end of one.
    pub fn new(
        id: u32,
        commit: u64,
        page: Option<Arc<Page>>,
        older: Option<Arc<Version>>,
        space: &Arc<Space>,
    ) -> Version {
        if page.is_some() {
            space.resident.fetch_add(1, Ordering::Relaxed);
        }
        Version::made(id, commit, page.is_none(), page, 0, older, space)
    }

    /// A page that lies in the log only, older than any snapshot.
    pub fn placed(id: u32, place: u64, space: &Arc<Space>) -> Version {
        space.hold(place);
        space.cold.fetch_add(1, Ordering::Relaxed);
        Version::made(id, 0, false, None, place, None, space)
    }

    fn made(
        id: u32,
        commit: u64,
        freed: bool,
        page: Option<Arc<Page>>,
        place: u64,
        older: Option<Arc<Version>>,
        space: &Arc<Space>,
    ) -> Version {
        Version {
            id,
            commit,
            freed,
            body: ArcSwapOption::new(page),
            place: AtomicU64::new(place),
            older: ArcSwapOption::new(older),
            used: AtomicBool::new(false),
            inner: OnceLock::new(),
            space: Arc::clone(space),
        }
    }

    pub fn place(&self) -> u64 {
        self.place.load(Ordering::Acquire)
    }

    /// Gives the version its place, or another; the old one is let go.
    pub fn set_place(&self, place: u64) {
        self.space.hold(place);
        self.space.release(self.place.swap(place, Ordering::AcqRel));
    }

    /// Drops the bytes, if they can be read again.
    pub fn drop_body(&self) -> bool {
        self.place() != 0
            && self.body.swap(None).is_some_and(|_| {
                self.space.resident.fetch_sub(1, Ordering::Relaxed);
                self.space.cold.fetch_add(1, Ordering::Relaxed);
                true
            })
    }

    /// Keeps bytes that were read, for the next who asks.
    pub fn keep_body(&self, page: &Arc<Page>) {
        if self.body.swap(Some(Arc::clone(page))).is_none() {
            self.space.resident.fetch_add(1, Ordering::Relaxed);
            self.space.cold.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        if self.body.load().is_some() {
            self.space.resident.fetch_sub(1, Ordering::Relaxed);
        } else if !self.freed {
            self.space.cold.fetch_sub(1, Ordering::Relaxed);
        }
        self.space.release(self.place());
        // A long chain must not be dropped by recursion.
        if self.older.load().is_none() {
            return;
        }
        let mut next = self.older.swap(None);
        while let Some(version) = next {
            next = Arc::try_unwrap(version)
                .ok()
                .and_then(|version| version.older.swap(None));
        }
    }
}

/// Words of node pages.
pub(crate) type Nodes = Growing<ArcSwapOption<Version>>;
