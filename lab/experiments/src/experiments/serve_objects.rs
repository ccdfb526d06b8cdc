// SPDX-License-Identifier: Apache-2.0
//! Do large values go between flash and the socket at the device's rate, and leave DRAM to small
//! items?
//!
//! Expected shape: a value goes through a window of frames. So a GET of 1 MiB is as fast as the
//! device, and its first byte leaves after one piece of 64 KiB was read. No small item leaves DRAM
//! for it. A SET goes to flash as it arrives.
//!
//! *Rates.* The device's rate is fio's, with blocks of the value's size and direct I/O, before each
//! round. It reads and writes files that are as large as the data, and were written once. In
//! senko's own flash file some pages were never written, and the file system answers reads of these
//! without the device. A minimal server (`lab/experiments/examples/floor.rs`) serves the same
//! clients in its turn. It reads each value with one read, and checks nothing. If its core is full
//! before the device is, the rate of GETs is compared with its. SETs are measured after the log has
//! come round. Extstore answers a part of its GETs from DRAM, and these count for it.
//!
//! *First byte.* A plain client takes the time from sending a `get` until the first bytes arrive.
//! The floor is the median of fio's reads of one piece plus the median of the same client's GETs of
//! small items in DRAM.
//!
//! *Processor time* of a byte is compared with that of nginx, which sends ranges of a file: direct
//! I/O in its own threads, then writes to the socket. It checks nothing. About a fifth of senko's
//! GETs are answered from DRAM.
//!
//! *DRAM.* A server's DRAM is full of small items. Large values are read once each; what leaves
//! DRAM meanwhile is counted. Then small items are read by Zipf's law, alone and beside large GETs.
//! The large values of a round are read once. A second figure reads them again and again, so that
//! they come to DRAM by the rule that all items follow.
//!
//! *Memory.* Many connections read values of 32 MiB at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use senko_io::PAGE_SIZE;
use senko_workload::{KeySpace, Popularity};

use crate::rig::fio::{self, Job, Reads};
use crate::rig::nginx::{self, Nginx, Ranges};
use crate::rig::probe::on_core;
use crate::rig::series::{Contender, take_turn};
use crate::rig::traffic::{self, ZIPF};
use crate::rig::{
    self, Bench, Items, Load, Rounds, Series, Server, Window, median, over, process, some,
};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Reason};

const KEY: usize = 16;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const CONNECTIONS: usize = 16;
const SMALL: usize = 1000;
/// A piece of a large record (`crates/cache/src/record/pieces.rs`).
const PIECE: u64 = 64 << 10;
/// A minimal server that takes this much of its core is bound by it, and not by the device.
const FULL_PERCENT: f64 = 95.0;
/// Bytes a second at which extstore is filled. At a higher rate it drops items.
const EXTSTORE_FILL: f64 = 48e6;
/// GETs of a round by the client that waits for the first byte.
const FIRST_BYTES: u64 = 200;
/// Readers of values of 32 MiB.
const READERS: usize = 256;
/// The file of which fio, the minimal server and nginx read parts.
const READS: &str = "reads.fio";
/// The large values of each round beside small items.
const BESIDE: [&str; 3] = ["beside-a", "beside-b", "beside-c"];

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-objects",
    paper: Paper::Design,
    source: "design question: large values; paper B, section 3.3 (direct transfer)",
    text: "large values against the device's rate and extstore's, their first byte, and what they take from small items in DRAM",
    sentences: &[],
    bars: &[
        Bar::more("get1m_over_fio", 0.85, 0.97),
        Bar::more("get256k_over_extstore", 1.3, 2.0),
        Bar::more("get1m_over_extstore", 1.5, 2.5),
        Bar::less("first_byte_over_floor", 1.5, 1.2),
        Bar::less("cpu_per_gib_over_nginx", 1.5, 1.15),
        Bar::less("item_memory_taken", 0.0, 0.0),
        Bar::more("dram_hit_ratio_beside", 0.99, 1.0),
        Bar::more("put1m_over_fio", 0.7, 0.9),
        Bar::less("rss_over_cap", 1.05, 1.0),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let sizes = Sizes {
        memory: bench.scaled(256 << 20, 1 << 30),
        data: bench.scaled(1 << 30, 10 << 30),
    };
    let mut run = Run::new(
        bench,
        progress,
        outcome,
        (18, "Medians of the rounds"),
        sizes,
    );
    run.in_rounds(bench.scaled(3, 10), Duration::from_secs(bench.scaled(1, 3)));
    run.outcome.setting("memory_bytes", sizes.memory);
    run.outcome.setting("data_bytes", sizes.data);
    run.outcome.setting("connections", CONNECTIONS);
    run.outcome.setting("fio", fio::version().ok());
    let keys = [
        "get1m_over_fio",
        "get1m_over_extstore",
        "first_byte_over_floor",
        "cpu_per_gib_over_nginx",
        "put1m_over_fio",
    ];
    run.part(&keys, |run| values(run, MIB, "1m"));
    run.part(&["get256k_over_extstore"], |run| {
        values(run, 256 * KIB, "256k")
    });
    run.part(&["item_memory_taken", "dram_hit_ratio_beside"], dram);
    run.part(&["rss_over_cap"], readers);
    run.finish();
    Ok(())
}

