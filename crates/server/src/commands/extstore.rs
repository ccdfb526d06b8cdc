// SPDX-License-Identifier: Apache-2.0
//! The names under which memcached reports its flash, extstore. Tools that expect these names find
//! them here. `stats.rs` calls this if there is flash.
//!
//! extstore's pages are regions here, its compaction is reclaim, and its rescues are reinsertions.

use senko_cache::CacheStats;
use senko_io::{DiskStats, Op, PAGE_SIZE, Purpose};

/// Each name and its number. `region` is the bytes of a region, `under_way` the device operations
/// that have not ended.
pub(super) fn rows(
    cache: &CacheStats,
    disk: &DiskStats,
    region: u64,
    under_way: u64,
) -> [(&'static str, u64); 25] {
    let region = region.max(1);
    let regions = cache.flash_capacity / region;
    let used = cache.flash_bytes.div_ceil(region).min(regions);
    let read = [Purpose::Lookup, Purpose::LookupRest].map(|why| disk.get(why, Op::Read).pages);
    [
        // memcached counts reads that find nothing, too.
        (
            "get_extstore",
            cache.flash_hits + cache.flash_false_matches + cache.flash_checksum_errors,
        ),
        ("get_aborted_extstore", cache.flash_read_timeouts),
        ("get_oom_extstore", 0), // a get takes no memory for items
        ("recache_from_extstore", cache.promotions),
        ("miss_from_extstore", cache.flash_false_matches),
        ("badcrc_from_extstore", cache.flash_checksum_errors),
        ("extstore_compact_lost", 0), // nothing is locked here
        ("extstore_compact_rescues", cache.reinsertions),
        ("extstore_compact_skipped", cache.reclaim_drops),
        ("extstore_page_allocs", cache.reclaim_regions + used),
        ("extstore_page_evictions", cache.reclaim_regions),
        ("extstore_page_reclaims", cache.reclaim_regions),
        ("extstore_pages_free", regions - used),
        ("extstore_pages_used", used),
        ("extstore_objects_evicted", cache.reclaim_drops),
        ("extstore_objects_read", cache.flash_hits),
        (
            "extstore_objects_written",
            cache.demotions + cache.reinsertions,
        ),
        ("extstore_objects_used", cache.flash_items),
        ("extstore_bytes_evicted", cache.reclaim_regions * region),
        ("extstore_bytes_written", cache.device_write_bytes),
        (
            "extstore_bytes_read",
            (read[0] + read[1]) * PAGE_SIZE as u64,
        ),
        ("extstore_bytes_used", cache.flash_bytes),
        (
            "extstore_bytes_fragmented",
            (used * region).saturating_sub(cache.flash_bytes),
        ),
        ("extstore_limit_maxbytes", cache.flash_capacity),
        ("extstore_io_queue", under_way),
    ]
}
