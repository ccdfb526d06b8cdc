// SPDX-License-Identifier: Apache-2.0
//! The bytes of a map. A large map begins on a cache line, and a very large one is in large pages.
//! A small map is one allocation without slack, since a store has hundreds of them.

use std::fmt;
use std::ops::{Deref, DerefMut};

use senko_io::le::u64_at;
use senko_io::{AlignedBuf, PAGE_SIZE};

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// From this size on, the first byte is at the beginning of a cache line.
const ALIGNED_FROM: usize = 4 << 10;

/// From this size on, the memory is mapped from the system. An allocator rounds such sizes up,
/// usually by a tenth, and maps are most of a store's DRAM.
const MAPPED_FROM: usize = 64 << 10;

/// From this size on, the system is asked for large pages.
const LARGE_FROM: usize = 1 << 20;

/// Zeroed bytes.
pub(crate) enum Memory {
    /// On the heap.
    Small(Box<[u8]>),
    /// On the heap, with up to a line to spare: the first `skip` bytes are not used.
    Lines { bytes: Box<[u8]>, skip: u8 },
    /// Mapped; only `len` bytes of it are used.
    Mapped(Box<(AlignedBuf, usize)>),
}

impl Memory {
    /// `len` bytes, all zero.
    pub(crate) fn zeroed(len: usize) -> Memory {
        if len < ALIGNED_FROM {
            Memory::Small(vec![0; len].into_boxed_slice())
        } else if len < MAPPED_FROM {
            let bytes = vec![0u8; len + LINE - 1].into_boxed_slice();
            // The system may decline; then the memory is used as it is.
            let skip = bytes.as_ptr().align_offset(LINE);
            let skip = if skip < LINE { skip as u8 } else { 0 };
            Memory::Lines { bytes, skip }
        } else {
            let mut pages = AlignedBuf::new(len.div_ceil(PAGE_SIZE));
            if len >= LARGE_FROM {
                pages.prefer_large();
            }
            Memory::Mapped(Box::new((pages, len)))
        }
    }

    /// A copy of `bytes`.
    pub(crate) fn copy_of(bytes: &[u8]) -> Memory {
        let mut memory = Memory::zeroed(bytes.len());
        memory.copy_from_slice(bytes);
        memory
    }

    /// The size of its other fields, without the size of the value itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Memory::Small(bytes) => bytes.len(),
            Memory::Lines { bytes, .. } => bytes.len(),
            Memory::Mapped(mapped) => mapped.0.len() + size_of::<(AlignedBuf, usize)>(),
        }
    }
}

impl Deref for Memory {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Memory::Small(bytes) => bytes,
            Memory::Lines { bytes, skip } => {
                let skip = usize::from(*skip);
                &bytes[skip..bytes.len() - (LINE - 1) + skip]
            }
            Memory::Mapped(mapped) => &mapped.0[..mapped.1],
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Small(bytes) => bytes,
            Memory::Lines { bytes, skip } => {
                let skip = usize::from(*skip);
                let end = bytes.len() - (LINE - 1) + skip;
                &mut bytes[skip..end]
            }
            Memory::Mapped(mapped) => {
                let len = mapped.1;
                &mut mapped.0[..len]
            }
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// The `at`-th word of 8 bytes.
#[inline]
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    u64_at(bytes, at * 8)
}

/// Sets the `at`-th word of 8 bytes.
#[inline]
pub(crate) fn set_word(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at * 8..at * 8 + 8].copy_from_slice(&value.to_le_bytes());
}

/// Prefetches all cache lines of `from..to`, which need not begin on a line.
#[inline]
pub(crate) fn prefetch(bytes: &[u8], from: usize, to: usize) {
    let to = to.min(bytes.len());
    let from = from.min(to) & !(LINE - 1);
    senko_io::prefetch(&bytes[from..to]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_its_bytes_and_large_ones_begin_on_a_line() {
        for len in [
            0,
            1,
            100,
            ALIGNED_FROM - 1,
            ALIGNED_FROM,
            70_001,
            MAPPED_FROM,
            MAPPED_FROM + 5,
        ] {
            let mut memory = Memory::zeroed(len);
            assert_eq!(memory.len(), len);
            assert!(memory.iter().all(|byte| *byte == 0));
            if let Some(last) = memory.last_mut() {
                *last = 7;
            }
            assert!(memory.heap_bytes() >= len);
            if len >= ALIGNED_FROM {
                assert_eq!(memory.as_ptr() as usize % LINE, 0);
            }
            assert_eq!(*Memory::copy_of(&memory), *memory);
        }
    }
}
