// SPDX-License-Identifier: Apache-2.0
//! A device in memory that grows, calls back after each write and flush, and can be disconnected as
//! if the process was killed.
//!
//! It is built on a [`FaultyDevice`], which models the effects of a power failure on unflushed
//! writes. Its length also counts as flushed or not: a crash may leave the file with its length at
//! the last flush.
//!
//! The device knows which units of 64 KiB have storage, as a file system does. A write to a hole
//! fails the test, since on a full file system it would fail.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use senko_io::faulty::FaultyDevice;
use senko_io::{Device, IoError, Tag};

/// Pages that get storage together.
const UNIT: u64 = 16;

/// The longest that a device becomes: 256 MiB.
const MOST_PAGES: u64 = 65_536;

type Hook = Box<dyn FnMut(&Hooked) + Send>;

/// See the module.
pub struct Hooked {
    pub inner: Arc<FaultyDevice>,
    pages: AtomicU64,
    durable_pages: AtomicU64,
    /// Pages that may have storage.
    limit: AtomicU64,
    /// Units that have storage, now and at the last flush.
    stored: Mutex<BTreeSet<u64>>,
    durable_stored: Mutex<BTreeSet<u64>>,
    /// Whether calls of this process still reach the device.
    alive: AtomicBool,
    hook: Mutex<Option<Hook>>,
    calls: AtomicU64,
    /// Whether the superblock was written last and is not flushed yet.
    in_commit: AtomicBool,
}

impl Hooked {
    fn assemble(inner: Arc<FaultyDevice>, pages: u64, limit: u64) -> Arc<Hooked> {
        Arc::new(Hooked {
            inner,
            pages: AtomicU64::new(pages),
            durable_pages: AtomicU64::new(pages),
            limit: AtomicU64::new(limit),
            stored: Mutex::new((0..pages.div_ceil(UNIT)).collect()),
            durable_stored: Mutex::new((0..pages.div_ceil(UNIT)).collect()),
            alive: AtomicBool::new(true),
            hook: Mutex::new(None),
            calls: AtomicU64::new(0),
            in_commit: AtomicBool::new(false),
        })
    }

    /// An empty file.
    pub fn new(seed: u64) -> Arc<Hooked> {
        Hooked::limited(seed, MOST_PAGES)
    }

    /// An empty file on a file system that has `limit` pages for it.
    pub fn limited(seed: u64, limit: u64) -> Arc<Hooked> {
        Hooked::assemble(FaultyDevice::new(MOST_PAGES, seed), 0, limit)
    }

    /// The data that a power failure at this moment may leave.
    pub fn crashed(&self, seed: u64) -> Arc<Hooked> {
        let inner = self.inner.crashed_copy(seed);
        let pages = if seed.is_multiple_of(2) {
            self.durable_pages.load(Ordering::Relaxed)
        } else {
            self.pages.load(Ordering::Relaxed)
        };
        let device = Hooked::assemble(inner, pages, self.limit());
        if seed.is_multiple_of(2) {
            let stored = self.durable_stored.lock().clone();
            // A later truncation of the end is lost as well.
            device.set_stored(&stored, &stored);
        } else {
            let stored = self.stored.lock().clone();
            device.set_stored(&stored, &stored);
        }
        device
    }

    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Other files take all the rest of the file system.
    pub fn fill_up(&self) {
        self.limit.store(self.stored_pages(), Ordering::Relaxed);
    }

    pub fn stored_pages(&self) -> u64 {
        self.stored.lock().len() as u64 * UNIT
    }

    fn set_stored(&self, now: &BTreeSet<u64>, durable: &BTreeSet<u64>) {
        *self.stored.lock() = now.clone();
        *self.durable_stored.lock() = durable.clone();
    }

    fn units(&self, page: u64, pages: u64) -> std::ops::Range<u64> {
        page / UNIT..(page + pages).div_ceil(UNIT)
    }

    /// The data that the death of the process at this moment would leave, all of it durable.
    pub fn killed(&self, seed: u64) -> Arc<Hooked> {
        let pages = self.pages.load(Ordering::Relaxed);
        let killed = Hooked::assemble(self.inner.copy(seed), pages, self.limit());
        let stored = self.stored.lock().clone();
        killed.set_stored(&stored, &stored);
        killed
    }

    /// The data that the death of the process at this moment would leave; unflushed writes may
    /// still be lost.
    pub fn forked(&self, seed: u64) -> Arc<Hooked> {
        let pages = self.pages.load(Ordering::Relaxed);
        let fork = Hooked::assemble(self.inner.fork(seed), pages, self.limit());
        fork.set_stored(&self.stored.lock(), &self.durable_stored.lock());
        let durable = self.durable_pages.load(Ordering::Relaxed);
        fork.durable_pages.store(durable, Ordering::Relaxed);
        fork
    }

