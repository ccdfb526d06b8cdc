// SPDX-License-Identifier: Apache-2.0
//! How close to the device's own random-read rate does the server answer GETs from flash (paper B,
//! figures 7 to 9)?
//!
//! Claim: one SSD of 49,000 reads a second gives 45,000 answers (92 %), latency grows only with the
//! queue, and at low rates it is near that of a cache in DRAM. Expected shape: answers a second
//! rise with the connections up to the device's rate; latency follows the queue.
//!
//! A value's record fills one page, so a GET is one read of 4 KB. The device's rate is fio's on
//! senko's own flash file, with the same depth and on the same core. fio's rate moves with the
//! machine. So a minimal server on the same event loop runs in the same rounds. It reads random
//! pages of the same file and sends as many bytes of each. It has no index, no checks and no order
//! of answers. A second group has the paper's own values of 4,096 bytes, whose
//! record takes two pages, here as in extstore. Then two questions that the paper leaves open:
//! small values, and SETs among the GETs.
//!
//! The bars are medians of ratios within a round. A virtual machine's speed changes from minute to
//! minute, most of all for work that two processors share, and not equally for all work. At one
//! number of connections, the contenders and the device follow each other within seconds.
//!
//! A device may read one file faster than another, above all a virtual one whose host keeps a part
//! of it in memory. So at most two files of full size exist at a time, and fio reads extstore's
//! file too.
//!
//! A GET counts as a flash GET by the server's own count. Hits in DRAM, which the same run has too,
//! do not count. The result also has the kernel's count of the device's reads.

mod closed; // windows at one number of connections, beside the device's rate

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use senko_cache::{Footprint, RECORD_HEADER};
use senko_io::PAGE_SIZE;
use serde_json::json;

use crate::rig::fio::{self, Job, Reads};
use crate::rig::series::{Contender, take_turn, take_turns};
use crate::rig::traffic::us;
use crate::rig::{self, Bench, Items, Load, Memtier, Series, Server, Spec, Window, median, over};
use crate::{
    Bar, Experiment, Measure, Outcome, Paper, Progress, Reason, Table, at_least, at_most, judged,
    untested,
};
use closed::{Closed, Device, FLASH, largest, over_device, over_rival, written};

const KEY: usize = 16;
/// The fewest connections that are compared with a rival's best.
const BAR_CONNECTIONS: usize = 16;
/// The depth at which fio gives the device's rate.
const DEPTH: u32 = 64;
/// Rounds of the latency at one connection, and how long a window of them is at most.
const LATENCY_ROUNDS: usize = 9;
const LATENCY_WINDOW: Duration = Duration::from_secs(2);
const CURVE_ROUNDS: usize = 3;
/// Items a second at which extstore is filled. At a higher rate it drops items: its DRAM metadata
/// needs pages of another size class, and it moves about one page a second.
const EXTSTORE_FILL: f64 = 12_000.0;

/// The device's rate on extstore's file divided by its rate on senko's. It should be near 1,
/// otherwise `get_over_extstore` compares the files.
const FILES: &str = "extstore_file_over_senko_file";

struct Sizes {
    memory: u64,
    keys: u64,
    rounds: usize,
    window: Duration,
    curve_window: Duration,
    connections: Vec<usize>,
    rates: Vec<f64>,
    dram_keys: u64,
    /// Gets of a turn by memtier.
    gets: u64,
    /// Of the paper's own values: keys, memory.
    paper: (u64, u64),
    /// Value bytes, keys, memory.
    small: [(usize, u64, u64); 2],
}

impl Sizes {
    fn new(bench: &Bench<'_>) -> Sizes {
        Sizes {
            memory: bench.scaled(64 << 20, 1 << 30),
            // The full run has 8 GB of pages; both runs have eight times the memory.
            keys: bench.scaled(1 << 17, 2_000_000),
            // Many short turns: the machine's speed changes within seconds.
            rounds: bench.scaled(3, 10),
            window: Duration::from_millis(bench.scaled(500, 3000)),
            curve_window: Duration::from_millis(bench.scaled(400, 3_500)),
            connections: bench.scaled(vec![1, 16, 64, 256], vec![1, 4, 16, 32, 64, 128, 256]),
            rates: bench.scaled(
                vec![2e3, 10e3, 30e3],
                vec![
                    1e3, 5e3, 10e3, 20e3, 30e3, 40e3, 50e3, 60e3, 70e3, 80e3, 90e3, 100e3,
                ],
            ),
            dram_keys: bench.scaled(50_000, 200_000),
            gets: bench.scaled(100_000, 500_000),
            // Two pages an item: as many bytes as above.
            paper: bench.scaled((1 << 16, 64 << 20), (1_000_000, 512 << 20)),
            small: bench.scaled(
                [(50, 1_500_000, 64 << 20), (300, 600_000, 64 << 20)],
                [(50, 20_000_000, 512 << 20), (300, 10_000_000, 512 << 20)],
            ),
        }
    }
}

