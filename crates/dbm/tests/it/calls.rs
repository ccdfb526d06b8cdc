// SPDX-License-Identifier: Apache-2.0
//! Power cuts below the file layer: a process commits under a recorder of its calls, and each drawn
//! cut of the record is opened.
//!
//! A flush of the file layer once took another thread's flush for its own, so synced commits were
//! acknowledged that no flush covered. The tests with a device in memory lie above that layer and
//! could not see it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_dbm::{Database, Durability, Options, Table};
use senko_workload::Rng;
use senko_workload::rng::mix64;

use crate::recorded::engines::{self, Rounds};
use crate::recorded::{
    Image, Log, Orders, PagesDevice, Recorder, Scratch, mark, remove_empty_drafts,
};
use crate::support::{Limit, number, seed, units};

/// The child's database, threads, commits and seed; only the child has it.
const CHILD: &str = "SENKO_DBM_RECORDED";

/// Keys of the records, beside the count of commits.
const KEYS: u64 = 120;

/// The records as commits make them: for each key, the commit that put it.
type State = BTreeMap<u64, u64>;

/// What commit `n` changes. It depends on nothing else, so the count of commits tells the state.
fn change(n: u64, state: &mut State) {
    match mix64(n) % 16 {
        _ if n.is_multiple_of(3 * KEYS) => state.clear(),
        0 => drop(state.remove(&(n % KEYS))),
        _ => drop(state.insert(n % KEYS, n)),
    }
}

fn value(n: u64) -> Vec<u8> {
    let drawn = mix64(n);
    let bytes = match drawn % 16 {
        1 => 60_000,
        2..=5 => 1200 + (drawn >> 8) % 12_000,
        _ => (drawn >> 8) % 900,
    };
    let pattern = n.to_be_bytes();
    (0..8 + bytes as usize).map(|at| pattern[at % 8]).collect()
}

fn key(nth: u64) -> [u8; 8] {
    nth.to_be_bytes()
}

fn count(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |v| u64::from_be_bytes(v[..8].try_into().unwrap()))
}

fn options() -> Options {
    Options {
        log_bytes: 256 << 10,
        cache_bytes: 1 << 20,
        // Each process draws anew.
        units: units(mix64(std::process::id().into()).is_multiple_of(2)),
        ..Options::default()
    }
}

fn commit(db: &Database, table: &Table, durability: Durability) -> u64 {
    let done = db.run(durability, |tx| {
        let n = count(tx.get(table, b"all")?) + 1;
        match mix64(n) % 16 {
            _ if n.is_multiple_of(3 * KEYS) => tx.delete_range(table, &key(0), Some(&key(KEYS)))?,
            0 => tx.delete(table, &key(n % KEYS))?,
            _ => tx.put(table, &key(n % KEYS), &value(n))?,
        }
        tx.put(table, b"all", &n.to_be_bytes())?;
        Ok(n)
    });
    done.unwrap()
}

/// The child: threads commit one after the other, and tell which commits are durable.
#[test]
fn child() {
    let Ok(text) = std::env::var(CHILD) else {
        return;
    };
    let mut words = text.split(' ');
    let path = words.next().unwrap().to_owned();
    let mut numbers = words.map(|word| word.parse::<u64>().unwrap());
    let mut next = || numbers.next().unwrap();
    let (threads, commits, seed) = (next(), next(), next());
    let db = Database::open(Path::new(&path), options()).unwrap();
    let table = db.create_table("t").unwrap();
    mark("0");
    let left = AtomicU64::new(commits);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (db, table, left) = (&db, &table, &left);
            scope.spawn(move || {
                let mut rng = Rng::for_stream(seed, thread);
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |l| l.checked_sub(1))
                    .is_ok()
                {
                    let durability = match rng.below(8) {
                        0..=3 => Durability::Synced,
                        4..=6 => Durability::Buffered,
                        _ => Durability::None,
                    };
                    let n = commit(db, table, durability);
                    let mut durable = durability == Durability::Synced;
                    if rng.below(16) == 0 {
                        db.sync().unwrap();
                        durable = true;
                    }
                    if rng.below(48) == 0 {
                        db.checkpoint().unwrap();
                        durable = true;
                    }
                    if durable {
                        mark(&n.to_string());
                    }
                }
            });
        }
    });
    let n = count(db.snapshot().get(&table, b"all").unwrap());
    db.close().unwrap();
    mark(&n.to_string());
}

fn run(recorder: &Recorder, path: &Path, numbers: (u64, u64, u64), orders: &Orders) {
    let (threads, commits, seed) = numbers;
    let told = format!("{} {threads} {commits} {seed}", path.display());
    let status = recorder.run_test("calls::child", (CHILD, told), orders);
    assert_eq!(status.success(), orders.kill.is_none(), "{status}");
}

/// The state after each count of commits.
fn states(most: u64) -> Vec<State> {
    let mut states = vec![State::new()];
    for n in 1..=most {
        let mut next = states.last().unwrap().clone();
        change(n, &mut next);
        states.push(next);
    }
    states
}

