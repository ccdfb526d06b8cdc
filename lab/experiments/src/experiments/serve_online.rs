// SPDX-License-Identifier: Apache-2.0
//! A server that is filled from another while both serve: how fast, what the source's clients
//! notice, what the target has then, and whether anything old is read.
//!
//! Claim of the design: a fill needs no pause of either side (docs/cache/fill.md). Expected shape:
//! without a bound a fill is nearly as fast as the slower device. At the default rate the source's
//! p99 hardly changes. A filled server has the hits of its source, and never gives a value that is
//! older than a change which it has acknowledged.
//!
//! `docs/measurements/serve-online.md` says what is compared. The p99 before a fill and during one
//! are taken in turns, and a turn whose fill ended before its window does not count. For the hits,
//! the same GETs go to the target and to the source when the fill says that it is done. For stale
//! reads, clients store, delete and read from the beginning of a fill until its end, and read all
//! keys once after it (`clients.rs` counts). Each round fills an empty server, by `senko ctl fill`
//! and by `--fill-from` in turns.

pub mod clients; // clients that change keys meanwhile

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use senko_load::cpu::ProcessCpu;
use senko_workload::{Popularity, Rng};

use self::clients::{Counts, Ledger};
use crate::rig::fio::{self, Job, Reads};
use crate::rig::probe::on_core;
use crate::rig::traffic::{ZIPF, us};
use crate::rig::wire::{self, Client};
use crate::rig::{self, Bench, Items, Load, Server, Window, process, sys};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table};

const KEY: usize = 16;
const MIB: u64 = 1 << 20;
/// Bytes of a value where a device is to be the bound.
const LARGE: usize = 16 << 10;
const ETC_ITEM: u64 = 290;
const ETC_LONGEST: usize = 100_000;
/// Accesses of fio, and how many are under way.
const BLOCK: u64 = MIB;
const DEPTH: u32 = 16;
/// A rate that no device has: no bound.
const NO_BOUND: &str = "1000g/s";
/// Connections of the load on the source.
const CONNECTIONS: usize = 64;
/// The share of the source's peak that is requested.
const SHARE: f64 = 0.3;
/// Clients that change keys of a server that is filled.
const CLIENTS: u64 = 4;
/// How often a fill is asked how far it is.
const LOOK: Duration = Duration::from_millis(10);
/// How long a fill may take.
const PATIENCE: Duration = Duration::from_secs(600);

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-online",
    paper: Paper::Design,
    source: "design question: a server that is filled from another while both serve",
    text: "a fill beside the slower device, the source's p99 during it, the hits of the filled server, and stale reads",
    sentences: &[],
    bars: &[
        Bar::more("fill_over_slower_device", 0.6, 0.8),
        Bar::less("p99_of_source", 1.5, 1.2),
        Bar::more("filled_hit_ratio", 0.95, 0.98),
        Bar::less("stale_reads", 0.0, 0.0),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let sizes = Sizes {
        memory: bench.scaled(64 * MIB, 512 * MIB),
        flash: bench.scaled(128 * MIB, 4096 * MIB),
        fills: Table::titled("Fills"),
    };
    let steps = bench.scaled(26, 36);
    let mut run = Run::new(
        bench,
        progress,
        outcome,
        (steps, "Medians of the rounds"),
        sizes,
    );
    run.rounds = bench.scaled(3, 5);
    run.outcome.setting("rounds", run.rounds);
    run.outcome.setting("memory_bytes", run.own.memory);
    run.outcome.setting("flash_bytes", run.own.flash);
    run.outcome.setting("share_of_peak", SHARE);
    run.outcome.setting("clients", CLIENTS);
    run.outcome.setting("fio", fio::version().ok());
    run.part(
        &["fill_over_slower_device", "fill_etc_over_slower_device"],
        rates,
    );
    match full_source(&mut run) {
        Ok((source, items)) => {
            run.part(&["p99_of_source"], |run| beside(run, &source, &items));
            run.part(&["filled_hit_ratio"], |run| hits(run, &source, &items));
            run.part(&["stale_reads"], |run| stale(run, &source, &items));
        }
        Err(why) => {
            let keys = ["p99_of_source", "filled_hit_ratio", "stale_reads"];
            run.outcome.part(&keys, Err(why));
        }
    }
    run.outcome.tables.push(run.own.fills.clone());
    run.finish();
    Ok(())
}

