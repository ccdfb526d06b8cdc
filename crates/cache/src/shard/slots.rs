// SPDX-License-Identifier: Apache-2.0
//! Slots change their kind, and the index gets the memory and the room for them.

use crate::arena::Handle;
use crate::dram::Leaving;
use crate::index::{Pos, Slot};
use crate::shard::Shard;
use crate::shard::changes::Changes;

impl Shard {
    /// Replaces a slot of a hash by one of eight bytes.
    pub(crate) fn put_slot(&mut self, pos: &Pos, hash: u64, slot: Slot) {
        match pos {
            Pos::Wide(pos) => self.index.set(*pos, slot),
            Pos::Narrow(_) => {
                self.index.remove_at(pos);
                self.enter(hash, slot);
            }
        }
    }

    /// Replaces a slot by that of an item in DRAM.
    pub(crate) fn turn_to_dram(&mut self, pos: &Pos, hash: u64, item: Handle) {
        let slot = self.index.dram_slot(hash, item);
        self.put_slot(pos, hash, slot);
    }

    /// Enters the slot of a key that has none.
    pub(super) fn enter(&mut self, hash: u64, slot: Slot) {
        if self.index.insert(hash, slot).is_err() && !self.insert_grown(hash, slot) {
            self.make_slot(hash);
            self.index
                .insert(hash, slot)
                .expect("a slot was just removed from this segment");
        }
    }

    /// Grows the segment of `hash`, which is full. Items give up that memory at the next
    /// allocation, or, if nothing is evicted, when some items are deleted. Usually growth comes
    /// before an allocation. It may have been put off because the log was busy or nothing may be
    /// evicted, while many drafts waited for their values.
    fn insert_grown(&mut self, hash: u64, slot: Slot) -> bool {
        let segment = self.index.segment_of(hash);
        // The first growth may go to the wave's segment, if this segment grew before the wave.
        for _ in 0..2 {
            if !self.index.grow(segment) {
                return false;
            }
            self.share_memory(0);
            if self.index.insert(hash, slot).is_ok() {
                return true;
            }
        }
        false
    }

    /// Drops a slot of the segment of `hash`, which is full and can't grow. It drops a cold flash
    /// item if there is one.
    fn make_slot(&mut self, hash: u64) {
        self.stats.drops_index += 1;
        let segment = self.index.segment_of(hash);
        let (mut victim, mut any): (Option<Slot>, Option<Slot>) = (None, None);
        self.index.each(segment, |slot| {
            let colder = |v: Slot| slot.is_flash() && (!v.is_flash() || slot.hot() < v.hot());
            let free = slot.is_flash() || self.dram.arena().pins(self.index.handle(slot)) == 0;
            if free && victim.is_none_or(colder) {
                victim = Some(slot);
            }
            any = any.or(Some(slot));
        });
        // If answers are being sent from all of them, one item stays without a slot until its
        // answer is sent.
        let victim = victim.or(any).expect("a full segment has slots");
        if victim.is_dram() {
            self.unlink_item(self.index.handle(victim));
        } else {
            self.index.remove_slot(segment, victim);
        }
    }

    /// Limits items to the memory that the index leaves, once it has grown by `growth` bytes, and
    /// the filter of a fill.
    pub(crate) fn share_memory(&mut self, growth: usize) {
        let held = Changes::held(self.changes.as_ref());
        let leaving = self.dram.leaving().map_or(0, Leaving::own_bytes);
        self.dram
            .share(self.index.bytes() + held + leaving + growth);
    }
}
