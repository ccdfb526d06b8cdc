// SPDX-License-Identifier: Apache-2.0
//! A data page of a sorted block, and the look-up in the bytes of a run of them. It does no I/O, so
//! any driver can use it.
//!
//! ```text
//!  crc  id  page  count first                                        zeros
//! |  4 | 4 |  4  |  2  |  2  | end of the element before | element | element | ... |
//!                             16                         first
//! ```
//!
//! An element that fits into a page lies in one page. A longer one begins in a page and continues
//! in the next ones, at byte 16 of each; `first` says where that rest ends, so a page can be read
//! without the pages before it. `count` is of elements that begin here.
//!
//! Always holds: whatever the bytes are, a look-up returns an element of a page whose checksum,
//! block and number are right, or an error that names the place. It never reads beyond the run.

use std::borrow::Cow;
use std::ops::ControlFlow;

use senko_io::le::{u16_at, u32_at};

use crate::element::{self, Element, ElementHeader};
use crate::{Hasher, KeyHash};

/// Bytes before a page's elements.
pub const PAGE_HEADER: usize = 16;

/// An error in a run of pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPage {
    /// Byte in the run.
    pub at: usize,
    /// What is wrong.
    pub what: &'static str,
}

fn bad<T>(at: usize, what: &'static str) -> Result<T, BadPage> {
    Err(BadPage { at, what })
}

/// The header of a page that was found intact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHead {
    /// Elements that begin in the page.
    pub count: u16,
    /// Where the first of these elements begins.
    pub first: u16,
}

/// The format that all pages of one block share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFormat {
    id: u32,
    /// The checksum starts from that of the block's whole id, so that no other block's page passes.
    seed: u32,
    page_bytes: u32,
}

impl PageFormat {
    /// For the pages of block `id`.
    pub fn new(id: u64, page_bytes: usize) -> PageFormat {
        PageFormat {
            id: id as u32,
            seed: crc32c::crc32c(&id.to_le_bytes()),
            page_bytes: page_bytes as u32,
        }
    }

    pub fn page_bytes(&self) -> usize {
        self.page_bytes as usize
    }

    /// Bytes of elements in a page.
    pub fn payload(&self) -> usize {
        self.page_bytes() - PAGE_HEADER
    }

