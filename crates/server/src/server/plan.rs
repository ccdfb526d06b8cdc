// SPDX-License-Identifier: Apache-2.0
//! Divides one memory cap. All sizes are decided here, at start, before anything is allocated.
//!
//! ```text
//! --memory = process + threads * ( receive buffers + read frames + replies and tails ) + connections
//!            + shards * ( items, index and write buffers )
//! ```
//!
//! The drop-in's `-m` works the other way round: it sets the memory for items, and the rest is
//! added.
//!
//! The number of shards of a new cache follows from memory, flash and threads ([`shards`]).
//!
//! Always holds: the parts of a plan add up to at most the cap, all workers get equal parts, and so
//! do all shards.

use senko_cache::FRAME_PAGES;
use senko_io::{LoopConfig, PAGE_SIZE, counted, exact_size};

use crate::settings::{LARGE_ITEM, Settings};
use crate::shards::STAND_IN_BYTES;

/// The resident memory of a server without shards: code, libraries, the allocator and the main
/// thread.
pub const PROCESS_BYTES: u64 = 12 << 20;
/// Stack and tables of a worker.
const WORKER_BYTES: u64 = 1 << 20;
/// What the allocator loses for each of several workers, since one frees another's buffers; a
/// quarter of what the smallest shards leave at most. Measured with 900 connections that read none
/// of their answers. With flash the frames' memory, which is never all in use then, is enough.
const EXCHANGE_BYTES: u64 = 2 << 20;
/// The admin listener: its thread, a minute of all counters, and its answers, which ADMIN-1 bounds.
const ADMIN_BYTES: u64 = 3 << 20;
/// A connection: session, table entries, and the loop's state for it.
const CONNECTION_BYTES: u64 = 2 << 10;
/// The additional memory of a connection with many requests under way: buffers of its replies and
/// its unparsed input, and the allocator's losses between them. Measured with 1,000 connections,
/// each with 16 requests under way.
const BUSY_BYTES: u64 = 8 << 10;
/// Keys and cipher state of a connection with TLS, in addition.
const TLS_BYTES: u64 = 8 << 10;
/// At most this many connections are busy at once.
const MOST_BUSY: u64 = 1024;
const LEAST_SHARD: u64 = 4 << 20;
/// The least memory of `-m` for a shard.
const LEAST_OWN: u64 = 1 << 20;
const RECV_BUFFER_BYTES: usize = 16 << 10;
/// Registered memory counts against RLIMIT_MEMLOCK, which is 8 MiB on most systems. One loop's
/// frames, without the largest, and rings fit into that.
const MOST_FRAMES: u64 = 4 << 20;
/// Frames of 64 KiB, for the pieces of large values.
const MOST_LARGE_FRAMES: u64 = 16 << 20;
/// A worker's memory from which on it has many of them.
const SPACIOUS_SHARE: u64 = 256 << 20;
const MOST_REGION: usize = 16 << 20;
const LEAST_REGION: usize = 64 << 10;
/// An item of up to this many bytes fits into every shard.
const SMALL_ITEM: u64 = 1 << 20;
/// Regions that a shard needs of each flash file.
const LEAST_REGIONS: u64 = 4;
/// Pages of the label at the head of a flash file.
pub const LABEL_PAGES: u64 = 256;
/// Most shards with flash. Each has a log on each device, with write buffers, and a drive that
/// mixes many streams may have to copy their data (`serve-endurance`).
const MOST_LOGS: usize = 8;
/// The numbers that shards can have.
const ALL_SHARDS: u64 = 256;
const MOST_SHARDS: usize = 64;
/// Memory and flash of a large shard: a cache with more has more shards. Beyond it tags are short,
/// and then handles.
const LARGE: (u64, u64) = (32 << 30, 1 << 40);
/// A data directory gets a shard for each part of this size, beyond those that its first start has
/// threads for: later starts may have more.
const SPACIOUS: u64 = 128 << 20;

