// SPDX-License-Identifier: Apache-2.0
//! Plays the transcripts of `tests/transcripts` against Debian's memcached, their reference, and
//! against senko on DRAM and on flash, with both I/O backends. It reports every failing case, with
//! the bytes sent, expected and received.
//!
//! `SENKO_TRANSCRIPT=meta/mg` plays only files whose name contains that.

mod play; // one case over sockets
mod script; // the files' format
mod target; // the servers

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use senko_server::settings::BackendChoice;

use script::{Case, Script};
use target::{Kind, NoTarget, Target};

#[test]
fn transcripts_on_memcached() {
    run(Kind::Memcached { tls: false });
}

#[test]
fn transcripts_on_memcached_with_tls() {
    run(Kind::Memcached { tls: true });
}

fn senko(io: BackendChoice, flash: bool, tls: bool) {
    run(Kind::Senko { io, flash, tls });
}

#[test]
fn transcripts_on_senko_dram_with_tls() {
    senko(BackendChoice::Auto, false, true);
}

#[test]
fn transcripts_on_senko_flash_with_tls() {
    senko(BackendChoice::Auto, true, true);
}

#[test]
fn transcripts_on_senko_dram_uring() {
    senko(BackendChoice::Uring, false, false);
}

#[test]
fn transcripts_on_senko_dram_posix() {
    senko(BackendChoice::Posix, false, false);
}

#[test]
fn transcripts_on_senko_flash_uring() {
    senko(BackendChoice::Uring, true, false);
}

#[test]
fn transcripts_on_senko_flash_posix() {
    senko(BackendChoice::Posix, true, false);
}

/// How the bytes are split, and how many shards there are, must not matter.
#[test]
fn transcripts_on_sessions_in_any_pieces() {
    run(Kind::Sessions {
        shards: 3,
        piece: usize::MAX,
    });
    for piece in [1, 2, 3, 7, 100, usize::MAX] {
        for shards in [1, 2] {
            run(Kind::Sessions { shards, piece });
        }
    }
}

#[test]
fn there_are_hundreds_of_exchanges() {
    let exchanges = |case: &Case| {
        case.steps
            .iter()
            .filter(|(_, s)| matches!(s, script::Step::Exchange(_)))
            .count()
    };
    let all: usize = scripts().iter().flat_map(|s| &s.cases).map(exchanges).sum();
    assert!(
        all > 700,
        "only {all} exchanges were found: does the folder hold all files?"
    );
}

/// Every file, in order of name.
fn scripts() -> Vec<Script> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts");
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in ["auth", "binary", "classic", "meta"] {
        let entries = std::fs::read_dir(root.join(folder))
            .expect("tests/transcripts has a folder for each protocol");
        paths.extend(
            entries
                .map(|e| e.expect("the folder can be listed").path())
                .filter(|p| p.extension().is_some_and(|e| e == "txt")),
        );
    }
    paths.sort();
    paths
        .iter()
        .map(|p| Script::read(p).unwrap_or_else(|e| panic!("{e}")))
        .collect()
}

fn run(kind: Kind) {
    let only = std::env::var("SENKO_TRANSCRIPT").unwrap_or_default();
    let mut failures = Vec::new();
    let (mut seen, mut played) = (0, 0);
    for script in scripts().iter().filter(|s| s.name.contains(&only)) {
        let mut target: Option<(Vec<String>, Target)> = None;
        for case in &script.cases {
            if matches!(kind, Kind::Memcached { .. }) && case.since.is_some() {
                continue;
            }
            if matches!(kind, Kind::Sessions { .. }) && needs_worker(script, case) {
                continue;
            }
            seen += 1;
            if third(kind).is_some_and(|n| seen % 3 != n) {
                continue;
            }
            played += 1;
            let mut result = play_case(kind, case, &mut target);
            // Some of memcached's answers depend on the present work of its background threads: on
            // a busy machine its crawler is still at work, or late. So a second or third attempt
            // counts too; senko has one.
            for _ in 0..MEMCACHED_TRIES {
                if !matches!(kind, Kind::Memcached { .. })
                    || !matches!(result, Err(Outcome::Fail(_)))
                {
                    break;
                }
                target = None;
                std::thread::sleep(Duration::from_millis(200));
                result = play_case(kind, case, &mut target);
            }
            if let Err(e) = result {
                match e {
                    Outcome::Skip(why) => return skip(kind, &why),
                    Outcome::Fail(why) => failures.push(format!(
                        "{}:{} {}: {why}",
                        script.name, case.line, case.name
                    )),
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {played} cases differ on {kind:?}:\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

/// Every item moves to flash, which takes long. With io_uring all cases do; the other ways to get
/// there play a third of them each.
fn third(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Senko {
            flash: true,
            io,
            tls,
        } if tls || io == BackendChoice::Posix => Some(usize::from(tls)),
        _ => None,
    }
}

/// Whether a worker has a part in a case: it ends all connections, tells watchers, lists
/// connections, or gets a long line in one piece.
fn needs_worker(script: &Script, case: &Case) -> bool {
    case.options.iter().any(|option| option == "-A")
        || script.name.contains("watch")
        || ["conns", "gats beyond the buffer"].contains(&case.name.as_str())
}

/// How often a case that failed on memcached is played again.
const MEMCACHED_TRIES: usize = 3;

enum Outcome {
    Skip(String),
    Fail(String),
}

/// Plays a case on the present server, or on a new one if that has other options or is gone.
fn play_case(
    kind: Kind,
    case: &Case,
    at_hand: &mut Option<(Vec<String>, Target)>,
) -> Result<(), Outcome> {
    // A server that a transcript has shut down may still answer for a moment: only one that accepts
    // the flush is used again.
    let usable = at_hand.as_mut().is_some_and(|(options, target)| {
        *options == case.options && target.alive() && target.flush().is_ok()
    });
    if !usable {
        *at_hand = None;
        let target = Target::start(kind, &case.options).map_err(|e| match e {
            NoTarget::Missing(why) => Outcome::Skip(why),
            NoTarget::Failed(why) => panic!("no server to play against: {why}"),
        })?;
        *at_hand = Some((case.options.clone(), target));
    }
    let (_, target) = at_hand.as_mut().expect("was just made");
    let result = play::play(case, target).map_err(Outcome::Fail);
    if result.is_err() {
        *at_hand = None; // the failed case may have left the server in any state
    }
    result
}

/// Says why nothing ran. In CI a missing memcached is a failure. A kernel that refuses io_uring is
/// not: CI tests that too.
fn skip(kind: Kind, why: &str) {
    assert!(
        !matches!(kind, Kind::Memcached { .. }) || std::env::var("CI").as_deref() != Ok("true"),
        "{why}"
    );
    // Past the test harness, which captures the output of passing tests.
    drop(writeln!(
        std::io::stderr(),
        "skipped: transcripts on {kind:?}: {why}"
    ));
}
