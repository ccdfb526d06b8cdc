// SPDX-License-Identifier: Apache-2.0
//! `senko ssd run` and `senko ssd lifetime`: one workload on one drive.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use senko_ssd::device::Parts;
use senko_ssd::drive::{Drive, Load};
use senko_ssd::lifetime::Lifetime;
use senko_ssd::profile::Profile;
use senko_ssd::report::Report;
use senko_ssd::source::Workload;
use senko_ssd::trace::Summary;
use senko_ssd::{Request, plot};
use senko_workload::units::count;
use serde_json::json;

use super::progress::Progress;
use super::{DriveArgs, WorkloadArgs, print, stopped, write_file};
use crate::process::{Interrupted, stop_on_signals};

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
    #[arg(value_parser = count::<u32>, long, value_name = "N")]
    cycles: Option<u32>,
    /// Only one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// How requests come, by what the user said and what the workload knows.
pub fn load_of(args: &DriveArgs, workload: &Workload) -> Result<Load> {
    Ok(match args.closed {
        Some(depth) => Load::Closed { depth },
        None if args.wa || !workload.timed()? => Load::Closed { depth: 1 },
        None => Load::Open { speed: args.speed },
    })
}

/// Requests between two looks at the line that says how far a run is.
const SHOWN_EVERY: u64 = 1 << 12;

/// Runs one workload on one drive. `filled` hears how much of the drive is filled before.
pub fn simulate(
    args: &DriveArgs,
    profile: &Profile,
    parts: &Parts,
    workload: &Workload,
    drain: bool,
    progress: &Progress,
    mut filled: impl FnMut(u64, u64),
) -> Result<Report> {
    let stripe = super::size_of("--stripe", &args.stripe)?;
    let mut drive = match args.drives {
        1 => Drive::new(profile, parts)?,
        drives => Drive::raid0(profile, parts, drives, stripe)?,
    };
    drive.stop_when(stop_on_signals());
    let whole = drive.precondition_while(args.precondition / 100.0, |done, all| {
        filled(done, all);
        !stopped()
    })?;
    if !whole {
        let interrupted = Interrupted::now().context("filling the drive was given up")?;
        return Err(interrupted).context("the drive was not filled before the first request");
    }
    let load = load_of(args, workload)?;
    let mut seen = 0u64;
    let watched = workload.requests(drive.capacity_bytes())?.inspect(|_| {
        seen += 1;
        if seen.is_multiple_of(SHOWN_EVERY) {
            progress.add(SHOWN_EVERY);
        }
    });
    if drain {
        let flush = std::iter::once(Ok(Request::flush(0)));
        return Ok(drive.run(watched.chain(flush), load)?);
    }
    Ok(drive.run(watched, load)?)
}

impl OneArgs {
    /// Runs it, and shows how far it is. A run that was stopped says so.
    fn simulate(
        &self,
        profile: &Profile,
        parts: &Parts,
        workload: &Workload,
        drain: bool,
        summary: &Summary,
    ) -> Result<Report> {
        let filling = Progress::new("filling the drive", "pages", 0);
        let total = self.reading.requests(summary);
        let running = Progress::new("simulating", "requests", total);
        let filled = |done, all| filling.set(done, all);
        let report = simulate(
            &self.drive,
            profile,
            parts,
            workload,
            drain,
            &running,
            filled,
        )?;
        drop((running, filling));
        if stopped() {
            super::warn(&format!(
                "stopped: what follows is of the {} requests that were done, out of {total}",
                report.all.count
            ));
        }
        Ok(report)
    }
}

/// Runs `senko ssd run`.
pub fn run(args: &RunArgs) -> Result<()> {
    let (profile, parts, workload) = args.one.open()?;
    let (_, capacity) = (stop_on_signals(), args.one.drive.capacity(&profile));
    let summary = super::summarise(&workload, Some(capacity), !args.json && !args.csv)?;
    let report = args
        .one
        .simulate(&profile, &parts, &workload, args.drain, &summary)?;
    let title = format!(
        "{}: {} under {}",
        workload.name(),
        report.ftl,
        report.buffer
    );
    if let Some(path) = &args.plot_erases {
        write_file(path, &plot::erases(&title, &report))?;
    }
    if let Some(path) = &args.plot_responses {
        write_file(path, &plot::responses(&title, &report))?;
    }
    let life = Lifetime::of(&report, profile.endurance.cycles);
    let mut out = crate::out::stdout();
    if args.json {
        let line = json!({
            "workload": workload.name(),
            "trace": summary,
            "profile": profile.name,
            "stopped": stopped(),
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
    let (_, capacity) = (stop_on_signals(), args.one.drive.capacity(&profile));
    let summary = super::summarise(&workload, Some(capacity), !args.json)?;
    let report = args
        .one
        .simulate(&profile, &parts, &workload, true, &summary)?;
    let cycles = args.cycles.unwrap_or(profile.endurance.cycles);
    let Some(life) = Lifetime::of(&report, cycles) else {
        if let Some(interrupted) = Interrupted::now() {
            return Err(interrupted).context("no block was erased until then");
        }
        bail!(
            "{} erased no block of this drive: use more --rounds, or fill the drive before with --precondition",
            workload.name()
        );
    };
    let mut out = crate::out::stdout();
    if args.json {
        let line = json!({
            "workload": workload.name(),
            "trace": summary,
            "profile": profile.name,
            "stopped": stopped(),
            "lifetime": life,
            "derived": print::derived(&report),
        });
        writeln!(out, "{line}")
    } else {
        let behind = print::behind(&report).map_or(String::new(), |text| format!("{text}\n"));
        write!(out, "{behind}{}", print::lifetime(&report, &life))
    }
    .context("cannot write to stdout")
}
