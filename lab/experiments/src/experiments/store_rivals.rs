// SPDX-License-Identifier: Apache-2.0
//! The store against RocksDB, LMDB and fjall, with the same items under the same memory cap.
//!
//! Expected shape: random reads of a set much larger than memory are bound by the device. An engine
//! that reads one page per get wins, and an engine with a waiting thread for each read pays with
//! processor time. LSM trees load slower, since each level writes again. LMDB, whose tree is copied
//! on write in the page cache, reads well and overwrites worst.
//!
//! The engines run one after another, each in its own process with the same cap on memory, which
//! includes the page cache. They use O_DIRECT if they have it (RocksDB and ours). Of that memory
//! `cache_bytes` are for a cache of blocks, or of records in ours; LMDB has the kernel's page
//! cache, up to the whole cap. Each fills all keys and finishes its background work. Then come gets
//! one at a time, gets with 64 under way, misses, uniform overwriting by one thread, and YCSB's A,
//! B and C by 16 threads. The 64 gets come from one thread where the engine reads many keys
//! together, else from 64 threads. Puts may lie in the engine's own buffer when they return (LMDB
//! has none: it commits to the page cache). Bytes of the disk are those of `/proc/diskstats`, after
//! the puts were made durable. Dirty pages count against the cap of an engine that writes through
//! the page cache. If the kernel kills an engine at its cap, the engine gets twice the memory, and
//! then four times; the setting `NAME_memory_bytes` says so. LMDB is filled in ascending order,
//! since at random it would take hours; the others at random.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::kv::driver::{Amount, Work};
use crate::kv::plan::{self, Home, Plan, cell};
use crate::kv::{OURS, Session, Step};
use crate::rig::{Bench, Steps, ratio};
use crate::{Experiment, Measure, Outcome, Paper, Progress, Reason, Table};

const ENGINES: [&str; 4] = [OURS, "rocksdb", "lmdb", "fjall"];
/// The ratio of an engine's memory and cap to the usual one: a killed engine gets more.
const MEMORY_TIMES: [u64; 3] = [1, 2, 4];
const YCSB_THREADS: usize = 16;
/// The works by name, with the share of gets of YCSB's.
const WORKS: [&str; 8] = [
    "load",
    "get1",
    "get64",
    "miss64",
    "overwrite",
    "ycsb_a",
    "ycsb_b",
    "ycsb_c",
];

pub static EXPERIMENT: Experiment = Experiment {
    name: "store-rivals",
    paper: Paper::Design,
    source: "design question: is it better than what there is?",
    text: "under one memory cap the store serves more random gets than RocksDB, LMDB and fjall, and writes less for each put",
    sentences: &[],
    bars: &[],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let keys = bench.scaled(700_000, 16_000_000);
    // LMDB needs the most, because its overwritten pages wait for reuse.
    let plan = Plan::new(bench, outcome, keys, 1000, 2.5)?;
    plan.note(outcome, "");
    outcome.setting("ycsb_threads", YCSB_THREADS);
    let mut run = Run {
        bench,
        plan,
        steps: Steps::new(progress, (ENGINES.len() * WORKS.len()) as u64 + 1),
        seconds: bench.scaled(0.6, 20.0),
        table: Table::titled("Engines under one memory cap"),
    };
    let mut all: Vec<Result<Vec<Step>, String>> = Vec::new();
    for engine in ENGINES {
        let shown = run.within_memory(engine, outcome);
        if let Err(why) = &shown {
            outcome.setting(format!("{engine}_failed"), why.clone());
        }
        all.push(shown);
    }
    for (at, work) in WORKS.iter().enumerate() {
        run.compare(work, at, &all, outcome);
    }
    outcome.tables.push(run.table);
    Ok(())
}

struct Run<'a> {
    bench: &'a Bench<'a>,
    plan: Plan,
    steps: Steps<'a>,
    seconds: f64,
    table: Table,
}

