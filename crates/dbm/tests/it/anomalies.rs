// SPDX-License-Identifier: Apache-2.0
//! The anomalies of Adya's thesis and of Kleppmann's Hermitage list, each by its name: none of them
//! can happen.

use senko_dbm::{Database, DbmError, Durability, Table, Transaction};
use senko_io::faulty::FaultyDevice;

use crate::support::open;

/// A table with 1 -> 10 and 2 -> 20.
fn two_rows() -> (Database, Table) {
    let db = open(&FaultyDevice::new(2000, 1)).unwrap();
    let table = db.create_table("test").unwrap();
    db.run(Durability::None, |tx| {
        tx.put(&table, b"1", b"10")?;
        tx.put(&table, b"2", b"20")
    })
    .unwrap();
    (db, table)
}

fn commits(tx: Transaction) -> bool {
    match tx.commit(Durability::None) {
        Ok(()) => true,
        Err(DbmError::Conflict) => false,
        Err(error) => panic!("{error}"),
    }
}

fn get(tx: &mut Transaction, table: &Table, key: &[u8]) -> Vec<u8> {
    tx.get(table, key).unwrap().unwrap()
}

fn now(db: &Database, table: &Table, key: &[u8]) -> Vec<u8> {
    db.snapshot().get(table, key).unwrap().unwrap()
}

#[test]
fn g0_write_cycles() {
    let (db, t) = two_rows();
    let (mut t1, mut t2) = (db.begin(), db.begin());
    t1.put(&t, b"1", b"11").unwrap();
    t2.put(&t, b"1", b"12").unwrap();
    t1.put(&t, b"2", b"21").unwrap();
    assert!(commits(t1));
    t2.put(&t, b"2", b"22").unwrap();
    assert!(commits(t2));
    assert_eq!(
        (now(&db, &t, b"1"), now(&db, &t, b"2")),
        (b"12".into(), b"22".into())
    );
}

#[test]
fn g1a_aborted_reads() {
    let (db, t) = two_rows();
    let (mut t1, mut t2) = (db.begin(), db.begin());
    t1.put(&t, b"1", b"101").unwrap();
    assert_eq!(get(&mut t2, &t, b"1"), b"10");
    drop(t1);
    assert_eq!(get(&mut t2, &t, b"1"), b"10");
    assert!(commits(t2));
}

#[test]
fn g1b_intermediate_reads() {
    let (db, t) = two_rows();
    let (mut t1, mut t2) = (db.begin(), db.begin());
    t1.put(&t, b"1", b"101").unwrap();
    assert_eq!(get(&mut t2, &t, b"1"), b"10");
    t1.put(&t, b"1", b"11").unwrap();
    assert!(commits(t1));
    assert_eq!(get(&mut t2, &t, b"1"), b"10");
    assert_eq!(now(&db, &t, b"1"), b"11");
}

#[test]
fn g1c_circular_information_flow() {
    let (db, t) = two_rows();
    let (mut t1, mut t2) = (db.begin(), db.begin());
    t1.put(&t, b"1", b"11").unwrap();
    t2.put(&t, b"2", b"22").unwrap();
    assert_eq!(get(&mut t1, &t, b"2"), b"20");
    assert_eq!(get(&mut t2, &t, b"1"), b"10");
    // Each reads what the other overwrites, so only one may commit.
    assert!(commits(t1));
    assert!(!commits(t2));
}

#[test]
fn otv_observed_transaction_vanishes() {
    let (db, t) = two_rows();
    let (mut t1, mut t2) = (db.begin(), db.begin());
    t1.put(&t, b"1", b"11").unwrap();
    t1.put(&t, b"2", b"19").unwrap();
    t2.put(&t, b"1", b"12").unwrap();
    assert!(commits(t1));
    let mut t3 = db.begin();
    assert_eq!(get(&mut t3, &t, b"1"), b"11");
    t2.put(&t, b"2", b"18").unwrap();
    assert_eq!(get(&mut t3, &t, b"2"), b"19");
    assert!(commits(t2));
    assert_eq!(get(&mut t3, &t, b"2"), b"19");
    assert_eq!(get(&mut t3, &t, b"1"), b"11");
}

