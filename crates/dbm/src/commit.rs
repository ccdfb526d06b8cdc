// SPDX-License-Identifier: Apache-2.0
//! The order of commits, and which of two conflicting transactions wins.
//!
//! Card: optimistic validation (Kung and Robinson 1981; paper D, 2.3). Validation is lock-free; a
//! transaction's begin, and applying and flushing what it wrote, take locks. The order is a list of
//! nodes, one for each commit. A committing transaction walks from its snapshot to the
//! end of the list. It compares the keys that each node wrote with the keys and ranges that it read
//! itself. If it meets a conflict, it ends there, and nobody else ever sees it. At the end of the
//! list it appends its node by one compare-and-swap. That succeeds only if no other commit came
//! after the last comparison. Otherwise the transaction continues with what came. So nobody
//! computes or waits for the validation of another, and each failure means that another has
//! committed. Commits compare keys and ranges that were read, not their pages. So a split of a
//! leaf, or a change of other keys in it, aborts no transaction.
//!
//! A node costs a comparison one lookup for each key that the node wrote, in the sorted set of what
//! was read. An open transaction holds the list from its snapshot on. So a node keeps little:
//! its keys, and its values only until they are applied. If the nodes after the oldest open
//! transaction take more than `Options::overlap_bytes`, that transaction ends (`Readers::publish`).
//!
//! Deviation: a transaction that failed often takes a turn (`fairness.rs`).
//!
//! ORDER-1: the list only grows, at its end. ORDER-2: each node of the list commits: its
//! transaction read nothing that a node between its snapshot and itself wrote. ORDER-3: a node
//! follows the one before it in its number, and in the turn that is taken.

pub(crate) mod ranges; // sets of key ranges
pub(crate) mod reads;
pub(crate) mod turn; // others wait for a transaction
pub(crate) mod writes;

use std::sync::Arc;

use crate::commit::ranges::RangeSet;
use crate::commit::reads::ReadSet;
use crate::commit::turn::Turn;
use crate::commit::writes::{Changes, WriteSet};
use crate::options::Pause;
use crate::records::changes::TableChange;
use crate::sync::{Mutex, OnceBox};

/// What a transaction did.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub writes: WriteSet,
    pub reads: ReadSet,
}

impl Work {
    /// Approximate bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.writes.bytes() + self.reads.bytes()
    }
}

/// What few transactions do.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    pub ranges: RangeSet,
    pub table: Option<TableChange>,
}

/// A transaction's place in the order.
pub(crate) struct Node {
    /// The commit's number.
    number: u64,
    /// Approximate bytes of this node and of all nodes before it, since the opening.
    bytes: u64,
    /// The keys that it wrote.
    keys: Keys,
    pub rare: Option<Box<Rare>>,
    /// The turn that is taken from this node on.
    turn: Option<Arc<Turn>>,
    /// Until the commit is applied.
    changes: Mutex<Changes>,
    /// Set once.
    next: OnceBox<Arc<Node>>,
}

/// Bytes of a node besides its keys, with those of its allocations.
const NODE_BYTES: usize = size_of::<Node>() + 64;
/// Bytes of a written key besides its own.
const KEY_HEAD: usize = 6;
/// Bytes of keys that need no memory of their own.
const INLINE: usize = 38;

/// Written keys, one after the other: the table, the length, the bytes.
enum Keys {
    Few(u8, [u8; INLINE]),
    Many(Box<[u8]>),
}

impl Keys {
    fn of(changes: &Changes) -> Keys {
        let bytes = changes.ops.iter().map(|op| KEY_HEAD + op.key.len()).sum();
        if bytes <= INLINE {
            let mut keys = [0; INLINE];
            Keys::fill(&mut keys, changes);
            return Keys::Few(bytes as u8, keys);
        }
        let mut keys = vec![0; bytes].into_boxed_slice();
        Keys::fill(&mut keys, changes);
        Keys::Many(keys)
    }

    fn fill(mut rest: &mut [u8], changes: &Changes) {
        for op in &changes.ops {
            let key = op.key.of(&changes.arena);
            let (head, after) = rest.split_at_mut(KEY_HEAD);
            head[..4].copy_from_slice(&op.table.to_le_bytes());
            head[4..].copy_from_slice(&(key.len() as u16).to_le_bytes());
            let (bytes, after) = after.split_at_mut(key.len());
            bytes.copy_from_slice(key);
            rest = after;
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Keys::Few(len, bytes) => &bytes[..usize::from(*len)],
            Keys::Many(bytes) => bytes,
        }
    }
}

impl Node {
    /// The node from which a list begins.
    pub fn first(number: u64) -> Arc<Node> {
        Arc::new(Node::of(number, None, Changes::default()))
    }

    fn of(number: u64, rare: Option<Box<Rare>>, changes: Changes) -> Node {
        Node {
            number,
            bytes: 0,
            keys: Keys::of(&changes),
            rare,
            turn: None,
            changes: Mutex::new(changes),
            next: OnceBox::new(),
        }
    }

