// SPDX-License-Identifier: Apache-2.0
//! The fate of a record in a region that is being reclaimed: it is dropped, or written again.
//! `reclaim.rs` and `keep.rs` walk the region.

use senko_io::Queue;

use crate::dram::SMALL;
use crate::flash::log::Place;
use crate::flash::open_pages::Sizes;
use crate::index::Slot;
use crate::key::Key;
use crate::record::{self, FlashHead, Header};
use crate::shard::Shard;

/// The fate of a record in the oldest region.
pub(super) enum Fate {
    Forget,
    /// It is live: its slot, and its key's hash.
    Reinsert(Slot, u64),
}

impl Shard {
    /// Drops a record of the oldest region, or says that it must be written again.
    pub(super) fn fate(
        &mut self,
        n: usize,
        run: &[u8],
        at: usize,
        header: &Header,
        position: u64,
    ) -> Fate {
        let key = Key::new(record::key_at(run, at, header), self.config.hash_seed);
        let (page, lap) = self.flash.log(n).place_of(position);
        // A promoted item loses its clean copy.
        let mut promoted = 0;
        self.index.find(key.hash, |slot| {
            if slot.is_flash() {
                return false;
            }
            let item = self.index.handle(slot);
            let copy = self.dram.arena().flash_copy(item);
            if copy != Slot::EMPTY
                && self.index.page(copy) == page
                && self.dram.arena().item_key(item) == key.bytes
            {
                promoted = item;
            }
            false
        });
        if promoted != 0 {
            self.dram.set_flash_copy(promoted, Slot::EMPTY);
        }
        let found = self.index.find_in_page(key.hash, (page, lap & 3));
        let Some((pos, slot)) = found else {
            return Fate::Forget;
        };
        let live = !record::expired(header.expiry, self.now)
            && !self.flash.log(n).is_invalid_for_good(position);
        let room = self.flash.reclaim(n).reinserted() + header.flash_len()
            <= self.flash.reinsertion_room(n);
        let hot = slot.hot() > 0 && self.config.reinsert && room;
        if live && (hot || self.keeps_all()) {
            return Fate::Reinsert(slot, key.hash);
        }
        self.index.remove_at(&pos);
        if self.keeps_all() && self.flash.log(n).is_unwritten(position) {
            self.stats.drops_error += 1;
        } else if live {
            self.stats.reclaim_drops += 1;
        } else {
            self.stats.reclaimed += 1;
        }
        Fate::Forget
    }

    /// Lets the small record of a slot, whose region goes, wait in DRAM for a run. False if small
    /// records are not sorted, or no chunk for it is free.
    pub(super) fn take_back(
        &mut self,
        (slot, hash): (Slot, u64),
        header: &Header,
        bytes: &[u8],
    ) -> bool {
        if self.dram.leaving().is_none() || header.has_answer() || header.flash_len() > SMALL {
            return false;
        }
        let words = self.words(header.dram_len());
        let class = self.dram.arena().item_class(header.dram_len(), words);
        let Some(item) = self.dram.alloc(class) else {
            return false;
        };
        let size = self.dram.arena().class(class).size;
        self.sealing.spend_spare(size);
        self.dram.init_item(item, self.now, words);
        let head = header.head_len();
        self.dram.put(item, 0, &bytes[..head]);
        self.dram.put(item, head, &bytes[header.flash_body()..]);
        let access = record::exact_access(header.access, self.now);
        self.dram.set_access(item, access);
        self.dram.set_epoch(item, self.epoch);
        self.dram.mark_fetched(item);
        let (pos, _) = self
            .index
            .find_same(hash, slot)
            .expect("the slot was just found");
        self.turn_to_dram(&pos, hash, item);
        self.dram.link_taken_back(item);
        self.stats.reinsertions += 1;
        self.stats.reinserted_bytes += header.flash_len() as u64;
        true
    }

    /// Copies an intact record to a new place, for which there is room. The record's slot equals
    /// `slot` apart from its hits. It then names the new place, with the hits of `slot`. In a log
    /// that keeps all, the record crosses pages only if it `may_cross` (KEEP-5).
    pub(super) fn write_again<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        (slot, hash): (Slot, u64),
        (header, bytes): (&Header, &[u8]),
        may_cross: bool,
    ) {
        let record = Sizes {
            len: header.flash_len(),
            prefix: header.flash_prefix(),
            tag: self.index.tag(hash),
        };
        let log = self.flash.log_mut(n);
        let placed = log.place_record(record, may_cross);
        let place = placed.expect("room was asked for");
        let Place {
            position, offset, ..
        } = place;
        let body = &bytes[header.flash_body()..];
        let text = &bytes[header.flash_body()..header.flash_prefix()];
        let mut head = FlashHead::new(header, log.generation(position), text);
        head.append(body);
        let head = head.finish();
        log.put(position, offset, head);
        log.put(position, offset + head.len(), body);
        log.end_record(&place);
        self.flash.settle(queue, n);
        let (pos, _) = self
            .index
            .find_same(hash, slot)
            .expect("the slot was just found");
        let moved = self.moved_slot(n, (position, place.pages()), slot, hash, header);
        self.put_slot(&pos, hash, moved);
    }

    /// Counts a record that was written again, to these pages, and returns its new slot.
    pub(super) fn moved_slot(
        &mut self,
        n: usize,
        (position, pages): (u64, usize),
        slot: Slot,
        hash: u64,
        header: &Header,
    ) -> Slot {
        self.stats.reinsertions += 1;
        self.stats.reinserted_bytes += header.flash_len() as u64;
        let page = self.flash.log(n).place_of(position);
        self.index
            .flash_slot(hash, page, pages, header.expiry, self.now)
            .with_hot(slot.hot())
    }
}
