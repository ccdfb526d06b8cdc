// SPDX-License-Identifier: Apache-2.0
//! `senko store bench`: loads keys, runs a mix of gets and puts, and reports the store's rate and
//! the device operations.

mod counted; // what reaches the device
mod keys; // keys, values, and the required value of each key
mod run; // the threads

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use senko_io::trace::{MAGIC, Recorder};
use senko_io::{FileOptions, FlashFile, Unfinished};
use senko_store::{Options, Stats, Store};
use senko_workload::units;
use senko_workload::{Histogram, KeyShape, KeySpace, Mix, Op, Popularity, ValueLen};
use serde_json::{Map, Value, json};

use super::{FileArgs, MakeArgs, Wait, close, count_in, size, told};
use crate::process::{Interrupted, stop_on_signals};
use crate::units::{Bytes, counted};
use counted::{Counted, Passed};
use keys::{Keys, Known};
use run::{Amount, BenchPlan, Tally};

/// Initial bytes of a new file; the store extends it.
const FIRST_BYTES: u64 = 64 << 10;

/// Arguments of `senko store bench`.
#[derive(Args, Debug)]
#[command(
    after_help = "A missing store is created, loaded, measured and removed again (--keep leaves it). In an existing store, \
    bench writes only keys that begin with --prefix, and only with --existing. Ctrl-C prints the results so far.\n\n\
    The load goes in batches and ends with a sync. With --depth N, gets go N at a time through multi_get, and each counts with the \
    latency of the whole call. Latencies are those of a closed loop: each thread waits for one call before the next.\n\n\
    Examples:\n  \
    senko store bench /mnt/nvme/bench.kv --keys 4m --mix ycsb-b --threads 4\n  \
    senko store bench bench.kv --get-ratio 1 --dist uniform --depth 64 --compact\n  \
    senko store bench bench.kv --get-ratio 0 --durability synced -t 16 -n 100k\n  \
    senko store bench b.kv --mix ycsb-a --keys 100k --verify --trace b.trace && \\\n      senko ssd run b.trace --fold modulo"
)]
pub struct BenchArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Runs on an existing store; writes keys that begin with --prefix
    #[arg(long, help_heading = "Steps")]
    existing: bool,
    /// Puts all keys first, also into an existing store
    #[arg(long, help_heading = "Steps")]
    load: bool,
    /// Seals and compacts everything between load and run
    #[arg(long, help_heading = "Steps")]
    compact: bool,
    /// Operations of the run; 0 only loads
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        value_parser = units::count::<u64>,
        conflicts_with = "duration",
        help_heading = "Steps"
    )]
    operations: Option<u64>,
    /// Time of the run: a number with a suffix s, m or h [default: 10s]
    #[arg(short = 'd', long, value_name = "TIME", value_parser = units::time_above_zero, help_heading = "Steps")]
    duration: Option<Duration>,
    /// Leaves the new store
    #[arg(long, help_heading = "Steps")]
    keep: bool,

    /// YCSB's workload: ycsb-a, b, c, d or f
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "get_ratio",
        help_heading = "Requests"
    )]
    mix: Option<Mix>,
    /// Share of gets; the rest are puts of existing keys
    #[arg(
        long,
        value_name = "SHARE",
        value_parser = units::share,
        default_value = "0.9",
        help_heading = "Requests"
    )]
    get_ratio: f64,
    /// Which keys: uniform, zipf[:S], latest[:S], hotcold[:KEYS:REQUESTS] or sequential [default:
    /// zipf, or the mix's]
    #[arg(long, value_name = "LAW", help_heading = "Requests")]
    dist: Option<Popularity>,
    /// Share of the gets that ask for absent keys
    #[arg(
        long,
        value_name = "SHARE",
        value_parser = units::share,
        default_value = "0",
        help_heading = "Requests"
    )]
    absent: f64,
    /// Threads
    #[arg(short = 't', long, value_name = "N", default_value_t = 1, value_parser = |text: &str| count_in(text, 1..=1024_u64), help_heading = "Requests")]
    threads: u64,
    /// Keys of a multi_get; 1 gets each alone
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = |text: &str| count_in(text, 1..=4096_u32), help_heading = "Requests")]
    depth: u32,
    /// What a put waits for
    #[arg(
        long,
        value_name = "WAIT",
        default_value = "buffered",
        help_heading = "Requests"
    )]
    durability: Wait,

    /// Keys
    #[arg(
        long,
        value_name = "N",
        value_parser = |text: &str| count_in(text, 1..=u64::MAX),
        default_value = "1m",
        help_heading = "Items"
    )]
    keys: u64,
    /// What keys begin with
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "user",
        help_heading = "Items"
    )]
    prefix: String,
    /// Bytes of a key: a number, etc or shortest
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "16",
        help_heading = "Items"
    )]
    key_size: KeyShape,
    /// Bytes of a value: a number, MIN-MAX, etc or etc:CAP
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1000",
        help_heading = "Items"
    )]
    value_size: ValueLen,
    /// Seed of everything random
    #[arg(long, value_name = "N", value_parser = units::count::<u64>, default_value_t = 1, help_heading = "Items")]
    seed: u64,

    /// Checks every byte of every value, and that no put key is missing; costs 8 bytes of memory a
    /// key
    #[arg(long, help_heading = "Results")]
    verify: bool,
    /// Records the device operations, for `senko ssd run`
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    trace: Option<PathBuf>,
    /// One JSON object a step on stdout
    #[arg(long, help_heading = "Results")]
    json: bool,
    /// Memory for records that are read repeatedly; 0 turns the cache off, so each get reads the
    /// device [default: 32m]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Memory")]
    cache: Option<Bytes>,
    #[command(flatten)]
    make: MakeArgs,
}

