// SPDX-License-Identifier: Apache-2.0
//! The DRAM tier: the items in the arena, the policy that evicts them, and their counts.
//!
//! A [`Dram`] knows neither index nor flash. The shard reads items through [`Dram::arena`], and
//! changes them only through the methods here. So the policy's queues, the counts and the pins
//! always agree with the arena.
//!
//! Always holds:
//! - DRAM-1: an item is in the policy's queues or among those that leave next, and counted, exactly
//!   while it is linked.
//! - DRAM-2: the memory of a pinned item does not change. If the item is no longer linked, its last
//!   pin frees it.

mod classes; // evictions and counters of each size class
mod evicted; // evicted items that watchers will see
pub(crate) mod item; // an item in the arena
mod leaving; // small items that leave next
pub(crate) mod policy; // which items leave DRAM first
mod share; // how index and items share memory

use crate::arena::{Arena, Handle, LINKED};
use crate::key::HashSeed;
use crate::record::Header;
use crate::stats::{ClassCounts, SlabClassStats};
use crate::types::{Evicted, Pinned};
use classes::Classes;
use evicted::EvictedItems;
use item::Words;
pub(crate) use leaving::{Leaving, SMALL};
use policy::Policy;
pub(crate) use share::LEAST_PAGES;
use share::Share;

use crate::index::Slot;

/// A page may move after this fraction of the items was evicted. A move costs the class as many
/// items as the page holds, so moves must be rare beside normal evictions.
const TURNOVER: u64 = 8;
const REBALANCE_EVERY: u64 = 256;

/// The items of a shard in DRAM.
#[derive(Debug)]
pub(crate) struct Dram {
    arena: Arena,
    policy: Box<dyn Policy>,
    /// If small items leave in the order of their hashes.
    leaving: Option<Leaving>,
    /// Evictions and counters of each size class.
    classes: Classes,
    share: Share,
    evicted: EvictedItems,
    /// Linked items, and the bytes of their chunks.
    items: u64,
    item_bytes: u64,
    /// Bytes of the items that have pins.
    pinned_bytes: usize,
    /// Whether an answer was refused a pin since the last one ended.
    pins_wanted: bool,
    /// Drafts that are neither linked nor dropped.
    drafts: usize,
}

impl Dram {
    /// A tier without items; `memory` bytes for items and index together.
    pub fn new(arena: Arena, policy: Box<dyn Policy>, memory: usize) -> Dram {
        Dram {
            arena,
            policy,
            leaving: None,
            classes: Classes::new(Arena::item_classes()),
            share: Share::new(memory),
            evicted: EvictedItems::default(),
            items: 0,
            item_bytes: 0,
            pinned_bytes: 0,
            pins_wanted: false,
            drafts: 0,
        }
    }

    /// From now on small items may wait for others with similar hashes before they leave, about so
    /// many bytes of them.
    pub fn gather_leaving(&mut self, target: usize, seed: HashSeed) {
        self.leaving = Some(Leaving::new(target, seed));
    }
    /// The items that leave next, if items wait for others.
    pub fn leaving(&self) -> Option<&Leaving> {
        self.leaving.as_ref()
    }

    /// The arena, for reading items.
    #[inline]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }
    /// Linked items.
    #[inline]
    pub fn items(&self) -> u64 {
        self.items
    }
    /// Bytes of their chunks.
    pub fn item_bytes(&self) -> u64 {
        self.item_bytes
    }

    // ---- an item under construction ----

