// SPDX-License-Identifier: Apache-2.0
//! The log, through its public interface.

mod basics; // one property at a time
mod crash; // crashes at every write and flush, failures, flipped bits
mod threads; // writers, readers and crashes on real threads

use std::sync::Arc;

use senko_io::faulty::FaultyDevice;
use senko_io::{Device, PAGE_SIZE, Purpose, Tag};
use senko_store::element::{Element, TOMBSTONE};
use senko_store::log::{AppendError, Log, Ticket};
use senko_store::{Durability, Extent, Hasher, KeyHash};

/// One write of a batch: a key, and its value or its deletion.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

pub fn hasher() -> Hasher {
    Hasher::new([3; 16])
}

pub fn hash(key: &[u8]) -> KeyHash {
    hasher().hash(key)
}

/// A device with an extent in its middle.
pub fn device(pages: u32, seed: u64) -> (Arc<FaultyDevice>, Extent) {
    let extent = Extent::new(16, pages);
    (FaultyDevice::new(u64::from(pages) + 48, seed), extent)
}

pub fn create(device: &Arc<FaultyDevice>, extent: Extent) -> Log {
    Log::create(device.clone(), 7, extent, hasher()).expect("a new log")
}

pub fn replay(device: &Arc<FaultyDevice>, extent: Extent) -> Log {
    Log::replay(device.clone(), 7, extent, hasher()).expect("a log to replay")
}

pub fn append(log: &Log, batch: &[Change], time: u64) -> Result<Ticket, AppendError> {
    let elements: Vec<_> = batch
        .iter()
        .map(|(key, value)| {
            let element = Element {
                flags: if value.is_none() { TOMBSTONE } else { 0 },
                key,
                value: value.as_deref().unwrap_or_default(),
                time,
                expiry: 0,
            };
            (hash(key), element)
        })
        .collect();
    log.append(&elements)
}

pub fn put(log: &Log, key: &[u8], value: &[u8], time: u64) -> Ticket {
    append(log, &[(key.to_vec(), Some(value.to_vec()))], time).expect("room")
}

/// The version at a time: its value, or `None` if it is a deletion.
pub fn get(log: &Log, key: &[u8], at: u64) -> Option<Option<Vec<u8>>> {
    let found = log.get(hash(key), key, at).expect("no damage")?;
    let element = found.element();
    assert_eq!(element.key, key);
    assert!(element.time <= at);
    Some((!element.is_tombstone()).then(|| element.value.to_vec()))
}

/// Commits on a device that does not fail.
pub fn commit(log: &Log, ticket: Ticket, durability: Durability) {
    log.commit(ticket, durability).expect("a sound device");
}

/// Commits everything that was appended so far.
pub fn commit_all(log: &Log, durability: Durability) {
    commit(log, log.end(), durability);
}

pub fn read_pages(device: &FaultyDevice, first: u64, pages: u32) -> Vec<u8> {
    let mut bytes = vec![0; pages as usize * PAGE_SIZE];
    let tag = Tag::store(Purpose::Lookup);
    device.read(first, &mut bytes, tag).expect("a sound device");
    bytes
}
