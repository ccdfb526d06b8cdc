// SPDX-License-Identifier: Apache-2.0
//! The cost that Python adds to a run of the simulator, compared with the command.
//!
//! Both run the same workload on the same drive, in turn. Their results must be equal.
//! Expected shape: the engine does all the work, and Python parses one line of JSON.

use anyhow::Result;

use crate::rig::Bench;
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, python};

const PROGRAM: &str = include_str!("../python/ssd.py");

pub static EXPERIMENT: Experiment = Experiment {
    name: "python-ssd",
    paper: Paper::Design,
    source: "design: notebooks run the simulator",
    text: "a run from Python takes as long as the command's",
    sentences: &[],
    bars: &[Bar::less("overhead", 1.05, 1.02)],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, _progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let (requests, rounds) = (bench.scaled(4_000_000, 20_000_000), 3);
    let workload = format!("zipf:count={requests},rate=500,pages=100000");
    outcome.setting("workload", workload.as_str());
    outcome.setting("rounds", rounds);
    let arguments = [
        bench.options.program.display().to_string(),
        workload,
        rounds.to_string(),
    ];
    python::measure(
        &python::interpreter(),
        PROGRAM,
        &arguments,
        &["overhead"],
        outcome,
    )?;
    Ok(())
}
