// SPDX-License-Identifier: Apache-2.0
//! The shard: its parts, and what is known without I/O: lookups and reading an item in DRAM.
//!
//! The other files of the crate add their part as an `impl Shard`: `dram.rs` gives memory, `change.rs` stores and deletes, `fetch.rs` reads
//! flash, `demote.rs` writes it, `flash/reclaim.rs` frees the oldest region, `upkeep.rs` does what is due without a command.
//!
//! Always holds:
//! - S1: a linked item has exactly one index slot of kind DRAM; a key has at most one slot in all.
//! - S2: a slot of kind flash whose place was reclaimed or flushed is never followed.
//! - S3: an item's `flash` copy is identical to it in key, value, flags, expiry, marks and unique.

use senko_io::{DeviceId, FramePool, MappedMemory, PAGE_SIZE, PageBuf};

use crate::arena::{Arena, Handle, LINKED, MAX_CHUNK};
use crate::cool::Hand;
use crate::dram::LEAST_PAGES;
use crate::flash::admission::Admitter;
use crate::flash::health::Pauses;
use crate::flash::log::Log;
use crate::flash::read::Reads;
use crate::flash::reclaim::Reclaim;
use crate::index::{Index, Slot};
use crate::item::ITEM_HEADER;
use crate::key::{HashSeed, Key};
use crate::policy::{self, Policy};
use crate::record::{self, KEY_AT, Meta, RECORD_HEADER};
use crate::stats::CacheStats;
use crate::warm::state::{Belongs, State};
use crate::warm::{self, Comeback, Recovered};

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
    /// Whichever key it is, and its [`Meta`] ([`Shard::list`]).
    Listed,
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
    /// The item that a slot names ([`Want::Listed`] only).
    Listed(Box<Listed>),
}

/// An item on flash, as a walk over all items tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: Vec<u8>,
    /// Its metadata.
    pub meta: Meta,
    /// Bytes that it would take in DRAM, as [`Shard::footprint`] counts them.
    pub footprint: usize,
}

/// An item that a walk found ([`Shard::scan`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// It is in DRAM.
    Dram(ItemRef),
    /// It is on flash, where its key is: [`Shard::list`] reads it.
    Flash(FlashRef),
}

/// Pages of the largest frame that a shard asks its queue for; the queue must have frames of this size and of one page.
pub const FRAME_PAGES: usize = 16;

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
    pub(crate) item: Handle,
    /// Bytes of the value that have come.
    pub(crate) filled: usize,
    /// Where the next byte goes: a chunk of the item, and the offset in it.
    pub(crate) chunk: Handle,
    pub(crate) at: usize,
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
#[error("{text}")]
pub struct OpenError {
    text: String,
    least_memory: Option<u64>,
}

impl OpenError {
    pub(crate) fn new(text: impl Into<String>) -> OpenError {
        OpenError {
            text: text.into(),
            least_memory: None,
        }
    }

    /// Bytes of [`ShardConfig::memory`] that would do, where there are too few. With more memory some other parts grow too, so that a little more may be
    /// asked for then.
    pub fn least_memory(&self) -> Option<u64> {
        self.least_memory
    }
}

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
    /// Hits on flash lately (1 to 3; `cool.rs`) that promote an item to DRAM.
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
    /// Seed of the hashes of keys: the one that what the shard comes back from was written with.
    pub hash_seed: HashSeed,
}

