// SPDX-License-Identifier: Apache-2.0
//! The cost of a second worker for each request. Keys belong to shards, so half of the requests
//! arrive at the wrong worker. This worker reads items in DRAM and on flash from the other's shard
//! while that worker waits, and sends the other requests to it.
//!
//! Expected shape: with two workers a GET takes more processor time, because memory was last
//! written by another core. A hit on flash also finds fewer reads under way at each worker, so
//! their cost is spread over fewer requests.
//!
//! With one worker the server has a core and the load generator the other. With two workers there
//! are two cores for the server and, if the machine has them, two others for the load. On a machine
//! with two cores, server and load share both. The experiment compares processor time, which the
//! kernel counts by thread, not requests a second. The bar's figure is that of an open loop, which
//! asks both for the same number of requests a second. In a closed loop, a server that lacks
//! processor time finds more requests waiting and gains by larger batches.

use std::time::Duration;

use anyhow::Result;
use senko_io::PAGE_SIZE;
use serde_json::json;

use crate::rig::series::{COLUMNS, Contender, take_turns};
use crate::rig::traffic;
use crate::rig::{Bench, Figure, Items, Load, Series, Spec, Steps, Window, over};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Reason, Table};

/// Most of its core that one worker may use in the open loop, in percent.
const BUSY: f64 = 75.0;
const CONNECTIONS: usize = 64;

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-cores",
    paper: Paper::Design,
    source: "design question: a shard a worker, requests that arrive at the wrong one",
    text: "crossing from one worker to the shard of another costs a GET at most a quarter more processor time",
    sentences: &[],
    bars: &[
        Bar::less("cpu_per_get_t2_over_t1", 1.25, 1.1),
        Bar::less("flash_cpu_per_get_t2_over_t1", 1.25, 1.1),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let cores = [bench.cores()[0], bench.cores()[1]];
    let mut run = Run {
        steps: Steps::new(progress, 6),
        bench,
        cores,
        rounds: bench.scaled(4, 25),
        window: Duration::from_secs(bench.scaled(1, 3)),
        outcome,
        table: Table::new("One worker and two, medians of the rounds", &COLUMNS),
    };
    run.outcome.setting("connections", CONNECTIONS);
    run.outcome.setting("rounds", run.rounds);
    run.outcome.setting("window_seconds", run.window.as_secs());
    run.outcome.setting("cores_of_two_workers", json!(cores));
    let keys = bench.scaled(100_000, 1_000_000);
    let ended = run.compare("", &Items::fixed(keys, 16, 1000), None);
    run.outcome.part(&["cpu_per_get_t2_over_t1"], ended);
    let pages = bench.scaled(1 << 16, 1 << 20);
    let ended = run.compare(
        "flash_",
        &Items::fixed(pages, 16, 3900),
        Some(pages * PAGE_SIZE as u64),
    );
    run.outcome.part(&["flash_cpu_per_get_t2_over_t1"], ended);
    run.outcome.tables.push(run.table);
    Ok(())
}

struct Run<'a> {
    bench: &'a Bench<'a>,
    cores: [usize; 2],
    rounds: usize,
    window: Duration,
    steps: Steps<'a>,
    outcome: &'a mut Outcome,
    table: Table,
}

