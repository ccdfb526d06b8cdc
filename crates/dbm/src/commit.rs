// SPDX-License-Identifier: Apache-2.0
//! The order of commits, and who of two that conflict wins.
//!
//! Card: optimistic validation (Kung and Robinson 1981; paper D, 2.3), made lock-free. A
//! transaction that commits appends its node to a list by one compare-and-swap; its place
//! there is its place in the order. It commits if no committed node between the start of its
//! snapshot and itself wrote what it read. That is a function of the list alone.
//! So any thread can compute it for any node and comes to the same result: who meets an undecided
//! node decides it, and nobody waits for its owner.
//! What was read is compared, not the pages that it lay on: a leaf that split or took other keys
//! aborts nobody.
//!
//! C1: the list only grows, at its end. C2: a decision never changes. C3: a node is decided only
//! when all before it are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::options::Pause;
use crate::writes::{ReadSet, WriteSet};

const UNDECIDED: u8 = 0;
const COMMITTED: u8 = 1;
const ABORTED: u8 = 2;

/// A change of the list of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TableChange {
    /// It must not be there.
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
    /// Whether `earlier`, which committed after the start of this one, changed what this one rests
    /// on.
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
    /// Its number: the commit's, if it commits.
    number: AtomicU64,
    state: AtomicU8,
    pub work: Work,
    /// The newest node that its snapshot has; gone once it is decided.
    start: ArcSwapOption<Node>,
    next: ArcSwapOption<Node>,
}

impl Node {
    /// The node from which a list begins.
    pub fn first(number: u64) -> Arc<Node> {
        Arc::new(Node {
            number: AtomicU64::new(number),
            state: AtomicU8::new(COMMITTED),
            work: Work::default(),
            start: ArcSwapOption::empty(),
            next: ArcSwapOption::empty(),
        })
    }

    pub fn new(work: Work, start: Arc<Node>) -> Arc<Node> {
        Arc::new(Node {
            number: AtomicU64::new(0),
            state: AtomicU8::new(UNDECIDED),
            work,
            start: ArcSwapOption::new(Some(start)),
            next: ArcSwapOption::empty(),
        })
    }

    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    pub fn next(&self) -> Option<Arc<Node>> {
        self.next.load_full()
    }

    /// Decides it, if nobody has, and those before it first. True: it commits.
    pub fn decide(&self, pause: &Option<Pause>) -> bool {
        let step = |number| {
            if let Some(pause) = pause {
                pause(number);
            }
        };
        step(1);
        let start = self.start.load_full();
        let state = self.state.load(Ordering::Acquire);
        let (UNDECIDED, Some(start)) = (state, start) else {
            // The start goes only after the decision.
            return self.state.load(Ordering::Acquire) == COMMITTED;
        };
        let mut commits = true;
        let mut at = start.next();
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
        debug_assert!(before.is_ok() || before == Err(decision), "C2");
        step(4);
        self.start.store(None);
        self.state.load(Ordering::Acquire) == COMMITTED
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A long list must not be dropped by recursion.
        let mut next = self.next.swap(None);
        while let Some(node) = next {
            next = Arc::try_unwrap(node)
                .ok()
                .and_then(|node| node.next.swap(None));
        }
    }
}

/// The end of the list.
pub(crate) struct Order {
    /// A node near the end.
    end: ArcSwap<Node>,
}

impl Order {
    pub fn new(first: &Arc<Node>) -> Order {
        Order {
            end: ArcSwap::new(Arc::clone(first)),
        }
    }

    pub fn restart(&self, from: &Arc<Node>) {
        self.end.store(Arc::clone(from));
    }

    /// Gives a node its place.
    pub fn append(&self, node: &Arc<Node>, pause: &Option<Pause>) {
        let mut last = self.end.load_full();
        loop {
            while let Some(next) = last.next() {
                last = next;
            }
            node.number.store(last.number() + 1, Ordering::Release);
            let empty: Option<Arc<Node>> = None;
            let before = last.next.compare_and_swap(&empty, Some(Arc::clone(node)));
            if before.is_none() {
                break;
            }
        }
        if let Some(pause) = pause {
            pause(0);
        }
        // Only a hint: another may have moved it further, and whoever appends goes on from there.
        self.end.store(Arc::clone(node));
    }
}

#[cfg(test)]
mod tests;
