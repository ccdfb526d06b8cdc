// SPDX-License-Identifier: Apache-2.0
//! Paper C, figure 2: the first 10,000 requests of a trace, time against address, reads and writes
//! apart.
//!
//! Claim: Financial1 accesses the same scattered addresses repeatedly, so an LRU buffer sees
//! another address each time. MSNStorageCFS looks random, and LRU works better for it. Expected
//! shape: few requests continue where the one before ended; Financial1 comes back to nearly every
//! page that it touches.
//!
//! Figure 2 is drawn as `senko ssd trace plot` draws it. The experiment also measures what it
//! shows: the mix, the footprint, sequential requests, how often a page returns, and how many other
//! pages came in between. The last number is what an LRU buffer has to hold. MSNStorageCFS is not
//! to be had, so figure 3 is not drawn. The picture stays in the scratch folder; the settings name
//! it.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use senko_ssd::source::Workload;
use senko_ssd::trace::TraceSpec;
use senko_ssd::{Op, Request, plot};

use crate::{
    Experiment, Measure, Options, Outcome, Paper, Progress, Table, at_least, at_most, judged,
    untested,
};

/// Figure, trace, file.
const FIGURE: (&str, &str, &str) = ("fig2", "Financial1", "Financial1_first10k.spc");

const REQUESTS: u64 = 10_000;

const PAGE: u64 = 4096;

/// Pages of the paper's buffer, 2 MiB.
const BUFFER_PAGES: u32 = 512;

/// How many requests back the predecessor of a sequential request may be, because hosts have
/// several streams at a time.
const STREAMS: usize = 32;

struct Seen {
    write_percent: f64,
    footprint_mib: f64,
    /// Requests that begin at the end of the previous one, in percent.
    sequential_percent: f64,
    /// Requests that begin at the end of one of the last [`STREAMS`].
    interleaved_percent: f64,
    /// Written pages that were written before.
    again_percent: f64,
    /// Written pages that were written before, with fewer other written pages in between than the
    /// buffer holds: LRU's hits.
    near_percent: f64,
    /// Other pages written since a page's last write, if there was one.
    median_distance: u32,
}

impl Seen {
    fn of(requests: &[Request]) -> Self {
        let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
        let writes = requests.iter().filter(|request| request.op == Op::Write);
        let goes_on = |back: usize| {
            let begins = (1..requests.len()).filter(|nth| {
                let before = &requests[nth.saturating_sub(back)..*nth];
                before.iter().any(|before| {
                    before.op == requests[*nth].op
                        && before.offset + before.bytes == requests[*nth].offset
                })
            });
            percent(begins.count(), requests.len())
        };
        let mut touched: Vec<u64> = requests.iter().flat_map(pages).collect();
        touched.sort_unstable();
        touched.dedup();
        let written: Vec<u64> = writes.clone().flat_map(pages).collect();
        let mut distances = distances(&written);
        distances.sort_unstable();
        let near = distances.partition_point(|others| *others < BUFFER_PAGES);
        Self {
            write_percent: percent(writes.count(), requests.len()),
            footprint_mib: (touched.len() as u64 * PAGE) as f64 / f64::from(1 << 20),
            sequential_percent: goes_on(1),
            interleaved_percent: goes_on(STREAMS),
            again_percent: percent(distances.len(), written.len()),
            near_percent: percent(near, written.len()),
            median_distance: distances.get(distances.len() / 2).copied().unwrap_or(0),
        }
    }
}

fn pages(request: &Request) -> std::ops::Range<u64> {
    request.offset / PAGE..(request.offset + request.bytes).div_ceil(PAGE)
}

/// For each page that was written before: how many other pages were written since. A tree of sums
/// has a mark at each page's last write.
fn distances(written: &[u64]) -> Vec<u32> {
    let mut marks = Marks(vec![0; written.len() + 1]);
    let mut last = HashMap::new();
    let mut distances = Vec::new();
    for (now, page) in written.iter().enumerate() {
        if let Some(before) = last.insert(*page, now) {
            distances.push(marks.up_to(now) - marks.up_to(before + 1));
            marks.add(before, -1);
        }
        marks.add(now, 1);
    }
    distances
}

/// A Fenwick tree over places in time.
struct Marks(Vec<i32>);

impl Marks {
    fn add(&mut self, place: usize, by: i32) {
        let mut at = place + 1;
        while at < self.0.len() {
            self.0[at] += by;
            at += at & at.wrapping_neg();
        }
    }

    /// Marks before a place.
    fn up_to(&self, place: usize) -> u32 {
        let (mut at, mut sum) = (place, 0);
        while at > 0 {
            sum += self.0[at];
            at &= at - 1;
        }
        sum as u32
    }
}

