// SPDX-License-Identifier: Apache-2.0
//! Durable writes, pins of readers, and the holes of a file.

use senko_io::faulty::FaultyDevice;
use senko_io::{AlignedBuf, Device, FileOptions, FlashFile, PAGE_SIZE, Purpose, Tag};

use crate::support::Folder;

const TAG: Tag = Tag::dbm(Purpose::Log);

fn open(path: &std::path::Path) -> FlashFile {
    FlashFile::open(path, &FileOptions::default()).unwrap()
}

#[test]
fn extents_leave_holes_out() {
    let folder = Folder::new();
    let path = folder.file("data");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(4 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"x", (2 << 20) + 5).unwrap();
    file.sync_all().unwrap();
    let device = open(&path);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(extent) = device.extent(at) {
        assert!(extent.start >= at && extent.start < extent.end);
        at = extent.end;
        found.push(extent);
    }
    if found.iter().eq([&(0..1024)]) {
        println!("skipped: the file system does not tell its holes");
        return;
    }
    let has = |page| found.iter().any(|extent| extent.contains(&page));
    assert!(has(512) && !has(0) && !has(1023), "{found:?}");
    assert_eq!(device.extent(device.pages()), None);
}

#[test]
fn a_pin_is_seen_by_the_writer_until_its_holder_is_gone() {
    let folder = Folder::new();
    let path = folder.file("data");
    std::fs::write(&path, [0; 128 << 10]).unwrap();
    let writer = open(&path);
    assert_eq!(writer.oldest_pin(u64::MAX >> 4), None);
    let beside = FileOptions {
        beside_writer: true,
        ..FileOptions::default()
    };
    let reader = |number| {
        let reader = FlashFile::open(&path, &beside).unwrap();
        reader.pin(number).unwrap();
        reader
    };
    let (older, newer) = (reader(7), reader(9));
    assert_eq!(writer.oldest_pin(100), Some(7));
    assert_eq!(writer.oldest_pin(8), Some(7));
    assert_eq!(writer.oldest_pin(7), None);
    drop(older);
    assert_eq!(writer.oldest_pin(100), Some(9));
    drop(newer);
    assert_eq!(writer.oldest_pin(100), None);
}

/// A durable write is durable only by itself: earlier writes may still be lost.
#[test]
fn a_durable_write_survives_and_says_nothing_of_others() {
    let mut lost = 0;
    for seed in 0..64 {
        let device = FaultyDevice::new(4, seed);
        let mut page = AlignedBuf::new(1);
        page.fill(1);
        device.write(0, &page, TAG).unwrap();
        device.write_durable(1, &page, TAG).unwrap();
        device.crash();
        let mut found = AlignedBuf::new(2);
        device.read(0, &mut found, TAG).unwrap();
        assert!(found[PAGE_SIZE..].iter().all(|byte| *byte == 1));
        lost += u32::from(found[..PAGE_SIZE].contains(&0));
    }
    assert!(lost > 0, "an earlier write was never lost");
}
