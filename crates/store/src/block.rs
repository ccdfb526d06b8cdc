// SPDX-License-Identifier: Apache-2.0
//! Sorted blocks: written once, read one page a look-up.
//!
//! A block lies in one extent. Data pages with the elements, sorted by the hash of their keys, come
//! first. Their head follows, with everything that is known about them. In DRAM a block is its
//! record and its page index, about 8 bits a page. A look-up goes
//!
//! ```text
//!   hash -> Block::find -> PageRun -> (any driver reads it) -> Block::search in its bytes
//! ```
//!
//! and only the driver does I/O. `docs/formats/store.md` has the bytes. There is no policy here:
//! the engine decides the purpose of a block, which of its elements are dead and when it is freed.
//!
//! Always holds: a finished block never changes. A reader trusts data on the device only after a
//! check of its checksum, which includes the block's id.

mod hash_list; // the hash list in the head: 19 bytes an element
mod frame; // header and checksum of a head page
mod head; // the head's pages
mod page; // a data page, and the look-up in a run's bytes
mod page_index; // from a hash to its pages, in DRAM
mod record; // what the manifest keeps
mod writer; // from elements in order to a block
mod scan; // from a block to its elements in order
mod verify; // every page, every order, every count

#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing; // what the fuzz targets call

use std::ops::Range;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

pub use hash_list::HashEntry;
pub use head::probe;
pub use page::{BadPage, FoundVersion, PAGE_HEADER, PageFormat, PageHead};
pub use page_index::PageIndex;
pub use record::{BlockRecord, MAX_PAGE_BYTES, MIN_PAGE_BYTES};
pub use scan::BlockScan;
pub use verify::{Problem, verify_block};
pub(crate) use writer::extent_bytes;
pub use writer::{BlockWriter, bytes_expected, bytes_needed};

use crate::element::ExtentRef;
use crate::{Hasher, KeyHash, SHARDS, StoreError};
use hash_list::ENTRIES_PER_PAGE;
use head::Meta;

/// Most bytes of a head that are read at once.
const HEAD_READ_BYTES: usize = 1 << 20;

/// Pages of the device that a look-up needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// The first page of the device.
    pub page: u64,
    /// Pages of the device; 0 if the block holds no element of that hash.
    pub pages: u32,
}

impl PageRun {
    /// Whether there is nothing to read: the hash lies outside of the block's range.
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Bytes to read.
    pub fn bytes(&self) -> usize {
        self.pages as usize * PAGE_SIZE
    }
}

/// An open sorted block: what is kept of it in DRAM.
#[derive(Clone, Debug)]
pub struct Block {
    record: BlockRecord,
    format: PageFormat,
    index: PageIndex,
    large: Box<[ExtentRef]>,
}

impl Block {
    fn new(meta: Meta) -> Block {
        Block {
            format: PageFormat::new(meta.record.id, meta.record.page_bytes as usize),
            record: meta.record,
            index: meta.index,
            large: meta.large.into(),
        }
    }

    /// Reads the head of a block, without its hash list.
    pub fn open(device: &dyn Device, record: &BlockRecord) -> Result<Block, StoreError> {
        Ok(Block::new(read_meta(device, record)?))
    }

    /// The manifest's record of the block.
    pub fn record(&self) -> &BlockRecord {
        &self.record
    }

    pub fn page_index(&self) -> &PageIndex {
        &self.index
    }

    /// The extents of large values that the block's elements name, in the elements' order.
    pub fn large(&self) -> &[ExtentRef] {
        &self.large
    }

    /// All DRAM that the block takes.
    pub fn bytes_in_dram(&self) -> usize {
        size_of::<Block>() + self.index.heap_bytes() + size_of_val::<[ExtentRef]>(&self.large)
    }

    /// The pages that hold every element of a hash, if the block has any. Usually this is one page.
    /// It is more for elements longer than a page, or if the versions of a key do not fit into one
    /// page. It is empty if the hash lies outside of the block's range.
    #[inline]
    pub fn find(&self, key: KeyHash) -> PageRun {
        let outside = key.order < self.record.first_order || key.order > self.record.last_order;
        let pages = self.index.find(key.order);
        let device_pages = self.record.device_pages();
        let count = if outside { 0 } else { pages.end - pages.first };
        PageRun {
            page: self.record.extent.first + u64::from(pages.first) * u64::from(device_pages),
            pages: count * device_pages,
        }
    }

