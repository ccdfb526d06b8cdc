// SPDX-License-Identifier: Apache-2.0
//! A file on a disk in memory. An engine can be watched on it without a file, and a test can fill
//! the disk.
//!
//! Always holds: a read returns the bytes written last, or zeros. A page without storage is a hole,
//! and a write there fails with EIO: only [`Device::grow`] and [`Device::fill`] get storage.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Device, IoError, PAGE_SIZE, Tag};

/// A file on a disk in memory.
///
/// ```
/// use senko_io::Device;
/// let device = senko_io::memory::MemoryDevice::new(8);
/// device.grow(8).unwrap();
/// assert_eq!((device.pages(), device.stored()), (8, 8));
/// assert!(device.grow(9).is_err());
/// ```
pub struct MemoryDevice(Mutex<Disk>);

#[derive(Clone, Default)]
struct Disk {
    pages: Vec<Option<Box<[u8]>>>,
    /// Pages that the disk has for this file.
    most: u64,
    /// Pages that have storage.
    stored: u64,
    /// Pages that were written, each as often as it was.
    written: u64,
}

impl Disk {
    fn store(&mut self, page: usize) -> Result<(), IoError> {
        if self.pages[page].is_none() {
            if self.stored >= self.most {
                return Err(IoError::Os(libc::ENOSPC));
            }
            self.stored += 1;
            self.pages[page] = Some(vec![0; PAGE_SIZE].into());
        }
        Ok(())
    }

    fn release(&mut self, page: usize) {
        if self.pages[page].take().is_some() {
            self.stored -= 1;
        }
    }

    /// The pages under so many bytes.
    fn range(&self, page: u64, bytes: usize) -> Result<Range<usize>, IoError> {
        let range = page as usize..page as usize + bytes / PAGE_SIZE;
        match range.end <= self.pages.len() {
            true => Ok(range),
            false => Err(IoError::Os(libc::EINVAL)),
        }
    }
}

impl MemoryDevice {
    /// An empty file on a disk of `most` pages.
    pub fn new(most: u64) -> Arc<MemoryDevice> {
        let disk = Disk {
            most,
            ..Disk::default()
        };
        Arc::new(MemoryDevice(Mutex::new(disk)))
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages that have storage.
    pub fn stored(&self) -> u64 {
        self.lock().stored
    }

    /// Pages that were written, each as often as it was.
    pub fn written(&self) -> u64 {
        self.lock().written
    }

    /// Another file takes all that is left of the disk.
    pub fn take_rest(&self) {
        let mut disk = self.lock();
        disk.most = disk.stored;
    }

    /// The disk as it is now.
    pub fn copy(&self) -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice(Mutex::new(self.lock().clone())))
    }
}

impl Device for MemoryDevice {
    fn pages(&self) -> u64 {
        self.lock().pages.len() as u64
    }

    fn grow(&self, pages: u64) -> Result<(), IoError> {
        let mut disk = self.lock();
        let before = disk.pages.len() as u64;
        if pages <= before {
            return Ok(());
        }
        if pages - before > disk.most - disk.stored {
            return Err(IoError::Os(libc::ENOSPC));
        }
        disk.pages.resize(pages as usize, None);
        (before as usize..pages as usize).try_for_each(|page| disk.store(page))
    }

    fn shrink(&self, pages: u64) -> Result<(), IoError> {
        let mut disk = self.lock();
        for page in pages as usize..disk.pages.len() {
            disk.release(page);
        }
        disk.pages.truncate(pages as usize);
        Ok(())
    }

    fn extent(&self, page: u64) -> Option<Range<u64>> {
        let disk = self.lock();
        let is_stored = |page: &usize| disk.pages[*page].is_some();
        let first = (page as usize..disk.pages.len()).find(is_stored)?;
        let end = (first..disk.pages.len()).find(|page| !is_stored(page));
        Some(first as u64..end.unwrap_or(disk.pages.len()) as u64)
    }

    fn punch(&self, page: u64, pages: u64, _: Tag) -> Result<bool, IoError> {
        let mut disk = self.lock();
        let range = disk.range(page, pages as usize * PAGE_SIZE)?;
        range.for_each(|page| disk.release(page));
        Ok(true)
    }

    fn fill(&self, page: u64, pages: u64) -> Result<(), IoError> {
        let mut disk = self.lock();
        let mut range = disk.range(page, pages as usize * PAGE_SIZE)?;
        range.try_for_each(|page| disk.store(page))
    }

    fn read(&self, page: u64, buf: &mut [u8], _: Tag) -> Result<(), IoError> {
        let disk = self.lock();
        let range = disk.range(page, buf.len())?;
        for (page, bytes) in disk.pages[range].iter().zip(buf.chunks_mut(PAGE_SIZE)) {
            match page {
                Some(stored) => bytes.copy_from_slice(stored),
                None => bytes.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, page: u64, buf: &[u8], _: Tag) -> Result<(), IoError> {
        let mut disk = self.lock();
        let range = disk.range(page, buf.len())?;
        disk.written += range.len() as u64;
        for (page, bytes) in disk.pages[range].iter_mut().zip(buf.chunks(PAGE_SIZE)) {
            let stored = page.as_mut().ok_or(IoError::Os(libc::EIO))?;
            stored.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn flush(&self, _: Tag) -> Result<(), IoError> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64, _: Tag) -> Result<(), IoError> {
        Ok(())
    }
}