#[derive(Clone, Debug)]
pub struct MemoryPlan {
    /// The cap, or the total for a drop-in's `-m`.
    pub total: u64,
    pub loop_config: LoopConfig,
    /// The bytes of unsent replies and unread requests at which a worker closes its worst
    /// connection.
    pub pending: usize,
    pub shards: usize,
    /// Bytes of each shard: items, index, write buffers.
    pub shard: usize,
    pub region: usize,
    pub max_item: usize,
    /// Of a shard's memory, buffers of values that go to flash as they arrive.
    pub upload_bytes: usize,
}

/// The part of a shard's memory for these buffers, and the same for what exceeds a size that
/// suffices for 16 clients; the most of them. With 2 MiB, 16 clients have two buffers each, and
/// wait for one write at a time: a quarter less than with 8 (`docs/measurements/serve-objects.md`).
const UPLOAD_SHARE: usize = 32;
const LATER_UPLOAD_SHARE: usize = 128;
const USUAL_UPLOAD_BYTES: usize = 8 << 20;
const MOST_UPLOAD_BYTES: usize = 32 << 20;
/// Two pieces: the buffers of one such value.
const LEAST_UPLOAD_BYTES: usize = 2 * FRAME_PAGES * PAGE_SIZE;

/// The largest item that goes to a slice of flash as it arrives: less than half of it, without some
/// regions.
fn largest_of(slice: u64, region: u64) -> u64 {
    slice.saturating_sub(8 * region) / 2 / 1024 * 1023
}

/// Divides the memory. `flash` has the bytes of each flash file.
///
/// # Errors
/// One sentence with the number that would suffice, if memory or a flash file is too small.
pub fn memory_plan(settings: &Settings, flash: &[u64]) -> Result<MemoryPlan, String> {
    let shards = shards(settings, flash);
    let Dealt {
        total,
        shard,
        pending,
        recv_buffers,
        frames,
        disk_threads,
        least,
    } = deal(settings, flash, shards);
    if shard < LEAST_SHARD {
        // Searched, not calculated: buffers grow with memory, and take a part of each addition.
        let with = |mb: u64| Settings {
            memory: mb << 20,
            item_memory: settings.item_memory.map(|_| mb << 20),
            ..settings.clone()
        };
        let most = least.div_ceil(1 << 20) * 2;
        let does = |&mb: &u64| deal(&with(mb), flash, shards).shard >= LEAST_SHARD;
        let need = (1..most).find(does).unwrap_or(most);
        let (given, need) = match settings.item_memory {
            Some(items) => (format!("-m {}", items >> 20), format!("-m {need}")),
            None => (
                format!("--memory {}", asked(settings.memory)),
                format!("{need}m"),
            ),
        };
        return Err(format!(
            "{given} is too small for {} and {}: {need} is the least, \
             or ask for fewer threads (-t) or connections (-c)",
            counted(settings.threads, "thread"),
            counted(settings.max_connections, "connection"),
        ));
    }
    let region = region_for(settings, (shards, shard), flash);
    check_flash(settings, shards, flash, region)?;
    let upload_bytes = match flash.is_empty() || settings.no_evict {
        true => 0,
        false => upload_bytes(shard as usize),
    };
    let slice = flash.iter().min().map_or(0, |bytes| bytes / shards as u64);
    Ok(MemoryPlan {
        total,
        loop_config: LoopConfig {
            backend: settings.io,
            recv_buffers,
            recv_buffer_bytes: RECV_BUFFER_BYTES,
            frames,
            disk_threads,
            max_connections: settings.max_connections + 16, // some connections are refused with an answer
        },
        pending: pending as usize,
        shards,
        shard: usize::try_from(shard)
            .map_err(|_| "memory is larger than this machine can address".to_string())?,
        region,
        max_item: match settings.raise_max_item && upload_bytes >= LEAST_UPLOAD_BYTES {
            true => largest_of(slice, region as u64)
                .clamp(settings.max_item as u64, LARGE_ITEM as u64) as usize,
            false => settings.max_item,
        },
        upload_bytes,
    })
}

fn upload_bytes(shard: usize) -> usize {
    let usual = (shard / UPLOAD_SHARE).min(USUAL_UPLOAD_BYTES);
    usual.max(shard / LATER_UPLOAD_SHARE).min(MOST_UPLOAD_BYTES)
}

