// SPDX-License-Identifier: Apache-2.0
//! The one format of an item, in DRAM and on flash: header, then the complete answer of a `get`.

/// Bytes of a record's header, before the answer.
pub const RECORD_HEADER: usize = 32;

/// What is known of an item besides key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Unique of the last change.
    pub cas: u64,
    /// The client's flags.
    pub flags: u32,
    /// Expiry in Unix seconds; 0: never.
    pub expiry: u32,
    /// Bytes of the value.
    pub value_len: u32,
    /// Bytes of the key.
    pub key_len: u8,
    /// The item was read since it was stored.
    pub fetched: bool,
    /// Marked stale by a meta delete with invalidation.
    pub stale: bool,
    /// A recache token was handed out (meta W/Z flags).
    pub won: bool,
    /// The key was stored base64-encoded (meta `b` flag).
    pub binary_key: bool,
    /// Unix seconds of the last access; of a flash item coarse (64 s).
    pub last_access: u32,
}
