// SPDX-License-Identifier: Apache-2.0
//! The head of a sorted block, after its data pages: identity, page index, large values, hash list.
//!
//! Pages of 4,096 bytes, each with its own header and checksum. The *meta* part is a stream over
//! the payloads of the first pages. It has a fixed header with the block's record, the directory of
//! the hash list, the page index, and the references of large values. Opening a block reads these
//! pages only; the hash list begins on its own page and is read slice by slice.

use senko_io::PAGE_SIZE;
use senko_io::le::u32_at;

use super::frame::{self, HEAD_HEADER, HEAD_PAYLOAD};
use super::hash_list::{DIRECTORY_BYTES, Directory, ENTRIES_PER_PAGE, ENTRY_BYTES, HashEntry};
use super::page_index::PageIndex;
use super::record::BlockRecord;
use crate::element::ExtentRef;

/// The fixed header at the start of the meta part.
pub const META_HEADER: usize = 128;
/// The version of the format of blocks.
pub const BLOCK_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"senkoBLK";
const RECORD_AT: usize = 32;

/// The meta part, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub record: BlockRecord,
    pub directory: Directory,
    pub index: PageIndex,
    pub large: Vec<ExtentRef>,
}

/// Head pages of the meta part.
pub(crate) fn meta_pages(index_bytes: u64, large: u64) -> u64 {
    let bytes =
        (META_HEADER + DIRECTORY_BYTES) as u64 + index_bytes + large * ExtentRef::BYTES as u64;
    bytes.div_ceil(HEAD_PAYLOAD as u64)
}

/// The most pages that the head of a block with these counts of data pages, elements and large
/// values can have.
pub(crate) fn pages_bound(data_pages: u64, elements: u64, large: u64) -> u64 {
    meta_pages(PageIndex::encoded_bound(data_pages), large)
        + elements.div_ceil(ENTRIES_PER_PAGE as u64)
}

impl Meta {
    /// The bytes of the meta part.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(META_HEADER + DIRECTORY_BYTES + self.index.encoded_len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&BLOCK_VERSION.to_le_bytes());
        out.extend_from_slice(&(self.index.encoded_len() as u32).to_le_bytes());
        out.resize(RECORD_AT, 0);
        out.extend_from_slice(&self.record.encode());
        self.directory.encode(&mut out);
        self.index.encode(&mut out);
        for reference in &self.large {
            out.extend_from_slice(&reference.encode());
        }
        out
    }

    /// Reads the payloads of the meta pages and joins them.
    pub fn decode(from: &[u8]) -> Result<Meta, &'static str> {
        const CUT: &str = "the head is shorter than it says";
        let (record, index_bytes) = decode_header(from)?;
        let rest = &from[META_HEADER..];
        let (directory, rest) = rest.split_at_checked(DIRECTORY_BYTES).ok_or(CUT)?;
        let directory = Directory::decode(directory, record.elements)
            .ok_or("the directory of the hash list is not in order")?;
        let (index, rest) = rest.split_at_checked(index_bytes as usize).ok_or(CUT)?;
        let index = PageIndex::decode(index)?;
        if index.pages() != record.data_pages {
            return Err("the page index is of another number of pages");
        }
        let (large, rest) = rest
            .split_at_checked(record.large as usize * ExtentRef::BYTES)
            .ok_or(CUT)?;
        if rest.len() >= HEAD_PAYLOAD || rest.iter().any(|byte| *byte != 0) {
            return Err("the head is longer than it says");
        }
        let large = large
            .chunks_exact(ExtentRef::BYTES)
            .map(|bytes| ExtentRef::decode(bytes).ok_or("the head names an extent that cannot be"))
            .collect::<Result<_, _>>()?;
        Ok(Meta {
            record,
            directory,
            index,
            large,
        })
    }
}

/// The record, and the bytes of the page index.
fn decode_header(from: &[u8]) -> Result<(BlockRecord, u32), &'static str> {
    let header = from.get(..META_HEADER).ok_or("the head is cut off")?;
    let half = |at: usize| u32_at(header, at);
    if header[..8] != MAGIC {
        return Err("there is no head of a block");
    }
    if half(8) != BLOCK_VERSION {
        return Err("the block has a format version that is not known");
    }
    if header[16..RECORD_AT] != [0; RECORD_AT - 16] {
        return Err("the head has settings that there are not");
    }
    let record = header[RECORD_AT..].try_into().expect("96 bytes");
    Ok((BlockRecord::decode(record)?, half(12)))
}

/// The directory of the hash list, from the payload of the head's first page.
pub(crate) fn directory(payload: &[u8], record: &BlockRecord) -> Result<Directory, &'static str> {
    let bytes = payload
        .get(META_HEADER..META_HEADER + DIRECTORY_BYTES)
        .ok_or("the head is cut off")?;
    Directory::decode(bytes, record.elements)
        .ok_or("the directory of the hash list is not in order")
}

/// The record of the block whose head begins in this page, if one does. A repair finds blocks this
/// way if no manifest can be read. `page` is any page of the device. By chance, a page that is no
/// head passes once in 2^32; only bytes made for it pass on purpose.
pub fn probe(page: &[u8]) -> Option<BlockRecord> {
    let payload = page.get(HEAD_HEADER..PAGE_SIZE)?;
    let (record, _) = decode_header(payload).ok()?;
    frame::check(&page[..PAGE_SIZE], record.id, 0).ok()?;
    Some(record)
}

/// The `nth` entry in a page of the hash list.
pub(crate) fn entry(payload: &[u8], nth: usize, shard: usize) -> Option<HashEntry> {
    let bytes = payload.get(nth * ENTRY_BYTES..(nth + 1) * ENTRY_BYTES)?;
    HashEntry::decode(bytes.try_into().ok()?, shard as u8)
}

const _: () = assert!(RECORD_AT + BlockRecord::BYTES == META_HEADER);
const _: () = assert!(META_HEADER + DIRECTORY_BYTES <= HEAD_PAYLOAD);