/// The size of each part, whether sufficient or not.
struct Dealt {
    total: u64,
    shard: u64,
    pending: u64,
    recv_buffers: usize,
    frames: Vec<(usize, usize)>,
    disk_threads: usize,
    /// The memory that the smallest shards need, in addition to buffers of this size.
    least: u64,
}

/// The number of shards: that of the data directory, or for a cache that begins empty one a thread,
/// as far as memory and flash suffice. With flash they are few, unless they would be large. A data
/// directory may be started with more threads later, so it gets more shards if its memory is
/// spacious.
pub(super) fn shards(settings: &Settings, flash: &[u64]) -> usize {
    if let Some(shards) = settings.shards {
        return shards;
    }
    let most = match flash.is_empty() {
        true => MOST_SHARDS,
        false => MOST_LOGS,
    };
    let memory = settings.item_memory.unwrap_or(settings.memory);
    let spacious = match settings.data_dir {
        Some(_) => (memory / SPACIOUS).min(MOST_LOGS as u64) as usize,
        None => 1,
    };
    let large = (memory / LARGE.0).max(flash.iter().sum::<u64>() / LARGE.1);
    let wanted = settings.threads.max(spacious).min(most);
    let wanted = wanted.max(large.min(ALL_SHARDS) as usize);
    let region = settings.region.unwrap_or(LEAST_REGION) as u64;
    let fits = |&shards: &usize| {
        let shard = deal(settings, flash, shards).shard;
        // The drop-in's regions become smaller.
        let slices = settings.drop_in
            || (flash.iter()).all(|bytes| bytes / shards as u64 >= LEAST_REGIONS * region);
        // What does not fit into memory can go to flash as it arrives.
        let largest = settings.max_item as u64;
        let most = |bytes: &u64| largest_of(bytes / shards as u64, MOST_REGION as u64);
        let uploads =
            !settings.no_evict && !flash.is_empty() && shard / UPLOAD_SHARE as u64 > 1 << 17;
        let fits = largest <= SMALL_ITEM
            || 3 * largest <= shard
            || uploads && flash.iter().all(|bytes| largest <= most(bytes));
        slices && shard >= LEAST_SHARD && fits
    };
    (1..=wanted).rev().find(fits).unwrap_or(1)
}

fn deal(settings: &Settings, flash: &[u64], shards: usize) -> Dealt {
    let (threads, shards) = (settings.threads as u64, shards as u64);
    // Small buffers for small memories. From 256 MiB per worker on, buffers have the size that
    // speed requires.
    let share = settings.item_memory.unwrap_or(settings.memory) / threads;
    let recv_buffers = power_of_two_below(share / 64 / RECV_BUFFER_BYTES as u64, 16, 256);
    let frames = if flash.is_empty() {
        vec![(1, 4)]
    } else {
        frame_classes(share)
    };
    let frame_bytes: usize = frames
        .iter()
        .map(|(pages, count)| pages * count * PAGE_SIZE)
        .sum();
    let pending = (share / 32).clamp(1 << 20, 64 << 20);
    let disk_threads = (16 / settings.threads).clamp(4, 16);
    let buffers = (recv_buffers * RECV_BUFFER_BYTES + frame_bytes) as u64;
    // Buffers grow by doubling, so pending data takes up to twice its bytes.
    let worker = WORKER_BYTES + buffers + 2 * pending;
    let connections = settings.max_connections as u64;
    let each = CONNECTION_BYTES + settings.tls.as_ref().map_or(0, |_| TLS_BYTES);
    let admin = match settings.watched() {
        true => ADMIN_BYTES,
        false => 0,
    };
    let fixed = PROCESS_BYTES
        + admin
        + connections * each
        + connections.min(MOST_BUSY) * BUSY_BYTES
        + threads * worker
        + threads.saturating_sub(shards) * STAND_IN_BYTES as u64;

    let exchange = match threads > 1 && flash.is_empty() {
        true => threads * EXCHANGE_BYTES,
        false => 0,
    };

    let (total, shard) = match settings.item_memory {
        // The index of items in DRAM is added. With flash, write buffers and the index of flash are
        // added too. That index is sized for items of about a page: 12 bytes each, with room to
        // grow.
        Some(items) => {
            let own = items / shards;
            let index =
                own / 32 + (1 << 20) + flash.iter().sum::<u64>() / PAGE_SIZE as u64 * 12 / shards;
            let buffers = flash.len() as u64 * (own / 16 + (1 << 20));
            // With many shards, each has little. It then gets more than `-m` says.
            let least = if own < LEAST_OWN { 0 } else { LEAST_SHARD };
            let shard = (own + index + buffers).max(least);
            (fixed + exchange + shard * shards, shard)
        }
        None => {
            let spare = settings.memory.saturating_sub(fixed);
            let beyond_least = spare.saturating_sub(shards * LEAST_SHARD);
            let all = spare - exchange.min(beyond_least / 4);
            (settings.memory, all / shards)
        }
    };
    Dealt {
        total,
        shard,
        pending,
        recv_buffers,
        frames,
        disk_threads,
        least: fixed + shards * LEAST_SHARD,
    }
}

