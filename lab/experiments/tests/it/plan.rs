// SPDX-License-Identifier: Apache-2.0
//! The experiment on the plans' hit ratios.

use senko_lab::{Options, run};

use crate::process::quick;

/// Without traces a quick run still compares the curves on generated keys, and reports that traces
/// are missing and which figures they would have given.
#[test]
fn the_experiment_runs_without_traces() {
    let report = run("plan-accuracy", &quick(), &()).unwrap();
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
        traces: folder.clone(),
        ..quick()
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
