// SPDX-License-Identifier: Apache-2.0
//! The end of the log: a hole before it is damage, wherever the hole is, and remains of another
//! database are no hole.

use std::sync::Arc;

use senko_dbm::{Database, DbmError, Durability, Table};
use senko_io::faulty::FaultyDevice;
use senko_io::{AlignedBuf, Device, Purpose, Tag};

use crate::support::open;

const TAG: Tag = Tag::dbm(Purpose::Recover);

/// The pages of the first entries of groups of changes, in the order of the log.
fn groups_of(device: &FaultyDevice) -> Vec<u64> {
    let mut page = AlignedBuf::new(1);
    let mut found = Vec::new();
    for number in 16..device.pages() {
        device.read(number, &mut page, TAG).unwrap();
        if page[38] == 1 && page[39] == 1 {
            found.push((u64::from_le_bytes(page[8..16].try_into().unwrap()), number));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, number)| number).collect()
}

fn refused(device: &Arc<FaultyDevice>, what: &str) {
    match open(device) {
        Err(DbmError::Damaged { .. }) => {}
        other => panic!("{what}: {other:?}"),
    }
}

/// A hole in a group of more than two segments used to be taken for the log's end, and the synced
/// commits after it were overwritten.
#[test]
fn a_hole_in_a_long_group_is_no_end() {
    let device = FaultyDevice::new(3000, 1);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    db.checkpoint().unwrap();
    let begun = groups_of(&device).len();
    db.run(Durability::Synced, |tx| {
        tx.put(&table, b"long", &[7; 250_000])
    })
    .unwrap();
    for key in 0..20u8 {
        db.run(Durability::Synced, |tx| tx.put(&table, &[key], b"v"))
            .unwrap();
    }
    // Also without the mark, as on a device that has no memory.
    for has_mark in [true, false] {
        let image = device.copy(1);
        if !has_mark {
            image.write(7, &AlignedBuf::new(1), TAG).unwrap();
        }
        assert!(open(&image.copy(1)).is_ok());
        let after = groups_of(&image)[begun + 1];
        let parts: Vec<u64> = (16..after)
            .filter(|number| {
                let mut page = AlignedBuf::new(1);
                image.read(*number, &mut page, TAG).unwrap();
                page[38] == 2
            })
            .collect();
        assert!(parts.len() > 60, "{} parts", parts.len());
        for part in [parts[0], parts[1], parts[20], parts[parts.len() - 1]] {
            let broken = image.copy(1);
            broken.flip_bit(part, 9999);
            refused(&broken, &format!("part at {part}, mark: {has_mark}"));
        }
    }
}

/// Before the record of a checkpoint in parts a hole used to be taken for the log's end: pages that
/// the checkpoint wrote were new, others old. The log then went on over the record, and the
/// database did not open any more.
#[test]
fn a_hole_before_the_checkpoint_is_no_end() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let device = FaultyDevice::new(3000, 1);
        let db = open(&device).unwrap();
        let table = db.create_table("t").unwrap();
        let put = |from: u32, to: u32| {
            for key in from..to {
                let value = [&key.to_be_bytes()[..], &[9; 200]].concat();
                db.run(durability, |tx| {
                    tx.put(&table, &(key % 300).to_be_bytes(), &value)
                })
                .unwrap();
            }
        };
        put(0, 600);
        db.checkpoint().unwrap();
        let begun = groups_of(&device).len();
        put(600, 800);
        db.checkpoint_of(1).unwrap();
        // As after a power cut: nothing but the checkpoint proves what it needs.
        let image = device.crashed_copy(1);
        image.write(7, &AlignedBuf::new(1), TAG).unwrap();
        assert!(open(&image.copy(1)).is_ok());
        let groups = groups_of(&image);
        assert!(groups.len() > begun + 1);
        for group in &groups[begun..] {
            let broken = image.copy(1);
            broken.flip_bit(*group, 8 * 60);
            refused(&broken, &format!("{durability:?}, group at {group}"));
        }
    }
}

/// The last group was synced, or written, and nothing in the log comes after it.
#[test]
fn a_hole_in_the_last_group_is_no_end() {
    for durability in [Durability::Synced, Durability::Buffered] {
        let device = FaultyDevice::new(3000, 1);
        let db = open(&device).unwrap();
        let table = db.create_table("t").unwrap();
        db.run(durability, |tx| tx.put(&table, b"long", &[7; 9000]))
            .unwrap();
        let last = *groups_of(&device).last().unwrap();
        let image = device.copy(1);
        image.flip_bit(last, 8 * 1000);
        refused(&image, "after a kill");
        if durability == Durability::Synced {
            let image = device.crashed_copy(2);
            image.flip_bit(last, 8 * 1000);
            // The mark may have been lost with the power.
            let mark = |seed| {
                let mut page = AlignedBuf::new(1);
                device.crashed_copy(seed).read(7, &mut page, TAG).unwrap();
                page.iter().any(|byte| *byte != 0)
            };
            if mark(2) {
                refused(&image, "after a power cut");
            }
        }
    }
}

/// Entries of another database after the log's end, here by the same numbers, used to be taken for
/// its continuation: a sound database was refused.
#[test]
fn entries_of_another_database_prove_nothing() {
    let make = || {
        let device = FaultyDevice::new(3000, 1);
        let db = open(&device).unwrap();
        let table = db.create_table("t").unwrap();
        (device, db, table)
    };
    let put = |db: &Database, table: &Table, key: u32| {
        db.run(Durability::Synced, |tx| {
            tx.put(table, &key.to_be_bytes(), b"v")
        })
        .unwrap();
    };
    let (old, db, table) = make();
    for key in 0..300 {
        put(&db, &table, key);
    }
    let (device, db, table) = make();
    let mut page = AlignedBuf::new(1);
    for number in 48..3000 {
        old.read(number, &mut page, TAG).unwrap();
        device.write(number, &page, TAG).unwrap();
    }
    device.flush(TAG).unwrap();
    for key in 0..200 {
        put(&db, &table, key);
        let again = open(&device.copy(1)).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(again.snapshot().count(&table).unwrap(), u64::from(key) + 1);
    }
}
