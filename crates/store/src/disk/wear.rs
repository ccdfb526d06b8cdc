// SPDX-License-Identifier: Apache-2.0
//! The bytes that were put, written and given back since the store was made. The device counts what
//! passes through it, and each commit keeps the counts in its superblock. After a kill those since
//! the newest commit are missing.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_io::le::u64_at;
use senko_io::{AlignedBuf, Device, IoError, PAGE_SIZE, ReadRequest, ReadStream, Tag};

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Wear {
    /// Of keys and values.
    put: AtomicU64,
    written: AtomicU64,
    /// Given back to the file system, or discarded.
    discarded: AtomicU64,
}

impl Wear {
    pub const BYTES: usize = 24;

    /// The counts in a superblock; they go on from there.
    pub fn decode(bytes: &[u8]) -> Wear {
        Wear {
            put: u64_at(bytes, 0).into(),
            written: u64_at(bytes, 8).into(),
            discarded: u64_at(bytes, 16).into(),
        }
    }

    pub fn encode(&self) -> [u8; Wear::BYTES] {
        let mut bytes = [0; Wear::BYTES];
        for (to, count) in bytes.chunks_exact_mut(8).zip(self.counts()) {
            to.copy_from_slice(&count.to_le_bytes());
        }
        bytes
    }

    /// Bytes put, written and given back.
    pub fn counts(&self) -> [u64; 3] {
        [&self.put, &self.written, &self.discarded].map(|count| count.load(Ordering::Relaxed))
    }

    pub fn put(&self, bytes: u64) {
        self.put.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds what another device was given.
    pub fn add(&self, other: &Wear) {
        let counts = [&self.put, &self.written, &self.discarded];
        for (count, more) in counts.into_iter().zip(other.counts()) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }
}

/// A device, and the counts of what is written to it.
pub(crate) struct Counted {
    device: Arc<dyn Device>,
    wear: Arc<Wear>,
}

impl Counted {
    pub fn over(device: Arc<dyn Device>) -> (Arc<dyn Device>, Arc<Wear>) {
        let wear = Arc::new(Wear::default());
        let counts = Arc::clone(&wear);
        (Arc::new(Counted { device, wear }), counts)
    }

    fn wrote(&self, result: Result<(), IoError>, bytes: usize) -> Result<(), IoError> {
        if result.is_ok() {
            let written = &self.wear.written;
            written.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        result
    }

    fn gave_back(&self, pages: u64) {
        let bytes = pages * PAGE_SIZE as u64;
        self.wear.discarded.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Device for Counted {
    fn pages(&self) -> u64 {
        self.device.pages()
    }
    fn grow(&self, pages: u64) -> Result<(), IoError> {
        self.device.grow(pages)
    }
    fn room(&self) -> Option<u64> {
        self.device.room()
    }
    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        self.device.read(page, buf, tag)
    }
    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.wrote(self.device.write(page, buf, tag), buf.len())
    }
    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        self.device.flush(tag)
    }
    fn write_durable(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.wrote(self.device.write_durable(page, buf, tag), buf.len())
    }
    fn oldest_pin(&self, below: u64) -> Option<u64> {
        self.device.oldest_pin(below)
    }
    fn map(&self, page: u64, pages: usize) -> io::Result<Option<AlignedBuf>> {
        self.device.map(page, pages)
    }
    fn boot(&self) -> Option<u128> {
        self.device.boot()
    }
    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError> {
        self.device.discard(page, pages, tag)?;
        self.gave_back(pages);
        Ok(())
    }
    fn shrink(&self, pages: u64) -> Result<(), IoError> {
        let before = self.device.pages();
        self.device.shrink(pages)?;
        self.gave_back(before.saturating_sub(self.device.pages()));
        Ok(())
    }
    fn extent(&self, page: u64) -> Option<Range<u64>> {
        self.device.extent(page)
    }
    fn rest(&self) -> Result<Vec<u8>, IoError> {
        self.device.rest()
    }
    fn punch(&self, page: u64, pages: u64, tag: Tag) -> Result<bool, IoError> {
        let done = self.device.punch(page, pages, tag)?;
        self.gave_back(if done { pages } else { 0 });
        Ok(done)
    }
    fn fill(&self, page: u64, pages: u64) -> Result<(), IoError> {
        self.device.fill(page, pages)
    }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>], tag: Tag) -> Result<(), IoError> {
        self.device.read_batch(requests, tag)
    }
    fn read_stream(&self, slots: usize, depth: usize, stream: &mut dyn ReadStream, tag: Tag) {
        self.device.read_stream(slots, depth, stream, tag);
    }
}
