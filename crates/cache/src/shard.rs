// SPDX-License-Identifier: Apache-2.0
//! The shard: its parts, and its operations without I/O (lookups, and reads of an item in DRAM).
//!
//! The other files of this folder add their part as an `impl Shard`: `memory.rs` allocates memory,
//! `emptying.rs` frees pages of it, `store.rs` stores and deletes, `fetch.rs` reads flash,
//! `demote.rs` and `seal.rs` write it, `reclaim.rs` frees the oldest region, `upkeep.rs` does work
//! that is due without a command. Calls lead one way: commands, memory, demotion, reclaim, the
//! index, and last `state.rs`. No file outside this folder can use its fields.
//!
//! Always holds:
//! - SHARD-1: a linked item has exactly one index slot of kind DRAM; a key has at most one slot in
//!   all.
//! - SHARD-2: no operation follows a flash slot whose place was reclaimed or flushed.
//! - SHARD-3: an item's `flash` copy is identical to it in key, value, flags, expiry, marks and CAS
//!   value.

pub(crate) mod afar; // reads by other workers
mod changes; // keys that were changed while a fill runs
mod completions; // device completions
pub(crate) mod demote; // an item leaves DRAM, for flash or for good
mod emptying; // all items leave a page of DRAM
mod fate; // what reclaim does with a record
pub(crate) mod fetch; // from a matching slot to a verified record
mod keep; // reclaim that writes all live records again
pub(crate) mod memory; // memory for items, by eviction if none is left
pub(crate) mod outage; // a device out of use: ends operations that waited for it, and takes it back
mod prefetch; // memory that coming lookups will read
mod reclaim; // the oldest region becomes free
mod seal; // small items leave in the order of their hashes
pub(crate) mod restore; // the state that outlives the process, and the restore of a shard
mod slots; // slots change their kind, and the index grows for one
mod state; // what is asked about an item or a slot
mod stay; // which items leave DRAM if nothing may be evicted
mod store; // storing, deleting, marking
mod sweep; // what is dead leaves the index
mod upload; // a value goes to flash as it arrives
mod unlink; // an item leaves the index
mod upkeep; // work that is due without a command

use senko_io::{FramePool, MappedMemory, PAGE_SIZE};

use crate::arena::{Arena, MAX_CHUNK};
use crate::config::ShardConfig;
use crate::dram::item::ITEM_HEADER;
use crate::dram::policy;
use crate::dram::{Dram, LEAST_PAGES};
use crate::flash::Flash;
use crate::flash::admission::Admitter;
use crate::flash::log::Log;
use crate::index::{Extent, Index, Slot};
use crate::key::Key;
use crate::record::{self, Meta};
use crate::stats::CacheStats;
use crate::types::{FRAME_PAGES, FlashRef, ItemRef, Lookup, OpenError};
use crate::words::{Belongs, State};
use restore::{Recovered, Restore};
pub use upload::NewUpload;

#[derive(Debug)]
pub struct Shard {
    index: Index,
    dram: Dram,
    flash: Flash,
    config: ShardConfig,
    stats: CacheStats,
    now_ms: u64,
    now: u32,
    cas: u64,
    /// Counts `flush_all`. Items of another epoch were flushed.
    epoch: u16,
    /// An item on its way to a log that is larger than the log's write buffers.
    stream: Option<demote::Streamed>,
    /// The page of DRAM that is being emptied, and how many in a row could not be emptied.
    emptying: Option<emptying::Emptying>,
    emptied_in_vain: usize,
    crawler: sweep::Crawler,
    /// Where the cursor of sorted records is.
    sealing: seal::Sealing,
    /// Set after no page of DRAM was found that can be emptied, until that may have changed
    /// (`stay.rs`).
    shed_in_vain: bool,
    /// The keys that were changed since a fill began, while it runs.
    changes: Option<changes::Changes>,
    /// Number of the data directory, if there is one.
    id: u64,
    /// The state of this shard that another process can restore.
    state: Option<State>,
}

/// The smallest memory with which a shard works.
const SMALLEST_MEMORY: usize = 1 << 20;

impl Shard {
    /// An empty shard in its own memory, which ends with the process.
    ///
    /// # Errors
    /// One sentence, if memory is too small for index and write buffers, or flash is smaller than
    /// two regions.
    pub fn new(config: ShardConfig) -> Result<Shard, OpenError> {
        Shard::open(config, None, 0).map(|(shard, _)| shard)
    }