/// The value whose record fills a page exactly, with a key of [`KEY`] bytes and flags 0.
fn page_value() -> usize {
    let text =
        "VALUE ".len() + KEY + " 0 ".len() + "4026".len() + "\r\n".len() + "\r\nEND\r\n".len();
    PAGE_SIZE - RECORD_HEADER - text
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-flash-get",
    paper: Paper::B,
    source: "paper B, section 5.1, figures 7 to 9",
    text: "GETs from flash over the device's random reads, over a minimal server's and over extstore's, and their latency by rate",
    sentences: &[
        judged(
            "section 5.1",
            "one drive gives 92 % of its random reads as answers",
            &["crates/server/src/worker.rs"],
            "2026-11-28: the median of all rounds with 256 connections over fio's reads right before; two points below bear it out, 0.75 goes against it",
            &[at_least("get_over_fio", 0.9, 0.75)],
        ),
        judged(
            "section 3.3, figure 5",
            "an answer lies on flash as it is sent, at a multiple of the device's read, so a get is one read",
            &["crates/cache/src/record.rs"],
            "2026-11-28: the device's reads for each get from flash: a twentieth for what else reads the disk, half a read goes against it",
            &[at_most("device_reads_per_flash_get", 1.05, 1.5)],
        ),
        judged(
            "section 4.2, figure 9, DRAM",
            "the response time of a cache in DRAM hardly depends on the rate",
            &["crates/server/src/worker.rs"],
            "2026-11-28: memcached's mean at the highest rate over that at the lowest: a quarter is hardly, half as much again is not",
            &[at_most("memcached_mean_high_over_low_rate", 1.25, 1.5)],
        ),
        judged(
            "section 4.2, figure 9, flash",
            "the response time from flash grows with the rate",
            &["crates/server/src/worker.rs"],
            "2026-11-28: the mean at the highest rate that the server answers over that at the lowest: a tenth more is growth, none goes against it",
            &[at_least("senko_mean_high_over_low_rate", 1.1, 1.0)],
        ),
        judged(
            "section 5.2, figure 9, low rates",
            "at low rates there is no large difference to a cache in DRAM",
            &["crates/server/src/worker.rs"],
            "2026-11-28: the mean from flash over memcached's in DRAM at the lowest rate: a quarter is no large difference, half as much again is",
            &[at_most("senko_mean_over_dram_at_low_rate", 1.25, 1.5)],
        ),
        untested(
            "section 2.2",
            "100,000 commands a second, each within 1 to 2 ms",
            &["crates/server/src/worker.rs"],
            "the disks here read 50,000 to 90,000 times a second; the model of transfer-predict has 16 drives",
        ),
        untested(
            "section 6",
            "values smaller than a page, and writes among the gets, are left to be examined",
            &["crates/cache/src/record.rs"],
            "a question of the paper, without an answer to judge; the run measures both",
        ),
    ],
    bars: &[
        Bar::more("get_over_fio", 0.85, 0.97),
        Bar::more("get_over_floor_server", 0.97, 1.05),
        Bar::more("get_over_extstore", 2.0, 2.3),
        Bar::more("get4096_over_extstore", 1.4, 1.6),
        Bar::less("latency1_over_floor", 1.25, 1.10),
        Bar::less("dram_cpu_over_memcached", 1.0, 0.75),
        Bar::less("dram_pipelined_cpu_over_memcached", 0.65, 0.4),
        Bar::less("memtier_cpu_over_memcached", 0.9, 0.65),
        Bar::less("memtier_pipelined_cpu_over_memcached", 0.9, 0.5),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let sizes = Sizes::new(bench);
    let title = "Flash GETs, medians of the rounds";
    let mut run = Run::new(bench, progress, outcome, (24, title), sizes);
    settings(&mut run);
    let keys = [
        "get_over_fio",
        "get_over_floor_server",
        "get_over_extstore",
        "latency1_over_floor",
    ];
    run.part(&keys, pages);
    run.part(&["get4096_over_extstore"], paper_values);
    run.part(
        &[
            "dram_cpu_over_memcached",
            "dram_pipelined_cpu_over_memcached",
        ],
        dram,
    );
    run.part(
        &[
            "memtier_cpu_over_memcached",
            "memtier_pipelined_cpu_over_memcached",
        ],
        memtier,
    );
    run.part(
        &["small50_hits_over_extstore", "small300_hits_over_extstore"],
        small_values,
    );
    run.finish_first();
    Ok(())
}

type Run<'a> = rig::Run<'a, Sizes>;

/// How fio reads the flash file of a server.
#[derive(Clone, Copy)]
struct Look<'a> {
    /// Its name and itself.
    server: (&'a str, &'a Contender),
    /// Pages of a read, and of an item.
    pages: u64,
    depth: u32,
    time: Duration,
}

