// SPDX-License-Identifier: Apache-2.0
//! Answers and response times of a server with 1, 2 and 4 flash files (paper B, figures 7 and 8).
//!
//! Claim: 45, 60 and 65 thousand answers a second with 1, 2 and 4 drives, and 467, 477 and 502 us
//! for a request among that load, with standard deviations of 85, 35.6 and 38 us over 20 requests.
//!
//! **All files lie on one disk here.** More files do not bring more reads a second, so this does
//! not measure more drives, and cannot judge the claim; `transfer-predict` predicts those. It shows
//! how answers and response times change when the same items are spread over more files, as in the
//! paper. Expected shape: neither changes.
//!
//! As in the paper, one client sends requests without a pause, and another sends one now and then
//! and measures its times. The first has 64 connections. A value's record fills one page. Answers
//! are those that came from flash by the server's own count. The servers take turns within a round.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use senko_workload::{KeySpace, Rng};

use crate::rig::{Bench, Figure, Items, Load, Run, Series, Server, Window, median, over};
use crate::{Experiment, Measure, Outcome, Paper, Progress, Table, untested};

const FILES: [u64; 3] = [1, 2, 4];
/// Bytes of a key, and of a value whose record fills most of a page.
const KEY: usize = 16;
const VALUE: usize = 3900;
/// Connections of the client that never pauses.
const CONNECTIONS: usize = 64;
/// Time between two requests of the other.
const PAUSE: Duration = Duration::from_millis(10);

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-drives",
    paper: Paper::B,
    source: "paper B, figures 7 and 8",
    text: "answers and response times with the same items on one, two and four files of one disk",
    sentences: &[untested(
        "section 4.2, figures 7 and 8, a server",
        "answers grow to 1.33 and 1.44 times with 2 and 4 drives",
        &["crates/server/src/server/flash.rs"],
        "all files lie on one disk here; several drives with a rate of their own are not to be had",
    )],
    bars: &[],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let rounds: usize = bench.scaled(3, 10);
    let steps = FILES.len() as u64 + rounds as u64 + 1;
    let mut run = Run::new(bench, progress, outcome, (steps, "Windows"), ());
    (run.rounds, run.window) = (rounds, Duration::from_millis(bench.scaled(800, 5000)));
    run.outcome.setting("disks", 1);
    run.outcome.setting("connections", CONNECTIONS);
    run.outcome.setting("rounds", rounds);
    run.outcome
        .setting("window_seconds", run.window.as_secs_f64());
    run.part(&["answers_4_over_1", "latency_4_over_1"], compare);
    run.finish();
    Ok(())
}

/// A server, its windows, and the times of single requests meanwhile.
struct Side {
    files: u64,
    server: Server,
    series: Series,
    times: Vec<Vec<f64>>,
}

impl Side {
    /// The median over the rounds of what `of` makes of a round's times.
    fn times(&self, of: fn(&[f64]) -> f64) -> Figure {
        let rounds = self.times.iter().filter(|times| !times.is_empty());
        median(rounds.map(|times| of(times)).collect())
            .ok_or_else(|| "no single request was answered".to_owned())
    }
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

fn deviation(times: &[f64]) -> f64 {
    let mean = mean(times);
    let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
    (squares / (times.len() as f64 - 1.0)).sqrt()
}

fn compare(run: &mut Run<'_>) -> Result<()> {
    let bench = run.bench;
    let items = Items::fixed(bench.scaled(1 << 16, 1 << 20), KEY, VALUE);
    let memory = bench.scaled(64 << 20, 512 << 20);
    // A multiple of every number of files, with room for items that are written twice.
    let flash = (items.keys * 4096 * 3 / 2).next_multiple_of(64 << 20);
    bench.scratch.need(flash * FILES.len() as u64)?;
    run.outcome.setting("items", items.keys);
    run.outcome.setting("flash_bytes", flash);
    let mut sides = Vec::new();
    for files in FILES {
        run.next(&format!("filling {files} flash files"));
        let mut spec = bench.senko(&format!("files-{files}"), memory);
        for file in 0..files {
            let path = bench.scratch.path(&format!("drives-{files}-{file}"));
            spec = spec.flash(&path, flash / files);
        }
        let server = run.start(&spec)?;
        run.fill(&server, &items)?;
        let series = Series::new(
            &format!("{files} files"),
            format!("{CONNECTIONS} connections"),
        );
        sides.push(Side {
            files,
            server,
            series,
            times: Vec::new(),
        });
    }
    for round in 0..run.rounds {
        run.next(&format!("round {}", round + 1));
        for at in 0..sides.len() {
            // Each one is first in some round.
            let at = (at + round) % FILES.len();
            let side = &mut sides[at];
            let load = Load::gets(CONNECTIONS).round(round);
            let (window, times) = window(run, &side.server, &items, &load);
            side.series.add(window);
            side.times.push(times?);
        }
    }
    report(&sides, run);
    Ok(())
}

/// A load that never pauses, with single requests beside it.
fn window(
    run: &Run<'_>,
    server: &Server,
    items: &Items,
    load: &Load,
) -> (Result<Window>, Result<Vec<f64>>) {
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let single = scope.spawn(|| singly(server.address, items, load.round, over));
        let window = run.measure(server, items, load, run.window);
        over.store(true, Ordering::Relaxed);
        let times = single.join().unwrap_or_else(|_| Ok(Vec::new()));
        (window, times)
    })
}

