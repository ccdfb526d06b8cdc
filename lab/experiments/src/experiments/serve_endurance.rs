// SPDX-License-Identifier: Apache-2.0
//! The cache's writes to flash: their ratio to the admitted bytes, their rate under a budget, the
//! hits that they bring, and what a drive makes of them.
//!
//! Expected shape: regions are reclaimed oldest first. If nothing is written again, the device gets
//! the admitted bytes and the padding of pages. Reinserting hit items costs a few tenths more, and
//! pays off in hits. A budget holds over any period.
//!
//! *Write amplification*: bytes that the server's process wrote by the kernel's count, over bytes
//! admitted with their padding. Meanwhile the flash is full, and items with ETC's sizes are
//! overwritten and read by Zipf's law. The padding is the server's page fill: bytes of records over
//! bytes of their pages.
//!
//! *Hits for bytes*: each admission rule, with and without reinsertion, on the real key-value
//! traces. They are replayed through one cache shard over a device in memory (`replay.rs`). DRAM
//! has a hundredth and flash a tenth of the trace's bytes (at least 2 MiB). Traces without sizes
//! get values of one size, larger where objects are few.
//!
//! *Drive factor*: pages that a simulated drive writes for each page of the logs, without trim, by
//! the number of logs (`streams.rs`). A server has as many on a drive as shards.

pub mod replay; // a trace through a shard
mod streams; // several logs on a simulated drive

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::rig::traffic::ZIPF;
use crate::rig::{self, Bench, Figure, Items, Load, Series, Server, Spec, Window, ratio};
use crate::{Bar, Experiment, Measure, Options, Outcome, Paper, Progress, Reason, Table};
use replay::{Counts, LARGEST_VALUE, RULES, Replay};
use senko_cache::Footprint;
use senko_plan::requests::{self, Requests};

/// The real key-value traces: name in keys, file.
const TRACES: [(&str, &str); 5] = [
    ("oltp", "ARC_OLTP.lis.zst"),
    ("p3", "ARC_P3.lis.zst"),
    ("cloudphysics", "cloudphysics_114k.oracleGeneral"),
    ("loop", "caffeine_lirs_loop.trace.gz"),
    ("sprite", "caffeine_lirs_sprite.trace.gz"),
];
/// DRAM and flash of a replay, as shares of the trace's bytes.
const SHARES: (f64, f64) = (0.01, 0.1);
/// The least sizes of both.
const LEAST: (u64, u64) = (2 << 20, 2 << 20);
/// The longest time of a phase that waits until this many bytes are written.
const LONGEST: Duration = Duration::from_secs(1200);
const GETS: f64 = 0.5;

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-endurance",
    paper: Paper::Design,
    source: "design question; paper C's measure, writes, above the device",
    text: "what reaches the device is what was admitted, or a few tenths more where items that were hit are kept",
    sentences: &[],
    bars: &[
        Bar::less("host_wa_fifo", 1.05, 1.02),
        Bar::less("host_wa_reinsert", 1.3, 1.2),
        Bar::more("page_fill", 0.95, 0.98),
        Bar::less("drive_factor_t16", 1.02, 1.0),
    ],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let bench = Bench::open(options)?;
    let sizes = Sizes {
        flash: bench.scaled(160 << 20, 4 << 30),
        memory: bench.scaled(48 << 20, 512 << 20),
    };
    let titled = (7 + TRACES.len() as u64, "Steady overwrite, flash full");
    let mut run = Run::new(&bench, progress, outcome, titled, sizes);
    run.outcome.setting("flash_bytes", sizes.flash);
    run.outcome.setting("memory_bytes", sizes.memory);
    run.outcome.setting("gets_while_overwriting", GETS);
    let keys = [
        "host_wa_fifo",
        "host_wa_reinsert",
        "page_fill",
        "bytes_per_day_over_budget",
        "bytes_per_day_under_budget",
        "bytes_per_day_without_budget",
    ];
    run.part(&keys, overwrite);
    run.next("last probe of the device");
    bench.note_caps(run.outcome);
    bench.finish(run.outcome)?;
    run.next("logs on a simulated drive");
    streams::measure(run.outcome)?;
    traces(&mut run);
    run.finish_first();
    Ok(())
}

