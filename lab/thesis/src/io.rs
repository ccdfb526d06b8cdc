// SPDX-License-Identifier: Apache-2.0
//! Counted reads and sequential writes of the layouts.
//!
//! A [`Reader`] has one buffer of a page (longer once a run of several was read), and each read
//! into it is one request to the device. The layouts give the purpose of a read.

use anyhow::{Context, Result, bail};
use senko_io::{AlignedBuf, Device, Engine, PAGE_SIZE, Purpose, Tag};

use crate::Place;
use crate::page::{self, Seen};

const LOOKUP: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Lookup,
};
const BUILD: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Admit,
};
/// Bytes of a write when blocks are built.
const CHUNK: usize = 1 << 20;

/// What gets cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub gets: u64,
    /// Blocks that were searched.
    pub blocks: u64,
    /// Pages whose elements were searched (the thesis's page searches).
    pub pages: u64,
    /// Reads of a page's header alone, of one device page.
    pub headers: u64,
    /// Reads of a page of a block's index.
    pub indexes: u64,
    /// Reads of further parts of a page, where pages are read by parts.
    pub parts: u64,
    /// Bytes of all reads.
    pub bytes: u64,
}

impl Counts {
    /// Reads of all kinds.
    pub fn reads(&self) -> u64 {
        self.pages + self.headers + self.indexes + self.parts
    }
}

/// Reads pages, and counts.
pub struct Reader<'d> {
    device: &'d dyn Device,
    buf: AlignedBuf,
    page_bytes: usize,
    by_parts: bool,
    /// What was counted.
    pub counts: Counts,
}

impl<'d> Reader<'d> {
    /// Of pages of `page_bytes`.
    pub fn new(device: &'d dyn Device, page_bytes: usize) -> Reader<'d> {
        Reader {
            device,
            buf: AlignedBuf::new(page_bytes / PAGE_SIZE),
            page_bytes,
            by_parts: false,
            counts: Counts::default(),
        }
    }

    /// The bytes of the last read.
    pub fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Sets whether [`Reader::find`] reads pages in parts of a device page, or whole.
    pub fn by_parts(&mut self, by_parts: bool) {
        self.by_parts = by_parts;
    }

    /// Reads page `number` of a block, which begins at `device_page`, and searches its elements for
    /// a key; returns where the key's value lies in [`Reader::bytes`]. By parts it stops reading
    /// when the key is found.
    pub fn find(&mut self, device_page: u64, number: u32, key: &[u8]) -> Result<Place> {
        if !self.by_parts {
            return page::search(self.page(device_page)?, number, key);
        }
        self.counts.pages += 1;
        let parts = self.page_bytes / PAGE_SIZE;
        for part in 0..parts {
            self.counts.parts += u64::from(part > 0);
            self.counts.bytes += PAGE_SIZE as u64;
            let (start, end) = (part * PAGE_SIZE, (part + 1) * PAGE_SIZE);
            let at = device_page + part as u64;
            self.device
                .read(at, &mut self.buf[start..end], LOOKUP)
                .with_context(|| format!("page {at} of the flash file cannot be read"))?;
            match page::search_part(&self.buf[..end], number, key)? {
                Seen::Found(place) => return Ok(Some(place)),
                Seen::Absent => return Ok(None),
                Seen::Beyond => {}
            }
        }
        bail!("an element of page {number} lies beyond its end")
    }

    fn read(&mut self, device_page: u64, bytes: usize) -> Result<()> {
        self.counts.bytes += bytes as u64;
        self.device
            .read(device_page, &mut self.buf[..bytes], LOOKUP)
            .with_context(|| format!("page {device_page} of the flash file cannot be read"))
    }

    /// Reads a whole page to search its elements.
    pub fn page(&mut self, device_page: u64) -> Result<&[u8]> {
        self.counts.pages += 1;
        self.read(device_page, self.page_bytes)?;
        Ok(&self.buf[..self.page_bytes])
    }

    /// Reads a run of device pages to search its elements; the run counts as one page, which it
    /// usually is.
    pub fn run(&mut self, device_page: u64, bytes: usize) -> Result<&[u8]> {
        self.counts.pages += 1;
        if bytes > self.buf.len() {
            self.buf = AlignedBuf::new(bytes / PAGE_SIZE);
        }
        self.read(device_page, bytes)?;
        Ok(&self.buf[..bytes])
    }

    /// Reads the device page with a page's header.
    pub fn header(&mut self, device_page: u64) -> Result<&[u8]> {
        self.counts.headers += 1;
        self.read(device_page, PAGE_SIZE)?;
        Ok(&self.buf[..PAGE_SIZE])
    }

    /// Reads a page of a block's index.
    pub fn index(&mut self, device_page: u64) -> Result<&[u8]> {
        self.counts.indexes += 1;
        self.read(device_page, self.page_bytes)?;
        Ok(&self.buf[..self.page_bytes])
    }

    /// Writes back the page of the last read, changed by `change`, to its place.
    pub fn overwrite<T>(
        &mut self,
        device_page: u64,
        change: impl FnOnce(&mut [u8]) -> Result<T>,
    ) -> Result<T> {
        let done = change(&mut self.buf[..self.page_bytes])?;
        self.device
            .write(device_page, &self.buf[..self.page_bytes], BUILD)
            .with_context(|| format!("page {device_page} of the flash file cannot be written"))?;
        Ok(done)
    }
}

/// Writes pages one after the other, in large pieces.
pub struct Sequential<'d> {
    device: &'d dyn Device,
    buf: AlignedBuf,
    page_bytes: usize,
    filled: usize,
    /// The device page that the buffer goes to.
    at: u64,
    written: u64,
}

impl<'d> Sequential<'d> {
    /// From this page of the device on.
    pub fn new(device: &'d dyn Device, page_bytes: usize, first: u64) -> Sequential<'d> {
        Sequential {
            device,
            buf: AlignedBuf::new(CHUNK.max(page_bytes) / PAGE_SIZE),
            page_bytes,
            filled: 0,
            at: first,
            written: 0,
        }
    }

    /// The next page, of zeros, to be filled.
    pub fn page(&mut self) -> Result<&mut [u8]> {
        if self.filled + self.page_bytes > self.buf.len() {
            self.write_out()?;
        }
        let page = &mut self.buf[self.filled..self.filled + self.page_bytes];
        self.filled += self.page_bytes;
        page.fill(0);
        Ok(page)
    }

    fn write_out(&mut self) -> Result<()> {
        self.device
            .write(self.at, &self.buf[..self.filled], BUILD)
            .context("the flash file cannot be written")?;
        self.at += (self.filled / PAGE_SIZE) as u64;
        self.written += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// Writes the rest and flushes; returns the total bytes written.
    pub fn finish(mut self) -> Result<u64> {
        self.write_out()?;
        self.device
            .flush(BUILD)
            .context("the flash file cannot be flushed")?;
        Ok(self.written)
    }
}
