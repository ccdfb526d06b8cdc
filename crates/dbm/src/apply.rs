// SPDX-License-Identifier: Apache-2.0
//! Applies decided transactions to pages, and makes them visible to new snapshots.
//!
//! One thread at a time holds the [`Writer`] and applies all transactions of the list, whichever
//! threads own them. New versions of pages get the number of the batch's last commit, which no
//! snapshot sees yet. Then that number becomes visible in one step.
//!
//! APPLY-1: commits are applied, and go to the log, in the order of the list. APPLY-2: a snapshot
//! sees all of a batch or nothing of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::DbmError;
use crate::blob::{Blob, BlobIds};
use crate::changes::{Change, begin_commit, end_commit};
use crate::commit::{Node, TableChange};
use crate::core::{Core, Visible};
use crate::log::GROUP_HEAD;
use crate::mapping::Version;
use crate::node::MAX_INLINE;
use crate::table::{Catalogue, TableInfo};
use crate::touched::Touched;
use crate::tree::Batch;
use crate::writer::{CHUNK, Limbo, Writer, map_parts};

/// Pages that are checked for old versions while the writer's lock is held once.
const SWEPT: usize = 64;
/// Approximate bytes of changes in one batch.
const MOST_BYTES: usize = 4 << 20;

/// The trees and the catalogue while changes are applied to them.
pub(crate) struct Changing<'a> {
    pub batch: Batch<'a>,
    pub catalogue: Arc<Catalogue>,
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

impl Core {
    /// Applies the commits of the list, until `until` is applied. With `tail`, returns whether
    /// `until` is in the tail then.
    pub fn apply_until(&self, until: u64, tail: bool) -> Result<bool, DbmError> {
        let mut writer = self.writer.lock();
        while writer.applied.number() < until {
            self.check()?;
            if let Err(error) = self.apply_some(&mut writer) {
                self.latch(&error);
                return Err(error);
            }
        }
        let is_in_tail = || self.tailed.load(Ordering::Acquire) >= until;
        if tail && !is_in_tail() {
            self.fill_tail(&mut writer);
        }
        // Another thread may have taken it for the log but not written it yet.
        let is_in_tail = tail && is_in_tail();
        let ended = std::mem::take(&mut writer.ended);
        drop(writer);
        // Outside of the lock: much may depend on them.
        drop(ended);
        Ok(is_in_tail)
    }

    fn apply_some(&self, writer: &mut Writer) -> Result<(), DbmError> {
        let mut last = Arc::clone(&writer.applied);
        let mut commits = 0;
        let bytes_before = writer.pending.bytes.len();
        let catalogue = Arc::clone(&writer.catalogue);
        let Writer {
            ids,
            blob_ids,
            pending,
            next_table,
            born,
            touched,
            ..
        } = writer;
        let mut changing = Changing {
            batch: Batch::new(self, ids, touched),
            catalogue,
        };
        while let Some(node) = last.next().cloned() {
            // The node of a turn has no commit, and the number of the one before it.
            if node.number() > last.number() {
                if pending.bytes.is_empty() {
                    // Room for the header of the group.
                    pending.bytes.extend_from_slice(&[0; GROUP_HEAD]);
                }
                let begun = begin_commit(&mut pending.bytes, node.number());
                each_change(&node, blob_ids, next_table, |change, value| {
                    change.encode(&mut pending.bytes);
                    if let (Change::PutLong(.., blob), Some(value)) = (change, value) {
                        let value: Arc<[u8]> = value.into();
                        self.unwritten.lock().insert(blob.first, Arc::clone(&value));
                        born.insert(blob.first, (node.number(), blob.parts()));
                        pending.blobs.push((*blob, value));
                    }
                    changing.change(change)
                })?;
                end_commit(&mut pending.bytes, begun);
                pending.commit = node.number();
                commits += 1;
            }
            last = node;
            if pending.bytes.len() - bytes_before > MOST_BYTES {
                break;
            }
        }
        let long: usize = pending.blobs.iter().map(|(_, value)| value.len()).sum();
        self.unlogged
            .store(pending.bytes.len() + long, Ordering::Relaxed);
        let catalogue = changing.catalogue;
        writer.applied = Arc::clone(&last);
        self.commits.fetch_add(commits, Ordering::Relaxed);
        self.publish(writer, last, catalogue);
        Ok(())
    }

