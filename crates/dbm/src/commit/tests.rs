// SPDX-License-Identifier: Apache-2.0
//! Who commits is a function of the list, and what it costs.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::commit::ranges::Range;
use crate::commit::reads::COMPARED;

fn node(writes: &[&[u8]]) -> Arc<Node> {
    let mut set = WriteSet::default();
    for key in writes {
        set.write(1, key, Some(b"x"));
    }
    let (changes, ranges) = set.finish();
    Node::new(changes, ranges, None)
}

fn reads(keys: &[&[u8]]) -> ReadSet {
    let mut reads = ReadSet::default();
    for key in keys {
        reads.key(1, key);
    }
    reads.settle();
    reads
}

fn range(from: &[u8], to: &[u8]) -> Range {
    Range {
        table: 1,
        from: from.to_vec(),
        to: Some(to.to_vec()),
    }
}

fn append(start: &Node, read: &[&[u8]], writes: &[&[u8]]) -> Option<u64> {
    Node::append(node(writes), start, &reads(read), None, &None)
}

#[test]
fn the_first_of_two_that_conflict_wins() {
    let first = Node::first(5);
    assert_eq!(append(&first, &[b"a"], &[b"b"]), Some(6));
    assert_eq!(append(&first, &[b"b"], &[b"a"]), None);
    // It read nothing that one in the list wrote.
    assert_eq!(append(&first, &[b"a"], &[b"c"]), Some(7));
    assert_eq!(append(&first, &[], &[b"b"]), Some(8));
}

#[test]
fn a_range_conflicts_with_a_key_that_comes_into_it() {
    for (key, commits) in [(b"b", false), (b"d", true)] {
        let first = Node::first(0);
        assert_eq!(append(&first, &[], &[key]), Some(1));
        let mut reads = reads(&[]);
        reads.range(range(b"a", b"d"));
        let number = Node::append(node(&[b"z"]), &first, &reads, None, &None);
        assert_eq!(number.is_some(), commits);
    }
}

#[test]
fn a_deleted_range_conflicts_with_what_was_read_in_it() {
    for (from, to, commits) in [(b"a", b"b", true), (b"a", b"c", false), (b"c", b"d", true)] {
        let first = Node::first(0);
        let mut set = WriteSet::default();
        set.delete_range(range(from, to));
        let (changes, ranges) = set.finish();
        let deletes = Node::new(changes, ranges, None);
        let number = Node::append(deletes, &first, &reads(&[]), None, &None);
        assert_eq!(number, Some(1));
        assert_eq!(append(&first, &[b"b"], &[b"z"]).is_some(), commits);
    }
}

/// Another commit comes between the last comparison and the place in the list: it is compared as
/// well.
#[test]
fn what_comes_at_the_last_moment_is_compared_too() {
    for (key, expected) in [(b"a", None), (b"b", Some(2))] {
        let first = Node::first(0);
        let came = Arc::new(AtomicU32::new(0));
        let pause: Pause = {
            let (first, came) = (Arc::clone(&first), Arc::clone(&came));
            Arc::new(move |step| {
                if step == 2 && came.fetch_add(1, Ordering::SeqCst) == 0 {
                    assert_eq!(append(&first, &[], &[key]), Some(1));
                }
            })
        };
        let number = Node::append(node(&[b"z"]), &first, &reads(&[b"a"]), None, &Some(pause));
        assert_eq!(number, expected);
    }
}

/// A transaction that had read 20,000 keys while others committed 20,000 times used to compare all
/// with all, and every other commit did the same: it stopped the database for 39 seconds.
#[test]
fn a_commit_costs_a_lookup_for_each_key_that_others_wrote() {
    const COUNT: u64 = 20_000;
    let first = Node::first(0);
    let mut reads = ReadSet::default();
    for key in 0..COUNT {
        reads.key(1, format!("read {key}").as_bytes());
    }
    reads.settle();
    let mut last = Arc::clone(&first);
    for key in 0..COUNT {
        let key = format!("written {key}");
        assert_eq!(
            append(&last, &[b"small"], &[key.as_bytes()]),
            Some(last.number + 1)
        );
        last = last.next().cloned().unwrap();
    }
    COMPARED.set(0);
    let number = Node::append(node(&[b"mine"]), &first, &reads, None, &None);
    assert_eq!(number, Some(COUNT + 1));
    let most = COUNT * u64::from(COUNT.ilog2() + 2);
    assert!(
        (COUNT..=most).contains(&COMPARED.get()),
        "{}",
        COMPARED.get()
    );
    // Those that come after it, also beside it, pay for its one key.
    COMPARED.set(0);
    assert_eq!(append(&last, &[b"small"], &[b"x"]), Some(COUNT + 2));
    assert!(COMPARED.get() <= 2, "{}", COMPARED.get());
}

/// Values used to stay in the list while a transaction was open: 801 MiB for one idle transaction
/// beside 800 MiB of overwrites.
#[test]
fn a_list_keeps_keys_and_no_values() {
    let first = Node::first(0);
    let mut last = Arc::clone(&first);
    for _ in 0..100 {
        let mut set = WriteSet::default();
        set.write(1, b"key", Some(&[7; 100_000]));
        let (changes, ranges) = set.finish();
        let node = Node::new(changes, ranges, None);
        Node::append(node, &last, &ReadSet::default(), None, &None).unwrap();
        last = last.next().cloned().unwrap();
        // As when it is applied.
        assert_eq!(last.take_changes().arena.len(), 100_003);
        assert_eq!(last.changes.lock().arena.capacity(), 0);
        assert_eq!(last.changes.lock().ops.capacity(), 0);
    }
    assert!(
        last.bytes_since(&first) < 100 * 300,
        "{}",
        last.bytes_since(&first)
    );
}

#[test]
fn a_long_list_is_dropped_without_recursion() {
    let first = Node::first(0);
    let mut last = Arc::clone(&first);
    for _ in 0..200_000 {
        append(&last, &[], &[]);
        last = last.next().cloned().unwrap();
    }
    assert_eq!(last.number(), 200_000);
    drop(last);
    drop(first);
}
