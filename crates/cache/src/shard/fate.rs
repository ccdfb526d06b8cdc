// SPDX-License-Identifier: Apache-2.0
//! The fate of a record in a region that is being reclaimed. `reclaim.rs` decides it, `keep.rs`
//! acts on it.

use crate::index::Slot;

/// The fate of a record in the oldest region.
pub(super) enum Fate {
    Forget,
    /// It is live: its slot, and its key's hash.
    Reinsert(Slot, u64),
}
