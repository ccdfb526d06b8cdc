// SPDX-License-Identifier: Apache-2.0
//! The newest commit, and the open snapshots.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::commit::Node;
use crate::records::table::{Catalogue, Table};
use crate::sync::{AtomicBool, AtomicU64, Mutex};

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

/// The state that a new snapshot sees.
pub(crate) struct Visible {
    pub commit: u64,
    pub node: Arc<Node>,
    pub catalogue: Arc<Catalogue>,
}

/// An open snapshot.
pub(crate) struct Open {
    pub commit: u64,
    pub catalogue: Arc<Catalogue>,
    number: u64,
    since: Instant,
    expired: AtomicBool,
    /// Pages that were live when it began.
    live: u64,
}

impl Open {
    /// It was ended because it was too old.
    pub fn is_expired(&self) -> bool {
        self.expired.load(Ordering::Acquire)
    }
}

/// An open snapshot, in the registry.
struct Entry {
    open: Arc<Open>,
    /// Of a transaction: the newest node in its snapshot. It holds the list of commits from there
    /// on.
    start: Option<Arc<Node>>,
}

struct Registry {
    visible: Visible,
    /// In the order of opening, which is the order of their commits.
    open: VecDeque<Entry>,
    next: u64,
}

impl Registry {
    /// Ends snapshots. Drop the result without the lock: much may depend on it.
    #[must_use]
    fn expire(&mut self, is_due: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let mut ended = Vec::new();
        for entry in std::mem::take(&mut self.open) {
            if is_due(&entry) {
                entry.open.expired.store(true, Ordering::Release);
                ended.push(entry);
            } else {
                self.open.push_back(entry);
            }
        }
        ended
    }

    fn leave(&mut self, number: u64) -> Option<Entry> {
        if self.open.back()?.open.number == number {
            return self.open.pop_back();
        }
        let found = self
            .open
            .binary_search_by_key(&number, |entry| entry.open.number);
        self.open.remove(found.ok()?)
    }

    /// Adds the commits that open snapshots see, in ascending order and with the newest one, to
    /// `needed`.
    fn needed(&self, needed: &mut Vec<u64>) {
        needed.clear();
        needed.extend(self.open.iter().map(|entry| entry.open.commit));
        needed.push(self.visible.commit);
        needed.dedup();
    }
}

pub(crate) struct Readers {
    registry: Mutex<Registry>,
    /// The visible commit of `registry`, changed under its lock.
    newest: AtomicU64,
}

impl Readers {
    pub fn new(visible: Visible) -> Readers {
        Readers {
            newest: AtomicU64::new(visible.commit),
            registry: Mutex::new(Registry {
                visible,
                open: VecDeque::new(),
                next: 0,
            }),
        }
    }

    /// The newest commit.
    pub fn commit(&self) -> u64 {
        self.registry.lock().visible.commit
    }

    /// The newest node of the list of commits.
    pub fn node(&self) -> Arc<Node> {
        Arc::clone(&self.registry.lock().visible.node)
    }

    /// The tables as of the newest commit.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.registry.lock().visible.catalogue)
    }

    /// The newest commit, and the root of a table, if the table exists.
    #[inline]
    pub fn root(&self, table: &Table) -> Option<(u64, u32)> {
        let registry = self.registry.lock();
        let visible = &registry.visible;
        Some((visible.commit, table.find(&visible.catalogue)?.root))
    }

    /// Whether a commit is still the newest (NEWEST-1).
    #[inline]
    pub fn is_newest(&self, commit: u64) -> bool {
        self.newest.load(Ordering::Acquire) == commit
    }

    /// Registers a reader of the newest commit; one that `changes` holds the list of commits after
    /// it. `live` is the number of live pages.
    pub fn enter(&self, changes: bool, live: u64) -> Arc<Open> {
        let since = Instant::now();
        let mut registry = self.registry.lock();
        let visible = &registry.visible;
        let open = Arc::new(Open {
            commit: visible.commit,
            catalogue: Arc::clone(&visible.catalogue),
            number: registry.next,
            since,
            expired: AtomicBool::new(false),
            live,
        });
        let start = changes.then(|| Arc::clone(&visible.node));
        registry.next += 1;
        registry.open.push_back(Entry {
            open: Arc::clone(&open),
            start,
        });
        open
    }

    /// Ends a reader. Returns the newest node in a transaction's snapshot, if that has not expired.
    pub fn leave(&self, open: &Open) -> Option<Arc<Node>> {
        // It is dropped outside of the lock: much may depend on it.
        let entry = self.registry.lock().leave(open.number);
        entry?.start
    }

    /// Ends the snapshots that are older.
    pub fn end_older(&self, most: Duration) {
        let is_old = |entry: &Entry| entry.open.since.elapsed() > most;
        let ended = self.registry.lock().expire(is_old);
        drop(ended);
    }

    /// Makes a commit visible, and puts the commits that snapshots need into `needed`. With a most
    /// overlap, ends the transactions that hold more bytes of the list of commits. Their nodes go
    /// to `ended`, to be dropped without a lock.
    pub fn publish(
        &self,
        visible: Visible,
        needed: &mut Vec<u64>,
        most_overlap: Option<u64>,
        ended: &mut Vec<Arc<Node>>,
    ) {
        let mut registry = self.registry.lock();
        if let Some(most) = most_overlap {
            let node = &visible.node;
            let entries = registry.expire(|entry| {
                let start = entry.start.as_ref();
                start.is_some_and(|start| node.bytes_since(start) > most)
            });
            ended.extend(entries.into_iter().filter_map(|entry| entry.start));
        }
        let commit = visible.commit;
        registry.visible = visible;
        registry.needed(needed);
        // Before any version is dropped (NEWEST-1).
        self.newest.store(commit, Ordering::Release);
    }

    /// As [`Readers::publish`], without a new commit.
    pub fn needed(&self, needed: &mut Vec<u64>) {
        self.registry.lock().needed(needed);
    }

    /// The age of the oldest open snapshot, and the pages that were live when it began.
    pub fn oldest(&self) -> Option<(Duration, u64)> {
        let registry = self.registry.lock();
        let oldest = &registry.open.front()?.open;
        Some((oldest.since.elapsed(), oldest.live))
    }

    /// The open snapshots, oldest first, without the bytes that they hold.
    pub fn open(&self) -> Vec<OpenSnapshot> {
        let now = Instant::now();
        let registry = self.registry.lock();
        let newest = &registry.visible.node;
        let overlap = |start: &Arc<Node>| newest.bytes_since(start);
        let open = registry.open.iter();
        open.map(|entry| OpenSnapshot {
            commit: entry.open.commit,
            age: now.saturating_duration_since(entry.open.since),
            held_bytes: 0,
            overlap_bytes: entry.start.as_ref().map_or(0, overlap),
        })
        .collect()
    }
}
