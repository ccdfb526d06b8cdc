// SPDX-License-Identifier: Apache-2.0
//! An item leaves DRAM: its slot turns to the copy that flash has, or a copy is written, or it is
//! gone.
//!
//! Called by eviction (`memory.rs`). A clean item costs nothing: promotion kept its copy. A dirty
//! one goes through admission into a log's write buffer; the slot names its place at once, and
//! reads are answered from the buffer until the device has it.

use senko_io::{PAGE_SIZE, Queue};

use crate::arena::{Handle, LINKED};
use crate::dram::item::ITEM_HEADER;
use crate::flash::admission::Refusal;
use crate::flash::health::STALLED_MS;
use crate::flash::log::NoPlace;
use crate::index::Slot;
use crate::record::{self, RECORD_HEADER};
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
    header: [u8; RECORD_HEADER],
}

impl Shard {
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
        let header = self.arena.header(item);
        let copy = self.arena.flash_copy(item);
        if copy != Slot::EMPTY && self.place(copy).is_some() {
            self.leave_clean(item, hash, copy);
            return Ok(());
        }
        let len = header.record_len();
        let Some(n) = self.choose_log() else {
            self.stats.drops_error += u64::from(!self.logs.is_empty());
            self.drop_evicted(item, hash, header.fetched());
            return Ok(());
        };
        if len.div_ceil(PAGE_SIZE) as u64 > self.logs[n].most_pages() {
            self.stats.drops_size += 1;
            self.drop_evicted(item, hash, header.fetched());
            return Ok(());
        }
        if let Some(refusal) = self.admitter.refuses(len, header.fetched()) {
            self.refuse(item, hash, refusal);
            return Ok(());
        }
        if self.logs[n].must_stream(len) {
            return self.begin_stream(queue, n, item, hash, len);
        }
        // Room first: the budget must not be spent on an item that comes again because there was
        // none. A small record may fit an open page, but a page of room is nearly always there.
        if let Err(why) =
            self.logs[n].room_now(queue, len.div_ceil(PAGE_SIZE) as u64, 0, self.steady_ms)
        {
            return self.wait_or_drop(queue, n, item, hash, why);
        }
        if let Err(refusal) = self.admitter.admit(len, header.fetched()) {
            self.refuse(item, hash, refusal);
            return Ok(());
        }
        self.leave_for(queue, n, item, hash, len);
        Ok(())
    }

    /// A clean item leaves DRAM.
    pub(crate) fn leave_clean(&mut self, item: Handle, hash: u64, copy: Slot) {
        self.policy.evicted(&self.arena, item, hash);
        // The copy does not know that the item was read: a warm slot says so.
        let fetched = self.arena.header(item).fetched();
        self.turn_to_flash(item, hash, copy.with_hot(u8::from(fetched)));
        self.stats.demotions_clean += 1;
    }

    /// An item leaves DRAM for a log that has room for it.
    pub(crate) fn leave_for<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        item: Handle,
        hash: u64,
        len: usize,
    ) {
        let position = self
            .write_item(queue, n, item, hash, len)
            .expect("room was asked for");
        self.policy.evicted(&self.arena, item, hash);
        let slot = self.index.flash_slot(
            hash,
            self.logs[n].place_of(position),
            len.div_ceil(PAGE_SIZE),
            self.arena.item_expiry(item),
            self.now,
        );
        self.turn_to_flash(item, hash, slot);
        self.stats.demotions += 1;
        self.stats.admitted_bytes += len as u64;
    }

    /// The logs whose device takes items have turns; none does while the shard is closed.
    pub(crate) fn choose_log(&mut self) -> Option<usize> {
        if self.closed {
            return None;
        }
        for _ in 0..self.logs.len() {
            self.next_log = (self.next_log + 1) % self.logs.len();
            if self.logs[self.next_log].health.takes_items() {
                return Some(self.next_log);
            }
        }
        None
    }

    /// There is no place on flash now: wait for the device, unless it stalls.
    fn wait_or_drop<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        item: Handle,
        hash: u64,
        why: NoPlace,
    ) -> Result<(), AllocError> {
        let pages = self.arena.header(item).record_len().div_ceil(PAGE_SIZE) as u64;
        if self.keeps_all() {
            let waits = self.may_wait(queue, n, pages, why);
            return Err(if waits {
                AllocError::Busy
            } else {
                AllocError::OutOfMemory
            });
        }
        let stalled = match why {
            NoPlace::Buffers => self.buffers_stall(n),
            NoPlace::Space => {
                self.logs[n].want(pages);
                self.reclaim(queue, n);
                self.reclaims[n].stalled(self.steady_ms, STALLED_MS)
                    || self.logs[n].discards.stall(self.steady_ms, STALLED_MS)
            }
        };
        if !stalled {
            return Err(AllocError::Busy);
        }
        self.stats.drops_busy += 1;
        let fetched = self.arena.header(item).fetched();
        self.drop_evicted(item, hash, fetched);
        Ok(())
    }

    /// Whether the write buffers of a log have been with its device for too long.
    pub(crate) fn buffers_stall(&self, n: usize) -> bool {
        self.logs[n]
            .oldest_write_ms()
            .is_some_and(|since| self.steady_ms.saturating_sub(since) > STALLED_MS)
    }

    fn drop_evicted(&mut self, item: Handle, hash: u64, fetched: bool) {
        self.stats.evictions += 1;
        if !fetched {
            self.stats.evicted_unfetched += 1;
        }
        if self.evicted.is_some() {
            self.note_evicted(item);
        }
        self.policy.evicted(&self.arena, item, hash);
        self.unlink_item(item);
    }

    /// Copies an item's record to a place in a log; the caller has checked that there is room.
    fn write_item<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        item: Handle,
        hash: u64,
        len: usize,
    ) -> Result<u64, NoPlace> {
        let (log, tag) = (&mut self.logs[n], self.index.tag(hash));
        let (position, offset) = if len <= PAGE_SIZE {
            log.place_small(len, tag)?
        } else {
            log.place_large(len, self.arena.header(item).prefix_len(), tag)?
        };
        let head = self.flash_header(n, item, len, position);
        let log = &mut self.logs[n];
        log.put(position, offset, &head);
        let mut at = offset + RECORD_HEADER;
        self.arena.pieces(item, RECORD_HEADER, len, |piece| {
            log.put(position, at, piece);
            at += piece.len();
        });
        log.settle(queue, self.steady_ms);
        Ok(position)
    }

    /// The header that an item's record has at a position on flash, checksum included.
    fn flash_header(
        &self,
        n: usize,
        item: Handle,
        len: usize,
        position: u64,
    ) -> [u8; RECORD_HEADER] {
        let mut header = self.arena.header(item);
        header.access = record::coarse_access(self.arena.access(item));
        let text = self.arena.bytes(
            item,
            ITEM_HEADER + RECORD_HEADER,
            header.prefix_len() - RECORD_HEADER,
        );
        let mut bytes = record::flash_head(&header, self.logs[n].generation(position), text);
        let mut crc = crc32c::crc32c(&bytes[4..]);
        self.arena.pieces(item, RECORD_HEADER, len, |piece| {
            crc = crc32c::crc32c_append(crc, piece);
        });
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Replaces an item's slot by a flash slot and frees its memory. Another flash slot with the
    /// same tag goes (INDEX-1).
    fn turn_to_flash(&mut self, item: Handle, hash: u64, slot: Slot) {
        if let Some((pos, _)) = self.index.find(hash, Slot::is_flash) {
            self.index.remove(pos);
            self.stats.tag_drops += 1;
        }
        let dram = self.index.dram_slot(hash, item);
        let (pos, _) = self
            .index
            .find(hash, |s| s == dram)
            .expect("a linked item has a slot (SHARD-1)");
        self.index.set(pos, slot);
        self.release_item(item);
    }

    /// Takes a linked item out of policy and accounts and frees its memory, its slot being gone.
    pub(crate) fn release_item(&mut self, item: Handle) {
        let class = self.arena.class_of(item);
        self.policy.remove(&mut self.arena, class, item);
        self.dram_items -= 1;
        self.dram_item_bytes -= self.arena.item_bytes(item) as u64;
        self.arena.set_linked(item, false);
        if self.arena.pins(item) == 0 {
            self.arena.free_item(item);
        }
    }

    /// An item that leaves DRAM is not wanted on flash.
    fn refuse(&mut self, item: Handle, hash: u64, refusal: Refusal) {
        match refusal {
            Refusal::Rule => self.stats.drops_rule += 1,
            Refusal::Budget => self.stats.drops_budget += 1,
        }
        let fetched = self.arena.header(item).fetched();
        self.drop_evicted(item, hash, fetched);
    }

    /// Starts to write an item that is larger than the write buffers; it stays in DRAM, pinned,
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
        let fetched = self.arena.header(item).fetched();
        let reserve = self.logs[n].reserve();
        let position = match self.logs[n].begin_stream(len, reserve) {
            Ok(position) => position,
            Err(why) => {
                self.logs[n].settle(queue, self.steady_ms);
                return self.wait_or_drop(queue, n, item, hash, why);
            }
        };
        // Refused, the pages are reserved but the item goes: the reservation is given up by
        // streaming nothing. The buffers that the empty end of the slice took go to the device, or
        // nobody might find one free again.
        if self.keeps_all() {
            self.admitter.spend_anyway(len);
        } else if let Err(refusal) = self.admitter.admit(len, fetched) {
            self.logs[n].cancel_stream(len);
            self.logs[n].settle(queue, self.steady_ms);
            self.refuse(item, hash, refusal);
            return Ok(());
        }
        let header = self.flash_header(n, item, len, position);
        self.pin(ItemRef(item));
        self.stream = Some(Streamed {
            item,
            log: n,
            position,
            total: len,
            put: 0,
            header,
        });
        self.pump_stream(queue);
        if self.stream.is_some() {
            Err(AllocError::Busy)
        } else {
            Ok(())
        }
    }

    /// Goes on with a streamed item as far as there are buffers.
    pub(crate) fn pump_stream<Q: Queue>(&mut self, queue: &mut Q) {
        let Some(mut s) = self.stream else { return };
        // Pages left empty at the end of the slice may have filled the open chunks.
        self.logs[s.log].settle(queue, self.steady_ms);
        while s.put < s.total {
            let Some((position, pages)) = self.logs[s.log].stream(u64::MAX) else {
                self.stream = Some(s);
                return;
            };
            let to = (s.put + pages as usize * PAGE_SIZE).min(s.total);
            let mut offset = 0;
            if s.put == 0 {
                self.logs[s.log].put(position, 0, &s.header);
                offset = RECORD_HEADER;
            }
            let log = &mut self.logs[s.log];
            self.arena.pieces(s.item, s.put + offset, to, |piece| {
                log.put(position, offset, piece);
                offset += piece.len();
            });
            s.put = to;
            log.settle(queue, self.steady_ms);
        }
        self.stream = None;
        self.end_stream(s);
    }

    /// Gives up the item that is being streamed to a log, whose device is out of use: it stays in
    /// DRAM.
    pub(crate) fn cancel_stream(&mut self, n: usize) {
        let Some(s) = self.stream.filter(|s| s.log == n) else {
            return;
        };
        self.stream = None;
        self.logs[n].break_stream();
        self.unpin(u64::from(s.item));
    }

    /// All of a streamed item is placed: it leaves DRAM if it is still the one that was written.
    fn end_stream(&mut self, s: Streamed) {
        self.unpin(u64::from(s.item));
        if self.arena.state(s.item) != LINKED {
            return;
        }
        let header = self.arena.header(s.item);
        let written = record::Header::read(&s.header);
        // That it was read meanwhile changes nothing that flash has to know.
        let parts = |h: &record::Header| (h.cas, h.expiry, h.flags, h.marks | record::FETCHED);
        let same = parts(&header) == parts(&written);
        self.stats.admitted_bytes += s.total as u64;
        let hash = self.item_hash(s.item);
        let page = self.logs[s.log].place_of(s.position);
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
        if taken || self.arena.pins(s.item) > 0 {
            // Answers are being sent from it, or its tag went to flash with another (KEEP-3): keep
            // it in DRAM, clean.
            self.arena.set_flash_copy(s.item, slot);
        } else {
            self.policy.evicted(&self.arena, s.item, hash);
            self.turn_to_flash(s.item, hash, slot);
        }
        self.stats.demotions += 1;
    }
}
