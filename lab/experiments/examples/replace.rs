// SPDX-License-Identifier: Apache-2.0
//! SETs that replace an item of 100 bytes, in DRAM. Two lengths of the loop give the instructions
//! of a SET as their difference:
//!
//!     cargo build --release -p senko_lab --example replace
//!     for sets in 0 100000; do
//!         valgrind --tool=callgrind target/release/examples/replace $sets
//!     done

use std::error::Error;
use std::sync::Arc;

use senko_cache::{Admission, AdmissionRule, HashSeed, Key, PolicyKind, Shard, ShardConfig};
use senko_io::{AlignedBuf, DeviceId, PageBuf, Queue, Tag};

const KEYS: u64 = 100_000;
const SEED: HashSeed = HashSeed(1);

/// A shard without flash submits nothing.
struct NoQueue;

impl Queue for NoQueue {
    fn frame(&mut self, _: usize) -> Option<PageBuf> {
        None
    }
    fn read(&mut self, _: DeviceId, _: u64, _: usize, _: PageBuf, _: Tag, _: u64) {}
    fn write(
        &mut self,
        _: DeviceId,
        _: u64,
        _: Arc<AlignedBuf>,
        _: usize,
        _: usize,
        _: Tag,
        _: u64,
    ) {
    }
    fn flush(&mut self, _: DeviceId, _: Tag, _: u64) {}
    fn discard(&mut self, _: DeviceId, _: u64, _: u64, _: Tag, _: u64) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let sets = std::env::args()
        .nth(1)
        .map_or(Ok(1_000_000), |n| n.parse())?;
    let mut shard = Shard::new(ShardConfig {
        memory: 64 << 20,
        max_item: 1 << 20,
        flash: Vec::new(),
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
    for number in 0..KEYS {
        set(&mut shard, number)?;
    }
    let mut number = 1_u64;
    for _ in 0..sets {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        set(&mut shard, (number >> 33) % KEYS)?;
    }
    let stats = shard.stats();
    assert_eq!((stats.dram_items, stats.evictions), (KEYS, 0));
    Ok(())
}

fn set(shard: &mut Shard, number: u64) -> Result<(), Box<dyn Error>> {
    let mut name = *b"key-00000000";
    for (n, digit) in name[4..].iter_mut().enumerate() {
        *digit = b'0' + (number >> (4 * n) & 15) as u8;
    }
    let key = Key::new(&name, SEED);
    let mut draft = shard.alloc(&mut NoQueue, &key, 0, 0, 100)?;
    shard.fill(&mut NoQueue, &mut draft, &[number as u8; 100]);
    shard.link(draft, None);
    Ok(())
}
