// SPDX-License-Identifier: Apache-2.0
//! Which eviction policy should the DRAM tier have by default: LRU (paper E) or S3-FIFO (SOSP
//! 2023)?
//!
//! Claim to test: S3-FIFO's paper reports lower miss ratios than LRU on most of 6,594 traces.
//! Expected shape: S3-FIFO is ahead at small cache sizes on traces with many objects that occur
//! once, and on loops larger than the cache, where LRU has no hits. On large caches there is little
//! difference. `docs/measurements/dram-policy.md` has the method.

use std::collections::BTreeMap;

use anyhow::Result;
use senko_plan::count::{Basis, Counts, count};
use senko_plan::policies::{Lru, S3Fifo, S3FifoSettings};
use senko_plan::requests::{self, Requests};
use serde_json::json;

use crate::{Experiment, Measure, Options, Outcome, Paper, Progress, Table};

/// Cache sizes, in shares of the footprint.
const SHARES: [f64; 6] = [0.001, 0.01, 0.05, 0.1, 0.2, 0.4];
/// Approximate bytes of an item's header in a cache server; part of the weight of ETC items.
const HEADER_BYTES: u64 = 48;

/// The policies compared, each with its name in keys and tables.
const POLICIES: [(&str, Option<S3FifoSettings>); 4] = [
    ("lru", None),
    ("s3_fifo", s3_fifo(2, false)),
    ("s3_fifo_fill", s3_fifo(2, true)),
    ("s3_fifo_fill_1", s3_fifo(1, true)),
];

const fn s3_fifo(promote_at: u8, fill_main_first: bool) -> Option<S3FifoSettings> {
    Some(S3FifoSettings {
        promote_at,
        fill_main_first,
    })
}

/// A column of hits for each policy.
fn hits_of_policies() -> impl Iterator<Item = String> {
    POLICIES
        .iter()
        .map(|(policy, _)| format!("hits %, {policy}"))
}

