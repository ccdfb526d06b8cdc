// SPDX-License-Identifier: Apache-2.0
//! What a database costs its device. The space counts, each superblock keeps the counts, and
//! `Database::stats` tells them.

/// What a database cost its device since it was made, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wear {
    /// Of keys and values that were put.
    pub put: u64,
    pub written: u64,
    /// Given back to the file system, or discarded.
    pub discarded: u64,
}
