// SPDX-License-Identifier: Apache-2.0
//! What a transaction read, for the comparison with the commits of others (`commit.rs`).
//!
//! READSET-1: after [`ReadSet::settle`] a key is there once, and the keys are sorted. So a commit
//! of another transaction costs a lookup for each key that it wrote, however much was read. Reads
//! of the same key again are dropped whenever the keys have doubled.

use std::cmp::Ordering;

use crate::commit::ranges::{Borders, Range, RangeSet};
use crate::commit::writes::Span;

/// Keys that are gathered before duplicates are looked for.
const FIRST_KEYS: usize = 64;

#[cfg(test)]
thread_local! {
    /// Comparisons of keys by this thread.
    pub(crate) static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    arena: Vec<u8>,
    keys: Vec<(u32, Span)>,
    /// The first ones of them, which are settled.
    settled: usize,
    ranges: RangeSet,
}

impl ReadSet {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    /// Approximate bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.keys.len() * size_of::<(u32, Span)>() + self.ranges.bytes()
    }

    pub fn key(&mut self, table: u32, key: &[u8]) {
        if self.keys.len() >= FIRST_KEYS + 2 * self.settled {
            self.settle();
        }
        let key = Span::add(&mut self.arena, key);
        self.keys.push((table, key));
    }

    pub fn range(&mut self, range: Range) {
        self.ranges.add(range);
    }

    /// Sorts the keys, and drops those that were read before (READSET-1).
    pub fn settle(&mut self) {
        if self.keys.len() > self.settled.max(1) {
            let arena = &self.arena;
            let of = |(table, key): &(u32, Span)| (*table, key.of(arena));
            let count = self.keys.len();
            self.keys.sort_by(|a, b| of(a).cmp(&of(b)));
            self.keys.dedup_by(|a, b| of(a) == of(b));
            if self.keys.len() < count {
                let old = std::mem::take(&mut self.arena);
                for (_, key) in &mut self.keys {
                    *key = Span::add(&mut self.arena, key.of(&old));
                }
            }
        }
        self.settled = self.keys.len();
    }

    /// The place of the first key from `key` on.
    fn place(&self, table: u32, key: &[u8]) -> usize {
        debug_assert_eq!(self.settled, self.keys.len(), "READSET-1");
        let is_below = |(of, read): &(u32, Span)| {
            #[cfg(test)]
            COMPARED.set(COMPARED.get() + 1);
            (*of, read.of(&self.arena)).cmp(&(table, key)) == Ordering::Less
        };
        self.keys.partition_point(is_below)
    }

    /// Whether a key was read; only after [`ReadSet::settle`].
    pub fn has(&self, table: u32, key: &[u8]) -> bool {
        let read = self.keys.get(self.place(table, key));
        read.is_some_and(|(of, read)| *of == table && read.of(&self.arena) == key)
            || self.ranges.find(table, key).is_some()
    }

    /// Whether a key of `from..to` was read, or that there is none; only after
    /// [`ReadSet::settle`].
    pub fn meets(&self, table: u32, range: Borders<'_>) -> bool {
        let (from, to) = range;
        let read = self.keys.get(self.place(table, from));
        read.is_some_and(|(of, read)| *of == table && to.is_none_or(|to| read.of(&self.arena) < to))
            || self.ranges.meets(table, range)
    }

    /// Whether anything of a table was read; only after [`ReadSet::settle`].
    pub fn reads_of(&self, table: u32) -> bool {
        self.meets(table, (b"", None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that was read again and again used to count each time.
    #[test]
    fn reads_of_the_same_keys_take_no_space() {
        let mut reads = ReadSet::default();
        for round in 0..100_000u64 {
            reads.key(1, &(round * 7 % 50).to_be_bytes());
        }
        assert!(reads.bytes() < 20_000, "{}", reads.bytes());
        reads.settle();
        assert_eq!(reads.keys.len(), 50);
        for key in 0..60u64 {
            assert_eq!(reads.has(1, &key.to_be_bytes()), key < 50);
            assert!(!reads.has(2, &key.to_be_bytes()));
        }
        assert!(reads.meets(1, (&49u64.to_be_bytes(), None)));
        assert!(!reads.meets(1, (&50u64.to_be_bytes(), None)));
        assert!(reads.reads_of(1) && !reads.reads_of(0) && !reads.reads_of(2));
    }
}
