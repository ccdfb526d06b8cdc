// SPDX-License-Identifier: Apache-2.0
//! The sections of `stats`, as text and as binary packets.
//!
//! Names and order are memcached's. Its lines about parts that do not exist here (libevent, LRU
//! segments) are omitted. Senko's own lines begin with `flash_`, `tag_` or `senko_`. Counters of
//! this worker are live, those of others at most a tenth of a second old.

use std::collections::BTreeMap;

use senko_cache::{AdmissionRule, CacheStats, DeviceState, PolicyKind, SlabClassStats};
use senko_io::{DeviceTimes, DiskStats, Op, PAGE_SIZE, Purpose, Queue};

use super::dump::{DumpKind, Table};
use super::extstore;
use super::sink::Sink;
use crate::context::Ctx;
use crate::counters::{self, Counter, Numbers};
use crate::protocol::binary::{Head, Status};
use crate::protocol::number::read_u32;
use crate::protocol::push_key;
use crate::protocol::{BAD_FORMAT, ERROR, Tokens};
use crate::reply::Reply;
use crate::settings::{Dialect, TlsSettings};
use crate::shared::ThreadStats;

use std::sync::atomic::Ordering::Relaxed;

/// Prefixes that the binary `stats detail dump` shows.
const BINARY_PREFIXES: usize = 100;

/// Prefixes that `stats detail flash` shows: those with the most gets.
const FLASH_PREFIXES: usize = 100;

/// Runs the text command. A section that walks over all items is returned.
pub(crate) fn text_stats(
    ctx: &mut Ctx<'_, impl Queue>,
    rest: &[u8],
    out: &mut Reply,
) -> Option<DumpKind> {
    let mut tokens = Tokens::new(rest);
    let section = tokens.next().unwrap_or(&[]);
    let mut sink = Sink::Text(&mut out.bytes);
    match section {
        b"reset" => {
            reset(ctx);
            out.line("RESET");
        }
        b"detail" => return detail(ctx, tokens.next().unwrap_or(&[]), out),
        b"conns" => return Some(DumpKind::Table(Table::Connections)),
        b"cachedump" => return cachedump(ctx, tokens, out),
        b"sizes" => return Some(DumpKind::Sizes),
        b"hotkeys" if ctx.shared.settings.no_dump => {
            out.line("CLIENT_ERROR stats hotkeys not allowed");
        }
        b"hotkeys" if ctx.shared.settings.hot_keys.is_none() => {
            out.line("CLIENT_ERROR hot keys are not sampled: start with --hot-keys");
        }
        _ => {
            if section_of(ctx, section, &mut sink) {
                sink.end();
            } else {
                out.line(ERROR);
            }
        }
    }
    None
}

/// Runs the binary command.
pub(crate) fn binary_stats(
    ctx: &mut Ctx<'_, impl Queue>,
    key: &[u8],
    head: Head,
    out: &mut Vec<u8>,
) {
    let mut sink = Sink::Binary(out, head);
    match key {
        b"reset" => reset(ctx),
        _ if ctx.shared.settings.no_dump && (key.starts_with(b"detail") || key == b"hotkeys") => {
            head.refuse(out, Status::NotFound);
            return;
        }
        b"detail on" => ctx.shared.prefixes.set(true),
        b"detail off" => ctx.shared.prefixes.set(false),
        b"detail dump" => {
            // One packet holds everything; rows beyond the bound are omitted.
            let mut text = Vec::new();
            ctx.shared.prefixes.dump(None, BINARY_PREFIXES, &mut text);
            text.extend_from_slice(b"END\r\n");
            sink.stat("detailed", String::from_utf8_lossy(&text));
        }
        // A histogram of all items exists only in text.
        b"sizes" => sink.stat("sizes_status", "disabled"),
        _ => {
            if !section_of(ctx, key, &mut sink) {
                head.refuse(out, Status::NotFound);
                return;
            }
        }
    }
    Sink::Binary(out, head).end();
}

