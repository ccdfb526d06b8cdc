// SPDX-License-Identifier: Apache-2.0
//! Threads under contention: their transactions, run again one by one in the order of their
//! numbers, see what they saw.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use senko_dbm::{Database, DbmError, Durability, Options, Record};
use senko_io::faulty::FaultyDevice;
use senko_workload::Rng;

use crate::support::{content, number, quiet, seed};

type Key = Vec<u8>;

#[derive(Debug)]
enum Saw {
    Get(Key, Option<Vec<u8>>),
    Range(Key, Key, Vec<Record>),
}

struct Done {
    number: u64,
    /// Commits that had returned when it began, and those that had begun when it ended.
    began: u64,
    ended: u64,
    saw: Vec<Saw>,
    wrote: Vec<(Key, Option<Vec<u8>>)>,
}

fn key(rng: &mut Rng, keys: u64) -> Key {
    rng.below(keys).to_be_bytes()[6..].to_vec()
}

/// A transaction that reads and writes at random; it writes its own number to a record, so that the
/// order is known.
fn one(
    db: &Database,
    table: &senko_dbm::Table,
    rng: &mut Rng,
    keys: u64,
    clock: &AtomicU64,
) -> Option<Done> {
    let began = clock.fetch_add(1, Ordering::SeqCst);
    let mut tx = db.begin();
    let (mut saw, mut wrote) = (Vec::new(), Vec::new());
    for _ in 0..1 + rng.below(5) {
        let key = key(rng, keys);
        match rng.below(6) {
            0 => {
                let mut to = key.clone();
                to[1] = to[1].saturating_add(3);
                let records = tx.range(table, &key, Some(&to)).unwrap();
                saw.push(Saw::Range(key, to, records));
            }
            1..4 => saw.push(Saw::Get(key.clone(), tx.get(table, &key).unwrap())),
            4 => {
                tx.delete(table, &key).unwrap();
                wrote.push((key, None));
            }
            _ => {
                let value = rng.next_u64().to_le_bytes().to_vec();
                tx.put(table, &key, &value).unwrap();
                wrote.push((key, Some(value)));
            }
        }
        // What a transaction wrote it sees itself, which says nothing of the others.
        saw.retain(|saw| match saw {
            Saw::Get(key, _) => !wrote.iter().any(|(k, _)| k == key),
            Saw::Range(from, to, _) => !wrote.iter().any(|(k, _)| from <= k && k < to),
        });
        std::thread::yield_now();
    }
    if wrote.is_empty() {
        return None;
    }
    match tx.commit_numbered(Durability::None) {
        Ok(number) => Some(Done {
            number,
            began,
            ended: clock.fetch_add(1, Ordering::SeqCst),
            saw,
            wrote,
        }),
        Err(DbmError::Conflict) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Transactions of one round, so that their records fit into memory.
const ROUND: u64 = 100_000;

/// 10^5 transactions commit; `SENKO_DBM_TRANSACTIONS` sets another number.
#[test]
fn transactions_of_threads_are_serial_in_the_order_of_their_numbers() {
    let seed = seed("serial");
    let device = FaultyDevice::new(60_000, seed);
    let options = Options {
        log_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        ..Options::default()
    };
    let db = Database::open_device(Arc::clone(&device) as _, options).unwrap();
    let table = db.create_table("t").unwrap();
    let clock = AtomicU64::new(0);
    let wanted = number("SENKO_DBM_TRANSACTIONS", ROUND);
    let mut model: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    let mut committed = 0;
    while committed < wanted {
        let each = (wanted - committed).min(ROUND).div_ceil(8);
        let work = &|nth: u64| {
            let mut rng = Rng::new(seed + nth + committed);
            let keys = [20, 200, 5000][nth as usize % 3];
            let mut done = Vec::new();
            while (done.len() as u64) < each {
                done.extend(one(&db, &table, &mut rng, keys, &clock));
            }
            done
        };
        let mut all: Vec<Done> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|nth| scope.spawn(move || work(nth))).collect();
            let done = threads.into_iter().flat_map(|t| t.join().unwrap());
            done.collect()
        });
        all.sort_by_key(|done| done.number);
        replay(&mut model, &all);
        committed += all.len() as u64;
    }
    let conflicts = db.stats().conflicts;
    println!("{committed} transactions committed, {conflicts} conflicted");
    assert!(conflicts > 0);
    assert_eq!(content(&db.snapshot(), &table), model);
    db.close().unwrap();
    let db = Database::open_device(device as _, quiet()).unwrap();
    assert_eq!(content(&db.snapshot(), &table), model);
}

