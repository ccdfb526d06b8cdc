// SPDX-License-Identifier: Apache-2.0
//! `senko-lab`: lists and runs the experiments of `senko_lab`, and reports; these files have only
//! arguments and printing.

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod all; // every experiment, each in its own process
mod report; // the page

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use senko_io::{bar, out, say, tell};
use senko_lab::rig::sys;
use senko_lab::{DEFAULT_TRACES, Options, Progress, Report, Scale, Table, results};
use senko_plan::short;
use senko_workload::units::count;
use serde_json::json;

/// What experiments ran with when `senko` had them; a worker holds a store of ours.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Files that an experiment with 2048 connections may have open.
const OPEN_FILES: u64 = 2048 + 128;

#[derive(Debug, Parser)]
#[command(
    name = "senko-lab",
    version,
    about = "Runs the experiments behind the papers' tables and figures",
    max_term_width = 80,
    after_help = "Examples:\n  \
    senko-lab list\n  \
    senko-lab run dram-policy --quick\n      \
      the report for people, then one line RESULT {...}\n  \
    senko-lab run serve-flash-get --scratch /mnt/nvme\n      \
      on the disk of that folder; root is needed to cap memory\n  \
    senko-lab run --all --quick && senko-lab report --open\n      \
      every experiment, in at most 20 minutes, then all results as one page\n\n\
    Results are appended to a file (--results), one JSON line a run.\n\
    Exit codes: 0 figures were measured, though some may be missing, with the reason; 1 none was, or the run was impossible;\n\
    2 a wrong option; 130 Ctrl-C. With --all, an experiment that lacks something is a gap in the report, not a failure."
)]
struct Lab {
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
    /// Runs one experiment, or all
    Run(Box<RunArgs>),
    /// Writes all results as one HTML page
    Report(report::ReportArgs),
    /// Holds a store for an experiment that drives it over stdin and stdout
    #[command(hide = true)]
    Worker,
}

/// Arguments of `senko-lab run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Its name, as `senko-lab list` has it
    #[arg(required_unless_present = "all")]
    name: Option<String>,
    /// Every experiment, one after the other
    #[arg(long, conflicts_with = "name")]
    all: bool,
    /// The same measurement, smaller: at most a minute or two
    #[arg(long)]
    quick: bool,
    /// With --all: ends after this many minutes. An experiment that takes more than its share is
    /// stopped, and its figures so far count [default: 19 with --quick, else no limit]
    #[arg(long, value_name = "N", value_parser = count::<u64>, requires = "all",
        conflicts_with = "name")]
    minutes: Option<u64>,
    /// Folder of the real traces
    #[arg(long, value_name = "DIR", default_value = DEFAULT_TRACES)]
    traces: PathBuf,
    /// Seed of everything random
    #[arg(value_name = "N", value_parser = count::<u64>, long, default_value_t = 1)]
    seed: u64,
    /// Folder on the disk to measure, for flash files and the like, which are removed at the end
    /// [default: the system's temporary folder, or /var/tmp if that is in memory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// memcached to compare with, if it is not the one on the path
    #[arg(long, value_name = "FILE")]
    memcached: Option<PathBuf>,
    /// memtier_benchmark, if it is not on the path
    #[arg(long, value_name = "FILE")]
    memtier: Option<PathBuf>,
    /// File to which results are appended [default: senko/lab.jsonl in $XDG_STATE_HOME or
    /// ~/.local/state]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Only one JSON object on stdout; with --all, one object a line
    #[arg(long)]
    json: bool,
}

impl RunArgs {
    fn results(&self) -> PathBuf {
        self.results.clone().unwrap_or_else(results::default_path)
    }

    fn options(&self) -> Options {
        let mut options = Options {
            scale: if self.quick {
                Scale::Quick
            } else {
                Scale::Full
            },
            traces: self.traces.clone(),
            seed: self.seed,
            ..Options::default()
        };
        for (given, used) in [
            (&self.scratch, &mut options.scratch),
            (&self.memcached, &mut options.memcached),
            (&self.memtier, &mut options.memtier),
        ] {
            if let Some(path) = given {
                used.clone_from(path);
            }
        }
        options
    }
}

fn main() -> ExitCode {
    out::end(start())
}

fn start() -> ExitCode {
    sys::survive_long_files();
    let done = match Lab::try_parse() {
        Ok(lab) => run(lab.command),
        Err(error) => {
            // Help and version go to stdout and succeed; clap knows which of these it is.
            let code = ExitCode::from(error.exit_code() as u8);
            match out::seen(error.print()) {
                Err(why) if !error.use_stderr() => {
                    Err(anyhow::Error::from(why).context("cannot write to stdout"))
                }
                _ => return code,
            }
        }
    };
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    if !out::closed() {
        tell!("senko-lab: {error:#}");
    }
    ExitCode::FAILURE
}

fn run(command: LabCommand) -> Result<()> {
    match command {
        LabCommand::List { json } => list(json),
        LabCommand::Run(args) if args.all => all::main(&args),
        LabCommand::Run(args) => one(&args),
        LabCommand::Report(args) => report::main(&args),
        LabCommand::Worker => senko_lab::kv::child::main(senko_lab::kv::ours()),
    }
}

fn list(json: bool) -> Result<()> {
    let mut out = out::stdout();
    for experiment in senko_lab::experiments() {
        let (name, source, text) = (experiment.name, experiment.source, experiment.text);
        if json {
            let line = json!({ "name": name, "source": source, "claim": text });
            writeln!(out, "{line}")
        } else {
            write!(out, "{}", listed(name, &format!("{text} ({source})")))
        }
        .context("cannot write to stdout")?;
    }
    Ok(())
}

