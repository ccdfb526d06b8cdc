// SPDX-License-Identifier: Apache-2.0
//! The time of a get in unsorted and in sorted blocks, by block size.
//!
//! Claim (paper A, 7.2, figures 45 to 48): gets in unsorted blocks with a Bloom Filter Map over
//! their pages take longer the larger the blocks are, since more pages have more false candidates.
//! Gets in sorted blocks with a binary search over scattered headers get faster, since there are
//! fewer false candidates among the blocks. With 256 MB blocks a get takes about 1.5 ms, eight
//! times the drive's read of a 32 KB page.
//!
//! Expected shape: fewer blocks are searched the larger blocks are, the same in every layout. More
//! pages are searched in unsorted blocks, more at 16 bits than at 24, and fewer in sorted blocks.
//! The time follows the pages. The thesis left page headers to the system's page cache. In
//! `sorted_scattered` each step of the binary search is a read of the device. Each doubling adds a
//! step and saves blocks, so time may fall less than pages do, or rise. `sorted_warm` has all but
//! the last two steps in DRAM, as a page cache would, and behaves as in the thesis.
//!
//! Elements, pages and the number of threads are the thesis's. A quick run has a 64th of the
//! elements and a 16th of the block size. So both blocks searched and pages searched change as in
//! the thesis, but less.

use anyhow::Result;

use crate::rig::Bench;
use crate::thesis::{SIZES, ThesisRun};
use crate::{Experiment, Measure, Outcome, Paper, Progress, at_least, at_most, judged, untested};
use senko_thesis::sorted::{Scattered, SortedFile};
use senko_thesis::unsorted::{self, Unsorted};

pub(super) const UNSORTED: [(&str, u32); 2] = [("unsorted16", 16), ("unsorted24", 24)];

pub static EXPERIMENT: Experiment = Experiment {
    name: "thesis-blocks",
    paper: Paper::A,
    source: "paper A, figures 45 to 48",
    text: "the time of a get from unsorted blocks with a page map and from sorted ones, by the size of blocks",
    sentences: &[
        judged(
            "section 7.2.2, figure 45, unsorted blocks",
            "a get takes longer the larger unsorted blocks are, nearly in proportion",
            &["lab/thesis/src/unsorted.rs", "lab/thesis/src/sorted.rs"],
            "2026-11-28: the axis is time, in reads of the same device; blocks are 16 times as large, so twice the time is the least that is \"nearly in proportion\" with 16 bits, and with 24 bits a tenth more; no growth goes against it",
            &[
                at_least("unsorted16_time_large_over_small", 2.0, 1.0),
                at_least("unsorted24_time_large_over_small", 1.1, 1.0),
            ],
        )
        .steady(),
        judged(
            "section 7.2.2, figure 45, sorted blocks",
            "a get gets faster the larger sorted blocks are",
            &["lab/thesis/src/unsorted.rs", "lab/thesis/src/sorted.rs"],
            "2026-11-28: the axis is time, with the headers on the drive as in the thesis; a tenth less bears it out, and any growth goes against it",
            &[at_most("sorted_scattered_time_large_over_small", 0.9, 1.0)],
        )
        .steady(),
        judged(
            "section 7.2.3.2",
            "reads of headers alone take comparatively little time",
            &["lab/thesis/src/unsorted.rs", "lab/thesis/src/sorted.rs"],
            "2026-11-28: the time with the headers on the drive over that with most of them in DRAM: a fifth is little, twice is not",
            &[at_most("sorted_scattered_over_warm_time_large", 1.2, 2.0)],
        )
        .steady(),
        judged(
            "section 7.2.3.3, figure 48",
            "the time is almost linear in the pages searched",
            &["lab/thesis/src/unsorted.rs", "lab/thesis/src/sorted.rs"],
            "2026-11-28: the time for each page searched, of the slowest layout and size over the fastest: the thesis has 1.4 over 1.1; half as much again is almost linear, a factor of two is not",
            &[at_most("time_per_page_spread", 1.5, 2.0)],
        )
        .steady(),
        untested(
            "section 7.2.3.3, figure 48, a page",
            "a page searched takes 1.1 to 1.4 ms, its read 177 us",
            &["lab/experiments/src/thesis.rs"],
            "the time of the thesis's own program in a page; ours is another",
        ),
        untested(
            "section 7.2.1, table 9",
            "the conditions of the measurement",
            &["lab/experiments/src/thesis.rs"],
            "conditions, not a result; the settings of each run say which were kept",
        ),
    ],
    bars: &[],
    run: Measure::Uncapped(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let mut run = ThesisRun::open(bench, progress, outcome, 18)?;
    let geometries = run.geometries.clone();
    unsorted_blocks(&mut run)?;
    for (size, geometry) in geometries.iter().enumerate() {
        run.steps.next("writing sorted blocks");
        let (file, built) = SortedFile::write(run.device(), &run.keys, geometry)?;
        run.built(SIZES[size], "sorted", built);
        let index = run.block_map(size);
        run.measure(size, built.written, &index, &Scattered::cold(file.clone()))?;
        run.measure(size, built.written, &index, &Scattered::warm(file))?;
    }
    shapes(&mut run);
    run.finish();
    Ok(())
}

/// One file of elements in append order, divided into blocks of each size. The largest blocks round
/// the file up the furthest.
pub(super) fn unsorted_blocks(run: &mut ThesisRun<'_>) -> Result<()> {
    let geometries = run.geometries.clone();
    run.steps.next("writing unsorted blocks");
    let largest = geometries.last().expect("there are three sizes");
    let built = unsorted::write(run.device(), &run.keys, largest)?;
    run.built("all", "unsorted", built);
    for (size, geometry) in geometries.iter().enumerate() {
        let index = run.block_map(size);
        for (name, bits) in UNSORTED {
            let layout = run.map(size, &format!("page maps of {name}"), |keys| {
                Unsorted::new(name, keys, geometry, bits)
            });
            run.measure(size, built.written, &index, &layout)?;
        }
    }
    Ok(())
}

/// The thesis's comparisons as numbers; above 1 is a rise, below a fall.
fn shapes(run: &mut ThesisRun<'_>) {
    for layout in [
        "unsorted16",
        "unsorted24",
        "sorted_scattered",
        "sorted_warm",
    ] {
        let (large, small) = ((layout, "large"), (layout, "small"));
        run.time_ratio(&format!("{layout}_time_large_over_small"), large, small);
        run.pages_ratio(&format!("{layout}_pages_large_over_small"), large, small);
    }
    let (over, under) = (("sorted_scattered", "large"), ("sorted_warm", "large"));
    run.time_ratio("sorted_scattered_over_warm_time_large", over, under);
    let each = run
        .rows
        .iter()
        .map(|row| row.present.times_device / row.present.pages());
    let (least, most) = each.fold((f64::INFINITY, 0.0f64), |(least, most), one| {
        (least.min(one), most.max(one))
    });
    run.outcome.bar("time_per_page_spread", most / least);
}