    /// A node for [`Node::append`].
    pub fn new(changes: Changes, ranges: RangeSet, table: Option<TableChange>) -> Arc<Node> {
        let is_rare = !ranges.is_empty() || table.is_some();
        let rare = is_rare.then(|| Box::new(Rare { ranges, table }));
        Arc::new(Node::of(0, rare, changes))
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Approximate bytes of all nodes up to this one, since the opening.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Approximate bytes of the nodes between `start` and this one.
    pub fn bytes_since(&self, start: &Node) -> u64 {
        self.bytes.saturating_sub(start.bytes)
    }

    pub fn next(&self) -> Option<&Arc<Node>> {
        self.next.get()
    }

    /// What the commit changes. The thread that applies it takes it.
    pub fn take_changes(&self) -> Changes {
        std::mem::take(&mut *self.changes.lock())
    }

    fn table(&self) -> Option<&TableChange> {
        self.rare.as_ref()?.table.as_ref()
    }

    /// The keys that it wrote, with their tables.
    fn each_key(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut rest = self.keys.bytes();
        std::iter::from_fn(move || {
            let (table, after) = rest.split_first_chunk()?;
            let (len, after) = after.split_first_chunk()?;
            let (key, after) = after.split_at(usize::from(u16::from_le_bytes(*len)));
            rest = after;
            Some((u32::from_le_bytes(*table), key))
        })
    }

    fn writes_to(&self, table: u32) -> bool {
        let deletes = |rare: &Rare| rare.ranges.has_table(table);
        self.rare.as_deref().is_some_and(deletes) || self.each_key().any(|(of, _)| of == table)
    }

    /// Whether it changed something of `reads`.
    pub fn touches(&self, reads: &ReadSet) -> bool {
        if let Some(rare) = &self.rare {
            let dropped = |change: &TableChange| match change {
                TableChange::Drop { id } => reads.reads_of(*id),
                TableChange::Create { .. } => false,
            };
            let mut ranges = rare.ranges.iter();
            if rare.table.as_ref().is_some_and(dropped)
                || ranges.any(|(table, range)| reads.meets(table, range))
            {
                return true;
            }
        }
        !reads.is_empty() && self.each_key().any(|(table, key)| reads.has(table, key))
    }

    /// Whether this node, with `reads`, cannot come after `earlier`, which is not in its snapshot.
    fn rests_on(&self, reads: &ReadSet, earlier: &Node) -> bool {
        let of_table = |change: &TableChange| match change {
            TableChange::Drop { id } => self.writes_to(*id) || self.table() == Some(change),
            TableChange::Create { .. } => self.table() == Some(change),
        };
        earlier.touches(reads) || earlier.table().is_some_and(of_table)
    }

    /// The turn that is taken at this place of the list.
    fn turn(&self) -> Option<&Arc<Turn>> {
        self.turn.as_ref().filter(|turn| !turn.is_over())
    }

    /// Prepares a node for its place after `last` (ORDER-3).
    fn follow(&mut self, last: &Node, numbers: u64, turn: Option<&Arc<Turn>>) {
        let ranges = self.rare.as_ref().map_or(0, |rare| rare.ranges.bytes());
        self.number = last.number + numbers;
        self.bytes = last.bytes + (NODE_BYTES + self.keys.bytes().len() + ranges) as u64;
        self.turn = turn.cloned();
    }

    /// Gives a node its place at the end of the list, after `start`, the newest node of its
    /// snapshot. `own` is the turn that the transaction has. Returns the commit's number; `None` if
    /// there is a conflict.
    pub fn append(
        node: Arc<Node>,
        start: &Node,
        reads: &ReadSet,
        own: Option<&Arc<Turn>>,
        pause: &Option<Pause>,
    ) -> Option<u64> {
        let step = |number| {
            if let Some(pause) = pause {
                pause(number);
            }
        };
        step(0);
        let (mut node, mut last) = (Box::new(node), start);
        loop {
            while let Some(next) = last.next() {
                step(1);
                if node.rests_on(reads, next) {
                    return None;
                }
                last = next;
            }
            let mut turn = last.turn();
            if let Some(taken) = turn {
                if own.is_some_and(|own| Arc::ptr_eq(own, taken)) {
                    // It ends with this commit.
                    turn = None;
                } else if taken.bars(|reads| node.touches(reads)) {
                    step(4);
                    taken.wait();
                    continue;
                }
            }
            let this = Arc::get_mut(&mut node).expect("it is not in the list yet");
            this.follow(last, 1, turn);
            let number = this.number;
            step(2);
            match last.next.set(node) {
                Ok(()) => {
                    step(3);
                    return Some(number);
                }
                Err(again) => node = again,
            }
        }
    }

    /// Takes a turn: the list after `start` gets a node of no commit. Returns the number of the
    /// newest commit before it; `None` if the thread has taken a turn already.
    pub fn append_turn(start: &Node, turn: &Arc<Turn>) -> Option<u64> {
        let (mut node, mut last) = (Box::new(Node::first(0)), start);
        loop {
            while let Some(next) = last.next() {
                last = next;
            }
            match last.turn() {
                Some(taken) if taken.is_of_this_thread() => return None,
                Some(taken) => {
                    taken.wait();
                    continue;
                }
                None => {}
            }
            let this = Arc::get_mut(&mut node).expect("it is not in the list yet");
            this.follow(last, 0, Some(turn));
            match last.next.set(node) {
                Ok(()) => return Some(last.number),
                Err(again) => node = again,
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A long list must not be dropped by recursion.
        let mut next = self.take_next();
        while let Some(node) = next {
            next = Arc::into_inner(node).and_then(|mut node| node.take_next());
        }
    }
}

impl Node {
    fn take_next(&mut self) -> Option<Arc<Node>> {
        std::mem::take(&mut self.next).get().cloned()
    }
}

#[cfg(test)]
mod tests;

#[cfg(feature = "shuttle")]
pub mod scheduled;
