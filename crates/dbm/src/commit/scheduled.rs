// SPDX-License-Identifier: Apache-2.0
//! Internal parts for `tests/shuttle`. Each function is one run, inside the scheduler.

use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::Node;
use crate::commit::ranges::Range;
use crate::commit::reads::ReadSet;
use crate::commit::writes::WriteSet;

/// Threads that commit, and commits of each.
const THREADS: u8 = 3;
const COMMITS: u8 = 3;

fn key() -> [u8; 1] {
    [thread_rng().gen_range(0..4)]
}

/// What a transaction at random read: a key or a range.
fn reads() -> ReadSet {
    let mut reads = ReadSet::default();
    if thread_rng().gen_bool(0.5) {
        reads.key(1, &key());
    } else {
        let from = key().to_vec();
        let to = Some(vec![from[0] + 2]);
        reads.range(Range { table: 1, from, to });
    }
    reads.settle();
    reads
}

fn node() -> Arc<Node> {
    let mut writes = WriteSet::default();
    writes.write(1, &key(), Some(b"x"));
    let (changes, ranges) = writes.finish();
    Node::new(changes, ranges, None)
}

struct Ended {
    /// The newest commit in its snapshot.
    start: u64,
    reads: ReadSet,
    /// Its number, if it committed.
    number: Option<u64>,
}

/// Threads append to one list of commits. All numbers are the places in the list. A transaction is
/// in the list only if no node between its snapshot and itself wrote what it read (ORDER-2), and
/// one is missing only if a node after its snapshot did.
///
/// # Panics
/// If that does not hold.
pub fn commits_of_threads() {
    let first = Node::first(7);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let mut start = Arc::clone(&first);
            thread::spawn(move || {
                let mut all = Vec::new();
                for _ in 0..COMMITS {
                    let reads = reads();
                    let number = Node::append(node(), &start, &reads, None, &None);
                    all.push(Ended {
                        start: start.number(),
                        reads,
                        number,
                    });
                    // The next one has a later snapshot, or the same.
                    for _ in 0..thread_rng().gen_range(0..3) {
                        start = start.next().cloned().unwrap_or(start);
                    }
                }
                all
            })
        })
        .collect();
    let ended: Vec<Ended> = threads
        .into_iter()
        .flat_map(|thread| thread.join().expect("no panic"))
        .collect();
    let mut list = Vec::new();
    let mut at = first.next().cloned();
    while let Some(node) = at {
        at = node.next().cloned();
        list.push(node);
    }
    let mut numbers: Vec<u64> = ended.iter().filter_map(|ended| ended.number).collect();
    numbers.sort_unstable();
    assert!(list.iter().map(|node| node.number()).eq(numbers), "ORDER-1");
    for (nth, node) in list.iter().enumerate() {
        assert_eq!(node.number(), 8 + nth as u64, "ORDER-3");
    }
    for one in &ended {
        let end = one.number.unwrap_or(u64::MAX);
        let mut between = list
            .iter()
            .filter(|node| node.number() > one.start && node.number() < end);
        let conflicts = between.any(|node| node.touches(&one.reads));
        assert_eq!(conflicts, one.number.is_none(), "ORDER-2");
    }
}