impl<'a> Look<'a> {
    fn new(server: (&'a str, &'a Contender), pages: u64, time: Duration) -> Look<'a> {
        Look {
            server,
            pages,
            depth: DEPTH,
            time,
        }
    }
}

fn settings(run: &mut Run<'_>) {
    let sizes = &run.own;
    let outcome = &mut *run.outcome;
    outcome.setting("memory_bytes", sizes.memory);
    outcome.setting("keys", sizes.keys);
    outcome.setting("key_bytes", KEY);
    outcome.setting("page_value_bytes", page_value());
    outcome.setting("rounds", sizes.rounds);
    outcome.setting("window_seconds", sizes.window.as_secs_f64());
    (run.rounds, run.window) = (sizes.rounds, sizes.window);
    outcome.setting("curve_window_seconds", sizes.curve_window.as_secs_f64());
    outcome.setting("latency_rounds", LATENCY_ROUNDS);
    outcome.setting("connections", json!(sizes.connections));
    outcome.setting("rates", json!(sizes.rates));
    outcome.setting("fio_depth", DEPTH);
}

/// Starts and fills a contender; with a rate as [`rig::Run::contender`] does.
fn filled(
    run: &mut Run<'_>,
    spec: Result<Spec, String>,
    items: &Items,
    rate: Option<f64>,
) -> Contender {
    if rate.is_some() {
        return run.contender(spec, items, rate);
    }
    let spec = spec?;
    run.next(&format!("filling {}", spec.name));
    let server = run.start(&spec).reason()?;
    run.fill(&server, items).reason()?;
    Ok(server)
}

