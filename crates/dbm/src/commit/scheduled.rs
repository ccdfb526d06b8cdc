// SPDX-License-Identifier: Apache-2.0
//! Internal parts for `tests/shuttle`. Each function is one run, inside the scheduler.

use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::{Node, Work};
use crate::writes::Range;

/// Threads that commit, and commits of each.
const THREADS: u8 = 3;
const COMMITS: u8 = 2;

fn key() -> [u8; 1] {
    [thread_rng().gen_range(0..4)]
}

/// The work of a transaction at random: it reads a key or a range, and writes a key.
fn work() -> Work {
    let mut work = Work::default();
    if thread_rng().gen_bool(0.5) {
        work.reads.key(1, &key());
    } else {
        let from = key().to_vec();
        let to = Some(vec![from[0] + 2]);
        work.reads.range(Range { table: 1, from, to });
    }
    work.writes.write(1, &key(), Some(b"x"));
    work.writes.settle();
    work
}

/// Threads append to one list of commits and decide each other's transactions. Each must reach the
/// result that follows from the list alone. Their numbers are the places in the list, and a
/// decision never changes (ORDER-1 to ORDER-3).
///
/// # Panics
/// If that does not hold.
pub fn commits_of_threads() {
    let first = Node::first(7);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let mut start = Arc::clone(&first);
            thread::spawn(move || {
                let mut decided = Vec::new();
                for _ in 0..COMMITS {
                    let node = Node::new(work(), &start);
                    node.append(&start, &None);
                    // Another thread's transaction first, like the applying thread.
                    if thread_rng().gen_bool(0.5)
                        && let Some(next) = start.next()
                    {
                        let next = Arc::clone(next);
                        let decision = next.decide(&None);
                        decided.push((next, decision));
                    }
                    let decision = node.decide(&None);
                    decided.push((Arc::clone(&node), decision));
                    // The next one has a snapshot of this one, or of the state before it.
                    if thread_rng().gen_bool(0.5) {
                        start = node;
                    }
                }
                (decided, start)
            })
        })
        .collect();
    // Kept, as a commit keeps the start of its snapshot until it is decided.
    let ended: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().expect("no panic"))
        .collect();
    let mut list = Vec::new();
    let mut at = first.next().cloned();
    while let Some(node) = at {
        at = node.next().cloned();
        list.push(node);
    }
    assert_eq!(list.len(), usize::from(THREADS * COMMITS), "ORDER-1");
    for (nth, node) in list.iter().enumerate() {
        assert_eq!(node.number(), 8 + nth as u64, "ORDER-1");
    }
    for (node, decision) in ended.iter().flat_map(|(decided, _)| decided) {
        assert_eq!(node.decide(&None), *decision, "ORDER-2");
        assert_eq!(
            node.commits_alone(&first),
            *decision,
            "a function of the list"
        );
    }
}

impl Node {
    /// Whether this node commits, by the list read from its beginning.
    fn commits_alone(self: &Arc<Node>, first: &Arc<Node>) -> bool {
        let start = self.start.upgrade().map_or(0, |start| start.number());
        let mut at = first.next();
        while let Some(node) = at.filter(|node| node.number() < self.number()) {
            if node.number() > start && node.commits_alone(first) && self.work.rests_on(&node.work)
            {
                return false;
            }
            at = node.next();
        }
        true
    }
}
