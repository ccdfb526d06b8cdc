// SPDX-License-Identifier: Apache-2.0
//! The cost of metrics: histograms of request times, hot keys, and a scrape of `/metrics` a second.
//!
//! Expected shape: about one percent more processor time per GET. The clock is read once per round
//! and once per command that waited, one lookup in a hundred is sampled, and the scrape has its own
//! thread. `docs/measurements/serve-watch.md` has the method.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::rig::series::COLUMNS;
use crate::rig::traffic;
use crate::rig::wire::{free_port, metrics};
use crate::rig::{Bench, Items, Load, Series, Server, Steps, Window, over};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table};

const CONNECTIONS: usize = 64;
/// Time from one scrape to the next.
const SCRAPE: Duration = Duration::from_secs(1);

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-watch",
    paper: Paper::Design,
    source: "design question: histograms, hot keys and metrics of the admin listener",
    text: "histograms, hot keys at 1 % and a scrape a second cost a GET at most three hundredths more processor time",
    sentences: &[],
    bars: &[Bar::less("get_cpu_over_unwatched", 1.03, 1.01)],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let rounds: usize = bench.scaled(4, 25);
    let time = Duration::from_secs(bench.scaled(2, 5));
    outcome.setting("connections", CONNECTIONS);
    outcome.setting("rounds", rounds);
    outcome.setting("window_seconds", time.as_secs());
    let steps = Steps::new(progress, 5);
    let mut table = Table::new("Unwatched and watched, medians of the rounds", &COLUMNS);
    let ended = compare(bench, &steps, rounds, time, outcome, &mut table);
    outcome.part(&["get_cpu_over_unwatched"], ended);
    outcome.tables.push(table);
    Ok(())
}

fn compare(
    bench: &Bench<'_>,
    steps: &Steps<'_>,
    rounds: usize,
    time: Duration,
    outcome: &mut Outcome,
    table: &mut Table,
) -> Result<()> {
    let items = Items::fixed(bench.scaled(100_000, 1_000_000), 16, 1000);
    let memory = items.keys * 1536 + (64 << 20);
    let admin = free_port()?;
    let unwatched = bench.senko("unwatched", memory).dram_only();
    let watched = bench.senko("watched", memory).dram_only().with(&[
        "--admin",
        &admin.to_string(),
        "--hot-keys",
        "100",
    ]);
    let servers = [
        bench.start(&unwatched, outcome)?,
        bench.start(&watched, outcome)?,
    ];
    for server in &servers {
        steps.next(&format!("filling {}", server.name));
        traffic::fill(bench, server, &items, None)?;
    }
    let scrapes = AtomicU64::new(0);
    let mut turns = |load: &Load, what: &str| {
        steps.next(what);
        let mut all = servers
            .each_ref()
            .map(|server| Series::new(&server.name, what));
        for round in 0..rounds {
            let load = load.clone().round(round);
            // The order changes from turn to turn, so that no server always meets the warmer
            // processor.
            for at in [round % 2, 1 - round % 2] {
                let admin = (at == 1).then_some(admin);
                let window = window(bench, &servers[at], admin, &items, &load, time, &scrapes);
                all[at].add(window);
            }
        }
        for series in &all {
            table.row(series.row());
        }
        all
    };
    let [base, seen] = turns(&Load::gets(CONNECTIONS), "closed loop");
    let rate = base.figure(Window::rate).map(|rate| (rate / 2.0).round());
    outcome.put(
        "get_cpu_over_unwatched",
        over(&seen, &base, Window::server_us),
    );
    for (key, series) in [("cpu_us_unwatched", &base), ("cpu_us_watched", &seen)] {
        outcome.put(key, series.figure(Window::server_us));
    }
    if let Ok(rate) = rate {
        outcome.setting("open_loop_rate", rate);
        let load = Load {
            rate: Some(rate),
            ..Load::gets(CONNECTIONS)
        };
        let [base, seen] = turns(&load, "open loop at half of the rate");
        outcome.put(
            "open_get_cpu_over_unwatched",
            over(&seen, &base, Window::server_us),
        );
    }
    outcome.setting("scrapes", scrapes.load(Ordering::Relaxed));
    let sampled = metrics(admin)?.contains("senko_request_duration");
    if !sampled || scrapes.load(Ordering::Relaxed) == 0 {
        bail!("the watched server was not watched: no histogram, or no scrape");
    }
    Ok(())
}

/// One window, during which `admin` is scraped once a second.
fn window(
    bench: &Bench<'_>,
    server: &Server,
    admin: Option<SocketAddr>,
    items: &Items,
    load: &Load,
    time: Duration,
    scrapes: &AtomicU64,
) -> Result<Window> {
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        if let Some(admin) = admin {
            scope.spawn(move || {
                let mut due = Instant::now();
                while !over.load(Ordering::Relaxed) {
                    if Instant::now() >= due {
                        due += SCRAPE;
                        scrapes.fetch_add(u64::from(metrics(admin).is_ok()), Ordering::Relaxed);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
        let window = traffic::measure(bench, server, items, load, time);
        over.store(true, Ordering::Relaxed);
        window
    })
}
