// SPDX-License-Identifier: Apache-2.0
//! Numbers in bytes, little-endian, for every format on a device.
//!
//! Each function panics if the bytes end before the number does: a reader checks the length once,
//! and not for each field.

/// The two bytes at a place.
///
/// ```
/// assert_eq!(senko_io::le::u16_at(&[9, 1, 2], 1), 0x0201);
/// ```
#[inline]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// The four bytes at a place.
///
/// ```
/// assert_eq!(senko_io::le::u32_at(&[9, 1, 2, 0, 0], 1), 0x0201);
/// ```
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The eight bytes at a place.
///
/// ```
/// assert_eq!(senko_io::le::u64_at(&[1, 0, 0, 0, 0, 0, 0, 2], 0), 2 << 56 | 1);
/// ```
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Puts bytes at a place; for a number, those of its `to_le_bytes`.
///
/// ```
/// let mut page = [0; 6];
/// senko_io::le::put(&mut page, 1, &7_u32.to_le_bytes());
/// assert_eq!(page, [0, 7, 0, 0, 0, 0]);
/// ```
#[inline]
pub fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    into[at..at + bytes.len()].copy_from_slice(bytes);
}
