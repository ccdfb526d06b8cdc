// SPDX-License-Identifier: Apache-2.0
//! Extents: runs of device pages that begin and end on units.

/// Pages of the device ([`senko_io::PAGE_SIZE`]) in a unit of space: extents begin and end on
/// units, of 64 KiB.
pub const UNIT_PAGES: u64 = 16;

/// Bytes of a unit of space.
pub(crate) const UNIT_BYTES: u64 = UNIT_PAGES * senko_io::PAGE_SIZE as u64;

/// A run of pages of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The first page.
    pub first: u64,
    /// The number of pages.
    pub pages: u32,
}

impl Extent {
    /// `pages` pages from `first` on.
    pub const fn new(first: u64, pages: u32) -> Extent {
        Extent { first, pages }
    }

    /// The page after the last.
    pub fn end(self) -> u64 {
        self.first + u64::from(self.pages)
    }

    /// Whether it ends within a device of this many pages, whatever its numbers are.
    pub(crate) fn lies_within(self, device_pages: u64) -> bool {
        let end = self.first.checked_add(self.pages.into());
        end.is_some_and(|end| end <= device_pages)
    }

    /// The byte of the file at which it begins, or the last one if there is no such byte.
    pub(crate) fn offset(self) -> u64 {
        self.first.saturating_mul(senko_io::PAGE_SIZE as u64)
    }

    /// Its bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.pages) * senko_io::PAGE_SIZE as u64
    }
}
