// SPDX-License-Identifier: Apache-2.0
//! Paper A's structures that no product uses, built as in the thesis, for comparison with the
//! store's own.
//!
//! Paper A is the thesis of `docs/references.md`. Its Bloom Filter Map is one of the store's maps,
//! so it lives in the store (`index/bloom_map.rs`). The rest of the paper is here: the block
//! layouts of chapters 7 and 9, and the indexes that the map is compared with.
//!
//! ```text
//!   key -> Keys::hash -> BlockIndex: candidate blocks, newest first
//!       -> Layout::look: candidate pages of a block -> page::search
//! ```
//!
//! All layouts hold the same elements: element `i` is in block `i / per_block` in every layout. So
//! the candidate blocks of a key are the same for all, and only the search inside a block differs.
//!
//! Always holds:
//! - Each page of a search is read from the device through a [`Reader`], which counts it. Nothing
//!   is cached.
//! - A key that was put is found. A key that was not put is not found.
//!
//! Chapter 4.2's structures ([`isam`], [`btree`], [`linear`]) have no blocks. They are separate.
//!
//! The lab's experiments whose names begin with `thesis-` call it.

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod data; // the elements
pub mod page; // elements in a page
pub mod io; // counted reads, sequential writes
pub mod bloom; // the Bloom Filter Map over blocks, and over the pages of a block
pub mod unsorted; // append order
pub mod sorted; // sorted by hash: scattered headers, index at the head, index in DRAM
pub mod hashed; // at the page that the hash names
pub mod ours; // the store's own blocks, and its better map over blocks
pub mod filters; // a rival of the map: Bloom filters searched one after the other
pub mod hash_index; // another rival: a cuckoo hash table of tags and pointers
pub mod system; // young blocks that become sorted blocks
pub mod slot; // elements of a fixed size, for the next two
pub mod isam; // appended, with a table in DRAM
pub mod linear; // a hash table on the device
pub mod btree; // a B+tree that is changed in place

use std::ops::Range;

use anyhow::Result;
use senko_store::index::Candidates;

pub use data::{Geometry, Keys, Wanted};
pub use io::{Counts, Reader, Sequential};

/// Where a value lies in [`Reader::bytes`], if its key was found.
pub type Place = Option<Range<usize>>;

/// The path to an element inside a block.
pub trait Layout: Sync {
    /// Its name in keys of results: lower case, no blanks.
    fn name(&self) -> &'static str;

    /// Searches for a key in a block.
    fn look(&self, block: u32, wanted: &Wanted, reader: &mut Reader<'_>) -> Result<Place>;

    /// The DRAM for all its blocks, in bytes.
    fn dram_bytes(&self) -> u64;
}

/// A layout whose pages are read in parts until the key is found, as before the thesis's section
/// 9.4.
pub struct ByParts<'l>(pub &'static str, pub &'l dyn Layout);

impl Layout for ByParts<'_> {
    fn name(&self) -> &'static str {
        self.0
    }

    fn look(&self, block: u32, wanted: &Wanted, reader: &mut Reader<'_>) -> Result<Place> {
        reader.by_parts(true);
        let found = self.1.look(block, wanted, reader);
        reader.by_parts(false);
        found
    }

    fn dram_bytes(&self) -> u64 {
        self.1.dram_bytes()
    }
}

/// Names the blocks that may hold a key.
pub trait BlockIndex: Sync {
    /// Appends the candidates to `out`, which was cleared, newest first.
    fn candidates(&self, wanted: &Wanted, out: &mut Candidates);

    /// Its DRAM, in bytes.
    fn dram_bytes(&self) -> u64;
}

/// The cost of building.
#[derive(Clone, Copy, Debug, Default)]
pub struct Built {
    /// Seconds, with the flush at the end.
    pub seconds: f64,
    /// Bytes written to the device.
    pub written: u64,
}

/// One get: the candidate blocks one after the other until the key is found. `blocks` is working
/// memory.
pub fn get(
    index: &dyn BlockIndex,
    layout: &dyn Layout,
    wanted: &Wanted,
    reader: &mut Reader<'_>,
    blocks: &mut Candidates,
) -> Result<Place> {
    blocks.clear();
    index.candidates(wanted, blocks);
    reader.counts.gets += 1;
    for &block in blocks.iter() {
        reader.counts.blocks += 1;
        if let Some(found) = layout.look(block, wanted, reader)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
