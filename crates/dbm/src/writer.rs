// SPDX-License-Identifier: Apache-2.0
//! Applies decided transactions to pages, and makes them visible to new snapshots.
//!
//! One thread at a time holds the [`Writer`] and applies all transactions of the list, whichever
//! threads own them. New versions of pages get the number of the batch's last commit, which no
//! snapshot sees yet. Then that number becomes visible in one step.
//!
//! APPLY-1: commits are applied, and go to the log, in the order of the list. APPLY-2: a snapshot
//! sees all of a batch or nothing of it.

pub(crate) mod backlog; // commits that are not in the log yet
pub(crate) mod changed; // what the next checkpoint must write
pub(crate) mod dirty; // pages that changed, oldest first
mod old; // what only open snapshots need
pub(crate) mod progress; // how far the commits came
pub(crate) mod readers; // the newest commit, and the open snapshots
pub(crate) mod room; // free pages that a commit needs
mod touched; // what a batch changes in the trees
mod tree;

use std::sync::Arc;

use crate::commit::Node;
use crate::disk::maps::CHUNK;
use crate::error::DbmError;
use crate::pages::Pages;
use crate::pages::mapping::{Ids, Version};
use crate::records::blob::MAX_INLINE;
use crate::records::blob::{Blob, BlobIds};
use crate::records::changes::Change;
use crate::records::changes::TableChange;
use crate::records::table::{Catalogue, TableInfo};
use crate::writer::backlog::Backlog;
use crate::writer::changed::Changed;
use crate::writer::old::Old;
use crate::writer::progress::Progress;
use crate::writer::readers::{Readers, Visible};
use crate::writer::room::Room;
use crate::writer::touched::Touched;
use crate::writer::tree::Batch;

/// Approximate bytes of changes in one batch.
const MOST_BYTES: usize = 4 << 20;

/// The state of the thread that applies commits.
pub(crate) struct Writer {
    applied: Arc<Node>,
    catalogue: Arc<Catalogue>,
    next_table: u32,
    ids: Ids,
    blob_ids: BlobIds,
    /// Pages of the current batch. Between two batches: memory and a leaf for the next one.
    touched: Touched,
    /// Versions that a batch adds; empty, kept for its memory.
    heads: Vec<Arc<Version>>,
    /// Commits that snapshots need; kept for its memory.
    needed: Vec<u64>,
    /// The most bytes of the list of commits that a transaction may hold, and the list's bytes when
    /// the open transactions were last looked at.
    most_overlap: u64,
    overlap_checked: u64,
    /// Of transactions that ended: the nodes that they held. Dropped without the lock.
    ended: Vec<Arc<Node>>,
    old: Old,
    /// Bytes of keys and values that were put since the database was made.
    pub put: u64,
    pub changed: Changed,
    pub backlog: Backlog,
}

/// The numbers that a database gave away.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    pub node: u32,
    pub blob: u32,
    pub table: u32,
}

impl Numbers {
    /// Parts of the translation table.
    pub fn map_parts(&self) -> usize {
        (self.node.div_ceil(CHUNK) + self.blob.div_ceil(CHUNK)) as usize
    }
}

/// What the writer changes besides itself.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub pages: &'a Pages,
    pub readers: &'a Readers,
    pub progress: &'a Progress,
    pub room: &'a Room,
}

/// The trees and the catalogue while changes are applied to them.
pub(crate) struct Changing<'a> {
    pub batch: Batch<'a>,
    pub catalogue: Arc<Catalogue>,
    /// As [`Writer::put`].
    pub put: u64,
}

impl Changing<'_> {
    fn table(&self, id: u32) -> Option<usize> {
        self.catalogue.binary_search_by_key(&id, |t| t.id).ok()
    }

    /// Applies one change. A change of a missing table has no effect: replay of a damaged log may
    /// contain one.
    pub fn change(&mut self, change: &Change<'_>) -> Result<(), DbmError> {
        let table = match *change {
            Change::CreateTable(id, name) => {
                let root = self.batch.root();
                let name = String::from_utf8_lossy(name).into();
                let table = TableInfo {
                    id,
                    name,
                    root,
                    count: 0,
                };
                let nth = self.catalogue.partition_point(|t| t.id < id);
                Arc::make_mut(&mut self.catalogue).insert(nth, table);
                return Ok(());
            }
            Change::Put(id, ..)
            | Change::PutLong(id, ..)
            | Change::Delete(id, _)
            | Change::DeleteRange(id, ..)
            | Change::DropTable(id) => id,
        };
        let Some(nth) = self.table(table) else {
            return Ok(());
        };
        let root = self.catalogue[nth].root;
        let put = match change {
            Change::Put(_, key, value) => (key.len() + value.len()) as u64,
            Change::PutLong(_, key, blob) => blob.bytes.saturating_add(key.len() as u64),
            _ => 0,
        };
        // A damaged superblock may count any number.
        self.put = self.put.saturating_add(put);
        let (more, fewer) = match *change {
            Change::Put(_, key, value) => (self.batch.put(root, key, value, false)?, 0),
            Change::PutLong(_, key, blob) => (self.batch.put(root, key, &blob.encode(), true)?, 0),
            Change::Delete(_, key) => (false, u64::from(self.batch.delete(root, key)?)),
            Change::DeleteRange(_, from, to) => (false, self.batch.delete_range(root, from, to)?),
            Change::DropTable(id) => {
                self.batch.drop_tree(root)?;
                Arc::make_mut(&mut self.catalogue).retain(|table| table.id != id);
                return Ok(());
            }
            Change::CreateTable(..) => (false, 0),
        };
        if more || fewer > 0 {
            let info = &mut Arc::make_mut(&mut self.catalogue)[nth];
            info.count = (info.count + u64::from(more)).saturating_sub(fewer);
        }
        Ok(())
    }
}

