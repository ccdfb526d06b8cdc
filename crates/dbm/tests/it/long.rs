// SPDX-License-Identifier: Apache-2.0
//! Long transactions: what they take, what they hold, and that they end beside short ones.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use senko_dbm::{Batch, Database, DbmError, Durability, Options, Table, Transaction};
use senko_io::Op;
use senko_io::faulty::FaultyDevice;

use crate::support::{open, quiet};

/// A value that was put again and again, and a key that was read again and again, used to count
/// each time: 64 puts of 1 MiB were too large for a transaction.
#[test]
fn a_transaction_counts_what_is_left_of_it() {
    let options = Options {
        transaction_bytes: 300_000,
        ..quiet()
    };
    let db = Database::open_device(FaultyDevice::new(3000, 1), options).unwrap();
    let table = db.create_table("t").unwrap();
    let mut tx = db.begin();
    for round in 0..100u8 {
        // Shorter and longer ones, and the largest that fits.
        for bytes in [100_000, 150_000, 290_000] {
            tx.put(&table, b"key", &vec![round; bytes]).unwrap();
        }
        tx.delete(&table, b"key").unwrap();
    }
    tx.put(&table, b"key", &[1; 200_000]).unwrap();
    let mut full = |value: &[u8]| tx.put(&table, b"other", value);
    assert!(matches!(
        full(&[2; 100_000]),
        Err(DbmError::TransactionTooLarge { .. })
    ));
    full(&[2; 99_000]).unwrap();
    assert_eq!(tx.get(&table, b"key").unwrap().unwrap(), [1; 200_000]);
    tx.commit(Durability::None).unwrap();
    db.run(Durability::None, |tx| tx.put(&table, b"small", b"value"))
        .unwrap();
    let mut tx = db.begin();
    for _ in 0..100_000 {
        assert!(tx.get(&table, b"small").unwrap().is_some());
        assert!(tx.next(&table, b"small").unwrap().is_some());
        assert!(tx.get(&table, b"no such key").unwrap().is_none());
    }
    for round in 0..10_000u64 {
        tx.put(&table, &[round as u8; 100], b"x").unwrap();
        tx.delete_range(&table, b"", None).unwrap();
    }
    tx.commit(Durability::None).unwrap();
    assert_eq!(db.snapshot().count(&table).unwrap(), 0);
}

/// An open transaction used to keep the values that others wrote, and without a bound.
#[test]
fn a_transaction_that_holds_too_much_ends_and_no_other() {
    let options = Options {
        overlap_bytes: 200_000,
        ..quiet()
    };
    let db = Database::open_device(FaultyDevice::new(20_000, 1), options).unwrap();
    let table = db.create_table("t").unwrap();
    let overlaps = || -> Vec<u64> {
        let open = db.stats().snapshots;
        open.iter().map(|open| open.overlap_bytes).collect()
    };
    let write = |key: &[u8], value: &[u8]| {
        let mut batch = Batch::new();
        batch.put(&table, key, value).unwrap();
        db.write(batch, Durability::None).unwrap();
    };
    write(b"key", b"first");
    let snapshot = db.snapshot();
    let (mut reader, mut writer) = (db.begin(), db.begin());
    let old = db.begin();
    writer.put(&table, b"mine", b"1").unwrap();
    for round in 0..100u8 {
        write(&[round % 4], &[round; 50_000]);
    }
    // 5 MB of values, and a hundred keys.
    assert_eq!(overlaps()[0], 0, "a snapshot keeps none");
    assert!(
        overlaps()[1] > 0 && overlaps()[1] < 100 * 300,
        "{:?}",
        overlaps()
    );
    assert_eq!(reader.get(&table, b"key").unwrap().unwrap(), b"first");
    let mut young = db.begin();
    let mut count = 0;
    while overlaps().len() > 2 {
        write(&[7; 1000], b"");
        count += 1;
        assert!(overlaps().iter().all(|bytes| *bytes < 220_000));
    }
    assert!(count > 100, "{count}");
    assert!(matches!(
        reader.get(&table, b"key"),
        Err(DbmError::SnapshotExpired)
    ));
    assert!(matches!(
        writer.put(&table, b"more", b""),
        Err(DbmError::SnapshotExpired)
    ));
    let expired = writer.commit(Durability::None);
    assert!(matches!(expired, Err(DbmError::SnapshotExpired)));
    // It did nothing, so nothing is missing.
    old.commit(Durability::None).unwrap();
    assert_eq!(snapshot.get(&table, b"key").unwrap().unwrap(), b"first");
    assert_eq!(young.get(&table, b"mine").unwrap(), None);
    young.put(&table, b"mine", b"2").unwrap();
    young.commit(Durability::None).unwrap();
}

