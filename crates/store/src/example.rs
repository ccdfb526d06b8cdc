// SPDX-License-Identifier: Apache-2.0
//! Common beginnings of the examples in the documentation: devices in memory, and a store, a log
//! and a block on them with a few elements. It is not part of the public API.

use std::sync::Arc;

use senko_io::faulty::FaultyDevice;
use senko_io::{Device, Purpose, Tag};

use crate::block::{Block, BlockWriter};
use crate::element::Element;
use crate::log::Log;
use crate::{Durability, Extent, Hasher, KeyHash, Options, Store};

/// An empty device of 64 MiB.
pub fn device() -> Arc<dyn Device> {
    FaultyDevice::new(16_384, 1)
}

/// Options for small blocks and no background threads.
pub fn options() -> Options {
    Options {
        block_bytes: 1 << 20,
        keep_versions: 3,
        background: false,
        ..Options::default()
    }
}

/// An empty store that keeps three versions of a key.
///
/// # Panics
/// Never: the device does not fail.
pub fn store() -> Store {
    Store::open_device(device(), options()).expect("a device in memory does not fail")
}

/// The hasher that [`log`] and [`block`] are made with.
pub fn hasher() -> Hasher {
    Hasher::new([7; 16])
}

/// An element with this time.
pub fn element<'a>(key: &'a [u8], value: &'a [u8], time: u64) -> Element<'a> {
    Element {
        flags: 0,
        key,
        value,
        time,
        expiry: 0,
    }
}

/// Where [`log`] and [`block`] lie.
pub fn extent() -> Extent {
    Extent {
        first: 16,
        pages: 256,
    }
}

/// Log number 1. Its only element is the key "colour" with the value "green" and time 5.
///
/// # Panics
/// Never: the device does not fail.
pub fn log(device: &Arc<dyn Device>) -> Log {
    let log = Log::create(Arc::clone(device), 1, extent(), hasher());
    let log = log.expect("the extent lies on the device");
    let element = element(b"colour", b"green", 5);
    let ticket = log.append(&[(hasher().hash(element.key), element)]);
    let ticket = ticket.expect("an empty log has room");
    log.commit(ticket, Durability::Buffered)
        .expect("a device in memory does not fail");
    log
}

/// Block number 2. It has two elements: "colour" is "green" since time 5, "shape" is "round" since
/// time 6.
///
/// # Panics
/// Never: the device does not fail.
pub fn block(device: &Arc<dyn Device>) -> Block {
    let tag = Tag::store(Purpose::Admit);
    let mut writer = BlockWriter::new(&**device, extent(), 2, 4096, tag, 1 << 20);
    let elements = [
        element(b"colour", b"green", 5),
        element(b"shape", b"round", 6),
    ];
    let mut sorted: Vec<(KeyHash, Element<'_>)> = elements
        .into_iter()
        .map(|element| (hasher().hash(element.key), element))
        .collect();
    sorted.sort_by_key(|(hash, _)| *hash);
    for (hash, element) in &sorted {
        let taken = writer.push(*hash, element);
        assert!(taken.expect("a device in memory does not fail"));
    }
    let (_, block) = writer.finish().expect("a device in memory does not fail");
    block
}