#[derive(Clone, Copy)]
struct Sizes {
    flash: u64,
    memory: u64,
}

type Run<'a> = rig::Run<'a, Sizes>;

struct Written {
    /// By the kernel's count for the process; by the server's own if there is none.
    device: f64,
    by_server: f64,
    admitted: f64,
    page_fill: f64,
    reinserted: f64,
    reclaimed: f64,
    seconds: f64,
}

impl Written {
    /// Device bytes divided by admitted bytes with their padding.
    fn amplification(&self) -> Figure {
        if self.reclaimed == 0.0 {
            return Err("the flash was not full: no region was reclaimed".to_owned());
        }
        Ok(self.device / (self.admitted / self.page_fill))
    }

    fn per_day(&self) -> f64 {
        self.device / self.seconds * 86_400.0
    }
}

/// Items that take about twice the flash, by their mean size.
fn items(run: &Run<'_>) -> Items {
    const MEAN_ITEM: u64 = 290;
    Items::etc(run.own.flash * 2 / MEAN_ITEM, 100_000)
}

fn spec(run: &Run<'_>, name: &str, more: &[&str]) -> Spec {
    let spec = run.bench.on_flash(name, run.own.memory, run.own.flash);
    spec.with(more)
}

fn full(run: &mut Run<'_>, spec: &Spec) -> Result<Server> {
    run.next(&format!("filling {}", spec.name));
    let server = run.start(spec)?;
    run.fill(&server, &items(run))?;
    // Writes as much as the flash holds under the load itself. Items reclaimed later have then
    // existed as long as in the steady state.
    let filled = server.stat("flash_written_bytes")?;
    let start = Instant::now();
    while server.stat("flash_written_bytes")? < filled + run.own.flash as f64 {
        ensure!(
            start.elapsed() < LONGEST,
            "{} did not fill its flash in time",
            server.name
        );
        stretch(run, &server, Duration::from_secs(1))?;
    }
    Ok(server)
}

/// One period of overwriting. Each draws other keys.
fn stretch(run: &Run<'_>, server: &Server, time: Duration) -> Result<Window> {
    let round = server.stat("cmd_set")? as usize;
    let load = Load::gets(64).mixed(GETS).pipelined(16).popular(ZIPF);
    run.measure(server, &items(run), &load.round(round), time)
}

/// Overwrites until a flash's worth was written.
fn steady(run: &mut Run<'_>, server: &Server, bytes: f64) -> Result<Written> {
    run.next(&format!("overwriting, {}", server.name));
    server.reset_stats()?;
    let mut written = Written {
        device: 0.0,
        by_server: 0.0,
        admitted: 0.0,
        page_fill: 1.0,
        reinserted: 0.0,
        reclaimed: 0.0,
        seconds: 0.0,
    };
    let mut series = Series::new(&server.name, "50/50 GET/SET, 16 under way");
    let (start, mut by_kernel) = (Instant::now(), true);
    while written.by_server < bytes {
        ensure!(
            start.elapsed() < LONGEST,
            "{} did not write enough in time",
            server.name
        );
        let window = stretch(run, server, Duration::from_secs(run.scaled(2, 10)))?;
        // Both counts start and end at the same moments, so writes outside of the windows count
        // in neither.
        written.seconds += window.step.seconds();
        written.device += window.io.map_or(0.0, |io| io.written as f64);
        by_kernel &= window.io.is_some();
        written.by_server += window.grown("flash_written_bytes");
        written.admitted += window.grown("flash_admitted_bytes");
        written.reinserted += window.grown("flash_reinserted_bytes");
        written.reclaimed += window.grown("flash_reclaimed_regions");
        written.page_fill = window
            .stats
            .1
            .get("flash_page_fill")
            .copied()
            .context("the server's statistics have no flash_page_fill")?;
        series.add(Ok(window));
    }
    if !by_kernel {
        written.device = written.by_server;
    }
    run.rows([&series]);
    Ok(written)
}

