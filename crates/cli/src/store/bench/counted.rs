// SPDX-License-Identifier: Apache-2.0
//! A device that counts what passes through it, for the reads a get and the write amplification
//! that a bench reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_io::{Device, IoError, PAGE_SIZE, Purpose, ReadRequest, ReadStream, Tag};

/// The counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Reads that answer gets.
    pub lookup_reads: u64,
    /// Bytes of these.
    pub lookup_bytes: u64,
    /// Bytes of all other reads: compaction, merges of maps.
    pub other_read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
}

senko_io::counters! {
    Passed: lookup_reads lookup_bytes other_read_bytes writes written_bytes flushes
}

#[derive(Default)]
struct Counts {
    lookup_reads: AtomicU64,
    lookup_bytes: AtomicU64,
    other_read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
}

fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// Passes everything on to `inner`.
pub struct Counted<D> {
    inner: D,
    counts: Counts,
}

impl<D> Counted<D> {
    pub fn new(inner: D) -> Arc<Counted<D>> {
        Arc::new(Counted {
            inner,
            counts: Counts::default(),
        })
    }

    pub fn passed(&self) -> Passed {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        Passed {
            lookup_reads: read(&counts.lookup_reads),
            lookup_bytes: read(&counts.lookup_bytes),
            other_read_bytes: read(&counts.other_read_bytes),
            writes: read(&counts.writes),
            written_bytes: read(&counts.written_bytes),
            flushes: read(&counts.flushes),
        }
    }

    fn count_read(&self, bytes: usize, tag: Tag) {
        if matches!(tag.purpose, Purpose::Lookup | Purpose::LookupRest) {
            add(&self.counts.lookup_reads, 1);
            add(&self.counts.lookup_bytes, bytes);
        } else {
            add(&self.counts.other_read_bytes, bytes);
        }
    }
}

impl<D: Device> Device for Counted<D> {
    fn pages(&self) -> u64 {
        self.inner.pages()
    }

    fn grow(&self, pages: u64) -> Result<(), IoError> {
        self.inner.grow(pages)
    }

    fn room(&self) -> Option<u64> {
        self.inner.room()
    }

    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        self.count_read(buf.len(), tag);
        self.inner.read(page, buf, tag)
    }

    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        add(&self.counts.writes, 1);
        add(&self.counts.written_bytes, buf.len());
        self.inner.write(page, buf, tag)
    }

    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        add(&self.counts.flushes, 1);
        self.inner.flush(tag)
    }

    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError> {
        self.inner.discard(page, pages, tag)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>], tag: Tag) -> Result<(), IoError> {
        for request in requests.iter() {
            self.count_read(request.buf.len(), tag);
        }
        self.inner.read_batch(requests, tag)
    }

    fn read_stream(&self, slots: usize, depth: usize, stream: &mut dyn ReadStream, tag: Tag) {
        let mut counting = CountingStream {
            count: |bytes| self.count_read(bytes, tag),
            stream,
        };
        self.inner.read_stream(slots, depth, &mut counting, tag);
    }
}

/// Counts the reads that a stream asks for.
struct CountingStream<'s, C> {
    count: C,
    stream: &'s mut dyn ReadStream,
}

impl<C: Fn(usize)> ReadStream for CountingStream<'_, C> {
    fn next(&mut self, slot: usize) -> Option<(u64, usize)> {
        let next = self.stream.next(slot);
        if let Some((_, pages)) = next {
            (self.count)(pages * PAGE_SIZE);
        }
        next
    }

    fn done(&mut self, slot: usize, result: Result<&[u8], IoError>) {
        self.stream.done(slot, result);
    }
}
