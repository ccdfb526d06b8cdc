// SPDX-License-Identifier: Apache-2.0
//! The cost of a get: reads of the device, time against one read, and the rate with many under way
//! against the device's.
//!
//! Claim of paper A, section 9.4: a get ends after one page read in hash-table blocks, and after
//! two in sorted ones. A lookup took 800 us (section 10.2, figure 51). That is 12 times its drive's
//! 65 us page read (table 3) and 4.5 times its 177 us read of 32 KB (section 7.2.3.3, figure 18).
//! Misses cost reads only for false positives of the filters (section 5.4.2). Expected shape: a get
//! takes 1.00 reads and some thousandths, and a tenth more time than the device's own read of 4 KB.
//! 64 gets under way come near the device's rate. RocksDB is below, since it pays for locks, a
//! cache and threads.
//!
//! Within a round, three kinds of reads take turns on the same disk. Our gets use the store's map
//! or the thesis's Bloom Filter Map (`--index bloom`). The device's reads are of our own file.
//! RocksDB's gets are of the same items, with the same memory cap. A bar is the median of the
//! rounds' ratios. The device's rate is the better of fio's and our own ring's. The memory is a
//! small part of the data, and reads bypass the page cache, so gets are cold. The comparison with
//! the device runs without our cache of records. For the comparison with RocksDB the store is
//! opened again in each round, with a cache as large as RocksDB's (`cache_bytes`). The gets before
//! the measured ones fill both caches.
//!
//! The reads of a get are the disk's count (`/proc/diskstats`) over gets; the result also has the
//! kernel's count for the process, which other processes do not disturb.

use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::json;

use crate::kv::driver::Work;
use crate::kv::limit::DEPTH;
use crate::kv::plan::{self, Home, Plan, cell};
use crate::kv::protocol::Opened;
use crate::kv::{DeviceReads, OURS, Session, Step};
use crate::rig::fio::{self, Job};
use crate::rig::{Bench, Figure, Steps, median};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Reason, Table, at_most, judged};

/// Our store with the thesis's map, in tables.
const BLOOM: &str = "senko, thesis's map";

const RIVAL: &str = "rocksdb";

pub static EXPERIMENT: Experiment = Experiment {
    name: "store-gets",
    paper: Paper::A,
    source: "paper A, sections 9.4 and 10.2, figure 51",
    text: "the device's reads for each get, and the rate of gets over the device's and RocksDB's",
    sentences: &[judged(
        "section 9.4, the store",
        "an index at the head and whole pages make a get one page read, and a miss none",
        &["crates/store/src/read/get.rs"],
        "2026-11-28: the device's count, in the product instead of the thesis's blocks: a twentieth of a read is sampling, half is another structure",
        &[
            at_most("reads_per_hit", 1.05, 1.5),
            at_most("reads_per_miss", 0.05, 0.5),
        ],
    )],
    bars: &[
        Bar::less("reads_per_hit", 1.05, 1.01),
        Bar::less("reads_per_miss", 0.05, 0.005),
        Bar::more("gets_over_device", 0.85, 0.95),
        Bar::more("gets_over_rocksdb", 1.15, 1.3),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let keys = bench.scaled(700_000, 16_000_000);
    let plan = Plan::new(bench, outcome, keys, 1000, 4.5)?;
    plan.note(outcome, "");
    outcome.setting(
        "gets_over_rocksdb_cache",
        format!(
            "both have a cache of {} MiB; for everything else senko has none",
            plan.tuning.cache >> 20
        ),
    );
    let rounds = bench.scaled(4, 9);
    outcome.setting("rounds", rounds);
    outcome.setting("rival_threads", DEPTH);
    let mut steps = Steps::new(progress, 4 + rounds as u64);
    let mut table = Table::new(
        "Gets, medians of the rounds",
        &[
            "who",
            "load",
            "a second",
            "mean us",
            "p99 us",
            "cpu us",
            "reads/get",
            "own pages/get",
        ],
    );
    let mut run = Run::new(bench, &plan, outcome, &mut steps)?;
    for round in 0..rounds {
        steps.next(&format!("round {}", round + 1));
        run.round(round as u64)?;
    }
    run.report(outcome, &mut table);
    drop(run);
    outcome.tables.push(table);
    Ok(())
}

/// A store, and what it showed in each round.
struct Side<'a> {
    session: Session<'a>,
    opened: Opened,
    home: Home,
    one: Vec<Step>,
    deep: Vec<Step>,
    misses: Vec<Step>,
}

impl Side<'_> {
    fn one(&mut self, gets: &Work) -> Result<()> {
        self.one.push(self.session.work(gets)?);
        Ok(())
    }

    fn deep(&mut self, gets: &Work) -> Result<()> {
        let deep = plan::at_depth(&self.opened, gets.clone());
        self.deep.push(self.session.work(&deep)?);
        Ok(())
    }

    fn misses(&mut self, gets: &Work) -> Result<()> {
        let missing = 1.0;
        let misses = Work {
            missing,
            ..gets.clone()
        };
        self.misses.push(self.session.work(&misses)?);
        Ok(())
    }

    fn all(&mut self, gets: &Work) -> Result<()> {
        self.one(gets)?;
        self.deep(gets)?;
        self.misses(gets)
    }
}

