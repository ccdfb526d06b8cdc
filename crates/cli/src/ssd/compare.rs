// SPDX-License-Identifier: Apache-2.0
//! `senko ssd compare`: every combination of workloads, drives, translation layers and write
//! buffers, on all cores.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use clap::Args;
use senko_io::Output;
use senko_ssd::chart::{Axis, Chart, Unit};
use senko_ssd::report::Report;
use senko_ssd::run::{Outcome, Setup};
use senko_ssd::source::Workload;
use senko_ssd::trace::Summary;
use serde_json::json;

use super::progress::Progress;
use super::run::{Watching, reported};
use super::{DriveArgs, WorkloadArgs, print, stopped};
use crate::existing::Existing;
use crate::process::stop_on_signals;
use crate::units::{at_least_one, counted};

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
    /// Translation layer; repeat the option for more [default: the profile's]
    #[arg(long, value_name = "FTL")]
    ftl: Vec<String>,
    /// Write buffer; repeat the option for more [default: the profile's]
    #[arg(long, value_name = "BUFFER")]
    buffer: Vec<String>,
    /// Runs at the same time [default: one for each core]
    #[arg(value_parser = at_least_one::<usize>, long, value_name = "N")]
    jobs: Option<usize>,
    /// One JSON object for each run, a line each
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// CSV, a line for each run
    #[arg(long)]
    csv: bool,
    /// Draws write amplification and response times of all runs
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    existing: Existing,
}

/// The columns for people. The first four are names.
const HEAD: [&str; 10] = [
    "workload",
    "drive",
    "layer",
    "buffer",
    "hits",
    "erases",
    "WA",
    "requests/s",
    "mean us",
    "p99 us",
];

/// Response times that lie further apart have a logarithmic axis.
const WIDE: f64 = 200.0;
/// The column of drives.
const DRIVE: usize = 1;
/// The column of layers.
const LAYER: usize = 2;
/// The column of buffers.
const BUFFER: usize = 3;
/// How many columns are names.
const NAMES: usize = 4;
/// Between columns.
const GAP: &str = "  ";

struct Combination<'a> {
    workload: &'a Workload,
    summary: &'a Summary,
    setup: &'a Setup,
    ftl: Option<&'a str>,
    buffer: Option<&'a str>,
}

impl Combination<'_> {
    /// Workload, drive, layer and buffer.
    fn names(&self) -> [String; NAMES] {
        let profile = &self.setup.profile;
        [
            self.workload.name(),
            profile.name.clone(),
            self.ftl.unwrap_or(&profile.ftl).to_owned(),
            self.buffer.unwrap_or(&profile.buffer).to_owned(),
        ]
    }
}

/// Runs `senko ssd compare`.
pub fn main(args: &CompareArgs) -> Result<()> {
    let setups = args
        .drive
        .profile
        .iter()
        .map(|name| args.drive.setup_of(name));
    let setups: Vec<Setup> = setups.collect::<Result<_>>()?;
    let workloads: Vec<Workload> = args
        .workloads
        .iter()
        .map(|name| args.reading.open(name))
        .collect::<Result<_>>()?;
    let choices = |given: &'_ [String]| -> Vec<Option<String>> {
        if given.is_empty() {
            vec![None]
        } else {
            given.iter().cloned().map(Some).collect()
        }
    };
    let inputs = super::inputs(&workloads, Some(&args.drive));
    if let Some(path) = &args.plot {
        args.existing.check(path, &inputs)?;
    }
    let (ftls, buffers) = (choices(&args.ftl), choices(&args.buffer));
    for setup in &setups {
        for ftl in &ftls {
            for buffer in &buffers {
                let parts = setup.parts(ftl.as_deref(), buffer.as_deref())?;
                setup.drive(&parts)?;
            }
        }
    }
    stop_on_signals();
    let capacity = setups.iter().map(Setup::capacity).min();
    let shown = !args.json && !args.csv;
    let summaries = workloads
        .iter()
        .map(|workload| super::summarise(workload, capacity, shown));
    let summaries: Vec<Summary> = summaries.collect::<Result<_>>()?;
    let requests = summaries
        .iter()
        .map(|summary| args.reading.requests(summary));
    let mut combinations = Vec::new();
    let runs_each = (setups.len() * ftls.len() * buffers.len()) as u64;
    let total = requests.sum::<u64>().saturating_mul(runs_each);
    for (workload, summary) in workloads.iter().zip(&summaries) {
        for setup in &setups {
            for ftl in &ftls {
                for buffer in &buffers {
                    combinations.push(Combination {
                        workload,
                        summary,
                        setup,
                        ftl: ftl.as_deref(),
                        buffer: buffer.as_deref(),
                    });
                }
            }
        }
    }
    let reports = run_all(args, &combinations, total)?;
    print_all(args, &combinations, &reports)?;
    // A picture that cannot be written costs no figures.
    if let Some(path) = &args.plot {
        let picture = picture(&combinations, &reports);
        Output::write(path, &inputs, picture.as_bytes())?;
    }
    Ok(())
}