/// Writes a section; false if no section has that name.
fn section_of(ctx: &mut Ctx<'_, impl Queue>, name: &[u8], sink: &mut Sink<'_>) -> bool {
    ctx.cursor.catch_up(ctx.shared, ctx.shard, ctx.stats);
    match name {
        b"" => general(ctx, sink),
        b"settings" => settings(ctx, sink),
        b"items" => items(ctx, sink),
        b"slabs" => slabs(ctx, sink),
        b"hotkeys" if ctx.shared.settings.hot_keys.is_some() => hot_keys(ctx, sink),
        _ => return false,
    }
    true
}

/// The hottest keys, each with its lookups estimated from the sample.
fn hot_keys(ctx: &mut Ctx<'_, impl Queue>, sink: &mut Sink<'_>) {
    for (key, lookups) in ctx.shared.hottest() {
        let mut name = Vec::new();
        push_key(&mut name, &key);
        sink.stat_of(&name, lookups);
    }
}

fn reset(ctx: &mut Ctx<'_, impl Queue>) {
    ctx.shared.reset();
    ctx.cursor.catch_up(ctx.shared, ctx.shard, ctx.stats);
}

fn detail(ctx: &mut Ctx<'_, impl Queue>, what: &[u8], out: &mut Reply) -> Option<DumpKind> {
    match what {
        // It shows parts of keys.
        _ if ctx.shared.settings.no_dump => out.line("CLIENT_ERROR stats detail not allowed"),
        b"on" | b"off" => {
            ctx.shared.prefixes.set(what == b"on");
            out.line("OK");
        }
        b"dump" => return Some(DumpKind::Table(Table::Prefixes)),
        b"flash" => {
            for (name, p) in ctx.shared.prefixes.top(FLASH_PREFIXES) {
                out.bytes.extend_from_slice(b"PREFIX ");
                push_key(&mut out.bytes, &name);
                out.line(&format!(
                    " get {} hit {} flash {} set {} del {}",
                    p.get, p.hit, p.flash, p.set, p.del
                ));
            }
            out.line("END");
        }
        _ => out.line("CLIENT_ERROR usage: stats detail on|off|dump"),
    }
    None
}

fn cachedump(
    ctx: &mut Ctx<'_, impl Queue>,
    mut tokens: Tokens<'_>,
    out: &mut Reply,
) -> Option<DumpKind> {
    if ctx.shared.settings.no_dump {
        out.line("CLIENT_ERROR stats cachedump not allowed");
        return None;
    }
    let (Some(class), Some(limit)) = (tokens.next(), tokens.next()) else {
        out.line("CLIENT_ERROR bad command line");
        return None;
    };
    let (Some(class), Some(limit)) = (read_u32(class), read_u32(limit)) else {
        out.line(BAD_FORMAT);
        return None;
    };
    if class >= super::dump::MAX_CLASSES {
        out.line("CLIENT_ERROR Illegal slab id");
        return None;
    }
    if class == 0 {
        out.bytes.extend_from_slice(b"END\r\n");
        return None;
    }
    Some(DumpKind::Cachedump { class, limit })
}

/// The sum of all shards' counters.
struct Totals {
    stats: ThreadStats,
    cache: CacheStats,
    disk: DiskStats,
    /// Device operations that ended.
    ended: u64,
}

fn totals(ctx: &Ctx<'_, impl Queue>) -> Totals {
    let mut sum = Totals {
        stats: *ctx.stats,
        cache: ctx.shard.stats(),
        disk: DiskStats::default(),
        ended: 0,
    };
    ctx.shared.for_others(ctx.me, |other| {
        sum.stats.add(&other.stats);
        sum.cache.add(&other.cache);
    });
    // The event loop counts for devices, so this worker's own counts are as old as its last
    // publication, too.
    ctx.shared.for_others(usize::MAX, |any| {
        sum.disk.merge(&any.disk);
        let ended = any.device_times.iter().map(DeviceTimes::count);
        sum.ended += ended.sum::<u64>();
    });
    sum
}

