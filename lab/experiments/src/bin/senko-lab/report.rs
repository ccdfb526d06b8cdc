// SPDX-License-Identifier: Apache-2.0
//! `senko-lab report`: all results as one HTML page.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use senko_io::{Output, out, tell};
use senko_lab::{publish, results};
use serde_json::json;

/// Arguments of `senko-lab report`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    senko-lab report --open\n  \
    senko-lab report --results ours.jsonl --output ours.html\n\n\
    The page needs no network and no script. An experiment that did not run is a gap in it.")]
pub struct ReportArgs {
    /// File of the results [default: where senko-lab run appends them]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// The page
    #[arg(
        long,
        short,
        value_name = "FILE.html",
        default_value = "senko-lab.html"
    )]
    output: PathBuf,
    /// Shows the page in the browser
    #[arg(long)]
    open: bool,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
    /// The verdicts on the papers' sentences as a table in Markdown on stdout, and no page
    #[arg(long, conflicts_with_all = ["output", "open", "json"])]
    markdown: bool,
}

/// Runs `senko-lab report`.
pub fn main(args: &ReportArgs) -> Result<()> {
    let path = args.results.clone().unwrap_or_else(results::default_path);
    Output::check(&args.output, &[&path])?;
    let (records, broken) = results::read(&path)?;
    if broken > 0 {
        tell!(
            "warning: {} has lines that are not results ({broken}), which were skipped",
            path.display()
        );
    }
    ensure!(
        !records.is_empty(),
        "there are no results in {}: run an experiment first, as with senko-lab run --all --quick",
        path.display()
    );
    if args.markdown {
        return write!(out::stdout(), "{}", publish::markdown(&records))
            .context("cannot write to stdout");
    }
    let (page, figures) = publish::page(&records);
    Output::write(&args.output, &[&path], page.as_bytes())?;
    let measured = senko_lab::experiments().iter().filter(|one| {
        let record = results::latest(&records, one.name);
        record.is_some_and(|record| {
            record["bars"]
                .as_object()
                .is_some_and(|bars| !bars.is_empty())
        })
    });
    let (measured, all) = (measured.count(), senko_lab::experiments().len());
    let mut out = out::stdout();
    if args.json {
        let line = json!({
            "page": args.output, "experiments": measured, "experiments_known": all,
            "figures_in_report": figures, "runs": records.len(),
        });
        writeln!(out, "{line}")
    } else {
        writeln!(
            out,
            "{}: {measured} of {all} experiments with figures, {figures} pictures",
            args.output.display()
        )
    }
    .context("cannot write to stdout")?;
    if args.open {
        let page = std::path::absolute(&args.output).unwrap_or_else(|_| args.output.clone());
        let opened = Command::new("xdg-open")
            .arg(&page)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !opened.is_ok_and(|status| status.success()) {
            tell!(
                "no browser could be started here; open {} yourself",
                page.display()
            );
        }
    }
    Ok(())
}
