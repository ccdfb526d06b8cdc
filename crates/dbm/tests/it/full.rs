// SPDX-License-Identifier: Apache-2.0
//! A database that is full: nothing is lost, every record can be deleted in any order, and then
//! there is room again.

use std::path::Path;
use std::sync::Arc;

use senko_dbm::{Database, DbmError, Durability, Options, Table};
use senko_io::faulty::FaultyDevice;
use senko_workload::Rng;

use crate::support::{content, quiet, seed, usual};

/// How a database is bounded.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// `Options::max_bytes`, with the thread or without.
    Option(usize),
    /// A device that cannot grow.
    Device,
}

struct Bounded {
    folder: senko_dbm::example::Folder,
    device: Arc<FaultyDevice>,
    bound: Bound,
    bytes: u64,
}

impl Bounded {
    fn new(bound: Bound, bytes: u64) -> Bounded {
        Bounded {
            folder: senko_dbm::example::Folder::new(),
            device: FaultyDevice::new(bytes / 4096, 1),
            bound,
            bytes,
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn open(&self) -> Database {
        match self.bound {
            Bound::Option(threads) => {
                let max_bytes = Some(self.bytes);
                let options = Options {
                    max_bytes,
                    threads,
                    ..quiet()
                };
                Database::open(&self.path(), options).unwrap()
            }
            Bound::Device => Database::open_device(Arc::clone(&self.device) as _, quiet()).unwrap(),
        }
    }

    /// `max_bytes` used to be passed by up to 44 %.
    fn check_length(&self) {
        if let Bound::Option(_) = self.bound {
            let length = Path::metadata(&self.path()).unwrap().len();
            assert!(
                length <= self.bytes,
                "{length} bytes, {} allowed",
                self.bytes
            );
        }
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Puts records until there is no room. Returns how many there are.
fn fill(db: &Database, table: &Table, bytes: usize, durability: Durability) -> u32 {
    for number in 0.. {
        let value = vec![number as u8; bytes];
        match db.run(durability, |tx| tx.put(table, &key(number), &value)) {
            Ok(()) => {}
            Err(DbmError::NoSpace(_)) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

fn count(db: &Database, table: &Table) -> u64 {
    db.snapshot().count(table).unwrap()
}

const BOUNDS: [Bound; 3] = [Bound::Option(0), Bound::Option(1), Bound::Device];
const SIZES: [usize; 6] = [60, 200, 900, 1300, 3000, 20_000];

/// No record of a full database could be deleted, nor a range, and closing failed: with values of
/// 1,300 bytes and more at once, with shorter ones after some deletes in random order.
#[test]
fn every_record_of_a_full_database_can_be_deleted() {
    let mut rng = Rng::new(seed("every_record_of_a_full_database_can_be_deleted"));
    let cases = SIZES
        .iter()
        .flat_map(|bytes| BOUNDS.map(|bound| (*bytes, bound)));
    let orders = ["random", "reopened", "down", "random", "up"];
    for ((bytes, bound), order) in cases.zip(orders.into_iter().cycle()) {
        let bounded = Bounded::new(bound, 1 << 20);
        let what = format!("{bytes} bytes, {bound:?}, {order}");
        let mut db = bounded.open();
        let table = db.create_table("t").unwrap();
        let durability = match bound {
            Bound::Device => Durability::Synced,
            _ => Durability::Buffered,
        };
        let records = fill(&db, &table, bytes, durability);
        let live = db.stats().live_bytes;
        println!("{what}: {records} records, {live} bytes");
        assert!(live > 200_000, "{what}: {records} records, {live} bytes");
        bounded.check_length();
        let mut numbers: Vec<u32> = (0..records).collect();
        match order {
            "down" => numbers.reverse(),
            "up" => {}
            _ => {
                for nth in (1..numbers.len()).rev() {
                    numbers.swap(nth, rng.below(nth as u64 + 1) as usize);
                }
            }
        }
        if order == "reopened" {
            db.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            db = bounded.open();
        }
        assert_eq!(count(&db, &table), u64::from(records), "{what}");
        for (nth, number) in numbers.iter().enumerate() {
            let deleted = db.run(durability, |tx| tx.delete(&table, &key(*number)));
            if let Err(error) = deleted {
                panic!("{what}: delete {nth} of {records}: {error}");
            }
        }
        assert_eq!(count(&db, &table), 0, "{what}");
        let again = fill(&db, &table, bytes, durability);
        assert!(again >= records / 2, "{what}: {again} after {records}");
        bounded.check_length();
        db.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        let db = bounded.open();
        assert!(db.verify().unwrap().problems.is_empty(), "{what}");
        let found = content(&db.snapshot(), &table).len();
        assert_eq!(found as u32, again, "{what}");
    }
}

/// The same with a range of everything, and with a table that is dropped.
#[test]
fn a_full_database_can_be_cleared() {
    for bytes in SIZES {
        for bound in BOUNDS {
            for how in ["range", "clear", "drop"] {
                let bounded = Bounded::new(bound, 2 << 20);
                let what = format!("{bytes} bytes, {bound:?}, {how}");
                let db = bounded.open();
                let table = db.create_table("t").unwrap();
                let records = fill(&db, &table, bytes, Durability::Buffered);
                let cleared = match how {
                    "range" => db.run(Durability::Synced, |tx| tx.delete_range(&table, b"", None)),
                    "clear" => db.run(Durability::Synced, |tx| tx.clear(&table)),
                    _ => db.drop_table(&table),
                };
                cleared.unwrap_or_else(|error| panic!("{what}: {error}"));
                let table = db.create_table("t").unwrap();
                assert_eq!(count(&db, &table), 0, "{what}");
                let again = fill(&db, &table, bytes, Durability::Buffered);
                assert!(again >= records / 2, "{what}: {again} after {records}");
                db.close().unwrap_or_else(|error| panic!("{what}: {error}"));
                bounded.check_length();
            }
        }
    }
}

/// The cleaner of the maintenance thread used pages for which commits were admitted meanwhile. Then
/// no commit was taken any more, or the log found no page and writing ended.
#[test]
fn threads_on_a_full_database_take_no_room_of_each_other() {
    for bytes in [1300, 20_000] {
        for bound in BOUNDS {
            let bounded = Bounded::new(bound, 2 << 20);
            let what = format!("{bytes} bytes, {bound:?}");
            let db = bounded.open();
            let table = db.create_table("t").unwrap();
            std::thread::scope(|scope| {
                for thread in 0..4u32 {
                    let (db, table, what) = (&db, &table, &what);
                    scope.spawn(move || {
                        let durability = match thread {
                            0 => Durability::Synced,
                            1 => Durability::None,
                            _ => Durability::Buffered,
                        };
                        for round in 0..2 {
                            put_and_delete(db, table, bytes, durability, thread)
                                .unwrap_or_else(|error| panic!("{what}, round {round}: {error}"));
                        }
                    });
                }
            });
            assert_eq!(count(&db, &table), 0, "{what}");
            db.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            bounded.check_length();
        }
    }
}

/// Puts the records of one thread until there is no room, and deletes them.
fn put_and_delete(
    db: &Database,
    table: &Table,
    bytes: usize,
    durability: Durability,
    thread: u32,
) -> Result<(), DbmError> {
    let value = vec![thread as u8; bytes];
    let key = |number: u32| key((thread << 24) + number);
    let mut records = 0;
    loop {
        match db.run(durability, |tx| tx.put(table, &key(records), &value)) {
            Ok(()) => records += 1,
            Err(DbmError::NoSpace(_)) => break,
            Err(error) => return Err(error),
        }
    }
    (0..records).try_for_each(|number| db.run(durability, |tx| tx.delete(table, &key(number))))
}

/// A checkpoint said that there is no space, on a file that could grow, because commits had taken
/// what it had grown by.
#[test]
fn a_checkpoint_beside_commits_finds_room_where_the_file_can_grow() {
    let folder = senko_dbm::example::Folder::new();
    let options = Options {
        log_bytes: 256 << 10,
        cache_bytes: 1 << 20,
        ..usual()
    };
    let db = Database::open(&folder.path().join("data"), options).unwrap();
    let table = db.create_table("t").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let mut rng = Rng::for_stream(seed("checkpoints beside commits"), thread.into());
                for _ in 0..400 {
                    let bytes = [300, 12_000, 60_000][rng.below(3) as usize];
                    let key = key(rng.below(120) as u32);
                    db.run(Durability::Buffered, |tx| {
                        tx.put(table, &key, &vec![1; bytes])
                    })
                    .unwrap();
                    if rng.below(16) == 0 {
                        db.checkpoint().unwrap();
                    }
                }
            });
        }
    });
    assert!(db.verify().unwrap().problems.is_empty());
}

/// The guide says how much of a bound is for records.
#[test]
fn most_of_a_bound_is_for_records() {
    for (mebibytes, percent) in [(1, 25), (2, 45), (20, 80)] {
        let bounded = Bounded::new(Bound::Option(0), mebibytes << 20);
        let db = bounded.open();
        let table = db.create_table("t").unwrap();
        let records = fill(&db, &table, 900, Durability::Buffered);
        let bytes = u64::from(records) * 904;
        println!("{mebibytes} MiB: {bytes} bytes of records");
        assert!(bytes * 100 >= bounded.bytes * percent * 9 / 10, "{bytes}");
        assert!(db.stats().live_bytes * 100 >= bounded.bytes * percent);
        bounded.check_length();
    }
}
