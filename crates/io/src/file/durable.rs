// SPDX-License-Identifier: Apache-2.0
//! Writes that are durable when they return, and space that is written before it is used.
//!
//! A commit of the DBM is one such write. On an O_DIRECT file that is `pwritev2` with RWF_DSYNC:
//! one system call, which flushes only what it wrote. If the kernel or the file system refuses the
//! flag, a write and `fdatasync` do the same. Extents that were only allocated make the file system
//! commit its journal with each such write, so the space is written with zeros first.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{FlashFile, lock};
use crate::{AlignedBuf, Device, Engine, IoError, Op, PAGE_SIZE, Purpose, Tag};

/// How durable writes are done here; the first one finds out.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// RWF_DSYNC was refused.
    refused: AtomicBool,
}

/// Pages of zeros written at a time.
const ZERO_PAGES: usize = 256;

impl FlashFile {
    /// Pins `number` as long as this file is open. The writing process finds it with
    /// [`Device::oldest_pin`]. A killed process releases its pins.
    ///
    /// # Errors
    /// The system's error for the lock.
    pub fn pin(&self, number: u64) -> std::io::Result<()> {
        lock::pin(&self.file, number)
    }

    pub(super) fn durably(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.check_writable()?;
        let offset = self.check(page, buf.len())?;
        if self.direct && !self.durable.refused.load(Ordering::Relaxed) {
            self.record(tag, Op::Write, page, (buf.len() / PAGE_SIZE) as u64);
            match self.write_dsync(offset, buf) {
                Err(IoError::Os(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)) => {
                    self.durable.refused.store(true, Ordering::Relaxed);
                }
                done => {
                    self.record(tag, Op::Flush, 0, 0);
                    return done;
                }
            }
        }
        self.write(page, buf, tag)?;
        self.flush(tag)
    }

    fn write_dsync(&self, mut offset: u64, mut buf: &[u8]) -> Result<(), IoError> {
        let want = buf.len();
        while !buf.is_empty() {
            let piece = libc::iovec {
                iov_base: buf.as_ptr().cast_mut().cast(),
                iov_len: buf.len().min(1 << 30),
            };
            // SAFETY: the vector names one buffer, which is borrowed until the call returns; the
            // kernel only reads from it.
            let done = unsafe {
                libc::pwritev2(
                    self.file.as_raw_fd(),
                    &raw const piece,
                    1,
                    offset as libc::off_t,
                    libc::RWF_DSYNC,
                )
            };
            if done < 0 {
                match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    error => return Err(IoError::Os(error.unwrap_or(libc::EIO))),
                }
            }
            if done == 0 {
                let got = want - buf.len();
                return Err(IoError::Short { want, got });
            }
            buf = &buf[done as usize..];
            offset += done as u64;
        }
        Ok(())
    }

    /// Writes zeros to all pages from `first` on, and flushes.
    pub(crate) fn write_zeros(&self, first: u64) -> Result<(), IoError> {
        let tag = Tag {
            engine: Engine::Dbm,
            purpose: Purpose::Meta,
        };
        let zeros = AlignedBuf::new(ZERO_PAGES);
        let mut page = first;
        while page < self.pages() {
            let pages = (self.pages() - page).min(ZERO_PAGES as u64);
            self.write(page, &zeros[..pages as usize * PAGE_SIZE], tag)?;
            page += pages;
        }
        self.flush(tag)
    }
}

/// Bytes that this process may still allocate beside `path`, if the system knows.
pub(super) fn space_left(path: &std::path::Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(super::folder_of(path).as_os_str().as_bytes()).ok()?;
    // SAFETY: zeros are a valid value, and the kernel writes only this structure, which lives on
    // this stack.
    let mut stats: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `name` ends with a zero byte and lives until the call returns.
    if unsafe { libc::statvfs(name.as_ptr(), &mut stats) } != 0 {
        return None;
    }
    Some(left(&stats))
}

/// Bytes that this process may still allocate for an open file, if the system knows.
pub(super) fn space_left_for(file: &std::fs::File) -> Option<u64> {
    use std::os::fd::AsRawFd;
    // SAFETY: as above.
    let mut stats: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open until the call returns.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), &mut stats) } != 0 {
        return None;
    }
    Some(left(&stats))
}

fn left(stats: &libc::statvfs) -> u64 {
    // SAFETY: takes no memory, and can't fail. Reserved blocks are root's.
    let blocks = match unsafe { libc::geteuid() } {
        0 => stats.f_bfree,
        _ => stats.f_bavail,
    };
    blocks * stats.f_frsize
}
