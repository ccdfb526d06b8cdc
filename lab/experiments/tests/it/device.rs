// SPDX-License-Identifier: Apache-2.0
//! The experiment on the verdicts of `senko device`.

use senko_lab::{Options, run};

/// The experiment takes each profile's layer from the profile, this test takes it from the list
/// here.
#[test]
fn the_verdict_is_right_for_every_profile() {
    let report = run("device-verdict", &Options::default(), &()).unwrap();
    assert_eq!(report.outcome.bars()["right"], 1.0, "{}", report.text());
    let rows = &report.outcome.tables[0].rows;
    let kinds: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row[0].as_str(), row[6].as_str()))
        .collect();
    let mut expected = Vec::new();
    for (profile, kind) in [
        ("nvme-512gb", "maps pages"),
        ("paper-1gb", "log blocks"),
        ("x25-m", "maps pages"),
        ("x25-e", "maps pages"),
        ("usb-stick", "log blocks"),
        ("tlc-256gb", "maps pages"),
        ("hy27-4gb", "maps pages"),
    ] {
        expected.extend([(profile, kind); 3]);
    }
    assert_eq!(kinds, expected);
}
