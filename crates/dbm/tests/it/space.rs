// SPDX-License-Identifier: Apache-2.0
//! Space: overwritten space becomes free, snapshots keep only what they see, and old ones can be
//! ended.

use std::sync::Arc;
use std::time::Duration;

use senko_dbm::{Database, DbmError, Durability, Options, Table};
use senko_io::faulty::FaultyDevice;
use senko_io::memory::MemoryDevice;
use senko_io::{Device, PAGE_SIZE};
use senko_workload::Rng;

use crate::support::{Model, content, open, plain, quiet, seed};

/// Ten times as much is written as the device can hold.
#[test]
fn overwritten_space_is_used_again() {
    let seed = seed("overwritten_space_is_used_again");
    let device = FaultyDevice::new(1200, seed);
    let options = Options {
        log_bytes: 1 << 20,
        ..quiet()
    };
    let db = Database::open_device(Arc::clone(&device) as _, options).unwrap();
    let table = db.create_table("t").unwrap();
    let mut rng = Rng::new(seed);
    let mut model = Model::new();
    for _ in 0..4000 {
        let mut tx = db.begin();
        for _ in 0..20 {
            let key = rng.below(2000).to_be_bytes()[6..].to_vec();
            let len = if rng.below(50) == 0 { 8000 } else { 200 };
            let value = vec![rng.next_u64() as u8; len];
            tx.put(&table, &key, &value).unwrap();
            model.insert(key, value);
        }
        tx.commit(Durability::Synced).unwrap();
    }
    assert!(db.stats().checkpoint > 3);
    assert_eq!(content(&db.snapshot(), &table), model);
    drop(db);
    let db = open(&device.crashed_copy(seed)).unwrap();
    assert_eq!(content(&db.snapshot(), &table), model);
}

/// Random updates for long enough that every leaf is written many times.
fn update(db: &Database, table: &Table, keys: u32, commits: u32, mut after: impl FnMut()) {
    let mut rng = Rng::new(u64::from(keys));
    for commit in 0..commits {
        let mut tx = db.begin();
        for _ in 0..100 {
            let key = rng.below(u64::from(keys)) as u32;
            tx.put(table, &key.to_be_bytes(), &u64::from(commit).to_be_bytes())
                .unwrap();
        }
        tx.commit(Durability::Synced).unwrap();
        after();
    }
}

/// A checkpoint used to write all pages before it freed the old ones, and the log had at least 4
/// MiB: the file took many times the bytes of keys and values.
#[test]
fn the_file_stays_near_what_is_live() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let db = Database::open(&path, plain()).unwrap();
    let table = db.create_table("t").unwrap();
    let keys = 1_000_000;
    let records = (0..keys).map(|key: u32| (key.to_be_bytes(), [0; 8]));
    db.bulk_load(&table, records, Durability::Synced).unwrap();
    // The space that the load left free is used first, and given back after two turns of the log.
    update(&db, &table, keys, 3000, || {});
    let mut most = 0;
    update(&db, &table, keys, 1000, || {
        most = most.max(db.stats().file_bytes)
    });
    let (live, now) = (u64::from(keys) * 12, db.stats());
    println!(
        "most {most}, now {} with {} free, for {live}",
        now.file_bytes, now.free_bytes
    );
    assert!(most * 10 <= live * 16, "{most} bytes of a file for {live}");
    assert!(db.stats().checkpoint > 20);
    drop(db);
    let db = Database::open(&path, plain()).unwrap();
    assert_eq!(db.snapshot().count(&table).unwrap(), u64::from(keys));
    assert!(db.verify().unwrap().problems.is_empty());
}