    /// A shard. If `restore` names memory that outlives the process, the shard uses it, with the
    /// state found there or in the files of a clean stop. The clock starts at `unix_ms`. Call
    /// [`Shard::serve`] before its first command.
    ///
    /// # Errors
    /// As [`Shard::new`], or shared memory can't be used. Unusable state is not an error: the shard
    /// is then empty, and [`Recovered::why_empty`] says why.
    pub fn open(
        config: ShardConfig,
        restore: Option<Restore<'_>>,
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
                "a shard takes less than 64 GiB of memory: a cache that begins empty has more shards",
            ));
        }
        let (mut logs, base, buffers) = make_logs(&config)?;
        let uploads = upload::buffer_bytes(&config);
        let buffers = buffers + uploads;
        let keeps_all = config.no_evict && !logs.is_empty();
        let largest = config.max_item.div_ceil(PAGE_SIZE) as u64;
        for log in logs.iter_mut().filter(|_| keeps_all) {
            log.keep_all(largest);
        }
        let too_small = |least: u64, what: &str| OpenError {
            text: format!(
                "{} bytes of memory for each shard are too small for its write buffers and {what}: {least} are the least",
                config.memory
            ),
            least_memory: Some(least),
        };
        // When full of 4 KB items, the index takes nine bytes for each. That must leave room for
        // items.
        let least = buffers as u64 + base * 12 + SMALLEST_MEMORY as u64 / 2;
        if (config.memory as u64) < least {
            let flash = base * PAGE_SIZE as u64;
            return Err(too_small(
                least,
                &format!("the index of {flash} bytes of flash"),
            ));
        }
        let memory = config.memory.saturating_sub(buffers);
        // The policy is made for the memory, so its size is known only then.
        let classes = Arena::item_classes();
        let policy = policy::make(config.policy, classes, memory);
        let item_pages = Arena::item_memory(memory);
        let item_page_bytes = Arena::item_page_bytes(item_pages * PAGE_SIZE);
        let memory = memory.saturating_sub(policy.bytes());
        if config.max_item + ITEM_HEADER > memory / 2
            && config.max_item > MAX_CHUNK
            && !upload::takes_largest(&config, &logs)
        {
            let more = match uploads {
                0 => "more memory",
                _ => {
                    "more flash, of which each shard's part of a file must hold two such items, more memory"
                }
            };
            return Err(OpenError::new(format!(
                "an item of {} bytes is more than half of the {memory} bytes that a shard has for items: give {more} or a smaller largest item",
                config.max_item
            )));
        }
        let belongs = Belongs {
            id: restore.as_ref().map_or(0, |c| c.id),
            shard: config.shard,
            logs: logs.len(),
            regions: logs.iter().map(Log::regions).sum(),
            region_pages: logs.first().map_or(0, Log::region_pages),
        };
        let plan = restore::Sizes {
            belongs,
            regions: logs.iter().map(Log::regions).collect(),
            flash_pages: base,
            memory,
            item_pages,
            now: (unix_ms / 1000) as u32,
            sorted: seal::run_pages(base, memory)
                .filter(|_| !keeps_all)
                .map(|run_pages| Extent::plan(base, run_pages, memory)),
            sorts: config.sort_small,
        };
        let index_too_large = |index: usize, item_page_bytes: usize| {
            let items = 2 * LEAST_PAGES * item_page_bytes;
            let least = (index + items + buffers + policy.bytes()) as u64;
            // The policy takes more if there is more memory.
            too_small(least + least / 8, "the index that it comes back with")
        };
        let made =
            restore::make(plan, logs, restore, config.seed).map_err(|error| match error {
                restore::StartError::IndexTooLarge(bytes) => {
                    index_too_large(bytes, item_page_bytes)
                }
                restore::StartError::Unusable(why) => OpenError::new(why),
            })?;
        let mut arena = Arena::for_items(made.items);
        if keeps_all || !config.no_evict {
            arena.keep_reserve();
        }
        if memory < made.index.bytes() + 2 * LEAST_PAGES * arena.page_bytes() {
            return Err(index_too_large(made.index.bytes(), arena.page_bytes()));
        }
        let logs = made.logs;
        let reclaim_frames = FramePool::try_new(&[(FRAME_PAGES, logs.len())])
            .map_err(|e| OpenError::new(format!("cannot map the frames of reclaim: {e}")))?;
        let admitter = Admitter::new(config.admission, config.seed);
        let number = config.shard as u8;
        let mut shard = Shard {
            dram: Dram::new(arena, policy, memory),
            flash: Flash::new(number, logs, reclaim_frames, uploads, admitter),
            stats: CacheStats::default(),
            now_ms: 0,
            now: 0,
            cas: u64::from(config.shard),
            epoch: 0,
            stream: None,
            emptying: None,
            emptied_in_vain: 0,
            crawler: sweep::Crawler::default(),
            sealing: seal::Sealing::default(),
            shed_in_vain: false,
            changes: None,
            index: made.index,
            config,
            id: belongs.id,
            state: made.state,
        };
        shard.begin_sorting();
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
            self.flash.admitter_mut().advance(unix_ms);
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

    /// Looks a key up in the index and in DRAM. This does not count as an access ([`Shard::hit`]
    /// does). Expired and flushed items are misses.
    #[inline]
    pub fn lookup(&mut self, key: &Key<'_>) -> Lookup {
        let mut flash = Slot::EMPTY;
        let found = self.index.find(key.hash, |slot| {
            if slot.is_dram() {
                self.dram.arena().item_key(self.index.handle(slot)) == key.bytes
            } else {
                flash = slot;
                false
            }
        });
        if let Some((_, slot)) = found {
            let item = self.index.handle(slot);
            if self.is_dead(item) {
                if self.dram.arena().epoch(item) == self.epoch {
                    self.stats.get_expired += 1;
                } else {
                    self.stats.get_flushed += 1;
                }
                self.unlink_dead(item);
                return Lookup::Miss;
            }
            return Lookup::Dram(ItemRef(item));
        }
        if flash == Slot::EMPTY || flash.expired(self.now) || self.place(flash).is_none() {
            let narrow = self.next_candidate(key.hash, None);
            if let Some((slot, _)) = narrow {
                return Lookup::Flash(FlashRef(slot.0));
            }
        }
        if flash == Slot::EMPTY {
            return Lookup::Miss;
        }
        if flash.expired(self.now) || self.place(flash).is_none() {
            let n = self.log_of(flash);
            self.stats.flash_misses_out += u64::from(self.flash.log(n).health().is_out());
            self.stats.drops_error += u64::from(self.keeps_all() && self.lost_by_device(flash));
            self.drop_flash_slot(key.hash, flash);
            return Lookup::Miss;
        }
        Lookup::Flash(FlashRef(flash.0))
    }

    // ---- an item in DRAM ----

    /// Counts an access: policy, last access, fetched.
    #[inline]
    pub fn hit(&mut self, item: ItemRef) {
        self.dram.hit(item.0, self.now);
    }
    /// Key bytes.
    pub fn key(&self, item: ItemRef) -> &[u8] {
        self.dram.arena().item_key(item.0)
    }
    /// Bytes of the item in DRAM, including overhead. `stats sizes` reports this; meta flag `s`
    /// reports the length of the value.
    pub fn footprint(&self, item: ItemRef) -> usize {
        let arena = self.dram.arena();
        arena.header_len(item.0) + arena.header(item.0).dram_len()
    }
    /// Appends the complete answer `VALUE key flags n\r\n data\r\n` (and `END\r\n` if `end`) to
    /// `out`. `meta` is the item's.
    #[inline]
    pub fn copy_answer(&self, item: ItemRef, meta: &Meta, end: bool, out: &mut Vec<u8>) {
        if meta.value_len > record::PACKED_VALUE {
            return self.answer_pieces(item, end, |piece| out.extend_from_slice(piece));
        }
        let (key, value) = self.dram.arena().packed(item.0, meta);
        record::push_answer(out, key, meta.flags, value, end);
    }
    /// Appends the value's bytes (no `\r\n`) to `out`.
    pub fn copy_value(&self, item: ItemRef, out: &mut Vec<u8>) {
        let header = self.dram.arena().header(item.0);
        let from = header.dram_prefix();
        self.dram
            .arena()
            .pieces(item.0, from, from + header.value_len as usize, |piece| {
                out.extend_from_slice(piece)
            });
    }
    /// The value's bytes as pieces in order (one piece unless the item is chained). If it is larger
    /// than [`PACKED_VALUE`](crate::PACKED_VALUE), `\r\n` follows.
    pub fn value_pieces(&self, item: ItemRef, each: impl FnMut(&[u8])) {
        let header = self.dram.arena().header(item.0);
        let from = header.dram_prefix();
        let end = if header.has_answer() { 2 } else { 0 };
        let to = from + header.value_len as usize + end;
        self.dram.arena().pieces(item.0, from, to, each);
    }
    /// As [`Shard::copy_answer`], as pieces, for a value larger than
    /// [`PACKED_VALUE`](crate::PACKED_VALUE).
    #[inline]
    pub fn answer_pieces(&self, item: ItemRef, end: bool, each: impl FnMut(&[u8])) {
        let header = self.dram.arena().header(item.0);
        debug_assert!(header.has_answer());
        let to = header.dram_len() - if end { 0 } else { 5 };
        let arena = self.dram.arena();
        arena.pieces(item.0, header.head_len(), to, each);
    }

    /// The memory of items. A sender of pinned answers may hold it longer than the shard exists.
    pub fn item_memory(&self) -> MappedMemory {
        self.dram.arena().mapping()
    }

    // ---- statistics ----

    /// Counters and gauges.
    pub fn stats(&self) -> CacheStats {
        let mut s = self.stats.clone();
        s.dram_items = self.dram.items();
        s.dram_bytes = self.dram.item_bytes();
        s.dram_limit = self.dram.memory() as u64;
        s.index_bytes = self.index.bytes() as u64;
        s.flash_items = self.index.flash_slots();
        s.sorted_now = self.index.sorted_slots();
        self.flash.show(&mut s);
        s
    }
    /// Zeroes the counters (not the gauges).
    pub fn reset_stats(&mut self) {
        self.stats = CacheStats::default();
        self.dram.reset_counts();
        self.flash.reset_counts();
    }
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
            (config.shard as u8, number),
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
            "a shard takes at most 4 TiB of flash: a cache that begins empty has more shards",
        ));
    }
    let buffers = logs.len() * (chunks * chunk + FRAME_PAGES * PAGE_SIZE);
    Ok((logs, base, buffers))
}

/// Smallest write buffer.
const SMALLEST_CHUNK: usize = 64 << 10;

/// Bytes of a write buffer, by the size of memory. A region is a whole number of write buffers, so
/// it keeps its size when the memory changes.
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
