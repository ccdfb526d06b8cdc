// SPDX-License-Identifier: Apache-2.0
//! One entry of the log: a page of 4 KiB whose first 40 bytes are a head, followed by the page
//! update (paper D, 2.2).
//!
//! Layout: docs/formats/dbm.md. Every entry names the checksum of the one before it. So an entry is
//! valid only after the same entries that preceded it when it was written. Entries of an earlier
//! life after the end are never accepted.

use senko_io::PAGE_SIZE;
use senko_io::le::{u16_at, u32_at, u64_at};

/// Bytes before an entry's body.
pub(crate) const HEAD: usize = 40;
/// Bytes of an entry's body.
pub(crate) const BODY: usize = PAGE_SIZE - HEAD;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A part of the changes of commits.
    Changes = 1,
    /// A part of a long value.
    Blob = 2,
    /// A page of a tree.
    Node = 3,
    /// A part of the translation table.
    Map = 4,
    /// A part of a checkpoint.
    Checkpoint = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [
            Kind::Changes,
            Kind::Blob,
            Kind::Node,
            Kind::Map,
            Kind::Checkpoint,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// The 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// CRC-32C of the entry with these four bytes zero.
    pub crc: u32,
    /// Checksum of the entry before.
    pub previous: u32,
    /// The number of the entry; the next one has the next number.
    pub sequence: u64,
    /// The newest commit in the group, or the commit that a page is as of.
    pub commit: u64,
    /// A random number of the opening.
    pub life: u32,
    /// Entries of the group after this one.
    pub left: u32,
    /// The segment in which the log continues after this one's.
    pub next_segment: u32,
    /// Bytes of the body in use.
    pub used: u16,
    pub kind: Kind,
    /// The first entry of its group.
    pub first: bool,
}

/// Bits of a place that are the page's number; the others are a part of its entry's checksum.
const PAGE_BITS: u32 = 40;
/// The most pages of a device.
pub(crate) const MOST_PAGES: u64 = 1 << PAGE_BITS;

/// Where an entry lies, and which one: its page, and the lower 24 bits of its checksum. 0: nowhere.
/// A page where an older entry lies, because a write was lost or went elsewhere, is found out.
pub(crate) fn place_of(page: u64, crc: u32) -> u64 {
    page | u64::from(crc) << PAGE_BITS
}

pub(crate) fn page_of(place: u64) -> u64 {
    place % MOST_PAGES
}

/// The commit that a page of a tree is as of, from its entry.
pub(crate) fn commit_of(page: &[u8]) -> u64 {
    u64_at(page, 16)
}

/// The checksum of an entry.
pub(crate) fn checksum(page: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&[0; 4]), &page[4..])
}

impl Head {
    /// Writes the head before a body that is in place, and returns the checksum.
    pub fn seal(&self, page: &mut [u8]) -> u32 {
        page[4..8].copy_from_slice(&self.previous.to_le_bytes());
        page[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        page[16..24].copy_from_slice(&self.commit.to_le_bytes());
        page[24..28].copy_from_slice(&self.life.to_le_bytes());
        page[28..32].copy_from_slice(&self.left.to_le_bytes());
        page[32..36].copy_from_slice(&self.next_segment.to_le_bytes());
        page[36..38].copy_from_slice(&self.used.to_le_bytes());
        page[38] = self.kind as u8;
        page[39] = u8::from(self.first);
        let crc = checksum(page);
        page[..4].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Whether this is the entry that a place names, if its page is right.
    pub fn is_at(&self, place: u64) -> bool {
        place == place_of(page_of(place), self.crc)
    }

    /// The head of an intact page; `None` for anything else.
    pub fn read(page: &[u8]) -> Option<Head> {
        let crc = u32_at(page, 0);
        let kind = Kind::of(page[38])?;
        let used = u16_at(page, 36);
        if checksum(page) != crc || page[39] > 1 || usize::from(used) > BODY {
            return None;
        }
        Some(Head {
            crc,
            previous: u32_at(page, 4),
            sequence: u64_at(page, 8),
            commit: u64_at(page, 16),
            life: u32_at(page, 24),
            left: u32_at(page, 28),
            next_segment: u32_at(page, 32),
            used,
            kind,
            first: page[39] == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte table of docs/formats/dbm.md.
    #[test]
    fn the_head_lies_as_documented() {
        let mut page = vec![0xab; PAGE_SIZE];
        let head = Head {
            crc: 0,
            previous: 0x0403_0201,
            sequence: 0x0c0b_0a09_0807_0605,
            commit: 0x1413_1211_100f_0e0d,
            life: 0x1817_1615,
            left: 0x1c1b_1a19,
            next_segment: 0x201f_1e1d,
            used: 0x0221,
            kind: Kind::Node,
            first: true,
        };
        let crc = head.seal(&mut page);
        assert_eq!(page[4..37], (1..=33).collect::<Vec<u8>>()[..]);
        assert_eq!(page[37..40], [2, 3, 1]);
        assert_eq!(page[..4], crc.to_le_bytes());
        assert_eq!(Head::read(&page), Some(Head { crc, ..head }));
        for byte in [0, 4, 39, 40, 4095] {
            page[byte] ^= 1;
            assert_eq!(Head::read(&page), None, "byte {byte} flipped");
            page[byte] ^= 1;
        }
    }
}
