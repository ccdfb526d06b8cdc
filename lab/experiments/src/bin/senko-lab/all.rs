// SPDX-License-Identifier: Apache-2.0
//! `senko-lab run --all`: every experiment, each in its own process.
//!
//! A separate process returns its memory, and if it panics, no other experiment ends. All of them
//! together have a time limit. An experiment that takes much more than its share of the remaining
//! time is asked to end, as by Ctrl-C. Its figures up to then are kept.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use senko_io::{out, tell};
use senko_lab::rig::cleanup::{self, Undo};
use senko_lab::{Table, results};
use serde_json::{Value, json};

use super::RunArgs;

/// The default time of all quick runs.
const QUICK: Duration = Duration::from_secs(19 * 60);
/// An experiment may take this many times its share of the remaining time. The longest quick one
/// needs five times its share.
const UNEVEN: f64 = 6.0;
/// How often a run is checked.
const LOOK: Duration = Duration::from_millis(50);

/// How an experiment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It reported itself what it measured and what is missing.
    Itself,
    /// Its time was over.
    OutOfTime,
    /// It crashed.
    Broken,
}

pub fn main(args: &RunArgs) -> Result<()> {
    let limit = match (args.minutes, args.quick) {
        (Some(0), _) => bail!("--minutes 0 leaves no time for an experiment"),
        (Some(minutes), _) => Some(Duration::from_secs(minutes.saturating_mul(60))),
        (None, true) => Some(QUICK),
        (None, false) => None,
    };
    let path = args.results();
    results::check(&path)?;
    let experiments = senko_lab::experiments();
    cleanup::on_signals();
    let (start, mut broken, mut measured) = (Instant::now(), Vec::new(), 0);
    let mut times = Vec::new();
    for (at, experiment) in experiments.iter().enumerate() {
        let name = experiment.name;
        let share = limit.map(|limit| {
            let left = limit.saturating_sub(start.elapsed());
            let part = left.as_secs_f64() / (experiments.len() - at) as f64;
            left.min(Duration::from_secs_f64(part * UNEVEN))
        });
        tell!("[{}/{}] {name}", at + 1, experiments.len());
        let begun = Instant::now();
        let from = std::fs::metadata(&path).map_or(0, |found| found.len());
        let (ended, line) = run(name, args, share)?;
        let record = match line.or_else(|| results::newest_from(&path, from, name)) {
            Some(record) => record,
            None => gap(args, name, ended, &path)?,
        };
        if ended == Ended::Broken {
            broken.push(name);
        }
        let bars = record["bars"].as_object().map_or(0, |bars| bars.len());
        measured += usize::from(bars > 0);
        let took = begun.elapsed();
        show(args, name, ended, bars, &record, took)?;
        times.push((name, took, bars, ended));
    }
    let mut out = out::stdout();
    if !args.json {
        writeln!(
            out,
            "\n{}\n{measured} of {} experiments have figures, after {:.1} minutes; results are in {}, and senko-lab report shows them",
            longest_first(times).to_markdown(),
            experiments.len(),
            start.elapsed().as_secs_f64() / 60.0,
            path.display()
        )
        .context("cannot write to stdout")?;
    }
    if !broken.is_empty() {
        bail!(
            "these experiments ended without a result: {}",
            broken.join(", ")
        );
    }
    Ok(())
}

/// The time of each experiment.
fn longest_first(mut times: Vec<(&str, Duration, usize, Ended)>) -> Table {
    times.sort_by_key(|(_, took, ..)| std::cmp::Reverse(*took));
    let mut table = Table::titled("Times, the longest first");
    for (name, took, bars, ended) in times {
        let ended = match ended {
            Ended::Itself => "by itself",
            Ended::OutOfTime => "stopped, its time was over",
            Ended::Broken => "without a result",
        };
        table.add([
            ("experiment", name.to_owned()),
            ("s", format!("{:.0}", took.as_secs_f64())),
            ("figures", bars.to_string()),
            ("ended", ended.to_owned()),
        ]);
    }
    table
}

fn show(
    args: &RunArgs,
    name: &str,
    ended: Ended,
    bars: usize,
    record: &Value,
    took: Duration,
) -> Result<()> {
    let mut out = out::stdout();
    if args.json {
        let mut line = record.clone();
        line["experiment"] = json!(name);
        return writeln!(out, "{line}").context("cannot write to stdout");
    }
    let mut text = format!("{name:<24} {bars:>4} figures {:>6.0} s", took.as_secs_f64());
    if ended == Ended::OutOfTime {
        text.push_str("; stopped, its time was over");
    }
    let gaps = record["missing"].as_object().into_iter().flatten();
    let mut reasons: Vec<&str> = gaps.filter_map(|(_, why)| why.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    for why in &reasons {
        text.push_str(&format!("\n    lacks: {why}"));
    }
    if !reasons.is_empty() {
        let missed = senko_lab::find(name)?.would_have_shown();
        text.push_str(&format!("\n    {missed}"));
    }
    writeln!(out, "{text}").context("cannot write to stdout")
}

/// A record for a run that left none. Without it, the report would silently show an older run's
/// figures.
fn gap(args: &RunArgs, name: &str, ended: Ended, path: &Path) -> Result<Value> {
    let why = match ended {
        Ended::OutOfTime => "its time was over before it had a figure",
        _ => "the run ended without a result; senko-lab run shows why",
    };
    let record = results::impossible(name, &args.options(), why)?;
    if let Err(error) = results::append(path, &record) {
        tell!("warning: {error:#}");
    }
    Ok(record)
}

/// Runs one experiment: returns how it ended, and its result's object.
fn run(name: &str, args: &RunArgs, share: Option<Duration>) -> Result<(Ended, Option<Value>)> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let mut command = Command::new(program);
    command.args(["run", name, "--json", "--seed", &args.seed.to_string()]);
    command.arg("--traces").arg(&args.traces);
    command.arg("--results").arg(args.results());
    if args.quick {
        command.arg("--quick");
    }
    for (name, path) in [
        ("--scratch", &args.scratch),
        ("--memcached", &args.memcached),
        ("--memtier", &args.memtier),
    ] {
        if let Some(path) = path {
            command.arg(name).arg(path);
        }
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start the experiment {name}"))?;
    // Undone even if this process is stopped.
    let guard = cleanup::later(Undo::Stop(child.id()));
    let reader = child.stdout.take().map(|mut out| {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = out.read_to_string(&mut text);
            text
        })
    });
    let in_time = wait(&mut child, share)?;
    // Asks it to end, if it has not ended.
    if in_time {
        guard.forget();
    } else {
        drop(guard);
    }
    let status = child.wait().context("cannot wait for an experiment")?;
    cleanup::wait_if_stopped();
    let text = reader
        .and_then(|reader| reader.join().ok())
        .unwrap_or_default();
    let line = text
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok());
    let ended = match (in_time, status.code()) {
        (false, _) => Ended::OutOfTime,
        // 1: it could not be run, or measured nothing, and has reported the reason.
        (true, Some(0 | 1)) => Ended::Itself,
        _ => Ended::Broken,
    };
    Ok((ended, line))
}

fn wait(child: &mut Child, share: Option<Duration>) -> Result<bool> {
    let start = Instant::now();
    while child
        .try_wait()
        .context("cannot wait for an experiment")?
        .is_none()
    {
        if share.is_some_and(|share| start.elapsed() >= share) {
            return Ok(false);
        }
        sleep(LOOK);
    }
    Ok(true)
}