    /// The process dies, and another opens the same device: unflushed writes are still not flushed.
    pub fn next_process(&self) -> Arc<Hooked> {
        self.alive.store(false, Ordering::Relaxed);
        let next = Hooked::assemble(
            Arc::clone(&self.inner),
            self.pages.load(Ordering::Relaxed),
            self.limit(),
        );
        next.set_stored(&self.stored.lock(), &self.durable_stored.lock());
        let durable = self.durable_pages.load(Ordering::Relaxed);
        next.durable_pages.store(durable, Ordering::Relaxed);
        next
    }

    /// From now on calls back after each write and flush.
    pub fn set_hook(&self, hook: impl FnMut(&Hooked) + Send + 'static) {
        *self.hook.lock() = Some(Box::new(hook));
    }

    pub fn clear_hook(&self) {
        *self.hook.lock() = None;
    }

    /// Writes and flushes so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Whether the superblock was written last and is not flushed yet. There are few such calls,
    /// and they are worth more images that live on.
    pub fn in_commit(&self) -> bool {
        self.in_commit.load(Ordering::Relaxed)
    }

    fn check_alive(&self) -> Result<(), IoError> {
        if self.alive.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err(IoError::Os(5))
        }
    }

    fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if std::thread::panicking() {
            return;
        }
        let hook = self.hook.lock().take();
        if let Some(mut hook) = hook {
            hook(self);
            let mut place = self.hook.lock();
            if place.is_none() {
                *place = Some(hook);
            }
        }
    }

    fn inside(&self, page: u64, bytes: usize) -> Result<(), IoError> {
        let end = page.checked_add((bytes / senko_io::PAGE_SIZE) as u64);
        if end.is_some_and(|end| end <= self.pages()) {
            Ok(())
        } else {
            Err(IoError::Os(22))
        }
    }
}

impl Device for Hooked {
    fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    fn grow(&self, pages: u64) -> Result<(), IoError> {
        self.check_alive()?;
        let mut stored = self.stored.lock();
        let old = self.pages();
        let new = self.units(old, pages.saturating_sub(old));
        if new.end > MOST_PAGES / UNIT
            || stored.len() as u64 + new.end.saturating_sub(new.start) > self.limit() / UNIT
        {
            return Err(IoError::Os(28));
        }
        stored.extend(new);
        self.pages.fetch_max(pages, Ordering::Relaxed);
        Ok(())
    }

    fn shrink(&self, pages: u64) -> Result<(), IoError> {
        self.check_alive()?;
        self.stored.lock().retain(|&unit| unit < pages / UNIT);
        self.pages.fetch_min(pages, Ordering::Relaxed);
        self.called();
        Ok(())
    }

    fn punch(&self, page: u64, pages: u64, tag: Tag) -> Result<bool, IoError> {
        self.check_alive()?;
        self.inside(page, pages as usize * senko_io::PAGE_SIZE)?;
        self.inner.discard(page, pages, tag)?;
        let units = self.units(page, pages);
        self.stored.lock().retain(|unit| !units.contains(unit));
        self.called();
        Ok(true)
    }

    fn fill(&self, page: u64, pages: u64) -> Result<(), IoError> {
        self.check_alive()?;
        self.inside(page, pages as usize * senko_io::PAGE_SIZE)?;
        let mut stored = self.stored.lock();
        let units = self.units(page, pages);
        let lacks = units.clone().filter(|unit| !stored.contains(unit)).count() as u64;
        if stored.len() as u64 + lacks > self.limit() / UNIT {
            return Err(IoError::Os(28));
        }
        stored.extend(units);
        Ok(())
    }

    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        self.inside(page, buf.len())?;
        self.inner.read(page, buf, tag)
    }

    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.check_alive()?;
        self.inside(page, buf.len())?;
        let units = self.units(page, (buf.len() / senko_io::PAGE_SIZE) as u64);
        let stored = self.stored.lock();
        assert!(
            units.clone().all(|unit| stored.contains(&unit)),
            "a write to a hole in {units:?}"
        );
        drop(stored);
        self.inner.write(page, buf, tag)?;
        self.in_commit.store(page < 16, Ordering::Relaxed);
        self.called();
        Ok(())
    }

    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        self.check_alive()?;
        let pages = self.pages();
        let stored = self.stored.lock().clone();
        self.inner.flush(tag)?;
        *self.durable_stored.lock() = stored;
        self.in_commit.store(false, Ordering::Relaxed);
        self.durable_pages.store(pages, Ordering::Relaxed);
        self.called();
        Ok(())
    }

    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError> {
        self.check_alive()?;
        self.inner.discard(page, pages, tag)?;
        self.called();
        Ok(())
    }
}