impl BenchArgs {
    fn mix(&self) -> Result<Mix> {
        let zipf = Popularity::Zipf {
            s: 0.99,
            scrambled: true,
        };
        let mut mix = match &self.mix {
            Some(mix) => mix.clone(),
            None => Mix::new(self.get_ratio, 1.0 - self.get_ratio, 0.0, 0.0, zipf)
                .map_err(|_| anyhow!("--get-ratio is {}, and must be 0 to 1", self.get_ratio))?,
        };
        if let Some(law) = &self.dist {
            mix.popularity = law.clone();
        }
        Ok(mix)
    }

    fn amount(&self) -> Amount {
        match (self.operations, self.duration) {
            (Some(operations), _) => Amount::Operations(operations),
            (None, Some(time)) => Amount::For(time),
            (None, None) => Amount::For(Duration::from_secs(10)),
        }
    }

    /// Keys that the run may add.
    fn inserts(&self, mix: &Mix) -> u64 {
        match (mix.share(Op::Insert) > 0.0, self.amount()) {
            (false, _) => 0,
            (true, Amount::Operations(operations)) => operations,
            // A run of some minutes cannot reach this many; keys beyond it are checked less
            // strictly.
            (true, Amount::For(_)) => self.keys.max(1 << 20),
        }
    }

    fn check(&self) -> Result<()> {
        if self.value_size.longest() as u64 > senko_store::MAX_VALUE_BYTES {
            bail!(
                "--value-size {} is more than a value may have, 1 GiB",
                self.value_size
            );
        }
        Ok(())
    }
}

/// Removes the file that was made, in any case.
struct Made<'p>(Option<&'p Path>);

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Runs `senko store bench`.
pub fn main(args: &BenchArgs) -> Result<bool> {
    args.check()?;
    let path = &args.file.store;
    let mix = args.mix()?;
    let largest = args.keys.saturating_add(args.inserts(&mix)) - 1;
    let space = KeySpace::new(&args.prefix, args.key_size, largest)?;
    let absent_keys = KeySpace::new(&other_prefix(&args.prefix), args.key_size, largest)?;
    // The law is bound again for each thread, but an error in it must be reported before the load.
    senko_workload::KeyChooser::new(&mix.popularity, args.keys)?;
    let exists = path.exists();
    if !exists && let Ok(end) = std::fs::read_link(path) {
        bail!(
            "{} is a link to {}, which is not there",
            path.display(),
            end.display()
        );
    }
    if exists && !args.existing {
        bail!(
            "{} exists; --existing runs on it, writing keys that begin with \"{}\"",
            path.display(),
            args.prefix
        );
    }
    // An interrupted recording would look complete.
    let (unfinished, recorder) = match &args.trace {
        Some(trace) => {
            let unfinished = Unfinished::restarting(trace, &MAGIC)?;
            let recorder = Recorder::create(unfinished.draft())?;
            (Some(unfinished), Some(Arc::new(recorder)))
        }
        None => (None, None),
    };
    let file = FileOptions {
        bytes: if exists { 0 } else { FIRST_BYTES },
        recorder: recorder.clone().map(|recorder| (recorder, 0)),
        ..FileOptions::default()
    };
    let device = Counted::new(FlashFile::open(path, &file)?);
    // Only now: what another process made meanwhile is not removed.
    let made = Made((!exists && !args.keep).then_some(path.as_path()));
    let default = args.make.options();
    let options = Options {
        cache_bytes: args.cache.map_or(default.cache_bytes, |size| size.0),
        ..default
    };
    let store = Store::open_device(device.clone(), options).map_err(told(path))?;
    args.make.check(path, store.options())?;
    let known = args.verify.then(|| Known::new(largest as usize + 1));
    let keys = Keys::new(space, args.value_size, args.keys, known);
    let plan = BenchPlan {
        store: &store,
        keys: &keys,
        mix: &mix,
        threads: args.threads,
        depth: args.depth as usize,
        durability: args.durability.durability(),
        amount: args.amount(),
        absent: args.absent,
        absent_keys: &absent_keys,
        seed: args.seed,
    };
    stop_on_signals();
    let done = steps(args, &plan, &device, !exists || args.load);
    if let (Ok(_), Some(interrupted)) = (&done, Interrupted::now()) {
        // A store that is removed need not be closed like one that stays. A recording of half a run
        // is dropped.
        if made.0.is_none() {
            store.close().map_err(told(path))?;
        }
        return Err(interrupted.into());
    }
    let done = done.map_err(|error| anyhow!("{}: {error:#}", path.display()));
    let faults = close(path, store, done)?;
    if let (Some(recorder), Some(trace)) = (recorder, &args.trace) {
        let flushed = recorder.flush();
        flushed.with_context(|| format!("cannot write {}", trace.display()))?;
    }
    if let Some(unfinished) = unfinished {
        unfinished.finish()?;
    }
    drop(made);
    Ok(faults == 0)
}

