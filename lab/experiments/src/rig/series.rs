// SPDX-License-Identifier: Apache-2.0
//! From windows to figures: contenders take turns in rounds; a figure is the median of its rounds,
//! or the reason why it is missing.

use std::cell::Cell;
use std::time::Duration;

use anyhow::Result;

use super::bench::Bench;
use super::contender::Server;
use super::middle::median;
use super::sys;
use super::traffic::{self, Items, Load, Window, us};
use crate::{Progress, so_far};

/// A number, or the reason why it is missing.
pub type Figure = Result<f64, String>;

/// A figure of the rounds so far, which counts if the run is stopped. The figure of the whole run
/// has the same key.
pub fn put_so_far(key: &str, figure: &Figure) {
    if let Ok(number) = figure
        && number.is_finite()
    {
        so_far::bar(key, *number);
    }
}

/// The figure of each round, or the reason why there is none.
pub type Rounds = Result<Vec<f64>, String>;

/// One figure divided by another.
/// If one is missing, its reason.
pub fn ratio(over: &Figure, under: &Figure) -> Figure {
    Ok(over.clone()? / under.clone()?)
}

/// The value of `of` in one contender's windows divided by that in another's, in each round, since
/// the machine's speed changes between rounds.
/// If one has no window, its reason.
pub fn over(one: &Series, other: &Series, of: impl Fn(&Window) -> f64) -> Rounds {
    let rounds = one.windows.iter().zip(&other.windows);
    let ratios = rounds.map(|(one, other)| of(one) / of(other));
    some(ratios).ok_or_else(|| {
        let missing = one.figure(&of).and(other.figure(&of)).err();
        missing.unwrap_or_else(|| "no round had both".to_owned())
    })
}

/// The finite ones of some figures, if there are any.
pub fn some(figures: impl Iterator<Item = f64>) -> Option<Vec<f64>> {
    let finite: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
    (!finite.is_empty()).then_some(finite)
}

/// The windows of one contender under one load.
#[derive(Clone, Debug)]
pub struct Series {
    pub contender: String,
    pub load: String,
    /// One window a round.
    pub windows: Vec<Window>,
    /// Why windows are missing.
    pub trouble: Option<String>,
}

/// The headings of [`Series::row`].
pub const COLUMNS: [&str; 15] = [
    "contender",
    "load",
    "requests/s",
    "hits/s",
    "from flash/s",
    "found %",
    "mean us",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "server us",
    "load us",
    "server %",
    "load %",
    "reads/flash hit",
];

impl Series {
    /// Without windows yet.
    pub fn new(contender: &str, load: impl Into<String>) -> Series {
        Series {
            contender: contender.to_owned(),
            load: load.into(),
            windows: Vec::new(),
            trouble: None,
        }
    }

    /// The row of some windows of a contender.
    pub fn row_of(contender: &str, load: &str, windows: &[Window]) -> Vec<String> {
        let mut series = Series::new(contender, load);
        for window in windows {
            series.add(Ok(window.clone()));
        }
        series.row()
    }

    pub fn of(contenders: &[(&str, &Contender)], load: &str) -> Vec<Series> {
        let names = contenders.iter();
        names.map(|(name, _)| Series::new(name, load)).collect()
    }