    /// Applies changes from a log to the trees, as one batch.
    pub fn replay(&self, commit: u64, changes: &[Change<'_>]) -> Result<(), DbmError> {
        let mut writer = self.writer.lock();
        let writer = &mut *writer;
        let catalogue = Arc::clone(&writer.catalogue);
        self.written.store(commit, Ordering::Release);
        for change in changes {
            match *change {
                Change::PutLong(_, _, blob) => {
                    writer.blob_ids.reserve(blob.first, blob.parts());
                    writer.born.insert(blob.first, (commit, blob.parts()));
                }
                Change::CreateTable(id, _) => writer.next_table = writer.next_table.max(id + 1),
                _ => {}
            }
        }
        // An earlier replay may have ended with an error.
        writer.touched = Touched::default();
        let mut changing = Changing {
            batch: Batch::new(self, &mut writer.ids, &mut writer.touched),
            catalogue,
        };
        for change in changes {
            changing.change(change)?;
        }
        let catalogue = changing.catalogue;
        let node = Node::first(commit);
        writer.applied = Arc::clone(&node);
        self.publish(writer, node, catalogue);
        Ok(())
    }

    /// Adds the new versions, makes them visible to new snapshots, and drops versions that no
    /// snapshot needs.
    fn publish(&self, writer: &mut Writer, node: Arc<Node>, catalogue: Arc<Catalogue>) {
        let commit = node.number();
        let mut chained = std::mem::take(&mut writer.heads);
        let Writer {
            touched,
            limbo,
            dirty,
            changed,
            changed_blobs,
            blob_ids,
            ids,
            ..
        } = writer;
        touched.end();
        let freed = touched.freed.iter().map(|id| (*id, None));
        let pages = touched.pages.drain().map(|(id, page)| (id, Some(page)));
        for (id, page) in pages.chain(freed) {
            let word = self.nodes.at(id);
            let before = word.load_full();
            let is_new_page = before.is_none();
            let version = Arc::new(Version::new(id, commit, page, before, &self.space));
            if version.freed {
                limbo.push_back(Limbo {
                    commit,
                    node: Some(id),
                    blobs: (0, 0),
                });
            }
            let is_shaped = is_new_page || touched.shaped.contains(&id);
            if version.freed {
                dirty.forget(id);
                changed.insert(id / CHUNK);
            } else {
                dirty.change(id, is_shaped);
            }
            word.store(Some(Arc::clone(&version)));
            if !version.freed {
                self.space.queue.enter(id);
            }
            if !is_new_page {
                chained.push(version);
            }
        }
        self.dirty.store(dirty.len(), Ordering::Relaxed);
        self.shaped.store(dirty.shaped(), Ordering::Relaxed);
        self.pages.store(ids.next as usize, Ordering::Relaxed);
        let map_parts = map_parts(ids, blob_ids);
        self.map_parts.store(map_parts, Ordering::Relaxed);
        for blobs in touched.freed_blobs.drain(..) {
            let (first, count) = blobs;
            let end = first.checked_add(count);
            if end.is_none_or(|end| end > blob_ids.next) {
                // Only a damaged record names such parts.
                continue;
            }
            // The next checkpoint no longer names them.
            changed_blobs.extend(first / CHUNK..(first + count).div_ceil(CHUNK));
            let node = None;
            limbo.push_back(Limbo {
                commit,
                node,
                blobs,
            });
        }
        touched.clear();
        let mut needed = std::mem::take(&mut writer.needed);
        // Looked at only now and then: it takes each open snapshot into account.
        let most = self.options.overlap_bytes;
        let is_due = node.bytes() - writer.overlap_checked > most / 16;
        {
            let mut registry = self.registry.lock();
            if is_due {
                writer.overlap_checked = node.bytes();
                let ended = registry.expire(|open| {
                    let start = open.start.as_ref();
                    start.is_some_and(|start| node.bytes_since(start) > most)
                });
                writer
                    .ended
                    .extend(ended.into_iter().filter_map(|open| open.start));
            }
            registry.visible = Visible {
                commit,
                node,
                catalogue: Arc::clone(&catalogue),
            };
            registry.needed(&mut needed);
            // Before any version is dropped (NEWEST-1).
            self.newest.store(commit, Ordering::Release);
        }
        writer.catalogue = catalogue;
        for head in chained.drain(..) {
            self.prune(writer, &head, &needed);
        }
        writer.heads = chained;
        self.settle_limbo(writer, needed[0]);
        writer.needed = needed;
        self.evict();
    }

    /// Drops the versions of a page that no snapshot sees. `head` is its newest one.
    fn prune(&self, writer: &mut Writer, head: &Arc<Version>, needed: &[u64]) {
        if *needed == [head.commit] {
            // No snapshot reads an older one.
            head.set_older(None);
            writer.chained.remove(&head.id);
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
            Some(_) => writer.chained.insert(head.id),
            None => writer.chained.remove(&head.id),
        };
    }

    /// Frees page numbers that no snapshot sees any more.
    fn settle_limbo(&self, writer: &mut Writer, oldest: u64) {
        // A long value is released only when it is in the log. Otherwise its parts would be added
        // afterwards.
        let written = self.written.load(Ordering::Acquire);
        let due = |limbo: &mut Limbo| {
            limbo.commit <= oldest && (limbo.blobs.1 == 0 || limbo.commit <= written)
        };
        while let Some(limbo) = pop_front_if(&mut writer.limbo, due) {
            if let Some(id) = limbo.node {
                self.nodes.at(id).store(None);
                writer.chained.remove(&id);
                writer.changed.insert(id / CHUNK);
                writer.ids.free.push(id);
            }
            let (first, count) = limbo.blobs;
            for id in first..first + count {
                if let Some(word) = self.blobs.get(id) {
                    self.space.release(word.swap(0, Ordering::AcqRel));
                }
                writer.changed_blobs.insert(id / CHUNK);
            }
            if count > 0 {
                writer.blob_ids.give(first, count);
                writer.born.remove(&first);
            }
        }
    }

    /// Drops what only closed snapshots needed.
    pub fn sweep(&self) {
        let chained: Vec<u32> = self.writer.lock().chained.iter().copied().collect();
        let mut needed = Vec::new();
        // In parts, so that no commit waits for all of it.
        for ids in chained.chunks(SWEPT).chain([&[][..]]) {
            let mut writer = self.writer.lock();
            self.registry.lock().needed(&mut needed);
            for id in ids {
                match self.nodes.at(*id).load_full() {
                    Some(head) => self.prune(&mut writer, &head, &needed),
                    None => _ = writer.chained.remove(id),
                }
            }
            self.settle_limbo(&mut writer, needed[0]);
        }
    }
}

fn pop_front_if(
    limbo: &mut VecDeque<Limbo>,
    due: impl FnOnce(&mut Limbo) -> bool,
) -> Option<Limbo> {
    let front = limbo.front_mut()?;
    if due(front) { limbo.pop_front() } else { None }
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
