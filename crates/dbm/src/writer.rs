// SPDX-License-Identifier: Apache-2.0
//! The state of the thread that applies commits. One lock protects it, and nothing bypasses the
//! lock (`apply.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::blob::{Blob, BlobIds};
use crate::commit::Node;
use crate::dirty::Dirty;
use crate::mapping::Version;
use crate::table::Catalogue;
use crate::tail::Tail;
use crate::touched::Touched;

/// Numbers of one chunk of the translation table as it lies in the log.
pub(crate) const CHUNK: u32 = 500;

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

/// Something that is dropped when no snapshot before `commit` is open.
pub(crate) struct Limbo {
    pub commit: u64,
    pub node: Option<u32>,
    pub blobs: (u32, u32),
}

/// The state of the applying thread.
pub(crate) struct Writer {
    pub applied: Arc<Node>,
    pub catalogue: Arc<Catalogue>,
    pub next_table: u32,
    pub ids: Ids,
    pub blob_ids: BlobIds,
    pub limbo: VecDeque<Limbo>,
    /// Pages with more than one version.
    pub chained: FxHashSet<u32>,
    /// Pages that changed since a checkpoint wrote them.
    pub dirty: Dirty,
    /// Chunks of the translation table that the next checkpoint must write, besides those of the
    /// pages that it writes.
    pub changed: FxHashSet<u32>,
    pub changed_blobs: FxHashSet<u32>,
    /// Long values since the last checkpoint: the commit and the number of parts, by first part.
    pub born: BTreeMap<u32, (u64, u32)>,
    /// Changes that are not yet in the log.
    pub pending: Pending,
    /// Pages of the current batch. Between two batches: memory and a leaf for the next one.
    pub touched: Touched,
    /// Versions that a batch adds; empty, kept for its memory.
    pub heads: Vec<Arc<Version>>,
    /// Commits that snapshots need; kept for its memory.
    pub needed: Vec<u64>,
    /// Bytes of the list of commits when the open transactions were last looked at.
    pub overlap_checked: u64,
    /// Of transactions that ended: the nodes that they held. Dropped without the lock.
    pub ended: Vec<Arc<Node>>,
    pub tail: Option<Tail>,
    /// Whether the device was asked for memory.
    pub asked_for_tail: bool,
    /// Bytes of `pending` that are in the tail.
    pub in_tail: usize,
}

impl Writer {
    pub fn new(
        applied: Arc<Node>,
        catalogue: Catalogue,
        ids: Ids,
        blob_ids: BlobIds,
        dirty: Dirty,
    ) -> Writer {
        let next_table = catalogue.iter().map(|table| table.id + 1).max();
        Writer {
            applied,
            catalogue: Arc::new(catalogue),
            next_table: next_table.unwrap_or(1),
            ids,
            blob_ids,
            limbo: VecDeque::new(),
            chained: FxHashSet::default(),
            dirty,
            changed: FxHashSet::default(),
            changed_blobs: FxHashSet::default(),
            born: BTreeMap::new(),
            pending: Pending::default(),
            touched: Touched::default(),
            heads: Vec::new(),
            needed: Vec::new(),
            overlap_checked: 0,
            ended: Vec::new(),
            tail: None,
            asked_for_tail: false,
            in_tail: 0,
        }
    }
}

/// Parts of the translation table.
pub(crate) fn map_parts(ids: &Ids, blob_ids: &BlobIds) -> usize {
    (ids.next.div_ceil(CHUNK) + blob_ids.next.div_ceil(CHUNK)) as usize
}

#[derive(Default)]
pub(crate) struct Pending {
    pub bytes: Vec<u8>,
    /// Long values.
    pub blobs: Vec<(Blob, Arc<[u8]>)>,
    pub commit: u64,
}
