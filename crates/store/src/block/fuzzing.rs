// SPDX-License-Identifier: Apache-2.0
//! A look-up and a scan in arbitrary pages, and all readers of a head, for the fuzz targets of
//! blocks.

use std::sync::Arc;

use senko_io::faulty::FaultyDevice;
use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use super::frame::{self, HEAD_HEADER, HEAD_PAYLOAD};
use super::head::{META_HEADER, Meta};
use super::page::{FoundVersion, PAGE_HEADER, PageFormat, PageHead};
use super::record::BlockRecord;
use super::{Block, BlockScan, probe, verify_block};
use crate::element::Element;
use crate::{Extent, Hasher, KeyHash, StoreError};

const ID: u64 = 0x0123_4567_89ab_cdef;
const TAG: Tag = Tag::store(Purpose::Recover);

/// Reads a run of one to four data pages as a look-up, a scan and a verification do. An odd first
/// byte means: first correct the pages' checksums and numbers, so that the input reaches the code
/// after the checks. Its next bit asks for pages of 8 KiB.
///
/// # Panics
/// If a look-up returns something that is not in the run.
pub fn pages(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let size = PAGE_SIZE << (first >> 1 & 1);
    let pages = data.len().div_ceil(size).clamp(1, 4);
    let mut run = vec![0; pages * size];
    let len = data.len().min(run.len());
    run[..len].copy_from_slice(&data[..len]);
    let format = PageFormat::new(ID, size);
    if first & 1 == 1 {
        for (number, page) in run.chunks_mut(size).enumerate() {
            let quarter = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
            let head = PageHead {
                count: quarter(12),
                first: quarter(14),
            };
            format.seal(page, number as u32, head);
        }
    }
    let hasher = Hasher::new([1; 16]);
    for (key, time) in keys(&run, size) {
        let newest = format.newest_of(&run, 0, hasher.hash(&key), &hasher);
        if let (Ok(Some(newest)), Ok(Some(found))) =
            (newest, format.search(&run, 0, &key, u64::MAX))
        {
            assert!(newest >= found.time, "the newest of all");
        }
        for at in [u64::MAX, time, time.saturating_sub(1), 0] {
            if let Ok(Some(found)) = format.search(&run, 0, &key, at) {
                check_found(&run, &found, at);
            }
        }
        if let Ok(versions) = format.versions(&run, 0, &key) {
            for found in &versions {
                check_found(&run, found, u64::MAX);
            }
            let newest = format.search(&run, 0, &key, u64::MAX);
            assert_eq!(newest, Ok(versions.into_iter().next()));
        }
    }
    scan(&run, size);
}

/// Keys and times of elements that a page seems to hold, at any offset, and a key that no element
/// has.
fn keys(run: &[u8], size: usize) -> Vec<(Vec<u8>, u64)> {
    let mut keys = vec![(b"no such key".to_vec(), 1)];
    for page in run.chunks(size) {
        let mut at = usize::from(u16::from_le_bytes([page[14], page[15]])).max(PAGE_HEADER);
        while let Some((element, len)) = page.get(at..).and_then(|rest| Element::decode(rest).ok())
        {
            keys.push((element.key.to_vec(), element.time));
            at += len;
        }
        // An element that continues in the next page: its key, if the whole key is in this page.
        if let Ok(header) =
            crate::element::ElementHeader::decode(page.get(at..).unwrap_or_default())
            && let Some(key) = page.get(at + header.key_at()..at + header.value_at())
        {
            keys.push((key.to_vec(), header.time));
        }
        keys.truncate(200);
    }
    keys
}

fn check_found(run: &[u8], found: &FoundVersion<'_>, at: u64) {
    assert!(found.time <= at, "no newer than asked for");
    assert!(found.value.len() <= run.len(), "a value within the run");
}

/// A scan and a verification of a block with these data pages and no head.
fn scan(run: &[u8], size: usize) {
    let pages = (run.len() / PAGE_SIZE) as u64;
    let device = FaultyDevice::new(pages + 16, 1);
    let mut aligned = AlignedBuf::new(pages as usize);
    aligned.copy_from_slice(run);
    device.write(0, &aligned, TAG).expect("a device in memory");
    let record = BlockRecord {
        id: ID,
        extent: Extent::new(0, pages as u32 + 2),
        data_pages: (run.len() / size) as u32,
        head_pages: 2,
        page_bytes: size as u32,
        elements: 1,
        last_order: u64::MAX,
        meta_pages: 1,
        ..BlockRecord::default()
    };
    let hasher = Hasher::new([1; 16]);
    let mut scan = BlockScan::new(Arc::clone(&device), &record, hasher.clone(), 0, TAG);
    walk(&mut scan, run.len());
    assert!(!verify_block(&*device, &record, &hasher).is_empty());
}

