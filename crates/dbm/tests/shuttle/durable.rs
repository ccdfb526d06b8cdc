// SPDX-License-Identifier: Apache-2.0
//! Acknowledged commits survive: groups of synced commits, and buffered commits outside the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_dbm::{Database, Durability, Table};
use senko_io::faulty::FaultyDevice;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::{check, open};

const THREADS: usize = 3;

fn count(db: &Database, table: &Table, thread: usize) -> u64 {
    let value = db.snapshot().get(table, &[thread as u8]).unwrap();
    value.map_or(0, |value| {
        u64::from_be_bytes(value[..8].try_into().unwrap())
    })
}

/// Threads count, each in its own record. After each commit its thread takes a copy of the device,
/// in the state that a crash or a kill would leave. The copy has everything acknowledged before, by
/// all threads.
fn counters(durability: Durability, copy: fn(&FaultyDevice, u64) -> Arc<FaultyDevice>) {
    let device = FaultyDevice::new(300, 1);
    let db = open(&device);
    let table = db.create_table("t").unwrap();
    // The first one asks the device for memory.
    db.run(durability, |tx| tx.put(&table, b"first", b""))
        .unwrap();
    let acknowledged: Arc<[AtomicU64; THREADS]> = Arc::default();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (db, table, device) = (db.clone(), table.clone(), device.clone());
            let acknowledged = acknowledged.clone();
            thread::spawn(move || {
                for number in 1..4u64 {
                    // Some commits are larger than the memory beside the log.
                    let pad = [0, 0, 3000, 40_000][thread_rng().gen_range(0..4)];
                    let mut value = number.to_be_bytes().to_vec();
                    value.resize(8 + pad, 7);
                    db.run(durability, |tx| tx.put(&table, &[thread as u8], &value))
                        .unwrap();
                    acknowledged[thread].store(number, Ordering::SeqCst);
                    let least: Vec<u64> = acknowledged
                        .iter()
                        .map(|count| count.load(Ordering::SeqCst))
                        .collect();
                    let found = open(&copy(&device, number));
                    for (thread, least) in least.iter().enumerate() {
                        let found = count(&found, &table, thread);
                        assert!(found >= *least, "thread {thread}: {found} of {least}");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    for thread in 0..THREADS {
        assert_eq!(count(&db, &table, thread), 3);
    }
}

#[test]
fn synced_commits_survive_a_crash() {
    check("synced", 150, || {
        counters(Durability::Synced, FaultyDevice::crashed_copy);
    });
}

#[test]
fn buffered_commits_survive_a_kill() {
    check("buffered", 150, || {
        counters(Durability::Buffered, FaultyDevice::copy);
    });
}
