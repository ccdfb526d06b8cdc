// SPDX-License-Identifier: Apache-2.0
//! The text of `/metrics`: Prometheus' exposition format 0.0.4.
//!
//! Names follow Prometheus' rules (units of seconds and bytes, counters end in `_total`).
//! `docs/cache/metrics.md` explains each; a test compares that page with this text, both ways.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use senko_cache::{CacheStats, DeviceState};
use senko_io::{DiskCount, Op, PAGE_SIZE};

use super::history::{History, Written};
use super::sums::Sums;
use super::text::Text;
use crate::commands::{PURPOSES, cpu_seconds};
use crate::counters::{self, Numbers};
use crate::latency::SERIES;
use crate::server::report::StartReport;
use crate::settings::Budget;
use crate::shared::{Shared, ThreadStats};

const YEAR: f64 = 365.25 * 86_400.0;
/// Operations of devices that are timed.
const OPS: [(Op, &str); 4] = [
    (Op::Read, "read"),
    (Op::Write, "write"),
    (Op::Flush, "flush"),
    (Op::Discard, "discard"),
];

/// The pace of writes, compared with the write budget and the devices' ratings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Wear {
    pub day: Written,
    /// Bytes written, divided by the bytes that the budget allows in the same time.
    pub budget_used: Option<f64>,
    /// Years until the rated writes are used up, at the pace of the last day.
    pub years: Option<f64>,
}

impl Wear {
    pub(super) fn of(day: Written, budget: Option<Budget>, rated: Option<u64>) -> Wear {
        let pace = day.bytes as f64 / day.seconds;
        let known = day.seconds > 0.0;
        Wear {
            day,
            budget_used: budget.filter(|_| known).map(|budget| {
                let allowed = budget.bytes_per_second as f64 * day.seconds + budget.burst as f64;
                day.bytes as f64 / allowed.max(1.0)
            }),
            years: rated
                .filter(|_| known && day.bytes > 0)
                .map(|bytes| bytes as f64 / pace / YEAR),
        }
    }
}

/// One number of a device's counts.
type Count = fn(DiskCount) -> u64;

pub(super) fn text(shared: &Shared, report: &StartReport, history: &History) -> String {
    let sums = Sums::of(shared);
    let mut text = Text(String::with_capacity(64 << 10));
    server(&mut text, shared, report);
    let numbers = Numbers {
        shared,
        stats: &sums.stats,
        cache: &sums.cache,
    };
    for counter in counters::ALL.into_iter().flatten() {
        if let Some((name, help)) = counter.metric {
            text.counter(name, help, (counter.of)(&numbers));
        }
    }
    commands(&mut text, &sums.stats);
    tiers(&mut text, &sums);
    losses(&mut text, &sums.cache);
    devices(&mut text, shared, &sums);
    wear(&mut text, shared, history, &sums);
    durations(&mut text, shared, &sums);
    ciphers(&mut text, shared, &sums.stats);
    watchers(&mut text, shared);
    filling(&mut text, shared);
    text.0
}

/// Families of metrics, two lines each: their kind, name and label, what they are, and their value.
macro_rules! families {
    ($text:ident; $($kind:ident $name:literal $([$label:literal])?: $help:literal = $value:expr;)+) => {
        $($text.$kind($name, $($label,)? $help, $value);)+
    };
}

fn filling(text: &mut Text, shared: &Shared) {
    let progress = shared.fill.progress();
    families! { text;
        gauge "senko_filling": "1 while a fill from another server runs."
            = u8::from(shared.fill.number() != 0);
        gauge "senko_fill_items": "Items that the last fill has stored." = progress.items;
        gauge "senko_fill_kept":
            "Items that the last fill has left out, as they are here or were changed here."
            = progress.kept;
    }
}

