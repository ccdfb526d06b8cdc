// SPDX-License-Identifier: Apache-2.0
//! Paper A, section 4.2: ISAM, a hash table and an in-place B+tree with the same elements, compared
//! as in table 7.
//!
//! Claim (4.2.1, figure 26, and table 7): ISAM writes in order, a get takes one read, and its table
//! in DRAM takes at least 12 bytes an element: 1.2 % of elements of 1000 bytes. A hash table needs
//! no index, but writes at random and is limited by collisions. A B+tree needs no DRAM, but also
//! writes pages of its index. The thesis measured no ISAM, since its times follow from the drive's;
//! here it is measured.
//!
//! Expected shape: ISAM writes the fewest bytes and is the fastest by far, the B+tree the most and
//! the slowest. A get takes one read in ISAM, one for each slot in the hash table, one for each
//! level in the B+tree.
//!
//! Every write is durable before the next, as in the thesis (option "sync"). `isam_1m` writes a MiB
//! at a time, `isam_4k` a page. The table is filled to a half. Elements have 8 and 1000 bytes. The
//! simulated drive counts its own time, the file the machine's.

use anyhow::{Result, anyhow, ensure};
use senko_thesis::Keys;
use senko_thesis::btree::Tree;
use senko_thesis::isam::Isam;
use senko_thesis::linear::Table as Slots;
use senko_thesis::slot::{PER_PAGE, SLOT, VALUE};
use senko_workload::{Rng, check_value};

use crate::thesis::bed::{Bed, Beds, X25M, run_on};
use crate::{
    Experiment, Measure, Options, Outcome, Paper, Progress, Table, at_least, at_most, judged, near,
};

/// Bytes of an element's key and value.
const PAYLOAD: f64 = 8.0 + VALUE as f64;
const STRUCTURES: [&str; 4] = ["isam_1m", "isam_4k", "hash_table", "btree"];
/// Pages of the device for each element: a B+tree's leaves are half full at worst.
const PAGES: u64 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    put_us: f64,
    get_us: f64,
    writes: f64,
    written: f64,
    reads: f64,
    dram: f64,
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "thesis-isam",
    paper: Paper::A,
    source: "paper A, section 4.2.1, figure 26, table 7",
    text: "reads, writes and DRAM of ISAM, a hash table and a B+tree",
    sentences: &[
        judged(
            "section 4.2.1, figure 26",
            "ISAM writes in order, and gets with one random read",
            &["lab/thesis/src/isam.rs"],
            "2026-11-28: counts of the device: a twentieth more than one is rounding at the ends of pages, half as much again is another structure",
            &[
                at_most("reads_per_get_isam_1m", 1.05, 1.5),
                at_most("written_over_payload_isam_1m", 1.05, 1.5),
            ],
        ),
        judged(
            "section 4.2.1.1",
            "its table in DRAM takes 1.2 % of the data at least",
            &["lab/thesis/src/isam.rs"],
            "2026-11-28: a table with a fifth of its slots free takes 1.5 %; twice the 1.2 % is not \"at least\" but another table",
            &[near("isam_dram_percent", 1.2, 0.3, 1.2)],
        ),
        judged(
            "section 4.2.4, table 7",
            "a hash table and a B+tree write more than ISAM, since they do not write in order",
            &["lab/thesis/src/linear.rs", "lab/thesis/src/btree.rs"],
            "2026-11-28: bytes written for each byte put: twice is plainly more, and less than ISAM's goes against it",
            &[
                at_least("written_over_payload_hash_table", 2.0, 1.05),
                at_least("written_over_payload_btree", 2.0, 1.05),
            ],
        ),
    ],
    bars: &[],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let elements = options.scaled((2_000, 20_000), (20_000, 200_000));
    run_on(options, progress, outcome, &[X25M], |beds, outcome| {
        measure(beds, elements, outcome)
    })
}

