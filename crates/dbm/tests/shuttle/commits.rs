// SPDX-License-Identifier: Apache-2.0
//! The list of commits, its validation, and the numbers that become visible.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use senko_dbm::Durability;
use senko_io::faulty::FaultyDevice;
use senko_workload::Rng;
use shuttle::rand::{RngCore, thread_rng};
use shuttle::thread;

use crate::replay::{Done, one, replay};
use crate::{check, open};

/// Who commits is a function of the list (ORDER-1 to ORDER-3).
#[test]
fn who_commits_is_a_function_of_the_list() {
    check("decisions", 3000, senko_dbm::scheduled::commits_of_threads);
}

/// Three threads run transactions on five keys. Executed again one by one in the order of their
/// numbers, each sees the same. A transaction that began after another had ended comes after it.
#[test]
fn transactions_are_serial() {
    check("serial", 400, || {
        let db = open(&FaultyDevice::new(300, 1));
        let table = db.create_table("t").unwrap();
        let clock = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (db, table, clock) = (db.clone(), table.clone(), clock.clone());
                let mut rng = Rng::new(thread_rng().next_u64());
                thread::spawn(move || {
                    let transaction = |_| one(&db, &table, &mut rng, 5, &clock);
                    (0..3).filter_map(transaction).collect::<Vec<Done>>()
                })
            })
            .collect();
        let mut all: Vec<Done> = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        let mut model = BTreeMap::new();
        replay(&mut model, &mut all);
        let now = db.snapshot().cursor(&table, ..).unwrap();
        let now: BTreeMap<_, _> = now.map(Result::unwrap).collect();
        assert_eq!(now, model);
    });
}

/// A transaction that reads the whole table commits at the latest with its tenth try, whatever two
/// writers do meanwhile (TURN-1 to TURN-3). A second such transaction takes its turn after it. Some
/// of the writers' commits are unrelated and never wait.
#[test]
fn a_long_transaction_commits_beside_short_ones() {
    check("turns", 150, || {
        let db = open(&FaultyDevice::new(300, 1));
        let table = db.create_table("t").unwrap();
        let other = db.create_table("other").unwrap();
        let writers = (0..2u8).map(|writer| {
            let (db, table, other) = (db.clone(), table.clone(), other.clone());
            thread::spawn(move || {
                for nth in 0..25u8 {
                    let table = if nth % 5 == 4 { &other } else { &table };
                    db.run(Durability::None, |tx| tx.put(table, &[writer], &[nth]))
                        .unwrap();
                }
            })
        });
        let readers = (2..4u8).map(|reader| {
            let (db, table) = (db.clone(), table.clone());
            thread::spawn(move || {
                let mut tries = 0;
                db.run(Durability::None, |tx| {
                    tries += 1;
                    let before = tx.range(&table, b"", None)?;
                    thread::yield_now();
                    let again = tx.range(&table, b"", None)?;
                    assert_eq!(before, again);
                    tx.put(&table, &[reader], &[before.len() as u8])
                })
                .unwrap();
                tries
            })
        });
        let readers: Vec<_> = readers.collect();
        for writer in writers.collect::<Vec<_>>() {
            writer.join().unwrap();
        }
        for reader in readers {
            let tries = reader.join().unwrap();
            assert!(tries <= 10, "{tries} tries");
        }
        assert_eq!(db.snapshot().count(&table).unwrap(), 4);
    });
}