/// Another prefix of the same length.
fn other_prefix(prefix: &str) -> String {
    let other = if prefix.ends_with('x') { 'y' } else { 'x' };
    let mut changed = prefix.to_owned();
    changed.pop();
    changed.push(other);
    changed
}

/// Loads, compacts and runs, and prints each step; returns the faults.
fn steps(
    args: &BenchArgs,
    plan: &BenchPlan<'_>,
    device: &Counted<FlashFile>,
    load: bool,
) -> Result<u64> {
    let mut faults = 0;
    let mut step = |name: &'static str, work: &dyn Fn(&BenchPlan<'_>) -> Result<Tally>| {
        let (passed, stats) = (device.passed(), plan.store.stats());
        let tally = work(plan)?;
        let measured = Measured {
            step: name,
            passed: device.passed().since(&passed),
            before: stats,
            after: plan.store.stats(),
            tally,
        };
        faults += measured.tally.faults;
        let mut out = crate::prose::stdout();
        if args.json {
            writeln!(out, "{}", measured.json(args, plan))?;
        } else {
            measured.text(args, &mut out)?;
        }
        Ok::<(), anyhow::Error>(out.flush()?)
    };
    if load {
        step("load", &run::load)?;
    }
    if args.compact && Interrupted::now().is_none() {
        plan.store.compact_while(|| Interrupted::now().is_none())?;
    }
    if Interrupted::now().is_none() && !matches!(plan.amount, Amount::Operations(0)) {
        step("run", &run::run)?;
    }
    Ok(faults)
}

/// A step with what it cost.
struct Measured {
    step: &'static str,
    tally: Tally,
    passed: Passed,
    before: Stats,
    after: Stats,
}

impl Measured {
    fn put_bytes(&self) -> u64 {
        self.after.bytes_put - self.before.bytes_put
    }

    fn rate(&self) -> f64 {
        self.tally.operations as f64 / self.tally.seconds.max(1e-9)
    }

    /// The device's work, as names and numbers; absent if there is nothing to divide by.
    fn device(&self) -> Vec<(&'static str, f64)> {
        let mut out = Vec::new();
        let mut ratio = |name, of: u64, by: u64| {
            if by > 0 {
                out.push((name, of as f64 / by as f64));
            }
        };
        ratio("reads_per_get", self.passed.lookup_reads, self.tally.gets);
        let kept = self.after.cache_hits - self.before.cache_hits;
        ratio("cache_hits_per_get", kept, self.tally.gets);
        ratio(
            "read_bytes_per_get",
            self.passed.lookup_bytes,
            self.tally.gets,
        );
        ratio(
            "write_amplification",
            self.passed.written_bytes,
            self.put_bytes(),
        );
        out
    }

    /// DRAM that grows with the keys, a key.
    fn dram(&self) -> Option<f64> {
        let bytes = self.after.map_dram_bytes + self.after.page_index_dram_bytes;
        let keys = self.after.live_elements;
        (keys > 0).then(|| bytes as f64 / keys as f64)
    }