/// What happens at each step of a validation, told by its number.
const WAITS: u32 = 4;

/// A database, one other thread that puts the requested keys, and what it did.
struct Rival {
    db: Database,
    table: Table,
    ask: Sender<Vec<u8>>,
    told: Receiver<&'static str>,
}

impl Rival {
    fn new() -> Rival {
        let (tell, told) = channel();
        let pause = {
            let tell = Mutex::new(tell.clone());
            move |step| {
                if step == WAITS {
                    let _ = tell.lock().unwrap().send("waits");
                }
            }
        };
        let options = Options {
            pause: Some(Arc::new(pause)),
            ..quiet()
        };
        let db = Database::open_device(FaultyDevice::new(3000, 1), options).unwrap();
        let table = db.create_table("t").unwrap();
        db.run(Durability::None, |tx| {
            (0..100u8).try_for_each(|key| tx.put(&table, &[key], b"0"))
        })
        .unwrap();
        let (ask, asked) = channel::<Vec<u8>>();
        let (its_db, its_table) = (db.clone(), table.clone());
        std::thread::spawn(move || {
            for key in asked {
                let mut batch = Batch::new();
                batch.put(&its_table, &key, b"rival").unwrap();
                its_db.write(batch, Durability::None).unwrap();
                let _ = tell.send("committed");
            }
        });
        Rival {
            db,
            table,
            ask,
            told,
        }
    }

    /// Lets the other thread put a key. Returns what it does: it commits or waits.
    fn put(&self, key: &[u8]) -> &'static str {
        self.ask.send(key.to_vec()).unwrap();
        self.told.recv().unwrap()
    }

    /// One try of a transaction that reads the whole table.
    fn read_all(&self, tx: &mut Transaction) -> Result<(), DbmError> {
        let all = tx.range(&self.table, b"", None)?;
        assert_eq!(all.len(), 100);
        tx.put(&self.table, &[50], b"sum")
    }
}

/// A transaction that read the whole table used to lose to short ones without an end: 0 of 132
/// tries committed beside two writers. Now the ninth does, and the others wait for it, but only
/// those that change what it read.
#[test]
fn a_transaction_that_loses_again_and_again_takes_a_turn() {
    let rival = Rival::new();
    let other = rival.db.create_table("other").unwrap();
    for _ in 0..3 {
        let tries = AtomicU32::new(0);
        let tried = |tx: &mut Transaction| {
            rival.read_all(tx)?;
            // Its own thread commits others meanwhile, and looks at something.
            let put = || {
                let put = |tx: &mut Transaction| tx.put(&other, b"unrelated", b"");
                rival.db.run(Durability::None, put)
            };
            put().unwrap();
            assert_eq!(rival.db.begin().get(&other, b"other").unwrap(), None);
            match tries.fetch_add(1, Ordering::SeqCst) + 1 {
                9 => {
                    // Unrelated commits of others pass.
                    let passes = std::thread::scope(|scope| scope.spawn(put).join());
                    passes.unwrap().unwrap();
                    assert_eq!(rival.put(&[7]), "waits");
                }
                _ => assert_eq!(rival.put(&[7]), "committed"),
            }
            Ok(())
        };
        rival.db.run(Durability::None, tried).unwrap();
        assert_eq!(tries.load(Ordering::SeqCst), 9);
        assert_eq!(rival.told.recv(), Ok("committed"));
        let now = rival.db.snapshot();
        assert_eq!(now.get(&rival.table, &[50]).unwrap().unwrap(), b"sum");
        assert_eq!(now.get(&rival.table, &[7]).unwrap().unwrap(), b"rival");
    }
    assert_eq!(rival.db.stats().conflicts, 24);
}

