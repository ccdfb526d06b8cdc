// SPDX-License-Identifier: Apache-2.0
//! An inner page for reads of single keys: its keys as numbers, and the likely places of its
//! leaves' records in DRAM. `newest.rs` calls it.
//!
//! A tree of a million records is much larger than the processor's caches, and a read of one key
//! waits for DRAM several times, one after the other. Two measures reduce these waits.
//!
//! An inner page keeps its keys in cells. Here they are adjacent numbers. Interpolation finds the
//! child among them, usually within one cache line. A version never changes, so its numbers stay
//! valid. They are made when a page is read for the second time, because a page that just changed
//! may soon change again.
//!
//! Next to a child's number are the last known places of that leaf's version and bytes. So the
//! processor loads both while the version is looked up, and the search reads few other keys.
//!
//! INNER-1: a child that this search returns is the one that [`Page::child_for`] finds. If the
//! numbers cannot decide, there is no answer. HINT-1: the likely place of a record is only a hint.
//! The page itself is checked for the key, so a wrong hint costs only time.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::pages::node::{Page, number};

/// Records on each side of the likely one that are prefetched with it.
const BESIDE: usize = 1;

/// Approximate bytes of a version: it lies in two cache lines.
const VERSION_BYTES: usize = 64;

/// The keys and children of an inner page.
pub(crate) struct Inner {
    /// The prefix of all keys.
    same: Box<[u8]>,
    /// The entry before the first child is not a key.
    entries: Box<[Entry]>,
    /// Children per unit of the numbers.
    scale: f64,
    /// The length of the keys, if all have the same and the numbers hold them completely.
    bytes: Option<usize>,
    pub level: u8,
}

/// A child.
struct Entry {
    /// The rest of the key before the child, in ascending order.
    number: u64,
    id: u32,
    /// For a dense leaf, 16 bits each: records, and the bytes of a record.
    shape: AtomicU32,
    /// The last known place of a dense leaf's bytes; 0: unknown. Words that do not belong together
    /// are a wrong hint.
    address: AtomicUsize,
    /// The last known place of the leaf's version; 0: unknown.
    version: AtomicUsize,
}

const _: () = assert!(size_of::<Entry>() == 32);

/// The place of a child among its siblings.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    nth: usize,
    /// The number of the key, if it has the prefix of the page's keys.
    wanted: Option<u64>,
}

/// A likely place, known before the leaf was read.
pub(crate) struct Likely {
    nth: usize,
    /// Bytes of a record.
    record: usize,
}

impl Inner {
    /// For a page that is not a leaf.
    pub fn of(page: &Page) -> Inner {
        let count = page.count();
        let (first, last) = match count {
            0 => (&[][..], &[][..]),
            _ => (page.key(0), page.key(count - 1)),
        };
        let same = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let bytes = first.len();
        let even = bytes <= same + 8 && (0..count).all(|nth| page.key(nth).len() == bytes);
        let entry = |nth: usize| Entry {
            number: match nth {
                0 => 0,
                nth => number(page.key(nth - 1).get(same..).unwrap_or_default()),
            },
            id: page.child(nth),
            shape: AtomicU32::new(0),
            address: AtomicUsize::new(0),
            version: AtomicUsize::new(0),
        };
        let entries: Box<[Entry]> = (0..=count).map(entry).collect();
        let between = match count {
            0 => 1,
            _ => entries[count].number.saturating_sub(entries[1].number),
        };
        Inner {
            same: first[..same].into(),
            scale: count.saturating_sub(1) as f64 / between.max(1) as f64,
            entries,
            bytes: even.then_some(bytes),
            level: page.level(),
        }
    }

    /// The child for `key`, if the numbers decide.
    pub fn place(&self, key: &[u8]) -> Option<Place> {
        let Some(rest) = key.strip_prefix(&*self.same) else {
            let nth = match key < &*self.same {
                true => 0,
                false => self.entries.len() - 1,
            };
            return Some(Place { nth, wanted: None });
        };
        let wanted = number(rest);
        let nth = self.last_at_most(wanted);
        // Longer keys may have equal numbers.
        let equal = nth > 0 && self.entries[nth].number == wanted;
        (!equal || self.bytes == Some(key.len())).then_some(Place {
            nth,
            wanted: Some(wanted),
        })
    }

