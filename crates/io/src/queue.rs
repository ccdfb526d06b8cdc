// SPDX-License-Identifier: Apache-2.0
//! The queued interface of a device: submit an operation now, get its completion later.
//!
//! The cache shard calls [`Queue`]; the event loop ([`crate::EventLoop`]) and the in-memory faulty
//! queue ([`crate::faulty::FaultyQueue`]) implement it. A call never blocks and never fails: an
//! error arrives as the completion's result. Buffers move with the operation and come back with its
//! completion, so the submitter cannot reach memory that a device may still write to.

use std::sync::Arc;

use crate::{AlignedBuf, PageBuf, Tag};

/// A device attached to a queue, numbered from 0 in the order of attaching.
pub type DeviceId = u16;

/// An operation of a device. The number is the one in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// A read of pages.
    Read = 1,
    /// A write of pages.
    Write = 2,
    /// Made earlier completed writes durable.
    Flush = 3,
    /// Says that pages are no longer used.
    Discard = 4,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The operating system's error number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
    /// Fewer bytes than requested: the device or file ends there.
    #[error("{got} of {want} bytes were transferred")]
    Short {
        /// Bytes requested.
        want: usize,
        /// Bytes transferred.
        got: usize,
    },
}

impl IoError {
    /// The error number of a failed call; EIO if it has none.
    pub(crate) fn of(error: std::io::Error) -> IoError {
        IoError::Os(crate::error_number(&error).unwrap_or(libc::EIO))
    }

    /// Whether the device, the file system or the user's quota is full, or the file has reached its
    /// longest length (`ulimit -f`).
    pub fn no_space(self) -> bool {
        matches!(self, IoError::Os(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
    }

    /// Whether the file has reached its longest length: `ulimit -f`, or the file system's own
    /// bound.
    pub fn too_long(self) -> bool {
        self == IoError::Os(libc::EFBIG)
    }
}

impl From<IoError> for std::io::Error {
    fn from(error: IoError) -> std::io::Error {
        match error {
            IoError::Os(number) => std::io::Error::from_raw_os_error(number),
            IoError::Short { .. } => std::io::Error::other(error),
        }
    }
}

/// The completion of one operation.
#[derive(Debug)]
pub struct Completion {
    /// The number that the submitter chose.
    pub token: u64,
    /// The requested operation.
    pub op: Op,
    /// Its result.
    pub result: Result<(), IoError>,
    /// A read's buffer, full if `result` is `Ok`.
    pub buf: Option<PageBuf>,
}

/// Submits page-granular I/O. Pages have [`crate::PAGE_SIZE`] bytes and count from 0 on each
/// device.
pub trait Queue {
    /// A buffer of at least `pages` pages to read into; `None` if all buffers of that size are in
    /// use (wait for one to be dropped), or if no such size exists ([`crate::FramePool::largest`]).
    fn frame(&mut self, pages: usize) -> Option<PageBuf>;
    /// Reads `pages` pages, starting at `page`, into `buf`, whose first `pages` pages are then
    /// valid.
    fn read(
        &mut self,
        device: DeviceId,
        page: u64,
        pages: usize,
        buf: PageBuf,
        tag: Tag,
        token: u64,
    );
    /// Writes pages `first..first + pages` of `buf`, starting at `page`. The queue drops its
    /// reference before it delivers the completion.
    #[allow(clippy::too_many_arguments)]
    fn write(
        &mut self,
        device: DeviceId,
        page: u64,
        buf: Arc<AlignedBuf>,
        first: usize,
        pages: usize,
        tag: Tag,
        token: u64,
    );
    /// Makes every write that completed before this call durable.
    fn flush(&mut self, device: DeviceId, tag: Tag, token: u64);
    /// Tells the device that these pages are no longer used. This does nothing and completes at
    /// once, unless the device was opened for discard.
    fn discard(&mut self, device: DeviceId, page: u64, pages: u64, tag: Tag, token: u64);
}
