// SPDX-License-Identifier: Apache-2.0
//! Demotion: an item leaves DRAM. Its slot turns to the copy on flash, or a copy is written, or the
//! item is dropped.
//!
//! Called by eviction (`memory.rs`, `emptying.rs`). A clean item costs nothing: promotion kept its
//! copy. A dirty item goes through admission into a log's write buffer. Its slot names the place at
//! once, and reads are answered from the buffer until the device has the record.

use senko_io::{PAGE_SIZE, Queue};

use crate::arena::{Handle, LINKED};
use crate::dram::Leaving;
use crate::flash::admission::Refusal;
use crate::flash::log::{NoPlace, Place};
use crate::flash::open_pages::Sizes;
use crate::index::Slot;
use crate::record::{self, FlashHead, Header, Seal};
use crate::shard::Shard;
use crate::types::{AllocError, ItemRef};

/// An item on its way to a log that is larger than the log's write buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streamed {
    item: Handle,
    log: usize,
    position: u64,
    total: usize,
    put: usize,
    head: FlashHead,
    seal: Seal,
}

impl Shard {
    /// Takes an item out of DRAM: to flash if that is allowed and worth it, otherwise it is
    /// dropped.
    pub(crate) fn evict<Q: Queue>(
        &mut self,
        queue: &mut Q,
        item: Handle,
    ) -> Result<(), AllocError> {
        debug_assert_eq!(self.dram.arena().state(item), LINKED);
        let class = self.dram.arena().class_of(item);
        if self.is_dead(item) {
            self.stats.reclaimed += 1;
            if !self.dram.arena().header(item).fetched() {
                self.stats.expired_unfetched += 1;
            }
            self.unlink_item(item);
            return Ok(());
        }
        self.demote(queue, item)?;
        self.dram.left(class);
        Ok(())
    }

    /// Moves a live, linked, unpinned item out of DRAM.
    pub(crate) fn demote<Q: Queue>(
        &mut self,
        queue: &mut Q,
        item: Handle,
    ) -> Result<(), AllocError> {
        if self.keeps_all() {
            return self.demote_or_stay(queue, item);
        }
        let hash = self.item_hash(item);
        let header = self.dram.arena().header(item);
        if self.leave_clean(item, hash) {
            return Ok(());
        }
        let len = header.flash_len();
        let Some(n) = self.flash.choose_log() else {
            self.stats.drops_error += u64::from(!self.flash.logs().is_empty());
            self.drop_evicted(item, hash, header.fetched());
            return Ok(());
        };
        if len.div_ceil(PAGE_SIZE) as u64 > self.flash.log(n).most_pages() {
            self.stats.drops_size += 1;
            self.drop_evicted(item, hash, header.fetched());
            return Ok(());
        }
        if let Some(refusal) = self.flash.admitter_mut().refuses(len, header.fetched()) {
            self.refuse(item, hash, refusal);
            return Ok(());
        }
        if self.flash.log(n).must_stream(len) {
            return self.begin_stream(queue, n, item, hash, len);
        }
        // Check for room first. Otherwise an item that is tried again for lack of room would spend
        // the budget twice. A small record may fit into an open page, but room for a page is nearly
        // always there.
        if let Err(why) = self
            .flash
            .room_now(queue, n, len.div_ceil(PAGE_SIZE) as u64, 0)
        {
            return self.wait_or_drop(queue, n, item, hash, why);
        }
        // The rule has let an item in that waits.
        let admitted = match Leaving::has(self.dram.arena(), item) {
            true => self.flash.admitter_mut().spend(len),
            false => self.flash.admitter_mut().admit(len, header.fetched()),
        };
        if let Err(refusal) = admitted {
            self.refuse(item, hash, refusal);
            return Ok(());
        }
        self.leave_for(queue, n, item, hash, len);
        Ok(())
    }

    /// Demotes an item if it is clean.
    pub(crate) fn leave_clean(&mut self, item: Handle, hash: u64) -> bool {
        let copy = self.dram.arena().flash_copy(item);
        if copy == Slot::EMPTY || self.place(copy).is_none() {
            return false;
        }
        self.dram.chosen(item, hash);
        // The copy does not know that the item was read, so its slot starts with a hit.
        let fetched = self.dram.arena().header(item).fetched();
        self.turn_to_flash(item, hash, copy.with_hot(u8::from(fetched)));
        self.stats.demotions_clean += 1;
        true
    }