enum Source {
    Trace(&'static str),
    Zipf { s: f64, etc_sizes: bool },
}

/// The workloads: name, source, and what a capacity counts.
const WORKLOADS: [(&str, Source, &[Basis]); 7] = [
    ("oltp", Source::Trace("ARC_OLTP.lis.zst"), &[Basis::Objects]),
    ("p3", Source::Trace("ARC_P3.lis.zst"), &[Basis::Objects]),
    (
        "cloudphysics",
        Source::Trace("cloudphysics_114k.oracleGeneral"),
        &[Basis::Objects, Basis::Bytes],
    ),
    (
        "loop",
        Source::Trace("caffeine_lirs_loop.trace.gz"),
        &[Basis::Objects],
    ),
    (
        "sprite",
        Source::Trace("caffeine_lirs_sprite.trace.gz"),
        &[Basis::Objects],
    ),
    (
        "zipf",
        Source::Zipf {
            s: 0.99,
            etc_sizes: false,
        },
        &[Basis::Objects],
    ),
    // By objects it would be the same stream as `zipf`.
    (
        "etc",
        Source::Zipf {
            s: 0.99,
            etc_sizes: true,
        },
        &[Basis::Bytes],
    ),
];

/// LRU's hits in percent as published: workload, cache size in pages, hits.
const PUBLISHED_LRU: [(&str, u64, f64); 6] = [
    ("oltp", 1000, 32.83),
    ("oltp", 2000, 42.47),
    ("oltp", 5000, 53.65),
    ("oltp", 10_000, 60.70),
    ("oltp", 15_000, 64.63),
    ("p3", 32_768, 3.57),
];

/// Pages and hits of a workload.
fn published_lru(name: &str) -> impl Iterator<Item = (u64, f64)> {
    let of_it = PUBLISHED_LRU
        .iter()
        .filter(move |(workload, ..)| *workload == name);
    of_it.map(|&(_, pages, percent)| (pages, percent))
}

/// Runs a request stream through one policy; `None` settings mean LRU.
pub fn simulate(
    requests: &Requests,
    settings: Option<S3FifoSettings>,
    basis: Basis,
    capacity: u64,
) -> Counts {
    let footprint = requests.footprint_objects();
    match settings {
        None => count(requests, &mut Lru::new(capacity, footprint), basis, 0),
        Some(settings) => {
            let mut policy = S3Fifo::new(capacity, footprint, settings);
            count(requests, &mut policy, basis, 0)
        }
    }
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "dram-policy",
    paper: Paper::Design,
    source: "design question; Yang et al., SOSP 2023, against paper E's LRU tier",
    text: "S3-FIFO finds more in the DRAM tier than LRU on most workloads, most clearly at small sizes",
    sentences: &[],
    bars: &[],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let (keys, requests, shares) = options.scaled(
        (100_000, 1_000_000, vec![0.01, 0.1, 0.4]),
        (1_000_000, 10_000_000, SHARES.to_vec()),
    );
    outcome.setting("cache_sizes_in_shares_of_footprint", json!(shares));
    outcome.setting("zipf_keys", keys);
    outcome.setting("zipf_requests", requests);
    outcome.setting("etc_header_bytes", HEADER_BYTES);
    outcome.setting("traces", options.traces.display().to_string());
    let mut run = Run {
        outcome,
        means: BTreeMap::new(),
        gains: vec![Vec::new(); POLICIES.len()],
        complete: true,
    };
    let mut published = Table::titled("LRU against published hit ratios");
    for (done, (name, source, bases)) in WORKLOADS.iter().enumerate() {
        progress.step(done as u64, WORKLOADS.len() as u64, name);
        let stream = match source {
            Source::Trace(file) => requests::from_trace(&options.traces.join("kv").join(file)),
            Source::Zipf { s, etc_sizes } => requests::zipf(
                *s,
                keys,
                requests,
                etc_sizes.then_some(HEADER_BYTES),
                options.seed,
            ),
        };
        match stream {
            Ok(stream) => {
                run.compare(name, &stream, &shares, bases);
                run.check_published(name, &stream, &mut published);
            }
            Err(error) => run.without(name, &format!("{error:#}")),
        }
    }
    progress.step(WORKLOADS.len() as u64, WORKLOADS.len() as u64, "done");
    if !published.rows.is_empty() {
        run.outcome.tables.push(published);
    }
    run.finish();
    Ok(())
}

struct Run<'a> {
    outcome: &'a mut Outcome,
    /// Mean hit percentage over the cache sizes: workload and basis, then one per policy.
    means: BTreeMap<String, Vec<f64>>,
    /// By how many percentage points of hits each policy is ahead of LRU, for each workload, basis
    /// and size.
    gains: Vec<Vec<f64>>,
    complete: bool,
}

