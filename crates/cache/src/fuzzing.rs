// SPDX-License-Identifier: Apache-2.0
//! The readers of pages, superblocks and saved files on arbitrary bytes, for the fuzz targets of
//! the formats.

use senko_io::PAGE_SIZE;

use crate::record::{self, At, FlashHead, Header};
use crate::shard::fetch::{FrameMatch, find_record};
pub use crate::shard::restore::fuzz_saved as saved;
use crate::superblock::{DeviceLabel, Superblock};

/// Reads a superblock and a label. If the first byte is odd, their checksums are corrected first.
pub fn superblock(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let mut page = vec![0; PAGE_SIZE];
    let len = data.len().min(PAGE_SIZE);
    page[..len].copy_from_slice(&data[..len]);
    if first & 1 == 1 {
        let crc = crc32c::crc32c(&page[16..]);
        page[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    let mut again = vec![0; PAGE_SIZE];
    if let Ok(block) = Superblock::decode(&page) {
        block.encode(&mut again).expect("no more devices than fit");
        assert_eq!(Superblock::decode(&again), Ok(block));
    }
    if let Ok(label) = DeviceLabel::decode(&page) {
        label.encode(&mut again);
        assert_eq!(DeviceLabel::decode(&again), Ok(label));
    }
}

/// Reads a run of one to four pages as a lookup and as reclaim do. An odd first byte means: first
/// correct the checksums of everything that looks like a record, so that the input reaches the code
/// after the checks.
///
/// # Panics
/// If a reader accepts something that is not a record within the run.
pub fn flash_pages(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let pages = data.len().div_ceil(PAGE_SIZE).clamp(1, 4);
    let mut run = vec![0; pages * PAGE_SIZE];
    let len = data.len().min(run.len());
    run[..len].copy_from_slice(&data[..len]);
    let generation = u32::from(first >> 1);
    let mut keys = Vec::new();
    for page in 0..pages {
        walk(
            &mut run[page * PAGE_SIZE..],
            generation,
            first & 1 == 1,
            &mut keys,
        );
    }
    for key in &keys {
        if let FrameMatch::At(at, header) = find_record(&mut run, key, generation) {
            assert!(
                at + header.flash_prefix() <= PAGE_SIZE,
                "a prefix within the page"
            );
            assert_eq!(record::key_at(&run, at, &header), key.as_slice());
            if let Some(bytes) = run.get(at..at + header.flash_len())
                && record::intact(bytes, &header)
            {
                let value = header.flash_prefix() + header.value_len as usize;
                assert!(value <= bytes.len() && header.pieces().is_none());
            }
        }
    }
}

/// Visits the records of a page as reclaim does, notes their keys, and corrects their checksums if
/// requested.
fn walk(run: &mut [u8], generation: u32, mend: bool, keys: &mut Vec<Vec<u8>>) {
    let mut end = 0;
    while end < PAGE_SIZE {
        let at = record::skip_gap(run, end, PAGE_SIZE);
        let At::Record(header) = record::peek(run, at, PAGE_SIZE) else {
            return;
        };
        let (len, after) = (header.flash_len(), record::end_at(at, &header));
        if mend && after <= run.len() && record::join(run, at, &header) {
            let (body, value) = (header.flash_body(), header.flash_prefix());
            let mut head = FlashHead::new(&header, generation, &run[at + body..at + value]);
            head.append(&run[at + body..at + len]);
            run[at..at + body].copy_from_slice(head.finish());
            if let Some((mark, page)) = record::mark_end(after) {
                let word = page..page + mark.len();
                run.copy_within(word.clone(), after - mark.len());
                run[word].copy_from_slice(&mark);
            }
            let again = Header::read(&run[at..]);
            let bytes = record::joined(run, at, &again).expect("it is all here");
            assert!(
                record::intact_at(run, at, &again, generation) && record::intact(&bytes, &again)
            );
        }
        let key = record::key_at(run, at, &header).to_vec();
        if !keys.contains(&key) {
            keys.push(key);
        }
        end = after;
    }
}