struct Sizes {
    /// Of each server.
    memory: u64,
    /// Of the source that is full, and of its targets.
    flash: u64,
    fills: Table,
}

type Run<'a> = rig::Run<'a, Sizes>;

struct Target {
    server: Server,
    socket: PathBuf,
    /// When its fill began.
    began: Instant,
}

/// The rows of `status` about a fill.
struct Status(BTreeMap<String, String>);

impl Status {
    fn row(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> Result<f64> {
        let text = self.row(name);
        text.parse()
            .with_context(|| format!("status has \"{text}\" for {name}"))
    }
}

impl Target {
    /// Begins a fill by `senko ctl fill`, at the default rate if no other is given.
    fn fill_from(&mut self, bench: &Bench<'_>, source: &Server, rate: Option<&str>) -> Result<()> {
        let mut ctl = Command::new(&bench.options.program);
        ctl.args(["ctl", "--socket"]).arg(&self.socket);
        ctl.args(["fill", &source.address.to_string()]);
        ctl.args(rate.iter().flat_map(|rate| ["--rate", rate]));
        self.began = Instant::now();
        sys::run(&mut ctl).context("senko ctl fill")
    }

    fn status(&self) -> Result<Status> {
        Ok(Status(wire::status(&self.socket)?))
    }

    /// Waits until the fill is in another state; returns that.
    fn while_it(&self, is: &str) -> Result<Status> {
        loop {
            let status = self.status()?;
            if status.row("fill") != is {
                return Ok(status);
            }
            let took = self.began.elapsed();
            ensure!(took < PATIENCE, "the fill is {is} after {took:?}");
            thread::sleep(LOOK);
        }
    }

    fn done(&self) -> Result<(Status, Duration)> {
        let status = self.while_it("running")?;
        let took = self.began.elapsed();
        match status.row("fill") {
            "done" => Ok((status, took)),
            how => bail!("the fill has {how}: {}", status.row("fill-why")),
        }
    }
}

struct Device {
    read: f64,
    write: f64,
    /// The slower one of a reader and a writer at the same time.
    both: f64,
}

fn processor_time(server: &Server) -> Result<f64> {
    let cpu = ProcessCpu::read(server.pid()).map_err(|why| anyhow!(why))?;
    Ok(cpu.time.total().as_secs_f64())
}

/// The cores of the target: all but the source's. With two cores it is the load generator's.
fn target_cores<'a>(run: &Run<'a>) -> &'a [usize] {
    let cores = run.bench.cores();
    &cores[1.min(cores.len() - 1)..]
}

/// An empty server that a fill is to come to; with a source, its `--fill-from` names that.
fn target(run: &mut Run<'_>, flash: u64, source: Option<&Server>) -> Result<Target> {
    run.bench.scratch.need(flash)?;
    let socket = run.bench.scratch.path("target.ctl");
    let path = socket.to_str().context("the scratch folder is not text")?;
    let spec = run.bench.on_flash("target", run.own.memory, flash);
    let mut spec = spec.on(target_cores(run)).with(&["--ctl", path]);
    if let Some(source) = source {
        spec = spec.with(&["--fill-from", &source.address.to_string()]);
    }
    let began = Instant::now();
    Ok(Target {
        server: run.bench.start(&spec, run.outcome)?,
        socket,
        began,
    })
}

/// Both devices, alone and together.
fn by_fio(run: &Run<'_>, file: &str, span: u64) -> Result<Device, String> {
    let (from, to) = (
        run.bench.scratch.path(file),
        run.bench.scratch.path("writes.fio"),
    );
    let time = Duration::from_secs(run.scaled(1, 3));
    let reads = Job {
        file: &from,
        span,
        block: BLOCK,
        depth: DEPTH,
        time,
        core: run.bench.server_core(),
    };
    let writes = Job {
        file: &to,
        span: 256 * MIB,
        core: target_cores(run)[0],
        ..reads
    };
    let bytes = |seen: Reads| seen.per_second * BLOCK as f64;
    let read = bytes(fio::sequential_reads(&reads)?);
    let write = bytes(fio::sequential_writes(&writes)?);
    let (one, other) = thread::scope(|scope| {
        let reading = scope.spawn(|| fio::sequential_reads(&reads));
        let writes = fio::sequential_writes(&writes);
        let reads = reading.join();
        (
            reads.unwrap_or_else(|_| Err("a thread panicked".to_owned())),
            writes,
        )
    });
    Ok(Device {
        read,
        write,
        both: bytes(one?).min(bytes(other?)),
    })
}

