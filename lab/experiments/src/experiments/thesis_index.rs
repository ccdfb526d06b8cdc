// SPDX-License-Identifier: Apache-2.0
//! Paper A, figures 35 and 41 to 44: the time to find a key's block in DRAM.
//!
//! Claim: at the largest number of elements, with 16 bits an element, 11 hash functions and 4096
//! elements a block, the Bloom Filter Map is 110 times as fast as Bloom filters searched one after
//! the other. This holds for uniform keys (figure 41) and Zipf's law (42). If mostly new keys are
//! requested, it is 11.8 times as fast (43). Its time depends only on the number of blocks (44).
//! Figure 35 is a calculation: the cost of filters searched one after the other if each reads as
//! many cache lines as it has hash functions.
//!
//! The thesis's rival waited for memory at every step. Ours does not: it leaves a filter at the
//! first zero, and prefetches. Its filters are placed in different sets of the cache. It is the
//! faster of two ways to search (`lab/thesis/src/filters.rs`). So the ratio here compares memory
//! traffic more than waiting.
//!
//! Beyond the thesis, the experiment measures the share of the machine's memory bandwidth that
//! batched look-ups reach. It also measures a hash index like FlashStore's, and the store's map
//! with as many bits as the thesis's.
//!
//! One thread. Seconds are the thread's own processor time. Each number is the best of several
//! rounds in which all contenders take turns.

mod measure;

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use senko_store::index::bloom_map::{Column, Filter};
use senko_store::index::{BlockMap, BloomMap, Candidates, MapEntry, StaticMap};
use senko_thesis::data::hash_of;
use senko_thesis::hash_index::HashIndex;
use senko_workload::Popularity;

use crate::{
    Bar, Experiment, Measure, Options, Outcome, Paper, Progress, Scale, Table, at_least, at_most,
    judged, near, untested,
};
use measure::{Bandwidth, DRAWN, Filters, Lookups, best_of, core_seconds, rate};

/// Elements of a block, as in the thesis.
const PER_BLOCK: u64 = 4096;
/// The exponent of the thesis's Zipf distribution: the k-th has probability 1/k.
const EXPONENT: f64 = 1.0;
/// Number of blocks for the comparison with the better map.
const BETTER_BLOCKS: u64 = 1024;
const BITS: f64 = 16.0;
const BATCH: usize = 1024;

const MEGA: u64 = 1 << 20;

struct Sizes {
    /// Numbers of elements of figures 41 to 43; the bars are for the last.
    elements: &'static [u64],
    /// Numbers of elements of figure 44.
    by_block: &'static [u64],
    better: u64,
    hash_index: u64,
    rounds: usize,
}

impl Sizes {
    fn of(scale: Scale) -> Sizes {
        match scale {
            Scale::Quick => Sizes {
                elements: &[MEGA, 8 * MEGA, 64 * MEGA],
                by_block: &[4 * MEGA, 16 * MEGA],
                better: 8 * MEGA,
                hash_index: 4 * MEGA,
                rounds: 3,
            },
            Scale::Full => Sizes {
                elements: &[
                    MEGA,
                    2 * MEGA,
                    4 * MEGA,
                    8 * MEGA,
                    16 * MEGA,
                    32 * MEGA,
                    64 * MEGA,
                ],
                by_block: &[4 * MEGA, 16 * MEGA, 64 * MEGA],
                better: 64 * MEGA,
                hash_index: 64 * MEGA,
                rounds: 9,
            },
        }
    }
}

const BLOCK_SIZES: [u64; 5] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18];

/// The curves of figures 41, 42 and 43.
fn laws() -> [(&'static str, &'static str, Popularity); 3] {
    [
        ("41", "uniform", Popularity::Uniform),
        (
            "42",
            "zipf",
            Popularity::Zipf {
                s: EXPONENT,
                scrambled: true,
            },
        ),
        ("43", "latest", Popularity::Latest { s: EXPONENT }),
    ]
}