fn watchers(text: &mut Text, shared: &Shared) {
    let counts = shared.watchers.counts();
    families! { text;
        gauge "senko_watchers": "Connections that watch." = counts.watchers;
        counter "senko_watcher_lines_total": "Lines that were made for watchers." = counts.made;
        counter "senko_watcher_lines_dropped_total":
            "Lines that were dropped because a watcher did not read, once a watcher."
            = counts.skipped;
        counter "senko_watcher_events_lost_total": "Events of which no line could be made."
            = counts.lost;
        counter "senko_watcher_sent_bytes_total":
            "Bytes of lines that were given to watchers' connections." = counts.sent;
    }
}

/// Only with TLS.
fn ciphers(text: &mut Text, shared: &Shared, stats: &ThreadStats) {
    let Some(tls) = &shared.tls else { return };
    families! { text;
        gauge "senko_tls_certificate_expiry_seconds":
            "Unix time at which the first certificate of the chain ends." = tls.expires();
        gauge "senko_tls_certificate_refresh_seconds":
            "Unix time of the last reading of the certificate." = tls.refreshed();
        counter "senko_tls_handshakes_total": "TLS handshakes that succeeded."
            = stats.tls_handshakes;
        counter "senko_tls_sessions_total": "Of these, handshakes that resumed no session."
            = stats.ssl_new_sessions;
        counters "senko_tls_errors_total" ["phase"]:
            "Connections closed because of a TLS error, in the handshake or after it."
            = &[("handshake", stats.ssl_handshake_errors), ("open", stats.ssl_proto_errors)];
    }
}

fn server(text: &mut Text, shared: &Shared, report: &StartReport) {
    text.family(
        "senko_info",
        "gauge",
        "Always 1; the version and the I/O backend are labels.",
    );
    let version = shared.version();
    let labels = [("version", version.as_str()), ("backend", report.backend)];
    text.sample("senko_info", &labels, 1);
    let (user, system) = cpu_seconds();
    families! { text;
        gauge "senko_start_time_seconds": "Unix time of the start." = shared.started;
        counters "senko_cpu_seconds_total" ["mode"]: "Processor time of the process."
            = &[("user", user), ("system", system)];
        gauge "senko_threads": "Worker threads." = shared.deal.workers();
        gauge "senko_memory_limit_bytes": "Cap on all memory, as given." = shared.settings.memory;
    }
    if let Some(warm) = &report.warm {
        families! { text;
            gauges "senko_start_items" ["tier"]: "Items that the last start restored."
                = &[("dram", warm.dram_items), ("flash", warm.flash_items)];
            gauge "senko_start_damaged":
                "Parts of saved files that the last start found damaged." = warm.damaged;
            gauge "senko_start_lost":
                "Saved items of DRAM that the last start could not read, with no copy on flash."
                = warm.lost;
        }
    }
    let counts = &shared.conn_counts;
    families! { text;
        gauge "senko_connections": "Connections open now." = counts.current.load(Relaxed);
        gauge "senko_connections_limit": "Most connections." = shared.settings.max_connections;
        counter "senko_connections_total": "Connections accepted." = counts.total.load(Relaxed);
        counter "senko_connections_rejected_total": "Connections turned away at the limit."
            = counts.rejected.load(Relaxed);
        gauge "senko_connections_accepting": "1 while connections are accepted."
            = counts.accepting.load(Relaxed);
        counter "senko_listen_disabled_total": "Times that accepting stopped at the limit."
            = counts.listen_disabled.load(Relaxed);
        counter "senko_listen_disabled_seconds_total": "Time for which accepting was stopped."
            = counts.listen_disabled_us.load(Relaxed) as f64 / 1e6;
    }
}

