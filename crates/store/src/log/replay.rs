// SPDX-License-Identifier: Apache-2.0
//! Opens a log after the process ended, however it did: the longest prefix of whole batches is
//! there again.
//!
//! The log's pages are followed from the first on, as long as each is intact and names the page
//! before it. The rest of the extent is read too, for two reasons. The next life must be later than
//! the life of any page there. And a page there may say that a page with a failed check was
//! durable. A crash cannot take a durable page, so this is damage, and is said rather than taken
//! for the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::element::Element;
use crate::{Extent, Hasher, KeyHash, StoreError};

use super::Log;
use super::index::{Located, LogIndex, MAX_AGE, MAX_ELEMENTS, MAX_PAGES};
use super::packing::Packing;
use super::page::{self, PageHeader, UNKNOWN};
use super::stream::{Assembler, Spot, Visitor, read_pages};
use super::tail::Tail;

/// Collects a batch, then puts it into the index.
struct Rebuild<'a> {
    index: &'a LogIndex,
    packing: &'a Packing,
    hasher: &'a Hasher,
    extent: Extent,
    batch: Vec<(KeyHash, Located)>,
    /// The page of which the time is known, and that time.
    page: (u32, u64),
    oldest: u64,
    /// Of the last whole batch.
    newest: u64,
    /// Of the last element.
    time: u64,
}

impl Visitor for Rebuild<'_> {
    fn element(&mut self, spot: Spot, element: &Element<'_>) -> Result<(), StoreError> {
        let page = spot.place / PAGE_SIZE as u32;
        if self.page.0 != page {
            self.page = (page, element.time);
            self.index.set_page_time(page, element.time);
        }
        let in_batch = self.batch.is_empty() || element.time == self.time;
        let age = element.time.checked_sub(self.page.1);
        let count = self.index.len() + self.batch.len() as u64;
        let known = age.is_some_and(|age| age < MAX_AGE)
            && in_batch
            && element.time > self.newest
            && spot.pages <= MAX_PAGES
            && count < MAX_ELEMENTS;
        if !known {
            let offset = self.extent.first * PAGE_SIZE as u64 + u64::from(spot.place);
            let what = "an element of the log has a time or a length that no log has";
            return Err(StoreError::damaged(offset, what));
        }
        self.time = element.time;
        let located = Located::new(spot.place, spot.pages, element.time, element.flags);
        self.batch.push((self.hasher.hash(element.key), located));
        // An element of a void batch counts as well; the sum is a bound.
        self.packing.add(element);
        Ok(())
    }

    fn whole(&mut self) {
        for (hash, located) in self.batch.drain(..) {
            self.index.insert(hash, located);
        }
        self.oldest = self.oldest.min(self.time);
        self.newest = self.time;
    }

    fn void(&mut self) {
        self.batch.clear();
    }
}

/// The facts from pages that no longer belong to the log.
#[derive(Default)]
struct Rest {
    life: Option<u16>,
    /// Pages that were known to be durable.
    durable: u32,
}

impl Rest {
    fn page(&mut self, number: u32, header: &PageHeader) {
        self.life = self.life.max(Some(header.life));
        if header.behind != UNKNOWN {
            let durable = number.saturating_sub(u32::from(header.behind));
            self.durable = self.durable.max(durable);
        }
    }
}