#[test]
fn pmp_predicate_many_preceders() {
    let (db, t) = two_rows();
    let (mut t1, mut t2) = (db.begin(), db.begin());
    assert!(t1.range(&t, b"3", None).unwrap().is_empty());
    t2.put(&t, b"3", b"30").unwrap();
    assert!(commits(t2));
    assert!(t1.range(&t, b"3", None).unwrap().is_empty());
    t1.put(&t, b"x", b"").unwrap();
    assert!(!commits(t1));
}

#[test]
fn p4_lost_update() {
    let (db, t) = two_rows();
    let (mut t1, mut t2) = (db.begin(), db.begin());
    assert_eq!(get(&mut t1, &t, b"1"), b"10");
    assert_eq!(get(&mut t2, &t, b"1"), b"10");
    t1.put(&t, b"1", b"11").unwrap();
    t2.put(&t, b"1", b"11").unwrap();
    assert!(commits(t1));
    assert!(!commits(t2));
}

#[test]
fn g_single_read_skew() {
    let (db, t) = two_rows();
    let (mut t1, mut t2) = (db.begin(), db.begin());
    assert_eq!(get(&mut t1, &t, b"1"), b"10");
    t2.put(&t, b"1", b"12").unwrap();
    t2.put(&t, b"2", b"18").unwrap();
    assert!(commits(t2));
    assert_eq!(get(&mut t1, &t, b"2"), b"20");
    t1.put(&t, b"3", b"30").unwrap();
    assert!(!commits(t1));
}

#[test]
fn g2_item_write_skew() {
    let (db, t) = two_rows();
    let (mut t1, mut t2) = (db.begin(), db.begin());
    for tx in [&mut t1, &mut t2] {
        assert_eq!(get(tx, &t, b"1"), b"10");
        assert_eq!(get(tx, &t, b"2"), b"20");
    }
    t1.put(&t, b"1", b"11").unwrap();
    t2.put(&t, b"2", b"21").unwrap();
    assert!(commits(t1));
    assert!(!commits(t2));
}

#[test]
fn g2_anti_dependency_cycle_with_phantoms() {
    let (db, t) = two_rows();
    let (mut t1, mut t2) = (db.begin(), db.begin());
    assert!(t1.range(&t, b"3", None).unwrap().is_empty());
    assert!(t2.range(&t, b"3", None).unwrap().is_empty());
    t1.put(&t, b"3", b"30").unwrap();
    t2.put(&t, b"4", b"42").unwrap();
    assert!(commits(t1));
    assert!(!commits(t2));
}

/// Each kind of range read is validated, also at its ends.
#[test]
fn phantoms_at_the_borders_of_every_kind_of_range() {
    type Read = fn(&mut Transaction, &Table);
    // Each case has a key that is read, a key that conflicts and one that does not.
    let cases: [(Read, &[u8], &[u8]); 7] = [
        (|tx, t| drop(tx.next(t, b"15").unwrap()), b"16", b"14"),
        (|tx, t| drop(tx.next(t, b"15").unwrap()), b"15", b"21"),
        (|tx, t| drop(tx.next_after(t, b"1").unwrap()), b"11", b"1"),
        (|tx, t| drop(tx.before(t, Some(b"2")).unwrap()), b"1", b"2"),
        (|tx, t| drop(tx.before(t, None).unwrap()), b"9", b"1"),
        (|tx, t| drop(tx.prefix(t, b"3").unwrap()), b"39", b"4"),
        (
            |tx, t| drop(tx.range(t, b"3", Some(b"5")).unwrap()),
            b"3",
            b"5",
        ),
    ];
    for (nth, (read, conflicts, passes)) in cases.into_iter().enumerate() {
        for (key, expected) in [(conflicts, false), (passes, true)] {
            let (db, t) = two_rows();
            let mut tx = db.begin();
            read(&mut tx, &t);
            tx.put(&t, b"other", b"").unwrap();
            db.run(Durability::None, |tx| tx.put(&t, key, b"phantom"))
                .unwrap();
            assert_eq!(commits(tx), expected, "case {nth}, key {key:?}");
        }
    }
}

