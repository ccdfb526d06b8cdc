// SPDX-License-Identifier: Apache-2.0
//! The statistics of a store.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::record_cache::RecordCache;
use crate::core::Core;
use crate::log::Log;

/// Counts since the opening, and current sizes.
///
/// ```
/// # let store = senko_store::example::store();
/// store.put(b"colour", b"green")?;
/// store.get(b"colour")?;
/// let stats = store.stats();
/// assert_eq!((stats.puts, stats.gets, stats.hits), (1, 1, 1));
/// # Ok::<(), senko_store::StoreError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Values put.
    pub puts: u64,
    /// Keys deleted.
    pub deletes: u64,
    /// Bytes of keys and values put since the store was made, or first opened by a program that
    /// counts.
    pub bytes_put: u64,
    /// Bytes written to the device since then.
    pub bytes_written: u64,
    /// Bytes given back to the file system, or discarded, since then.
    pub bytes_discarded: u64,
    /// Keys that gets looked up.
    pub gets: u64,
    /// Keys that gets found.
    pub hits: u64,
    /// Look-ups that a record in the cache answered, without a device read.
    pub cache_hits: u64,
    /// Records that entered the cache.
    pub cache_fills: u64,
    /// Records in the cache.
    pub cache_records: u64,
    /// DRAM of the cache in bytes, never more than [`crate::Options::cache_bytes`]. It does not
    /// grow with the store.
    pub cache_dram_bytes: u64,
    /// An estimate of the elements in sealed blocks that are the newest of their keys, deletions
    /// included. Logs change it only when they are sealed. A key that only a log has is not
    /// counted. A key that a log overwrites or deletes is still counted. The number is exact right
    /// after [`crate::Store::compact`], until an element expires. [`crate::Store::len`] counts
    /// exactly.
    pub live_elements: u64,
    /// Elements in sealed blocks.
    pub block_elements: u64,
    /// Elements in logs, including older versions.
    pub log_elements: u64,
    /// Sealed blocks.
    pub blocks: u64,
    /// Logs, including the active one.
    pub logs: u64,
    /// Maps that a look-up may have to search.
    pub generations: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the file without storage, which [`crate::Store::shrink`] gave back.
    pub hole_bytes: u64,
    /// Bytes of the file in use.
    pub used_bytes: u64,
    /// Bytes of sealed blocks with their large values.
    pub block_bytes: u64,
    /// Bytes of these that are live, estimated.
    pub live_bytes: u64,
    /// DRAM of the maps from hashes to blocks, in bytes.
    pub map_dram_bytes: u64,
    /// DRAM of the blocks and their page indexes, in bytes.
    pub page_index_dram_bytes: u64,
    /// DRAM of the logs' indexes, in bytes. It does not grow with the store.
    pub log_dram_bytes: u64,
    /// Logs sealed.
    pub seals: u64,
    /// Elements written into blocks when logs were sealed.
    pub sealed_elements: u64,
    /// Compactions that ended.
    pub compactions: u64,
    /// Elements that compactions moved.
    pub compacted_elements: u64,
    /// Elements that compactions dropped.
    pub dropped_elements: u64,
    /// Merges of maps.
    pub merges: u64,
    /// Entries that merges read.
    pub merged_elements: u64,
    /// Snapshots that ended because space was needed.
    pub snapshots_expired: u64,
    /// Total microseconds that writes waited for logs to be sealed.
    pub throttled_us: u64,
    /// Microseconds that the opening took.
    pub open_us: u64,
    /// Whether writes are refused, after a failure or because the store is open for reading.
    pub read_only: bool,
}

impl Stats {
    pub(crate) fn of(core: &Core) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let version = core.current();
        let usage = core.usage(&version);
        let (used_bytes, file_bytes) = core.space.bytes();
        let counters = &core.counters;
        let blocks = || version.blocks().map(|(_, handle)| handle);
        let logs = || version.logs.iter().map(|handle| &handle.log);
        let generations = version.shards.iter().map(|shard| shard.generations.len());
        let [bytes_put, bytes_written, bytes_discarded] = core.wear.counts();
        let cache = core.cache.as_ref();
        let cache = cache.map(RecordCache::counts).unwrap_or_default();
        Stats {
            puts: read(&counters.puts),
            deletes: read(&counters.deletes),
            bytes_put,
            bytes_written,
            bytes_discarded,
            gets: read(&counters.gets),
            hits: read(&counters.hits),
            cache_hits: cache.hits,
            cache_fills: cache.fills,
            cache_records: cache.records,
            cache_dram_bytes: cache.bytes,
            live_elements: blocks().map(|handle| handle.live()).sum(),
            block_elements: blocks().map(|handle| handle.block.record().elements).sum(),
            log_elements: logs().map(Log::elements).sum(),
            blocks: blocks().count() as u64,
            logs: version.logs.len() as u64,
            generations: generations.max().unwrap_or(0) as u64,
            file_bytes,
            hole_bytes: core.space.hole_bytes(),
            used_bytes,
            block_bytes: usage.blocks,
            live_bytes: usage.live as u64,
            map_dram_bytes: version.map_bytes() as u64,
            page_index_dram_bytes: version.block_bytes() as u64,
            log_dram_bytes: logs().map(|log| log.index_bytes() as u64).sum(),
            seals: read(&counters.seals),
            sealed_elements: read(&counters.sealed_elements),
            compactions: read(&counters.compactions),
            compacted_elements: read(&counters.compacted_elements),
            dropped_elements: read(&counters.dropped_elements),
            merges: read(&counters.merges),
            merged_elements: read(&counters.merged_elements),
            snapshots_expired: read(&counters.snapshots_expired),
            throttled_us: read(&counters.throttled_us),
            open_us: core.opened.took_us,
            read_only: core.health.is_latched() || core.options.read_only,
        }
    }

    /// Every field with its name, in the order of this struct.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        macro_rules! named {
            ($($name:ident)+) => {{
                let Stats { $($name,)+ read_only } = *self;
                vec![$((stringify!($name), $name),)+ ("read_only", u64::from(read_only))]
            }};
        }
        named! {
            puts deletes bytes_put bytes_written bytes_discarded gets hits cache_hits cache_fills cache_records
            cache_dram_bytes live_elements block_elements log_elements blocks logs generations
            file_bytes hole_bytes used_bytes block_bytes live_bytes map_dram_bytes
            page_index_dram_bytes log_dram_bytes seals sealed_elements compactions
            compacted_elements dropped_elements merges merged_elements snapshots_expired
            throttled_us open_us
        }
    }
}
