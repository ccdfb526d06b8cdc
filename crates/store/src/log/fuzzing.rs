// SPDX-License-Identifier: Apache-2.0
//! For the fuzz target `store_log`: a log's extent of arbitrary bytes is replayed, read, appended
//! to and replayed again.
//!
//! The first byte says how the rest becomes pages. With 0 the bytes are the pages. Otherwise each
//! page is composed with the right checksum. 6 bytes give its header (life, behind, whether the
//! chain breaks here, where the first element begins, bytes of payload in 2), and the payload
//! follows. So the input also reaches the code after the checksum.

use senko_io::faulty::FaultyDevice;
use senko_io::{Device, PAGE_SIZE, Purpose, Tag};

use crate::element::Element;
use crate::{Extent, Hasher, StoreError};

use super::page::{self, PAYLOAD, PageHeader};
use super::{AppendError, Durability, Log, salvage};

const ID: u64 = 9;
const PAGES: u32 = 16;
const TAG: Tag = Tag::store(Purpose::Meta);

/// The pages that an input describes.
fn pages(data: &[u8]) -> Vec<u8> {
    let (composed, mut data) = data.split_first().map_or((0, data), |(c, rest)| (*c, rest));
    let mut all = vec![0; PAGES as usize * PAGE_SIZE];
    if composed == 0 {
        let len = data.len().min(all.len());
        all[..len].copy_from_slice(&data[..len]);
        return all;
    }
    let extent = Extent::new(0, PAGES);
    let mut prev = page::root(ID);
    for (number, page) in (0..).zip(all.chunks_exact_mut(PAGE_SIZE)) {
        let Some((header, rest)) = data.split_first_chunk::<6>() else {
            break;
        };
        let [life, behind, breaks, first, low, high] = *header;
        let begin = page::begin(number);
        if number == 0 {
            page::write_label(page, ID, extent);
        }
        let len = usize::from(u16::from_le_bytes([low, high])) % (PAYLOAD + 1);
        let len = len.min(rest.len()).min(PAGE_SIZE - begin);
        page[begin..begin + len].copy_from_slice(&rest[..len]);
        data = &rest[len..];
        let first = begin + usize::from(first);
        let header = PageHeader {
            crc: 0,
            prev: prev ^ u32::from(breaks >= 0xf0),
            life: u16::from(life),
            behind: u16::from(behind),
            used: (begin + len) as u16,
            first: if first < begin + len { first as u16 } else { 0 },
        };
        prev = header.compose(page, ID, number);
    }
    all
}

/// Every element of the log is found by its key and time, as it was read.
fn check(log: &Log) {
    let sorted = log.sorted().expect("what was replayed can be read");
    assert_eq!(sorted.iter().len() as u64, log.elements());
    let mut before: Option<(Vec<u8>, u64)> = None;
    for (hash, element) in sorted.iter() {
        let this = (element.key.to_vec(), element.time);
        let found = log.get(hash, element.key, element.time);
        let found = found.expect("no damage").expect("it is in the log");
        // If a batch has a key twice, the later element is found. It comes first.
        if before.as_ref() != Some(&this) {
            assert_eq!(found.element(), element);
        }
        before = Some(this);
    }
}

/// Runs one input. Returns the number of replayed elements.
pub fn replay(data: &[u8]) -> u64 {
    let device = FaultyDevice::new(u64::from(PAGES), 1);
    let extent = Extent::new(0, PAGES);
    device.write(0, &pages(data), TAG).expect("a sound device");
    device.flush(TAG).expect("a sound device");
    let hasher = Hasher::new([5; 16]);
    let mut salvaged = 0;
    let mut count = |_: &Element<'_>| {
        salvaged += 1;
        Ok(())
    };
    let met = salvage(&*device, ID, extent, 0, &mut count).expect("an extent");
    assert_eq!(met.elements, salvaged);
    let log = match Log::replay(device.clone(), ID, extent, hasher.clone()) {
        Ok(log) => log,
        Err(StoreError::Damaged { offset, .. }) => {
            assert!(offset < u64::from(PAGES) * PAGE_SIZE as u64);
            return 0;
        }
        Err(StoreError::NewerVersion { .. }) => return 0,
        Err(other) => panic!("{other}"),
    };
    assert!(met.lost.is_empty() && met.elements == log.elements());
    check(&log);
    let time = log.last_time() + 1;
    let element = Element {
        flags: 0,
        key: b"one more",
        value: b"value",
        time,
        expiry: 0,
    };
    match log.append(&[(hasher.hash(element.key), element)]) {
        Ok(ticket) => log
            .commit(ticket, Durability::Synced)
            .expect("a sound device"),
        // The log is full, or its times have reached their end.
        Err(AppendError::Full | AppendError::Store(StoreError::Invalid(_))) => {
            return log.elements();
        }
        Err(other) => panic!("{other}"),
    }
    check(&log);
    let again = Log::replay(device, ID, extent, hasher).expect("it was appended to");
    assert_eq!(again.elements(), log.elements());
    assert_eq!(again.last_time(), time);
    log.elements()
}
