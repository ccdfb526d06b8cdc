// SPDX-License-Identifier: Apache-2.0
//! Many blocking reads at once: a small ring per thread, or one read after another where io_uring is refused.
//!
//! A flash device serves many reads in hardly more time than one, so a compaction or a scan that knows its pages asks for them
//! together. Always holds: `read_all` returns only when no read is in flight, since the kernel writes
//! to memory that the caller has only lent.

use std::cell::RefCell;
use std::os::fd::RawFd;

use io_uring::{IoUring, opcode, types::Fd};

/// Reads in flight at a time.
const DEPTH: u32 = 64;

/// A read to carry out, and its result: bytes, or a negative error number.
pub(super) struct Read {
    /// Which of the caller's requests it is.
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

/// Carries out all reads; false if there is no ring, and nothing was done.
///
/// # Safety
/// Each address has its bytes of memory, which nothing else touches until this returns.
pub(super) unsafe fn read_all(fd: RawFd, reads: &mut [Read]) -> bool {
    RING.with_borrow_mut(|slot| {
        let ring = slot.get_or_insert_with(|| {
            IoUring::builder()
                .setup_single_issuer()
                .setup_coop_taskrun()
                .build(DEPTH)
                .ok()
        });
        let Some(ring) = ring else { return false };
        let (mut next, mut in_flight) = (0, 0);
        while next < reads.len() || in_flight > 0 {
            while in_flight < DEPTH && next < reads.len() {
                let read = &reads[next];
                let entry = opcode::Read::new(Fd(fd), read.address, read.bytes)
                    .offset(read.offset)
                    .build()
                    .user_data(next as u64);
                // SAFETY: the caller lends the memory until this function returns, and it returns with nothing in flight.
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
                    // The kernel refused the very first submission (a sandbox may): it has nothing in hand.
                    *slot = Some(None);
                    return false;
                }
                // Whatever it is, returning would leave reads in flight.
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
