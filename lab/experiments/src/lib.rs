// SPDX-License-Identifier: Apache-2.0
//! Experiments: the papers' tables and figures, and our own design questions, measured here.
//!
//! `senko-lab list` and `senko-lab run NAME` only call [`experiments()`] and [`run`]. Each file
//! under `experiments/` is one table or figure, with its claim on top. A run ends in a [`Report`]:
//! its [`Report::result_line`] is for machines, its [`Report::text`] for people.
//!
//! Always holds:
//! - A figure is measured or missing. `missing` names the figures that could not be measured, with
//!   the reason.
//! - Each report carries the settings, the commit, the machine and the device.
//! - The same options give the same requests: randomness comes from [`Options::seed`].

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod claim; // what an experiment judges: sentences of papers, and bars
pub mod outcome; // the results of an experiment: numbers, gaps, settings, tables
mod so_far; // the figures of a run so far, for one that is stopped
pub mod provenance; // the machine and the commit that a report names
pub mod results; // results on disk
pub mod publish; // all results as one HTML page
pub mod rig; // what experiments on servers share: contenders, memory caps, traffic
pub mod thesis; // common parts of the experiments on the thesis's structures
pub mod kv; // key-value engines under test, ours and others, each in its own process
pub mod commits; // transactions under test: the DBM, its rivals, the floor under them
pub mod python; // programs in Python that measure
pub mod experiments; // the experiments, one file each

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use senko_workload::units::nearest;
use serde_json::{Value, json};

use rig::bench::{Bench, OnBench};

pub use claim::{Bar, Paper, Sentence, at_least, at_most, judged, near, untested};
pub use outcome::{Outcome, Reason, Table};
pub use provenance::{Commit, Machine};
pub use senko_plan::Progress;

/// The default folder of traces, from the project's root.
pub const DEFAULT_TRACES: &str = "../shared/traces";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The same measurement, smaller: at most a minute or two on two cores.
    Quick,
    /// The measurement that goes into the documents.
    Full,
}

impl Scale {
    /// Its name in a result line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// A user's choices for a run.
#[derive(Clone, Debug)]
pub struct Options {
    pub scale: Scale,
    /// The folder of real traces. Figures that need them are missing without it.
    pub traces: PathBuf,
    pub seed: u64,
    /// The folder in which a run makes its own folder for flash files and the like. It must be on
    /// the disk to measure.
    pub scratch: PathBuf,
    pub program: PathBuf,
    /// The `senko-lab` program, which holds a store for an experiment in a process of its own.
    /// `senko-rivals` lies beside it.
    pub lab: PathBuf,
    pub memcached: PathBuf,
    pub memtier: PathBuf,
}

impl Options {
    /// `quick` or `full`, by the scale of the run.
    pub fn scaled<T>(&self, quick: T, full: T) -> T {
        match self.scale {
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        let lab = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("senko-lab"));
        Self {
            scale: Scale::Full,
            traces: PathBuf::from(DEFAULT_TRACES),
            seed: 1,
            scratch: rig::scratch::default_parent(),
            program: lab.with_file_name("senko"),
            lab,
            memcached: PathBuf::from("memcached"),
            memtier: PathBuf::from("memtier_benchmark"),
        }
    }
}

/// One table or figure.
#[derive(Debug)]
pub struct Experiment {
    /// The name after `senko-lab run`: lower case, hyphens.
    pub name: &'static str,
    /// The section of the report.
    pub paper: Paper,
    /// The paper, with figure or table, or the design question.
    pub source: &'static str,
    /// What is measured, or the question, in one sentence.
    pub text: &'static str,
    /// The sentences of the paper that it judges, or says why it cannot.
    pub sentences: &'static [Sentence],
    /// The project's own bars.
    pub bars: &'static [Bar],
    pub run: Measure,
}

/// How an experiment measures. It fails if the whole run is impossible. A part that is impossible
/// is an entry in [`Outcome::missing`].
#[derive(Debug)]
pub enum Measure {
    /// By itself.
    Alone(fn(&Options, &dyn Progress, &mut Outcome) -> Result<()>),
    /// On a bench, where contenders have a cap on memory and a core of their own.
    OnBench(OnBench),
    /// On a bench, where contenders have neither: engines may use both cores in the background.
    Uncapped(OnBench),
}

impl Experiment {
    /// The meaning of a missing figure, for people.
    pub fn would_have_shown(&self) -> String {
        format!("What is missing is a part of this: {}", self.text)
    }
}

/// All experiments, in the order of `senko-lab list`.
pub fn experiments() -> &'static [&'static Experiment] {
    experiments::ALL
}

pub fn find(name: &str) -> Result<&'static Experiment> {
    let mut all = experiments().iter();
    if let Some(found) = all.find(|experiment| experiment.name == name) {
        return Ok(*found);
    }
    let names = experiments().iter().map(|experiment| experiment.name);
    let meant = nearest(name, names).map_or(String::new(), |near| format!("; is {near} meant?"));
    bail!("there is no experiment \"{name}\"{meant} (senko-lab list has all names)")
}

