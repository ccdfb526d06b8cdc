// SPDX-License-Identifier: Apache-2.0
//! From a batch and a hash to a page, without a slot that names it.
//!
//! The records of a batch are written in the order of their hashes, in *runs* of up to sixteen
//! consecutive pages (fewer in a small shard). The runs of a batch cover the hashes from 0 to the
//! end. A run has an entry of 48 bytes, whose place follows from its first page. That is 0.2
//! bytes for a record of 260.
//!
//! ```text
//! word 0     | lap of the log: 2, first page in its group: 4      check: 16 |
//! word 1     | batch: 32                           first record's prefix: 32 |
//! words 2-5  | 15 starts of pages 2 to 16: 16 each                 shift: 16 |
//! ```
//!
//! A *prefix* is the upper half of a hash. A start is the prefix of a page's first record, counted
//! from the run's first and shifted to fit 16 bits.
//!
//! Always holds:
//! - RUNS-1: a run lies in one region, and has as many pages as all others unless it ends with its
//!   region. So two runs of a log never have the same entry at the same time.
//! - RUNS-2: the last record of a page and the first of the next differ in what starts keep of
//!   them, and the last record of a run and the first of the batch's next in their prefixes. So
//!   [`Runs::page_of`] names the page of each record.
//! - RUNS-3: word 0 is stored last, and its check covers the others.

use std::collections::VecDeque;
use std::sync::Arc;

use senko_io::Words;

use super::ledger::{ENTRY_WORDS, Ledger, RUN_PAGES};

const CHECK_BITS: u32 = 16;
const LAP_SHIFT: u32 = RUN_PAGES.ilog2();

/// The part of a hash that places of records in a batch depend on.
pub(super) fn prefix(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The pages of a run by the records in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Starts {
    /// Prefix of the first record.
    from: u32,
    shift: u16,
    /// Of the second page and the following; [`u16::MAX`] for a page that the run does not have.
    of: [u16; RUN_PAGES - 1],
}

impl Starts {
    /// The starts of pages whose first and last records have these prefixes, or the number of a
    /// page whose first record can't be told from the one before it (RUNS-2).
    pub fn of(pages: &[(u32, u32)]) -> Result<Starts, usize> {
        debug_assert!((1..=RUN_PAGES).contains(&pages.len()));
        let (from, to) = (pages[0].0, pages[pages.len() - 1].1);
        // The largest number stands for no page.
        let shift = (0..16).find(|shift| (to - from) >> shift < u32::from(u16::MAX));
        let shift = shift.unwrap_or(16);
        let scaled = |prefix: u32| ((prefix - from) >> shift) as u16;
        let mut of = [u16::MAX; RUN_PAGES - 1];
        for n in 1..pages.len() {
            of[n - 1] = scaled(pages[n].0);
            if of[n - 1] == scaled(pages[n - 1].1) {
                return Err(n);
            }
        }
        let shift = shift as u16;
        Ok(Starts { from, shift, of })
    }

    /// Prefix of the first record.
    pub fn from(&self) -> u32 {
        self.from
    }

    /// Pages of the run.
    pub fn pages(&self) -> u64 {
        1 + self.of.partition_point(|&start| start < u16::MAX) as u64
    }

    /// The page in which a record with this prefix lies, counted in the run.
    fn page(&self, prefix: u32) -> usize {
        let at = ((prefix - self.from) >> self.shift).min(u32::from(u16::MAX) - 1);
        self.of.partition_point(|&start| u32::from(start) <= at)
    }
}

/// A batch that has runs on flash.
#[derive(Debug)]
struct Batch {
    number: u32,
    /// The numbers of the runs' entries, by their first records.
    runs: Vec<u32>,
}

/// The runs of a shard.
#[derive(Debug)]
pub(crate) struct Runs {
    /// The entries are words from `at` on.
    words: Arc<Words>,
    at: usize,
    entries: usize,
    /// Pages of a run: a power of two, at most [`RUN_PAGES`].
    run_pages: u64,
    /// Oldest first.
    batches: VecDeque<Batch>,
}

/// A run, as its entry has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub batch: u32,
    /// The shard's number of its first page, and the log's lap, modulo 4.
    pub page: u64,
    pub lap: u64,
    pub starts: Starts,
}

