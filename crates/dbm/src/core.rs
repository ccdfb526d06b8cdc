// SPDX-License-Identifier: Apache-2.0
//! The parts of an open database, and reading as of a commit.
//!
//! Locks, in the order in which they are taken: `maintenance`, `images`, `log`, `writer`,
//! `registry`. Readers take only `registry`, for a moment at their beginning and end.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::DbmError;
use crate::blob::Blob;
use crate::commit::Node;
use crate::entry::{HEAD, Head, Kind, page_of};
use crate::group::Group;
use crate::growing::Growing;
use crate::images::Images;
use crate::log::Log;
use crate::mapping::{Nodes, Version};
use crate::node::Page;
use crate::options::Options;
use crate::space::Space;
use crate::superblock::Superblock;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex};
use crate::table::Catalogue;
use crate::writer::{Writer, map_parts};

thread_local! {
    /// A thread's read buffer. New memory for each read would make all threads wait for the
    /// kernel's lock on the process's mappings.
    static FRAME: RefCell<AlignedBuf> = RefCell::new(AlignedBuf::new(1));
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
    /// The number of the snapshot.
    number: u64,
    pub since: Instant,
    pub expired: AtomicBool,
    /// Pages that were live when it began.
    pub live: u64,
}

/// An open snapshot, in the registry.
pub(crate) struct Entry {
    open: Arc<Open>,
    /// Of a transaction: the newest node in its snapshot. It holds the list of commits from there
    /// on.
    pub start: Option<Arc<Node>>,
}

impl Deref for Entry {
    type Target = Open;
    fn deref(&self) -> &Open {
        &self.open
    }
}

pub(crate) struct Registry {
    pub visible: Visible,
    /// In the order of opening, which is the order of their commits.
    pub open: VecDeque<Entry>,
    next: u64,
}

pub(crate) struct Core {
    pub device: Arc<dyn Device>,
    pub options: Options,
    pub space: Arc<Space>,
    pub nodes: Nodes,
    /// The place of each part of a long value.
    pub blobs: Growing<AtomicU64>,
    /// Long values that are not in the log yet.
    pub unwritten: Mutex<HashMap<u32, Arc<[u8]>>>,
    pub registry: Mutex<Registry>,
    /// The visible commit of `registry`, changed under its lock.
    pub newest: AtomicU64,
    pub writer: Mutex<Writer>,
    pub log: Mutex<Log>,
    pub maintenance: Mutex<Maps>,
    /// The segments for pages that checkpoints and the cleaner write.
    pub images: Mutex<Images>,
    /// The fork count at the opening; in a child process it is another.
    forks: u32,
    /// Why writing has ended.
    pub failed: OnceLock<String>,
    /// The newest durable commit, and the newest one handed to the device.
    pub durable: AtomicU64,
    /// The threads that wait for it.
    pub group: Group,
    pub written: AtomicU64,
    /// The newest commit in the memory beside the device.
    pub tailed: AtomicU64,
    /// Bytes of changes that are not in the log yet.
    pub unlogged: AtomicUsize,
    /// The signals to the thread: work, or the end.
    pub wake: Mutex<Wake>,
    pub woken: Condvar,
    /// Approximate number of pages that changed since a checkpoint wrote them.
    pub dirty: AtomicUsize,
    /// Those of them that the next checkpoint must write.
    pub shaped: AtomicUsize,
    /// The most pages that the checkpoint under way must write.
    pub due: AtomicUsize,
    /// Approximate number of pages of all trees.
    pub pages: AtomicUsize,
    /// Most parts of the translation table that a checkpoint may have to write.
    pub map_parts: AtomicUsize,
    /// Pages of the log for which commits under way were admitted.
    pub admitted: AtomicU64,
    pub commits: AtomicU64,
    pub conflicts: AtomicU64,
    pub reads: AtomicU64,
}

/// Where the translation table lies in the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapPlaces {
    pub nodes: Vec<u64>,
    pub blobs: Vec<u64>,
}

/// The contents of the newest durable checkpoint.
#[derive(Default)]
pub(crate) struct Maps {
    /// What names it.
    pub superblock: Option<Superblock>,
    pub places: MapPlaces,
    /// The place of each page of a tree.
    pub nodes: Vec<u64>,
    /// The place of each part of a long value.
    pub blobs: Vec<u64>,
}

#[derive(Default)]
pub(crate) struct Wake {
    pub due: bool,
    /// Whether a commit that nobody waits for must become durable.
    pub sync: bool,
    pub end: bool,
}

impl Registry {
    pub fn new(visible: Visible) -> Registry {
        Registry {
            visible,
            open: VecDeque::new(),
            next: 0,
        }
    }

