// SPDX-License-Identifier: Apache-2.0
//! `senko plan` as a buyer of a machine meets it: long lives, small sums, wrong options and traces.

use serde_json::Value;

use crate::process::{SENKO, Scratch, refused, run};

fn plan(folder: &Scratch, args: &[&str]) -> String {
    let output = run(SENKO, folder, &[&["plan", "--items", "20k"], args].concat());
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A cache that holds all items had a life of 8219178082.2 years, in JSON and in text.
#[test]
fn lives_beyond_a_drive_are_no_numbers() {
    let folder = Scratch::new();
    let line: Value = serde_json::from_str(&plan(&folder, &["--json"])).unwrap();
    let all = line["sizes"].as_array().unwrap().last().unwrap();
    assert_eq!(all["written_bytes_a_day"], 0.0);
    assert!(all["years"].is_null(), "{all}");
    assert_eq!(all["years_missing"], "nothing is written");
    let line: Value = serde_json::from_str(&plan(&folder, &["--rate", "1/day", "--json"])).unwrap();
    assert!(line["plan"]["years"].is_null(), "{line}");
    assert_eq!(line["plan"]["years_missing"], "more than 100 years");
    let text = plan(&folder, &["--rate", "1/day"]);
    assert!(
        text.contains("more than 100 years") && !text.contains("at 0 requests"),
        "{text}"
    );
    let line: Value = serde_json::from_str(&plan(&folder, &["--json"])).unwrap();
    assert!(line["plan"]["years"].as_f64().unwrap() > 0.0, "{line}");
    assert!(line["plan"]["years_missing"].is_null(), "{line}");
}

/// A life of hours was told as 0.0 days, a price of a tenth of a cent as 0.00, and a drive for
/// five years was smaller than the flash that the plan asks for.
#[test]
fn small_figures_are_told() {
    let folder = Scratch::new();
    let text = plan(&folder, &[]);
    assert!(
        !text.contains(" 0.0 days") && text.contains(" hours"),
        "{text}"
    );
    assert!(text.contains("price  below 0.01"), "{text}");
    let slow = plan(&folder, &["--rate", "1/h", "--json"]);
    let line: Value = serde_json::from_str(&slow).unwrap();
    assert_eq!(
        line["five_years_drive_bytes"], line["plan"]["flash_bytes"],
        "{line}"
    );
}

/// The text had bytes a day to the cells beside a rating by the host's, and neither was named.
#[test]
fn writes_of_a_day_are_those_of_the_rating() {
    let folder = Scratch::new();
    let args = ["--write-amplification", "2", "--json"];
    let line: Value = serde_json::from_str(&plan(&folder, &args)).unwrap();
    let (plan_of, at) = (&line["plan"], |value: &Value| value.as_f64().unwrap());
    let (host, cells) = (
        at(&plan_of["host_bytes_a_day"]),
        at(&plan_of["written_bytes_a_day"]),
    );
    assert!((cells / host - 2.0).abs() < 1e-9, "{line}");
    let rated = at(&line["five_years_host_bytes"]);
    assert!((rated / (host * 365.0 * 5.0) - 1.0).abs() < 1e-9, "{line}");
    // The price was that of flash which lasts for hours.
    let (drive, price) = (
        at(&line["five_years_drive_bytes"]),
        at(&line["five_years_price"]),
    );
    let dram = at(&line["dram_bytes"]);
    assert!(
        (price - (dram * 4.0 + drive * 0.1) / 1e9).abs() < 1e-9,
        "{line}"
    );
    assert!(price > at(&plan_of["price"]), "{line}");
    let text = plan(&folder, &args[..2]);
    assert!(text.contains("with the drive for 5 years"), "{text}");
    assert!(
        text.contains(" to its cells) at 10000 requests a second"),
        "{text}"
    );
}

/// Prices of 1e300 were printed with 300 digits, and factors of 1e300 as "inf G PB".
#[test]
fn senseless_values_are_refused() {
    let folder = Scratch::new();
    for option in [
        "--rate",
        "--dram-price",
        "--flash-price",
        "--index-bits",
        "--cycles",
        "--write-amplification",
    ] {
        for value in ["1e300", "1e-300", "0", "nonsense"] {
            let args = ["plan", "--items", "20k", option, value];
            let output = run(SENKO, &folder, &args);
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
            assert!(
                told.contains(option) && told.len() < 400,
                "{args:?}: {told}"
            );
        }
    }
    for (args, told) in [
        (&["--zipf", "1e300"][..], "it must be from 0 to 5"),
        (&["--bytes", "1t"], "more than a cache can hold"),
    ] {
        let output = run(SENKO, &folder, &[&["plan", "--items", "1g"], args].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains(told),
            "{args:?}: {text}"
        );
        assert!(text.len() < 400, "{text}");
    }
    let told = refused(SENKO, &folder, &["plan"]);
    assert!(
        told.contains("--items") && told.contains("--ratios"),
        "{told}"
    );
}

/// The plan for a hundred million items had the hits of half a million, and an option that a trace
/// or `--ratios` does not read was taken without a word.
#[test]
fn the_number_of_items_counts_and_idle_options_are_refused() {
    let folder = Scratch::new();
    let hits_of = |items: &str| {
        let args = ["plan", "--items", items, "--policy", "lru", "--json"];
        let output = run(SENKO, &folder, &args);
        let line: Value = serde_json::from_slice(&output.stdout).unwrap();
        line["sizes"][0]["hit_ratio"].as_f64().unwrap()
    };
    // A 64th of the items. By Che's approximation 0.466 and 0.636.
    let (few, many) = (hits_of("20k"), hits_of("4m"));
    assert!((few - 0.466).abs() < 0.02, "{few}");
    assert!((many - 0.636).abs() < 0.02, "{many}");
    for args in [
        &["keys.csv", "--zipf", "0.5"][..],
        &["--ratios", "--hit", "90%"],
        &["--ratios", "--rate", "5k"],
        &["--ratios", "--cycles", "5000"],
    ] {
        let output = run(SENKO, &folder, &[&["plan"], args].concat());
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert!(told.contains("cannot be used with"), "{args:?}: {told}");
    }
}

/// The reason stood twice: "incomplete frame: incomplete frame".
#[test]
fn a_trace_that_is_cut_short_is_told_once() {
    let folder = Scratch::new();
    // The head of a gzip file, and of a zstd one.
    let gzip: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b];
    let zstd: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58];
    for (name, bytes) in [("a.gz", gzip), ("a.zst", zstd)] {
        std::fs::write(folder.join(name), bytes).unwrap();
        let told = refused(SENKO, &folder, &["plan", name]);
        let why = told.trim().rsplit(": ").next().unwrap_or("").to_owned();
        assert!(
            told.contains(name) && told.contains("cannot be read"),
            "{told}"
        );
        assert_eq!(told.matches(&why).count(), 1, "{told}");
    }
}

/// More hits in DRAM than hits in all were lowered without a word.
#[test]
fn dram_finds_no_more_than_the_cache() {
    let folder = Scratch::new();
    let args = [
        "plan",
        "--items",
        "20k",
        "--hit",
        "40%",
        "--dram-hit",
        "60%",
    ];
    let told = refused(SENKO, &folder, &args);
    assert!(
        told.contains("--dram-hit 60% is more than the 40% of --hit"),
        "{told}"
    );
    // Without the option there is no more than what is asked for.
    plan(&folder, &["--hit", "40%"]);
}
