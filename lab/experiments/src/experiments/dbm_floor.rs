// SPDX-License-Identifier: Apache-2.0
//! The cost of a durable write, whatever its content: the floor under every synced commit.
//!
//! Claim: over space that was written before, one system call (`pwritev2` with RWF_DSYNC on
//! O_DIRECT) is as good as any way. Expected shape: over written space the ways differ by some
//! percent. A ring's `fdatasync` costs a switch to a kernel thread. Space that was only allocated,
//! and files that grow, additionally cost a commit of the journal. 512 B are hardly cheaper than 4
//! KiB. `docs/measurements/dbm-floor.md` has the method.

use anyhow::Result;

use crate::commits::floor::Cell;
use crate::commits::write::Space;
use crate::commits::{Ran, Turns, Work};
use crate::kv::plan::cell as shown;
use crate::rig::scratch::Scratch;
use crate::rig::{Bench, Steps};
use crate::{Experiment, Measure, Outcome, Paper, Progress, Table};

pub static EXPERIMENT: Experiment = Experiment {
    name: "dbm-floor",
    paper: Paper::Design,
    source: "design: a commit is one write and one flush",
    text: "a durable write over space that was written costs one flush of the device, and over other space half as much again or more",
    sentences: &[],
    bars: &[],
    run: Measure::Uncapped(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let rounds = bench.scaled(3, 5);
    let writes = bench.scaled(150, 5_000);
    outcome.setting("rounds", rounds);
    let seed = bench.options.seed;
    measure(&bench.scratch, progress, rounds, writes, seed, outcome)?;
    Ok(())
}

/// Runs all ways in turn. The test calls it with few writes.
pub fn measure(
    scratch: &Scratch,
    progress: &dyn Progress,
    rounds: u64,
    writes: u64,
    seed: u64,
    outcome: &mut Outcome,
) -> Result<()> {
    let cells = Cell::all();
    let steps = Steps::new(progress, rounds * cells.len() as u64);
    outcome.setting("writes_a_turn", writes);
    scratch.need(writes * 4096)?;
    let mut turns = Turns::new(scratch, "floor", true);
    turns.add_floor(&cells);
    let work = Work {
        seed,
        ..Work::ascending(writes, 1)
    };
    turns.rounds(rounds, &work, &steps, "durable writes");
    report(&turns, &cells, outcome);
    Ok(())
}

fn report(turns: &Turns, cells: &[Cell], outcome: &mut Outcome) {
    let mut table = Table::titled("Durable writes, one thread");
    for cell in cells {
        let name = cell.name();
        let number = |of: &dyn Fn(&Ran) -> f64| turns.figure(&name, of).unwrap_or(f64::NAN);
        table.add([
            ("way", cell.way.text().to_owned()),
            ("space", cell.space.name().to_owned()),
            ("bytes", cell.bytes.to_string()),
            ("writes/s", shown(number(&Ran::rate), 0)),
            ("p50 us", shown(number(&|ran| ran.percentile(0.5)), 1)),
            ("p99 us", shown(number(&|ran| ran.percentile(0.99)), 0)),
            ("longest us", shown(number(&|ran| ran.percentile(1.0)), 0)),
        ]);
    }
    outcome.tables.push(table);
    let written: Vec<String> = Cell::best().iter().map(Cell::name).collect();
    let best = turns.best(&written);
    if let Ok(best) = &best {
        outcome.setting("best", best.clone());
    }
    outcome.put(
        "best_writes_a_second",
        best.clone().and_then(|best| turns.figure(&best, Ran::rate)),
    );
    // Each way compared with the best one; then the other spaces and sizes, compared with the same
    // way on written space.
    for cell in cells {
        let under = if cell.space == Space::Written && cell.bytes == 4096 {
            best.clone()
        } else {
            Ok(Cell {
                space: Space::Written,
                bytes: 4096,
                ..*cell
            }
            .name())
        };
        let key = if cell.space == Space::Written && cell.bytes == 4096 {
            format!("{}_over_best", cell.way.name())
        } else {
            format!("{}_over_written_4096", cell.name())
        };
        let over = under.and_then(|under| turns.over(&cell.name(), &under, Ran::rate));
        outcome.put(&key, over);
    }
}
