// SPDX-License-Identifier: Apache-2.0
//! What items take in each tier, without a shard: for plans. Records go to pages by the same rules
//! as in a log ([`crate::flash::log`]), and to chunks of DRAM by the same classes.

use senko_io::{AlignedBuf, PAGE_SIZE};

use crate::arena::{Arena, MAX_CHUNK, item_sizes};
use crate::dram::item::{CHAIN_HEADER, Words};
use crate::flash::open_pages::{OpenPages, Sizes};
use crate::index::{Index, Shape};
use crate::key::{HashSeed, Key};
use crate::record::{Header, RECORD_ALIGN};

/// Pages of a write buffer of the smallest size. The two newest write buffers stay open.
const BUFFER_PAGES: u64 = (64 << 10) / PAGE_SIZE as u64;
/// Of an index for more items than this, a part is filled.
const MOST_FILLED: u64 = 1 << 20;

/// The pages of a log, without their bytes.
///
/// ```
/// let mut log = senko_cache::PageFill::default();
/// // Two records of 2,160 bytes do not fit into a page, but a small one fits behind each.
/// assert_eq!([log.place(20, 2080, 1), log.place(20, 2080, 2)], [0, 1]);
/// assert_eq!((log.place(20, 100, 3), log.head()), (0, 2));
/// ```
#[derive(Debug, Default)]
pub struct PageFill {
    open: OpenPages,
    head: u64,
}

impl PageFill {
    /// Pages given out so far.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Leaves pages empty, as at the end of a log's slice.
    pub fn skip(&mut self, pages: u64) {
        self.head += pages;
        self.close();
    }

    /// Places a record with flags of 0, and returns its first page. A page never holds two records
    /// with the same `tag`.
    pub fn place(&mut self, key_len: usize, value_len: u32, tag: u64) -> u64 {
        let header = head(key_len, value_len);
        let record = Sizes {
            len: header.flash_len(),
            prefix: header.flash_prefix(),
            tag,
        };
        if record.len <= PAGE_SIZE
            && let Some((position, _)) = self.open.take(record.len, tag)
        {
            return position;
        }
        // The pieces of a large record are whole pages.
        if header.pieces().is_some() {
            let position = self.head;
            self.head += record.len.div_ceil(PAGE_SIZE) as u64;
            self.close();
            return position;
        }
        let crosses = self.open.lose();
        let spot = self.open.spot(record, self.head, u64::MAX, crosses);
        let position = self.head - u64::from(spot.shares);
        self.head += spot.pages;
        self.open.fill(&spot, position, tag);
        self.close();
        position
    }

    /// Closes the pages of write buffers that are on their way to the device.
    fn close(&mut self) {
        let newest = self.head.saturating_sub(1) / BUFFER_PAGES;
        self.open
            .close_before(newest.saturating_sub(1) * BUFFER_PAGES);
    }
}

/// The head of an item without flags and expiry.
fn head(key_len: usize, value_len: u32) -> Header {
    Header::new(key_len as u8, value_len, 0, 0, 0)
}

/// Counts what items take.
///
/// ```
/// let mut items = senko_cache::Footprint::default();
/// for _ in 0..1000 {
///     items.add(20, 2080);
/// }
/// // Two records of 2,160 bytes do not fit into a page, so records cross from page to page.
/// assert!(items.flash_bytes() < 1000 * 2300);
/// assert!(items.dram_bytes() > 1000 * 2100);
/// ```
#[derive(Debug)]
pub struct Footprint {
    /// Sizes of chunks of DRAM, ascending.
    classes: Vec<usize>,
    pages: PageFill,
    dram: u64,
    items: u64,
}

impl Default for Footprint {
    fn default() -> Footprint {
        Footprint {
            classes: item_sizes(),
            pages: PageFill::default(),
            dram: 0,
            items: 0,
        }
    }
}

impl Footprint {
    /// Adds an item with flags of 0.
    pub fn add(&mut self, key_len: usize, value_len: u32) {
        self.items += 1;
        self.dram += self.chunk_bytes(key_len, value_len, true);
        // No two items are of one key.
        self.pages.place(key_len, value_len, self.items);
    }

    /// Bytes of the pages that the items take on flash, if all are there.
    pub fn flash_bytes(&self) -> u64 {
        self.pages.head() * PAGE_SIZE as u64
    }

    /// Bytes of the chunks that the items take in DRAM, if all are there and the server has flash.
    pub fn dram_bytes(&self) -> u64 {
        self.dram
    }

    /// Bytes that an item takes on flash beside others of its size, if it shares a page with them.
    pub fn record_bytes(key_len: usize, value_len: u32) -> u64 {
        head(key_len, value_len)
            .flash_len()
            .next_multiple_of(RECORD_ALIGN) as u64
    }

    /// Bytes of the index of a shard, in DRAM, after so many items have come. `flash` and `memory`
    /// are the shard's, in bytes. An index is filled, or for many items an equal part of one.
    pub fn index_bytes(flash: u64, memory: u64, items: u64) -> u64 {
        let mut shape = Shape::plan(flash / PAGE_SIZE as u64, memory as usize, false);
        let mut parts = 1;
        while items / parts > MOST_FILLED && shape.segment_bits > 0 {
            parts *= 2;
            shape.segment_bits -= 1;
        }
        let items = items / parts;
        // More than it takes: a page for each segment that a step of sizes can hold, and the rest.
        let most = shape.page_bytes * 256 + shape.segments() * 256 + items as usize * 64;
        let memory = AlignedBuf::new(Arena::segment_memory(most, shape.page_bytes));
        let Some(mut index) = Index::new(shape, memory, None) else {
            return 0;
        };
        for n in 1..=items {
            let hash = Key::new(&n.to_le_bytes(), HashSeed::default()).hash;
            while let Some(segment) = index.wants_growth(hash)
                && index.grow(segment)
            {}
            let slot = index.dram_slot(hash, n as u32);
            if index.insert(hash, slot).is_err() {
                break;
            }
        }
        index.bytes() as u64 * parts
    }

    /// Sizes of chunks of DRAM, ascending.
    pub fn chunk_sizes(&self) -> &[usize] {
        &self.classes
    }

    /// The chunks that an item takes in the DRAM of a server, with flash or without: how many, and
    /// the size of the last one by its place in [`Footprint::chunk_sizes`]. The others have the
    /// largest size.
    pub fn chunks(&self, key_len: usize, value_len: u32, flash: bool) -> (usize, usize) {
        let mut left = head(key_len, value_len).dram_len();
        let mut header = Words::of(left, flash).header();
        let mut count = 1;
        while left + header > MAX_CHUNK {
            left -= MAX_CHUNK - header;
            header = CHAIN_HEADER;
            count += 1;
        }
        let last = self.classes.partition_point(|class| *class < left + header);
        (count, last)
    }

    /// Bytes of the chunks that an item takes in DRAM.
    pub fn chunk_bytes(&self, key_len: usize, value_len: u32, flash: bool) -> u64 {
        let (count, last) = self.chunks(key_len, value_len, flash);
        ((count - 1) * MAX_CHUNK + self.classes[last]) as u64
    }
}