/// Bytes for items, as configured: by `cache_memlimit`, by `-m`, or the rest of `--memory`.
fn memory_limit(ctx: &Ctx<'_, impl Queue>, cache: &CacheStats) -> u64 {
    match (ctx.shared.dram_limit(), ctx.shared.settings.item_memory) {
        (0, Some(bytes)) => bytes,
        (0, None) => cache.dram_limit,
        (bytes, _) => bytes,
    }
}

/// User and system time of the process, in seconds.
pub(crate) fn cpu_seconds() -> (f64, f64) {
    /// Clock ticks a second in `/proc`: 100 on every Linux.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses, which may hold spaces.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let seconds = |field: usize| {
        let ticks: u64 = fields
            .get(field)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        ticks as f64 / TICKS
    };
    (seconds(11), seconds(12))
}

fn general(ctx: &mut Ctx<'_, impl Queue>, sink: &mut Sink<'_>) {
    let totals = totals(ctx);
    let Totals {
        stats, cache, disk, ..
    } = &totals;
    let shared = ctx.shared;
    let n = Numbers {
        shared,
        stats,
        cache,
    };
    let now = ctx.shard.now();
    let (user, system) = cpu_seconds();
    let counts = &shared.conn_counts;
    sink.stat("pid", std::process::id());
    sink.stat("uptime", now.saturating_sub(shared.started));
    sink.stat("time", now);
    sink.stat("version", shared.version());
    sink.stat("pointer_size", usize::BITS);
    sink.stat("rusage_user", format_args!("{user:.6}"));
    sink.stat("rusage_system", format_args!("{system:.6}"));
    sink.stat("max_connections", shared.settings.max_connections);
    sink.stat("curr_connections", counts.current.load(Relaxed));
    sink.stat("total_connections", counts.total.load(Relaxed));
    sink.stat("rejected_connections", counts.rejected.load(Relaxed));
    sink.stat("connection_structures", counts.current.load(Relaxed));
    plain(counters::COMMANDS, &n, sink);
    sink.stat("limit_maxbytes", memory_limit(ctx, cache));
    sink.stat("accepting_conns", counts.accepting.load(Relaxed));
    sink.stat("listen_disabled_num", counts.listen_disabled.load(Relaxed));
    sink.stat(
        "time_in_listen_disabled_us",
        counts.listen_disabled_us.load(Relaxed),
    );
    sink.stat("threads", shared.deal.workers());
    plain(counters::MEMORY, &n, sink);
    let watched = shared.watchers.counts();
    sink.stat("log_worker_dropped", watched.lost);
    sink.stat("log_worker_written", watched.made);
    sink.stat("log_watcher_skipped", watched.skipped);
    sink.stat("log_watcher_sent", watched.sent);
    sink.stat("log_watchers", watched.watchers);
    flash(&n, disk, sink);
    devices(&n, sink);
    if !shared.settings.flash.is_empty() {
        let region = shared.settings.region.unwrap_or(0) as u64;
        let under_way = disk.operations().saturating_sub(totals.ended);
        for (name, number) in extstore::rows(cache, disk, region, under_way) {
            sink.stat(name, number);
        }
    }
    if let (Some(tls), Some(set)) = (&shared.tls, &shared.settings.tls) {
        if set.session_cache {
            sink.stat("ssl_new_sessions", stats.ssl_new_sessions);
        }
        sink.stat("ssl_handshake_errors", stats.ssl_handshake_errors);
        sink.stat("ssl_proto_errors", stats.ssl_proto_errors);
        let since = now.saturating_sub(tls.refreshed());
        sink.stat("time_since_server_cert_refresh", since);
        sink.stat("senko_tls_handshakes", stats.tls_handshakes);
        sink.stat("senko_tls_handshake_steps", stats.tls_handshake_steps);
        sink.stat("senko_tls_handshake_rounds", stats.tls_handshake_rounds);
    }
}

