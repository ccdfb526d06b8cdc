// SPDX-License-Identifier: Apache-2.0
//! Devices that fail, wrong files, and full disks.

use std::sync::Arc;

use senko_dbm::{Database, DbmError, Durability};
use senko_io::Op;
use senko_io::faulty::FaultyDevice;

use crate::support::{Model, content, open, quiet};

/// After a failed write or flush no other is tried, and the next opening has every acknowledged
/// commit.
#[test]
fn a_failed_write_or_flush_latches() {
    let mut failures = 0;
    for op in [Op::Write, Op::Flush] {
        for nth in 1..40 {
            let device = FaultyDevice::new(3000, nth);
            let db = open(&device).unwrap();
            let table = db.create_table("t").unwrap();
            device.fail_nth(op, nth, 5);
            let mut acknowledged = 0u8;
            let mut failed = None;
            for key in 1..60u8 {
                let done = db.run(Durability::Synced, |tx| tx.put(&table, &[key], b"v"));
                if key % 10 == 0 && failed.is_none() {
                    let _ = db.checkpoint();
                }
                match done {
                    Ok(()) => {
                        assert!(failed.is_none(), "{op:?} {nth}: a commit after a failure");
                        acknowledged = key;
                    }
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            failures += u32::from(failed.is_some());
            if failed.is_some() {
                let text = db.checkpoint().unwrap_err().to_string();
                assert!(text.contains("accepts no commits"), "{text}");
            }
            drop(db);
            for seed in 0..4 {
                let db = open(&device.crashed_copy(seed)).unwrap();
                let found = content(&db.snapshot(), &table);
                let keys: Vec<u8> = found.keys().map(|key| key[0]).collect();
                let prefix: Vec<u8> = (1..=keys.len() as u8).collect();
                assert_eq!(keys, prefix);
                assert!(keys.len() >= usize::from(acknowledged), "{op:?} {nth}");
            }
        }
    }
    assert!(failures > 40, "only {failures} runs met their failure");
}

/// On a full device every commit that fits is kept. A commit that does not fit changes nothing, and
/// deleting makes room again.
#[test]
fn a_full_device_loses_nothing_and_can_be_used_again() {
    let device = FaultyDevice::new(48 * 16, 3);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    let mut model = Model::new();
    let mut refused = 0;
    for key in 0..3000u32 {
        let key = key.to_be_bytes().to_vec();
        match db.run(Durability::Synced, |tx| tx.put(&table, &key, &[9; 1000])) {
            Ok(()) => drop(model.insert(key, vec![9; 1000])),
            Err(DbmError::NoSpace(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if refused == 3 {
            break;
        }
    }
    assert!(refused > 0 && model.len() > 300, "{} records", model.len());
    assert_eq!(content(&db.snapshot(), &table), model);
    db.run(Durability::Synced, |tx| {
        tx.delete_range(&table, &[0, 0, 0, 50], None)
    })
    .unwrap();
    model.retain(|key, _| key[..] < [0, 0, 0, 50][..]);
    for key in 5000..5200u32 {
        let key = key.to_be_bytes().to_vec();
        db.run(Durability::Synced, |tx| tx.put(&table, &key, &[8; 1000]))
            .unwrap();
        model.insert(key, vec![8; 1000]);
    }
    drop(db);
    let db = open(&device.crashed_copy(1)).unwrap();
    assert_eq!(content(&db.snapshot(), &table), model);
}

/// A damaged page fails the reads and commits that need it, with its position, and no others.
#[test]
fn a_damaged_page_fails_what_needs_it() {
    let device = FaultyDevice::new(3000, 3);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(Durability::Synced, |tx| {
        (0..2000u32).try_for_each(|key| tx.put(&table, &key.to_be_bytes(), &[1; 50]))
    })
    .unwrap();
    db.close().unwrap();
    let first_leaf = {
        let mut page = senko_io::AlignedBuf::new(1);
        let tag = senko_io::Tag::dbm(senko_io::Purpose::Lookup);
        (16..3000).find(|number| {
            senko_io::Device::read(&*device, *number, &mut page, tag).unwrap();
            // A dense leaf whose first record is that of key 0.
            page[38] == 3 && page[44..46] == [0, 1] && page[52..60] == [4, 0, 50, 0, 0, 0, 0, 0]
        })
    };
    device.flip_bit(first_leaf.unwrap(), 4000 * 8);
    let db = open(&device).unwrap();
    let read = db.snapshot().get(&table, &0u32.to_be_bytes());
    assert!(matches!(read, Err(DbmError::Damaged { .. })), "{read:?}");
    let report = db.verify().unwrap();
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(report.records > 1500 && report.records < 2000);
    let commit = db.run(Durability::Synced, |tx| tx.put(&table, &[0; 4], b"x"));
    assert!(
        matches!(commit, Err(DbmError::Damaged { .. })),
        "{commit:?}"
    );
    let last = 1999u32.to_be_bytes();
    db.run(Durability::Synced, |tx| tx.put(&table, &last, b"y"))
        .unwrap();
    assert_eq!(
        db.snapshot().get(&table, &last).unwrap(),
        Some(b"y".to_vec())
    );
}

#[test]
fn what_is_no_database_is_named_and_left_alone() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let refused = |what: &str| {
        let text = Database::open(&path, quiet()).unwrap_err().to_string();
        assert!(text.contains(what), "{text}");
    };
    for size in [100, 4096, 1 << 20] {
        std::fs::write(&path, vec![b'x'; size]).unwrap();
        refused("not a Senko database");
        assert_eq!(std::fs::read(&path).unwrap(), vec![b'x'; size]);
    }
    // If the superblocks' pages are zero, someone else's data may follow them.
    let mut image = vec![0; 4 << 20];
    image[(64 << 10) + 64..][..8].copy_from_slice(b"_BHRfS_M");
    std::fs::write(&path, &image).unwrap();
    refused("not a Senko database: it holds a btrfs file system");
    assert!(std::fs::read(&path).unwrap() == image);
    image.fill(0);
    std::fs::write(&path, &image).unwrap();
    Database::open(&path, quiet()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let missing = senko_dbm::Options {
        create: false,
        ..quiet()
    };
    let text = Database::open(&path, missing).unwrap_err().to_string();
    assert!(text.contains("does not exist"), "{text}");
    assert!(!path.exists());
    // Cut short.
    let db = Database::open(&path, quiet()).unwrap();
    let table = db.create_table("t").unwrap();
    db.run(Durability::Synced, |tx| {
        (0..1000u32).try_for_each(|key| tx.put(&table, &key.to_be_bytes(), &[1; 500]))
    })
    .unwrap();
    refused("in use by this process");
    db.close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    refused("it was cut");
    std::fs::write(&path, &whole).unwrap();
    let db = Database::open(&path, quiet()).unwrap();
    assert_eq!(content(&db.snapshot(), &table).len(), 1000);
    drop(db);
    let db = Arc::new(Database::open_to_read(&path, quiet()).unwrap());
    let write = db.run(Durability::None, |tx| tx.put(&table, b"x", b""));
    assert!(matches!(write, Err(DbmError::ReadOnly(_))), "{write:?}");
}

/// A foreign sparse file whose data is far from its beginning used to be overwritten: no sample hit
/// the data.
#[test]
fn data_between_holes_is_left_alone() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("disk.img");
    let at = (777 << 20) + 12_345;
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"eighteen bytes long", at).unwrap();
    file.sync_all().unwrap();
    let text = Database::open(&path, quiet()).unwrap_err().to_string();
    assert!(text.contains(&format!("data at byte {at}")), "{text}");
    let (file, mut found) = (std::fs::File::open(&path).unwrap(), [0; 19]);
    std::os::unix::fs::FileExt::read_at(&file, &mut found, at).unwrap();
    assert_eq!(&found, b"eighteen bytes long");
}
