// SPDX-License-Identifier: Apache-2.0
//! The three structures of chapter 4.2 have exactly the elements put; their costs are as
//! documented; a failing device is an error.

use senko_io::Op;
use senko_io::faulty::FaultyDevice;
use senko_thesis::btree::Tree;
use senko_thesis::isam::Isam;
use senko_thesis::linear::{Table, expected_slots};
use senko_thesis::{Keys, Wanted};
use senko_workload::check_value;

const ELEMENTS: u64 = 3000;

fn wanted(keys: &Keys) -> impl Iterator<Item = Wanted> + use<'_> {
    (0..ELEMENTS).map(|number| keys.wanted(number))
}

#[test]
fn isam_reads_once_and_writes_in_order() {
    let keys = Keys::new(1);
    for chunk in [1, 7, 256] {
        let device = FaultyDevice::new(1024, 1);
        let mut isam = Isam::new(&*device, ELEMENTS, chunk);
        for one in wanted(&keys) {
            isam.put(&one).unwrap();
            // Including what is not on the device yet.
            assert!(isam.get(&one).unwrap().is_some());
        }
        isam.flush().unwrap();
        isam.flush().unwrap();
        let expected = ELEMENTS.div_ceil(4).div_ceil(chunk as u64);
        assert_eq!(
            isam.writes, expected,
            "a write a chunk, and none for nothing"
        );
        isam.reads = 0;
        for one in wanted(&keys) {
            check_value(isam.get(&one).unwrap().unwrap(), one.number).unwrap();
        }
        assert_eq!(isam.reads, ELEMENTS);
        for number in ELEMENTS..2 * ELEMENTS {
            assert!(isam.get(&keys.wanted(number)).unwrap().is_none());
        }
        assert_eq!(isam.reads, ELEMENTS, "an absent key costs no read");
        assert!(isam.dram_bytes() >= 12 * ELEMENTS && isam.dram_bytes() <= 17 * ELEMENTS);
    }
}

#[test]
fn isam_goes_on_behind_a_flush() {
    let keys = Keys::new(2);
    let device = FaultyDevice::new(64, 1);
    let mut isam = Isam::new(&*device, 100, 4);
    for number in 0..10 {
        isam.put(&keys.wanted(number)).unwrap();
        isam.flush().unwrap();
    }
    for number in 0..10 {
        let one = keys.wanted(number);
        check_value(isam.get(&one).unwrap().unwrap(), number).unwrap();
    }
    let full = (10..400).find(|number| isam.put(&keys.wanted(*number)).is_err());
    assert!(full.is_some(), "a full device is an error");
}

/// Knuth's formula, for a table of 4,000 slots.
#[test]
fn a_table_needs_as_many_slots_as_theory_says() {
    let keys = Keys::new(3);
    let device = FaultyDevice::new(1000, 1);
    let mut table = Table::new(&*device, 4000);
    for one in wanted(&keys) {
        assert!(table.put(&one).unwrap());
    }
    // The mean over all fills up to 3/4: that of finding one, (1 + 1 / (1 - a)) / 2.
    let mean = table.reads as f64 / ELEMENTS as f64;
    assert!((mean / 2.5 - 1.0).abs() < 0.15, "{mean}");
    assert!((expected_slots(0.74) - 7.9).abs() < 0.1);
    assert_eq!((table.writes, table.fill()), (ELEMENTS, 0.75));
    for one in wanted(&keys) {
        check_value(table.get(&one).unwrap().unwrap(), one.number).unwrap();
    }
    assert!(table.get(&keys.wanted(ELEMENTS)).unwrap().is_none());
    // Putting them again takes no more space.
    assert!(table.put(&keys.wanted(5)).unwrap());
    assert_eq!(table.fill(), 0.75);
    for number in ELEMENTS..4000 {
        assert!(table.put(&keys.wanted(number)).unwrap());
    }
    assert!(!table.put(&keys.wanted(4000)).unwrap(), "full");
    assert!(table.get(&keys.wanted(4000)).unwrap().is_none());
}

#[test]
fn a_tree_is_exact_and_writes_its_leaf() {
    let keys = Keys::new(4);
    for value in [400, 1000] {
        let device = FaultyDevice::new(4096, 1);
        let mut tree = Tree::new(&*device, value).unwrap();
        for one in wanted(&keys) {
            tree.put(&one).unwrap();
            tree.put(&one).unwrap();
        }
        for one in wanted(&keys) {
            let found = tree.get(&one).unwrap().unwrap();
            assert_eq!(found.len(), value);
            check_value(&found, one.number).unwrap();
        }
        for number in ELEMENTS..2 * ELEMENTS {
            assert!(tree.get(&keys.wanted(number)).unwrap().is_none());
        }
        // One write for each put and for the first leaf. Each further page takes two: itself and
        // one entry above it. A new root takes only its own write.
        assert!(tree.writes > 2 * ELEMENTS + tree.pages());
        assert!(tree.writes < 2 * ELEMENTS + 2 * tree.pages() + 2);
        assert!(tree.inner_writes > 0 && tree.inner_writes < tree.pages() + 32);
    }
}

#[test]
fn keys_in_order_split_the_last_leaf() {
    let device = FaultyDevice::new(4096, 1);
    let mut tree = Tree::new(&*device, 1000).unwrap();
    let one = |number: u64| Wanted {
        key: number.to_le_bytes(),
        ..Keys::new(1).wanted(number)
    };
    for number in (0..2000).chain((2000..4000).rev()) {
        tree.put(&one(number)).unwrap();
    }
    for number in 0..4000 {
        check_value(&tree.get(&one(number)).unwrap().unwrap(), number).unwrap();
    }
}

#[test]
fn a_device_that_fails_is_an_error_of_each() {
    let keys = Keys::new(5);
    let one = keys.wanted(1);
    let device = FaultyDevice::new(64, 1);
    let mut isam = Isam::new(&*device, 100, 1);
    let mut table = Table::new(&*device, 100);
    device.fail_nth(Op::Read, 1, libc::EIO);
    assert!(table.put(&one).is_err());
    device.fail_nth(Op::Write, 1, libc::EIO);
    assert!(table.put(&one).is_err());
    for number in 0..3 {
        isam.put(&keys.wanted(number)).unwrap();
    }
    device.fail_nth(Op::Flush, 1, libc::EIO);
    assert!(isam.put(&keys.wanted(3)).is_err());
    device.fail_nth(Op::Write, 1, libc::EIO);
    assert!(Tree::new(&*device, 400).is_err());
    let mut tree = Tree::new(&*device, 400).unwrap();
    device.fail_nth(Op::Read, 1, libc::EIO);
    assert!(tree.put(&one).is_err());
    tree.put(&one).unwrap();
    device.fail_nth(Op::Read, 1, libc::EIO);
    assert!(tree.get(&one).is_err());
}
