// SPDX-License-Identifier: Apache-2.0
//! The DRAM for a key of the store, with everything counted.
//!
//! Claim of paper A: two bytes a key, by a Bloom Filter Map of 16 bits an element (section 7.1.1,
//! table 8). The paper calculates from this the DRAM that a drive needs (section 8.4, table 11).
//! Expected shape: resident memory grows linearly, by about two bytes a key. Some tenths of a byte
//! are the page index. With smaller values this part is less, because a page has more of them.
//!
//! The store grows through several sizes. At each size it waits until all background work is done.
//! Then a fresh process opens it only for reading and serves gets. The bar is its resident memory,
//! less that at the smallest size, over the keys between them. Memory that does not grow with keys
//! (the log's index, buffers, the program) is the same at all sizes. It cancels out, and is shown
//! separately. There is no cache of records: its bytes are a setting, and do not grow with keys. In
//! that process the allocator returns memory at once, so resident memory is memory in use. The
//! result has two more figures. One figure is the slope of the filling process's peak resident
//! memory. It includes the temporary memory of sealing and merging, and the allocator's share. The
//! other is the store's own count of its memory.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::kv::driver::{Amount, Work};
use crate::kv::plan::{self, Home, Plan, cell};
use crate::kv::{OURS, Session};
use crate::rig::{Bench, Steps};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table};

/// Memory that the process may use. It is more than it will use, because the question is how much
/// it takes.
const MEMORY: u64 = 4 << 30;
/// Gets before memory is measured, so that buffers are in use.
const WARM: u64 = 20_000;

pub static EXPERIMENT: Experiment = Experiment {
    name: "store-memory",
    paper: Paper::A,
    source: "paper A, section 8.4 and table 11; design: DRAM for each key is the product",
    text: "everything in DRAM that grows with keys is about two bytes a key",
    sentences: &[],
    bars: &[
        Bar::less("dram_bytes_per_key_1000", 2.5, 2.0),
        Bar::less("dram_bytes_per_key_100", 2.2, 1.9),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let mut run = Run {
        bench,
        steps: Steps::new(progress, 10),
        outcome,
    };
    // Values, keys, and the measured sizes as shares of the keys.
    let sizes = [
        (1000, bench.scaled(1_500_000, 16_000_000)),
        (100, bench.scaled(8_000_000, 64_000_000)),
    ];
    for (value_bytes, keys) in sizes {
        if let Err(error) = run.slope(value_bytes, keys) {
            let key = format!("dram_bytes_per_key_{value_bytes}");
            run.outcome.miss(key, format!("{error:#}"));
        }
    }
    Ok(())
}

struct Point {
    keys: u64,
    /// In the process that filled the store.
    filling: f64,
    /// The peak in that process so far.
    peak: f64,
    /// In a fresh process.
    fresh: f64,
    /// The store's own count.
    own: f64,
}

struct Run<'a> {
    bench: &'a Bench<'a>,
    steps: Steps<'a>,
    outcome: &'a mut Outcome,
}

impl Run<'_> {
    /// Fills a store through its sizes.
    fn slope(&mut self, value_bytes: usize, keys: u64) -> Result<()> {
        let plan = Plan::new(self.bench, self.outcome, keys, value_bytes, 1.6)?
            .memory(MEMORY)
            .cache(0);
        plan.note(self.outcome, &format!("{value_bytes}_"));
        let home = Home::new(self.bench, &format!("senko-{value_bytes}"));
        let mut points: Vec<Point> = Vec::new();
        let mut from = 0;
        for eighths in [2, 4, 6, 8] {
            let to = plan.keys() / 8 * eighths;
            self.steps.next(&format!("{to} keys of {value_bytes} B"));
            points.push(self.point(&plan, &home, from, to)?);
            from = to;
        }
        let (first, last) = (&points[0], &points[points.len() - 1]);
        let grown = (last.keys - first.keys) as f64;
        let slope = |of: fn(&Point) -> f64| (of(last) - of(first)) / grown;
        let key = format!("dram_bytes_per_key_{value_bytes}");
        for (more, slope) in [
            ("", slope(|point| point.fresh)),
            ("_peak_while_filling", slope(|point| point.peak)),
            ("_own_count", slope(|point| point.own)),
        ] {
            self.outcome.put(format!("{key}{more}"), Ok(slope));
        }
        let title = format!("Memory by number of keys, values of {value_bytes} B");
        let mut table = Table::titled(title);
        for point in &points {
            let mib = |bytes: f64| cell(bytes / (1 << 20) as f64, 1);
            table.add([
                ("keys", point.keys.to_string()),
                ("fresh process MiB", mib(point.fresh)),
                ("filling process MiB", mib(point.filling)),
                ("its peak MiB", mib(point.peak)),
                ("own count MiB", mib(point.own)),
                ("own count B/key", cell(point.own / point.keys as f64, 2)),
            ]);
        }
        self.outcome.tables.push(table);
        Ok(())
    }

    fn point(&mut self, plan: &Plan, home: &Home, from: u64, to: u64) -> Result<Point> {
        let seed = self.bench.options.seed;
        let (mut session, opened) = plan::start(self.bench, OURS, home, plan, None)?;
        if from == 0 {
            let key = format!("senko_{}", plan.shape.value_bytes);
            self.outcome.setting(key, opened.description);
        }
        let mut fill = plan.fill(from, to, seed);
        fill.batch = 64;
        session.fill_and_settle(&fill)?;
        let filling = session.memory()?;
        session.close()?;
        drop(session);

        let alone = plan.clone().read_only();
        let (mut session, opened) = plan::start(self.bench, OURS, home, &alone, None)?;
        let gets = Work::gets(to, plan.shape, Amount::Ops(WARM), seed);
        session.work(&plan::at_depth(&opened, gets.clone()))?;
        session.work(&gets)?;
        let fresh = session.memory()?;
        let own = own_count(&mut session)?;
        session.close()?;
        Ok(Point {
            keys: to,
            filling: filling.resident as f64,
            peak: filling.peak as f64,
            fresh: fresh.resident as f64,
            own,
        })
    }
}

/// The engine's own count of memory that grows with keys.
fn own_count(session: &mut Session<'_>) -> Result<f64> {
    let facts = session.facts()?;
    let own = facts.get("dram_bytes").and_then(Value::as_f64);
    own.with_context(|| format!("the store does not count its memory: {}", json!(facts)))
}
