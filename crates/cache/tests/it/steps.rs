// SPDX-License-Identifier: Apache-2.0
//! How much work a step of a shard does: a command, or a tick. A step that is too long stops every
//! client of its worker. Units are counted, not time: items that leave DRAM, slots that are stored.

use senko_cache::{HashSeed, Key, PolicyKind, Shard, ShardConfig};

use crate::model::config_of;
use crate::queue::MemoryQueue;

/// The most items that may leave DRAM for an allocation of one chunk.
const LEAVE_FOR_A_SET: u64 = 20;
/// The most that may leave in a tick.
const LEAVE_IN_A_TICK: u64 = 32;
/// The most dead items that a tick may remove.
const DEAD_IN_A_TICK: u64 = 3000;

struct Steps {
    shard: Shard,
    queue: MemoryQueue,
    longest: u64,
}

impl Steps {
    fn new(config: ShardConfig) -> Steps {
        let pages = config.flash.iter().map(|s| s.pages).sum::<u64>() as usize;
        let mut shard = Shard::new(config).expect("a shard");
        shard.set_now(1_700_000_000_000);
        Steps {
            shard,
            queue: MemoryQueue::new(pages, &[(1, 8), (16, 4)], 1),
            longest: 0,
        }
    }

    /// Items that left DRAM so far.
    fn left(&self) -> u64 {
        let s = self.shard.stats();
        s.evictions + s.demotions + s.demotions_clean + s.reclaimed
    }

    fn set(&mut self, n: u64, len: usize) {
        let name = n.to_le_bytes();
        let key = Key::new(&name, HashSeed::default());
        loop {
            let before = self.left();
            let made = self.shard.alloc(&mut self.queue, &key, 0, 0, len);
            self.longest = self.longest.max(self.left() - before);
            let Ok(mut draft) = made else {
                self.device();
                continue;
            };
            self.shard
                .fill(&mut self.queue, &mut draft, &vec![n as u8; len]);
            self.shard.link(draft, None);
            return;
        }
    }

    fn device(&mut self) {
        while let Some(done) = self.queue.complete_one() {
            self.shard.on_disk(&mut self.queue, done);
        }
        let before = self.left();
        self.shard.tick(&mut self.queue);
        assert!(self.left() - before <= LEAVE_IN_A_TICK);
    }
}

/// A page of DRAM was once emptied at once: for another size class, for the index, and after the
/// limit of the memory fell. Pages hold hundreds to ten thousand items.
#[test]
fn no_step_empties_a_page() {
    for (flash, no_evict) in [
        (0, false),
        (128 << 20 >> 12, false),
        (1024 << 20 >> 12, true),
    ] {
        let config = config_of(38 << 20, flash, PolicyKind::S3Fifo, 2);
        let mut s = Steps::new(ShardConfig { no_evict, ..config });
        let mut n = 0;
        for len in [100, 150, 100, 3000, 60, 100, 700] {
            let sets = if len > 2000 { 10_000 } else { 150_000 };
            for _ in 0..sets {
                n += 1;
                s.set(n, len);
                if n % 64 == 0 {
                    s.device();
                }
            }
        }
        let moves = s.shard.stats().slab_moves;
        assert!(moves > 20, "{moves} pages were emptied");
        let classes = s.shard.slab_classes();
        assert!(classes.len() > 2, "{classes:?}");
        let bytes = |s: &Steps| s.shard.stats().dram_bytes;
        let full = bytes(&s);
        assert!(s.shard.set_dram_limit(19 << 20));
        for _ in 0..20_000 {
            n += 1;
            s.set(n, 700);
            s.device();
        }
        assert!(bytes(&s) < full * 5 / 8, "{} of {full}", bytes(&s));
        assert!(s.longest <= LEAVE_FOR_A_SET, "{} items left", s.longest);
    }
}

/// A tick once searched whole segments of the index for what is dead, the more the larger the
/// index. Now it searches a bounded number of slots, and what remains is found by later ticks.
#[test]
fn no_tick_searches_a_segment() {
    let mut s = Steps::new(config_of(64 << 20, 0, PolicyKind::Lru, 1));
    let items = 200_000;
    for n in 0..items {
        s.set(n, 50);
    }
    assert_eq!(s.shard.stats().dram_items, items);
    s.shard.flush_all();
    let (mut now, mut before, mut longest) = (1_700_000_000_000, 0, 0);
    for _ in 0..3000 {
        now += 100;
        s.shard.set_now(now);
        s.shard.tick(&mut s.queue);
        let removed = s.shard.stats().crawler_reclaimed;
        longest = longest.max(removed - before);
        before = removed;
    }
    assert_eq!((before, s.shard.stats().dram_items), (items, 0));
    assert!(longest <= DEAD_IN_A_TICK, "{longest} at once");
}
