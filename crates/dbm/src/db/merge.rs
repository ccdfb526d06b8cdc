// SPDX-License-Identifier: Apache-2.0
//! A table as a transaction sees it: the records of its snapshot, and its own writes over them.
//!
//! Card: two sorted streams are merged (`Walk` of the snapshot, the list of writes). A step moves
//! one of them or both, and descends only where a stream jumps. Deleted records are passed one by
//! one. Whoever takes the first record of a queue again and again would pass all that it took
//! before. So a run of [`RUN`] passed records is remembered as an empty range of the table
//! (`WriteSet::empty`), and the next walk jumps over it. A put into such a range divides it.
//!
//! VIEW-1: in an empty range the snapshot has only records that the transaction deleted, and the
//! transaction has no put.

use std::cmp::Ordering;

use crate::commit::ranges::{Borders, Range, after};
use crate::commit::writes::{Place, WriteSet};
use crate::db::snapshot::{Record, Walk};
use crate::records::table::TableInfo;
use crate::{DbmError, Snapshot, Table};

/// Passed records that make an empty range.
const RUN: usize = 8;

#[cfg(test)]
thread_local! {
    /// Steps of this thread: records passed or returned, and jumps.
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

pub(crate) struct Merged<'a> {
    snapshot: &'a Snapshot,
    base: Walk<'a>,
    writes: &'a WriteSet,
    own: Place,
    table: u32,
    back: bool,
    /// The first key that was passed since the last record, and how many.
    passed: Option<Vec<u8>>,
    count: usize,
    /// Ranges that turned out to be empty.
    empty: Vec<Range>,
}

impl<'a> Merged<'a> {
    /// The records from `border` on; backwards, those below it. Without a border, all.
    pub fn new(
        snapshot: &'a Snapshot,
        writes: &'a WriteSet,
        table: &Table,
        border: Option<&[u8]>,
        back: bool,
    ) -> Result<Merged<'a>, DbmError> {
        let TableInfo { id, root, .. } = *snapshot.info(table)?;
        let mut merged = Merged {
            snapshot,
            base: snapshot.walk(root, back),
            writes,
            own: writes.place(id, border),
            table: id,
            back,
            passed: None,
            count: 0,
            empty: Vec::new(),
        };
        let border = border.or((!back).then_some(b""));
        let empty = match border {
            _ if writes.empty.is_empty() => None,
            Some(border) if !back => writes.empty.find(id, border),
            border => writes.empty.find_below(id, border),
        };
        let start = match empty {
            Some(range) => merged.jump(range),
            None => merged.seek(border),
        };
        snapshot.valid(start)?;
        Ok(merged)
    }

    fn seek(&mut self, border: Option<&[u8]>) -> Result<(), DbmError> {
        step();
        self.own = self.writes.place(self.table, border);
        self.base.seek(border)
    }

    /// Goes beyond an empty range.
    fn jump(&mut self, (from, to): Borders<'_>) -> Result<(), DbmError> {
        match (self.back, to) {
            (true, _) => self.seek(Some(from)),
            (false, Some(to)) => self.seek(Some(to)),
            (false, None) => {
                self.own = self.writes.place(self.table, None);
                self.base.end();
                Ok(())
            }
        }
    }

    pub fn next(&mut self) -> Result<Option<Record>, DbmError> {
        let record = self.step();
        let record = self.snapshot.valid(record)?;
        if let Some(first) = self.passed.take()
            && std::mem::take(&mut self.count) >= RUN
        {
            let found = record.as_ref().map(|(key, _)| key);
            let (from, to) = match self.back {
                false => (first, found.cloned()),
                true => (
                    found.map_or(Vec::new(), |key| after(key)),
                    Some(after(&first)),
                ),
            };
            let table = self.table;
            self.empty.push(Range { table, from, to });
        }
        Ok(record)
    }

    fn step(&mut self) -> Result<Option<Record>, DbmError> {
        loop {
            step();
            let own = self.writes.at(self.table, self.own, self.back);
            let order = match (self.base.settle()?, own) {
                (false, None) => return Ok(None),
                (true, None) => Ordering::Less,
                (false, Some(_)) => Ordering::Greater,
                (true, Some(((key, _), _))) => match self.back {
                    false => self.base.key().cmp(key),
                    true => key.cmp(self.base.key()),
                },
            };
            let Some(((key, value), beyond)) = own.filter(|_| order != Ordering::Less) else {
                match self.writes.ranges.find(self.table, self.base.key()) {
                    None => {
                        let record = self.base.copy()?;
                        self.base.pass();
                        return Ok(Some(record));
                    }
                    Some((from, to)) => {
                        let key = self.base.key().to_vec();
                        self.note(&key);
                        match (self.back, to) {
                            (true, _) => self.base.seek(Some(from))?,
                            (false, Some(to)) => self.base.seek(Some(to))?,
                            (false, None) => self.base.end(),
                        }
                        continue;
                    }
                }
            };
            if order == Ordering::Equal {
                self.base.pass();
            }
            self.own = beyond;
            if let Some(value) = value {
                return Ok(Some((key.to_vec(), value.to_vec())));
            }
            self.note(key);
            if !self.writes.empty.is_empty()
                && let Some(range) = self.writes.empty.find(self.table, key)
            {
                self.jump(range)?;
            }
        }
    }

    /// Remembers that a deleted record was passed.
    fn note(&mut self, key: &[u8]) {
        self.count += 1;
        if self.passed.is_none() {
            self.passed = Some(key.to_vec());
        }
    }

    /// The ranges that turned out to be empty, for [`WriteSet::empty`].
    pub fn empty(self) -> Vec<Range> {
        self.empty
    }
}

