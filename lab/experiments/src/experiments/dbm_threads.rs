// SPDX-License-Identifier: Apache-2.0
//! Commits of one to sixteen concurrent threads: do those that wait together share a flush?
//!
//! Expected shape: the rate grows with the threads, because commits that arrive during a flush
//! share the next one, until the processor is the limit. RocksDB and LevelDB write groups too; LMDB
//! and Berkeley DB let one transaction in at a time, or write one log record after another.
//! `docs/measurements/dbm-threads.md` has the method.

use anyhow::Result;
use senko_dbm::Options as DbmOptions;

use crate::commits::ours::OURS;
use crate::commits::rival::{self, Kind};
use crate::commits::{Ran, Turns, Work};
use crate::rig::scratch::Scratch;
use crate::rig::{Bench, Steps};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table};

/// How many threads commit at once.
const THREADS: [u64; 5] = [1, 2, 4, 8, 16];

pub static EXPERIMENT: Experiment = Experiment {
    name: "dbm-threads",
    paper: Paper::Design,
    source: "design: groups form by themselves from what waits while a flush is under way",
    text: "threads that commit at once share flushes, so eight of them have several times the rate of one",
    sentences: &[],
    bars: &[Bar::more("threads8_over_rocksdb", 1.2, 2.0)],
    run: Measure::Uncapped(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let (rounds, each) = bench.scaled((3, 200), (5, 10_000));
    bench.scratch.need(4 << 30)?;
    outcome.setting("rounds", rounds);
    let contenders = 1 + rival::ALL.iter().filter(|kind| kind.threads).count();
    let turns = contenders as u64 * rounds * THREADS.len() as u64;
    let steps = Steps::new(progress, turns);
    measure(&bench.scratch, &steps, &THREADS, rounds, each, outcome);
    Ok(())
}

/// Each number of threads in turn, with `each` commits per thread. The test calls it with few.
pub fn measure(
    scratch: &Scratch,
    steps: &Steps<'_>,
    counts: &[u64],
    rounds: u64,
    each: u64,
    outcome: &mut Outcome,
) {
    outcome.setting("commits_a_thread", each);
    let mut table = Table::titled("Threads that commit one record, synced");
    let threaded: Vec<Kind> = rival::ALL.into_iter().filter(|k| k.threads).collect();
    let mut alone = None;
    for &threads in counts {
        let load = format!("threads{threads}");
        let mut turns = Turns::new(scratch, &load, true);
        turns.add_ours(DbmOptions::default(), 0);
        for kind in &threaded {
            turns.add_rival(*kind, 0, outcome);
        }
        let work = Work {
            threads,
            ..Work::ascending(threads * each, 1)
        };
        turns.rounds(rounds, &work, steps, &load);
        turns.check(work.commits * rounds);
        turns.rows(&load, 1, &mut table);
        turns.put_over(&load, OURS, threaded.iter().map(|kind| kind.name), outcome);
        let rate = turns.figure(OURS, Ran::rate);
        if let Some(alone) = &alone {
            let over = crate::rig::ratio(&rate, alone);
            outcome.put(format!("{load}_over_one_thread"), over);
        } else {
            alone = Some(rate);
        }
    }
    outcome.tables.push(table);
}