struct Run<'a> {
    bench: &'a Bench<'a>,
    plan: Plan,
    ours: Side<'a>,
    /// Our store with the thesis's map.
    bloom: Result<Side<'a>, String>,
    rival: Result<Side<'a>, String>,
    span: u64,
    seconds: f64,
    file: std::path::PathBuf,
    /// Ours with a cache as large as the rival's.
    cached: Vec<Step>,
    device_one: Vec<Step>,
    device_many: Vec<Step>,
    fio_rate: Vec<f64>,
    fio_trouble: Option<String>,
}

fn side<'a>(
    bench: &'a Bench<'a>,
    engine: &str,
    plan: &Plan,
    outcome: &mut Outcome,
) -> Result<Side<'a>> {
    let of_it = if plan.tuning.bloom { "-bloom" } else { "" };
    let home = Home::new(bench, &format!("{engine}{of_it}"));
    let (mut session, opened) = plan::start(bench, engine, &home, plan, None)?;
    outcome.setting(format!("{engine}{of_it}"), opened.description.clone());
    let mut fill = plan.fill(0, plan.keys(), bench.options.seed);
    fill.batch = 64;
    session.fill_and_settle(&fill)?;
    Ok(Side {
        session,
        opened,
        home,
        one: Vec::new(),
        deep: Vec::new(),
        misses: Vec::new(),
    })
}