/// Without a background thread a commit does some of the due work, not all of it.
#[test]
fn no_commit_does_all_of_the_work() {
    let device = MemoryDevice::new(16_000);
    device.grow(16_000).unwrap();
    let db = Database::open_device(Arc::clone(&device) as _, quiet()).unwrap();
    let table = db.create_table("t").unwrap();
    // Some 5,500 leaves.
    for part in 0..100u32 {
        db.run(Durability::None, |tx| {
            (0..550u32)
                .try_for_each(|key| tx.put(&table, &(part * 550 + key).to_be_bytes(), &[1; 400]))
        })
        .unwrap();
    }
    db.checkpoint().unwrap();
    let mut rng = Rng::new(1);
    let mut most = 0;
    let mut all = 0;
    for _ in 0..3000 {
        let before = device.written();
        db.run(Durability::Synced, |tx| {
            (0..20).try_for_each(|_| {
                tx.put(&table, &(rng.below(55_000) as u32).to_be_bytes(), &[2; 400])
            })
        })
        .unwrap();
        let pages = device.written() - before;
        most = most.max(pages);
        all += pages;
    }
    assert!(all > 20_000, "the work was done: {all} pages");
    // A checkpoint's 256, a round of the cleaner, the parts of the table and the commit itself.
    assert!(most < 600, "a commit wrote {most} pages");
    assert!(db.verify().unwrap().problems.is_empty());
}

/// Space freed by a large load or a deletion used to stay in the file forever.
#[test]
fn an_end_that_stays_free_is_cut() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let on_disk = || -> u64 {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum()
    };
    let db = Database::open(&path, plain()).unwrap();
    let table = db.create_table("t").unwrap();
    let keys = 500_000;
    let records = (0..keys).map(|key: u32| (key.to_be_bytes(), [0; 8]));
    db.bulk_load(&table, records, Durability::Synced).unwrap();
    db.checkpoint().unwrap();
    let full = on_disk();
    assert!(full >= u64::from(keys) * 12);
    // A reader keeps what it sees, whatever is cut.
    let reader = Database::open_to_read(&path, plain()).unwrap();
    let of_reader = reader.table("t").unwrap();
    let end = 50_000u32.to_be_bytes();
    db.run(Durability::Synced, |tx| tx.delete_range(&table, &end, None))
        .unwrap();
    update(&db, &table, 50_000, 1500, || {});
    assert_eq!(
        reader.snapshot().count(&of_reader).unwrap(),
        u64::from(keys)
    );
    assert!(reader.verify().unwrap().problems.is_empty());
    drop((reader, of_reader));
    update(&db, &table, 50_000, 1500, || {});
    let small = on_disk();
    assert!(small * 3 < full, "{small} bytes are left of {full}");
    assert!(db.stats().file_bytes <= small);
    drop(db);
    let db = Database::open(&path, plain()).unwrap();
    assert_eq!(db.snapshot().count(&table).unwrap(), 50_000);
    assert!(db.verify().unwrap().problems.is_empty());
    // It grows again.
    let records = (50_000..200_000).map(|key: u32| (key.to_be_bytes(), [0; 8]));
    db.bulk_load(&table, records, Durability::Synced).unwrap();
    drop(db);
    let db = Database::open(&path, plain()).unwrap();
    assert_eq!(db.snapshot().count(&table).unwrap(), 200_000);
}