impl Log {
    /// Opens the log that lies in `extent`, with every whole batch of which all pages survived; it
    /// can be appended to. An extent that this log never wrote to is an empty log.
    ///
    /// Damage within what was durable is an error where the log continued behind it. At its very
    /// end, damage looks like a crash.
    pub fn replay(
        device: Arc<dyn Device>,
        id: u64,
        extent: Extent,
        hasher: Hasher,
    ) -> Result<Log, StoreError> {
        super::check_extent(&*device, extent)?;
        let (index, packing) = (LogIndex::new(extent.pages), Packing::default());
        let mut rebuild = Rebuild {
            index: &index,
            packing: &packing,
            hasher: &hasher,
            extent,
            batch: Vec::new(),
            page: (u32::MAX, 0),
            oldest: u64::MAX,
            newest: 0,
            time: 0,
        };
        let mut assembler = Assembler::new(id, extent);
        let mut rest = Rest::default();
        let (mut ended, mut stale_end) = (false, false);
        let tag = Tag::store(Purpose::Recover);
        read_pages(&*device, extent, extent.pages, tag, |number, page| {
            let header = PageHeader::read(page, id, number);
            if !ended && !header.is_some_and(|header| assembler.fits(&header)) {
                ended = true;
                stale_end = page::raw_prev(page) == assembler.prev();
            }
            if let Some(header) = header {
                rest.page(number, &header);
                if !ended {
                    assembler.page(&header, page, &mut rebuild)?;
                }
            }
            Ok(true)
        })?;
        assembler.void(&mut rebuild);
        let end = assembler.next();
        if rest.durable > end {
            let what = format!("log {id}: page {end} was durable, and is not what was written");
            return Err(StoreError::damaged(assembler.offset(end), what));
        }
        let (oldest, newest) = (rebuild.oldest, rebuild.newest);
        let life = rest.life.map_or(Some(0), |life| life.checked_add(1));
        let mut tail = Tail::new(id, extent, life.unwrap_or(u16::MAX), end, assembler.prev());
        // After 65,536 lives, pages of an earlier one could follow: such a log is only read.
        tail.full |= life.is_none();
        let mut log = Log::new(device, id, extent, hasher, tail);
        (log.index, log.packing) = (index, packing);
        log.appender.get_mut().last_time = newest;
        (log.oldest, log.visible) = (oldest.into(), newest.into());
        (log.follows, log.flushed) = (assembler.follows().into(), rest.durable.into());
        log.stale_end = stale_end.into();
        Ok(log)
    }

    /// Makes sure that a torn page at the log's end stays lost. Call it before anything is
    /// appended, and before space that the log named is reused. A page that goes over it could be
    /// torn as well, and the two together be the lost page.
    pub fn erase_end(&self) -> Result<(), StoreError> {
        if !self.stale_end.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let page = self.extent.first + u64::from(self.tail.read().end());
        let zeroes = AlignedBuf::new(1);
        let tag = Tag::store(Purpose::Log);
        self.device
            .write(page, &zeroes, tag)
            .map_err(StoreError::io("erasing the log's torn end"))?;
        self.device
            .flush(tag)
            .map_err(StoreError::io("erasing the log's torn end"))
    }
}

#[cfg(test)]
mod tests {
    use senko_io::faulty::FaultyDevice;

    use super::*;
    use crate::log::{AppendError, page};

    #[test]
    fn a_log_of_the_last_life_is_read_and_not_appended_to() {
        let extent = Extent::new(0, 16);
        for (life, full) in [(u16::MAX - 1, false), (u16::MAX, true)] {
            let device = FaultyDevice::new(16, 1);
            let hasher = Hasher::new([1; 16]);
            let element = |time| Element {
                flags: 0,
                key: b"key",
                value: b"value",
                time,
                expiry: 0,
            };
            let mut encoded = Vec::new();
            element(5).encode(&mut encoded);
            let mut bytes = vec![0; PAGE_SIZE];
            page::write_label(&mut bytes, 1, extent);
            let begin = page::begin(0);
            bytes[begin..begin + encoded.len()].copy_from_slice(&encoded);
            let header = PageHeader {
                crc: 0,
                prev: page::root(1),
                life,
                behind: 0,
                used: (begin + encoded.len()) as u16,
                first: begin as u16,
            };
            header.compose(&mut bytes, 1, 0);
            let written = device.write(0, &bytes, Tag::store(Purpose::Log));
            written.expect("a sound device");
            let log = Log::replay(device, 1, extent, hasher.clone()).expect("a sound log");
            let hash = hasher.hash(b"key");
            let found = log.get(hash, b"key", 9).expect("no damage");
            assert_eq!(found.expect("it is there").element(), element(5));
            let result = log.append(&[(hash, element(6))]);
            assert_eq!(matches!(result, Err(AppendError::Full)), full);
        }
    }
}