fn overwrite(run: &mut Run<'_>) -> Result<()> {
    let items = items(run);
    run.outcome.setting("keys", items.keys);
    run.bench.scratch.need(run.own.flash * 3)?;
    let mut table = Table::new(
        "Bytes written while the flash was full",
        &[
            "server",
            "seconds",
            "device MB",
            "by the server MB",
            "admitted MB",
            "written again MB",
            "page fill",
            "amplification",
            "GB a day",
        ],
    );
    let mut rows: Vec<(&str, Result<Written, String>)> = Vec::new();
    for (name, more) in [("fifo", &["--no-reinsert"][..]), ("reinsert", &[][..])] {
        let written = full(run, &spec(run, name, more))
            .and_then(|server| steady(run, &server, run.own.flash as f64));
        rows.push((name, written.reason()));
    }
    // A quarter of the rate without a budget, so that the budget is the limit.
    let free = rows[0]
        .1
        .as_ref()
        .map_or(20e6, |written| written.device / written.seconds);
    let budget = ((free / 4.0) as u64 >> 20).max(1) << 20;
    let option = format!("{}m/s", budget >> 20);
    let spec = spec(run, "budget", &["--flash-write-budget", &option]);
    let written = under_budget(run, &spec);
    rows.push(("budget", written.reason()));
    for (name, written) in &rows {
        let Ok(written) = written else { continue };
        let mb = |bytes: f64| format!("{:.0}", bytes / 1e6);
        table.row(vec![
            (*name).to_owned(),
            format!("{:.0}", written.seconds),
            mb(written.device),
            mb(written.by_server),
            mb(written.admitted),
            mb(written.reinserted),
            format!("{:.3}", written.page_fill),
            written
                .amplification()
                .map_or("-".to_owned(), |number| format!("{number:.3}")),
            format!("{:.0}", written.per_day() / 1e9),
        ]);
    }
    run.outcome.tables.push(table);
    let figure = |at: usize, of: &dyn Fn(&Written) -> Figure| {
        rows[at].1.as_ref().map_err(Clone::clone).and_then(of)
    };
    run.outcome
        .put("host_wa_fifo", figure(0, &Written::amplification));
    run.outcome
        .put("host_wa_reinsert", figure(1, &Written::amplification));
    run.outcome
        .put("page_fill", figure(0, &|written| Ok(written.page_fill)));
    let per_day = figure(2, &|written| Ok(written.per_day()));
    let allowed = Ok(budget as f64 * 86_400.0);
    run.outcome.setting("budget", option);
    run.outcome
        .put("bytes_per_day_over_budget", ratio(&per_day, &allowed));
    run.outcome.put("bytes_per_day_under_budget", per_day);
    run.outcome.put(
        "bytes_per_day_without_budget",
        figure(0, &|written| Ok(written.per_day())),
    );
    Ok(())
}

/// Writes under a budget, after the burst that it allows was used up.
fn under_budget(run: &mut Run<'_>, spec: &Spec) -> Result<Written> {
    run.next("under a budget");
    let server = run.start(spec)?;
    run.fill(&server, &items(run))?;
    let start = Instant::now();
    while server.stat("flash_drops_budget")? == 0.0 {
        ensure!(start.elapsed() < LONGEST, "the budget was never used up");
        stretch(run, &server, Duration::from_secs(1))?;
    }
    server.reset_stats()?;
    let mut series = Series::new("budget", "50/50 GET/SET, 16 under way");
    let window = stretch(run, &server, Duration::from_secs(run.scaled(8, 60)))?;
    let stats = window.stats.1.clone();
    let get = |name: &str| stats.get(name).copied().unwrap_or(f64::NAN);
    let written = Written {
        device: window
            .io
            .map_or(get("flash_written_bytes"), |io| io.written as f64),
        by_server: get("flash_written_bytes"),
        admitted: get("flash_admitted_bytes"),
        page_fill: get("flash_page_fill"),
        reinserted: get("flash_reinserted_bytes"),
        reclaimed: get("flash_reclaimed_regions"),
        seconds: window.step.seconds(),
    };
    series.add(Ok(window));
    run.rows([&series]);
    Ok(written)
}