/// The cap, in whole MiB, with which each shard gets this many bytes; `None` if there is none.
pub fn least_memory(settings: &Settings, flash: &[u64], shard: u64) -> Option<u64> {
    let mut settings = settings.clone();
    let mut least = settings.item_memory.unwrap_or(settings.memory) >> 20 << 20;
    // Adds the memory that shards lack until they have enough, since buffers take a part of each
    // addition.
    for _ in 0..100 {
        least += 1 << 20;
        match &mut settings.item_memory {
            Some(items) => *items = least,
            None => settings.memory = least,
        }
        let plan = memory_plan(&settings, flash).ok()?;
        let lacks = shard.saturating_sub(plan.shard as u64);
        if lacks == 0 {
            return Some(least);
        }
        least += (lacks * plan.shards as u64) >> 20 << 20;
    }
    None
}

/// The frames of a worker with this share of the memory. With these sizes a read wastes at most
/// half of its frame, up to the largest frame that a shard requests. Most frames are short, like
/// most reads. A large value needs several of the largest, since its pieces are read ahead.
fn frame_classes(share: u64) -> Vec<(usize, usize)> {
    let small = (share / 48).clamp(340 << 10, MOST_FRAMES);
    // What is read ahead for slow readers is copied, and a small memory has little for copies.
    let large = match share < SPACIOUS_SHARE {
        true => (share / 102).clamp(160 << 10, 1920 << 10),
        false => (share / 64).min(MOST_LARGE_FRAMES),
    };
    let parts = [
        (1, small * 5 / 11),
        (2, small * 2 / 11),
        (4, small * 2 / 11),
        (8, small * 2 / 11),
        (FRAME_PAGES, large),
    ];
    let of = |(pages, bytes): (usize, u64)| (pages, (bytes as usize / (pages * PAGE_SIZE)).max(2));
    parts.map(of).to_vec()
}

/// Bytes of a region: as configured, otherwise at most a sixteenth of the shard's memory and of the
/// smallest slice of flash. The drop-in has smaller regions than configured where a slice has no
/// room for them, because memcached's threads share all pages, and each shard has a slice here.
fn region_for(settings: &Settings, (shards, shard): (usize, u64), flash: &[u64]) -> usize {
    let smallest = flash
        .iter()
        .map(|bytes| bytes / shards as u64)
        .min()
        .unwrap_or(u64::MAX);
    match settings.region {
        Some(region) if settings.drop_in && LEAST_REGIONS * region as u64 > smallest => {
            return power_of_two_below(smallest / LEAST_REGIONS, LEAST_REGION, MOST_REGION);
        }
        Some(region) => return region,
        None => {}
    }
    power_of_two_below((shard / 16).min(smallest / 16), LEAST_REGION, MOST_REGION)
}

fn check_flash(
    settings: &Settings,
    shards: usize,
    flash: &[u64],
    region: usize,
) -> Result<(), String> {
    for (spec, bytes) in settings.flash.iter().zip(flash) {
        let (shards, least) = (shards as u64, LEAST_REGIONS * region as u64);
        if bytes / shards < least {
            return Err(format!(
                "{} is too small: beside its label of {} it has {}, and with {} it needs {} at \
                 least, for each {LEAST_REGIONS} regions of {}",
                spec.path.display(),
                exact_size(LABEL_PAGES * PAGE_SIZE as u64),
                exact_size(*bytes),
                counted(shards, "shard"),
                exact_size(least * shards),
                exact_size(region as u64),
            ));
        }
    }
    Ok(())
}

