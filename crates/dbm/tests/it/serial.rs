// SPDX-License-Identifier: Apache-2.0
//! Threads under contention: their transactions are executed again one by one in the order of their
//! numbers, and must see the same values.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use senko_dbm::{Database, Durability, Options};
use senko_io::faulty::FaultyDevice;
use senko_workload::Rng;

use crate::replay::{Done, Key, one, replay};
use crate::support::{Limit, content, number, quiet, seed, usual};

/// Transactions of one round; their records must fit into memory.
const ROUND: u64 = 100_000;

/// 10^5 transactions commit while others only read; `SENKO_DBM_TRANSACTIONS` sets another number.
#[test]
fn transactions_of_threads_are_serial_in_the_order_of_their_numbers() {
    let seed = seed("serial");
    let device = FaultyDevice::new(60_000, seed);
    let options = Options {
        log_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        ..usual()
    };
    let db = Database::open_device(Arc::clone(&device) as _, options).unwrap();
    let table = db.create_table("t").unwrap();
    let clock = AtomicU64::new(0);
    let wanted = number("SENKO_DBM_TRANSACTIONS", ROUND);
    let mut model: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    let (mut committed, mut read, limit) = (0, 0, Limit::new());
    while committed < wanted {
        let each = (wanted - committed).min(ROUND).div_ceil(8);
        let work = &|nth: u64| {
            let mut rng = Rng::new(seed + nth + committed);
            let keys = [20, 200, 5000][nth as usize % 3];
            let (mut done, mut wrote) = (Vec::new(), 0);
            while wrote < each {
                let transaction = one(&db, &table, &mut rng, keys, &clock);
                wrote += u64::from(transaction.as_ref().is_some_and(Done::writes));
                done.extend(transaction);
            }
            done
        };
        let mut all: Vec<Done> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|nth| scope.spawn(move || work(nth))).collect();
            let done = threads.into_iter().flat_map(|t| t.join().unwrap());
            done.collect()
        });
        replay(&mut model, &mut all);
        let wrote = all.iter().filter(|done| done.writes()).count() as u64;
        committed += wrote;
        read += all.len() as u64 - wrote;
        if limit.is_over(format_args!("{committed} of {wanted} transactions")) {
            break;
        }
    }
    let conflicts = db.stats().conflicts;
    println!("{committed} transactions committed, {read} only read, {conflicts} conflicted");
    assert!(conflicts > 0);
    assert_eq!(content(&db.snapshot(), &table), model);
    db.close().unwrap();
    let db = Database::open_device(device as _, quiet()).unwrap();
    assert_eq!(content(&db.snapshot(), &table), model);
}

/// A thread that is stopped at any step of its validation blocks no other. Before it has its place
/// in the order, it comes after the others; then others apply its commit.
#[test]
fn a_thread_that_is_suspended_in_validation_stops_nobody() {
    for stop_at in 0..4 {
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
            // Work between begin and commit, so that the transaction overlaps others.
            db.run(Durability::None, |tx| tx.put(&table, b"other", b"1"))
                .unwrap();
            let name = victim.clone();
            let suspended = scope.spawn(move || {
                *name.lock().unwrap() = Some(std::thread::current().id());
                tx.commit_numbered(Durability::None).unwrap()
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
            let is_there = seen.get(&table, b"victim").unwrap().is_some();
            assert_eq!(is_there, stop_at == 3, "step {stop_at}");
            *gate.0.lock().unwrap() = false;
            gate.1.notify_all();
            let number = suspended.join().unwrap();
            assert_eq!(number < seen.commit(), is_there);
            assert_eq!(db.snapshot().commit(), number.max(seen.commit()));
        });
    }
}
