// SPDX-License-Identifier: Apache-2.0
//! The length of a file and its holes: [`crate::Device::grow`], `shrink`, `punch` and `fill` of a
//! [`FlashFile`].

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::Ordering;

use super::{FlashFile, RawOp, allocate};
use crate::{IoError, Op, PAGE_SIZE, Tag};

/// The next bytes of a file from `from` on that are not holes, in whole pages; `None` if only holes
/// follow, up to `end`. If the system does not know, this is everything up to `end`.
pub(super) fn extent(file: &File, from: u64, end: u64) -> Option<Range<u64>> {
    let seek = |from: u64, whence| {
        // SAFETY: takes no memory. It moves the position of the descriptor, which nobody uses: all
        // reads and writes name their offset.
        let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, whence) };
        u64::try_from(at).map_err(|_| std::io::Error::last_os_error())
    };
    if from >= end {
        return None;
    }
    let page = PAGE_SIZE as u64;
    let start = match seek(from, libc::SEEK_DATA) {
        Ok(start) if start >= end => return None,
        Ok(start) => start,
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return None,
        Err(_) => return Some(from..end),
    };
    let hole = seek(start, libc::SEEK_HOLE).unwrap_or(end);
    Some((start / page * page).max(from)..hole.next_multiple_of(page).min(end))
}

/// Whether a discard worked. If a device or file system has no discard, that is not an error.
fn discarded(done: Result<(), IoError>) -> Result<bool, IoError> {
    match done {
        Err(IoError::Os(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL)) => Ok(false),
        done => done.map(|()| true),
    }
}

/// Makes a hole of these bytes in a file, or discards them on a block device: their data is lost.
/// Returns `false` if the file system or the device can do neither; the data stays then. On a block
/// device the bytes must be whole sectors. A [`FlashFile`] does the same with
/// [`crate::Device::punch`].
///
/// # Errors
/// The system's error, for example that the file is not open for writing.
///
/// ```
/// use std::os::unix::fs::FileExt;
///
/// let path = std::env::temp_dir().join(format!("senko-hole-{}", std::process::id()));
/// let mut options = std::fs::OpenOptions::new();
/// let file = options.read(true).write(true).create_new(true).open(&path)?;
/// std::fs::remove_file(&path)?;
/// file.write_all_at(&[7; 8192], 0)?;
/// if senko_io::discard_bytes(&file, 0..4096)? {
///     let mut found = [1; 8192];
///     file.read_exact_at(&mut found, 0)?;
///     assert_eq!((found[0], found[4096]), (0, 7));
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn discard_bytes(file: &File, bytes: Range<u64>) -> std::io::Result<bool> {
    if bytes.is_empty() {
        return Ok(true);
    }
    let raw = RawOp {
        fd: file.as_raw_fd(),
        direct: true,
        block_device: file.metadata()?.file_type().is_block_device(),
        op: Op::Discard,
        address: std::ptr::null_mut(),
        bytes: bytes.end - bytes.start,
        offset: bytes.start,
    };
    discarded(raw.run_whole()).map_err(std::io::Error::from)
}

impl FlashFile {
    /// Makes the file longer, with blocks for the new part. Earlier holes stay holes.
    pub(super) fn lengthen(&self, pages: u64) -> Result<(), IoError> {
        let old = self.pages();
        if pages <= old {
            return Ok(());
        }
        self.check_own()?;
        self.check_writable()?;
        let bytes = pages.checked_mul(PAGE_SIZE as u64);
        let (Some(bytes), false) = (bytes.filter(|&b| b <= i64::MAX as u64), self.block_device)
        else {
            return Err(IoError::Os(libc::ENOSPC));
        };
        let length = self.file.metadata().map_err(IoError::of)?.len();
        // A file may be longer than its part in use, and the rest may lack blocks.
        let from = length.min(old * PAGE_SIZE as u64);
        allocate::extend(&self.file, from..length, bytes)?;
        self.pages.fetch_max(pages, Ordering::AcqRel);
        Ok(())
    }

    /// Cuts off the end of a file. A block device keeps its length.
    pub(super) fn shorten(&self, pages: u64) -> Result<(), IoError> {
        self.check_own()?;
        self.check_writable()?;
        if self.block_device || pages >= self.pages() {
            return Ok(());
        }
        self.file
            .set_len(pages * PAGE_SIZE as u64)
            .map_err(IoError::of)?;
        self.pages.store(pages, Ordering::Release);
        Ok(())
    }

    /// Makes a hole, or discards pages of a block device; false if neither works.
    pub(super) fn punch_hole(&self, page: u64, pages: u64, tag: Tag) -> Result<bool, IoError> {
        let (offset, bytes) = self.range(page, pages)?;
        if pages == 0 {
            return Ok(true);
        }
        self.record(tag, Op::Discard, page, pages);
        let raw = RawOp {
            op: Op::Discard,
            bytes,
            offset,
            ..self.raw()
        };
        discarded(raw.run_whole())
    }

    /// Gets blocks for a hole. A block device has no holes.
    pub(super) fn fill_hole(&self, page: u64, pages: u64) -> Result<(), IoError> {
        let (offset, bytes) = self.range(page, pages)?;
        if self.block_device || pages == 0 {
            return Ok(());
        }
        match allocate::fill(&self.file, offset, bytes) {
            // A file system that can't do this makes no holes either.
            Err(IoError::Os(libc::EOPNOTSUPP)) => Ok(()),
            done => done,
        }
    }

    /// Offset and bytes of pages of a file that may be written.
    fn range(&self, page: u64, pages: u64) -> Result<(u64, u64), IoError> {
        self.check_writable()?;
        let bytes = pages.saturating_mul(PAGE_SIZE as u64);
        let offset = self.check(page, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        Ok((offset, bytes))
    }
}
