// SPDX-License-Identifier: Apache-2.0
//! `senko lab`: lists and runs the experiments of `senko_lab`; all that is here is arguments and printing.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use senko_io::{bar, tell};
use senko_lab::{DEFAULT_TRACES, Options, Progress, Report, Scale};
use senko_workload::units::count;
use serde_json::json;

use crate::progress::time_left;

/// Connections that an experiment may have open.
const OPEN_CONNECTIONS: usize = 2048;

/// Arguments of `senko lab`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    senko lab list\n  \
    senko lab run dram-policy --quick\n      \
      the report for people, then one line RESULT {...}\n  \
    senko lab run serve-flash-get --scratch /mnt/nvme\n      \
      on the disk of that folder; as root, so that memory can be capped\n\n\
    Exit codes: 0 figures were measured, though some may be missing, with the reason; 1 none was, or the run was impossible;\n\
    2 a wrong option; 130 Ctrl-C.")]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Lists the experiments
    List {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Runs one experiment
    Run {
        /// Its name, as `senko lab list` has it
        name: String,
        /// The same measurement, smaller: at most a minute or two
        #[arg(long)]
        quick: bool,
        /// Folder of the real traces
        #[arg(long, value_name = "DIR", default_value = DEFAULT_TRACES)]
        traces: PathBuf,
        /// Seed of everything random
        #[arg(value_name = "N", value_parser = count::<u64>, long, default_value_t = 1)]
        seed: u64,
        /// Folder on the disk to measure, for flash files and the like; what is made there is removed at the end
        /// [default: the system's temporary folder, or /var/tmp where that lies in memory]
        #[arg(long, value_name = "DIR")]
        scratch: Option<PathBuf>,
        /// Only one JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Holds a store for an experiment that drives it over stdin and stdout
    #[command(hide = true)]
    Worker,
}

/// Runs `senko lab`.
pub fn main(args: LabArgs) -> Result<()> {
    let mut out = crate::out::stdout();
    match args.command {
        LabCommand::List { json } => {
            for experiment in senko_lab::experiments() {
                let claim = experiment.claim();
                if json {
                    let line = json!({ "name": experiment.name(), "source": claim.source, "claim": claim.text });
                    writeln!(out, "{line}")
                } else {
                    writeln!(out, "{:<24}{} ({})", experiment.name(), claim.text, claim.source)
                }
                .context("cannot write to stdout")?;
            }
        }
        LabCommand::Run {
            name,
            quick,
            traces,
            seed,
            scratch,
            json,
        } => {
            let scale = if quick { Scale::Quick } else { Scale::Full };
            let bar = Bar {
                shown: Cell::new(false),
                doing: RefCell::default(),
                terminal: senko_io::say::terminal(),
                start: Instant::now(),
            };
            let mut options = Options {
                scale,
                traces,
                seed,
                ..Options::default()
            };
            if let Some(scratch) = scratch {
                options.scratch = scratch;
            }
            // Where the limit stays low, an experiment with many connections says so itself.
            drop(crate::process::raise_open_files(OPEN_CONNECTIONS, 1));
            let told = move |report: Report| {
                let _ = print(&report, json);
            };
            let report = senko_lab::run_until_stopped(&name, &options, &bar, told)?;
            bar.end();
            print(&report, json)?;
            if report.outcome.bars().is_empty() {
                let why = report.outcome.missing().values().next();
                let why = why.map_or(String::new(), |why| format!(": {why}"));
                bail!("no figure of {name} could be measured{why}");
            }
        }
        LabCommand::Worker => senko_lab::kv::child::main(senko_lab::kv::ours())?,
    }
    Ok(())
}

fn print(report: &Report, json: bool) -> Result<()> {
    let mut out = crate::out::stdout();
    if json {
        writeln!(out, "{}", report.to_json())
    } else {
        writeln!(out, "{}{}", report.text(), report.result_line())
    }
    .context("cannot write to stdout")
}

/// How far the run is: one line that changes on a terminal, elsewhere a line for each thing that begins.
struct Bar {
    shown: Cell<bool>,
    doing: RefCell<String>,
    terminal: bool,
    start: Instant,
}

impl Bar {
    fn end(&self) {
        if self.shown.take() {
            bar!("\r\x1b[K");
        }
    }
}

impl Progress for Bar {
    fn step(&self, done: u64, total: u64, doing: &str) {
        let share = done as f64 / total.max(1) as f64;
        let mut far = format!("[{done}/{total}] {:.0} %", share * 100.0);
        let left = time_left(self.start.elapsed(), share);
        if !left.is_empty() {
            far = format!("{far}, about {left}");
        }
        if self.terminal {
            self.shown.set(true);
            bar!("\r\x1b[K{far}: {doing}");
        } else if self.doing.replace(doing.to_owned()) != doing {
            let seconds = self.start.elapsed().as_secs();
            tell!("{seconds:5} s {far}: {doing}");
        }
    }
}
