// SPDX-License-Identifier: Apache-2.0
//! The shard: lookups, changes, completions.

use senko_io::{Completion, DeviceId, PageBuf, Queue};

use crate::key::Key;
use crate::record::Meta;
use crate::stats::{CacheStats, SlabClassStats};

/// An item in DRAM. Valid until the next call that can allocate or unlink (`alloc`, `link`, `concat`, `rewrite`, `unlink`,
/// `on_disk`, `tick`, `fetch`), unless pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemRef(pub(crate) u32);

/// A slot of the index that names a place on flash and whose tag matches a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashRef(pub(crate) u64);

/// What DRAM knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The item is in DRAM, live, key compared.
    Dram(ItemRef),
    /// No tier has the key: exact.
    Miss,
    /// A tag matches; only flash can tell whether it is this key.
    Flash(FlashRef),
}

/// What a fetch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The answer of a `get`: reads the item; ends in `Answer`, or in `Resident` when it was promoted or is too large for a frame.
    Answer,
    /// Whether the key is there, and its [`Meta`]: reads the first page.
    Header,
    /// The item in DRAM, so that it can be changed.
    Resident,
}

/// The start of a fetch.
#[derive(Debug)]
pub enum Fetch {
    /// Known at once (the item was still in a write buffer).
    Now(Fetched),
    /// A [`Done`] with the caller's number will come.
    Queued,
}

/// The end of a fetch.
#[derive(Debug)]
pub enum Fetched {
    /// The verified record in the frame it was read into.
    Answer(FlashItem),
    /// The item is in DRAM now (valid as any [`ItemRef`]).
    Resident(ItemRef),
    /// The key is on flash, with this; the reference is what [`Shard::remove_flash`] takes, valid until the next change of the shard.
    Header(Meta, FlashRef),
    /// The key is not there: the tag matched another key, or what lies there could not be read or is damaged (counted).
    Absent,
    /// The key changed, or the place moved, meanwhile: run the command again.
    Changed,
    /// There is no memory to hold the item ([`Want::Resident`] only).
    OutOfMemory,
}

/// A verified record in a frame.
#[derive(Debug)]
pub struct FlashItem {
    /// The frame; the answer `VALUE key flags n\r\n data\r\nEND\r\n` is at `answer` in it.
    pub buf: PageBuf,
    /// Where the complete answer lies in `buf`.
    pub answer: std::ops::Range<usize>,
    /// Where the value's data (without `\r\n`) lies in `buf`.
    pub value: std::ops::Range<usize>,
    /// Metadata.
    pub meta: Meta,
}

/// A fetch that ended.
#[derive(Debug)]
pub struct Done {
    /// The caller's number.
    pub user: u64,
    /// How it ended.
    pub fetched: Fetched,
}

/// An item being filled; not yet visible. Must end in [`Shard::link`], [`Shard::concat`] or [`Shard::abort`].
#[derive(Debug)]
#[must_use]
pub struct Draft {
    pub(crate) item: ItemRef,
    pub(crate) filled: usize,
}

/// Why no memory was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// Larger than the largest item allowed.
    #[error("object too large for cache")]
    TooLarge,
    /// Nothing can be evicted (`-M`, or everything is pinned).
    #[error("out of memory storing object")]
    OutOfMemory,
    /// Evictions wait for the flash device; try again after the next disk completion or tick.
    #[error("waiting for the flash device")]
    Busy,
}

/// Why a shard could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);

/// Which items leave DRAM first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Least recently used (paper E).
    Lru,
    /// S3-FIFO (Yang et al., SOSP 2023).
    S3Fifo,
}

/// Which items leaving DRAM are worth a flash write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionRule {
    /// All.
    All,
    /// Those that were read while in DRAM.
    Fetched,
    /// Each with this probability in percent.
    Random(u8),
}

/// A byte budget: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes a second, on average.
    pub bytes_per_second: u64,
    /// Bytes that may be written in a burst.
    pub burst: u64,
}

/// The admission settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The rule.
    pub rule: AdmissionRule,
    /// The budget, if any.
    pub budget: Option<Budget>,
}

/// A part of a device that a shard owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSlice {
    /// The device in the shard's queue.
    pub device: DeviceId,
    /// First page.
    pub first_page: u64,
    /// Pages.
    pub pages: u64,
}