/// One shard.
#[derive(Debug)]
pub struct Shard {
    pub(crate) arena: Arena,
    pub(crate) index: Index,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) logs: Vec<Log>,
    pub(crate) reclaims: Vec<Reclaim>,
    /// A frame for the reclaim of each log, for when reads hold all of the loop's: those may be waiting for what reclaim frees.
    pub(crate) reclaim_frames: FramePool,
    /// A frame for the largest record, where all is kept: an item that DRAM has no room for is
    /// answered from it.
    pub(crate) whole_frame: FramePool,
    pub(crate) reads: Reads,
    pub(crate) admitter: Admitter,
    pub(crate) stats: CacheStats,
    /// Bytes for items and index together.
    pub(crate) memory: usize,
    /// Bytes of the items that have pins.
    pinned_bytes: usize,
    /// The same, as it was at start.
    pub(crate) reserved: usize,
    /// What of it is not for items: the most that the index has taken of late.
    pub(crate) index_share: usize,
    /// Whether the index has grown since pages were last to be rebalanced.
    pub(crate) index_grew: bool,
    pub(crate) config: ShardConfig,
    pub(crate) now_ms: u64,
    pub(crate) now: u32,
    pub(crate) hand: Hand,
    pub(crate) cas: u64,
    /// Counts `flush_all`; items of another epoch are gone.
    pub(crate) epoch: u16,
    /// Which log takes the next demoted item.
    pub(crate) next_log: usize,
    /// An item being streamed to a log: the item, the log, its position, bytes put so far.
    pub(crate) stream: Option<crate::demote::Streamed>,
    /// Evictions of each class since about the last rebalancing.
    pub(crate) class_evictions: Vec<u32>,
    pub(crate) evictions_to_rebalance: u32,
    pub(crate) evicted_by_class: Vec<u64>,
    pub(crate) oom_by_class: Vec<u64>,
    pub(crate) counts_by_class: Vec<crate::stats::ClassCounts>,
    /// The segment that the expiry crawler visits next.
    pub(crate) crawler: usize,
    pub(crate) next_crawl_ms: u64,
    /// The time that deadlines of devices go by ([`Shard::set_steady`]), and when devices are looked at next.
    pub(crate) steady_ms: u64,
    pub(crate) next_watch_ms: u64,
    pub(crate) dram_items: u64,
    pub(crate) dram_item_bytes: u64,
    pub(crate) flash_items: u64,
    /// Number of the data directory, if there is one.
    pub(crate) id: u64,
    /// What another process finds of this shard, if it is to.
    pub(crate) state: Option<State>,
    /// Drafts that are neither linked nor given up.
    pub(crate) drafts: usize,
    /// All pages of DRAM were looked through for one that can be emptied, in vain, and nothing has
    /// changed that (`stay.rs`).
    pub(crate) shed_in_vain: bool,
    /// The shard is ending: nothing is written to flash any more.
    pub(crate) closed: bool,
}

/// Smallest memory of a shard with which anything works.
const SMALLEST_MEMORY: usize = 1 << 20;

impl Shard {
    /// An empty shard in memory of its own, which ends with the process.
    ///
    /// # Errors
    /// One sentence, when memory is too small for the index and write buffers, or flash smaller than two regions.
    pub fn new(config: ShardConfig) -> Result<Shard, OpenError> {
        Shard::open(config, None, 0).map(|(shard, _)| shard)
    }