#[derive(Clone, Copy)]
struct Sizes {
    /// Of a server.
    memory: u64,
    /// Bytes of the large values.
    data: u64,
}

type Run<'a> = rig::Run<'a, Sizes>;

/// A figure of one contender over fio's rate in each round.
fn over_fio(series: &Series, fio: &Result<Vec<Reads>, String>, of: fn(&Window) -> f64) -> Rounds {
    let fio = fio.as_ref().map_err(Clone::clone)?;
    let rounds = series.windows.iter().zip(fio);
    some(rounds.map(|(window, fio)| of(window) / fio.per_second))
        .ok_or_else(|| series.figure(of).err().unwrap_or_default())
}

/// GETs that were answered from DRAM, over all GETs of the load. Large values that others read
/// meanwhile come from flash, and cancel out.
fn dram_hits(window: &Window) -> f64 {
    (window.grown("get_hits") - window.grown("flash_hits")) / window.step.counts.reads as f64
}

/// Items that have left DRAM so far: lost, written to flash, or there already.
fn left_dram(server: &Server) -> Result<f64> {
    let stats = server.stats()?;
    let names = ["evictions", "flash_demotions", "flash_demotions_clean"];
    Ok(names.iter().filter_map(|name| stats.get(*name)).sum())
}

/// Sends a `get` and returns the time until the first bytes of the answer, in microseconds. Reads
/// the answer to its end.
fn first_byte(stream: &mut TcpStream, key: &[u8], buffer: &mut [u8]) -> Result<f64> {
    let request = [b"get ", key, b"\r\n"].concat();
    let start = Instant::now();
    stream.write_all(&request)?;
    let mut got = stream.read(buffer)?;
    let us = start.elapsed().as_secs_f64() * 1e6;
    let head = buffer[..got].split(|&byte| byte == b'\n').next();
    let head = String::from_utf8_lossy(head.unwrap_or_default()).into_owned();
    let words: Vec<&str> = head.trim_end().split(' ').collect();
    let ["VALUE", _, _, len] = words[..] else {
        return Err(anyhow!("the server answered \"{head}\" to a get"));
    };
    let whole = head.len() + 1 + len.parse::<usize>()? + "\r\nEND\r\n".len();
    while got < whole {
        let more = stream.read(buffer)?;
        ensure!(more > 0, "the server closed the connection");
        got += more;
    }
    Ok(us)
}

