// SPDX-License-Identifier: Apache-2.0
//! All elements of a block, in the order of their hashes, read in large pieces.
//!
//! Compaction, sealing, scans and backups read blocks this way. Memory is one buffer of the size
//! that was requested, and the longest element that goes over pages. Hashes are computed again from
//! the keys, which also checks the order.
//!
//! After damage a scan can continue: [`BlockScan::skip_damage`] goes to the next page in which an
//! element begins. A repair saves the intact elements in this way.

use std::ops::{Deref, RangeInclusive};

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Tag};

use super::damage;
use super::page::{BadPage, PageFormat, header_in};
use super::record::BlockRecord;
use crate::element::{Element, ElementHeader};
use crate::{Hasher, KeyHash, StoreError};

/// A walk over a block. `D` is a borrowed device or an `Arc` of one.
pub struct BlockScan<D> {
    device: D,
    record: BlockRecord,
    format: PageFormat,
    hasher: Hasher,
    tag: Tag,
    /// Pages `window..window + held` of the block.
    buf: AlignedBuf,
    window: u32,
    held: u32,
    /// The page that is being walked.
    page: u32,
    /// Where its next element begins; 0: the page has not been looked at.
    at: usize,
    /// Elements that begin in it from there on.
    left: u16,
    /// The page in which the last element began.
    began: u32,
    /// An element that goes over pages, put together.
    long: Vec<u8>,
    last: Option<KeyHash>,
    current: Option<(KeyHash, ElementHeader, Place)>,
    /// Whether elements must come in the order of their hashes.
    ordered: bool,
    /// Damage was met, and [`BlockScan::skip_damage`] was not called.
    stopped: Option<StoreError>,
}

/// Where an element lies.
#[derive(Clone, Copy)]
enum Place {
    /// In the scan's buffer, from this byte on.
    Here(usize),
    /// In the buffer for long elements.
    Long,
}

