// SPDX-License-Identifier: Apache-2.0
//! Ways to write: commits awaited later, appends, batches, bulk loads; and the space that open
//! snapshots keep.

use std::sync::Arc;

use senko_dbm::{Batch, Database, DbmError, Durability, Options, keys};
use senko_io::Op;
use senko_io::faulty::FaultyDevice;

use crate::support::{Model, content, open, quiet};

/// A hundred commits that are awaited later share few flushes, and one wait makes them all durable.
#[test]
fn commits_that_are_awaited_later_share_a_flush() {
    let device = FaultyDevice::new(3000, 1);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    let mut pending = Vec::new();
    for nth in 0..100u8 {
        let mut tx = db.begin();
        tx.put(&table, &[nth], b"value").unwrap();
        pending.push(tx.commit_async(Durability::Synced).unwrap());
        assert_eq!(pending[usize::from(nth)].number(), db.snapshot().commit());
    }
    // Without a background thread there was no flush.
    assert!(pending.iter().all(|commit| !commit.is_done()));
    assert_eq!(db.snapshot().count(&table).unwrap(), 100);
    let middle = pending.swap_remove(50);
    middle.wait().unwrap();
    assert!(pending.iter().all(|commit| commit.is_done()));
    let image = device.crashed_copy(1);
    let found = open(&image).unwrap();
    assert_eq!(found.snapshot().count(&table).unwrap(), 100);

    // A conflict is reported at once; a read-only transaction is done at once.
    let (mut first, mut second) = (db.begin(), db.begin());
    for tx in [&mut first, &mut second] {
        tx.get(&table, b"k").unwrap();
        tx.put(&table, b"k", b"v").unwrap();
    }
    let commit = first.commit_async(Durability::Synced).unwrap();
    let refused = second.commit_async(Durability::Synced);
    assert!(matches!(refused, Err(DbmError::Conflict)), "{refused:?}");
    let mut reads = db.begin();
    reads.get(&table, b"k").unwrap();
    assert!(reads.commit_async(Durability::Synced).unwrap().is_done());
    assert!(!commit.is_done());
    commit.wait().unwrap();
}

/// The database's thread makes durable what nobody waits for, and a failed flush is reported to the
/// waiting thread.
#[test]
fn a_commit_that_nobody_awaits_becomes_durable() {
    let device = FaultyDevice::new(3000, 1);
    let db = Database::open_device(Arc::clone(&device) as _, Options::default()).unwrap();
    let table = db.create_table("t").unwrap();
    for nth in 0..50u8 {
        let mut tx = db.begin();
        tx.put(&table, &[nth], b"value").unwrap();
        let commit = tx.commit_async(Durability::Synced).unwrap();
        if nth % 10 == 0 {
            while !commit.is_done() {
                std::thread::yield_now();
            }
        }
    }
    drop(db);
    let db = open(&device).unwrap();
    let mut tx = db.begin();
    tx.put(&table, b"late", b"").unwrap();
    let commit = tx.commit_async(Durability::Synced).unwrap();
    let mut open = db.begin();
    open.put(&table, b"later", b"").unwrap();
    device.fail_from(Op::Flush, 1, 5);
    device.fail_from(Op::Write, 1, 5);
    assert!(commit.wait().is_err());
    assert!(open.commit_async(Durability::Synced).is_err());
    let refused = db.begin().put(&table, b"later", b"");
    assert!(matches!(refused, Err(DbmError::ReadOnly(_))), "{refused:?}");
}

