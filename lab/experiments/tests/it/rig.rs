// SPDX-License-Identifier: Apache-2.0
//! The machinery of experiments on servers, as far as it needs no server: contenders that do not
//! start, replays, result lines.

use std::path::Path;

use senko_io::FileSystem;
use senko_lab::experiments::serve_endurance::replay::{RULES, Replay};
use senko_lab::rig::{Bench, Spec, ratio, sys};
use senko_lab::{Options, Outcome, Report, find};
use senko_plan::requests::{self, Requests};
use serde_json::Value;

use crate::process::{on_disk, quick};

#[test]
fn a_contender_that_does_not_start_says_why() {
    let Some(scratch) = on_disk() else { return };
    let core = sys::cores().unwrap()[0];
    let program = scratch.path("senko");
    let error = Spec::senko("one", &program, core, 64 << 20)
        .start(&scratch)
        .unwrap_err();
    assert!(error.to_string().contains("is not installed"), "{error:#}");

    // A program that accepts none of these options, and says so.
    let error = Spec::senko("two", Path::new("cat"), core, 64 << 20)
        .start(&scratch)
        .unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.contains("two did not start: ") && text.contains("exit status: 1"),
        "{text}"
    );
    assert!(!text.contains("it said nothing"), "{text}");
}

#[test]
fn a_folder_in_memory_is_refused() {
    let folder = Path::new("/dev/shm");
    if !FileSystem::of(folder).is_ok_and(|system| system.in_memory) {
        eprintln!("skipped: /dev/shm is not a tmpfs");
        return;
    }
    let options = Options {
        scratch: folder.to_owned(),
        ..Options::default()
    };
    // On a machine with one core the reason is another.
    let error = Bench::open(&options)
        .err()
        .expect("no bench in memory")
        .to_string();
    assert!(
        error.contains("--scratch") || error.contains("core"),
        "{error}"
    );
}

fn stream(seed: u64) -> Requests {
    requests::zipf(0.9, 20_000, 60_000, Some(48), seed).unwrap()
}

#[test]
fn a_replay_counts_the_same_twice() {
    for rules in RULES {
        let counts = || {
            let replay = Replay::new(2 << 20, 4 << 20, rules, 7).unwrap();
            replay.run(&stream(3)).unwrap()
        };
        let first = counts();
        assert_eq!(first, counts(), "{}", rules.name);
        assert_eq!(first.requests, 60_000);
        assert!(
            first.hits > 10_000 && first.hits < 60_000,
            "{}: {first:?}",
            rules.name
        );
        assert!(
            first.flash_hits > 0 && first.flash_hits <= first.hits,
            "{}: {first:?}",
            rules.name
        );
        assert!(first.written > 0, "{}: {first:?}", rules.name);
    }
}

#[test]
fn admission_rules_write_less() {
    let written = |name: &str| {
        let rules = *RULES.iter().find(|rules| rules.name == name).unwrap();
        Replay::new(2 << 20, 4 << 20, rules, 7)
            .unwrap()
            .run(&stream(5))
            .unwrap()
            .written
    };
    let all = written("all_fifo");
    assert!(written("fetched_fifo") < all);
    assert!(written("random50_fifo") < all);
}

#[test]
fn what_could_not_be_measured_is_named_in_the_result_line() {
    let mut outcome = Outcome::new();
    let fio = Err("fio is not installed (Debian package fio)".to_owned());
    outcome.put("get_over_fio", ratio(&Ok(9e4), &fio));
    outcome.put("get_over_extstore", ratio(&Ok(9e4), &Ok(4.5e4)));
    outcome.probe(100.0, 120.0);
    let report = Report::new(find("serve-flash-get").unwrap(), &quick(), outcome);
    let line = report.result_line();
    let result: Value = serde_json::from_str(line.strip_prefix("RESULT ").unwrap()).unwrap();
    assert_eq!(
        result["bars"],
        serde_json::json!({ "get_over_extstore": 2.0 })
    );
    assert_eq!(
        result["missing"]["get_over_fio"],
        "fio is not installed (Debian package fio)"
    );
    assert_eq!(result["noisy"], true);
}
