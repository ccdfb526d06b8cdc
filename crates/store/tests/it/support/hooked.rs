// SPDX-License-Identifier: Apache-2.0
//! A device in memory that grows, calls back after each write and flush, and can be cut off as if the process was killed.
//!
//! Below it stands a [`FaultyDevice`], which knows what a loss of power may do to writes that were not flushed. Its length counts as flushed or not
//! as well: a crash may leave the file as long as it was at the last flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use senko_io::faulty::FaultyDevice;
use senko_io::{Device, IoError, Tag};

/// The longest that a device becomes: 256 MiB.
const MOST_PAGES: u64 = 65_536;

type Hook = Box<dyn FnMut(&Hooked) + Send>;

/// See the module.
pub struct Hooked {
    pub inner: Arc<FaultyDevice>,
    pages: AtomicU64,
    durable_pages: AtomicU64,
    /// Longer than this it does not become.
    limit: u64,
    /// Whether calls of this process still reach the device.
    alive: AtomicBool,
    hook: Mutex<Option<Hook>>,
    calls: AtomicU64,
    /// The superblock was written last, and not flushed yet.
    in_commit: AtomicBool,
}

impl Hooked {
    fn assemble(inner: Arc<FaultyDevice>, pages: u64, limit: u64) -> Arc<Hooked> {
        Arc::new(Hooked {
            inner,
            pages: AtomicU64::new(pages),
            durable_pages: AtomicU64::new(pages),
            limit,
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

    /// An empty file that cannot grow beyond `limit` pages.
    pub fn limited(seed: u64, limit: u64) -> Arc<Hooked> {
        Hooked::assemble(FaultyDevice::new(MOST_PAGES, seed), 0, limit)
    }

    /// What a loss of power at this moment may leave.
    pub fn crashed(&self, seed: u64) -> Arc<Hooked> {
        let inner = self.inner.crashed_copy(seed);
        let pages = if seed.is_multiple_of(2) {
            self.durable_pages.load(Ordering::Relaxed)
        } else {
            self.pages.load(Ordering::Relaxed)
        };
        Hooked::assemble(inner, pages, self.limit)
    }

    /// What the death of the process at this moment leaves, with all of it durable.
    pub fn killed(&self, seed: u64) -> Arc<Hooked> {
        let pages = self.pages.load(Ordering::Relaxed);
        Hooked::assemble(self.inner.copy(seed), pages, self.limit)
    }

    /// What the death of the process at this moment leaves; what was not flushed may still be lost.
    pub fn forked(&self, seed: u64) -> Arc<Hooked> {
        let pages = self.pages.load(Ordering::Relaxed);
        let fork = Hooked::assemble(self.inner.fork(seed), pages, self.limit);
        let durable = self.durable_pages.load(Ordering::Relaxed);
        fork.durable_pages.store(durable, Ordering::Relaxed);
        fork
    }

    /// The process dies, and another opens the same device: what was not flushed still is not.
    pub fn next_process(&self) -> Arc<Hooked> {
        self.alive.store(false, Ordering::Relaxed);
        let next = Hooked::assemble(
            Arc::clone(&self.inner),
            self.pages.load(Ordering::Relaxed),
            self.limit,
        );
        let durable = self.durable_pages.load(Ordering::Relaxed);
        next.durable_pages.store(durable, Ordering::Relaxed);
        next
    }

    /// Calls back after each write and flush from now on.
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

    /// Whether the superblock was written last, and not flushed yet: few calls, and worth more images that live on.
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
        if pages > self.limit {
            return Err(IoError::Os(28));
        }
        self.pages.fetch_max(pages, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        self.inside(page, buf.len())?;
        self.inner.read(page, buf, tag)
    }

    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.check_alive()?;
        self.inside(page, buf.len())?;
        self.inner.write(page, buf, tag)?;
        self.in_commit.store(page < 16, Ordering::Relaxed);
        self.called();
        Ok(())
    }

    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        self.check_alive()?;
        let pages = self.pages();
        self.inner.flush(tag)?;
        self.in_commit.store(false, Ordering::Relaxed);
        self.durable_pages.fetch_max(pages, Ordering::Relaxed);
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
