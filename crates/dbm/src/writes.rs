// SPDX-License-Identifier: Apache-2.0
//! The writes and reads of a transaction, private until the commit.
//!
//! Writes are in one arena, sorted by table and key. Writes out of order wait in a short tail,
//! which is merged when it is long. WRITESET-1: a key has one entry, that of its newest write.
//! WRITESET-2: a deleted range comes before all keys, because its keys were dropped when it came.

use std::cmp::Ordering;

/// Initial bytes of an arena.
const FIRST_BYTES: usize = 128;

/// Bytes of the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: usize,
    len: usize,
}

impl Span {
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

/// Keys of a table from `from` on, below `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub table: u32,
    pub from: Vec<u8>,
    pub to: Option<Vec<u8>>,
}

impl Range {
    pub fn has(&self, table: u32, key: &[u8]) -> bool {
        self.table == table && *self.from <= *key && self.to.as_deref().is_none_or(|to| key < to)
    }

    pub fn meets(&self, other: &Range) -> bool {
        let below = |from: &[u8], to: &Option<Vec<u8>>| to.as_deref().is_none_or(|to| from < to);
        self.table == other.table && below(&self.from, &other.to) && below(&other.from, &self.to)
    }
}

/// The state of a key in a transaction's own writes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Own<'a> {
    Put(&'a [u8]),
    Deleted,
    Untouched,
}

#[derive(Debug, Default)]
pub(crate) struct WriteSet {
    arena: Vec<u8>,
    sorted: Vec<Op>,
    tail: Vec<Op>,
    pub ranges: Vec<Range>,
}

impl WriteSet {
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.tail.is_empty() && self.ranges.is_empty()
    }

    pub fn arena(&self) -> &[u8] {
        &self.arena
    }

    /// Approximate bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.arena.len() + (self.sorted.len() + self.tail.len()) * size_of::<Op>()
    }

    fn order(&self, op: &Op, table: u32, key: &[u8]) -> Ordering {
        (op.table, op.key.of(&self.arena)).cmp(&(table, key))
    }

    fn span(&mut self, bytes: &[u8]) -> Span {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        Span {
            start,
            len: bytes.len(),
        }
    }

    pub fn write(&mut self, table: u32, key: &[u8], value: Option<&[u8]>) {
        let behind = self.tail.is_empty()
            && self
                .sorted
                .last()
                .is_none_or(|last| self.order(last, table, key) == Ordering::Less);
        if self.arena.capacity() == 0 {
            self.arena.reserve(FIRST_BYTES);
        }
        let key = self.span(key);
        let value = value.map(|value| self.span(value));
        let op = Op { table, key, value };
        if behind {
            self.sorted.push(op);
            return;
        }
        self.tail.push(op);
        if self.tail.len() > 64 + 4 * self.sorted.len().isqrt() {
            self.settle();
        }
    }

    /// Merges the tail.
    pub fn settle(&mut self) {
        if self.tail.is_empty() {
            return;
        }
        let arena = &self.arena;
        let key = |op: &Op| (op.table, op.key.of(arena));
        // Stable sorts, so the newest of equal keys is the last of them.
        self.sorted.append(&mut self.tail);
        self.sorted.sort_by(|a, b| key(a).cmp(&key(b)));
        self.sorted.dedup_by(|later, kept| {
            let same = key(later) == key(kept);
            if same {
                *kept = *later;
            }
            same
        });
    }

    pub fn delete_range(&mut self, range: Range) {
        self.settle();
        let arena = &self.arena;
        self.sorted
            .retain(|op| !range.has(op.table, op.key.of(arena)));
        self.ranges.push(range);
    }

    /// All writes in their order; only after [`WriteSet::settle`].
    pub fn ops(&self) -> &[Op] {
        debug_assert!(self.tail.is_empty());
        &self.sorted
    }

    pub fn get(&self, table: u32, key: &[u8]) -> Own<'_> {
        let in_tail = self
            .tail
            .iter()
            .rev()
            .find(|op| self.order(op, table, key) == Ordering::Equal);
        let op = in_tail.or_else(|| {
            let nth = self
                .sorted
                .binary_search_by(|op| self.order(op, table, key))
                .ok()?;
            Some(&self.sorted[nth])
        });
        match op {
            Some(op) => match op.value {
                Some(value) => Own::Put(value.of(&self.arena)),
                None => Own::Deleted,
            },
            None if self.ranges.iter().any(|range| range.has(table, key)) => Own::Deleted,
            None => Own::Untouched,
        }
    }

    /// The first put from `from` on (or after it), or the last one below it (or at it).
    pub fn step(
        &mut self,
        table: u32,
        from: &[u8],
        inclusive: bool,
        back: bool,
    ) -> Option<(&[u8], &[u8])> {
        self.settle();
        let split = self.sorted.partition_point(|op| {
            let order = self.order(op, table, from);
            order == Ordering::Less || (order == Ordering::Equal && inclusive == back)
        });
        let is_put = |op: &&Op| op.table == table && op.value.is_some();
        let op = match back {
            false => self.sorted[split..]
                .iter()
                .take_while(|op| op.table == table)
                .find(is_put),
            true => self.sorted[..split]
                .iter()
                .rev()
                .take_while(|op| op.table == table)
                .find(is_put),
        }?;
        Some((op.key.of(&self.arena), op.value?.of(&self.arena)))
    }

    /// Whether any write touches a key of `reads`.
    pub fn touches(&self, reads: &ReadSet) -> bool {
        let of_key = |&(table, key): &(u32, Span)| {
            !matches!(self.get(table, key.of(&reads.arena)), Own::Untouched)
        };
        let of_range = |read: &Range| {
            let from = self
                .sorted
                .partition_point(|op| self.order(op, read.table, &read.from) == Ordering::Less);
            self.sorted
                .get(from)
                .is_some_and(|op| read.has(op.table, op.key.of(&self.arena)))
                || self.ranges.iter().any(|range| range.meets(read))
        };
        reads.keys.iter().any(of_key) || reads.ranges.iter().any(of_range)
    }

    /// Whether it writes to a table.
    pub fn writes_to(&self, table: u32) -> bool {
        self.sorted.iter().any(|op| op.table == table)
            || self.ranges.iter().any(|range| range.table == table)
    }
}

