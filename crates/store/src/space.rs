// SPDX-License-Identifier: Apache-2.0
//! Which parts of the file are free.

/// Pages of the device ([`senko_io::PAGE_SIZE`]) in a unit of space: extents begin and end on units, of 64 KiB.
pub const UNIT_PAGES: u64 = 16;

/// A run of pages of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The first page.
    pub first: u64,
    /// How many.
    pub pages: u32,
}

impl Extent {
    /// The page behind the last.
    pub fn end(self) -> u64 {
        self.first + u64::from(self.pages)
    }
}
