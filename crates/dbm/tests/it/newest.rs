// SPDX-License-Identifier: Apache-2.0
//! Reads without a snapshot, and cursors that read page by page: against a map, and while a thread
//! commits.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use senko_dbm::{Cached, Cursor, Database, DbmError, Durability, Options, Table};
use senko_io::faulty::FaultyDevice;
use senko_workload::Rng;

use crate::support::{Model, open, quiet, seed};

/// After this long a state does not come any more.
const PATIENCE: Duration = Duration::from_secs(120);

/// A table with keys and values of all lengths: leaves with one shape and with slots, long values,
/// several levels.
fn filled(rng: &mut Rng, options: &Options) -> (Database, Table, Model) {
    let device = FaultyDevice::new(40_000, rng.next_u64());
    let db = Database::open_device(device as _, options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut model = Model::new();
    for _ in 0..20 {
        let mut tx = db.begin();
        let (same, count) = (rng.below(2) == 0, rng.below(400));
        for _ in 0..count {
            let key = rng.below(2000).to_be_bytes()[6..].to_vec();
            let key = if same { key } else { [b"key", &*key].concat() };
            let bytes = match rng.below(60) {
                0 => rng.below(9000),
                _ if same => 50,
                _ => rng.below(100),
            };
            let value = vec![rng.next_u64() as u8; bytes as usize];
            tx.put(&table, &key, &value).unwrap();
            model.insert(key, value);
        }
        tx.commit(Durability::None).unwrap();
    }
    (db, table, model)
}

#[test]
fn a_read_without_a_snapshot_gives_what_a_snapshot_gives() {
    let mut rng = Rng::new(seed(
        "a_read_without_a_snapshot_gives_what_a_snapshot_gives",
    ));
    for cache_bytes in [1 << 20, 64 << 20] {
        let options = Options {
            cache_bytes,
            ..quiet()
        };
        let (db, table, model) = filled(&mut rng, &options);
        let mut cached = 0;
        for number in 0..2000u64 {
            let short = number.to_be_bytes()[6..].to_vec();
            for key in [[b"key", &*short].concat(), short] {
                let expected = model.get(&key);
                assert_eq!(db.get(&table, &key).unwrap().as_ref(), expected);
                match db.get_cached(&table, &key, <[u8]>::to_vec).unwrap() {
                    Cached::Found(value) => assert_eq!(Some(&value), expected),
                    Cached::Absent => assert_eq!(None, expected),
                    Cached::Unknown => continue,
                }
                cached += 1;
            }
        }
        // All values but the long ones are in DRAM if it has room for all pages.
        assert!(cached > 3500, "{cached} of 4000 keys");
        assert_eq!(db.stats().open_snapshots, 0);
        db.drop_table(&table).unwrap();
        for gone in [
            db.get(&table, b"key").map(drop),
            db.get_cached(&table, b"key", |_| ()).map(drop),
        ] {
            assert!(matches!(gone, Err(DbmError::NoTable(_))));
        }
    }
}

/// One thread puts every key again and again. Each key exists at every moment, with a number that
/// never decreases. Other keys come and go, so pages split, merge and get new numbers meanwhile.
#[test]
fn reads_without_a_snapshot_see_whole_commits_in_their_order() {
    let device = FaultyDevice::new(40_000, 1);
    let db = Database::open_device(Arc::clone(&device) as _, Options::default()).unwrap();
    let table = db.create_table("t").unwrap();
    let name = |key: u64| (key * 1000).to_be_bytes();
    let put = |round: u64| {
        db.run(Durability::None, |tx| {
            for key in 0..20 {
                tx.put(&table, &name(key), &round.to_le_bytes())?;
            }
            let fill = round / 2 % 20;
            for other in 1..120u64 {
                let key = (fill * 1000 + other).to_be_bytes();
                match round % 2 {
                    0 => tx.put(&table, &key, &[7; 90])?,
                    _ => tx.delete(&table, &key)?,
                }
            }
            Ok(())
        })
        .unwrap();
    };
    put(0);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (db, table, ended) = (&db, &table, &ended);
            scope.spawn(move || {
                let (mut newest, mut key) = (0, thread);
                while !ended.load(Ordering::Acquire) {
                    key = (key + 7) % 20;
                    let found = match thread {
                        0 => match db.get_cached(table, &name(key), <[u8]>::to_vec).unwrap() {
                            Cached::Found(value) => value,
                            Cached::Absent => panic!("key {key} is gone"),
                            Cached::Unknown => continue,
                        },
                        _ => db.get(table, &name(key)).unwrap().expect("it stays"),
                    };
                    let number = u64::from_le_bytes(found.try_into().unwrap());
                    assert!(number >= newest, "{number} after {newest}");
                    newest = number;
                }
            });
        }
        for round in 1..2000 {
            put(round);
        }
        ended.store(true, Ordering::Release);
    });
    // A checkpoint in the background has one of its own while it runs.
    let begun = Instant::now();
    while db.stats().open_snapshots > 0 {
        assert!(begun.elapsed() < PATIENCE, "a snapshot stays open");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// All records of a range, one page at a time; `most` ends a page early.
fn paged(cursor: &mut Cursor, back: bool, values: bool, most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let (before, mut left) = (all.len(), most);
        let take = |key: &[u8], value: &[u8]| {
            all.push((key.to_vec(), value.to_vec()));
            left -= 1;
            left > 0
        };
        let count = match back {
            false => cursor.next_page(values, take),
            true => cursor.previous_page(values, take),
        };
        assert_eq!(all.len() - before, count.unwrap());
        if all.len() == before {
            return all;
        }
    }
}

