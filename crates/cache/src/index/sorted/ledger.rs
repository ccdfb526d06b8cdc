// SPDX-License-Identifier: Apache-2.0
//! Where another process finds the sorted records: words in shared memory (`SHARD.sorted`).
//!
//! `docs/formats/data-directory.md` has the table: a head, the tables ([`Directory`]), and the
//! runs (`runs.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use senko_io::Words;

use crate::arena::Handle;
use crate::superblock::VERSION;
use crate::words::{Belongs, get_checked, set_checked};

/// The most pages of a run.
pub(crate) const RUN_PAGES: usize = 16;
/// Words of a run's entry.
pub(super) const ENTRY_WORDS: usize = 6;

/// `SENKOSRT`, little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"SENKOSRT");
const AT_CRC: usize = 8;
const AT_OPENED: usize = 9;
const AT_TABLES: usize = 16;
/// Tables at a time.
const TABLES: usize = 256;
const AT_PLACES: usize = AT_TABLES + 2 * TABLES;
/// Places of segments at least, and the bytes of records and of slots that have one more.
const LEAST_PLACES: usize = 1 << 10;
const RECORDS_OF_PLACE: u64 = 128 << 10;
const SLOTS_OF_PLACE: usize = 4 << 10;
/// A table's word has 24 bits for its first place.
const MOST_PLACES: usize = 1 << 24;

/// The room in the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub flash_pages: u64,
    pub run_pages: u64,
    /// Words for segments of tables.
    places: usize,
}

impl Extent {
    /// For runs of so many pages on `flash_pages` pages of flash, and `memory` bytes for all slots.
    pub fn plan(flash_pages: u64, run_pages: u64, memory: usize) -> Extent {
        let of_flash = (flash_pages * 4096 / RECORDS_OF_PLACE) as usize;
        let places = of_flash.min(memory / SLOTS_OF_PLACE);
        Extent {
            flash_pages,
            run_pages,
            places: places.clamp(LEAST_PLACES, MOST_PLACES),
        }
    }

    /// The same, with runs of other pages.
    pub fn with_runs_of(self, run_pages: u64) -> Extent {
        Extent { run_pages, ..self }
    }

    /// The number of words.
    pub fn words(&self) -> usize {
        self.runs_at() + self.runs() * ENTRY_WORDS
    }
    /// Entries of runs.
    pub fn runs(&self) -> usize {
        self.flash_pages.div_ceil(self.run_pages) as usize
    }
    fn runs_at(&self) -> usize {
        AT_PLACES + self.places
    }
}

/// Whose words they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub belongs: Belongs,
    pub life: u32,
    /// The start of this process, as in `Restore`.
    pub opened: u64,
}

/// The words of one shard.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    words: Arc<Words>,
    extent: Extent,
}

impl Ledger {
    /// Empty words.
    pub fn begin(words: Arc<Words>, extent: Extent, owner: &Owner) -> Ledger {
        Ledger::end(&words);
        let ledger = Ledger { words, extent };
        ledger.clear();
        let words = &ledger.words;
        set_checked(words, AT_OPENED, owner.opened);
        for (n, value) in head(&extent, owner).into_iter().enumerate().rev() {
            if n == 0 {
                words.set(AT_CRC, u64::from(checksum(words)));
            }
            words.set(n, value);
        }
        ledger
    }

    /// Clears all words behind the head.
    pub(super) fn clear(&self) {
        for n in (AT_TABLES..self.words.count()).filter(|&n| self.words.get(n) != 0) {
            self.words.set(n, 0);
        }
    }

    /// The words that the last process of the same life left; `None` if they are not such. Another
    /// senko in between may have changed items without a note here.
    pub fn kept(words: Arc<Words>, extent: Extent, owner: &Owner) -> Option<Ledger> {
        // The memory may have another size now, and the runs another length.
        let extent = Extent {
            flash_pages: extent.flash_pages,
            run_pages: words.get(6),
            places: usize::try_from(words.get(7)).ok()?,
        };
        let sized = extent.run_pages.is_power_of_two()
            && extent.run_pages <= RUN_PAGES as u64
            && extent.places <= MOST_PLACES
            && extent.words() <= words.count();
        let head = head(&extent, owner);
        let same = (0..AT_CRC).all(|n| words.get(n) == head[n]);
        let intact = words.get(AT_CRC) == u64::from(checksum(&words));
        // The last start may have ended before it served.
        let opened = get_checked(&words, AT_OPENED)?;
        let last = opened == owner.opened || opened + 1 == owner.opened;
        (sized && same && intact && last).then(|| {
            set_checked(&words, AT_OPENED, owner.opened);
            Ledger { words, extent }
        })
    }

