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
    /// Where to; as for [`Device::read`].
    pub buf: &'a mut [u8],
    /// How it ended, set by [`Device::read_batch`].
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

/// Reads of one [`Device::read_stream`] under way at a time, at most.
pub const MOST_UNDER_WAY: usize = 64;

/// Reads of which one follows on another; see [`Device::read_stream`].
pub trait ReadStream {
    /// The next read of a slot: its first page and how many; `None` if the slot has nothing more to
    /// read.
    fn next(&mut self, slot: usize) -> Option<(u64, usize)>;
    /// How the slot's read ended. The slot is asked for its next read afterwards.
    fn done(&mut self, slot: usize, result: Result<&[u8], IoError>);
}

/// A device of pages, used from any thread. Reads and writes are of whole pages; `buf.len()` is a
/// multiple of [`crate::PAGE_SIZE`] and, for files opened O_DIRECT, `buf` is page-aligned
/// ([`crate::AlignedBuf`]).
pub trait Device: Send + Sync {
    /// Pages that the device has.
    fn pages(&self) -> u64;
    /// Makes the device at least `pages` long. New pages read as zeros. A device that cannot grow
    /// fails with ENOSPC.
    fn grow(&self, pages: u64) -> Result<(), IoError> {
        if pages <= self.pages() {
            return Ok(());
        }
        Err(IoError::Os(libc::ENOSPC))
    }
    /// Bytes by which the device can still grow, as far as the system tells: 0 where its size is
    /// fixed, `None` where only [`Device::grow`] tells. Others may take them at any time.
    fn room(&self) -> Option<u64> {
        None
    }
    /// Reads `buf.len()` bytes from `page` on.
    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError>;
    /// Writes `buf` to `page` on.
    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError>;
    /// Makes every write that returned before this call durable.
    fn flush(&self, tag: Tag) -> Result<(), IoError>;
    /// Writes `buf` to `page` on, and returns when these pages are durable. Earlier writes may stay
    /// as they are: only [`Device::flush`] speaks for those.
    fn write_durable(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.write(page, buf, tag)?;
        self.flush(tag)
    }
    /// The lowest number below `below` that a process which reads beside this one has pinned
    /// ([`crate::FlashFile::pin`]).
    fn oldest_pin(&self, below: u64) -> Option<u64> {
        let _ = below;
        None
    }
    /// The memory of `pages` pages from `page` on, shared with the page cache: what is stored there
    /// outlives the process, but no power cut, and reads of the device give it. While it is held
    /// nobody writes these pages in another way. `None`: the device has no such memory, or a store
    /// there could end the process.
    ///
    /// # Errors
    /// What the system says.
    fn map(&self, page: u64, pages: usize) -> io::Result<Option<AlignedBuf>> {
        let _ = (page, pages);
        Ok(None)
    }
    /// Tells the device that pages hold nothing any more.
    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError>;
    /// Makes the device at most `pages` long. A device that can't become shorter keeps its length.
    /// The caller sees to it that nobody uses the end, and that no [`Device::grow`] runs meanwhile.
    ///
    /// # Errors
    /// What the system says.
    fn shrink(&self, pages: u64) -> Result<(), IoError> {
        let _ = pages;
        Ok(())
    }
    /// The first page from `page` on at which a further file of the device begins. Nothing in front
    /// of such a page waits for a [`Device::shrink`] that cuts there. `None` where there is none.
    fn border(&self, page: u64) -> Option<u64> {
        let _ = page;
        None
    }
    /// The next pages from `page` on that are not holes, as far as the device tells; `None` where
    /// only holes follow.
    fn extent(&self, page: u64) -> Option<Range<u64>> {
        let end = self.pages();
        (page < end).then_some(page..end)
    }
    /// Gives the storage of pages back: a file gets a hole there, a block device discards them.
    /// Reads give anything then. Before the next write, [`Device::fill`] must get storage for them.
    /// False where the device can't do it.
    ///
    /// # Errors
    /// What the system says.
    fn punch(&self, page: u64, pages: u64, tag: Tag) -> Result<bool, IoError> {
        let _ = (page, pages, tag);
        Ok(false)
    }
    /// Gets storage for pages that were punched; pages that have storage keep it, and what they
    /// hold.
    ///
    /// # Errors
    /// ENOSPC if the file system is full; some of the pages may have storage then.
    fn fill(&self, page: u64, pages: u64) -> Result<(), IoError> {
        let _ = (page, pages);
        Ok(())
    }

    /// Carries out many reads, at once where the device can; every request's `result` is set. Gives
    /// the first error in the order of `requests`.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>], tag: Tag) -> Result<(), IoError> {
        let mut first = Ok(());
        for request in requests {
            request.result = self.read(request.page, request.buf, tag);
            first = first.and(request.result);
        }
        first
    }

    /// Carries out the reads of `slots` slots, of which up to `depth` (and [`MOST_UNDER_WAY`]) are
    /// under way at a time. A slot has one read at a time, and what it says next is requested when
    /// that has ended. With more slots than `depth` the next reads are known before the device has
    /// room for them, and go to it before what it gave is looked at. Returns when no slot has
    /// anything more to read. Where the device has no queue, the slots are served in turn.
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