    /// The last entry whose number is at most `wanted`: interpolation, then steps of growing width
    /// from there.
    fn last_at_most(&self, wanted: u64) -> usize {
        let last = self.entries.len() - 1;
        let at = |nth: usize| self.entries[nth].number;
        if last == 0 || wanted < at(1) {
            return 0;
        }
        let guess = ((wanted - at(1)) as f64 * self.scale) as usize;
        let (mut from, mut width) = (1 + guess.min(last - 1), 1);
        let mut to;
        if at(from) <= wanted {
            to = from + width;
            while to <= last && at(to) <= wanted {
                (from, width) = (to, width * 2);
                to = from + width;
            }
            to = to.min(last + 1);
        } else {
            to = from;
            from = to.saturating_sub(width).max(1);
            while at(from) > wanted {
                (to, width) = (from, width * 2);
                from = to.saturating_sub(width).max(1);
            }
        }
        while to - from > 1 {
            let middle = (from + to) / 2;
            match at(middle) <= wanted {
                true => from = middle,
                false => to = middle,
            }
        }
        from
    }

    pub fn child(&self, place: Place) -> u32 {
        self.entries[place.nth].id
    }

    /// The likely place of a key in a leaf, which the processor begins to load.
    pub fn likely(&self, place: Place) -> Option<Likely> {
        let entry = &self.entries[place.nth];
        let address = entry.address.load(Ordering::Relaxed);
        if address == 0 {
            return None;
        }
        let shape = entry.shape.load(Ordering::Relaxed);
        let (count, record) = ((shape & 0xffff) as usize, (shape >> 16) as usize);
        senko_io::prefetch_address(address);
        let version = entry.version.load(Ordering::Relaxed);
        senko_io::prefetch_address(version);
        senko_io::prefetch_address(version.wrapping_add(VERSION_BYTES - 1));
        // The first and the last leaf have a key on one side only.
        let (wanted, next) = (place.wanted?, self.entries.get(place.nth + 1)?);
        let (first, end) = (entry.number, next.number);
        if place.nth == 0 || first >= end || count == 0 {
            return None;
        }
        let share = (wanted - first) as f64 / (end - first) as f64;
        let nth = ((share * count as f64) as usize).min(count - 1);
        for nth in nth.saturating_sub(BESIDE)..=nth + BESIDE {
            senko_io::prefetch_address(address.wrapping_add(Page::dense_at(nth, record)));
        }
        // The value continues in the next cache line.
        let end = Page::dense_at(nth + 1, record) - 1;
        senko_io::prefetch_address(address.wrapping_add(end));
        Some(Likely { nth, record })
    }

