// SPDX-License-Identifier: Apache-2.0
//! The end of the log in DRAM: the chunk that is being filled, and the chunks that wait to be
//! written. Filled by [`super::append`], emptied by the writing thread ([`super::commit`]), read by
//! look-ups of elements that are not on the device yet.
//!
//! ```text
//! pages:  0 .. written | chunk | chunk | start ......... page | page+1 ...
//!         on device    | pending: not changed any more | buf, filled to (page, at)
//! ```
//! TAIL-1. Pages below `written` are on the device; from there to `page`, all are in `pending` or
//! `buf`, in order. TAIL-2. A page is composed (header, CRC, chain) once, when it is full or cut,
//! and written once. Only `buf` changes, at (page, at). TAIL-3. No element has padding inside: cuts
//! come between elements.

use std::collections::VecDeque;
use std::sync::Arc;

use senko_io::{AlignedBuf, PAGE_SIZE};

use crate::Extent;

use super::index::MAX_AGE;
use super::page::{self, PAYLOAD, PageHeader, UNKNOWN};

/// Pages of a chunk: one write.
pub(super) const CHUNK_PAGES: u32 = 64;
pub(super) const CHUNK_BYTES: u64 = CHUNK_PAGES as u64 * PAGE_SIZE as u64;
/// From this many chunks on that wait to be written, an append writes.
pub(super) const MOST_CHUNKS: usize = 4;

/// Pages that wait to be written and do not change any more.
pub(super) struct Chunk {
    buf: AlignedBuf,
    /// Number of its first page.
    pub first: u32,
    /// How many pages of the buffer.
    pub pages: u32,
}

impl Chunk {
    /// What is to be written.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[..self.pages as usize * PAGE_SIZE]
    }
}

/// Where an element was put.
pub(super) struct Put {
    /// Its first byte in the log.
    pub place: u32,
    /// Pages that it touches.
    pub pages: u32,
    /// It is the first that begins in its page.
    pub first: bool,
}

/// The end of the log.
pub(super) struct Tail {
    id: u64,
    life: u16,
    /// Pages of the extent.
    limit: u32,
    /// Nothing more may be appended.
    pub full: bool,
    /// CRC of the last composed page.
    prev: u32,
    buf: AlignedBuf,
    start: u32,
    page: u32,
    at: usize,
    /// Where the first element of the page begins, 0: none yet.
    first: usize,
    /// That element's time.
    first_time: u64,
    pending: VecDeque<Arc<Chunk>>,
    spare: Vec<AlignedBuf>,
    written: u32,
}

impl Tail {
    /// Goes on at page `page` of a log, behind a page whose CRC is `prev`.
    pub fn new(id: u64, extent: Extent, life: u16, page: u32, prev: u32) -> Tail {
        let mut buf = AlignedBuf::new(CHUNK_PAGES as usize);
        if page == 0 {
            page::write_label(&mut buf, id, extent);
        }
        Tail {
            id,
            life,
            limit: extent.pages,
            full: page >= extent.pages,
            prev,
            buf,
            start: page,
            page,
            at: page::begin(page),
            first: 0,
            first_time: 0,
            pending: VecDeque::new(),
            spare: Vec::new(),
            written: page,
        }
    }

    /// Lets the label say which page the log follows on; false once the first page was composed.
    pub fn set_follows(&mut self, chain: u32) -> bool {
        let open = self.page == 0;
        if open {
            page::write_follows(&mut self.buf, chain);
        }
        open
    }

    /// CRC of the last composed page.
    pub fn prev(&self) -> u32 {
        self.prev
    }

    /// Bytes of elements that still fit.
    pub fn room(&self) -> u64 {
        if self.full || self.page >= self.limit {
            return 0;
        }
        (PAGE_SIZE - self.at) as u64 + u64::from(self.limit - self.page - 1) * PAYLOAD as u64
    }

    /// Pages so far, the one being filled counted whole.
    pub fn end(&self) -> u32 {
        self.page + u32::from(self.unfinished())
    }

    fn unfinished(&self) -> bool {
        self.page < self.limit && self.at > page::begin(self.page)
    }

    /// Pages on the device.
    pub fn written(&self) -> u32 {
        self.written
    }

    /// Chunks that wait to be written.
    pub fn chunks(&self) -> usize {
        self.pending.len()
    }

    /// The first chunk that waits to be written.
    pub fn next_chunk(&self) -> Option<Arc<Chunk>> {
        self.pending.front().cloned()
    }