    /// The newest version of `key` no newer than `at` in the bytes of the run that [`Block::find`]
    /// returned.
    pub fn search<'b>(
        &self,
        run: PageRun,
        bytes: &'b [u8],
        hash: KeyHash,
        key: &[u8],
        at: u64,
    ) -> Result<Option<FoundVersion<'b>>, StoreError> {
        debug_assert_eq!(run, self.find(hash), "the run of this hash");
        self.format
            .search(bytes, self.page_number(run), key, at)
            .map_err(|bad| damage(run.page, bad))
    }

    /// All versions of `key` in the bytes of the run that [`Block::find`] returned, newest first.
    pub fn versions<'b>(
        &self,
        run: PageRun,
        bytes: &'b [u8],
        hash: KeyHash,
        key: &[u8],
    ) -> Result<Vec<FoundVersion<'b>>, StoreError> {
        debug_assert_eq!(run, self.find(hash), "the run of this hash");
        self.format
            .versions(bytes, self.page_number(run), key)
            .map_err(|bad| damage(run.page, bad))
    }

    /// The newest time among the elements of the run whose key has this hash.
    pub(crate) fn newest_of_hash(
        &self,
        run: PageRun,
        bytes: &[u8],
        hash: KeyHash,
        hasher: &Hasher,
    ) -> Result<Option<u64>, StoreError> {
        self.format
            .newest_of(bytes, self.page_number(run), hash, hasher)
            .map_err(|bad| damage(run.page, bad))
    }

    /// The number in the block of a run's first page.
    fn page_number(&self, run: PageRun) -> u32 {
        let pages = run.page.saturating_sub(self.record.extent.first);
        (pages / u64::from(self.record.device_pages())) as u32
    }

    /// The hash list of a range of shards, in the elements' order: 19 bytes of reading and 32 of
    /// DRAM an element.
    pub fn hashes(
        &self,
        device: &dyn Device,
        shards: Range<usize>,
    ) -> Result<Vec<HashEntry>, StoreError> {
        let (record, tag) = (&self.record, Tag::store(Purpose::Reclaim));
        let shards = shards.start.min(SHARDS)..shards.end.min(SHARDS);
        if shards.is_empty() || record.elements == 0 {
            return Ok(Vec::new());
        }
        let damaged = |number: u32, what| StoreError::damaged(record.head_offset(number), what);
        let mut directory = None;
        read_head(device, record, 0..1, tag, |number, payload| {
            let read = head::directory(payload, record);
            directory = Some(read.map_err(|what| damaged(number, what))?);
            Ok(())
        })?;
        let directory = directory.expect("a head has a first page");
        let (from, to) = (directory.start(shards.start), directory.start(shards.end));
        let mut entries: Vec<HashEntry> = Vec::with_capacity(to - from);
        let mut shard = shards.start;
        let first = record.meta_pages + (from / ENTRIES_PER_PAGE) as u32;
        let end = record.meta_pages + to.div_ceil(ENTRIES_PER_PAGE) as u32;
        let pages = first..end.max(first);
        read_head(device, record, pages, tag, |number, payload| {
            let base = (number - record.meta_pages) as usize * ENTRIES_PER_PAGE;
            for nth in from.max(base)..to.min(base + ENTRIES_PER_PAGE) {
                shard = directory.shard_of(nth, shard);
                // Entries with equal hashes may be of different keys, so times are not compared.
                let entry = head::entry(payload, nth - base, shard)
                    .filter(|entry| entries.last().is_none_or(|last| last.key <= entry.key))
                    .ok_or_else(|| damaged(number, "the hash list is not in order"))?;
                entries.push(entry);
            }
            Ok(())
        })?;
        Ok(entries)
    }
}

/// Damage in a run that begins at a page of the device.
fn damage(page: u64, bad: BadPage) -> StoreError {
    StoreError::damaged(page * PAGE_SIZE as u64 + bad.at as u64, bad.what)
}

/// The most data pages of a block whose elements take this many bytes (BLOCK-2).
fn data_pages_bound(encoded_bytes: u64, page_bytes: usize) -> u64 {
    let payload = (page_bytes - PAGE_HEADER) as u64;
    (2 * encoded_bytes).div_ceil(payload) + 4
}

/// Reads the meta part of a block's head, and compares it with the record.
fn read_meta(device: &dyn Device, record: &BlockRecord) -> Result<Meta, StoreError> {
    let tag = Tag::store(Purpose::Recover);
    let damaged = |what: &str| StoreError::damaged(record.head_offset(0), what);
    let mut stream = Vec::new();
    read_head(device, record, 0..record.meta_pages, tag, |_, payload| {
        stream.extend_from_slice(payload);
        Ok(())
    })?;
    let meta = Meta::decode(&stream).map_err(damaged)?;
    if meta.record != *record {
        return Err(damaged(
            "the head belongs to another block than the manifest says",
        ));
    }
    Ok(meta)
}

/// Reads a range of head pages in bounded pieces, checks each, and passes its number and payload
/// on.
fn read_head(
    device: &dyn Device,
    record: &BlockRecord,
    pages: Range<u32>,
    tag: Tag,
    mut take: impl FnMut(u32, &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    if record.extent.end() > device.pages() {
        return Err(StoreError::damaged(
            device.pages() * PAGE_SIZE as u64,
            "the file ends before a block does",
        ));
    }
    let most = (HEAD_READ_BYTES / PAGE_SIZE) as u32;
    let mut buf = AlignedBuf::new(pages.len().min(most as usize));
    let mut next = pages.start;
    while next < pages.end {
        let count = (pages.end - next).min(most);
        let bytes = &mut buf[..count as usize * PAGE_SIZE];
        device
            .read(record.head() + u64::from(next), bytes, tag)
            .map_err(StoreError::io("reading the head of a block"))?;
        for (nth, page) in bytes.chunks(PAGE_SIZE).enumerate() {
            let number = next + nth as u32;
            let payload = frame::check(page, record.id, number)
                .map_err(|what| StoreError::damaged(record.head_offset(number), what))?;
            take(number, payload)?;
        }
        next += count;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
