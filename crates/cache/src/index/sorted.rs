// SPDX-License-Identifier: Apache-2.0
//! Slots of 21 bits for small records that were written in the order of their hashes.
//!
//! Card. Paper E keeps tags in DRAM and keys on flash: a slot names the place of its record. That
//! costs nine bytes a record. Paper A keeps about two bytes a key, since it moves records into the
//! order of their hashes, again and again. Here small records leave DRAM in that order, and are
//! written once. The hash then says where a record lies within its *batch*, so its slot names only
//! the batch. A batch is one pass of a cursor over all hashes: `docs/architecture/small.md`.
//! Kangaroo (McAllister et al., SOSP 2021) and Nemo need fewer bits, as they name a set of records
//! by the hash alone; they write a page again for a few records, or know nothing about deletes.
//!
//! ```text
//! hash --> table of up to 15 batches: bucket, remainder --> batch --> run --> page
//! ```
//!
//! Always holds:
//! - SORTED-1: a batch has no two records with the same bucket and remainder (*twins*). So a slot
//!   names one record of its batch, also after others are gone.
//! - SORTED-2: a record of a batch is in the page that [`Runs::page_of`] names.
//! - SORTED-3: a batch belongs to one table at most, and tables follow each other.
//! - SORTED-4: a batch that begins has a greater number than all slots and runs, also those that
//!   another process left. So a slot whose run is lost never names a record of a later batch.

mod ledger; // the words of all this that outlive the process
mod runs; // where the records of a batch lie
mod saved; // the same in a file
mod table; // slots of some batches

use std::collections::VecDeque;

use senko_io::prefetch;

use crate::arena::{Arena, Handle};
use ledger::Directory;
pub(crate) use ledger::{Extent, Ledger, Owner, RUN_PAGES};
use runs::Runs;
pub(crate) use runs::{Run, Starts};
pub(crate) use saved::SavedHead;
use table::{Found, MOST_BATCHES, Spot, Table};

/// Batches in the cursors of a walk: there are fewer at a time.
const WALKED: u32 = 1 << 14;

/// The slots of sorted records.
#[derive(Debug)]
pub(crate) struct Sorted {
    runs: Runs,
    /// Names the tables to another process.
    directory: Directory,
    /// Oldest first, each with the number of its first batch.
    tables: VecDeque<(u32, Table)>,
    /// The batch that is being written; 0 before the first.
    batch: u32,
}

/// A record that may be the one of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The shard's number of its page, and the log's lap, modulo 4.
    pub page: u64,
    pub lap: u64,
    pub hot: u8,
    pub batch: u32,
    spot: Spot,
}

impl Sorted {
    /// The records that the words name, if their runs hold what was written ([`Runs::of`]). The
    /// arena has the segments of their tables.
    pub fn of(lines: &Arena, ledger: &Ledger, holds: impl FnMut(&Run) -> bool) -> Sorted {
        let (directory, kept) = ledger.directory();
        let mut sorted = Sorted {
            runs: Runs::of(ledger, holds),
            directory,
            tables: VecDeque::new(),
            batch: 0,
        };
        sorted.batch = sorted.runs.newest().unwrap_or(0);
        for kept in kept {
            let first = kept.first;
            let (table, newest) = Table::kept(lines, kept);
            sorted.tables.push_back((first, table));
            // A slot whose run is lost must not name a record of a new batch.
            sorted.batch = sorted.batch.max(first + newest.saturating_sub(1));
        }
        sorted
    }

    /// The segments of the tables that the words name, with their size classes. `None` if they
    /// can't be such.
    pub fn segments_of(lines: &Arena, ledger: &Ledger) -> Option<Vec<(Handle, usize)>> {
        let (_, tables) = ledger.directory();
        let mut segments = Vec::new();
        for table in tables {
            if !Table::takes(lines, table.step) {
                return None;
            }
            let chunks = table.chunks.into_iter().filter(|&chunk| chunk != 0);
            segments.extend(chunks.map(|chunk| (chunk, table.step)));
        }
        Some(segments)
    }

    /// Whether the newest table takes one more batch.
    fn takes_batch(&self) -> bool {
        let next = self.batch + 1;
        let newest = self.tables.back();
        newest.is_some_and(|(first, table)| next - first < MOST_BATCHES && !table.is_full())
    }

    /// Bytes of memory that a next batch of about so many records will take.
    pub fn bytes_of_batch(&self, lines: &Arena, records: u64) -> usize {
        match self.takes_batch() {
            true => 0,
            false => Table::bytes_for(lines, records * u64::from(MOST_BATCHES)),
        }
    }

