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
//! the thesis, but less. Keys of results keep the thesis's block sizes.

use anyhow::Result;

use crate::thesis::{BLOCK_BITS, SIZES, ThesisRun};
use crate::{Bar, Claim, Experiment, Options, Outcome, Paper, Progress};
use senko_thesis::bloom::BlockBloom;
use senko_thesis::sorted::{Scattered, SortedFile};
use senko_thesis::unsorted::{self, Unsorted};

/// The experiment.
pub struct ThesisBlocks;

pub(super) const UNSORTED: [(&str, u32); 2] = [("unsorted16", 16), ("unsorted24", 24)];

impl Experiment for ThesisBlocks {
    fn name(&self) -> &'static str {
        "thesis-blocks"
    }

    fn claim(&self) -> Claim {
        Claim {
            paper: Paper::A,
            source: "paper A, figures 45 to 48",
            text: "larger blocks slow gets in unsorted blocks with a page map down, and speed gets in sorted blocks up",
            bars: const {
                &[
                    Bar::more("unsorted16_pages_256mb_over_16mb", 1.02, 1.1),
                    Bar::less("sorted_scattered_pages_256mb_over_16mb", 0.98, 0.9),
                ]
            },
            published: &[],
        }
    }

    fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Outcome> {
        let mut run = ThesisRun::open(options, progress, 18)?;
        let geometries = run.geometries.clone();
        unsorted_blocks(&mut run)?;
        for (size, geometry) in geometries.iter().enumerate() {
            run.steps.next("writing sorted blocks");
            let (file, built) = SortedFile::write(run.device(), &run.keys, geometry)?;
            run.built(SIZES[size], "sorted", built);
            let index = run.map(size, "map over blocks", |keys| {
                BlockBloom::build(keys, geometry, BLOCK_BITS)
            });
            run.measure(size, built.written, &index, &Scattered::cold(file.clone()))?;
            run.measure(size, built.written, &index, &Scattered::warm(file))?;
        }
        shapes(&mut run);
        run.finish()
    }
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
        let index = run.map(size, "map over blocks", |keys| {
            BlockBloom::build(keys, geometry, BLOCK_BITS)
        });
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
        let (large, small) = ((layout, "256mb"), (layout, "16mb"));
        run.time_ratio(&format!("{layout}_time_256mb_over_16mb"), large, small);
        run.pages_ratio(&format!("{layout}_pages_256mb_over_16mb"), large, small);
    }
    for size in SIZES {
        let (over, under) = (("sorted_scattered", size), ("unsorted24", size));
        run.time_ratio(&format!("sorted_over_unsorted24_time_{size}"), over, under);
    }
}
