// SPDX-License-Identifier: Apache-2.0
//! The counters that have a row in `stats`, a metric, or both. Each stands here once, in
//! memcached's order. `commands/stats.rs` and `admin/metrics.rs` add what is computed or has
//! labels.

use senko_cache::CacheStats;

use crate::shared::{Shared, ThreadStats};

/// What counters are read from: the sums of all workers.
pub(crate) struct Numbers<'a> {
    pub shared: &'a Shared,
    pub stats: &'a ThreadStats,
    pub cache: &'a CacheStats,
}

pub(crate) struct Counter {
    /// Its name in `stats`; empty: it has no row there.
    pub stat: &'static str,
    /// Its name and its help in `/metrics`.
    pub metric: Option<(&'static str, &'static str)>,
    pub of: fn(&Numbers<'_>) -> u64,
}

/// A table of `"row of stats" = number => "metric" "help";`, the last two if there is a metric.
macro_rules! counters {
    (@metric) => { None };
    (@metric $name:literal $help:literal) => { Some(($name, $help)) };
    (
        $(#[$doc:meta])*
        $table:ident($n:ident):
        $($stat:literal = $of:expr $(=> $metric:literal $help:literal)?;)*
    ) => {
        $(#[$doc])*
        pub(crate) const $table: &[Counter] = &[$(Counter {
            stat: $stat,
            metric: counters!(@metric $($metric $help)?),
            of: |$n| {
                let _ = $n; // some numbers are fixed, or the process's
                $of
            },
        }),*];
    };
}

/// All tables.
pub(crate) const ALL: [&[Counter]; 6] = [COMMANDS, MEMORY, WORKERS, FLASH, FLASH_WRITES, DEVICES];

counters! {
    /// Commands and connections.
    COMMANDS(n):
    "cmd_get" = n.stats.cmd_get;
    "cmd_set" = n.stats.cmd_set
        => "senko_sets_total" "Storage commands.";
    "cmd_flush" = n.shared.flushes()
        => "senko_flushes_total" "flush_all commands.";
    "cmd_touch" = n.stats.cmd_touch;
    "cmd_meta" = n.stats.cmd_meta
        => "senko_meta_commands_total" "Meta commands.";
    "get_hits" = n.stats.get_hits;
    "get_misses" = n.stats.get_misses;
    "get_expired" = n.cache.get_expired
        => "senko_get_expired_total" "Gets that found an expired item.";
    "get_flushed" = n.cache.get_flushed
        => "senko_get_flushed_total" "Gets that found an item that flush_all had removed.";
    "delete_misses" = n.stats.delete_misses;
    "delete_hits" = n.stats.delete_hits;
    "incr_misses" = n.stats.incr_misses;
    "incr_hits" = n.stats.incr_hits;
    "decr_misses" = n.stats.decr_misses;
    "decr_hits" = n.stats.decr_hits;
    "cas_misses" = n.stats.cas_misses;
    "cas_hits" = n.stats.cas_hits;
    "cas_badval" = n.stats.cas_badval;
    "touch_hits" = n.stats.touch_hits;
    "touch_misses" = n.stats.touch_misses;
    "store_too_large" = n.stats.store_too_large
        => "senko_store_too_large_total"
        "Values refused because they are larger than the largest item.";
    "store_no_memory" = n.stats.store_no_memory
        => "senko_store_no_memory_total" "Values refused because no memory could be freed.";
    "auth_cmds" = n.stats.auth_cmds;
    "auth_errors" = n.stats.auth_errors;
    "idle_kicks" = n.stats.idle_kicks
        => "senko_idle_kicks_total" "Connections closed because they were idle.";
    "bytes_read" = n.stats.bytes_read
        => "senko_received_bytes_total" "Bytes received from clients.";
    "bytes_written" = n.stats.bytes_written
        => "senko_sent_bytes_total" "Bytes sent to clients.";
}

counters! {
    /// Items and their memory.
    MEMORY(n):
    "conn_yields" = n.stats.conn_yields
        => "senko_connection_yields_total"
        "Times that a connection had to let others have their turn.";
    "hash_bytes" = n.cache.index_bytes;
    "hash_is_expanding" = 0;
    "slab_reassign_running" = 0;
    "slabs_moved" = n.cache.slab_moves
        => "senko_slab_moves_total" "Pages of memory that changed their size class.";
    "bytes" = n.cache.dram_bytes;
    "curr_items" = n.cache.dram_items + n.cache.flash_items;
    "total_items" = n.cache.total_items
        => "senko_items_stored_total" "Items stored.";
    "expired_unfetched" = n.cache.expired_unfetched
        => "senko_expired_unfetched_total"
        "Items whose memory was taken after they had expired that were never read.";
    "evicted_unfetched" = n.cache.evicted_unfetched
        => "senko_evicted_unfetched_total" "Items lost when they left DRAM that were never read.";
    "evictions" = n.cache.evictions
        => "senko_evictions_total" "Items lost when they left DRAM.";
    "reclaimed" = n.cache.reclaimed
        => "senko_reclaimed_total" "Items whose memory was taken after they had expired.";
    "crawler_reclaimed" = n.cache.crawler_reclaimed
        => "senko_crawler_reclaimed_total" "Expired items that were collected.";
}

counters! {
    /// The workers.
    WORKERS(n):
    "senko_forwarded" = n.stats.forwarded
        => "senko_forwarded_total" "Commands handed to the worker of another shard.";
    "senko_sent_for_others" = n.stats.sent_for_others
        => "senko_sent_for_others_total" "Of these, answers that the other worker sent itself.";
    "senko_read_across" = n.stats.read_across
        => "senko_read_across_total" "Gets answered from the parked shard of another worker.";
    "senko_read_afar" = n.stats.read_afar
        => "senko_read_afar_total" "Of these, items that were read from the flash of that shard.";
    "senko_retries" = n.stats.retries
        => "senko_retries_total" "Commands run again because their item changed while it was read.";
    "senko_slow_readers_closed" = n.stats.slow_readers_closed
        => "senko_slow_readers_closed_total" "Connections closed because they did not read.";
    "senko_streams" = n.stats.streams
        => "senko_streams_total" "Large values sent from flash piece by piece.";
    "senko_stream_bytes" = n.stats.stream_bytes
        => "senko_stream_bytes_total" "Bytes of these values.";
    "senko_streams_broken" = n.stats.streams_broken
        => "senko_streams_broken_total"
        "Connections closed in the middle of a value, because flash had a piece that is damaged or can't be read.";
    "senko_streams_stalled" = n.stats.streams_stalled
        => "senko_streams_stalled_total"
        "Connections closed in the middle of a value, because reclaim waited for them.";
    "senko_values_given_up" = n.stats.values_given_up
        => "senko_values_given_up_total" "Values that stopped arriving, and lost their memory.";
    "senko_rounds" = n.stats.rounds
        => "senko_rounds_total" "Rounds of the workers' event loops.";
    "senko_whole_turns" = n.stats.whole_turns
        => "senko_whole_turns_total"
        "Turns after which a connection had more requests, or too many unsent answers.";
    "senko_heavy_turns" = n.stats.heavy_turns
        => "senko_heavy_turns_total" "Sections of stats and parts of walks over all items.";
    "senko_conns_held" = n.stats.conns_held
        => "senko_connections_held_total"
        "Times that a connection sent nothing more to another worker before its commands ran.";
    "senko_log_lines_dropped" = senko_io::say::dropped()
        => "senko_log_lines_dropped_total" "Log lines that could not be written.";
}

counters! {
    /// Items on flash.
    FLASH(n):
    "dram_items" = n.cache.dram_items;
    "flash_items" = n.cache.flash_items;
    "flash_items_sorted" = n.cache.sorted_now;
    "flash_bytes" = n.cache.flash_bytes;
    "flash_capacity" = n.cache.flash_capacity;
    "flash_index_bytes" = n.cache.index_bytes;
    "flash_hits" = n.cache.flash_hits
        => "senko_flash_hits_total" "Reads answered from flash.";
    "flash_buffer_hits" = n.cache.flash_buffer_hits
        => "senko_flash_buffer_hits_total" "Of these, reads of items still in a write buffer.";
    "flash_false_matches" = n.cache.flash_false_matches
        => "senko_flash_false_matches_total" "Flash reads that found another key.";
    "flash_read_errors" = n.cache.flash_read_errors;
    "flash_checksum_errors" = n.cache.flash_checksum_errors;
    "flash_write_errors" = n.cache.flash_write_errors
        => "senko_flash_write_errors_total" "Writes of items to a device that failed.";
    "flash_promotions" = n.cache.promotions
        => "senko_flash_promotions_total" "Items brought back to DRAM.";
    "flash_demotions" = n.cache.demotions
        => "senko_flash_demotions_total" "Items written to flash when they left DRAM.";
    "flash_demotions_sorted" = n.cache.sorted_items
        => "senko_flash_demotions_sorted_total"
        "Of these, small items written in the order of their hashes.";
    "flash_sorted_runs" = n.cache.sorted_runs
        => "senko_flash_sorted_runs_total" "Writes of sixteen pages of such items.";
    "flash_demotions_clean" = n.cache.demotions_clean
        => "senko_flash_demotions_clean_total"
        "Items that left DRAM while their flash copy was valid.";
    "flash_uploads" = n.cache.uploads
        => "senko_flash_uploads_total" "Large values that went to flash as they arrived.";
    "flash_upload_bytes" = n.cache.upload_bytes
        => "senko_flash_upload_bytes_total"
        "Of the bytes of items written for the first time, those of large values.";
    "flash_uploads_failed" = n.cache.uploads_failed
        => "senko_flash_uploads_failed_total"
        "Of those that began, values that were given up: their client, their write or their region went.";
    "flash_drops_budget" = n.cache.drops_budget;
    "flash_drops_rule" = n.cache.drops_rule;
    "flash_drops_busy" = n.cache.drops_busy;
    "flash_drops_size" = n.cache.drops_size;
    "flash_drops_reclaim" = n.cache.reclaim_drops;
    "flash_drops_error" = n.cache.drops_error;
    "flash_drops_index" = n.cache.drops_index;
    "flash_overwrites" = n.cache.flash_overwrites
        => "senko_flash_overwrites_total"
        "Flash items dropped because a new value was stored under their tag.";
    "tag_drops" = n.cache.tag_drops;
}

counters! {
    /// Writes to flash.
    FLASH_WRITES(n):
    "flash_reclaimed_regions" = n.cache.reclaim_regions
        => "senko_flash_reclaimed_regions_total" "Regions whose space was taken back.";
    "flash_reinsertions" = n.cache.reinsertions
        => "senko_flash_reinsertions_total" "Items written again because they had been hit.";
    "flash_admitted_bytes" = n.cache.admitted_bytes
        => "senko_flash_admitted_bytes_total" "Bytes of items written for the first time.";
    "flash_reinserted_bytes" = n.cache.reinserted_bytes
        => "senko_flash_reinserted_bytes_total" "Bytes of items written again.";
    "flash_written_bytes" = n.cache.device_write_bytes;
    "" = n.cache.page_fill_record_bytes
        => "senko_flash_page_record_bytes_total"
        "Bytes of items put into pages; over the next: how full pages are.";
    "" = n.cache.page_fill_page_bytes
        => "senko_flash_page_bytes_total" "Bytes of the pages that items were put into.";
}

counters! {
    /// Flash devices.
    DEVICES(n):
    "flash_device_outages" = n.cache.device_outages;
    "flash_device_write_pauses" = n.cache.device_write_pauses;
    "flash_device_returns" = n.cache.device_returns;
    "flash_device_pauses" = n.cache.device_pauses;
    "flash_device_pause_ms" = n.cache.device_pause_ms;
    "flash_misses_out" = n.cache.flash_misses_out;
    "flash_read_timeouts" = n.cache.flash_read_timeouts;
}