impl Run<'_> {
    fn spec(&self, threads: usize, items: &Items, flash: Option<u64>) -> Spec {
        let name = format!(
            "{threads}-worker{}",
            if flash.is_some() { "-flash" } else { "" }
        );
        let cores = &self.cores[..threads];
        let count = threads.to_string();
        match flash {
            None => self
                .bench
                .senko(&name, items.keys * 1536 + (64 << 20))
                .dram_only(),
            Some(bytes) => {
                let memory = (bytes / 8).max(64 << 20);
                self.bench.on_flash(&name, memory, bytes / 2 * 3)
            }
        }
        .with(&["-t", &count])
        .on(cores)
    }

    fn start(&mut self, threads: usize, items: &Items, flash: Option<u64>) -> Contender {
        self.steps.next(&format!("filling {threads} worker(s)"));
        let spec = self.spec(threads, items, flash);
        let server = self.bench.start(&spec, self.outcome).reason()?;
        traffic::fill(self.bench, &server, items, None).reason()?;
        Ok(server)
    }

    /// The search for a rate begins here and goes down, until one worker keeps up and has some of
    /// its core left. Requests of an open loop come one by one and cost more than those of a closed
    /// loop.
    fn rate_with_room(&self, one: &Contender, items: &Items, from: f64) -> Figure {
        let server = one.as_ref().map_err(Clone::clone)?;
        let mut rate = from.round();
        for round in 0..10 {
            let load = Load {
                rate: Some(rate),
                ..Load::gets(CONNECTIONS)
            };
            let time = Duration::from_secs(2);
            let window =
                traffic::measure(self.bench, server, items, &load.round(round), time).reason()?;
            if window.server_percent() <= BUSY && window.rate() >= rate * 0.99 {
                return Ok(rate);
            }
            rate = (rate * 0.85).round();
        }
        Err("one worker keeps up with no rate that was tried".to_owned())
    }

    /// One worker against two over the same items; keys of bars begin with `prefix`.
    fn compare(&mut self, prefix: &str, items: &Items, flash: Option<u64>) -> Result<()> {
        self.bench.scratch.need(flash.unwrap_or(0) * 3)?;
        let one = self.start(1, items, flash);
        let two = self.start(2, items, flash);
        let place = if flash.is_some() { "flash" } else { "DRAM" };
        self.steps.next(&format!("{place}, in turns"));
        let turns = |load: &Load, what: &str| {
            take_turns(
                self.bench,
                &[("-t 1", &one), ("-t 2", &two)],
                items,
                load,
                what,
                self.rounds,
                self.window,
            )
        };
        let closed = turns(&Load::gets(CONNECTIONS), &format!("{place}, closed loop"));
        let rate = closed[0]
            .figure(Window::rate)
            .and_then(|peak| self.rate_with_room(&one, items, peak / 2.0));
        let open = match &rate {
            &Ok(rate) => {
                self.outcome
                    .setting(format!("{prefix}open_loop_rate"), rate);
                turns(
                    &Load {
                        rate: Some(rate),
                        ..Load::gets(CONNECTIONS)
                    },
                    &format!("{place}, {rate:.0}/s"),
                )
            }
            Err(_) => Vec::new(),
        };
        let answered = open.iter().map(|series| series.figure(Window::rate));
        let behind = answered
            .flatten()
            .find(|&answered| rate.as_ref().is_ok_and(|&asked| answered < asked * 0.99));
        for series in closed.iter().chain(&open) {
            self.table.row(series.row());
        }
        let cost = |all: &[Series]| match all {
            [one, two] => over(two, one, Window::server_us),
            _ => Err(rate.clone().err().unwrap_or_default()),
        };
        let open_cost = match behind {
            Some(answered) => Err(format!(
                "only {answered:.0} requests a second were answered"
            )),
            None => cost(&open),
        };
        self.outcome
            .put(format!("{prefix}cpu_per_get_t2_over_t1"), open_cost);
        self.outcome.put(
            format!("{prefix}closed_loop_cpu_per_get_t2_over_t1"),
            cost(&closed),
        );
        for (series, threads) in open.iter().zip(1..) {
            self.outcome.put(
                format!("{prefix}cpu_us_per_get_t{threads}"),
                series.figure(Window::server_us),
            );
        }
        for (key, counter) in [
            ("share_read_across_t2", "senko_read_across"),
            ("share_handed_over_t2", "senko_forwarded"),
            ("share_sent_for_others_t2", "senko_sent_for_others"),
        ] {
            let share =
                |window: &Window| window.grown(counter) / window.step.counts.requests as f64;
            self.outcome
                .put(format!("{prefix}{key}"), closed[1].figure(share));
        }
        Ok(())
    }
}