/// The closure of `run` commits what its transaction reads. No turn helps against that: it ran for
/// ever.
#[test]
fn a_run_that_changes_what_it_reads_ends() {
    let db = Database::open_device(FaultyDevice::new(300, 1), quiet()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut tries = 0;
    let done = db.run(Durability::None, |tx| {
        tries += 1;
        assert!(tries <= 100);
        tx.get(&table, b"key")?;
        db.run(Durability::None, |own| own.put(&table, b"key", &[tries]))?;
        tx.put(&table, b"other", b"lost")
    });
    assert!(matches!(done, Err(DbmError::Conflict)), "{done:?}");
    assert_eq!(tries, 100);
    let now = db.snapshot();
    assert_eq!(now.get(&table, b"key").unwrap().unwrap(), [100]);
    assert_eq!(now.get(&table, b"other").unwrap(), None);
}

/// A transaction reads something else in each try, so that its first turn stops the wrong commits.
/// Its second one stops all. Without `run` it is the same.
#[test]
fn a_transaction_that_reads_other_keys_in_each_try_takes_a_turn_too() {
    let rival = Rival::new();
    for tries in 1u8.. {
        let mut tx = rival.db.begin();
        tx.get(&rival.table, &[tries]).unwrap();
        tx.put(&rival.table, &[50], b"sum").unwrap();
        let does = rival.put(&[tries]);
        assert_eq!(does, if tries < 10 { "committed" } else { "waits" });
        let committed = tx.commit(Durability::None);
        if tries < 8 {
            // The thread looks at something between two tries.
            drop(rival.db.begin());
        }
        match committed {
            Ok(()) => {
                assert_eq!(tries, 10);
                break;
            }
            Err(error) => assert!(matches!(error, DbmError::Conflict) && tries < 10),
        }
    }
    assert_eq!(rival.told.recv(), Ok("committed"));
    // A turn is one transaction's: the next one has none.
    let mut tx = rival.db.begin();
    tx.get(&rival.table, b"a").unwrap();
    tx.put(&rival.table, b"b", b"").unwrap();
    assert_eq!(rival.put(b"a"), "committed");
    assert!(matches!(
        tx.commit(Durability::None),
        Err(DbmError::Conflict)
    ));
}

/// A transaction that has the turn waits for a commit that waits for the turn. The turn ends, and
/// nobody waits forever. Also a transaction that is dropped ends its turn.
#[test]
fn a_turn_does_not_outlast_a_transaction_that_does_nothing() {
    let rival = Rival::new();
    let mut tries = 0;
    let tried = |tx: &mut Transaction| {
        rival.read_all(tx)?;
        tries += 1;
        if tries == 12 {
            return Ok(());
        }
        let does = rival.put(&[7]);
        if tries > 8 && does == "waits" {
            assert_eq!(rival.told.recv(), Ok("committed"));
        }
        Ok(())
    };
    rival.db.run(Durability::None, tried).unwrap();
    assert_eq!(tries, 12);
    for _ in 0..8 {
        let mut tx = rival.db.begin();
        rival.read_all(&mut tx).unwrap();
        assert_eq!(rival.put(&[7]), "committed");
        assert!(tx.commit(Durability::None).is_err());
    }
    let mut tx = rival.db.begin();
    rival.read_all(&mut tx).unwrap();
    assert_eq!(rival.put(&[7]), "waits");
    drop(tx);
    assert_eq!(rival.told.recv(), Ok("committed"));
}

/// Reads that were refused took no turn from anybody, and a database that only reads has none.
#[test]
fn a_turn_in_a_database_that_takes_no_commits_is_none() {
    let device = FaultyDevice::new(3000, 1);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    for _ in 0..8 {
        let mut tx = db.begin();
        tx.get(&table, b"a").unwrap();
        tx.put(&table, b"b", b"").unwrap();
        let other = std::thread::scope(|scope| {
            let put = || db.run(Durability::None, |tx| tx.put(&table, b"a", b""));
            scope.spawn(put).join()
        });
        other.unwrap().unwrap();
        assert!(matches!(
            tx.commit(Durability::None),
            Err(DbmError::Conflict)
        ));
    }
    device.fail_from(Op::Write, 1, 5);
    assert!(db.sync().is_err());
    assert!(db.begin().get(&table, b"a").unwrap().is_some());
}