    /// Adds a round; if it failed, notes the reason.
    pub fn add(&mut self, window: Result<Window>) {
        match window {
            Ok(window) => {
                self.windows.push(window);
                self.note();
            }
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
    }

    /// The newest round, for a run that is stopped before it has all.
    fn note(&self) {
        let round = Series {
            windows: self.windows.last().cloned().into_iter().collect(),
            ..self.clone()
        };
        so_far::row("Rounds", &COLUMNS.map(str::to_owned), &round.row());
    }

    /// The median over the rounds of `of`.
    /// If no round has a value, the series' trouble.
    pub fn figure(&self, of: impl Fn(&Window) -> f64) -> Figure {
        median(self.windows.iter().map(of).collect()).ok_or_else(|| {
            let why = self.trouble.as_deref().unwrap_or("no round showed it");
            format!("{}, {}: {why}", self.contender, self.load)
        })
    }

    /// A row for people, under [`COLUMNS`].
    pub fn row(&self) -> Vec<String> {
        let mut cells = vec![self.contender.clone(), self.load.clone()];
        let mut cell = |digits: usize, of: &dyn Fn(&Window) -> f64| {
            cells.push(
                self.figure(of)
                    .map_or("-".to_owned(), |number| format!("{number:.digits$}")),
            );
        };
        cell(0, &Window::rate);
        cell(0, &Window::hits_per_second);
        cell(0, &Window::flash_hits_per_second);
        cell(2, &|window| window.found() * 100.0);
        cell(0, &|window| {
            if window.step.get.is_empty() {
                f64::NAN
            } else {
                window.step.get.mean() / 1e3
            }
        });
        cell(0, &|window| us(&window.step.get, 0.5));
        cell(0, &|window| us(&window.step.get, 0.99));
        cell(0, &|window| us(&window.step.get, 0.999));
        cell(2, &Window::server_us);
        cell(2, &Window::load_us);
        cell(1, &Window::server_percent);
        cell(1, &Window::load_percent);
        cell(3, &|window| match window.flash_hits() {
            0.0 => f64::NAN,
            hits => window.disk_reads_per(hits),
        });
        cells
    }
}

/// A contender in a comparison: a running one, or the reason why it is not running.
pub type Contender = Result<Server, String>;

/// Runs the contenders in turns under one load, for some rounds, and returns the series of each in
/// the given order.
pub fn take_turns(
    bench: &Bench<'_>,
    contenders: &[(&str, &Contender)],
    items: &Items,
    load: &Load,
    what: &str,
    rounds: usize,
    time: Duration,
) -> Vec<Series> {
    let mut all = Series::of(contenders, what);
    for round in 0..rounds {
        let load = load.clone().round(round);
        take_turn(bench, contenders, items, &load, time, &mut all);
    }
    all
}

/// One round: adds a window to each of the contenders' series.
pub fn take_turn(
    bench: &Bench<'_>,
    contenders: &[(&str, &Contender)],
    items: &Items,
    load: &Load,
    time: Duration,
    all: &mut [Series],
) {
    for ((_, contender), series) in contenders.iter().zip(all) {
        match contender {
            // A contender that has failed once would only delay the others.
            _ if series.trouble.is_some() => {}
            Ok(server) => {
                let running = contenders.iter().filter_map(|(_, one)| one.as_ref().ok());
                let _alone = Alone::among(running.map(Server::pid), &[server.pid()]);
                series.add(traffic::measure(bench, server, items, load, time));
            }
            Err(why) => series.trouble = Some(why.clone()),
        }
    }
}

/// Stops all processes but some until it is dropped. Otherwise their own work, such as waking
/// threads and pages read back from swap, would use the cores and the device of those.
pub struct Alone(Vec<u32>);

impl Alone {
    pub fn among(running: impl Iterator<Item = u32>, awake: &[u32]) -> Alone {
        let others: Vec<u32> = running.filter(|pid| !awake.contains(pid)).collect();
        for &pid in &others {
            sys::signal(pid, libc::SIGSTOP);
        }
        Alone(others)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        for &pid in &self.0 {
            sys::signal(pid, libc::SIGCONT);
        }
    }
}

/// Tells a progress bar the next step.
pub struct Steps<'a> {
    progress: &'a dyn Progress,
    done: Cell<u64>,
    total: u64,
}

impl<'a> Steps<'a> {
    /// Of about `total` steps.
    pub fn new(progress: &'a dyn Progress, total: u64) -> Steps<'a> {
        Steps {
            progress,
            done: Cell::new(0),
            total,
        }
    }

    pub fn next(&self, doing: &str) {
        self.progress
            .step(self.done.get().min(self.total), self.total, doing);
        self.done.set(self.done.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;

    #[test]
    fn figures_and_reasons() {
        let bad: Figure = Err("no memcached".to_owned());
        assert_eq!(ratio(&Ok(3.0), &Ok(2.0)), Ok(1.5));
        assert_eq!(ratio(&Ok(3.0), &bad), bad);
        assert_eq!(ratio(&bad, &Ok(1.0)), bad);
        let mut outcome = Outcome::new();
        outcome.put("a", Ok(1.0));
        outcome.put("b", bad);
        outcome.put("d", Ok(vec![3.0, 1.0, 2.0]));
        outcome.put("c", Ok(f64::INFINITY));
        assert_eq!((outcome.bars()["a"], outcome.bars()["d"]), (1.0, 2.0));
        assert_eq!(outcome.spread()["d"], [1.0, 3.0]);
        assert_eq!(outcome.missing()["b"], "no memcached");
        assert!(outcome.missing().contains_key("c"));
        let mut series = Series::new("senko", "64");
        assert!(
            series
                .figure(Window::rate)
                .unwrap_err()
                .contains("no round")
        );
        series.add(Err(anyhow::anyhow!("it went away")));
        assert_eq!(
            series.figure(Window::rate).unwrap_err(),
            "senko, 64: it went away"
        );
        assert_eq!(series.row().len(), COLUMNS.len());
    }
}
