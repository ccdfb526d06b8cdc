// SPDX-License-Identifier: Apache-2.0
//! How much space a log's elements take in blocks, at most. Filled by [`super::append`] and
//! [`super::replay`], read by `reserve.rs`.
//!
//! Card. The block writer packs elements in the order of their hashes, which is any order: next-fit
//! bin packing. A page is closed because the next element does not fit, so it leaves less space
//! unused than that element takes. From this follow three bounds, and the smallest counts. `P` is
//! what a page takes.
//! - Two successive pages hold more than `P`: at most `2 * bytes / P` pages.
//! - A page holds at least `P / longest` elements, rounded down.
//! - Let elements shorter than `t` be small. A page closed by a small one leaves less than `t`
//!   unused, and one closed by another element less than that element: at most
//!   `(small + 2 * others) / (P - t)` pages.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::block::PAGE_HEADER;
use crate::element::{Element, LARGE};

/// Classes of lengths: class `c` has the elements below `2^c` bytes that no smaller class has.
const CLASSES: usize = 24;

/// Lengths of elements.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    elements: AtomicU64,
    /// Elements whose value has its own extent.
    large: AtomicU64,
    longest: AtomicU64,
    /// Encoded bytes by class.
    bytes: [AtomicU64; CLASSES],
}

impl Packing {
    pub fn add(&self, element: &Element<'_>) {
        let bytes = element.encoded_len() as u64;
        let class = (u64::BITS - bytes.leading_zeros()) as usize;
        self.bytes[class.min(CLASSES - 1)].fetch_add(bytes, Ordering::Relaxed);
        self.elements.fetch_add(1, Ordering::Relaxed);
        self.longest.fetch_max(bytes, Ordering::Relaxed);
        if element.flags & LARGE != 0 {
            self.large.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The elements of both.
    pub fn and(&self, other: &Packing) -> Packing {
        let sum = |of: fn(&Packing) -> &AtomicU64| {
            let (one, two) = (of(self), of(other));
            AtomicU64::new(one.load(Ordering::Relaxed) + two.load(Ordering::Relaxed))
        };
        Packing {
            elements: sum(|all| &all.elements),
            large: sum(|all| &all.large),
            longest: AtomicU64::new(self.longest().max(other.longest())),
            bytes: std::array::from_fn(|class| {
                let bytes = |all: &Packing| all.bytes[class].load(Ordering::Relaxed);
                AtomicU64::new(bytes(self) + bytes(other))
            }),
        }
    }

    pub fn elements(&self) -> u64 {
        self.elements.load(Ordering::Relaxed)
    }

    /// Elements whose value has its own extent.
    pub fn large(&self) -> u64 {
        self.large.load(Ordering::Relaxed)
    }

    /// Encoded bytes of the longest element.
    pub fn longest(&self) -> u64 {
        self.longest.load(Ordering::Relaxed)
    }

    /// The most data pages of `page_bytes` that the elements take, in any order.
    pub fn data_pages(&self, page_bytes: usize) -> u64 {
        let page = (page_bytes - PAGE_HEADER) as u64;
        let bytes: Vec<u64> = self
            .bytes
            .iter()
            .map(|bytes| bytes.load(Ordering::Relaxed))
            .collect();
        let all: u64 = bytes.iter().sum();
        let mut pages = (2 * all).div_ceil(page);
        if self.longest() <= page {
            pages = pages.min(self.elements().div_ceil(page / self.longest().max(1)));
        }
        let mut small = 0;
        for (class, bytes) in bytes.iter().enumerate() {
            small += bytes;
            let most = 1 << class;
            if 2 * most > page {
                break;
            }
            pages = pages.min((small + 2 * (all - small)).div_ceil(page - most));
        }
        // Elements whose hashes share a cell of the page index go to the next page together.
        pages + pages / 16 + 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packing(lengths: &[usize]) -> Packing {
        let packing = Packing::default();
        for &length in lengths {
            packing.add(&Element {
                flags: 0,
                key: b"key",
                value: &vec![0; length],
                time: 1,
                expiry: 0,
            });
        }
        packing
    }

    /// Pages that next-fit takes, for elements in this order.
    fn next_fit(lengths: &[usize]) -> u64 {
        let (mut pages, mut used) = (1, 0);
        for &length in lengths {
            let bytes = packing(&[length]).longest();
            if used + bytes > 4096 - PAGE_HEADER as u64 {
                pages += 1;
                used = 0;
            }
            used += bytes;
        }
        pages
    }

    /// Elements of just over half a page beside short ones used to be counted by their mean length.
    /// They take nearly twice that.
    #[test]
    fn no_order_takes_more_pages() {
        let patterns: [&[usize]; 7] = [
            &[30],
            &[1000],
            &[2100],
            &[2100, 20],
            &[2010, 20],
            &[1400, 2800],
            &[3900, 200, 20],
        ];
        for pattern in patterns {
            let lengths: Vec<usize> = pattern.iter().copied().cycle().take(3000).collect();
            let mut sorted = lengths.clone();
            sorted.sort_unstable();
            let bound = packing(&lengths).data_pages(4096);
            for order in [lengths, sorted] {
                let pages = next_fit(&order);
                assert!(pages <= bound, "{pattern:?}: {pages} pages, not {bound}");
            }
        }
        // The usual stores are not counted for much more than they take.
        for length in [20, 200, 1000, 2100] {
            let lengths = vec![length; 4000];
            let (pages, bound) = (next_fit(&lengths), packing(&lengths).data_pages(4096));
            assert!(bound <= pages + pages / 5 + 5, "{length}: {pages}, {bound}");
        }
    }
}
