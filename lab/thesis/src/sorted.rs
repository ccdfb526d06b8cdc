// SPDX-License-Identifier: Apache-2.0
//! The sorted block: elements in the order of their hashes, and three ways to find the page with a
//! hash.
//!
//! *Idea*: a hash can be in only one page, whose header has the smallest and the largest hash.
//! [`Scattered`]: a binary search over the headers at the start of each page (paper A, 6.2). Each
//! step reads a device page. The thesis relied on the system's page cache, which keeps the pages
//! that begin every search. [`Scattered::warm`] keeps these first steps in DRAM instead, all but
//! the last two. With [`Head`], the ranges of all pages are in front of the block, 8 bytes each
//! (9.3). A look-up reads one page of them, then the page of elements. [`InDram`]: DRAM has the
//! smallest hash of each page, 4 bytes a page. A look-up takes one read.
//!
//! *Deviation*: ranges in the head and in DRAM are the upper 32 bits of hashes, while the thesis
//! has 32-bit hashes. So in rare cases two pages may have a hash, and both are read. If the head
//! has more than one page, DRAM has 4 bytes for each of its pages, to know which one to read.
//!
//! ```text
//!   block: head pages (min u32, max u32 of each page) | pages of elements
//! ```
//!
//! One file serves all three.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use senko_io::Device;

use crate::page::{self, Header, PageWriter};
use crate::{Built, Geometry, Keys, Layout, Place, Reader, Sequential, Wanted};

const ENTRY: usize = 8;

/// Where things lie, and the smallest hashes.
struct Blocks {
    geometry: Geometry,
    head_pages: u32,
    /// The upper half of the smallest hash of each page of each block; `u32::MAX` for pages without
    /// elements.
    smallest: Vec<u32>,
    /// The headers of all pages; [`Scattered`] uses those that it is said to have in DRAM.
    headers: Vec<Header>,
}

/// A file of sorted blocks that was written.
#[derive(Clone)]
pub struct SortedFile(Arc<Blocks>);

fn head_pages(geometry: &Geometry) -> u32 {
    (geometry.block_pages as usize * ENTRY).div_ceil(geometry.page_bytes) as u32
}

pub fn file_bytes(geometry: &Geometry) -> u64 {
    let head = u64::from(head_pages(geometry)) * geometry.page_bytes as u64;
    u64::from(geometry.blocks()) * (geometry.block_bytes() + head)
}

fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl SortedFile {
    /// Sorts each block in memory and writes it once.
    pub fn write(device: &dyn Device, keys: &Keys, geometry: &Geometry) -> Result<(Self, Built)> {
        let start = Instant::now();
        let mut out = Sequential::new(device, geometry.page_bytes, geometry.first_page);
        let head_pages = head_pages(geometry);
        let per_page = geometry.per_page();
        let (mut smallest, mut headers) = (Vec::new(), Vec::new());
        let mut sorted: Vec<(u64, u64)> = Vec::new();
        for block in 0..geometry.blocks() {
            sorted.clear();
            let members = geometry.members(block);
            sorted.extend(members.map(|number| (keys.wanted(number).hash.order, number)));
            sorted.sort_unstable();
            let mut ranges = vec![u32::MAX; geometry.block_pages as usize * 2];
            for (page, range) in sorted.chunks(per_page).zip(ranges.chunks_exact_mut(2)) {
                range[0] = upper(page[0].0);
                range[1] = upper(page[page.len() - 1].0);
            }
            smallest.extend(ranges.iter().step_by(2));
            for part in ranges.chunks(geometry.page_bytes / 4) {
                for (bytes, range) in out.page()?.chunks_exact_mut(4).zip(part) {
                    bytes.copy_from_slice(&range.to_le_bytes());
                }
            }
            let mut pages = sorted.chunks(per_page);
            for number in 0..geometry.block_pages {
                let mut page = PageWriter::new(out.page()?, number)?;
                for &(hash, element) in pages.next().unwrap_or_default() {
                    let key = keys.wanted(element).key;
                    page.put(hash, &key, element, geometry.value_bytes)?;
                }
                headers.push(page.finish());
            }
        }
        let built = Built {
            written: out.finish()?,
            seconds: start.elapsed().as_secs_f64(),
        };
        let blocks = Blocks {
            geometry: *geometry,
            head_pages,
            smallest,
            headers,
        };
        Ok((SortedFile(Arc::new(blocks)), built))
    }
}

impl Blocks {
    /// The device page of a page of a block, counted from its head.
    fn place(&self, block: u32, page: u32) -> u64 {
        let stride = u64::from(self.head_pages + self.geometry.block_pages);
        let before = u64::from(block) * stride + u64::from(page);
        self.geometry.first_page + before * self.geometry.device_pages()
    }

    fn search(
        &self,
        block: u32,
        page: u32,
        wanted: &Wanted,
        reader: &mut Reader<'_>,
    ) -> Result<Place> {
        reader.find(self.place(block, self.head_pages + page), page, &wanted.key)
    }

    fn smallest(&self, block: u32) -> &[u32] {
        let pages = self.geometry.block_pages as usize;
        &self.smallest[block as usize * pages..][..pages]
    }
}

/// Binary search over the headers of the pages.
pub struct Scattered {
    name: &'static str,
    file: SortedFile,
    /// This many first steps of a search find their header in DRAM.
    warm_steps: u32,
}