/// All that a shard is made from.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Bytes for items, index and write buffers together.
    pub memory: usize,
    /// Largest item: key, value and header.
    pub max_item: usize,
    /// Flash, if any.
    pub flash: Vec<DeviceSlice>,
    /// Bytes of a region (a multiple of the page size).
    pub region: usize,
    /// Eviction from DRAM.
    pub policy: PolicyKind,
    /// Admission to flash.
    pub admission: Admission,
    /// Hits on flash (1 to 3) that promote an item to DRAM.
    pub promote_after: u8,
    /// Reinsert items that were hit when their region is reclaimed.
    pub reinsert: bool,
    /// Return an error instead of evicting (`-M`).
    pub no_evict: bool,
    /// This shard's number and the number of shards: uniques are dealt out in turn.
    pub shard: u32,
    /// Number of shards.
    pub shards: u32,
    /// Seed of every random choice.
    pub seed: u64,
}

/// One shard.
pub struct Shard {}

impl Shard {
    /// An empty shard.
    ///
    /// # Errors
    /// One sentence, when memory is too small for the index and write buffers, or flash smaller than two regions.
    pub fn new(_config: ShardConfig) -> Result<Shard, OpenError> {
        todo!()
    }

    // ---- time ----

    /// Sets the clock: Unix milliseconds. Never goes back (a smaller value is ignored).
    pub fn set_now(&mut self, _unix_ms: u64) {
        todo!()
    }
    /// Unix seconds of the clock.
    pub fn now(&self) -> u32 {
        todo!()
    }
    /// Work that is due without a command: reclaim, expiry crawling, write budget. Call at least every 100 ms, and after disk completions.
    pub fn tick<Q: Queue>(&mut self, _queue: &mut Q) {
        todo!()
    }

    // ---- lookups ----

    /// What DRAM knows. Does not count as an access ([`Shard::hit`] does). Expired and flushed items are misses.
    pub fn lookup(&mut self, _key: &Key<'_>) -> Lookup {
        todo!()
    }
    /// Starts a fetch of what `Lookup::Flash` named. With `Want::Answer` it counts as an access.
    pub fn fetch<Q: Queue>(&mut self, _queue: &mut Q, _key: &Key<'_>, _at: FlashRef, _want: Want, _user: u64) -> Fetch {
        todo!()
    }
    /// Takes a device completion that the queue delivered (each one goes here); ended fetches are then in [`Shard::next_done`].
    pub fn on_disk<Q: Queue>(&mut self, _queue: &mut Q, _completion: Completion) {
        todo!()
    }
    /// The next fetch that ended.
    pub fn next_done<Q: Queue>(&mut self, _queue: &mut Q) -> Option<Done> {
        todo!()
    }
    /// Frames were returned (answers were sent): lets waiting reads start.
    pub fn frames_freed<Q: Queue>(&mut self, _queue: &mut Q) {
        todo!()
    }

    // ---- an item in DRAM ----

    /// Counts an access: policy, last access, fetched.
    pub fn hit(&mut self, _item: ItemRef) {
        todo!()
    }
    /// Metadata.
    pub fn meta(&self, _item: ItemRef) -> Meta {
        todo!()
    }
    /// Key bytes.
    pub fn key(&self, _item: ItemRef) -> &[u8] {
        todo!()
    }
    /// Bytes of the item in DRAM, overhead included (meta flag `s` reports the value length; `stats sizes` this).
    pub fn footprint(&self, _item: ItemRef) -> usize {
        todo!()
    }
    /// Appends the complete answer `VALUE key flags n\r\n data\r\n` (and `END\r\n` if `end`) to `out`.
    pub fn copy_answer(&self, _item: ItemRef, _end: bool, _out: &mut Vec<u8>) {
        todo!()
    }
    /// Appends the value's bytes (no `\r\n`) to `out`.
    pub fn copy_value(&self, _item: ItemRef, _out: &mut Vec<u8>) {
        todo!()
    }
    /// The value's bytes followed by `\r\n`, as pieces in order (one unless the item is chained).
    pub fn value_pieces(&self, _item: ItemRef, _each: &mut dyn FnMut(&[u8])) {
        todo!()
    }
    /// Keeps the item's memory as it is, whatever happens to the item, until [`Shard::unpin`] with the number returned: for answers
    /// sent straight from DRAM. Pieces given by [`Shard::value_pieces`] and [`Shard::answer_pieces`] stay valid as raw memory.
    pub fn pin(&mut self, _item: ItemRef) -> u64 {
        todo!()
    }
    /// Ends a pin.
    pub fn unpin(&mut self, _pin: u64) {
        todo!()
    }
    /// As [`Shard::copy_answer`], as pieces.
    pub fn answer_pieces(&self, _item: ItemRef, _end: bool, _each: &mut dyn FnMut(&[u8])) {
        todo!()
    }

    // ---- changes ----

