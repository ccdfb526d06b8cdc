// SPDX-License-Identifier: Apache-2.0
//! Contenders in turn: each has one turn per round, and a figure is the median of the rounds.

use std::path::{Path, PathBuf};

use anyhow::Result;
use senko_dbm::Options as DbmOptions;

use super::floor::{Cell, Floor};
use super::ours::{OURS, Ours};
use super::rival::{Kind, Rival};
use super::{Contender, Ran, Script, Work, percentile};
use crate::kv::plan::cell;
use crate::rig::scratch::Scratch;
use crate::rig::{Figure, Rounds, Steps, median, some};
use crate::{Outcome, Table, so_far};

/// A contender, or why there is none, with the results of its turns.
struct Seat {
    name: String,
    contender: Result<Box<dyn Contender>, String>,
    rounds: Vec<Option<Ran>>,
}

/// Contenders whose files lie in one folder, which goes with them.
pub struct Turns {
    seats: Vec<Seat>,
    synced: bool,
    home: PathBuf,
    /// Where the rivals' programs are, and the floor's files.
    programs: PathBuf,
    _memory: Option<Scratch>,
}

impl Turns {
    /// Nobody yet, with a folder of this name in `scratch`.
    pub fn new(scratch: &Scratch, name: &str, synced: bool) -> Turns {
        Turns {
            seats: Vec::new(),
            synced,
            home: scratch.path(name),
            programs: scratch.folder().to_owned(),
            _memory: None,
        }
    }

    /// The same, but on tmpfs if commits are not synced, so that only processor time counts.
    pub fn without_device(scratch: &Scratch, name: &str, synced: bool) -> Result<Turns> {
        let mut turns = Turns::new(scratch, name, synced);
        if !synced {
            let memory = Scratch::in_memory()?;
            turns.home = memory.path(name);
            turns._memory = Some(memory);
        }
        Ok(turns)
    }

