// SPDX-License-Identifier: Apache-2.0
//! Do writes and reclaim affect the tail of GETs, and does a saturated device affect DRAM hits of
//! other connections?
//!
//! Expected shape: with a fifth of the requests SETs, the flash full and regions being reclaimed,
//! the p99.9 of GETs is at most a few times that without writes. DRAM hits wait for the server's
//! core, not for the device.
//!
//! The server's admin listener tells how long its rounds took: from the moment when a round took a
//! SET until its answer left at the round's end, for SETs that waited for nothing. Writes and
//! reclaim must not make a round long, since it makes all connections wait.
//!
//! The read-only peak is found in a closed loop first. Then open loops at 60 % of it take turns,
//! read-only and mixed, and the latencies of each kind are combined over all turns. Last, a few
//! connections read hot items at a low rate, alone and while many others keep the device busy.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use senko_workload::Histogram;

use crate::rig::traffic::{self, us};
use crate::rig::wire::{Buckets, free_port, metrics};
use crate::rig::{Bench, Figure, Items, Load, Run, Server, Window, ratio};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress};

/// Connections. There are as many in the open loops as in the search for the peak, so that below
/// the peak no request waits for a connection.
const CONNECTIONS: usize = 256;
/// The share of the read-only peak that is requested.
const SHARE: f64 = 0.6;
/// The share of GETs in the mixed loop.
const GETS: f64 = 0.8;
/// Requests a second for hot items.
const HOT_RATE: f64 = 1000.0;
/// The metrics of SETs that waited for nothing.
const SETS: &str = "senko_request_duration_seconds_bucket{command=\"set\",tier=\"dram\",le=\"";
/// With fewer GETs than this, the 99.9th percentile means nothing.
const FEWEST: u64 = 10_000;

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-tails",
    paper: Paper::Design,
    source: "design question; paper B, section 5.2 (latency follows the queue)",
    text: "writes and reclaim cost the slowest GETs at most three times their read-only latency",
    sentences: &[],
    bars: &[
        Bar::less("p999_mixed_over_readonly", 3.0, 2.0),
        Bar::less("round_p999_ms", 0.5, 0.2),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let turns = bench.scaled(6, 30);
    let time = Duration::from_secs(bench.scaled(4, 60));
    let mut run = Run::new(bench, progress, outcome, (4 + 2 * turns, "Windows"), ());
    run.outcome.setting("turns", turns);
    run.outcome.setting("turn_seconds", time.as_secs());
    run.outcome.setting("connections", CONNECTIONS);
    run.outcome.setting("share_of_peak", SHARE);
    run.outcome.setting("mixed_gets", GETS);
    let memory: u64 = bench.scaled(512 << 20, 1 << 30);
    let flash = memory * 8;
    bench.scratch.need(flash)?;
    // Three records of 1,000 B values per page. There are more items than the flash holds, so
    // that it is full and reclaims.
    let items = Items::fixed(flash / 4096 * 3 / 10 * 13, 16, 1000);
    run.outcome.setting("keys", items.keys);
    let admin = free_port()?;
    let spec = bench
        .on_flash("senko", memory, flash)
        .with(&["--admin", &admin.to_string()]);
    let server = bench.start(&spec, run.outcome)?;
    run.next("filling the flash");
    run.fill(&server, &items)?;
    let reclaimed = server.stat("flash_reclaimed_regions")?;
    run.outcome.setting("reclaimed_regions_before", reclaimed);
    run.part(&["p999_mixed_over_readonly", "round_p999_ms"], |run| {
        tails(run, &server, admin, &items, turns as usize, time)
    });
    run.part(&["dram_hit_p99_us_while_flash_is_saturated"], |run| {
        hot(run, &server, &items, time)
    });
    run.finish();
    Ok(())
}

/// The latency at a quantile over all windows.
fn pooled(windows: &[Window], quantile: f64) -> Figure {
    let mut all = Histogram::new();
    for window in windows {
        all.merge(&window.step.get);
    }
    if all.len() < FEWEST {
        return Err(format!("{} GETs are too few for a tail", all.len()));
    }
    Ok(us(&all, quantile))
}

