// SPDX-License-Identifier: Apache-2.0
//! Page-aligned memory: runs of pages to write from, pooled frames to read into.

/// Bytes in a page: the unit of every device operation, and the read unit that papers B and E build on.
pub const PAGE_SIZE: usize = 4096;

/// Zeroed, page-aligned memory of a whole number of pages; `Send + Sync`, bytes through `Deref<[u8]>`/`DerefMut`.
pub struct AlignedBuf {}

impl AlignedBuf {
    /// Zeroed memory of `pages` pages.
    pub fn new(_pages: usize) -> AlignedBuf {
        todo!()
    }
    /// Size in pages.
    pub fn pages(&self) -> usize {
        todo!()
    }
}

/// A fixed set of page frames in a few size classes, all in one mapping (which the io_uring backend registers).
/// Cheap to clone (an `Rc`), used by one thread. `Clone`.
#[derive(Clone)]
pub struct FramePool {}

impl FramePool {
    /// A pool with `count` frames of `pages` pages for each `(pages, count)`; ascending in `pages`.
    pub fn new(_classes: &[(usize, usize)]) -> FramePool {
        todo!()
    }
    /// A frame of at least `pages` pages, from the smallest class that has that size *and* a free frame.
    pub fn take(&self, _pages: usize) -> Option<PageBuf> {
        todo!()
    }
    /// Pages of the largest class.
    pub fn largest(&self) -> usize {
        todo!()
    }
    /// Bytes of the whole pool, and bytes now handed out.
    pub fn usage(&self) -> (usize, usize) {
        todo!()
    }
}

/// One frame of a [`FramePool`]; bytes through `Deref<[u8]>`/`DerefMut` (the frame's whole length); returns to its pool on drop.
#[derive(Debug)]
pub struct PageBuf {}
