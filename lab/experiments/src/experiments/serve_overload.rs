// SPDX-License-Identifier: Apache-2.0
//! The waits of other clients while a crowd misbehaves, and the memory cap meanwhile.
//!
//! Expected shape: the p99 of a steady load is at most three times that of a calm server, since
//! each round has a bound for every connection and for handshakes. Resident memory stays below
//! `--memory`. Latencies of each kind are combined over all turns.
//! `docs/measurements/serve-overload.md` has the method and the crowd.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use senko_workload::{Histogram, KeySpace};

use crate::rig::crowd::{Burden, Counts};
use crate::rig::probe::on_core;
use crate::rig::traffic::{self, ZIPF, us};
use crate::rig::{Bench, Certificate, Items, Load, Run, Server, Spec, Window, process, sys};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Reason};

const STEADY: usize = 64;
/// The share of the peak that the steady load asks for.
const SHARE: f64 = 0.3;
const CROWD: usize = 2000;
/// Connections a second that come and go.
const STORM: usize = 500;
/// Open files of this process beyond the crowd's.
const OTHER_FILES: u64 = 1024;

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-overload",
    paper: Paper::Design,
    source: "design question: bounds of rounds, handshakes and unread bytes",
    text: "beside 2,000 clients that misbehave a steady load's p99 is at most three times the calm one, and memory stays in its cap",
    sentences: &[],
    bars: &[
        Bar::less("p99_over_calm", 3.0, 1.5),
        Bar::less("rss_over_cap", 1.05, 1.0),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    sys::open_files(CROWD as u64 + OTHER_FILES)
        .context("the crowd needs more open files than this process may have")?;
    let turns: usize = bench.scaled(3, 10);
    let mut run = Run::new(
        bench,
        progress,
        outcome,
        (4 + 4 * turns as u64, "Windows"),
        (),
    );
    (run.rounds, run.window) = (turns, Duration::from_secs(bench.scaled(3, 20)));
    run.outcome.setting("turns", turns);
    run.outcome.setting("turn_seconds", run.window.as_secs());
    run.outcome.setting("crowd_connections", CROWD);
    run.outcome.setting("storm_per_s", STORM);
    run.outcome.setting("share_of_peak", SHARE);
    run.part(
        &["p99_over_calm", "rss_over_cap", "memcached_p99_over_calm"],
        overload,
    );
    run.finish();
    Ok(())
}

struct Contender {
    server: Server,
    admin: Option<SocketAddr>,
    steady: Load,
    calm: Vec<Window>,
    beside: Vec<Window>,
    crowd: Counts,
}

fn pooled(windows: &[Window]) -> Histogram {
    let mut all = Histogram::new();
    for window in windows {
        all.merge(&window.step.get);
        all.merge(&window.step.set);
    }
    all
}

fn overload(run: &mut Run<'_>) -> Result<()> {
    let memory: u64 = run.scaled(256 << 20, 1 << 30);
    // A fifth more than the memory holds, so that it is full.
    let items = Items::fixed(memory / 1000 * 12 / 10, 16, 1000);
    let certificate = Certificate::new(&run.bench.scratch).map_err(|why| anyhow!(why))?;
    let limit = (2 * CROWD).to_string();
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let admin = free.context("there is no free port")?;
    let senko = run.bench.senko("senko", memory).dram_only().with(&[
        "-c",
        &limit,
        "--admin",
        &admin.to_string(),
    ]);
    let mut senko = loaded(run, senko, Some(admin), &certificate, &items)?;
    // The machine's floor: the same turns on a well-known server. Its memory has no cap, since
    // the memory of its connections is not part of `-m`.
    let memcached = run.bench.memcached("memcached", memory);
    let mut memcached = memcached.and_then(|spec| {
        let spec = spec.with(&["-c", &limit]).capped(None);
        loaded(run, spec, None, &certificate, &items).reason()
    });
    for turn in 0..run.rounds {
        take_turn(run, &mut senko, &items, turn)?;
        if let Ok(contender) = &mut memcached
            && let Err(error) = take_turn(run, contender, &items, turn)
        {
            memcached = Err(format!("{error:#}"));
        }
    }
    figures(run, "", &senko);
    setting(run, "", &senko.crowd);
    match &memcached {
        Ok(contender) => {
            figures(run, "memcached_", contender);
            setting(run, "memcached_", &contender.crowd);
        }
        Err(why) => run.outcome.miss("memcached_p99_over_calm", why.clone()),
    }
    ensure!(
        senko.crowd.stormed > 0 && senko.crowd.opened >= (CROWD * run.rounds) as u64,
        "the crowd was not there: {:?}",
        senko.crowd
    );
    let peak = process::memory(senko.server.pid())?.peak;
    run.outcome.setting("cap_bytes", memory);
    run.outcome.bar("rss_over_cap", peak as f64 / memory as f64);
    Ok(())
}

