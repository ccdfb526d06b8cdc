// SPDX-License-Identifier: Apache-2.0
//! Pages and long values, as of a commit: from DRAM, or with one read.

pub(crate) mod inner; // an inner page as numbers, with the places of its leaves
pub(crate) mod lookup; // the way down a tree
pub(crate) mod mapping; // the translation table
pub(crate) mod node;
pub(crate) mod resident; // which pages' bytes leave DRAM next
pub(crate) mod spare; // page buffers without an owner

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::disk::entry::{HEAD, Head, Kind, page_of};
use crate::disk::space::Space;
use crate::error::DbmError;
use crate::growing::Growing;
use crate::pages::mapping::Version;
use crate::pages::node::Page;
use crate::pages::resident::Dram;
use crate::records::blob::Blob;
use crate::sync::{ArcSwapOption, AtomicU64, Mutex};

thread_local! {
    /// A thread's read buffer. New memory for each read would make all threads wait for the
    /// kernel's lock on the process's mappings.
    static FRAME: RefCell<AlignedBuf> = RefCell::new(AlignedBuf::new(1));
}

pub(crate) struct Pages {
    device: Arc<dyn Device>,
    dram: Arc<Dram>,
    /// The translation table (`mapping.rs`).
    words: Growing<ArcSwapOption<Version>>,
    /// The place of each part of a long value.
    blobs: Growing<AtomicU64>,
    /// Long values that are not in the log yet.
    unwritten: Mutex<HashMap<u32, Arc<[u8]>>>,
    reads: AtomicU64,
}

impl Pages {
    pub fn new(device: &Arc<dyn Device>, space: &Arc<Space>, cache_bytes: usize) -> Pages {
        Pages {
            device: Arc::clone(device),
            dram: Arc::new(Dram::new(space, cache_bytes / PAGE_SIZE)),
            words: Growing::new(),
            blobs: Growing::new(),
            unwritten: Mutex::default(),
            reads: AtomicU64::new(0),
        }
    }

    /// Pages that were read from the device.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// The word of a page that exists or existed, for readers (PLACE-3).
    #[inline]
    pub fn word(&self, id: u32) -> Option<&ArcSwapOption<Version>> {
        self.words.get(id)
    }

    /// The newest version of a page.
    #[inline]
    pub fn newest(&self, id: u32) -> Option<Arc<Version>> {
        self.words.get(id)?.load_full()
    }

    /// The pages in DRAM.
    pub fn dram(&self) -> &Arc<Dram> {
        &self.dram
    }

    /// Sets the newest version of a page. Only with the writer's lock (PLACE-3).
    pub fn set(&self, id: u32, version: Option<Arc<Version>>) {
        self.words.at(id).store(version);
    }

    /// A copy of a page's bytes, for changes.
    pub fn copy(&self, page: &Page) -> Arc<Page> {
        self.dram.spare.filled(page.bytes())
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
    #[inline]
    pub fn page(&self, version: &Version) -> Result<Arc<Page>, DbmError> {
        if let Some(page) = version.body().load_full() {
            if !version.used.load(Ordering::Relaxed) {
                version.used.store(true, Ordering::Relaxed);
            }
            return Ok(page);
        }
        self.read(version)
    }

    /// Reads the bytes of a version.
    #[cold]
    fn read(&self, version: &Version) -> Result<Arc<Page>, DbmError> {
        loop {
            let place = version.place();
            let read = self.read_entry(place, Kind::Node, |bytes, _| {
                let bytes = bytes.try_into().expect("an entry is a page");
                let page = self.dram.spare.filled(bytes);
                let other = "a page of a tree has another number than belongs there";
                let fault = page.fault();
                match fault.or_else(|| (page.id() != version.id).then_some(other)) {
                    Some(fault) => Err(DbmError::damaged(page_of(place), fault)),
                    None => Ok(page),
                }
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
        for _ in 0..256 {
            if !self.dram.is_over() {
                return;
            }
            let Some(id) = self.dram.queue.leave() else {
                return;
            };
            let mut stays = false;
            let mut at = self.newest(id);
            while let Some(version) = at {
                stays |= version.age();
                at = version.older();
            }
            if stays {
                self.dram.queue.enter(id);
            }
        }
    }

    pub fn page_at(&self, id: u32, commit: u64) -> Result<Arc<Page>, DbmError> {
        let newest = self.words.get(id).map(|word| word.load());
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

    /// The version that a commit sees; `None` if the page does not exist.
    pub fn version_at(&self, id: u32, commit: u64) -> Option<Arc<Version>> {
        let mut at = self.newest(id);
        while let Some(version) = at {
            if version.commit <= commit {
                return (!version.freed).then_some(version);
            }
            at = version.older();
        }
        None
    }

    /// The place of a part of a long value; 0 if it has none.
    pub fn blob_place(&self, id: u32) -> u64 {
        let word = self.blobs.get(id);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// A part of a long value is in the log.
    pub fn place_blob(&self, id: u32, place: u64) {
        self.dram.space.hold(place);
        let old = self.blobs.at(id).swap(place, Ordering::AcqRel);
        self.dram.space.release(old);
    }

    /// The cleaner wrote a part of a long value again. False if another place is the newest.
    pub fn move_blob(&self, id: u32, from: u64, to: u64) -> bool {
        let word = self.blobs.at(id);
        let swapped = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_ok() {
            self.dram.space.hold(to);
            self.dram.space.release(from);
        }
        swapped.is_ok()
    }

    pub fn drop_blob(&self, id: u32) {
        if let Some(word) = self.blobs.get(id) {
            self.dram.space.release(word.swap(0, Ordering::AcqRel));
        }
    }

    /// Keeps a long value until the log has it.
    pub fn keep_unwritten(&self, blob: &Blob, value: &Arc<[u8]>) {
        self.unwritten.lock().insert(blob.first, Arc::clone(value));
    }

    /// The log has these long values.
    pub fn drop_unwritten(&self, blobs: &[(Blob, Arc<[u8]>)]) {
        let mut unwritten = self.unwritten.lock();
        for (blob, _) in blobs {
            unwritten.remove(&blob.first);
        }
    }

    /// The value of a record on a leaf.
    pub fn value(&self, leaf: &Page, nth: usize) -> Result<Vec<u8>, DbmError> {
        match leaf.value(nth) {
            (value, false) => Ok(value.to_vec()),
            (reference, true) => self.long_value(reference),
        }
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
            let part = loop {
                let place = self.blob_place(id);
                let read = self.read_entry(place, Kind::Blob, |page, head| {
                    let body = &page[HEAD..HEAD + usize::from(head.used)];
                    blob.part(id, body).map(<[u8]>::to_vec).ok_or_else(|| {
                        let what = "a part of a long value is not its own";
                        DbmError::damaged(page_of(place), what)
                    })
                });
                match read {
                    Err(_) if self.blob_place(id) != place => {}
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