    fn json(&self, args: &BenchArgs, plan: &BenchPlan<'_>) -> Value {
        let mut device: Map<String, Value> = self
            .device()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        let counts = [
            ("lookup_reads", self.passed.lookup_reads),
            ("other_read_bytes", self.passed.other_read_bytes),
            ("writes", self.passed.writes),
            ("written_bytes", self.passed.written_bytes),
            ("flushes", self.passed.flushes),
        ];
        device.extend(counts.map(|(name, count)| (name.to_owned(), json!(count))));
        let tally = &self.tally;
        let verify = args.verify.then(|| {
            json!({ "checked": tally.checked, "faults": tally.faults, "samples": tally.samples })
        });
        json!({
            "type": "step", "step": self.step, "seconds": tally.seconds,
            "operations": tally.operations, "operations_per_second": self.rate(),
            "gets": tally.gets, "hits": tally.hits, "absent": tally.absent, "puts": tally.puts,
            "get_us": latency_json(&tally.get), "put_us": latency_json(&tally.put),
            "read_modify_write_us": latency_json(&tally.read_modify_write),
            "device": device, "bytes_put": self.put_bytes(), "dram_bytes_per_key": self.dram(),
            "throttled_us": self.after.throttled_us - self.before.throttled_us,
            "used_bytes": self.after.used_bytes, "blocks": self.after.blocks, "generations": self.after.generations,
            "verify": verify,
            "settings": {
                "keys": args.keys, "key_size": args.key_size.to_string(), "value_size": args.value_size.to_string(),
                "mix": shares(plan.mix), "dist": plan.mix.popularity.to_string(), "threads": args.threads,
                "depth": args.depth, "durability": format!("{:?}", args.durability).to_lowercase(),
                "absent": args.absent, "seed": args.seed, "page_bytes": plan.store.options().page_bytes,
                "block_bytes": plan.store.options().block_bytes, "keep_versions": plan.store.options().keep_versions,
                "cache_bytes": plan.store.options().cache_bytes,
            },
        })
    }

    fn text(&self, args: &BenchArgs, out: &mut impl Write) -> Result<()> {
        let tally = &self.tally;
        writeln!(
            out,
            "{}: {} in {:.1} s, {:.0}/s",
            self.step,
            counted(tally.operations, "operation"),
            tally.seconds,
            self.rate()
        )?;
        let lines = [
            ("get", &tally.get),
            ("put", &tally.put),
            ("read-modify-write", &tally.read_modify_write),
        ];
        for (name, latencies) in lines {
            if latencies.is_empty() {
                continue;
            }
            let us = |q: f64| latencies.quantile(q) as f64 / 1e3;
            writeln!(
                out,
                "  {name:<18}mean {:.1} us, p50 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}",
                latencies.mean() / 1e3,
                us(0.5),
                us(0.99),
                us(0.999),
                latencies.max() as f64 / 1e3
            )?;
        }
        if tally.gets > 0 {
            let present = tally.gets - tally.absent;
            writeln!(
                out,
                "  {} of {} found, {} absent asked for",
                tally.hits,
                counted(present, "key"),
                tally.absent
            )?;
        }
        let mut parts: Vec<String> = self
            .device()
            .into_iter()
            .map(|(name, value)| format!("{} {value:.3}", name.replace('_', " ")))
            .collect();
        parts.extend(
            self.dram()
                .map(|bytes| format!("DRAM bytes per key {bytes:.2}")),
        );
        if !parts.is_empty() {
            writeln!(out, "  {}", parts.join(", "))?;
        }
        if args.verify && tally.checked > 0 {
            writeln!(
                out,
                "  {} checked, {} wrong",
                counted(tally.checked, "value"),
                tally.faults
            )?;
        }
        for sample in &tally.samples {
            writeln!(out, "  wrong: {sample}")?;
        }
        Ok(())
    }
}

/// The shares of a mix.
fn shares(mix: &Mix) -> Value {
    json!({
        "get": mix.share(Op::Read), "update": mix.share(Op::Update), "insert": mix.share(Op::Insert),
        "read_modify_write": mix.share(Op::ReadModifyWrite),
    })
}

fn latency_json(latencies: &Histogram) -> Value {
    if latencies.is_empty() {
        return Value::Null;
    }
    let us = |q: f64| latencies.quantile(q) as f64 / 1e3;
    json!({
        "mean": latencies.mean() / 1e3, "p50": us(0.5), "p90": us(0.9), "p99": us(0.99), "p999": us(0.999),
        "max": latencies.max() as f64 / 1e3, "count": latencies.len(),
    })
}
