// SPDX-License-Identifier: Apache-2.0
//! Receive buffers: a fixed set that the loop fills from sockets and the server returns by dropping
//! them.
//!
//! On io_uring the free buffers are in a provided-buffer ring. The kernel takes one when bytes
//! arrive, so an idle connection holds no buffer. On posix they are on a stack. A dropped buffer is
//! free at once, without a system call. Invariant RECV-1: a buffer number is either free (in the
//! ring or on the stack) or owned by exactly one [`RecvBuf`] or by a completion that was not
//! handled yet.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use crate::{AlignedBuf, PAGE_SIZE};

/// Most buffers: the kernel numbers them in 16 bits and a ring holds at most half of that range.
pub(crate) const MOST_BUFFERS: usize = 1 << 15;

/// Where free buffers are kept.
enum Free {
    Stack(RefCell<Vec<u16>>),
    /// The provided-buffer ring: its entries, and the tail that this side advances.
    Ring {
        entries: AlignedBuf,
        tail: Cell<u16>,
    },
}

/// All receive buffers of a loop.
pub(crate) struct RecvPool {
    memory: AlignedBuf,
    buffer_bytes: usize,
    count: usize,
    available: Cell<usize>,
    free: Free,
}

impl RecvPool {
    /// Buffers on a stack, for the posix backend.
    pub(crate) fn stack(count: usize, buffer_bytes: usize) -> io::Result<Rc<RecvPool>> {
        check(count, buffer_bytes)?;
        let free = Free::Stack(RefCell::new((0..count as u16).rev().collect()));
        Ok(Rc::new(RecvPool {
            memory: AlignedBuf::try_new((count * buffer_bytes).div_ceil(PAGE_SIZE))?,
            buffer_bytes,
            count,
            available: Cell::new(count),
            free,
        }))
    }

    /// Buffers in a ring to register with the kernel, all of them free.
    pub(crate) fn ring(count: usize, buffer_bytes: usize) -> io::Result<Rc<RecvPool>> {
        check(count, buffer_bytes)?;
        let entry_bytes = count * size_of::<BufRingEntry>();
        let pool = Rc::new(RecvPool {
            memory: AlignedBuf::try_new((count * buffer_bytes).div_ceil(PAGE_SIZE))?,
            buffer_bytes,
            count,
            available: Cell::new(0),
            free: Free::Ring {
                entries: AlignedBuf::try_new(entry_bytes.div_ceil(PAGE_SIZE))?,
                tail: Cell::new(0),
            },
        });
        for id in 0..count as u16 {
            pool.give_back(id);
        }
        Ok(pool)
    }

    /// Address and entries of the ring to register.
    pub(crate) fn ring_address(&self) -> (u64, u16) {
        match &self.free {
            Free::Ring { entries, .. } => (entries.start() as u64, self.count as u16),
            Free::Stack(_) => unreachable!("only the io_uring backend registers its buffers"),
        }
    }

    /// Buffers that are free now, as far as this side knows.
    pub(crate) fn available(&self) -> usize {
        self.available.get()
    }

    /// Bytes of one buffer.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    fn address(&self, id: u16) -> *mut u8 {
        assert!(
            (id as usize) < self.count,
            "the kernel names only buffers that it was given"
        );
        // SAFETY: the buffer's offset lies inside the mapping.
        unsafe { self.memory.start().add(id as usize * self.buffer_bytes) }
    }

    /// The buffer into which the kernel received `bytes` bytes.
    pub(crate) fn filled(self: &Rc<RecvPool>, id: u16, bytes: usize) -> RecvBuf {
        debug_assert!(bytes <= self.buffer_bytes);
        self.available.set(self.available.get() - 1);
        RecvBuf {
            start: self.address(id),
            bytes: bytes as u32,
            id,
            pool: Rc::clone(self),
        }
    }

    /// A free buffer to receive into; its length is set by [`RecvBuf::set_len`].
    pub(crate) fn take(self: &Rc<RecvPool>) -> Option<RecvBuf> {
        let Free::Stack(stack) = &self.free else {
            unreachable!("on io_uring the kernel takes the buffers")
        };
        let id = stack.borrow_mut().pop()?;
        Some(self.filled(id, 0))
    }

    fn give_back(&self, id: u16) {
        self.available.set(self.available.get() + 1);
        match &self.free {
            Free::Stack(stack) => stack.borrow_mut().push(id),
            Free::Ring { entries, tail } => {
                let base = entries.start().cast::<BufRingEntry>();
                let at = tail.get() as usize & (self.count - 1);
                // SAFETY: `at` is below the number of entries; only this thread writes entries, and
                // the kernel reads one only after the tail store below has passed it. The fields
                // are set one by one because the first entry's last field is the tail itself. The
                // tail lies in the mapping, aligned, and the kernel only reads it.
                unsafe {
                    let entry = &mut *base.add(at);
                    entry.set_addr(self.address(id) as u64);
                    entry.set_len(self.buffer_bytes as u32);
                    entry.set_bid(id);
                    tail.set(tail.get().wrapping_add(1));
                    let published = BufRingEntry::tail(base).cast::<AtomicU16>();
                    (*published).store(tail.get(), Ordering::Release);
                }
            }
        }
    }

    /// Leaks the memory, for a loop that gave up waiting for the kernel.
    pub(crate) fn leak(self: &Rc<RecvPool>) {
        std::mem::forget(Rc::clone(self));
    }
}

fn check(count: usize, buffer_bytes: usize) -> io::Result<()> {
    let reason = if !count.is_power_of_two() || count > MOST_BUFFERS {
        format!("{count} receive buffers: must be a power of two, at most {MOST_BUFFERS}")
    } else if !buffer_bytes.is_power_of_two() || buffer_bytes > 1 << 30 {
        format!("receive buffers of {buffer_bytes} bytes: must be a power of two, at most 1 GiB")
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

/// Received bytes (`Deref<[u8]>`). Dropping it returns the buffer to the loop. It does not borrow
/// from the loop.
pub struct RecvBuf {
    pool: Rc<RecvPool>,
    start: *mut u8,
    bytes: u32,
    id: u16,
}

impl RecvBuf {
    /// The whole buffer, to receive into.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        // SAFETY: the buffer is this value's alone (RECV-1) and has `buffer_bytes` bytes in the
        // pool's mapping.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.pool.buffer_bytes) }
    }

    /// Sets how many bytes were received.
    pub(crate) fn set_len(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.pool.buffer_bytes);
        self.bytes = bytes as u32;
    }
}

impl Deref for RecvBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer is this value's alone (RECV-1), `bytes` of it were filled, and `pool`
        // keeps the mapping.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes as usize) }
    }
}

impl DerefMut for RecvBuf {
    /// TLS decrypts received bytes in place.
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` is the only way to the buffer meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes as usize) }
    }
}

impl Drop for RecvBuf {
    fn drop(&mut self) {
        self.pool.give_back(self.id);
    }
}

impl fmt::Debug for RecvBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvBuf({} bytes)", self.bytes)
    }
}