    /// Memory for an item that is to be stored; may evict. Not visible before [`Shard::link`].
    pub fn alloc<Q: Queue>(&mut self, _queue: &mut Q, _key: &Key<'_>, _flags: u32, _expiry: u32, _value_len: usize) -> Result<Draft, AllocError> {
        todo!()
    }
    /// The next bytes of the value; at most `value_len` in all.
    pub fn fill(&mut self, _draft: &mut Draft, _bytes: &[u8]) {
        todo!()
    }
    /// Bytes of the value still to be filled.
    pub fn unfilled(&self, _draft: &Draft) -> usize {
        todo!()
    }
    /// Key of a draft.
    pub fn draft_key(&self, _draft: &Draft) -> &[u8] {
        todo!()
    }
    /// Metadata of a draft (flags, expiry, lengths as allocated).
    pub fn draft_meta(&self, _draft: &Draft) -> Meta {
        todo!()
    }
    /// Sets flags, expiry of a draft (append keeps the old item's).
    pub fn set_draft(&mut self, _draft: &mut Draft, _flags: u32, _expiry: u32) {
        todo!()
    }
    /// Copies the value's bytes out of a complete draft (a remote or binary command may need them).
    pub fn copy_draft(&self, _draft: &Draft, _out: &mut Vec<u8>) {
        todo!()
    }
    /// Makes a complete draft the key's item: the old one is unlinked, its flash copy becomes unreachable; every slot whose tag matches is
    /// dropped (an innocent one is counted). `cas`: the unique to give it (meta `E`), else a fresh one.
    pub fn link(&mut self, _draft: Draft, _cas: Option<u64>) -> ItemRef {
        todo!()
    }
    /// Gives up a draft.
    pub fn abort(&mut self, _draft: Draft) {
        todo!()
    }
    /// A new draft, complete, with the old item's value and the draft's in the order asked (`append`: old first), the old item's flags and expiry; `draft` is consumed
    /// (also on error).
    pub fn concat<Q: Queue>(&mut self, _queue: &mut Q, _old: ItemRef, _draft: Draft, _append: bool) -> Result<Draft, AllocError> {
        todo!()
    }
    /// Gives an item another (short) value with a fresh unique (or `cas`): in place where it fits, else in a new item that is linked.
    pub fn rewrite<Q: Queue>(&mut self, _queue: &mut Q, _item: ItemRef, _value: &[u8], _cas: Option<u64>) -> Result<ItemRef, AllocError> {
        todo!()
    }
    /// Removes an item, and its flash copy.
    pub fn unlink(&mut self, _item: ItemRef) {
        todo!()
    }
    /// Removes a flash item that [`Fetched::Header`] confirmed.
    pub fn remove_flash(&mut self, _at: FlashRef) {
        todo!()
    }
    /// Sets the expiry; the item is dirty then.
    pub fn set_expiry(&mut self, _item: ItemRef, _expiry: u32) {
        todo!()
    }
    /// Sets stale and won marks (meta commands); dirty if changed. `cas`: a new unique for it.
    pub fn set_marks(&mut self, _item: ItemRef, _stale: bool, _won: bool) {
        todo!()
    }
    /// Marks that the key was given in base64 (meta `b`), on a draft.
    pub fn set_draft_binary_key(&mut self, _draft: &mut Draft, _on: bool) {
        todo!()
    }
    /// Marks a draft stale/won from the start (meta vivify, `ms` with I).
    pub fn set_draft_marks(&mut self, _draft: &mut Draft, _stale: bool, _won: bool) {
        todo!()
    }
    /// Sets an item's unique (meta `md`/`ma` with `E`).
    pub fn set_cas(&mut self, _item: ItemRef, _cas: u64) {
        todo!()
    }
    /// A fresh unique (meta `md` with I bumps it).
    pub fn next_cas(&mut self) -> u64 {
        todo!()
    }
    /// Everything stored before this call is gone.
    pub fn flush_all(&mut self) {
        todo!()
    }

    // ---- looking in ----

    /// Counters and gauges.
    pub fn stats(&self) -> CacheStats {
        todo!()
    }
    /// Zeroes the counters (not the gauges).
    pub fn reset_stats(&mut self) {
        todo!()
    }
    /// The slab classes in use.
    pub fn slab_classes(&self) -> Vec<SlabClassStats> {
        todo!()
    }
    /// Visits live DRAM items (`lru_crawler metadump`, `stats cachedump`, `stats sizes`), from `cursor` (start with 0); at most `limit` index segments a call;
    /// returns the next cursor, or `None` at the end.
    pub fn scan(&self, _cursor: u64, _limit: usize, _each: &mut dyn FnMut(ItemRef)) -> Option<u64> {
        todo!()
    }
    /// Changes the DRAM limit within what was reserved at start (`cache_memlimit`); false if it is above that or too small.
    pub fn set_dram_limit(&mut self, _bytes: usize) -> bool {
        todo!()
    }
}

#[allow(dead_code)]
fn _frame(_: PageBuf) {}
