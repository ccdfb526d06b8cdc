// SPDX-License-Identifier: Apache-2.0
//! The hash list in a block's head: what compaction and the making of maps read in place of the
//! elements.
//!
//! Entries have 19 bytes and the order of the elements. A page has 214 of them, and none straddles
//! two pages. A directory of 257 numbers in the head's first page says where each shard begins. The
//! top byte of `order` is the shard and is not written.

use super::frame::HEAD_PAYLOAD;
use crate::element::{END_OF_TIME, EXPIRY, LARGE, TOMBSTONE};
use crate::{KeyHash, SHARDS};

pub const ENTRY_BYTES: usize = 19;
pub const ENTRIES_PER_PAGE: usize = HEAD_PAYLOAD / ENTRY_BYTES;
pub const DIRECTORY_BYTES: usize = 4 * (SHARDS + 1);

const FLAGS: u8 = TOMBSTONE | EXPIRY | LARGE;

/// The known facts about an element that was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashEntry {
    pub key: KeyHash,
    /// Microseconds since 1970.
    pub time: u64,
    /// [`TOMBSTONE`], [`EXPIRY`], [`LARGE`].
    pub flags: u8,
}

impl HashEntry {
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        debug_assert!(self.time < END_OF_TIME);
        let mut to = [0; ENTRY_BYTES];
        to[..7].copy_from_slice(&self.key.order.to_le_bytes()[..7]);
        to[7] = self.flags;
        to[8..12].copy_from_slice(&self.key.check.to_le_bytes());
        to[12..].copy_from_slice(&self.time.to_le_bytes()[..7]);
        to
    }

    /// Reads an entry of a shard; `None` if its flags do not exist.
    pub fn decode(from: &[u8; ENTRY_BYTES], shard: u8) -> Option<HashEntry> {
        let mut order = [shard; 8];
        order[..7].copy_from_slice(&from[..7]);
        let mut time = [0; 8];
        time[..7].copy_from_slice(&from[12..]);
        let flags = from[7];
        (flags & !FLAGS == 0).then(|| HashEntry {
            key: KeyHash {
                order: u64::from_le_bytes(order),
                check: u32::from_le_bytes(from[8..12].try_into().expect("4 bytes")),
            },
            time: u64::from_le_bytes(time),
            flags,
        })
    }
}

/// Where each shard's entries begin; the last number is how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory([u32; SHARDS + 1]);

impl Directory {
    /// Builds the directory from the number of entries of each shard.
    pub fn from_counts(counts: &[u32; SHARDS]) -> Directory {
        let mut starts = [0; SHARDS + 1];
        for (shard, count) in counts.iter().enumerate() {
            starts[shard + 1] = starts[shard] + count;
        }
        Directory(starts)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        for start in self.0 {
            out.extend_from_slice(&start.to_le_bytes());
        }
    }

    /// Reads a directory of this many entries; `None` if its count differs or its numbers are not
    /// in order.
    pub fn decode(from: &[u8], elements: u64) -> Option<Directory> {
        let mut starts = [0; SHARDS + 1];
        if from.len() != DIRECTORY_BYTES {
            return None;
        }
        for (start, bytes) in starts.iter_mut().zip(from.chunks_exact(4)) {
            *start = u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        }
        let ordered = starts.is_sorted() && starts[0] == 0;
        (ordered && u64::from(starts[SHARDS]) == elements).then_some(Directory(starts))
    }

    /// Entries before a shard's first.
    pub fn start(&self, shard: usize) -> usize {
        self.0[shard] as usize
    }

    /// The shard of an entry; entries come in order, so the search begins at the previous entry's
    /// shard.
    pub fn shard_of(&self, entry: usize, from: usize) -> usize {
        let mut shard = from;
        while shard + 1 < SHARDS && self.start(shard + 1) <= entry {
            shard += 1;
        }
        shard
    }
}

const _: () = assert!(ENTRIES_PER_PAGE == 214 && DIRECTORY_BYTES == 1028);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let entry = HashEntry {
            key: KeyHash {
                order: 0xab01_0203_0405_0607,
                check: 0x1112_1314,
            },
            time: 0x21_2223_2425_2627,
            flags: TOMBSTONE,
        };
        let bytes = entry.encode();
        assert_eq!(bytes[..7], [7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[7], 1);
        assert_eq!(bytes[8..12], [0x14, 0x13, 0x12, 0x11]);
        assert_eq!(bytes[12..], [0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21]);
        assert_eq!(HashEntry::decode(&bytes, 0xab), Some(entry));
        let mut wrong = bytes;
        wrong[7] = 8;
        assert_eq!(HashEntry::decode(&wrong, 0xab), None);
    }

    #[test]
    fn directory() {
        let mut counts = [0; SHARDS];
        (counts[0], counts[3], counts[255]) = (2, 5, 1);
        let directory = Directory::from_counts(&counts);
        let mut bytes = Vec::new();
        directory.encode(&mut bytes);
        assert_eq!(Directory::decode(&bytes, 8), Some(directory.clone()));
        assert_eq!(Directory::decode(&bytes, 9), None);
        assert_eq!(
            (directory.start(3), directory.start(4), directory.start(256)),
            (2, 7, 8)
        );
        assert_eq!(directory.shard_of(0, 0), 0);
        assert_eq!(directory.shard_of(2, 0), 3);
        assert_eq!(directory.shard_of(7, 3), 255);
        bytes[8] = 9;
        assert_eq!(Directory::decode(&bytes, 8), None);
    }
}