    /// Stores what is known of a leaf. `version` is the place of its version.
    pub fn keep(&self, place: Place, version: usize, page: &Page) {
        if self.level != 1 {
            return;
        }
        let address = std::ptr::from_ref(page.bytes()).addr();
        let shape = match page.dense_shape() {
            Some((_, record)) => page.count() as u32 | (record as u32) << 16,
            None => 0,
        };
        let entry = &self.entries[place.nth];
        // Usually they are known already, and no cache line is taken from another thread. A page
        // may be where another was, so the address alone is not enough.
        let known = [&entry.address, &entry.version].map(|word| word.load(Ordering::Relaxed));
        if known != [address, version] || entry.shape.load(Ordering::Relaxed) != shape {
            entry.shape.store(shape, Ordering::Relaxed);
            entry.address.store(address, Ordering::Relaxed);
            entry.version.store(version, Ordering::Relaxed);
        }
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

    fn draw(rng: &mut u64, below: u64) -> u64 {
        *rng = rng.wrapping_mul(6364136223846793005).wrapping_add(99);
        (*rng >> 33) % below
    }

    fn inner(keys: impl Iterator<Item = u32>) -> Inner {
        let mut page = Box::new(Page::new(3, 1));
        page.set_first_child(7);
        for (nth, key) in keys.enumerate() {
            let child = (100 + nth as u32).to_le_bytes();
            assert!(page.insert(nth, &key.to_be_bytes(), &child, false));
        }
        Inner::of(&page)
    }

    fn leaf(keys: impl Iterator<Item = u32>, value: usize) -> Box<Page> {
        let mut page = Box::new(Page::new(9, 0));
        for key in keys {
            let full = !page.insert(page.count(), &key.to_be_bytes(), &vec![7; value], false);
            assert!(!full, "the page has room");
        }
        page
    }

    /// The record of a key by its hint, as `newest.rs` uses it.
    fn hinted(inner: &Inner, page: &Page, key: u32) -> Option<usize> {
        let key = key.to_be_bytes();
        let place = inner.place(&key).expect("keys of four bytes are told");
        let likely = inner.likely(place);
        let found = likely.as_ref().and_then(|likely| likely.find(page, &key));
        inner.keep(place, 64, page);
        found
    }

    #[test]
    fn numbers_find_the_child_that_the_page_finds() {
        let (mut rng, mut told, mut asked) = (7, 0, 0);
        for _ in 0..2000 {
            // Keys of one length or of several, with much or little in common, evenly spread or
            // not.
            let base = draw(&mut rng, 11);
            let spread = 1 + draw(&mut rng, 4) * draw(&mut rng, 4);
            let letters = 2 + draw(&mut rng, 200);
            let mut key = || -> Vec<u8> {
                let bytes = base + draw(&mut rng, spread);
                let letter = |_| (20 + draw(&mut rng, letters)) as u8;
                (0..bytes).map(letter).collect()
            };
            let mut page = Box::new(Page::new(3, 1 + (spread % 2) as u8));
            page.set_first_child(1000);
            for child in 0..30u32 {
                let key = key();
                if let Err(nth) = page.search(&key) {
                    assert!(page.insert(nth, &key, &child.to_le_bytes(), false));
                }
            }
            let inner = Inner::of(&page);
            let keys = (0..page.count()).map(|nth| page.key(nth).to_vec());
            for key in keys.chain((0..30).map(|_| key())).collect::<Vec<_>>() {
                let is = page.child(page.child_for(&key, false));
                let found = inner.place(&key).map(|place| inner.child(place));
                assert!(found.is_none_or(|found| found == is), "{key:?} in {page:?}");
                (told, asked) = (told + usize::from(found.is_some()), asked + 1);
            }
        }
        assert!(told * 10 > asked * 6, "{told} of {asked} were told");
    }

    #[test]
    fn keys_of_one_length_are_all_told() {
        for step in [1, 10, 40_000_000] {
            let inner = inner((0..100).map(|nth| 1_000_000 + nth * step));
            let child = |key: u32| inner.place(&key.to_be_bytes()).map(|p| inner.child(p));
            assert_eq!((child(0), child(u32::MAX)), (Some(7), Some(199)));
            for nth in 0..100 {
                for more in 0..step.min(10) {
                    assert_eq!(child(1_000_000 + nth * step + more), Some(100 + nth));
                }
            }
        }
    }

    #[test]
    fn even_keys_are_where_they_are_likely() {
        let inner = inner([500, 1000, 1210, 2000].into_iter());
        let page = leaf((0..30).map(|n| 1000 + 7 * n), 100);
        assert_eq!(hinted(&inner, &page, 1000), None, "nothing is known yet");
        for n in 0..30 {
            assert_eq!(hinted(&inner, &page, 1000 + 7 * n), Some(n as usize));
            assert_eq!(hinted(&inner, &page, 1001 + 7 * n), None, "no such key");
        }
    }

    #[test]
    fn a_wrong_hint_finds_nothing_that_is_not_there() {
        let inner = inner([0, 30, 60, 90].into_iter());
        let (mut rng, mut seen) = (7, 0);
        for _ in 0..2000 {
            // A page changes its form, its keys and its size, and is where another was.
            let count = draw(&mut rng, 30) as u32;
            let step = (30 / count.max(1)).max(draw(&mut rng, 4) as u32);
            let value = draw(&mut rng, 90) as usize;
            let mut page = leaf((0..count).map(|n| 30 + n * step), value);
            if draw(&mut rng, 2) == 0 {
                assert!(page.insert(page.count(), b"\xff other", b"", false));
            }
            for key in 0..100 {
                let found = hinted(&inner, &page, key);
                let is = page.search(&key.to_be_bytes());
                assert!(found.is_none() || found == is.ok(), "{found:?}, {is:?}");
                seen += usize::from(found.is_some());
            }
        }
        assert!(seen > 1000, "{seen} were found");
    }
}