/// A server that is full, and the load that is a part of its peak.
fn loaded(
    run: &mut Run<'_>,
    spec: Spec,
    admin: Option<SocketAddr>,
    certificate: &Certificate,
    items: &Items,
) -> Result<Contender> {
    let spec = spec.tls(certificate).map_err(|why| anyhow!(why))?;
    let server = run.start(&spec)?;
    let name = server.name.clone();
    run.next(&format!("filling {name}"));
    run.fill(&server, items)?;
    run.next(&format!("the peak of {name}"));
    let closed = Load::gets(STEADY).mixed(0.9).popular(ZIPF);
    let peak = run.measure(&server, items, &closed, run.window / 2)?;
    let rate = (peak.rate() * SHARE).round();
    run.outcome.setting(format!("rate_{name}"), rate);
    run.row(&name, "peak", &[peak]);
    Ok(Contender {
        server,
        admin,
        steady: closed.at_rate(rate),
        calm: Vec::new(),
        beside: Vec::new(),
        crowd: Counts::default(),
    })
}

/// A calm window, and one beside the crowd.
fn take_turn(
    run: &mut Run<'_>,
    contender: &mut Contender,
    items: &Items,
    turn: usize,
) -> Result<()> {
    let load = contender.steady.clone().round(turn);
    let name = contender.server.name.clone();
    run.next(&format!("{name}, calm"));
    let server = &contender.server;
    let calm = run.measure(server, items, &load, run.window)?;
    contender.calm.push(calm);
    run.next(&format!("{name}, beside the crowd"));
    let (window, counts) = beside(run, server, contender.admin, items, &load)?;
    contender.beside.push(window);
    let crowd = &mut contender.crowd;
    crowd.opened += counts.opened;
    crowd.again += counts.again;
    crowd.stormed += counts.stormed;
    crowd.refused += counts.refused;
    Ok(())
}

fn setting(run: &mut Run<'_>, prefix: &str, crowd: &Counts) {
    for (what, count) in [
        ("opened", crowd.opened),
        ("opened_again", crowd.again),
        ("stormed", crowd.stormed),
        ("refused", crowd.refused),
    ] {
        run.outcome.setting(format!("{prefix}crowd_{what}"), count);
    }
}

/// Figures of a contender, with this prefix in their names.
fn figures(run: &mut Run<'_>, prefix: &str, contender: &Contender) {
    let name = contender.server.name.clone();
    run.row(&name, "calm, medians of turns", &contender.calm);
    run.row(
        &name,
        "beside the crowd, medians of turns",
        &contender.beside,
    );
    let (quiet, loud) = (pooled(&contender.calm), pooled(&contender.beside));
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let (quiet, loud) = (us(&quiet, quantile), us(&loud, quantile));
        run.outcome
            .bar(format!("{prefix}{name}_over_calm"), loud / quiet);
        run.outcome.bar(format!("{prefix}{name}_calm_us"), quiet);
        run.outcome.bar(format!("{prefix}{name}_beside_us"), loud);
    }
    for (name, windows) in [("calm", &contender.calm), ("beside", &contender.beside)] {
        let mut late = Histogram::new();
        let mut failed = 0;
        for window in windows {
            late.merge(&window.step.late);
            failed += window.step.counts.failed;
        }
        run.outcome.bar(
            format!("{prefix}load_generator_late_p99_us_{name}"),
            us(&late, 0.99),
        );
        run.outcome
            .bar(format!("{prefix}failed_{name}"), failed as f64);
    }
}

/// A window of the steady load while the crowd is there.
fn beside(
    run: &Run<'_>,
    server: &Server,
    admin: Option<SocketAddr>,
    items: &Items,
    load: &Load,
) -> Result<(Window, Counts)> {
    let mut key = Vec::new();
    KeySpace::new(items.prefix, items.key, items.keys - 1)?.append(items.keys - 1, &mut key);
    let key = String::from_utf8_lossy(&key);
    let burden = Burden::new(server, admin, &key, CROWD, STORM)?;
    let (there, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let core = run.bench.load_core();
    thread::scope(|scope| {
        let crowd = scope.spawn(|| on_core(core, || burden.carry(&there, &over)));
        while !there.load(Ordering::Relaxed) && !crowd.is_finished() {
            thread::sleep(Duration::from_millis(5));
        }
        let window = traffic::measure(run.bench, server, items, load, run.window);
        over.store(true, Ordering::Relaxed);
        let counts = crowd
            .join()
            .map_err(|_| anyhow!("a thread of the experiment panicked"))??;
        Ok((window?, counts))
    })
}
