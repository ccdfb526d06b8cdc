// SPDX-License-Identifier: Apache-2.0
//! `senko ssd run` and `senko ssd lifetime`: one workload on one drive.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use crate::units::{at_least_one, counted};
use anyhow::{Context, Result, bail};
use clap::Args;
use senko_io::Output;
use senko_ssd::device::Parts;
use senko_ssd::lifetime::Lifetime;
use senko_ssd::plot;
use senko_ssd::report::Report;
use senko_ssd::run::{Outcome, Setup, Watch};
use senko_ssd::source::Workload;
use senko_ssd::trace::Summary;
use serde_json::json;

use super::progress::Progress;
use super::{DriveArgs, WorkloadArgs, print, stopped};
use crate::existing::Existing;
use crate::process::{Interrupted, stop_on_signals};

/// One workload and one drive.
#[derive(Args, Debug)]
pub struct OneArgs {
    /// A trace's file or a generator
    pub workload: String,
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
    /// The workload and the drive that they name.
    pub fn open(&self) -> Result<(Setup, Parts, Workload)> {
        let setup = self.drive.setup()?;
        let parts = setup.parts(self.ftl.as_deref(), self.buffer.as_deref())?;
        // Checked before a long trace is read.
        setup.drive(&parts)?;
        Ok((setup, parts, self.reading.open(&self.workload)?))
    }
}

/// Arguments of `senko ssd run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Writes the buffer's remaining pages to the flash at the end
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
    #[command(flatten)]
    existing: Existing,
}

/// Arguments of `senko ssd lifetime`.
#[derive(Args, Debug)]
pub struct LifetimeArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Cycles that a block lives, in place of the profile's
    #[arg(value_parser = at_least_one::<u32>, long, value_name = "N")]
    cycles: Option<u32>,
    /// Only one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Shows the progress of a run, and ends the run on a signal.
pub struct Watching<'a> {
    pub filling: Option<&'a Progress>,
    pub running: &'a Progress,
}

impl Watch for Watching<'_> {
    fn filled(&mut self, done: u64, all: u64) -> bool {
        if let Some(filling) = self.filling {
            filling.set(done, all);
        }
        !stopped()
    }

    fn ran(&mut self, requests: u64) {
        self.running.add(requests);
    }

    fn stop(&self) -> &'static AtomicBool {
        stop_on_signals()
    }
}

/// The report of a run, if it has one.
pub fn reported(report: Option<Report>) -> Result<Report> {
    if let Some(report) = report {
        return Ok(report);
    }
    let interrupted = Interrupted::now().context("filling the drive was interrupted")?;
    Err(interrupted).context("the drive was not filled before the first request")
}

impl OneArgs {
    /// Runs it, and shows its progress. A run that was stopped is reported as such.
    pub fn simulate(
        &self,
        setup: &Setup,
        parts: &Parts,
        workload: &Workload,
        drain: bool,
        summary: &Summary,
    ) -> Result<Report> {
        let filling = Progress::new("filling the drive", "pages", 0);
        let total = self.reading.requests(summary);
        let running = Progress::new("simulating", "requests", total);
        let mut watching = Watching {
            filling: Some(&filling),
            running: &running,
        };
        let report = reported(setup.run(parts, workload, drain, &mut watching)?)?;
        drop((running, filling));
        if stopped() {
            super::warn(&format!(
                "stopped: what follows is of {}, out of {total}",
                counted(report.all.count, "request")
            ));
        }
        Ok(report)
    }
}

/// Runs `senko ssd run`.
pub fn run(args: &RunArgs) -> Result<()> {
    let (setup, parts, workload) = args.one.open()?;
    let inputs = super::inputs(std::slice::from_ref(&workload), Some(&args.one.drive));
    for path in args.plot_erases.iter().chain(&args.plot_responses) {
        args.existing.check(path, &inputs)?;
    }
    let (_, capacity) = (stop_on_signals(), setup.capacity());
    let summary = super::summarise(&workload, Some(capacity), !args.json && !args.csv)?;
    let report = args
        .one
        .simulate(&setup, &parts, &workload, args.drain, &summary)?;
    let title = format!(
        "{}: {} under {}",
        workload.name(),
        report.ftl,
        report.buffer
    );
    let profile = &setup.profile;
    let outcome = Outcome::new(&workload, &summary, profile, &report, stopped());
    let mut out = crate::prose::stdout();
    if args.json {
        writeln!(out, "{}", json!(outcome))
    } else if args.csv {
        let (names, values) = print::csv(&workload.name(), profile, &report);
        for note in &outcome.notes {
            super::warn(note);
        }
        writeln!(out, "{names}\n{values}")
    } else {
        let life = outcome.lifetime.as_ref();
        // The report prints its own.
        let more = &outcome.notes[report.notes().len()..];
        let more: String = more.iter().map(|note| format!("note: {note}\n")).collect();
        write!(out, "{}{more}", print::report(profile, &report, life))
    }
    .context("cannot write to stdout")?;
    if args.one.drive.wa && args.plot_responses.is_some() {
        super::warn("--plot-responses draws nothing beside --wa, which has no times");
    }
    // A picture that cannot be written costs no figures.
    if let Some(path) = &args.plot_erases {
        let picture = plot::erases(&title, &report.wear);
        Output::write(path, &inputs, picture.as_bytes())?;
    }
    if let Some(path) = &args.plot_responses {
        let picture = plot::responses(&title, &report.series);
        Output::write(path, &inputs, picture.as_bytes())?;
    }
    Ok(())
}

/// Runs `senko ssd lifetime`.
pub fn lifetime(args: &LifetimeArgs) -> Result<()> {
    let (setup, parts, workload) = args.one.open()?;
    if args.one.drive.wa
        || args.one.drive.closed.is_some()
        || !workload
            .timed()
            .map_err(|error| super::of_workload(&workload.name(), error))?
    {
        bail!(
            "{} has no times, or they are not used, and without them there is no rate by which to count years: give a generator rate=N, and leave out --wa and --closed",
            workload.name()
        );
    }
    let (_, capacity) = (stop_on_signals(), setup.capacity());
    let summary = super::summarise(&workload, Some(capacity), !args.json)?;
    let report = args
        .one
        .simulate(&setup, &parts, &workload, true, &summary)?;
    let cycles = args.cycles.unwrap_or(setup.profile.endurance.cycles);
    let life = Lifetime::of(&report, cycles).map(|life| life.of_whole(setup.profile.scale));
    let Some(life) = life else {
        if let Some(interrupted) = Interrupted::now() {
            return Err(interrupted).context("no block was erased until then");
        }
        if report.host_bytes_written == 0 {
            bail!(
                "{} writes nothing, so it wears out no block: there is no life to tell",
                workload.name()
            );
        }
        if report.arrival_seconds <= 0.0 {
            bail!(
                "all requests of {} come at once, so there is no rate by which to count years",
                workload.name()
            );
        }
        bail!(
            "{} erased no block of this drive: use more --rounds, or fill the drive before with --precondition",
            workload.name()
        );
    };
    let mut out = crate::prose::stdout();
    if args.json {
        let line = json!({
            "workload": workload.name(),
            "trace": summary,
            "profile": setup.profile.name,
            "stopped": stopped(),
            "lifetime": life,
            "derived": report.derived(),
            "notes": report.notes(),
        });
        writeln!(out, "{line}")
    } else {
        let behind = print::behind(&report).map_or(String::new(), |text| format!("{text}\n"));
        let (lived, notes) = (print::lifetime(&report, &life), print::notes(&report));
        write!(out, "{behind}{lived}{notes}")
    }
    .context("cannot write to stdout")
}
