// SPDX-License-Identifier: Apache-2.0
//! The blocking interface of a device.

use std::io;
use std::ops::Range;

use crate::{AlignedBuf, IoError, PAGE_SIZE, Tag};

/// One read of a batch.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// The first page.
    pub page: u64,
    /// The buffer; as for [`Device::read`].
    pub buf: &'a mut [u8],
    /// The result, set by [`Device::read_batch`].
    pub result: Result<(), IoError>,
}

impl<'a> ReadRequest<'a> {
    /// A read of `buf.len()` bytes from `page` on.
    pub fn new(page: u64, buf: &'a mut [u8]) -> ReadRequest<'a> {
        ReadRequest {
            page,
            buf,
            result: Ok(()),
        }
    }
}

/// Most reads of one [`Device::read_stream`] under way at a time.
pub const MOST_UNDER_WAY: usize = 64;

/// Reads in which each depends on an earlier one; see [`Device::read_stream`].
pub trait ReadStream {
    /// The next read of a slot: its first page and the number of pages. `None` if the slot has
    /// nothing more to read.
    fn next(&mut self, slot: usize) -> Option<(u64, usize)>;
    /// The result of the slot's read. The slot is asked for its next read afterwards.
    fn done(&mut self, slot: usize, result: Result<&[u8], IoError>);
}

/// A device of pages, used from any thread. Reads and writes are of whole pages; `buf.len()` is a
/// multiple of [`crate::PAGE_SIZE`] and, for files opened O_DIRECT, `buf` is page-aligned
/// ([`crate::AlignedBuf`]).
pub trait Device: Send + Sync {
    /// The number of pages.
    fn pages(&self) -> u64;
    /// Makes the device at least `pages` long. New pages read as zeros. A device that cannot grow
    /// fails with ENOSPC.
    fn grow(&self, pages: u64) -> Result<(), IoError> {
        if pages <= self.pages() {
            return Ok(());
        }
        Err(IoError::Os(libc::ENOSPC))
    }
    /// Bytes by which the device can still grow, as far as the system tells: 0 if its size is
    /// fixed, `None` if only [`Device::grow`] can tell. Other programs may take this space at any
    /// time.
    fn room(&self) -> Option<u64> {
        None
    }
    /// Reads `buf.len()` bytes, starting at `page`.
    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError>;
    /// Writes `buf`, starting at `page`.
    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError>;
    /// Makes every write that returned before this call durable.
    fn flush(&self, tag: Tag) -> Result<(), IoError>;
    /// Writes `buf`, starting at `page`, and returns when these pages are durable. Earlier writes
    /// need not be durable then; only [`Device::flush`] covers those.
    fn write_durable(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.write(page, buf, tag)?;
        self.flush(tag)
    }
    /// The lowest number below `below` that a process reading this device has pinned
    /// ([`crate::FlashFile::pin`]).
    fn oldest_pin(&self, below: u64) -> Option<u64> {
        let _ = below;
        None
    }
    /// The memory of `pages` pages from `page` on, shared with the page cache: stores there outlive
    /// the process, but not a power cut, and reads of the device return them. While it is held,
    /// nobody writes these pages in another way. `None`: the device has no such memory, or a store
    /// there could end the process.
    ///
    /// # Errors
    /// The system's error.
    fn map(&self, page: u64, pages: usize) -> io::Result<Option<AlignedBuf>> {
        let _ = (page, pages);
        Ok(None)
    }
    /// A number that changes when writes that were not flushed may be lost: the boot of the system.
    /// As long as it is the same, everything that was written is there, even if the process that
    /// wrote it was killed. `None`: unknown.
    fn boot(&self) -> Option<u128> {
        crate::boot::this_boot()
    }
    /// Tells the device that these pages are no longer used.
    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError>;
    /// Makes the device at most `pages` long. A device that can't become shorter keeps its length.
    /// The caller makes sure that nobody uses the end, and that no [`Device::grow`] runs meanwhile.
    ///
    /// # Errors
    /// The system's error.
    fn shrink(&self, pages: u64) -> Result<(), IoError> {
        let _ = pages;
        Ok(())
    }
    /// The next pages from `page` on that are not holes, as far as the device knows; `None` if only
    /// holes follow.
    fn extent(&self, page: u64) -> Option<Range<u64>> {
        let end = self.pages();
        (page < end).then_some(page..end)
    }
    /// The bytes behind the last whole page, of a file that was opened with such. They are lost
    /// when the file grows.
    ///
    /// # Errors
    /// The system's error.
    fn rest(&self) -> Result<Vec<u8>, IoError> {
        Ok(Vec::new())
    }
    /// Gives back the storage of pages: a file gets a hole there, and a block device discards them.
    /// Reads may then return any data. Before the next write, [`Device::fill`] must get storage for
    /// them. False if the device can't do it.
    ///
    /// # Errors
    /// The system's error.
    fn punch(&self, page: u64, pages: u64, tag: Tag) -> Result<bool, IoError> {
        let _ = (page, pages, tag);
        Ok(false)
    }
    /// Gets storage for pages that were punched. Pages that have storage keep it and their data.
    ///
    /// # Errors
    /// ENOSPC if the file system is full; some of the pages may have storage then.
    fn fill(&self, page: u64, pages: u64) -> Result<(), IoError> {
        let _ = (page, pages);
        Ok(())
    }

    /// Does many reads, concurrently if the device can, and sets every request's `result`. Returns
    /// the first error in the order of `requests`.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>], tag: Tag) -> Result<(), IoError> {
        let mut first = Ok(());
        for request in requests {
            request.result = self.read(request.page, request.buf, tag);
            first = first.and(request.result);
        }
        first
    }

    /// Does the reads of `slots` slots, with at most `depth` (and [`MOST_UNDER_WAY`]) under way at
    /// a time. A slot has one read at a time; when it has ended, the slot is asked for its next
    /// read. With more slots than `depth`, further reads are known before the device has room for
    /// them. These are submitted before the results of ended ones are used. It returns when no slot
    /// has anything more to read. If the device has no queue, the slots are served in turn.
    fn read_stream(&self, slots: usize, depth: usize, stream: &mut dyn ReadStream, tag: Tag) {
        let _ = depth;
        read_in_turn(|page, buf| self.read(page, buf, tag), slots, stream);
    }
}

/// The reads of a stream, one after the other.
pub(crate) fn read_in_turn(
    read: impl Fn(u64, &mut [u8]) -> Result<(), IoError>,
    slots: usize,
    stream: &mut dyn ReadStream,
) {
    let mut buf = AlignedBuf::new(1);
    for slot in 0..slots {
        while let Some((page, pages)) = stream.next(slot) {
            if buf.pages() < pages {
                buf = AlignedBuf::new(pages);
            }
            let bytes = &mut buf[..pages * PAGE_SIZE];
            let result = read(page, bytes);
            stream.done(slot, result.map(|()| &*bytes));
        }
    }
}