    /// Begins a batch of about so many records.
    pub fn begin_batch(&mut self, lines: &Arena, records: u64) {
        let takes = self.takes_batch();
        self.batch += 1;
        if !takes {
            let records = records * u64::from(MOST_BATCHES);
            let table = Table::new(lines, &mut self.directory, self.batch, records);
            // Without a table, the batch's records get slots of eight bytes.
            self.tables.extend(table.map(|table| (self.batch, table)));
        }
    }

    /// The batch that is being written.
    pub fn batch(&self) -> u32 {
        self.batch
    }

    /// Whether no batch may have records of both hashes (SORTED-1).
    pub fn are_twins(&self, a: u64, b: u64) -> bool {
        let newest = self.tables.back();
        newest.is_some_and(|(_, table)| table.are_twins(a, b))
    }

    /// Notes where records of the batch were written, after the ones before.
    pub fn add_run(&mut self, run: &Run) {
        debug_assert_eq!(run.batch, self.batch);
        self.runs.add(run);
    }

    /// The table of a batch.
    fn table_of(&self, batch: u32) -> Option<usize> {
        let after = self.tables.partition_point(|&(first, _)| first <= batch);
        let n = after.checked_sub(1)?;
        (batch - self.tables[n].0 < MOST_BATCHES).then_some(n)
    }

    /// Enters a slot for the record that a batch has of this hash. False if there is no room: then
    /// the record needs a slot of its own.
    pub fn insert(&mut self, lines: &mut Arena, hash: u64, batch: u32, hot: u8) -> bool {
        let Some(n) = self.table_of(batch) else {
            return false;
        };
        let (first, table) = &mut self.tables[n];
        table.insert(lines, &self.directory, hash, (batch - *first + 1, hot))
    }

    /// The newest candidate of a hash in a batch before `below`.
    #[inline]
    pub fn newest(&self, lines: &Arena, hash: u64, below: u32) -> Option<Candidate> {
        if below == u32::MAX {
            // All at once: each is a wait for memory.
            self.lines_of(lines, hash).for_each(prefetch);
        }
        for (first, table) in self.tables.iter().rev() {
            if *first >= below {
                continue;
            }
            let mut end = (below - first).min(MOST_BATCHES) + 1;
            while let Some(found) = table.newest(lines, hash, end) {
                end = found.batch;
                if let Some(candidate) = self.candidate(*first, hash, found) {
                    return Some(candidate);
                }
            }
        }
        None
    }

    fn candidate(&self, first: u32, hash: u64, found: Found) -> Option<Candidate> {
        let batch = first + found.batch - 1;
        let (page, lap) = self.runs.page_of(batch, hash)?;
        Some(Candidate {
            page,
            lap,
            hot: found.hot,
            batch,
            spot: found.spot,
        })
    }

    /// The candidate of a hash in a page.
    pub fn at(&self, lines: &Arena, hash: u64, page: u64, lap: u64) -> Option<Candidate> {
        let batch = self.runs.batch_of(page, lap)?;
        let (first, table) = &self.tables[self.table_of(batch)?];
        let found = table.of_batch(lines, hash, batch - first + 1)?;
        self.candidate(*first, hash, found)
            .filter(|candidate| candidate.page == page)
    }

    /// The batch that has written this page.
    pub fn batch_of(&self, page: u64, lap: u64) -> Option<u32> {
        self.runs.batch_of(page, lap)
    }

    pub fn set_hot(&mut self, lines: &mut Arena, candidate: &Candidate, hot: u8) {
        let n = self.table_of(candidate.batch).expect("it was found");
        self.tables[n].1.set_hot(lines, candidate.spot, hot);
    }

    pub fn remove(&mut self, lines: &mut Arena, candidate: &Candidate) {
        let n = self.table_of(candidate.batch).expect("it was found");
        self.tables[n].1.remove(lines, candidate.spot);
    }

    /// Removes every slot that may be one of this hash; returns how many.
    pub fn remove_all(&mut self, lines: &mut Arena, hash: u64) -> u64 {
        let mut removed = 0;
        for (_, table) in &mut self.tables {
            while let Some(found) = table.newest(lines, hash, u32::MAX) {
                table.remove(lines, found.spot);
                removed += 1;
            }
        }
        removed
    }

    /// Forgets the runs of a region that will be written again, and the tables of batches that have
    /// none left.
    pub fn freed(&mut self, lines: &mut Arena, page: u64, region_pages: u64) {
        self.runs.freed(page, region_pages);
        let oldest = self.runs.oldest().unwrap_or(self.batch);
        while self.tables.len() > 1 && self.tables[1].0 <= oldest {
            self.end_oldest(lines);
        }
    }