/// The names of purposes in `flash_device_reads_...`.
pub(crate) const PURPOSES: [(Purpose, &str); 8] = [
    (Purpose::Lookup, "lookup"),
    (Purpose::LookupRest, "lookup_rest"),
    (Purpose::Admit, "admit"),
    (Purpose::Reinsert, "reinsert"),
    (Purpose::Reclaim, "reclaim"),
    (Purpose::Meta, "meta"),
    (Purpose::Log, "log"),
    (Purpose::Recover, "recover"),
];

/// The rows of a table of counters.
fn plain(table: &[Counter], n: &Numbers<'_>, sink: &mut Sink<'_>) {
    for counter in table.iter().filter(|counter| !counter.stat.is_empty()) {
        sink.stat(counter.stat, (counter.of)(n));
    }
}

fn flash(n: &Numbers<'_>, disk: &DiskStats, sink: &mut Sink<'_>) {
    let cache = n.cache;
    plain(counters::WORKERS, n, sink);
    plain(counters::FLASH, n, sink);
    let fill = cache.page_fill_record_bytes as f64 / cache.page_fill_page_bytes.max(1) as f64;
    sink.stat("flash_page_fill", format_args!("{fill:.3}"));
    plain(counters::FLASH_WRITES, n, sink);
    // Bytes that reached the device, divided by the bytes worth keeping.
    let amplification = cache.device_write_bytes as f64 / cache.admitted_bytes.max(1) as f64;
    sink.stat(
        "flash_write_amplification",
        format_args!("{amplification:.3}"),
    );
    for (op, word) in [(Op::Read, "reads"), (Op::Write, "writes")] {
        for (purpose, name) in PURPOSES {
            let count = disk.get(purpose, op);
            if count.ops > 0 {
                sink.stat(&format!("flash_device_{word}_{name}"), count.ops);
                sink.stat(
                    &format!("flash_device_{word}_{name}_bytes"),
                    count.pages * PAGE_SIZE as u64,
                );
            }
        }
        let total = disk.total(op);
        sink.stat(&format!("flash_device_{word}"), total.ops);
        sink.stat(
            &format!("flash_device_{word}_bytes"),
            total.pages * PAGE_SIZE as u64,
        );
        sink.stat(&format!("flash_device_{word}_errors"), total.errors);
    }
    sink.stat("flash_device_flushes", disk.total(Op::Flush).ops);
}

/// The state of the flash devices.
fn devices(n: &Numbers<'_>, sink: &mut Sink<'_>) {
    let shared = n.shared;
    sink.stat("flash_devices", shared.settings.flash.len());
    sink.stat("flash_devices_out", shared.devices_in(DeviceState::Out));
    let read_only = shared.devices_in(DeviceState::ReadOnly);
    sink.stat("flash_devices_read_only", read_only);
    plain(counters::DEVICES, n, sink);
}

fn yes(on: bool) -> &'static str {
    if on { "yes" } else { "no" }
}