/// Rates of the map and of both ways to search filters.
struct Rates {
    map: f64,
    plain: f64,
    staged: f64,
}

impl Rates {
    fn of(filters: &Filters, asked: &Lookups, rounds: usize) -> Rates {
        let (mut plain, mut staged) = (0.0f64, 0.0f64);
        let mut sequential = || {
            let both = filters.sequential_rate(asked);
            plain = plain.max(both[0]);
            staged = staged.max(both[1]);
            both[1]
        };
        let [map, _] = best_of(rounds, [&mut || filters.map_rate(asked), &mut sequential]);
        Rates { map, plain, staged }
    }

    fn ratio(&self) -> f64 {
        self.map / self.plain.max(self.staged)
    }

    fn cells(&self) -> [String; 4] {
        let us = |rate: f64| format!("{:.3}", 1e6 / rate);
        [
            us(self.map),
            us(self.staged),
            us(self.plain),
            format!("{:.1}", self.ratio()),
        ]
    }
}

fn millions(elements: u64) -> String {
    format!("{}M", elements / MEGA)
}

/// Figures 41 to 43, and the bars for the largest number of elements.
fn figures_41_to_43(
    sizes: &Sizes,
    options: &Options,
    progress: &dyn Progress,
    outcome: &mut Outcome,
) -> Result<()> {
    let columns = [
        "elements",
        "Bloom Filter Map us",
        "filters us",
        "filters, one by one us",
        "times as fast",
        "hash index us",
    ];
    let mut tables = laws().map(|(figure, law, _)| {
        Table::new(
            format!("Figure {figure}: time of a look-up, {law}, {PER_BLOCK} elements a block"),
            &columns,
        )
    });
    for elements in sizes.elements {
        progress.step(
            *elements,
            sizes.elements.iter().sum(),
            "Bloom filters of all blocks",
        );
        let filters = Filters::build(*elements, PER_BLOCK);
        let index = (*elements <= sizes.hash_index)
            .then(|| HashIndex::build(*elements))
            .flatten();
        let last = Some(elements) == sizes.elements.last();
        let bits = |bytes: usize| bytes as f64 * 8.0 / *elements as f64;
        for ((_, law, popularity), table) in laws().iter().zip(&mut tables) {
            progress.step(*elements, sizes.elements.iter().sum(), law);
            let asked = Lookups::draw(popularity, *elements, options.seed)?;
            let rates = Rates::of(&filters, &asked, sizes.rounds);
            let hashed = index
                .as_ref()
                .map(|index| hash_index_rate(index, &asked, sizes.rounds));
            let mut row = vec![millions(*elements)];
            row.extend(rates.cells());
            row.push(hashed.map_or("-".to_owned(), |rate| format!("{:.3}", 1e6 / rate)));
            table.row(row);
            if last {
                outcome.bar(format!("{law}_over_sequential"), rates.ratio());
                outcome.bar(format!("{law}_lookups_per_s"), rates.map);
                outcome.bar(
                    format!("{law}_over_sequential_one_by_one"),
                    rates.map / rates.plain,
                );
            }
        }
        if last {
            rows_over_bandwidth(&filters, sizes, options, outcome)?;
            outcome.setting("elements", *elements);
            let ns = |seconds: f64| seconds * 1e9 / *elements as f64;
            outcome.setting("fill_ns_a_key", ns(filters.fill_seconds));
            outcome.setting("map_beyond_fill_ns_a_key", ns(filters.map_seconds));
            outcome.setting("map_bits_a_key", bits(filters.map.bytes()));
            outcome.setting("filters_bits_a_key", bits(filters.sequential.bytes()));
        }
        if let Some(index) = index {
            outcome.setting("hash_index_bits_a_key", bits(index.bytes()));
        }
    }
    outcome.tables.extend(tables);
    Ok(())
}

