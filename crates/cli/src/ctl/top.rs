// SPDX-License-Identifier: Apache-2.0
//! `senko ctl top`: how fast a server's counts change, once an interval: a picture that is drawn
//! again in a terminal, or a line of JSON. The server only gives its counts
//! (`crates/server/src/ctl.rs`).

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use senko_io::out;
use senko_workload::units::time_above_zero;
use serde_json::json;

use super::{PATIENCE, Said, ask, object};
use crate::units::{at_least_one, counted, show_size};

/// Rows that are counts; all others say how it is now.
const COUNTS: [&str; 9] = [
    "gets",
    "get-hits",
    "flash-hits",
    "sets",
    "evictions",
    "flash-reads",
    "flash-written-bytes",
    "flash-drops-budget",
    "flash-drops-busy",
];
/// Hot keys that are shown, and the most characters of one.
const HOT_KEYS: usize = 10;
const KEY: usize = 60;
/// To the upper left corner, and away with everything.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Arguments of `senko ctl top`.
#[derive(Args, Debug)]
pub(super) struct TopArgs {
    /// Time between two pictures or lines
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_above_zero)]
    interval: Duration,
    /// How many there are [default: until it is interrupted]
    #[arg(long, value_name = "N", value_parser = at_least_one::<u64>)]
    count: Option<u64>,
}

/// The rows of a server at a time.
struct Sample {
    at: Instant,
    rows: Vec<(String, String)>,
}

impl Sample {
    fn take(path: &Path) -> Result<Sample> {
        let Said { rows, .. } = ask(path, "top", PATIENCE, true)?;
        if rows.is_empty() {
            bail!("the server at {} ended", path.display());
        }
        Ok(Sample {
            at: Instant::now(),
            rows,
        })
    }

    fn text(&self, name: &str) -> &str {
        let found = self.rows.iter().find(|(row, _)| row == name);
        found.map_or("", |(_, value)| value)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.rows.iter().filter(move |(row, _)| row == name);
        found.map(|(_, value)| &value[..])
    }
}

/// What happened between two samples.
struct Step<'a> {
    now: &'a Sample,
    before: &'a Sample,
}

impl Step<'_> {
    fn seconds(&self) -> f64 {
        self.now.at.duration_since(self.before.at).as_secs_f64()
    }

    /// How much a count rose. After a reset it begins at 0.
    fn rose(&self, name: &str) -> u64 {
        let (now, before) = (self.now.number(name), self.before.number(name));
        now.saturating_sub(if now < before { 0 } else { before })
    }

    fn a_second(&self, name: &str) -> f64 {
        self.rose(name) as f64 / self.seconds().max(1e-3)
    }

    /// The share of the gets that were such.
    fn share(&self, name: &str) -> Option<f64> {
        let gets = self.rose("gets");
        (gets > 0).then(|| self.rose(name) as f64 / gets as f64)
    }

    fn json(&self) -> String {
        let counts = COUNTS.iter().filter(|name| !self.now.text(name).is_empty());
        let rates = counts.map(|name| ((*name).to_owned(), json!(self.a_second(name))));
        json!({
            "seconds": self.seconds(),
            "a-second": rates.collect::<serde_json::Map<_, _>>(),
            "hit-ratio": self.share("get-hits"),
            "now": object(&self.now.rows),
        })
        .to_string()
    }

    fn picture(&self) -> String {
        let now = self.now;
        let mut text = format!(
            "senko {}, {}, up for {} s: {}, {} of {}\n\n",
            now.text("version"),
            now.text("state"),
            now.text("uptime"),
            counted(now.number("threads"), "thread"),
            now.text("connections"),
            counted(now.number("max-connections"), "connection"),
        );
        let mut row = |name: &str, number: String, rest: String| {
            let _ = writeln!(text, "{name:8} {number:>14}  {}", rest.trim_end());
        };
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let flash = now.number("flash-capacity") > 0;
        let hits = self.share("get-hits").map(|hits| {
            let of_flash = self.share("flash-hits").unwrap_or_default();
            match flash {
                true => format!(
                    "{} hits: {} from DRAM, {} from flash",
                    percent(hits),
                    percent((hits - of_flash).max(0.0)),
                    percent(of_flash)
                ),
                false => format!("{} hits", percent(hits)),
            }
        });
        let rate = |name| format!("{:.0}/s", self.a_second(name));
        row("gets", rate("gets"), hits.unwrap_or_default());
        row("sets", rate("sets"), String::new());
        row(
            "lost",
            rate("evictions"),
            "items that left DRAM for nowhere".to_owned(),
        );
        let size = |name| show_size(now.number(name));
        let items = |name| counted(now.number(name), "item");
        row(
            "DRAM",
            items("dram-items"),
            format!("{} of {}", size("dram-bytes"), size("item-memory")),
        );
        if flash {
            row(
                "flash",
                items("flash-items"),
                format!("{} of {}", size("flash-bytes"), size("flash-capacity")),
            );
            let bytes = |bytes: f64| format!("{}/s", show_size(bytes as u64));
            row("reads", rate("flash-reads"), String::new());
            let budget = match now.number("flash-write-budget") {
                0 => "no budget".to_owned(),
                budget => format!("of {}", bytes(budget as f64)),
            };
            row(
                "writes",
                bytes(self.a_second("flash-written-bytes")),
                budget,
            );
        }
        for device in now.all("flash-device") {
            let (state, path) = device.split_once(' ').unwrap_or((device, ""));
            row("drive", state.to_owned(), path.to_owned());
        }
        if now.text("fill") == "running" {
            let of = now.text("fill-of");
            let listed = format!("{} of {of} keys listed", now.text("fill-listed"));
            row("fill", items("fill-items"), listed);
        }
        let mut hot = now.all("hot-key").take(HOT_KEYS).peekable();
        if hot.peek().is_some() {
            text.push_str("\nlookups  hottest keys\n");
        }
        for key in hot {
            let (lookups, key) = key.split_once(' ').unwrap_or((key, ""));
            let shown: String = key.chars().take(KEY).collect();
            let _ = writeln!(text, "{lookups:>7}  {shown}");
        }
        text
    }
}

/// Runs `senko ctl top`.
pub(super) fn main(path: &Path, args: &TopArgs, json: bool) -> Result<()> {
    if !json && !out::stdout().is_terminal() {
        bail!("stdout is no terminal: --json prints a line for each interval");
    }
    let mut before = Sample::take(path)?;
    let mut left = args.count;
    while left != Some(0) {
        std::thread::sleep(args.interval);
        let now = Sample::take(path)?;
        let step = Step {
            now: &now,
            before: &before,
        };
        let text = match json {
            true => step.json() + "\n",
            false => CLEAR.to_owned() + &step.picture(),
        };
        let mut out = out::stdout();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.context("cannot write to stdout")?;
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(())
}
