// SPDX-License-Identifier: Apache-2.0
//! The whole log in DRAM, in the order of a sorted block: the input of a seal and of a scan.
//!
//! The log is read once, from its first page to its last; the bytes of its elements and 16 bytes
//! more for each are kept.

use std::cmp::Ordering;

use senko_io::{PAGE_SIZE, Purpose, Tag};

use crate::element::{Element, ExtentRef, MORE};
use crate::{KeyHash, StoreError};

use super::Log;
use super::page::PageHeader;
use super::stream::{Assembler, Spot, Visitor, read_pages};

/// An element of [`Log::entries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Of its key.
    pub key: KeyHash,
    /// When it was written.
    pub time: u64,
    /// TOMBSTONE, EXPIRY, LARGE.
    pub flags: u8,
    /// Its first byte, from the start of the log.
    pub place: u32,
}

#[derive(Clone, Copy)]
struct Sorted {
    order: u64,
    check: u32,
    at: u32,
}

/// The elements of a log, sorted.
pub struct SortedLog {
    encoded: Vec<u8>,
    sorted: Vec<Sorted>,
}

impl SortedLog {
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Bytes of DRAM.
    pub fn bytes(&self) -> usize {
        self.encoded.capacity() + self.sorted.capacity() * size_of::<Sorted>()
    }

    /// The element with a number, in the order of [`SortedLog::iter`].
    pub fn get(&self, nth: usize) -> Option<(KeyHash, Element<'_>)> {
        let sorted = self.sorted.get(nth)?;
        let key = KeyHash {
            order: sorted.order,
            check: sorted.check,
        };
        Some((key, element(&self.encoded, sorted.at)))
    }

    /// The elements by (order, check, key), and of each key the youngest first. Of two of one key
    /// in one batch, the later comes first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (KeyHash, Element<'_>)> {
        self.sorted.iter().map(|sorted| {
            let key = KeyHash {
                order: sorted.order,
                check: sorted.check,
            };
            (key, element(&self.encoded, sorted.at))
        })
    }
}

fn element(encoded: &[u8], at: u32) -> Element<'_> {
    let (element, _) = Element::decode(&encoded[at as usize..]).expect("it was encoded here");
    element
}

/// Collects what a walk meets: `each` for every element of a whole batch.
struct Collect<'a> {
    log: &'a Log,
    encoded: Vec<u8>,
    entries: Vec<(LogEntry, u32)>,
    /// Entries of whole batches.
    whole: usize,
    keep_bytes: bool,
}

impl Visitor for Collect<'_> {
    fn element(&mut self, spot: Spot, element: &Element<'_>) -> Result<(), StoreError> {
        let flags = element.flags & !MORE;
        let entry = LogEntry {
            key: self.log.hasher.hash(element.key),
            time: element.time,
            flags,
            place: spot.place,
        };
        self.entries.push((entry, self.encoded.len() as u32));
        if self.keep_bytes {
            Element { flags, ..*element }.encode(&mut self.encoded);
        }
        Ok(())
    }

    fn whole(&mut self) {
        self.whole = self.entries.len();
    }

    fn void(&mut self) {
        self.entries.truncate(self.whole);
    }
}

impl Log {
    /// All elements of the log, sorted, in DRAM. Goes together with appends; what is appended
    /// meanwhile is in it or not, batch by batch.
    pub fn sorted(&self) -> Result<SortedLog, StoreError> {
        let collect = self.collect(true)?;
        let sorted = collect.entries.iter().map(|(entry, at)| Sorted {
            order: entry.key.order,
            check: entry.key.check,
            at: *at,
        });
        let mut sorted: Vec<Sorted> = sorted.collect();
        let encoded = collect.encoded;
        sorted.sort_unstable_by(|a, b| {
            let hashes = (a.order, a.check).cmp(&(b.order, b.check));
            if hashes != Ordering::Equal {
                return hashes;
            }
            let keys = element(&encoded, a.at).key.cmp(element(&encoded, b.at).key);
            // Elements further on are younger.
            keys.then(b.at.cmp(&a.at))
        });
        Ok(SortedLog { encoded, sorted })
    }

    /// Hash, time and place of all elements, in the order of appending. Reads the log.
    pub fn entries(&self) -> Result<Vec<LogEntry>, StoreError> {
        let collect = self.collect(false)?;
        Ok(collect
            .entries
            .into_iter()
            .map(|(entry, _)| entry)
            .collect())
    }

    /// Where the large values lie that its elements name. Reads the log, unless it has none.
    pub fn large(&self) -> Result<Vec<ExtentRef>, StoreError> {
        if !self.index.has_large() {
            return Ok(Vec::new());
        }
        let sorted = self.sorted()?;
        let large = sorted.iter().filter(|(_, element)| element.is_large());
        large
            .map(|(_, element)| {
                ExtentRef::decode(element.value).ok_or_else(|| {
                    let offset = self.extent.first * PAGE_SIZE as u64;
                    StoreError::damaged(offset, "a log's reference to a large value cannot be read")
                })
            })
            .collect()
    }

    fn collect(&self, keep_bytes: bool) -> Result<Collect<'_>, StoreError> {
        let (written, unwritten) = {
            let tail = self.tail.read();
            (tail.written(), tail.unwritten())
        };
        let bytes = written as usize * PAGE_SIZE + unwritten.len();
        let mut collect = Collect {
            log: self,
            encoded: Vec::with_capacity(if keep_bytes { bytes } else { 0 }),
            entries: Vec::with_capacity(self.elements() as usize),
            whole: 0,
            keep_bytes,
        };
        let mut assembler = Assembler::new(self.id, self.extent);
        let mut take = |page: &[u8]| {
            let number = assembler.next();
            let header = PageHeader::read(page, self.id, number).filter(|h| assembler.fits(h));
            let Some(header) = header else {
                let what = format!(
                    "log {}: page {number} is not what was written there",
                    self.id
                );
                return Err(StoreError::damaged(assembler.offset(number), what));
            };
            assembler.page(&header, page, &mut collect)
        };
        let tag = Tag::store(Purpose::Reclaim);
        read_pages(&*self.device, self.extent, written, tag, |_, page| {
            take(page).map(|()| true)
        })?;
        unwritten.chunks_exact(PAGE_SIZE).try_for_each(take)?;
        assembler.void(&mut collect);
        collect.void();
        Ok(collect)
    }
}