fn hash_index_rate(index: &HashIndex, asked: &Lookups, rounds: usize) -> f64 {
    let mut work = || {
        rate(|at| {
            index.ask(asked.hashes[(at + 12) % DRAWN]);
            let found = index.find(asked.hashes[at], asked.numbers[at] as u32);
            assert!(found.is_some(), "a member is found");
        })
    };
    best_of(rounds.div_ceil(2), [&mut work])[0]
}

/// The rate at which a batch reads rows, against reads of pieces of the same length at random
/// places in as much memory.
fn rows_over_bandwidth(
    filters: &Filters,
    sizes: &Sizes,
    options: &Options,
    outcome: &mut Outcome,
) -> Result<()> {
    let asked = Lookups::draw(&Popularity::Uniform, filters.keys, options.seed ^ 1)?;
    let row = filters.map.bytes_of_rows() / filters.map.filter().hashes as usize;
    let memory = Bandwidth::new(filters.map.bytes());
    let mut out = vec![Candidates::new(); BATCH];
    let mut rows =
        || batch_rate(&filters.map, &asked, &mut out) * filters.map.bytes_of_rows() as f64;
    let mut probes = Vec::new();
    let mut probe = || {
        let best = memory.best(row);
        probes.push(best);
        best
    };
    let [rows, memory] = best_of(sizes.rounds, [&mut rows, &mut probe]);
    outcome.bar("rows_over_memory_bandwidth", rows / memory);
    outcome.setting("row_bytes", row);
    outcome.setting("rows_gb_a_second", rows / 1e9);
    outcome.setting("memory_gb_a_second", memory / 1e9);
    if let [first, .., last] = probes[..] {
        outcome.probe(first, last);
    }
    Ok(())
}

/// Look-ups a second in batches; each look-up finds all candidates.
fn batch_rate(map: &impl BlockMap, asked: &Lookups, out: &mut [Candidates]) -> f64 {
    let batches = DRAWN / BATCH;
    BATCH as f64
        * rate(|at| {
            let from = at % batches * BATCH;
            map.candidates_of(&asked.hashes[from..from + BATCH], out);
        })
}

/// Figure 44: other block sizes.
fn figure_44(
    sizes: &Sizes,
    options: &Options,
    progress: &dyn Progress,
    outcome: &mut Outcome,
) -> Result<()> {
    let mut seen: BTreeMap<u64, Vec<(u64, Rates)>> = BTreeMap::new();
    for elements in sizes.by_block {
        for per_block in BLOCK_SIZES {
            progress.step(per_block, BLOCK_SIZES.iter().sum(), "blocks of other sizes");
            let filters = Filters::build(*elements, per_block);
            let asked = Lookups::draw(&Popularity::Uniform, *elements, options.seed)?;
            let rates = Rates::of(&filters, &asked, sizes.rounds.div_ceil(2));
            let of_this = seen.entry(elements / per_block).or_default();
            of_this.push((*elements, rates));
        }
    }
    let mut columns = vec!["blocks".to_owned()];
    for what in ["Bloom Filter Map us", "filters us"] {
        let totals = sizes.by_block.iter();
        columns.extend(totals.map(|total| format!("{what}, {}", millions(*total))));
    }
    let mut table = Table::new(
        "Figure 44: time of a look-up by the number of blocks, for several totals of elements, uniform",
        &columns,
    );
    let mut spread = 1.0f64;
    for (blocks, of_this) in &seen {
        let mut row = vec![blocks.to_string()];
        for time in [
            |rates: &Rates| 1e6 / rates.map,
            |rates: &Rates| 1e6 / rates.staged,
        ] {
            for total in sizes.by_block {
                let found = of_this.iter().find(|(elements, _)| elements == total);
                row.push(found.map_or("-".to_owned(), |(_, rates)| format!("{:.3}", time(rates))));
            }
        }
        table.row(row);
        let times = || of_this.iter().map(|(_, rates)| 1e6 / rates.map);
        let (least, most) = (
            times().fold(f64::INFINITY, f64::min),
            times().fold(0.0, f64::max),
        );
        spread = spread.max(most / least);
    }
    // Maps with equally many blocks and at least four times the elements.
    outcome.bar("figure44_time_over_totals", spread);
    let most = sizes.by_block.last();
    let mut ends = seen.iter().filter_map(|(blocks, of_this)| {
        let found = of_this
            .iter()
            .find(|(elements, _)| Some(elements) == most)?;
        Some((*blocks as f64, 1.0 / found.1.map))
    });
    if let (Some(few), Some(many)) = (ends.next(), ends.next_back()) {
        let exponent = (many.1 / few.1).ln() / (many.0 / few.0).ln();
        outcome.bar("figure44_exponent", exponent);
    }
    outcome.tables.push(table);
    Ok(())
}

