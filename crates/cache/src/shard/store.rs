// SPDX-License-Identifier: Apache-2.0
//! Changes: storing, rewriting, deleting and marking items. All of these happen in DRAM. A flash
//! copy that no longer matches becomes unreachable.

use senko_io::Queue;

use crate::arena::{Handle, LINKED};
use crate::dram::item::{CHAIN_HEADER, ITEM_HEADER};
use crate::index::{Slot, WidePos};
use crate::key::Key;
use crate::record::{self, Header, Meta, TRAILER};
use crate::shard::Shard;
use crate::types::{AllocError, Body, Draft, Filling, FlashRef, ItemRef};

impl Shard {
    /// Memory for an item to be stored; may evict. The item is not visible before [`Shard::link`].
    pub fn alloc<Q: Queue>(
        &mut self,
        queue: &mut Q,
        key: &Key<'_>,
        flags: u32,
        expiry: u32,
        value_len: usize,
    ) -> Result<Draft, AllocError> {
        let len = u32::try_from(value_len).map_err(|_| AllocError::TooLarge)?;
        let header = Header::new(
            key.bytes.len() as u8,
            len,
            flags,
            expiry,
            self.next_cas_most(),
        );
        self.alloc_for(queue, key, header)
    }

    /// As [`Shard::alloc`], for an item that gets a CAS value from the client, or may get another
    /// expiry before it is linked.
    pub fn alloc_wide<Q: Queue>(
        &mut self,
        queue: &mut Q,
        key: &Key<'_>,
        flags: u32,
        expiry: u32,
        value_len: usize,
    ) -> Result<Draft, AllocError> {
        let len = u32::try_from(value_len).map_err(|_| AllocError::TooLarge)?;
        let mut header = Header::new(key.bytes.len() as u8, len, flags, expiry, u64::MAX);
        header.reserve_expiry();
        self.alloc_for(queue, key, header)
    }

    fn alloc_for<Q: Queue>(
        &mut self,
        queue: &mut Q,
        key: &Key<'_>,
        mut header: Header,
    ) -> Result<Draft, AllocError> {
        if self.config.no_evict {
            // A touch must not need memory.
            header.reserve_expiry();
        }
        header.cas = 0;
        let len = header.dram_len();
        if len + ITEM_HEADER > self.config.max_item {
            return Err(AllocError::TooLarge);
        }
        if !self.fits_dram(len) {
            return Err(AllocError::OutOfMemory);
        }
        // The new item removes sorted slots of its key, once its value is here.
        self.prefetch_narrow(key.hash);
        self.grow_index(queue, key.hash);
        if self.keeps_all() && self.index.room_for(key.hash) <= self.dram.drafts() {
            // Its segment can't grow, and no slot in it may be dropped.
            return Err(AllocError::OutOfMemory);
        }
        let words = self.words(len);
        let item = self.take_item(queue, len)?;
        self.dram.draft_began();
        let (start, prefix) = (words.header(), header.dram_prefix());
        let at = record::write_prefix(
            self.dram.draft_bytes(item, start, prefix),
            &header,
            key.bytes,
        );
        debug_assert_eq!(at, prefix);
        if header.has_answer() {
            self.dram
                .put(item, prefix + header.value_len as usize, TRAILER);
        }
        Ok(Draft(Body::Item(Filling {
            item,
            filled: 0,
            chunk: item,
            at: start + prefix,
        })))
    }

    /// Adds the next bytes of the value; at most [`Shard::unfilled`]. Returns how many: all, unless
    /// the value goes to flash and its buffers are being written. Then try again after the next
    /// disk completion.
    pub fn fill<Q: Queue>(&mut self, queue: &mut Q, draft: &mut Draft, bytes: &[u8]) -> usize {
        debug_assert!(bytes.len() <= self.unfilled(draft));
        match &mut draft.0 {
            Body::Upload(id) => return self.flash.fill_upload(queue, *id, bytes),
            Body::Item(filling) => self.fill_item(filling, bytes),
        }
        bytes.len()
    }

