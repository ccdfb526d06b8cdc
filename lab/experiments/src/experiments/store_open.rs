// SPDX-License-Identifier: Apache-2.0
//! How long until a store serves again, after a kill with a dirty log, and after it was closed?
//!
//! Expected shape: a clean open reads the manifest, the heads of blocks and the maps, so its time
//! grows slowly with keys. After a kill it also reads the log, whose size is fixed.
//!
//! A process fills the store and then continues to write; each put is written to the device before
//! it returns. The process is killed by SIGKILL at several fill levels of the log. A new process
//! opens the store and reads a key. The time from before `open` until that key is measured. The
//! puts that the killed process had reported are then read and checked, and the run ends if one is
//! lost. Files are read without the page cache, so opening is cold.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::kv::plan::{self, Home, Plan, cell};
use crate::kv::protocol::Request;
use crate::kv::{Durability, OURS};
use crate::rig::{Bench, Steps};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table};

/// Puts before the end that are checked after a kill.
const BACK: u64 = 100_000;

pub static EXPERIMENT: Experiment = Experiment {
    name: "store-open",
    paper: Paper::Design,
    source: "design question: what a store of 16M keys costs to open",
    text: "a store serves within seconds after a kill, and within one after it was closed",
    sentences: &[],
    bars: &[
        Bar::less("open_after_kill_s", 5.0, 2.0),
        Bar::less("open_clean_s", 1.0, 0.3),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let keys = bench.scaled(500_000, 16_000_000);
    let plan = Plan::new(bench, outcome, keys, 1000, 1.7)?.durable(Durability::Kill);
    plan.note(outcome, "");
    let rounds = bench.scaled(3, 7);
    let mut run = Run {
        bench,
        steps: Steps::new(progress, 2 + 2 * rounds),
        table: Table::titled("Opening"),
        plan,
        home: Home::new(bench, OURS),
    };
    run.fill(outcome)?;
    let mut killed = Vec::new();
    for round in 0..rounds {
        killed.push(run.after_kill(round, rounds)?);
    }
    let mut clean = Vec::new();
    for _ in 0..rounds {
        clean.push(run.after_close()?);
    }
    let worst = |all: &[f64]| Ok(all.iter().copied().fold(f64::NAN, f64::max));
    outcome.put("open_after_kill_s", worst(&killed));
    outcome.put("open_clean_s", worst(&clean));
    let Run { table, home, .. } = run;
    drop(home);
    outcome.tables.push(table);
    Ok(())
}

struct Run<'a> {
    bench: &'a Bench<'a>,
    steps: Steps<'a>,
    table: Table,
    plan: Plan,
    home: Home,
}

impl Run<'_> {
    fn fill(&mut self, outcome: &mut Outcome) -> Result<()> {
        self.steps.next("filling");
        let (mut session, opened) = plan::start(self.bench, OURS, &self.home, &self.plan, None)?;
        outcome.setting("senko", opened.description);
        let mut fill = self.plan.fill(0, self.plan.keys(), self.bench.options.seed);
        fill.batch = 64;
        session.fill_and_settle(&fill)?;
        let facts = session.facts()?;
        outcome.setting("facts", Value::Object(facts));
        session.close()?;
        Ok(())
    }

    /// Kills a writer and opens the store that it left; returns the seconds until a key was read.
    fn after_kill(&mut self, round: u64, rounds: u64) -> Result<f64> {
        self.steps.next(&format!("kill {}", round + 1));
        let (session, _) = plan::start(self.bench, OURS, &self.home, &self.plan, None)?;
        let (keys, shape) = (self.plan.keys(), self.plan.shape);
        // From a half to one and a half fills of the log, whether a put takes its bytes there or a
        // page.
        let fill = self.plan.tuning.block_bytes / shape.bytes();
        let puts = fill / 2 + fill * round / (rounds - 1).max(1);
        let reached = session
            .write_and_kill(&Request::WriteUntilKilled { keys, shape }, |reached| {
                reached >= puts
            })?;
        let (mut session, opened) = plan::start(self.bench, OURS, &self.home, &self.plan, Some(0))?;
        let seconds = opened
            .first_get_seconds
            .context("no key was read after opening")?;
        let checked = session.check(&Request::CheckReached {
            keys,
            shape,
            reached,
            back: BACK,
        })?;
        ensure!(checked.worked.found > 0, "nothing was checked after a kill");
        session.close()?;
        self.row(
            "a kill",
            json!(reached),
            opened.seconds,
            seconds,
            checked.worked.found,
        );
        Ok(seconds)
    }

    /// Opens the closed store; returns the seconds until a key was read.
    fn after_close(&mut self) -> Result<f64> {
        self.steps.next("a clean open");
        let (mut session, opened) = plan::start(self.bench, OURS, &self.home, &self.plan, Some(1))?;
        let seconds = opened
            .first_get_seconds
            .context("no key was read after opening")?;
        session.close()?;
        self.row("a close", Value::Null, opened.seconds, seconds, 0);
        Ok(seconds)
    }

    fn row(&mut self, after: &str, puts: Value, open: f64, first: f64, checked: u64) {
        let puts = if puts.is_null() {
            "-".to_owned()
        } else {
            puts.to_string()
        };
        self.table.add([
            ("after", after.to_owned()),
            ("puts of the killed", puts),
            ("open s", cell(open, 3)),
            ("first get s", cell(first, 3)),
            ("checked puts", checked.to_string()),
        ]);
    }
}
