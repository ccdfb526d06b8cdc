// SPDX-License-Identifier: Apache-2.0
//! Records of all lengths around whole pages are read back from flash, with small records before
//! them, also after a lap.

use senko_cache::{Fetch, Fetched, HashSeed, Key, Lookup, Shard, Want};

use crate::model::config;
use crate::page_fill::store;
use crate::queue::MemoryQueue;
use crate::stream::whole;

const FLASH_PAGES: usize = 64 << 20 >> 12;
/// The difference between a record's length and its value's: header, `VALUE `, the name, flags,
/// length, line ends, `END`.
const AROUND: usize = 70;

/// A key and a value that differ from all others. Names are long, so that the part that must be in
/// one page is long.
fn item(n: usize) -> (Vec<u8>, Vec<u8>) {
    let mut key = format!("item {n:06}").into_bytes();
    key.resize([11, 250][n % 2], b'k');
    let len = if n.is_multiple_of(2) {
        // Records that may precede a large one, also in the last few bytes of a page.
        n * 37 % 4000
    } else {
        // 1 to 4 pages, and records as long as a frame or just longer. The last page holds from
        // nothing up to everything that precedes a value, and more.
        let pages = [1, 2, 3, 4, 15, 16, 17, 33][n / 2 % 8];
        (pages * 4096 + n / 16 * 7 % 700).saturating_sub(AROUND + key.len())
    };
    let value = (0..len).map(|at| (n * 31 + at * 7) as u8).collect();
    (key, value)
}

fn settle(shard: &mut Shard, queue: &mut MemoryQueue) {
    while let Some(completion) = queue.complete_one() {
        shard.on_disk(queue, completion);
    }
}

/// The result of a get of an item on flash; `None` if flash no longer has it, or DRAM has it.
fn get(shard: &mut Shard, queue: &mut MemoryQueue, key: &[u8], want: Want) -> Option<Vec<u8>> {
    let key = Key::new(key, HashSeed::default());
    let Lookup::Flash(at) = shard.lookup(&key) else {
        return None;
    };
    let fetched = match shard.fetch(queue, &key, at, want, 1) {
        Fetch::Now(fetched) => fetched,
        Fetch::Queued => loop {
            if let Some(done) = shard.next_done(queue) {
                break done.fetched;
            }
            let completion = queue.complete_one().expect("the read");
            shard.on_disk(queue, completion);
        },
    };
    match fetched {
        Fetched::Answer(found) => {
            let (found, buf) = whole(shard, queue, found).expect("it is whole");
            Some(buf[found.value].to_vec())
        }
        Fetched::Resident(item) => {
            let mut value = Vec::new();
            shard.copy_value(item, &mut value);
            Some(value)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_around_whole_pages_come_back() {
    let mut shard = Shard::new(config(8 << 20, FLASH_PAGES as u64)).expect("a shard");
    let mut queue = MemoryQueue::new(FLASH_PAGES, &[(1, 8), (16, 4)], 1);
    shard.set_now(1_700_000_000_000);
    let (mut stored, mut found) = (0, 0);
    // In the second half of the laps, items that were hit in the first half have been written
    // again.
    while shard.stats().reclaim_regions < 3 * FLASH_PAGES as u64 * 4096 / (256 << 10) {
        let (key, value) = item(stored);
        store(&mut shard, &mut queue, &key, &value);
        stored += 1;
        if stored.is_multiple_of(500) {
            settle(&mut shard, &mut queue);
            for n in (0..stored).rev().step_by(3) {
                let want = [Want::Answer, Want::Answer, Want::Resident][n / 3 % 3];
                let (key, value) = item(n);
                if let Some(back) = get(&mut shard, &mut queue, &key, want) {
                    assert!(
                        back == value,
                        "item {n}: {} bytes of {}",
                        back.len(),
                        value.len()
                    );
                    found += 1;
                }
            }
        }
    }
    let s = shard.stats();
    assert_eq!(
        (s.flash_checksum_errors, s.flash_read_errors),
        (0, 0),
        "of {found} found"
    );
    assert!(found > 10_000 && s.reinsertions > 1000, "{found}: {s:?}");
}

/// An item's epoch has 16 bits. With the 65,536th flush, items from before the first flush, and
/// items pinned meanwhile, used to come back.
#[test]
fn what_was_flushed_stays_away_for_any_number_of_flushes() {
    let mut shard = Shard::new(config(8 << 20, FLASH_PAGES as u64)).expect("a shard");
    let mut queue = MemoryQueue::new(FLASH_PAGES, &[(1, 8), (16, 4)], 1);
    shard.set_now(1_700_000_000_000);
    let there = |shard: &mut Shard, key: &[u8]| {
        !matches!(
            shard.lookup(&Key::new(key, HashSeed::default())),
            Lookup::Miss
        )
    };
    store(&mut shard, &mut queue, b"plain", b"1");
    store(&mut shard, &mut queue, b"pinned", b"2");
    let Lookup::Dram(pinned) = shard.lookup(&Key::new(b"pinned", HashSeed::default())) else {
        panic!("it was stored");
    };
    let pin = shard.pin(pinned);
    for _ in 0..1 << 16 {
        shard.flush_all();
    }
    assert!(!there(&mut shard, b"plain") && !there(&mut shard, b"pinned"));
    store(&mut shard, &mut queue, b"plain", b"3");
    assert!(
        there(&mut shard, b"plain"),
        "what is stored after it is there"
    );
    shard.unpin(pin);
    assert!(!there(&mut shard, b"pinned"));
    assert_eq!(shard.stats().dram_items, 1);
}
