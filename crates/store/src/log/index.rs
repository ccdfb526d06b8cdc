// SPDX-License-Identifier: Apache-2.0
//! The exact index of one log in DRAM: from a key's hash to its newest element, and from each
//! element to the one before with the same hash.
//!
//! ```text
//! shard (256, by the top byte of the hash)
//!   table: tag -> newest           entries, in the order of appending, 16 bytes each
//!   +---------------+             +-----------------------------------------------------+
//!   | number | ...  | ----------> | tag 32 | place 32 | before 24, pages 8 | age 29, flags 3 |
//!   +---------------+             +-----------------------------------------------------+
//!                                      `before` leads to the next older one with that tag
//! ```
//! A tag is the hash's `check`. With the shard that makes 40 bits, so in a log of 2^19 elements two
//! keys share a chain about once in eight logs. A look-up compares the whole key and continues
//! along the chain. So a shared chain costs a read, but never returns a wrong answer. The time of
//! an element is the time of its page (the time of the first element that begins there) plus its
//! age. An append begins a new page before an age would overflow. DRAM: 16 bytes (17 with the room
//! to grow), the number in the table with its control byte at a load between 7/16 and 7/8 (5.7 to
//! 11.4), and 8 bytes a page.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use parking_lot::RwLock;
use senko_io::PAGE_SIZE;

use crate::element::LARGE;
use crate::{KeyHash, SHARDS};

/// Ends a chain.
const NONE: u32 = (1 << 24) - 1;
/// Most elements of a log: each shard could get all of them (one key, overwritten).
pub(super) const MAX_ELEMENTS: u64 = NONE as u64;
/// Ages are below this: nine minutes, in microseconds.
pub(super) const MAX_AGE: u64 = 1 << 29;
/// The most pages that an element may touch.
pub(super) const MAX_PAGES: u32 = 256;

/// Where an element is, and when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Located {
    /// Its first byte in the log, page headers counted.
    pub place: u32,
    /// Pages that it touches.
    pub pages: u32,
    pub time: u64,
    /// TOMBSTONE, EXPIRY, LARGE.
    pub flags: u8,
    /// The next entry of its shard in the chain.
    before: u32,
}

impl Located {
    /// The arguments of [`LogIndex::insert`].
    pub fn new(place: u32, pages: u32, time: u64, flags: u8) -> Located {
        debug_assert!((1..=MAX_PAGES).contains(&pages));
        Located {
            place,
            pages,
            time,
            flags: flags & 7,
            before: NONE,
        }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    tag: u32,
    place: u32,
    /// The previous entry with the same tag; the top byte is the number of pages less 1.
    link: u32,
    /// Microseconds after the page's time, and the flags in the top 3 bits.
    age: u32,
}

#[derive(Default)]
struct Shard {
    newest: HashTable<u32>,
    entries: Vec<Entry>,
}

/// The index. Many threads look up while one inserts.
pub(super) struct LogIndex {
    shards: Box<[RwLock<Shard>]>,
    /// For each page, the time of the first element that begins in it.
    times: Box<[AtomicU64]>,
    count: AtomicU64,
}

/// `HashTable` takes its control bytes from the top bits and the bucket from the low bits. A
/// product mixes both.
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl LogIndex {
    /// The index of a log of `pages` pages.
    pub fn new(pages: u32) -> LogIndex {
        LogIndex {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            times: (0..pages).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU64::new(0),
        }
    }

    /// Elements in the index.
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Sets the time of a page, before any element of it is inserted.
    pub fn set_page_time(&self, page: u32, time: u64) {
        // A thread that finds an element of the page locked a shard which the inserting thread
        // released later than this. So it sees the time.
        self.times[page as usize].store(time, Ordering::Relaxed);
    }

    fn page_time(&self, place: u32) -> u64 {
        self.times[place as usize / PAGE_SIZE].load(Ordering::Relaxed)
    }

    /// Makes an element the newest of its hash.
    pub fn insert(&self, hash: KeyHash, located: Located) {
        let mut age = (located.time - self.page_time(located.place)) as u32;
        debug_assert!(u64::from(age) < MAX_AGE);
        age |= u32::from(located.flags) << 29;
        let mut shard = self.shards[hash.shard()].write();
        let Shard { newest, entries } = &mut *shard;
        let number = entries.len() as u32;
        let slot = newest.entry(
            spread(hash.check),
            |other| entries[*other as usize].tag == hash.check,
            |other| spread(entries[*other as usize].tag),
        );
        let before = match slot {
            Slot::Occupied(mut slot) => std::mem::replace(slot.get_mut(), number),
            Slot::Vacant(slot) => {
                slot.insert(number);
                NONE
            }
        };
        if entries.len() == entries.capacity() {
            // Grows by an eighth at a time: the whole index counts as DRAM of the log.
            entries.reserve_exact((entries.len() / 8).max(4));
        }
        entries.push(Entry {
            tag: hash.check,
            place: located.place,
            link: before | (located.pages - 1) << 24,
            age,
        });
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The newest element of that hash with a time of at most `at`.
    pub fn find(&self, hash: KeyHash, at: u64) -> Option<Located> {
        let shard = self.shards[hash.shard()].read();
        let tag = |number: &u32| shard.entries[*number as usize].tag == hash.check;
        let newest = *shard.newest.find(spread(hash.check), tag)?;
        self.walk(&shard, newest, at)
    }

    /// The next older element in the chain after `located`, which was found under `hash`.
    pub fn next(&self, hash: KeyHash, located: &Located) -> Option<Located> {
        let shard = self.shards[hash.shard()].read();
        self.walk(&shard, located.before, u64::MAX)
    }

    fn walk(&self, shard: &Shard, mut number: u32, at: u64) -> Option<Located> {
        while number != NONE {
            let entry = shard.entries[number as usize];
            let located = Located {
                place: entry.place,
                pages: (entry.link >> 24) + 1,
                time: self.page_time(entry.place) + u64::from(entry.age & 0x1fff_ffff),
                flags: (entry.age >> 29) as u8,
                before: entry.link & NONE,
            };
            if located.time <= at {
                return Some(located);
            }
            number = located.before;
        }
        None
    }

    /// Whether any element names a large value.
    pub fn has_large(&self) -> bool {
        let large = u32::from(LARGE) << 29;
        let mut shards = self.shards.iter();
        shards.any(|shard| {
            shard
                .read()
                .entries
                .iter()
                .any(|entry| entry.age & large != 0)
        })
    }

    /// Bytes of DRAM.
    pub fn bytes(&self) -> usize {
        let shards = self.shards.iter().map(|shard| {
            let shard = shard.read();
            shard.newest.allocation_size() + shard.entries.capacity() * size_of::<Entry>()
        });
        shards.sum::<usize>()
            + self.times.len() * size_of::<AtomicU64>()
            + SHARDS * size_of::<RwLock<Shard>>()
    }
}