    /// Completes a page whose elements are in place.
    pub fn seal(&self, page: &mut [u8], number: u32, head: PageHead) {
        page[4..8].copy_from_slice(&self.id.to_le_bytes());
        page[8..12].copy_from_slice(&number.to_le_bytes());
        page[12..14].copy_from_slice(&head.count.to_le_bytes());
        page[14..16].copy_from_slice(&head.first.to_le_bytes());
        let crc = crc32c::crc32c_append(self.seed, &page[4..]);
        page[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Checks one page: its checksum, its block, its place. `at` is where it begins in the run, for
    /// the error.
    #[inline]
    pub fn check(&self, page: &[u8], number: u32, at: usize) -> Result<PageHead, BadPage> {
        if page.len() != self.page_bytes() {
            return bad(at, "a page is cut off");
        }
        let half = |at: usize| u32_at(page, at);
        if half(0) != crc32c::crc32c_append(self.seed, &page[4..]) {
            return bad(at, "the checksum of a data page is wrong");
        }
        if half(4) != self.id {
            return bad(at, "a data page belongs to another block");
        }
        if half(8) != number {
            return bad(at, "a data page belongs to another place of the block");
        }
        let quarter = |at: usize| u16_at(page, at);
        let head = PageHead {
            count: quarter(12),
            first: quarter(14),
        };
        if usize::from(head.first) < PAGE_HEADER || usize::from(head.first) > page.len() {
            return bad(at, "a data page begins nowhere");
        }
        Ok(head)
    }

    /// The newest version of `key` no newer than `at`, in the bytes of a run of pages. `number` is
    /// the number of the run's first page.
    ///
    /// The versions of one key lie side by side, newest first, so the first that is old enough is
    /// the answer.
    pub fn search<'b>(
        &self,
        bytes: &'b [u8],
        number: u32,
        key: &[u8],
        at: u64,
    ) -> Result<Option<FoundVersion<'b>>, BadPage> {
        let mut found = None;
        self.each_version(bytes, number, key, at, |version| {
            found = Some(version);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// All versions of `key` in the run, newest first.
    pub fn versions<'b>(
        &self,
        bytes: &'b [u8],
        number: u32,
        key: &[u8],
    ) -> Result<Vec<FoundVersion<'b>>, BadPage> {
        let mut found = Vec::new();
        self.each_version(bytes, number, key, u64::MAX, |version| {
            found.push(version);
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Calls `take` for each version of `key` that is no newer than `newest`, in the run's order.
    fn each_version<'b>(
        &self,
        bytes: &'b [u8],
        number: u32,
        key: &[u8],
        newest: u64,
        mut take: impl FnMut(FoundVersion<'b>) -> ControlFlow<()>,
    ) -> Result<(), BadPage> {
        let mut met = false;
        for (nth, page) in bytes.chunks(self.page_bytes()).enumerate() {
            let base = nth * self.page_bytes();
            let head = self.check(page, number.wrapping_add(nth as u32), base)?;
            let mut at = usize::from(head.first);
            for left in (0..head.count).rev() {
                let header = header_in(page, at, base)?;
                let same_len = header.key_len as usize == key.len();
                let end = at + header.element_len();
                if end <= page.len() {
                    let key_at = at + header.key_at();
                    let same = same_len && &page[key_at..key_at + key.len()] == key;
                    if same && header.time <= newest {
                        let value = &page[at + header.value_at()..end];
                        if take(FoundVersion::new(&header, Cow::Borrowed(value))).is_break() {
                            return Ok(());
                        }
                    }
                    if met && !same {
                        return Ok(());
                    }
                    met |= same;
                } else {
                    if left > 0 {
                        return bad(base + at, "an element runs into the next");
                    }
                    if !same_len || !begins_like(page, at + header.key_at(), key) {
                        // This was the last element of the page: continue with the next page.
                        break;
                    }
                    let mut element = Vec::new();
                    if !self.gather(bytes, number, base + at, &header, &mut element)? {
                        // Elements of other hashes may begin in the run's last page. An element of
                        // this hash never continues after it.
                        return if at + header.value_at() <= page.len() {
                            bad(base + at, "an element reaches beyond its pages")
                        } else {
                            Ok(())
                        };
                    }
                    let same = &element[header.key_at()..header.value_at()] == key;
                    if same && header.time <= newest {
                        element.drain(..header.value_at());
                        if take(FoundVersion::new(&header, Cow::Owned(element))).is_break() {
                            return Ok(());
                        }
                    }
                    met |= same;
                }
                at = end;
            }
        }
        Ok(())
    }

    /// The newest time among the elements of the run whose key has this hash, for callers that know
    /// only the hash.
    pub(crate) fn newest_of(
        &self,
        bytes: &[u8],
        number: u32,
        hash: KeyHash,
        hasher: &Hasher,
    ) -> Result<Option<u64>, BadPage> {
        let mut newest = None;
        let mut long = Vec::new();
        for (nth, page) in bytes.chunks(self.page_bytes()).enumerate() {
            let base = nth * self.page_bytes();
            let head = self.check(page, number.wrapping_add(nth as u32), base)?;
            let mut at = usize::from(head.first);
            for left in (0..head.count).rev() {
                let header = header_in(page, at, base)?;
                let end = at + header.element_len();
                let key = match page.get(at..end) {
                    Some(element) => &element[header.key_at()..header.value_at()],
                    None if left > 0 => return bad(base + at, "an element runs into the next"),
                    None => {
                        if !self.gather(bytes, number, base + at, &header, &mut long)? {
                            // It has another hash; otherwise the run would not end here.
                            break;
                        }
                        &long[header.key_at()..header.value_at()]
                    }
                };
                if hasher.hash(key) == hash {
                    newest = newest.max(Some(header.time));
                }
                at = end;
            }
        }
        Ok(newest)
    }

    /// Copies the bytes of an element into `to`. It begins at `at` of the run and may continue in
    /// later pages. False if it continues after the run.
    fn gather(
        &self,
        bytes: &[u8],
        number: u32,
        at: usize,
        header: &ElementHeader,
        to: &mut Vec<u8>,
    ) -> Result<bool, BadPage> {
        let size = self.page_bytes();
        let len = header.element_len();
        let first = at / size;
        let rest = len - (size - at % size);
        let pages = rest.div_ceil(self.payload());
        if bytes.len() / size <= first + pages {
            return Ok(false);
        }
        to.clear();
        to.reserve_exact(len);
        to.extend_from_slice(&bytes[at..(first + 1) * size]);
        for nth in first + 1..=first + pages {
            let page = &bytes[nth * size..(nth + 1) * size];
            let part = (len - to.len()).min(self.payload());
            let number = number.wrapping_add(nth as u32);
            to.extend_from_slice(self.rest_in(page, number, nth * size, part)?);
        }
        Ok(true)
    }

    /// The `part` bytes at the start of a page that continue the previous element. The page begins
    /// at `at` of the run.
    pub(crate) fn rest_in<'b>(
        &self,
        page: &'b [u8],
        number: u32,
        at: usize,
        part: usize,
    ) -> Result<&'b [u8], BadPage> {
        let head = self.check(page, number, at)?;
        if usize::from(head.first) != PAGE_HEADER + part {
            return bad(at, "an element goes on where its page says otherwise");
        }
        Ok(&page[PAGE_HEADER..PAGE_HEADER + part])
    }
}

/// Whether the part of the key at `at` that lies in the page equals the start of `key`.
fn begins_like(page: &[u8], at: usize, key: &[u8]) -> bool {
    let end = (at + key.len()).min(page.len());
    page[at..end] == key[..end - at]
}

/// The header of the element at `at` of a page that begins at `base` of a run.
#[inline]
pub(crate) fn header_in(page: &[u8], at: usize, base: usize) -> Result<ElementHeader, BadPage> {
    let header = match ElementHeader::decode(page.get(at..).unwrap_or_default()) {
        Ok(header) => header,
        Err(_) => {
            return bad(
                base + at,
                "a data page holds something that is not an element",
            );
        }
    };
    if header.flags & element::MORE != 0 {
        return bad(base + at, "a data page holds an element of a log");
    }
    Ok(header)
}

/// A version of a key that a look-up found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundVersion<'b> {
    /// As in [`Element`].
    pub flags: u8,
    /// Microseconds since 1970.
    pub time: u64,
    /// Unix seconds; 0: never.
    pub expiry: u64,
    /// The bytes stored as the value: borrowed from the run if they are contiguous.
    pub value: Cow<'b, [u8]>,
}

impl<'b> FoundVersion<'b> {
    fn new(header: &ElementHeader, value: Cow<'b, [u8]>) -> FoundVersion<'b> {
        FoundVersion {
            flags: header.flags,
            time: header.time,
            expiry: header.expiry,
            value,
        }
    }

    /// The element, with the key that was looked up.
    pub fn element<'a>(&'a self, key: &'a [u8]) -> Element<'a> {
        Element {
            flags: self.flags,
            key,
            value: &self.value,
            time: self.time,
            expiry: self.expiry,
        }
    }
}

const _: () = assert!(PAGE_HEADER == 16);