/// A job of fio on a file of the scratch folder.
fn by_fio(
    run: &Run<'_>,
    job: fn(&Job<'_>) -> Result<Reads, String>,
    (file, span): (&str, u64),
    (block, depth): (u64, u32),
) -> Result<Reads, String> {
    job(&Job {
        file: &run.bench.scratch.path(file),
        span,
        block,
        depth,
        time: run.window,
        core: run.bench.server_core(),
    })
}

/// Rounds of fio and the contenders, in turns.
fn beside_fio(
    run: &mut Run<'_>,
    contenders: &[(&str, &Contender)],
    items: &Items,
    load: &Load,
    fio: impl Fn(&Run<'_>) -> Result<Reads, String>,
) -> (Vec<Series>, Result<Vec<Reads>, String>) {
    let what = format!("{:.0} % GETs", load.gets * 100.0);
    let mut all = Series::of(contenders, &what);
    let mut device = Ok(Vec::new());
    for round in 0..run.rounds {
        device = device.and_then(|mut rounds| {
            rounds.push(fio(run)?);
            Ok(rounds)
        });
        let load = load.clone().round(round);
        take_turn(run.bench, contenders, items, &load, run.window, &mut all);
    }
    run.rows(&all);
    (all, device)
}

/// Values of one size beside fio and extstore.
fn values(run: &mut Run<'_>, value: usize, size: &str) -> Result<()> {
    let items = Items::fixed(run.own.data / value as u64, KEY, value);
    let room = run.own.data / 2 * 3;
    run.bench.scratch.need(2 * room + run.own.data)?;
    let (name, rival) = (format!("senko-{size}"), format!("extstore-{size}"));
    let senko = run.bench.on_flash(&name, run.own.memory, room);
    let senko = run.contender(Ok(senko), &items, None);
    // By default its largest item is 1 MiB with its head.
    let extstore = run.bench.extstore(&rival, run.own.memory, room);
    let extstore = extstore.map(|spec| spec.with(&["-I", "2m"]));
    let extstore = run.contender(extstore, &items, Some(EXTSTORE_FILL / value as f64));
    run.next(&format!("GETs of {size}"));
    let (path, pages) = (
        run.bench.scratch.path(READS),
        run.own.data / PAGE_SIZE as u64,
    );
    if !path.exists() {
        let whole = (READS, run.own.data);
        by_fio(run, fio::sequential_writes, whole, (MIB as u64, 4)).map_err(|why| anyhow!(why))?;
    }
    let floor = run.bench.floor("floor", (&path, pages), value);
    let floor = floor.and_then(|spec| spec.start(&run.bench.scratch).reason());
    let block = value as u64;
    let (all, device) = beside_fio(
        run,
        &[(&name, &senko), (&rival, &extstore), ("floor", &floor)],
        &items,
        &Load::gets(CONNECTIONS),
        |run| {
            let of = (READS, run.own.data);
            by_fio(run, fio::random_reads, of, (block, CONNECTIONS as u32))
        },
    );
    let flash = Window::flash_hits_per_second;
    let outcome = &mut run.outcome;
    let floor_over_fio = over_fio(&all[2], &device, Window::hits_per_second);
    let over_device = over_fio(&all[0], &device, flash);
    let over_least = over_device.and_then(|rounds| {
        let floor = floor_over_fio.clone()?;
        let full = all[2].windows.iter().map(|window| {
            let percent = Window::server_percent(window);
            percent >= FULL_PERCENT
        });
        let least = floor
            .iter()
            .zip(full)
            .map(|(floor, full)| if full { floor.min(1.0) } else { 1.0 });
        Ok(rounds
            .iter()
            .zip(least)
            .map(|(get, least)| get / least)
            .collect::<Vec<_>>())
    });
    outcome.put(format!("get{size}_over_fio"), over_least);
    outcome.put(format!("get{size}_floor_over_fio"), floor_over_fio);
    drop(floor);
    outcome.put(
        format!("get{size}_over_extstore"),
        over(&all[0], &all[1], Window::hits_per_second),
    );
    let share = format!("get{size}_server_percent");
    outcome.put(share, all[0].figure(Window::server_percent));
    drop(extstore);
    if value == MIB {
        let senko = senko.map_err(|why| anyhow!(why))?;
        let figure = first_bytes(run, &senko, &items);
        run.outcome.put("first_byte_over_floor", figure.reason());
        let figure = beside_nginx(run, &senko, &items);
        run.outcome.put("cpu_per_gib_over_nginx", figure.reason());
        puts(run, senko, &items)?;
    }
    Ok(())
}

/// The time to the first byte over the device's read of a piece and a DRAM hit, in each round.
fn first_bytes(run: &mut Run<'_>, senko: &Server, items: &Items) -> Result<Vec<f64>> {
    run.next("first bytes");
    let hot = Items {
        prefix: "hot",
        ..Items::fixed(FIRST_BYTES, KEY, SMALL)
    };
    traffic::fill(run.bench, senko, &hot, None)?;
    let mut stream = TcpStream::connect(senko.address)?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; MIB];
    let mut ask = |items: &Items, keys: &mut dyn Iterator<Item = u64>| -> Result<f64> {
        let space = KeySpace::new(items.prefix, items.key, items.keys)?;
        let mut times = Vec::new();
        for number in keys {
            let mut key = Vec::new();
            space.append(number, &mut key);
            times.push(first_byte(&mut stream, &key, &mut buffer)?);
        }
        median(times).context("there was no key")
    };
    let mut ratios = Vec::new();
    let mut sums = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..run.rounds as u64 {
        let read = by_fio(run, fio::random_reads, (READS, run.own.data), (PIECE, 1))
            .map_err(|why| anyhow!(why))?;
        // Spread over the file, each round others.
        let step = items.keys / FIRST_BYTES;
        let mut far = (0..FIRST_BYTES).map(|n| n * step + round % step.max(1));
        let (large, hit) = on_core(run.bench.load_core(), || {
            Ok::<_, anyhow::Error>((ask(items, &mut far)?, ask(&hot, &mut (0..hot.keys))?))
        })??;
        ratios.push(large / (read.p50_us + hit));
        for (sum, us) in sums.iter_mut().zip([large, read.p50_us, hit]) {
            sum.push(us);
        }
    }
    let names = ["first_byte_us", "fio_piece_us", "dram_hit_us"];
    for (name, us) in names.into_iter().zip(sums) {
        run.outcome.rounds(name, us);
    }
    Ok(ratios)
}

/// The server's processor time for a byte of GETs over nginx's for a byte of ranges of a file, in
/// each round. Both have as many connections.
fn beside_nginx(run: &mut Run<'_>, senko: &Server, items: &Items) -> Result<Vec<f64>> {
    run.next("GETs of 1m beside nginx");
    run.outcome.setting("nginx", nginx::version()?);
    let nginx = Nginx::start(&run.bench.scratch, run.bench.server_core())?;
    let (mut ratios, mut windows) = (Vec::new(), Vec::new());
    for round in 0..run.rounds {
        let load = Load::gets(CONNECTIONS).round(round + 50);
        let window = run.measure(senko, items, &load, run.window)?;
        let theirs = nginx.cpu_per_byte(Ranges {
            file: (READS, run.own.data),
            part: MIB as u64,
            connections: CONNECTIONS as u64,
            time: run.window,
            core: run.bench.load_core(),
            seed: 1000 * round as u64,
        })?;
        ratios.push(window.server_us() / 1e6 / window.found() / MIB as f64 / theirs);
        windows.push(window);
    }
    run.row("senko-1m", "beside nginx", &windows);
    Ok(ratios)
}

/// SETs beside fio's sequential writes.
fn puts(run: &mut Run<'_>, senko: Server, items: &Items) -> Result<()> {
    run.next("SETs, until the log has come round");
    traffic::fill(run.bench, &senko, items, None)?;
    run.next("SETs of 1m");
    let senko = Ok(senko);
    let load = Load::gets(CONNECTIONS).mixed(0.0);
    let (all, device) = beside_fio(run, &[("senko-1m", &senko)], items, &load, |run| {
        let job = (MIB as u64, CONNECTIONS as u32);
        by_fio(
            run,
            fio::sequential_writes,
            ("writes.fio", run.own.data),
            job,
        )
    });
    let figure = over_fio(&all[0], &device, Window::done_per_second);
    run.outcome.put("put1m_over_fio", figure);
    drop(std::fs::remove_file(run.bench.scratch.path("writes.fio")));
    Ok(())
}

/// Large GETs beside small items that fill DRAM.
fn dram(run: &mut Run<'_>) -> Result<()> {
    let large = |prefix, bytes: u64| Items {
        prefix,
        ..Items::fixed(bytes / MIB as u64, KEY, MIB)
    };
    let once = large("once", run.own.data);
    let beside = BESIDE.map(|prefix| large(prefix, run.own.data / 4));
    let small = Items::fixed(2 * run.own.memory / SMALL as u64, KEY, SMALL);
    let room = run.own.data * 5 / 2 + 4 * run.own.memory;
    run.bench.scratch.need(room)?;
    let spec = run.bench.on_flash("senko-beside", run.own.memory, room);
    let server = run.contender(Ok(spec), &once, None);
    let server = server.map_err(|why| anyhow!(why))?;
    for items in &beside {
        traffic::fill(run.bench, &server, items, None)?;
    }
    run.fill(&server, &small)?;
    // Writes of the fill may still be under way.
    let mut left = left_dram(&server)?;
    let settled = Instant::now();
    loop {
        thread::sleep(Duration::from_millis(200));
        let now = left_dram(&server)?;
        if now == left || settled.elapsed() > Duration::from_secs(10) {
            break;
        }
        left = now;
    }
    run.next("large GETs, each once");
    let sweep = Load::gets(CONNECTIONS).popular(Popularity::Sequential);
    let (items, left) = (server.stat("dram_items")?, left_dram(&server)?);
    let window = run.requests(&server, &once, &sweep, once.keys)?;
    let taken = left_dram(&server)? - left;
    run.outcome.bar("item_memory_taken", taken);
    run.outcome.setting("dram_items_before", items);
    let now = server.stat("dram_items")?;
    run.outcome.setting("dram_items_after", now);
    run.row("senko", "large GETs, each once", &[window]);

    run.next("small GETs, alone and beside");
    let zipf = Load::gets(CONNECTIONS).popular(ZIPF);
    let time = 2 * run.window;
    run.measure(&server, &small, &zipf.clone().round(99), time)?;
    for (key, uniform) in [("", false), ("_repeated", true)] {
        let (mut alone, mut with) = (Vec::new(), Vec::new());
        for round in 0..=BESIDE.len() {
            let load = zipf.clone().round(round + 10 * usize::from(uniform));
            let bench = run.bench;
            let small_gets = || traffic::measure(bench, &server, &small, &load, time);
            alone.push(small_gets()?);
            let Some(items) = beside.get(round) else {
                break;
            };
            let large = Load {
                rate: Some(items.keys as f64 / time.as_secs_f64()),
                popularity: match uniform {
                    true => Popularity::Uniform,
                    false => Popularity::Sequential,
                },
                ..sweep.clone()
            };
            let (beside, flood) = thread::scope(|scope| {
                let flood = scope
                    .spawn(|| traffic::measure_requests(bench, &server, items, &large, items.keys));
                (small_gets(), flood.join())
            });
            let flood = flood.map_err(|_| anyhow!("a thread of the experiment panicked"))??;
            ensure!(flood.found() > 0.9, "the large values were not there");
            with.push(beside?);
        }
        let around = alone.windows(2).map(|two| {
            let [before, after] = [&two[0], &two[1]].map(dram_hits);
            (before + after) / 2.0
        });
        let ratios = with.iter().map(dram_hits).zip(around);
        let figure = ratios.map(|(with, alone)| with / alone).collect();
        let key = format!("dram_hit_ratio_beside{key}");
        run.outcome.rounds(&key, figure);
        run.row("senko", "small GETs alone", &alone);
        run.row("senko", &key, &with);
    }
    Ok(())
}

/// Peak memory while many read values of 32 MiB.
fn readers(run: &mut Run<'_>) -> Result<()> {
    let items = Items::fixed(run.own.data / (32 * MIB) as u64 / 2, KEY, 32 * MIB);
    let room = run.own.data * 2;
    run.bench.scratch.need(room)?;
    let spec = run.bench.on_flash("senko-32m", run.own.memory, room);
    let server = run.contender(Ok(spec), &items, None);
    let server = server.map_err(|why| anyhow!(why))?;
    run.next("readers of 32 MiB");
    let load = Load::gets(READERS);
    let gets = 2 * READERS as u64;
    let window = run.requests(&server, &items, &load, gets)?;
    ensure!(
        window.step.counts.hits == gets,
        "{} of {gets} GETs of 32 MiB found their value",
        window.step.counts.hits
    );
    run.row("senko", "256 readers of 32 MiB", &[window]);
    let peak = process::memory(server.pid())?.peak;
    let ratio = peak as f64 / run.own.memory as f64;
    run.outcome.bar("rss_over_cap", ratio);
    Ok(())
}