/// One page an item: the bars against fio and extstore, the curve, the mixes.
fn pages(run: &mut Run<'_>) -> Result<()> {
    let items = Items::fixed(run.own.keys, KEY, page_value());
    let data = run.own.keys * PAGE_SIZE as u64;
    // Half as much again for the items that the mixes overwrite.
    let room = data / 2 * 3;
    run.bench.scratch.need(room + room)?;
    let senko = filled(
        run,
        Ok(run.bench.on_flash("senko", run.own.memory, room)),
        &items,
        None,
    );
    // First, before the SETs have replaced items.
    let sendfile = run.bench.sendfile("sendfile", run.own.memory, data / 8 * 9);
    let sendfile = filled(run, sendfile, &items, None);
    run.next("sendfile");
    let contenders = [("senko", &senko), ("sendfile", &sendfile)];
    let connections = run.own.connections.clone();
    let many = connections.iter().copied();
    let beside: Vec<usize> = run.scaled(
        vec![64],
        many.filter(|&many| many >= BAR_CONNECTIONS).collect(),
    );
    let what = (", beside sendfile", 500);
    let closed = closed_loops(run, &contenders, &items, &beside, 1, what);
    run.outcome.put("get_over_sendfile", over_rival(&closed, 1));
    curve(run, &contenders[1..], &items, &closed, false);
    drop(sendfile);

    let extstore = run.bench.extstore("extstore", run.own.memory, room);
    let extstore = filled(run, extstore, &items, Some(EXTSTORE_FILL));

    let floor = floor(run, &senko);
    run.next("closed loops and fio, in turns");
    let contenders = [
        ("senko", &senko),
        ("extstore", &extstore),
        ("floor", &floor),
    ];
    let closed = closed_loops(run, &contenders, &items, &connections, 1, ("", 0));
    drop(floor);
    let contenders = [("senko", &senko), ("extstore", &extstore)];
    let mut reads = closed.iter().flat_map(|one| &one.device.reads);
    if let (Some(first), Some(last)) = (reads.next(), reads.last()) {
        run.outcome.probe(first.per_second, last.per_second);
    }
    bars(run, &closed);
    compare_files(run, &senko, &extstore);
    latency_at_one(run, &senko, &items);
    curve(run, &contenders, &items, &closed, true);

    run.next("GETs and SETs");
    for gets in [0.95, 0.5] {
        let what = format!("{:.0}/{:.0} GET/SET", gets * 100.0, (1.0 - gets) * 100.0);
        let load = Load::gets(64).mixed(gets);
        let all = run.turns(&contenders, &items, &load, &what);
        // A miss is answered fast, so only found or stored items count.
        let key = format!("mix{:.0}_over_extstore", gets * 100.0);
        run.outcome
            .put(&key, over(&all[0], &all[1], Window::done_per_second));
        for (name, series) in ["senko", "extstore"].into_iter().zip(&all) {
            let key = format!("mix{:.0}_{name}_found", gets * 100.0);
            run.outcome.put(&key, series.figure(Window::found));
        }
    }
    Ok(())
}

/// The minimal server, on the pages that senko wrote.
fn floor(run: &mut Run<'_>, senko: &Contender) -> Contender {
    let look = Look::new(("senko", senko), 1, run.window);
    let (file, span) = written_span(run, &look)?;
    let of = (file.as_path(), span / PAGE_SIZE as u64);
    let spec = run.bench.floor("floor", of, page_value())?;
    spec.start(&run.bench.scratch).reason()
}

/// The device's rate on the one file and on the other. Some devices keep a part of their data
/// in faster memory (virtual devices in their host's). They may read files of different age at
/// different rates, and then the ratio of two servers only compares their files.
fn compare_files(run: &mut Run<'_>, senko: &Contender, extstore: &Contender) {
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..run.rounds {
        for ((name, server), rates) in [("senko", senko), ("extstore", extstore)]
            .into_iter()
            .zip(&mut rates)
        {
            let look = Look::new((name, server), 1, run.window);
            match reads_of(run, look) {
                Ok(reads) => rates.push(reads.per_second),
                Err(why) => {
                    run.outcome.miss(FILES, why);
                    return;
                }
            }
        }
    }
    let [of_senko, of_extstore] = rates;
    let ratios = of_extstore.iter().zip(&of_senko).map(|(e, s)| e / s);
    let ratio = median(ratios.collect()).ok_or_else(|| "no round".to_owned());
    run.outcome.put(FILES, ratio);
}

/// Closed loops of some numbers of connections on items of some pages, with the device between
/// them. Each window's keys are drawn again, by the round's number.
fn closed_loops(
    run: &mut Run<'_>,
    contenders: &[(&str, &Contender)],
    items: &Items,
    connections: &[usize],
    pages: u64,
    (what, first_round): (&str, usize),
) -> Vec<Closed> {
    let new = |&connections: &usize| Closed::new(connections, contenders, what);
    let mut closed: Vec<Closed> = connections.iter().map(new).collect();
    let time = run.window;
    for round in 0..run.rounds {
        for one in &mut closed {
            let look = Look::new(contenders[0], pages, time);
            look_at_device(run, look, &mut one.device);
            let load = Load::gets(one.connections).round(first_round + round);
            take_turn(run.bench, contenders, items, &load, time, &mut one.all);
        }
    }
    run.rows(closed.iter().flat_map(|one| &one.all));
    closed
}

/// The device's own figures, once more, on the written span of a server's flash file.
fn look_at_device(run: &Run<'_>, look: Look<'_>, device: &mut Device) {
    if device.trouble.is_some() {
        return;
    }
    let before = run.bench.disk_counts();
    match reads_of(run, look) {
        Ok(reads) => {
            if let (Some(before), Some(after)) = (before, run.bench.disk_counts()) {
                let reached = after.since(&before).reads as f64;
                device.reached.push(reached / reads.count as f64);
            }
            device.reads.push(reads);
        }
        Err(why) => device.trouble = Some(why),
    }
}