/// Requests one key at a time, with pauses, until it is over; returns the times of the answers in
/// microseconds.
fn singly(address: SocketAddr, items: &Items, round: u64, over: &AtomicBool) -> Result<Vec<f64>> {
    let space = KeySpace::new(items.prefix, items.key, items.keys)?;
    let mut stream = TcpStream::connect(address).context("no connection for single requests")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    // Other keys than the load's, which uses its own seed.
    let mut rng = Rng::for_stream(round, 77);
    let (mut times, mut line, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    let mut part = vec![0; 8192];
    while !over.load(Ordering::Relaxed) {
        thread::sleep(PAUSE);
        line.clear();
        line.extend_from_slice(b"get ");
        space.append(rng.below(items.keys), &mut line);
        line.extend_from_slice(b"\r\n");
        answer.clear();
        let asked = Instant::now();
        stream.write_all(&line)?;
        // A miss is only "END". A value may contain the word, but is longer than what follows it.
        while !(answer.ends_with(b"END\r\n") && (answer.len() == 5 || answer.len() > VALUE)) {
            let bytes = stream.read(&mut part)?;
            ensure!(bytes > 0, "the server closed the connection");
            answer.extend_from_slice(&part[..bytes]);
        }
        if answer.len() > VALUE {
            times.push(asked.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(times)
}

fn report(sides: &[Side], run: &mut Run<'_>) {
    let answers = Window::flash_hits_per_second;
    let mut table = Table::titled("The same items on one, two and four files of one disk");
    let cell = |figure: &Figure, digits: usize| match figure {
        Ok(number) => format!("{number:.digits$}"),
        Err(_) => "-".to_owned(),
    };
    run.rows(sides.iter().map(|side| &side.series));
    let outcome = &mut *run.outcome;
    for side in sides {
        let (rate, mean, deviation) = (
            side.series.figure(answers),
            side.times(mean),
            side.times(deviation),
        );
        let asked: usize = side.times.iter().map(Vec::len).sum();
        table.add([
            ("files", side.files.to_string()),
            ("answers a second", cell(&rate, 0)),
            ("us", cell(&mean, 0)),
            ("deviation us", cell(&deviation, 1)),
            ("single requests", asked.to_string()),
        ]);
        outcome.put(format!("answers_{}", side.files), rate);
        outcome.put(format!("latency_us_{}", side.files), mean);
        outcome.put(format!("deviation_us_{}", side.files), deviation);
    }
    if let [one, rest @ ..] = sides {
        for side in rest {
            let files = side.files;
            outcome.put(
                format!("answers_{files}_over_1"),
                over(&side.series, &one.series, answers),
            );
            let latency = side.times(mean).and_then(|us| Ok(us / one.times(mean)?));
            outcome.put(format!("latency_{files}_over_1"), latency);
        }
    }
    outcome.tables.push(table);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        // An error of one on either side, over two degrees of freedom.
        assert_eq!(deviation(&[1.0, 2.0, 3.0]), 1.0);
    }
}