/// Checks an open database: the state after some commit, not before `least`.
fn check(db: &Database, least: u64, made: bool, states: &[State]) -> Result<u64, String> {
    let Ok(table) = db.table("t") else {
        return if made {
            Err("the table is gone".to_owned())
        } else {
            Ok(0)
        };
    };
    let now = db.snapshot();
    let fail = |error: senko_dbm::DbmError| error.to_string();
    let n = count(now.get(&table, b"all").map_err(fail)?);
    if n < least {
        return Err(format!("{n} commits, and {least} were durable"));
    }
    let mut expected = states[n as usize].iter();
    for record in now.cursor(&table, ..&key(KEYS)[..]).map_err(fail)? {
        let (found, bytes) = record.map_err(fail)?;
        let Some((nth, from)) = expected.next() else {
            return Err("a record too many".to_owned());
        };
        if found != key(*nth) || bytes != value(*from) {
            return Err(format!(
                "{found:?} after {n} commits is of {:?}, not {from}",
                &bytes[..8]
            ));
        }
    }
    if expected.next().is_some() {
        return Err("a record is missing".to_owned());
    }
    Ok(n)
}

/// Checks the whole database, each copy of its superblock too.
fn verify(db: &Database) -> Result<(), String> {
    let verified = db.verify().map_err(|error| error.to_string())?;
    match &verified.problems[..] {
        [] => Ok(()),
        problems => Err(format!("{problems:?}")),
    }
}

/// Opens what a cut left: in memory, or as files.
fn open(image: &Image, name: &str, folder: Option<&Path>) -> Result<Database, String> {
    let fail = |error: senko_dbm::DbmError| error.to_string();
    if let Some(folder) = folder {
        image.write_to(folder);
        return Database::open(&folder.join(name), options()).map_err(fail);
    }
    Database::open_device(
        PagesDevice::new(image.files[name].clone()),
        crate::support::quiet(),
    )
    .map_err(fail)
}

/// Opens drawn cuts after `from`. Returns how many.
fn cut(log: &Log, from: u64, cuts: u64, rng: &mut Rng) -> u64 {
    let marks: Vec<(u64, u64)> = log
        .marks()
        .iter()
        .map(|(at, text)| (*at, text.parse().unwrap()))
        .collect();
    let most = marks.iter().map(|(_, n)| *n).max().unwrap();
    // Commits that were not told of, at most the last ones of each thread.
    let states = states(most + 500);
    let near: Vec<u64> = marks.iter().map(|(at, _)| *at).collect();
    let before = |moment: u64| {
        let before = marks.iter().take_while(|(at, _)| *at <= moment);
        before.map(|(_, n)| *n).max()
    };
    let made = |moment| before(moment).is_some();
    engines::cut(
        log,
        (from, cuts),
        &near,
        rng,
        made,
        |moment, image, folder| {
            let db = open(image, "data", folder)?;
            let least = before(moment);
            let n = check(&db, least.unwrap_or(0), least.is_some(), &states)?;
            // It goes on from there.
            if let Ok(table) = db.table("t") {
                assert_eq!(commit(&db, &table, Durability::Synced), n + 1);
            }
            verify(&db)
        },
    )
}

