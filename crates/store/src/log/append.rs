// SPDX-License-Identifier: Apache-2.0
//! From elements to the log's buffers and its index, and from the buffers to the device. Called by
//! the engine, one writer at a time.

use std::sync::atomic::Ordering;

use senko_io::{Purpose, Tag};

use crate::element::{END_OF_TIME, Element, MORE};
use crate::{KeyHash, StoreError};

use super::commit::Sink;
use super::index::{Located, MAX_ELEMENTS, MAX_PAGES};
use super::page::PAYLOAD;
use super::tail::{CHUNK_BYTES, MOST_CHUNKS};
use super::{AppendError, Durability, Log, Ticket};

/// Most bytes of an element, encoded: wherever it begins, it touches at most 256 pages.
pub const MAX_ELEMENT: usize = (MAX_PAGES as usize - 2) * PAYLOAD;

/// Buffers that appends keep, to allocate nothing.
#[derive(Default)]
pub(super) struct Appender {
    encoded: Vec<u8>,
    placed: Vec<Located>,
    /// Of the log's youngest element.
    pub last_time: u64,
}

impl Log {
    /// Appends a batch: all its elements have one time, later than any in the log. They are visible
    /// to look-ups when this returns, all at once for look-ups at [`Log::last_time`]; they are
    /// on the device when the ticket is [committed](Log::commit).
    ///
    /// If this fails, no part of the batch is visible, now or after a replay. It does no I/O unless
    /// [`Log::MOST_UNWRITTEN`] bytes wait to be written, or the batch has more than that.
    pub fn append(&self, elements: &[(KeyHash, Element<'_>)]) -> Result<Ticket, AppendError> {
        let mut appender = self.appender.lock();
        self.group.check()?;
        let Some(time) = elements.first().map(|(_, element)| element.time) else {
            return Ok(self.end());
        };
        let bytes = check(elements, time, appender.last_time)?;
        let flushed = self.flushed.load(Ordering::Relaxed);
        let mut tail = self.tail.write();
        while tail.chunks() >= MOST_CHUNKS {
            drop(tail);
            self.group.write_whole(self)?;
            tail = self.tail.write();
        }
        tail.at_time(time, flushed);
        if tail.room() < bytes + slack(bytes)
            || self.index.len() + elements.len() as u64 > MAX_ELEMENTS
        {
            return Err(AppendError::Full);
        }
        let Appender {
            encoded, placed, ..
        } = &mut *appender;
        placed.clear();
        for (nth, (_, element)) in elements.iter().enumerate() {
            if tail.chunks() >= MOST_CHUNKS && bytes > Log::MOST_UNWRITTEN as u64 {
                drop(tail);
                self.group.write_whole(self)?;
                tail = self.tail.write();
            }
            let more = if nth + 1 < elements.len() { MORE } else { 0 };
            let flags = element.flags & !MORE | more;
            encoded.clear();
            Element { flags, ..*element }.encode(encoded);
            let put = tail.put(encoded, time, flushed);
            if put.first {
                self.index
                    .set_page_time(put.place / senko_io::PAGE_SIZE as u32, time);
            }
            placed.push(Located::new(put.place, put.pages, time, encoded[0]));
        }
        let ticket = Ticket { pages: tail.end() };
        drop(tail);
        for ((hash, element), located) in elements.iter().zip(placed.iter()) {
            self.packing.add(element);
            self.index.insert(*hash, *located);
        }
        appender.last_time = time;
        self.oldest.fetch_min(time, Ordering::Relaxed);
        self.visible.store(time, Ordering::Release);
        Ok(ticket)
    }

    /// Returns when the ticket's writes are as durable as asked. `None` returns at once, `Buffered`
    /// after the write, `Synced` after the write and the flush. Threads that wait together share
    /// one write and one flush.
    ///
    /// The first failure of the device is returned as it is. Every later call fails with
    /// [`StoreError::ReadOnly`].
    pub fn commit(&self, ticket: Ticket, durability: Durability) -> Result<(), StoreError> {
        match durability {
            Durability::None => Ok(()),
            Durability::Buffered if ticket.pages <= self.written.load(Ordering::Acquire) => Ok(()),
            Durability::Buffered => self.group.write(self, ticket.pages),
            Durability::Synced => self.group.sync(self, ticket.pages),
        }
    }

    /// Writes the chunks that are full. A background thread calls it when [`Log::unwritten_chunks`]
    /// is not 0 after an append, so that no append has to.
    pub fn write_behind(&self) -> Result<(), StoreError> {
        self.group.write_whole(self)
    }

    /// Full chunks that wait to be written.
    pub fn unwritten_chunks(&self) -> usize {
        self.tail.read().chunks()
    }

    /// The ticket of everything appended so far.
    pub fn end(&self) -> Ticket {
        Ticket {
            pages: self.tail.read().end(),
        }
    }

    /// Closes the log to writes: every later append fails as in a full log.
    pub fn freeze(&self) {
        self.tail.write().full = true;
    }

    /// Makes every later append and commit fail with [`StoreError::ReadOnly`]: another part of the
    /// store saw the device fail.
    pub fn latch(&self, cause: &StoreError) {
        self.group.latch(cause);
    }
}

/// Space that a batch may lose to padding. Whenever the append unlocks the tail to write, other
/// threads may cut the current page, once. In between it fills at least two chunks.
pub(super) fn slack(bytes: u64) -> u64 {
    if bytes <= Log::MOST_UNWRITTEN as u64 {
        return 0;
    }
    (bytes / (2 * CHUNK_BYTES) + 1) * PAYLOAD as u64
}

/// The bytes of a batch, if the log can take it.
fn check(
    elements: &[(KeyHash, Element<'_>)],
    time: u64,
    last_time: u64,
) -> Result<u64, StoreError> {
    let invalid = |what: String| Err(StoreError::Invalid(what));
    if time >= END_OF_TIME {
        return invalid(format!(
            "the clock is at {time} us since 1970, and a store keeps times below {END_OF_TIME} (in \
             the year 4253): set the clock"
        ));
    }
    if time <= last_time {
        return invalid(format!(
            "a batch of time {time} cannot follow one of time {last_time} in a log"
        ));
    }
    let mut bytes = 0;
    for (_, element) in elements {
        let len = element.encoded_len();
        if element.time != time {
            return invalid(format!(
                "an element of time {} is in a batch of time {time}",
                element.time
            ));
        }
        if !element.is_valid() {
            return invalid(
                "the key, the value or the flags of an element cannot be stored".to_owned(),
            );
        }
        if len > MAX_ELEMENT {
            return invalid(format!(
                "an element of {len} bytes is too long for a log, which takes {MAX_ELEMENT}"
            ));
        }
        bytes += len as u64;
    }
    Ok(bytes)
}

impl Sink for Log {
    fn end(&self) -> u32 {
        self.tail.read().end()
    }

    fn write(&self, whole: bool) -> Result<u32, StoreError> {
        let tag = Tag::store(Purpose::Log);
        let end = {
            let mut tail = self.tail.write();
            if !whole {
                tail.cut(self.flushed.load(Ordering::Relaxed));
            }
            // Waits only for what is in the buffer now. If it also waited for later appends, the
            // thread would wait for those too.
            tail.end()
        };
        loop {
            let next = self.tail.read().next_chunk();
            let Some(chunk) = next.filter(|chunk| chunk.first < end) else {
                return Ok(self.written.load(Ordering::Relaxed));
            };
            let page = self.extent.first + u64::from(chunk.first);
            self.device
                .write(page, chunk.bytes(), tag)
                .map_err(StoreError::io("writing the log"))?;
            let mut tail = self.tail.write();
            tail.wrote(chunk);
            self.written.store(tail.written(), Ordering::Release);
        }
    }

    fn flush(&self, written: u32) -> Result<(), StoreError> {
        self.device
            .flush(Tag::store(Purpose::Log))
            .map_err(StoreError::io("flushing the log"))?;
        self.flushed.fetch_max(written, Ordering::Relaxed);
        Ok(())
    }
}
