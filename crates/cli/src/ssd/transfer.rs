// SPDX-License-Identifier: Apache-2.0
//! `senko ssd transfer`: the queueing model of the direct transfer engine.

use std::io::Write;

use anyhow::{Context, Result};
use clap::Args;
use senko_ssd::transfer::{Arrivals, Model, Outcome, simulate_while};
use senko_workload::units::{count, rate};
use serde_json::json;

use super::progress::Progress;
use super::stopped;
use crate::process::stop_on_signals;
use crate::units::{at_least_one, microseconds, within};

/// Arguments of `senko ssd transfer`. The defaults are the fit to the paper's figures.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    senko ssd transfer\n      \
      1, 2 and 4 drives under a load that never pauses: figures 7 and 8\n  \
    senko ssd transfer --drives 4 --rate 40000  figure 9, a point of it\n  \
    senko ssd transfer --drives 16 --lanes 16 --any-order --window 304\n      \
      what removes the bottleneck")]
pub struct TransferArgs {
    /// Drives in RAID 0; may be repeated
    #[arg(value_parser = at_least_one::<u32>, long, value_name = "N", default_values_t = [1, 2, 4])]
    drives: Vec<u32>,
    /// Channels of a drive
    #[arg(value_parser = at_least_one::<u32>, long, value_name = "N", default_value_t = Model::PAPER.channels)]
    channels: u32,
    /// Mean time of a read on its channel; 0 for a channel that costs no time
    #[arg(value_parser = microseconds, long, value_name = "US", default_value_t = Model::PAPER.channel_ns / 1000.0)]
    channel_us: f64,
    /// Time of the serial stage for each answer; 0 for one that costs no time
    #[arg(value_parser = microseconds, long, value_name = "US", default_value_t = Model::PAPER.serial_ns / 1000.0)]
    serial_us: f64,
    /// Commands that a drive queues
    #[arg(value_parser = at_least_one::<u32>, long, value_name = "N", default_value_t = Model::PAPER.depth)]
    depth: u32,
    /// Commands under way in the engine
    #[arg(value_parser = at_least_one::<u32>, long, value_name = "N", default_value_t = Model::PAPER.window)]
    window: u32,
    /// Serial stages side by side
    #[arg(value_parser = at_least_one::<u32>, long, value_name = "N", default_value_t = Model::PAPER.lanes)]
    lanes: u32,
    /// Accepts answers in any order, not only in the order of issue
    #[arg(long)]
    any_order: bool,
    /// Open load: requests a second
    #[arg(value_parser = rate, long, value_name = "RATE", conflicts_with = "clients")]
    rate: Option<f64>,
    /// Requests that come at once under open load
    #[arg(long, value_name = "N", value_parser = |text: &str| within(text, 1, u32::MAX),
        default_value_t = 1, requires = "rate", conflicts_with = "clients")]
    burst: u32,
    /// Closed load: clients
    #[arg(long, value_name = "N", value_parser = |text: &str| within(text, 1, u32::MAX))]
    clients: Option<u32>,
    /// Time from a client's answer to its next request
    #[arg(long, value_name = "US", value_parser = microseconds, default_value_t = 0.0,
        requires = "clients", conflicts_with = "rate")]
    think_us: f64,
    /// Answers that are simulated
    #[arg(long, value_name = "N", value_parser = |text: &str| within(text, 1, u64::MAX),
        default_value = "1m")]
    answers: u64,
    /// Seed
    #[arg(value_name = "N", value_parser = count::<u64>, long, default_value_t = 1)]
    seed: u64,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// Runs `senko ssd transfer`.
pub fn main(args: &TransferArgs) -> Result<()> {
    let load = match (args.rate, args.clients) {
        (Some(rate), _) => Arrivals::Open {
            rate,
            burst: args.burst,
        },
        (None, Some(clients)) => Arrivals::Closed {
            clients,
            think_ns: args.think_us * 1000.0,
        },
        (None, None) => Arrivals::Saturated,
    };
    stop_on_signals();
    let mut out = crate::out::stdout();
    if !args.json {
        writeln!(
            out,
            "drives     QPS  mean us   dev us   p50 us   p99 us  serial  channels  under way"
        )
        .context("cannot write to stdout")?;
    }
    for &drives in &args.drives {
        let model = Model {
            drives,
            channels: args.channels,
            channel_ns: args.channel_us * 1000.0,
            serial_ns: args.serial_us * 1000.0,
            depth: args.depth,
            window: args.window,
            lanes: args.lanes,
            in_order: !args.any_order,
        };
        let answers = args.answers;
        let progress = Progress::new("simulating", "answers", answers);
        let goes_on = |share: f64| {
            progress.set((share * answers as f64) as u64, answers);
            !stopped()
        };
        let outcome = simulate_while(&model, load, answers, args.seed, goes_on)?;
        drop(progress);
        if stopped() {
            super::warn("stopped: the last row is of the answers up to then");
        }
        if args.json {
            let line = json!({ "model": model, "load": load, "outcome": outcome });
            writeln!(out, "{line}")
        } else {
            writeln!(out, "{}", row(drives, &outcome))
        }
        .context("cannot write to stdout")?;
        if stopped() {
            break;
        }
    }
    Ok(())
}

fn row(drives: u32, outcome: &Outcome) -> String {
    format!(
        "{drives:>6} {:>7.0} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>6.1}% {:>8.1}% {:>10.1}",
        outcome.qps,
        outcome.mean_us,
        outcome.deviation_us,
        outcome.p50_us,
        outcome.p99_us,
        outcome.serial_busy * 100.0,
        outcome.channels_busy * 100.0,
        outcome.under_way
    )
}
