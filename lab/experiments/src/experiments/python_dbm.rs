// SPDX-License-Identifier: Apache-2.0
//! The DBM from Python compared with `dbm.gnu`, and its shelves compared with a table of SQLite.
//!
//! A program in Python sets, gets and iterates over records of 4 and 100 bytes on one thread.
//! Neither side syncs. Its shelves write small objects, each synced, and so does SQLite with one
//! commit a write. Expected shape: a call of Python costs as much as the engine's work, so the
//! ratios stay near one.

use anyhow::Result;

use crate::rig::Bench;
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, python};

const PROGRAM: &str = include_str!("../python/dbm.py");
const KEYS: [&str; 4] = [
    "set_over_gnu",
    "get_over_gnu",
    "iterate_over_gnu",
    "shelve_over_sqlite3",
];

pub static EXPERIMENT: Experiment = Experiment {
    name: "python-dbm",
    paper: Paper::Design,
    source: "design: Python's users change from dbm.gnu and SQLite",
    text: "the DBM from Python is no slower than dbm.gnu, and its shelves than SQLite's",
    sentences: &[],
    bars: &[
        Bar::more("set_over_gnu", 1.0, 2.0),
        Bar::more("get_over_gnu", 1.0, 2.0),
        Bar::more("iterate_over_gnu", 1.0, 3.0),
        Bar::more("shelve_over_sqlite3", 1.5, 3.0),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, _progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    bench.scratch.need(2 << 30)?;
    let (records, rounds) = (bench.scaled(100_000, 1_000_000), bench.scaled(3, 5));
    let objects = bench.scaled(1000, 10_000);
    outcome.setting("records", records);
    outcome.setting("rounds", rounds);
    outcome.setting("objects", objects);
    let arguments = [
        bench.scratch.folder().display().to_string(),
        records.to_string(),
        rounds.to_string(),
        objects.to_string(),
    ];
    python::measure(&python::interpreter(), PROGRAM, &arguments, &KEYS, outcome)?;
    Ok(())
}
