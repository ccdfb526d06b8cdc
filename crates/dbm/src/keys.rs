// SPDX-License-Identifier: Apache-2.0
//! Integers as keys: 8 bytes that sort like the numbers. Also the end of a prefix.

/// The key of an unsigned number: big-endian.
///
/// ```
/// use senko_dbm::keys;
/// assert!(keys::from_u64(255) < keys::from_u64(256));
/// ```
pub fn from_u64(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The number of a key of [`from_u64`]; `None` if the key has not 8 bytes.
pub fn to_u64(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}

/// The key of a signed number: big-endian, with the sign bit flipped, so that negative numbers come
/// first.
///
/// ```
/// use senko_dbm::keys;
/// assert!(keys::from_i64(-1) < keys::from_i64(0));
/// assert!(keys::from_i64(i64::MIN) < keys::from_i64(-1));
/// ```
pub fn from_i64(number: i64) -> [u8; 8] {
    (number ^ i64::MIN).to_be_bytes()
}

/// The number of a key of [`from_i64`]; `None` if the key has not 8 bytes.
pub fn to_i64(key: &[u8]) -> Option<i64> {
    Some(i64::from_be_bytes(key.try_into().ok()?) ^ i64::MIN)
}

/// The first key after all keys that begin with `prefix`; `None` if there is none.
///
/// ```
/// use senko_dbm::keys;
/// assert_eq!(keys::after_prefix(b"ab").as_deref(), Some(&b"ac"[..]));
/// assert_eq!(keys::after_prefix(b"\xff"), None);
/// ```
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}