    /// A chunk of a class, if one is free.
    #[inline]
    pub fn alloc(&mut self, class: usize) -> Option<Handle> {
        self.arena.alloc(class)
    }
    /// The same, also from a reserved page.
    pub fn alloc_reserved(&mut self, class: usize) -> Option<Handle> {
        self.arena.alloc_reserved(class)
    }
    /// A free chunk of the pages that a class has.
    pub fn alloc_in_pages(&mut self, class: usize) -> Option<Handle> {
        self.arena.alloc_in_pages(class)
    }
    /// A free chunk of a page that is being emptied.
    pub fn alloc_emptied(&mut self, page: usize) -> Option<Handle> {
        self.arena.alloc_emptied(page)
    }
    /// Makes a chunk the first one of an item.
    pub fn init_item(&mut self, item: Handle, now: u32, words: Words) {
        self.arena.init_item(item, now, words);
    }
    /// Appends a chunk to an item's chain behind `last`.
    pub fn chain(&mut self, item: Handle, last: Handle, chunk: Handle) {
        self.arena.chain(item, last, chunk);
    }
    /// Writes bytes at an offset of an item's record.
    #[inline]
    pub fn put(&mut self, item: Handle, from: usize, bytes: &[u8]) {
        self.arena.put(item, from, bytes);
    }
    /// Copies an item to a new one whose head has more fields.
    pub fn copy_widened(&mut self, from: Handle, to: Handle, head: &Header) {
        let mut body = Vec::with_capacity(head.dram_len());
        let old = self.arena.header(from);
        let pieces = |piece: &[u8]| body.extend_from_slice(piece);
        self.arena
            .pieces(from, old.head_len(), old.dram_len(), pieces);
        self.arena.set_header(to, head);
        self.arena.put(to, head.head_len(), &body);
        self.arena.set_access(to, self.arena.access(from));
    }
    /// Bytes of a chunk of an item under construction.
    #[inline]
    pub fn draft_bytes(&mut self, chunk: Handle, from: usize, len: usize) -> &mut [u8] {
        debug_assert_ne!(self.arena.state(chunk), LINKED);
        self.arena.bytes_mut(chunk, from, len)
    }
    /// Frees an item that is not linked and has no pins.
    pub fn free_item(&mut self, item: Handle) {
        debug_assert_ne!(self.arena.state(item), LINKED);
        self.arena.free_item(item);
    }
    /// Counts a new draft.
    pub fn draft_began(&mut self) {
        self.drafts += 1;
    }
    /// Notes that a draft was linked, or is about to be freed.
    pub fn draft_ended(&mut self) {
        self.drafts -= 1;
    }
    /// Drafts that are neither linked nor dropped.
    pub fn drafts(&self) -> usize {
        self.drafts
    }

    // ---- a linked item ----