    /// The first chunk was written.
    pub fn wrote(&mut self, chunk: Arc<Chunk>) {
        let first = self.pending.pop_front();
        debug_assert!(first.is_some_and(|first| Arc::ptr_eq(&first, &chunk)));
        self.written = chunk.first + chunk.pages;
        if let Ok(chunk) = Arc::try_unwrap(chunk)
            && self.spare.len() < MOST_CHUNKS
        {
            self.spare.push(chunk.buf);
        }
    }

    /// Begins a new page where the times of this page's elements would lie too far apart for the
    /// index. `flushed` pages are durable.
    pub fn at_time(&mut self, time: u64, flushed: u32) {
        if self.first != 0 && time - self.first_time >= MAX_AGE {
            self.finish_page(flushed);
        }
    }

    /// Puts an element that fits ([`Tail::room`]).
    pub fn put(&mut self, mut bytes: &[u8], time: u64, flushed: u32) -> Put {
        debug_assert!(bytes.len() as u64 <= self.room());
        let (begin, place) = (self.page, self.page as usize * PAGE_SIZE + self.at);
        let first = self.first == 0;
        if first {
            self.first = self.at;
            self.first_time = time;
        }
        let mut last = begin;
        while !bytes.is_empty() {
            last = self.page;
            let from = (self.page - self.start) as usize * PAGE_SIZE + self.at;
            let take = bytes.len().min(PAGE_SIZE - self.at);
            self.buf[from..from + take].copy_from_slice(&bytes[..take]);
            self.at += take;
            bytes = &bytes[take..];
            if self.at == PAGE_SIZE {
                self.finish_page(flushed);
            }
        }
        Put {
            place: place as u32,
            pages: last - begin + 1,
            first,
        }
    }

    fn header(&self, flushed: u32) -> PageHeader {
        let behind = self.page.saturating_sub(flushed);
        PageHeader {
            crc: 0,
            prev: self.prev,
            life: self.life,
            behind: u16::try_from(behind).unwrap_or(UNKNOWN),
            used: self.at as u16,
            first: self.first as u16,
        }
    }

    fn finish_page(&mut self, flushed: u32) {
        let header = self.header(flushed);
        let from = (self.page - self.start) as usize * PAGE_SIZE;
        let page = &mut self.buf[from..from + PAGE_SIZE];
        self.prev = header.compose(page, self.id, self.page);
        self.page += 1;
        self.at = page::begin(self.page);
        self.first = 0;
        if self.page - self.start == CHUNK_PAGES || self.page == self.limit {
            self.freeze();
        }
    }

    /// Lets the chunk that was being filled wait to be written.
    fn freeze(&mut self) {
        let next = match self.spare.pop() {
            Some(buf) => buf,
            None if self.page == self.limit => AlignedBuf::new(0),
            None => AlignedBuf::new(CHUNK_PAGES as usize),
        };
        self.pending.push_back(Arc::new(Chunk {
            buf: std::mem::replace(&mut self.buf, next),
            first: self.start,
            pages: self.page - self.start,
        }));
        self.start = self.page;
    }

    /// Ends the page that is being filled, so that all there is can be written.
    pub fn cut(&mut self, flushed: u32) {
        if self.unfinished() {
            self.finish_page(flushed);
        }
        if self.page > self.start {
            self.freeze();
        }
    }

    /// The bytes of page `number`, which is not on the device, and where its elements end.
    pub fn page(&self, number: u32) -> (&[u8], usize) {
        let (bytes, first) = self
            .pending
            .iter()
            .find(|chunk| (chunk.first..chunk.first + chunk.pages).contains(&number))
            .map_or((&self.buf[..], self.start), |chunk| {
                (chunk.bytes(), chunk.first)
            });
        let from = (number - first) as usize * PAGE_SIZE;
        let page = &bytes[from..from + PAGE_SIZE];
        let used = if number == self.page {
            self.at
        } else {
            usize::from(u16::from_le_bytes([page[12], page[13]]))
        };
        (page, used)
    }

    /// Copies of all pages that are not on the device, composed as if the log was cut here.
    pub fn unwritten(&self) -> Vec<u8> {
        let mut pages = Vec::new();
        for number in self.written..self.end() {
            pages.extend_from_slice(self.page(number).0);
        }
        if self.unfinished() {
            let from = pages.len() - PAGE_SIZE;
            self.header(0)
                .compose(&mut pages[from..], self.id, self.page);
        }
        pages
    }
}