/// Fills with no bound on the rate, of large values and of ETC's.
fn rates(run: &mut Run<'_>) -> Result<()> {
    let data = run.scaled(384 * MIB, 4096 * MIB);
    let large = Items::fixed(data / LARGE as u64, KEY, LARGE);
    rate(run, "", &large, data, run.rounds)?;
    let data = run.own.flash;
    let etc = Items::etc(data / ETC_ITEM, ETC_LONGEST);
    rate(run, "_etc", &etc, data, run.scaled(1, run.rounds))?;
    drop(std::fs::remove_file(run.bench.scratch.path("writes.fio")));
    Ok(())
}

/// Fills of all of these items, which have about `data` bytes and find room.
fn rate(run: &mut Run<'_>, name: &str, items: &Items, data: u64, rounds: usize) -> Result<()> {
    let flash = (data / 4 * 5 + 64 * MIB).next_multiple_of(MIB);
    run.bench.scratch.need(2 * flash)?;
    let source = format!("source{name}");
    run.next(&format!("filling {source}"));
    let spec = run.bench.on_flash(&source, run.own.memory, flash);
    let server = run.bench.start(&spec, run.outcome)?;
    run.fill(&server, items)?;
    let (mut over, mut over_both) = (Vec::new(), Vec::new());
    let (mut rates, mut found) = (Vec::new(), Vec::new());
    let (mut busy, mut device) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for round in 0..rounds {
        run.next(&format!("fill{name} {}", round + 1));
        let fio = by_fio(run, &format!("{source}.flash"), data);
        let fio = fio.map_err(|why| anyhow!(why))?;
        let mut target = target(run, flash, None)?;
        let before = [processor_time(&server)?, processor_time(&target.server)?];
        target.fill_from(run.bench, &server, Some(NO_BOUND))?;
        let (status, took) = target.done()?;
        let seconds = took.as_secs_f64();
        let after = [processor_time(&server)?, processor_time(&target.server)?];
        for (side, busy) in busy.iter_mut().enumerate() {
            busy.push((after[side] - before[side]) / seconds * 100.0);
        }
        let all = Load::gets(CONNECTIONS).popular(Popularity::Sequential);
        let seen = run.requests(&target.server, items, &all, items.keys)?;
        let rate = status.number("fill-bytes")? * seen.found() / seconds;
        fill_row(
            run,
            &format!("no bound{name}"),
            &status,
            took,
            Some(seen.found()),
        );
        over.push(rate / fio.read.min(fio.write));
        over_both.push(rate / fio.both);
        rates.push(rate / 1e6);
        found.push(seen.found());
        device[0].push(fio.read / 1e6);
        device[1].push(fio.write / 1e6);
    }
    let key = |what: &str| format!("fill{name}_{what}");
    run.outcome.rounds(key("over_slower_device"), over);
    run.outcome.rounds(key("over_shared_device"), over_both);
    run.outcome.rounds(key("mb_per_s"), rates);
    run.outcome.rounds(key("found"), found);
    let [reads, writes] = device;
    run.outcome.rounds(key("fio_read_mb_per_s"), reads);
    run.outcome.rounds(key("fio_write_mb_per_s"), writes);
    let [source, target] = busy;
    run.outcome.rounds(key("source_percent"), source);
    run.outcome.rounds(key("target_percent"), target);
    Ok(())
}

/// A server that is full, and has the hottest of more items than it holds.
fn full_source(run: &mut Run<'_>) -> Result<(Server, Items)> {
    run.bench.scratch.need(2 * run.own.flash)?;
    let items = Items::etc(run.own.flash / 2 * 3 / ETC_ITEM, ETC_LONGEST);
    run.outcome.setting("keys", items.keys);
    run.next("filling the source");
    let spec = run.bench.on_flash("source", run.own.memory, run.own.flash);
    let server = run.bench.start(&spec, run.outcome)?;
    run.fill(&server, &items)?;
    run.next("the hottest come back");
    let load = Load::gets(CONNECTIONS)
        .popular(ZIPF)
        .storing_misses()
        .pipelined(4);
    let window = run.requests(&server, &items, &load, items.keys / 2)?;
    run.row("source", "misses come back", &[window]);
    let reclaimed = server.stat("flash_reclaimed_regions")?;
    ensure!(reclaimed > 0.0, "the source is not full");
    Ok((server, items))
}