/// A size as it is given to an option.
fn asked(bytes: u64) -> String {
    let units = [(20, "m"), (10, "k")];
    let whole = units
        .into_iter()
        .find(|&(shift, _)| bytes.trailing_zeros() >= shift);
    whole.map_or_else(
        || bytes.to_string(),
        |(shift, unit)| format!("{}{unit}", bytes >> shift),
    )
}

fn power_of_two_below(value: u64, least: usize, most: usize) -> usize {
    let value = usize::try_from(value).unwrap_or(usize::MAX).max(1);
    (1_usize << value.ilog2()).clamp(least, most)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::settings::FlashSpec;

    fn settings(memory: u64, threads: usize, connections: usize) -> Settings {
        let flash = vec![FlashSpec {
            path: "f".into(),
            bytes: 4 << 30,
        }];
        Settings {
            memory,
            threads,
            max_connections: connections,
            flash,
            ..Settings::default()
        }
    }

    fn parts(settings: &Settings, plan: &MemoryPlan) -> u64 {
        let c = &plan.loop_config;
        let frames: usize = c.frames.iter().map(|(p, n)| p * n * PAGE_SIZE).sum();
        let worker = c.recv_buffers * c.recv_buffer_bytes + frames + 2 * plan.pending;
        let stand_ins = settings.threads.saturating_sub(plan.shards) * STAND_IN_BYTES;
        let connections = settings.max_connections as u64;
        PROCESS_BYTES
            + settings.threads as u64 * (WORKER_BYTES + worker as u64)
            + (plan.shards * plan.shard + stand_ins) as u64
            + connections * CONNECTION_BYTES
            + connections.min(MOST_BUSY) * BUSY_BYTES
    }

    #[test]
    fn the_parts_never_exceed_the_cap() {
        for memory in [32_u64, 48, 64, 100, 256, 1024, 65536] {
            for threads in [1, 2, 3, 8, 64] {
                for connections in [1, 1024, 100_000] {
                    let settings = settings(memory << 20, threads, connections);
                    if let Ok(plan) = memory_plan(&settings, &[4 << 30]) {
                        assert!(
                            parts(&settings, &plan) <= memory << 20,
                            "{memory} {threads} {connections}: {plan:?}"
                        );
                        assert!(plan.loop_config.recv_buffers.is_power_of_two());
                        assert!(plan.loop_config.frames.is_sorted());
                        assert!(plan.region.is_power_of_two());
                    }
                }
            }
        }
    }

    #[test]
    fn most_of_the_memory_is_the_shards() {
        let settings = settings(256 << 20, 1, 1024);
        let plan = memory_plan(&settings, &[4 << 30]).unwrap();
        assert!(plan.shard as u64 > (256 << 20) * 8 / 10, "{plan:?}");
    }

    #[test]
    fn the_admin_listener_has_its_part() {
        let without = settings(256 << 20, 1, 1024);
        let with = Settings {
            admin: Some(([127, 0, 0, 1], 0).into()),
            ..without.clone()
        };
        let shard = |settings| memory_plan(settings, &[4 << 30]).unwrap().shard as u64;
        assert_eq!(shard(&without) - shard(&with), ADMIN_BYTES);
    }

    /// `docs/cache/sizing.md` gave 20 MiB for it at every size.
    #[test]
    fn what_is_not_for_items_is_as_sizing_says() {
        let said = include_str!("../../../../docs/cache/sizing.md");
        for (megabytes, rest) in [
            (64, "31 MiB of 64"),
            (256, "52 of 256"),
            (1024, "120 of 1 GiB"),
        ] {
            assert!(said.contains(rest), "{rest}");
            let plan = memory_plan(&settings(megabytes << 20, 2, 1024), &[1 << 30]).unwrap();
            let shards = plan.shard as u64 * plan.shards as u64;
            let rest: u64 = rest.split(' ').next().unwrap().parse().unwrap();
            let seen = (plan.total - shards) >> 20;
            assert!(
                seen.abs_diff(rest) <= 2,
                "{seen} MiB of {megabytes}, not {rest}"
            );
        }
    }

    #[test]
    fn the_number_named_in_the_error_is_enough() {
        for (threads, connections) in [(1, 1024), (4, 1024), (16, 50_000)] {
            let small = settings(1 << 20, threads, connections);
            let error = memory_plan(&small, &[4 << 30]).unwrap_err();
            let need: u64 = error
                .split(": ")
                .nth(1)
                .unwrap()
                .split('m')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            // With more memory the buffers grow too, so the second refusal may ask for a little
            // more.
            let mut now = need;
            while memory_plan(&settings(now << 20, threads, connections), &[4 << 30]).is_err() {
                now += 1;
                assert!(now <= need + need / 8, "{error}");
            }
        }
    }

    #[test]
    fn the_least_memory_for_a_shard_is_the_least() {
        for (memory, threads, shard) in [(32, 1, 100 << 20), (64, 2, 23 << 20), (4096, 3, 9 << 30)]
        {
            let mut settings = settings(memory << 20, threads, 1024);
            let flash = [4 << 30];
            let least = least_memory(&settings, &flash, shard).unwrap();
            let mut given = |bytes| {
                settings.memory = bytes;
                memory_plan(&settings, &flash).unwrap().shard as u64
            };
            assert!(given(least) >= shard && given(least - (4 << 20)) < shard);
        }
    }

    #[test]
    fn item_memory_is_added_to() {
        let mut settings = settings(1 << 20, 4, 1024);
        settings.item_memory = Some(64 << 20);
        settings.flash.clear();
        let plan = memory_plan(&settings, &[]).unwrap();
        assert!(plan.shard >= 16 << 20);
        assert!(plan.total > 64 << 20);
        // memcached also starts with 32 threads and its default 64 MiB.
        let many = Settings {
            threads: 32,
            ..settings.clone()
        };
        assert!(memory_plan(&many, &[]).is_ok_and(|plan| plan.shard as u64 >= LEAST_SHARD));
        // Three shards fit into it.
        settings.item_memory = Some(3 << 20);
        assert_eq!(memory_plan(&settings, &[]).unwrap().shards, 3);
        // The refusal names the least value in the option's own terms, and that value works.
        settings.shards = Some(4);
        settings.item_memory = Some(3 << 20);
        let refused = memory_plan(&settings, &[]).unwrap_err();
        let (given, least) = refused.split_once(" connections: -m ").unwrap();
        assert!(
            given.starts_with("-m 3 is too small for 4 threads"),
            "{refused}"
        );
        let least: u64 = least.split(' ').next().unwrap().parse().unwrap();
        for (mb, does) in [(least, true), (least - 1, false)] {
            settings.item_memory = Some(mb << 20);
            assert_eq!(memory_plan(&settings, &[]).is_ok(), does, "{refused}");
        }
    }

    #[test]
    fn small_flash_has_small_regions_or_is_refused() {
        let settings = settings(1 << 30, 2, 64);
        assert_eq!(
            memory_plan(&settings, &[4 << 30]).unwrap().region,
            MOST_REGION
        );
        assert_eq!(memory_plan(&settings, &[64 << 20]).unwrap().region, 2 << 20);
        assert!(
            memory_plan(&settings, &[128 << 10])
                .unwrap_err()
                .contains("too small")
        );
        let named = Settings {
            region: Some(16 << 20),
            ..settings
        };
        assert!(
            memory_plan(&named, &[32 << 20])
                .unwrap_err()
                .contains("4 regions of 16 MiB")
        );
        // `-o ext_path=F:64m,ext_page_size=8` was refused with two threads.
        let dropped_in = Settings {
            drop_in: true,
            region: Some(8 << 20),
            ..named
        };
        for (flash, region) in [(128, 8), (63, 4), (33, 4), (31, 2)] {
            let plan = memory_plan(&dropped_in, &[flash << 20]).unwrap();
            assert_eq!(plan.region, region << 20, "{flash}");
        }
    }
}
