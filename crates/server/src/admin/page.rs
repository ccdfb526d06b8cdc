// SPDX-License-Identifier: Apache-2.0
//! The page for operators at `/`. It is one document without scripts, which loads no other
//! resources and reloads itself every five seconds. All text in it that came from outside is
//! escaped.
//!
//! Rates and latencies are those of the last minute, so the page shows the present, and lines show
//! the last ten minutes and the last day; `/metrics` has the totals.

use std::fmt::{Display, Write as _};
use std::time::Instant;

use senko_cache::DeviceState;
use senko_io::{Op, counted};

use super::chart::{Chart, Series};
use super::history::{History, Point};
use super::metrics::Wear;
use super::sums::Sums;
use super::{Phase, Started};
use crate::protocol::{push_key, push_uri};
use crate::watch::MOST_WATCHERS;

/// The style: light or dark like the reader's system, one column on a phone.
const STYLE: &str = include_str!("page.css");

/// A document under construction.
struct Page(String);

/// Text from outside, as HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            char if char.is_control() => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}

/// Bytes in readable form.
fn size(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    let digits = usize::from(unit != "B" && value < 100.0);
    format!("{value:.digits$} {unit}")
}

/// Seconds of a latency in readable form.
fn latency(seconds: Option<f64>) -> String {
    match seconds {
        None => "–".to_owned(),
        Some(s) if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        Some(s) if s < 1.0 => format!("{:.1} ms", s * 1e3),
        Some(s) => format!("{s:.1} s"),
    }
}

/// A duration in readable form.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        part / whole * 100.0
    } else {
        0.0
    }
}

impl Page {
    fn section(&mut self, title: &str) {
        let _ = write!(self.0, "</section><section><h2>{title}</h2>");
    }

    fn bar(&mut self, parts: &[(&str, f64)]) {
        self.0.push_str("<div class=bar>");
        for (class, share) in parts {
            let _ = write!(self.0, "<i class={class} style=\"width:{share:.2}%\"></i>");
        }
        self.0.push_str("</div>");
    }

    fn table(&mut self, head: &[&str]) {
        self.0.push_str("<table><tr>");
        for text in head {
            let _ = write!(self.0, "<th>{text}</th>");
        }
        self.0.push_str("</tr>");
    }

    fn row(&mut self, cells: &[&dyn Display]) {
        self.0.push_str("<tr>");
        for cell in cells {
            let _ = write!(self.0, "<td>{}</td>", escaped(&cell.to_string()));
        }
        self.0.push_str("</tr>");
    }

    fn end(&mut self) {
        self.0.push_str("</table>");
    }

    fn line(&mut self, text: &str) {
        let _ = write!(self.0, "<p>{}</p>", escaped(text));
    }
}

pub(super) fn html(started: &Started, phase: Phase, history: &History) -> String {
    let sums = Sums::of(&started.shared);
    let (recent, seconds) = history.recent(Instant::now(), &sums);
    let shared = &started.shared;
    let uptime = f64::from(((shared.clock.now_ms() / 1000) as u32).saturating_sub(shared.started));
    let mut page = Page(String::with_capacity(16 << 10));
    let _ = write!(
        page.0,
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=refresh content=5><meta name=color-scheme content=\"light dark\"><title>Senko: {0}</title>\
         <style>{STYLE}</style><main><section class=top><h1>Senko <span class=\"state {0}\">{0}</span></h1>",
        phase.name()
    );
    page.line(&format!(
        "{} on {}, up for {}; numbers of the last {}",
        shared.version(),
        started.report.backend,
        span(uptime),
        span(seconds)
    ));
    hits(&mut page, &recent, seconds);
    latencies(&mut page, &recent);
    tiers(&mut page, &sums, history);
    wear(&mut page, started, history, &sums);
    large(&mut page, &sums, &recent);
    drops(&mut page, &sums, &recent);
    lines(&mut page, started, history, &sums);
    devices(&mut page, started, &recent);
    hot(&mut page, started);
    connections(&mut page, started);
    certificate(&mut page, started);
    start(&mut page, started);
    page.0.push_str("</section></main></html>");
    page.0
}