    /// Adds the commits that open snapshots see, in ascending order and with the newest one, to
    /// `needed`.
    pub fn needed(&self, needed: &mut Vec<u64>) {
        needed.clear();
        needed.extend(self.open.iter().map(|open| open.commit));
        needed.push(self.visible.commit);
        needed.dedup();
    }

    /// Ends snapshots. Drop the result without the lock: much may depend on it.
    #[must_use]
    pub fn expire(&mut self, mut is_due: impl FnMut(&Entry) -> bool) -> Vec<Entry> {
        let mut ended = Vec::new();
        for entry in std::mem::take(&mut self.open) {
            if is_due(&entry) {
                entry.expired.store(true, Ordering::Release);
                ended.push(entry);
            } else {
                self.open.push_back(entry);
            }
        }
        ended
    }

    fn leave(&mut self, number: u64) -> Option<Entry> {
        if self.open.back()?.number == number {
            return self.open.pop_back();
        }
        let found = self.open.binary_search_by_key(&number, |open| open.number);
        self.open.remove(found.ok()?)
    }
}

/// A registered reader: the versions that it sees stay.
pub(crate) struct Seen {
    pub core: Arc<Core>,
    pub commit: u64,
    open: Arc<Open>,
    pub catalogue: Arc<Catalogue>,
    is_closed: bool,
}

impl Drop for Seen {
    fn drop(&mut self) {
        if !self.is_closed {
            let entry = self.core.registry.lock().leave(self.open.number);
            // Outside of the lock.
            drop(entry);
        }
    }
}

impl Seen {
    /// It was ended because it was too old.
    pub fn is_expired(&self) -> bool {
        self.open.expired.load(Ordering::Acquire)
    }

    /// Closes a transaction's snapshot. Returns the newest node in it, if it has not expired.
    pub fn close(&mut self) -> Option<Arc<Node>> {
        self.is_closed = true;
        let entry = self.core.registry.lock().leave(self.open.number);
        entry?.start
    }
}

