// SPDX-License-Identifier: Apache-2.0
//! The time until a server with a data directory answers again, and the items that it restores,
//! after a stop and after a kill under load.
//!
//! Claim of the design: the index survives and is not rebuilt (docs/architecture/restart.md), so a
//! start reads each slot once and then serves. Expected shape: less than a second for tens of
//! millions of items, and all of them known with the first answer. After a stop it takes a little
//! longer than after a kill, since the index then comes from a file.
//!
//! A server is filled with items of 300 B, and then stopped (SIGTERM) and killed (SIGKILL, in the
//! middle of a load of GETs and SETs) in turn, without being filled again. *First answer*: from
//! before the process is started until a command is answered. *All known*: the time until the
//! server's count of items on flash is 99 % of that before the end. *Back*: that count, a tenth of
//! a second later, over the count before; and the share of a sample of keys that was found, over
//! the share found before. The bars are the worst of the rounds.
//!
//! With `--keep-dram`: the same for a server whose items are nearly all in DRAM, stopped; here all
//! items count.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::rig::cleanup::{self, Guard, Undo};
use crate::rig::traffic;
use crate::rig::{Bench, Figure, Items, Load, Server, Spec, Steps, process, sys};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table};

const KEY: usize = 16;
const VALUE: usize = 300;
/// The load during which the kill happens: its duration, and the time of the kill.
const LOAD: Duration = Duration::from_secs(4);
const KILL_AFTER: Duration = Duration::from_secs(2);
/// The share that counts as "all": requests under way overwrote some.
const NEARLY_ALL: f64 = 0.99;
/// How long to wait for them.
const PATIENCE: Duration = Duration::from_secs(60);

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-restart",
    paper: Paper::Design,
    source: "design question: what survives a process, and how soon it serves",
    text: "the time to the first answer and to all items after a planned restart and after a kill, with 20M items",
    sentences: &[],
    bars: &[
        Bar::less("stop_first_answer_s", 2.0, 2.0),
        Bar::less("kill_first_answer_s", 1.0, 1.0),
        Bar::less("kill_all_known_s", 5.0, 5.0),
        Bar::more("stop_items_back", 0.99, 0.99),
        Bar::more("kill_items_back", 0.99, 0.99),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let rounds = bench.scaled(2, 5);
    let mut run = Run {
        bench,
        steps: Steps::new(progress, 4 + 2 * rounds),
        outcome,
        table: Table::titled("Ends and starts"),
    };
    run.outcome.setting("rounds", rounds);
    let ended = run.flash(rounds);
    run.part(&["stop", "kill"], ended);
    let ended = run.keep_dram();
    run.part(&["keep_dram"], ended);
    run.outcome.tables.push(run.table);
    Ok(())
}

struct Run<'a> {
    bench: &'a Bench<'a>,
    steps: Steps<'a>,
    outcome: &'a mut Outcome,
    table: Table,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stop,
    Kill,
}

struct Restarted {
    first_answer: f64,
    all_known: f64,
    back: f64,
    sample: f64,
}

/// A server that is restarted, and the items that it holds.
struct Victim<'a> {
    spec: Spec,
    items: &'a Items,
    /// The statistic that counts these items.
    count: &'static str,
    server: Server,
    /// The memory that a killed server leaves.
    _memory: Vec<Guard>,
}

impl<'a> Victim<'a> {
    fn start(
        run: &mut Run<'_>,
        spec: Spec,
        items: &'a Items,
        count: &'static str,
    ) -> Result<Victim<'a>> {
        let server = run.bench.start(&spec, run.outcome)?;
        let files = process::mapped(server.pid(), Path::new("/dev/shm"))?;
        // They lie in a folder of the server's own.
        let mut folders: Vec<_> = files
            .iter()
            .filter_map(|file| file.parent())
            .filter(|folder| *folder != Path::new("/dev/shm"))
            .collect();
        folders.dedup();
        let _memory = folders
            .into_iter()
            .map(|folder| cleanup::later(Undo::RemoveFolder(folder.to_owned())))
            .collect();
        traffic::fill_fast(run.bench, &server, items)?;
        Ok(Victim {
            spec,
            items,
            count,
            server,
            _memory,
        })
    }

    fn items(&self) -> Result<f64> {
        self.server.stat(self.count)
    }

    /// The share of a sample that is found: the same keys each time.
    fn sample(&self, bench: &Bench<'_>) -> Result<f64> {
        let requests = (self.items.keys / 20).max(10_000);
        let window =
            traffic::measure_requests(bench, &self.server, self.items, &Load::gets(64), requests)?;
        Ok(window.found())
    }

    /// One end, and the start after it.
    fn turn(mut self, run: &mut Run<'_>, end: End) -> Result<(Victim<'a>, Restarted)> {
        let found = self.sample(run.bench)?;
        let (before, took) = match end {
            End::Stop => (self.items()?, self.server.end(libc::SIGTERM)?),
            End::Kill => (
                self.kill_under_load(run.bench)?,
                self.server.end(libc::SIGKILL)?,
            ),
        };
        let start = Instant::now();
        self.server = self.spec.start(&run.bench.scratch)?;
        let first_answer = start.elapsed().as_secs_f64();
        while self.items()? < before * NEARLY_ALL {
            ensure!(
                start.elapsed() < PATIENCE,
                "{} of {before} items are back after {} s",
                self.items()?,
                PATIENCE.as_secs()
            );
            thread::sleep(Duration::from_millis(5));
        }
        let all_known = start.elapsed().as_secs_f64();
        thread::sleep(Duration::from_millis(100));
        let back = self.items()? / before;
        let again = self.sample(run.bench)?;
        run.table.add([
            ("end", format!("{end:?}, {}", self.server.name)),
            ("items before", format!("{before:.0}")),
            ("end s", format!("{:.3}", took.as_secs_f64())),
            ("first answer s", format!("{first_answer:.3}")),
            ("all known s", format!("{all_known:.3}")),
            ("back %", format!("{:.3}", back * 100.0)),
            ("sample found before %", format!("{:.2}", found * 100.0)),
            ("after %", format!("{:.2}", again * 100.0)),
        ]);
        let restarted = Restarted {
            first_answer,
            all_known,
            back,
            sample: again / found,
        };
        Ok((self, restarted))
    }

    /// The items just before the kill.
    fn kill_under_load(&self, bench: &Bench<'_>) -> Result<f64> {
        let load = Load::gets(64).mixed(0.8).pipelined(4);
        thread::scope(|scope| {
            let loaded =
                scope.spawn(|| traffic::measure(bench, &self.server, self.items, &load, LOAD));
            thread::sleep(KILL_AFTER);
            ensure!(!loaded.is_finished(), "the load ended before the kill");
            let before = self.items()?;
            sys::signal(self.server.pid(), libc::SIGKILL);
            Ok(before)
            // The load, whose server is gone, ends with an error about that.
        })
    }
}

