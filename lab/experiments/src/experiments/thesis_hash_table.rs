// SPDX-License-Identifier: Apache-2.0
//! Paper A, figure 31, table 6: the time of a put into a hash table on the device, by how full the
//! table is.
//!
//! Claim: the time grows faster and faster with the fill, and the thesis stops where the mean of
//! the last 16 puts passes 50 ms, at about 74 %. It assumes that collisions are the cause, since
//! random writes do not become slower.
//!
//! Expected shape: Knuth's formula for linear probing, (1 + 1 / (1 - a)^2) / 2 slots at a fill of
//! a. That is flat up to a half, 5 slots at two thirds and 8 at 74 %. So the curve has the thesis's
//! shape, but rises later with a good hash: to stop at 74 %, a slot would have to take 6 ms, and
//! the X25-M's read takes 65 us (table 3). The thesis names neither its hash function nor its
//! reads. Keys that are not spread over the whole table would explain the early stop.
//!
//! Slots of 1024 bytes (table 6), four to a page. Each slot examined is one read, each put one
//! durable write. A simulated table is filled until the thesis's rule stops it. The table on the
//! file is filled up to 90 %, since the last tenth takes most of the reads.

use anyhow::Result;
use senko_thesis::Keys;
use senko_thesis::linear::{Table as Slots, expected_slots};
use senko_thesis::slot::{PER_PAGE, SLOT};

use crate::thesis::bed::{Bed, Beds, Recent, STICK, X25M, run_on};
use crate::{
    Experiment, Measure, Options, Outcome, Paper, Progress, Table, at_least, judged, near,
};

/// Parts of the figure.
const LEVELS: usize = 50;
/// The thesis's rule: the mean time of this many puts, and its limit.
const RULE: (usize, f64) = (16, 50_000.0);
/// The file's table is filled up to this share.
const FILE_FILL: f64 = 0.9;

pub static EXPERIMENT: Experiment = Experiment {
    name: "thesis-hash-table",
    paper: Paper::A,
    source: "paper A, section 4.2.3, figures 30 and 31, table 6",
    text: "the time of puts into a hash table on the drive, by its fill",
    sentences: &[
        judged(
            "section 4.2.3, figures 30 and 31, table 6",
            "puts get slower and slower with the fill",
            &["lab/thesis/src/linear.rs"],
            "2026-11-28: the time at two thirds over that of an empty table: a tenth more is growth, none goes against it",
            &[at_least("time_at_two_thirds_over_empty_x25m", 1.1, 1.0)],
        ),
        judged(
            "section 4.2.3, figure 31, the stop",
            "the mean of 16 puts exceeds 50 ms at a fill of 74 %",
            &["lab/thesis/src/linear.rs"],
            "2026-11-28: five points of fill are reading accuracy, ten are another result",
            &[near("stop_fill_percent_x25m", 74.0, 5.0, 10.0)],
        ),
        judged(
            "section 4.2.3, figure 31, the cause",
            "collisions are the cause, and not the drive's random writes",
            &["lab/thesis/src/linear.rs"],
            "2026-11-28: slots that a put looks at over Knuth's formula: a twentieth apart is the formula, a fifth more is another cause",
            &[near("slots_over_theory_at_two_thirds_x25m", 1.0, 0.05, 0.2)],
        ),
    ],
    bars: &[],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let slots = options.scaled((4_096, 32_768), (65_536, 524_288));
    run_on(
        options,
        progress,
        outcome,
        &[X25M, STICK],
        |beds, outcome| measure(beds, slots, outcome),
    )
}

struct Filled {
    bed: &'static str,
    /// Mean microseconds and slots of a put at each level reached.
    levels: Vec<(f64, f64)>,
    /// The fill at which the rule stopped the run, if it did.
    stopped: Option<f64>,
}

