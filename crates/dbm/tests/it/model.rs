// SPDX-License-Identifier: Apache-2.0
//! Random calls against a map, with snapshots and cursors that stay open across splits, merges,
//! checkpoints and reopenings.

use std::sync::Arc;

use senko_dbm::{Database, Durability, Options, Snapshot, Table};
use senko_io::faulty::FaultyDevice;
use senko_workload::Rng;

use crate::support::{Model, content, open, quiet, seed};

const DURABILITIES: [Durability; 3] = [Durability::None, Durability::Buffered, Durability::Synced];

fn key(rng: &mut Rng, keys: u64) -> Vec<u8> {
    let number = rng.below(keys);
    let mut key = number.to_be_bytes()[5..].to_vec();
    // Some are long.
    if number.is_multiple_of(13) {
        key.resize(3 + (number * 37 % 1000) as usize, b'k');
    }
    key
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(20) {
        0 => rng.below(30_000),
        1..4 => rng.below(1200),
        _ => rng.below(40),
    };
    vec![rng.next_u64() as u8; len as usize]
}

/// One transaction on both; the model changes only if it commits.
fn transaction(db: &Database, table: &Table, model: &mut Model, rng: &mut Rng, keys: u64) {
    let mut tx = db.begin();
    let mut next = model.clone();
    for _ in 0..rng.below(30) {
        let key = key(rng, keys);
        match rng.below(20) {
            0 => {
                let mut to = key.clone();
                to[1] = to[1].wrapping_add(1);
                tx.delete_range(table, &key, Some(&to)).unwrap();
                next.retain(|k, _| *k < key || *k >= to);
            }
            1..6 => {
                tx.delete(table, &key).unwrap();
                next.remove(&key);
            }
            6 => assert_eq!(tx.get(table, &key).unwrap(), next.get(&key).cloned()),
            7 => {
                let expected = next.range(key.clone()..).next();
                let found = tx.next(table, &key).unwrap();
                assert_eq!(found.as_ref().map(|(k, v)| (k, v)), expected);
            }
            8 => {
                let expected = next.range(..key.clone()).next_back();
                let found = tx.before(table, Some(&key)).unwrap();
                assert_eq!(found.as_ref().map(|(k, v)| (k, v)), expected);
            }
            9 => {
                let expected = next.last_key_value();
                let found = tx.before(table, None).unwrap();
                assert_eq!(found.as_ref().map(|(k, v)| (k, v)), expected);
            }
            _ => {
                let value = value(rng);
                tx.put(table, &key, &value).unwrap();
                next.insert(key, value);
            }
        }
    }
    if rng.below(8) > 0 {
        tx.commit(DURABILITIES[rng.below(3) as usize]).unwrap();
        *model = next;
    }
}