    /// Counts an item, which has a slot now, and gives it to the policy. `known`: it is not on
    /// probation.
    pub fn link(&mut self, item: Handle, hash: u64, known: bool) {
        self.arena.set_linked(item, true);
        let class = self.arena.class_of(item);
        self.policy
            .insert(&mut self.arena, class, item, hash, known);
        self.items += 1;
        self.item_bytes += self.arena.item_bytes(item) as u64;
    }
    /// Counts an item of a region that is reclaimed, which has a slot now, and lets it leave next.
    pub fn link_taken_back(&mut self, item: Handle) {
        self.arena.set_linked(item, true);
        let leaving = self.leaving.as_mut().expect("items wait for others");
        leaving.push_taken_back(&mut self.arena, item);
        self.items += 1;
        self.item_bytes += self.arena.item_bytes(item) as u64;
    }
    /// Removes a linked item, whose slot is gone, from the policy. Frees its memory, or leaves that
    /// to its last pin.
    pub fn release(&mut self, item: Handle) {
        self.take_from_queue(item);
        self.items -= 1;
        self.item_bytes -= self.arena.item_bytes(item) as u64;
        self.arena.set_linked(item, false);
        if self.arena.pins(item) == 0 {
            self.arena.free_item(item);
        }
    }
    /// Takes a linked item from the queue in which it is.
    fn take_from_queue(&mut self, item: Handle) {
        match &mut self.leaving {
            Some(leaving) if Leaving::has(&self.arena, item) => {
                leaving.remove(&mut self.arena, item);
            }
            _ => {
                let class = self.arena.class_of(item);
                self.policy.remove(&mut self.arena, class, item);
            }
        }
    }
    /// Moves an item from the policy's queues to those that leave next.
    pub fn leave(&mut self, item: Handle, hash: u64) {
        self.chosen(item, hash);
        self.take_from_queue(item);
        let leaving = self.leaving.as_mut().expect("items wait for others");
        leaving.push(&mut self.arena, item);
    }
    /// Whether an item was read lately.
    pub fn is_hot(&self, item: Handle) -> bool {
        self.policy.is_hot(&self.arena, item)
    }
    /// Copies a linked item of one chunk to another chunk of its class, which takes its place in
    /// the policy's queues. Its slot still names the old chunk: [`Dram::moved`].
    pub fn copy_item(&mut self, from: Handle, to: Handle) {
        self.arena.copy_chunk(from, to);
    }
    /// Frees the chunk of an item that was copied, and whose slot names the copy now.
    pub fn moved(&mut self, from: Handle, to: Handle) {
        match &mut self.leaving {
            Some(leaving) if Leaving::has(&self.arena, to) => {
                leaving.moved(&mut self.arena, from, to);
            }
            _ => {
                let class = self.arena.class_of(to);
                self.policy.moved(&mut self.arena, class, from, to);
            }
        }
        self.arena.free(from);
    }
    /// Counts an access: policy, last access, fetched.
    #[inline]
    pub fn hit(&mut self, item: Handle, now: u32) {
        if self.arena.state(item) == LINKED {
            let class = self.arena.class_of(item);
            match &mut self.leaving {
                Some(leaving) if Leaving::has(&self.arena, item) => {
                    let hash = leaving.hash(&self.arena, item);
                    leaving.remove(&mut self.arena, item);
                    self.policy.insert(&mut self.arena, class, item, hash, true);
                }
                _ => self.policy.hit(&mut self.arena, class, item),
            }
        }
        self.arena.set_access(item, now);
        self.mark_fetched(item);
    }
    /// Marks that an item was read.
    #[inline]
    pub fn mark_fetched(&mut self, item: Handle) {
        self.arena.mark_fetched(item);
    }
    /// Sets when an item was last read or written.
    #[inline]
    pub fn set_access(&mut self, item: Handle, now: u32) {
        self.arena.set_access(item, now);
    }
    /// Sets the number of flushes that happened before the item was stored.
    #[inline]
    pub fn set_epoch(&mut self, item: Handle, epoch: u16) {
        self.arena.set_epoch(item, epoch);
    }
    #[inline]
    pub fn set_flash_copy(&mut self, item: Handle, slot: Slot) {
        self.arena.set_flash_copy(item, slot);
    }
    /// Replaces the header of an item's record.
    #[inline]
    pub fn set_header(&mut self, item: Handle, header: &Header) {
        self.arena.set_header(item, header);
    }

    // ---- pins ----

    /// Keeps an item's memory in place until [`Dram::unpin`].
    pub fn pin(&mut self, item: Handle) {
        let pins = self
            .arena
            .pins(item)
            .checked_add(1)
            .expect("fewer than 65,536 answers at once from one item");
        self.arena.set_pins(item, pins);
        if pins == 1 {
            self.pinned_bytes += self.arena.item_bytes(item);
        }
    }
    /// Ends a pin.
    pub fn unpin(&mut self, item: Handle) {
        let pins = self.arena.pins(item) - 1;
        self.arena.set_pins(item, pins);
        if pins == 0 {
            self.pinned_bytes -= self.arena.item_bytes(item);
            self.pins_wanted = false;
            if self.arena.state(item) != LINKED {
                self.arena.free_item(item);
            }
        }
    }
    /// Whether an answer may pin an item now, so that `most` bytes are pinned, or one item. If not,
    /// the answer waits until pins end.
    pub fn grants_pin(&mut self, item: Handle, most: usize) -> bool {
        let fits = self.arena.pins(item) > 0
            || self.pinned_bytes == 0
            || self.pinned_bytes + self.arena.item_bytes(item) <= most;
        self.pins_wanted = !fits || (self.pins_wanted && self.pinned_bytes > 0);
        fits
    }
    /// Whether an answer waits for pins to end.
    pub fn wants_pins(&self) -> bool {
        self.pins_wanted
    }
    /// The share of `items` bytes of memory that pins keep in place.
    pub fn pinned(&self, items: usize) -> Pinned {
        match self.pinned_bytes {
            bytes if bytes > items / 2 => Pinned::TooMuch,
            _ if self.wants_pins() => Pinned::Wanted,
            bytes if bytes > items / 8 => Pinned::Much,
            _ => Pinned::Little,
        }
    }