impl Scattered {
    /// Every header is read from the device.
    pub fn cold(file: SortedFile) -> Scattered {
        Scattered {
            name: "sorted_scattered",
            file,
            warm_steps: 0,
        }
    }

    /// Only the headers of the last two steps are.
    pub fn warm(file: SortedFile) -> Scattered {
        let steps = file.0.geometry.block_pages.next_power_of_two().ilog2();
        Scattered {
            name: "sorted_warm",
            file,
            warm_steps: steps.saturating_sub(1),
        }
    }

    fn header(&self, block: u32, page: u32, warm: bool, reader: &mut Reader<'_>) -> Result<Header> {
        let blocks = &self.file.0;
        if warm {
            let first = block as usize * blocks.geometry.block_pages as usize;
            return Ok(blocks.headers[first + page as usize]);
        }
        let bytes = reader.header(blocks.place(block, blocks.head_pages + page))?;
        page::header(bytes, page)
    }
}

impl Layout for Scattered {
    fn name(&self) -> &'static str {
        self.name
    }

    fn look(&self, block: u32, wanted: &Wanted, reader: &mut Reader<'_>) -> Result<Place> {
        let blocks = &self.file.0;
        let hash = wanted.hash.order;
        let end = blocks.geometry.block_pages;
        // The first page whose largest hash is not smaller. If the hash is strictly inside its
        // range, this is the only page.
        let (mut low, mut high) = (0, end);
        let (mut at, mut step) = (None, 0);
        while low < high {
            let middle = low + (high - low) / 2;
            let header = self.header(block, middle, step < self.warm_steps, reader)?;
            step += 1;
            if header.count > 0 && header.min < hash && hash < header.max {
                return blocks.search(block, middle, wanted, reader);
            }
            if header.count == 0 || header.max >= hash {
                high = middle;
                at = Some((middle, header));
            } else {
                low = middle + 1;
            }
        }
        // `at` is of the last page that `high` was set to.
        while let Some((page, header)) = at {
            if header.count == 0 || header.min > hash {
                break;
            }
            if let Some(found) = blocks.search(block, page, wanted, reader)? {
                return Ok(Some(found));
            }
            if header.max != hash || page + 1 == end {
                break;
            }
            at = Some((page + 1, self.header(block, page + 1, false, reader)?));
        }
        Ok(None)
    }

    fn dram_bytes(&self) -> u64 {
        // Two hashes for each page that a warm step can come to.
        let blocks = u64::from(self.file.0.geometry.blocks());
        blocks * ((1 << self.warm_steps) - 1) * 16
    }
}

/// The ranges of the pages at the head of the block.
pub struct Head(pub SortedFile);

impl Head {
    /// Entries in a page of the head.
    fn entries(&self) -> usize {
        self.0.0.geometry.page_bytes / ENTRY
    }
}

impl Layout for Head {
    fn name(&self) -> &'static str {
        "sorted_head"
    }

    fn look(&self, block: u32, wanted: &Wanted, reader: &mut Reader<'_>) -> Result<Place> {
        let blocks = &self.0.0;
        let hash = upper(wanted.hash.order);
        let entries = self.entries();
        // The head's part in DRAM: the smallest hash under each of its pages.
        let smallest = blocks.smallest(block);
        let starts = |part: u32| smallest[part as usize * entries];
        let mut part = (1..blocks.head_pages)
            .take_while(|&part| starts(part) < hash)
            .count() as u32;
        let mut candidates = Vec::new();
        loop {
            let bytes = reader.index(blocks.place(block, part))?;
            let first = part as usize * entries;
            let here = entries.min(smallest.len() - first);
            let flow = ranges_with(&bytes[..here * ENTRY], hash, |entry| {
                candidates.push((first + entry) as u32);
            });
            part += 1;
            if flow.is_break() || part == blocks.head_pages || starts(part) > hash {
                break;
            }
        }
        for page in candidates {
            if let Some(found) = blocks.search(block, page, wanted, reader)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn dram_bytes(&self) -> u64 {
        let blocks = &self.0.0;
        4 * u64::from(blocks.geometry.blocks()) * u64::from(blocks.head_pages - 1)
    }
}

/// The entries of a page of the head whose range has `hash`; stops at a range beyond it.
fn ranges_with(bytes: &[u8], hash: u32, mut each: impl FnMut(usize)) -> ControlFlow<()> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let count = bytes.len() / ENTRY;
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if number(middle * ENTRY + 4) < hash {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for entry in low..count {
        if number(entry * ENTRY) > hash {
            return ControlFlow::Break(());
        }
        each(entry);
    }
    ControlFlow::Continue(())
}

/// The smallest hashes in DRAM.
pub struct InDram(pub SortedFile);

impl Layout for InDram {
    fn name(&self) -> &'static str {
        "sorted_dram"
    }

    fn look(&self, block: u32, wanted: &Wanted, reader: &mut Reader<'_>) -> Result<Place> {
        let blocks = &self.0.0;
        let hash = upper(wanted.hash.order);
        let smallest = blocks.smallest(block);
        let first = smallest.partition_point(|&start| start < hash);
        let last = smallest.partition_point(|&start| start <= hash);
        // From the end, because the page that begins with the hash nearly always has it.
        for page in (first.saturating_sub(1)..last).rev() {
            if let Some(found) = blocks.search(block, page as u32, wanted, reader)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn dram_bytes(&self) -> u64 {
        self.0.0.smallest.len() as u64 * 4
    }
}
