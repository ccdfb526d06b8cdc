// SPDX-License-Identifier: Apache-2.0
//! Space: what is overwritten comes free, snapshots hold what they see and no more, old ones can be
//! ended.

use std::sync::Arc;
use std::time::Duration;

use senko_dbm::{Database, DbmError, Durability, Options};
use senko_io::faulty::FaultyDevice;

use crate::support::{Model, Rng, content, open, quiet, seed};

/// Ten times as much is written as the device holds.
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
    let mut rng = Rng(seed);
    let mut model = Model::new();
    for _ in 0..4000 {
        let mut tx = db.begin();
        for _ in 0..20 {
            let key = rng.below(2000).to_be_bytes()[6..].to_vec();
            let len = if rng.below(50) == 0 { 8000 } else { 200 };
            let value = vec![rng.next() as u8; len];
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
