// SPDX-License-Identifier: Apache-2.0
//! If there is no fault, every value is found. A fault is found, named and decides the run's
//! verdict.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::fake::{self, Wrong};
use senko_io::BackendChoice;
use senko_load::{
    Amount, Gaps, KeyCount, Pace, Part, Report, Settings, Step, Target, Wire, reads_and_updates,
};
use senko_workload::{KeyShape, KeySpace, Popularity, ValueLen, fill_value};

/// A memcached on a Unix socket; it ends with the test.
pub struct Memcached {
    child: Child,
    /// The address it listens on.
    pub socket: PathBuf,
}

impl Memcached {
    /// `None` where it is not installed, said on stderr; with `CI=true` that is an error.
    pub fn start(options: &[&str]) -> Option<Memcached> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket =
            std::env::temp_dir().join(format!("senko-load-{}-{number}.sock", std::process::id()));
        let spawned = Command::new("memcached")
            .arg("-s")
            .arg(&socket)
            .args(["-u", "root", "-t", "2"])
            .args(options)
            .stdin(Stdio::null())
            .spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) if std::env::var("CI").is_ok_and(|ci| ci == "true") => {
                panic!("no memcached: {error}")
            }
            Err(error) => {
                eprintln!("skipped: no memcached: {error}");
                return None;
            }
        };
        let started = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(
                started.elapsed() < Duration::from_secs(120),
                "memcached does not listen"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Memcached { child, socket })
    }

    /// Sends a single line and returns the answer up to `end`.
    pub fn ask(&self, request: &[u8], end: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).expect("memcached listens");
        stream.write_all(request).expect("memcached reads");
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        while !String::from_utf8_lossy(&answer).contains(end) {
            let n = stream.read(&mut piece).expect("memcached answers");
            assert!(n > 0, "memcached hung up");
            answer.extend_from_slice(&piece[..n]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn overwrite(&self, key: &str, flags: u32, value: &[u8]) {
        let mut request = format!("set {key} {flags} 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        assert_eq!(self.ask(&request, "\r\n"), "STORED\r\n");
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

pub const KEYS: u64 = 3000;

pub fn on_socket(socket: &Path) -> Settings {
    Settings {
        target: Target::Unix(socket.to_owned()),
        connections: 5,
        threads: 2,
        keys: KeyCount::Keys(KEYS),
        key_shape: KeyShape::Etc,
        value_len: ValueLen::Etc { cap: 60_000 },
        steps: vec![Step::Load, Step::ReadBack],
        verify: true,
        ..Settings::default()
    }
}

pub fn on_fake(wrong: Wrong) -> Settings {
    Settings {
        target: Target::Tcp(fake::start(wrong)),
        key_shape: KeyShape::Fixed(20),
        value_len: ValueLen::Fixed(300),
        ..on_socket(Path::new("/"))
    }
}

pub fn run(settings: &Settings) -> Report {
    senko_load::run(settings, &mut |_| {})
        .unwrap_or_else(|error| panic!("{error}, with {settings:?}"))
}

fn requests(count: u64) -> Step {
    Step::Mix(Amount::Requests(count))
}

/// As [`on_fake`], with this share of gets in a mix.
fn mixed(gets: f64, wrong: Wrong) -> Settings {
    let zipf = Popularity::Zipf {
        s: 0.99,
        scrambled: true,
    };
    Settings {
        mix: reads_and_updates(gets, zipf).expect("a share"),
        ..on_fake(wrong)
    }
}

/// The key with this number among those of [`on_socket`].
fn key(number: u64) -> String {
    let space = KeySpace::new("key", KeyShape::Etc, KEYS - 1).expect("a good key space");
    let mut key = Vec::new();
    space.append(number, &mut key);
    String::from_utf8(key).expect("keys are ASCII")
}

#[test]
fn everything_loaded_is_found_in_every_dialect_on_both_backends() {
    let Some(memcached) = Memcached::start(&["-m", "256"]) else {
        return;
    };
    for wire in [Wire::Classic, Wire::Meta, Wire::Binary] {
        for io in [BackendChoice::Auto, BackendChoice::Posix] {
            for (keys_per_get, pipeline, permuted, vary_len) in
                [(1, 1, false, false), (7, 3, true, true)]
            {
                assert_eq!(memcached.ask(b"flush_all\r\n", "\r\n"), "OK\r\n");
                let settings = Settings {
                    wire,
                    io,
                    keys_per_get,
                    pipeline,
                    permuted,
                    vary_len,
                    ..on_socket(&memcached.socket)
                };
                let report = run(&settings);
                assert_eq!(report.verdict(Some(1.0)), Ok(()), "{settings:?}\n{report}");
                assert_eq!(report.steps[0].counts.stored, KEYS);
                assert_eq!(report.steps[1].counts.hits, KEYS);
                assert!(report.steps[1].errors.is_empty());
            }
        }
    }
}

#[test]
fn mixes_with_every_option_meet_no_fault() {
    // Little memory and large values, so that items are evicted and refilled all the time.
    let Some(memcached) = Memcached::start(&["-m", "4"]) else {
        return;
    };
    for (number, wire) in [Wire::Classic, Wire::Meta, Wire::Binary]
        .into_iter()
        .enumerate()
    {
        for name in ["a", "b", "d", "f"] {
            for noreply in [false, true] {
                let settings = Settings {
                    wire,
                    noreply,
                    mix: name.parse().expect("a YCSB workload"),
                    pipeline: 4,
                    keys_per_get: if name == "b" { 5 } else { 1 },
                    set_on_miss: true,
                    vary_len: true,
                    value_len: ValueLen::Uniform { min: 0, max: 9000 },
                    steps: vec![Step::Load, requests(20_000), Step::ReadBack],
                    seed: number as u64,
                    prefix: format!("{name}{number}{noreply}-"),
                    ..on_socket(&memcached.socket)
                };
                let report = run(&settings);
                assert_eq!(report.verdict(None), Ok(()), "{settings:?}\n{report}");
                let (counts, errors) = (report.steps[1].counts, &report.steps[1].errors);
                assert!(
                    counts.refills > 0 && counts.hits > 0,
                    "{settings:?}\n{report}"
                );
                // A thread of memcached frees memory, and may not run in time.
                assert!(
                    errors.keys().all(|text| text.contains("ut of memory")),
                    "{settings:?}\n{report}"
                );
                assert_eq!(
                    counts.requests + counts.failed,
                    20_000 + counts.refills + modifications(name, &counts),
                    "{settings:?}\n{report}"
                );
            }
        }
    }
}

/// Sets of YCSB F that are the second half of a read-modify-write: all sets but refills.
fn modifications(name: &str, counts: &senko_load::Counts) -> u64 {
    if name == "f" {
        counts.sets - counts.refills
    } else {
        0
    }
}

#[test]
fn an_injected_value_is_reported_with_its_key_and_place() {
    let Some(memcached) = Memcached::start(&["-m", "256"]) else {
        return;
    };
    let settings = Settings {
        generation: 2,
        value_len: ValueLen::Fixed(5000),
        steps: vec![Step::Load],
        ..on_socket(&memcached.socket)
    };
    assert_eq!(run(&settings).verdict(None), Ok(()));
    let check = Settings {
        steps: vec![Step::ReadBack],
        generation_known: true,
        ..settings
    };
    assert_eq!(run(&check).verdict(Some(1.0)), Ok(()));

    let mut value = vec![0; 5000];
    fill_value(&mut value, 77, 2);
    value[4321] ^= 1;
    memcached.overwrite(&key(77), 2, &value);
    let report = run(&check);
    assert_eq!(
        (report.faults, report.fault_samples[0].offset),
        (1, Some(4321)),
        "{report}"
    );
    assert_eq!(
        (
            report.fault_samples[0].key_id,
            report.fault_samples[0].key.clone()
        ),
        (77, key(77))
    );
    assert!(
        report
            .verdict(None)
            .is_err_and(|text| text.contains(&key(77)) && text.contains("4321"))
    );

    // The bytes of another key, whole.
    fill_value(&mut value, 78, 2);
    memcached.overwrite(&key(77), 2, &value);
    assert_eq!(run(&check).steps[0].faults, [1, 0, 0, 0, 0]);
    // Half of another version.
    fill_value(&mut value, 77, 2);
    let mut other = vec![0; 5000];
    fill_value(&mut other, 77, 1);
    value[4096..].copy_from_slice(&other[4096..]);
    memcached.overwrite(&key(77), 2, &value);
    let report = run(&check);
    assert_eq!(
        (report.steps[0].faults, report.fault_samples[0].offset),
        ([0, 1, 0, 0, 0], Some(4096)),
        "{report}"
    );
    // The whole of the version before.
    memcached.overwrite(&key(77), 1, &other);
    assert_eq!(run(&check).steps[0].faults, [0, 0, 1, 0, 0]);
    // A value that is not ours at all.
    memcached.overwrite(&key(77), 0, b"hello");
    assert_eq!(run(&check).steps[0].faults, [1, 0, 0, 0, 0]);
    // Without knowing the generation, an older whole value counts as right.
    memcached.overwrite(&key(77), 1, &other);
    assert_eq!(
        run(&Settings {
            generation_known: false,
            ..check
        })
        .verdict(Some(1.0)),
        Ok(())
    );
}

#[test]
fn fewer_keys_than_expected_fail_the_run_and_parts_can_be_read() {
    let Some(memcached) = Memcached::start(&["-m", "256"]) else {
        return;
    };
    let settings = on_socket(&memcached.socket);
    assert_eq!(
        run(&Settings {
            steps: vec![Step::Load],
            ..settings.clone()
        })
        .verdict(None),
        Ok(())
    );
    for number in 0..30 {
        assert_eq!(
            memcached.ask(format!("delete {}\r\n", key(number)).as_bytes(), "\r\n"),
            "DELETED\r\n"
        );
    }
    let all = run(&Settings {
        steps: vec![Step::ReadBack],
        ..settings.clone()
    });
    assert_eq!(all.steps[0].found_ratio(), Some(0.99));
    assert_eq!(all.verdict(Some(0.99)), Ok(()));
    assert!(
        all.verdict(Some(0.991))
            .is_err_and(|text| text.contains("99.0000 %"))
    );
    let part = Settings {
        steps: vec![Step::ReadBack],
        part: Part::Places(20, 39),
        ..settings.clone()
    };
    assert_eq!(run(&part).steps[0].found_ratio(), Some(0.5));
    let last = Settings {
        steps: vec![Step::ReadBack],
        part: Part::LastBytes(100_000),
        ..settings
    };
    let report = run(&last);
    assert!(report.steps[0].counts.reads < KEYS && report.places.end == KEYS);
    assert_eq!(report.verdict(Some(1.0)), Ok(()));
}

#[test]
fn faults_of_a_server_are_told_apart() {
    for (wrong, column) in [(Wrong::BitTurned, 0), (Wrong::Torn, 1), (Wrong::Stale, 2)] {
        let settings = Settings {
            steps: vec![Step::Load, requests(6000), Step::ReadBack],
            ..mixed(0.5, wrong)
        };
        let report = run(&settings);
        let mut sums = [0; 5];
        for step in &report.steps {
            step.faults
                .iter()
                .zip(&mut sums)
                .for_each(|(faults, sum)| *sum += faults);
        }
        assert!(sums[column] > 0, "{wrong:?}: {report}");
        assert_eq!(
            sums.iter().sum::<u64>(),
            sums[column],
            "{wrong:?}: {report}"
        );
        assert!(report.verdict(None).is_err());
    }
    let settings = Settings {
        steps: vec![Step::Load, requests(6000), Step::ReadBack],
        ..mixed(0.5, Wrong::Nothing)
    };
    assert_eq!(run(&settings).verdict(Some(1.0)), Ok(()));
}

#[test]
fn closed_connections_are_made_anew_and_every_request_is_accounted_for() {
    for wrong in [Wrong::Closes, Wrong::Nonsense] {
        let settings = Settings {
            pipeline: 3,
            steps: vec![Step::Load, requests(5000)],
            ..mixed(0.7, wrong)
        };
        let report = run(&settings);
        let counts = report.steps[1].counts;
        assert_eq!(counts.requests + counts.failed, 5000, "{wrong:?}: {report}");
        assert!(
            counts.failed > 0 && counts.reconnects > 0,
            "{wrong:?}: {report}"
        );
        assert!(!report.steps[1].errors.is_empty());
        assert_eq!(
            report.verdict(None),
            Ok(()),
            "what was lost on the way is no fault of a value"
        );
    }
}

#[test]
fn server_errors_are_counted_by_their_text() {
    let report = run(&Settings {
        steps: vec![Step::Load],
        ..on_fake(Wrong::OutOfMemory)
    });
    let counts = report.steps[0].counts;
    assert_eq!(
        (counts.sets, counts.stored, counts.failed),
        (KEYS, KEYS - KEYS / 3, KEYS / 3)
    );
    let errors: Vec<_> = report.steps[0].errors.iter().collect();
    assert_eq!(
        errors,
        [(
            &"SERVER_ERROR out of memory storing object".to_owned(),
            &(KEYS / 3)
        )]
    );
}

#[test]
fn a_silent_server_times_out_and_a_missing_one_is_an_error() {
    let settings = Settings {
        threads: 1,
        connections: 2,
        timeout: Duration::from_millis(150),
        steps: vec![requests(4)],
        ..mixed(1.0, Wrong::Silent)
    };
    let report = run(&settings);
    assert_eq!(
        (
            report.steps[0].counts.timeouts,
            report.steps[0].counts.requests
        ),
        (4, 0)
    );
    assert!(
        report
            .verdict(None)
            .is_err_and(|text| text.contains("no answer in time"))
    );

    let nobody = Settings {
        target: Target::Unix("/nonexistent/senko.sock".into()),
        ..settings
    };
    let error = senko_load::run(&nobody, &mut |_| {})
        .map(drop)
        .expect_err("nobody listens there")
        .to_string();
    assert!(error.contains("/nonexistent/senko.sock"), "{error}");
}

/// When its server died during the run, `senko load` used to end with 0, or to lose the results.
#[test]
fn a_server_that_dies_is_told_and_what_was_measured_is_kept() {
    let settings = Settings {
        timeout: Duration::from_secs(5),
        steps: vec![
            Step::Mix(Amount::For(Duration::from_secs(3600))),
            Step::ReadBack,
        ],
        ..mixed(0.5, Wrong::Dies)
    };
    let report = senko_load::run_until(
        &settings,
        &AtomicBool::new(false),
        &mut |_: &senko_load::Second| {},
    )
    .expect("the server was there");
    assert_eq!(report.steps.len(), 1, "{report}");
    assert!(report.steps[0].counts.requests > 900, "{report}");
    let why = report.completed(1.0).expect_err("the server died");
    assert!(why.contains("is gone"), "{why}");
    let error = senko_load::run(&settings, &mut |_| {}).map(drop);
    assert!(error.is_err(), "a second run reaches nobody");
}

/// A run that ended sooner than `timeout` after its server's death used to end as if all was well.
#[test]
fn a_server_that_is_gone_at_the_end_is_told() {
    let settings = Settings {
        timeout: Duration::from_secs(3600),
        steps: vec![Step::Mix(Amount::For(Duration::from_secs(3)))],
        ..mixed(0.5, Wrong::Dies)
    };
    let run = senko_load::run(&settings, &mut |_| {}).map(drop);
    let why = run.expect_err("the server died").to_string();
    assert!(why.contains("is gone"), "{why}");
}

/// A server that accepts connections and never answers used to keep a run of many requests busy
/// forever.
#[test]
fn a_server_that_answers_nothing_ends_the_run() {
    let settings = Settings {
        timeout: Duration::from_millis(100),
        steps: vec![Step::Load],
        ..on_fake(Wrong::Silent)
    };
    let error = senko_load::run(&settings, &mut |_| {}).map(drop);
    let why = error.expect_err("it answers nothing").to_string();
    assert!(why.contains("answers nothing"), "{why}");
}

/// When its server stalled, a run of 10 seconds used to last 10 seconds plus the timeout, and
/// reported the high rate from before the stall.
#[test]
fn a_run_ends_at_its_time_also_when_the_server_stalls() {
    let time = Duration::from_secs(1);
    for pace in [
        Pace::Closed,
        Pace::Open {
            rate: Some(100.0),
            gaps: Gaps::Even,
        },
    ] {
        let settings = Settings {
            pace,
            timeout: Duration::from_secs(3600),
            steps: vec![Step::Mix(Amount::For(time))],
            ..mixed(0.5, Wrong::Silent)
        };
        let report = run(&settings);
        let step = &report.steps[0];
        let counts = step.counts;
        assert!(step.elapsed >= time, "{report}");
        assert_eq!(counts.requests, 0, "{report}");
        // One for each connection, of those that arrived to send one in this time.
        let unanswered = counts.unanswered;
        assert!((1..=5).contains(&unanswered), "{report}");
        assert_eq!(
            (counts.failed, counts.timeouts),
            (unanswered, 0),
            "{report}"
        );
        // Each request that the server owes counts with the time that it has waited.
        let waited = step.get.len() + step.set.len();
        assert_eq!(waited, counts.unanswered + counts.unsent, "{report}");
        assert!(report.verdict(None).is_err());
        if pace != Pace::Closed {
            let asked = step.asked.expect("an open loop");
            assert_eq!(
                asked.share,
                unanswered as f64 / counts.due as f64,
                "{report}"
            );
        }
    }
}

/// No server takes ten million requests a second over five connections, one at a time.
#[test]
fn a_rate_that_is_not_reached_is_told() {
    for amount in [
        Amount::For(Duration::from_millis(200)),
        Amount::Requests(200_000),
    ] {
        let settings = Settings {
            pace: Pace::Open {
                rate: Some(1e7),
                gaps: Gaps::Even,
            },
            steps: vec![Step::Mix(amount)],
            ..mixed(0.5, Wrong::Nothing)
        };
        let report = run(&settings);
        assert_eq!(report.verdict(None), Ok(()), "no answer was wrong");
        let asked = report.steps[0].asked.expect("an open loop");
        assert!(asked.share < senko_load::REACHED, "{asked:?} {report}");
        let why = report.completed(1.0).expect_err("nobody is that fast");
        assert!(why.contains("the rate was not reached"), "{why}");
        assert!(why.contains("10000000 were asked for"), "{why}");
        assert!(report.to_string().contains("not reached"), "{report}");
    }
}

/// Every third set failed, and the run used to end with 0.
#[test]
fn failed_requests_above_the_threshold_are_told() {
    let report = run(&Settings {
        steps: vec![Step::Load],
        ..on_fake(Wrong::OutOfMemory)
    });
    assert_eq!(report.verdict(None), Ok(()));
    let why = report.completed(0.33).expect_err("a third and more failed");
    assert!(
        why.contains("1000 of 3000 requests of the load failed") && why.contains("out of memory"),
        "{why}"
    );
    assert_eq!(report.completed(0.34), Ok(()));
}

/// Ctrl-C used to end the process without any results.
#[test]
fn a_run_that_is_stopped_has_what_it_measured() {
    let settings = Settings {
        steps: vec![
            Step::Mix(Amount::For(Duration::from_secs(3600))),
            Step::ReadBack,
        ],
        ..mixed(0.5, Wrong::Nothing)
    };
    let stop = AtomicBool::new(false);
    let report = senko_load::run_until(&settings, &stop, &mut |second: &senko_load::Second| {
        if second.stretch.counts.requests > 0 {
            stop.store(true, Ordering::Relaxed);
        }
    })
    .expect("a good run");
    assert!(report.stopped && report.steps.len() == 1, "{report}");
    let step = &report.steps[0];
    assert!(step.counts.requests > 0 && step.elapsed < Duration::from_secs(3600));
    assert!(report.to_string().contains(", 0 wrong"), "{report}");
}

/// A stall delays every request that is due during it, and an open loop counts all of them. With
/// 1000 requests a second and a stall of 400 ms, at least 250 answers are 100 ms late. A closed
/// loop with one connection would have counted one.
#[test]
fn an_open_loop_charges_a_stall_to_every_request_that_it_delays() {
    for gaps in [Gaps::Even, Gaps::Poisson, Gaps::Etc] {
        let settings = Settings {
            threads: 1,
            connections: 1,
            pace: Pace::Open {
                rate: Some(1000.0),
                gaps,
            },
            steps: vec![requests(900)],
            ..mixed(0.5, Wrong::Stalls(400))
        };
        let report = run(&settings);
        let step = &report.steps[0];
        let late = |h: &senko_workload::Histogram| {
            h.buckets()
                .filter(|b| b.0 > 100_000_000)
                .map(|b| b.2)
                .sum::<u64>()
        };
        assert_eq!(step.counts.requests, 900, "{report}");
        assert!(
            late(&step.get) + late(&step.set) > 200,
            "{gaps:?}: {report}"
        );
    }
}

#[test]
fn seconds_add_up_to_the_whole() {
    let settings = Settings {
        pace: Pace::Open {
            rate: Some(500.0),
            gaps: Gaps::Even,
        },
        steps: vec![
            Step::WarmUp(Duration::from_millis(300)),
            Step::Mix(Amount::For(Duration::from_millis(2300))),
        ],
        ..mixed(0.5, Wrong::Nothing)
    };
    let mut seconds = Vec::new();
    let report = senko_load::run(&settings, &mut |second| {
        if matches!(second.step, Step::Mix(_)) {
            seconds.push((second.second, second.stretch.counts.requests, second.done));
        }
    })
    .expect("a good run");
    assert!(
        seconds.len() >= 2 && seconds.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "{seconds:?}"
    );
    assert!(
        seconds
            .iter()
            .all(|(_, _, done)| (0.0..=1.0).contains(done))
    );
    let step = &report.steps[0];
    assert_eq!(report.steps.len(), 1, "the warm-up is not reported");
    assert!(seconds.iter().map(|second| second.1).sum::<u64>() <= step.counts.requests);
    assert_eq!(step.get.len() + step.set.len(), step.counts.requests);
    assert_eq!(report.verdict(None), Ok(()));
}
