// SPDX-License-Identifier: Apache-2.0
//! The durability that a write waits for.

/// What a write waits for.
///
/// ```
/// # let store = senko_store::example::store();
/// use senko_store::{Durability, WriteOptions};
/// let durability = Durability::Synced;
/// store.put_with(b"colour", b"green", WriteOptions { durability, ..WriteOptions::default() })?;
/// # Ok::<(), senko_store::StoreError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: the write is in memory, and reaches the device when a full chunk has gathered. A
    /// killed process may lose it.
    None,
    /// The write was handed to the device: a killed process loses nothing, a power cut may.
    #[default]
    Buffered,
    /// The write is durable on the device. Writers that wait at the same time share a flush.
    Synced,
}