/// The number of records of a table, with own writes. It looks up what was written, and counts the
/// records of deleted ranges.
pub(crate) fn count(
    snapshot: &Snapshot,
    writes: &WriteSet,
    table: &Table,
) -> Result<u64, DbmError> {
    let TableInfo {
        id,
        root,
        mut count,
        ..
    } = *snapshot.info(table)?;
    if !writes.writes_to(id) {
        return Ok(count);
    }
    let mut base = snapshot.walk(root, false);
    let all = |read| snapshot.valid(read);
    for (_, (from, to)) in writes.ranges.iter().filter(|(of, _)| *of == id) {
        if from.is_empty() && to.is_none() {
            count = 0;
            break;
        }
        all(base.seek(Some(from)))?;
        while snapshot.valid(base.settle())? {
            step();
            match base.pass_leaf(to) {
                0 => break,
                passed => count -= passed,
            }
        }
    }
    let mut at = writes.place(id, Some(b""));
    while let Some(((key, value), beyond)) = writes.at(id, at, false) {
        step();
        at = beyond;
        all(base.seek(Some(key)))?;
        let is_there = snapshot.valid(base.settle())?
            && base.key() == key
            && writes.ranges.find(id, key).is_none();
        match (is_there, value.is_some()) {
            (false, true) => count += 1,
            (true, false) => count -= 1,
            _ => {}
        }
    }
    Ok(count)
}