    /// Makes words unusable for all later processes, because this one changes nothing in them.
    pub fn end(words: &Words) {
        words.set(0, 0);
    }

    /// Empty words in memory that ends with the process.
    #[cfg(test)]
    pub fn for_tests(flash_pages: u64, run_pages: u64) -> Ledger {
        let extent = Extent::plan(flash_pages, run_pages, 64 << 20);
        let words = Words::anonymous(extent.words()).expect("memory");
        Ledger::begin(Arc::new(words), extent, &tests::OWNER)
    }

    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The words of runs: all words, and the number of the first.
    pub fn of_runs(&self) -> (Arc<Words>, usize) {
        (Arc::clone(&self.words), self.extent.runs_at())
    }

    /// The tables that the words name.
    pub(super) fn directory(&self) -> (Directory, Vec<KeptTable>) {
        let mut directory = Directory {
            words: Arc::clone(&self.words),
            places: self.extent.places,
            ranges: VecDeque::new(),
        };
        let mut kept: Vec<KeptTable> = (0..TABLES).filter_map(|n| directory.table(n)).collect();
        kept.sort_unstable_by_key(|table| table.first);
        directory
            .ranges
            .extend(kept.iter().map(|table| table.range));
        (directory, kept)
    }
}

fn head(extent: &Extent, owner: &Owner) -> [u64; AT_CRC] {
    [
        MAGIC,
        u64::from(VERSION),
        owner.belongs.id,
        u64::from(owner.belongs.shard),
        u64::from(owner.life),
        extent.flash_pages,
        extent.run_pages,
        extent.places as u64,
    ]
}

/// Of all words of the head but the first, which is stored last.
fn checksum(words: &Words) -> u32 {
    (1..AT_CRC).fold(0, |crc, n| {
        crc32c::crc32c_append(crc, &words.get(n).to_le_bytes())
    })
}

/// Where the words of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    nth: usize,
    first: usize,
    count: usize,
}

/// A table that another process left.
#[derive(Clone, Debug)]
pub(super) struct KeptTable {
    /// Its first batch.
    pub first: u32,
    /// The size class of its segments.
    pub step: usize,
    /// Its segments; 0 for one without memory.
    pub chunks: Vec<Handle>,
    pub range: Range,
}

/// The words that say where the segments of all tables are.
///
/// A table has two words, of which the first is stored last, and a word for each of its segments.
/// These come one after the other, in the order of the tables, and begin again at the end.
#[derive(Debug)]
pub(super) struct Directory {
    words: Arc<Words>,
    places: usize,
    /// Of the tables, oldest first.
    ranges: VecDeque<Range>,
}

impl Directory {
    /// Words for one more table, which has no segments yet. `None` if there are too many.
    pub fn add(&mut self, first: u32, step: usize, segments: usize) -> Option<Range> {
        let range = Range {
            nth: self
                .ranges
                .back()
                .map_or(0, |newest| (newest.nth + 1) % TABLES),
            first: self.room_for(segments)?,
            count: segments,
        };
        if self
            .ranges
            .front()
            .is_some_and(|oldest| oldest.nth == range.nth)
        {
            return None;
        }
        self.words.set(AT_TABLES + 2 * range.nth, 0);
        for n in 0..segments {
            self.words.set(AT_PLACES + range.first + n, 0);
        }
        let of_places = range.first as u64 | (segments as u64) << 24;
        set_checked(&self.words, AT_TABLES + 2 * range.nth + 1, of_places);
        let of_table = u64::from(first) | (step as u64) << 32;
        set_checked(&self.words, AT_TABLES + 2 * range.nth, of_table);
        self.ranges.push_back(range);
        Some(range)
    }

    fn room_for(&self, count: usize) -> Option<usize> {
        let (Some(oldest), Some(newest)) = (self.ranges.front(), self.ranges.back()) else {
            return (count <= self.places).then_some(0);
        };
        let end = newest.first + newest.count;
        let begins_again = newest.first < oldest.first;
        let before = |at: usize| at + count < oldest.first;
        match begins_again {
            true => before(end).then_some(end),
            false if end + count <= self.places => Some(end),
            false => before(0).then_some(0),
        }
    }

    /// Names the memory of a segment, whose slots are empty.
    pub fn place(&self, range: Range, segment: usize, chunk: Handle) {
        debug_assert!(segment < range.count);
        set_checked(&self.words, AT_PLACES + range.first + segment, chunk.into());
    }

