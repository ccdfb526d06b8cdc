// SPDX-License-Identifier: Apache-2.0
//! The common parts of the experiments on the index: keys, look-ups by a law of popularity, their
//! times, the speed of memory.
//!
//! A key is a number. Divided by the elements of a block, it is the ordinal of its block, so the
//! last keys are the newest. A look-up searches from the newest block to the oldest. It ends at the
//! first candidate that really has the key, as a store's look-up would after reading it.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use senko_io::{AlignedBuf, PAGE_SIZE, prefetch};
use senko_store::KeyHash;
use senko_store::index::BloomMap;
use senko_store::index::bloom_map::{Column, Filter};
use senko_thesis::data::hash_of;
use senko_thesis::filters::Sequential;
use senko_workload::rng::mix64;
use senko_workload::{KeyChooser, Popularity, Rng};

/// Least time of one measurement, in seconds.
const LEAST: f64 = 0.06;

/// Number of look-ups that are drawn; a measurement repeats them.
pub const DRAWN: usize = 1 << 15;

/// The processor time of this thread in seconds, or the clock's time where the system does not
/// report it.
pub fn core_seconds(start: Instant) -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = text.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    ns.map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

pub struct Lookups {
    pub numbers: Vec<u64>,
    pub hashes: Vec<KeyHash>,
}

impl Lookups {
    pub fn draw(law: &Popularity, keys: u64, seed: u64) -> Result<Lookups> {
        let mut chooser = KeyChooser::new(law, keys)?;
        let mut rng = Rng::new(seed);
        let numbers: Vec<u64> = (0..DRAWN).map(|_| chooser.next_key(&mut rng)).collect();
        let hashes = numbers.iter().map(|number| hash_of(*number)).collect();
        Ok(Lookups { numbers, hashes })
    }

    /// Keys that are not among the first `keys`.
    pub fn absent(keys: u64) -> Lookups {
        let numbers: Vec<u64> = (0..DRAWN as u64).map(|n| keys + n).collect();
        let hashes = numbers.iter().map(|number| hash_of(*number)).collect();
        Lookups { numbers, hashes }
    }
}

/// How often a second `work` is done. It is called with the numbers 0, 1, 2, ... modulo [`DRAWN`]
/// until the least time is over.
pub fn rate(mut work: impl FnMut(usize)) -> f64 {
    let clock = Instant::now();
    let (mut count, mut at) = (16, 0);
    loop {
        let start = core_seconds(clock);
        for _ in 0..count {
            work(at % DRAWN);
            at += 1;
        }
        let took = core_seconds(clock) - start;
        if took >= LEAST {
            return count as f64 / took;
        }
        count *= if took < LEAST / 8.0 { 4 } else { 2 };
    }
}

/// The best rate of each of `works`, which take turns. Other work on the machine makes all of them
/// slower, at some times more than at others.
pub fn best_of<const N: usize>(rounds: usize, mut works: [&mut dyn FnMut() -> f64; N]) -> [f64; N] {
    let mut best = [0.0f64; N];
    for _ in 0..rounds {
        for (best, work) in best.iter_mut().zip(&mut works) {
            *best = best.max(work());
        }
    }
    best
}

/// Keys in blocks, in both indexes of Bloom filters.
pub struct Filters {
    pub keys: u64,
    pub per_block: u64,
    /// The thesis's index.
    pub map: BloomMap,
    /// The index that it is compared with.
    pub sequential: Sequential,
    /// Seconds to build the map, without the seconds to fill the filters, which both need.
    pub map_seconds: f64,
    pub fill_seconds: f64,
}