/// Measures each structure on the file and on the drives, with this many elements. The test calls
/// it with a few.
/// A lost element is an error.
pub fn measure(
    beds: &Beds<'_>,
    (on_file, simulated): (u64, u64),
    outcome: &mut Outcome,
) -> Result<()> {
    let (keys, seed) = (Keys::new(beds.seed), beds.seed);
    let steps = beds.steps(STRUCTURES.len());
    outcome.setting("elements_on_file", on_file);
    outcome.setting("elements_simulated", simulated);
    outcome.setting("value_bytes", VALUE);
    let mut table = Table::titled(
        "Table 7: the basic structures with elements of 8 + 1000 bytes, every write durable",
    );
    for drive in beds.all() {
        for structure in STRUCTURES {
            let elements = if drive.is_some() { simulated } else { on_file };
            steps.next(&format!(
                "{structure} on {}",
                drive.map_or("a file", |drive| drive.name)
            ));
            // Each structure gets its own bed: the table needs zeros, and no structure should find
            // a used drive.
            let bed = beds.bed(drive, structure, elements * PAGES * 4096)?;
            let cost = structure_cost(structure, &bed, &keys, elements, seed)?;
            table.add([
                ("on", bed.name.to_owned()),
                ("structure", structure.to_owned()),
                ("put us", format!("{:.1}", cost.put_us)),
                ("get us", format!("{:.1}", cost.get_us)),
                ("writes/put", format!("{:.4}", cost.writes)),
                ("written/keys+values", format!("{:.3}", cost.written)),
                ("reads/get", format!("{:.3}", cost.reads)),
                ("DRAM B/key", format!("{:.1}", cost.dram)),
            ]);
            bars(outcome, structure, bed.name, &cost);
        }
    }
    outcome.tables.push(table);
    Ok(())
}

fn bars(outcome: &mut Outcome, structure: &str, bed: &str, cost: &Cost) {
    outcome.bar(format!("put_us_{structure}_{bed}"), cost.put_us);
    outcome.bar(format!("get_us_{structure}_{bed}"), cost.get_us);
    // Counts are the same on every device, so they are reported once.
    if bed == "file" {
        outcome.bar(format!("written_over_payload_{structure}"), cost.written);
        outcome.bar(format!("reads_per_get_{structure}"), cost.reads);
        if structure == "isam_1m" {
            outcome.bar("isam_dram_percent", cost.dram / PAYLOAD * 100.0);
        }
    }
}

/// Puts all elements, then gets a random part of them; a missing value is an error.
fn structure_cost(
    structure: &str,
    bed: &Bed,
    keys: &Keys,
    elements: u64,
    seed: u64,
) -> Result<Cost> {
    let device = bed.device();
    let gets: Vec<u64> = {
        let mut rng = Rng::for_stream(seed, 7);
        (0..elements / 2).map(|_| rng.below(elements)).collect()
    };
    let start = bed.now_us();
    let mut cost = Cost::default();
    let check = |value: Option<&[u8]>, number: u64| -> Result<()> {
        let value = value.ok_or_else(|| anyhow!("{structure}: key {number} was not found"))?;
        let checked = check_value(value, number);
        ensure!(
            checked.is_ok(),
            "{structure}: key {number} has another's value"
        );
        Ok(())
    };
    let (written_at, before);
    let (writes, bytes, reads);
    match structure {
        "isam_1m" | "isam_4k" => {
            let chunk = if structure == "isam_1m" { 256 } else { 1 };
            let mut isam = Isam::new(device, elements, chunk);
            for number in 0..elements {
                isam.put(&keys.wanted(number))?;
            }
            isam.flush()?;
            written_at = bed.now_us();
            before = isam.reads;
            for &number in &gets {
                check(isam.get(&keys.wanted(number))?, number)?;
            }
            cost.dram = isam.dram_bytes() as f64 / elements as f64;
            (writes, reads) = (isam.writes, isam.reads);
            bytes = elements.div_ceil(PER_PAGE) * PER_PAGE * SLOT as u64;
        }
        "hash_table" => {
            let mut slots = Slots::new(device, elements * 2);
            for number in 0..elements {
                ensure!(slots.put(&keys.wanted(number))?, "the hash table is full");
            }
            written_at = bed.now_us();
            before = slots.reads;
            for &number in &gets {
                check(slots.get(&keys.wanted(number))?, number)?;
            }
            (writes, reads) = (slots.writes, slots.reads);
            bytes = writes * 4096;
        }
        _ => {
            let mut tree = Tree::new(device, VALUE)?;
            for number in 0..elements {
                tree.put(&keys.wanted(number))?;
            }
            written_at = bed.now_us();
            before = tree.reads;
            for &number in &gets {
                check(tree.get(&keys.wanted(number))?.as_deref(), number)?;
            }
            (writes, reads) = (tree.writes, tree.reads);
            bytes = writes * 4096;
        }
    }
    let (elements, asked) = (elements as f64, gets.len() as f64);
    cost.put_us = (written_at - start) / elements;
    cost.get_us = (bed.now_us() - written_at) / asked;
    cost.writes = writes as f64 / elements;
    cost.written = bytes as f64 / (elements * PAYLOAD);
    cost.reads = (reads - before) as f64 / asked;
    Ok(cost)
}