impl Core {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        device: Arc<dyn Device>,
        options: Options,
        space: Arc<Space>,
        nodes: Nodes,
        blobs: Growing<AtomicU64>,
        commit: u64,
        writer: impl FnOnce(Arc<Node>) -> Writer,
        log: Log,
        images: Images,
        maps: Maps,
    ) -> Core {
        let node = Node::first(commit);
        let writer = writer(Arc::clone(&node));
        let (pages, map_parts) = (
            writer.ids.next as usize,
            map_parts(&writer.ids, &writer.blob_ids),
        );
        let visible = Visible {
            commit,
            catalogue: Arc::clone(&writer.catalogue),
            node: Arc::clone(&node),
        };
        Core {
            device,
            options,
            space,
            nodes,
            blobs,
            unwritten: Mutex::default(),
            registry: Mutex::new(Registry::new(visible)),
            newest: AtomicU64::new(commit),
            writer: Mutex::new(writer),
            log: Mutex::new(log),
            maintenance: Mutex::new(maps),
            images: Mutex::new(images),
            forks: senko_io::forks(),
            failed: OnceLock::new(),
            // What was read may be an earlier process's writes that no flush has covered.
            durable: AtomicU64::new(0),
            group: Group::default(),
            written: AtomicU64::new(commit),
            tailed: AtomicU64::new(commit),
            unlogged: AtomicUsize::new(0),
            wake: Mutex::default(),
            woken: Condvar::new(),
            dirty: AtomicUsize::new(0),
            shaped: AtomicUsize::new(0),
            pages: AtomicUsize::new(pages),
            map_parts: AtomicUsize::new(map_parts),
            admitted: AtomicU64::new(0),
            due: AtomicUsize::new(0),
            commits: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        }
    }

    /// Registers a reader of the newest commit.
    pub fn see(self: &Arc<Core>) -> Seen {
        self.register(false)
    }

    /// Registers a transaction, which holds the list of commits after its snapshot.
    pub fn see_to_change(self: &Arc<Core>) -> Seen {
        self.register(true)
    }

    fn register(self: &Arc<Core>, changes: bool) -> Seen {
        let since = Instant::now();
        let mut registry = self.registry.lock();
        let visible = &registry.visible;
        let (commit, catalogue) = (visible.commit, Arc::clone(&visible.catalogue));
        let start = changes.then(|| Arc::clone(&visible.node));
        let number = registry.next;
        registry.next += 1;
        let open = Arc::new(Open {
            commit,
            number,
            since,
            expired: AtomicBool::new(false),
            live: self.space.live.load(Ordering::Relaxed),
        });
        registry.open.push_back(Entry {
            open: Arc::clone(&open),
            start,
        });
        drop(registry);
        Seen {
            core: Arc::clone(self),
            commit,
            open,
            catalogue,
            is_closed: false,
        }
    }

    /// Ends writing, with the reason.
    pub fn latch(&self, error: &DbmError) {
        let _ = self.failed.set(error.to_string());
    }

    pub fn check(&self) -> Result<(), DbmError> {
        if senko_io::forks() != self.forks {
            let why = "the database belongs to the process that opened it, not to its child";
            return Err(DbmError::ReadOnly(why.to_owned()));
        }
        match self.failed.get() {
            Some(why) => Err(DbmError::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }

    /// Reads the entry that a place names, and passes it to `work` if it is intact.
    fn read_entry<T>(
        &self,
        place: u64,
        kind: Kind,
        work: impl FnOnce(&[u8], Head) -> Result<T, DbmError>,
    ) -> Result<T, DbmError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let number = page_of(place);
        FRAME.with_borrow_mut(|page| {
            self.device
                .read(number, page, Tag::dbm(Purpose::Lookup))
                .map_err(DbmError::io("reading a page"))?;
            match Head::read(page) {
                Some(head) if head.kind != kind || !head.is_at(place) => {
                    let what = "a page holds another entry than the one that belongs there";
                    Err(DbmError::damaged(number, what))
                }
                Some(head) => work(page, head),
                None => Err(DbmError::damaged(number, "a page is not whole")),
            }
        })
    }

    /// The bytes of a version.
    pub fn page(&self, version: &Version) -> Result<Arc<Page>, DbmError> {
        if let Some(page) = version.body().load_full() {
            if !version.used.load(Ordering::Relaxed) {
                version.used.store(true, Ordering::Relaxed);
            }
            return Ok(page);
        }
        loop {
            let place = version.place();
            let read = self.read_entry(place, Kind::Node, |bytes, _| {
                let spare = &self.space.spare;
                spare
                    .read(bytes)
                    .filter(|page| page.id() == version.id)
                    .ok_or_else(|| {
                        let what = "a page of a tree is not well formed";
                        DbmError::damaged(page_of(place), what)
                    })
            });
            match read {
                Ok(page) => {
                    version.keep_body(&page);
                    self.evict();
                    return Ok(page);
                }
                // The cleaner moved it during the read.
                Err(_) if version.place() != place => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Drops the bytes of pages that were not read recently, while there are too many.
    pub fn evict(&self) {
        let budget = self.options.cache_bytes / PAGE_SIZE;
        for _ in 0..256 {
            if self.space.resident.load(Ordering::Relaxed) <= budget {
                return;
            }
            let Some(id) = self.space.queue.leave() else {
                return;
            };
            let mut stays = false;
            let mut at = self.nodes.get(id).and_then(|word| word.load_full());
            while let Some(version) = at {
                stays |= version.age();
                at = version.older();
            }
            if stays {
                self.space.queue.enter(id);
            }
        }
    }

    /// A page as of a commit.
    pub fn page_at(&self, id: u32, commit: u64) -> Result<Arc<Page>, DbmError> {
        let newest = self.nodes.get(id).map(|word| word.load());
        if let Some(Some(version)) = newest.as_deref() {
            if version.commit <= commit && !version.freed {
                return self.page(version);
            }
            let mut older = version.older();
            while let Some(version) = older.filter(|_| version.commit > commit) {
                if version.commit <= commit {
                    if version.freed {
                        break;
                    }
                    return self.page(&version);
                }
                older = version.older();
            }
        }
        let what = format!("page {id} of a tree is named and not there");
        Err(DbmError::damaged(0, what))
    }

    /// A long value, from the reference in its record.
    pub fn long_value(&self, reference: &[u8]) -> Result<Vec<u8>, DbmError> {
        let Some(blob) = Blob::parse(reference) else {
            let what = "a record has a reference to no long value";
            return Err(DbmError::damaged(0, what));
        };
        let mut value = Vec::new();
        for id in blob.numbers() {
            if let Some(whole) = self.unwritten.lock().get(&blob.first) {
                return Ok(whole.to_vec());
            }
            let place_now = || match self.blobs.get(id) {
                Some(word) => word.load(Ordering::Acquire),
                None => 0,
            };
            let part = loop {
                let place = place_now();
                let read = self.read_entry(place, Kind::Blob, |page, head| {
                    let body = &page[HEAD..HEAD + usize::from(head.used)];
                    blob.part(id, body).map(<[u8]>::to_vec).ok_or_else(|| {
                        let what = "a part of a long value is not its own";
                        DbmError::damaged(page_of(place), what)
                    })
                });
                match read {
                    Err(_) if place_now() != place => {}
                    other => break other?,
                }
            };
            value.extend_from_slice(&part);
        }
        if value.len() as u64 != blob.bytes {
            let what = "a long value has another length than its record says";
            return Err(DbmError::damaged(0, what));
        }
        Ok(value)
    }
}