impl Filters {
    /// Keys `0..keys` in blocks of `per_block`, with 16 bits an element.
    pub fn build(keys: u64, per_block: u64) -> Filters {
        let filter = Filter::for_elements(per_block as u32);
        let blocks = keys.div_ceil(per_block) as u32;
        let mut map = BloomMap::new(filter, 0);
        map.reserve(blocks);
        let mut sequential = Sequential::new(filter, blocks);
        let mut columns = vec![Column::new(filter); 8];
        let clock = Instant::now();
        let (mut map_seconds, start) = (0.0, core_seconds(clock));
        for first in (0..blocks).step_by(columns.len()) {
            let count = columns.len().min((blocks - first) as usize);
            for (at, column) in columns[..count].iter_mut().enumerate() {
                let block = u64::from(first) + at as u64;
                column.clear();
                for number in block * per_block..((block + 1) * per_block).min(keys) {
                    column.insert(hash_of(number));
                }
                sequential.set(block as u32, column);
            }
            let before = core_seconds(clock);
            map.push_blocks(&columns[..count]);
            map_seconds += core_seconds(clock) - before;
        }
        Filters {
            keys,
            per_block,
            map,
            sequential,
            map_seconds,
            fill_seconds: core_seconds(clock) - start - map_seconds,
        }
    }

    pub fn block(&self, number: u64) -> u32 {
        (number / self.per_block) as u32
    }

    /// Look-ups a second in the map.
    pub fn map_rate(&self, asked: &Lookups) -> f64 {
        rate(|at| {
            let next = asked.hashes[(at + 1) % DRAWN];
            senko_store::index::BlockMap::prefetch(&self.map, next);
            let block = self.block(asked.numbers[at]);
            let found = self
                .map
                .newest_first_prefetched(asked.hashes[at])
                .find(|candidate| *candidate == block);
            assert_eq!(black_box(found), Some(block), "a member is found");
        })
    }

    /// Look-ups a second in the filters, one after the other: the better of the two ways to search
    /// them.
    pub fn sequential_rate(&self, asked: &Lookups) -> [f64; 2] {
        let mut scratch = Vec::new();
        let plain = rate(|at| {
            let block = self.block(asked.numbers[at]);
            let found = self.sequential.find_plain(asked.hashes[at], block);
            assert!(black_box(found).is_some(), "a member is found");
        });
        let staged = rate(|at| {
            self.sequential.ask_first(asked.hashes[(at + 1) % DRAWN]);
            let block = self.block(asked.numbers[at]);
            let found = self
                .sequential
                .find_staged(asked.hashes[at], block, &mut scratch);
            assert!(black_box(found).is_some(), "a member is found");
        });
        [plain, staged]
    }
}

/// Memory to read from, in large pages where the system has them, as in the indexes themselves.
pub struct Bandwidth {
    memory: AlignedBuf,
}

impl Bandwidth {
    /// This many bytes.
    pub fn new(bytes: usize) -> Bandwidth {
        let mut memory = AlignedBuf::new(bytes.div_ceil(PAGE_SIZE).max(1));
        memory.prefer_large();
        // Pages that were never written all share the same physical page.
        for page in memory.chunks_exact_mut(PAGE_SIZE) {
            page[0] = 1;
        }
        Bandwidth { memory }
    }

    /// Bytes a second when pieces of `bytes`, a multiple of 64, are read at random places, while
    /// `ahead` bytes of coming pieces are prefetched.
    pub fn of_pieces(&self, bytes: usize, ahead: usize) -> f64 {
        let places = self.memory.len() / bytes;
        let place = |at: u64| ((u128::from(mix64(at)) * places as u128) >> 64) as usize * bytes;
        let ahead = (ahead / bytes).max(1) as u64;
        let mut sum = 0;
        let mut number = 0;
        let pieces = rate(|_| {
            let coming = place(number + ahead);
            prefetch(&self.memory[coming..coming + bytes]);
            let at = place(number);
            number += 1;
            let mut sums = [0u64; 8];
            for line in self.memory[at..at + bytes].as_chunks::<64>().0 {
                for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
                    *sum ^= u64::from_le_bytes(*word);
                }
            }
            sum ^= sums.iter().fold(0, |all, sum| all ^ sum);
        });
        black_box(sum);
        pieces * bytes as f64
    }

    /// The best rate of several prefetch distances.
    pub fn best(&self, bytes: usize) -> f64 {
        [2 << 10, 4 << 10, 8 << 10]
            .into_iter()
            .map(|ahead| self.of_pieces(bytes, ahead))
            .fold(0.0, f64::max)
    }
}