/// Runs all combinations on threads. Returns the results in their order; `None` for those that a
/// signal prevented.
fn run_all(
    args: &CompareArgs,
    combinations: &[Combination<'_>],
    total: u64,
) -> Result<Vec<Option<Report>>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(cores);
    let next = AtomicUsize::new(0);
    let progress = Progress::new("comparing", "requests", total);
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
                    if stopped() {
                        return;
                    }
                    let report = run_one(combination, &progress);
                    // A run that a signal interrupted had another load than its neighbours.
                    if !stopped() {
                        *reports[index]
                            .lock()
                            .unwrap_or_else(|held| held.into_inner()) = Some(report);
                    }
                }
            });
        }
    });
    drop(progress);
    let reports: Vec<Option<Report>> = reports
        .into_iter()
        .zip(combinations)
        .map(|(report, combination)| {
            report
                .into_inner()
                .unwrap_or_else(|held| held.into_inner())
                .transpose()
                .with_context(|| {
                    let [workload, drive, layer, buffer] = combination.names();
                    format!("{workload} on {drive}, layer {layer} under buffer {buffer}")
                })
        })
        .collect::<Result<_>>()?;
    if stopped() {
        super::warn(&format!(
            "stopped after {} of {}",
            reports.iter().flatten().count(),
            counted(combinations.len(), "run")
        ));
    }
    Ok(reports)
}

fn run_one(combination: &Combination<'_>, progress: &Progress) -> Result<Report> {
    let setup = combination.setup;
    let parts = setup.parts(combination.ftl, combination.buffer)?;
    let mut watching = Watching {
        filling: None,
        running: progress,
    };
    reported(setup.run(&parts, combination.workload, true, &mut watching)?)
}