/// Figure 35: filters searched one after the other. Each search reads the lines of all its hash
/// functions, at the speed at which this machine reads random single lines.
fn figure_35(outcome: &mut Outcome, progress: &dyn Progress) {
    progress.step(0, 1, "single lines of memory");
    let line_seconds = 64.0 / Bandwidth::new(256 << 20).best(64);
    let blocks = [256.0, 1024.0, 4096.0, 16384.0, 65536.0];
    let mut columns = vec!["elements".to_owned()];
    columns.extend(blocks.map(|size| format!("ms, blocks of {size}")));
    let title = "Figure 35: calculated time of a look-up in filters one after the other";
    let mut table = Table::new(title, &columns);
    let seconds = |elements: f64, per_block: f64| {
        let lines = (per_block * BITS / 512.0).max(1.0);
        let touched = lines * (1.0 - (1.0 - 1.0 / lines).powi(11));
        elements / per_block * touched * line_seconds
    };
    for elements in [1e6, 10e6, 100e6, 1000e6] {
        let mut row = vec![format!("{}M", elements / 1e6)];
        row.extend(blocks.map(|size| format!("{:.3}", seconds(elements, size) * 1e3)));
        table.row(row);
    }
    outcome.setting("line_ns", line_seconds * 1e9);
    outcome.bar("figure35_ms_1000m_256", seconds(1000e6, 256.0) * 1e3);
    outcome.tables.push(table);
}

/// The Bloom Filter Map of this many keys in [`BETTER_BLOCKS`] blocks, and the seconds that it took
/// to build.
fn bloom_map(keys: u64) -> (BloomMap, f64) {
    let clock = Instant::now();
    let start = core_seconds(clock);
    let each = keys / BETTER_BLOCKS;
    let filter = Filter::for_elements(each as u32);
    let mut map = BloomMap::new(filter, 0);
    map.reserve(BETTER_BLOCKS as u32);
    let mut columns = vec![Column::new(filter); 8];
    for first in (0..BETTER_BLOCKS).step_by(columns.len()) {
        for (column, block) in columns.iter_mut().zip(first..) {
            column.clear();
            (block * each..(block + 1) * each).for_each(|number| column.insert(hash_of(number)));
        }
        map.push_blocks(&columns);
    }
    (map, core_seconds(clock) - start)
}

/// The entries of this many keys, in the order in which blocks return their hashes.
fn entries(keys: u64) -> Vec<MapEntry> {
    let each = keys / BETTER_BLOCKS;
    let mut entries: Vec<MapEntry> = (0..keys)
        .map(|number| MapEntry {
            key: hash_of(number),
            block: (number / each) as u32,
        })
        .collect();
    // A map of one shard gets entries in this order. A map of all keys uses the bits below those of
    // the shard.
    entries.sort_unstable_by_key(|entry| entry.key.order << 8);
    entries
}