fn step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Database, Durability, Transaction};

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn key(nth: u64) -> [u8; 8] {
        nth.to_be_bytes()
    }

    /// A table with `count` records.
    fn table(count: u64) -> (Database, Table) {
        let db = crate::example::database();
        let table = db.create_table("t").unwrap();
        let records = (0..count).map(|nth| (key(nth), b"old"));
        db.bulk_load(&table, records, Durability::None).unwrap();
        (db, table)
    }

    /// The steps of a piece of work.
    fn steps(work: impl FnOnce()) -> u64 {
        STEPS.set(0);
        work();
        STEPS.get()
    }

    /// A transaction that had written used to pass all its writes in each step of a read, with a
    /// descent and a value for each: 8,000 overwritten records were listed in 38 seconds, and the
    /// same for a queue whose first record is taken until it is empty.
    #[test]
    fn reading_beside_own_writes_is_linear() {
        type Work = fn(&mut Transaction, &Table, u64);
        let write_all = |tx: &mut Transaction, table: &Table, count: u64| {
            for nth in 0..count {
                tx.put(table, &key(nth), b"new").unwrap();
            }
        };
        let works: [(&str, bool, Work); 8] = [
            ("range", true, |tx, table, count| {
                assert_eq!(tx.range(table, b"", None).unwrap().len() as u64, count);
            }),
            ("forwards", true, |tx, table, _| {
                let mut at = tx.first(table).unwrap();
                while let Some((key, _)) = at {
                    at = tx.next_after(table, &key).unwrap();
                }
            }),
            ("backwards", true, |tx, table, _| {
                let mut at = tx.last(table).unwrap();
                while let Some((key, _)) = at {
                    at = tx.before(table, Some(&key)).unwrap();
                }
            }),
            ("count", true, |tx, table, count| {
                assert_eq!(tx.count(table).unwrap(), count);
            }),
            ("take the first", false, |tx, table, _| {
                while let Some((key, _)) = tx.first(table).unwrap() {
                    tx.delete(table, &key).unwrap();
                }
            }),
            ("take the last", true, |tx, table, _| {
                while let Some((key, _)) = tx.last(table).unwrap() {
                    tx.delete(table, &key).unwrap();
                }
            }),
            ("take the first, add one", false, |tx, table, count| {
                for nth in count..3 * count {
                    let (first, _) = tx.first(table).unwrap().unwrap();
                    tx.delete(table, &first).unwrap();
                    tx.put(table, &key(nth), b"new").unwrap();
                }
            }),
            ("take from the middle", true, |tx, table, count| {
                while let Some((found, _)) = tx.next(table, &key(count / 2)).unwrap() {
                    tx.delete(table, &found).unwrap();
                    tx.before(table, Some(&key(count))).unwrap();
                }
            }),
        ];
        for (name, writes, work) in works {
            let of = |count: u64| {
                let (db, table) = table(count);
                let mut tx = db.begin();
                if writes {
                    write_all(&mut tx, &table, count);
                }
                steps(|| work(&mut tx, &table, count))
            };
            let (small, large) = (of(2000), of(4000));
            assert!(large <= 2 * small + 100, "{name}: {small}, then {large}");
            assert!(large <= 25 * 4000, "{name}: {large}");
        }
    }

    /// Compared with a map: all kinds of writes, walks in both directions and from anywhere, single
    /// steps, counts.
    #[test]
    fn a_transaction_sees_its_snapshot_with_its_own_writes() {
        let mut rng = 11u64;
        let mut next = |below: u64| {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695);
            (rng >> 33) % below
        };
        for round in 0..40 {
            let (db, table) = table([0, 30, 600][round % 3]);
            let other = db.create_table("other").unwrap();
            let snapshot = db.snapshot().cursor(&table, ..).unwrap();
            let mut model: Model = snapshot.map(Result::unwrap).collect();
            let mut tx = db.begin();
            tx.put(&other, &key(5), b"of another table").unwrap();
            let keys = 700;
            for _ in 0..400 {
                let (one, two) = (next(keys), next(keys));
                match next(12) {
                    0..3 => {
                        tx.put(&table, &key(one), b"new").unwrap();
                        model.insert(key(one).to_vec(), b"new".to_vec());
                    }
                    3..6 => {
                        // Runs of deletes, which become empty ranges.
                        for nth in one..one + 12 {
                            tx.delete(&table, &key(nth)).unwrap();
                            model.remove(&key(nth)[..]);
                        }
                    }
                    6 => {
                        let to = (next(9) > 0).then(|| key(one + 1 + next(30)));
                        let to = to.as_ref().map(|to| &to[..]);
                        tx.delete_range(&table, &key(one), to).unwrap();
                        let is_in = |k: &[u8]| *k >= key(one)[..] && to.is_none_or(|to| k < to);
                        model.retain(|k, _| !is_in(k));
                    }
                    7 => {
                        let expected = model.range(key(one).to_vec()..).next();
                        let found = tx.next(&table, &key(one)).unwrap();
                        assert_eq!(found, expected.map(|(k, v)| (k.clone(), v.clone())));
                    }
                    8 => {
                        let expected = model.range(..key(one).to_vec()).next_back();
                        let found = tx.before(&table, Some(&key(one))).unwrap();
                        assert_eq!(found, expected.map(|(k, v)| (k.clone(), v.clone())));
                    }
                    9 => {
                        let first = tx.first(&table).unwrap().map(|(k, _)| k);
                        assert_eq!(first.as_ref(), model.keys().next());
                        let last = tx.last(&table).unwrap().map(|(k, _)| k);
                        assert_eq!(last.as_ref(), model.keys().next_back());
                    }
                    10 => assert_eq!(tx.count(&table).unwrap(), model.len() as u64),
                    _ => {
                        let (from, to) = (key(one.min(two)), key(one.max(two)));
                        let found = tx.range(&table, &from, Some(&to)).unwrap();
                        let expected = model.range(from.to_vec()..to.to_vec());
                        assert!(found.iter().map(|(k, v)| (k, v)).eq(expected));
                    }
                }
            }
            let mut down = Vec::new();
            let mut at = tx.last(&table).unwrap();
            while let Some(record) = at {
                at = tx.before(&table, Some(&record.0)).unwrap();
                down.push(record);
            }
            assert!(down.iter().rev().map(|(k, v)| (k, v)).eq(&model));
            tx.commit(Durability::None).unwrap();
            let now = db.snapshot().cursor(&table, ..).unwrap();
            let now: Model = now.map(Result::unwrap).collect();
            assert_eq!(now, model);
        }
    }
}