/// What a transaction read.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    arena: Vec<u8>,
    keys: Vec<(u32, Span)>,
    ranges: Vec<Range>,
}

impl ReadSet {
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.keys.len() * 24 + self.ranges.len() * 64
    }

    pub fn key(&mut self, table: u32, key: &[u8]) {
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        let len = key.len();
        self.keys.push((table, Span { start, len }));
    }

    /// Adds a range. A range that continues the last one extends it.
    pub fn range(&mut self, range: Range) {
        if let Some(last) = self.ranges.last_mut()
            && last.table == range.table
        {
            if last.to.as_ref() == Some(&range.from) {
                last.to = range.to;
                return;
            }
            if range.to.as_ref() == Some(&last.from) {
                last.from = range.from;
                return;
            }
        }
        self.ranges.push(range);
    }

    pub fn reads_of(&self, table: u32) -> bool {
        self.keys.iter().any(|(of, _)| *of == table)
            || self.ranges.iter().any(|range| range.table == table)
    }
}

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
        for round in 0..20_000u64 {
            let key = next(500).to_be_bytes().to_vec();
            match next(100) {
                0 => {
                    let to = (next(500) + 20).to_be_bytes().to_vec();
                    let range = Range {
                        table: 1,
                        from: key.clone(),
                        to: Some(to.clone()),
                    };
                    writes.delete_range(range);
                    for (_, value) in model.iter_mut().filter(|(k, _)| **k >= key && **k < to) {
                        *value = None;
                    }
                }
                1..20 => {
                    writes.write(1, &key, None);
                    model.insert(key, None);
                }
                20..80 => {
                    let value = round.to_le_bytes().to_vec();
                    writes.write(1, &key, Some(&value));
                    model.insert(key, Some(value));
                }
                _ => {
                    let expected = model.get(&key).cloned().flatten();
                    let found = match writes.get(1, &key) {
                        Own::Put(value) => Some(value.to_vec()),
                        _ => None,
                    };
                    assert_eq!(found, expected);
                    let ahead = model
                        .range(key.clone()..)
                        .find(|(_, v)| v.is_some())
                        .map(|(k, _)| k.clone());
                    let step = writes.step(1, &key, true, false).map(|(k, _)| k.to_vec());
                    assert_eq!(step, ahead);
                    let behind = model
                        .range(..key.clone())
                        .rev()
                        .find(|(_, v)| v.is_some())
                        .map(|(k, _)| k.clone());
                    let step = writes.step(1, &key, false, true).map(|(k, _)| k.to_vec());
                    assert_eq!(step, behind);
                }
            }
        }
    }
}
