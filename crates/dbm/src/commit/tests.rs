// SPDX-License-Identifier: Apache-2.0
//! Decisions are a function of the list, whichever thread makes them.

use super::*;
use crate::writes::Range;

fn work(reads: &[&[u8]], writes: &[&[u8]]) -> Work {
    let mut work = Work::default();
    for key in reads {
        work.reads.key(1, key);
    }
    for key in writes {
        work.writes.write(1, key, Some(b"x"));
    }
    work.writes.settle();
    work
}

#[test]
fn the_first_of_two_that_conflict_wins() {
    let first = Node::first(5);
    let nodes: Vec<Arc<Node>> = [
        work(&[b"a"], &[b"b"]),
        work(&[b"b"], &[b"a"]),
        work(&[b"a"], &[b"c"]),
        work(&[], &[b"b"]),
    ]
    .into_iter()
    .map(|work| Node::new(work, &first))
    .collect();
    for node in &nodes {
        node.append(&first, &None);
    }
    // The last one is asked first, and decides the earlier ones.
    let decided: Vec<bool> = nodes.iter().rev().map(|node| node.decide(&None)).collect();
    // The second read what the first wrote. The third read nothing that a committed one wrote.
    assert_eq!(decided, [true, true, false, true]);
    assert_eq!(nodes[3].number(), 9);
}

#[test]
fn a_range_conflicts_with_a_key_that_comes_into_it() {
    for (key, commits) in [(b"b", false), (b"d", true)] {
        let first = Node::first(0);
        let writer = Node::new(work(&[], &[key]), &first);
        let mut reads = work(&[], &[b"z"]);
        reads.reads.range(Range {
            table: 1,
            from: b"a".to_vec(),
            to: Some(b"d".to_vec()),
        });
        let reader = Node::new(reads, &first);
        writer.append(&first, &None);
        reader.append(&first, &None);
        assert_eq!(reader.decide(&None), commits);
    }
}

#[test]
fn a_long_list_is_dropped_without_recursion() {
    let first = Node::first(0);
    let mut last = Arc::clone(&first);
    for _ in 0..200_000 {
        let node = Node::new(Work::default(), &last);
        node.append(&last, &None);
        last = node;
    }
    assert_eq!(last.number(), 200_000);
    drop(last);
    drop(first);
}