fn commands(text: &mut Text, stats: &ThreadStats) {
    let name = "senko_commands_total";
    text.family(name, "counter", "Commands on keys, by result.");
    for (command, result, value) in [
        ("get", "hit", stats.get_hits),
        ("get", "miss", stats.get_misses),
        ("touch", "hit", stats.touch_hits),
        ("touch", "miss", stats.touch_misses),
        ("delete", "hit", stats.delete_hits),
        ("delete", "miss", stats.delete_misses),
        ("incr", "hit", stats.incr_hits),
        ("incr", "miss", stats.incr_misses),
        ("decr", "hit", stats.decr_hits),
        ("decr", "miss", stats.decr_misses),
        ("cas", "hit", stats.cas_hits),
        ("cas", "miss", stats.cas_misses),
        ("cas", "badval", stats.cas_badval),
    ] {
        text.sample(name, &[("command", command), ("result", result)], value);
    }
}

fn tiers(text: &mut Text, sums: &Sums) {
    let cache = &sums.cache;
    let both = |dram, flash| [("dram", dram), ("flash", flash)];
    let gets = |tier: &str| {
        let of = SERIES.iter().position(|series| *series == ("get", tier));
        of.map_or(0, |at| sums.times[at].count())
    };
    families! { text;
        gauges "senko_items" ["tier"]: "Items held now."
            = &both(cache.dram_items, cache.flash_items);
        gauges "senko_used_bytes" ["tier"]:
            "Bytes in use: of items in DRAM; written and not reclaimed on flash."
            = &both(cache.dram_bytes, cache.flash_bytes);
        gauges "senko_capacity_bytes" ["tier"]: "Bytes that a tier has for items."
            = &both(cache.dram_limit, cache.flash_capacity);
        gauge "senko_index_bytes": "DRAM that the index takes." = cache.index_bytes;
        gauge "senko_flash_items_sorted":
            "Of the items on flash, small ones that take about 4 bytes of the index each."
            = cache.sorted_now;
        gauge "senko_dram_age_seconds": "Seconds since the oldest item in DRAM was used."
            = sums.dram_age;
        counters "senko_gets_total" ["tier"]:
            "Gets answered without a wait for a device (dram: hits, none: misses) and after one (flash)."
            = &["dram", "flash", "none"].map(|tier| (tier, gets(tier)));
    }
}

fn losses(text: &mut Text, cache: &CacheStats) {
    families! { text;
        counters "senko_flash_drops_total" ["cause"]:
            "Items lost on their way to flash or on it, by cause."
            = &[
                ("budget", cache.drops_budget),
                ("rule", cache.drops_rule),
                ("busy", cache.drops_busy),
                ("size", cache.drops_size),
                ("error", cache.drops_error),
                ("index", cache.drops_index),
                ("reclaim", cache.reclaim_drops),
                ("tag", cache.tag_drops),
            ];
        counters "senko_flash_misses_total" ["cause"]:
            "Requests for items on flash that were answered as misses, by cause."
            = &[
                ("out", cache.flash_misses_out),
                ("timeout", cache.flash_read_timeouts),
                ("checksum", cache.flash_checksum_errors),
                ("error", cache.flash_read_errors),
            ];
    }
}

fn devices(text: &mut Text, shared: &Shared, sums: &Sums) {
    let name = "senko_device_state";
    text.family(
        name,
        "gauge",
        "What a flash device is used for: 0 all, 1 reads only because writes fail, 2 nothing.",
    );
    let states = shared.device_states();
    let paths = || {
        shared
            .settings
            .flash
            .iter()
            .map(|f| f.path.to_string_lossy())
    };
    for (path, state) in paths().zip(&states) {
        let value = match state {
            DeviceState::Up => 0,
            DeviceState::ReadOnly => 1,
            DeviceState::Out => 2,
        };
        text.sample(name, &[("device", &path)], value);
    }
    let counts: [(&str, &str, Count); 3] = [
        ("operations", "Operations submitted.", |c| c.ops),
        ("bytes", "Bytes of operations submitted.", |c| {
            c.pages * PAGE_SIZE as u64
        }),
        ("errors", "Operations that failed.", |c| c.errors),
    ];
    for (what, help, count) in counts {
        let name = &format!("senko_device_{what}_total");
        text.family(name, "counter", help);
        for (op, word) in OPS {
            for (purpose, why) in PURPOSES {
                let of = sums.disk.get(purpose, op);
                if of.ops > 0 || of.errors > 0 {
                    text.sample(name, &[("op", word), ("purpose", why)], count(of));
                }
            }
        }
    }
    let cache = &sums.cache;
    families! { text;
        counters "senko_device_events_total" ["event"]:
            "Times that a shard's part of a device went out of use, accepted no writes, came back, stalled."
            = &[
                ("outage", cache.device_outages),
                ("write_pause", cache.device_write_pauses),
                ("return", cache.device_returns),
                ("pause", cache.device_pauses),
            ];
        counter "senko_device_pause_seconds_total": "Time for which parts of devices stalled."
            = cache.device_pause_ms as f64 / 1e3;
    }
}