fn settings(ctx: &mut Ctx<'_, impl Queue>, sink: &mut Sink<'_>) {
    let shared = ctx.shared;
    let set = &shared.settings;
    let limit = memory_limit(ctx, &totals(ctx).cache);
    let interface = match set.listen.first() {
        Some(address) if !address.ip().is_unspecified() => address.ip().to_string(),
        _ => "NULL".to_owned(),
    };
    sink.stat("maxbytes", limit);
    sink.stat("maxconns", set.max_connections);
    sink.stat(
        "tcpport",
        set.listen.first().map_or(0, std::net::SocketAddr::port),
    );
    sink.stat("udpport", 0);
    sink.stat("inter", interface);
    sink.stat("verbosity", shared.verbosity());
    sink.stat("oldest", 0);
    sink.stat("evictions", if set.no_evict { "off" } else { "on" });
    match &set.unix_socket {
        Some(path) => sink.stat("domain_socket", path.display()),
        None => sink.stat("domain_socket", "NULL"),
    }
    sink.stat("umask", format_args!("{:o}", set.unix_mask));
    sink.stat("shutdown_command", yes(set.allow_shutdown));
    sink.stat("num_threads", set.threads);
    sink.stat(
        "stat_key_prefix",
        char::from(set.prefix_delimiter.unwrap_or(b':')),
    );
    sink.stat("detail_enabled", yes(shared.prefixes.is_on()));
    sink.stat("reqs_per_event", set.requests_per_turn);
    sink.stat("cas_enabled", yes(!set.no_cas));
    sink.stat("tcp_backlog", set.backlog);
    let binding = match set.only_protocol.or(shared.auth.dialect()) {
        None => "auto-negotiate",
        Some(Dialect::Ascii) => "ascii",
        Some(Dialect::Binary) => "binary",
    };
    sink.stat("binding_protocol", binding);
    sink.stat("auth_enabled_sasl", yes(set.sasl_file.is_some()));
    match &set.auth_file {
        Some(path) => sink.stat("auth_enabled_ascii", path.display()),
        None => sink.stat("auth_enabled_ascii", "no"),
    }
    sink.stat("item_size_max", set.max_item);
    sink.stat("maxconns_fast", yes(set.refuse_fast));
    sink.stat("flush_enabled", yes(!set.no_flush_all));
    sink.stat("dump_enabled", yes(!set.no_dump));
    sink.stat("watch_enabled", yes(!set.no_watch));
    sink.stat("lru_crawler", "yes");
    sink.stat("hash_algorithm", "xxh3");
    sink.stat("idle_timeout", set.idle_timeout);
    sink.stat("track_sizes", "yes");
    ssl_settings(set.tls.as_ref(), sink);
    // Records on flash store 32 bits of a client's flags.
    sink.stat("client_flags_size", size_of::<u32>());
    sink.stat("senko_memory", set.memory);
    sink.stat(
        "senko_policy",
        match set.policy {
            PolicyKind::Lru => "lru",
            PolicyKind::S3Fifo => "s3-fifo",
        },
    );
    for flash in &set.flash {
        sink.stat(
            "senko_flash",
            format_args!("{}:{}", flash.path.display(), flash.bytes),
        );
    }
    let tuned = ctx.shared.tuning.now();
    match tuned.admission.rule {
        AdmissionRule::Random(percent) => {
            sink.stat("senko_admission", format_args!("random {percent}%"))
        }
        AdmissionRule::Bytes(most) => sink.stat("senko_admission", format_args!("bytes {most}")),
        _ => sink.stat("senko_admission", tuned.rule()),
    }
    sink.stat("senko_flash_write_budget", tuned.budget());
    sink.stat("senko_promote_after", tuned.promote_after);
    sink.stat("senko_reinsert", yes(set.reinsert));
    sink.stat("senko_sort", yes(set.sort_small));
    sink.stat("senko_spin_us", set.spin.as_micros());
}

/// memcached's rows; only one of them if nothing is encrypted.
fn ssl_settings(tls: Option<&TlsSettings>, sink: &mut Sink<'_>) {
    sink.stat("ssl_enabled", yes(tls.is_some()));
    let Some(tls) = tls else { return };
    sink.stat("ssl_chain_cert", tls.chain.display());
    sink.stat("ssl_key", tls.key.display());
    sink.stat("ssl_verify_mode", tls.verify.number());
    sink.stat("ssl_keyformat", 1);
    sink.stat("ssl_ciphers", tls.ciphers.as_deref().unwrap_or("NULL"));
    match &tls.ca {
        Some(path) => sink.stat("ssl_ca_cert", path.display()),
        None => sink.stat("ssl_ca_cert", "NULL"),
    }
    sink.stat("ssl_wbuf_size", tls.write_bytes());
    sink.stat("ssl_session_cache", yes(tls.session_cache));
    sink.stat("ssl_kernel_tls", "no");
    let least = match tls.only_1_3 {
        true => "tlsv1.3",
        false => "tlsv1.2",
    };
    sink.stat("ssl_min_version", least);
}

