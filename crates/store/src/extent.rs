// SPDX-License-Identifier: Apache-2.0
//! Extents: runs of device pages that begin and end on units.

/// Pages of the device ([`senko_io::PAGE_SIZE`]) in a unit of space: extents begin and end on
/// units, of 64 KiB.
pub const UNIT_PAGES: u64 = 16;

/// Bytes of a unit of space.
pub(crate) const UNIT_BYTES: u64 = UNIT_PAGES * senko_io::PAGE_SIZE as u64;

/// A run of pages of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The first page.
    pub first: u64,
    /// The number of pages.
    pub pages: u32,
}

impl Extent {
    /// The page after the last.
    pub fn end(self) -> u64 {
        self.first + u64::from(self.pages)
    }

    /// Its bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.pages) * senko_io::PAGE_SIZE as u64
    }
}
