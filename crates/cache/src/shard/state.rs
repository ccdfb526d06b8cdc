// SPDX-License-Identifier: Apache-2.0
//! What is asked about an item or a slot, whatever happens to it next: whether it is alive, where
//! it lies, who holds it.

use crate::arena::{Handle, MAX_CHUNK};
use crate::dram::item::{ITEM_HEADER, Words};
use crate::index::{Slot, WidePos};
use crate::key::Key;
use crate::record::{self, Meta};
use crate::shard::Shard;
use crate::shard::changes::Changes;
use crate::types::{ItemRef, Pinned};

impl Shard {
    /// Expired, or flushed.
    #[inline]
    pub(crate) fn is_dead(&self, item: Handle) -> bool {
        record::is_dead(self.dram.arena().head(item), self.epoch, self.now)
    }

    /// The log and position of a flash slot; `None` if the record there was reclaimed or flushed
    /// (SHARD-2).
    pub(crate) fn place(&self, slot: Slot) -> Option<(usize, u64)> {
        self.flash.place(self.index.page(slot), slot.lap())
    }

    /// Whether the record of a flash slot is gone for good, and not only hidden while its device is
    /// out of use.
    pub(crate) fn is_gone(&self, slot: Slot) -> bool {
        self.flash.is_gone(self.index.page(slot), slot.lap())
    }

    /// The next slot of sorted records that may be the one of a hash, with log and position: the
    /// newest, or the one before `slot`.
    pub(crate) fn next_candidate(
        &self,
        hash: u64,
        mut before: Option<Slot>,
    ) -> Option<(Slot, (usize, u64))> {
        loop {
            let slot = self.index.next_narrow(hash, before)?;
            if let Some(place) = self.place(slot) {
                return Some((slot, place));
            }
            before = Some(slot);
        }
    }

    pub(crate) fn log_of(&self, slot: Slot) -> usize {
        self.flash.log_at(self.index.page(slot))
    }

    /// Removes a flash slot if it still exists.
    pub(crate) fn drop_flash_slot(&mut self, hash: u64, slot: Slot) -> bool {
        let Some((pos, _)) = self.index.find_same(hash, slot) else {
            return false;
        };
        self.index.remove_at(&pos);
        self.copy_died(slot);
        true
    }

    /// The words of a new item with a record of this length in DRAM. With flash each item has room
    /// for a copy, so that a promoted item has the class that it had before.
    pub(crate) fn words(&self, dram_len: usize) -> Words {
        Words::of(dram_len, !self.config.flash.is_empty())
    }

    /// Whether DRAM may take an item with a record of this length: at most half of it.
    pub(crate) fn fits_dram(&self, dram_len: usize) -> bool {
        let len = dram_len + ITEM_HEADER;
        len <= MAX_CHUNK || len <= self.dram.memory() / 2
    }

    /// The slot of a linked item.
    pub(crate) fn slot_of(&self, item: Handle, hash: u64) -> WidePos {
        let dram = self.index.dram_slot(hash, item);
        let found = self.index.find(hash, |slot| slot == dram);
        found.expect("a linked item has a slot (SHARD-1)").0
    }

    pub fn meta(&self, item: ItemRef) -> Meta {
        self.dram
            .arena()
            .header(item.0)
            .meta(self.dram.arena().access(item.0))
    }

    /// Keeps the item's memory unchanged, whatever happens to the item, until [`Shard::unpin`] with
    /// the returned number. Answers that are sent straight from DRAM need this. Pieces returned by
    /// [`Shard::value_pieces`] and [`Shard::answer_pieces`] stay valid as raw memory.
    pub fn pin(&mut self, item: ItemRef) -> u64 {
        self.dram.pin(item.0);
        u64::from(self.config.shard) << 32 | u64::from(item.0)
    }

    /// The number of the shard that gave out a pin.
    pub fn of_pin(pin: u64) -> usize {
        (pin >> 32) as usize
    }

    /// Whether an answer may pin an item now: at most half of the memory for items is pinned so, or
    /// one item. The share is a quarter for an `early` answer, before which others wait. If not,
    /// the answer waits, and [`Shard::wants_pins`] holds until a pin ends.
    pub fn grants_pin(&mut self, item: ItemRef, early: bool) -> bool {
        let share = if early { 4 } else { 2 };
        let most = self.items_memory() / share;
        self.dram.grants_pin(item.0, most)
    }

    /// Whether an answer waits for pins to end.
    pub fn wants_pins(&self) -> bool {
        self.dram.wants_pins()
    }

    /// Ends a pin.
    pub fn unpin(&mut self, pin: u64) {
        self.dram.unpin(pin as Handle);
    }

    /// Keeps the item's memory while room is made for another item. An item that has the most pins
    /// stays anyway, and gets no further pin.
    pub(crate) fn try_pin(&mut self, item: ItemRef) -> Option<u64> {
        self.can_pin(item).then(|| self.pin(item))
    }

    /// Bytes of an item's key, for `stats detail` and dumps.
    pub(crate) fn item_hash(&self, item: Handle) -> u64 {
        Key::new(self.dram.arena().item_key(item), self.config.hash_seed).hash
    }

    /// Whether nothing is evicted and there is flash. Then every item stays in one of the tiers
    /// (`docs/architecture/no-eviction.md`). A matching tag alone does not replace another slot
    /// then ([`Shard::link`]), so a store first checks whose slot it is.
    pub fn keeps_all(&self) -> bool {
        self.config.no_evict && !self.flash.logs().is_empty()
    }

    /// Whether a flash slot leads nowhere because a write failed, or because reclaim could not read
    /// its record.
    pub(crate) fn lost_by_device(&self, slot: Slot) -> bool {
        let log = self.flash.log(self.log_of(slot));
        !slot.expired(self.now)
            && log
                .position_of(self.index.page(slot), slot.lap())
                .is_none_or(|position| log.is_unwritten(position))
    }

    /// Notes that a record on flash has lost its slot, or the item whose clean copy it was.
    pub(crate) fn copy_died(&mut self, copy: Slot) {
        if copy == Slot::EMPTY || !self.keeps_all() {
            return;
        }
        let n = self.log_of(copy);
        if self
            .flash
            .log(n)
            .position_of(self.index.page(copy), copy.lap())
            .is_some()
        {
            self.flash.log_mut(n).died(copy.len());
        }
    }

    /// Whether another pin can be taken (an item takes at most 65,535).
    pub fn can_pin(&self, item: ItemRef) -> bool {
        self.dram.arena().pins(item.0) < u16::MAX
    }

    /// The share of the memory for items that pins keep in place.
    pub fn pinned(&self) -> Pinned {
        self.dram.pinned(self.items_memory())
    }

    /// Bytes of memory for items, without the index.
    pub fn items_memory(&self) -> usize {
        (self.dram.memory())
            .saturating_sub(self.index.bytes() + Changes::held(self.changes.as_ref()))
    }
}