fn hits(page: &mut Page, recent: &Sums, seconds: f64) {
    page.section("Gets");
    let count = |tier| recent.times_of("get", tier).count() as f64;
    let (dram, flash, none) = (count("dram"), count("flash"), count("none"));
    let all = dram + flash + none;
    page.bar(&[
        ("dram", percent(dram, all)),
        ("flash", percent(flash, all)),
        ("none", percent(none, all)),
    ]);
    page.table(&["from", "share", "a second"]);
    for (class, name, part) in [
        ("dram", "DRAM", dram),
        ("flash", "flash", flash),
        ("none", "nowhere: misses", none),
    ] {
        let _ = write!(
            page.0,
            "<tr><td><i class=\"key {class}\"></i>{name}</td><td>{:.1} %</td><td>{:.0}</td></tr>",
            percent(part, all),
            part / seconds.max(1e-9)
        );
    }
    page.end();
    page.line(&format!(
        "{:.0} sets a second",
        recent.stats.cmd_set as f64 / seconds.max(1e-9)
    ));
}

fn latencies(page: &mut Page, recent: &Sums) {
    page.section("Latency in the server");
    page.table(&["", "p50", "p99", "p99.9"]);
    for (name, command, tier) in [
        ("get, DRAM", "get", "dram"),
        ("get, flash", "get", "flash"),
        ("get, miss", "get", "none"),
        ("set", "set", "dram"),
    ] {
        let times = recent.times_of(command, tier);
        let at = |share| latency(times.quantile(share));
        page.row(&[&name, &at(0.5), &at(0.99), &at(0.999)]);
    }
    page.end();
}

fn tiers(page: &mut Page, sums: &Sums, history: &History) {
    page.section("Tiers");
    let cache = &sums.cache;
    let full = |used: u64, of: u64| format!("{:.0} %", percent(used as f64, of as f64));
    let day = history.last_day(Instant::now(), sums.written());
    // How long the rated writes of flash last at the pace of the last day.
    let flash_age = match day.bytes {
        0 => "–".to_owned(),
        bytes => span(cache.flash_bytes as f64 / (bytes as f64 / day.seconds)),
    };
    let mut rows = vec![
        [
            "items".to_owned(),
            cache.dram_items.to_string(),
            cache.flash_items.to_string(),
        ],
        [
            "sorted".to_owned(),
            "–".to_owned(),
            cache.sorted_now.to_string(),
        ],
        [
            "used".to_owned(),
            size(cache.dram_bytes),
            size(cache.flash_bytes),
        ],
        [
            "of".to_owned(),
            size(cache.dram_limit),
            size(cache.flash_capacity),
        ],
        [
            "full".to_owned(),
            full(cache.dram_bytes, cache.dram_limit),
            full(cache.flash_bytes, cache.flash_capacity),
        ],
        [
            "oldest".to_owned(),
            span(f64::from(sums.dram_age)),
            flash_age,
        ],
    ];
    let two = cache.flash_capacity > 0;
    page.table(if two {
        &["", "DRAM", "flash"]
    } else {
        &["", "DRAM"]
    });
    for [name, dram, flash] in rows.drain(..) {
        match two {
            true => page.row(&[&name, &dram, &flash]),
            false => page.row(&[&name, &dram]),
        }
    }
    page.end();
    page.line(&format!("The index takes {}.", size(cache.index_bytes)));
}

fn wear(page: &mut Page, started: &Started, history: &History, sums: &Sums) {
    let settings = &started.shared.settings;
    if settings.flash.is_empty() {
        return;
    }
    page.section("Writes to flash");
    let budget = started.shared.tuning.now().admission.budget;
    let day = history.last_day(Instant::now(), sums.written());
    let wear = Wear::of(day, budget, settings.rated_writes);
    let text = format!("{} in the last {}", size(day.bytes), span(day.seconds));
    page.line(&text);
    if let Some(used) = wear.budget_used {
        let share = (used * 100.0).min(100.0);
        page.bar(&[("flash", share), ("rest", 100.0 - share)]);
        let a_day = size(budget.map_or(0, |b| b.bytes_per_second.saturating_mul(86_400)));
        page.line(&format!(
            "{:.0} % of the budget of {a_day} a day",
            used * 100.0
        ));
    } else if budget.is_none() {
        page.line("There is no budget (--flash-write-budget).");
    }
    match wear.years {
        Some(years) => page.line(&format!(
            "At this pace the rated writes last for {years:.1} years, from new."
        )),
        None if settings.rated_writes.is_none() => {
            page.line("The life of the devices is shown with --flash-rated-writes.");
        }
        None => {}
    }
}