    /// A shard, in memory that outlives the process if `comeback` says which, with what it finds there or in the files of a clean stop. The
    /// clock starts at `unix_ms`. It must be told [`Shard::serve`] before it takes a command.
    ///
    /// # Errors
    /// As [`Shard::new`], and when shared memory can't be used. What is found there and is of no use is no error: the shard is
    /// empty then, and [`Recovered::why_empty`] says why.
    pub fn open(
        config: ShardConfig,
        comeback: Option<Comeback<'_>>,
        unix_ms: u64,
    ) -> Result<(Shard, Recovered), OpenError> {
        if config.memory < SMALLEST_MEMORY {
            return Err(OpenError::new(format!(
                "a shard needs at least {SMALLEST_MEMORY} bytes of memory, {} were given",
                config.memory
            )));
        }
        if config.memory > Arena::MOST_BYTES {
            return Err(OpenError::new(
                "a shard takes less than 64 GiB of memory: use more threads",
            ));
        }
        let (mut logs, base, buffers) = make_logs(&config)?;
        let keeps_all = config.no_evict && !logs.is_empty();
        let largest = config.max_item.div_ceil(PAGE_SIZE) as u64;
        for log in logs.iter_mut().filter(|_| keeps_all) {
            log.keep_all(largest);
        }
        let whole = crate::stay::whole_pages(&logs, keeps_all);
        let buffers = buffers + whole * PAGE_SIZE;
        let too_small = |least: u64, what: &str| OpenError {
            text: format!(
                "{} bytes of memory for each shard are too small for its write buffers and {what}: {least} are the least",
                config.memory
            ),
            least_memory: Some(least),
        };
        // Full of 4 KB items, the index takes nine bytes of each; that must leave room for items.
        let least = buffers as u64 + base * 12 + SMALLEST_MEMORY as u64 / 2;
        if (config.memory as u64) < least {
            let flash = base * PAGE_SIZE as u64;
            return Err(too_small(
                least,
                &format!("the index of {flash} bytes of flash"),
            ));
        }
        let memory = config.memory.saturating_sub(buffers);
        // The policy is made for the memory, so only then is it known what that leaves.
        let classes = Arena::item_classes();
        let policy = policy::make(config.policy, classes, memory);
        let item_pages = Arena::item_memory(memory);
        let item_page_bytes = Arena::item_page_bytes(item_pages * PAGE_SIZE);
        let memory = memory.saturating_sub(policy.bytes());
        if config.max_item + ITEM_HEADER > memory / 2 && config.max_item > MAX_CHUNK {
            return Err(OpenError::new(format!(
                "an item of {} bytes is more than half of the {memory} bytes that a shard has for items: give more memory or a smaller largest item",
                config.max_item
            )));
        }
        let belongs = Belongs {
            id: comeback.as_ref().map_or(0, |c| c.id),
            shard: config.shard,
            logs: logs.len(),
            regions: logs.iter().map(Log::regions).sum(),
            region_pages: logs.first().map_or(0, Log::region_pages),
        };
        let plan = warm::Plan {
            belongs,
            regions: logs.iter().map(Log::regions).collect(),
            flash_pages: base,
            memory,
            item_pages,
            now: (unix_ms / 1000) as u32,
        };
        let index_too_large = |index: usize, item_page_bytes: usize| {
            let items = 2 * LEAST_PAGES * item_page_bytes;
            let least = (index + items + buffers + policy.bytes()) as u64;
            // The policy takes more of more memory.
            too_small(least + least / 8, "the index that it comes back with")
        };
        let made = warm::make(plan, logs, comeback, config.seed).map_err(|error| match error {
            warm::Unmade::IndexTooLarge(bytes) => index_too_large(bytes, item_page_bytes),
            warm::Unmade::Unusable(why) => OpenError::new(why),
        })?;
        let arena = Arena::for_items(made.items);
        if memory < made.index.bytes() + 2 * LEAST_PAGES * arena.page_bytes() {
            return Err(index_too_large(made.index.bytes(), arena.page_bytes()));
        }
        let logs = made.logs;
        let reclaim_frames = FramePool::try_new(&[(FRAME_PAGES, logs.len())])
            .map_err(|e| OpenError::new(format!("cannot map the frames of reclaim: {e}")))?;
        let whole_frame =
            FramePool::try_new(&[(whole.max(1), usize::from(whole > 0))]).map_err(|e| {
                OpenError::new(format!("cannot map the frame of the largest item: {e}"))
            })?;
        let mut shard = Shard {
            policy,
            memory,
            reserved: memory,
            index_share: 0,
            index_grew: false,
            pinned_bytes: 0,
            reclaims: logs.iter().map(|_| Reclaim::default()).collect(),
            reclaim_frames,
            whole_frame,
            drafts: 0,
            shed_in_vain: false,
            logs,
            reads: Reads::default(),
            admitter: Admitter::new(config.admission, config.seed),
            stats: CacheStats::default(),
            hand: Hand::default(),
            now_ms: 0,
            now: 0,
            cas: u64::from(config.shard),
            epoch: 0,
            next_log: 0,
            stream: None,
            class_evictions: vec![0; classes],
            evictions_to_rebalance: 256,
            evicted_by_class: vec![0; classes],
            oom_by_class: vec![0; classes],
            counts_by_class: vec![Default::default(); classes],
            crawler: 0,
            next_crawl_ms: 0,
            steady_ms: 0,
            next_watch_ms: 0,
            dram_items: 0,
            dram_item_bytes: 0,
            flash_items: made.recovered.flash_items,
            arena,
            index: made.index,
            config,
            id: belongs.id,
            state: made.state,
            closed: false,
        };
        shard.share_memory(0);
        shard.set_now(unix_ms);
        let mut recovered = made.recovered;
        if let Some(mut items) = made.saved_items {
            shard.load_items(&mut items, &mut recovered);
        }
        Ok((shard, recovered))
    }

