// SPDX-License-Identifier: Apache-2.0
//! The size of an empty database, and the time of a program that opens one, reads a record and
//! closes it.
//!
//! Most programs that use ndbm do this: they have many small databases, opened for a moment.
//! Expected shape: a clean database is opened by its superblock and its translation table, so the
//! time grows with the pages, not with the log. `docs/measurements/dbm-small.md` has the method.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use senko_dbm::{Database, Options as DbmOptions};
use senko_workload::Rng;

use crate::commits::ours::{Ours, bytes_of};
use crate::commits::{belongs, key};
use crate::rig::{Bench, Steps, median};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table};

pub static EXPERIMENT: Experiment = Experiment {
    name: "dbm-small",
    paper: Paper::Design,
    source: "design: programs that use ndbm open many databases for a moment",
    text: "an empty database takes little space, and opening a clean one takes some reads",
    sentences: &[],
    bars: &[
        Bar::less("empty_bytes", 262_144.0, 65_536.0),
        Bar::less("open_fetch_close_ms", 10.0, 3.0),
    ],
    run: Measure::Uncapped(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let steps = Steps::new(progress, 2);
    bench.scratch.need(1 << 30)?;
    let times = bench.scaled(20, 200);
    steps.next("an empty database, and 1M records");
    // The quick run has as many records: it measures opening, which depends on them.
    measure(
        bench.scratch.folder(),
        1_000_000,
        times,
        bench.options.seed,
        outcome,
    )?;
    Ok(())
}

/// Both figures. The test calls it with few records.
pub fn measure(
    scratch: &Path,
    keys: u64,
    times: u64,
    seed: u64,
    outcome: &mut Outcome,
) -> Result<()> {
    let mut table = Table::titled("Small uses");
    let folder = scratch.join("empty");
    std::fs::create_dir_all(&folder)?;
    Database::open(&folder.join("db"), DbmOptions::default())?.close()?;
    let bytes = bytes_of(&folder)?;
    outcome.bar("empty_bytes", bytes as f64);
    table.add([
        ("what", "empty_bytes".to_owned()),
        ("figure", bytes.to_string()),
    ]);
    std::fs::remove_dir_all(&folder)?;
    let folder = scratch.join("records");
    let mut ours = Ours::new(&folder, true, DbmOptions::default())?;
    ours.fill(keys)?;
    ours.close()?;
    outcome.setting("records", keys);
    outcome.setting("openings", times);
    for to_read in [false, true] {
        let (mut each, mut rng) = (Vec::new(), Rng::new(seed));
        for _ in 0..times {
            let number = rng.below(keys);
            let since = Instant::now();
            let path = folder.join("db");
            let db = if to_read {
                Database::open_to_read(&path, DbmOptions::default())?
            } else {
                Database::open(&path, DbmOptions::default())?
            };
            let records = db.table("records")?;
            let found = db.snapshot().get(&records, &key(number))?;
            db.close()?;
            each.push(since.elapsed().as_secs_f64() * 1e3);
            let found = found.is_some_and(|found| belongs(number, &found));
            ensure!(found, "the record {number} is not what was put");
        }
        let name = if to_read {
            "open_fetch_close_to_read_ms"
        } else {
            "open_fetch_close_ms"
        };
        let middle = median(each).unwrap_or(f64::NAN);
        outcome.bar(name, middle);
        table.add([
            ("what", name.to_owned()),
            ("figure", format!("{middle:.3}")),
        ]);
    }
    outcome.tables.push(table);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