#[test]
fn appends_come_behind_everything() {
    let db = open(&FaultyDevice::new(3000, 1)).unwrap();
    let (table, other) = (db.create_table("t").unwrap(), db.create_table("o").unwrap());
    let unsorted = |done: Result<(), DbmError>| matches!(done, Err(DbmError::Unsorted(_)));
    db.run(Durability::None, |tx| tx.put(&table, b"m", b"there"))
        .unwrap();
    let mut tx = db.begin();
    assert!(unsorted(tx.append(&table, b"m", b"")));
    assert!(unsorted(tx.append(&table, b"", b"")));
    tx.append(&table, b"n", b"1").unwrap();
    tx.append(&other, b"a", b"1").unwrap();
    assert!(unsorted(tx.append(&table, b"n", b"2")));
    // Other writes of the transaction count as well.
    tx.append(&table, b"o", b"1").unwrap();
    tx.put(&table, b"x", b"1").unwrap();
    assert!(unsorted(tx.append(&table, b"p", b"2")));
    tx.delete(&table, b"x").unwrap();
    tx.append(&table, b"p", b"2").unwrap();
    assert_eq!(tx.count(&table).unwrap(), 4);
    assert_eq!(tx.first(&table).unwrap().unwrap().0, b"m");
    assert_eq!(tx.last(&table).unwrap().unwrap().0, b"p");
    // Another transaction appended meanwhile.
    db.run(Durability::None, |tx| tx.append(&table, b"z", b"other"))
        .unwrap();
    let done = tx.commit(Durability::None);
    assert!(matches!(done, Err(DbmError::Conflict)), "{done:?}");
    assert_eq!(db.snapshot().count(&table).unwrap(), 2);
    // A count is a read of the whole table.
    let mut tx = db.begin();
    assert_eq!(tx.count(&table).unwrap(), 2);
    tx.put(&other, b"count", b"2").unwrap();
    db.run(Durability::None, |tx| tx.put(&table, b"b", b"1"))
        .unwrap();
    let done = tx.commit(Durability::None);
    assert!(matches!(done, Err(DbmError::Conflict)), "{done:?}");
}

#[test]
fn integer_keys_sort_as_numbers() {
    let numbers = [i64::MIN, -256, -255, -1, 0, 1, 255, 256, i64::MAX];
    for pair in numbers.windows(2) {
        assert!(keys::from_i64(pair[0]) < keys::from_i64(pair[1]));
        assert_eq!(keys::to_i64(&keys::from_i64(pair[0])), Some(pair[0]));
    }
    for pair in [0, 1, 255, 256, 65_536, u64::MAX].windows(2) {
        assert!(keys::from_u64(pair[0]) < keys::from_u64(pair[1]));
        assert_eq!(keys::to_u64(&keys::from_u64(pair[1])), Some(pair[1]));
    }
    assert_eq!((keys::to_u64(b""), keys::to_i64(&[0; 9])), (None, None));
}

#[test]
fn a_batch_is_written_as_a_whole_and_never_conflicts() {
    let options = Options {
        transaction_bytes: 100_000,
        ..quiet()
    };
    let db = Database::open_device(FaultyDevice::new(3000, 1), options).unwrap();
    let (table, gone) = (db.create_table("t").unwrap(), db.create_table("g").unwrap());
    let mut batch = Batch::new();
    for key in [b"a", b"b", b"c", b"d"] {
        batch.put(&table, key, b"1").unwrap();
    }
    batch.delete_range(&table, b"b", Some(b"d"));
    batch.put(&table, b"c", b"2").unwrap();
    batch.delete(&table, b"d");
    assert!(batch.put(&table, &[0; 1025], b"").is_err());
    db.write(batch, Durability::Synced).unwrap();
    let expected: Model = [("a", "1"), ("c", "2")]
        .map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()))
        .into();
    assert_eq!(content(&db.snapshot(), &table), expected);
    let mut batch = Batch::new();
    batch.put(&table, b"x", b"").unwrap();
    batch.put(&gone, b"x", b"").unwrap();
    db.drop_table(&gone).unwrap();
    let done = db.write(batch, Durability::Synced);
    assert!(matches!(done, Err(DbmError::NoTable(name)) if name == "g"));
    let mut batch = Batch::new();
    batch.put(&table, b"x", &[0; 100_000]).unwrap();
    let done = db.write(batch, Durability::Synced);
    assert!(matches!(done, Err(DbmError::TransactionTooLarge { .. })));
    assert_eq!(content(&db.snapshot(), &table), expected);
}

