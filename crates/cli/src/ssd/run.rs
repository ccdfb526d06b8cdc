// SPDX-License-Identifier: Apache-2.0
//! `senko ssd run` and `senko ssd lifetime`: one workload on one drive.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use senko_ssd::device::Parts;
use senko_ssd::drive::{Drive, Load};
use senko_ssd::lifetime::Lifetime;
use senko_ssd::profile::Profile;
use senko_ssd::report::Report;
use senko_ssd::source::Workload;
use senko_ssd::{Error, Request, plot};
use serde_json::json;

use super::{DriveArgs, WorkloadArgs, print, write_file};

/// One workload and one drive.
#[derive(Args, Debug)]
struct OneArgs {
    /// A trace's file or a generator
    workload: String,
    #[command(flatten)]
    reading: WorkloadArgs,
    #[command(flatten)]
    drive: DriveArgs,
    /// Translation layer, in place of the profile's, such as bast:log-blocks=16
    #[arg(long, value_name = "FTL")]
    ftl: Option<String>,
    /// Write buffer, in place of the profile's, such as bplru
    #[arg(long, value_name = "BUFFER")]
    buffer: Option<String>,
}

impl OneArgs {
    /// What they name.
    fn open(&self) -> Result<(Profile, Parts, Workload)> {
        self.drive.check()?;
        let profile = self.drive.profile()?;
        let (ftl, buffer) = (self.ftl.as_deref(), self.buffer.as_deref());
        let parts = self.drive.parts(ftl, buffer)?;
        Ok((profile, parts, self.reading.open(&self.workload)?))
    }
}

/// Arguments of `senko ssd run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Lets what the write buffer holds at the end go to the flash too
    #[arg(long)]
    drain: bool,
    /// Only one JSON object on stdout
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Only two lines of CSV on stdout, names and values
    #[arg(long)]
    csv: bool,
    /// Draws how often blocks were erased
    #[arg(long, value_name = "FILE.svg")]
    plot_erases: Option<PathBuf>,
    /// Draws response times over time
    #[arg(long, value_name = "FILE.svg")]
    plot_responses: Option<PathBuf>,
}

/// Arguments of `senko ssd lifetime`.
#[derive(Args, Debug)]
pub struct LifetimeArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Cycles that a block lives, in place of the profile's
    #[arg(long, value_name = "N")]
    cycles: Option<u32>,
    /// Only one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// A line on stderr that says how far a run is, where that is a terminal and the run is long.
struct Watch {
    shown: bool,
    terminal: bool,
    next: Instant,
    requests: u64,
}

impl Watch {
    fn new() -> Self {
        Self {
            shown: false,
            terminal: std::io::stderr().is_terminal(),
            next: Instant::now() + Duration::from_secs(1),
            requests: 0,
        }
    }

    fn step(&mut self, request: &Request) {
        self.requests += 1;
        if self.terminal && self.requests.is_multiple_of(1 << 16) && Instant::now() >= self.next {
            let second = request.time as f64 / 1e9;
            eprint!(
                "\r{} requests, {second:.1} s of the workload ",
                self.requests
            );
            self.shown = true;
            self.next = Instant::now() + Duration::from_millis(200);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// How requests come, by what the user said and what the workload knows.
pub fn load_of(args: &DriveArgs, workload: &Workload) -> Result<Load> {
    Ok(match args.closed {
        Some(depth) => Load::Closed { depth },
        None if args.wa || !workload.timed()? => Load::Closed { depth: 1 },
        None => Load::Open { speed: args.speed },
    })
}

/// Runs one workload on one drive.
pub fn simulate(
    args: &DriveArgs,
    profile: &Profile,
    parts: &Parts,
    workload: &Workload,
    drain: bool,
    mut each: impl FnMut(&Request),
) -> Result<Report> {
    let stripe = super::size_of("--stripe", &args.stripe)?;
    let mut drive = match args.drives {
        1 => Drive::new(profile, parts)?,
        drives => Drive::raid0(profile, parts, drives, stripe)?,
    };
    drive.precondition(args.precondition / 100.0)?;
    let load = load_of(args, workload)?;
    let requests = workload.requests(drive.capacity_bytes())?;
    let watched = requests.inspect(|request: &Result<Request, Error>| {
        if let Ok(request) = request {
            each(request);
        }
    });
    if drain {
        let flush = std::iter::once(Ok(Request::flush(0)));
        return Ok(drive.run(watched.chain(flush), load)?);
    }
    Ok(drive.run(watched, load)?)
}

/// Runs `senko ssd run`.
pub fn run(args: &RunArgs) -> Result<()> {
    let (profile, parts, workload) = args.one.open()?;
    let summary = workload.summary()?;
    if !args.json && !args.csv {
        eprintln!("{}: {summary}", workload.name());
    }
    let mut watch = Watch::new();
    let report = simulate(
        &args.one.drive,
        &profile,
        &parts,
        &workload,
        args.drain,
        |request| {
            watch.step(request);
        },
    )?;
    drop(watch);
    if let Some(path) = &args.plot_erases {
        let title = format!(
            "{}: {} under {}",
            workload.name(),
            report.ftl,
            report.buffer
        );
        write_file(path, &plot::erases(&title, &report))?;
    }
    if let Some(path) = &args.plot_responses {
        let title = format!(
            "{}: {} under {}",
            workload.name(),
            report.ftl,
            report.buffer
        );
        write_file(path, &plot::responses(&title, &report))?;
    }
    let life = Lifetime::of(&report, profile.endurance.cycles);
    let mut out = std::io::stdout().lock();
    if args.json {
        let line = json!({
            "workload": workload.name(),
            "trace": summary,
            "profile": profile.name,
            "report": report,
            "derived": print::derived(&report),
            "lifetime": life,
        });
        writeln!(out, "{line}")
    } else if args.csv {
        let (names, values) = print::csv(&workload.name(), &profile, &report);
        writeln!(out, "{names}\n{values}")
    } else {
        write!(out, "{}", print::report(&profile, &report, life.as_ref()))
    }
    .context("cannot write to stdout")
}

/// Runs `senko ssd lifetime`.
pub fn lifetime(args: &LifetimeArgs) -> Result<()> {
    let (profile, parts, workload) = args.one.open()?;
    if args.one.drive.wa || args.one.drive.closed.is_some() || !workload.timed()? {
        bail!(
            "{} has no times, or they are not used, and without them there is no rate by which to count years",
            workload.name()
        );
    }
    let mut watch = Watch::new();
    let report = simulate(
        &args.one.drive,
        &profile,
        &parts,
        &workload,
        true,
        |request| {
            watch.step(request);
        },
    )?;
    drop(watch);
    let cycles = args.cycles.unwrap_or(profile.endurance.cycles);
    let Some(life) = Lifetime::of(&report, cycles) else {
        bail!(
            "{} erased no block of this drive: use more --rounds, or fill the drive before with --precondition",
            workload.name()
        );
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let line = json!({ "workload": workload.name(), "profile": profile.name, "lifetime": life, "derived": print::derived(&report) });
        writeln!(out, "{line}")
    } else {
        write!(out, "{}", print::lifetime(&report, &life))
    }
    .context("cannot write to stdout")
}
