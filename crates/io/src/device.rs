// SPDX-License-Identifier: Apache-2.0
//! The blocking face of a device.

use crate::{IoError, Tag};

/// A device of pages, used from any thread. Reads and writes are of whole pages; `buf.len()` is a multiple of
/// [`crate::PAGE_SIZE`] and, for files opened O_DIRECT, `buf` is page-aligned ([`crate::AlignedBuf`]).
pub trait Device: Send + Sync {
    /// Pages that the device has.
    fn pages(&self) -> u64;
    /// Reads `buf.len()` bytes from `page` on.
    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError>;
    /// Writes `buf` to `page` on.
    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError>;
    /// Makes every write that returned before this call durable.
    fn flush(&self, tag: Tag) -> Result<(), IoError>;
    /// Tells the device that pages hold nothing any more.
    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError>;
}