/// A bulk load makes all records durable with one flush at its end, in full leaves. A failed load
/// leaves the table as it was.
#[test]
fn a_bulk_load_is_sorted_and_all_or_nothing() {
    const RECORDS: u64 = 100_000;
    let device = FaultyDevice::new(20_000, 1);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    let record = |n: u64| (keys::from_u64(n), n.to_le_bytes().repeat(4));
    let loaded = db.bulk_load(&table, (0..RECORDS).map(record), Durability::Synced);
    assert_eq!(loaded.unwrap(), RECORDS);
    let image = device.crashed_copy(1);
    let found = content(&open(&image).unwrap().snapshot(), &table);
    let expected: Model = (0..RECORDS)
        .map(record)
        .map(|(k, v)| (k.to_vec(), v))
        .collect();
    assert_eq!(found, expected);
    let report = db.verify().unwrap();
    let bytes = expected.iter().map(|(k, v)| k.len() + v.len() + 6);
    let pages = bytes.sum::<usize>() as u64 / 4000 + 1;
    assert!(
        report.pages < pages + pages / 20,
        "{} pages for {pages}",
        report.pages
    );

    // Loads after existing records until a record is out of order; many commits are rolled back.
    let wrong = |n: u64| match n {
        90_000 => record(RECORDS + 89_000),
        n => record(RECORDS + n),
    };
    let done = db.bulk_load(&table, (0..RECORDS).map(wrong), Durability::Synced);
    assert!(matches!(done, Err(DbmError::Unsorted(90_001))), "{done:?}");
    assert_eq!(content(&db.snapshot(), &table), expected);
    let done = db.bulk_load(&table, [record(5)], Durability::Synced);
    assert!(matches!(done, Err(DbmError::Unsorted(1))), "{done:?}");
    let long = [(vec![255; 9], b"1".to_vec()), (vec![255; 1025], Vec::new())];
    let done = db.bulk_load(&table, long, Durability::None);
    assert!(matches!(done, Err(DbmError::KeyTooLong(1025))), "{done:?}");
    assert_eq!(content(&db.snapshot(), &table), expected);
    let none: [(&[u8], &[u8]); 0] = [];
    assert_eq!(db.bulk_load(&table, none, Durability::Synced).unwrap(), 0);
}

/// Each open snapshot is listed with its age and with the bytes that are kept for it.
#[test]
fn open_snapshots_are_listed_with_what_they_hold() {
    let db = open(&FaultyDevice::new(20_000, 1)).unwrap();
    let table = db.create_table("t").unwrap();
    let write = |value: u8| {
        let records = (0..2000u64).map(|n| (keys::from_u64(n), [value; 300]));
        let mut batch = Batch::new();
        for (key, value) in records {
            batch.put(&table, &key, &value).unwrap();
        }
        db.write(batch, Durability::Buffered).unwrap();
    };
    write(1);
    assert!(db.stats().snapshots.is_empty());
    let first = db.snapshot();
    let tx = db.begin();
    let listed = db.stats().snapshots;
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|open| open.held_bytes == 0));
    write(2);
    let second = db.snapshot();
    let pages = db.verify().unwrap().pages;
    let listed = db.stats().snapshots;
    assert_eq!(listed.len(), 3);
    assert!(listed[0].age >= listed[1].age && listed[1].age >= listed[2].age);
    assert_eq!(listed[0].commit, first.commit());
    assert_eq!(listed[2].commit, second.commit());
    // All leaves were written again.
    let held = listed[0].held_bytes / 4096;
    assert!(held <= pages && held * 10 >= pages * 9, "{held} of {pages}");
    assert_eq!(listed[1].held_bytes, listed[0].held_bytes);
    assert_eq!(listed[2].held_bytes, 0);
    db.run(Durability::None, |tx| tx.clear(&table)).unwrap();
    assert!(db.stats().snapshots[2].held_bytes / 4096 >= held / 2);
    drop((first, tx, second));
    assert!(db.stats().snapshots.is_empty());
}