/// A table whose columns are as wide as their contents: names on the left, numbers on the right.
/// The drive is left out if there is only one. If the table is wider than a terminal, each workload
/// has a line of its own before its rows.
fn aligned(rows: &[[String; HEAD.len()]], several_drives: bool) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut shown: Vec<usize> = (0..HEAD.len())
        .filter(|&column| column != DRIVE || several_drives)
        .collect();
    let whole: usize = shown.iter().map(|&column| widths[column] + GAP.len()).sum();
    let apart = whole - GAP.len() > crate::prose::COLUMNS;
    if apart {
        shown.remove(0);
    }
    let (mut text, mut workload) = (String::new(), "");
    for (n, row) in rows.iter().enumerate() {
        if apart && n > 0 && row[0] != workload {
            workload = &row[0];
            text += &format!("{workload}\n");
        }
        for (n, &column) in shown.iter().enumerate() {
            let gap = if n == 0 && !apart { "" } else { GAP };
            let (cell, width) = (&row[column], widths[column]);
            text += &match column < NAMES {
                true => format!("{gap}{cell:<width$}"),
                false => format!("{gap}{cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

/// Layers or buffers by their name alone where no two differ in their options alone; the lines that
/// say which options the names stand for.
fn shorter(rows: &mut [[String; HEAD.len()]], column: usize) -> String {
    let plain = |cell: &str| cell.split(':').next().unwrap_or("").to_owned();
    let mut whole: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows.iter().skip(1) {
        let known = whole.entry(plain(&row[column])).or_default();
        if !known.contains(&row[column]) {
            known.push(row[column].clone());
        }
    }
    let mut told = String::new();
    for (name, cells) in whole {
        let [cell] = &cells[..] else { continue };
        if *cell == name {
            continue;
        }
        told += &format!("{name}: {cell}\n");
        for row in rows.iter_mut().filter(|row| row[column] == *cell) {
            row[column] = name.clone();
        }
    }
    told
}

/// One line for each kind of note. Notes of several runs may differ in their figures.
fn notes(noted: BTreeMap<String, Vec<(String, String)>>, all: usize) -> String {
    let line = |(begin, runs): (String, Vec<(String, String)>)| match &runs[..] {
        [(run, note)] => format!("note: {run}: {note}\n"),
        [(_, first), rest @ ..] if rest.iter().all(|(_, note)| note == first) => {
            format!("note: {} of {all} runs: {first}\n", runs.len())
        }
        runs => {
            let advice = runs.first().and_then(|(_, note)| note.rsplit_once(". "));
            let advice = advice.map_or("", |(_, advice)| advice);
            format!("note: {} of {all} runs: {begin}. {advice}\n", runs.len())
        }
    };
    noted.into_iter().map(line).collect()
}

/// Bars for every run: write amplification, and response times where the drive kept up.
fn picture(combinations: &[Combination<'_>], reports: &[Option<Report>]) -> String {
    let rows = combinations.iter().zip(reports);
    let rows: Vec<_> = rows
        .filter_map(|(combination, report)| Some((combination, report.as_ref()?)))
        .collect();
    // Only the parts in which runs differ are named; the longest, the workload, comes last.
    let parts = |combination: &Combination<'_>| {
        let [workload, drive, layer, buffer] = combination.names();
        [layer, buffer, drive, workload]
    };
    let all: Vec<[String; NAMES]> = rows.iter().map(|row| parts(row.0)).collect();
    let drives: BTreeSet<&str> = all.iter().map(|parts| parts[2].as_str()).collect();
    let drives: Vec<&str> = drives.into_iter().collect();
    let differ = |at: usize| all.iter().any(|parts| parts[at] != all[0][at]);
    let told: Vec<usize> = (0..NAMES).filter(|at| *at == 0 || differ(*at)).collect();
    let names = all.iter().map(|parts| {
        let names = told.iter().map(|at| parts[*at].as_str());
        names.collect::<Vec<_>>().join(", ")
    });
    let names: Vec<String> = names.collect();
    let values = |value: &dyn Fn(&Report) -> Option<f64>| -> Vec<f64> {
        let all = rows.iter().map(|(_, report)| value(report));
        all.map(|value| value.unwrap_or(f64::NAN)).collect()
    };
    let title = format!(
        "Layers and buffers on {}: shorter bars are better",
        drives.join(" and ")
    );
    let amplification = [(String::new(), values(&Report::write_amplification))];
    let what = "write amplification: bytes programmed for each byte that the host writes";
    let axis = Axis::linear(what, Unit::Number(""));
    let mut chart = Chart::bars(&title, axis, &names, &amplification);
    if rows.iter().any(|(_, report)| report.timed) {
        let shown = |report: &Report, us: f64| {
            (report.timed && !report.falls_behind()).then_some(us * 1000.0)
        };
        let times = [
            ("mean".to_owned(), values(&|r| shown(r, r.all.mean_us))),
            ("p99".to_owned(), values(&|r| shown(r, r.all.p99_us))),
        ];
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        let (least, most) = (least(&times[0].1), most(&times[1].1));
        // Beside one stall of a second, all bars of microseconds would have no length.
        let axis = if least > 0.0 && most / least > WIDE {
            Axis::log("response time, on a logarithmic axis", Unit::Nanoseconds)
        } else {
            Axis::linear("response time", Unit::Nanoseconds)
        };
        chart = chart.and(Chart::bars("", axis, &names, &times));
    }
    chart.to_svg()
}

fn print_all(
    args: &CompareArgs,
    combinations: &[Combination<'_>],
    reports: &[Option<Report>],
) -> Result<()> {
    let rows = combinations.iter().zip(reports);
    let rows = rows.filter_map(|(combination, report)| Some((combination, report.as_ref()?)));
    let mut text = String::new();
    let mut table = vec![HEAD.map(str::to_owned)];
    let several_drives = args.drive.profile.len() > 1;
    let (mut behind, mut noted) = (false, BTreeMap::new());
    for (index, (combination, report)) in rows.enumerate() {
        let name = combination.workload.name();
        let profile = &combination.setup.profile;
        let (workload, summary) = (combination.workload, combination.summary);
        // A run that a signal ended has no report.
        let outcome = Outcome::new(workload, summary, profile, report, false);
        if args.json {
            text.push_str(&format!("{}\n", json!(outcome)));
        } else if args.csv {
            let (names, values) = print::csv(&name, profile, report);
            if index == 0 {
                text.push_str(&format!("{names}\n"));
            }
            text.push_str(&format!("{values}\n"));
        } else {
            behind |= report.falls_behind();
            for note in outcome.notes {
                let [_, drive, layer, _] = combination.names();
                let drive = if several_drives {
                    drive + ", "
                } else {
                    String::new()
                };
                let run = format!("{name}, {drive}{layer} under {}", report.buffer);
                let begin = note.split_once(": ").map_or(&*note, |(begin, _)| begin);
                let runs = noted.entry(begin.to_owned()).or_insert_with(Vec::new);
                runs.push((run, note));
            }
            let time = |us: f64| match report.requests_a_second() {
                Some(_) if report.falls_behind() => "behind".to_owned(),
                Some(_) => format!("{us:.1}"),
                None => "-".to_owned(),
            };
            let pace = report.requests_a_second();
            table.push([
                name,
                profile.name.clone(),
                report.ftl.clone(),
                report.buffer.clone(),
                print::percent(report.write_hit_ratio()),
                report.flash.all_erases().to_string(),
                print::two(report.write_amplification()),
                pace.map_or("-".to_owned(), |pace| format!("{pace:.0}")),
                time(report.all.mean_us),
                time(report.all.p99_us),
            ]);
        }
    }
    if table.len() > 1 {
        let told = shorter(&mut table, LAYER) + &shorter(&mut table, BUFFER);
        text.push_str(&aligned(&table, several_drives));
        text.push_str(&told);
    }
    // A table keeps its columns in a terminal too.
    crate::out::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to stdout")?;
    let mut prose = String::new();
    if behind {
        prose.push_str(
            "behind: the drive can't keep up with the workload, so that response times grow with its length (--closed shows the drive's own pace)\n",
        );
    }
    prose.push_str(&notes(noted, combinations.len()));
    crate::prose::stdout()
        .write_all(prose.as_bytes())
        .context("cannot write to stdout")
}
