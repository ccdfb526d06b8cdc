// SPDX-License-Identifier: Apache-2.0
//! `senko ssd`: the simulator's command line. It parses arguments, runs `senko_ssd`, and prints
//! tables, JSON, CSV and charts.

mod compare; // a matrix of layers, buffers and workloads, on all cores
mod explain; // a result in plain words
mod print; // results for people and for machines
mod run; // one workload on one drive, and the drive's lifetime
mod progress; // the progress of a run
mod trace; // describes, converts and plots traces
mod transfer; // the direct transfer engine

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use senko_io::tell;
use senko_ssd::Error;
use senko_ssd::error::TraceError;
use senko_ssd::precondition::Precondition;
use senko_ssd::profile::{DEFAULT, Profile};
use senko_ssd::run::{Reading, Setup};
use senko_ssd::source::Workload;
use senko_ssd::trace::Summary;
use senko_workload::units::count;

use crate::process::Interrupted;
use crate::units::{at_least_one, factor, limit, size_text, some_bytes_text};

/// Arguments of `senko ssd`.
#[derive(Args, Debug)]
#[command(
    after_help = "A workload is a trace's file (any of the formats that `senko ssd parts` lists, compressed or not; - is stdin), or a generator:\n  \
    uniform, zipf, seq or hotcold with options, phases apart by /, as in zipf:theta=0.9,count=1e6/seq:count=1e5,size=64k\n\n\
    Examples:\n  \
    senko ssd run Financial1.spc --fold compact:extent=64k --profile paper-1gb\n  \
    senko ssd compare Financial1.spc uniform:count=200k --fold modulo \\\n      --profile paper-1gb --ftl bast --ftl fast --buffer none --buffer adaptive\n  \
    senko ssd lifetime zipf:rate=1k,count=1e6 --precondition random:1x\n  \
    senko ssd trace plot Financial1.spc -o requests.svg\n  \
    senko ssd transfer --drives 4"
)]
pub struct SsdArgs {
    #[command(subcommand)]
    command: SsdCommand,
}

#[derive(Debug, Subcommand)]
enum SsdCommand {
    /// Runs a workload on a simulated drive
    #[command(after_help = "Examples:\n  \
        senko ssd run zipf:rate=2000,count=200k,pages=100k --precondition 90\n  \
        senko ssd run Financial1.spc --fold modulo --plot-responses times.svg")]
    Run(Box<run::RunArgs>),
    /// Runs every combination of translation layers, write buffers and workloads
    #[command(after_help = "Examples:\n  \
        senko ssd compare a.csv --fold modulo --profile nvme-512gb --profile tlc-256gb\n  \
        senko ssd compare b.spc --fold modulo --buffer none --buffer lru --plot b.svg")]
    Compare(Box<compare::CompareArgs>),
    /// Says how long a drive lives under a workload
    #[command(after_help = "Examples:\n  \
        senko ssd lifetime zipf:rate=2k,count=1m,pages=250k --profile paper-1gb \\\n      \
        --ftl page --rounds 3")]
    Lifetime(Box<run::LifetimeArgs>),
    /// Says in plain words what a run did and why
    Explain(Box<explain::ExplainArgs>),
    /// Describes, converts, plots and makes traces
    Trace(trace::TraceArgs),
    /// The direct transfer engine as a queueing model: answers a second and response times
    Transfer(transfer::TransferArgs),
    /// Lists profiles, translation layers, write buffers and trace formats with their options
    #[command(after_help = "Examples:\n  senko ssd parts\n  \
        senko ssd parts --profile nvme-512gb > mine.toml")]
    Parts {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
        /// Prints the file of this profile instead, as a start for one of your own
        #[arg(long, value_name = "PROFILE", conflicts_with = "json")]
        profile: Option<String>,
    },
}