    // ---- eviction ----

    /// The item of a class that should be evicted next. Items for which `stays` holds are skipped.
    pub fn victim(
        &mut self,
        class: usize,
        stays: &dyn Fn(&Arena, Handle) -> bool,
    ) -> Option<Handle> {
        self.policy.victim(&mut self.arena, class, stays)
    }
    /// Notes that an item leaves by eviction, not by a delete: the policy remembers it.
    pub fn chosen(&mut self, item: Handle, hash: u64) {
        if !Leaving::has(&self.arena, item) {
            self.policy.evicted(&self.arena, item, hash);
        }
    }
    /// The items of each class, oldest first, and whether each has proved itself.
    pub fn orders(&self) -> Vec<Vec<(Handle, bool)>> {
        let mut orders = vec![Vec::new(); self.arena.classes().len()];
        if let Some(leaving) = &self.leaving {
            let mut items = Vec::new();
            for bucket in 0..leaving.buckets() {
                leaving.items_of(&self.arena, bucket, &mut items);
            }
            for (_, item) in items {
                orders[self.arena.class_of(item)].push((item, false));
            }
        }
        for (class, order) in orders.iter_mut().enumerate() {
            order.extend(self.policy.order(&self.arena, class));
        }
        orders
    }
    /// Counts an item of a class that left DRAM, for flash or for good.
    pub fn left(&mut self, class: usize) {
        self.classes.left(class);
    }
    /// Counts an item of a class that found no room.
    pub fn refused(&mut self, class: usize) {
        self.classes.refused(class);
    }
    /// Whether a page may move to another class now. If so, the next page may move after a fraction
    /// of the items was evicted.
    pub fn rebalance_due(&mut self) -> bool {
        let items = self.items;
        self.classes
            .is_due(|| (items / TURNOVER).max(REBALANCE_EVERY) as u32)
    }
    /// The class that should give a page away: its items stay much longer than those of the class
    /// with the fastest turnover. `None`: all classes are about alike.
    pub fn class_to_shrink(&mut self) -> Option<usize> {
        let mut slowest: Option<(f64, usize)> = None;
        let mut fastest: Option<(f64, usize)> = None;
        for class in 0..self.classes.len() {
            let pages = self.arena.class(class).pages();
            let evictions = f64::from(self.classes.take_half(class));
            if pages == 0 {
                continue;
            }
            let stay = self.policy.len(class) as f64 / (evictions + 0.5);
            if pages > 1 && slowest.is_none_or(|(s, _)| stay > s) {
                slowest = Some((stay, class));
            }
            if evictions > 0.0 && fastest.is_none_or(|(s, _)| stay < s) {
                fastest = Some((stay, class));
            }
        }
        let ((slow, from), (fast, to)) = slowest.zip(fastest)?;
        (from != to && slow > 1.5 * fast).then_some(from)
    }
    /// The classes that have pages, in descending order of how long items stay.
    pub fn slowest_classes(&self) -> Vec<usize> {
        let mut order: Vec<(u64, usize)> = (0..self.classes.len())
            .filter(|&c| self.arena.class(c).pages() > 0)
            .map(|c| {
                let stay = self.policy.len(c) as u64 * 16 / (u64::from(self.classes.recent(c)) + 1);
                (stay + self.arena.class(c).pages() as u64, c)
            })
            .collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        order.into_iter().map(|(_, class)| class).collect()
    }
    /// Returns a page to the free pages if no chunk of it is in use. The result tells whether it
    /// did.
    pub fn release_if_empty(&mut self, page: usize) -> bool {
        self.arena.release_if_empty(page)
    }

