// SPDX-License-Identifier: Apache-2.0
//! Are the hit ratios that `senko plan` computes those of the cache it plans?
//!
//! Claim: Waldspurger et al. (SHARDS, FAST 2015) find a median error of a miss-ratio curve below
//! 0.01 when they follow only a small share of the objects. Expected shape: a curve by objects is
//! exact if all objects are followed. Errors grow when fewer are followed. By bytes there is a
//! small error, since a cache with objects of several sizes is not a stack.
//!
//! The curves of S3-FIFO and of LRU are compared with the simulated policies of `dram-policy`.
//! Sizes go from a hundredth to nine tenths of all. Keys come from every trace in the folder `kv`
//! of the traces, and from Zipf's law. `hit_ratio_error` is of curves as `senko plan` makes them.
//! The result also has curves that follow fewer objects, since small traces are followed
//! completely.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{Bar, Experiment, Measure, Options, Outcome, Paper, Progress, Scale, Table};
use senko_plan::count::Basis;
use senko_plan::curve::{Curve, FOLLOWED, Policy, simulate};
use senko_plan::requests::{self, Requests};

/// Cache sizes, in shares of all objects or bytes.
const SHARES: [f64; 6] = [0.01, 0.03, 0.1, 0.3, 0.6, 0.9];
/// Objects that are followed: as `senko plan` does, then fewer.
const FOLLOW: [usize; 3] = [FOLLOWED, 20_000, 5_000];
/// The key of the largest error of each.
const KEYS: [&str; 3] = ["hit_ratio_error", "error_followed_20k", "error_followed_5k"];
const ZIPF: [f64; 2] = [0.8, 0.99];

/// The largest deviation of each curve from the simulation, and the share that it followed.
fn errors(policy: Policy, stream: &Requests, basis: Basis, seed: u64) -> Vec<(f64, f64)> {
    let curves: Vec<Curve> = FOLLOW
        .iter()
        .map(|followed| Curve::of_policy(policy, stream, basis, 0, (*followed, seed)))
        .collect();
    let mut errors: Vec<(f64, f64)> = curves.iter().map(|curve| (0.0, curve.share)).collect();
    for share in SHARES {
        let size = ((curves[0].footprint * share) as u64).max(1);
        let simulated = simulate(policy, stream, basis, size, 0).hit_percent() / 100.0;
        for (error, curve) in errors.iter_mut().zip(&curves) {
            error.0 = error.0.max((curve.hit_ratio(size) - simulated).abs());
        }
    }
    errors
}

fn key_traces(folder: &Path) -> Result<Vec<PathBuf>> {
    let found = std::fs::read_dir(folder)
        .with_context(|| format!("{} cannot be read", folder.display()))?;
    let mut files: Vec<PathBuf> = found
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    anyhow::ensure!(!files.is_empty(), "{} is empty", folder.display());
    Ok(files)
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "plan-accuracy",
    paper: Paper::Design,
    source: "design question; Waldspurger et al., FAST 2015 (SHARDS)",
    text: "The hit ratios of senko plan are those of the cache that it plans, within 2 points of 100.",
    sentences: &[],
    bars: &[Bar::less("hit_ratio_error", 0.02, 0.01)],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let (keys, drawn) = options.scaled((500_000, 2_000_000), (2_000_000, 16_000_000));
    let mut run = Run {
        outcome,
        largest: [0.0; FOLLOW.len()],
        table: Table::new(
            "Largest deviation of the curve's hit ratio from the simulated policy",
            &[
                "stream",
                "policy",
                "error, as senko plan",
                "error, following 20,000",
                "error, following 5,000",
                "requests",
                "objects",
                "followed",
            ],
        ),
        seed: options.seed,
    };
    let folder = options.traces.join("kv");
    let files = key_traces(&folder);
    let total = (files.as_ref().map_or(0, Vec::len) + ZIPF.len()) as u64;
    for (done, s) in ZIPF.into_iter().enumerate() {
        progress.step(done as u64, total, "keys by Zipf's law");
        let stream = requests::zipf(s, keys, drawn, None, options.seed)?;
        run.compare(&format!("Zipf {s}"), &stream);
    }
    let mut all = true;
    match &files {
        Ok(files) => {
            for (done, file) in (ZIPF.len()..).zip(files) {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                progress.step(done as u64, total, &name);
                match requests::from_trace(file) {
                    Ok(stream) => run.compare(&name, &stream),
                    Err(error) => {
                        run.outcome
                            .miss(format!("trace.{name}"), format!("{error:#}"));
                        all = false;
                    }
                }
            }
        }
        Err(error) => {
            run.outcome.miss(
                "traces",
                format!(
                    "{error:#}: it would have held the curves against the policy on traces of real \
                     caches; --traces names a folder whose folder kv has some (docs/lab/guide.md)"
                ),
            );
            all = options.scale == Scale::Quick;
        }
    }
    progress.step(total, total, "done");
    let Run {
        outcome,
        largest,
        table,
        ..
    } = run;
    for (key, error) in KEYS.into_iter().zip(largest) {
        if all {
            outcome.bar(key, error);
        } else {
            outcome.miss(key, "the largest error over all traces needs all of them");
        }
    }
    outcome.setting("followed", json!(FOLLOW));
    outcome.setting("cache_sizes_in_shares_of_all", json!(SHARES));
    outcome.setting("zipf_keys", keys);
    outcome.setting("zipf_requests", drawn);
    outcome.setting("traces", folder.display().to_string());
    outcome.tables.push(table);
    Ok(())
}

struct Run<'a> {
    outcome: &'a mut Outcome,
    largest: [f64; FOLLOW.len()],
    table: Table,
    seed: u64,
}

impl Run<'_> {
    fn compare(&mut self, name: &str, stream: &Requests) {
        self.compare_by(name, stream, Basis::Objects);
        if stream.sizes.is_some() {
            self.compare_by(&format!("{name}, by bytes"), stream, Basis::Bytes);
        }
    }

    fn compare_by(&mut self, name: &str, stream: &Requests, basis: Basis) {
        for (policy, called) in [(Policy::S3Fifo, "S3-FIFO"), (Policy::Lru, "LRU")] {
            self.compare_policy(name, (policy, called), stream, basis);
        }
    }

    fn compare_policy(
        &mut self,
        name: &str,
        (policy, called): (Policy, &str),
        stream: &Requests,
        basis: Basis,
    ) {
        let errors = errors(policy, stream, basis, self.seed);
        let mut cells = vec![name.to_owned(), called.to_owned()];
        for (largest, (error, _)) in self.largest.iter_mut().zip(&errors) {
            *largest = largest.max(*error);
            cells.push(format!("{error:.4}"));
        }
        cells.extend([
            stream.objects.len().to_string(),
            stream.footprint_objects().to_string(),
            format!("{:.0} %", errors[0].1 * 100.0),
        ]);
        self.table.row(cells);
    }
}
