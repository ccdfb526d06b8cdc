// SPDX-License-Identifier: Apache-2.0
//! Slots of a fixed size, a whole number of them a page: what [`crate::isam`] appends and
//! [`crate::linear`] puts where the hash says.
//!
//! ```text
//!   0 magic u32 | 4 value bytes u32 | 8 element's number u64 | 16 key | 24 value
//! ```
//!
//! The header of 16 bytes, the key of 8 and the value of 1000 are paper A's table 6. A slot of
//! zeros is empty.

use anyhow::{Result, ensure};
use senko_io::PAGE_SIZE;
use senko_workload::fill_value;

use crate::Wanted;

/// Bytes of a slot.
pub const SLOT: usize = 1024;
/// Bytes of a slot's value.
pub const VALUE: usize = SLOT - START;
/// Slots in a page of the device.
pub const PER_PAGE: u64 = (PAGE_SIZE / SLOT) as u64;

const MAGIC: u32 = 0x544c_5331;
const START: usize = 24;

/// Fills a slot.
///
/// # Panics
/// If the slot is not [`SLOT`] bytes long.
pub fn fill(slot: &mut [u8], wanted: &Wanted) {
    assert_eq!(slot.len(), SLOT, "a slot has its size");
    slot[..4].copy_from_slice(&MAGIC.to_le_bytes());
    slot[4..8].copy_from_slice(&(VALUE as u32).to_le_bytes());
    slot[8..16].copy_from_slice(&wanted.number.to_le_bytes());
    slot[16..START].copy_from_slice(&wanted.key);
    fill_value(&mut slot[START..], wanted.number, 0);
}

/// The key in a slot; `None` where the slot is empty.
pub fn key(slot: &[u8]) -> Result<Option<[u8; 8]>> {
    let magic = u32::from_le_bytes(slot[..4].try_into().expect("four bytes"));
    if magic == 0 {
        return Ok(None);
    }
    ensure!(
        magic == MAGIC,
        "there is something else where a slot should be"
    );
    Ok(Some(slot[16..START].try_into().expect("eight bytes")))
}

pub fn value(slot: &[u8]) -> &[u8] {
    &slot[START..]
}