/// A scan to its end, over all damage.
fn walk(scan: &mut BlockScan<Arc<FaultyDevice>>, bytes: usize) {
    let mut last = KeyHash::default();
    let mut steps = 0;
    loop {
        match scan.next_element() {
            Ok(None) => return,
            Ok(Some((hash, element))) => {
                assert!(hash >= last, "elements in order");
                assert!(element.is_valid(), "an element that could be written");
                last = hash;
            }
            Err(StoreError::Damaged { .. }) => assert!(scan.skip_damage()),
            Err(other) => panic!("a device in memory does not fail: {other}"),
        }
        steps += 1;
        assert!(steps <= bytes, "a scan comes to an end");
    }
}

/// Reads a head: `data` is what the payloads of its pages hold, one after the other.
///
/// # Panics
/// If a reader accepts something that does not encode to the same bytes, or that points out of the
/// block.
pub fn head(data: &[u8]) {
    if let Some(record) = data
        .first_chunk()
        .and_then(|bytes| BlockRecord::decode(bytes).ok())
    {
        assert!(record.head() + u64::from(record.head_pages) <= record.extent.end());
    }
    let Some(record) = data
        .get(META_HEADER - BlockRecord::BYTES..META_HEADER)
        .and_then(|bytes| BlockRecord::decode(bytes.try_into().ok()?).ok())
    else {
        return;
    };
    let mut stream = data.to_vec();
    stream.resize(record.meta_pages.min(16) as usize * HEAD_PAYLOAD, 0);
    if let Ok(meta) = Meta::decode(&stream) {
        let again = meta.encode();
        assert_eq!(again, stream[..again.len()]);
        assert!(stream[again.len()..].iter().all(|byte| *byte == 0));
        for order in [0, record.first_order, record.last_order, u64::MAX, 1 << 63] {
            let pages = meta.index.find(order);
            assert!(pages.first <= pages.end && pages.end <= record.data_pages);
        }
    }
    if record.extent.pages > 256 {
        return;
    }
    let device = FaultyDevice::new(record.extent.end(), 1);
    for number in 0..record.head_pages {
        let mut page = AlignedBuf::new(1);
        let from = data.len().min(number as usize * HEAD_PAYLOAD);
        let to = data.len().min(from + HEAD_PAYLOAD);
        page[HEAD_HEADER..HEAD_HEADER + to - from].copy_from_slice(&data[from..to]);
        frame::seal(&mut page, record.id, number);
        if number == 0
            && let Some(probed) = probe(&page)
        {
            assert_eq!(probed, record);
        }
        device
            .write(record.head() + u64::from(number), &page, TAG)
            .expect("a device in memory");
    }
    open(&device, &record);
}

/// Opens a block whose head is on the device, and calls every reader of it.
fn open(device: &Arc<FaultyDevice>, record: &BlockRecord) {
    let hasher = Hasher::new([1; 16]);
    verify_block(&**device, record, &hasher);
    let Ok(block) = Block::open(&**device, record) else {
        return;
    };
    for order in (0..64).map(|nth| nth << 58 | nth) {
        let run = block.find(KeyHash { order, check: 0 });
        let end = run.page + u64::from(run.pages);
        assert!(run.is_empty() || (run.page >= record.extent.first && end <= record.head()));
    }
    if let Ok(all) = block.hashes(&**device, 0..256) {
        assert_eq!(all.len() as u64, record.elements);
        let halves = [0..100, 100..256].map(|shards| block.hashes(&**device, shards));
        let halves: Vec<_> = halves.into_iter().flatten().flatten().collect();
        assert_eq!(halves, all);
    }
    assert!(block.bytes_in_dram() >= size_of::<Block>());
    let mut scan = BlockScan::new(Arc::clone(device), record, hasher, 64 << 10, TAG);
    walk(&mut scan, PAGE_SIZE * record.extent.pages as usize);
}
