// SPDX-License-Identifier: Apache-2.0
//! Writes a sorted block. The writer takes elements in order, packs them into pages, and writes
//! pieces of 512 KiB to the device. It writes the head last.
//!
//! Idea: an element goes into the current page or, if it does not fit, begins the next. Two rules
//! keep a look-up at one page. Elements whose hashes share a cell of the page index are not parted:
//! the ones already in the page move to the next one with the newcomer. An element longer than a
//! page begins in its own page, or directly after the rest of another long one; small elements may
//! follow its rest. Source: paper A, 6.2 (figure 40: sorted pages that no element straddles) and
//! 9.3. Deviation: the paper keeps smallest and largest hash in each page's header; here the page
//! index has that information.
//!
//! BLOCK-1. The writer refuses an element that could make the block larger than its extent. A
//! refused push changes nothing. BLOCK-2. Two successive pages hold more elements than fit into one
//! page. There are three exceptions. One is a page before a long element. Another is the end of the
//! elements that share a hash, where one of the two pages is half full. The last is the end of the
//! block. From this follows [`super::data_pages_bound`]. BLOCK-3. The device is written in order,
//! each page once; flushing is the caller's.

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Tag};

use super::frame::{self, HEAD_HEADER, HEAD_PAYLOAD};
use super::hash_list::{Directory, ENTRIES_PER_PAGE, HashEntry};
use super::head::{self, Meta};
use super::page::{PAGE_HEADER, PageFormat, PageHead};
use super::page_index::{PageIndex, PageNote, shift_for};
use super::record::{BlockRecord, MAX_PAGE_BYTES, MIN_PAGE_BYTES};
use super::{Block, data_pages_bound};
use crate::element::{EXPIRY, Element, ExtentRef, MAX_HEADER, MORE};
use crate::extent::UNIT_PAGES;
use crate::{Extent, KeyHash, SHARDS, StoreError};

/// Bytes written at once.
const PIECE_BYTES: usize = 512 << 10;

/// After this many pages, the writer trusts its estimate of the range that a page covers. Before,
/// it takes cells twice as large.
const TRUSTED_PAGES: u64 = 64;

/// A sorted block while it is written.
pub struct BlockWriter<'d> {
    device: &'d dyn Device,
    tag: Tag,
    format: PageFormat,
    /// Whole pages that are not written yet, then the current page.
    piece: AlignedBuf,
    /// Where the current page begins in the piece.
    page_at: usize,
    /// The device page that the piece goes to.
    piece_page: u64,
    /// Bytes of the current page in use.
    at: usize,
    /// The elements that begin in the current page.
    starts: Vec<Start>,
    /// Where the rest of the previous element ends in the current page; [`PAGE_HEADER`] if it has
    /// none.
    tail: usize,
    /// The current page began with the last hash of the previous page.
    in_run: bool,
    notes: Vec<PageNote>,
    hashes: Vec<u8>,
    shards: Box<[u32; SHARDS]>,
    large: Vec<ExtentRef>,
    record: BlockRecord,
    /// Pages of the device that the block may have.
    limit: u64,
    /// The last element's hash, time and key, to check the order of elements.
    last: Option<(KeyHash, u64)>,
    last_key: Vec<u8>,
    /// Elements that move to the next page.
    moving: Vec<u8>,
    failed: Option<StoreError>,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    order: u64,
    at: u16,
}

