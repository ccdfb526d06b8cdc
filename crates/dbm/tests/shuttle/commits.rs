// SPDX-License-Identifier: Apache-2.0
//! The list of commits, its validation, and the numbers that become visible.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use senko_io::faulty::FaultyDevice;
use senko_workload::Rng;
use shuttle::rand::{RngCore, thread_rng};
use shuttle::thread;

use crate::replay::{Done, one, replay};
use crate::{check, open};

/// Every thread that decides a transaction comes to the list's result (ORDER-1 to ORDER-3).
#[test]
fn a_decision_is_a_function_of_the_list() {
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
