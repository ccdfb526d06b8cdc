// SPDX-License-Identifier: Apache-2.0
//! An item in the arena: its header, its record, its chain of chunks.
//!
//! ```text
//! first chunk    | prev:4 next:4 chain:4 pins:2 -:1 state:1 | flash:8 access:4 epoch:2 note:1 -:1 | record ... |
//! further chunk  | owner:4  -:4  chain:4 -:3        state:1 | record, continued ...                            |
//! ```
//!
//! `flash` is the index slot of the item's copy on flash, 0 if it has none (then the item is
//! dirty). Always holds: the first [`MAX_PREFIX`] bytes of a record lie in the first chunk, so
//! header and key are never split.

use crate::arena::{Arena, CHAINED, Handle, LINKED, LOOSE, MAX_CHUNK, STATE_AT};
use crate::index::Slot;
use crate::record::{Header, KEY_AT, MAX_PREFIX, RECORD_HEADER};

/// Bytes before the record in an item's first chunk.
pub(crate) const ITEM_HEADER: usize = 32;
/// Bytes before the record's continuation in a further chunk.
pub(crate) const CHAIN_HEADER: usize = 16;
const OWNER: usize = 0;
const CHAIN: usize = 8;
const PINS: usize = 12;
pub(crate) const FLASH: usize = 16;
const ACCESS: usize = 24;
const EPOCH: usize = 28;

const _: () = assert!(MAX_CHUNK >= ITEM_HEADER + MAX_PREFIX);

/// Accessors of items; the arena's other half.
impl Arena {
    pub fn init_item(&mut self, item: Handle, access: u32, epoch: u16) {
        self.bytes_mut(item, 0, ITEM_HEADER).fill(0);
        self.set_u8(item, STATE_AT, LOOSE);
        self.set_u32(item, ACCESS, access);
        self.set_u16(item, EPOCH, epoch);
    }
    /// Appends a chunk to an item's chain after `last`.
    pub fn chain(&mut self, item: Handle, last: Handle, chunk: Handle) {
        self.bytes_mut(chunk, 0, CHAIN_HEADER).fill(0);
        self.set_u8(chunk, STATE_AT, CHAINED);
        self.set_u32(chunk, OWNER, item);
        self.set_u32(last, CHAIN, chunk);
    }
    pub fn next_in_chain(&self, chunk: Handle) -> Handle {
        self.u32(chunk, CHAIN)
    }
    pub fn owner(&self, chunk: Handle) -> Handle {
        self.u32(chunk, OWNER)
    }
    #[inline]
    pub fn state(&self, chunk: Handle) -> u8 {
        self.u8(chunk, STATE_AT)
    }
    pub fn set_linked(&mut self, item: Handle, linked: bool) {
        self.set_u8(item, STATE_AT, if linked { LINKED } else { LOOSE });
    }
    #[inline]
    pub fn pins(&self, item: Handle) -> u16 {
        self.u16(item, PINS)
    }
    pub fn set_pins(&mut self, item: Handle, pins: u16) {
        self.set_u16(item, PINS, pins);
    }
    pub fn flash_copy(&self, item: Handle) -> Slot {
        Slot(self.u64(item, FLASH))
    }
    pub fn set_flash_copy(&mut self, item: Handle, slot: Slot) {
        self.set_word(item, FLASH, slot.0);
    }
    #[inline]
    pub fn access(&self, item: Handle) -> u32 {
        self.u32(item, ACCESS)
    }
    #[inline]
    pub fn set_access(&mut self, item: Handle, now: u32) {
        self.set_u32(item, ACCESS, now);
    }
    #[inline]
    pub fn epoch(&self, item: Handle) -> u16 {
        self.u16(item, EPOCH)
    }

    #[inline]
    pub fn set_epoch(&mut self, item: Handle, epoch: u16) {
        self.set_u16(item, EPOCH, epoch);
    }

    /// The record's header.
    #[inline]
    pub fn header(&self, item: Handle) -> Header {
        Header::read(self.bytes(item, ITEM_HEADER, RECORD_HEADER))
    }
    pub fn set_header(&mut self, item: Handle, header: &Header) {
        header.write(self.bytes_mut(item, ITEM_HEADER, RECORD_HEADER));
    }
    #[inline]
    pub fn item_key(&self, item: Handle) -> &[u8] {
        let len = self.u8(item, ITEM_HEADER + 28) as usize;
        self.bytes(item, ITEM_HEADER + KEY_AT, len)
    }
    #[inline]
    pub fn item_expiry(&self, item: Handle) -> u32 {
        self.u32(item, ITEM_HEADER + 16)
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
        let (mut chunk, mut skip) = (item, ITEM_HEADER);
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
        let (mut chunk, mut skip) = (item, ITEM_HEADER);
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

    /// The size class of the first chunk of an item whose record has this many bytes.
    pub fn item_class(&self, record_len: usize) -> usize {
        self.class_for((record_len + ITEM_HEADER).min(MAX_CHUNK))
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
