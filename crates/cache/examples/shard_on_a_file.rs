// SPDX-License-Identifier: Apache-2.0
//! Fills a shard with more than its DRAM holds, and reads everything back: from DRAM, and from a
//! file in place of a flash device.
//!
//!     cargo run --release -p senko_cache --example shard_on_a_file

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use senko_cache::{
    Admission, AdmissionRule, AllocError, DeviceSlice, FRAME_PAGES, Fetch, Fetched, HashSeed, Key,
    Lookup, PolicyKind, Shard, ShardConfig, Want,
};
use senko_io::{BackendChoice, Event, EventLoop, FileOptions, FlashFile, LoopConfig};

const ITEMS: u32 = 20_000;
const VALUE_BYTES: usize = 1000;
const SEED: HashSeed = HashSeed(1);

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("senko-example-shard-{}", std::process::id()));
    let options = FileOptions {
        bytes: 64 << 20,
        ..FileOptions::default()
    };
    let file = FlashFile::open(&path, &options)?;
    let pages = file.pages();
    let mut io = EventLoop::new(&LoopConfig {
        backend: BackendChoice::Auto,
        recv_buffers: 16,
        recv_buffer_bytes: 4096,
        frames: vec![(1, 16), (FRAME_PAGES, 4)],
        disk_threads: 2,
        max_connections: 16,
    })?;
    let device = io.attach(Arc::new(file));
    let mut shard = Shard::new(ShardConfig {
        memory: 8 << 20,
        max_item: 1 << 20,
        flash: vec![DeviceSlice {
            device,
            first_page: 0,
            pages,
        }],
        region: 1 << 20,
        policy: PolicyKind::S3Fifo,
        admission: Admission {
            rule: AdmissionRule::All,
            budget: None,
        },
        promote_after: 2,
        sort_small: false,
        upload_over: usize::MAX,
        upload_bytes: 0,
        reinsert: true,
        no_evict: false,
        shard: 0,
        shards: 1,
        seed: 1,
        hash_seed: SEED,
    })?;
    shard.set_now(1_700_000_000_000);

    for number in 0..ITEMS {
        store(&mut shard, &mut io, number)?;
    }
    let (mut dram, mut flash, mut absent) = (0, 0, 0);
    for number in 0..ITEMS {
        let name = name(number);
        let key = Key::new(&name, SEED);
        match shard.lookup(&key) {
            Lookup::Dram(item) => {
                let mut value = Vec::new();
                shard.copy_value(item, &mut value);
                assert_eq!(value, value_of(number));
                dram += 1;
            }
            Lookup::Miss => absent += 1,
            // A tag matches. Only the record on flash tells whether it is this key's.
            Lookup::Flash(at) => {
                let fetched = match shard.fetch(&mut io, &key, at, Want::Answer, 0) {
                    Fetch::Now(fetched) => fetched,
                    Fetch::Queued => loop {
                        if let Some(done) = shard.next_done(&mut io) {
                            break done.fetched;
                        }
                        step(&mut shard, &mut io)?;
                    },
                };
                match fetched {
                    Fetched::Answer(item) => {
                        assert_eq!(&item.buf[item.value.clone()], value_of(number));
                        flash += 1;
                        drop(item);
                        shard.frames_freed(&mut io);
                    }
                    Fetched::Resident(_) => dram += 1,
                    _ => absent += 1,
                }
            }
        }
    }
    senko_io::tell!("of {ITEMS} items, {dram} were in DRAM, {flash} on flash, {absent} nowhere");
    assert!(dram > 0 && flash > 0, "both tiers answer");
    drop(io);
    std::fs::remove_file(path)?;
    Ok(())
}

fn name(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn value_of(number: u32) -> Vec<u8> {
    vec![(number % 251) as u8; VALUE_BYTES]
}

/// Stores an item. It waits for the device whenever evictions do.
fn store(shard: &mut Shard, io: &mut EventLoop, number: u32) -> Result<(), Box<dyn Error>> {
    loop {
        match shard.alloc(io, &Key::new(&name(number), SEED), 0, 0, VALUE_BYTES) {
            Ok(mut draft) => {
                shard.fill(io, &mut draft, &value_of(number));
                shard.link(draft, None);
                return Ok(());
            }
            Err(AllocError::Busy) => step(shard, io)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for the device, and tells the shard which operations ended.
fn step(shard: &mut Shard, io: &mut EventLoop) -> Result<(), Box<dyn Error>> {
    let mut events = Vec::new();
    io.poll(Some(Duration::from_millis(10)), &mut events)?;
    for event in events {
        if let Event::Disk(completion) = event {
            shard.on_disk(io, completion);
        }
    }
    shard.tick(io);
    Ok(())
}
