// SPDX-License-Identifier: Apache-2.0
//! Any change of the written bytes is an error that names the place; everything else stays
//! readable.

use std::cell::Cell;

use senko_workload::Rng;

use super::*;

/// Lets `change` change a page on the device.
fn change(device: &FaultyDevice, page: u64, change: impl FnOnce(&mut [u8])) {
    let mut bytes = read_page(device, page);
    change(&mut bytes);
    device.write(page, &bytes, TAG).unwrap();
}

/// The byte of the file at which the damage was found.
fn offset(error: &StoreError) -> u64 {
    match error {
        StoreError::Damaged { offset, .. } => *offset,
        other => panic!("damage, not {other}"),
    }
}

/// Calls every reader of a block whose bytes in `wrong` were changed. Each returns the right
/// answer, or reports damage in that range.
fn check_damaged(built: &Built, made: &Made, wrong: Range<u64>) {
    let Built {
        device,
        record,
        block,
    } = built;
    let there = |error: &StoreError| {
        let offset = offset(error);
        assert!(wrong.contains(&offset), "{error} is not in {wrong:?}");
    };
    let problems = Cell::new(false);
    let found = |error: StoreError| {
        problems.set(true);
        there(&error);
    };
    for one in &made.elements {
        match look_up(built, one.hash, &one.key, one.time) {
            Ok(found) => assert_eq!(found.as_ref(), Some(one)),
            Err(error) => found(error),
        }
    }
    for shards in [0..10, 10..200, 200..256] {
        match block.hashes(&**device, shards.clone()) {
            Ok(entries) => {
                let mut expected = listed(&made.elements);
                expected.retain(|entry| shards.contains(&entry.key.shard()));
                assert_eq!(entries, expected);
            }
            Err(error) => found(error),
        }
    }
    match Block::open(&**device, record) {
        Ok(opened) => assert_eq!(opened.page_index(), block.page_index()),
        Err(error) => found(error),
    }
    let mut scan = BlockScan::new(Arc::clone(device), record, made.hasher.clone(), 0, TAG);
    let (mut seen, mut expected) = (0, made.elements.iter());
    loop {
        match scan.next_element() {
            Ok(None) => break,
            Ok(Some((hash, element))) => {
                let found = Owned::of(hash, &element);
                assert!(
                    expected.any(|one| *one == found),
                    "an element that was written, in order"
                );
                seen += 1;
            }
            Err(error) => {
                let text = error.to_string();
                found(error);
                assert_eq!(scan.next_element().unwrap_err().to_string(), text);
                assert!(scan.skip_damage());
            }
        }
    }
    let found = verify_block(&**device, record, &made.hasher);
    assert_eq!(found.is_empty(), !problems.get(), "{found:?}");
    if let Some(first) = found.first() {
        assert!(
            wrong.contains(&first.offset),
            "{first:?} is not in {wrong:?}"
        );
    }
    // All elements in undamaged pages are there.
    let page = u64::from(record.page_bytes);
    let lost = made
        .elements
        .iter()
        .filter(|one| look_up(built, one.hash, &one.key, one.time).is_err());
    let data = wrong.start < record.head_offset(0);
    assert!(seen + lost.count() >= made.elements.len() || (data && wrong.end - wrong.start > page));
}

/// The page of the block that a device page lies in, as bytes of the file.
fn around(record: &BlockRecord, page: u64) -> Range<u64> {
    let byte = page * PAGE_SIZE as u64;
    if page >= record.head() {
        return byte..byte + PAGE_SIZE as u64;
    }
    let size = u64::from(record.page_bytes);
    let first = record.extent.first * PAGE_SIZE as u64;
    let start = first + (byte - first) / size * size;
    start..start + size
}

#[test]
fn flipped_bits() {
    for page_bytes in [4096, 8192] {
        let made = make(11, 150, Hashes::Real, 3 * page_bytes);
        let built = build(&made.elements, page_bytes, 21);
        let record = built.record;
        let pages = record.head() - record.extent.first + u64::from(record.head_pages);
        let mut rng = Rng::new(5);
        for nth in 0..pages * 6 {
            let page = record.extent.first + nth % pages;
            // Changes page headers more often than other bytes.
            let byte = if rng.below(2) == 0 {
                rng.below(40)
            } else {
                rng.below(4096)
            } as usize;
            let bit = 1 << rng.below(8);
            change(&built.device, page, |bytes| bytes[byte] ^= bit);
            println!("page {page} byte {byte} bit {bit}");
            check_damaged(&built, &made, around(&record, page));
            change(&built.device, page, |bytes| bytes[byte] ^= bit);
        }
        assert_eq!(verify_block(&*built.device, &record, &made.hasher), []);
    }
}

