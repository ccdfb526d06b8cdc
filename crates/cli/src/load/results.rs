// SPDX-License-Identifier: Apache-2.0
//! The results of `senko load` for machines: JSON lines. [`super::main`] prints them.

use std::path::Path;

use anyhow::{Context, Result};
use senko_io::{Backend, Output};
use senko_load::{Change, FaultKind, Pace, Report, Second, Settings, StepReport, Stretch};
use senko_workload::Histogram;
use serde_json::{Map, Value, json};

use super::LoadArgs;
use crate::existing::Existing;

fn latency_json(latencies: &Histogram) -> Value {
    if latencies.is_empty() {
        return Value::Null;
    }
    let us = |q: f64| latencies.quantile(q) as f64 / 1e3;
    json!({
        "mean": latencies.mean() / 1e3, "p50": us(0.5), "p90": us(0.9), "p99": us(0.99), "p999": us(0.999),
        "p9999": us(0.9999), "max": latencies.max() as f64 / 1e3, "count": latencies.len(),
    })
}

pub fn second_json(second: &Second) -> Value {
    let Stretch {
        counts,
        get,
        set,
        change,
        ..
    } = &second.stretch;
    json!({
        "type": "second", "step": second.step.name(), "second": second.second,
        "requests": counts.requests, "reads": counts.reads, "hits": counts.hits, "sets": counts.sets,
        "failed": counts.failed, "received_bytes": counts.received, "sent_bytes": counts.sent,
        "changes": counts.changes, "changed": counts.changed, "absent": counts.absent,
        "get_us": latency_json(get), "set_us": latency_json(set), "change_us": latency_json(change),
    })
}

fn settings_json(args: &LoadArgs, settings: &Settings, report: &Report) -> Value {
    let (rate, gaps) = match settings.pace {
        Pace::Closed => (None, None),
        Pace::Open { rate, gaps } => (rate, Some(gaps.name())),
    };
    let changes: Map<String, Value> = Change::ALL
        .iter()
        .map(|change| {
            (
                change.name().to_owned(),
                json!(settings.changes.share(*change)),
            )
        })
        .collect();
    let others = 1.0 - settings.changes.total();
    json!({
        "server": settings.target.to_string(), "protocol": settings.wire.name(),
        "connections": settings.connections, "threads": settings.threads, "pipeline": settings.pipeline,
        "multi_get": settings.keys_per_get, "rate": rate, "gaps": gaps,
        "get_ratio": settings.mix.share(senko_workload::Op::Read) * others, "changes": changes, "dist": settings.mix.popularity.to_string(),
        "keys": report.keys, "item_bytes": report.item_bytes,
        "key_size": settings.key_shape.to_string(), "value_size": settings.value_len.to_string(),
        "vary_size": settings.vary_len, "permuted": settings.permuted,
        "verify": settings.verify, "generation": settings.generation, "set_on_miss": settings.set_on_miss,
        "noreply": settings.noreply, "expire": settings.expire, "expect_found": args.expect_found, "max_failed": args.max_failed, "seed": settings.seed,
    })
}

pub fn step_json(
    args: &LoadArgs,
    settings: &Settings,
    report: &Report,
    step: &StepReport,
) -> Value {
    let counts = &step.counts;
    let cpu = |time: senko_load::cpu::CpuTime| {
        json!({
            "user_s": time.user.as_secs_f64(), "system_s": time.system.as_secs_f64(),
            "percent": step.percent(time.total()), "us_per_request": step.us_per_request(time.total()),
        })
    };
    let server_cpu = step.server.map(|server| {
        let mut all = cpu(server.time);
        all["busiest_thread_percent"] = json!(step.percent(server.busiest));
        all
    });
    let faults: Map<String, Value> = FaultKind::ALL
        .iter()
        .map(|kind| (kind.name().to_owned(), json!(step.faults[*kind as usize])))
        .collect();
    let samples: Vec<Value> = report
        .fault_samples
        .iter()
        .map(|f| json!({ "kind": f.kind.name(), "key": f.key, "offset": f.offset, "detail": f.detail }))
        .collect();
    let mut line = json!({
        "type": "step", "step": step.step.name(), "seconds": step.seconds(),
        "requests": counts.requests, "requests_per_second": step.rate(),
        "reads": counts.reads, "hits": counts.hits, "found_ratio": step.found_ratio(), "failed_reads": counts.failed_reads,
        "sets": counts.sets, "stored": counts.stored, "refills": counts.refills, "value_bytes": counts.value_bytes,
        "received_bytes": counts.received, "sent_bytes": counts.sent,
        "failed": counts.failed, "timeouts": counts.timeouts, "reconnects": counts.reconnects, "unsent": counts.unsent,
        "unanswered": counts.unanswered, "verified": step.verifies.then_some(counts.verified), "wrong": step.fault_count(),
        "rate_asked": step.asked.map(|asked| asked.rate), "rate_share": step.asked.map(|asked| asked.share),
        "stopped": report.stopped, "broken": report.broken,
        "get_us": latency_json(&step.get), "set_us": latency_json(&step.set), "own_lateness_us": latency_json(&step.late),
        "load_cpu": cpu(step.own_cpu), "server_cpu": server_cpu,
        "tls": step.suite, "tls_us_per_request": step.suite.as_ref().map(|_| step.us_per_request(std::time::Duration::from_nanos(counts.cipher_ns))),
        "backend": match step.backend { Backend::Uring => "uring", Backend::Posix => "posix" },
        "faults": faults, "fault_samples": samples, "errors": step.errors,
        "first_place": report.places.start, "end_place": report.places.end,
        "settings": settings_json(args, settings, report),
    });
    for (name, sum) in [
        ("changes", counts.changes),
        ("changed", counts.changed),
        ("absent", counts.absent),
    ] {
        line[name] = json!(sum);
    }
    line["change_us"] = latency_json(&step.change);
    line
}

/// Makes the folder of the histograms, before the run that they tell of. Whatever the run has for
/// results, it is not to replace those of another one.
pub fn make_folder(folder: &Path, existing: Existing) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let entries = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    entries
        .filter(|path| path.extension().is_some_and(|end| end == "hgrm"))
        .try_for_each(|path| existing.check(&path, &[]))
}

/// Writes `STEP-WHAT.hgrm` for each step and kind of latency, such as `mix-get.hgrm`.
pub fn write_histograms(folder: &Path, report: &Report) -> Result<()> {
    for step in &report.steps {
        let all = [
            ("get", &step.get),
            ("set", &step.set),
            ("change", &step.change),
            ("lateness", &step.late),
        ];
        for (what, latencies) in all.into_iter().filter(|(_, all)| !all.is_empty()) {
            let path = folder.join(format!("{}-{what}.hgrm", step.step.name()));
            Output::write(&path, &[], latencies.percentiles(1e3).as_bytes())?;
        }
    }
    Ok(())
}
