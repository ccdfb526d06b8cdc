// SPDX-License-Identifier: Apache-2.0
//! The writes of a transaction, private until the commit.
//!
//! Keys and values are in one arena. The list of writes is sorted by table and key, in chunks, so
//! that a write between others moves only a few of them. Ascending writes stay in one chunk.
//! WRITESET-1: a key has one entry, that of its newest write. WRITESET-2: a deleted range comes
//! before all keys, because its keys were dropped when it came. WRITESET-3: at most half of the
//! arena is bytes of overwritten values, and the limit of a transaction does not count them.

use std::cmp::Ordering;
use std::mem::take;

use crate::commit::ranges::{Range, RangeSet};

/// Initial bytes of an arena, and writes of a list.
const FIRST_BYTES: usize = 128;
const FIRST_OPS: usize = 4;
/// A longer chunk is divided before a write is put between others.
const CHUNK: usize = 128;
/// Fewer dead bytes than this are never collected.
const LEAST_DEAD: usize = 4096;

/// Bytes of the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: usize,
    len: usize,
}

impl Span {
    pub fn add(arena: &mut Vec<u8>, bytes: &[u8]) -> Span {
        let start = arena.len();
        arena.extend_from_slice(bytes);
        Span {
            start,
            len: bytes.len(),
        }
    }

    pub fn of(self, arena: &[u8]) -> &[u8] {
        &arena[self.start..self.start + self.len]
    }

    pub fn len(self) -> usize {
        self.len
    }
}

/// A put, or without a value a delete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub table: u32,
    pub key: Span,
    pub value: Option<Span>,
}

/// The state of a key in a transaction's own writes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Own<'a> {
    Put(&'a [u8]),
    Deleted,
    Untouched,
}

/// A place in the list of writes: before the write `nth` of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    chunk: usize,
    nth: usize,
}

/// The writes of a transaction as they are applied.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub arena: Vec<u8>,
    /// Sorted by table and key.
    pub ops: Vec<Op>,
}

#[derive(Debug, Default)]
pub(crate) struct WriteSet {
    arena: Vec<u8>,
    /// Bytes of the arena that belong to no write any more.
    dead: usize,
    count: usize,
    /// All chunks but the last one.
    chunks: Vec<Vec<Op>>,
    last: Vec<Op>,
    pub ranges: RangeSet,
    /// Ranges that are known to have no record: none of the snapshot that was not deleted, and no
    /// put. See `merge.rs`.
    pub empty: RangeSet,
}

