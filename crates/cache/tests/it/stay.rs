// SPDX-License-Identifier: Apache-2.0
//! Items that are requested all the time stay in DRAM, however many others pass through to flash,
//! and however far the index grows.

use senko_cache::{HashSeed, Key, Lookup, Shard};

use crate::model::config;
use crate::page_fill::store;
use crate::queue::MemoryQueue;

/// This found a fault. For each new segment of the index a whole page of items was evicted, and the
/// room came back right after. So while flash filled, all items left DRAM page by page.
#[test]
fn hot_items_stay_while_the_index_grows() {
    const FLASH: usize = 256 << 20;
    let mut shard = Shard::new(config(32 << 20, FLASH as u64 >> 12)).expect("a shard");
    let mut queue = MemoryQueue::new(FLASH >> 12, &[(1, 8), (16, 4)], 1);
    shard.set_now(1_700_000_000_000);
    let hot: Vec<String> = (0..1000).map(|n| format!("hot {n:06}")).collect();
    for key in &hot {
        store(&mut shard, &mut queue, key.as_bytes(), &[b'h'; 200]);
    }
    let index = shard.stats().index_bytes;
    let mut left = 0;
    for n in 0..500_000 {
        let key = format!("cold{n:06}");
        store(&mut shard, &mut queue, key.as_bytes(), &[b'c'; 200]);
        let key = &hot[n % hot.len()];
        match shard.lookup(&Key::new(key.as_bytes(), HashSeed::default())) {
            Lookup::Dram(item) => shard.hit(item),
            Lookup::Flash(_) => {
                left += 1;
                store(&mut shard, &mut queue, key.as_bytes(), &[b'h'; 200]);
            }
            elsewhere => panic!("{key} after {n} others: {elsewhere:?}"),
        }
    }
    // When a page moves, its hot items go to other pages of the class. One hot item leaves for 64
    // others that lie behind each other in the queue: a search for a victim passes no more.
    let classes = shard.slab_classes();
    assert_eq!(
        classes.len(),
        1,
        "hot and cold items have one size: {classes:?}"
    );
    assert!(left <= hot.len() / 64, "{left} hot items left DRAM");
    let s = shard.stats();
    assert!(s.demotions > 350_000 && s.index_bytes > 2 * index, "{s:?}");
    // One page of 64 KiB for each page that the index took, and at most as many more because
    // classes age differently.
    assert!(s.slab_moves * (64 << 10) <= 2 * s.index_bytes, "{s:?}");
}

/// A limit that one shard of a cache takes is taken by all, however large their indexes are.
#[test]
fn an_index_above_the_limit_refuses_no_limit() {
    const FLASH: usize = 256 << 20;
    const LIMIT: usize = 4 << 20;
    let mut shard = Shard::new(config(32 << 20, FLASH as u64 >> 12)).expect("a shard");
    let mut queue = MemoryQueue::new(FLASH >> 12, &[(1, 8), (16, 4)], 1);
    shard.set_now(1_700_000_000_000);
    let mut n = 0;
    while shard.stats().index_bytes < LIMIT as u64 {
        store(&mut shard, &mut queue, format!("{n:07}").as_bytes(), b"v");
        n += 1;
    }
    assert!(shard.set_dram_limit(LIMIT));
    let key = |n| format!("{n:07}");
    // Items leave some at a time, with each store and each tick.
    for n in n..n + 1000 {
        store(&mut shard, &mut queue, key(n).as_bytes(), b"v");
        let found = shard.lookup(&Key::new(key(n).as_bytes(), HashSeed::default()));
        assert!(matches!(found, Lookup::Dram(_)), "{found:?}");
        for _ in 0..25 {
            shard.tick(&mut queue);
            while let Some(completion) = queue.complete_one() {
                shard.on_disk(&mut queue, completion);
            }
        }
    }
    let full = shard.stats().dram_items;
    assert!(shard.set_dram_limit(*shard.dram_bounds().end()));
    for n in n + 1000..n + 50_000 {
        store(&mut shard, &mut queue, key(n).as_bytes(), b"v");
    }
    assert!(shard.stats().dram_items > 2 * full, "{full} before");
    assert!(!shard.set_dram_limit(*shard.dram_bounds().end() + 1));
    assert!(!shard.set_dram_limit(100_000));
}
