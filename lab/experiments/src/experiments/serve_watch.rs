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

use crate::rig::traffic;
use crate::rig::wire::{free_port, metrics};
use crate::rig::{Bench, Items, Load, Run, Series, Server, Window, over};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress};

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
    let title = "Unwatched and watched, medians of the rounds";
    let mut run = Run::new(bench, progress, outcome, (5, title), ());
    run.in_rounds(bench.scaled(4, 25), Duration::from_secs(bench.scaled(2, 5)));
    run.outcome.setting("connections", CONNECTIONS);
    run.part(&["get_cpu_over_unwatched"], compare);
    run.finish();
    Ok(())
}

fn compare(run: &mut Run<'_>) -> Result<()> {
    let bench = run.bench;
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
    let servers = [run.start(&unwatched)?, run.start(&watched)?];
    for server in &servers {
        run.next(&format!("filling {}", server.name));
        traffic::fill(bench, server, &items, None)?;
    }
    let scrapes = AtomicU64::new(0);
    let turns = |run: &mut Run<'_>, load: &Load, what: &str| {
        run.next(what);
        let mut all = servers
            .each_ref()
            .map(|server| Series::new(&server.name, what));
        for round in 0..run.rounds {
            let load = load.clone().round(round);
            // The order changes from turn to turn, so that no server always meets the warmer
            // processor.
            for at in [round % 2, 1 - round % 2] {
                let admin = (at == 1).then_some(admin);
                let server = &servers[at];
                all[at].add(window(run, server, admin, &items, &load, &scrapes));
            }
        }
        run.rows(&all);
        all
    };
    let [base, seen] = turns(run, &Load::gets(CONNECTIONS), "closed loop");
    let rate = base.figure(Window::rate).map(|rate| (rate / 2.0).round());
    run.outcome.put(
        "get_cpu_over_unwatched",
        over(&seen, &base, Window::server_us),
    );
    for (key, series) in [("cpu_us_unwatched", &base), ("cpu_us_watched", &seen)] {
        run.outcome.put(key, series.figure(Window::server_us));
    }
    if let Ok(rate) = rate {
        run.outcome.setting("open_loop_rate", rate);
        let load = Load::gets(CONNECTIONS).at_rate(rate);
        let [base, seen] = turns(run, &load, "open loop at half of the rate");
        run.outcome.put(
            "open_get_cpu_over_unwatched",
            over(&seen, &base, Window::server_us),
        );
    }
    run.outcome
        .setting("scrapes", scrapes.load(Ordering::Relaxed));
    let sampled = metrics(admin)?.contains("senko_request_duration");
    if !sampled || scrapes.load(Ordering::Relaxed) == 0 {
        bail!("the watched server was not watched: no histogram, or no scrape");
    }
    Ok(())
}

/// One window, during which `admin` is scraped once a second.
fn window(
    run: &Run<'_>,
    server: &Server,
    admin: Option<SocketAddr>,
    items: &Items,
    load: &Load,
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
        let window = run.measure(server, items, load, run.window);
        over.store(true, Ordering::Relaxed);
        window
    })
}
