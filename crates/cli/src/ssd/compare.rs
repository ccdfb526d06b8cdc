// SPDX-License-Identifier: Apache-2.0
//! `senko ssd compare`: every combination of workloads, translation layers and write buffers, on all cores.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use clap::Args;
use senko_ssd::profile::Profile;
use senko_ssd::report::Report;
use senko_ssd::source::Workload;
use serde_json::json;

use super::{DriveArgs, WorkloadArgs, print, run};

/// Arguments of `senko ssd compare`.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Traces' files or generators
    #[arg(required = true)]
    workloads: Vec<String>,
    #[command(flatten)]
    reading: WorkloadArgs,
    #[command(flatten)]
    drive: DriveArgs,
    /// Translation layers; repeat the option for more. Without it the profile's
    #[arg(long, value_name = "FTL")]
    ftl: Vec<String>,
    /// Write buffers; repeat the option for more. Without it the profile's
    #[arg(long, value_name = "BUFFER")]
    buffer: Vec<String>,
    /// Runs at once; without it as many as there are cores
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// One JSON object for each run, a line each
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// CSV, a line for each run
    #[arg(long)]
    csv: bool,
}

struct Combination<'a> {
    workload: &'a Workload,
    ftl: Option<&'a str>,
    buffer: Option<&'a str>,
}

/// Runs `senko ssd compare`.
pub fn main(args: &CompareArgs) -> Result<()> {
    args.drive.check()?;
    let profile = args.drive.profile()?;
    let workloads: Vec<Workload> = args
        .workloads
        .iter()
        .map(|name| args.reading.open(name))
        .collect::<Result<_>>()?;
    if !args.json && !args.csv {
        for workload in &workloads {
            eprintln!("{}: {}", workload.name(), workload.summary()?);
        }
    }
    let choices = |given: &'_ [String]| -> Vec<Option<String>> {
        if given.is_empty() {
            vec![None]
        } else {
            given.iter().cloned().map(Some).collect()
        }
    };
    let (ftls, buffers) = (choices(&args.ftl), choices(&args.buffer));
    let mut combinations = Vec::new();
    for workload in &workloads {
        for ftl in &ftls {
            for buffer in &buffers {
                combinations.push(Combination {
                    workload,
                    ftl: ftl.as_deref(),
                    buffer: buffer.as_deref(),
                });
            }
        }
    }
    let reports = run_all(args, &profile, &combinations)?;
    print_all(args, &profile, &combinations, &reports)
}

/// Runs all, on threads; the results in the order of the combinations.
fn run_all(
    args: &CompareArgs,
    profile: &Profile,
    combinations: &[Combination<'_>],
) -> Result<Vec<Report>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(cores);
    if jobs == 0 {
        bail!("--jobs 0 runs nothing");
    }
    let terminal = std::io::stderr().is_terminal();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let reports: Vec<Mutex<Option<Result<Report>>>> =
        combinations.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(combinations.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(combination) = combinations.get(index) else {
                        return;
                    };
                    let report = run_one(args, profile, combination);
                    *reports[index]
                        .lock()
                        .unwrap_or_else(|held| held.into_inner()) = Some(report);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if terminal {
                        eprint!("\r\x1b[K{done} of {} runs ", combinations.len());
                    }
                }
            });
        }
    });
    if terminal {
        eprint!("\r\x1b[K");
    }
    reports
        .into_iter()
        .zip(combinations)
        .map(|(report, combination)| {
            report
                .into_inner()
                .unwrap_or_else(|held| held.into_inner())
                .expect("each combination was run")
                .with_context(|| {
                    format!(
                        "{} on layer {} under buffer {}",
                        combination.workload.name(),
                        combination.ftl.unwrap_or(&profile.ftl),
                        combination.buffer.unwrap_or(&profile.buffer)
                    )
                })
        })
        .collect()
}

fn run_one(args: &CompareArgs, profile: &Profile, combination: &Combination<'_>) -> Result<Report> {
    let parts = args.drive.parts(combination.ftl, combination.buffer)?;
    run::simulate(
        &args.drive,
        profile,
        &parts,
        combination.workload,
        true,
        |_| {},
    )
}

fn print_all(
    args: &CompareArgs,
    profile: &Profile,
    combinations: &[Combination<'_>],
    reports: &[Report],
) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let rows = combinations.iter().zip(reports);
    let mut text = String::new();
    for (index, (combination, report)) in rows.enumerate() {
        let name = combination.workload.name();
        if args.json {
            let line = json!({ "workload": name, "profile": profile.name, "report": report, "derived": print::derived(report) });
            text.push_str(&format!("{line}\n"));
        } else if args.csv {
            let (names, values) = print::csv(&name, profile, report);
            if index == 0 {
                text.push_str(&format!("{names}\n"));
            }
            text.push_str(&format!("{values}\n"));
        } else {
            if index == 0 {
                text.push_str(&format!(
                    "{:<30} {:<26} {:<14} {:>9} {:>9} {:>8} {:>12} {:>12}\n",
                    "workload", "layer", "buffer", "hits", "erases", "WA", "mean us", "p99 us"
                ));
            }
            text.push_str(&format!(
                "{:<30} {:<26} {:<14} {:>9} {:>9} {:>8} {:>12.1} {:>12.1}\n",
                name,
                report.ftl,
                report.buffer,
                print::percent(report.write_hit_ratio()),
                report.flash.all_erases(),
                print::two(report.write_amplification()),
                report.all.mean_us,
                report.all.p99_us
            ));
        }
    }
    out.write_all(text.as_bytes())
        .context("cannot write to stdout")
}
