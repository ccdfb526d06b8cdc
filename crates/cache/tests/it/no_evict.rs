// SPDX-License-Identifier: Apache-2.0
//! If nothing may be evicted, stored items stay: neither memory nor the index takes an item's
//! place.

use std::collections::HashSet;

use senko_cache::{AllocError, HashSeed, Key, Lookup, Shard, ShardConfig};

use crate::model::config;
use crate::queue::MemoryQueue;

fn shard(memory: usize) -> (Shard, MemoryQueue) {
    let config = ShardConfig {
        no_evict: true,
        ..config(memory, 0)
    };
    let mut shard = Shard::new(config).expect("a shard");
    shard.set_now(1_700_000_000_000);
    (shard, MemoryQueue::new(0, &[(1, 8), (16, 4)], 1))
}

fn key(n: u64) -> Vec<u8> {
    format!("key {n}").into_bytes()
}

#[test]
fn a_full_memory_refuses_and_keeps_what_it_has() {
    for len in [1, 100, 3000] {
        let (mut shard, mut queue) = shard(8 << 20);
        let value = vec![b'v'; len];
        let mut there = HashSet::new();
        let mut next = 0;
        for round in 0..4 {
            loop {
                let name = key(next);
                match shard.alloc(&mut queue, &Key::new(&name, HashSeed::default()), 0, 0, len) {
                    Ok(mut draft) => {
                        shard.fill(&mut queue, &mut draft, &value);
                        shard.link(draft, None);
                        there.insert(next);
                        next += 1;
                    }
                    Err(error) => {
                        assert_eq!(error, AllocError::OutOfMemory);
                        break;
                    }
                }
            }
            assert!(there.len() > 1000, "{len} bytes: {} items", there.len());
            let lost = there
                .iter()
                .filter(|&&n| shard.lookup(&Key::new(&key(n), HashSeed::default())) == Lookup::Miss)
                .count();
            assert_eq!(lost, 0, "{len} bytes, round {round}");
            // Deleted items make room for as many new ones and a few more.
            for n in (round..next).step_by(3) {
                if let Lookup::Dram(item) = shard.lookup(&Key::new(&key(n), HashSeed::default())) {
                    shard.unlink(item);
                    there.remove(&n);
                }
            }
        }
    }
}

/// Incoming values have no slots yet, so the index does not count them. All existing items are
/// being sent as answers.
#[test]
fn many_values_at_once_find_slots() {
    let (mut shard, mut queue) = shard(32 << 20);
    let drafts: Vec<_> = (0..100_000)
        .map(|n| {
            let name = key(n);
            let draft = shard.alloc(&mut queue, &Key::new(&name, HashSeed::default()), 0, 0, 1);
            draft.expect("there is room")
        })
        .collect();
    let mut pins = Vec::new();
    for mut draft in drafts {
        shard.fill(&mut queue, &mut draft, b"v");
        let item = shard.link(draft, None);
        pins.push(shard.pin(item));
    }
    for n in 0..pins.len() as u64 {
        let found = shard.lookup(&Key::new(&key(n), HashSeed::default()));
        assert!(matches!(found, Lookup::Dram(_)), "key {n}");
    }
    pins.into_iter().for_each(|pin| shard.unpin(pin));
}
