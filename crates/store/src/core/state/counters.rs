// SPDX-License-Identifier: Apache-2.0
//! Counters since the opening. Part of `core.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of what was done since the opening.
#[derive(Default)]
pub(crate) struct Counters {
    pub puts: AtomicU64,
    pub deletes: AtomicU64,
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
    /// Dead elements that compaction dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped_elements.load(Ordering::Relaxed)
    }

    pub fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}
