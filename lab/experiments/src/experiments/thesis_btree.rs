// SPDX-License-Identifier: Apache-2.0
//! Paper A, figures 28 and 29, table 5: the time of each put into an in-place B+tree.
//!
//! Claim: most puts take about 20 ms, and at regular intervals one takes as much as 600 ms. The
//! slowest puts become slower, and fast again near put 2650 and near put 5200. The thesis assumes
//! that the drive's garbage collection is the cause, since pages of the index are overwritten all
//! the time.
//!
//! Expected shape: no put stalls on a page-mapped drive that was erased before, since 8,192 puts
//! write 40 MB, and it has 80 GB. A full page-mapped drive collects garbage. It copies most of a
//! block of 256 pages to get a free one, which takes a quarter of a second. Two such collections in
//! a row take the thesis's half a second, and the intervals are as regular. A drive with log blocks
//! merges blocks at many of the puts. The thesis's drive is page-mapped (4.1.3.1) and was erased
//! before each measurement of 4.1. The thesis does not say what the drive contained before this
//! measurement. The figure fits a full drive.
//!
//! 8,192 puts of random keys with values of 400 bytes, each page durable before the next, as in
//! table 5. A put counts as stalled if it takes ten times the median or more.

use anyhow::Result;
use senko_thesis::Keys;
use senko_thesis::btree::Tree;

use crate::thesis::bed::{Beds, STICK, X25M, X25M_FULL, run_on};
use crate::{
    Experiment, Measure, Options, Outcome, Paper, Progress, Table, at_least, judged, untested,
};

/// Puts, as in table 5.
const PUTS: u64 = 8192;
const VALUE: usize = 400;
/// A put is stalled if it takes at least this many times the median.
const STALL: f64 = 10.0;
/// Points of the figure.
const POINTS: usize = 64;

pub static EXPERIMENT: Experiment = Experiment {
    name: "thesis-btree",
    paper: Paper::A,
    source: "paper A, section 4.2.2, figures 27 to 29, table 5",
    text: "the time of each put into an in-place B+tree, on drives that were erased before and on a full one",
    sentences: &[
        judged(
            "section 4.2.2, figures 27 to 29, table 5, the longest",
            "at regular intervals a put into an in-place B+tree takes up to 600 ms",
            &["lab/thesis/src/btree.rs"],
            "2026-11-28: on an X25-M erased before, as the thesis says of its measurements; half the time bears it out, a tenth goes against it",
            &[
                at_least("longest_ms_x25m", 300.0, 60.0),
                at_least("stalls_x25m", 2.0, 1.0),
            ],
        ),
        untested(
            "section 4.2.2, figure 29, the usual",
            "a usual put takes 20 ms",
            &["lab/thesis/src/btree.rs"],
            "the time of a Java program over a file system of 2011; the simulated drive alone takes a fraction of it",
        ),
    ],
    bars: &[],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    run_on(
        options,
        progress,
        outcome,
        &[X25M, X25M_FULL, STICK],
        |beds, outcome| measure(beds, PUTS, outcome),
    )
}

/// Measures this many puts on each bed. The test calls it with a few.
pub fn measure(beds: &Beds<'_>, puts: u64, outcome: &mut Outcome) -> Result<()> {
    let steps = beds.steps(1);
    outcome.setting("puts", puts);
    outcome.setting("value_bytes", VALUE);
    let keys = Keys::new(beds.seed);
    let mut all = Vec::new();
    for drive in beds.all() {
        steps.next(drive.map_or("a file", |drive| drive.name));
        let bed = beds.bed(drive, "btree", puts * 4096)?;
        let mut tree = Tree::new(bed.device(), VALUE)?;
        let mut times = Vec::with_capacity(puts as usize);
        for number in 0..puts {
            let start = bed.now_us();
            tree.put(&keys.wanted(number))?;
            times.push(bed.now_us() - start);
        }
        if drive.is_none() {
            outcome.bar("writes_per_put", tree.writes as f64 / puts as f64);
            outcome.bar(
                "index_writes_share",
                tree.inner_writes as f64 / tree.writes as f64,
            );
        }
        all.push((bed.name, times));
    }
    report(&all, outcome);
    Ok(())
}

/// The times of a series of puts, in microseconds, and its stalls.
struct Shape {
    usual: f64,
    longest: f64,
    stalls: Vec<usize>,
}

fn shape(times: &[f64]) -> Shape {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
    Shape {
        usual,
        longest: sorted.last().copied().unwrap_or(f64::NAN),
        stalls: (0..times.len())
            .filter(|&at| times[at] >= STALL * usual)
            .collect(),
    }
}

impl Shape {
    /// The median number of puts from one stall to the next.
    fn between(&self) -> Option<usize> {
        let mut gaps: Vec<usize> = self.stalls.windows(2).map(|two| two[1] - two[0]).collect();
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied()
    }
}

fn report(all: &[(&'static str, Vec<f64>)], outcome: &mut Outcome) {
    let mut table = Table::titled("Puts into a B+tree, each page durable");
    for (bed, times) in all {
        let shape = shape(times);
        table.add([
            ("on", (*bed).to_owned()),
            ("median ms", format!("{:.3}", shape.usual / 1e3)),
            ("longest ms", format!("{:.2}", shape.longest / 1e3)),
            (
                "longest/median",
                format!("{:.1}", shape.longest / shape.usual),
            ),
            ("stalls", shape.stalls.len().to_string()),
            (
                "puts between two",
                shape
                    .between()
                    .map_or("-".to_owned(), |puts| puts.to_string()),
            ),
        ]);
        outcome.bar(format!("usual_ms_{bed}"), shape.usual / 1e3);
        outcome.bar(format!("longest_ms_{bed}"), shape.longest / 1e3);
        outcome.bar(format!("stalls_{bed}"), shape.stalls.len() as f64);
    }
    outcome.tables.push(table);
    let mut columns = vec!["puts".to_owned()];
    columns.extend(all.iter().map(|(bed, _)| format!("{bed} ms")));
    let mut figure = Table::new(
        "Figure 28: the longest put of each part of the run",
        &columns,
    );
    let puts = all.first().map_or(0, |(_, times)| times.len());
    let part = puts.div_ceil(POINTS).max(1);
    for from in (0..puts).step_by(part) {
        let to = (from + part).min(puts);
        let mut cells = vec![to.to_string()];
        cells.extend(all.iter().map(|(_, times)| {
            let longest = times[from..to].iter().copied().fold(0.0, f64::max);
            format!("{:.3}", longest / 1e3)
        }));
        figure.row(cells);
    }
    outcome.tables.push(figure);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_takes_ten_times_the_median() {
        let mut times = vec![2.0; 100];
        (times[9], times[19], times[49], times[60]) = (20.0, 100.0, 50.0, 19.0);
        let shape = shape(&times);
        assert_eq!((shape.usual, shape.longest), (2.0, 100.0));
        assert_eq!(shape.stalls, [9, 19, 49]);
        assert_eq!(shape.between(), Some(30));
    }
}
