// SPDX-License-Identifier: Apache-2.0
//! The cost of small items with and without sorting: DRAM, pages, and the items that DRAM holds.

use senko_cache::{CacheStats, HashSeed, Key, Lookup, Shard};
use senko_workload::{Rng, etc};

use crate::model::config;
use crate::page_fill::store;
use crate::queue::MemoryQueue;

/// Stores of the first test: flash is full after two thirds of them.
const STORES: u64 = 1_300_000;

/// The key of an item of ETC's sizes.
fn key(n: u64) -> Vec<u8> {
    let mut key = format!("{n}").into_bytes();
    key.resize(key.len().max(etc::key_len(n)), b'k');
    key
}

/// A shard of so many MiB of memory and flash after `stores` of ETC's small sizes, of which some
/// come again soon, and gets of these.
fn filled(memory: usize, flash: usize, sort: bool, stores: u64) -> Shard {
    let mut config = config(memory << 20, (flash as u64) << 8);
    config.sort_small = sort;
    let mut shard = Shard::new(config).expect("a shard");
    let mut queue = MemoryQueue::new(flash << 8, &[(1, 8), (16, 4)], 1);
    let value = vec![b'v'; 1 << 10];
    shard.set_now(1_700_000_000_000);
    let mut rng = Rng::new(5);
    for n in 0..stores {
        for n in [n, n.saturating_sub(rng.below(40_000))] {
            let (key, len) = (key(n), etc::value_len(n, 0, 950));
            match shard.lookup(&Key::new(&key, HashSeed::default())) {
                Lookup::Dram(item) if rng.below(8) > 0 => shard.hit(item),
                Lookup::Flash(_) => {}
                _ => store(&mut shard, &mut queue, &key, &value[..len]),
            }
        }
    }
    shard
}

/// While items waited for others, their size class once lost more than it got: DRAM was left with a
/// third of the items, all large.
#[test]
fn sorted_items_take_less_and_dram_holds_as_many() {
    let [alone, sorted] = [false, true].map(|sort| filled(24, 192, sort, STORES).stats());
    let each = |s: &CacheStats| s.index_bytes as f64 / s.flash_items as f64;
    let fill = |s: &CacheStats| s.page_fill_record_bytes as f64 / s.page_fill_page_bytes as f64;
    for s in [&alone, &sorted] {
        println!(
            "{:.2} bytes for each of {} items on flash, fill {:.3}, {} items of {:.0} bytes in DRAM",
            each(s),
            s.flash_items,
            fill(s),
            s.dram_items,
            s.dram_bytes as f64 / s.dram_items as f64,
        );
    }
    let share = sorted.sorted_items as f64 / sorted.demotions as f64;
    println!("{share:.3} of the demotions sorted");
    assert!(share > 0.9 && fill(&sorted) > 0.93);
    assert!(sorted.flash_items * 100 > alone.flash_items * 94);
    assert!(sorted.dram_items > alone.dram_items);
    assert!(each(&sorted) < 0.7 * each(&alone));
}

/// Where the index has too little memory for all of flash, the newest items are kept, and they are
/// sorted. Items in DRAM were once so few that none could wait for a run: all left alone, with
/// slots of eight bytes, and the index dropped items of any age.
#[test]
fn too_little_memory_keeps_the_newest() {
    let stores = 3_000_000;
    let mut shard = filled(13, 512, true, stores);
    let s = shard.stats();
    let share = s.sorted_items as f64 / s.demotions as f64;
    println!(
        "{} items on flash, {} in DRAM, {} dropped, {share:.3} of the demotions sorted, {} pages moved",
        s.flash_items, s.dram_items, s.drops_index, s.slab_moves,
    );
    assert!(s.drops_index > 0, "memory was enough");
    assert!(share > 0.9, "{share}");
    // A page of the index is not taken from the items for every store.
    assert!(s.slab_moves < s.demotions / 100);
    let mut found = |n: u64| shard.lookup(&Key::new(&key(n), HashSeed::default())) != Lookup::Miss;
    let newest = (stores - s.flash_items / 2..stores).step_by(97);
    let (all, there) = (newest.clone().count(), newest.filter(|&n| found(n)).count());
    assert!(there * 100 > all * 95, "{there} of {all}");
}