impl Writer {
    pub fn new(
        commit: u64,
        catalogue: Catalogue,
        next_table: u32,
        ids: Ids,
        blob_ids: BlobIds,
        changed: Changed,
        most_overlap: u64,
    ) -> Writer {
        let after_all = catalogue.iter().map(|table| table.id + 1).max();
        Writer {
            applied: Node::first(commit),
            catalogue: Arc::new(catalogue),
            next_table: after_all.unwrap_or(1).max(next_table),
            ids,
            blob_ids,
            touched: Touched::default(),
            heads: Vec::new(),
            needed: Vec::new(),
            most_overlap,
            overlap_checked: 0,
            ended: Vec::new(),
            old: Old::default(),
            put: 0,
            changed,
            backlog: Backlog::default(),
        }
    }

    /// What its commits made, as new snapshots see it.
    pub fn visible(&self) -> Visible {
        Visible {
            commit: self.applied.number(),
            node: Arc::clone(&self.applied),
            catalogue: Arc::clone(&self.catalogue),
        }
    }

    /// The newest commit that is applied.
    pub fn applied(&self) -> u64 {
        self.applied.number()
    }

    pub fn numbers(&self) -> Numbers {
        Numbers {
            node: self.ids.next,
            blob: self.blob_ids.next,
            table: self.next_table,
        }
    }

    pub fn old(&self) -> &Old {
        &self.old
    }

    /// The nodes of transactions that ended. Drop them without the lock: much may depend on them.
    #[must_use]
    pub fn take_ended(&mut self) -> Vec<Arc<Node>> {
        std::mem::take(&mut self.ended)
    }

    /// Applies a batch of commits of the list.
    pub fn apply(&mut self, parts: Parts<'_>) -> Result<(), DbmError> {
        let mut last = Arc::clone(&self.applied);
        let mut commits = 0;
        let bytes_before = self.backlog.bytes();
        let Writer {
            ids,
            blob_ids,
            next_table,
            touched,
            changed,
            backlog,
            ..
        } = self;
        let mut changing = Changing {
            batch: Batch::new(parts.pages, ids, touched),
            catalogue: Arc::clone(&self.catalogue),
            put: self.put,
        };
        let tables = *next_table;
        while let Some(node) = last.next().cloned() {
            // The node of a turn has no commit, and the number of the one before it.
            if node.number() > last.number() {
                let begun = backlog.begin(node.number());
                each_change(&node, blob_ids, next_table, |change, value| {
                    backlog.change(change);
                    if let (Change::PutLong(.., blob), Some(value)) = (change, value) {
                        let value: Arc<[u8]> = value.into();
                        parts.pages.keep_unwritten(blob, &value);
                        changed.born(blob.first, blob.parts());
                        backlog.long_value(*blob, value);
                    }
                    changing.change(change)
                })?;
                backlog.end(begun);
                commits += 1;
            }
            last = node;
            if backlog.bytes() - bytes_before > MOST_BYTES {
                break;
            }
        }
        let catalogue = changing.catalogue;
        self.put = changing.put;
        if *next_table > tables {
            parts.progress.make_table(last.number());
        }
        parts.room.set_unlogged(backlog.all_bytes());
        parts.progress.commit(commits);
        self.publish(parts, last, catalogue);
        Ok(())
    }

