// SPDX-License-Identifier: Apache-2.0
//! What only open snapshots need: older versions of pages, and pages and long values that ended.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use senko_io::PAGE_SIZE;

use crate::pages::Pages;
use crate::pages::mapping::{Ids, Version};
use crate::records::blob::BlobIds;
use crate::writer::changed::Changed;
use crate::writer::readers::OpenSnapshot;

/// Something that is dropped when no snapshot before `commit` is open.
struct Limbo {
    commit: u64,
    node: Option<u32>,
    blobs: (u32, u32),
}

#[derive(Default)]
pub(crate) struct Old {
    limbo: VecDeque<Limbo>,
    /// Pages with more than one version.
    chained: FxHashSet<u32>,
}

impl Old {
    /// A page ended with a commit.
    pub fn page(&mut self, commit: u64, id: u32) {
        self.limbo.push_back(Limbo {
            commit,
            node: Some(id),
            blobs: (0, 0),
        });
    }

    /// The parts of a long value ended with a commit: the first, and the count.
    pub fn blobs(&mut self, commit: u64, blobs: (u32, u32)) {
        let node = None;
        self.limbo.push_back(Limbo {
            commit,
            node,
            blobs,
        });
    }

    /// The parts of long values that ended up to a commit and are still there.
    pub fn freed_blobs(&self, commit: u64) -> impl Iterator<Item = (u32, u32)> {
        let freed = self.limbo.iter().filter(move |it| it.commit <= commit);
        freed.map(|it| it.blobs)
    }

    /// The pages with more than one version.
    pub fn chained(&self) -> Vec<u32> {
        self.chained.iter().copied().collect()
    }

    /// Drops the versions of a page that no snapshot sees. `head` is its newest one.
    pub fn prune(&mut self, head: &Arc<Version>, needed: &[u64]) {
        if *needed == [head.commit] {
            // No snapshot reads an older one.
            head.set_older(None);
            self.chained.remove(&head.id);
            return;
        }
        let mut newer = Arc::clone(head);
        while let Some(version) = newer.older() {
            let nth = needed.partition_point(|seen| *seen < version.commit);
            if needed.get(nth).is_some_and(|seen| *seen < newer.commit) {
                newer = version;
            } else {
                newer.set_older(version.older());
            }
        }
        match head.older() {
            Some(_) => self.chained.insert(head.id),
            None => self.chained.remove(&head.id),
        };
    }

    /// As [`Old::prune`], for the newest version of a page that may have ended.
    pub fn prune_page(&mut self, id: u32, needed: &[u64], pages: &Pages) {
        match pages.newest(id) {
            Some(head) => self.prune(&head, needed),
            None => _ = self.chained.remove(&id),
        }
    }

    /// Frees numbers that no snapshot sees any more. A long value is released only when it is in
    /// the log, which has the commits up to `written`. Otherwise its parts would be added
    /// afterwards.
    pub fn settle(
        &mut self,
        (oldest, written): (u64, u64),
        pages: &Pages,
        changed: &mut Changed,
        (ids, blob_ids): (&mut Ids, &mut BlobIds),
    ) {
        let due = |limbo: &Limbo| {
            limbo.commit <= oldest && (limbo.blobs.1 == 0 || limbo.commit <= written)
        };
        while let Some(limbo) = self.limbo.front().filter(|limbo| due(limbo)) {
            let (node, (first, count)) = (limbo.node, limbo.blobs);
            self.limbo.pop_front();
            if let Some(id) = node {
                pages.set(id, None);
                self.chained.remove(&id);
                changed.place(id);
                ids.free.push(id);
            }
            if count > 0 {
                (first..first + count).for_each(|id| pages.drop_blob(id));
                changed.freed_blobs(first, count);
                blob_ids.give(first, count);
            }
        }
    }

    /// Adds the bytes that each of the open snapshots holds. Pages with one version cost nothing
    /// here.
    pub fn count_held(&self, open: &mut [OpenSnapshot], pages: &Pages) {
        if open.is_empty() {
            return;
        }
        let mut held = |from: u64, below: u64, pages: u64| {
            let first = open.partition_point(|open| open.commit < from);
            for open in open[first..].iter_mut().take_while(|o| o.commit < below) {
                open.held_bytes += pages * PAGE_SIZE as u64;
            }
        };
        for id in &self.chained {
            let mut newer = pages.newest(*id);
            while let Some(version) = newer {
                newer = version.older();
                if let Some(older) = newer.as_ref().filter(|older| !older.freed) {
                    held(older.commit, version.commit, 1);
                }
            }
        }
        for limbo in &self.limbo {
            held(0, limbo.commit, u64::from(limbo.blobs.1));
        }
    }
}