/// Runs transactions again one by one, on what was there before them.
fn replay(model: &mut BTreeMap<Key, Vec<u8>>, all: &[Done]) {
    for done in all {
        for saw in &done.saw {
            match saw {
                Saw::Get(key, value) => {
                    assert_eq!(
                        model.get(key),
                        value.as_ref(),
                        "transaction {}",
                        done.number
                    );
                }
                Saw::Range(from, to, records) => {
                    let expected: Vec<Record> = model
                        .range(from.clone()..to.clone())
                        .map(|(k, v)| (k.clone(), v.clone()))
                        .collect();
                    assert_eq!(*records, expected, "transaction {}", done.number);
                }
            }
        }
        for (key, value) in &done.wrote {
            match value {
                Some(value) => drop(model.insert(key.clone(), value.clone())),
                None => drop(model.remove(key)),
            }
        }
    }
    // Real-time order: who had ended before another began comes first.
    let mut earliest_end = u64::MAX;
    for done in all.iter().rev() {
        assert!(done.began < earliest_end, "{} is out of order", done.number);
        earliest_end = earliest_end.min(done.ended);
    }
}

/// A thread that stops at any step of its validation stops nobody.
#[test]
fn a_thread_that_is_suspended_in_validation_stops_nobody() {
    for stop_at in 0..5 {
        let gate = Arc::new((Mutex::new(true), Condvar::new()));
        let victim: Arc<Mutex<Option<std::thread::ThreadId>>> = Arc::default();
        let stopped = Arc::new(AtomicBool::new(false));
        let pause = {
            let (gate, victim, stopped) = (gate.clone(), victim.clone(), stopped.clone());
            move |step| {
                if step != stop_at || *victim.lock().unwrap() != Some(std::thread::current().id()) {
                    return;
                }
                stopped.store(true, Ordering::SeqCst);
                let mut shut = gate.0.lock().unwrap();
                while *shut {
                    shut = gate.1.wait(shut).unwrap();
                }
            }
        };
        let options = Options {
            pause: Some(Arc::new(pause)),
            ..quiet()
        };
        let db = Database::open_device(FaultyDevice::new(3000, 1), options).unwrap();
        let table = db.create_table("t").unwrap();
        std::thread::scope(|scope| {
            let mut tx = db.begin();
            tx.get(&table, b"read").unwrap();
            tx.put(&table, b"victim", b"1").unwrap();
            // Something between its start and its end, so that it has somebody to look at.
            db.run(Durability::None, |tx| tx.put(&table, b"other", b"1"))
                .unwrap();
            let name = victim.clone();
            let suspended = scope.spawn(move || {
                *name.lock().unwrap() = Some(std::thread::current().id());
                tx.commit(Durability::None).unwrap();
            });
            while !stopped.load(Ordering::SeqCst) {
                assert!(!suspended.is_finished(), "step {stop_at} never came");
                std::thread::yield_now();
            }
            for nth in 0..100u8 {
                db.run(Durability::Synced, |tx| tx.put(&table, &[nth], b"2"))
                    .unwrap();
            }
            let seen = db.snapshot();
            assert_eq!(seen.get(&table, &[99]).unwrap().as_deref(), Some(&b"2"[..]));
            // It has its place in the order before them, and others gave it its end.
            assert!(seen.get(&table, b"victim").unwrap().is_some());
            *gate.0.lock().unwrap() = false;
            gate.1.notify_all();
            suspended.join().unwrap();
        });
    }
}