fn tails(
    run: &mut Run<'_>,
    server: &Server,
    admin: SocketAddr,
    items: &Items,
    turns: usize,
    time: Duration,
) -> Result<()> {
    run.next("the read-only peak");
    let mut peak: f64 = 0.0;
    for connections in [64, CONNECTIONS] {
        let load = Load::gets(connections);
        let window = run.measure(server, items, &load, time / 2)?;
        peak = peak.max(window.rate());
        run.row("senko", "peak", &[window]);
    }
    let rate = (peak * SHARE).round();
    run.outcome.setting("rate", rate);
    let reads = Load::gets(CONNECTIONS).at_rate(rate);
    let mixed = reads.clone().mixed(GETS);
    let (mut read_only, mut with_sets) = (Vec::new(), Vec::new());
    let mut rounds = Buckets::default();
    for turn in 0..turns {
        run.next("read-only");
        let reads = reads.clone().round(turn);
        read_only.push(run.measure(server, items, &reads, time)?);
        run.next("with SETs");
        let before = Buckets::of(&metrics(admin)?, SETS);
        let mixed = mixed.clone().round(turn);
        with_sets.push(run.measure(server, items, &mixed, time)?);
        rounds.add(&Buckets::of(&metrics(admin)?, SETS).since(&before));
    }
    run.row("senko", "read-only, medians of turns", &read_only);
    run.row("senko", "with SETs, medians of turns", &with_sets);
    let reclaimed = |windows: &[Window]| -> f64 {
        let each = windows.iter();
        each.map(|window| window.grown("flash_reclaimed_regions"))
            .sum()
    };
    let beside = reclaimed(&read_only);
    let reclaimed = reclaimed(&with_sets);
    run.outcome.bar("reclaimed_regions_while_mixed", reclaimed);
    // Dirty items of the previous turn, and promotions: the baseline also has a few writes.
    run.outcome.bar("reclaimed_regions_while_readonly", beside);
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let (reads, mixed) = (pooled(&read_only, quantile), pooled(&with_sets, quantile));
        let over = if reclaimed == 0.0 {
            Err("no region was reclaimed while SETs came".to_owned())
        } else {
            ratio(&mixed, &reads)
        };
        run.outcome.put(format!("{name}_mixed_over_readonly"), over);
        run.outcome.put(format!("{name}_readonly_us"), reads);
        run.outcome.put(format!("{name}_mixed_us"), mixed);
    }
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let ms = rounds.quantile(quantile) * 1e3;
        run.outcome.bar(format!("round_{name}_ms"), ms);
    }
    let late = |windows: &[Window]| {
        windows
            .iter()
            .map(|window| us(&window.step.late, 0.999))
            .fold(0.0, f64::max)
    };
    run.outcome.bar(
        "load_generator_late_p999_us",
        late(&read_only).max(late(&with_sets)),
    );
    Ok(())
}

/// DRAM hits of few connections, alone and while others saturate the device.
fn hot(run: &mut Run<'_>, server: &Server, items: &Items, time: Duration) -> Result<()> {
    run.next("DRAM hits beside a saturated device");
    let hot = Items {
        keys: 100,
        prefix: "hot",
        ..items.clone()
    };
    traffic::fill(run.bench, server, &hot, None)?;
    let few = Load::gets(4).at_rate(HOT_RATE);
    let alone = run.measure(server, &hot, &few, time)?;
    let (beside, flood) = thread::scope(|scope| {
        // The flood begins before the hits and ends after them.
        let bench = run.bench;
        let flood = scope.spawn(move || {
            let load = Load::gets(CONNECTIONS).round(1 << 20);
            traffic::measure(bench, server, items, &load, time + Duration::from_secs(2))
        });
        thread::sleep(Duration::from_secs(1));
        let beside = traffic::measure(bench, server, &hot, &few, time);
        (beside, flood.join())
    });
    let beside = beside?;
    let flood = flood
        .map_err(|_| anyhow!("a thread of the experiment panicked"))?
        .context("the load that saturates the device failed")?;
    run.row("senko", "hot items alone", std::slice::from_ref(&alone));
    run.row(
        "senko",
        "hot items beside the others",
        std::slice::from_ref(&beside),
    );
    run.row("senko", "the others", std::slice::from_ref(&flood));
    // The last one shows what the machine adds to any p99.9.
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let (alone, beside) = (
            us(&alone.step.get, quantile),
            us(&beside.step.get, quantile),
        );
        run.outcome.bar(format!("dram_hit_{name}_us_alone"), alone);
        run.outcome.bar(
            format!("dram_hit_{name}_while_flash_is_saturated_over_alone"),
            beside / alone,
        );
        run.outcome.bar(
            format!("dram_hit_{name}_us_while_flash_is_saturated"),
            beside,
        );
    }
    run.outcome
        .bar("flash_get_p50_us_while_saturated", us(&flood.step.get, 0.5));
    run.outcome.bar(
        "flash_get_p99_us_while_saturated",
        us(&flood.step.get, 0.99),
    );
    Ok(())
}