#[test]
fn pages_of_a_cursor_have_the_records_of_its_range() {
    let mut rng = Rng::new(seed("pages_of_a_cursor_have_the_records_of_its_range"));
    let (db, table, model) = filled(&mut rng, &quiet());
    let now = db.snapshot();
    for round in 0..200 {
        let mut bound = || {
            let mut key = rng.below(2000).to_be_bytes()[6..].to_vec();
            if rng.below(2) == 0 {
                key = [b"key", &*key].concat();
            }
            match rng.below(5) {
                0 => Bound::Unbounded,
                1 | 2 => Bound::Included(key),
                _ => Bound::Excluded(key),
            }
        };
        let (from, to) = (bound(), bound());
        let inside = |key: &Vec<u8>| {
            (match &from {
                Bound::Unbounded => true,
                Bound::Included(from) => key >= from,
                Bound::Excluded(from) => key > from,
            }) && match &to {
                Bound::Unbounded => true,
                Bound::Included(to) => key <= to,
                Bound::Excluded(to) => key < to,
            }
        };
        let (back, values) = (rng.below(2) == 0, rng.below(2) == 0);
        let most = [1, 3, usize::MAX][rng.below(3) as usize];
        let mut expected: Vec<_> = model
            .iter()
            .filter(|(key, _)| inside(key))
            .map(|(key, value)| (key.clone(), if values { value.clone() } else { vec![] }))
            .collect();
        if back {
            expected.reverse();
        }
        let keys = (
            from.as_ref().map(Vec::as_slice),
            to.as_ref().map(Vec::as_slice),
        );
        let mut cursor = now.cursor(&table, keys).unwrap();
        let found = paged(&mut cursor, back, values, most);
        assert_eq!(found, expected, "round {round}");
        // The cursor stays on the last record, and single steps continue from there.
        if let [.., before, _] = &*expected {
            let step = match back {
                false => cursor.previous(),
                true => cursor.next(),
            };
            assert_eq!(step.unwrap().unwrap().0, before.0, "round {round}");
        }
    }
}

#[test]
fn an_empty_table_has_no_page_and_no_record() {
    let device = FaultyDevice::new(1000, 1);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    let mut cursor = db.snapshot().cursor(&table, ..).unwrap();
    assert!(paged(&mut cursor, false, true, 1).is_empty());
    assert!(paged(&mut cursor, true, true, 1).is_empty());
    let now = db.snapshot();
    let ends = [now.first(&table), now.last(&table)];
    assert!(ends.into_iter().all(|record| record.unwrap().is_none()));
    db.run(Durability::None, |tx| {
        ["a", "b/1", "b/2", "c"]
            .map(|key| tx.put(&table, key.as_bytes(), b""))
            .into_iter()
            .collect::<Result<(), _>>()
    })
    .unwrap();
    let found = db.snapshot().prefix(&table, b"b/").unwrap();
    let keys: Vec<Vec<u8>> = found.map(|record| record.unwrap().0).collect();
    assert_eq!(keys, [b"b/1", b"b/2"]);
}
