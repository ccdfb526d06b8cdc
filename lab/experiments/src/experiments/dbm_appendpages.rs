// SPDX-License-Identifier: Apache-2.0
//! Pages written for a leaf that changed: with a translation table, and with path copying.
//!
//! Claim (the paper, 2.1): if a page moves when it is written, a translation table avoids rewriting
//! its parents. Without one, each update writes as many pages as the tree is high. Expected shape:
//! ours writes one page for each leaf that changed, and some of the table; LMDB, which copies
//! paths, writes its height and more.
//!
//! `docs/measurements/dbm-appendpages.md` has the method.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use senko_dbm::{Durability, Options as DbmOptions};
use senko_io::PAGE_SIZE;
use senko_io::trace::Recorder;

use super::dbm_paper::written;
use crate::commits::ours::Ours;
use crate::commits::rival::LMDB;
use crate::commits::{Contender, Order, Work, key, value};
use crate::rig::{Bench, Steps, process, ratio};
use crate::{
    Bar, Experiment, Measure, Outcome, Paper, Progress, Reason, Table, at_least, at_most, judged,
};

/// Keys from one changed record to the next: more than any leaf has.
const STRIDE: u64 = 1000;

pub static EXPERIMENT: Experiment = Experiment {
    name: "dbm-appendpages",
    paper: Paper::D,
    source: "paper D, section 2.1",
    text: "pages written for a changed leaf with a translation table, and by LMDB, which copies paths",
    sentences: &[
        judged(
            "section 2.1, figure 1",
            "with a translation table a changed leaf is one page written",
            &["crates/dbm/src/pages/mapping.rs"],
            "2026-11-28: pages written for each changed leaf: a tenth for the table, half a page more goes against it",
            &[at_most("page_writes_per_update", 1.1, 1.5)],
        )
        .steady(),
        judged(
            "section 2.1",
            "without it the pages up to the root are written again",
            &["crates/dbm/src/pages/mapping.rs"],
            "2026-11-28: pages that LMDB, which copies paths, writes for a commit of one record: two is a path, one is not",
            &[at_least("lmdb_pages_per_commit_of_one", 2.0, 1.5)],
        )
        .steady(),
    ],
    bars: &[Bar::less("page_writes_per_update", 1.05, 1.0)],
    run: Measure::Uncapped(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let steps = Steps::new(progress, 3);
    bench.scratch.need(2 << 30)?;
    let (keys, commits) = bench.scaled((1_000_000, 3_000), (10_000_000, 100_000));
    steps.next("ours and LMDB");
    measure(bench.scratch.folder(), keys, commits, outcome)?;
    Ok(())
}

/// All figures. The test calls it with few records.
pub fn measure(scratch: &Path, keys: u64, commits: u64, outcome: &mut Outcome) -> Result<()> {
    outcome.setting("keys", keys);
    outcome.setting("commits_of_one", commits);
    let trace = scratch.join("pages.trace");
    let recorder = Arc::new(Recorder::create(&trace)?);
    // Without a background thread, the same commits always meet the same checkpoints.
    let options = DbmOptions {
        recorder: Some(recorder.clone()),
        threads: 0,
        ..DbmOptions::default()
    };
    let home = scratch.join("appendpages");
    let mut ours = Ours::new(&home.join("senko"), true, options)?;
    ours.fill(keys)?;
    ours.db().checkpoint()?;
    let leaves = keys.div_ceil(STRIDE);
    let (batch, _) = written(&recorder, || {
        let mut tx = ours.db().begin();
        for number in (0..keys).step_by(STRIDE as usize) {
            tx.put(
                ours.table(),
                &key(number),
                &value(number, u64::from(u32::MAX)),
            )?;
        }
        tx.commit(Durability::Synced)?;
        Ok(ours.db().checkpoint()?)
    })?;
    let work = Work {
        order: Order::Random(keys),
        ..Work::ascending(commits, 1)
    };
    let (single, _) = written(&recorder, || {
        ours.run(&work)?;
        Ok(ours.db().checkpoint()?)
    })?;
    ours.check(keys)?;
    let pages = |bytes: u64, updates: u64| bytes as f64 / PAGE_SIZE as f64 / updates as f64;
    let per_update = pages(batch, leaves);
    let one = Ok(pages(single, commits));
    let lmdb = lmdb(scratch, &home, keys, &work).map(|bytes| pages(bytes, commits));
    let lmdb = lmdb.reason();
    let mut table = Table::titled("Pages written");
    for (what, figure) in [
        ("ours, a changed leaf and its checkpoint", &Ok(per_update)),
        ("ours, a commit of one record", &one),
        ("LMDB, a commit of one record", &lmdb),
    ] {
        let shown = figure
            .as_ref()
            .map_or("-".to_owned(), |n| format!("{n:.3}"));
        table.add([("what", what.to_owned()), ("pages", shown)]);
    }
    outcome.tables.push(table);
    outcome.setting("leaves_changed", leaves);
    outcome.bar("page_writes_per_update", per_update);
    outcome.put("lmdb_pages_over_ours", ratio(&lmdb, &one));
    outcome.put("pages_per_commit_of_one", one);
    outcome.put("lmdb_pages_per_commit_of_one", lmdb);
    drop(ours);
    std::fs::remove_dir_all(&home)?;
    std::fs::remove_file(&trace)?;
    Ok(())
}

/// Bytes that LMDB passed to write calls for the same work. They include its answers over the pipe:
/// 8 bytes per commit.
fn lmdb(programs: &Path, home: &Path, keys: u64, work: &Work) -> Result<u64> {
    let started = LMDB.start(programs, &home.join("lmdb"), true);
    let mut rival = started.map_err(|why| anyhow!(why))?;
    rival.fill(keys)?;
    let count = |pid| process::write_calls(pid);
    let before = count(rival.pid())?;
    rival.run(work)?;
    let after = count(rival.pid())?;
    rival.check(keys)?;
    Ok(after - before)
}