    /// Begins or ends the emptying of a page: none of its chunks is given out meanwhile.
    pub fn set_emptied(&mut self, page: usize, on: bool) {
        self.arena.set_emptied(page, on);
    }

    // ---- memory ----

    /// Bytes for items and index together.
    pub fn memory(&self) -> usize {
        self.share.memory()
    }
    /// The same at start.
    pub fn reserved(&self) -> usize {
        self.share.reserved()
    }
    /// Sets the bytes for items and index together. Call [`Dram::share`] afterwards.
    pub fn set_memory(&mut self, bytes: usize) {
        self.share.set_memory(bytes);
    }
    /// Limits items to the memory that an index of this many bytes leaves.
    pub fn share(&mut self, index_bytes: usize) {
        let items = self.share.of_items(index_bytes);
        self.arena
            .set_limit((items / self.arena.page_bytes()).max(LEAST_PAGES));
    }
    /// Notes that the index has grown.
    pub fn index_grew(&mut self) {
        self.share.index_grew();
    }
    /// Forgets the memory that the index gave back, unless the index has grown since the last call.
    /// Returns whether it did.
    pub fn forget_growth(&mut self) -> bool {
        self.share.forget_growth()
    }

    // ---- statistics ----

    /// Counts of commands on the items of a class.
    pub fn counts(&mut self, class: usize) -> &mut ClassCounts {
        self.classes.counts(class)
    }
    /// Resets the counters of commands.
    pub fn reset_counts(&mut self) {
        self.classes.reset_counts();
    }
    /// Resets the counts of evictions and refusals.
    pub fn reset_evictions(&mut self) {
        self.classes.reset_evictions();
    }
    /// The size classes that have pages, at `now` seconds.
    pub fn slab_classes(&self, now: u32) -> Vec<SlabClassStats> {
        let classes = self.arena.classes();
        (0..classes.len())
            .filter(|&n| classes[n].pages() > 0)
            .map(|n| {
                let c = &classes[n];
                let oldest = self
                    .policy
                    .oldest(n)
                    .filter(|&item| self.arena.state(item) == LINKED);
                let mut stats = SlabClassStats {
                    id: n as u32 + 1,
                    chunk_size: c.size as u32,
                    chunks_per_page: c.per_page as u32,
                    total_pages: c.pages() as u32,
                    used_chunks: c.used as u32,
                    free_chunks: c.free as u32,
                    items: self.policy.len(n) as u64,
                    age: oldest.map_or(0, |item| now.saturating_sub(self.arena.access(item))),
                    ..SlabClassStats::default()
                };
                self.classes.show(n, &mut stats);
                stats
            })
            .collect()
    }
    /// Whether evicted items are kept for [`Dram::take_evicted`].
    pub fn watch_evictions(&mut self, on: bool) {
        self.evicted.watch(on);
    }
    /// The evicted items since the last call, and the number of items that were not kept.
    pub fn take_evicted(&mut self) -> (Vec<Evicted>, u64) {
        self.evicted.take()
    }
    /// Counts an item that is lost, and notes it if somebody watches.
    pub fn note_evicted(&mut self, item: Handle) {
        let arena = &self.arena;
        self.classes.evicted(arena.class_of(item));
        self.evicted.note(|| {
            let header = arena.header(item);
            Evicted {
                key: arena.item_key(item).to_vec(),
                meta: header.meta(arena.access(item)),
                class: arena.class_of(item) as u32 + 1,
            }
        });
    }
}