    /// Applies changes from a log to the trees, as one batch.
    pub fn replay(
        &mut self,
        parts: Parts<'_>,
        commit: u64,
        changes: &[Change<'_>],
    ) -> Result<(), DbmError> {
        parts.progress.write(commit);
        for change in changes {
            match *change {
                Change::PutLong(_, _, blob) => {
                    self.blob_ids.reserve(blob.first, blob.parts());
                    self.changed.born(blob.first, blob.parts());
                }
                Change::CreateTable(id, _) => {
                    self.next_table = self.next_table.max(id + 1);
                    parts.progress.make_table(commit);
                }
                _ => {}
            }
        }
        // An earlier replay may have ended with an error.
        self.touched = Touched::default();
        let mut changing = Changing {
            batch: Batch::new(parts.pages, &mut self.ids, &mut self.touched),
            catalogue: Arc::clone(&self.catalogue),
            put: self.put,
        };
        for change in changes {
            changing.change(change)?;
        }
        let catalogue = changing.catalogue;
        self.put = changing.put;
        self.publish(parts, Node::first(commit), catalogue);
        Ok(())
    }

    /// Adds the new versions, makes them visible to new snapshots, and drops versions that no
    /// snapshot needs.
    fn publish(&mut self, parts: Parts<'_>, node: Arc<Node>, catalogue: Arc<Catalogue>) {
        let commit = node.number();
        let Writer {
            touched,
            old,
            changed,
            blob_ids,
            heads,
            ..
        } = self;
        let dram = parts.pages.dram();
        touched.end();
        let freed = touched.freed.iter().map(|id| (*id, None));
        let pages = touched.pages.drain().map(|(id, page)| (id, Some(page)));
        for (id, page) in pages.chain(freed) {
            let before = parts.pages.newest(id);
            let is_new_page = before.is_none();
            let version = Arc::new(Version::new(id, commit, page, before, dram));
            if version.freed {
                old.page(commit, id);
                changed.freed_page(id);
            } else {
                changed.page(id, is_new_page || touched.shaped.contains(&id));
            }
            parts.pages.set(id, Some(Arc::clone(&version)));
            if !version.freed {
                dram.queue.enter(id);
            }
            if !is_new_page {
                heads.push(version);
            }
        }
        for (first, count) in touched.freed_blobs.drain(..) {
            let end = first.checked_add(count);
            if end.is_none_or(|end| end > blob_ids.next) {
                // Only a damaged record names such parts.
                continue;
            }
            // The next checkpoint no longer names them.
            changed.blobs(first, count);
            old.blobs(commit, (first, count));
        }
        touched.clear();
        let numbers = self.numbers();
        let (changed, map_parts) = (self.changed.counts(), numbers.map_parts());
        parts
            .room
            .set_trees(changed, numbers.node as usize, map_parts);
        // Looked at only now and then: it takes each open snapshot into account.
        let most = self.most_overlap;
        let is_due = node.bytes() - self.overlap_checked > most / 16;
        if is_due {
            self.overlap_checked = node.bytes();
        }
        self.applied = node;
        self.catalogue = catalogue;
        let (readers, visible) = (parts.readers, self.visible());
        let overlap = is_due.then_some(most);
        readers.publish(visible, &mut self.needed, overlap, &mut self.ended);
        for head in self.heads.drain(..) {
            self.old.prune(&head, &self.needed);
        }
        self.settle(parts, self.needed[0]);
        parts.pages.evict();
    }

    /// Frees numbers that no snapshot sees any more. The oldest one sees commit `oldest`.
    fn settle(&mut self, parts: Parts<'_>, oldest: u64) {
        let ids = (&mut self.ids, &mut self.blob_ids);
        let until = (oldest, parts.progress.written());
        self.old.settle(until, parts.pages, &mut self.changed, ids);
    }

    /// Drops what only closed snapshots needed: of these pages, and all numbers.
    pub fn sweep(&mut self, parts: Parts<'_>, pages: &[u32]) {
        let mut needed = std::mem::take(&mut self.needed);
        parts.readers.needed(&mut needed);
        for id in pages {
            self.old.prune_page(*id, &needed, parts.pages);
        }
        self.settle(parts, needed[0]);
        self.needed = needed;
    }

    /// The numbers of parts of long values that a checkpoint of a commit has not: parts written
    /// since it began, and deleted ones (CHECKPOINT-4). Sorted runs: the first, and the count.
    pub fn absent_blobs(&self, commit: u64) -> Vec<(u32, u32)> {
        let freed = self.old.freed_blobs(commit);
        let mut absent: Vec<(u32, u32)> = self.changed.newborn().chain(freed).collect();
        absent.sort_unstable();
        absent
    }
}

/// All changes of a transaction in the order in which they are made, long values with their bytes.
fn each_change(
    node: &Node,
    blob_ids: &mut BlobIds,
    next_table: &mut u32,
    mut work: impl FnMut(&Change<'_>, Option<&[u8]>) -> Result<(), DbmError>,
) -> Result<(), DbmError> {
    if let Some(rare) = &node.rare {
        if let Some(table) = &rare.table {
            work(&table.change(*next_table), None)?;
            if matches!(table, TableChange::Create { .. }) {
                *next_table += 1;
            }
        }
        for (table, (from, to)) in rare.ranges.iter() {
            work(&Change::DeleteRange(table, from, to), None)?;
        }
    }
    let changes = node.take_changes();
    let arena = &*changes.arena;
    for op in &changes.ops {
        let key = op.key.of(arena);
        match op.value.map(|value| value.of(arena)) {
            None => work(&Change::Delete(op.table, key), None)?,
            Some(value) if key.len() + value.len() <= MAX_INLINE => {
                work(&Change::Put(op.table, key, value), None)?;
            }
            Some(value) => {
                let mut blob = Blob {
                    bytes: value.len() as u64,
                    first: 0,
                    commit: node.number() as u32,
                };
                blob.first = blob_ids.take(blob.parts());
                work(&Change::PutLong(op.table, key, blob), Some(value))?;
            }
        }
    }
    Ok(())
}
