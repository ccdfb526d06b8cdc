// SPDX-License-Identifier: Apache-2.0
//! Mixes with `incr`, `decr`, `append` and `prepend`: against Debian's memcached, and against
//! servers that lose a change, make it twice or make half of it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::fake::Wrong;
use crate::runs::{KEYS, Memcached, on_fake, on_socket, run};
use senko_load::{Amount, Changes, FaultKind, KeyCount, Report, Requests, Settings, Step, Wire};
use senko_workload::{KeyShape, KeySpace, ValueLen};

/// Requests of a mix.
const MIX: u64 = 6000;

fn requests(text: &str) -> Requests {
    text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// Loads, runs and reads back with these settings and a mix.
fn with(text: &str, settings: Settings) -> Settings {
    let Requests { mix, changes } = requests(text);
    Settings {
        mix,
        changes,
        steps: vec![Step::Load, Step::Mix(Amount::Requests(MIX)), Step::ReadBack],
        ..settings
    }
}

fn faults(report: &Report) -> [u64; 5] {
    let mut sums = [0; 5];
    for step in &report.steps {
        for (sum, faults) in sums.iter_mut().zip(step.faults) {
            *sum += faults;
        }
    }
    sums
}

#[test]
fn all_changes_are_checked_in_every_dialect() {
    let Some(memcached) = Memcached::start(&["-m", "256"]) else {
        return;
    };
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    for wire in [Wire::Classic, Wire::Meta, Wire::Binary] {
        for (text, keys_per_get, pipeline) in [
            ("set=0.1,incr=0.3,decr=0.1,append=0.1,prepend=0.1", 1, 1),
            ("incr=0.4,append=0.4", 4, 3),
            ("incr=1", 1, 2),
            ("decr=0.6", 1, 8),
            ("prepend=0.9", 1, 1),
        ] {
            let settings = Settings {
                wire,
                keys_per_get,
                pipeline,
                vary_len: true,
                value_len: ValueLen::Uniform { min: 0, max: 400 },
                prefix: format!("{}-", NUMBER.fetch_add(1, Ordering::Relaxed)),
                ..with(text, on_socket(&memcached.socket))
            };
            let report = run(&settings);
            assert_eq!(
                report.verdict(Some(1.0)),
                Ok(()),
                "{text} {wire:?}\n{report}"
            );
            let step = &report.steps[1];
            let counts = step.counts;
            assert_eq!((counts.failed, counts.absent), (0, 0), "{report}");
            assert_eq!(counts.changed, counts.changes, "{report}");
            assert_eq!(step.change.len(), counts.changes, "{report}");
            assert_eq!(counts.requests, MIX, "{report}");
            // The rest are gets and sets, and sets of full texts.
            let share = settings.changes.total();
            let made = counts.changes as f64 / MIX as f64;
            assert!(
                made <= share + 0.03 && made > share - 0.2,
                "{text}: {report}"
            );
            // Gets and the numbers of incr and decr are checked.
            let numbers = if text.contains("incr=1") {
                MIX
            } else {
                counts.hits
            };
            assert!(counts.verified >= numbers, "{report}");
            assert_eq!(report.steps[2].counts.verified, KEYS, "{report}");
        }
    }
}

#[test]
fn evicted_and_expired_keys_are_set_anew_and_nothing_is_called_wrong() {
    // Little memory and large values, so that items are evicted all the time.
    let Some(memcached) = Memcached::start(&["-m", "4"]) else {
        return;
    };
    for wire in [Wire::Classic, Wire::Meta, Wire::Binary] {
        for expire in [0, 1] {
            let settings = Settings {
                wire,
                expire,
                pipeline: 4,
                set_on_miss: true,
                value_len: ValueLen::Uniform { min: 0, max: 9000 },
                prefix: format!("{}{expire}-", wire.name()),
                ..with("set=0.1,incr=0.3,append=0.3", on_socket(&memcached.socket))
            };
            let report = run(&settings);
            assert_eq!(report.verdict(None), Ok(()), "{report}");
            let counts = report.steps[1].counts;
            assert!(counts.absent > 0 && counts.changed > 0, "{report}");
            assert!(counts.refills >= counts.absent, "{report}");
        }
    }
    let report = run(&with("incr=0.3,append=0.3", on_fake(Wrong::Evicts)));
    let counts = report.steps[1].counts;
    assert_eq!(report.verdict(None), Ok(()), "{report}");
    assert!(
        counts.absent > 100 && counts.refills >= counts.absent,
        "{report}"
    );
    let why = report.verdict(Some(0.99)).expect_err("one of ten was gone");
    assert!(why.contains("of the keys to change were found"), "{why}");
}

#[test]
fn a_server_that_loses_or_doubles_changes_is_found_out() {
    let (torn, lost, wrong) = (
        FaultKind::Torn as usize,
        FaultKind::Lost as usize,
        FaultKind::Wrong as usize,
    );
    for (server, text, kind) in [
        (Wrong::LosesCounts, "incr=0.6", lost),
        (Wrong::LosesCounts, "incr=1", lost),
        (Wrong::LosesCounts, "decr=0.6", wrong),
        (Wrong::CountsTwice, "incr=0.6", wrong),
        (Wrong::CountsTwice, "decr=1", lost),
        (Wrong::LosesChunks, "append=0.6", lost),
        (Wrong::LosesChunks, "prepend=0.6", lost),
        (Wrong::DoublesChunks, "append=0.6", wrong),
        (Wrong::HalfChunks, "append=0.6", torn),
        (Wrong::HalfChunks, "set=0.1,prepend=0.5", torn),
        (Wrong::HalfChunks, "append=0.3,prepend=0.3", torn),
    ] {
        for (connections, pipeline) in [(1, 1), (5, 4)] {
            let settings = Settings {
                connections,
                pipeline,
                threads: 1,
                keys: KeyCount::Keys(600),
                ..with(text, on_fake(server))
            };
            let report = run(&settings);
            let found = faults(&report);
            assert!(found[kind] > 0, "{server:?} {text}: {report}");
            assert_eq!(
                found.iter().sum::<u64>(),
                found[kind],
                "{server:?} {text}: {report}"
            );
            let why = report.verdict(None).expect_err("it is wrong");
            assert!(why.contains(FaultKind::ALL[kind].name()), "{why}");
        }
    }
    // The same work, and no fault.
    for text in [
        "incr=0.6",
        "decr=1",
        "set=0.1,prepend=0.5",
        "append=0.3,prepend=0.3",
    ] {
        let right = run(&with(text, on_fake(Wrong::Nothing)));
        assert_eq!(right.verdict(Some(1.0)), Ok(()), "{text}: {right}");
    }
}

/// The answer of `incr` names the version to which it was applied.
#[test]
fn a_change_of_a_value_that_a_set_replaced_is_stale() {
    let settings = with("incr=1", on_fake(Wrong::CountsOnOldValue));
    // Loaded twice, so that each key has an earlier value.
    let settings = Settings {
        steps: vec![Step::Load, Step::Load, Step::Mix(Amount::Requests(5000))],
        ..settings
    };
    let report = run(&settings);
    let found = faults(&report);
    assert!(found[FaultKind::Stale as usize] > 0, "{report}");
    assert!(report.verdict(None).is_err_and(|why| why.contains("stale")));
}

/// A run that did not set the keys itself knows their counts from the first answer on.
#[test]
fn another_run_counts_on_where_the_first_ended() {
    for server in [Wrong::Nothing, Wrong::LosesCounts] {
        let load = Settings {
            keys: KeyCount::Keys(50),
            threads: 1,
            ..with("incr=1", on_fake(server))
        };
        let first = Settings {
            steps: vec![Step::Load],
            ..load.clone()
        };
        assert_eq!(run(&first).verdict(None), Ok(()));
        let mut wrong = 0;
        for _ in 0..2 {
            let next = Settings {
                steps: vec![Step::Mix(Amount::Requests(4000)), Step::ReadBack],
                ..load.clone()
            };
            let report = run(&next);
            wrong += report.faults;
            assert_eq!(report.steps[0].counts.changed, 4000, "{report}");
            assert_eq!(report.steps[0].counts.sets, 0, "{report}");
        }
        assert_eq!(wrong > 0, server == Wrong::LosesCounts);
    }
}

/// One hot text used to grow until the server refused it.
#[test]
fn a_text_stays_within_its_bounds() {
    let Some(memcached) = Memcached::start(&["-m", "64"]) else {
        return;
    };
    for verify in [false, true] {
        let settings = Settings {
            keys: KeyCount::Keys(2),
            key_shape: KeyShape::Shortest,
            value_len: ValueLen::Fixed(100),
            verify,
            ..with("append=1", on_socket(&memcached.socket))
        };
        let report = run(&settings);
        assert_eq!(report.verdict(Some(1.0)), Ok(()), "{report}");
        // At most every 32nd chunk is replaced by a set, and 5 requests are under way.
        let counts = report.steps[1].counts;
        assert!(counts.sets >= MIX / 40, "{report}");
        for key in 0..2 {
            let space = KeySpace::new("key", KeyShape::Shortest, 1).expect("a good key space");
            let mut name = Vec::new();
            space.append(key, &mut name);
            let name = String::from_utf8(name).expect("keys are ASCII");
            let answer = memcached.ask(format!("get {name}\r\n").as_bytes(), "END\r\n");
            let len: usize = answer
                .split_whitespace()
                .nth(3)
                .and_then(|len| len.parse().ok())
                .expect("a VALUE line");
            assert!((100..=100 + 16 * 40).contains(&len), "{len}");
        }
    }
}

#[test]
fn changes_without_an_answer_are_counted() {
    // A server that does not answer owes its changes as well.
    let silent = Settings {
        steps: vec![Step::Mix(Amount::For(Duration::from_secs(1)))],
        timeout: Duration::from_secs(3600),
        ..with("incr=0.5,append=0.5", on_fake(Wrong::Silent))
    };
    let report = run(&silent);
    let counts = report.steps[0].counts;
    assert_eq!(counts.unanswered, counts.changes, "{report}");
    assert_eq!(report.steps[0].change.len(), counts.changes, "{report}");
    assert!(counts.changes > 0 && counts.changed == 0, "{report}");
}

#[test]
fn mixes_that_can_not_be_kept_are_refused() {
    let good = with("incr=0.1,append=0.1", on_fake(Wrong::Nothing));
    for (settings, words) in [
        (
            Settings {
                noreply: true,
                ..good.clone()
            },
            "leave noreply out",
        ),
        (
            Settings {
                mix: requests("ycsb-d").mix,
                ..good.clone()
            },
            "inserts keys",
        ),
        (
            Settings {
                value_len: ValueLen::Fixed(1 << 20),
                ..good.clone()
            },
            "no room to append",
        ),
        (
            Settings {
                keys: KeyCount::Keys(1),
                ..good.clone()
            },
            "2 classes of keys",
        ),
    ] {
        let error = senko_load::run(&settings, &mut |_| {}).map(drop);
        let why = error.expect_err("it can't be kept").to_string();
        assert!(why.contains(words), "{why}");
    }
    assert!(Changes::new([2.0, 0.0, 0.0, 0.0]).is_err());
    // Without appends, long values are no problem.
    let counters = Settings {
        value_len: ValueLen::Fixed(1 << 20),
        steps: vec![Step::Load],
        ..with("incr=0.1", on_fake(Wrong::Nothing))
    };
    assert_eq!(run(&counters).verdict(None), Ok(()));
}