/// A name and its text, in lines of at most 80 columns.
fn listed(name: &str, text: &str) -> String {
    const NAME: usize = 24;
    const LINE: usize = 80;
    let (mut lines, mut line) = (String::new(), format!("{name:<NAME$}"));
    for word in text.split(' ') {
        if line.len() > NAME && line.len() + 1 + word.len() > LINE {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = " ".repeat(NAME);
        }
        if !line.ends_with(' ') {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

fn one(args: &RunArgs) -> Result<()> {
    let name = args.name.as_deref().unwrap_or_default();
    let bar = Bar {
        shown: Cell::new(false),
        doing: RefCell::default(),
        terminal: say::terminal(),
        start: Instant::now(),
    };
    let (options, results) = (args.options(), args.results());
    senko_lab::find(name)?;
    results::check(&results)?;
    // Where the limit stays low, an experiment with many connections says so itself.
    drop(sys::open_files(OPEN_FILES));
    let (json, kept) = (args.json, results.clone());
    let told = move |report: Report| {
        let _ = keep(&report, &kept);
        let _ = print(&report, json);
    };
    let report = match senko_lab::run_until_stopped(name, &options, &bar, told) {
        Ok(report) => report,
        Err(error) => {
            // A gap in the report, with its reason.
            let record = results::impossible(name, &options, &format!("{error:#}"))?;
            results::append(&results, &record)?;
            return Err(error);
        }
    };
    bar.end();
    // A result that cannot be stored is printed all the same.
    print(&report, args.json)?;
    keep(&report, &results)?;
    if report.outcome.bars().is_empty() {
        let why = report.outcome.missing().values().next();
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        bail!("no figure of {name} could be measured{why}");
    }
    if !args.json && out::stdout().is_terminal() {
        tell!(
            "the result is in {}; senko-lab report shows all",
            results.display()
        );
    }
    Ok(())
}

fn keep(report: &Report, path: &Path) -> Result<()> {
    results::append(path, &results::record(report))
}

fn print(report: &Report, json: bool) -> Result<()> {
    let mut out = out::stdout();
    if json {
        return writeln!(out, "{}", report.to_json()).context("cannot write to stdout");
    }
    let mut text = report.text();
    for table in [said(report), held(report)] {
        if !table.rows.is_empty() {
            text.push_str(&format!("\n{}", table.to_markdown()));
        }
    }
    // People read tables; programs that read a pipe want the line.
    if !out.is_terminal() {
        text.push_str(&format!("{}\n", report.result_line()));
    }
    write!(out, "{text}").context("cannot write to stdout")
}

/// The verdicts on the paper's sentences.
fn said(report: &Report) -> Table {
    let mut table = Table::titled("What the paper says");
    let record = report.to_json();
    for sentence in report.experiment.sentences {
        table.add([
            ("where", sentence.place.to_owned()),
            ("what", sentence.text.to_owned()),
            ("verdict", sentence.verdict(Some(&record)).text()),
        ]);
    }
    table
}

/// The figures that have a minimum and a goal.
fn held(report: &Report) -> Table {
    let mut table = Table::titled("Held against");
    let record = report.to_json();
    for bar in report.experiment.bars {
        let value = report.outcome.bars().get(bar.key);
        let sign = if bar.less { "<=" } else { ">=" };
        table.add([
            ("figure", bar.key.to_owned()),
            ("here", value.map_or("-".to_owned(), |value| short(*value))),
            ("must", format!("{sign} {}", short(bar.must))),
            ("goal", short(bar.goal)),
            ("", bar.standing(&record).text().to_owned()),
        ]);
    }
    table
}

/// The progress of the run: on a terminal one line that changes, elsewhere one line for each part.
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
        let left = say::time_left(self.start.elapsed(), share);
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn documents() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (mut files, mut folders) = (vec![root.join("README.md")], vec![root.join("docs")]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                match path.extension() {
                    _ if path.is_dir() => folders.push(path),
                    Some(end) if end == "md" => files.push(path),
                    _ => {}
                }
            }
        }
        files
    }

    /// In a terminal of 80 columns, lines broke within words.
    #[test]
    fn no_help_is_wider_than_80_columns() {
        let mut all = vec![Lab::command()];
        all[0].build();
        while let Some(mut command) = all.pop() {
            let help = command.render_long_help().to_string();
            let wide = help.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{}", command.get_name());
            all.extend(command.get_subcommands().cloned());
        }
    }

    /// Every example is a command line that is accepted, of an experiment that exists. `[--quick]`
    /// marks an optional option.
    #[test]
    fn examples_are_command_lines() {
        let mut texts: Vec<String> = documents()
            .iter()
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect();
        let help = Lab::command().render_long_help().to_string();
        texts.push(help.replace("\n  ", "\n    "));
        let mut parsed = 0;
        for line in texts.iter().flat_map(|text| text.lines()) {
            let Some(code) = line.strip_prefix("    ") else {
                continue;
            };
            let code = code.split("  ").next().unwrap().replace(['[', ']'], "");
            for command in code.split("&&") {
                let words = command.split_whitespace();
                let words: Vec<&str> = words.skip_while(|word| *word != "senko-lab").collect();
                if words.is_empty() {
                    continue;
                }
                let lab = Lab::try_parse_from(&words);
                let lab = lab.unwrap_or_else(|error| panic!("{command}: {error}"));
                if let LabCommand::Run(run) = lab.command {
                    run.name.map(|name| senko_lab::find(&name).unwrap());
                }
                parsed += 1;
            }
        }
        assert!(parsed > 40, "only {parsed} examples were found");
    }
}
