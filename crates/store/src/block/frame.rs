// SPDX-License-Identifier: Apache-2.0
//! The frame of a head page: its header and checksum around the payload.

use senko_io::PAGE_SIZE;
use senko_io::le::u32_at;

/// Bytes before a head page's payload.
pub const HEAD_HEADER: usize = 16;
/// Bytes of payload in a head page.
pub const HEAD_PAYLOAD: usize = PAGE_SIZE - HEAD_HEADER;

/// Tells a page of a head from one of data.
const KIND: u32 = u32::from_le_bytes(*b"HEAD");

fn seed(id: u64) -> u32 {
    crc32c::crc32c(&id.to_le_bytes())
}

/// Completes a head page whose payload is in place.
pub(crate) fn seal(page: &mut [u8], id: u64, number: u32) {
    page[4..8].copy_from_slice(&(id as u32).to_le_bytes());
    page[8..12].copy_from_slice(&number.to_le_bytes());
    page[12..16].copy_from_slice(&KIND.to_le_bytes());
    let crc = crc32c::crc32c_append(seed(id), &page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Checks one head page and returns its payload.
pub(crate) fn check(page: &[u8], id: u64, number: u32) -> Result<&[u8], &'static str> {
    let half = |at: usize| u32_at(page, at);
    if half(0) != crc32c::crc32c_append(seed(id), &page[4..]) {
        return Err("the checksum of a head page is wrong");
    }
    if half(4) != id as u32 || half(8) != number || half(12) != KIND {
        return Err("a head page belongs to another place");
    }
    Ok(&page[HEAD_HEADER..])
}
