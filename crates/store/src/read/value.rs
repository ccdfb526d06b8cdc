// SPDX-License-Identifier: Apache-2.0
//! The results of a read of the store: values and their metadata. Made in `store.rs`; the results
//! own their bytes.

use std::ops::Deref;

/// A value that was read. It dereferences to its bytes.
///
/// ```
/// # let store = senko_store::example::store();
/// store.put(b"colour", b"green")?;
/// let value = store.get(b"colour")?.unwrap();
/// assert!(value.starts_with(b"gr"));
/// # Ok::<(), senko_store::StoreError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Value(pub(crate) Vec<u8>);

impl Value {
    /// Its bytes, without a copy.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Vec<u8> {
        value.0
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Value({} bytes)", self.0.len())
    }
}

/// A key with its value and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Value,
    /// When the value was written: microseconds since 1970.
    pub time: u64,
    /// When the value expires: seconds since 1970; 0 for never.
    pub expires_at: u64,
}

/// One version of a key.
///
/// ```
/// # let store = senko_store::example::store();
/// store.put(b"colour", b"green")?;
/// store.delete(b"colour")?;
/// let newest = &store.history(b"colour")?[0];
/// assert_eq!(newest.value, None, "deleted");
/// # Ok::<(), senko_store::StoreError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyVersion {
    /// When the version was written: microseconds since 1970.
    pub time: u64,
    /// The value. `None` if this version is a deletion, or if it has expired and its space was
    /// reclaimed; `expires_at` tells which.
    pub value: Option<Value>,
    /// When the value expires: seconds since 1970; 0 for never.
    pub expires_at: u64,
}