/// Values that go straight between flash and clients, once there was one.
fn large(page: &mut Page, sums: &Sums, recent: &Sums) {
    let rows = |s: &Sums| {
        [
            ("stored", s.cache.uploads, s.cache.upload_bytes),
            ("sent", s.stats.streams, s.stats.stream_bytes),
        ]
    };
    let all = rows(sums);
    if all.iter().all(|(_, count, _)| *count == 0) {
        return;
    }
    page.section("Large values on flash");
    page.table(&["", "last minute", "bytes", "since the start", "bytes"]);
    for ((name, count, bytes), (_, now, part)) in all.into_iter().zip(rows(recent)) {
        page.row(&[&name, &now, &size(part), &count, &size(bytes)]);
    }
    page.end();
}

fn drops(page: &mut Page, sums: &Sums, recent: &Sums) {
    page.section("Items lost");
    page.table(&["cause", "last minute", "since the start"]);
    let causes = |c: &senko_cache::CacheStats| {
        [
            ("left DRAM, no place on flash", c.evictions),
            ("write budget", c.drops_budget),
            ("admission rule", c.drops_rule),
            ("device behind", c.drops_busy),
            ("too large for flash", c.drops_size),
            ("no device accepts items", c.drops_error),
            ("index full", c.drops_index),
            ("oldest on flash", c.reclaim_drops),
        ]
    };
    let mut any = false;
    for ((cause, all), (_, now)) in causes(&sums.cache).into_iter().zip(causes(&recent.cache)) {
        if all > 0 {
            any = true;
            page.row(&[&cause, &now, &all]);
        }
    }
    if !any {
        page.row(&[&"none", &0, &0]);
    }
    page.end();
}

fn devices(page: &mut Page, started: &Started, recent: &Sums) {
    let flash = &started.shared.settings.flash;
    if flash.is_empty() {
        return;
    }
    page.section("Devices");
    page.table(&["state", "read p50", "p99", "write p99"]);
    let states = started.shared.device_states();
    for ((spec, state), times) in flash.iter().zip(states).zip(&recent.devices) {
        let (class, text) = match state {
            DeviceState::Up => ("serving", "in use"),
            DeviceState::ReadOnly => ("draining", "accepts no writes"),
            DeviceState::Out => ("out", "out of use"),
        };
        let read = |share| latency(times.get(Op::Read).quantile(share));
        let _ = write!(
            page.0,
            "<tr><td colspan=4>{}</td></tr><tr><td><span class=\"state {class}\">{text}</span></td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&spec.path.to_string_lossy()),
            read(0.5),
            read(0.99),
            latency(times.get(Op::Write).quantile(0.99))
        );
    }
    page.end();
}

/// The last ten minutes and the last day as lines.
fn lines(page: &mut Page, started: &Started, history: &History, sums: &Sums) {
    let settings = &started.shared.settings;
    let flash = !settings.flash.is_empty();
    let from = [
        Series::new("dram", "DRAM", |p| Some(p.gets[0])),
        Series::new("flash", "flash", |p| Some(p.gets[1])),
        Series::new("none", "misses", |p| Some(p.gets[2])),
    ];
    let budget = started.shared.tuning.now().budget();
    let limit = sums.cache.dram_limit;
    let hits = [Series::new("good", "hits", Point::hits)];
    let times = [
        Series::new("dram", "p50", |p| p.p50),
        Series::new("flash", "p99", |p| p.p99),
    ];
    let written = [Series::new("flash", "written", |p| Some(p.written))];
    let lost = [Series::new("bad", "lost", |p| Some(p.lost))];
    let used = [Series::new("dram", "used", |p| Some(p.dram))];
    let mut charts = vec![
        Chart::new("Gets a second", &from, |n| format!("{n:.0}")),
        Chart {
            top: Some(1.0),
            ..Chart::new("Hit ratio", &hits, |share| {
                format!("{:.1} %", share * 100.0)
            })
        },
        Chart::new("Latency of gets", &times, |seconds| latency(Some(seconds))),
    ];
    if flash {
        charts.push(Chart {
            bound: (budget > 0).then_some(("budget", budget as f64)),
            ..Chart::new("Written to flash", &written, |bytes| {
                format!("{}/s", size(bytes as u64))
            })
        });
    }
    charts.push(Chart::new("Items lost a second", &lost, |n| {
        format!("{n:.1}")
    }));
    charts.push(Chart {
        bound: Some(("of", limit as f64)),
        ..Chart::new("Memory for items", &used, |bytes| size(bytes as u64))
    });
    let now = Instant::now();
    for (title, line) in ["The last ten minutes", "The last day"]
        .into_iter()
        .zip(history.lines())
    {
        let _ = write!(page.0, "</section><section class=top><h2>{title}</h2>");
        if line.points(now).next().is_none() {
            let step = span(line.step().as_secs_f64());
            page.line(&format!("The first {step} are not over yet."));
            continue;
        }
        page.0.push_str("<div class=charts>");
        for chart in &charts {
            chart.draw(line, now, &mut page.0);
        }
        page.0.push_str("</div>");
    }
}

