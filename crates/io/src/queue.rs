// SPDX-License-Identifier: Apache-2.0
//! The queued interface of a device: submit now, learn of the completion later.
//!
//! The cache shard calls [`Queue`]; the event loop ([`crate::EventLoop`]) and the in-memory faulty
//! queue ([`crate::faulty::FaultyQueue`]) implement it. A call never blocks and never fails: an
//! error arrives as the completion's result. Buffers travel with the operation and come back with
//! its completion, so memory that a device may still write to is never reachable.

use std::sync::Arc;

use crate::{AlignedBuf, PageBuf, Tag};

/// A device attached to a queue; numbers count from 0 in the order of attaching.
pub type DeviceId = u16;

/// The operation that was asked of the device. The number is the one on disk in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Pages were read.
    Read = 1,
    /// Pages were written.
    Write = 2,
    /// Earlier completed writes were made durable.
    Flush = 3,
    /// Pages no longer hold anything.
    Discard = 4,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The operating system's error number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
    /// Fewer bytes than asked for: the device or file ends there.
    #[error("{got} of {want} bytes were transferred")]
    Short {
        /// Bytes asked for.
        want: usize,
        /// Bytes transferred.
        got: usize,
    },
}

impl IoError {
    /// The error number of what a call gave; EIO where it has none.
    pub(crate) fn of(error: std::io::Error) -> IoError {
        IoError::Os(error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// Whether the device, the file system or the user's share of it is full, or the file is as
    /// long as it may be (`ulimit -f`).
    pub fn no_space(self) -> bool {
        matches!(self, IoError::Os(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
    }

    /// Whether the file is as long as it may be: `ulimit -f`, or the file system's own bound.
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

/// The end of one operation.
#[derive(Debug)]
pub struct Completion {
    /// The number that the submitter gave.
    pub token: u64,
    /// What was asked.
    pub op: Op,
    /// How it ended.
    pub result: Result<(), IoError>,
    /// A read's buffer, full if `result` is `Ok`.
    pub buf: Option<PageBuf>,
}

/// Submits page-granular I/O; pages are [`crate::PAGE_SIZE`] bytes and count from 0 on each device.
pub trait Queue {
    /// A buffer of at least `pages` pages to read into; `None` when the pool of that size is
    /// exhausted (wait for another read's buffer to be dropped) or when no such size exists
    /// ([`crate::FramePool::largest`]).
    fn frame(&mut self, pages: usize) -> Option<PageBuf>;
    /// Reads `pages` pages from `page` on into `buf`, whose first `pages` pages are then valid.
    fn read(
        &mut self,
        device: DeviceId,
        page: u64,
        pages: usize,
        buf: PageBuf,
        tag: Tag,
        token: u64,
    );
    /// Writes pages `first..first + pages` of `buf` to `page` on. The queue drops its reference
    /// before it delivers the completion.
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
    /// Tells the device that pages hold nothing any more (a no-op, completed at once, unless the
    /// device was opened for discard).
    fn discard(&mut self, device: DeviceId, page: u64, pages: u64, tag: Tag, token: u64);
}