/// Runs `senko ssd`.
pub fn main(args: SsdArgs) -> Result<()> {
    match args.command {
        SsdCommand::Run(args) => run::run(&args),
        SsdCommand::Compare(args) => compare::main(&args),
        SsdCommand::Lifetime(args) => run::lifetime(&args),
        SsdCommand::Explain(args) => explain::main(&args),
        SsdCommand::Trace(args) => trace::main(args),
        SsdCommand::Transfer(args) => transfer::main(&args),
        SsdCommand::Parts {
            profile: Some(name),
            ..
        } => print::profile(&name),
        SsdCommand::Parts { json, .. } => print::parts(json),
    }?;
    // The results up to the signal are printed; the exit code says that they are incomplete.
    match Interrupted::now() {
        Some(interrupted) => Err(interrupted.into()),
        None => Ok(()),
    }
}

/// Whether a signal asked to stop, after [`crate::process::stop_on_signals`] was called.
fn stopped() -> bool {
    Interrupted::now().is_some()
}

/// A sentence on stderr that a user should read.
fn warn(text: &str) {
    tell!("senko: {text}");
}

/// Reads a workload to its end, or to a signal.
fn read_whole(workload: &Workload) -> Result<Summary> {
    let watch = progress::Progress::new("reading the workload", "%", 0);
    let summary = workload.summary_while(|share| {
        if let Some(share) = share {
            watch.set((share * 100.0) as u64, 100);
        }
        !stopped()
    });
    summary.map_err(|error| of_workload(&workload.name(), error))
}

/// An error of a trace with the trace's name: a comparison has several.
fn of_workload(name: &str, error: Error) -> anyhow::Error {
    let named = match &error {
        Error::Trace(inner) => matches!(**inner, TraceError::Open { .. }),
        _ => true,
    };
    let error = anyhow::Error::new(error);
    if named {
        error
    } else {
        error.context(name.to_owned())
    }
}

/// Reads a workload through once, and prints its summary if results are for people. `capacity` is
/// of the drive that it goes to, if there is one: devices that overlap there are added to the
/// warnings.
fn summarise(workload: &Workload, capacity: Option<u64>, shown: bool) -> Result<Summary> {
    let mut summary = read_whole(workload)?;
    if let Some(interrupted) = Interrupted::now() {
        let name = workload.name();
        return Err(interrupted).with_context(|| format!("{name} was not read to its end"));
    }
    let overlap = capacity.and_then(|bytes| summary.overlap(&workload.fold, bytes));
    summary.warnings.extend(overlap);
    if shown {
        tell!("{}\n{}", workload.name(), summary.to_string().trim_end());
    } else {
        for warning in &summary.warnings {
            warn(&format!("{}: {warning}", workload.name()));
        }
    }
    Ok(summary)
}

/// The options for reading a workload, shared by all commands that accept one.
#[derive(Args, Clone, Debug)]
struct WorkloadArgs {
    /// Format of the trace, if its content does not show it: a name with options, such as
    /// columns:unit=ms,write=0
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    format: String,
    /// Maps addresses into the drive's capacity: modulo, compact, or another of `senko ssd parts`;
    /// without it a request beyond the end is an error
    #[arg(long, value_name = "FOLD")]
    fold: Option<String>,
    /// Takes only the first N requests
    #[arg(value_parser = limit, long, value_name = "N")]
    limit: Option<u64>,
    /// Runs the workload this many times
    #[arg(value_parser = at_least_one::<u32>, long, value_name = "N", default_value_t = 1)]
    rounds: u32,
}

impl WorkloadArgs {
    /// Requests of a workload, in all rounds together.
    fn requests(&self, summary: &Summary) -> u64 {
        summary
            .mix
            .requests()
            .saturating_mul(u64::from(self.rounds))
    }

    fn open(&self, name: &str) -> Result<Workload> {
        let path = if name == "-" { "/dev/stdin" } else { name };
        crate::stdin::check(Path::new(path))?;
        let reading = Reading {
            format: self.format.clone(),
            fold: self.fold.clone(),
            limit: self.limit,
            rounds: self.rounds,
        };
        reading.open(name).map_err(|error| of_workload(name, error))
    }
}

/// Bytes of a stripe, if no option says otherwise.
const STRIPE: &str = "64k";

