// SPDX-License-Identifier: Apache-2.0
//! Random transactions that remember their reads, and the replay that checks them. The tests under
//! a scheduler use this file as well (`tests/shuttle`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_dbm::{Database, DbmError, Durability, Record, Table};
use senko_workload::Rng;

pub type Key = Vec<u8>;

/// The writes of other transactions that a transaction saw.
#[derive(Debug)]
pub enum Saw {
    Get(Key, Option<Vec<u8>>),
    Range(Key, Key, Vec<Record>),
}

/// A transaction that committed.
pub struct Done {
    /// Its place in the order; for a read-only transaction, the newest commit that it saw.
    pub number: u64,
    /// Commits that had returned when it began, and commits that had begun when it ended.
    began: u64,
    ended: u64,
    saw: Vec<Saw>,
    wrote: Vec<(Key, Option<Vec<u8>>)>,
}

fn key(rng: &mut Rng, keys: u64) -> Key {
    rng.below(keys).to_be_bytes()[6..].to_vec()
}

/// Runs a transaction that reads and writes at random, or only reads. `None`: it had a conflict.
pub fn one(
    db: &Database,
    table: &Table,
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
        // A transaction sees its own writes, which say nothing about the others.
        saw.retain(|saw| match saw {
            Saw::Get(key, _) => !wrote.iter().any(|(k, _)| k == key),
            Saw::Range(from, to, _) => !wrote.iter().any(|(k, _)| from <= k && k < to),
        });
        std::thread::yield_now();
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

impl Done {
    /// Whether it changed anything.
    pub fn writes(&self) -> bool {
        !self.wrote.is_empty()
    }
}

/// Executes transactions again one by one, on the initial content.
pub fn replay(model: &mut BTreeMap<Key, Vec<u8>>, all: &mut [Done]) {
    // A read-only transaction comes after the newest commit that it saw. If there are several, the
    // one that began first comes first.
    all.sort_by_key(|done| (done.number, !done.writes(), done.began));
    for done in all.iter() {
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
    // Real-time order: a transaction that had ended before another began comes first.
    let mut earliest_end = u64::MAX;
    for done in all.iter().rev() {
        assert!(done.began < earliest_end, "{} is out of order", done.number);
        earliest_end = earliest_end.min(done.ended);
    }
}