/// Free segments between live ones used to keep their storage: only an end of the files was given
/// back. Their storage is used again, also after a reopening.
#[test]
fn free_segments_give_back_their_storage() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let stored = || std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap()) * 512;
    let mut db = Database::open(&path, plain()).unwrap();
    let table = db.create_table("t").unwrap();
    let value = |key: u32| vec![key as u8; 40_000];
    let put = |db: &Database, keys: std::ops::Range<u32>| {
        for key in keys {
            db.run(Durability::Buffered, |tx| {
                tx.put(&table, &key.to_be_bytes(), &value(key))
            })
            .unwrap();
        }
    };
    let check = |db: &Database, count: usize| {
        assert!(db.verify().unwrap().problems.is_empty());
        let found = content(&db.snapshot(), &table);
        assert_eq!(found.len(), count);
        let is_right = |(key, bytes): (&Vec<u8>, &Vec<u8>)| {
            let key = u32::from_be_bytes(key[..].try_into().unwrap());
            *bytes == value(key)
        };
        assert!(found.iter().all(is_right));
    };
    put(&db, 0..1000);
    db.checkpoint().unwrap();
    let full = stored();
    // Long values stay where they are, so what is left is spread over the file.
    for key in (0..1000u32).filter(|key| key % 100 > 4) {
        db.run(Durability::Buffered, |tx| {
            tx.delete(&table, &key.to_be_bytes()).map(drop)
        })
        .unwrap();
    }
    for _ in 0..3 {
        db.checkpoint().unwrap();
    }
    let small = stored();
    assert!(small * 4 < full, "{small} bytes of {full} are stored");
    assert!(db.stats().file_bytes <= small);
    check(&db, 50);
    for round in 0..3 {
        if round == 1 {
            drop(db);
            db = Database::open(&path, plain()).unwrap();
            check(&db, 350);
        }
        let from = 2000 + round * 300;
        put(&db, from..from + 300);
    }
    check(&db, 950);
}

/// The counts of bytes are those that the device sees, and go on after a reopening and a crash.
#[test]
fn what_was_put_and_written_is_counted() {
    let device = MemoryDevice::new(4000);
    device.grow(4000).unwrap();
    let db = Database::open_device(Arc::clone(&device) as _, quiet()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut put = 0;
    for commit in 0..1000u32 {
        let long = vec![7; if commit % 50 == 0 { 5000 } else { 300 }];
        db.run(Durability::Synced, |tx| {
            (0..10u32).try_for_each(|key| tx.put(&table, &(commit % 90 + key).to_be_bytes(), &long))
        })
        .unwrap();
        put += 10 * (4 + long.len() as u64);
    }
    let written = || device.written() * PAGE_SIZE as u64;
    let stats = db.stats();
    assert!(stats.checkpoint > 2);
    assert_eq!((stats.bytes_put, stats.bytes_written), (put, written()));
    // A kill loses only what was written after the newest checkpoint.
    let killed = Database::open_device(device.copy(), quiet());
    let killed = killed.unwrap().stats();
    assert_eq!(killed.bytes_put, put);
    assert!(killed.bytes_written <= written() && killed.bytes_written * 2 > written());
    db.checkpoint().unwrap();
    assert_eq!(db.stats().bytes_written, written());
    db.close().unwrap();
    let again = Database::open_device(Arc::clone(&device) as _, quiet())
        .unwrap()
        .stats();
    assert_eq!(again.bytes_put, put);
    assert!(again.bytes_written * 10 > written() * 9, "{again:?}");
}

#[test]
fn an_old_snapshot_is_ended_and_says_so() {
    let options = Options {
        max_snapshot_age: Some(Duration::ZERO),
        ..quiet()
    };
    let db = Database::open_device(FaultyDevice::new(3000, 1), options).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(Durability::None, |tx| tx.put(&table, b"k", b"1"))
        .unwrap();
    let snapshot = db.snapshot();
    assert!(snapshot.get(&table, b"k").unwrap().is_some());
    db.run(Durability::None, |tx| tx.put(&table, b"k", b"2"))
        .unwrap();
    assert_eq!(db.stats().open_snapshots, 1);
    std::thread::sleep(Duration::from_millis(2));
    db.checkpoint().unwrap();
    assert!(matches!(
        snapshot.get(&table, b"k"),
        Err(DbmError::SnapshotExpired)
    ));
    assert!(matches!(
        snapshot.first(&table),
        Err(DbmError::SnapshotExpired)
    ));
    assert_eq!(db.stats().open_snapshots, 0);
    assert_eq!(
        db.snapshot().get(&table, b"k").unwrap(),
        Some(b"2".to_vec())
    );
}

#[test]
fn an_empty_database_is_small() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    Database::open(&path, Options::default())
        .unwrap()
        .close()
        .unwrap();
    let bytes: u64 = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes <= 262_144, "{bytes} bytes");
}