/// As many rounds as `SENKO_DBM_CUTS` asks for.
fn rounds(test: &str, rounds: impl FnOnce(Rounds<'_>)) {
    let (seed, limit) = (seed(test), Limit::new());
    let cuts = number("SENKO_DBM_CUTS", 600);
    rounds(Rounds {
        seed,
        cuts,
        is_over: &|done| limit.is_over(format_args!("{done} of {cuts} cuts")),
        run: &run,
        cut: &cut,
    });
}

/// With 1, 2 and 8 threads, and calls that take drawn times. `SENKO_DBM_CUTS` sets the number of
/// cuts.
#[test]
fn a_synced_commit_is_covered_by_a_flush_of_the_kernel() {
    rounds("calls", |rounds| rounds.of_whole_runs(|_| 600));
}

/// A process once trusted what a killed one had written and not flushed: its own synced commit then
/// stood on pages that a power cut took away. A copy of the superblock that the killed one had left
/// unwritten was told as damage until another checkpoint came.
#[test]
fn a_process_flushes_what_a_killed_one_left() {
    rounds("left", |rounds| rounds.after_a_kill(300));
}

/// The child that does one operation: its name, database and copy.
const WORKER: &str = "SENKO_DBM_KILLED";

const OPERATIONS: [&str; 7] = [
    "commit",
    "checkpoint",
    "grow",
    "shrink",
    "compact",
    "backup",
    "repair",
];

/// Commits before an operation.
const BEFORE: u64 = 250;

fn operate(operation: &str, path: &Path, copy: &Path) -> Result<(), String> {
    let fail = |error: senko_dbm::DbmError| error.to_string();
    match operation {
        "compact" => {
            let compacted = Database::compact(path, options(), |_| true);
            return compacted.map(drop).map_err(fail);
        }
        "backup" | "repair" => {
            let db = Database::open_to_read(path, options()).map_err(fail)?;
            let copied = match operation {
                "backup" => db.backup(copy, |_| true),
                _ => db.repair(copy, |_| true),
            };
            return copied.map(drop).map_err(fail);
        }
        _ => {}
    }
    let db = Database::open(path, options()).map_err(fail)?;
    let table = db.table("t").map_err(fail)?;
    let tell = |n: u64| {
        if std::env::var_os(WORKER).is_some() {
            mark(&n.to_string());
        }
    };
    match operation {
        "commit" => (0..4).for_each(|_| tell(commit(&db, &table, Durability::Synced))),
        "checkpoint" => {
            // A kill loses nothing that was handed to the system.
            (0..4).for_each(|_| tell(commit(&db, &table, Durability::Buffered)));
            db.checkpoint().map_err(fail)?;
        }
        "grow" => {
            let put = |tx: &mut senko_dbm::Transaction| tx.put(&table, b"large", &vec![7; 3 << 20]);
            db.run(Durability::Synced, put).map_err(fail)?;
        }
        _ => {
            // All records go, at the next multiple.
            while !commit(&db, &table, Durability::None).is_multiple_of(3 * KEYS) {}
            for _ in 0..3 {
                db.checkpoint().map_err(fail)?;
            }
        }
    }
    db.close().map_err(fail)
}

#[test]
fn worker() {
    let Ok(text) = std::env::var(WORKER) else {
        return;
    };
    let words: Vec<&str> = text.split(' ').collect();
    mark(&BEFORE.to_string());
    operate(words[0], Path::new(words[1]), Path::new(words[2])).unwrap();
}

/// A process that was killed in the middle of a compaction once left a file that refused every
/// later one. Here each operation is killed at its calls: the next process finds every commit that
/// had returned, does the operation, and leaves no file behind. `SENKO_DBM_CALLS` sets the number
/// of kills of each operation.
#[test]
fn a_kill_at_any_call_leaves_a_database_that_goes_on() {
    let (seed, limit) = (seed("kill at calls"), Limit::new());
    let mut rng = Rng::new(seed);
    let most = number("SENKO_DBM_CALLS", 12);
    let states = states(4 * BEFORE);
    let prepared = Scratch::new();
    let path = prepared.path().join("data");
    let db = Database::open(&path, options()).unwrap();
    let table = db.create_table("t").unwrap();
    for n in 1..=BEFORE {
        assert_eq!(commit(&db, &table, Durability::None), n);
    }
    db.close().unwrap();
    let prepared = std::fs::read(path).unwrap();
    for operation in OPERATIONS {
        let worker = ("calls::worker", WORKER);
        let start = |kill| engines::operate_once(worker, operation, &prepared, kill);
        let (status, _, log) = start(None);
        assert!(status.success(), "{operation}: {status}");
        // A power cut at any time of it, too; but that may take buffered commits.
        if operation != "checkpoint" {
            cut(&log, 0, 2 * most.min(500), &mut rng);
        }
        let calls = log.kills();
        let mut made = 0;
        for kill in log.draw_kills(most, &mut rng) {
            if limit.is_over(operation) {
                return;
            }
            let (status, folder, log) = start(Some(kill));
            // The keeper's calls differ from run to run.
            if status.success() {
                continue;
            }
            made += 1;
            let what = format!("{operation} killed at {kill:?} of {calls}");
            let told = log
                .marks()
                .iter()
                .map(|(_, text)| text.parse().unwrap())
                .max();
            let least = told.unwrap_or(BEFORE);
            let (path, copy) = (folder.path().join("data"), folder.path().join("copy"));
            let found = Database::open(&path, options())
                .map_err(|error| error.to_string())
                .and_then(|db| check(&db, least, true, &states));
            let found = found.unwrap_or_else(|text| panic!("{what}: {text}"));
            remove_empty_drafts(folder.path(), &["data", "copy"]);
            if copy.exists() {
                let copied = Database::open_to_read(&copy, options()).unwrap();
                check(&copied, BEFORE, true, &states)
                    .unwrap_or_else(|text| panic!("{what}: {text}"));
                drop(copied);
                std::fs::remove_file(&copy).unwrap();
            }
            operate(operation, &path, &copy).unwrap_or_else(|text| panic!("{what}: {text}"));
            let db = Database::open(&path, options()).unwrap();
            check(&db, found, true, &states).unwrap_or_else(|text| panic!("{what}, again: {text}"));
            verify(&db).unwrap_or_else(|text| panic!("{what}, again: {text}"));
            drop(db);
            engines::nothing_else_is_left(folder.path(), &what);
        }
        println!("{operation}: {made} kills at {calls} calls");
        assert!(made > 0, "{operation} was never killed");
    }
}