/// The source's p99 before and during a fill at the default rate.
fn beside(run: &mut Run<'_>, source: &Server, items: &Items) -> Result<()> {
    run.next("the source's peak");
    let closed = Load::gets(CONNECTIONS).popular(ZIPF);
    let time = Duration::from_secs(run.scaled(3, 15));
    let peak = run.measure(source, items, &closed, time / 2)?;
    let rate = (peak.rate() * SHARE).round();
    run.outcome.setting("rate", rate);
    run.row("source", "peak", &[peak]);
    let load = closed.at_rate(rate);
    let (mut before, mut during) = (Vec::new(), Vec::new());
    for round in 0..run.rounds {
        let load = load.clone().round(round);
        run.next("the source alone");
        before.push(run.measure(source, items, &load, time)?);
        run.next("the source during a fill");
        let mut target = target(run, run.own.flash, None)?;
        process::step_back(target.server.pid())?;
        target.fill_from(run.bench, source, None)?;
        while target.status()?.number("fill-items")? == 0.0 {
            thread::sleep(LOOK);
        }
        let window = run.measure(source, items, &load, time)?;
        let status = target.status()?;
        let state = status.row("fill");
        ensure!(
            state == "running",
            "the fill was {state} before the window ended"
        );
        fill_row(run, "beside GETs", &status, target.began.elapsed(), None);
        during.push(window);
    }
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let of = |windows: &[Window]| -> Vec<f64> {
            let each = windows.iter().map(|window| us(&window.step.get, quantile));
            each.collect()
        };
        let (alone, beside) = (of(&before), of(&during));
        let ratios = beside
            .iter()
            .zip(&alone)
            .map(|(beside, alone)| beside / alone);
        run.outcome
            .rounds(format!("{name}_of_source"), ratios.collect());
        run.outcome.rounds(format!("{name}_before_us"), alone);
        run.outcome.rounds(format!("{name}_during_us"), beside);
    }
    for (name, windows) in [("before", &before), ("during", &during)] {
        let late = windows.iter().map(|window| us(&window.step.late, 0.99));
        let key = format!("load_generator_late_p99_us_{name}");
        run.outcome.rounds(key, late.collect());
        let busy = windows.iter().map(Window::server_percent);
        let key = format!("source_percent_{name}");
        run.outcome.rounds(key, busy.collect());
    }
    run.row("source", "alone", &before);
    run.row("source", "during a fill", &during);
    Ok(())
}

/// The hits of a filled server over its source's.
fn hits(run: &mut Run<'_>, source: &Server, items: &Items) -> Result<()> {
    run.next("a fill to its end");
    let mut target = target(run, run.own.flash, None)?;
    target.fill_from(run.bench, source, None)?;
    let (status, took) = target.done()?;
    fill_row(run, "to its end", &status, took, None);
    let load = Load::gets(CONNECTIONS).popular(ZIPF);
    let gets = items.keys / run.scaled(10, 20);
    let (mut filled, mut first) = (Vec::new(), Vec::new());
    for round in 0..run.rounds {
        run.next("the same GETs at both");
        let load = load.clone().round(100 + round);
        for (server, windows) in [(&target.server, &mut filled), (source, &mut first)] {
            windows.push(run.requests(server, items, &load, gets)?);
        }
    }
    let ratios = |of: fn(&Window) -> f64| {
        let both = filled.iter().zip(&first);
        both.map(|(filled, first)| of(filled) / of(first)).collect()
    };
    run.outcome
        .rounds("filled_hit_ratio", ratios(Window::found));
    let dram = |window: &Window| window.grown("get_hits") - window.grown("flash_hits");
    run.outcome.rounds("filled_dram_hits", ratios(dram));
    let found = |windows: &[Window]| windows.iter().map(Window::found).collect();
    run.outcome.rounds("hit_ratio_of_target", found(&filled));
    run.outcome.rounds("hit_ratio_of_source", found(&first));
    run.row("target", "filled", &filled);
    run.row("source", "the same GETs", &first);
    Ok(())
}

