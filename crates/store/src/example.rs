// SPDX-License-Identifier: Apache-2.0
//! The common beginning of the examples in the documentation: a store on a device in memory. It is
//! not part of the public API.

use std::sync::Arc;

use senko_io::Device;
use senko_io::faulty::FaultyDevice;

use crate::{Options, Store};

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