impl Runs {
    /// The runs that the words name. Those that do not hold what was written are forgotten.
    pub fn of(ledger: &Ledger, mut holds: impl FnMut(&Run) -> bool) -> Runs {
        let (words, at) = ledger.of_runs();
        let mut runs = Runs {
            words,
            at,
            entries: ledger.extent().runs(),
            run_pages: ledger.extent().run_pages,
            batches: VecDeque::new(),
        };
        let mut all = Vec::new();
        for n in 0..runs.entries as u32 {
            match runs.run(n) {
                Some(run) if holds(&run) => {
                    all.push((run.batch, run.starts.from, n));
                }
                _ => runs.forget(n),
            }
        }
        all.sort_unstable();
        for (batch, _, n) in all {
            runs.enter(batch, n);
        }
        runs
    }

    /// All runs, as the numbers and the words of their entries.
    pub fn entries(&self) -> impl Iterator<Item = (u32, [u64; ENTRY_WORDS])> {
        let numbers = self.batches.iter().flat_map(|batch| &batch.runs);
        numbers.map(|&n| (n, self.entry(n)))
    }

    /// Adds a run by its entry, for [`Runs::of`]. False if there is no such entry.
    pub fn put_entry(&self, n: u32, entry: [u64; ENTRY_WORDS]) -> bool {
        let fits = (n as usize) < self.entries;
        if fits {
            self.set_entry(n, entry);
        }
        fits
    }

    /// Adds a run. It comes after its batch's other runs, and after all of an older batch.
    pub fn add(&mut self, run: &Run) {
        let n = self.entry_of(run.page);
        let mut words = [0; ENTRY_WORDS];
        words[1] = u64::from(run.batch) << 32 | u64::from(run.starts.from);
        for (n, &half) in run.starts.of.iter().chain([&run.starts.shift]).enumerate() {
            words[2 + n / 4] |= u64::from(half) << (n % 4 * 16);
        }
        let value = run.lap << LAP_SHIFT | (run.page % self.run_pages);
        words[0] = value << CHECK_BITS | check(n, value, &words[1..]);
        self.set_entry(n, words);
        self.enter(run.batch, n);
    }

    fn at(&self, n: u32) -> usize {
        self.at + n as usize * ENTRY_WORDS
    }
    fn entry(&self, n: u32) -> [u64; ENTRY_WORDS] {
        std::array::from_fn(|nth| self.words.get(self.at(n) + nth))
    }
    fn set_entry(&self, n: u32, entry: [u64; ENTRY_WORDS]) {
        self.forget(n);
        for (nth, word) in entry.into_iter().enumerate().rev() {
            self.words.set(self.at(n) + nth, word);
        }
    }

    fn enter(&mut self, batch: u32, n: u32) {
        match self.batches.back_mut() {
            Some(newest) if newest.number == batch => newest.runs.push(n),
            _ => self.batches.push_back(Batch {
                number: batch,
                runs: vec![n],
            }),
        }
    }

    fn forget(&self, n: u32) {
        if self.words.get(self.at(n)) != 0 {
            self.words.set(self.at(n), 0);
        }
    }

    /// The run of an entry, if there is one.
    fn run(&self, n: u32) -> Option<Run> {
        if n as usize >= self.entries {
            return None;
        }
        let words = self.entry(n);
        let value = words[0] >> CHECK_BITS;
        if words[0] & ((1 << CHECK_BITS) - 1) != check(n, value, &words[1..]) {
            return None;
        }
        let half = |n: usize| (words[2 + n / 4] >> (n % 4 * 16)) as u16;
        Some(Run {
            batch: (words[1] >> 32) as u32,
            page: u64::from(n) * self.run_pages + value % RUN_PAGES as u64,
            lap: value >> LAP_SHIFT & 3,
            starts: Starts {
                from: words[1] as u32,
                shift: half(RUN_PAGES - 1),
                of: std::array::from_fn(half),
            },
        })
    }

