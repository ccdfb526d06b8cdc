// SPDX-License-Identifier: Apache-2.0
//! What lies where on the device, and in the memory beside it (docs/formats/dbm.md).

pub(crate) mod entry; // pages of the log and of trees, with their heads
pub(crate) mod images; // segments of pages, separate from the log
pub(crate) mod log;
pub(crate) mod maps; // what the newest checkpoint names
pub(crate) mod mark; // how far the log reached
pub(crate) mod space; // segments, the length of the device
pub(crate) mod superblock;
pub(crate) mod tail; // commits that are not in the log yet
pub(crate) mod wear; // bytes put, written and given back
