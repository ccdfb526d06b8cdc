// SPDX-License-Identifier: Apache-2.0
//! The counts of bytes that were put, written and given back. The space counts, each superblock
//! keeps the counts, and `Database::stats` tells them.

/// Bytes since the database was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wear {
    /// Of keys and values that were put.
    pub put: u64,
    pub written: u64,
    /// Given back to the file system, or discarded.
    pub discarded: u64,
}