#[test]
fn pages_of_other_places() {
    let made = make(12, 150, Hashes::Real, 9000);
    let built = build(&made.elements, 4096, 22);
    let record = built.record;
    // The same elements in a block whose id differs in the upper half only.
    let other = build(&made.elements, 4096, 22 + (1 << 32));
    let pages = record.head() + u64::from(record.head_pages);
    for page in record.extent.first..pages {
        let kept = read_page(&*built.device, page);
        // A neighbouring page of the same block, as after a write to the wrong place.
        let neighbour = if page + 1 < pages { page + 1 } else { page - 1 };
        for wrong in [
            read_page(&*other.device, page),
            read_page(&*built.device, neighbour),
            AlignedBuf::new(1),
        ] {
            built.device.write(page, &wrong, TAG).unwrap();
            check_damaged(&built, &made, around(&record, page));
        }
        built.device.write(page, &kept, TAG).unwrap();
    }
}

#[test]
fn cut_off() {
    let made = make(13, 150, Hashes::Real, 9000);
    let built = build(&made.elements, 4096, 23);
    let record = built.record;
    for pages in [
        0,
        record.extent.first,
        record.extent.first + 3,
        record.head() + 1,
        record.extent.end() - 1,
    ] {
        let device = FaultyDevice::new(pages, 1);
        for page in 0..pages {
            let bytes = read_page(&*built.device, page);
            device.write(page, &bytes, TAG).unwrap();
        }
        let error = Block::open(&*device, &record).unwrap_err();
        assert_eq!(offset(&error), pages * PAGE_SIZE as u64);
        assert_eq!(verify_block(&*device, &record, &made.hasher).len(), 1);
    }
}

/// The manifest's record and the head are compared with each other.
#[test]
fn another_record() {
    let made = make(14, 50, Hashes::Real, 2000);
    let built = build(&made.elements, 4096, 24);
    let mut record = built.record;
    record.max_time += 1;
    assert_eq!(
        offset(&Block::open(&*built.device, &record).unwrap_err()),
        record.head_offset(0)
    );
    assert!(!verify_block(&*built.device, &record, &made.hasher).is_empty());
    // A head says where its block lies, without a manifest.
    let mut found = Vec::new();
    for page in 0..built.device.pages() {
        let bytes = read_page(&*built.device, page);
        found.extend(probe(&bytes).map(|record| (page, record)));
    }
    assert_eq!(found, [(built.record.head(), built.record)]);
}

#[test]
fn a_device_that_fails() {
    let made = make(15, 2000, Hashes::Real, 9000);
    let bytes = needed(&made.elements, 4096);
    let extent = Extent::new(0, (bytes / PAGE_SIZE as u64) as u32);
    let mut ends = 0;
    for nth in 1.. {
        let device = FaultyDevice::new(extent.end(), nth);
        device.fail_nth(senko_io::Op::Write, nth, libc_eio());
        let mut writer = BlockWriter::new(&*device, extent, 1, 4096, TAG, u64::MAX);
        let mut failed = None;
        for one in &made.elements {
            match writer.push(one.hash, &one.element()) {
                Ok(taken) => assert!(taken && failed.is_none()),
                Err(error) => {
                    assert!(matches!(error, StoreError::Io { .. }), "{error}");
                    failed = Some(error);
                }
            }
        }
        match writer.finish() {
            Ok(_) => {
                assert!(failed.is_none());
                ends = nth;
                break;
            }
            Err(error) => assert!(matches!(error, StoreError::Io { .. }), "{error}"),
        }
    }
    assert!(ends > 4, "{ends} writes");
    // Reads that fail are errors of the device, not damage.
    let built = build(&made.elements, 4096, 1);
    // If a piece cannot be read, its pages are read one by one, and no readable page is lost.
    built.device.fail_nth(senko_io::Op::Read, 1, libc_eio());
    let hasher = made.hasher.clone();
    let device = Arc::clone(&built.device);
    let mut scan = BlockScan::new(device, &built.record, hasher, 1 << 20, TAG);
    assert_eq!(scanned(&mut scan), made.elements);
    built.device.fail_from(senko_io::Op::Read, 1, libc_eio());
    let error = Block::open(&*built.device, &built.record).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    let device = Arc::clone(&built.device);
    let mut scan = BlockScan::new(device, &built.record, made.hasher.clone(), 0, TAG);
    assert!(matches!(scan.next_element(), Err(StoreError::Io { .. })));
}

/// EIO; Linux uses this number on every machine that this test runs on.
fn libc_eio() -> i32 {
    5
}
