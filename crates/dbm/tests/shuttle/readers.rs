// SPDX-License-Identifier: Apache-2.0
//! Versions of pages and their readers, while commits and checkpoints replace, move and remove
//! pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_dbm::{Cached, Database, Durability, Snapshot, Table};
use senko_io::faulty::FaultyDevice;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::{check, open};

const KEYS: u64 = 9;

/// The table's records in a state. A leaf has at most three. Each state has different records, so
/// leaves split, merge and disappear.
fn model(state: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    (0..KEYS)
        .filter(|key| !(key + state).is_multiple_of(3))
        .map(|key| {
            (
                vec![key as u8],
                [&state.to_be_bytes()[..], &[7; 1100]].concat(),
            )
        })
        .collect()
}

/// Goes to the next state.
fn advance(db: &Database, table: &Table, state: u64) {
    let next = model(state);
    db.run(Durability::None, |tx| {
        if state % 4 == 3 {
            tx.delete_range(table, &[0], Some(&[5]))?;
        }
        for key in 0..KEYS {
            match next.get(&vec![key as u8]) {
                Some(value) => tx.put(table, &[key as u8], value)?,
                None => tx.delete(table, &[key as u8])?,
            }
        }
        Ok(())
    })
    .unwrap();
}

/// The state that a snapshot shows, which must be one.
fn state_of(snapshot: &Snapshot, table: &Table) -> u64 {
    let found: BTreeMap<_, _> = snapshot
        .cursor(table, ..)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let first = found.values().next().unwrap();
    let state = u64::from_be_bytes(first[..8].try_into().unwrap());
    assert_eq!(found, model(state), "state {state} is not whole");
    assert_eq!(snapshot.count(table).unwrap(), found.len() as u64);
    state
}

/// A snapshot shows one state, the same one again later, and never one older than the newest commit
/// when it began (PLACE-2, APPLY-2). Meanwhile commits make versions, pages disappear and their
/// numbers are reused, and checkpoints place versions, clean segments and write them again.
#[test]
fn a_snapshot_keeps_what_it_sees() {
    check("snapshots", 150, || {
        let device = FaultyDevice::new(300, 1);
        let db = open(&device);
        let table = db.create_table("t").unwrap();
        advance(&db, &table, 0);
        let newest = Arc::new(AtomicU64::new(0));
        let writer = {
            let (db, table, newest) = (db.clone(), table.clone(), newest.clone());
            thread::spawn(move || {
                for state in 1..6 {
                    advance(&db, &table, state);
                    newest.store(state, Ordering::SeqCst);
                }
            })
        };
        let cleaner = {
            let db = db.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    db.checkpoint_of(thread_rng().gen_range(0..8)).unwrap();
                }
            })
        };
        let reader = {
            let (db, table, newest) = (db.clone(), table.clone(), newest.clone());
            thread::spawn(move || {
                let mut last = 0;
                for _ in 0..2 {
                    let least = newest.load(Ordering::SeqCst);
                    let snapshot = db.snapshot();
                    let state = state_of(&snapshot, &table);
                    assert!(state >= least.max(last), "{state} after {least} and {last}");
                    assert_eq!(state_of(&snapshot, &table), state);
                    last = state;
                }
            })
        };
        for thread in [writer, cleaner, reader] {
            thread.join().unwrap();
        }
        assert_eq!(state_of(&db.snapshot(), &table), 5);
        assert!(db.verify().unwrap().problems.is_empty());
        db.checkpoint().unwrap();
        let stats = db.stats();
        assert_eq!(stats.open_snapshots, 0);
        // Nothing is held for snapshots that are closed.
        let again = open(&device.copy(1));
        assert_eq!(state_of(&again.snapshot(), &table), 5);
        assert_eq!(stats.live_bytes, again.stats().live_bytes);
    });
}

/// Reads without a snapshot return a state that was committed at some time between their begin and
/// their end, and no damage if a page disappeared meanwhile (NEWEST-1).
#[test]
fn single_reads_are_of_now() {
    check("single reads", 200, || {
        let db = open(&FaultyDevice::new(300, 1));
        let table = db.create_table("t").unwrap();
        advance(&db, &table, 0);
        // `begun` may be visible, `newest` is.
        let (begun, newest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let writer = {
            let (db, table) = (db.clone(), table.clone());
            let (begun, newest) = (begun.clone(), newest.clone());
            thread::spawn(move || {
                for state in 1..6 {
                    begun.store(state, Ordering::SeqCst);
                    advance(&db, &table, state);
                    newest.store(state, Ordering::SeqCst);
                }
            })
        };
        let readers = (0..2).map(|_| {
            let (db, table) = (db.clone(), table.clone());
            let (begun, newest) = (begun.clone(), newest.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    let key = [thread_rng().gen_range(0..KEYS) as u8];
                    let least = newest.load(Ordering::SeqCst);
                    let cached = db.get_cached(&table, &key, <[u8]>::to_vec).unwrap();
                    let cached = match cached {
                        Cached::Found(value) => Some(Some(value)),
                        Cached::Absent => Some(None),
                        Cached::Unknown => None,
                    };
                    for value in [cached, Some(db.get(&table, &key).unwrap())] {
                        let Some(value) = value else { continue };
                        let mut may_be = least..=begun.load(Ordering::SeqCst);
                        assert!(
                            may_be.any(|state| model(state).get(&key[..]) == value.as_ref()),
                            "key {key:?} is of another time"
                        );
                    }
                }
            })
        });
        let threads: Vec<_> = readers.chain([writer]).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
