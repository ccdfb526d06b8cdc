// SPDX-License-Identifier: Apache-2.0
//! Does `senko device` distinguish drives that map pages from drives with log blocks?
//!
//! Claim: paper A (section 4.1) recognises a drive's translation layer from outside, by the times
//! of its writes. Expected shape: on drives that map pages, a random write over 64 MiB takes about
//! as long as one in order. On drives with log blocks it takes many times as long, since it makes
//! the drive merge blocks. The threshold lies far from both.
//!
//! The drives are the simulator's profiles, whose layers are known, so a verdict is right or wrong.
//! Each profile is measured from three seeds. The drive's own clock counts, so that the figures are
//! the same on every machine, and a quick run is the full one.

use anyhow::Result;
use senko_ssd::device::Parts;
use senko_ssd::drive::Drive;
use senko_ssd::engine_device::SimulatedDevice;
use senko_ssd::profile::{BUILT_IN, Profile};

use crate::{
    Bar, Experiment, Measure, Options, Outcome, Paper, Progress, Table, at_least, judged, untested,
};
use senko_plan::device::{Mapping, SimulatedTarget, measure};

const SEEDS: u64 = 3;
/// Bytes that are used of each drive.
const BYTES: u64 = 256 << 20;

/// The behaviour of a layer, by its specification in profiles.
fn layer(ftl: &str) -> Mapping {
    match ftl.split(':').next() {
        Some("page" | "dftl") => Mapping::Pages,
        _ => Mapping::LogBlocks,
    }
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "device-verdict",
    paper: Paper::A,
    source: "paper A, section 4.1, figures 18 to 25",
    text: "what the times of single writes tell about a drive: maps of pages, or log blocks",
    sentences: &[
        judged(
            "section 4.1, figures 20 to 22, 24 and 25",
            "the times of 2,048 single writes tell whether a drive maps pages or has log blocks",
            &["crates/plan/src/device.rs", "crates/cli/src/device.rs"],
            "2026-11-28: seven simulated drives whose layer is known, three seeds each: one wrong verdict holds in part, one in ten goes against it",
            &[at_least("right", 1.0, 0.9)],
        ),
        untested(
            "sections 4.1.1 and 4.1.2, figures 17 to 19, tables 3 and 4",
            "times of an X25-M by the size of accesses, with its write cache and without",
            &[
                "crates/ssd/src/profile.rs",
                "crates/ssd/tests/it/thesis_drives.rs",
            ],
            "the drive is not here, and the simulated one has its times from the data sheet; `senko device` draws these figures of any drive",
        ),
        untested(
            "section 4.1.4, figure 23",
            "random writes to a USB stick take nearly a hundred times as long as writes in order",
            &["crates/ssd/tests/it/thesis_drives.rs"],
            "the stick is not here, and the profile of the simulated one was made from this figure",
        ),
        untested(
            "section 2.1.4, table 1",
            "a chip's pages, blocks and times",
            &[
                "crates/ssd/src/profile.rs",
                "crates/ssd/tests/it/chapter2.rs",
            ],
            "a data sheet: the profile hy27-4gb has its figures, held by a test",
        ),
    ],
    bars: &[Bar::more("right", 1.0, 1.0)],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let mut table = Table::titled("Verdicts on simulated drives");
    let total = BUILT_IN.len() as u64 * SEEDS;
    let (mut done, mut right) = (0, 0);
    // The ratios nearest to the threshold, from below and from above.
    let (mut pages, mut merges) = (0.0f64, f64::INFINITY);
    for (name, _) in BUILT_IN {
        let profile = Profile::find(name)?;
        let expected = layer(&profile.ftl);
        for seed in options.seed..options.seed + SEEDS {
            progress.step(done, total, name);
            let parts = Parts {
                seed,
                ..Parts::default()
            };
            let device = SimulatedDevice::new(Drive::new(&profile, &parts)?);
            let measured = measure(&mut SimulatedTarget::new(device, BYTES), seed, &())?;
            let verdict = &measured.verdict;
            let ratio = verdict.random_over_in_order;
            match expected {
                Mapping::Pages => pages = pages.max(ratio),
                Mapping::LogBlocks => merges = merges.min(ratio),
            }
            let is_right = verdict.mapping == expected;
            right += u64::from(is_right);
            done += 1;
            let kind = match verdict.mapping {
                Mapping::Pages => "maps pages",
                Mapping::LogBlocks => "log blocks",
            };
            table.add([
                ("drive", (*name).to_owned()),
                ("layer", profile.ftl.clone()),
                ("seed", seed.to_string()),
                ("random over in order", format!("{ratio:.2}")),
                (
                    "stalls of 2048 in order",
                    measured.series_in_order.stalls.to_string(),
                ),
                (
                    "stalls of 2048 random",
                    measured.series_random.stalls.to_string(),
                ),
                ("verdict", kind.to_owned()),
                ("right", if is_right { "yes" } else { "no" }.to_owned()),
            ]);
        }
    }
    progress.step(total, total, "done");
    outcome.bar("right", right as f64 / total as f64);
    outcome.bar("page_mapped_ratio_at_most", pages);
    outcome.bar("log_block_ratio_at_least", merges);
    outcome.setting("seeds_each", SEEDS);
    outcome.setting("bytes_used", BYTES);
    outcome.tables.push(table);
    Ok(())
}
