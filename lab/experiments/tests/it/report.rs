// SPDX-License-Identifier: Apache-2.0
//! Result lines, tables, provenance.

use std::collections::HashSet;

use senko_lab::{Machine, Options, Outcome, Table, experiments, find, run};
use senko_lab::{publish, results};
use serde_json::{Value, json};

use crate::process::quick;

#[test]
fn registry_names_are_unique_and_found() {
    let mut names = HashSet::new();
    for experiment in experiments() {
        let name = experiment.name;
        assert!(names.insert(name), "{name} twice");
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'),
            "{name}"
        );
        assert!(!experiment.text.is_empty() && !experiment.source.is_empty());
        assert_eq!(find(name).unwrap().name, name);
    }
    let error = run("no-such", &Options::default(), &())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no-such") && error.contains("senko-lab list"),
        "{error}"
    );
}

#[test]
fn a_run_without_traces_says_what_is_missing() {
    let report = run("dram-policy", &quick(), &()).unwrap();
    let line = report.result_line();
    assert!(
        !line.contains('\n')
            && line.starts_with(
                "RESULT {\"experiment\":\"dram-policy\",\"scale\":\"quick\",\"bars\":{"
            )
    );
    let result: Value = serde_json::from_str(line.strip_prefix("RESULT ").unwrap()).unwrap();
    assert_eq!(result, report.to_json());
    assert_eq!(result["experiment"], "dram-policy");
    assert_eq!(result["scale"], "quick");
    assert_eq!(result["settings"]["seed"], 1);
    assert!(result["machine"]["cores"].as_u64().unwrap() >= 1);
    assert!(result["device"].is_object());
    assert!(
        result.get("noisy").is_none(),
        "nothing here depends on time"
    );
    let bars = result["bars"].as_object().unwrap();
    let missing = result["missing"].as_object().unwrap();
    for workload in ["oltp", "p3", "cloudphysics", "loop", "sprite"] {
        assert!(
            missing[workload]
                .as_str()
                .unwrap()
                .contains("cannot be opened"),
            "{missing:?}"
        );
        assert!(!bars.keys().any(|key| key.starts_with(workload)));
    }
    assert!(missing.contains_key("published.oltp.1000.lru") && missing.contains_key("mean.lru"));
    assert!(bars.keys().all(|key| !missing.contains_key(key)));
    // The synthetic workloads need no trace.
    assert!(bars["mean.zipf.objects.lru"].as_f64().unwrap() > 10.0);
    let text = report.text();
    assert!(text.contains("missing oltp: "));
    assert!(text.contains("What is missing is a part of this: S3-FIFO"));
}

#[test]
fn outcomes_refuse_inventions_and_repetitions() {
    let mut outcome = Outcome::new();
    outcome.bar("good", 1.5);
    outcome.bar("bad", f64::NAN);
    assert_eq!(outcome.bars().len(), 1);
    assert_eq!(outcome.missing()["bad"], "the measurement gave NaN");
    assert!(std::panic::catch_unwind(move || outcome.bar("good", 2.0)).is_err());
}

#[test]
fn noise_is_a_difference_above_fifteen_percent_either_way() {
    for (before, after, noisy) in [
        (100.0, 114.0, false),
        (100.0, 116.0, true),
        (100.0, 86.0, false),
        (100.0, 84.0, true),
        (100.0, f64::NAN, true),
    ] {
        let mut outcome = Outcome::new();
        assert_eq!(outcome.noisy(), None);
        outcome.probe(before, after);
        assert_eq!(outcome.noisy(), Some(noisy), "{before} {after}");
        outcome.probe(1.0, 1.0);
        assert_eq!(
            outcome.noisy(),
            Some(noisy),
            "a calm probe does not undo a noisy one"
        );
    }
}

#[test]
fn tables_are_aligned_markdown() {
    let mut table = Table::new("Title", &["name", "n"]);
    table.row(vec!["a".to_string(), "10".to_string()]);
    table.row(vec!["longer".to_string(), "1000".to_string()]);
    let expected =
        "**Title**\n\n| name   |    n |\n| ------ | ---: |\n| a      |   10 |\n| longer | 1000 |\n";
    assert_eq!(table.to_markdown(), expected);
}

#[test]
fn the_machine_is_described() {
    let machine = Machine::this();
    assert!(machine.cores.unwrap() >= 1);
    assert!(machine.memory_bytes.unwrap() > 1 << 26);
    assert!(machine.kernel.clone().unwrap().contains('.'));
    assert!(machine.to_string().contains("Linux"));
}

/// An experiment that crashed used to be shown with the figures of the run before it, as if it had
/// measured them now.
#[test]
fn a_run_without_a_record_is_a_gap_and_not_the_run_before_it() {
    let path = std::env::temp_dir().join(format!("senko-gap-{}", std::process::id()));
    let old = json!({
        "experiment": "ftl-table2", "bars": { "page_mib": 126.6 }, "time": 951_782_400,
    });
    results::append(&path, &old).unwrap();
    let from = std::fs::metadata(&path).unwrap().len();
    assert_eq!(results::newest_from(&path, from, "ftl-table2"), None);
    assert_eq!(
        results::newest_from(&path, 0, "ftl-table2"),
        Some(old.clone())
    );
    // The gap is a record, too.
    let gap = results::impossible("ftl-table2", &Options::default(), "it fell over").unwrap();
    results::append(&path, &gap).unwrap();
    assert_eq!(
        results::newest_from(&path, from, "ftl-table2"),
        Some(gap.clone())
    );
    assert_eq!(results::newest_from(&path, from, "dram-policy"), None);
    std::fs::remove_file(&path).unwrap();
    // The report shows the older figures, and says that they are older.
    let told = "measured nothing: it fell over. These are the figures of an older one, 2000-02-29";
    assert!(publish::page(&[old.clone(), gap.clone()]).0.contains(told));
    assert!(!publish::page(&[gap, old]).0.contains("measured nothing"));
}