    fn fill_item(&mut self, draft: &mut Filling, mut bytes: &[u8]) {
        draft.filled += bytes.len();
        while !bytes.is_empty() {
            let room = self
                .dram
                .arena()
                .class(self.dram.arena().class_of(draft.chunk))
                .size
                - draft.at;
            let n = room.min(bytes.len());
            self.dram
                .draft_bytes(draft.chunk, draft.at, n)
                .copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            draft.at += n;
            if !bytes.is_empty() {
                draft.chunk = self.dram.arena().next_in_chain(draft.chunk);
                draft.at = CHAIN_HEADER;
            }
        }
    }
    /// Bytes of the value still to be filled.
    pub fn unfilled(&self, draft: &Draft) -> usize {
        match &draft.0 {
            Body::Upload(id) => self.flash.upload(*id).unfilled(),
            Body::Item(f) => self.dram.arena().header(f.item).value_len as usize - f.filled,
        }
    }
    /// Metadata of a draft (flags, expiry, lengths as allocated).
    pub fn draft_meta(&self, draft: &Draft) -> Meta {
        match &draft.0 {
            Body::Upload(id) => self.flash.upload(*id).header().meta(self.now),
            Body::Item(filling) => self.dram.arena().header(filling.item).meta(self.now),
        }
    }
    /// Marks that the key was given in base64 (meta `b`), on a draft.
    pub fn set_draft_binary_key(&mut self, draft: &mut Draft, on: bool) {
        self.edit(draft.item(), |h| {
            let m = h.meta(0);
            h.set_marks(m.fetched, m.stale, m.won, on);
        });
    }
    /// Marks a draft stale or won from the start (meta vivify, `ms` with I).
    pub fn set_draft_marks(&mut self, draft: &mut Draft, stale: bool, won: bool) {
        self.edit(draft.item(), |h| {
            let m = h.meta(0);
            h.set_marks(m.fetched, stale, won, m.binary_key);
        });
    }

    /// Sets the expiry of a draft of [`Shard::alloc_wide`] (meta `ms` with I keeps the old item's
    /// expiry).
    pub fn set_draft_expiry(&mut self, draft: &mut Draft, expiry: u32) {
        self.edit(draft.item(), |h| h.expiry = expiry);
    }

    /// Makes a complete draft the key's item: The old item is unlinked and its flash copy becomes
    /// unreachable. Every slot with a matching tag is dropped; a slot of another key is counted.
    /// `cas`: the item's CAS value (meta `E`), for a draft of [`Shard::alloc_wide`]; otherwise a
    /// fresh one.
    ///
    /// If nothing is evicted ([`Shard::keeps_all`]), no flash slot is dropped. If [`Shard::lookup`]
    /// named a flash slot, the caller has fetched its header, and has removed the slot if it was
    /// the key's own ([`Shard::remove_flash`]).
    pub fn link(&mut self, draft: Draft, cas: Option<u64>) -> ItemRef {
        debug_assert_eq!(self.unfilled(&draft), 0);
        self.dram.draft_ended();
        let item = draft.item();
        let cas = cas.unwrap_or_else(|| self.next_cas());
        self.edit(item, |h| h.cas = cas);
        // An item counts as stored when it is linked: a flush while its value was arriving does not
        // remove it.
        self.dram.set_epoch(item, self.epoch);
        let hash = self.item_hash(item);
        match self.replaced(item, hash) {
            Some((pos, old)) if old.is_dram() => self.replace(pos, old, item, hash),
            replaced => {
                // Before the key has its new slot: no kill may leave both (RESTART-1).
                self.stats.flash_overwrites += self.index.remove_narrow(hash);
                match replaced {
                    Some((pos, old)) => self.replace(pos, old, item, hash),
                    None => self.enter(hash, self.index.dram_slot(hash, item)),
                }
            }
        }
        self.dram.link(item, hash, false);
        self.stats.total_items += 1;
        ItemRef(item)
    }

    /// The slot that a new item replaces: that of the key's item in DRAM, otherwise the flash slot
    /// with the key's tag.
    fn replaced(&self, item: Handle, hash: u64) -> Option<(WidePos, Slot)> {
        let key = self.dram.arena().item_key(item);
        let own = self.index.find(hash, |slot| {
            slot.is_dram() && self.dram.arena().item_key(self.index.handle(slot)) == key
        });
        // SHARD-1: a key in DRAM has only that one slot. A flash slot with this tag is another
        // key's, and stays. If every item is kept, a key that is not in DRAM has no slot: a flash
        // slot with its tag is another key's (KEEP-2).
        if own.is_some() || self.keeps_all() {
            return own;
        }
        self.index.find(hash, Slot::is_flash)
    }

