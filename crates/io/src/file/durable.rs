// SPDX-License-Identifier: Apache-2.0
//! Writes that are durable when they return.
//!
//! A commit of the DBM is one such write. On an O_DIRECT file that is `pwritev2` with RWF_DSYNC:
//! one system call, which flushes only what it wrote. If the kernel or the file system refuses the
//! flag, a write and `fdatasync` do the same. On extents that were allocated and never written, the
//! file system commits its journal with each such write, so the DBM writes zeros first.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{FlashFile, lock};
use crate::{Device, IoError, Op, PAGE_SIZE, Tag};

/// How durable writes are done here; the first one finds out.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// RWF_DSYNC was refused.
    refused: AtomicBool,
}

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
}
