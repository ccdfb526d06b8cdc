// SPDX-License-Identifier: Apache-2.0
//! From a key to its element in the log. A look-up is a state machine that yields page reads:
//! [`Log::lookup`], then [`LogRead::finish`] until it is not a read.
//!
//! An element that is still in DRAM is returned at once. An element may straddle the end of the
//! written part, and be half on the device and half in DRAM. Then the read carries the second half
//! along.

use std::sync::atomic::Ordering;

use senko_io::{AlignedBuf, PAGE_SIZE, Purpose, Tag};

use crate::element::{Element, MORE};
use crate::{KeyHash, StoreError};

use super::Log;
use super::index::Located;
use super::page::{self, PageHeader};

/// The result of a step of a look-up.
#[derive(Debug)]
pub enum LogFind {
    /// The log has no such version of the key.
    Absent,
    Found(LogElement),
    /// The caller must read these pages first.
    Read(LogRead),
}

/// An element of the log, copied.
#[derive(Clone, Debug)]
pub struct LogElement {
    encoded: Vec<u8>,
}

impl LogElement {
    /// From bytes that begin with an element of `len` bytes.
    fn new(bytes: &[u8], len: usize) -> LogElement {
        let mut encoded = bytes[..len].to_vec();
        // A mark of the log, not of the element.
        encoded[0] &= !MORE;
        LogElement { encoded }
    }

    pub fn element(&self) -> Element<'_> {
        Element::of_encoded(&self.encoded)
    }

    pub fn into_value(mut self) -> Vec<u8> {
        let value = self.element().value.len();
        self.encoded.drain(..self.encoded.len() - value);
        self.encoded
    }
}

/// A read that a look-up waits for: [`LogRead::pages`] pages of the device from [`LogRead::page`]
/// on.
#[derive(Debug)]
pub struct LogRead {
    hash: KeyHash,
    located: Located,
    page: u64,
    pages: u32,
    /// Payload of the element's pages that are not written yet.
    rest: Vec<u8>,
}

impl Log {
    /// The newest version of `key` whose time is at most `at`. To see batches whole, `at` must be
    /// at most [`Log::last_time`], taken before the first look-up.
    pub fn lookup(&self, hash: KeyHash, key: &[u8], at: u64) -> Result<LogFind, StoreError> {
        self.chase(hash, key, self.index.find(hash, at))
    }

    /// As [`Log::lookup`], but does the reads.
    pub fn get(
        &self,
        hash: KeyHash,
        key: &[u8],
        at: u64,
    ) -> Result<Option<LogElement>, StoreError> {
        let mut find = self.lookup(hash, key, at)?;
        loop {
            let read = match find {
                LogFind::Absent => return Ok(None),
                LogFind::Found(element) => return Ok(Some(element)),
                LogFind::Read(read) => read,
            };
            let mut buf = AlignedBuf::new(read.pages as usize);
            self.device
                .read(read.page, &mut buf, Tag::store(Purpose::Lookup))
                .map_err(StoreError::io("reading the log"))?;
            find = read.finish(self, key, &buf)?;
        }
    }

    /// Follows a chain to the first element that has the key, or that has to be read.
    fn chase(
        &self,
        hash: KeyHash,
        key: &[u8],
        mut next: Option<Located>,
    ) -> Result<LogFind, StoreError> {
        while let Some(located) = next {
            let first = located.place / PAGE_SIZE as u32;
            let end = first + located.pages;
            let mut device_pages = located.pages;
            let mut rest = Vec::new();
            if end > self.written.load(Ordering::Acquire) {
                let tail = self.tail.read();
                // The pages may have been written between the two looks.
                let split = tail.written().clamp(first, end);
                device_pages = split - first;
                let begin = |number| {
                    if number == first {
                        located.place as usize % PAGE_SIZE
                    } else {
                        page::begin(number)
                    }
                };
                if device_pages == 0 && located.pages == 1 {
                    let (page, used) = tail.page(first);
                    if let Some(found) = self.accept(&located, key, &page[begin(first)..used])? {
                        return Ok(LogFind::Found(found));
                    }
                    next = self.index.next(hash, &located);
                    continue;
                }
                for number in split..end {
                    let (page, used) = tail.page(number);
                    rest.extend_from_slice(&page[begin(number)..used]);
                }
            }
            if device_pages > 0 {
                return Ok(LogFind::Read(LogRead {
                    hash,
                    located,
                    page: self.extent.first + u64::from(first),
                    pages: device_pages,
                    rest,
                }));
            }
            if let Some(found) = self.accept(&located, key, &rest)? {
                return Ok(LogFind::Found(found));
            }
            next = self.index.next(hash, &located);
        }
        Ok(LogFind::Absent)
    }

    /// The element that the index has at `located`, if it has the key. `bytes` begin with the
    /// element.
    fn accept(
        &self,
        located: &Located,
        key: &[u8],
        bytes: &[u8],
    ) -> Result<Option<LogElement>, StoreError> {
        let damaged = |what: &str| {
            let offset = self.extent.first * PAGE_SIZE as u64 + u64::from(located.place);
            let what = format!("log {}: {what}", self.id);
            StoreError::damaged(offset, what)
        };
        let (element, len) = Element::decode(bytes)
            .map_err(|_| damaged("an element is not where it was written"))?;
        if element.time != located.time {
            return Err(damaged("another element lies where one was written"));
        }
        Ok((element.key == key).then(|| LogElement::new(bytes, len)))
    }
}

impl LogRead {
    /// The first page of the device to read.
    pub fn page(&self) -> u64 {
        self.page
    }

    /// The time that the index has for the element.
    pub(crate) fn time(&self) -> u64 {
        self.located.time
    }

    /// The number of pages to read.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Continues with the pages that were read: checks them and compares the key.
    ///
    /// # Panics
    /// If `bytes` has another length than the pages to read.
    pub fn finish(self, log: &Log, key: &[u8], bytes: &[u8]) -> Result<LogFind, StoreError> {
        assert_eq!(bytes.len(), self.pages as usize * PAGE_SIZE, "whole pages");
        let first = self.located.place / PAGE_SIZE as u32;
        let mut joined = Vec::new();
        let mut payload: &[u8] = &[];
        for (nth, page) in bytes.chunks_exact(PAGE_SIZE).enumerate() {
            let number = first + nth as u32;
            let Some(header) = PageHeader::read(page, log.id, number) else {
                let offset = (self.page + nth as u64) * PAGE_SIZE as u64;
                let what = format!("log {}: the checksum of page {number} is wrong", log.id);
                return Err(StoreError::damaged(offset, what));
            };
            let begin = if nth == 0 {
                self.located.place as usize % PAGE_SIZE
            } else {
                page::begin(number)
            };
            payload = page.get(begin..usize::from(header.used)).unwrap_or(&[]);
            if self.located.pages > 1 {
                joined.extend_from_slice(payload);
            }
        }
        if self.located.pages > 1 {
            joined.extend_from_slice(&self.rest);
            payload = &joined;
        }
        match log.accept(&self.located, key, payload)? {
            Some(found) => Ok(LogFind::Found(found)),
            None => {
                let next = log.index.next(self.hash, &self.located);
                log.chase(self.hash, key, next)
            }
        }
    }
}