    // ---- time ----

    /// Sets the clock: Unix milliseconds. Never goes back (a smaller value is ignored).
    pub fn set_now(&mut self, unix_ms: u64) {
        if unix_ms > self.now_ms {
            self.now_ms = unix_ms;
            self.now = (unix_ms / 1000) as u32;
            self.admitter.advance(unix_ms);
        }
    }
    /// Unix milliseconds of the clock.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }
    /// Unix seconds of the clock.
    pub fn now(&self) -> u32 {
        self.now
    }

    // ---- lookups ----

    /// What DRAM knows. Does not count as an access ([`Shard::hit`] does). Expired and flushed items are misses.
    #[inline]
    pub fn lookup(&mut self, key: &Key<'_>) -> Lookup {
        let mut flash = Slot::EMPTY;
        let found = self.index.find(key.hash, |slot| {
            if slot.is_dram() {
                self.arena.item_key(self.index.handle(slot)) == key.bytes
            } else {
                flash = slot;
                false
            }
        });
        if let Some((_, slot)) = found {
            let item = self.index.handle(slot);
            if self.is_dead(item) {
                if self.arena.epoch(item) == self.epoch {
                    self.stats.get_expired += 1;
                } else {
                    self.stats.get_flushed += 1;
                }
                self.unlink_dead(item);
                return Lookup::Miss;
            }
            return Lookup::Dram(ItemRef(item));
        }
        if flash == Slot::EMPTY {
            return Lookup::Miss;
        }
        if flash.expired(self.now) || self.place(flash).is_none() {
            let n = self.log_of(flash);
            self.stats.flash_misses_out += u64::from(self.logs[n].health.is_out());
            self.stats.drops_error += u64::from(self.keeps_all() && self.lost_by_device(flash));
            self.drop_flash_slot(key.hash, flash);
            return Lookup::Miss;
        }
        Lookup::Flash(FlashRef(flash.0))
    }

    /// Expired, or flushed.
    #[inline]
    pub(crate) fn is_dead(&self, item: Handle) -> bool {
        self.arena.epoch(item) != self.epoch
            || record::expired(self.arena.item_expiry(item), self.now)
    }

    /// The log and position of a flash slot; `None` if what lay there was reclaimed or flushed (S2).
    pub(crate) fn place(&self, slot: Slot) -> Option<(usize, u64)> {
        let n = self.log_of(slot);
        let position = self.logs[n].position_of(self.index.page(slot), slot.lap())?;
        (!self.logs[n].is_lost(position)).then_some((n, position))
    }

    /// Whether what a flash slot names is gone for good, and not only hidden while its device is out of use.
    pub(crate) fn is_gone(&self, slot: Slot) -> bool {
        let log = &self.logs[self.log_of(slot)];
        log.position_of(self.index.page(slot), slot.lap())
            .is_none_or(|position| log.is_lost_for_good(position))
    }

    pub(crate) fn log_of(&self, slot: Slot) -> usize {
        if self.logs.len() == 1 {
            return 0;
        }
        let page = self.index.page(slot);
        self.logs.partition_point(|l| l.base() <= page) - 1
    }

    /// Removes a flash slot if it is still there.
    pub(crate) fn drop_flash_slot(&mut self, hash: u64, slot: Slot) -> bool {
        let Some((pos, _)) = self.index.find_same(hash, slot) else {
            return false;
        };
        self.index.remove(pos);
        self.flash_items -= 1;
        self.copy_died(slot);
        true
    }

    // ---- an item in DRAM ----

