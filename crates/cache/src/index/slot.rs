// SPDX-License-Identifier: Apache-2.0
//! A slot of the index, bit by bit; `index.rs` has the drawing.
//!
//! The shard's [`Shape`](super::Shape) decides which bits are page and which tag; the bits above
//! them are here.

pub(super) const KIND_SHIFT: u32 = 62;
pub(super) const LEN_SHIFT: u32 = 58;
pub(super) const HOT_SHIFT: u32 = 56;
pub(super) const EXPIRY_SHIFT: u32 = 48;
pub(super) const KIND_DRAM: u64 = 1;
pub(super) const KIND_FLASH: u64 = 2;
/// No slot, but a page whose records a walk lists.
const KIND_PAGE: u64 = 3;
pub(super) const LAP_SHIFT: u32 = 46;
/// Expiry counts in units of 2^12 seconds, modulo 255. 0 means never, or too far away to encode.
const EXPIRY_UNIT_SHIFT: u32 = 12;
const EXPIRY_RING: u32 = 255;
const EXPIRY_HORIZON: u32 = 127;

/// A slot; 0 is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub u64);

impl Slot {
    pub const EMPTY: Slot = Slot(0);
    #[inline]
    pub fn is_flash(self) -> bool {
        self.0 >> KIND_SHIFT == KIND_FLASH
    }
    #[inline]
    pub fn is_dram(self) -> bool {
        self.0 >> KIND_SHIFT == KIND_DRAM
    }
    /// The page of a flash slot, for a walk over the records in it.
    pub fn to_page(self) -> Slot {
        Slot(self.0 | KIND_PAGE << KIND_SHIFT)
    }
    /// The flash slot that such a page was made from.
    pub fn of_page(self) -> Option<Slot> {
        let slot = Slot(self.0 & !(KIND_PAGE << KIND_SHIFT) | KIND_FLASH << KIND_SHIFT);
        (self.0 >> KIND_SHIFT == KIND_PAGE).then_some(slot)
    }
    /// Lap of the log, modulo 4, in which a flash item was written.
    #[inline]
    pub fn lap(self) -> u64 {
        self.0 >> LAP_SHIFT & 3
    }
    /// Pages of a flash item, 1 to 15; 0: more.
    #[inline]
    pub fn len(self) -> usize {
        (self.0 >> LEN_SHIFT & 15) as usize
    }
    /// How recently flash had hits on the item. 0: never. 1: not since the last pass of the CLOCK
    /// hand (`aging.rs`). 2 and 3: once or more since then.
    #[inline]
    pub fn hot(self) -> u8 {
        (self.0 >> HOT_SHIFT & 3) as u8
    }
    /// Recent hits on flash, as far as they are counted: 0 to 2.
    #[inline]
    pub fn hits_lately(self) -> u8 {
        self.hot().saturating_sub(1)
    }
    /// The slot after one more hit.
    #[inline]
    pub fn hit(self) -> Slot {
        self.with_hot(self.hot().max(1) + 1)
    }
    #[inline]
    pub fn with_hot(self, hot: u8) -> Slot {
        Slot(self.0 & !(3 << HOT_SHIFT) | u64::from(hot.min(3)) << HOT_SHIFT)
    }
    /// Whether the item has certainly expired, by its coarse expiry.
    pub fn expired(self, now: u32) -> bool {
        let code = (self.0 >> EXPIRY_SHIFT & 255) as u32;
        if code == 0 {
            return false;
        }
        let behind =
            ((now >> EXPIRY_UNIT_SHIFT) % EXPIRY_RING + EXPIRY_RING - (code - 1)) % EXPIRY_RING;
        behind < EXPIRY_HORIZON
    }
}

/// The slot form of an expiry, rounded up, so that `Slot::expired` is never true too early.
pub(super) fn coarse_expiry(expiry: u32, now: u32) -> u64 {
    let (at, now) = ((expiry >> EXPIRY_UNIT_SHIFT) + 1, now >> EXPIRY_UNIT_SHIFT);
    if expiry == 0 || at.saturating_sub(now) > EXPIRY_HORIZON {
        0
    } else {
        u64::from(at % EXPIRY_RING) + 1
    }
}
