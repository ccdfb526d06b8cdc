// SPDX-License-Identifier: Apache-2.0
//! The shape of an index: number of segments and width of a tag, derived from the sizes that it was
//! planned for.

use super::{MAX_TAG_BITS, PLACE_BITS, Shape, Slot};
use crate::arena::{Arena, Handle};

/// Slots of a segment when flash is full of items of the planned size. A segment can hold four
/// times as many. Large segments have nearly the same load, so few must grow before the wave comes.
/// Behind the wave, pages are freed one by one.
const PLANNED_SLOTS: u64 = 4096;
const PLANNED_RECORD: u64 = 160;
/// The same on flash, where small records have slots of 21 bits. If none gets such a slot, a
/// segment still can hold all.
const PLANNED_RECORD_SORTED: u64 = 512;

impl Shape {
    /// The shape for a shard with `flash_pages` pages of flash and `dram` bytes of memory.
    /// `sorted`: small records on flash have slots of 21 bits.
    pub fn plan(flash_pages: u64, dram: usize, sorted: bool) -> Shape {
        let page_bytes = Arena::segment_page_bytes(dram);
        let on_flash = match sorted {
            true => PLANNED_RECORD_SORTED,
            false => PLANNED_RECORD,
        };
        let items = flash_pages * 4096 / on_flash + dram as u64 / PLANNED_RECORD;
        let slots = PLANNED_SLOTS.min(page_bytes as u64 / 32);
        Shape {
            segment_bits: (items / slots).max(1).next_power_of_two().ilog2().min(26),
            tag_bits: Shape::tag_bits(flash_pages),
            page_bytes,
        }
    }

    fn tag_bits(flash_pages: u64) -> u32 {
        let page_bits = flash_pages.max(1).next_power_of_two().ilog2();
        PLACE_BITS - page_bits.max(PLACE_BITS - MAX_TAG_BITS)
    }

    /// Whether an index of this many pages of flash can have this shape.
    pub fn fits(&self, flash_pages: u64) -> bool {
        let pages = 64 << 10..=1 << 20;
        self.segment_bits <= 26
            && self.tag_bits == Shape::tag_bits(flash_pages)
            && self.page_bytes.is_power_of_two()
            && pages.contains(&self.page_bytes)
    }

    pub fn segments(&self) -> usize {
        1 << self.segment_bits
    }
    #[inline]
    pub fn handle(&self, slot: Slot) -> Handle {
        (slot.0 >> self.tag_bits) as u32
    }
    #[inline]
    pub fn page(&self, slot: Slot) -> u64 {
        (slot.0 & ((1 << PLACE_BITS) - 1)) >> self.tag_bits
    }
    #[inline]
    pub fn tag_of(&self, slot: Slot) -> u64 {
        slot.0 & ((1 << self.tag_bits) - 1)
    }
}