    /// Counts an access: policy, last access, fetched.
    #[inline]
    pub fn hit(&mut self, item: ItemRef) {
        let item = item.0;
        if self.arena.state(item) == LINKED {
            let class = self.arena.class_of(item);
            self.policy.hit(&mut self.arena, class, item);
        }
        self.arena.set_access(item, self.now);
        record::mark_fetched(self.arena.bytes_mut(item, ITEM_HEADER, RECORD_HEADER));
    }
    /// Metadata.
    pub fn meta(&self, item: ItemRef) -> Meta {
        self.arena.header(item.0).meta(self.arena.access(item.0))
    }
    /// Key bytes.
    pub fn key(&self, item: ItemRef) -> &[u8] {
        self.arena.item_key(item.0)
    }
    /// Bytes of the item in DRAM, overhead included (meta flag `s` reports the value length; `stats sizes` this).
    pub fn footprint(&self, item: ItemRef) -> usize {
        ITEM_HEADER + self.arena.header(item.0).record_len()
    }
    /// Appends the complete answer `VALUE key flags n\r\n data\r\n` (and `END\r\n` if `end`) to `out`.
    #[inline]
    pub fn copy_answer(&self, item: ItemRef, end: bool, out: &mut Vec<u8>) {
        self.answer_pieces(item, end, |piece| out.extend_from_slice(piece));
    }
    /// Appends the value's bytes (no `\r\n`) to `out`.
    pub fn copy_value(&self, item: ItemRef, out: &mut Vec<u8>) {
        let header = self.arena.header(item.0);
        let from = header.prefix_len();
        self.arena
            .pieces(item.0, from, from + header.value_len as usize, |piece| {
                out.extend_from_slice(piece)
            });
    }
    /// The value's bytes followed by `\r\n`, as pieces in order (one unless the item is chained).
    pub fn value_pieces(&self, item: ItemRef, each: impl FnMut(&[u8])) {
        let header = self.arena.header(item.0);
        let from = header.prefix_len();
        self.arena
            .pieces(item.0, from, from + header.value_len as usize + 2, each);
    }
    /// As [`Shard::copy_answer`], as pieces.
    #[inline]
    pub fn answer_pieces(&self, item: ItemRef, end: bool, each: impl FnMut(&[u8])) {
        let len = self.arena.header(item.0).record_len();
        self.arena
            .pieces(item.0, RECORD_HEADER, if end { len } else { len - 5 }, each);
    }
    /// Keeps the item's memory as it is, whatever happens to the item, until [`Shard::unpin`] with the number returned: for answers
    /// sent straight from DRAM. Pieces given by [`Shard::value_pieces`] and [`Shard::answer_pieces`] stay valid as raw memory.
    pub fn pin(&mut self, item: ItemRef) -> u64 {
        let pins = self
            .arena
            .pins(item.0)
            .checked_add(1)
            .expect("fewer than 65,536 answers at once from one item");
        self.arena.set_pins(item.0, pins);
        if pins == 1 {
            self.pinned_bytes += self.arena.item_bytes(item.0);
        }
        u64::from(item.0)
    }
    /// Ends a pin.
    pub fn unpin(&mut self, pin: u64) {
        let item = pin as Handle;
        let pins = self.arena.pins(item) - 1;
        self.arena.set_pins(item, pins);
        if pins == 0 {
            self.pinned_bytes -= self.arena.item_bytes(item);
            if self.arena.state(item) != LINKED {
                self.arena.free_item(item);
            }
        }
    }
    /// How much of the memory for items is kept in place by pins.
    pub fn pinned(&self) -> Pinned {
        let items = self.items_memory();
        match self.pinned_bytes {
            bytes if bytes > items / 2 => Pinned::TooMuch,
            bytes if bytes > items / 8 => Pinned::Much,
            _ => Pinned::Little,
        }
    }
    /// Bytes of memory that items may take, without the index.
    pub fn items_memory(&self) -> usize {
        self.memory.saturating_sub(self.index.bytes())
    }
    /// Keeps the item's memory while room is made for another: with a pin, or without where it has so many that it stays anyway.
    pub(crate) fn try_pin(&mut self, item: ItemRef) -> Option<u64> {
        self.can_pin(item).then(|| self.pin(item))
    }
    /// Whether another pin can be taken (an item takes at most 65,535).
    pub fn can_pin(&self, item: ItemRef) -> bool {
        self.arena.pins(item.0) < u16::MAX
    }