fn wear(text: &mut Text, shared: &Shared, history: &History, sums: &Sums) {
    let written = sums.written();
    let settings = &shared.settings;
    let budget = shared.tuning.now().admission.budget;
    let day = history.last_day(Instant::now(), written);
    let wear = Wear::of(day, budget, settings.rated_writes);
    families! { text;
        counter "senko_flash_written_bytes_total":
            "Bytes written to the flash devices since the start." = written;
        gauge "senko_flash_written_last_day_bytes":
            "Bytes written to the flash devices in the last day, or since the start."
            = wear.day.bytes;
        known "senko_flash_write_budget_bytes_per_second":
            "Bytes a second that may be written to flash." = budget.map(|b| b.bytes_per_second);
        known "senko_flash_write_budget_used_ratio":
            "Bytes written in the last day over what the budget and its burst allow."
            = wear.budget_used;
        known "senko_flash_rated_writes_bytes":
            "Bytes that the flash devices are rated to take, as given." = settings.rated_writes;
        known "senko_flash_projected_life_years":
            "Years until the rated writes are used up, counted from new, at the last day's pace."
            = wear.years;
    }
}

fn durations(text: &mut Text, shared: &Shared, sums: &Sums) {
    let name = "senko_request_duration_seconds";
    text.family(
        name,
        "histogram",
        "Time from the round that took a request to its answer, by where the answer came from.",
    );
    for ((command, tier), times) in SERIES.iter().zip(&sums.times) {
        text.histogram(name, [("command", command), ("tier", tier)], times);
    }
    let name = "senko_device_duration_seconds";
    text.family(
        name,
        "histogram",
        "Time from the submission of a device operation until its end was seen.",
    );
    for (spec, times) in shared.settings.flash.iter().zip(&sums.devices) {
        let path = spec.path.to_string_lossy();
        for (op, word) in OPS {
            let times = times.get(op);
            // Most devices are never sent a discard.
            if matches!(op, Op::Read | Op::Write) || times.count() > 0 {
                text.histogram(name, [("device", &path), ("op", word)], times);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text(String::new());
        text.sample("a", &[("device", "x\"\\\ny")], 1.5);
        assert_eq!(text.0, "a{device=\"x\\\"\\\\\\ny\"} 1.5\n");
    }

    #[test]
    fn a_life_is_projected_from_the_last_day() {
        let day = Written {
            bytes: 1_000_000_000,
            seconds: 1000.0,
        };
        let budget = |bytes_per_second, burst| {
            Some(Budget {
                bytes_per_second,
                burst,
            })
        };
        let wear = Wear::of(
            day,
            budget(1_000_000, 1_000_000_000),
            Some(31_557_600_000_000),
        );
        assert!((wear.budget_used.unwrap() - 0.5).abs() < 1e-9);
        assert!((wear.years.unwrap() - 1.0).abs() < 1e-9);
        // Without writes there is no projection.
        let none = Wear::of(Written::default(), budget(1, 1), Some(1));
        assert_eq!((none.budget_used, none.years), (None, None));
    }
}