/// Hits for bytes on the real traces.
fn traces(run: &mut Run<'_>) {
    let longest = run.scaled(200_000, usize::MAX);
    run.outcome
        .setting("traces", run.bench.options.traces.display().to_string());
    run.outcome.setting(
        "replay_requests_at_most",
        json!((longest < usize::MAX).then_some(longest)),
    );
    run.outcome.setting(
        "replay_shares_of_dram_and_flash",
        json!([SHARES.0, SHARES.1]),
    );
    run.outcome.setting("replay_largest_value", LARGEST_VALUE);
    for (name, file) in TRACES {
        run.next(&format!("replaying {name}"));
        let trace = requests::from_trace(&run.bench.options.traces.join("kv").join(file)).and_then(
            |mut trace| {
                trace.objects.truncate(longest);
                replayed(run, name, &trace)
            },
        );
        if let Err(error) = trace {
            run.outcome
                .miss(format!("trace.{name}"), format!("{error:#}"));
        }
    }
}

fn replayed(run: &mut Run<'_>, name: &str, trace: &Requests) -> Result<()> {
    let bytes = footprint(trace);
    let memory = ((bytes as f64 * SHARES.0) as u64).max(LEAST.0);
    let flash = ((bytes as f64 * SHARES.1) as u64).max(LEAST.1);
    let title = format!(
        "{name}: {} requests, {:.0} MB of objects, {:.0} MB of DRAM, {:.0} MB of flash",
        trace.objects.len(),
        bytes as f64 / 1e6,
        memory as f64 / 1e6,
        flash as f64 / 1e6
    );
    let mut table = Table::titled(title);
    for rules in RULES {
        let counts =
            Replay::new(memory as usize, flash, rules, run.bench.options.seed)?.run(trace)?;
        let Counts {
            requests,
            hits,
            flash_hits,
            written,
        } = counts;
        let percent = 100.0 * hits as f64 / requests as f64;
        let megabytes = written as f64 / 1e6;
        let hits_a_megabyte = if written == 0 {
            "-".to_owned()
        } else {
            format!("{:.0}", hits as f64 / megabytes)
        };
        table.add([
            ("admission", rules.name.to_owned()),
            ("hits %", format!("{percent:.2}")),
            (
                "of them flash %",
                format!("{:.1}", 100.0 * flash_hits as f64 / hits.max(1) as f64),
            ),
            ("written MB", format!("{megabytes:.1}")),
            ("hits a MB written", hits_a_megabyte),
        ]);
        run.outcome
            .bar(format!("trace.{name}.{}.hit_percent", rules.name), percent);
        run.outcome.bar(
            format!("trace.{name}.{}.written_megabytes", rules.name),
            megabytes,
        );
        run.outcome.put(
            format!(
                "trace.{name}.{}.hit_percent_per_written_megabyte",
                rules.name
            ),
            if written == 0 {
                Err("nothing was written".to_owned())
            } else {
                Ok(percent / megabytes)
            },
        );
    }
    run.outcome.tables.push(table);
    Ok(())
}

/// Bytes of the objects that a trace asks for, as flash stores them.
fn footprint(trace: &Requests) -> u64 {
    let sizes = replay::Sizes::new(trace);
    let mut seen = vec![false; trace.footprint_objects()];
    let mut bytes = 0;
    for &object in &trace.objects {
        if !std::mem::replace(&mut seen[object as usize], true) {
            let key = replay::key_of(object).len();
            bytes += Footprint::record_bytes(key, sizes.of(object) as u32);
        }
    }
    bytes
}
