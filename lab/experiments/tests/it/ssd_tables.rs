// SPDX-License-Identifier: Apache-2.0
//! The simulator's tables compared with the papers': mapping tables to the digit, the endurance
//! paper's first table if the trace is here.

use senko_lab::{DEFAULT_TRACES, Options, Scale, run};

#[test]
fn mapping_tables_are_the_thesis() {
    let report = run("ftl-table2", &Options::default(), &()).unwrap();
    let bars = report.outcome.bars();
    let bar = |key: &str| format!("{:.2}", bars[key]);
    assert_eq!(bar("page_mib"), "126.61");
    assert_eq!(bar("page_whole_bits_mib"), "130.00");
    assert_eq!(bar("block_mib"), "1.51");
    assert_eq!(bar("block_whole_bits_mib"), "1.56");
}

#[test]
fn endurance_table_is_near_the_paper() {
    let traces = [env!("CARGO_MANIFEST_DIR"), "../..", DEFAULT_TRACES];
    let options = Options {
        traces: traces.iter().collect(),
        ..Options::default()
    };
    let report = run("endurance-table1", &options, &()).unwrap();
    if !options.traces.exists() {
        assert_eq!(report.outcome.missing().len(), 9);
        eprintln!("skipped: no ../shared/traces");
        return;
    }
    let bars = report.outcome.bars();
    assert_eq!(format!("{:.1}", bars["hit_percent"]), "57.8");
    assert!((bars["erase_reduction_percent"] / 66.5 - 1.0).abs() < 0.05);
    assert!((bars["write_speedup"] / 3.0 - 1.0).abs() < 0.05);
    let settings = &report.outcome.settings;
    assert_eq!(settings["log_blocks"], 26);
    assert_eq!(settings["victim"], "lru");
    // The second row has a substitute, which never has the row's own name.
    assert!(bars["msn_fs_hit_percent"] > 0.0 && bars["msn_fs_write_speedup"] > 1.0);
    let missing = report.outcome.missing();
    assert!(missing["msn_storage_cfs_hit_percent"].contains("not here"));
    assert_eq!(missing.len(), 3);
}

/// Chapter 8 is arithmetic, and must be reproduced to the digit.
#[test]
fn ratios_are_the_thesis() {
    let report = run("thesis-ratios", &Options::default(), &()).unwrap();
    let bars = report.outcome.bars();
    assert_eq!(bars["machine_ratio_paper"], 37.5);
    let index = [16, 64, 256, 1024, 4096].map(|size| bars[&format!("index_ratio_{size}_paper")]);
    assert_eq!(index, [12.0, 36.0, 132.0, 516.0, 2052.0]);
    assert!(bars["flat_from_today"] > bars["flat_from_paper"]);
}

/// One drive's figures, and the paper's figures for two and four next to the predictions.
#[test]
fn two_and_four_drives_are_predicted_from_one() {
    let options = Options {
        scale: Scale::Quick,
        ..Options::default()
    };
    let report = run("transfer-predict", &options, &()).unwrap();
    let bars = report.outcome.bars();
    assert!(bars["qps_error_percent"] < 8.0, "{}", report.text());
    assert!(bars["latency_error_percent"] < 15.0, "{}", report.text());
    // The figures of one drive are fitted, not predicted, and are not a bar.
    assert!(!bars.contains_key("qps_1") && bars.contains_key("qps_4"));
}

/// Chapter 2 in numbers: a small part of a map is enough for a skewed load, TRIM saves garbage
/// collection, and log blocks merge only for random writes.
#[test]
fn what_chapter_2_says_costs() {
    let options = Options {
        scale: Scale::Quick,
        traces: "/nonexistent/traces".into(),
        ..Options::default()
    };
    let report = run("ftl-costs", &options, &()).unwrap();
    let (bars, missing) = (report.outcome.bars(), report.outcome.missing());
    assert_eq!(format!("{:.1}", bars["dftl_map_mib_32gb"]), "48.0");
    assert!(bars["dftl_hit_percent_zipf_12th"] > 3.0 * bars["dftl_hit_percent_even_12th"]);
    assert!(bars["pages_written_with_trim_50"] < bars["pages_written_without_trim_50"]);
    assert_eq!(bars["full_merges_log_blocks_in_order"], 0.0);
    assert_eq!(bars["stalls_log_blocks_in_order"], 0.0);
    assert!(
        bars["stalls_log_blocks_random"] > 500.0,
        "{}",
        report.text()
    );
    assert_eq!(bars["stalls_pages_random"], 0.0);
    assert!(
        bars["full_merges_log_blocks_random"] > 500.0,
        "{}",
        report.text()
    );
    assert_eq!(bars["full_merges_pages_random"], 0.0);
    assert!(missing["dftl_hit_percent_financial1_12th"].contains("Financial1"));
}