    /// Stores an item's slot in place of another with its tag. One word changes, so at every
    /// instant the key has the old slot or the new one (RESTART-1).
    fn replace(&mut self, pos: WidePos, old: Slot, item: Handle, hash: u64) {
        self.index.set(pos, self.index.dram_slot(hash, item));
        if old.is_flash() {
            // Without a read it is unknown whether this was the key's own old copy or another key's
            // slot. It is dropped either way, and counted.
            self.stats.flash_overwrites += 1;
            return;
        }
        let old = self.index.handle(old);
        self.copy_died(self.dram.arena().flash_copy(old));
        self.dram.release(old);
    }

    /// Drops an item that was being filled.
    pub(super) fn abort_item(&mut self, item: Handle) {
        debug_assert_ne!(self.dram.arena().state(item), LINKED);
        self.dram.draft_ended();
        self.dram.free_item(item);
    }

    /// A new complete draft: the old item's value and the draft's value in the requested order
    /// (`append`: old first). It has the old item's flags and expiry, and neither the stale nor the
    /// won mark, as in memcached. `draft` is used up, except with [`AllocError::Busy`], which
    /// returns it. The new draft is of [`Shard::alloc_wide`] if the draft was.
    pub fn concat<Q: Queue>(
        &mut self,
        queue: &mut Q,
        old: ItemRef,
        draft: Draft,
        append: bool,
    ) -> Result<Draft, (AllocError, Option<Draft>)> {
        let (old_header, new_header) = (
            self.dram.arena().header(old.0),
            self.dram.arena().header(draft.item()),
        );
        let len = old_header.value_len as usize + new_header.value_len as usize;
        let mut key = [0; crate::key::MAX_KEY];
        let key = &mut key[..old_header.key_len as usize];
        key.copy_from_slice(self.dram.arena().item_key(old.0));
        let pin = self.try_pin(old);
        let made = u32::try_from(len)
            .map_err(|_| AllocError::TooLarge)
            .and_then(|len| {
                let header = old_header.with_value(len, new_header.cas_room());
                self.alloc_for(queue, &Key::new(key, self.config.hash_seed), header)
            });
        let result = match made {
            Ok(mut made) => {
                let parts = if append {
                    [old.0, draft.item()]
                } else {
                    [draft.item(), old.0]
                };
                for part in parts {
                    self.copy_into(queue, part, &mut made);
                }
                let m = old_header.meta(0);
                self.edit(made.item(), |h| {
                    h.set_marks(false, false, false, m.binary_key)
                });
                self.abort_item(draft.item());
                Ok(made)
            }
            Err(AllocError::Busy) => Err((AllocError::Busy, Some(draft))),
            Err(e) => {
                self.abort_item(draft.item());
                Err((e, None))
            }
        };
        if let Some(pin) = pin {
            self.unpin(pin);
        }
        result
    }

    /// Appends the value of an item to a draft.
    fn copy_into<Q: Queue>(&mut self, queue: &mut Q, from: Handle, to: &mut Draft) {
        let header = self.dram.arena().header(from);
        let (mut at, end) = (
            header.dram_prefix(),
            header.dram_prefix() + header.value_len as usize,
        );
        let mut buf = [0; 4096];
        while at < end {
            let n = buf.len().min(end - at);
            let mut have = 0;
            self.dram.arena().pieces(from, at, at + n, |piece| {
                buf[have..have + piece.len()].copy_from_slice(piece);
                have += piece.len();
            });
            self.fill(queue, to, &buf[..n]);
            at += n;
        }
    }

    /// Gives an item another (short) value with a fresh CAS value (or `cas`). This happens in place
    /// if the value fits, otherwise in a new item that is linked. A value of another length clears
    /// the stale and won marks, as in memcached.
    ///
    /// # Errors
    /// See [`AllocError`]; the item is then unchanged.
    pub fn rewrite<Q: Queue>(
        &mut self,
        queue: &mut Q,
        item: ItemRef,
        value: &[u8],
        cas: Option<u64>,
    ) -> Result<ItemRef, AllocError> {
        let header = self.dram.arena().header(item.0);
        let room = header.cas_room().max(cas.unwrap_or(self.next_cas_most()));
        let fits = header.value_len as usize == value.len() && header.takes_cas(room);
        if fits && self.dram.arena().pins(item.0) == 0 {
            let cas = cas.unwrap_or_else(|| self.next_cas());
            self.edit(item.0, |h| h.cas = cas);
            self.dram.put(item.0, header.dram_prefix(), value);
            return Ok(item);
        }
        let mut key = [0; crate::key::MAX_KEY];
        let key = &mut key[..header.key_len as usize];
        key.copy_from_slice(self.dram.arena().item_key(item.0));
        let pin = self.try_pin(item);
        let made = u32::try_from(value.len())
            .map_err(|_| AllocError::TooLarge)
            .and_then(|len| {
                let made = header.with_value(len, room);
                self.alloc_for(queue, &Key::new(key, self.config.hash_seed), made)
            });
        if let Some(pin) = pin {
            self.unpin(pin);
        }
        let mut made = made?;
        self.fill(queue, &mut made, value);
        let m = header.meta(0);
        let same = header.value_len as usize == value.len();
        self.edit(made.item(), |h| {
            h.set_marks(
                same && m.fetched,
                same && m.stale,
                same && m.won,
                m.binary_key,
            );
        });
        Ok(self.link(made, cas))
    }