    /// Demotes an item to a log that has room for it.
    pub(crate) fn leave_for<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        item: Handle,
        hash: u64,
        len: usize,
    ) {
        let place = self
            .write_item(queue, n, item, hash, len)
            .expect("room was asked for");
        self.dram.chosen(item, hash);
        let again = Leaving::was_taken_back(self.dram.arena(), item);
        self.stats.admitted_bytes += if again { 0 } else { len as u64 };
        let slot = self.index.flash_slot(
            hash,
            self.flash.log(n).place_of(place.position),
            place.pages(),
            self.dram.arena().item_expiry(item),
            self.now,
        );
        self.turn_to_flash(item, hash, slot);
        self.stats.demotions += 1;
    }

    /// There is no place on flash now: wait for the device, unless it is stalled.
    fn wait_or_drop<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        item: Handle,
        hash: u64,
        why: NoPlace,
    ) -> Result<(), AllocError> {
        let pages = self
            .dram
            .arena()
            .header(item)
            .flash_len()
            .div_ceil(PAGE_SIZE) as u64;
        if self.keeps_all() {
            let waits = self.may_wait(queue, n, pages, why);
            return Err(if waits {
                AllocError::Busy
            } else {
                AllocError::OutOfMemory
            });
        }
        if !self.no_place(queue, n, pages, why) {
            return Err(AllocError::Busy);
        }
        self.stats.drops_busy += 1;
        let fetched = self.dram.arena().header(item).fetched();
        self.drop_evicted(item, hash, fetched);
        Ok(())
    }

    /// Asks for space if there is none for so many pages. Returns whether the device stalls, so
    /// that nobody should wait for it.
    pub(super) fn no_place<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        pages: u64,
        why: NoPlace,
    ) -> bool {
        match why {
            NoPlace::Buffers => self.flash.buffers_stall(n),
            NoPlace::Space => {
                self.flash.log_mut(n).want(pages);
                self.reclaim(queue, n);
                self.flash.space_stalls(n)
            }
        }
    }

    fn drop_evicted(&mut self, item: Handle, hash: u64, fetched: bool) {
        self.stats.evictions += 1;
        if !fetched {
            self.stats.evicted_unfetched += 1;
        }
        self.dram.note_evicted(item);
        self.dram.chosen(item, hash);
        self.unlink_item(item);
    }

    /// Copies an item's record to a place in a log, after the caller has checked that there is
    /// room.
    fn write_item<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        item: Handle,
        hash: u64,
        len: usize,
    ) -> Result<Place, NoPlace> {
        let record = Sizes {
            len,
            prefix: self.dram.arena().header(item).flash_prefix(),
            tag: self.index.tag(hash),
        };
        let place = self.flash.log_mut(n).place_record(record, false)?;
        let Place {
            position, offset, ..
        } = place;
        self.put_record(n, item, (position, offset));
        self.flash.log_mut(n).end_record(&place);
        self.flash.settle(queue, n);
        Ok(place)
    }

    /// Copies an item's record to a position of a log, and an offset in its page.
    pub(super) fn put_record(&mut self, n: usize, item: Handle, (position, offset): (u64, usize)) {
        let mut head = self.flash_head(n, item, position);
        let (from, to) = (head.header().head_len(), head.header().dram_len());
        let (log, mut seal) = (self.flash.log_mut(n), head.seal());
        let mut put = |at: usize, bytes: &[u8]| log.put(position, offset + at, bytes);
        seal.put(head.finish(), &mut put);
        let all = self.dram.arena();
        all.pieces(item, from, to, |piece| seal.put(piece, &mut put));
        seal.finish(&mut put);
    }

    /// Head and checksums of an item's record for a position on flash.
    fn flash_head(&self, n: usize, item: Handle, position: u64) -> FlashHead {
        let arena = self.dram.arena();
        let mut header = arena.header(item);
        header.access = record::coarse_access(arena.access(item));
        let generation = self.flash.log(n).generation(position);
        let (from, value) = (header.head_len(), header.dram_prefix());
        let text = arena.bytes(item, arena.header_len(item) + from, value - from);
        let mut head = FlashHead::new(&header, generation, text);
        if header.pieces().is_none() {
            arena.pieces(item, from, header.dram_len(), |piece| head.append(piece));
        }
        head
    }

    /// Replaces an item's slot by a flash slot and frees its memory. Another flash slot with the
    /// same tag is removed (INDEX-1).
    pub(super) fn turn_to_flash(&mut self, item: Handle, hash: u64, slot: Slot) {
        if self.index.is_in_run(slot) {
            // If a kill finds the item and its new slot, only the slot is followed (RESTART-1).
            self.dram.set_flash_copy(item, Slot::EMPTY);
        }
        if self.index.enter_narrow(hash, slot) {
            let pos = self.slot_of(item, hash);
            self.index.remove(pos);
            self.dram.release(item);
            return;
        }
        if let Some((pos, _)) = self.index.find(hash, Slot::is_flash) {
            self.index.remove(pos);
            self.stats.tag_drops += 1;
        }
        let pos = self.slot_of(item, hash);
        self.index.set(pos, slot);
        self.dram.release(item);
    }

    /// Drops an item that leaves DRAM and is not admitted to flash.
    pub(super) fn refuse(&mut self, item: Handle, hash: u64, refusal: Refusal) {
        match refusal {
            Refusal::Rule => self.stats.drops_rule += 1,
            Refusal::Budget => self.stats.drops_budget += 1,
        }
        let fetched = self.dram.arena().header(item).fetched();
        self.drop_evicted(item, hash, fetched);
    }

    /// Starts to write an item that is larger than the write buffers. It stays in DRAM, pinned,
    /// until all of it is placed.
    pub(crate) fn begin_stream<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        item: Handle,
        hash: u64,
        len: usize,
    ) -> Result<(), AllocError> {
        if self.stream.is_some() {
            return Err(AllocError::Busy);
        }
        let fetched = self.dram.arena().header(item).fetched();
        let reserve = self.flash.log(n).reserve();
        let position = match self.flash.log_mut(n).begin_stream(len, reserve) {
            Ok(position) => position,
            Err(why) => {
                self.flash.settle(queue, n);
                return self.wait_or_drop(queue, n, item, hash, why);
            }
        };
        // The item is refused after its pages were reserved. The reservation is given up by
        // streaming nothing. The buffers of the slice's empty end must still go to the device;
        // otherwise no buffer might become free again.
        if self.keeps_all() {
            self.flash.admitter_mut().spend_anyway(len);
        } else if let Err(refusal) = self.flash.admitter_mut().admit(len, fetched) {
            self.flash.log_mut(n).cancel_stream(len);
            self.flash.settle(queue, n);
            self.refuse(item, hash, refusal);
            return Ok(());
        }
        let head = self.flash_head(n, item, position);
        self.pin(ItemRef(item));
        self.stream = Some(Streamed {
            item,
            log: n,
            position,
            total: len,
            put: 0,
            seal: head.seal(),
            head,
        });
        self.pump_stream(queue);
        if self.stream.is_some() {
            Err(AllocError::Busy)
        } else {
            Ok(())
        }
    }

    /// Continues a streamed item as far as there are buffers.
    pub(crate) fn pump_stream<Q: Queue>(&mut self, queue: &mut Q) {
        let Some(mut s) = self.stream else { return };
        // Pages left empty at the end of the slice may have filled the open chunks.
        self.flash.settle(queue, s.log);
        while s.put < s.total {
            let Some((_, pages)) = self.flash.log_mut(s.log).stream(u64::MAX) else {
                self.stream = Some(s);
                return;
            };
            let to = (s.put + pages as usize * PAGE_SIZE).min(s.total);
            let (log, position) = (self.flash.log_mut(s.log), s.position);
            let mut put = |at: usize, bytes: &[u8]| log.put(position, at, bytes);
            let (mut from, end) = (s.seal.before(s.put), s.seal.before(to));
            if s.put == 0 {
                s.seal.put(s.head.finish(), &mut put);
                from = s.head.header().flash_body();
            }
            // DRAM has the record without its checksums.
            let sums = s.head.header().sums_len();
            let (all, seal) = (self.dram.arena(), &mut s.seal);
            all.pieces(s.item, from - sums, end - sums, |piece| {
                seal.put(piece, &mut put)
            });
            if to == s.total {
                seal.finish(&mut put);
            }
            s.put = to;
            self.flash.settle(queue, s.log);
        }
        self.stream = None;
        self.end_stream(s);
    }

    /// Gives up the item that is being streamed to a log whose device is out of use. The item stays
    /// in DRAM.
    pub(crate) fn cancel_stream(&mut self, n: usize) {
        let Some(s) = self.stream.filter(|s| s.log == n) else {
            return;
        };
        self.stream = None;
        self.flash.log_mut(n).break_stream();
        self.unpin(u64::from(s.item));
    }

    /// Ends a streamed item after all of it is placed. It leaves DRAM if it is still the item that
    /// was written.
    fn end_stream(&mut self, s: Streamed) {
        self.unpin(u64::from(s.item));
        if self.dram.arena().state(s.item) != LINKED {
            return;
        }
        let header = self.dram.arena().header(s.item);
        // A read of the item meanwhile changes nothing that flash must know.
        let parts = |h: &Header| (h.cas, h.expiry, h.flags, h.marks() | record::FETCHED);
        let same = parts(&header) == parts(s.head.header());
        self.stats.admitted_bytes += s.total as u64;
        let hash = self.item_hash(s.item);
        let page = self.flash.log(s.log).place_of(s.position);
        let slot = self.index.flash_slot(
            hash,
            page,
            s.total.div_ceil(PAGE_SIZE),
            header.expiry,
            self.now,
        );
        if !same || self.is_dead(s.item) {
            self.copy_died(slot);
            return;
        }
        // As in `demote`.
        let slot = slot.with_hot(u8::from(header.fetched()));
        let taken = self.keeps_all() && self.index.find(hash, Slot::is_flash).is_some();
        if taken || self.dram.arena().pins(s.item) > 0 {
            // Answers are being sent from it, or another item with its tag went to flash (KEEP-3):
            // keep it in DRAM, clean.
            self.dram.set_flash_copy(s.item, slot);
        } else {
            self.dram.chosen(s.item, hash);
            self.turn_to_flash(s.item, hash, slot);
        }
        self.stats.demotions += 1;
    }

    /// Moves a live, linked, unpinned item to flash, or says why it stays.
    pub(crate) fn demote_or_stay<Q: Queue>(
        &mut self,
        queue: &mut Q,
        item: Handle,
    ) -> Result<(), AllocError> {
        let hash = self.item_hash(item);
        if self.index.find(hash, Slot::is_flash).is_some() {
            return Err(AllocError::OutOfMemory); // KEEP-3
        }
        let header = self.dram.arena().header(item);
        if self.leave_clean(item, hash) {
            return Ok(());
        }
        let len = header.flash_len();
        let pages = len.div_ceil(PAGE_SIZE) as u64;
        if self.flash.admitter_mut().affords(len) {
            for _ in 0..self.flash.logs().len() {
                let Some(n) = self.flash.choose_log() else {
                    break;
                };
                if pages > self.flash.log(n).most_pages() {
                    continue;
                }
                if self.flash.log(n).must_stream(len) {
                    match self.begin_stream(queue, n, item, hash, len) {
                        Err(AllocError::OutOfMemory) => continue,
                        result => return result,
                    }
                }
                let reserve = self.flash.log(n).reserve();
                match self.flash.room_now(queue, n, pages, reserve) {
                    Ok(()) => {
                        self.flash.admitter_mut().spend_anyway(len);
                        self.leave_for(queue, n, item, hash, len);
                        return Ok(());
                    }
                    Err(why) if self.may_wait(queue, n, pages, why) => {
                        return Err(AllocError::Busy);
                    }
                    Err(_) => {}
                }
            }
        }
        Err(AllocError::OutOfMemory)
    }

    /// Whether a log that has no place for a record of this many pages will have one once its
    /// device completes operations.
    pub(crate) fn may_wait<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        pages: u64,
        why: NoPlace,
    ) -> bool {
        if why == NoPlace::Buffers {
            return !self.flash.buffers_stall(n);
        }
        self.flash.log_mut(n).want(pages);
        self.reclaim(queue, n);
        self.flash.space_comes(n)
    }
}
