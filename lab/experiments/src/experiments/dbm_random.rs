// SPDX-License-Identifier: Apache-2.0
//! A hundred random updates per transaction, long enough that the cleaner must reclaim space all
//! the time.
//!
//! Expected shape: each transaction touches about as many leaves as it has records, and a log of
//! changes writes one or two pages for it. Checkpoints write the leaves later, and the cleaner
//! frees the dead space that they leave. LSM trees do the same by compaction; LMDB writes every
//! touched leaf with its path in the commit. `docs/measurements/dbm-random.md` has the method.

use anyhow::Result;
use senko_dbm::Options as DbmOptions;

use crate::commits::floor::Cell;
use crate::commits::ours::{OURS, bytes_of};
use crate::commits::rival::{BERKELEY, LEVELDB, LMDB, ROCKSDB, SQLITE};
use crate::commits::{KEY_BYTES, Order, Ran, Turns, VALUE_BYTES, Work, percentile_over};
use crate::rig::scratch::Scratch;
use crate::rig::{Bench, Steps, median, put_so_far};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Reason, Table};

/// Updates a transaction.
const RECORDS: u64 = 100;

pub static EXPERIMENT: Experiment = Experiment {
    name: "dbm-random",
    paper: Paper::D,
    source: "paper D, section 2.1, and beyond: the cleaner at work",
    text: "random updates commit at the rate of the log, and cleaning makes no commit wait for long",
    sentences: &[],
    bars: &[
        Bar::more("random100_over_leveldb", 1.0, 1.5),
        Bar::less("space_over_live", 1.6, 1.3),
        Bar::less("p9999_commit_over_floor", 5.0, 2.0),
    ],
    run: Measure::Uncapped(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    bench.scratch.need(bench.scaled(4, 12) << 30)?;
    // The 99.99th percentile needs 100,000 commits so that ten are above it, so the quick run
    // has none.
    let (rounds, each) = bench.scaled((3, 400), (10, 20_000));
    let keys = bench.scaled(100_000, 1_000_000);
    outcome.setting("rounds", rounds);
    let steps = Steps::new(progress, 11 * rounds + 6);
    measure(&bench.scratch, &steps, keys, rounds, each, outcome);
    Ok(())
}

/// All contenders with `keys` keys. The test calls it with few.
pub fn measure(
    scratch: &Scratch,
    steps: &Steps<'_>,
    keys: u64,
    rounds: u64,
    each: u64,
    outcome: &mut Outcome,
) {
    outcome.setting("keys", keys);
    outcome.setting("commits_a_turn", each);
    let mut turns = Turns::new(scratch, "random", true);
    let ways = turns.add_floor(&Cell::best());
    steps.next("filling senko");
    turns.add_ours(DbmOptions::default(), keys);
    let rivals = [LEVELDB, ROCKSDB, LMDB, SQLITE, BERKELEY];
    for kind in rivals {
        steps.next(&format!("filling {}", kind.name));
        turns.add_rival(kind, keys, outcome);
    }
    let live = (keys * (KEY_BYTES + VALUE_BYTES) as u64) as f64;
    let mut space = Err(format!("{OURS}: no round was measured"));
    for round in 0..rounds {
        let work = Work {
            order: Order::Random(keys),
            seed: round + 1,
            ..Work::ascending(each, RECORDS)
        };
        turns.round(&work, steps, &format!("round {}", round + 1));
        let now = bytes_of(&turns.home().join(OURS)).map(|bytes| bytes as f64 / live);
        space = now.reason().map(|now| now.max(space.unwrap_or(0.0)));
        put_so_far("space_over_live", &space);
        for kind in rivals {
            let over = turns.over(OURS, kind.name, Ran::rate);
            let so_far = over
                .clone()
                .map(|rounds| median(rounds).unwrap_or(f64::NAN));
            put_so_far(&format!("random100_over_{}", kind.name), &so_far);
        }
    }
    turns.check(keys);
    let mut table = Table::titled("Random updates, 100 a transaction, synced");
    turns.rows("random100", RECORDS, &mut table);
    outcome.tables.push(table);
    let names = rivals.iter().map(|kind| kind.name);
    turns.put_over("random100", OURS, names, outcome);
    let seen = turns.figure(OURS, Ran::rate).and(space);
    outcome.put("space_over_live", seen);
    let best = turns.best(&ways);
    let tail = best.and_then(|best| percentile_over(&turns, OURS, &best, 0.9999));
    outcome.put("p9999_commit_over_floor", tail);
}