impl Run<'_> {
    /// All works of one engine. If another engine is killed for its memory, it gets more, and the
    /// settings say so.
    fn within_memory(&mut self, engine: &str, outcome: &mut Outcome) -> Result<Vec<Step>, String> {
        let told = self.plan.clone();
        let mut shown = Err(String::new());
        for times in MEMORY_TIMES {
            self.plan = told.clone().memory(told.tuning.memory * times);
            shown = self.engine(engine, outcome).reason();
            let killed = shown.as_ref().is_err_and(|why| why.contains("SIGKILL"));
            if !killed || engine == OURS {
                outcome.setting(
                    format!("{engine}_memory_bytes"),
                    json!(self.plan.tuning.memory),
                );
                break;
            }
        }
        self.plan = told;
        shown
    }

    /// All works of one engine, in the order of [`WORKS`].
    fn engine(&mut self, engine: &str, outcome: &mut Outcome) -> Result<Vec<Step>> {
        let seed = self.bench.options.seed;
        let home = Home::new(self.bench, engine);
        self.steps.next(&format!("{engine}: load"));
        let (mut session, opened) = plan::start(self.bench, engine, &home, &self.plan, None)?;
        outcome.setting(engine, opened.description.clone());
        let mut fill = self.plan.fill(0, self.plan.keys(), seed);
        fill.batch = 64;
        fill.ascending = opened.fill_ascending;
        let load = session
            .fill_and_settle(&fill)
            .with_context(|| format!("{engine}: load"))?;
        let mut shown = vec![load];
        outcome.setting(
            format!("{engine}_space_over_data"),
            json!(home.bytes() as f64 / self.plan.tuning.live_bytes() as f64),
        );
        let gets = self.plan.gets(self.seconds, seed);
        let misses = Work {
            missing: 1.0,
            ..gets.clone()
        };
        let overwrite = self.plan.puts(Amount::Seconds(self.seconds * 2.0), 1, seed);
        let ycsb = |gets: f64| Work {
            popularity: "zipf:0.99".to_owned(),
            threads: YCSB_THREADS,
            gets,
            version: 2,
            ..self.plan.gets(self.seconds, seed)
        };
        let works = [
            gets.clone(),
            plan::at_depth(&opened, gets),
            plan::at_depth(&opened, misses),
            overwrite,
            ycsb(0.5),
            ycsb(0.95),
            ycsb(1.0),
        ];
        for (name, work) in WORKS[1..].iter().zip(&works) {
            self.steps.next(&format!("{engine}: {name}"));
            shown.push(
                self.one(&mut session, work)
                    .with_context(|| format!("{engine}: {name}"))?,
            );
        }
        let peak = session.cap().and_then(|cap| cap.peak());
        outcome.setting(format!("{engine}_peak_of_cap_bytes"), json!(peak));
        let facts = session.facts()?;
        outcome.setting(format!("{engine}_facts"), Value::Object(facts));
        session.close()?;
        Ok(shown)
    }

    fn one(&self, session: &mut Session<'_>, work: &Work) -> Result<Step> {
        if work.gets < 1.0 {
            session.work_and_sync(work)
        } else {
            session.work(work)
        }
    }

    /// A work's rows, and ours over each rival's.
    fn compare(
        &mut self,
        work: &str,
        at: usize,
        all: &[Result<Vec<Step>, String>],
        outcome: &mut Outcome,
    ) {
        let rate = |shown: &Result<Vec<Step>, String>| {
            shown
                .as_ref()
                .map(|steps| steps[at].worked.per_second())
                .map_err(Clone::clone)
        };
        for (engine, shown) in ENGINES.iter().zip(all) {
            if let Ok(steps) = shown {
                self.row(work, engine, &steps[at]);
            }
            if *engine != OURS {
                let over = ratio(&rate(&all[0]), &rate(shown));
                outcome.put(format!("{work}_over_{engine}"), over);
            }
        }
    }

    fn row(&mut self, work: &str, engine: &str, step: &Step) {
        let times = if step.worked.get.count > 0 {
            step.worked.get
        } else {
            step.worked.put
        };
        self.table.add([
            ("work", work.to_owned()),
            ("engine", engine.to_owned()),
            ("ops/s", cell(step.worked.per_second(), 0)),
            ("mean us", cell(times.mean_us, 1)),
            ("p99 us", cell(times.p99_us, 0)),
            (
                "longest ms",
                cell(times.max_us.max(step.worked.put.max_us) / 1e3, 1),
            ),
            ("cpu us", cell(step.cpu_us_per_op(), 2)),
            ("read B/op", cell(step.read_bytes_per_op(), 0)),
            ("written B/op", cell(step.written_bytes_per_op(), 0)),
            (
                "RSS MiB",
                cell(step.memory.resident as f64 / (1 << 20) as f64, 0),
            ),
        ]);
    }
}
