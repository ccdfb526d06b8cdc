// SPDX-License-Identifier: Apache-2.0
//! `senko ssd explain`: a result in plain words, from the JSON of a run or from its own run.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use senko_ssd::explain::Told;
use senko_ssd::lifetime::Lifetime;

use super::run::OneArgs;
use crate::process::stop_on_signals;

/// Most bytes of a result: a larger file is not a result.
const MOST_BYTES: u64 = 64 << 20;

/// Arguments of `senko ssd explain`.
#[derive(Args, Debug)]
#[command(
    after_help = "WORKLOAD may also be the JSON of a run: a file that begins with {. Other options then have no effect.\n\n\
    Examples:\n  \
    senko ssd explain zipf:count=20k,pages=200k,rate=500 --profile paper-1gb\n  \
    senko ssd run uniform:count=5k --json > a.json && senko ssd explain a.json"
)]
pub struct ExplainArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Lets what the write buffer holds at the end go to the flash too
    #[arg(long)]
    drain: bool,
}

/// Runs `senko ssd explain`.
pub fn main(args: &ExplainArgs) -> Result<()> {
    let told = match result_in(Path::new(&args.one.workload))? {
        Some(json) => serde_json::from_str::<Told>(&json).map_err(|error| {
            anyhow!(
                "{} is not a result of `senko ssd run --json`, or one of another version: line {}, column {}",
                args.one.workload,
                error.line(),
                error.column()
            )
        })?,
        None => run(args)?,
    };
    let lines = told.explain();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut out = crate::prose::stdout();
    out.write_all(text.as_bytes())
        .context("cannot write to stdout")
}

/// The text of a file that begins with a brace, like a result and unlike any trace.
fn result_in(path: &Path) -> Result<Option<String>> {
    if !path.metadata().is_ok_and(|about| about.is_file()) {
        return Ok(None);
    }
    let name = path.display();
    let cannot = || format!("cannot read {name}");
    let mut file = std::fs::File::open(path).with_context(cannot)?;
    let mut first = [0];
    if file.read(&mut first).with_context(cannot)? == 0 || first != *b"{" {
        return Ok(None);
    }
    let mut text = String::from("{");
    file.take(MOST_BYTES)
        .read_to_string(&mut text)
        .with_context(cannot)?;
    Ok(Some(text))
}

fn run(args: &ExplainArgs) -> Result<Told> {
    let (setup, parts, workload) = args.one.open()?;
    let (_, capacity) = (stop_on_signals(), setup.capacity());
    let summary = super::summarise(&workload, Some(capacity), false)?;
    let report = args
        .one
        .simulate(&setup, &parts, &workload, args.drain, &summary)?;
    Ok(Told {
        workload: workload.name(),
        profile: setup.profile.name.clone(),
        lifetime: Lifetime::of(&report, setup.profile.endurance.cycles)
            .map(|life| life.of_whole(setup.profile.scale)),
        report,
    })
}
