// SPDX-License-Identifier: Apache-2.0
//! An item in the arena: its header, its record, its chain of chunks.
//!
//! ```text
//! first chunk    | prev:4 next:4 access:4 pins:2 note:1 state:1 | copy:8? | chain:4? -:4? | record ... |
//! further chunk  | owner:4 chain:4  -:7                 state:1 | record, continued ...                |
//! ```
//!
//! `copy` is the index slot of the item's copy on flash, 0 if it has none (then the item is dirty).
//! The items of a shard with flash have room for it, and one of several chunks, which also has a
//! `chain`. The upper bits of `state` tell. Always holds: the first [`MAX_PREFIX`] bytes of a
//! record lie in the first chunk, so head and key are never split.

use crate::arena::{Arena, CHAINED, Handle, LEAST_CHUNK, LINKED, LOOSE, MAX_CHUNK, STATE_AT};
use crate::index::Slot;
use crate::record::{self, ANSWER_HEAD, Header, MAX_PREFIX, Meta};

/// Bytes before the record in the first chunk of an item without words after its header.
pub(crate) const ITEM_HEADER: usize = 16;
/// Bytes before the record's continuation in a further chunk.
pub(crate) const CHAIN_HEADER: usize = 16;
/// Offset of the copy on flash, if there is room for it.
pub(crate) const COPY: usize = 16;
/// Offset of the chain's next chunk, in a first chunk and in a further one.
const CHAIN: usize = 24;
const FURTHER: usize = 4;
const OWNER: usize = 0;
const ACCESS: usize = 8;
const PINS: usize = 12;

/// The part of the state byte that is the state; the number of words above it.
pub(crate) const STATE: u8 = 3;
const WORDS_AT: u8 = 6;

/// The words between an item's header and its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    None,
    /// The copy on flash.
    Copy,
    /// Copy and chain.
    Chain,
}

impl Words {
    /// The words of an item with a record of this length in DRAM; `flash`: its shard has flash.
    pub fn of(dram_len: usize, flash: bool) -> Words {
        let words = if flash { Words::Copy } else { Words::None };
        if dram_len + words.header() > MAX_CHUNK {
            Words::Chain
        } else {
            words
        }
    }

    /// Bytes before the record.
    pub const fn header(self) -> usize {
        ITEM_HEADER + 8 * self as usize
    }
}

const _: () = assert!(MAX_CHUNK >= Words::Chain.header() + MAX_PREFIX);
const _: () = assert!(LEAST_CHUNK >= Words::Copy.header() + ANSWER_HEAD);

/// Whether an item whose header begins with these bytes is linked and has room for a copy.
pub(crate) fn is_linked_copy(header: &[u8]) -> bool {
    let state = header[STATE_AT];
    state & STATE == LINKED && state >> WORDS_AT != 0
}

/// Accessors of items; the arena's other half.
impl Arena {
    pub fn init_item(&mut self, item: Handle, access: u32, words: Words) {
        self.bytes_mut(item, 0, words.header()).fill(0);
        self.set_u8(item, STATE_AT, LOOSE | (words as u8) << WORDS_AT);
        self.set_u32(item, ACCESS, access);
    }
    /// Appends a chunk to an item's chain after `last`.
    pub fn chain(&mut self, item: Handle, last: Handle, chunk: Handle) {
        self.bytes_mut(chunk, 0, CHAIN_HEADER).fill(0);
        self.set_u8(chunk, STATE_AT, CHAINED);
        self.set_u32(chunk, OWNER, item);
        let at = if last == item { CHAIN } else { FURTHER };
        self.set_u32(last, at, chunk);
    }
    pub fn next_in_chain(&self, chunk: Handle) -> Handle {
        match self.u8(chunk, STATE_AT) {
            CHAINED => self.u32(chunk, FURTHER),
            state if state >> WORDS_AT == Words::Chain as u8 => self.u32(chunk, CHAIN),
            _ => 0,
        }
    }
    pub fn owner(&self, chunk: Handle) -> Handle {
        self.u32(chunk, OWNER)
    }
    #[inline]
    pub fn state(&self, chunk: Handle) -> u8 {
        self.u8(chunk, STATE_AT) & STATE
    }
    pub fn set_linked(&mut self, item: Handle, linked: bool) {
        let words = self.u8(item, STATE_AT) & !STATE;
        self.set_u8(item, STATE_AT, words | if linked { LINKED } else { LOOSE });
    }
    /// Bytes before an item's record.
    #[inline]
    pub fn header_len(&self, item: Handle) -> usize {
        ITEM_HEADER + 8 * usize::from(self.u8(item, STATE_AT) >> WORDS_AT)
    }
    #[inline]
    pub fn pins(&self, item: Handle) -> u16 {
        self.u16(item, PINS)
    }
    pub fn set_pins(&mut self, item: Handle, pins: u16) {
        self.set_u16(item, PINS, pins);
    }
    pub fn flash_copy(&self, item: Handle) -> Slot {
        if self.header_len(item) == ITEM_HEADER {
            return Slot::EMPTY;
        }
        Slot(self.u64(item, COPY))
    }
    /// Sets the copy of an item that has room for it, or clears it.
    pub fn set_flash_copy(&mut self, item: Handle, slot: Slot) {
        if self.flash_copy(item) != slot {
            debug_assert!(self.header_len(item) > ITEM_HEADER, "there is room");
            self.set_word(item, COPY, slot.0);
        }
    }
    #[inline]
    pub fn access(&self, item: Handle) -> u32 {
        self.u32(item, ACCESS)
    }
    #[inline]
    pub fn set_access(&mut self, item: Handle, now: u32) {
        self.set_u32(item, ACCESS, now);
    }
    /// How many flushes happened before the item was stored. On flash, the last access has this
    /// place.
    #[inline]
    pub fn epoch(&self, item: Handle) -> u16 {
        self.u16(item, self.header_len(item) + record::ACCESS)
    }
    #[inline]
    pub fn set_epoch(&mut self, item: Handle, epoch: u16) {
        self.set_u16(item, self.header_len(item) + record::ACCESS, epoch);
    }