/// The classes of all shards, by number.
fn classes(ctx: &Ctx<'_, impl Queue>) -> BTreeMap<u32, SlabClassStats> {
    let mut sum: BTreeMap<u32, SlabClassStats> = BTreeMap::new();
    let mut add = |class: &SlabClassStats| {
        let place = sum.entry(class.id).or_insert_with(|| SlabClassStats {
            id: class.id,
            chunk_size: class.chunk_size,
            chunks_per_page: class.chunks_per_page,
            ..SlabClassStats::default()
        });
        // A stand-in's pages are small.
        place.chunks_per_page = place.chunks_per_page.max(class.chunks_per_page);
        place.total_pages += class.total_pages;
        place.used_chunks += class.used_chunks;
        place.free_chunks += class.free_chunks;
        place.items += class.items;
        place.age = place.age.max(class.age);
        place.evicted += class.evicted;
        place.out_of_memory += class.out_of_memory;
        place.counts.add(&class.counts);
    };
    ctx.shard.slab_classes().iter().for_each(&mut add);
    ctx.shared
        .for_others(ctx.me, |other| other.slabs.iter().for_each(&mut add));
    sum
}

fn items(ctx: &mut Ctx<'_, impl Queue>, sink: &mut Sink<'_>) {
    for (id, class) in classes(ctx) {
        if class.items == 0 {
            continue;
        }
        sink.stat(&format!("items:{id}:number"), class.items);
        sink.stat(&format!("items:{id}:age"), class.age);
        sink.stat(
            &format!("items:{id}:mem_requested"),
            u64::from(class.used_chunks) * u64::from(class.chunk_size),
        );
        sink.stat(&format!("items:{id}:evicted"), class.evicted);
        sink.stat(&format!("items:{id}:outofmemory"), class.out_of_memory);
    }
}

fn slabs(ctx: &mut Ctx<'_, impl Queue>, sink: &mut Sink<'_>) {
    let classes = classes(ctx);
    let mut active = 0;
    let mut bytes = 0;
    for (id, class) in &classes {
        if class.total_pages == 0 {
            continue;
        }
        active += 1;
        let chunks = u64::from(class.total_pages) * u64::from(class.chunks_per_page);
        bytes += chunks * u64::from(class.chunk_size);
        sink.stat(&format!("{id}:chunk_size"), class.chunk_size);
        sink.stat(&format!("{id}:chunks_per_page"), class.chunks_per_page);
        sink.stat(&format!("{id}:total_pages"), class.total_pages);
        sink.stat(&format!("{id}:total_chunks"), chunks);
        sink.stat(&format!("{id}:used_chunks"), class.used_chunks);
        sink.stat(&format!("{id}:free_chunks"), class.free_chunks);
        sink.stat(&format!("{id}:free_chunks_end"), 0);
        let counts = &class.counts;
        for (name, value) in [
            ("get_hits", counts.get_hits),
            ("cmd_set", counts.cmd_set),
            ("delete_hits", counts.delete_hits),
            ("incr_hits", counts.incr_hits),
            ("decr_hits", counts.decr_hits),
            ("cas_hits", counts.cas_hits),
            ("cas_badval", counts.cas_badval),
            ("touch_hits", counts.touch_hits),
        ] {
            sink.stat(&format!("{id}:{name}"), value);
        }
    }
    sink.stat("active_slabs", active);
    sink.stat("total_malloced", bytes);
}