    /// Removes an item, and its flash copy.
    pub fn unlink(&mut self, item: ItemRef) {
        self.unlink_item(item.0);
    }

    /// Removes a flash item that [`crate::Fetched::Header`] confirmed.
    pub fn remove_flash(&mut self, key: &Key<'_>, at: FlashRef) {
        self.drop_flash_slot(key.hash, Slot(at.0));
    }

    /// Gives an item's head room for this expiry and this CAS value (0: for any that its commands
    /// give). An item without such room moves to another chunk.
    ///
    /// # Errors
    /// See [`AllocError`]; the item is then unchanged.
    pub fn widen<Q: Queue>(
        &mut self,
        queue: &mut Q,
        item: ItemRef,
        expiry: u32,
        cas: u64,
    ) -> Result<ItemRef, AllocError> {
        let old = self.dram.arena().header(item.0);
        let header = old.with_room(expiry, cas);
        if header.head_len() == old.head_len() {
            return Ok(item);
        }
        let len = header.dram_len();
        let pin = self.try_pin(item);
        let made = self.take_item(queue, len);
        if let Some(pin) = pin {
            self.unpin(pin);
        }
        let made = made?;
        self.dram.copy_widened(item.0, made, &header);
        let hash = self.item_hash(item.0);
        let pos = self.slot_of(item.0, hash);
        self.index.set(pos, self.index.dram_slot(hash, made));
        self.copy_died(self.dram.arena().flash_copy(item.0));
        self.dram.release(item.0);
        self.dram.link(made, hash, true);
        Ok(ItemRef(made))
    }

    /// Sets the expiry, for which there is room ([`Shard::widen`]); the item is dirty afterwards.
    pub fn set_expiry(&mut self, item: ItemRef, expiry: u32) {
        if self.dram.arena().item_expiry(item.0) != expiry {
            self.edit(item.0, |h| h.expiry = expiry);
        }
    }
    /// Sets stale and won marks (meta commands); the item is dirty if they changed.
    pub fn set_marks(&mut self, item: ItemRef, stale: bool, won: bool) {
        let m = self.meta(item);
        if (m.stale, m.won) != (stale, won) {
            self.edit(item.0, |h| h.set_marks(m.fetched, stale, won, m.binary_key));
        }
    }
    /// Sets an item's CAS value (meta `E`), for which there is room ([`Shard::widen`]).
    pub fn set_cas(&mut self, item: ItemRef, cas: u64) {
        self.edit(item.0, |h| h.cas = cas);
    }
    /// A number that no fresh CAS value exceeds while a draft is filled.
    fn next_cas_most(&self) -> u64 {
        self.cas.saturating_add(1 << 40)
    }
    /// A fresh CAS value.
    pub fn next_cas(&mut self) -> u64 {
        self.cas += u64::from(self.config.shards.max(1));
        self.cas
    }

    /// Changes the head of a record that has room for it. The flash copy then differs from the item
    /// (SHARD-3).
    fn edit(&mut self, item: Handle, change: impl FnOnce(&mut Header)) {
        self.copy_died(self.dram.arena().flash_copy(item));
        self.dram.set_flash_copy(item, Slot::EMPTY);
        let mut header = self.dram.arena().header(item);
        let room = header.head_len();
        change(&mut header);
        header.widen();
        assert_eq!(header.head_len(), room, "the head has room for the change");
        self.dram.set_header(item, &header);
    }

    /// Drops everything stored before this call, and ends a fill (FILL-2).
    pub fn flush_all(&mut self) {
        self.end_fill();
        self.epoch = self.epoch.wrapping_add(1);
        self.flash.flush_all();
        self.forget_sorted();
        if self.epoch == 0 {
            // Items of an epoch 65,536 flushes ago would become visible again, and items of epoch 0
            // at once.
            for n in 0..self.index.segments() {
                self.clear_segment(n);
            }
        }
    }
}
