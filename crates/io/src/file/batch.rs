// SPDX-License-Identifier: Apache-2.0
//! Many concurrent blocking reads: with a small ring per thread, or one read after another if
//! io_uring is refused.
//!
//! A flash device serves many reads in hardly more time than a single one. So a compaction or a
//! scan that knows its pages requests them together. Always holds: `read_all` returns only when no
//! read is in flight, since the kernel writes to memory that the caller has only lent.

use std::cell::RefCell;
use std::os::fd::RawFd;

use io_uring::{IoUring, opcode, types::Fd};

use crate::{AlignedBuf, PAGE_SIZE};

/// Reads in flight at a time.
pub(super) const DEPTH: u32 = 64;

/// A read to do, and its result: bytes, or a negative error number.
pub(super) struct Read {
    /// The number of the caller's request.
    pub(super) index: usize,
    pub(super) address: *mut u8,
    pub(super) bytes: u32,
    pub(super) offset: u64,
    pub(super) result: i32,
}

thread_local! {
    /// This thread's ring, made at its first batch; `Some(None)` if it was refused.
    static RING: RefCell<Option<Option<IoUring>>> = const { RefCell::new(None) };
}

fn make_ring() -> Option<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .build(DEPTH)
        .ok()
}

/// Does all reads. False if there is no ring; then nothing was read.
///
/// # Safety
/// Each address must have its bytes of memory, which no other code uses until this returns.
pub(super) unsafe fn read_all(fd: RawFd, reads: &mut [Read]) -> bool {
    RING.with_borrow_mut(|slot| {
        let ring = slot.get_or_insert_with(make_ring);
        let Some(ring) = ring else { return false };
        let (mut next, mut in_flight) = (0, 0);
        while next < reads.len() || in_flight > 0 {
            while in_flight < DEPTH && next < reads.len() {
                let read = &reads[next];
                let entry = opcode::Read::new(Fd(fd), read.address, read.bytes)
                    .offset(read.offset)
                    .build()
                    .user_data(next as u64);
                // SAFETY: the caller lends the memory until this function returns, and it returns
                // with nothing in flight.
                if unsafe { ring.submission().push(&entry) }.is_err() {
                    break;
                }
                next += 1;
                in_flight += 1;
            }
            if let Err(error) = ring.submit_and_wait(1)
                && error.raw_os_error() != Some(libc::EINTR)
            {
                if in_flight == next as u32 && ring.submission().len() == next {
                    // The kernel refused the very first submission (a sandbox may), so no read is
                    // in flight.
                    *slot = Some(None);
                    return false;
                }
                // Whatever the error is, returning would leave reads in flight.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            for done in ring.completion() {
                in_flight -= 1;
                reads[done.user_data() as usize].result = done.result();
            }
        }
        true
    })
}

/// One read of a stream: the requested pages, and the buffer.
#[derive(Clone, Copy, Default)]
pub(super) struct Wanted {
    pub(super) pages: usize,
    pub(super) offset: u64,
}

/// A ring with reads in flight into buffers that it owns. So neither is freed before the kernel is
/// done with both.
pub(super) struct Stream {
    ring: Option<IoUring>,
    buffers: Vec<AlignedBuf>,
    in_flight: u32,
}

thread_local! {
    /// Buffers of this thread's last stream.
    static BUFFERS: RefCell<Vec<AlignedBuf>> = const { RefCell::new(Vec::new()) };
}

impl Stream {
    /// A stream on this thread's ring; `None` if io_uring is refused.
    pub(super) fn new(slots: usize) -> Option<Stream> {
        let ring = RING.with_borrow_mut(|slot| match slot.take() {
            Some(Some(ring)) => Some(ring),
            Some(None) => {
                *slot = Some(None);
                None
            }
            None => make_ring().or_else(|| {
                *slot = Some(None);
                None
            }),
        })?;
        let mut buffers = BUFFERS.take();
        buffers.resize_with(slots.max(buffers.len()), || AlignedBuf::new(1));
        Some(Stream {
            ring: Some(ring),
            buffers,
            in_flight: 0,
        })
    }

    fn ring(&mut self) -> &mut IoUring {
        self.ring
            .as_mut()
            .expect("it is there until the stream ends")
    }

    /// Queues a slot's read; the kernel sees it at the next [`Stream::submit`] or [`Stream::wait`].
    /// The slot must have no read in flight, and there must be fewer than [`DEPTH`] reads.
    pub(super) fn push(&mut self, fd: RawFd, slot: usize, wanted: Wanted) {
        if self.buffers[slot].pages() < wanted.pages {
            self.buffers[slot] = AlignedBuf::new(wanted.pages);
        }
        let address = self.buffers[slot].as_mut_ptr();
        let bytes = (wanted.pages * PAGE_SIZE) as u32;
        let entry = opcode::Read::new(Fd(fd), address, bytes)
            .offset(wanted.offset)
            .build()
            .user_data(slot as u64);
        // SAFETY: the buffer has that many bytes, belongs to this value and to no other read in
        // flight, and `drop` waits for the kernel.
        unsafe { self.ring().submission().push(&entry) }
            .expect("no more reads are under way than the queue has entries");
        self.in_flight += 1;
    }

    /// Submits the queued reads. The next [`Stream::wait`] submits those that the kernel does not
    /// accept now.
    pub(super) fn submit(&mut self) {
        let _ = self.ring().submit();
    }

    /// Submits the queued reads, waits for at least one end, and appends (slot, result) for each.
    /// False if the kernel accepts no reads at all.
    pub(super) fn wait(&mut self, ends: &mut Vec<(usize, i32)>) -> bool {
        let queued = self.ring().submission().len();
        if let Err(error) = self.ring().submit_and_wait(1)
            && error.raw_os_error() != Some(libc::EINTR)
        {
            if queued == self.in_flight as usize && self.ring().submission().len() == queued {
                // The kernel has no read.
                return false;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let before = ends.len();
        let done = self.ring().completion();
        ends.extend(done.map(|done| (done.user_data() as usize, done.result())));
        self.in_flight -= (ends.len() - before) as u32;
        true
    }

    /// Reads in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// A slot's buffer. The slot must have no read in flight.
    pub(super) fn buffer(&mut self, slot: usize, pages: usize) -> &mut [u8] {
        &mut self.buffers[slot][..pages * PAGE_SIZE]
    }

    /// After a refusal: neither this thread's ring nor any other will do the queued reads.
    pub(super) fn refuse(&mut self) {
        self.ring = None;
        self.in_flight = 0;
        RING.set(Some(None));
    }
}

impl Drop for Stream {
    /// Waits for reads in flight, even if the user of the stream panics.
    fn drop(&mut self) {
        let mut ends = Vec::new();
        while self.ring.is_some() && self.in_flight > 0 {
            if !self.wait(&mut ends) {
                return;
            }
        }
        let ring = self.ring.take();
        if let Some(ring) = ring {
            // A thread that is ending has no place for it any more.
            let _ = RING.try_with(|slot| *slot.borrow_mut() = Some(Some(ring)));
            let mut buffers = std::mem::take(&mut self.buffers);
            buffers.retain(|buffer| buffer.pages() <= 8);
            let _ = BUFFERS.try_with(|kept| *kept.borrow_mut() = buffers);
        }
    }
}