impl<'d> BlockWriter<'d> {
    /// A block `id` in `extent`, of pages of `page_bytes`; at most the first `block_bytes` of the
    /// extent are used.
    ///
    /// # Panics
    /// If `page_bytes` is not a power of two from 4,096 to 32,768, or the extent has no room for an
    /// empty block.
    pub fn new(
        device: &'d dyn Device,
        extent: Extent,
        id: u64,
        page_bytes: usize,
        tag: Tag,
        block_bytes: u64,
    ) -> BlockWriter<'d> {
        assert!(
            page_bytes.is_power_of_two() && (MIN_PAGE_BYTES..=MAX_PAGE_BYTES).contains(&page_bytes),
            "a page size that there is"
        );
        let limit = (block_bytes / PAGE_SIZE as u64).min(u64::from(extent.pages));
        assert!(
            limit >= head::pages_bound(0, 0, 0),
            "room for an empty block"
        );
        let record = BlockRecord {
            id,
            extent,
            page_bytes: page_bytes as u32,
            min_time: u64::MAX,
            ..BlockRecord::default()
        };
        BlockWriter {
            device,
            tag,
            format: PageFormat::new(id, page_bytes),
            piece: AlignedBuf::new(PIECE_BYTES / PAGE_SIZE),
            page_at: 0,
            piece_page: extent.first,
            at: PAGE_HEADER,
            starts: Vec::new(),
            tail: PAGE_HEADER,
            in_run: false,
            notes: Vec::new(),
            hashes: Vec::new(),
            shards: Box::new([0; SHARDS]),
            large: Vec::new(),
            record,
            limit,
            last: None,
            last_key: Vec::new(),
            moving: Vec::new(),
            failed: None,
        }
    }

    /// Elements taken so far.
    pub fn elements(&self) -> u64 {
        self.record.elements
    }

    /// Adds the next element; false if the block has no room for it. Then nothing was added, and
    /// the block can be finished.
    ///
    /// Elements come by hash, then key, then from the newest time to the oldest; anything else is
    /// refused with an error, as is an element that could not be read again. After an error of the
    /// device the writer gives that error only.
    pub fn push(&mut self, hash: KeyHash, element: &Element<'_>) -> Result<bool, StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let reference = self.check(hash, element)?;
        let len = element.encoded_len();
        if !self.has_room(len, reference.is_some()) {
            return Ok(false);
        }
        let put = self
            .make_room(hash.order, len)
            .and_then(|()| self.put_element(hash.order, element, len));
        if let Err(error) = put {
            self.failed = Some(error.clone());
            return Err(error);
        }
        self.count(hash, element, reference);
        Ok(true)
    }

    /// Checks that the element can be written and comes after the last one.
    fn check(&self, hash: KeyHash, element: &Element<'_>) -> Result<Option<ExtentRef>, StoreError> {
        let invalid = |what: &str| Err(StoreError::Invalid(what.to_string()));
        if !element.is_valid() {
            return invalid(
                "an element for a block has lengths, flags or times that there are not",
            );
        }
        if let Some((before, time)) = self.last {
            let order = before
                .cmp(&hash)
                .then_with(|| self.last_key.as_slice().cmp(element.key))
                .then_with(|| element.time.cmp(&time));
            if order.is_ge() {
                return invalid("elements for a block do not come in order");
            }
        }
        if !element.is_large() {
            return Ok(None);
        }
        match ExtentRef::decode(element.value) {
            Some(reference) => Ok(Some(reference)),
            None => invalid("a large element for a block names no extent"),
        }
    }

    /// BLOCK-1: whether the block stays within its extent with one more element.
    fn has_room(&self, len: usize, large: bool) -> bool {
        let size = self.format.page_bytes();
        // Counts the current page, and the next one if the element does not fit here.
        let more = if len > self.format.payload() {
            2 + len.div_ceil(self.format.payload())
        } else {
            1 + usize::from(self.at + len > size || self.in_run)
        };
        let data_pages = self.notes.len() as u64 + more as u64;
        let larges = self.large.len() as u64 + u64::from(large);
        let elements = self.record.elements + 1;
        let head = head::pages_bound(data_pages, elements, larges);
        let pages = data_pages * (size / PAGE_SIZE) as u64 + head;
        pages <= self.limit && elements < u64::from(u32::MAX)
    }

    /// Makes sure that an element of this hash and length may begin at `self.at`.
    fn make_room(&mut self, order: u64, len: usize) -> Result<(), StoreError> {
        let (size, payload) = (self.format.page_bytes(), self.format.payload());
        let long = len > payload;
        let needed = if long { MAX_HEADER } else { len };
        if self.starts.is_empty() {
            // The page holds only the rest of a long element.
            return if self.at + needed > size {
                self.close_page(self.starts.len())
            } else {
                Ok(())
            };
        }
        if self.in_run && self.starts.last().is_some_and(|last| last.order != order) {
            self.in_run = false;
            if self.at - PAGE_HEADER >= payload / 2 {
                return self.close_page(self.starts.len());
            }
        }
        let fits = self.at + needed <= size;
        if fits && !long {
            return Ok(());
        }
        let shift = self.shift(order);
        let shares = |start: &&Start| start.order >> shift == order >> shift;
        let sharing = self.starts.iter().rev().take_while(shares).count();
        let all_share = sharing == self.starts.len();
        if fits && all_share {
            return Ok(());
        }
        let keep = self.starts.len() - sharing;
        let moved = self
            .starts
            .get(keep)
            .map_or(0, |start| self.at - usize::from(start.at));
        // Elements that would not fit into the next page together with the new one are not worth
        // moving: their pages are read together anyway.
        if sharing == 0 || all_share || moved + needed > payload {
            self.close_page(self.starts.len())?;
        } else {
            self.close_page(keep)?;
        }
        self.in_run = self.notes.last().is_some_and(|page| page.last == order);
        Ok(())
    }

    /// The size of a cell, estimated from the hashes of the pages so far and of this element.
    fn shift(&self, order: u64) -> u32 {
        let pages = self.notes.len() as u64 + 1;
        let shift = shift_for((order - self.record.first_order) / pages);
        // Cells that are too large move a few elements too many. Cells that are too small make a
        // look-up read several pages.
        shift + u32::from(pages < TRUSTED_PAGES && shift < 63)
    }

    /// Appends an element that is known to fit.
    fn put_element(
        &mut self,
        order: u64,
        element: &Element<'_>,
        len: usize,
    ) -> Result<(), StoreError> {
        self.starts.push(Start {
            order,
            at: self.at as u16,
        });
        let (header, header_len) = element.header(element.stored_flags() & !MORE);
        let parts = [&header[..header_len], element.key, element.value];
        if self.at + len <= self.format.page_bytes() {
            let mut at = self.page_at + self.at;
            for part in parts {
                self.piece[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            self.at += len;
            return Ok(());
        }
        for part in parts {
            self.put_long(part)?;
        }
        // The page that it ends in.
        self.tail = self.at;
        Ok(())
    }

    /// Appends bytes of an element that continues over pages.
    fn put_long(&mut self, mut part: &[u8]) -> Result<(), StoreError> {
        while !part.is_empty() {
            let room = self.format.page_bytes() - self.at;
            if room == 0 {
                self.close_page(self.starts.len())?;
                // Set until the end of the element is known: it does not end in this page.
                self.tail = self.format.page_bytes();
                continue;
            }
            let (now, later) = part.split_at(room.min(part.len()));
            let at = self.page_at + self.at;
            self.piece[at..at + now.len()].copy_from_slice(now);
            self.at += now.len();
            part = later;
        }
        Ok(())
    }

    /// Ends the current page after its first `keep` elements; the others move to the new current
    /// page.
    fn close_page(&mut self, keep: usize) -> Result<(), StoreError> {
        let end = self
            .starts
            .get(keep)
            .map_or(self.at, |start| usize::from(start.at));
        let size = self.format.page_bytes();
        let page = &mut self.piece[self.page_at..self.page_at + size];
        self.moving.clear();
        self.moving.extend_from_slice(&page[end..self.at]);
        page[end..].fill(0);
        let head = PageHead {
            count: keep as u16,
            first: self.tail as u16,
        };
        self.format.seal(page, self.notes.len() as u32, head);
        let (first, last) = match (
            self.starts[..keep].first(),
            self.starts[..keep].last(),
            self.notes.last(),
        ) {
            (Some(first), Some(last), _) => (first.order, last.order),
            (_, _, Some(before)) => (before.last, before.last),
            // The first page has an element.
            _ => (self.record.first_order, self.record.first_order),
        };
        self.notes.push(PageNote {
            first,
            last,
            rest_only: keep == 0,
            tail: self.tail > PAGE_HEADER,
        });
        self.page_at += size;
        if self.page_at == self.piece.len() {
            self.write_piece()?;
        }
        self.starts.drain(..keep);
        for start in &mut self.starts {
            start.at -= (end - PAGE_HEADER) as u16;
        }
        self.at = PAGE_HEADER + self.moving.len();
        let from = self.page_at + PAGE_HEADER;
        self.piece[from..from + self.moving.len()].copy_from_slice(&self.moving);
        self.tail = PAGE_HEADER;
        self.in_run = false;
        Ok(())
    }

    /// BLOCK-3: hands the whole pages of the piece to the device.
    fn write_piece(&mut self) -> Result<(), StoreError> {
        let bytes = &self.piece[..self.page_at];
        if bytes.is_empty() {
            return Ok(());
        }
        self.device
            .write(self.piece_page, bytes, self.tag)
            .map_err(StoreError::io("writing a sorted block"))?;
        self.piece_page += (self.page_at / PAGE_SIZE) as u64;
        self.page_at = 0;
        Ok(())
    }

    /// Notes an element that was written.
    fn count(&mut self, hash: KeyHash, element: &Element<'_>, reference: Option<ExtentRef>) {
        let entry = HashEntry {
            key: hash,
            time: element.time,
            flags: element.stored_flags() & !MORE,
        };
        self.hashes.extend_from_slice(&entry.encode());
        self.shards[hash.shard()] += 1;
        let record = &mut self.record;
        if record.elements == 0 {
            record.first_order = hash.order;
        }
        record.last_order = hash.order;
        record.elements += 1;
        record.min_time = record.min_time.min(element.time);
        record.max_time = record.max_time.max(element.time);
        let value = reference.map_or(element.value.len() as u64, |reference| reference.bytes);
        record.key_value_bytes += element.key.len() as u64 + value;
        record.tombstones += u32::from(element.is_tombstone());
        record.expiring += u32::from(entry.flags & EXPIRY != 0);
        self.large.extend(reference);
        self.last = Some((hash, element.time));
        self.last_key.clear();
        self.last_key.extend_from_slice(element.key);
    }

    /// Writes what is left and the head. The record's extent is shortened to what is in use. It
    /// flushes nothing. The block exists only after the caller has flushed and the manifest has the
    /// record.
    pub fn finish(mut self) -> Result<(BlockRecord, Block), StoreError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if !self.starts.is_empty() || self.at > PAGE_HEADER {
            self.close_page(self.starts.len())?;
        }
        self.write_piece()?;
        let index = PageIndex::build(&self.notes);
        let record = &mut self.record;
        record.data_pages = self.notes.len() as u32;
        record.large = self.large.len() as u32;
        record.min_time = record.min_time.min(record.max_time);
        record.meta_pages =
            head::meta_pages(index.encoded_len() as u64, self.large.len() as u64) as u32;
        record.head_pages =
            record.meta_pages + record.elements.div_ceil(ENTRIES_PER_PAGE as u64) as u32;
        let used = (record.head() - record.extent.first) as u32 + record.head_pages;
        assert!(
            u64::from(used) <= self.limit,
            "a block stays within its extent (BLOCK-1)"
        );
        // The extent ends on a unit, as the given extent did.
        let extent = &mut record.extent;
        extent.pages = used.next_multiple_of(UNIT_PAGES as u32).min(extent.pages);
        let meta = Meta {
            record: *record,
            directory: Directory::from_counts(&self.shards),
            index,
            large: std::mem::take(&mut self.large),
        };
        self.write_head(&meta.encode())?;
        let block = Block::new(meta);
        Ok((self.record, block))
    }

    fn write_head(&mut self, meta: &[u8]) -> Result<(), StoreError> {
        let hashes = std::mem::take(&mut self.hashes);
        let per_page = ENTRIES_PER_PAGE * super::hash_list::ENTRY_BYTES;
        let payloads = meta.chunks(HEAD_PAYLOAD).chain(hashes.chunks(per_page));
        for (number, payload) in payloads.enumerate() {
            let page = &mut self.piece[self.page_at..self.page_at + PAGE_SIZE];
            let end = HEAD_HEADER + payload.len();
            page[HEAD_HEADER..end].copy_from_slice(payload);
            page[end..].fill(0);
            frame::seal(page, self.record.id, number as u32);
            self.page_at += PAGE_SIZE;
            if self.page_at == self.piece.len() {
                self.write_piece()?;
            }
        }
        self.write_piece()
    }
}

