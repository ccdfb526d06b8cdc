// SPDX-License-Identifier: Apache-2.0
//! The manifest's record of a sorted block: 96 bytes, enough to open it, to judge it and to skip
//! it.
//!
//! The block's head has the same bytes. So a head says where its block lies, and a reader notices
//! if a record belongs to another block. The manifest's own checksum covers a record.

use senko_io::PAGE_SIZE;
use senko_io::le::{u32_at, u64_at};

use crate::Extent;

/// Smallest page of a sorted block.
pub const MIN_PAGE_BYTES: usize = PAGE_SIZE;
/// Largest page of a sorted block.
pub const MAX_PAGE_BYTES: usize = 32_768;

/// Where a sorted block lies and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRecord {
    /// Unique in the store, never used again.
    pub id: u64,
    /// Where it lies; a whole number of units.
    pub extent: Extent,
    /// Data pages, of `page_bytes` each, from the extent's start.
    pub data_pages: u32,
    /// Pages of the device after the data pages.
    pub head_pages: u32,
    /// Bytes of a data page.
    pub page_bytes: u32,
    /// Elements, tombstones and old versions included.
    pub elements: u64,
    /// The oldest element's time.
    pub min_time: u64,
    /// The newest element's time.
    pub max_time: u64,
    /// Bytes of keys and values that the elements stand for; of a large value, its own.
    pub key_value_bytes: u64,
    /// The first element's `order`.
    pub first_order: u64,
    /// The last element's `order`.
    pub last_order: u64,
    /// Elements that are tombstones.
    pub tombstones: u32,
    /// Elements that expire.
    pub expiring: u32,
    /// Elements whose value lies in its own extent.
    pub large: u32,
    /// Head pages before the hash list; opening the block reads these.
    pub meta_pages: u32,
}

impl BlockRecord {
    /// Bytes of a record.
    pub const BYTES: usize = 96;

    /// Pages of the device in a data page.
    pub fn device_pages(&self) -> u32 {
        self.page_bytes / PAGE_SIZE as u32
    }

    /// The first page of the head on the device.
    pub fn head(&self) -> u64 {
        self.extent.first + u64::from(self.data_pages) * u64::from(self.device_pages())
    }

    /// The byte of the file at which a data page begins.
    pub fn page_offset(&self, page: u32) -> u64 {
        self.extent.first * PAGE_SIZE as u64 + u64::from(page) * u64::from(self.page_bytes)
    }

    /// The byte of the file at which a page of the head begins.
    pub fn head_offset(&self, page: u32) -> u64 {
        (self.head() + u64::from(page)) * PAGE_SIZE as u64
    }

    pub fn encode(&self) -> [u8; BlockRecord::BYTES] {
        let mut to = [0; BlockRecord::BYTES];
        let words = [
            (0, self.id),
            (8, self.extent.first),
            (32, self.elements),
            (40, self.min_time),
            (48, self.max_time),
            (56, self.key_value_bytes),
            (64, self.first_order),
            (72, self.last_order),
        ];
        for (at, word) in words {
            to[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let halves = [
            (16, self.extent.pages),
            (20, self.data_pages),
            (24, self.head_pages),
            (28, self.page_bytes),
            (80, self.tombstones),
            (84, self.expiring),
            (88, self.large),
            (92, self.meta_pages),
        ];
        for (at, half) in halves {
            to[at..at + 4].copy_from_slice(&half.to_le_bytes());
        }
        to
    }

    /// Reads a record, or says which of its values is impossible.
    pub fn decode(from: &[u8; BlockRecord::BYTES]) -> Result<BlockRecord, &'static str> {
        let word = |at: usize| u64_at(from, at);
        let half = |at: usize| u32_at(from, at);
        let record = BlockRecord {
            id: word(0),
            extent: Extent::new(word(8), half(16)),
            data_pages: half(20),
            head_pages: half(24),
            page_bytes: half(28),
            elements: word(32),
            min_time: word(40),
            max_time: word(48),
            key_value_bytes: word(56),
            first_order: word(64),
            last_order: word(72),
            tombstones: half(80),
            expiring: half(84),
            large: half(88),
            meta_pages: half(92),
        };
        record.check()?;
        Ok(record)
    }

    /// Checks that must pass before any field is used in arithmetic.
    fn check(&self) -> Result<(), &'static str> {
        let page_bytes = self.page_bytes as usize;
        if !page_bytes.is_power_of_two() || !(MIN_PAGE_BYTES..=MAX_PAGE_BYTES).contains(&page_bytes)
        {
            return Err("a block has pages of a size that there is not");
        }
        let pages = u64::from(self.data_pages) * u64::from(self.device_pages())
            + u64::from(self.head_pages);
        if pages > u64::from(self.extent.pages)
            || !self.extent.lies_within(u64::MAX / PAGE_SIZE as u64)
        {
            return Err("a block reaches beyond its extent");
        }
        let hash_pages = self
            .elements
            .div_ceil(super::hash_list::ENTRIES_PER_PAGE as u64);
        if self.meta_pages == 0
            || u64::from(self.meta_pages) + hash_pages != u64::from(self.head_pages)
        {
            return Err("a block's head has another size than its parts");
        }
        let most = self.elements.min(u64::from(u32::MAX));
        let counts = [self.tombstones, self.expiring, self.large];
        if self.elements > most || counts.iter().any(|count| u64::from(*count) > most) {
            return Err("a block's counts contradict each other");
        }
        if self.first_order > self.last_order || self.min_time > self.max_time {
            return Err("a block ends before it begins");
        }
        if (self.elements == 0) != (self.data_pages == 0) {
            return Err("a block has pages without elements, or elements without pages");
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The offsets that `docs/formats/store.md` names.
    #[test]
    fn layout() {
        let record = BlockRecord {
            id: 1,
            extent: Extent::new(2, 320),
            data_pages: 4,
            head_pages: 5,
            page_bytes: 8192,
            elements: 7,
            min_time: 8,
            max_time: 9,
            key_value_bytes: 10,
            first_order: 11,
            last_order: 12,
            tombstones: 1,
            expiring: 2,
            large: 3,
            meta_pages: 4,
        };
        let bytes = record.encode();
        assert_eq!(BlockRecord::BYTES, 96);
        let halves: Vec<u32> = bytes
            .chunks(4)
            .map(|chunk| u32::from_le_bytes(chunk.try_into().unwrap()))
            .collect();
        assert_eq!(
            halves,
            [
                1, 0, 2, 0, 320, 4, 5, 8192, 7, 0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 1, 2, 3, 4
            ]
        );
        assert_eq!(BlockRecord::decode(&bytes), Ok(record));
        assert_eq!(record.head(), 2 + 8);
        assert_eq!(record.page_offset(3), 8192 + 3 * 8192);
        // No changed byte may lead to arithmetic that overflows.
        for at in 0..bytes.len() {
            for to in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = bytes;
                changed[at] = to;
                if let Ok(record) = BlockRecord::decode(&changed) {
                    assert!(record.head_offset(record.head_pages) <= record.extent.end() * 4096);
                    assert_eq!(record.encode(), changed);
                }
            }
        }
    }
}