    /// Keeps the memory of items in place, for who still sends pinned answers when the shard is gone.
    pub fn item_memory(&self) -> MappedMemory {
        self.arena.mapping()
    }

    // ---- looking in ----

    /// Counters and gauges.
    pub fn stats(&self) -> CacheStats {
        let mut s = self.stats.clone();
        s.dram_items = self.dram_items;
        s.dram_bytes = self.dram_item_bytes;
        s.dram_limit = self.memory as u64;
        s.index_bytes = self.index.bytes() as u64;
        s.flash_items = self.flash_items;
        s.flash_capacity = self.logs.iter().map(|l| l.pages() * PAGE_SIZE as u64).sum();
        s.flash_bytes = self
            .logs
            .iter()
            .map(|l| l.used_pages() * PAGE_SIZE as u64)
            .sum();
        s.page_fill_record_bytes = self.logs.iter().map(|l| l.record_bytes).sum();
        s.page_fill_page_bytes = self.logs.iter().map(|l| l.page_bytes).sum();
        s.device_pauses = self.logs.iter().map(|l| l.health.pauses.count).sum();
        s.device_pause_ms = self.logs.iter().map(|l| l.health.pauses.ms).sum();
        s
    }
    /// Zeroes the counters (not the gauges).
    pub fn reset_stats(&mut self) {
        self.stats = CacheStats::default();
        self.counts_by_class.fill(Default::default());
        for log in &mut self.logs {
            (log.record_bytes, log.page_bytes) = (0, 0);
            log.health.pauses = Pauses::default();
        }
    }
    /// Bytes of an item's key, for `stats detail` and dumps.
    pub(crate) fn item_hash(&self, item: Handle) -> u64 {
        Key::new(self.arena.item_key(item), self.config.hash_seed).hash
    }
}

/// How much of a shard's memory for items is pinned: it is not there for anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pinned {
    /// An eighth at most.
    #[default]
    Little,
    /// Half at most.
    Much,
    /// More.
    TooMuch,
}

/// The logs of a shard, their pages, and the bytes of their buffers.
fn make_logs(config: &ShardConfig) -> Result<(Vec<Log>, u64, usize), OpenError> {
    let chunk = chunk_bytes(config.memory, config.region);
    let chunks = (config.memory / 24 / chunk).clamp(4, 12);
    let region = config.region.next_multiple_of(chunk);
    let region_pages = (region / PAGE_SIZE) as u64;
    let mut logs = Vec::new();
    let mut base = 0;
    for (number, &slice) in config.flash.iter().enumerate() {
        if slice.pages < 4 * region_pages {
            return Err(OpenError::new(format!(
                "{} bytes of flash for each shard are fewer than four regions of {region} bytes: give more flash or a smaller --region",
                slice.pages * PAGE_SIZE as u64
            )));
        }
        let log = Log::new(
            number,
            slice,
            base,
            region_pages,
            (chunk / PAGE_SIZE) as u64,
            chunks,
        );
        base += log.pages();
        logs.push(log);
    }
    if base >= 1 << 30 {
        return Err(OpenError::new(
            "a shard takes at most 4 TiB of flash: use more threads",
        ));
    }
    let buffers = logs.len() * (chunks * chunk + FRAME_PAGES * PAGE_SIZE);
    Ok((logs, base, buffers))
}

/// Smallest write buffer.
const SMALLEST_CHUNK: usize = 64 << 10;

/// Bytes of a write buffer, by memory; a region is a whole number of them, so that it stays what it is when the memory changes.
fn chunk_bytes(memory: usize, region: usize) -> usize {
    let most = match memory {
        0..0x0100_0000 => SMALLEST_CHUNK,
        0x0100_0000..0x1800_0000 => 256 << 10,
        _ => 1 << 20,
    };
    let region = region.next_multiple_of(SMALLEST_CHUNK);
    let mut chunk = most;
    while !region.is_multiple_of(chunk) {
        chunk /= 2;
    }
    chunk
}

const _: () = assert!(KEY_AT > RECORD_HEADER && size_of::<Draft>() <= 32);