/// The options of a drive, shared by all commands that simulate one.
#[derive(Args, Clone, Debug)]
struct DriveArgs {
    /// A profile's name, or the path of a TOML file; compare takes several, each with the option
    #[arg(long, value_name = "PROFILE", default_value = DEFAULT)]
    profile: Vec<String>,
    /// Simulates one part in N of the drive, in place of the profile's: 1 is the whole drive, which
    /// takes memory and time
    #[arg(value_parser = at_least_one::<u32>, long, value_name = "N")]
    scale: Option<u32>,
    /// Bytes of the write buffer, in place of the profile's, such as 2m; 0 beside --buffer none
    #[arg(value_parser = size_text, long, value_name = "SIZE")]
    buffer_size: Option<String>,
    /// Drives in RAID 0
    #[arg(value_parser = at_least_one::<u32>, long, value_name = "N", default_value_t = 1)]
    drives: u32,
    /// Bytes of a stripe on one drive
    #[arg(value_parser = some_bytes_text, long, value_name = "SIZE", default_value = STRIPE)]
    stripe: String,
    /// Fills the drive before the workload begins: 90, a percentage of it in order; random:2x, all
    /// in order and then random overwrites of twice the capacity; or steady, until write
    /// amplification is steady
    #[arg(value_parser = str::parse::<Precondition>, long, value_name = "WAY", default_value = "0")]
    precondition: Precondition,
    /// Keeps this many requests under way, and ignores the times of the workload
    #[arg(value_parser = at_least_one::<u32>, long, value_name = "N")]
    closed: Option<u32>,
    /// Speeds time up: 2 halves the gaps between requests
    #[arg(value_parser = factor, long, value_name = "FACTOR", default_value_t = 1.0)]
    speed: f64,
    /// Only counts, without times: much faster
    #[arg(long)]
    wa: bool,
    /// Checks that every read returns the latest version; takes more memory
    #[arg(long)]
    check: bool,
    /// Seed of everything random in the drive
    #[arg(value_name = "N", value_parser = count::<u64>, long, default_value_t = 1)]
    seed: u64,
}

impl DriveArgs {
    /// The drives, and when requests come, if the options are valid.
    fn setup(&self) -> Result<Setup> {
        match &self.profile[..] {
            [name] => self.setup_of(name),
            _ => bail!("this takes one --profile; senko ssd compare takes several"),
        }
    }

    /// The same for one of several profiles.
    fn setup_of(&self, name: &str) -> Result<Setup> {
        let mut profile = Profile::find(name)?;
        if let Some(scale) = self.scale {
            profile = profile.scaled(scale)?;
        }
        if let Some(size) = &self.buffer_size {
            profile.buffer_bytes = size_of("--buffer-size", size)?;
        }
        let setup = Setup {
            profile,
            drives: self.drives,
            stripe_bytes: size_of("--stripe", &self.stripe)?,
            precondition: self.precondition,
            closed: self.closed,
            speed: self.speed,
            untimed: self.wa,
            check: self.check,
            seed: self.seed,
        };
        setup.check().map_err(|wrong| anyhow!("--{wrong}"))?;
        for (idle, option, why) in [
            (self.wa && self.closed.is_some(), "--closed", "beside --wa"),
            (self.wa && self.speed != 1.0, "--speed", "beside --wa"),
            (
                self.closed.is_some() && self.speed != 1.0,
                "--speed",
                "beside --closed",
            ),
            (
                self.drives == 1 && self.stripe != STRIPE,
                "--stripe",
                "with one drive",
            ),
        ] {
            if idle {
                warn(&format!("{option} has no effect {why}"));
            }
        }
        Ok(setup)
    }
}

fn size_of(option: &str, text: &str) -> Result<u64> {
    senko_workload::units::size(text, 1).map_err(|error| anyhow!("{option}: {error}"))
}

/// The files that a command reads: a picture of them must not take their place.
fn inputs<'a>(workloads: &'a [Workload], drive: Option<&'a DriveArgs>) -> Vec<&'a Path> {
    let traces = workloads.iter().filter_map(Workload::file);
    let profiles = drive.map_or(&[][..], |drive| &drive.profile[..]);
    traces.chain(profiles.iter().map(Path::new)).collect()
}