impl<D> BlockScan<D>
where
    D: Deref<Target: Device>,
{
    /// Begins at the block's first element, with a buffer of about `read_ahead` bytes (at least two
    /// pages of the block). The block's head is not read.
    pub fn new(
        device: D,
        record: &BlockRecord,
        hasher: Hasher,
        read_ahead: usize,
        tag: Tag,
    ) -> BlockScan<D> {
        let page_bytes = record.page_bytes as usize;
        let pages = (read_ahead / page_bytes).clamp(2, (record.data_pages as usize).max(2));
        BlockScan {
            device,
            record: *record,
            format: PageFormat::new(record.id, page_bytes),
            hasher,
            tag,
            buf: AlignedBuf::new(pages * page_bytes / PAGE_SIZE),
            window: 0,
            held: 0,
            page: 0,
            at: 0,
            left: 0,
            began: 0,
            long: Vec::new(),
            last: None,
            current: None,
            ordered: true,
            stopped: None,
        }
    }

    /// Scans a block that was sorted by hashes of another, lost secret, so the order is not
    /// checked.
    pub(crate) fn in_any_order(self) -> BlockScan<D> {
        BlockScan {
            ordered: false,
            ..self
        }
    }

    /// The next element and its key's hash; `None` at the end. After an error it returns the same
    /// error again, until [`BlockScan::skip_damage`] is called.
    pub fn next_element(&mut self) -> Result<Option<(KeyHash, Element<'_>)>, StoreError> {
        self.advance()?;
        Ok(self.current())
    }

    /// Goes to the next element, as [`BlockScan::next_element`] does, but returns only its hash. A
    /// merge of several scans then asks the first of them for its [`BlockScan::current`] element.
    pub fn advance(&mut self) -> Result<Option<KeyHash>, StoreError> {
        self.current = None;
        if let Some(error) = &self.stopped {
            return Err(error.clone());
        }
        self.current = self.step().inspect_err(|error| {
            self.stopped = Some(error.clone());
        })?;
        Ok(self.current.map(|(hash, ..)| hash))
    }

    /// The element that the scan is at; `None` before the first, at the end and at damage.
    pub fn current(&self) -> Option<(KeyHash, Element<'_>)> {
        let (hash, header, place) = self.current.as_ref()?;
        let bytes = match *place {
            Place::Here(at) => &self.buf[at..at + header.element_len()],
            Place::Long => &self.long[..],
        };
        let (key, value) = bytes[header.key_at()..].split_at(header.key_len as usize);
        Some((*hash, Element::of(header, key, value)))
    }

    /// Continues after damage, with the next page in which an element begins. The elements of the
    /// damaged page are lost, and so is an element that continues into it. False if the scan had
    /// not met damage.
    pub fn skip_damage(&mut self) -> bool {
        if !matches!(
            self.stopped,
            Some(StoreError::Damaged { .. } | StoreError::Io { .. })
        ) {
            return false;
        }
        self.stopped = None;
        self.page += 1;
        self.at = 0;
        self.left = 0;
        true
    }

    /// The pages of the block in which the last element lies.
    pub(crate) fn last_pages(&self) -> RangeInclusive<u32> {
        self.began..=self.page
    }

    /// The page that comes next, or in which damage was met.
    pub(crate) fn page(&self) -> u32 {
        self.page
    }

    fn step(&mut self) -> Result<Option<(KeyHash, ElementHeader, Place)>, StoreError> {
        let size = self.format.page_bytes();
        while self.left == 0 {
            if self.at != 0 {
                self.page += 1;
                self.at = 0;
            }
            if self.page >= self.record.data_pages {
                return Ok(None);
            }
            let base = self.load(self.page)?;
            let head = self
                .format
                .check(&self.buf[base..base + size], self.page, 0)
                .map_err(|bad| self.damage(bad))?;
            self.at = usize::from(head.first);
            self.left = head.count;
        }
        let base = self.load(self.page)?;
        let header =
            header_in(&self.buf[base..base + size], self.at, 0).map_err(|bad| self.damage(bad))?;
        self.began = self.page;
        let end = self.at + header.element_len();
        let mut goes_on = 0;
        let place = if end <= size {
            Place::Here(base + self.at)
        } else if self.left == 1 {
            goes_on = self.gather(&header)?;
            Place::Long
        } else {
            return Err(self.damage(BadPage {
                at: self.at,
                what: "an element runs into the next",
            }));
        };
        let hash = self.hasher.hash(match place {
            Place::Here(at) => &self.buf[at + header.key_at()..at + header.value_at()],
            Place::Long => &self.long[header.key_at()..header.value_at()],
        });
        if self.ordered && self.last.is_some_and(|last| last > hash) {
            return Err(self.damage(BadPage {
                at: self.at,
                what: "the elements of a block are not in order",
            }));
        }
        self.last = Some(hash);
        self.at = end;
        self.left -= 1;
        // Another element may begin in the last page of a long element.
        if goes_on > 0 {
            self.page += goes_on;
            self.at = 0;
        }
        Ok(Some((hash, header, place)))
    }

    /// Assembles the element that begins at `self.at` of the current page, a page at a time, so it
    /// may be longer than the buffer. Returns the number of further pages that it takes.
    fn gather(&mut self, header: &ElementHeader) -> Result<u32, StoreError> {
        let size = self.format.page_bytes();
        let len = header.element_len();
        let base = self.load(self.page)?;
        let rest = len - (size - self.at);
        let pages = rest.div_ceil(self.format.payload()) as u64;
        if u64::from(self.page) + pages >= u64::from(self.record.data_pages) {
            return Err(self.damage(BadPage {
                at: self.at,
                what: "an element reaches beyond the block",
            }));
        }
        self.long.clear();
        self.long
            .extend_from_slice(&self.buf[base + self.at..base + size]);
        for page in self.page + 1..=self.page + pages as u32 {
            let base = self.load(page)?;
            let bytes = &self.buf[base..base + size];
            let part = (len - self.long.len()).min(self.format.payload());
            self.format
                .rest_in(bytes, page, 0, part)
                .map(|rest| self.long.extend_from_slice(rest))
                .map_err(|bad| damage(self.device_page(page), bad))?;
        }
        Ok(pages as u32)
    }

    /// Makes sure that a page is in the buffer, and returns where.
    fn load(&mut self, page: u32) -> Result<usize, StoreError> {
        let size = self.format.page_bytes();
        if page < self.window || page >= self.window + self.held {
            let room = (self.buf.len() / size) as u32;
            let first = self.device_page(page);
            let mut count = room.min(self.record.data_pages - page);
            self.held = 0;
            let read = |buf: &mut AlignedBuf, count: u32| {
                let bytes = &mut buf[..count as usize * size];
                self.device.read(first, bytes, self.tag)
            };
            let mut result = read(&mut self.buf, count);
            if result.is_err() && count > 1 {
                // The unreadable page may be a later one of the piece, so read this page alone.
                count = 1;
                result = read(&mut self.buf, count);
            }
            result.map_err(StoreError::io("reading a sorted block"))?;
            self.window = page;
            self.held = count;
        }
        Ok((page - self.window) as usize * size)
    }

    fn device_page(&self, page: u32) -> u64 {
        self.record.extent.first + u64::from(page) * u64::from(self.record.device_pages())
    }

    fn damage(&self, bad: BadPage) -> StoreError {
        damage(self.device_page(self.page), bad)
    }
}