    /// Forgets the oldest table, before its memory is freed.
    pub fn end_oldest(&mut self) {
        if let Some(oldest) = self.ranges.pop_front() {
            self.words.set(AT_TABLES + 2 * oldest.nth, 0);
        }
    }

    /// The table of the nth pair of words.
    fn table(&self, nth: usize) -> Option<KeptTable> {
        let of_table = get_checked(&self.words, AT_TABLES + 2 * nth)?;
        let of_places = get_checked(&self.words, AT_TABLES + 2 * nth + 1)?;
        let range = Range {
            nth,
            first: (of_places & 0xff_ffff) as usize,
            count: (of_places >> 24) as usize,
        };
        if range.first + range.count > self.places || range.count == 0 {
            return None;
        }
        let place = |n| get_checked(&self.words, AT_PLACES + range.first + n);
        Some(KeptTable {
            first: of_table as u32,
            step: (of_table >> 32) as usize,
            chunks: (0..range.count)
                .map(|n| place(n).unwrap_or(0) as Handle)
                .collect(),
            range,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub const OWNER: Owner = Owner {
        belongs: Belongs {
            id: 5,
            shard: 2,
            logs: 1,
            regions: 4,
            region_pages: 64,
        },
        life: 9,
        opened: 7,
    };

    fn begun() -> (Ledger, Extent) {
        let extent = Extent::plan(1 << 20, 16, 64 << 20);
        let words = Arc::new(Words::anonymous(extent.words()).expect("memory"));
        (Ledger::begin(words, extent, &OWNER), extent)
    }

    /// Tables come and go as in a queue, with lengths that make their words begin again. Each is
    /// found by another process, and none that has ended.
    #[test]
    fn tables_that_were_added_are_found() {
        let (ledger, _) = begun();
        let (mut directory, _) = ledger.directory();
        let mut random = senko_workload::Rng::new(4);
        let mut model: VecDeque<(u32, usize, Vec<Handle>)> = VecDeque::new();
        let (mut refused, mut begins_again) = (0, 0);
        for first in 1..5_000 {
            let (step, segments) = (random.below(100) as usize, 1 + random.below(400) as usize);
            match directory.add(first, step, segments) {
                None => refused += 1,
                Some(range) => {
                    begins_again += u32::from(range.first == 0);
                    let mut chunks = vec![0; segments];
                    for (n, chunk) in chunks.iter_mut().enumerate().step_by(3) {
                        *chunk = random.next_u64() as Handle | 1;
                        directory.place(range, n, *chunk);
                    }
                    model.push_back((first, step, chunks));
                }
            }
            if random.below(20) < 11 {
                directory.end_oldest();
                model.pop_front();
            }
            let (again, kept) = ledger.directory();
            assert_eq!(again.ranges, directory.ranges);
            let kept = kept.into_iter().map(|t| (t.first, t.step, t.chunks));
            assert!(kept.eq(model.iter().cloned()));
        }
        assert!(
            refused > 100 && begins_again > 20,
            "{refused}, {begins_again}"
        );
    }

    /// Words of another shard, life or flash, and damaged heads, are not taken for this shard's.
    #[test]
    fn words_of_another_life_are_not_kept() {
        let (ledger, extent) = begun();
        let kept = |extent, owner: Owner| {
            Ledger::kept(Arc::clone(&ledger.words), extent, &owner).is_some()
        };
        let of_life = |life| Owner { life, ..OWNER };
        let of_start = |opened| Owner { opened, ..OWNER };
        let mut other = OWNER;
        other.belongs.id += 1;
        assert!(kept(extent, OWNER) && kept(Extent::plan(1 << 20, 8, 1 << 20), OWNER));
        assert!(!kept(extent, of_life(8)) && !kept(extent, other));
        assert!(!kept(Extent::plan(1 << 21, 16, 64 << 20), OWNER));
        assert!(!kept(extent, of_start(9)) && kept(extent, of_start(8)));
        assert!(!kept(extent, of_start(10)) && kept(extent, of_start(9)));
        let last = of_start(9);
        for bit in 0..(AT_OPENED + 1) * 64 {
            let word = ledger.words.get(bit / 64);
            ledger.words.set(bit / 64, word ^ 1 << (bit % 64));
            assert!(!kept(extent, last), "bit {bit}");
            ledger.words.set(bit / 64, word);
        }
        Ledger::end(&ledger.words);
        assert!(!kept(extent, last));
    }
}
