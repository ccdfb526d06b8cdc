// SPDX-License-Identifier: Apache-2.0
//! The age of open snapshots, and the bytes of pages that are kept for them.

use std::time::{Duration, Instant};

use senko_io::PAGE_SIZE;

use crate::core::{Core, Entry};

/// An open snapshot or transaction.
///
/// ```
/// # let db = senko_dbm::example::database();
/// let now = db.snapshot();
/// let open = db.stats().snapshots;
/// assert_eq!((open.len(), open[0].commit, open[0].held_bytes), (1, now.commit(), 0));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenSnapshot {
    /// The number of the commit that it shows.
    pub commit: u64,
    /// The time since it was opened.
    pub age: Duration,
    /// Bytes of pages and long values that it can see and that newer snapshots cannot. A page that
    /// several snapshots see is counted for each of them.
    pub held_bytes: u64,
    /// Bytes of keys that others committed since a transaction began, for the comparison at its
    /// commit. Of all transactions, the oldest one's count. Snapshots have 0.
    pub overlap_bytes: u64,
}

impl Core {
    /// The open snapshots, oldest first. Pages with one version cost nothing here.
    pub fn open_snapshots(&self) -> Vec<OpenSnapshot> {
        let now = Instant::now();
        let writer = self.writer.lock();
        let mut open: Vec<OpenSnapshot> = {
            let registry = self.registry.lock();
            let newest = &registry.visible.node;
            let overlap = |open: &Entry| {
                let start = open.start.as_ref();
                start.map_or(0, |start| newest.bytes_since(start))
            };
            let open = registry.open.iter();
            open.map(|open| OpenSnapshot {
                commit: open.commit,
                age: now.saturating_duration_since(open.since),
                held_bytes: 0,
                overlap_bytes: overlap(open),
            })
            .collect()
        };
        if open.is_empty() {
            return open;
        }
        let mut held = |from: u64, below: u64, pages: u64| {
            let first = open.partition_point(|open| open.commit < from);
            for open in open[first..].iter_mut().take_while(|o| o.commit < below) {
                open.held_bytes += pages * PAGE_SIZE as u64;
            }
        };
        for id in &writer.chained {
            let mut newer = self.nodes.get(*id).and_then(|word| word.load_full());
            while let Some(version) = newer {
                newer = version.older();
                if let Some(older) = newer.as_ref().filter(|older| !older.freed) {
                    held(older.commit, version.commit, 1);
                }
            }
        }
        for limbo in &writer.limbo {
            held(0, limbo.commit, u64::from(limbo.blobs.1));
        }
        open
    }
}
