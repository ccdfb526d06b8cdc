// SPDX-License-Identifier: Apache-2.0
//! The cost of TLS: a GET from DRAM compared with memcached's, and GETs from flash compared with
//! those without TLS.
//!
//! Expected shape: the cipher of 1,000 B is about a microsecond for either server, so senko keeps
//! the lead that it has without TLS. A page from flash takes some microseconds more. With a slow
//! device the device is the limit, with a fast one the cipher.
//! `docs/measurements/serve-tls.md` has the method.

use std::time::Duration;

use anyhow::Result;
use senko_io::PAGE_SIZE;

use crate::rig::certificate::CIPHER;
use crate::rig::series::{Contender, take_turn};
use crate::rig::{self, Bench, Certificate, Items, Load, Series, Spec, Window, over};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress};

const CONNECTIONS: usize = 64;

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-tls",
    paper: Paper::Design,
    source: "design question; memcached -Z; answers ciphered from where they lie",
    text: "a GET over TLS costs at most memcached's processor time, and flash keeps three fifths of its rate under TLS",
    sentences: &[],
    bars: &[
        Bar::less("tls_cpu_over_memcached", 1.0, 0.8),
        Bar::more("flash_tls_over_plain", 0.6, 0.75),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let certificate = Certificate::new(&bench.scratch);
    let title = "With TLS and without, medians of the rounds";
    let mut run = Run::new(bench, progress, outcome, (6, title), certificate);
    let window = Duration::from_secs(bench.scaled(1, 3));
    run.in_rounds(bench.scaled(4, 25), window);
    run.outcome.setting("connections", CONNECTIONS);
    run.outcome.setting("cipher", CIPHER);
    run.part(&["tls_cpu_over_memcached"], dram);
    run.part(&["flash_tls_over_plain"], flash);
    run.finish();
    Ok(())
}

type Run<'a> = rig::Run<'a, Result<Certificate, String>>;

/// The same requests with TLS and without.
fn loads() -> [(&'static str, Load); 2] {
    let plain = Load::gets(CONNECTIONS);
    let tls = Load {
        tls: Some(CIPHER),
        ..plain.clone()
    };
    [("plain", plain), ("TLS", tls)]
}

/// A contender with a second address that has TLS, filled with the items.
fn encrypted(run: &mut Run<'_>, spec: Result<Spec, String>, items: &Items) -> Contender {
    let certificate = run.own.as_ref().map_err(Clone::clone)?;
    let spec = spec?.tls(certificate);
    run.contender(spec, items, None)
}

/// Series of the contenders, without TLS and with it, in turn.
fn in_turns(
    run: &mut Run<'_>,
    contenders: &[(&str, &Contender)],
    place: &str,
    items: &Items,
) -> [Vec<Series>; 2] {
    run.next(&format!("{place}, in turns"));
    let loads = loads();
    let mut all = loads
        .each_ref()
        .map(|(what, _)| Series::of(contenders, &format!("{place}, {what}")));
    for round in 0..run.rounds {
        for ((_, load), series) in loads.iter().zip(&mut all) {
            let load = load.clone().round(round);
            take_turn(run.bench, contenders, items, &load, run.window, series);
        }
    }
    run.rows(all.iter().flatten());
    all
}

fn dram(run: &mut Run<'_>) -> Result<()> {
    let items = Items::fixed(run.scaled(100_000, 1_000_000), 16, 1000);
    let memory = items.keys * 1536 + (64 << 20);
    let senko = run.bench.senko("senko", memory).dram_only();
    let senko = encrypted(run, Ok(senko), &items);
    let memcached = run.bench.memcached("memcached", memory);
    let memcached = encrypted(run, memcached, &items);
    let both = [("senko", &senko), ("memcached", &memcached)];
    let [plain, tls] = in_turns(run, &both, "DRAM", &items);
    for (key, one, other) in [
        ("tls_cpu_over_memcached", &tls[0], &tls[1]),
        ("plain_cpu_over_memcached", &plain[0], &plain[1]),
        ("tls_cpu_over_plain", &tls[0], &plain[0]),
        ("memcached_tls_cpu_over_plain", &tls[1], &plain[1]),
    ] {
        run.outcome.put(key, over(one, other, Window::server_us));
    }
    for (key, series) in [
        ("tls_cpu_us", &tls[0]),
        ("plain_cpu_us", &plain[0]),
        ("memcached_tls_cpu_us", &tls[1]),
        ("memcached_plain_cpu_us", &plain[1]),
    ] {
        run.outcome.put(key, series.figure(Window::server_us));
    }
    Ok(())
}

/// One page an item, nearly all on flash.
fn flash(run: &mut Run<'_>) -> Result<()> {
    let pages: u64 = run.scaled(1 << 16, 1 << 20);
    let bytes = pages * PAGE_SIZE as u64;
    let items = Items::fixed(pages, 16, 3900);
    run.bench.scratch.need(bytes / 2 * 3)?;
    let memory = (bytes / 8).max(64 << 20);
    let spec = run.bench.on_flash("senko-flash", memory, bytes / 2 * 3);
    let senko = encrypted(run, Ok(spec), &items);
    let [plain, tls] = in_turns(run, &[("senko", &senko)], "flash", &items);
    let (plain, tls) = (&plain[0], &tls[0]);
    let rate = Window::flash_hits_per_second;
    run.outcome
        .put("flash_tls_over_plain", over(tls, plain, rate));
    run.outcome.put(
        "flash_tls_cpu_over_plain",
        over(tls, plain, Window::server_us),
    );
    for (key, of) in [
        ("flash_gets_per_s_tls", rate as fn(&Window) -> f64),
        // Near 100 %, the load generator is the limit, not the server.
        ("flash_load_percent_tls", Window::load_percent),
        ("flash_server_percent_tls", Window::server_percent),
    ] {
        run.outcome.put(key, tls.figure(of));
    }
    run.outcome
        .put("flash_gets_per_s_plain", plain.figure(rate));
    Ok(())
}