impl<'a> Run<'a> {
    fn new(
        bench: &'a Bench<'a>,
        plan: &Plan,
        outcome: &mut Outcome,
        steps: &mut Steps<'_>,
    ) -> Result<Run<'a>> {
        steps.next("filling senko");
        let ours = side(bench, OURS, &plan.clone().cache(0), outcome)?;
        let file = ours
            .opened
            .file
            .clone()
            .ok_or_else(|| anyhow!("senko does not say which file its reads go to"))?;
        steps.next("filling senko with the thesis's map");
        let with_bloom = plan.clone().cache(0).bloom();
        let bloom = side(bench, OURS, &with_bloom, outcome).reason();
        steps.next("filling the rival");
        let rival = side(bench, RIVAL, plan, outcome).reason();
        // The file is a little larger than its live contents, and its end may never have been
        // written.
        let span = plan.tuning.live_bytes();
        outcome.setting("device_span_bytes", span);
        Ok(Run {
            bench,
            plan: plan.clone(),
            ours,
            bloom,
            rival,
            span,
            seconds: bench.scaled(0.7, 4.0),
            file,
            cached: Vec::new(),
            device_one: Vec::new(),
            device_many: Vec::new(),
            fio_rate: Vec::new(),
            fio_trouble: None,
        })
    }

    fn round(&mut self, round: u64) -> Result<()> {
        let seed = self.bench.options.seed * 1000 + round;
        let time = Duration::from_secs_f64(self.seconds);
        let gets = self.plan.gets(self.seconds, seed);
        let device = |many| DeviceReads {
            span: self.span,
            seconds: self.seconds,
            many,
            seed,
        };
        let (one, many) = (device(false), device(true));
        let ours = &mut self.ours;
        self.device_one.push(ours.session.device_reads(one)?);
        ours.one(&gets)?;
        let step = ours.session.device_reads(many)?;
        let written = step.worked.found as f64 / step.worked.gets as f64;
        self.device_many.push(step);
        ours.deep(&gets)?;
        let job = Job {
            file: &self.file,
            span: self.span,
            block: 4096,
            depth: DEPTH,
            time,
            core: self.bench.server_core(),
        };
        match fio::random_reads(&job) {
            // It does not know which pages were never written.
            Ok(reads) => self.fio_rate.push(reads.per_second * written),
            Err(why) => {
                self.fio_rate.push(f64::NAN);
                self.fio_trouble = Some(why);
            }
        }
        self.ours.misses(&gets)?;
        if let Ok(bloom) = &mut self.bloom {
            bloom.all(&gets)?;
        }
        if self.rival.is_ok() {
            self.cached_gets(&gets, seed)?;
        }
        if let Ok(rival) = &mut self.rival {
            rival.all(&gets)?;
        }
        Ok(())
    }

    /// Our gets with a cache as large as the rival's, filled by as many gets as the rival had in
    /// this round before its own that count.
    fn cached_gets(&mut self, gets: &Work, seed: u64) -> Result<()> {
        let Side {
            session,
            opened,
            home,
            ..
        } = &mut self.ours;
        session.close()?;
        session.open(home.path(), &self.plan.tuning, None)?;
        let warm = Work {
            seed: seed ^ (1 << 40),
            ..gets.clone()
        };
        session.work(&plan::at_depth(opened, warm))?;
        let step = session.work(&plan::at_depth(opened, gets.clone()))?;
        self.cached.push(step);
        session.close()?;
        let cold = self.plan.clone().cache(0);
        session.open(home.path(), &cold.tuning, None)?;
        Ok(())
    }

    fn report(&self, outcome: &mut Outcome, table: &mut Table) {
        let over = |steps: &[Step], of: fn(&Step) -> f64| {
            median(steps.iter().map(of).collect())
                .ok_or_else(|| "the kernel's disk statistics are not available".to_owned())
        };
        let ours = &self.ours;
        outcome.put("reads_per_hit", over(&ours.deep, Step::reads_per_get));
        outcome.put("reads_per_miss", over(&ours.misses, Step::reads_per_get));
        let own_pages = |steps: &[Step]| over(steps, Step::own_pages_per_get);
        outcome.put("own_pages_per_hit", own_pages(&ours.deep));
        outcome.put("own_pages_per_miss", own_pages(&ours.misses));
        let each =
            |steps: &[Step], of: fn(&Step) -> f64| -> Vec<f64> { steps.iter().map(of).collect() };
        let mean = |steps: &[Step]| each(steps, |step| step.worked.get.mean_us);
        let (get_us, device_us) = (mean(&ours.one), mean(&self.device_one));
        outcome.put("latency1_over_device", of_pairs(&get_us, &device_us));
        outcome.put("get_mean_us", of_rounds(&get_us));
        outcome.put("device_mean_us", of_rounds(&device_us));
        let found = |step: &Step| step.worked.found as f64 / step.worked.seconds;
        let rate = |steps: &[Step]| each(steps, found);
        let ring = rate(&self.device_many);
        let both = self.fio_rate.iter().zip(&ring);
        let device: Vec<f64> = both.map(|(fio, ring)| fio.max(*ring)).collect();
        outcome.put("gets_over_device", of_pairs(&rate(&ours.deep), &device));
        let of = |side: &Result<Side<'_>, String>, figure: &dyn Fn(&Side<'_>) -> Figure| {
            side.as_ref().map_err(String::clone).and_then(figure)
        };
        outcome.put(
            "bloom_reads_per_hit",
            of(&self.bloom, &|side| over(&side.deep, Step::reads_per_get)),
        );
        outcome.put(
            "bloom_reads_per_miss",
            of(&self.bloom, &|side| over(&side.misses, Step::reads_per_get)),
        );
        outcome.put(
            "static_over_bloom_gets",
            of(&self.bloom, &|side| {
                of_pairs(&rate(&ours.deep), &rate(&side.deep))
            }),
        );
        outcome.put(
            "gets_over_rocksdb",
            of(&self.rival, &|side| {
                of_pairs(&rate(&self.cached), &rate(&side.deep))
            }),
        );
        if let Some(why) = &self.fio_trouble {
            outcome.setting("fio", why.clone());
        }
        outcome.setting("gets_a_second", json!(median(rate(&ours.deep))));
        for (who, side) in [
            (OURS, Some(ours)),
            (BLOOM, self.bloom.as_ref().ok()),
            (RIVAL, self.rival.as_ref().ok()),
        ] {
            let Some(side) = side else { continue };
            for (load, steps) in [
                ("one at a time", &side.one),
                ("64 under way", &side.deep),
                ("misses, one at a time", &side.misses),
            ] {
                row(table, who, load, steps);
            }
        }
        row(table, OURS, "64 under way, with a cache", &self.cached);
        let mut device_row = |load: &str, a_second: &[f64], mean_us: &[f64]| {
            let text = |all: &[f64], digits| cell(of_rounds(all).unwrap_or(f64::NAN), digits);
            let mut cells = vec!["device".to_owned(), load.to_owned()];
            cells.extend([text(a_second, 0), text(mean_us, 1)]);
            cells.extend(["-"; 4].map(str::to_owned));
            table.row(cells);
        };
        device_row("one at a time", &rate(&self.device_one), &device_us);
        device_row("64 under way, fio", &self.fio_rate, &[]);
        device_row("64 under way, own ring", &ring, &[]);
    }
}

/// The median of the rounds.
fn of_rounds(all: &[f64]) -> Figure {
    median(all.to_vec()).ok_or_else(|| "no round showed it".to_owned())
}

/// The median of the results of the rounds' pairs.
fn of_pairs(over: &[f64], under: &[f64]) -> Figure {
    median(over.iter().zip(under).map(|(a, b)| a / b).collect())
        .ok_or_else(|| "no round showed both".to_owned())
}

fn row(table: &mut Table, who: &str, load: &str, steps: &[Step]) {
    if steps.is_empty() {
        return;
    }
    let middle =
        |of: &dyn Fn(&Step) -> f64| median(steps.iter().map(of).collect()).unwrap_or(f64::NAN);
    table.row(vec![
        who.to_owned(),
        load.to_owned(),
        cell(middle(&|step| step.worked.gets_per_second()), 0),
        cell(middle(&|step| step.worked.get.mean_us), 1),
        cell(middle(&|step| step.worked.get.p99_us), 0),
        cell(middle(&Step::cpu_us_per_op), 2),
        cell(middle(&Step::reads_per_get), 4),
        cell(middle(&Step::own_pages_per_get), 4),
    ]);
}
