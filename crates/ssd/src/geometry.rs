// SPDX-License-Identifier: Apache-2.0
//! The shape of the flash: channels, dies, planes, blocks, pages, and how they are numbered.
//!
//! Blocks are distributed over the planes in turn: block `b` lies in plane `b % planes`. Planes are
//! distributed over the channels in the same way. So consecutive block numbers are as parallel as
//! the drive allows. A page's number is `block * pages_per_block + page in block`.

use serde::{Deserialize, Serialize};

use crate::Error;

/// A logical page: what the host addresses, in pages.
pub type Lpn = u32;
/// A physical page.
pub type Ppn = u32;
/// A block, as the translation layer numbers it.
pub type Block = u32;

/// No page: an unmapped entry, or an erased page. Page numbers are below it.
pub const NONE: u32 = u32::MAX;

/// The shape of the flash of one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Buses between the controller and the flash.
    pub channels: u32,
    /// Dies on each channel.
    pub dies: u32,
    /// Planes in each die. Each plane works independently.
    pub planes: u32,
    /// Blocks in each plane.
    pub blocks: u32,
    /// Pages in each block.
    pub pages: u32,
    /// Bytes of data in a page.
    pub page_bytes: u32,
    /// Bytes of a page's spare area.
    pub spare_bytes: u32,
}

impl Geometry {
    /// One plane of `blocks` blocks of `pages` pages, each of 4 KiB.
    pub fn one_plane(blocks: u32, pages: u32) -> Self {
        Self {
            channels: 1,
            dies: 1,
            planes: 1,
            blocks,
            pages,
            page_bytes: 4096,
            spare_bytes: 0,
        }
    }

    pub fn all_planes(&self) -> u32 {
        self.channels * self.dies * self.planes
    }

    pub fn all_blocks(&self) -> u32 {
        self.all_planes() * self.blocks
    }

    pub fn all_pages(&self) -> u32 {
        self.all_blocks() * self.pages
    }

    /// Bytes of data in a block.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.pages) * u64::from(self.page_bytes)
    }

    /// Bytes of data in all.
    pub fn bytes(&self) -> u64 {
        u64::from(self.all_pages()) * u64::from(self.page_bytes)
    }

    pub fn plane_of(&self, block: Block) -> u32 {
        block % self.all_planes()
    }

    pub fn channel_of(&self, plane: u32) -> u32 {
        plane % self.channels
    }

    pub fn block_of(&self, page: Ppn) -> Block {
        page / self.pages
    }

    pub fn first_page(&self, block: Block) -> Ppn {
        block * self.pages
    }

    /// Refuses impossible shapes.
    ///
    /// # Errors
    /// If a part is zero, pages are not a multiple of 512 bytes, or there are too many pages to
    /// number.
    pub fn check(&self) -> Result<(), Error> {
        let parts = [
            ("channels", self.channels),
            ("dies", self.dies),
            ("planes", self.planes),
            ("blocks", self.blocks),
            ("pages", self.pages),
            ("page_bytes", self.page_bytes),
        ];
        if let Some((name, _)) = parts.iter().find(|(_, value)| *value == 0) {
            return Err(Error::Geometry(format!("{name} is 0")));
        }
        if !self.page_bytes.is_multiple_of(512) {
            return Err(Error::Geometry(format!(
                "page_bytes is {}, which is not a multiple of 512",
                self.page_bytes
            )));
        }
        let pages = parts[..5].iter().try_fold(1u64, |product, (_, part)| {
            product.checked_mul(u64::from(*part))
        });
        match pages {
            Some(pages) if pages < u64::from(NONE) => Ok(()),
            _ => Err(Error::Geometry(format!(
                "there are {} pages, and a drive has fewer than 2^32 - 1",
                pages.map_or("more than 2^64".to_owned(), |pages| pages.to_string())
            ))),
        }
    }
}

/// Division by a constant, such as pages in a block, without the processor's slow division.
///
/// Lemire, Kaser and Kurz, "Faster remainder by direct computation", 2019: with `ceil(2^64 / by)`,
/// the upper half of a product is the quotient, exactly, for all 32-bit numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divider {
    by: u32,
    /// `ceil(2^64 / by)`; not used for 1.
    inverse: u64,
}

impl Divider {
    /// For divisions by `by`, which is not 0.
    pub fn new(by: u32) -> Self {
        Self {
            by,
            inverse: (u64::MAX / u64::from(by)).wrapping_add(1),
        }
    }

    /// `number / by`.
    #[inline]
    pub fn quotient(self, number: u32) -> u32 {
        if self.by == 1 {
            return number;
        }
        ((u128::from(self.inverse) * u128::from(number)) >> 64) as u32
    }

    /// `number % by`.
    #[inline]
    pub fn remainder(self, number: u32) -> u32 {
        number - self.quotient(number) * self.by
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divider_divides() {
        let interesting = [0, 1, 2, 3, 5, 7, 64, 127, 128, 384, 1 << 31, u32::MAX - 1];
        for by in interesting
            .into_iter()
            .filter(|by| *by > 0)
            .chain([u32::MAX])
        {
            let divider = Divider::new(by);
            let near = |number: u32| [number.wrapping_sub(1), number, number.wrapping_add(1)];
            let multiples = (0..100u32).map(|n| n.wrapping_mul(by));
            for number in multiples.chain(interesting).flat_map(near) {
                assert_eq!(divider.quotient(number), number / by, "{number} / {by}");
                assert_eq!(divider.remainder(number), number % by, "{number} % {by}");
            }
        }
    }
}