    /// The page, and its lap, in which the record of this hash lies if the batch has one.
    pub fn page_of(&self, batch: u32, hash: u64) -> Option<(u64, u64)> {
        let at = self.batches.binary_search_by_key(&batch, |b| b.number);
        let runs = &self.batches[at.ok()?].runs;
        let prefix = prefix(hash);
        let after = runs.partition_point(|&n| self.first_of(n) <= prefix);
        let run = self.run(runs[after.checked_sub(1)?])?;
        Some((run.page + run.starts.page(prefix) as u64, run.lap))
    }

    fn first_of(&self, n: u32) -> u32 {
        self.words.get(self.at(n) + 1) as u32
    }

    /// The batch of the run that has written this page in this lap.
    pub fn batch_of(&self, page: u64, lap: u64) -> Option<u32> {
        let last = self.entry_of(page);
        let runs = [Some(last), last.checked_sub(1)].into_iter().flatten();
        let mut runs = runs.filter_map(|n| self.run(n));
        let has = |run: &Run| {
            let nth = page.checked_sub(run.page);
            run.lap == lap && nth.is_some_and(|nth| nth < run.starts.pages())
        };
        Some(runs.find(has)?.batch)
    }

    /// The first run of a batch that begins with this prefix or a later one, or the first run of a
    /// later batch. Batches count modulo `modulus` here, of which there are fewer.
    pub fn run_from(&self, batch: u32, prefix: u32, modulus: u32) -> Option<Run> {
        let newest = self.batches.back()?.number;
        let batch = newest.wrapping_sub(newest.wrapping_sub(batch) % modulus);
        let mut later = self.batches.iter().skip_while(|b| b.number < batch);
        later.find_map(|b| {
            let from = if b.number == batch { prefix } else { 0 };
            let at = b.runs.partition_point(|&n| self.first_of(n) < from);
            self.run(*b.runs.get(at)?)
        })
    }

    /// Forgets the runs in a region that begins with this page: it will be written again.
    pub fn freed(&mut self, page: u64, region_pages: u64) {
        let [first, end] = [page, page + region_pages].map(|at| self.entry_of(at));
        let mut batches = Vec::new();
        for n in first..end {
            if let Some(run) = self.run(n)
                && batches.last() != Some(&run.batch)
            {
                batches.push(run.batch);
            }
            self.forget(n);
        }
        for batch in &mut self.batches {
            if batches.contains(&batch.number) {
                batch.runs.retain(|n| !(first..end).contains(n));
            }
        }
        self.batches.retain(|batch| !batch.runs.is_empty());
    }

    /// The oldest batch that has runs.
    pub fn oldest(&self) -> Option<u32> {
        Some(self.batches.front()?.number)
    }

    /// The number of the entry of a run that begins with this page.
    fn entry_of(&self, page: u64) -> u32 {
        (page / self.run_pages) as u32
    }

    /// The newest batch that has runs.
    pub fn newest(&self) -> Option<u32> {
        Some(self.batches.back()?.number)
    }

    /// Pages of a run.
    pub fn run_pages(&self) -> u64 {
        self.run_pages
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        for n in 0..self.entries as u32 {
            self.forget(n);
        }
        self.batches.clear();
    }

    /// Bytes of memory that the entries take at most, and the lists of batches.
    pub fn bytes(&self) -> usize {
        let lists: usize = self.batches.iter().map(|b| b.runs.capacity() * 4).sum();
        self.entries * ENTRY_WORDS * 8 + lists
    }
}