/// Values that are older than what a target has acknowledged.
fn stale(run: &mut Run<'_>, source: &Server, items: &Items) -> Result<()> {
    let wanted = run.scaled(500_000, 10_000_000);
    let most = run.scaled(2, 8);
    let mut all = Counts::default();
    let (mut kept, mut swept) = (0.0, 0);
    for round in 0..most {
        run.next(&format!("changes during a fill, {}", round + 1));
        let (counts, sweep, status) = changes(run, source, items, round)?;
        kept += status.number("fill-kept")?;
        swept += sweep.reads;
        all.add(counts);
        all.add(sweep);
        // Both ways of beginning a fill count.
        if all.reads >= wanted && round > 0 {
            break;
        }
    }
    ensure!(
        all.hits > 0 && all.deleted > 0 && kept > 0.0,
        "the clients changed nothing that the fill brings: {all:?}, {kept} left out"
    );
    run.outcome.setting("reads_checked", all.reads);
    run.outcome.setting("reads_after_the_fill", swept);
    run.outcome.setting("sets", all.sets);
    run.outcome.setting("deletes", all.deletes);
    run.outcome.setting("deletes_that_found", all.deleted);
    run.outcome.setting("sets_refused", all.refused);
    run.outcome.setting("items_left_out", kept);
    run.outcome.setting("first_fault", all.first);
    run.outcome.bar("stale_reads", all.stale as f64);
    run.outcome.bar("wrong_values", all.wrong as f64);
    Ok(())
}

/// One fill under clients: what they saw during it, what all keys have after it, and its end.
fn changes(
    run: &mut Run<'_>,
    source: &Server,
    items: &Items,
    round: u64,
) -> Result<(Counts, Counts, Status)> {
    let at_start = round % 2 == 1;
    let mut target = target(run, run.own.flash, at_start.then_some(source))?;
    if !at_start {
        target.fill_from(run.bench, source, None)?;
    }
    target.while_it("none")?;
    let ledger = Ledger::new(items)?;
    let clients = (0..CLIENTS).map(|_| Client::connect(target.server.address));
    let mut clients = clients.collect::<Result<Vec<_>>>()?;
    let over = AtomicBool::new(false);
    let core = run.bench.load_core();
    let seed = run.bench.options.seed;
    let (done, counts) = thread::scope(|scope| {
        let (ledger, over) = (&ledger, &over);
        let threads: Vec<_> = (0..CLIENTS)
            .zip(&mut clients)
            .map(|(own, client)| {
                let rng = Rng::for_stream(seed, round * CLIENTS + own);
                scope.spawn(move || {
                    on_core(core, || ledger.work(client, (own, CLIENTS), rng, over))?
                })
            })
            .collect();
        let done = target.done();
        over.store(true, Ordering::Relaxed);
        let mut counts: Result<Counts> = Ok(Counts::default());
        for thread in threads {
            let one = thread.join().map_err(|_| anyhow!("a thread panicked"));
            counts = counts.and_then(|mut all| {
                all.add(one??);
                Ok(all)
            });
        }
        (done, counts)
    });
    let ((status, took), counts) = (done?, counts?);
    fill_row(run, "under changes", &status, took, None);
    let client = clients.first_mut().context("there is no client")?;
    let sweep = ledger.sweep(client)?;
    Ok((counts, sweep, status))
}

fn fill_row(run: &mut Run<'_>, what: &str, status: &Status, took: Duration, found: Option<f64>) {
    let own = |name: &str| status.row(name).to_owned();
    run.own.fills.add([
        ("fill", what.to_owned()),
        ("state", own("fill")),
        ("why", own("fill-why")),
        ("s", format!("{:.2}", took.as_secs_f64())),
        ("of", own("fill-of")),
        ("items", own("fill-items")),
        ("bytes", own("fill-bytes")),
        ("left out", own("fill-kept")),
        ("refused", own("fill-refused")),
        (
            "found %",
            found.map_or("-".to_owned(), |found| format!("{:.2}", found * 100.0)),
        ),
    ]);
}
