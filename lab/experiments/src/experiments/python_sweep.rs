// SPDX-License-Identifier: Apache-2.0
//! A sweep of forty cells from Python, on two processes compared with one.
//!
//! Processes start before the measurement. On a machine with two cores nothing else should run.
//! Expected shape: cells share nothing, so two processes are nearly twice as fast.

use anyhow::Result;

use crate::rig::Bench;
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, python};

const PROGRAM: &str = include_str!("../python/sweep.py");

pub static EXPERIMENT: Experiment = Experiment {
    name: "python-sweep",
    paper: Paper::Design,
    source: "design: sweeps of the simulator scale with processes",
    text: "two processes run a sweep nearly twice as fast as one",
    sentences: &[],
    bars: &[Bar::more("speedup2", 1.7, 1.9)],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, _progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let (requests, rounds) = (bench.scaled(50_000, 500_000), 3);
    outcome.setting("cells", 40);
    outcome.setting("requests", requests);
    outcome.setting("rounds", rounds);
    let arguments = [requests.to_string(), rounds.to_string()];
    python::measure(
        &python::interpreter(),
        PROGRAM,
        &arguments,
        &["speedup2"],
        outcome,
    )?;
    Ok(())
}