/// The check of an entry. Never 0, so memory that was never written is no entry.
fn check(n: u32, value: u64, words: &[u64]) -> u64 {
    let crc = crc32c::crc32c_append(n, &value.to_le_bytes());
    let add = |crc, word: &u64| crc32c::crc32c_append(crc, &word.to_le_bytes());
    let crc = words.iter().fold(crc, add);
    u64::from(crc >> CHECK_BITS ^ crc & 0xffff).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(pages: u64) -> Runs {
        Runs::of(&Ledger::for_tests(pages, 16), |_| true)
    }

    /// Batches of records with random prefixes, in a log of four regions. Every record is found in
    /// its page as long as its region is not freed.
    #[test]
    fn every_record_is_in_the_page_that_its_prefix_names() {
        let (region, pages) = (64_u64, 256_u64);
        let mut runs = runs(pages);
        let mut random = senko_workload::Rng::new(3);
        let mut head = 0_u64;
        let mut tail = 0_u64;
        // The records: batch, prefix, position.
        let mut records: Vec<(u32, u32, u64)> = Vec::new();
        for batch in 1..40_u32 {
            let mut prefixes: Vec<u32> = (0..400).map(|_| random.next_u64() as u32).collect();
            // Some are close to each other.
            prefixes.extend_from_within(..40);
            prefixes
                .iter_mut()
                .rev()
                .take(40)
                .for_each(|prefix| *prefix ^= 3);
            prefixes.sort_unstable();
            prefixes.dedup();
            let mut rest = prefixes.as_slice();
            while !rest.is_empty() {
                head += random.below(4);
                let left = (region - head % region).min(RUN_PAGES as u64) as usize;
                let took: Vec<&[u32]> = rest.chunks(9).take(left).collect();
                let ends: Vec<_> = took.iter().map(|p| (p[0], p[p.len() - 1])).collect();
                let starts = match Starts::of(&ends) {
                    Ok(starts) => starts,
                    // The record is left out, as a writer does.
                    Err(page) => {
                        let at = page * 9;
                        let without = [&rest[..at], &rest[at + 1..]].concat();
                        rest = Vec::leak(without);
                        continue;
                    }
                };
                while head + took.len() as u64 > tail + pages {
                    runs.freed(tail % pages, region);
                    tail += region;
                    records.retain(|&(.., position)| position >= tail);
                }
                let (page, lap, position) = (head % pages, (head / pages) & 3, head);
                runs.add(&Run {
                    batch,
                    page,
                    lap,
                    starts,
                });
                for (n, page) in took.iter().enumerate() {
                    records.extend(page.iter().map(|&p| (batch, p, position + n as u64)));
                }
                // A run that is short although its region goes on is followed by a new group.
                head = match took.len() {
                    n if n < left => (head + n as u64).next_multiple_of(RUN_PAGES as u64),
                    n => head + n as u64,
                };
                let whole = took.iter().map(|p| p.len()).sum();
                rest = &rest[whole..];
            }
            let check = |runs: &Runs| {
                for &(batch, prefix, position) in &records {
                    let (page, lap) = (position % pages, (position / pages) & 3);
                    let hash = u64::from(prefix) << 32 | 77;
                    assert_eq!(runs.page_of(batch, hash), Some((page, lap)));
                    assert_eq!(runs.batch_of(page, lap), Some(batch));
                    assert_eq!(runs.batch_of(page, lap ^ 1), None);
                }
                assert_eq!(runs.oldest(), records.first().map(|r| r.0));
            };
            check(&runs);
        }
        assert!(tail > 2 * pages, "laps");
    }

    /// Damage of a bit anywhere in an entry is found.
    #[test]
    fn a_damaged_entry_is_none() {
        let mut runs = runs(64);
        let starts = Starts::of(&[(5, 900), (1000, 2000)]).expect("they differ");
        let run = Run {
            batch: 7,
            page: 19,
            lap: 1,
            starts,
        };
        runs.add(&run);
        assert_eq!(runs.run(1), Some(run));
        for bit in 0..ENTRY_WORDS * 64 {
            let at = runs.at(1) + bit / 64;
            let word = runs.words.get(at);
            runs.words.set(at, word ^ 1 << (bit % 64));
            assert_eq!(runs.run(1), None, "bit {bit}");
            runs.words.set(at, word);
        }
        assert_eq!(runs.run(0), None);
    }
}