impl WriteSet {
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.ranges.is_empty()
    }

    /// Approximate bytes that it takes, without those of overwritten values.
    pub fn bytes(&self) -> usize {
        self.arena.len() - self.dead + self.count * size_of::<Op>() + self.ranges.bytes()
    }

    fn order(&self, op: &Op, table: u32, key: &[u8]) -> Ordering {
        (op.table, op.key.of(&self.arena)).cmp(&(table, key))
    }

    fn chunk(&self, nth: usize) -> &[Op] {
        self.chunks.get(nth).unwrap_or(&self.last)
    }

    fn chunk_mut(&mut self, nth: usize) -> &mut Vec<Op> {
        self.chunks.get_mut(nth).unwrap_or(&mut self.last)
    }

    /// The place of a key, or the one that it would have.
    fn find(&self, table: u32, key: &[u8]) -> Result<Place, Place> {
        let is_below = |chunk: &Vec<Op>| {
            let last = chunk.last();
            last.is_none_or(|last| self.order(last, table, key) == Ordering::Less)
        };
        let chunk = self.chunks.partition_point(is_below);
        let found = self
            .chunk(chunk)
            .binary_search_by(|op| self.order(op, table, key));
        match found {
            Ok(nth) => Ok(Place { chunk, nth }),
            Err(nth) => Err(Place { chunk, nth }),
        }
    }

    pub fn write(&mut self, table: u32, key: &[u8], value: Option<&[u8]>) {
        if value.is_some() && !self.empty.is_empty() {
            self.empty.cut(table, key);
        }
        let end = self.last.last().or_else(|| self.chunks.last()?.last());
        if end.is_none_or(|end| self.order(end, table, key) == Ordering::Less) {
            if self.arena.capacity() == 0 {
                self.arena = Vec::with_capacity(FIRST_BYTES);
                self.last = Vec::with_capacity(FIRST_OPS);
            }
            let op = self.op(table, key, value);
            self.last.push(op);
            return;
        }
        match self.find(table, key) {
            Ok(at) => self.overwrite(at, value),
            Err(at) => {
                let op = self.op(table, key, value);
                let at = self.divide(at);
                self.chunk_mut(at.chunk).insert(at.nth, op);
            }
        }
    }

    fn op(&mut self, table: u32, key: &[u8], value: Option<&[u8]>) -> Op {
        self.count += 1;
        let key = Span::add(&mut self.arena, key);
        let value = value.map(|value| Span::add(&mut self.arena, value));
        Op { table, key, value }
    }

    fn overwrite(&mut self, at: Place, value: Option<&[u8]>) {
        let old = self.chunk(at.chunk)[at.nth].value;
        let room = old.map_or(0, Span::len);
        let new = match (old, value) {
            (Some(old), Some(value)) if value.len() <= room => {
                self.arena[old.start..old.start + value.len()].copy_from_slice(value);
                self.dead += room - value.len();
                Some(Span {
                    start: old.start,
                    len: value.len(),
                })
            }
            (_, value) => {
                self.dead += room;
                value.map(|value| Span::add(&mut self.arena, value))
            }
        };
        self.chunk_mut(at.chunk)[at.nth].value = new;
        self.collect();
    }

    /// Divides the chunk of a place, if it is long. Returns where the place is then.
    fn divide(&mut self, at: Place) -> Place {
        const PIECE: usize = CHUNK / 2;
        let Place { chunk, nth } = at;
        if self.chunk(chunk).len() <= CHUNK {
            return at;
        }
        let long = take(self.chunk_mut(chunk));
        let mut pieces: Vec<Vec<Op>> = long.chunks(PIECE).map(<[Op]>::to_vec).collect();
        if chunk == self.chunks.len() {
            self.last = pieces.pop().unwrap_or_default();
            self.chunks.append(&mut pieces);
        } else {
            self.chunks.splice(chunk..=chunk, pieces);
        }
        // Behind the last write of a piece, rather than before the first of the next one.
        let before = nth.saturating_sub(1) / PIECE;
        Place {
            chunk: chunk + before,
            nth: nth - before * PIECE,
        }
    }

    /// Makes the arena anew, if most of it is dead (WRITESET-3).
    fn collect(&mut self) {
        if self.dead < LEAST_DEAD.max(self.arena.len() / 2) {
            return;
        }
        let old = take(&mut self.arena);
        self.arena.reserve(old.len() - self.dead);
        self.dead = 0;
        for op in self.chunks.iter_mut().flatten().chain(&mut self.last) {
            op.key = Span::add(&mut self.arena, op.key.of(&old));
            op.value = op
                .value
                .map(|value| Span::add(&mut self.arena, value.of(&old)));
        }
    }

    /// Bytes that a write of `key` would make dead.
    pub fn replaced(&self, table: u32, key: &[u8]) -> usize {
        let found = self.find(table, key).ok();
        let op = found.map(|at| self.chunk(at.chunk)[at.nth]);
        op.map_or(0, |op| op.key.len() + op.value.map_or(0, Span::len))
    }

    pub fn delete_range(&mut self, range: Range) {
        let (table, from, to) = (range.table, &*range.from, range.to.as_deref());
        let place = |found: Result<Place, Place>| found.unwrap_or_else(|at| at);
        let first = place(self.find(table, from));
        let end = match to {
            Some(to) => place(self.find(table, to)),
            None => place(self.find(table + 1, b"")),
        };
        if (first.chunk, first.nth) < (end.chunk, end.nth) {
            for chunk in first.chunk..=end.chunk {
                let ops = self.chunk_mut(chunk);
                let from = if chunk == first.chunk { first.nth } else { 0 };
                let to = if chunk == end.chunk {
                    end.nth
                } else {
                    ops.len()
                };
                let bytes = |op: Op| op.key.len() + op.value.map_or(0, Span::len);
                let dropped: usize = ops.drain(from..to).map(bytes).sum();
                self.dead += dropped;
                self.count -= to - from;
            }
            self.chunks.retain(|chunk| !chunk.is_empty());
            self.collect();
        }
        self.ranges.add(range);
    }

    /// The same writes to other tables: for each number, the new one. No two become one.
    pub fn renumber(self, numbers: &[(u32, u32)]) -> WriteSet {
        if numbers.iter().all(|(old, new)| old == new) {
            return self;
        }
        let new = |old: u32| {
            let found = numbers.iter().find(|(of, _)| *of == old);
            found.map_or(old, |(_, new)| *new)
        };
        let mut renumbered = WriteSet::default();
        // Before the keys (WRITESET-2).
        for (table, (from, to)) in self.ranges.iter() {
            renumbered.ranges.add(Range {
                table: new(table),
                from: from.to_vec(),
                to: to.map(<[u8]>::to_vec),
            });
        }
        for op in self.chunks.iter().flatten().chain(&self.last) {
            let value = op.value.map(|value| value.of(&self.arena));
            renumbered.write(new(op.table), op.key.of(&self.arena), value);
        }
        renumbered
    }

    /// Remembers ranges without a record (VIEW-1).
    pub fn note_empty(&mut self, ranges: Vec<Range>) {
        ranges.into_iter().for_each(|range| self.empty.add(range));
    }

    pub fn finish(&mut self) -> (Changes, RangeSet) {
        let (arena, mut ops) = (take(&mut self.arena), take(&mut self.last));
        if !self.chunks.is_empty() {
            self.chunks.push(ops);
            ops = self.chunks.concat();
        }
        (Changes { arena, ops }, take(&mut self.ranges))
    }

    pub fn get(&self, table: u32, key: &[u8]) -> Own<'_> {
        if self.is_empty() {
            return Own::Untouched;
        }
        if let Ok(at) = self.find(table, key) {
            return match self.chunk(at.chunk)[at.nth].value {
                Some(value) => Own::Put(value.of(&self.arena)),
                None => Own::Deleted,
            };
        }
        match self.ranges.find(table, key) {
            Some(_) => Own::Deleted,
            None => Own::Untouched,
        }
    }

    /// The place of the first write from `key` on; without a key, that behind a table's last one.
    pub fn place(&self, table: u32, key: Option<&[u8]>) -> Place {
        let found = match key {
            Some(key) => self.find(table, key),
            None => self.find(table + 1, b""),
        };
        found.unwrap_or_else(|at| at)
    }

    /// The write of a table at a place, or that before it, and the place beyond it.
    pub fn at(&self, table: u32, at: Place, back: bool) -> Option<(Written<'_>, Place)> {
        let Place { mut chunk, mut nth } = at;
        if back {
            while nth == 0 {
                chunk = chunk.checked_sub(1)?;
                nth = self.chunk(chunk).len();
            }
            nth -= 1;
        } else {
            while nth == self.chunk(chunk).len() {
                chunk += 1;
                nth = 0;
                if chunk > self.chunks.len() {
                    return None;
                }
            }
        }
        let op = &self.chunk(chunk)[nth];
        let beyond = Place {
            chunk,
            nth: nth + usize::from(!back),
        };
        let key = op.key.of(&self.arena);
        let value = op.value.map(|value| value.of(&self.arena));
        (op.table == table).then_some(((key, value), beyond))
    }

    pub fn writes_to(&self, table: u32) -> bool {
        self.at(table, self.place(table, Some(b"")), false)
            .is_some()
            || self.ranges.has_table(table)
    }
}