fn reads_of(run: &Run<'_>, look: Look<'_>) -> Result<Reads, String> {
    let (file, span) = written_span(run, &look)?;
    fio::random_reads(&Job {
        file: &file,
        span,
        block: look.pages * PAGE_SIZE as u64,
        depth: look.depth,
        time: look.time,
        core: run.bench.server_core(),
    })
}

/// A server's flash file, and the bytes from its start that hold items.
fn written_span(run: &Run<'_>, look: &Look<'_>) -> Result<(PathBuf, u64), String> {
    let (name, server) = look.server;
    let server = server.as_ref().map_err(Clone::clone)?;
    let stats = server.stats().reason()?;
    match written(&stats) {
        Some((bytes, kind)) if bytes > 0.0 => {
            let file = run.bench.scratch.path(&format!("{name}.{kind}"));
            let most = run.own.keys * look.pages * PAGE_SIZE as u64;
            // Extstore writes one of its pages after the other, each whole.
            Ok((file, (bytes as u64).min(most)))
        }
        _ => Err(format!("{name} wrote nothing to flash")),
    }
}

fn bars(run: &mut Run<'_>, all: &[Closed]) {
    let from = all
        .iter()
        .position(|closed| closed.connections >= BAR_CONNECTIONS);
    let closed = &all[from.unwrap_or(all.len())..];
    let over_device = |contender, of| over_device(closed, contender, of);
    run.outcome.put("get_over_fio", over_device(0, FLASH));
    // A server can't be further ahead of extstore than the device is.
    run.outcome.put("extstore_over_fio", over_device(1, FLASH));
    run.outcome.put(
        "get_and_dram_hits_over_fio",
        over_device(0, Window::hits_per_second),
    );
    run.outcome.put("get_over_extstore", over_rival(closed, 1));
    // The minimal server, at the same number of connections as the device.
    let last = &closed[closed.len().saturating_sub(1)..];
    run.outcome
        .put("get_over_floor_server", over_rival(last, 2));
    run.outcome
        .put("floor_server_over_fio", over_device(2, FLASH));
    let most = closed.last().map(|one| one.connections);
    for one in all.iter().filter(|one| Some(one.connections) != most) {
        let at = |what| format!("{what}_at_{}", one.connections);
        run.outcome
            .put(at("get_over_fio"), one.over_device(0, FLASH));
        let over_extstore = over_rival(std::slice::from_ref(one), 1);
        run.outcome.put(at("get_over_extstore"), over_extstore);
    }
    let best = |of: usize| largest(closed.iter().map(|one| one.all[of].figure(FLASH)));
    run.outcome.put("flash_gets_per_second", best(0));
    run.outcome.put("extstore_flash_gets_per_second", best(1));
    let mut device = Device::default();
    for one in all {
        device.reads.extend(&one.device.reads);
        device.reached.extend(&one.device.reached);
        device.trouble = device.trouble.or(one.device.trouble.clone());
    }
    run.outcome.put(
        "fio_reads_per_second",
        device.figure(|reads| reads.per_second),
    );
    run.outcome
        .put("fio_cpu_us_per_read", device.figure(|reads| reads.cpu_us));
    let no_counts = "the kernel's disk statistics are not available";
    run.outcome.put(
        "fio_reads_that_reached_the_device",
        median(device.reached).ok_or_else(|| format!("{no_counts}, or fio was not run")),
    );
    let windows = closed.iter().flat_map(|closed| &closed.all[0].windows);
    let reads = windows.map(|window| window.disk_reads_per(window.flash_hits()));
    run.outcome.put(
        "device_reads_per_flash_get",
        median(reads.collect()).ok_or_else(|| no_counts.to_owned()),
    );
}

