// SPDX-License-Identifier: Apache-2.0
//! For the fuzz target `store_open`. It opens a file whose superblock, manifest, saved maps and
//! pages are arbitrary bytes. It reads and verifies the store, opens it again for writing, and
//! repairs from it.
//!
//! An input is composed with the right checksums, so that it reaches the code after the checks:
//!
//! ```text
//! 76 bytes of the superblock, from its byte 16 on | u16 length, manifest | u16 length, saved maps | pieces: u16 page, u16 length, bytes
//! ```
//! The pages are written first. The maps and the manifest are written after them, to the places
//! that manifest and superblock name.

use std::sync::Arc;

use senko_io::faulty::FaultyDevice;
use senko_io::{Device, PAGE_SIZE, Purpose, Tag};

use crate::disk::superblock::{FORMAT_VERSION, MAGIC};
use crate::{Clock, Options, Store, StoreError};

/// Pages of the file.
pub(crate) const PAGES: u64 = 2048;
/// Bytes of an input's superblock, and their place in its page.
pub(crate) const SLOT: std::ops::Range<usize> = 16..92;
/// The offset in a manifest of the saved maps' place, length and checksum.
pub(crate) const INDEX_AT: usize = 24;

const TAG: Tag = Tag::store(Purpose::Meta);

/// The next bytes of the input, as many as a number before them says; fewer if the input ends.
fn take<'d>(data: &mut &'d [u8], bytes: usize) -> &'d [u8] {
    let (head, rest) = data.split_at(bytes.min(data.len()));
    *data = rest;
    head
}

fn number(data: &mut &[u8]) -> usize {
    let bytes = take(data, 2);
    bytes
        .iter()
        .rev()
        .fold(0, |sum, &byte| sum << 8 | usize::from(byte))
}

/// Writes bytes from a page on, up to the end of the device.
fn write(device: &FaultyDevice, page: u64, bytes: &[u8]) {
    for (page, piece) in (page..PAGES).zip(bytes.chunks(PAGE_SIZE)) {
        let mut whole = [0; PAGE_SIZE];
        whole[..piece.len()].copy_from_slice(piece);
        device.write(page, &whole, TAG).expect("a sound device");
    }
}

/// The file that an input describes.
fn compose(mut data: &[u8]) -> Arc<FaultyDevice> {
    let device = FaultyDevice::new(PAGES, 1);
    let mut page = [0; PAGE_SIZE];
    page[..8].copy_from_slice(MAGIC);
    page[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let slot = take(&mut data, SLOT.len());
    page[SLOT.start..SLOT.start + slot.len()].copy_from_slice(slot);
    let length = number(&mut data);
    let mut manifest = take(&mut data, length).to_vec();
    let length = number(&mut data);
    let maps = take(&mut data, length);
    while !data.is_empty() {
        let place = number(&mut data);
        let length = number(&mut data);
        write(&device, place as u64, take(&mut data, length));
    }
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    if manifest.len() >= INDEX_AT + 24 {
        write(&device, word(&manifest, INDEX_AT), maps);
        manifest[INDEX_AT + 8..INDEX_AT + 16].copy_from_slice(&(maps.len() as u64).to_le_bytes());
        manifest[INDEX_AT + 20..INDEX_AT + 24].copy_from_slice(&crc32c::crc32c(maps).to_le_bytes());
    }
    write(&device, word(&page, 72), &manifest);
    page[84..88].copy_from_slice(&(manifest.len() as u32).to_le_bytes());
    page[88..92].copy_from_slice(&crc32c::crc32c(&manifest).to_le_bytes());
    let crc = crc32c::crc32c(&page);
    page[12..16].copy_from_slice(&crc.to_le_bytes());
    for copy in [0, 4, 8, 12] {
        write(&device, copy, &page);
    }
    device.flush(TAG).expect("a sound device");
    device
}

/// Calls every reader of an open store; errors of damage are expected.
fn ask(store: &Store) {
    for entry in store.scan().into_iter().flatten().take(1000) {
        let Ok(entry) = entry else { break };
        let _ = store.get(&entry.key);
        let _ = store.history(&entry.key);
    }
    let _ = store.get(b"absent");
    let _ = store.multi_get(&[b"absent", b"key 1"]);
    store.stats();
}

/// Runs one input; true if it was a store.
///
/// # Panics
/// If an opened store loses a value that was put, or returns another one.
pub fn store(data: &[u8]) -> bool {
    let device = compose(data);
    let options = Options {
        background: false,
        clock: Clock::Own(Arc::new(|| 1 << 50)),
        ..Options::default()
    };
    let reading = Options {
        read_only: true,
        ..options.clone()
    };
    let shared = || Arc::clone(&device) as Arc<dyn Device>;
    let read = Store::open_device(shared(), reading).map(|store| ask(&store));
    let _ = crate::verify_device(shared(), |_, _| ());
    let Ok(store) = Store::open_device(shared(), options.clone()) else {
        return read.is_ok();
    };
    // The store may have no room for it, or its log may be full.
    if let Ok(time) = store.put(b"one more", b"value") {
        let found = match store.get(b"one more") {
            Err(StoreError::Damaged { .. }) => return true,
            found => found.expect("a sound device"),
        };
        assert_eq!(found.as_deref(), Some(&b"value"[..]), "put at {time}");
    }
    let _ = store.seal();
    ask(&store);
    let _ = store.close();
    if let Ok(store) = Store::open_device(shared(), options) {
        ask(&store);
    }
    true
}