    /// The folder with a folder for each contender.
    pub fn home(&self) -> &Path {
        &self.home
    }

    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Adds a contender. If it could not be started it is missing, and the others are measured.
    pub fn add<C: Contender + 'static>(
        &mut self,
        name: impl Into<String>,
        contender: Result<C, String>,
    ) {
        let contender = contender.map(|mut contender| {
            contender.pause();
            Box::new(contender) as Box<dyn Contender>
        });
        self.seats.push(Seat {
            name: name.into(),
            contender,
            rounds: Vec::new(),
        });
    }

    /// Adds ways of the floor; returns their names.
    pub fn add_floor(&mut self, cells: &[Cell]) -> Vec<String> {
        for cell in cells {
            let path = self.programs.join(format!("floor-{}", cell.name()));
            self.add(cell.name(), Ok(Floor::new(*cell, path)));
        }
        cells.iter().map(Cell::name).collect()
    }

    /// Adds our DBM, with `keys` ascending records in it.
    pub fn add_ours(&mut self, options: DbmOptions, keys: u64) {
        let folder = self.home.join(OURS);
        let started = Ours::new(&folder, self.synced, options).and_then(|mut ours| {
            ours.fill(keys)?;
            Ok(ours)
        });
        self.add(OURS, started.map_err(|error| format!("{OURS}: {error:#}")));
    }

    /// Adds a rival in the same way, and notes its version.
    pub fn add_rival(&mut self, kind: Kind, keys: u64, outcome: &mut Outcome) {
        let started = kind.start(&self.programs, &self.home.join(kind.name), self.synced);
        let filled = started.and_then(|mut rival| match keys {
            0 => Ok(rival),
            _ => match rival.fill(keys) {
                Ok(()) => Ok(rival),
                Err(error) => Err(format!("{}: {error:#}", kind.name)),
            },
        });
        self.add_other(kind.name, filled, kind.settings, outcome);
    }

    /// Adds another engine that was started, and notes its version.
    pub fn add_other(
        &mut self,
        name: &str,
        rival: Result<Rival, String>,
        settings: &str,
        outcome: &mut Outcome,
    ) {
        if let Ok(rival) = &rival {
            outcome.setting(name, format!("{}: {settings}", rival.version));
        }
        self.add(name, rival);
    }

    /// Runs one round of what the load's name says. A contender that fails takes no further part.
    pub fn round(&mut self, work: &Work, steps: &Steps<'_>, load: &str) {
        let note = |name: &str, ran: &Ran| note(name, work, ran);
        self.each(|contender| contender.run(work), steps, load, note);
    }

    /// Runs so many rounds of the same.
    pub fn rounds(&mut self, rounds: u64, work: &Work, steps: &Steps<'_>, load: &str) {
        for round in 1..=rounds {
            self.round(work, steps, &format!("{load}, round {round}"));
        }
    }

    /// Runs a round of the transactions of a script.
    pub fn script(&mut self, script: &Script, steps: &Steps<'_>, load: &str) {
        self.each(|contender| contender.script(script), steps, load, |_, _| ());
    }

    fn each(
        &mut self,
        run: impl Fn(&mut dyn Contender) -> Result<Ran>,
        steps: &Steps<'_>,
        load: &str,
        note: impl Fn(&str, &Ran),
    ) {
        for seat in &mut self.seats {
            let Ok(contender) = &mut seat.contender else {
                seat.rounds.push(None);
                continue;
            };
            steps.next(&format!("{load}: {}", seat.name));
            contender.resume();
            let ran = run(&mut **contender);
            contender.pause();
            match ran {
                Ok(ran) => {
                    note(&seat.name, &ran);
                    seat.rounds.push(Some(ran));
                }
                Err(error) => {
                    seat.rounds.push(None);
                    seat.contender = Err(format!("{}: {error:#}", seat.name));
                }
            }
        }
    }

    /// Drops the results of the rounds so far, which only warmed up.
    pub fn forget(&mut self) {
        for seat in &mut self.seats {
            seat.rounds.clear();
        }
    }

    /// Reads back the committed records. A contender that lost a record has no figures.
    pub fn check(&mut self, keys: u64) {
        for seat in &mut self.seats {
            if let Ok(contender) = &mut seat.contender {
                contender.resume();
                let checked = contender.check(keys);
                contender.pause();
                if let Err(error) = checked {
                    seat.contender = Err(format!("{}: {error:#}", seat.name));
                }
            }
        }
    }

    fn seat(&self, name: &str) -> Result<&Seat, String> {
        let seat = self.seats.iter().find(|seat| seat.name == name);
        let seat = seat.ok_or_else(|| format!("{name} took no part"))?;
        match &seat.contender {
            Ok(_) => Ok(seat),
            Err(why) => Err(why.clone()),
        }
    }

    /// The median of the rounds of one contender.
    pub fn figure(&self, name: &str, of: impl Fn(&Ran) -> f64) -> Figure {
        let rounds = self.seat(name)?.rounds.iter().flatten();
        median(rounds.map(of).collect()).ok_or_else(|| format!("{name}: no round showed it"))
    }

    /// The ratio of two contenders in each round, since the machine's speed changes between rounds.
    pub fn over(&self, one: &str, other: &str, of: impl Fn(&Ran) -> f64) -> Rounds {
        let (one, other) = (self.seat(one)?, self.seat(other)?);
        let both = one.rounds.iter().zip(&other.rounds);
        let ratios = both.filter_map(|(a, b)| Some(of(a.as_ref()?) / of(b.as_ref()?)));
        some(ratios).ok_or_else(|| "no round had both".to_owned())
    }

    /// Puts the ratio of a contender to each of the others: `LOAD_over_OTHER`.
    pub fn put_over<'a>(
        &self,
        load: &str,
        one: &str,
        others: impl IntoIterator<Item = &'a str>,
        outcome: &mut Outcome,
    ) {
        for other in others {
            let over = self.over(one, other, Ran::rate);
            outcome.put(format!("{load}_over_{other}"), over);
        }
    }

    /// The contender of these with the highest median rate.
    /// If none has a figure, the first one's reason.
    pub fn best(&self, names: &[String]) -> Result<String, String> {
        let rate = |name: &String| self.figure(name, Ran::rate);
        let have = names.iter().filter(|name| rate(name).is_ok());
        let best = have.max_by(|a, b| {
            let (a, b) = (rate(a).unwrap_or(0.0), rate(b).unwrap_or(0.0));
            a.total_cmp(&b)
        });
        match (best, names.first()) {
            (Some(best), _) => Ok(best.clone()),
            (None, Some(first)) => Err(rate(first).err().unwrap_or_default()),
            (None, None) => Err("there is nobody to choose from".to_owned()),
        }
    }

    /// A row for each contender: the load, the contender, its medians.
    pub fn rows(&self, load: &str, records: u64, table: &mut Table) {
        for seat in &self.seats {
            let number = |of: &dyn Fn(&Ran) -> f64| self.figure(&seat.name, of).unwrap_or(f64::NAN);
            let rate = number(&Ran::rate);
            table.add([
                ("load", load.to_owned()),
                ("contender", seat.name.clone()),
                ("tx/s", cell(rate, 0)),
                ("records/s", cell(rate * records as f64, 0)),
                ("p50 us", cell(number(&|ran| ran.percentile(0.5)), 1)),
                ("p99 us", cell(number(&|ran| ran.percentile(0.99)), 0)),
                ("longest us", cell(number(&|ran| ran.percentile(1.0)), 0)),
            ]);
        }
    }

    /// Nanoseconds of all commits of one contender, ascending.
    pub fn times(&self, name: &str) -> Result<Vec<u64>, String> {
        let rounds = self.seat(name)?.rounds.iter().flatten();
        let mut all: Vec<u64> = rounds.flat_map(|ran| ran.times.iter().copied()).collect();
        if all.is_empty() {
            return Err(format!("{name}: nobody took the time of each commit"));
        }
        all.sort_unstable();
        Ok(all)
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.seats.clear();
        // The next one needs the space. At the latest the folder is removed with the run.
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// One turn, for a run that is stopped before it has all rounds.
fn note(name: &str, work: &Work, ran: &Ran) {
    let columns = ["contender", "threads", "records a commit", "tx/s", "p99 us"];
    let cells = [
        name.to_owned(),
        work.threads.to_string(),
        work.records.to_string(),
        cell(ran.rate(), 0),
        cell(ran.percentile(0.99), 0),
    ];
    so_far::row("Turns", &columns.map(str::to_owned), &cells);
}

/// A percentile of one contender's commits over that of another, over all rounds: rare events need
/// all samples. There is a figure only if at least ten samples are above it.
pub fn percentile_over(turns: &Turns, one: &str, other: &str, share: f64) -> Figure {
    let (one, other) = (turns.times(one)?, turns.times(other)?);
    let few = one.len().min(other.len());
    let above = few as f64 * (1.0 - share);
    if above < 10.0 - 1e-6 {
        return Err(format!(
            "{few} commits have {above:.1} above the percentile; at least 10 are needed"
        ));
    }
    Ok(percentile(&one, share) / percentile(&other, share))
}