/// The mean latency of a single flash GET, divided by the device's and by a DRAM hit's, in each
/// round.
fn latency_at_one(run: &mut Run<'_>, senko: &Contender, items: &Items) {
    // The same values, few enough to stay in DRAM.
    let few = Items {
        keys: 1000,
        ..items.clone()
    };
    let dram = run.bench.senko("senko-dram", run.own.memory).dram_only();
    let dram = filled(run, Ok(dram), &few, None);
    run.next("one connection, the device and DRAM, in turns");
    let time = run.window.min(LATENCY_WINDOW);
    let mut device = Device::default();
    let (flash, hit) = ([("senko", senko)], [("senko-dram", &dram)]);
    let mut flash_series = Series::of(&flash, "1 connection, beside DRAM");
    let mut hit_series = Series::of(&hit, "1 connection");
    for round in 0..LATENCY_ROUNDS {
        // Other keys than the closed loop of one connection.
        let load = Load::gets(1).round(1000 + round);
        let look = Look {
            server: flash[0],
            pages: 1,
            depth: 1,
            time,
        };
        look_at_device(run, look, &mut device);
        take_turn(run.bench, &flash, items, &load, time, &mut flash_series);
        take_turn(run.bench, &hit, &few, &load, time, &mut hit_series);
    }
    run.rows([&flash_series[0], &hit_series[0]]);
    let latencies = |(flash, hit): (&Window, &Window)| {
        let hit = hit.step.get.mean() / 1e3;
        // Some of the GETs were hits in DRAM: their share of the mean is subtracted.
        let share = flash.flash_hits() / flash.step.counts.hits as f64;
        let flash = (flash.step.get.mean() / 1e3 - (1.0 - share) * hit) / share;
        (flash, hit)
    };
    let windows = flash_series[0].windows.iter().zip(&hit_series[0].windows);
    let rounds: Vec<(f64, f64)> = windows.map(latencies).collect();
    let why = || {
        let troubles = [&flash_series[0].trouble, &hit_series[0].trouble];
        let trouble = troubles.into_iter().flatten().next().cloned();
        trouble.unwrap_or_else(|| device.why())
    };
    let figure = |numbers: Vec<f64>| median(numbers).ok_or_else(why);
    let flash = figure(rounds.iter().map(|(flash, _)| *flash).collect());
    let hit = figure(rounds.iter().map(|(_, hit)| *hit).collect());
    let over_floor = device.reads.iter().zip(&rounds);
    let over_floor = figure(
        over_floor
            .map(|(read, (flash, hit))| flash / (read.mean_us + hit))
            .collect(),
    );
    run.outcome.put("flash_get_mean_us", flash);
    run.outcome.put("dram_hit_mean_us", hit);
    run.outcome
        .put("fio_depth1_mean_us", device.figure(|read| read.mean_us));
    run.outcome.put("latency1_over_floor", over_floor);
}