/// A key or a prefix. Bytes that are no text are encoded, so that different keys look different.
fn shown(key: &[u8]) -> String {
    let mut bytes = Vec::new();
    match std::str::from_utf8(key) {
        Ok(_) => push_key(&mut bytes, key),
        Err(_) => push_uri(&mut bytes, key),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Hot keys and prefixes, if they are counted.
fn hot(page: &mut Page, started: &Started) {
    let shared = &started.shared;
    if shared.settings.hot_keys.is_some() {
        page.section("Hot keys");
        page.table(&["key", "lookups"]);
        for (key, lookups) in shared.hottest().iter().take(10) {
            page.row(&[&shown(key), lookups]);
        }
        page.end();
    }
    if shared.prefixes.is_on() {
        page.section("Prefixes");
        page.table(&["prefix", "gets", "hits", "flash", "sets"]);
        for (name, p) in shared.prefixes.top(10) {
            page.row(&[&shown(&name), &p.get, &p.hit, &p.flash, &p.set]);
        }
        page.end();
    }
}

fn connections(page: &mut Page, started: &Started) {
    use std::sync::atomic::Ordering::Relaxed;
    page.section("Connections");
    let counts = &started.shared.conn_counts;
    page.line(&format!(
        "{} open of {}; {} turned away since the start",
        counts.current.load(Relaxed),
        started.shared.settings.max_connections,
        counts.rejected.load(Relaxed)
    ));
    let watched = started.shared.watchers.counts();
    if watched.watchers > 0 || watched.made > 0 {
        page.line(&format!(
            "{} of {MOST_WATCHERS} watchers; {} made since the start, {} dropped",
            watched.watchers,
            counted(watched.made, "line"),
            watched.skipped
        ));
    }
}

fn certificate(page: &mut Page, started: &Started) {
    let Some(tls) = &started.shared.tls else {
        return;
    };
    page.section("Certificate");
    let now = (started.shared.clock.now_ms() / 1000) as i64;
    let _ = write!(page.0, "<p>{}</p>", validity(tls.expires() - now));
    let since = now - i64::from(tls.refreshed());
    page.line(&format!("It was read {} ago.", span(since.max(0) as f64)));
}

/// How long a certificate is valid, as text with its colour.
fn validity(seconds: i64) -> String {
    const SOON: i64 = 14 * 86_400;
    let (class, text) = match seconds {
        ..=0 => ("out", "has ended".to_owned()),
        1..=SOON => ("draining", format!("ends in {}", span(seconds as f64))),
        _ => ("serving", format!("ends in {}", span(seconds as f64))),
    };
    format!("<span class=\"state {class}\">{text}</span>")
}

fn start(page: &mut Page, started: &Started) {
    page.section("The last start");
    let text = match &started.report.warm {
        None => "cold: nothing is kept without --data-dir".to_owned(),
        Some(warm) => match &warm.why_empty {
            Some(why) if warm.flash_items + warm.dram_items == 0 => format!("cold: {why}"),
            Some(why) => format!(
                "partly warm: {} on flash and {} in DRAM; {why}",
                counted(warm.flash_items, "item"),
                warm.dram_items
            ),
            None if warm.flash_items + warm.dram_items == 0 => {
                "cold: the data directory was empty".to_owned()
            }
            None => format!(
                "warm: {} on flash and {} in DRAM came back",
                counted(warm.flash_items, "item"),
                warm.dram_items
            ),
        },
    };
    page.line(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_outside_is_text() {
        assert_eq!(
            escaped("<b a=\"x\">&\u{1}"),
            "&lt;b a=&quot;x&quot;&gt;&amp;\u{fffd}"
        );
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            (size(1000).as_str(), size(3 << 29).as_str()),
            ("1000 B", "1.5 GiB")
        );
        assert_eq!(latency(Some(42e-6)), "42 µs");
        assert_eq!(latency(Some(4.25e-3)), "4.2 ms");
        assert_eq!(latency(None), "–");
        assert!(validity(-1).contains("has ended") && validity(86_400).contains("draining"));
        assert!(validity(86_400 * 90).contains("serving\">ends in 90.0 days"));
        assert_eq!(span(90.0), "90 s");
        assert_eq!(span(86_400.0 * 3.0), "3.0 days");
    }
}