/// The better map with as many bits as the thesis's.
fn better_map(
    sizes: &Sizes,
    options: &Options,
    progress: &dyn Progress,
    outcome: &mut Outcome,
) -> Result<()> {
    let keys = sizes.better;
    progress.step(0, 3, "the thesis's map of 1024 blocks");
    let (bloom, bloom_seconds) = bloom_map(keys);
    progress.step(1, 3, "the better map of 1024 blocks");
    let entries = entries(keys);
    // The memory of the map besides its values' bits does not depend on the values, so measuring a
    // part of the keys is enough.
    let block_bits = (BETTER_BLOCKS as f64).log2();
    let part: Vec<MapEntry> = entries.iter().step_by(16).copied().collect();
    let some = StaticMap::build(&part, BETTER_BLOCKS as u32, 5.5);
    let beyond = some.bytes() as f64 * 8.0 / part.len() as f64 / (block_bits + 5.5);
    let print_bits = (BITS / beyond - block_bits - 0.002) as f32;
    let (clock, mut better_seconds) = (Instant::now(), f64::INFINITY);
    let mut better = None;
    for _ in 0..2 {
        let start = core_seconds(clock);
        better = Some(StaticMap::build(&entries, BETTER_BLOCKS as u32, print_bits));
        better_seconds = better_seconds.min(core_seconds(clock) - start);
    }
    let Some(better) = better else { return Ok(()) };
    drop(entries);
    let bits = [bloom.bytes(), better.bytes()].map(|bytes| bytes as f64 * 8.0 / keys as f64);

    progress.step(2, 3, "look-ups in both");
    let asked = Lookups::draw(&Popularity::Uniform, keys, options.seed)?;
    let mut out = vec![Candidates::new(); BATCH];
    let mut more = vec![Candidates::new(); BATCH];
    let [bloom_rate, better_rate] = best_of(
        sizes.rounds,
        [&mut || batch_rate(&bloom, &asked, &mut out), &mut || {
            batch_rate(&better, &asked, &mut more)
        }],
    );
    let absent = [
        false_candidates(&bloom, keys),
        false_candidates(&better, keys),
    ];
    if bits[1] <= bits[0] {
        outcome.bar("better_map_speedup", better_rate / bloom_rate);
        outcome.bar("better_map_false_over_bfm", absent[1] / absent[0]);
    } else {
        for key in ["better_map_speedup", "better_map_false_over_bfm"] {
            outcome.miss(
                key,
                format!(
                    "the better map took {} bits a key, the other {}",
                    bits[1], bits[0]
                ),
            );
        }
    }
    let mut table = Table::titled(format!(
        "Maps of {} keys in {BETTER_BLOCKS} blocks, uniform, in batches of {BATCH}",
        millions(keys)
    ));
    let seconds = [bloom_seconds, better_seconds];
    for (at, (name, rate)) in [
        ("Bloom Filter Map", bloom_rate),
        ("bumped ribbon retrieval", better_rate),
    ]
    .iter()
    .enumerate()
    {
        table.add([
            ("map", (*name).to_owned()),
            ("bits a key", format!("{:.3}", bits[at])),
            ("ns a look-up", format!("{:.1}", 1e9 / rate)),
            (
                "false candidates of an absent key",
                format!("{:.5}", absent[at]),
            ),
            (
                "ns a key to build",
                format!("{:.1}", seconds[at] * 1e9 / keys as f64),
            ),
        ]);
    }
    outcome.tables.push(table);
    outcome.setting("better_map_keys", keys);
    outcome.setting(
        "better_map_build_ns_a_key",
        better_seconds * 1e9 / keys as f64,
    );
    outcome.setting("fingerprint_bits", print_bits);
    Ok(())
}

