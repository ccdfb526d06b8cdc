// SPDX-License-Identifier: Apache-2.0
//! Counters of one shard. They are plain integers. The owner thread counts, and the server
//! publishes.

/// Counters and gauges of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
// Named as in `stats`, described in docs/cache/statistics.md.
pub struct CacheStats {
    // gauges
    pub dram_items: u64,
    pub dram_bytes: u64,
    pub dram_limit: u64,
    pub flash_items: u64,
    /// Of these, small items whose slots have 21 bits.
    pub sorted_now: u64,
    pub flash_bytes: u64,
    pub flash_capacity: u64,
    pub index_bytes: u64,
    // counters
    pub get_expired: u64,
    pub get_flushed: u64,
    pub total_items: u64,
    pub evictions: u64,
    pub evicted_unfetched: u64,
    pub reclaimed: u64,
    pub expired_unfetched: u64,
    pub promotions: u64,
    pub demotions: u64,
    pub demotions_clean: u64,
    pub flash_hits: u64,
    pub flash_buffer_hits: u64,
    pub flash_false_matches: u64,
    pub flash_read_errors: u64,
    pub flash_checksum_errors: u64,
    pub flash_write_errors: u64,
    /// Flash slots dropped because another key with the same tag went to flash.
    pub tag_drops: u64,
    /// Flash slots that a store dropped without a read because they had its key's tag. Almost all
    /// are the key's own copy; about one in ten thousand is another key's.
    pub flash_overwrites: u64,
    pub drops_budget: u64,
    pub drops_rule: u64,
    pub drops_busy: u64,
    pub drops_size: u64,
    pub reclaim_drops: u64,
    pub reclaim_regions: u64,
    pub reinsertions: u64,
    pub admitted_bytes: u64,
    pub reinserted_bytes: u64,
    pub device_write_bytes: u64,
    pub slab_moves: u64,
    pub crawler_reclaimed: u64,
    pub drops_error: u64,
    /// Reads that were answered as misses because the device did not end them in time.
    pub flash_read_timeouts: u64,
    /// Lookups of an item on a device out of use.
    pub flash_misses_out: u64,
    /// Times that a device's writes kept failing, that a device went out of use, and that a device
    /// came back from either state.
    pub device_write_pauses: u64,
    pub device_outages: u64,
    pub device_returns: u64,
    /// Times that a device completed none of its operations for 300 ms or longer, and the total
    /// milliseconds of these times.
    pub device_pauses: u64,
    pub device_pause_ms: u64,
    pub drops_index: u64,
    /// Runs of sorted small records, and records in them.
    pub sorted_runs: u64,
    pub sorted_items: u64,
    /// Values that went to flash as they arrived, and those of them that were given up after they
    /// had begun.
    pub uploads: u64,
    pub uploads_failed: u64,
    /// Of `admitted_bytes`, those of such values.
    pub upload_bytes: u64,
    /// Bytes of records placed on flash, and bytes of the pages given to them. Their ratio is the
    /// page fill.
    pub page_fill_record_bytes: u64,
    pub page_fill_page_bytes: u64,
}

senko_io::counters! {
    CacheStats: dram_items dram_bytes dram_limit flash_items sorted_now flash_bytes flash_capacity
        index_bytes get_expired get_flushed total_items evictions evicted_unfetched reclaimed
        expired_unfetched promotions demotions demotions_clean flash_hits flash_buffer_hits
        flash_false_matches flash_read_errors flash_checksum_errors flash_write_errors tag_drops
        flash_overwrites drops_budget drops_rule drops_busy drops_size reclaim_drops
        reclaim_regions reinsertions admitted_bytes reinserted_bytes device_write_bytes
        slab_moves crawler_reclaimed drops_error flash_read_timeouts flash_misses_out
        device_write_pauses device_outages device_returns device_pauses
        device_pause_ms drops_index sorted_runs sorted_items uploads uploads_failed upload_bytes page_fill_record_bytes page_fill_page_bytes
}

/// Commands on items of one slab class, in DRAM or on flash, with memcached's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    pub get_hits: u64,
    pub cmd_set: u64,
    pub delete_hits: u64,
    pub incr_hits: u64,
    pub decr_hits: u64,
    pub cas_hits: u64,
    pub cas_badval: u64,
    pub touch_hits: u64,
}

senko_io::counters! {
    ClassCounts: get_hits cmd_set delete_hits incr_hits decr_hits cas_hits cas_badval touch_hits
}

/// One slab class, for `stats slabs` and `stats items`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlabClassStats {
    pub id: u32,
    pub chunk_size: u32,
    pub chunks_per_page: u32,
    pub total_pages: u32,
    pub used_chunks: u32,
    pub free_chunks: u32,
    pub items: u64,
    /// Seconds since the last access of the oldest item.
    pub age: u32,
    pub evicted: u64,
    pub out_of_memory: u64,
    /// Commands on its items.
    pub counts: ClassCounts,
}
