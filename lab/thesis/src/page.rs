// SPDX-License-Identifier: Apache-2.0
//! Elements in a page: the header with the count and the range of hashes (paper A, figure 40), then
//! the elements one after the other.
//!
//! ```text
//!   0 magic u32 | 4 number u32 | 8 smallest hash u64 | 16 largest hash u64 | 24 count u16 | 26 zero u16 | 28 used u32 | 32 elements
//!   element: key bytes u16 | zero u16 | value bytes u32 | key | value
//! ```
//!
//! The thesis counts 8 bytes for an element's lengths (its chapter 8.4); so 32 elements of 8 + 1000
//! bytes lie in 32 KiB. The thesis has 4-byte hashes in the header; here they have 8 bytes. All
//! numbers are little-endian. A page of zeros is an empty page.

use std::ops::Range;

use anyhow::{Result, bail, ensure};
use senko_io::le::{u16_at, u32_at, u64_at};
use senko_workload::fill_value;

use crate::Place;

/// Bytes of a page's header.
pub const HEADER: usize = 32;
/// Bytes before an element's key.
pub const ELEMENT_HEADER: usize = 8;
const MAGIC: u32 = 0x5047_4c53;

/// Elements with 8-byte keys that a page holds.
pub fn capacity(page_bytes: usize, value_bytes: usize) -> usize {
    (page_bytes - HEADER) / (ELEMENT_HEADER + 8 + value_bytes)
}

/// The contents of a page's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The smallest hash.
    pub min: u64,
    /// The largest.
    pub max: u64,
    pub count: u16,
    /// Bytes in use, the header's included.
    used: usize,
}

/// The header of a page of which at least the first bytes are given.
/// Another page is an error.
pub fn header(page: &[u8], number: u32) -> Result<Header> {
    let magic = u32_at(page, 0);
    if magic == 0 {
        return Ok(Header {
            min: u64::MAX,
            max: 0,
            count: 0,
            used: HEADER,
        });
    }
    ensure!(
        magic == MAGIC && u32_at(page, 4) == number,
        "there is something else where page {number} of a block should be"
    );
    Ok(Header {
        min: u64_at(page, 8),
        max: u64_at(page, 16),
        count: u16_at(page, 24),
        used: u32_at(page, 28) as usize,
    })
}

/// The result of searching the first part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Where the key's value lies.
    Found(Range<usize>),
    /// The page does not have the key.
    Absent,
    /// The next element goes beyond the part.
    Beyond,
}

/// Searches all elements of a page for a key; returns where its value lies.
/// Another page, or elements beyond its end, are an error.
pub fn search(page: &[u8], number: u32, key: &[u8]) -> Result<Place> {
    match search_part(page, number, key)? {
        Seen::Found(place) => Ok(Some(place)),
        Seen::Absent => Ok(None),
        Seen::Beyond => bail!("an element of page {number} lies beyond its end"),
    }
}

/// The same with the first part of a page, which holds its header.
/// Another page is an error.
pub fn search_part(part: &[u8], number: u32, key: &[u8]) -> Result<Seen> {
    let header = header(part, number)?;
    let mut at = HEADER;
    for _ in 0..header.count {
        let start = at + ELEMENT_HEADER;
        if start > part.len() {
            return Ok(Seen::Beyond);
        }
        let value = start + usize::from(u16_at(part, at));
        let end = value.saturating_add(u32_at(part, at + 4) as usize);
        if end > part.len() {
            return Ok(Seen::Beyond);
        }
        if &part[start..value] == key {
            return Ok(Seen::Found(value..end));
        }
        at = end;
    }
    Ok(Seen::Absent)
}

/// Fills a page.
pub struct PageWriter<'p> {
    page: &'p mut [u8],
    header: Header,
    number: u32,
}

impl<'p> PageWriter<'p> {
    /// Continues after the existing elements.
    /// Another page is an error.
    pub fn new(page: &'p mut [u8], number: u32) -> Result<PageWriter<'p>> {
        let header = header(page, number)?;
        ensure!(
            (HEADER..=page.len()).contains(&header.used),
            "page {number} says that more is used than there is"
        );
        Ok(PageWriter {
            page,
            header,
            number,
        })
    }

    /// Adds an element whose value follows from its number; returns false if there is no room.
    #[must_use]
    pub fn push(&mut self, hash: u64, key: &[u8], number: u64, value_bytes: usize) -> bool {
        let start = self.header.used + ELEMENT_HEADER;
        let value = start + key.len();
        let end = value + value_bytes;
        if end > self.page.len() {
            return false;
        }
        let at = self.header.used;
        self.page[at..at + 2].copy_from_slice(&(key.len() as u16).to_le_bytes());
        self.page[at + 2..at + 4].fill(0);
        self.page[at + 4..start].copy_from_slice(&(value_bytes as u32).to_le_bytes());
        self.page[start..value].copy_from_slice(key);
        fill_value(&mut self.page[value..end], number, 0);
        self.header.used = end;
        self.header.count += 1;
        self.header.min = self.header.min.min(hash);
        self.header.max = self.header.max.max(hash);
        true
    }

    /// Adds an element, which must fit.
    pub fn put(&mut self, hash: u64, key: &[u8], number: u64, value_bytes: usize) -> Result<()> {
        let taken = self.push(hash, key, number, value_bytes);
        ensure!(taken, "page {} has no room for an element", self.number);
        Ok(())
    }

    /// Writes the header; returns its contents.
    pub fn finish(self) -> Header {
        let Header {
            min,
            max,
            count,
            used,
        } = self.header;
        self.page[..4].copy_from_slice(&MAGIC.to_le_bytes());
        self.page[4..8].copy_from_slice(&self.number.to_le_bytes());
        self.page[8..16].copy_from_slice(&min.to_le_bytes());
        self.page[16..24].copy_from_slice(&max.to_le_bytes());
        self.page[24..26].copy_from_slice(&count.to_le_bytes());
        self.page[26..28].fill(0);
        self.page[28..32].copy_from_slice(&(used as u32).to_le_bytes());
        self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_two_of_the_thesis_elements_fit() {
        assert_eq!(capacity(32 << 10, 1000), 32);
        let mut page = vec![0; 32 << 10];
        for number in 0..33_u64 {
            let mut writer = PageWriter::new(&mut page, 7).unwrap();
            let taken = writer.push(number * 3, &number.to_le_bytes(), number, 1000);
            assert_eq!(taken, number < 32);
            writer.finish();
        }
        let header = header(&page, 7).unwrap();
        assert_eq!((header.min, header.max, header.count), (0, 93, 32));
        for number in 0..32_u64 {
            let found = search(&page, 7, &number.to_le_bytes()).unwrap().unwrap();
            senko_workload::check_value(&page[found], number).unwrap();
        }
        assert_eq!(search(&page, 7, &32_u64.to_le_bytes()).unwrap(), None);
        assert!(search(&page, 8, &[0; 8]).is_err(), "another page's number");
        assert_eq!(search(&[0; 4096], 3, &[0; 8]).unwrap(), None);
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic() {
        let mut rng = senko_workload::Rng::new(5);
        let mut page = vec![0; 4096];
        for _ in 0..2000 {
            for word in page.chunks_exact_mut(8) {
                word.copy_from_slice(&rng.next_u64().to_le_bytes());
            }
            page[..4].copy_from_slice(&MAGIC.to_le_bytes());
            page[4..8].fill(0);
            drop(search(&page, 0, &[1; 8]));
            drop(PageWriter::new(&mut page, 0).map(|mut writer| writer.push(1, &[2; 8], 3, 64)));
        }
    }
}
