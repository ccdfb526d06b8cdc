// SPDX-License-Identifier: Apache-2.0
//! `senko ssd trace`: the facts of a trace, its conversion, its picture, and generated traces.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use senko_io::{Output, Unfinished};
use senko_ssd::plot;
use senko_ssd::trace::{TraceWriter, WriteFormat, Written};
use serde_json::json;

use super::progress::Progress;
use super::{WorkloadArgs, size_of, stopped};
use crate::existing::Existing;
use crate::process::{Interrupted, stop_on_signals};
use crate::units::{counted, some_bytes_text};

/// Arguments of `senko ssd trace`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    senko ssd trace info Financial1.spc\n  \
    senko ssd trace convert Financial1.spc Financial1.trace --limit 1000")]
pub struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Says what a trace is: requests, mix, footprint, duration, what was dropped and why
    #[command(after_help = "Examples:\n  \
        senko ssd trace info Financial1.spc\n  \
        senko ssd trace info Financial1.spc.gz --json")]
    Info {
        /// A trace's file or a generator
        workload: String,
        #[command(flatten)]
        reading: WorkloadArgs,
        /// Only one JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Writes a trace in another format
    #[command(after_help = "Examples:\n  \
        senko ssd trace convert a.csv small.spc --to spc --limit 1000\n  \
        senko ssd trace convert b.spc b.trace --fold modulo --capacity 1g")]
    Convert(ConvertArgs),
    /// Writes the requests of a generator as a trace
    #[command(after_help = "Examples:\n  \
        senko ssd trace gen zipf:theta=0.9,count=10k zipf.trace\n  \
        senko ssd trace gen uniform:count=2k uniform.csv --to msr")]
    Gen(ConvertArgs),
    /// Draws requests over time, reads and writes apart
    #[command(after_help = "Examples:\n  senko ssd trace plot Financial1.spc -o requests.svg")]
    Plot {
        /// A trace's file or a generator
        workload: String,
        #[command(flatten)]
        reading: WorkloadArgs,
        /// The picture
        #[arg(short, long, value_name = "FILE.svg")]
        output: PathBuf,
        #[command(flatten)]
        existing: Existing,
    },
}

#[derive(Args, Debug)]
struct ConvertArgs {
    /// A trace's file or a generator
    workload: String,
    /// The new file
    output: PathBuf,
    #[command(flatten)]
    reading: WorkloadArgs,
    /// Format of the new file: spc, msr, columns, fio or senko, with options
    #[arg(long, value_name = "FORMAT", default_value = "senko")]
    to: String,
    /// Capacity into which addresses are folded
    #[arg(value_parser = some_bytes_text, long, value_name = "SIZE", requires = "fold")]
    capacity: Option<String>,
    /// Only one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Runs `senko ssd trace`.
pub fn main(args: TraceArgs) -> Result<()> {
    match args.command {
        TraceCommand::Info {
            workload,
            reading,
            json,
        } => info(&workload, &reading, json),
        TraceCommand::Convert(args) => convert(&args),
        TraceCommand::Gen(args) => {
            if std::path::Path::new(&args.workload).exists() {
                bail!(
                    "{} is a file; `senko ssd trace convert` writes it in another format",
                    args.workload
                );
            }
            convert(&args)
        }
        TraceCommand::Plot {
            workload,
            reading,
            output,
            existing,
        } => {
            let workload = reading.open(&workload)?;
            let inputs = super::inputs(std::slice::from_ref(&workload), None);
            existing.check(&output, &inputs)?;
            stop_on_signals();
            super::summarise(&workload, None, false)?;
            let requests = workload
                .requests(u64::MAX)?
                .take_while(|_| !stopped())
                .collect::<Result<Vec<_>, _>>()?;
            let picture = plot::requests(&workload.name(), &requests);
            Ok(Output::write(&output, &inputs, picture.as_bytes())?)
        }
    }
}

fn info(name: &str, reading: &WorkloadArgs, as_json: bool) -> Result<()> {
    let workload = reading.open(name)?;
    stop_on_signals();
    let summary = super::read_whole(&workload)?;
    if as_json {
        for warning in &summary.warnings {
            super::warn(&format!("{}: {warning}", workload.name()));
        }
    }
    let mut out = crate::prose::stdout();
    if as_json {
        writeln!(
            out,
            "{}",
            json!({ "trace": workload.name(), "summary": summary })
        )
    } else {
        writeln!(out, "{summary}")
    }
    .context("cannot write to stdout")
}

fn convert(args: &ConvertArgs) -> Result<()> {
    let format: WriteFormat = args.to.parse()?;
    let workload = args.reading.open(&args.workload)?;
    let capacity = match &args.capacity {
        Some(size) => size_of("--capacity", size)?,
        None => u64::MAX,
    };
    let path = &args.output;
    if path.symlink_metadata().is_ok() {
        bail!("{} exists already", path.display());
    }
    stop_on_signals();
    let summary = super::summarise(&workload, None, false)?;
    let total = args.reading.requests(&summary);
    let written = write_trace(&workload, capacity, format, path, total)
        .with_context(|| format!("{} was not written whole", path.display()))?;
    let mut out = crate::prose::stdout();
    if args.json {
        writeln!(out, "{}", json!({ "trace": path.display().to_string(), "written": written }))
    } else {
        writeln!(
            out,
            "{}: {} written; {} left out that the format can't say, {} widened to its sectors or pages, {} cut to its unit, {} with a number of 65,536 or more renumbered",
            path.display(),
            counted(written.requests, "request"),
            written.left_out,
            written.widened,
            counted(written.cut_times, "time"),
            counted(written.renumbered, "device")
        )
    }
    .context("cannot write to stdout")
}

/// Writes the trace under another name and renames it when it is whole. An interrupted run leaves
/// nothing that looks like a trace.
fn write_trace(
    workload: &senko_ssd::source::Workload,
    capacity: u64,
    format: WriteFormat,
    path: &Path,
    total: u64,
) -> Result<Written> {
    let progress = Progress::new("writing", "requests", total);
    let (unfinished, file) = Unfinished::create(path)?;
    let mut writer = TraceWriter::new(BufWriter::new(file), format);
    for request in workload.requests(capacity)? {
        if let Some(interrupted) = Interrupted::now() {
            return Err(interrupted.into());
        }
        writer.write(&request?)?;
        progress.add(1);
    }
    let (_, written) = writer.finish()?;
    unfinished.finish()?;
    Ok(written)
}
