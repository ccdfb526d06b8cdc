// SPDX-License-Identifier: Apache-2.0
//! The files that a power cut leaves, in memory.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use senko_io::{Device, IoError, PAGE_SIZE, Tag};

const SECTOR: usize = 512;

/// The bytes of a file, shared with copies of it.
#[derive(Clone, Default)]
pub struct Pages {
    pages: Vec<Option<Arc<[u8; PAGE_SIZE]>>>,
    /// The beginning of the newest covered call on each page. An older call does not overwrite it.
    stamps: Vec<u64>,
    pub length: u64,
}

impl Pages {
    pub(super) fn page(&mut self, number: usize) -> &mut [u8; PAGE_SIZE] {
        if self.pages.len() <= number {
            self.pages.resize(number + 1, None);
        }
        Arc::make_mut(self.pages[number].get_or_insert_with(|| Arc::new([0; PAGE_SIZE])))
    }

    /// Puts the bytes for whose sector `is_there` says so.
    pub(super) fn put(
        &mut self,
        at: u64,
        bytes: &[u8],
        stamp: u64,
        is_there: &mut dyn FnMut() -> bool,
    ) {
        let mut done = 0;
        while done < bytes.len() {
            let offset = at as usize + done;
            let (number, within) = (offset / PAGE_SIZE, offset % PAGE_SIZE);
            let step = (SECTOR - within % SECTOR).min(bytes.len() - done);
            let is_newer = self.stamps.get(number).is_some_and(|old| *old > stamp);
            if is_there() && !is_newer {
                self.page(number)[within..within + step].copy_from_slice(&bytes[done..done + step]);
                self.length = self.length.max((offset + step) as u64);
            }
            done += step;
        }
    }

    pub(super) fn set_stamps(&mut self, at: u64, length: u64, stamp: u64) {
        let page = PAGE_SIZE as u64;
        let (from, to) = ((at / page) as usize, (at + length).div_ceil(page) as usize);
        if self.stamps.len() < to {
            self.stamps.resize(to, 0);
        }
        for old in &mut self.stamps[from..to] {
            *old = (*old).max(stamp);
        }
    }

    pub(super) fn cut(&mut self, length: u64) {
        if length < self.length {
            let page = PAGE_SIZE as u64;
            self.pages.truncate(length.div_ceil(page) as usize);
            if !length.is_multiple_of(page) && self.pages.len() as u64 > length / page {
                self.page((length / page) as usize)[(length % page) as usize..].fill(0);
            }
        }
        self.length = length;
    }

    pub(super) fn zero(&mut self, at: u64, length: u64) {
        let end = (at + length).min(self.length);
        let mut at = at;
        while at < end {
            let within = (at % PAGE_SIZE as u64) as usize;
            let step = (PAGE_SIZE - within).min((end - at) as usize);
            let number = (at / PAGE_SIZE as u64) as usize;
            if self.pages.get(number).is_some_and(Option::is_some) {
                self.page(number)[within..within + step].fill(0);
            }
            at += step as u64;
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(self.length as usize + PAGE_SIZE);
        for page in &self.pages {
            bytes.extend_from_slice(page.as_deref().unwrap_or(&[0; PAGE_SIZE]));
        }
        bytes.resize(self.length as usize, 0);
        bytes
    }

    /// Appends another file, from a whole page on.
    pub fn append(&mut self, other: &Pages) {
        let pages = (self.length / PAGE_SIZE as u64) as usize;
        self.pages.resize(pages, None);
        self.pages.extend(other.pages.iter().cloned());
        self.length = (pages * PAGE_SIZE) as u64 + other.length;
    }

    fn write_to(&self, path: &Path) {
        let file = std::fs::File::create(path).unwrap();
        file.set_len(self.length).unwrap();
        for (number, page) in self.pages.iter().enumerate() {
            if let Some(page) = page {
                let at = (number * PAGE_SIZE) as u64;
                let most = self.length.saturating_sub(at).min(PAGE_SIZE as u64) as usize;
                file.write_all_at(&page[..most], at).unwrap();
            }
        }
    }
}

/// A file of a cut as a device in memory, which opens faster than real files.
pub struct PagesDevice(Mutex<Pages>);

impl PagesDevice {
    pub fn new(pages: Pages) -> Arc<PagesDevice> {
        Arc::new(PagesDevice(Mutex::new(pages)))
    }
}

impl Device for PagesDevice {
    fn pages(&self) -> u64 {
        self.0.lock().unwrap().length / PAGE_SIZE as u64
    }
    fn grow(&self, pages: u64) -> Result<(), IoError> {
        let mut held = self.0.lock().unwrap();
        held.length = held.length.max(pages * PAGE_SIZE as u64);
        Ok(())
    }
    fn read(&self, page: u64, buf: &mut [u8], _: Tag) -> Result<(), IoError> {
        let held = self.0.lock().unwrap();
        if page * PAGE_SIZE as u64 + buf.len() as u64 > held.length {
            return Err(IoError::Os(22));
        }
        for (nth, into) in buf.chunks_mut(PAGE_SIZE).enumerate() {
            match held.pages.get(page as usize + nth) {
                Some(Some(page)) => into.copy_from_slice(&page[..]),
                _ => into.fill(0),
            }
        }
        Ok(())
    }
    fn write(&self, page: u64, buf: &[u8], _: Tag) -> Result<(), IoError> {
        let mut held = self.0.lock().unwrap();
        held.put(page * PAGE_SIZE as u64, buf, u64::MAX, &mut || true);
        Ok(())
    }
    fn flush(&self, _: Tag) -> Result<(), IoError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64, _: Tag) -> Result<(), IoError> {
        Ok(())
    }
}

/// The files that a cut left, by name.
pub struct Image {
    pub files: BTreeMap<String, Pages>,
}

impl Image {
    /// Writes the files into an empty folder.
    pub fn write_to(&self, folder: &Path) {
        for (name, pages) in &self.files {
            pages.write_to(&folder.join(name));
        }
    }
}