/// A deleted range conflicts with a transaction that read a key or a range in it, also at its ends
/// and where it was empty. A transaction that only wrote there is ordered after it.
#[test]
fn a_deleted_range_conflicts_with_who_read_there() {
    type Read = fn(&mut Transaction, &Table);
    let cases: [(Read, &[u8], &[u8], bool); 6] = [
        (|tx, t| drop(tx.get(t, b"1").unwrap()), b"1", b"2", false),
        (|tx, t| drop(tx.get(t, b"1").unwrap()), b"2", b"9", true),
        (
            |tx, t| drop(tx.range(t, b"1", Some(b"2")).unwrap()),
            b"0",
            b"15",
            false,
        ),
        (
            |tx, t| drop(tx.range(t, b"3", Some(b"5")).unwrap()),
            b"4",
            b"9",
            false,
        ),
        (
            |tx, t| drop(tx.range(t, b"3", Some(b"5")).unwrap()),
            b"5",
            b"9",
            true,
        ),
        (|_, _| (), b"0", b"9", true),
    ];
    for (nth, (read, from, to, expected)) in cases.into_iter().enumerate() {
        let (db, t) = two_rows();
        let mut tx = db.begin();
        read(&mut tx, &t);
        tx.put(&t, b"1", b"11").unwrap();
        db.run(Durability::None, |tx| tx.delete_range(&t, from, Some(to)))
            .unwrap();
        assert_eq!(commits(tx), expected, "case {nth}");
    }
}

/// A dropped table conflicts with transactions that read it or wrote to it, and with no others.
#[test]
fn a_dropped_table_conflicts_with_who_used_it() {
    type Use = fn(&mut Transaction, &Table);
    let cases: [(Use, bool); 5] = [
        (|tx, t| drop(tx.get(t, b"1").unwrap()), false),
        (|tx, t| drop(tx.range(t, b"5", None).unwrap()), false),
        (|tx, t| tx.put(t, b"1", b"11").unwrap(), false),
        (|tx, t| tx.delete_range(t, b"5", None).unwrap(), false),
        (|_, _| (), true),
    ];
    for (nth, (used, expected)) in cases.into_iter().enumerate() {
        let (db, t) = two_rows();
        let other = db.create_table("other").unwrap();
        let mut tx = db.begin();
        used(&mut tx, &t);
        tx.put(&other, b"x", b"").unwrap();
        db.drop_table(&t).unwrap();
        assert_eq!(commits(tx), expected, "case {nth}");
        assert_eq!(db.snapshot().count(&other).unwrap(), u64::from(expected));
    }
}

/// A leaf that splits, or gets other keys, aborts no transaction.
#[test]
fn other_keys_of_a_leaf_conflict_with_nobody() {
    let (db, t) = two_rows();
    let mut tx = db.begin();
    assert_eq!(get(&mut tx, &t, b"1"), b"10");
    tx.range(&t, b"2", Some(b"3")).unwrap();
    for key in 0..2000u32 {
        let key = [b"4", &key.to_be_bytes()[..]].concat();
        db.run(Durability::None, |tx| tx.put(&t, &key, &[0; 100]))
            .unwrap();
    }
    tx.put(&t, b"1", b"11").unwrap();
    assert!(commits(tx));
}

#[test]
fn untracked_reads_are_not_validated() {
    let (db, t) = two_rows();
    let mut tx = db.begin();
    tx.get_untracked(&t, b"1").unwrap();
    tx.put(&t, b"2", b"21").unwrap();
    db.run(Durability::None, |tx| tx.put(&t, b"1", b"11"))
        .unwrap();
    assert!(commits(tx));
}