/// A figure of an end: its name, its value, and which of two is worse.
type OfEnd = (&'static str, fn(&Restarted) -> f64, fn(f64, f64) -> f64);

const FIGURES: [OfEnd; 4] = [
    ("first_answer_s", |c| c.first_answer, f64::max),
    ("all_known_s", |c| c.all_known, f64::max),
    ("items_back", |c| c.back, f64::min),
    ("sample_found_over_before", |c| c.sample, f64::min),
];

fn worst(all: &[Restarted], of: fn(&Restarted) -> f64, fold: fn(f64, f64) -> f64) -> Figure {
    let numbers = all.iter().map(of);
    numbers
        .reduce(fold)
        .ok_or_else(|| "there was no such end".to_owned())
}

impl Run<'_> {
    fn spec(&self, name: &str, memory: u64, flash: u64) -> Result<Spec> {
        self.bench.scratch.need(flash)?;
        let data = self.bench.scratch.path(&format!("{name}.data"));
        let data = data
            .to_str()
            .context("the scratch folder's name is not text")?;
        let spec = self.bench.on_flash(name, memory, flash);
        Ok(spec.with(&["--data-dir", data]))
    }

    fn flash(&mut self, rounds: u64) -> Result<()> {
        let items = Items::fixed(self.bench.scaled(2_000_000, 20_000_000), KEY, VALUE);
        self.outcome.setting("items", items.keys);
        // As in `serve-memory`: the memory of the index, and little more.
        let memory = (items.keys * 10 + (32 << 20)).next_multiple_of(1 << 20);
        // Ten records per page, and room for the writes of the loads.
        let flash = (items.keys / 10 * 4096 / 10 * 13).next_multiple_of(1 << 20);
        let spec = self.spec("restart", memory, flash)?;
        self.steps.next("filling the flash");
        let mut victim = Victim::start(self, spec, &items, "flash_items")?;
        let mut ends = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            for (end, all) in [End::Stop, End::Kill].into_iter().zip(&mut ends) {
                self.steps.next(&format!("{end:?} {}", round + 1));
                let (back, restarted) = victim.turn(self, end)?;
                victim = back;
                all.push(restarted);
            }
        }
        victim.server.end(libc::SIGTERM)?;
        for (name, all) in ["stop", "kill"].into_iter().zip(&ends) {
            self.report(name, all);
        }
        Ok(())
    }

    fn keep_dram(&mut self) -> Result<()> {
        let memory: u64 = self.bench.scaled(64 << 20, 1 << 30);
        let items = Items::fixed(memory / 500, KEY, VALUE);
        let spec = self
            .spec("keep-dram", memory, memory)?
            .with(&["--keep-dram"]);
        self.steps.next("filling DRAM");
        let victim = Victim::start(self, spec, &items, "curr_items")?;
        let in_dram = victim.server.stat("dram_items")?;
        self.outcome.setting("keep_dram_items", in_dram);
        let (victim, restarted) = victim.turn(self, End::Stop)?;
        victim.server.end(libc::SIGTERM)?;
        self.report("keep_dram", &[restarted]);
        Ok(())
    }

    fn report(&mut self, name: &str, all: &[Restarted]) {
        for (key, of, fold) in FIGURES {
            let key = format!("{name}_{key}");
            self.outcome.put(&key, worst(all, of, fold));
        }
    }

    /// The result of the part with these ends.
    fn part(&mut self, names: &[&str], ended: Result<()>) {
        let keys = names
            .iter()
            .flat_map(|name| FIGURES.map(|(key, ..)| format!("{name}_{key}")));
        let keys: Vec<String> = keys.collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.outcome.part(&keys, ended);
    }
}