impl Run<'_> {
    fn compare(&mut self, name: &str, stream: &Requests, shares: &[f64], bases: &[Basis]) {
        for basis in bases {
            let footprint = match basis {
                Basis::Objects => Some(stream.footprint_objects() as u64),
                Basis::Bytes => stream.footprint_bytes(),
            };
            match footprint {
                Some(footprint) => self.compare_by(name, stream, shares, *basis, footprint),
                None => self.without(&format!("{name}.bytes"), "the trace holds no sizes"),
            }
        }
    }

    fn compare_by(
        &mut self,
        name: &str,
        stream: &Requests,
        shares: &[f64],
        basis: Basis,
        footprint: u64,
    ) {
        let unit = if basis == Basis::Bytes {
            "bytes"
        } else {
            "objects"
        };
        let title = format!(
            "{name} by {unit}: {} requests, {} objects, footprint {footprint} {unit}",
            stream.objects.len(),
            stream.footprint_objects()
        );
        let mut columns = vec!["cache".to_owned()];
        columns.extend(hits_of_policies());
        if basis == Basis::Bytes {
            columns.extend(["bytes %, lru", "bytes %, s3_fifo"].map(str::to_owned));
        }
        columns.push(format!("cache, {unit}"));
        let mut table = Table::new(title, &columns);
        let mut sums = vec![0.0; POLICIES.len()];
        for share in shares {
            let capacity = ((footprint as f64 * share) as u64).max(1);
            let counts: Vec<Counts> = POLICIES
                .iter()
                .map(|(_, settings)| simulate(stream, *settings, basis, capacity))
                .collect();
            let mut cells = vec![format!("{} %", share * 100.0)];
            for (((policy, _), counts), sum) in POLICIES.iter().zip(&counts).zip(&mut sums) {
                let hits = counts.hit_percent();
                *sum += hits;
                cells.push(format!("{hits:.2}"));
                self.outcome
                    .bar(format!("{name}.{unit}.{share}.{policy}"), hits);
            }
            if basis == Basis::Bytes {
                cells.extend(
                    counts[..2]
                        .iter()
                        .map(|counts| format!("{:.2}", counts.byte_hit_percent())),
                );
            }
            cells.push(capacity.to_string());
            table.row(cells);
            for (gains, policy) in self.gains.iter_mut().zip(&counts) {
                gains.push(policy.hit_percent() - counts[0].hit_percent());
            }
        }
        self.outcome.tables.push(table);
        let means = sums.iter().map(|sum| sum / shares.len() as f64).collect();
        self.means.insert(format!("{name}.{unit}"), means);
    }

    fn check_published(&mut self, name: &str, stream: &Requests, table: &mut Table) {
        for (pages, percent) in published_lru(name) {
            let measured = simulate(stream, None, Basis::Objects, pages).hit_percent();
            self.outcome
                .bar(format!("published.{name}.{pages}.lru"), measured);
            table.add([
                ("trace", name.to_owned()),
                ("cache (pages)", pages.to_string()),
                ("published %", format!("{percent:.2}")),
                ("measured %", format!("{measured:.2}")),
                ("difference", format!("{:+.2}", measured - percent)),
            ]);
        }
    }

    fn without(&mut self, name: &str, why: &str) {
        self.complete = false;
        self.outcome.miss(name, why);
        for (pages, _) in published_lru(name) {
            self.outcome
                .miss(format!("published.{name}.{pages}.lru"), why);
        }
    }

    /// The means, over each workload and over all, and the comparison with LRU point by point.
    fn finish(mut self) {
        self.add_means();
        let mut table = Table::titled(
            "Against LRU, over all workloads and sizes; the difference in points of hits in % of requests",
        );
        for ((policy, _), gains) in POLICIES.iter().zip(&self.gains).skip(1) {
            let ahead = gains.iter().filter(|&&gain| gain > 0.0).count();
            let behind = gains.iter().filter(|&&gain| gain < 0.0).count();
            let most = gains.iter().copied().fold(0.0, f64::max);
            let least = gains.iter().copied().fold(0.0, f64::min);
            self.outcome
                .bar(format!("points_ahead.{policy}"), ahead as f64);
            self.outcome
                .bar(format!("points_behind.{policy}"), behind as f64);
            self.outcome.bar(format!("most_behind.{policy}"), least);
            let equal = gains.len() - ahead - behind;
            table.add([
                ("policy", policy.to_string()),
                ("cases, ahead", ahead.to_string()),
                ("cases, equal", equal.to_string()),
                ("cases, behind", behind.to_string()),
                ("points, most ahead", format!("{most:.2}")),
                ("points, most behind", format!("{least:.2}")),
            ]);
        }
        self.outcome.tables.push(table);
    }

    fn add_means(&mut self) {
        let mut columns = vec!["workload".to_owned()];
        columns.extend(hits_of_policies());
        let mut table = Table::new("Mean over the cache sizes", &columns);
        for (workload, means) in &self.means {
            let mut cells = vec![workload.clone()];
            for ((policy, _), mean) in POLICIES.iter().zip(means) {
                cells.push(format!("{mean:.2}"));
                self.outcome.bar(format!("mean.{workload}.{policy}"), *mean);
            }
            table.row(cells);
        }
        let mut cells = vec!["mean of the rows".to_string()];
        for (column, (policy, _)) in POLICIES.iter().enumerate() {
            let key = format!("mean.{policy}");
            if self.complete {
                let mean = self.means.values().map(|means| means[column]).sum::<f64>()
                    / self.means.len() as f64;
                cells.push(format!("{mean:.2}"));
                self.outcome.bar(key, mean);
            } else {
                cells.push("-".to_string());
                self.outcome
                    .miss(key, "a mean over all workloads needs all of them");
            }
        }
        table.row(cells);
        self.outcome.tables.push(table);
    }
}
