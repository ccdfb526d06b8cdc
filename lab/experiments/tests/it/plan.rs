// SPDX-License-Identifier: Apache-2.0
//! The experiment on the plans' hit ratios, and a shard of the server that is filled as planned.

use senko_cache::Footprint;
use senko_lab::experiments::serve_endurance::replay::{RULES, Replay};
use senko_lab::{Options, Scale, run};
use senko_plan::count::Basis;
use senko_plan::curve::{Curve, FOLLOWED, Policy};
use senko_plan::requests::{Requests, zipf};
use senko_workload::etc;

/// Without traces a quick run still compares the curves on generated keys, and reports that traces
/// are missing and which figures they would have given.
#[test]
fn the_experiment_runs_without_traces() {
    let options = Options {
        scale: Scale::Quick,
        traces: "/nonexistent/traces".into(),
        ..Options::default()
    };
    let report = run("plan-accuracy", &options, &()).unwrap();
    let (bars, missing) = (report.outcome.bars(), report.outcome.missing());
    assert!(bars["hit_ratio_error"] < 0.02, "{}", report.text());
    // Fewer sampled objects give a less exact curve.
    assert!(bars["hit_ratio_error"] < bars["error_followed_5k"]);
    assert!(missing["traces"].contains("--traces"), "{missing:?}");
    assert_eq!(report.outcome.tables[0].rows.len(), 4);
}

/// A file that is not a trace leaves a gap under its name, and the largest error of all is unknown.
#[test]
fn a_trace_that_cannot_be_read_is_a_gap() {
    let folder = std::env::temp_dir().join(format!("senko-plan-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("kv")).unwrap();
    std::fs::write(folder.join("kv/none.trace"), "").unwrap();
    std::fs::write(folder.join("kv/some.trace"), "1\n2\n3\n1\n2\n3\n4\n").unwrap();
    let options = Options {
        scale: Scale::Quick,
        traces: folder.clone(),
        ..Options::default()
    };
    let report = run("plan-accuracy", &options, &()).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let missing = report.outcome.missing();
    assert!(missing.contains_key("trace.none.trace"), "{missing:?}");
    assert!(missing.contains_key("hit_ratio_error"), "{missing:?}");
    let rows = &report.outcome.tables[0].rows;
    assert!(
        rows.iter()
            .any(|row| row[..2] == ["some.trace", "LRU"] && row[2] == "0.0000")
    );
}

/// Look-ups by Zipf's law, of objects with these sizes.
fn sized(objects: u64, requests: usize, size: &dyn Fn(u64) -> u64) -> Requests {
    let objects = zipf(0.8, objects, requests, None, 1).unwrap().objects;
    let all = objects.iter().max().map_or(0, |most| u64::from(*most) + 1);
    Requests::of_lookups(objects, Some((0..all).map(size).collect()))
}

/// A shard of the server with the DRAM and the flash of a plan finds what the plan says.
#[test]
fn a_filled_shard_finds_what_the_plan_says() {
    let rules = *RULES.iter().find(|rules| rules.name == "all").unwrap();
    let etc_size = |n: u64| etc::value_len(n, 0, 60_000) as u64 + 30;
    for (name, requests) in [
        ("1,000 bytes", sized(80_000, 500_000, &|_| 1_000)),
        ("2,100 bytes", sized(30_000, 300_000, &|_| 2_100)),
        ("ETC", sized(250_000, 900_000, &etc_size)),
    ] {
        let (mut taken, mut units) = (Footprint::default(), 0);
        let mut weighed = requests.clone();
        for size in weighed.sizes.as_mut().unwrap() {
            // As a replay names its keys, which are short.
            taken.add(5, *size as u32);
            *size = Footprint::record_bytes(5, *size as u32);
            units += *size;
        }
        let curve = Curve::of_policy(Policy::S3Fifo, &weighed, Basis::Bytes, 0, (FOLLOWED, 1));
        for share in [0.85, 0.95] {
            let planned = share * curve.hit_ratio(u64::MAX);
            let size = curve.size_for(planned).unwrap();
            let pages = size as f64 * taken.flash_bytes() as f64 / units as f64;
            // A log keeps two regions free, of a sixteenth each.
            let replay = Replay::new(4 << 20, (pages * 16.0 / 14.0) as u64, rules, 7).unwrap();
            let counts = replay.run(&requests).unwrap();
            let found = counts.hits as f64 / counts.requests as f64;
            let a_page = taken.flash_bytes() as f64 / units as f64 * requests.all / 1e6;
            let written = counts.written as f64 / 1e6;
            let (once, again) = (
                curve.stored(size) * a_page,
                curve.written_again(size) * a_page,
            );
            println!(
                "{name}: {planned:.3} planned with {:.1} MB of flash, {found:.3} found; {once:.1} \
                 and again {again:.1} MB planned to be written, {written:.1} MB written",
                pages / 1e6
            );
            // What reclaim writes again was left out: a third of all.
            let off = (once + again) / written;
            assert!(
                (0.8..1.6).contains(&off),
                "{name}: {once} + {again} MB, {written} MB"
            );
            assert!(
                (found - planned).abs() < 0.05,
                "{name}: {planned} and {found}"
            );
        }
    }
}
