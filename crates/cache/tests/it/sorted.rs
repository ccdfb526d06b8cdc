// SPDX-License-Identifier: Apache-2.0
//! The cost of small items with and without sorting: DRAM, pages, and the items that DRAM holds.

use senko_cache::{CacheStats, HashSeed, Key, Lookup, Shard};
use senko_workload::{Rng, etc};

use crate::model::config;
use crate::page_fill::store;
use crate::queue::MemoryQueue;

const MEMORY: usize = 24 << 20;
const FLASH: usize = 192 << 20;
/// Stores: flash is full after two thirds of them.
const STORES: u64 = 1_300_000;

/// A shard after stores of ETC's small sizes, of which some come again soon, and gets of these.
fn filled(sort: bool) -> CacheStats {
    let mut config = config(MEMORY, FLASH as u64 >> 12);
    config.sort_small = sort;
    let mut shard = Shard::new(config).expect("a shard");
    let mut queue = MemoryQueue::new(FLASH >> 12, &[(1, 8), (16, 4)], 1);
    let value = vec![b'v'; 1 << 10];
    shard.set_now(1_700_000_000_000);
    let mut rng = Rng::new(5);
    for n in 0..STORES {
        for n in [n, n.saturating_sub(rng.below(40_000))] {
            let mut key = format!("{n}").into_bytes();
            key.resize(key.len().max(etc::key_len(n)), b'k');
            let len = etc::value_len(n, 0, 950);
            match shard.lookup(&Key::new(&key, HashSeed::default())) {
                Lookup::Dram(item) if rng.below(8) > 0 => shard.hit(item),
                Lookup::Flash(_) => {}
                _ => store(&mut shard, &mut queue, &key, &value[..len]),
            }
        }
    }
    shard.stats()
}

/// While items waited for others, their size class once lost more than it got: DRAM was left with a
/// third of the items, all large.
#[test]
fn sorted_items_take_less_and_dram_holds_as_many() {
    let [alone, sorted] = [false, true].map(filled);
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