/// Fills tables of this many slots on the file and on the drives. The test calls it with a few.
pub fn measure(
    beds: &Beds<'_>,
    (on_file, simulated): (u64, u64),
    outcome: &mut Outcome,
) -> Result<()> {
    let steps = beds.steps(1);
    outcome.setting("slots_on_file", on_file);
    outcome.setting("slots_simulated", simulated);
    outcome.setting("slots_of_the_thesis", (8_u64 << 30) / SLOT as u64);
    let keys = Keys::new(beds.seed);
    let mut all = Vec::new();
    for drive in beds.all() {
        steps.next(drive.map_or("a file", |drive| drive.name));
        let (slots, until) = match drive {
            Some(_) => (simulated, 1.0),
            None => (on_file, FILE_FILL),
        };
        let bed = beds.bed(drive, "hash-table", slots.div_ceil(PER_PAGE) * 4096)?;
        all.push(fill(&bed, &keys, slots, until)?);
    }
    report(&all, outcome);
    Ok(())
}

fn fill(bed: &Bed, keys: &Keys, slots: u64, until: f64) -> Result<Filled> {
    let mut table = Slots::new(bed.device(), slots);
    let mut recent = Recent::new(RULE.0);
    let mut filled = Filled {
        bed: bed.name,
        levels: Vec::new(),
        stopped: None,
    };
    let mut number = 0;
    'levels: for level in 1..=LEVELS {
        let end = slots * level as u64 / LEVELS as u64;
        if end as f64 > until * slots as f64 {
            break;
        }
        let (first, reads, start) = (number, table.reads, bed.now_us());
        while number < end {
            let before = bed.now_us();
            table.put(&keys.wanted(number))?;
            number += 1;
            let mean = recent.add(bed.now_us() - before);
            if mean.is_some_and(|mean| mean > RULE.1) {
                filled.stopped = Some(table.fill());
                break 'levels;
            }
        }
        let puts = (number - first) as f64;
        filled.levels.push((
            (bed.now_us() - start) / puts,
            (table.reads - reads) as f64 / puts,
        ));
    }
    Ok(filled)
}

fn report(all: &[Filled], outcome: &mut Outcome) {
    let mut columns = vec!["fill %".to_owned(), "slots/put, theory".to_owned()];
    columns.extend(all.iter().map(|filled| format!("{} ms", filled.bed)));
    columns.extend(all.iter().map(|filled| format!("{} slots/put", filled.bed)));
    let mut table = Table::new("Figure 31: the mean time of a put, by fill", &columns);
    let step = 1.0 / LEVELS as f64;
    for level in 0..LEVELS {
        if all.iter().all(|filled| filled.levels.len() <= level) {
            break;
        }
        let to = step * (level + 1) as f64;
        let mut cells = vec![
            format!("{:.0}", to * 100.0),
            format!("{:.2}", expected_slots(to - step / 2.0)),
        ];
        let cell = |filled: &Filled, of: &dyn Fn((f64, f64)) -> f64| {
            let level = filled.levels.get(level).copied();
            level.map_or("-".to_owned(), |level| format!("{:.3}", of(level)))
        };
        cells.extend(all.iter().map(|filled| cell(filled, &|(us, _)| us / 1e3)));
        cells.extend(all.iter().map(|filled| cell(filled, &|(_, slots)| slots)));
        table.row(cells);
    }
    outcome.tables.push(table);
    for filled in all {
        let bed = filled.bed;
        let at = |fill: f64| filled.levels.get((fill / step) as usize);
        let key = format!("slots_over_theory_at_two_thirds_{bed}");
        match at(0.66) {
            Some((_, slots)) => outcome.bar(key, slots / expected_slots(0.67)),
            None => outcome.miss(key, "the table was not filled so far"),
        }
        let key = format!("time_at_two_thirds_over_empty_{bed}");
        match (at(0.66), at(0.0)) {
            (Some((late, _)), Some((early, _))) => outcome.bar(key, late / early),
            _ => outcome.miss(key, "the table was not filled so far"),
        }
        let key = format!("stop_fill_percent_{bed}");
        match filled.stopped {
            Some(fill) => outcome.bar(key, fill * 100.0),
            None => outcome.miss(
                key,
                format!(
                    "the mean of {} puts never passed {} ms, up to a fill of {:.0} %",
                    RULE.0,
                    RULE.1 / 1e3,
                    filled.levels.len() as f64 * step * 100.0
                ),
            ),
        }
    }
}
