// SPDX-License-Identifier: Apache-2.0
//! The order of commits, and which of two conflicting transactions wins.
//!
//! Card: optimistic validation (Kung and Robinson 1981; paper D, 2.3), made lock-free. A committing
//! transaction appends its node to a list by one compare-and-swap. Its place in the list is its
//! place in the order. It commits if no committed node between its snapshot and itself wrote a key
//! or range that it read. That depends only on the list. So any thread can compute it for any node,
//! with the same result. A thread that meets an undecided node decides it, and never waits for the
//! owner. Commits compare keys and ranges that were read, not their pages. So a split of a leaf, or
//! a change of other keys in it, aborts no transaction.
//!
//! ORDER-1: the list only grows, at its end. ORDER-2: a decision never changes. ORDER-3: a node is
//! decided only when all before it are.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::options::Pause;
use crate::sync::{AtomicU8, AtomicU64, OnceBox};
use crate::writes::{ReadSet, WriteSet};

const UNDECIDED: u8 = 0;
const COMMITTED: u8 = 1;
const ABORTED: u8 = 2;

/// A change of the list of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TableChange {
    /// It must not exist yet.
    Create {
        name: String,
    },
    Drop {
        id: u32,
    },
}

/// What a transaction did.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub writes: WriteSet,
    pub reads: ReadSet,
    pub table: Option<TableChange>,
}

impl Work {
    /// Whether `earlier`, which committed after the start of this one, changed something that this
    /// one read.
    fn rests_on(&self, earlier: &Work) -> bool {
        match (&earlier.table, &self.table) {
            (Some(a), Some(b)) if a == b => return true,
            (Some(TableChange::Drop { id }), _)
                if self.reads.reads_of(*id) || self.writes.writes_to(*id) =>
            {
                return true;
            }
            _ => {}
        }
        earlier.writes.touches(&self.reads)
    }
}

/// A transaction's place in the order.
pub(crate) struct Node {
    /// Its number; if it commits, this is the commit's number.
    number: AtomicU64,
    state: AtomicU8,
    pub work: Work,
    /// The newest node in its snapshot. The committing thread keeps that node until this one is
    /// decided.
    start: Weak<Node>,
    /// Set once.
    next: OnceBox<Arc<Node>>,
}

impl Node {
    /// The node from which a list begins.
    pub fn first(number: u64) -> Arc<Node> {
        Arc::new(Node {
            number: AtomicU64::new(number),
            state: AtomicU8::new(COMMITTED),
            work: Work::default(),
            start: Weak::new(),
            next: OnceBox::new(),
        })
    }

    pub fn new(work: Work, start: &Arc<Node>) -> Arc<Node> {
        Arc::new(Node {
            number: AtomicU64::new(0),
            state: AtomicU8::new(UNDECIDED),
            work,
            start: Arc::downgrade(start),
            next: OnceBox::new(),
        })
    }

    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    pub fn next(&self) -> Option<&Arc<Node>> {
        self.next.get()
    }

    /// Gives a node its place, at the end of the list that continues after `start`.
    pub fn append(self: &Arc<Node>, start: &Node, pause: &Option<Pause>) {
        let mut last = start;
        let mut boxed = Box::new(Arc::clone(self));
        loop {
            while let Some(next) = last.next() {
                last = next;
            }
            self.number.store(last.number() + 1, Ordering::Release);
            match last.next.set(boxed) {
                Ok(()) => break,
                Err(again) => boxed = again,
            }
        }
        if let Some(pause) = pause {
            pause(0);
        }
    }

    /// Decides a node, if no thread has, and all earlier nodes first. True: it commits.
    pub fn decide(&self, pause: &Option<Pause>) -> bool {
        let step = |number| {
            if let Some(pause) = pause {
                pause(number);
            }
        };
        step(1);
        if self.state.load(Ordering::Acquire) != UNDECIDED {
            return self.state.load(Ordering::Acquire) == COMMITTED;
        }
        let start = self.start.upgrade();
        // If it is gone, its owner has seen the decision, or has failed and will acknowledge
        // nothing.
        let mut commits = start.is_some();
        let mut at = start.as_deref().and_then(Node::next);
        while let Some(node) = at {
            if node.number() >= self.number() {
                break;
            }
            step(2);
            if node.decide(pause) && self.work.rests_on(&node.work) {
                commits = false;
                break;
            }
            at = node.next();
        }
        step(3);
        let decision = if commits { COMMITTED } else { ABORTED };
        let before =
            self.state
                .compare_exchange(UNDECIDED, decision, Ordering::AcqRel, Ordering::Acquire);
        debug_assert!(
            before.is_ok() || before == Err(decision) || start.is_none(),
            "ORDER-2"
        );
        step(4);
        self.state.load(Ordering::Acquire) == COMMITTED
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
