// SPDX-License-Identifier: Apache-2.0
//! Where the keys of a dense leaf are likely to lie: in DRAM, and in the leaf. `newest.rs` asks and
//! keeps the hints.
//!
//! A tree of a million records is much larger than the processor's caches. A read of one key then
//! waits for DRAM four times, one after the other: for the version, the page, its last key, and the
//! keys that the search looks at. A hint says where the record is before the version is there. So
//! the processor loads the record meanwhile, and the search looks at few other keys.
//!
//! The hints are a table of as many entries as pages fit into the cache. Pages whose numbers meet
//! in an entry take it from each other.
//!
//! HINT-1: a hint is only that. The page says whether the key is there, so a wrong hint costs time.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::growing::Growing;
use crate::node::{Page, number};

/// Records to each side of the likely one that are looked at with it.
const BESIDE: usize = 1;

/// The hints of a database.
pub(crate) struct Hints {
    entries: Growing<Hint>,
    mask: u32,
}

/// What is known of a leaf. Words that do not belong together are a wrong hint.
#[derive(Default)]
#[repr(align(32))]
struct Hint {
    /// Where the bytes were. 0: nothing is known.
    address: AtomicUsize,
    /// The first key as a number, behind what all keys begin with.
    first: AtomicU64,
    /// The page's number, and records a unit of `first`: the bits of an `f32`.
    page: AtomicU64,
    /// Four times 16 bits: records, bytes of a key, bytes of a record, bytes that all keys begin
    /// with.
    shape: AtomicU64,
}

const _: () = assert!(size_of::<Hint>() == 32);

/// A likely place, known before the leaf was looked at.
pub(crate) struct Likely {
    address: usize,
    nth: usize,
    /// Bytes of a record.
    record: usize,
}

impl Hints {
    /// Hints for a cache of so many pages.
    pub fn new(pages: usize) -> Hints {
        let entries = pages.clamp(1, 1 << 24).next_power_of_two();
        Hints {
            entries: Growing::new(),
            mask: entries as u32 - 1,
        }
    }

    /// Where a key is likely to lie in a page, which the processor begins to load.
    pub fn likely(&self, id: u32, key: &[u8]) -> Option<Likely> {
        let hint = self.entries.get(id & self.mask)?;
        let page = hint.page.load(Ordering::Relaxed);
        let address = hint.address.load(Ordering::Relaxed);
        if (page >> 32) as u32 != id || address == 0 {
            return None;
        }
        let shape = hint.shape.load(Ordering::Relaxed);
        let part = |nth: u32| (shape >> (16 * nth) & 0xffff) as usize;
        let (count, bytes, record, same) = (part(0), part(1), part(2), part(3));
        if key.len() != bytes {
            return None;
        }
        let first = hint.first.load(Ordering::Relaxed);
        let scale = f32::from_bits(page as u32);
        let behind = number(key.get(same..)?).saturating_sub(first);
        let nth = ((behind as f64 * f64::from(scale) + 0.5) as usize).min(count.saturating_sub(1));
        senko_io::prefetch_address(address);
        for nth in nth.saturating_sub(BESIDE)..=nth + BESIDE {
            senko_io::prefetch_address(address.wrapping_add(Page::dense_at(nth, record)));
        }
        // The value goes on in the next cache line.
        let end = Page::dense_at(nth + 1, record) - 1;
        senko_io::prefetch_address(address.wrapping_add(end));
        Some(Likely {
            address,
            nth,
            record,
        })
    }

    /// Keeps what there is to know of a page, if the hint that was taken is not of it.
    pub fn keep(&self, id: u32, page: &Page, taken: Option<&Likely>) {
        let address = std::ptr::from_ref(page.bytes()).addr();
        if taken.is_some_and(|taken| taken.address == address) {
            return;
        }
        let Some((key, record)) = page.dense_shape().filter(|_| page.count() > 0) else {
            return;
        };
        let (low, high) = (page.key(0), page.key(page.count() - 1));
        let same = low.iter().zip(high).take_while(|(a, b)| a == b).count();
        let (first, last) = (number(&low[same..]), number(&high[same..]));
        let between = last.saturating_sub(first).max(1);
        let scale = ((page.count() - 1) as f64 / between as f64) as f32;
        let shape = [page.count(), key, record, same].map(|part| part as u64);
        let shape = shape[0] | shape[1] << 16 | shape[2] << 32 | shape[3] << 48;
        let hint = self.entries.at(id & self.mask);
        hint.address.store(address, Ordering::Relaxed);
        hint.first.store(first, Ordering::Relaxed);
        let of = u64::from(id) << 32 | u64::from(scale.to_bits());
        hint.page.store(of, Ordering::Relaxed);
        hint.shape.store(shape, Ordering::Relaxed);
    }
}

impl Likely {
    /// The record of the key, if it is at the likely place or beside it.
    pub fn find(&self, page: &Page, key: &[u8]) -> Option<usize> {
        let is = |nth: &usize| page.has_dense(*nth, self.record, key);
        if is(&self.nth) {
            return Some(self.nth);
        }
        (self.nth.saturating_sub(BESIDE)..=self.nth + BESIDE).find(is)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(id: u32, keys: impl Iterator<Item = u32>, value: usize) -> Box<Page> {
        let mut page = Box::new(Page::new(id, 0));
        for key in keys {
            let full = !page.insert(page.count(), &key.to_be_bytes(), &vec![7; value], false);
            assert!(!full, "the page has room");
        }
        page
    }

    /// The record of a key by its hint, as `newest.rs` asks for it.
    fn hinted(hints: &Hints, page: &Page, key: u32) -> Option<usize> {
        let key = key.to_be_bytes();
        let likely = hints.likely(page.id(), &key);
        let found = likely.as_ref().and_then(|likely| likely.find(page, &key));
        hints.keep(page.id(), page, likely.as_ref());
        found
    }

    #[test]
    fn even_keys_are_where_they_are_likely() {
        let hints = Hints::new(16);
        let page = leaf(3, (0..30).map(|n| 1000 + 7 * n), 100);
        assert_eq!(hinted(&hints, &page, 1000), None, "nothing is known yet");
        for n in 0..30 {
            assert_eq!(hinted(&hints, &page, 1000 + 7 * n), Some(n as usize));
            assert_eq!(hinted(&hints, &page, 1001 + 7 * n), None, "no such key");
        }
    }

    #[test]
    fn a_wrong_hint_finds_nothing_that_is_not_there() {
        let hints = Hints::new(16);
        let mut rng = 7u64;
        for _ in 0..2000 {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(99);
            // Pages 3 and 19 meet in one entry; a page changes its form, its keys and its size.
            let id = if rng & 1 << 40 == 0 { 3 } else { 19 };
            let (step, count) = ((rng >> 41) as u32 % 9 + 1, (rng >> 50) as u32 % 30);
            let mut page = leaf(id, (0..count).map(|n| n * step), (rng >> 33) as usize % 90);
            if rng & 1 << 60 == 0 {
                assert!(page.insert(page.count(), b"\xff other", b"", false));
            }
            for key in 0..40 {
                let found = hinted(&hints, &page, key);
                let is = page.search(&key.to_be_bytes());
                assert!(found.is_none() || found == is.ok(), "{found:?}, {is:?}");
                assert!(found.is_none_or(|nth| page.key(nth) == key.to_be_bytes()));
            }
        }
    }
}