/// Latency at fixed rates, with a server all in DRAM beside it if requested (figure 9). The
/// last of `closed` are the contenders, in this order.
fn curve(
    run: &mut Run<'_>,
    contenders: &[(&str, &Contender)],
    items: &Items,
    closed: &[Closed],
    beside_dram: bool,
) {
    let few = Items {
        keys: run.own.dram_keys.min(items.keys),
        ..items.clone()
    };
    let memory = few.keys * 3 * PAGE_SIZE as u64 / 2 + (64 << 20);
    let dram =
        beside_dram.then(|| filled(run, run.bench.memcached("memcached", memory), &few, None));
    run.next("fixed rates");
    let mut table = Table::titled(
        "Latency of GETs at fixed rates (open loop, 64 connections), from when each was due",
    );
    // The means of each contender at its lowest rate, and those at its highest over them.
    let mut first: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut last: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for rate in run.own.rates.clone() {
        let load = Load::gets(64).at_rate(rate);
        let turns = |name: &str, contender: &Contender, items: &Items| {
            let (contenders, time) = ([(name, contender)], run.own.curve_window);
            take_turns(run.bench, &contenders, items, &load, "", CURVE_ROUNDS, time)
        };
        let mut all = Vec::new();
        for (number, &(name, contender)) in contenders.iter().enumerate() {
            let peak = closed
                .iter()
                .filter_map(|closed| {
                    let first = closed.all.len() - contenders.len();
                    closed.all[first + number].figure(Window::rate).ok()
                })
                .fold(0.0, f64::max);
            if rate <= peak * 0.95 {
                all.extend(turns(name, contender, items));
            }
        }
        if let Some(dram) = &dram {
            all.extend(turns("memcached in DRAM", dram, &few));
        }
        for series in all.iter().filter(|series| !series.windows.is_empty()) {
            let mean = |window: &Window| window.step.get.mean() / 1e3;
            let tail = |share: f64| move |window: &Window| us(&window.step.get, share);
            let cell = |of: &dyn Fn(&Window) -> f64, digits: usize| {
                format!("{:.digits$}", series.figure(of).unwrap_or(f64::NAN))
            };
            table.add([
                ("contender", series.contender.clone()),
                ("asked/s", format!("{rate:.0}")),
                ("answered/s", cell(&Window::rate, 0)),
                ("mean us", cell(&mean, 0)),
                ("p50 us", cell(&tail(0.5), 0)),
                ("p99 us", cell(&tail(0.99), 0)),
                ("p99.9 us", cell(&tail(0.999), 0)),
                ("server %", cell(&Window::server_percent, 1)),
                (
                    "load's own p99 us",
                    cell(&|window| us(&window.step.late, 0.99), 0),
                ),
            ]);
            let name = series.contender.split(' ').next().unwrap_or_default();
            let outcome = &mut run.outcome;
            let means: Vec<f64> = series.windows.iter().map(mean).collect();
            outcome.rounds(format!("{name}_mean_us_at_{rate:.0}"), means.clone());
            let key = format!("{name}_p99_us_at_{rate:.0}");
            outcome.put(&key, series.figure(tail(0.99)));
            let low = first
                .entry(name.to_owned())
                .or_insert_with(|| means.clone());
            let over_low = means.iter().zip(&*low).map(|(high, low)| high / low);
            last.insert(name.to_owned(), over_low.collect());
            let in_dram = all.last().filter(|_| dram.is_some() && name != "memcached");
            if let Some(in_dram) = in_dram {
                let over_dram = over(series, in_dram, mean);
                if *low == means {
                    let key = format!("{name}_mean_over_dram_at_low_rate");
                    outcome.put(&key, over_dram.clone());
                }
                outcome.put(format!("{name}_mean_over_dram_at_{rate:.0}"), over_dram);
            }
        }
    }
    for (name, ratios) in last.into_iter().filter(|_| beside_dram) {
        run.outcome
            .rounds(format!("{name}_mean_high_over_low_rate"), ratios);
    }
    run.outcome.tables.push(table);
}

fn paper_values(run: &mut Run<'_>) -> Result<()> {
    let (keys, memory) = run.own.paper;
    let items = Items::fixed(keys, KEY, 4096);
    let data = keys * 2 * PAGE_SIZE as u64;
    run.bench.scratch.need(data / 8 * (9 + 6))?;
    let senko = filled(
        run,
        Ok(run.bench.on_flash("senko-4096", memory, data / 8 * 9)),
        &items,
        None,
    );
    let extstore = run.bench.extstore("extstore-4096", memory, data / 4 * 3);
    let extstore = filled(run, extstore, &items, Some(EXTSTORE_FILL));
    run.next("values of 4,096 bytes");
    let contenders = [("senko-4096", &senko), ("extstore-4096", &extstore)];
    let closed = closed_loops(run, &contenders, &items, &[64, 256], 2, ("", 0));
    // As with one page, extstore's share of the device is the limit.
    for (key, contender) in [("get4096_over_fio_8k", 0), ("extstore4096_over_fio_8k", 1)] {
        run.outcome.put(key, over_device(&closed, contender, FLASH));
    }
    run.outcome
        .put("get4096_over_extstore", over_rival(&closed, 1));
    Ok(())
}

/// Processor time of a GET, all in DRAM.
fn dram(run: &mut Run<'_>) -> Result<()> {
    let items = Items::fixed(run.own.dram_keys, KEY, 1000);
    let memory = items.keys * 3 * 1024 / 2 + (64 << 20);
    let senko = filled(
        run,
        Ok(run.bench.senko("senko-1000", memory).dram_only()),
        &items,
        None,
    );
    let memcached = run.bench.memcached("memcached-1000", memory);
    // Large pages, as senko takes them.
    let memcached = memcached.map(|spec| spec.with(&["-L"]));
    let memcached = filled(run, memcached, &items, None);
    run.next("all in DRAM");
    for (key, pipeline) in [
        ("dram_cpu_over_memcached", 1),
        ("dram_pipelined_cpu_over_memcached", 16),
    ] {
        let load = Load::gets(64).pipelined(pipeline);
        let what = format!("64 connections, {pipeline} under way");
        let all = run.turns(
            &[("senko-1000", &senko), ("memcached-1000", &memcached)],
            &items,
            &load,
            &what,
        );
        run.outcome
            .put(key, over(&all[0], &all[1], Window::server_us));
    }
    Ok(())
}