fn run(seed: u64, options: &Options, rounds: u64, keys: u64) {
    let mut rng = Rng::new(seed);
    let device = FaultyDevice::new(40_000, seed);
    let mut db = Database::open_device(Arc::clone(&device) as _, options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut model = Model::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    for round in 0..rounds {
        transaction(&db, &table, &mut model, &mut rng, keys);
        match rng.below(40) {
            0 => {
                db.checkpoint().unwrap();
                let report = db.verify().unwrap();
                assert!(report.problems.is_empty(), "{:?}", report.problems);
                assert_eq!(report.records, model.len() as u64);
            }
            1..4 => snapshots.push((db.snapshot(), model.clone())),
            4..7 if !snapshots.is_empty() => {
                let nth = rng.below(snapshots.len() as u64) as usize;
                let (snapshot, then) = snapshots.swap_remove(nth);
                assert_eq!(content(&snapshot, &table), then, "round {round}");
            }
            7 => {
                snapshots.clear();
                db.close().unwrap();
                db = Database::open_device(Arc::clone(&device) as _, options.clone()).unwrap();
                assert_eq!(db.table("t").unwrap(), table);
                assert_eq!(content(&db.snapshot(), &table), model, "round {round}");
            }
            _ => {
                let key = key(&mut rng, keys);
                let now = db.snapshot();
                let found = now.get(&table, &key).unwrap();
                assert_eq!(found, model.get(&key).cloned(), "round {round}");
                let found = now.next_key(&table, &key, true).unwrap();
                let next = model.range(key.clone()..).next();
                assert_eq!(found.as_ref(), next.map(|(k, _)| k), "round {round}");
                let found = now.next_key(&table, &key, false).unwrap();
                let mut behind = model.range(key.clone()..).filter(|(k, _)| **k > key);
                assert_eq!(
                    found.as_ref(),
                    behind.next().map(|(k, _)| k),
                    "round {round}"
                );
            }
        }
    }
    for (snapshot, then) in &snapshots {
        assert_eq!(content(snapshot, &table), *then);
    }
    drop(snapshots);
    db.run(Durability::None, |tx| tx.clear(&table)).unwrap();
    assert_eq!(content(&db.snapshot(), &table), Model::new());
    db.close().unwrap();
    let db = open(&device).unwrap();
    assert_eq!(content(&db.snapshot(), &table), Model::new());
}

#[test]
fn random_transactions_against_a_map() {
    let seed = seed("random_transactions_against_a_map");
    for nth in 0..6 {
        run(seed + nth, &quiet(), 400, [40, 300, 5000][nth as usize % 3]);
    }
}

/// Nearly all pages are read from the device, and the log is short.
#[test]
fn random_transactions_with_a_small_cache() {
    let seed = seed("random_transactions_with_a_small_cache");
    let options = Options {
        cache_bytes: 1 << 20,
        log_bytes: 1 << 20,
        ..quiet()
    };
    for nth in 0..3 {
        run(seed + nth, &options, 500, 20_000);
    }
}

#[test]
fn ascending_keys_fill_their_pages() {
    let device = FaultyDevice::new(20_000, 1);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    for key in 0..50_000u32 {
        let mut tx = db.begin();
        tx.put(&table, &key.to_be_bytes(), &[7; 8]).unwrap();
        tx.commit(Durability::None).unwrap();
    }
    db.checkpoint().unwrap();
    // 12 bytes a record, and 6 bytes of the page for each record.
    let least = 50_000 * 18;
    let live = db.stats().live_bytes;
    assert!(live < least * 11 / 10 + 65_536, "{live} bytes for {least}");
    assert_eq!(db.snapshot().count(&table).unwrap(), 50_000);
}

/// Programs of ndbm empty a table by deleting its first key, again and again. If pages stayed empty
/// before the first key, each step would walk over all of them.
#[test]
fn emptying_from_the_front_leaves_no_pages_behind() {
    let device = FaultyDevice::new(20_000, 1);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(Durability::None, |tx| {
        (0..20_000u32).try_for_each(|key| tx.put(&table, &key.to_be_bytes(), &[7; 40]))
    })
    .unwrap();
    let full = db.verify().unwrap().pages;
    for left in (0..20_000).rev() {
        let first = db.snapshot().next_key(&table, b"", true).unwrap().unwrap();
        db.run(Durability::None, |tx| tx.delete(&table, &first))
            .unwrap();
        if left % 500 == 0 {
            let pages = db.verify().unwrap().pages;
            let most = full * left / 20_000 + 5;
            assert!(pages <= most, "{pages} pages for {left} records");
        }
    }
}

#[test]
fn tables_are_apart_and_can_be_dropped() {
    let device = FaultyDevice::new(20_000, 1);
    let db = open(&device).unwrap();
    let (a, b) = (db.create_table("a").unwrap(), db.create_table("b").unwrap());
    db.run(Durability::Synced, |tx| {
        for key in 0..2000u32 {
            tx.put(&a, &key.to_be_bytes(), b"a")?;
            tx.put(&b, &key.to_be_bytes(), &[b'b'; 5000])?;
        }
        Ok(())
    })
    .unwrap();
    let before = db.snapshot();
    db.drop_table(&b).unwrap();
    assert_eq!(db.tables(), std::slice::from_ref(&a));
    assert!(db.begin().put(&b, b"x", b"").is_err());
    assert_eq!(
        before.get(&b, &[0, 0, 0, 7]).unwrap(),
        Some(vec![b'b'; 5000])
    );
    assert_eq!(before.count(&b).unwrap(), 2000);
    drop(before);
    // The table's pages become free.
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    let live = db.stats().live_bytes;
    assert!(live < 200_000, "{live} bytes are live");
    db.close().unwrap();
    let db = open(&device).unwrap();
    assert_eq!(db.tables(), std::slice::from_ref(&a));
    assert_eq!(content(&db.snapshot(), &a).len(), 2000);
}

/// An impossible setting used to be reported only after the files were made.
#[test]
fn bad_settings_make_nothing() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let options = Options {
        cache_bytes: 1,
        ..quiet()
    };
    let error = Database::open(&path, options).unwrap_err();
    assert!(error.to_string().contains("1048576"), "{error}");
    assert!(!path.exists());
}

#[test]
fn limits_are_told_and_change_nothing() {
    let device = FaultyDevice::new(2000, 1);
    let db = Database::open_device(
        device,
        Options {
            transaction_bytes: 10_000,
            ..quiet()
        },
    )
    .unwrap();
    let table = db.create_table("t").unwrap();
    let mut tx = db.begin();
    let text = tx.put(&table, &[0; 1025], b"").unwrap_err().to_string();
    assert_eq!(text, "the key has 1025 bytes; keys have at most 1024");
    let text = tx.put(&table, b"k", &[0; 10_001]).unwrap_err().to_string();
    assert!(text.contains("the limit is 10000"), "{text}");
    tx.put(&table, b"k", &[0; 5000]).unwrap();
    assert!(tx.put(&table, b"l", &[0; 5000]).is_err());
    tx.commit(Durability::Synced).unwrap();
    assert_eq!(db.snapshot().count(&table).unwrap(), 1);
}