    /// The bytes that begin with the record's head. Every chunk has so many.
    #[inline]
    pub fn head(&self, item: Handle) -> &[u8; ANSWER_HEAD] {
        let head = self.bytes(item, self.header_len(item), ANSWER_HEAD);
        head.first_chunk().expect("its length is that")
    }
    /// The record's head.
    #[inline]
    pub fn header(&self, item: Handle) -> Header {
        Header::decode(self.head(item))
    }
    pub fn set_header(&mut self, item: Handle, header: &Header) {
        let at = self.header_len(item);
        header.write(self.bytes_mut(item, at, header.head_len()));
    }
    /// Sets the record's mark that the item was read.
    #[inline]
    pub fn mark_fetched(&mut self, item: Handle) {
        let at = self.header_len(item);
        record::mark_fetched(self.bytes_mut(item, at, record::LEAST_HEAD));
    }
    #[inline]
    pub fn item_key(&self, item: Handle) -> &[u8] {
        let at = self.header_len(item);
        let head = self.bytes(item, at, record::LEAST_HEAD);
        let (len, from) = (head[0] as usize, record::key_offset(record::bits_of(head)));
        self.bytes(item, at + from, len)
    }
    /// Key and value of an item with a packed record and this metadata.
    #[inline]
    pub fn packed(&self, item: Handle, meta: &Meta) -> (&[u8], &[u8]) {
        let at = self.header_len(item);
        let from = record::head_len(record::bits_of(self.bytes(item, at, record::LEAST_HEAD)));
        let key = usize::from(meta.key_len);
        self.bytes(item, at + from, key + meta.value_len as usize)
            .split_at(key)
    }

    pub fn item_expiry(&self, item: Handle) -> u32 {
        self.header(item).expiry
    }

    /// Passes bytes `from..to` of an item's record to `show`, in order, one piece per chunk.
    #[inline]
    pub fn pieces<'a>(
        &'a self,
        item: Handle,
        from: usize,
        to: usize,
        mut each: impl FnMut(&'a [u8]),
    ) {
        let (mut chunk, mut skip) = (item, self.header_len(item));
        let mut at = 0;
        while at < to {
            let room = self.class(self.class_of(chunk)).size - skip;
            let (a, b) = (from.max(at), to.min(at + room));
            if a < b {
                each(self.bytes(chunk, skip + a - at, b - a));
            }
            at += room;
            (chunk, skip) = (self.next_in_chain(chunk), CHAIN_HEADER);
            debug_assert!(chunk != 0 || at >= to, "a chain is as long as its record");
        }
    }

    /// Writes `bytes` at offset `from` of an item's record.
    pub fn put(&mut self, item: Handle, from: usize, bytes: &[u8]) {
        let (mut chunk, mut skip) = (item, self.header_len(item));
        let (mut at, to) = (0, from + bytes.len());
        while at < to {
            let room = self.class(self.class_of(chunk)).size - skip;
            let (a, b) = (from.max(at), to.min(at + room));
            if a < b {
                self.bytes_mut(chunk, skip + a - at, b - a)
                    .copy_from_slice(&bytes[a - from..b - from]);
            }
            at += room;
            (chunk, skip) = (self.next_in_chain(chunk), CHAIN_HEADER);
        }
    }

    /// The size class of the first chunk of an item whose record has this many bytes in DRAM.
    #[inline]
    pub fn item_class(&self, dram_len: usize, words: Words) -> usize {
        self.class_for((dram_len + words.header()).min(MAX_CHUNK))
    }

    /// Bytes of all chunks of an item.
    pub fn item_bytes(&self, item: Handle) -> usize {
        let mut bytes = 0;
        let mut chunk = item;
        while chunk != 0 {
            bytes += self.class(self.class_of(chunk)).size;
            chunk = self.next_in_chain(chunk);
        }
        bytes
    }

    /// Frees all chunks of an item.
    pub fn free_item(&mut self, item: Handle) {
        let mut chunk = item;
        while chunk != 0 {
            let next = self.next_in_chain(chunk);
            self.free(chunk);
            chunk = next;
        }
    }
}
