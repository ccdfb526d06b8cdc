// SPDX-License-Identifier: Apache-2.0
//! Gets of a database that is about ten times its cache: how many reads does one take, and how fast
//! is it?
//!
//! Expected shape: the pages above the leaves fit into the cache, so a get is one read of the
//! device or none. One thread is bound by that read. Sixteen wait for as many reads at once, until
//! the processor is the limit. `docs/measurements/dbm-large.md` has the method.

use std::process::Command;

use anyhow::Result;
use senko_dbm::Options as DbmOptions;

use crate::commits::ours::{OURS, Ours, bytes_of};
use crate::commits::rival::{LMDB, Rival};
use crate::commits::{Contender, Order, Ran, Turns, Work};
use crate::rig::cgroup::MemoryCap;
use crate::rig::scratch::Scratch;
use crate::rig::{Bench, Steps, process};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Reason, Table};

/// Threads, and what the keys have for them.
const THREADS: [(u64, &str); 2] = [(1, "gets"), (16, "gets16")];

#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub keys: u64,
    pub memory: u64,
    /// Gets of a turn, per thread.
    pub gets: u64,
    pub rounds: u64,
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "dbm-large",
    paper: Paper::Design,
    source: "design: a get of something cold is one read",
    text: "of a database ten times its cache, a get takes one read of the device or none",
    sentences: &[],
    bars: &[
        Bar::less("reads_per_get", 1.1, 1.02),
        Bar::more("gets_over_lmdb", 0.95, 1.0),
        Bar::more("gets16_over_lmdb", 1.0, 1.5),
    ],
    run: Measure::Uncapped(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let sizes = Sizes {
        keys: bench.scaled(6_000_000, 100_000_000),
        memory: bench.scaled(12 << 20, 200 << 20),
        gets: bench.scaled(2_000, 20_000),
        rounds: bench.scaled(3, 5),
    };
    bench.scratch.need(bench.scaled(2, 16) << 30)?;
    let steps = Steps::new(progress, 4 + 4 * (sizes.rounds + 1));
    // A group that may not swap can't be filled without its limit. Apart from the page cache,
    // it has only some megabytes.
    let cap = MemoryCap::new(sizes.memory + sizes.memory / 4, true);
    let given = cap.as_ref().ok();
    measure(&bench.scratch, &steps, &sizes, given, outcome)?;
    if let Err(why) = cap {
        outcome.setting("no_cap", format!("{why:#}"));
    }
    Ok(())
}

/// Both contenders, LMDB within its cap. The test calls it with few records and no cap.
pub fn measure(
    scratch: &Scratch,
    steps: &Steps<'_>,
    sizes: &Sizes,
    cap: Option<&MemoryCap>,
    outcome: &mut Outcome,
) -> Result<()> {
    let mut turns = Turns::new(scratch, "large", false);
    outcome.setting("keys", sizes.keys);
    outcome.setting("memory_bytes", sizes.memory);
    outcome.setting("rounds", sizes.rounds);
    steps.next("filling senko");
    let options = DbmOptions {
        cache_bytes: sizes.memory as usize,
        ..DbmOptions::default()
    };
    let mut ours = Ours::new(&turns.home().join(OURS), false, options)?;
    ours.fill(sizes.keys)?;
    // Pages that no checkpoint has written stay in DRAM in addition to the cache.
    ours.db().checkpoint()?;
    outcome.setting("at_rest", ours.settle());
    let over = bytes_of(&turns.home().join(OURS))? as f64 / sizes.memory as f64;
    outcome.setting("file_over_cache", over);
    let reading = Work {
        order: Order::Reads(sizes.keys),
        ..Work::ascending(sizes.gets, 0)
    };
    let reads = |ours: &mut Ours| {
        ours.run(&reading)?;
        let pid = std::process::id();
        let before = process::io(pid)?;
        ours.run(&reading)?;
        let after = process::io(pid)?;
        Ok((after.read - before.read) as f64 / 4096.0 / sizes.gets as f64)
    };
    steps.next("reads of a get");
    let per_get: Result<f64> = reads(&mut ours);
    outcome.put("reads_per_get", per_get.reason());
    steps.next("filling LMDB");
    let lmdb = lmdb(&turns, sizes.keys, cap);
    turns.add(OURS, Ok(ours));
    turns.add_other(LMDB.name, lmdb, LMDB.settings, outcome);
    let mut table = Table::titled("Random gets, a transaction each");
    for (threads, name) in THREADS {
        turns.forget();
        for round in 0..=sizes.rounds {
            let work = Work {
                commits: sizes.gets * threads,
                threads,
                seed: round + 2,
                ..reading
            };
            turns.round(&work, steps, &format!("{name}, round {round}"));
            if round == 0 {
                turns.forget();
            }
        }
        turns.rows(name, 1, &mut table);
        turns.put_over(name, OURS, [LMDB.name], outcome);
        let rate = turns.figure(OURS, Ran::rate);
        outcome.put(format!("{OURS}_{name}_a_second"), rate);
    }
    outcome.tables.push(table);
    Ok(())
}

/// LMDB, filled and then capped.
fn lmdb(turns: &Turns, keys: u64, cap: Option<&MemoryCap>) -> Result<Rival, String> {
    let cap = cap.ok_or("without a cap on its memory, LMDB would have all in the page cache")?;
    let program = LMDB.build(turns.programs(), &[])?;
    let started = cap.fill_first(|| {
        let members = cap.members()?;
        let folder = turns.home().join(LMDB.name);
        let mut rival = Rival::start_in(Command::new(&program), &folder, false, vec![members])?;
        rival.fill(keys)?;
        Ok(rival)
    });
    let started: Result<Rival> = started.and_then(|rival| rival);
    started.map_err(|error| format!("{}: {error:#}", LMDB.name))
}
