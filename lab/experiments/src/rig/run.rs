// SPDX-License-Identifier: Apache-2.0
//! An experiment on servers under way: its bench, its steps, its outcome and the table of its
//! windows.

use std::time::Duration;

use anyhow::Result;

use super::bench::Bench;
use super::contender::{Server, Spec};
use super::series::{COLUMNS, Contender, Series, Steps, take_turns};
use super::traffic::{self, Items, Load, Window};
use crate::{Outcome, Progress, Reason, Table};

pub struct Run<'a, T = ()> {
    pub bench: &'a Bench<'a>,
    pub outcome: &'a mut Outcome,
    /// Rounds in which contenders take turns.
    pub rounds: usize,
    /// The time of a window.
    pub window: Duration,
    /// The experiment's own sizes and tables.
    pub own: T,
    steps: Steps<'a>,
    windows: Table,
}

impl<'a, T> Run<'a, T> {
    /// Of about `steps` steps, with a table of windows under this title.
    pub fn new(
        bench: &'a Bench<'a>,
        progress: &'a dyn Progress,
        outcome: &'a mut Outcome,
        (steps, title): (u64, &str),
        own: T,
    ) -> Run<'a, T> {
        Run {
            bench,
            outcome,
            rounds: 1,
            window: Duration::ZERO,
            own,
            steps: Steps::new(progress, steps),
            windows: Table::new(title, &COLUMNS),
        }
    }

    /// Sets the rounds and the time of a window, and notes both.
    pub fn in_rounds(&mut self, rounds: usize, window: Duration) {
        (self.rounds, self.window) = (rounds, window);
        self.outcome.setting("rounds", rounds);
        self.outcome.setting("window_seconds", window.as_secs());
    }

    /// Begins the next step.
    pub fn next(&self, doing: &str) {
        self.steps.next(doing);
    }

    pub fn scaled<V>(&self, quick: V, full: V) -> V {
        self.bench.scaled(quick, full)
    }

    /// Measures a part; if it fails, these figures are missing with the reason.
    pub fn part(&mut self, keys: &[&str], part: impl FnOnce(&mut Self) -> Result<()>) {
        let ended = part(self);
        self.outcome.part(keys, ended);
    }

    pub fn start(&mut self, spec: &Spec) -> Result<Server> {
        self.bench.start(spec, self.outcome)
    }

    /// Starts and fills a contender, not faster than `rate` items a second. An error is the reason
    /// why it is missing.
    pub fn contender(
        &mut self,
        spec: Result<Spec, String>,
        items: &Items,
        rate: Option<f64>,
    ) -> Contender {
        let spec = spec?;
        self.next(&format!("filling {}", spec.name));
        let server = self.start(&spec).reason()?;
        traffic::fill(self.bench, &server, items, rate).reason()?;
        if rate.is_some() {
            traffic::mend(self.bench, &server, items).reason()?;
        }
        Ok(server)
    }

    /// As [`traffic::fill_fast`].
    pub fn fill(&self, server: &Server, items: &Items) -> Result<Window> {
        traffic::fill_fast(self.bench, server, items)
    }

    /// As [`traffic::measure`].
    pub fn measure(
        &self,
        server: &Server,
        items: &Items,
        load: &Load,
        time: Duration,
    ) -> Result<Window> {
        traffic::measure(self.bench, server, items, load, time)
    }

    /// As [`traffic::measure_requests`].
    pub fn requests(
        &self,
        server: &Server,
        items: &Items,
        load: &Load,
        requests: u64,
    ) -> Result<Window> {
        traffic::measure_requests(self.bench, server, items, load, requests)
    }

    /// All rounds of the contenders under one load, with a row for each.
    pub fn turns(
        &mut self,
        contenders: &[(&str, &Contender)],
        items: &Items,
        load: &Load,
        what: &str,
    ) -> Vec<Series> {
        let (rounds, time) = (self.rounds, self.window);
        let all = take_turns(self.bench, contenders, items, load, what, rounds, time);
        self.rows(&all);
        all
    }

    /// Adds a row for each series.
    pub fn rows<'s>(&mut self, all: impl IntoIterator<Item = &'s Series>) {
        for series in all {
            self.windows.row(series.row());
        }
    }

    /// Adds the row of some windows of a contender.
    pub fn row(&mut self, contender: &str, what: &str, windows: &[Window]) {
        self.windows.row(Series::row_of(contender, what, windows));
    }

    /// The table of the windows goes behind all others.
    pub fn finish(self) {
        self.outcome.tables.push(self.windows);
    }

    /// It goes before all others.
    pub fn finish_first(self) {
        self.outcome.tables.insert(0, self.windows);
    }
}