/// Runs one experiment.
pub fn run(name: &str, options: &Options, progress: &dyn Progress) -> Result<Report> {
    let experiment = find(name)?;
    let start = Instant::now();
    // The checkout may change during a run of an hour.
    let commit = Commit::current();
    let mut outcome = Outcome::new();
    let ended = match experiment.run {
        Measure::Alone(run) => run(options, progress, &mut outcome),
        Measure::OnBench(run) => Bench::run(options, progress, &mut outcome, run, true),
        Measure::Uncapped(run) => Bench::run(options, progress, &mut outcome, run, false),
    };
    // A file that a signal's clean-up removed is not a failure of the experiment.
    rig::cleanup::wait_if_stopped();
    ended.with_context(|| format!("the experiment {name} could not be run"))?;
    Ok(Report {
        commit,
        took: start.elapsed(),
        ..Report::new(experiment, options, outcome)
    })
}

/// As [`run`], but SIGINT, SIGTERM and SIGHUP end the process within about a second: everything
/// that the run made is removed, and `told` gets a report of what was measured so far. Call it
/// once, while this process has one thread.
pub fn run_until_stopped(
    name: &str,
    options: &Options,
    progress: &dyn Progress,
    told: impl FnOnce(Report) + Send + 'static,
) -> Result<Report> {
    let experiment = find(name)?;
    let (report, start) = (
        Report::new(experiment, options, Outcome::new()),
        Instant::now(),
    );
    so_far::begin();
    rig::cleanup::on_signals_tell(move || {
        told(Report {
            outcome: Outcome::of_notes(so_far::take()),
            took: start.elapsed(),
            stopped: true,
            ..report
        });
    });
    run(name, options, progress)
}

/// An outcome with everything that is needed to judge and repeat it.
#[derive(Clone, Debug)]
pub struct Report {
    pub experiment: &'static Experiment,
    pub scale: Scale,
    pub seed: u64,
    pub outcome: Outcome,
    pub commit: Commit,
    pub machine: Machine,
    pub took: Duration,
    /// Whether a signal stopped the run before it had all figures.
    pub stopped: bool,
}

impl Report {
    /// Of a run that took no time, from the checkout as it is.
    pub fn new(experiment: &'static Experiment, options: &Options, outcome: Outcome) -> Report {
        Report {
            experiment,
            scale: options.scale,
            seed: options.seed,
            outcome,
            commit: Commit::current(),
            machine: Machine::this(),
            took: Duration::ZERO,
            stopped: false,
        }
    }

    /// The report's fields in the order of a result line, each with its JSON value.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let mut settings = self.outcome.settings.clone();
        settings.insert("seed".to_string(), json!(self.seed));
        let mut fields = vec![
            ("experiment", json!(self.experiment.name)),
            ("scale", json!(self.scale.name())),
            ("bars", json!(self.outcome.bars())),
            ("settings", Value::Object(settings)),
            ("commit", self.commit.to_json()),
            ("machine", self.machine.to_json()),
            ("device", Value::Object(self.outcome.device.clone())),
        ];
        if !self.outcome.spread().is_empty() {
            fields.push(("spread", json!(self.outcome.spread())));
        }
        if !self.outcome.missing().is_empty() {
            fields.push(("missing", json!(self.outcome.missing())));
        }
        if self.stopped {
            fields.push(("stopped", json!(true)));
        }
        if let Some(noisy) = self.outcome.noisy() {
            fields.push(("noisy", json!(noisy)));
        }
        fields
    }

    /// The report as one JSON object.
    pub fn to_json(&self) -> Value {
        let fields = self.fields().into_iter();
        let fields = fields.map(|(key, value)| (key.to_string(), value));
        Value::Object(fields.collect())
    }

    /// The last line of a run: `RESULT {"experiment":...}`, on one line, the fields in a fixed
    /// order.
    pub fn result_line(&self) -> String {
        let fields: Vec<String> = self
            .fields()
            .into_iter()
            .map(|(key, value)| format!("\"{key}\":{value}"))
            .collect();
        format!("RESULT {{{}}}", fields.join(","))
    }

    /// The report for people: claim, tables, gaps. Ends with a newline.
    pub fn text(&self) -> String {
        let of = self.experiment;
        let mut text = format!("{}: {}\n({})\n", of.name, of.text, of.source);
        let tables = self.outcome.tables.iter();
        for table in tables.filter(|table| !table.rows.is_empty()) {
            text.push('\n');
            text.push_str(&table.to_markdown());
        }
        for (key, why) in self.outcome.missing() {
            text.push_str(&format!("\nmissing {key}: {why}"));
        }
        if !self.outcome.missing().is_empty() {
            text.push_str(&format!("\n{}", of.would_have_shown()));
        }
        if self.stopped {
            text.push_str("\nstopped: these are the figures up to then\n");
            for (key, number) in self.outcome.bars() {
                text.push_str(&format!("  {key} {number}\n"));
            }
        }
        text.push_str(&format!(
            "\n{:.1} s on {}, commit {}\n",
            self.took.as_secs_f64(),
            self.machine,
            self.commit
        ));
        text
    }
}