/// A key, and its new value.
pub(crate) type Written<'a> = (&'a [u8], Option<&'a [u8]>);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn writes_are_a_map_in_which_the_newest_counts() {
        let mut rng = 1u64;
        let mut next = |below: u64| {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695);
            (rng >> 33) % below
        };
        let mut writes = WriteSet::default();
        let mut model: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for round in 0..40_000u64 {
            let key = next(2000).to_be_bytes().to_vec();
            match next(1000) {
                0..2 => {
                    let to = (next(2000) + 20).to_be_bytes().to_vec();
                    let range = Range {
                        table: 1,
                        from: key.clone(),
                        to: Some(to.clone()),
                    };
                    writes.delete_range(range);
                    model.retain(|k, _| *k < key || *k >= to);
                }
                2..200 => {
                    writes.write(1, &key, None);
                    model.insert(key, None);
                }
                200..800 => {
                    let value = vec![round as u8; next(20) as usize];
                    writes.write(1, &key, Some(&value));
                    model.insert(key, Some(value));
                }
                _ => {
                    let found = match writes.get(1, &key) {
                        Own::Put(value) => Some(value.to_vec()),
                        Own::Deleted | Own::Untouched => None,
                    };
                    assert_eq!(found, model.get(&key).cloned().flatten());
                    let owned = |(k, v): Written<'_>| (k.to_vec(), v.map(<[u8]>::to_vec));
                    let at = writes.place(1, Some(&key));
                    let ahead = writes.at(1, at, false).map(|(op, _)| owned(op));
                    let expected = model.range(key.clone()..).next();
                    assert_eq!(ahead, expected.map(|(k, v)| (k.clone(), v.clone())));
                    let behind = writes.at(1, at, true).map(|(op, _)| owned(op));
                    let expected = model.range(..key.clone()).next_back();
                    assert_eq!(behind, expected.map(|(k, v)| (k.clone(), v.clone())));
                }
            }
            assert!(
                writes.dead <= LEAST_DEAD.max(writes.arena.len() / 2),
                "WRITESET-3"
            );
        }
        let live: usize = model
            .iter()
            .map(|(k, v)| k.len() + v.as_ref().map_or(0, Vec::len))
            .sum();
        assert_eq!(writes.arena.len() - writes.dead, live);
        assert_eq!(writes.count, model.len());
        assert!(writes.chunks.len() > 10 && writes.chunks.iter().all(|c| c.len() <= CHUNK + 1));
        let (changes, _) = writes.finish();
        let all = changes.ops.iter().map(|op| {
            let value = op.value.map(|value| value.of(&changes.arena).to_vec());
            (op.key.of(&changes.arena).to_vec(), value)
        });
        assert!(all.eq(model));
    }

    /// A key that was overwritten again and again used to count with all its old values.
    #[test]
    fn overwritten_values_take_no_space() {
        let mut writes = WriteSet::default();
        for round in 0..1000usize {
            writes.write(1, b"key", Some(&vec![0; 1000 + round]));
            assert!(writes.bytes() < 2200);
            assert!(writes.arena.len() < 10_000);
        }
    }
}