fn read(path: &Path) -> Result<Vec<Request>> {
    let workload = Workload {
        limit: Some(REQUESTS),
        ..Workload::named(&path.to_string_lossy(), &TraceSpec::default())?
    };
    let requests = workload.requests(u64::MAX)?.collect::<Result<Vec<_>, _>>();
    requests.with_context(|| format!("cannot read {}", path.display()))
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "endurance-fig2-3",
    paper: Paper::C,
    source: "paper C, figures 2 and 3",
    text: "where the first requests of Financial1 go, and how soon pages come back",
    sentences: &[
        untested(
            "section 2, figure 1",
            "a buffer, a translation layer, flash",
            &["crates/ssd/src/device.rs"],
            "a drawing of how it works",
        ),
        judged(
            "section 3.2, figure 2",
            "Financial1 goes to the same scattered addresses again and again",
            &["crates/ssd/src/plot.rs"],
            "2026-11-28: shares of the first 10,000 requests: half of the written pages were written before, and a tenth of the requests at most continue the one before; a quarter and a half go against it",
            &[
                at_least("fig2_written_again_percent", 50.0, 25.0),
                at_most("fig2_sequential_percent", 10.0, 50.0),
            ],
        ),
        judged(
            "section 3.2, figure 2, LRU",
            "each time another address comes to the buffer, which is bad for LRU",
            &["crates/ssd/src/plot.rs"],
            "2026-11-28: the share of written pages that come back before 512 others do, which is what the buffer holds: a third is bad for LRU, and half is good for it",
            &[at_most(
                "fig2_written_again_within_buffer_percent",
                33.0,
                50.0,
            )],
        ),
        untested(
            "section 3.2, figure 3",
            "MSNStorageCFS looks random, and LRU works better for it",
            &["crates/ssd/src/plot.rs"],
            "the trace MSNStorageCFS is not to be had; that of another server would say nothing of it",
        ),
    ],
    bars: &[],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let mut table = Table::titled(format!("The first {REQUESTS} requests"));
    let (figure, trace, file) = FIGURE;
    progress.step(0, 1, trace);
    let path = options.traces.join("block").join(file);
    if !path.exists() {
        let why = format!("there is no {}", path.display());
        outcome.miss(format!("{figure}_write_percent"), why);
        return Ok(());
    }
    let requests = read(&path)?;
    let seen = Seen::of(&requests);
    let picture = options
        .scratch
        .join(format!("senko-endurance-{figure}.svg"));
    std::fs::write(&picture, plot::requests(trace, &requests))
        .with_context(|| format!("cannot write {}", picture.display()))?;
    outcome.setting(format!("{figure}_picture"), picture.display().to_string());
    outcome.setting(format!("{figure}_requests"), requests.len());
    table.add([
        ("figure", figure.to_owned()),
        ("trace", trace.to_owned()),
        ("writes", format!("{:.1} %", seen.write_percent)),
        ("footprint MiB", format!("{:.1}", seen.footprint_mib)),
        ("sequential", format!("{:.1} %", seen.sequential_percent)),
        (
            "after one of the last 32",
            format!("{:.1} %", seen.interleaved_percent),
        ),
        (
            "pages written again",
            format!("{:.1} %", seen.again_percent),
        ),
        ("within 512 others", format!("{:.1} %", seen.near_percent)),
        ("median of the others", seen.median_distance.to_string()),
    ]);
    for (key, number) in [
        ("write_percent", seen.write_percent),
        ("footprint_mib", seen.footprint_mib),
        ("sequential_percent", seen.sequential_percent),
        ("interleaved_percent", seen.interleaved_percent),
        ("written_again_percent", seen.again_percent),
        ("written_again_within_buffer_percent", seen.near_percent),
        ("median_pages_between", f64::from(seen.median_distance)),
    ] {
        outcome.bar(format!("{figure}_{key}"), number);
    }
    outcome.tables.push(table);
    outcome.setting("addresses", "as in the trace, devices dropped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::endurance_loads::request;

    #[test]
    fn distances_count_other_pages_once() {
        // 1 comes back after 2 and 3, of which 2 came twice; 3 comes back after 2 and 1.
        assert_eq!(distances(&[1, 2, 3, 2, 1, 3]), [1, 2, 2]);
        assert_eq!(distances(&[7, 7, 8]), [0]);
        assert!(distances(&[]).is_empty());
    }

    #[test]
    fn what_is_seen() {
        let seen = Seen::of(&[
            request(Op::Write, 0, 8192),
            request(Op::Write, 8192, 4096),
            request(Op::Read, 100 * 4096, 4096),
            request(Op::Write, 12288, 4096),
            request(Op::Write, 0, 4096),
        ]);
        assert!((seen.write_percent - 80.0).abs() < 1e-9);
        assert!((seen.footprint_mib - 5.0 * 4096.0 / 1_048_576.0).abs() < 1e-9);
        assert!((seen.sequential_percent - 20.0).abs() < 1e-9);
        assert!((seen.interleaved_percent - 40.0).abs() < 1e-9);
        // One of five written pages.
        assert!((seen.again_percent - 20.0).abs() < 1e-9);
        assert_eq!(seen.median_distance, 3);
    }
}