    fn end_oldest(&mut self, lines: &mut Arena) {
        if let Some((_, table)) = self.tables.pop_front() {
            self.directory.end_oldest();
            table.end(lines);
        }
    }

    /// Forgets the records of the oldest table before their regions are freed. Returns how many, or
    /// `None` if only one table is left.
    pub fn forget_oldest(&mut self, lines: &mut Arena) -> Option<u64> {
        let (_, oldest) = self.tables.front().filter(|_| self.tables.len() > 1)?;
        let forgotten = oldest.slots();
        self.end_oldest(lines);
        Some(forgotten)
    }

    /// The next run of a walk over all, and the cursor behind it. A walk begins with 0. It meets
    /// every run that is there all the time, and those that are written meanwhile.
    pub fn walk(&self, cursor: u64) -> Option<(Run, u64)> {
        let (batch, prefix) = ((cursor >> 32) as u32, cursor as u32);
        let begins = cursor == 0;
        let batch = if begins { self.runs.oldest()? } else { batch };
        let run = self.runs.run_from(batch, prefix, WALKED)?;
        let batch = u64::from(run.batch % WALKED) << 32;
        let next = batch + u64::from(run.starts.from()) + 1;
        Some((run, next))
    }

    /// The lines in which a look-up of this hash searches.
    pub fn lines_of<'a>(&self, lines: &'a Arena, hash: u64) -> impl Iterator<Item = &'a [u8]> {
        let tables = self.tables.iter();
        tables.filter_map(move |(_, table)| table.line(lines, hash))
    }

    /// Segments of all tables, and their lines.
    pub fn segments(&self) -> usize {
        self.tables.iter().map(|(_, table)| table.segments()).sum()
    }
    pub fn lines(&self) -> u64 {
        self.tables.iter().map(|(_, table)| table.lines()).sum()
    }

    /// Turns recent hits in a line of a segment into old ones; false if there is no such line.
    pub fn age_line(&self, lines: &mut Arena, mut segment: usize, line: usize) -> bool {
        for (_, table) in &self.tables {
            match segment.checked_sub(table.segments()) {
                Some(later) => segment = later,
                None => return table.age_line(lines, segment, line),
            }
        }
        false
    }

    /// Pages of a run.
    pub fn run_pages(&self) -> u64 {
        self.runs.run_pages()
    }

    /// Forgets all records. The next batch begins with a new table.
    pub fn clear(&mut self, lines: &mut Arena) {
        self.runs.clear();
        while !self.tables.is_empty() {
            self.end_oldest(lines);
        }
    }

    /// Slots in use.
    pub fn slots(&self) -> u64 {
        self.tables.iter().map(|(_, table)| table.slots()).sum()
    }

    /// Bytes of memory beside the tables, whose memory is the index's.
    pub fn bytes(&self) -> usize {
        self.runs.bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use senko_io::AlignedBuf;

    fn arena(bytes: usize, page_bytes: usize) -> Arena {
        Arena::for_segments(AlignedBuf::new(bytes / 4096), page_bytes)
    }

    /// The records that another process finds after a kill.
    fn after_kill(
        lines: Arena,
        ledger: &Ledger,
        holds: impl FnMut(&Run) -> bool,
    ) -> (Arena, Sorted) {
        let page_bytes = lines.page_bytes();
        let mut lines = Arena::for_segments(lines.into_memory(), page_bytes);
        let segments = Sorted::segments_of(&lines, ledger).expect("they fit");
        assert!(lines.adopt(segments.into_iter()));
        let sorted = Sorted::of(&lines, ledger, holds);
        (lines, sorted)
    }

    /// The records that another process finds after a clean stop, in memory that is all zero.
    fn after_stop(
        lines: Arena,
        sorted: &Sorted,
        ledger: &Ledger,
        holds: impl FnMut(&Run) -> bool,
    ) -> (Arena, Sorted) {
        let mut file = Vec::new();
        sorted.save(&lines, &mut file).expect("memory");
        ledger.clear();
        let mut lines = arena(8 << 20, lines.page_bytes());
        let mut from = file.as_slice();
        let head = SavedHead::read(&mut from).expect("it is whole");
        let (sorted, damaged) = Sorted::load(&head, &mut from, &mut lines, ledger, holds);
        assert_eq!((damaged, from.len()), (0, 0));
        (lines, sorted)
    }

    /// Writes a batch of records, each in a page of its own region-less log: `per_page` records a
    /// page, from `head` on. Returns the hashes that got a narrow slot, and those that got none.
    fn write(
        sorted: &mut Sorted,
        lines: &mut Arena,
        hashes: &mut [u64],
        (head, pages): (&mut u64, u64),
        per_page: usize,
    ) -> (Vec<(u64, u64)>, Vec<u64>) {
        hashes.sort_unstable();
        let (mut placed, mut others) = (Vec::new(), Vec::new());
        let mut plain: Vec<u64> = Vec::new();
        for &hash in hashes.iter() {
            let same = plain
                .last()
                .is_some_and(|&last| sorted.are_twins(last, hash) || last >> 32 == hash >> 32);
            if same {
                others.push(hash)
            } else {
                plain.push(hash)
            }
        }
        let mut at = 0;
        while at < plain.len() {
            let end = plain.len().min(at + per_page * RUN_PAGES);
            let ends: Vec<(u32, u32)> = plain[at..end]
                .chunks(per_page)
                .map(|page| ((page[0] >> 32) as u32, (page[page.len() - 1] >> 32) as u32))
                .collect();
            let starts = match Starts::of(&ends) {
                Ok(starts) => starts,
                Err(page) => {
                    others.push(plain.remove(at + page * per_page));
                    continue;
                }
            };
            let position = *head;
            sorted.add_run(&Run {
                batch: sorted.batch(),
                page: position % pages,
                lap: (position / pages) & 3,
                starts,
            });
            for (n, &hash) in plain[at..end].iter().enumerate() {
                match sorted.insert(lines, hash, sorted.batch(), 0) {
                    true => placed.push((hash, position + (n / per_page) as u64)),
                    false => others.push(hash),
                }
            }
            *head += RUN_PAGES as u64;
            at = end;
        }
        (placed, others)
    }

    /// Laps of a log with tables of few buckets, so that twins and buckets without room come at
    /// every turn. Each record that has a slot is found in its page, with its hits, until it is
    /// removed or its region is freed; no record is found after that.
    #[test]
    fn slots_agree_with_a_model() {
        let (pages, region) = (1024, 128);
        let mut lines = arena(8 << 20, 64 << 10);
        let ledger = Ledger::for_tests(pages, RUN_PAGES as u64);
        let mut sorted = Sorted::of(&lines, &ledger, |_| true);
        let mut random = senko_workload::Rng::new(11);
        let (mut head, mut tail) = (0, 0);
        let mut model: BTreeMap<u64, (u64, u8)> = BTreeMap::new();
        // Records whose items are in DRAM: they may get their slots back.
        let mut promoted: BTreeMap<u64, (u64, u8)> = BTreeMap::new();
        let (mut spilled, mut stale, mut looked) = (0, 0, 0);
        for round in 0..400 {
            sorted.begin_batch(&lines, 34);
            let mut hashes: Vec<u64> = (0..100)
                .map(|n| {
                    // Few upper bits, so that records of several batches share a bucket and a
                    // remainder.
                    let spread = if n % 2 == 0 {
                        u64::MAX
                    } else {
                        0xff00_1fff_ffff_ffff
                    };
                    random.next_u64() & spread
                })
                .collect();
            // A record that is written again has no slot before.
            if let Some(&hash) = model.keys().nth(random.below(50) as usize) {
                hashes.push(hash);
            }
            for hash in &hashes {
                sorted.remove_all(&mut lines, *hash);
                promoted.remove(hash);
            }
            // The slots of others go too: innocents.
            model.retain(|&hash, &mut (position, _)| {
                sorted
                    .at(&lines, hash, position % pages, (position / pages) & 3)
                    .is_some()
            });
            let (placed, others) =
                write(&mut sorted, &mut lines, &mut hashes, (&mut head, pages), 3);
            spilled += others.len();
            model.extend(
                placed
                    .into_iter()
                    .map(|(hash, position)| (hash, (position, 0))),
            );
            while head + 2 * region > tail + pages {
                model.retain(|_, (position, _)| *position >= tail + region);
                sorted.freed(&mut lines, tail % pages, region);
                tail += region;
            }
            for _ in 0..20 {
                let Some((&hash, &(position, hot))) =
                    model.iter().nth(random.below(model.len() as u64) as usize)
                else {
                    break;
                };
                let found = sorted.at(&lines, hash, position % pages, (position / pages) & 3);
                let found = found.expect("it has a slot");
                assert_eq!(found.hot, hot);
                if random.below(2) == 0 {
                    sorted.remove(&mut lines, &found);
                    model.remove(&hash);
                    if random.below(2) == 0 {
                        promoted.insert(hash, (position, hot));
                    }
                    assert_eq!(
                        sorted.at(&lines, hash, position % pages, (position / pages) & 3),
                        None
                    );
                } else {
                    sorted.set_hot(&mut lines, &found, hot + 1);
                    model.insert(hash, (position, (hot + 1).min(3)));
                }
            }
            // Another process goes on. The last runs may be lost: they were not yet on the device.
            if round % 5 == 4 {
                let lost = head - random.below(4) * RUN_PAGES as u64;
                let holds = |run: &Run| {
                    let here = |at: &u64| (at % pages, (at / pages) & 3) == (run.page, run.lap);
                    let at = (tail..head).find(here);
                    at.is_some_and(|at| at + run.starts.pages() <= lost)
                };
                let batch = sorted.batch();
                (lines, sorted) = match round % 10 {
                    4 => after_kill(lines, &ledger, holds),
                    _ => after_stop(lines, &sorted, &ledger, holds),
                };
                let newest = sorted.batch();
                assert!(newest <= batch && (newest == batch || lost < head || model.is_empty()));
                model.retain(|_, (position, _)| *position < lost);
                promoted.retain(|_, (position, _)| *position < lost);
            }
            promoted.retain(|_, (position, _)| *position >= tail);
            while promoted.len() > 20 {
                let (hash, (position, hot)) = promoted.pop_first().expect("there are many");
                let batch = sorted.batch_of(position % pages, (position / pages) & 3);
                let batch = batch.expect("its region is not freed");
                if sorted.insert(&mut lines, hash, batch, hot) {
                    model.insert(hash, (position, hot));
                }
            }
            for (&hash, &(position, _)) in &model {
                let mut below = u32::MAX;
                let mut seen = false;
                while let Some(found) = sorted.newest(&lines, hash, below) {
                    below = found.batch;
                    let there =
                        (found.page, found.lap) == (position % pages, (position / pages) & 3);
                    seen |= there;
                    stale += u64::from(!there);
                    looked += 1;
                }
                assert!(seen, "{hash:x}");
            }
        }
        assert!(tail > 8 * pages, "{tail}");
        assert!(
            spilled > 1000 && stale > 100,
            "{spilled}, {stale} of {looked}"
        );
    }

    /// A record takes about 3.6 bytes, with all that has a part in it, and an absent key has few
    /// candidates.
    #[test]
    fn a_record_takes_three_bytes_and_a_half() {
        let (pages, region, per_page) = (128 << 10, 512, 14);
        let mut lines = arena(256 << 20, 256 << 10);
        let ledger = Ledger::for_tests(pages, RUN_PAGES as u64);
        let mut sorted = Sorted::of(&lines, &ledger, |_| true);
        let mut random = senko_workload::Rng::new(5);
        let (mut head, mut tail) = (0, 0);
        let of_batch = (pages as usize * per_page) / (16 * MOST_BATCHES as usize);
        let (mut others, mut written) = (0, 0);
        let (mut bytes_seen, mut seen) = (0.0, 0);
        for batch in 0..3 * 16 * u64::from(MOST_BATCHES) {
            sorted.begin_batch(&lines, of_batch as u64);
            let mut hashes: Vec<u64> = (0..of_batch).map(|_| random.next_u64()).collect();
            let (placed, spilled) = write(
                &mut sorted,
                &mut lines,
                &mut hashes,
                (&mut head, pages),
                per_page,
            );
            (others, written) = (others + spilled.len(), written + placed.len());
            while head + 2 * region > tail + pages {
                sorted.freed(&mut lines, tail % pages, region);
                tail += region;
            }
            if batch > 20 * u64::from(MOST_BATCHES) {
                let live = (head - tail) * per_page as u64;
                // Nine bytes for a record without a narrow slot.
                let spilled = others as f64 / (written + others) as f64;
                let bytes = (lines.bytes_in_use() + sorted.bytes()) as f64;
                bytes_seen += bytes / live as f64 + 9.0 * spilled;
                seen += 1;
            }
        }
        let absent = 100_000;
        let candidates: u64 = (0..absent)
            .map(|_| {
                let (hash, mut below, mut n) = (random.next_u64(), u32::MAX, 0);
                while let Some(found) = sorted.newest(&lines, hash, below) {
                    (below, n) = (found.batch, n + 1);
                }
                n
            })
            .sum();
        let share = others as f64 / (written + others) as f64;
        let mean = bytes_seen / f64::from(seen);
        assert!(mean < 3.7, "{mean:.2} bytes, {share:.4} without room");
        assert!(candidates < absent * 3 / 100, "{candidates} candidates");
    }
}
