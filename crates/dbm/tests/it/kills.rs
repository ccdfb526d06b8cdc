// SPDX-License-Identifier: Apache-2.0
//! Processes that are killed while they commit. The child is this test binary again. It prints each
//! returned commit on its standard output, and is killed after a random one.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use senko_dbm::{Database, Durability, Options};
use senko_workload::Rng;

use crate::support::{Limit, number, seed, units, usual};

const THREADS: u64 = 3;
/// The path of the child's database; only the child has it.
const CHILD: &str = "SENKO_DBM_CHILD";

/// The child: each thread counts in its own record, and all threads together count in one.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    let options = Options {
        log_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        // Some processes have small units, others go on without.
        units: units(std::process::id().is_multiple_of(2)),
        ..Options::default()
    };
    let db = Database::open(Path::new(&path), options).unwrap();
    let table = db.create_table("t").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let count = |value: Option<Vec<u8>>| {
                    value.map_or(0, |v| u64::from_be_bytes(v[..8].try_into().unwrap()))
                };
                loop {
                    let own = db
                        .run(Durability::Buffered, |tx| {
                            let own = count(tx.get(table, &[thread as u8])?) + 1;
                            let all = count(tx.get(table, b"all")?) + 1;
                            let pad = vec![own as u8; (own % 3000) as usize];
                            let value = [&own.to_be_bytes()[..], &pad].concat();
                            tx.put(table, &[thread as u8], &value)?;
                            tx.put(table, b"all", &all.to_be_bytes())?;
                            Ok(own)
                        })
                        .unwrap();
                    if own % 200 == 0 {
                        db.sync().unwrap();
                    }
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "done {thread} {own}").unwrap();
                    out.flush().unwrap();
                }
            });
        }
    });
}

/// After each kill the database opens, every returned commit is there, the sum of the threads' own
/// counts equals their common count, and every page is intact. `SENKO_DBM_KILLS` sets the number of
/// rounds.
#[test]
fn a_killed_process_loses_no_commit_that_had_returned() {
    let mut rng = Rng::new(seed("kills"));
    let (rounds, limit) = (number("SENKO_DBM_KILLS", 15), Limit::new());
    let mut folder = senko_dbm::example::Folder::new();
    let (mut most, mut acknowledged) = (0, [0u64; THREADS as usize]);
    // Kills since the database was last checked.
    let mut unlooked = 0;
    let mut kills = 0;
    for round in 0..rounds {
        if limit.is_over(format_args!("{round} of {rounds} kills")) {
            break;
        }
        if round % 50 == 0 {
            folder = senko_dbm::example::Folder::new();
            (acknowledged, unlooked) = ([0; THREADS as usize], 0);
        }
        let path = folder.path().join("data");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kills::child", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let behind = 1 + rng.below(600);
        let mut told = 0;
        for line in out.lines() {
            let line = line.unwrap();
            let mut words = line.split(' ');
            if words.next() != Some("done") {
                continue;
            }
            // The kill may have truncated the last line.
            let (Some(thread), Some(own)) = (words.next(), words.next()) else {
                continue;
            };
            let thread: usize = thread.parse().unwrap();
            let own: u64 = own.parse().unwrap();
            assert!(own > acknowledged[thread], "{own} was done before");
            acknowledged[thread] = own;
            told += 1;
            if told == behind {
                child.kill().unwrap();
            }
        }
        let status = child.wait().unwrap();
        assert!(told >= behind && status.code().is_none(), "{status}");
        kills += 1;

        if rng.below(3) == 0 {
            // The next child recovers what this one left.
            unlooked += 1;
            continue;
        }
        let reader = Database::open_to_read(&path, Options::default()).unwrap();
        let db = Database::open(&path, usual()).unwrap();
        let mut counted = acknowledged;
        for (name, db) in [("reader", &reader), ("writer", &db)] {
            let (table, now) = (db.table("t").unwrap(), db.snapshot());
            let count = |key: &[u8]| {
                let value = now.get(&table, key).unwrap();
                value.map_or(0, |v| u64::from_be_bytes(v[..8].try_into().unwrap()))
            };
            let mut sum = 0;
            for thread in 0..THREADS {
                let (found, least) = (count(&[thread as u8]), acknowledged[thread as usize]);
                // Each child may have committed one more than it could report.
                assert!(
                    (least..=least + 1 + unlooked).contains(&found),
                    "round {round}, {name}, thread {thread}: {found}, and {least} had returned"
                );
                sum += found;
                counted[thread as usize] = found;
            }
            assert_eq!(count(b"all"), sum, "round {round}, {name}");
            let verified = db.verify().unwrap();
            assert!(verified.problems.is_empty(), "{:?}", verified.problems);
            most = most.max(sum);
        }
        (acknowledged, unlooked) = (counted, 0);
        drop(reader);
        db.close().unwrap();
    }
    println!("{kills} kills, up to {most} commits in one database");
}