/// The same by a generator that is not ours.
fn memtier(run: &mut Run<'_>) -> Result<()> {
    const LOADS: [(&str, usize, usize); 4] = [
        ("memtier_cpu_over_memcached", 64, 1),
        ("memtier_pipelined_cpu_over_memcached", 64, 16),
        ("memtier8_cpu_over_memcached", 8, 1),
        ("memtier256_cpu_over_memcached", 256, 1),
    ];
    run.next("all in DRAM, by memtier");
    let memtier = Memtier {
        program: &run.bench.options.memtier,
        core: run.bench.load_core(),
        keys: run.own.dram_keys,
        value: 1000,
    };
    let memory = memtier.keys * 3 * 1024 / 2 + (64 << 20);
    let rival = run.bench.memcached("memcached-memtier", memory);
    let senko = run.bench.senko("senko-memtier", memory).dram_only();
    let start = |spec: Result<Spec, String>| {
        let server = spec
            .map_err(|why| anyhow!(why))?
            .start(&run.bench.scratch)?;
        memtier.fill(&server)?;
        Ok::<Server, anyhow::Error>(server)
    };
    // Large pages, as senko takes them.
    let rival = start(rival.map(|spec| spec.with(&["-L"])))?;
    let senko = start(Ok(senko))?;
    let mut table = Table::new(
        "GETs from DRAM by memtier, processor us of each, medians",
        &["connections", "under way", "senko", "memcached"],
    );
    for (key, connections, pipeline) in LOADS {
        let mut us = (Vec::new(), Vec::new());
        for _ in 0..run.rounds {
            for (server, us) in [(&senko, &mut us.0), (&rival, &mut us.1)] {
                us.push(memtier.gets(server, (connections, pipeline), run.own.gets)?);
            }
        }
        let ratios = us.0.iter().zip(&us.1).map(|(ours, theirs)| ours / theirs);
        run.outcome.rounds(key, ratios.collect());
        let middle = |us| median(us).map_or("-".to_owned(), |us| format!("{us:.2}"));
        let load = [connections.to_string(), pipeline.to_string()];
        table.row([load, [middle(us.0), middle(us.1)]].concat());
    }
    run.outcome.tables.push(table);
    Ok(())
}

fn small_values(run: &mut Run<'_>) -> Result<()> {
    for (value, keys, memory) in run.own.small {
        let items = Items::fixed(keys, KEY, value);
        let data = keys * Footprint::record_bytes(KEY, value as u32);
        run.bench.scratch.need(data / 2 * (3 + 4))?;
        let (one, two) = (format!("senko-{value}"), format!("extstore-{value}"));
        let senko = filled(
            run,
            Ok(run.bench.on_flash(&one, memory, data / 2 * 3)),
            &items,
            None,
        );
        let spec = run
            .bench
            .extstore(&two, memory, (data * 2).max(256 << 20))
            .map(|spec| spec.with(&["-o", "ext_item_size=32"]));
        let extstore = filled(run, spec, &items, None);
        run.next(&format!("values of {value} bytes"));
        let all = run.turns(
            &[(&one, &senko), (&two, &extstore)],
            &items,
            &Load::gets(64),
            "64 connections",
        );
        let key = format!("small{value}_hits_over_extstore");
        run.outcome
            .put(&key, over(&all[0], &all[1], Window::hits_per_second));
        run.outcome
            .put(format!("small{value}_found"), all[0].figure(Window::found));
        run.outcome.put(
            format!("small{value}_found_by_extstore"),
            all[1].figure(Window::found),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_fills_a_page() {
        let value = page_value();
        assert_eq!(
            value.to_string().len(),
            4,
            "the length takes as many digits as was assumed"
        );
        let answer =
            format!("VALUE {} 0 {value}\r\n", "k".repeat(KEY)).len() + value + "\r\nEND\r\n".len();
        assert_eq!(RECORD_HEADER + answer, PAGE_SIZE);
    }
}