/// Bytes of an extent that has room for every block of this many elements, whose encodings add up
/// to `encoded_bytes`, however their lengths are mixed. That is a little over twice the bytes,
/// since each element may need a bit more than half a page. [`bytes_expected`] says what a block
/// takes as a rule. The unused rest is given back when the block is finished.
pub fn bytes_needed(elements: u64, encoded_bytes: u64, page_bytes: usize) -> u64 {
    let data_pages = data_pages_bound(encoded_bytes, page_bytes);
    // An element with a value in its own extent takes a reference, at least 11 bytes, and a key.
    let large = elements.min(encoded_bytes / (ExtentRef::BYTES as u64 + 12));
    extent_bytes(data_pages, elements, large, page_bytes)
}

/// The bytes that a block of elements of similar length takes, plus some percent. It is for callers
/// that continue in another block when [`BlockWriter::push`] says that this one is full.
pub fn bytes_expected(elements: u64, encoded_bytes: u64, page_bytes: usize) -> u64 {
    let payload = (page_bytes - PAGE_HEADER) as u64;
    let mean = encoded_bytes.div_ceil(elements.max(1));
    let mut data_pages = if mean <= payload {
        // The larger of the space that equal elements leave unused and the space that mixed
        // elements do (half a page).
        let equal = elements.div_ceil(payload / mean.max(1));
        let mixed = encoded_bytes.div_ceil(payload - mean / 2);
        equal.max(mixed)
    } else {
        encoded_bytes.div_ceil(payload)
    };
    data_pages += data_pages / 32 + 3;
    extent_bytes(
        data_pages.min(data_pages_bound(encoded_bytes, page_bytes)),
        elements,
        0,
        page_bytes,
    )
}

/// Bytes of an extent with this many data pages, and a head for the elements; `large` of them name
/// a value with its own extent.
pub(crate) fn extent_bytes(data_pages: u64, elements: u64, large: u64, page_bytes: usize) -> u64 {
    let head = head::pages_bound(data_pages, elements, large);
    let pages = data_pages * (page_bytes / PAGE_SIZE) as u64 + head;
    pages.next_multiple_of(UNIT_PAGES) * PAGE_SIZE as u64
}