/// The mean number of candidates of an absent key.
fn false_candidates(map: &impl BlockMap, keys: u64) -> f64 {
    let (mut found, mut asked) = (0, 0);
    let mut out = vec![Candidates::new(); BATCH];
    for part in 0..16 {
        let absent = Lookups::absent(keys + part * DRAWN as u64);
        for hashes in absent.hashes.chunks_exact(BATCH) {
            map.candidates_of(hashes, &mut out);
            found += out.iter().map(|candidates| candidates.len()).sum::<usize>();
            asked += BATCH;
        }
    }
    found as f64 / asked as f64
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "thesis-index",
    paper: Paper::A,
    source: "paper A, figures 35 and 41 to 44",
    text: "the time to find a key's block in a Bloom Filter Map, in filters one after the other, and in the store's map",
    sentences: &[
        judged(
            "section 5.4.1, figure 35",
            "1,000M elements in blocks of 256 take 100 ms a look-up in filters one after the other, which is no practical index",
            &["lab/thesis/src/filters.rs"],
            "2026-11-28: calculated as in the thesis, from the time of a line of this machine's memory; a tenth of the time would be practical",
            &[at_least("figure35_ms_1000m_256", 50.0, 10.0)],
        ),
        untested(
            "section 5.4.1, figure 34, equation 3",
            "filters of at most 354 elements are read whole",
            &["lab/thesis/src/filters.rs"],
            "arithmetic: 512 bits of a line times 9/13",
        ),
        judged(
            "section 7.1.2.1, figure 41, table 8",
            "the Bloom Filter Map finds a key's block 110.6 times as fast as filters one after the other, uniform keys",
            &["lab/thesis/src/bloom.rs", "crates/store/src/index.rs"],
            "2026-11-28: our rival leaves a filter at its first zero and prefetches; a tenth below the thesis's ratio bears it out, half of it goes against it",
            &[at_least("uniform_over_sequential", 99.5, 55.3)],
        ),
        judged(
            "section 7.1.2.1, figure 42",
            "the Bloom Filter Map finds a key's block 112.1 times as fast as filters one after the other, keys by Zipf law",
            &["lab/thesis/src/bloom.rs", "crates/store/src/index.rs"],
            "2026-11-28: our rival leaves a filter at its first zero and prefetches; a tenth below the thesis's ratio bears it out, half of it goes against it",
            &[at_least("zipf_over_sequential", 100.9, 56.0)],
        ),
        judged(
            "section 7.1.2.1, figure 43",
            "the Bloom Filter Map finds a key's block 11.8 times as fast as filters one after the other, new keys first",
            &["lab/thesis/src/bloom.rs", "crates/store/src/index.rs"],
            "2026-11-28: our rival leaves a filter at its first zero and prefetches; a tenth below the thesis's ratio bears it out, half of it goes against it",
            &[at_least("latest_over_sequential", 10.6, 5.9)],
        ),
        judged(
            "section 7.1.2.2, figure 44, totals",
            "the time does not depend on the total number of elements",
            &["lab/thesis/src/bloom.rs"],
            "2026-11-28: the longest time over the shortest with equally many blocks and 4 to 16 times the elements: a quarter is noise, a factor of two is dependence",
            &[at_most("figure44_time_over_totals", 1.25, 2.0)],
        ),
        judged(
            "section 7.1.2.2, figure 44, blocks",
            "the time is about proportional to the number of blocks",
            &["lab/thesis/src/bloom.rs"],
            "2026-11-28: the exponent of the time over the blocks, from the fewest to the most, with the most elements: 1 is proportional, and half of it is the square root",
            &[near("figure44_exponent", 1.0, 0.2, 0.5)],
        ),
    ],
    bars: &[
        Bar::more("rows_over_memory_bandwidth", 0.5, 0.8),
        Bar::more("better_map_speedup", 1.5, 3.0),
        Bar::less("better_map_false_over_bfm", 0.10, 0.04),
        Bar::more("uniform_over_sequential", 110.0, 200.0),
    ],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let sizes = Sizes::of(options.scale);
    outcome.setting("elements_a_block", PER_BLOCK);
    outcome.setting("zipf_exponent", EXPONENT);
    outcome.setting("hashes", Filter::for_elements(PER_BLOCK as u32).hashes);
    outcome.setting("avx2", cfg!(target_arch = "x86_64") && has_avx2());
    figure_35(outcome, progress);
    figures_41_to_43(&sizes, options, progress, outcome)?;
    figure_44(&sizes, options, progress, outcome)?;
    better_map(&sizes, options, progress, outcome)?;
    Ok(())
}

/// Whether rows are ANDed in vectors of 32 bytes.
fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}
