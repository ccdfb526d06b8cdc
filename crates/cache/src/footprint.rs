// SPDX-License-Identifier: Apache-2.0
//! What items take in each tier, without a shard: for plans. Records go to pages by the same rules
//! as in a log ([`crate::flash::log`]), and to chunks of DRAM by the same classes.

use senko_io::PAGE_SIZE;

use crate::arena::{MAX_CHUNK, item_sizes};
use crate::dram::item::{CHAIN_HEADER, ITEM_HEADER};
use crate::flash::open_pages::{OpenPages, SMALLEST_RECORD};
use crate::record::{RECORD_ALIGN, prefix_len, record_len};

/// Pages that stay open for small records: the two newest write buffers, of the smallest size.
const OPEN_PAGES: u64 = 2 * (64 << 10) / PAGE_SIZE as u64;

/// Counts what items take.
///
/// ```
/// let mut items = senko_cache::Footprint::default();
/// for _ in 0..1000 {
///     items.add(20, 2080);
/// }
/// // Two records of 2,160 bytes do not fit into a page.
/// assert_eq!(items.flash_bytes(), 1000 * 4096);
/// assert!(items.dram_bytes() > 1000 * 2100);
/// ```
#[derive(Debug)]
pub struct Footprint {
    /// Sizes of chunks of DRAM, ascending.
    classes: Vec<usize>,
    open: OpenPages,
    pages: u64,
    dram: u64,
    items: u64,
}

impl Default for Footprint {
    fn default() -> Footprint {
        Footprint {
            classes: item_sizes(),
            open: OpenPages::default(),
            pages: 0,
            dram: 0,
            items: 0,
        }
    }
}

impl Footprint {
    /// Adds an item with flags of 0.
    pub fn add(&mut self, key_len: usize, value_len: u32) {
        let len = record_len(key_len, 0, value_len);
        self.items += 1;
        self.dram += self.chunks(len);
        self.place(len, prefix_len(key_len, 0, value_len));
    }

    /// Bytes of the pages that the items take on flash, if all are there.
    pub fn flash_bytes(&self) -> u64 {
        self.pages * PAGE_SIZE as u64
    }

    /// Bytes of the chunks that the items take in DRAM, if all are there.
    pub fn dram_bytes(&self) -> u64 {
        self.dram
    }

    /// Bytes that an item takes on flash beside others of its size, if it shares a page with them.
    pub fn record_bytes(key_len: usize, value_len: u32) -> u64 {
        record_len(key_len, 0, value_len).next_multiple_of(RECORD_ALIGN) as u64
    }

    fn place(&mut self, len: usize, prefix: usize) {
        let tag = self.items; // no two are of one key
        if len <= PAGE_SIZE {
            if self.open.take(len, tag).is_none() {
                self.open.open(self.pages);
                self.pages += 1;
                let taken = self.open.take(len, tag);
                debug_assert!(taken.is_some(), "an empty page has room");
            }
        } else {
            let pages = len.div_ceil(PAGE_SIZE);
            let left = (pages * PAGE_SIZE - len).min(PAGE_SIZE - prefix);
            let offset = left - left % RECORD_ALIGN;
            if offset >= SMALLEST_RECORD {
                self.open.open_front(self.pages, offset, tag);
            }
            self.pages += pages as u64;
        }
        self.open
            .close_before(self.pages.saturating_sub(OPEN_PAGES));
    }

    fn chunks(&self, record: usize) -> u64 {
        let class = |bytes: usize| {
            let at = self.classes.partition_point(|class| *class < bytes);
            self.classes[at.min(self.classes.len() - 1)] as u64
        };
        let (mut left, mut header, mut sum) = (record, ITEM_HEADER, 0);
        while left > 0 {
            sum += class((left + header).min(MAX_CHUNK));
            left = left.saturating_sub(MAX_CHUNK - header);
            header = CHAIN_HEADER;
        }
        sum
    }
}
