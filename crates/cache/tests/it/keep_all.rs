// SPDX-License-Identifier: Apache-2.0
//! If nothing may be evicted and there is flash, every stored item is found until it is deleted,
//! replaced, flushed or expired.
//!
//! With `-M`, flash used to accept nothing: 25,529 of 40,000 sets were refused, although both tiers
//! had room. The model here is a map. A third of the keys share segment and tag with two others,
//! and records range from a byte to more than a region.

use std::collections::{HashMap, HashSet};

use senko_cache::{
    Admission, AdmissionRule, AllocError, Done, Fetch, Fetched, FlashRef, HashSeed, Key, Lookup,
    PolicyKind, Shard, ShardConfig, Want,
};
use senko_workload::Rng;

use crate::model::{FRAMES, config_of, policy_of, seeds};
use crate::queue::MemoryQueue;
use crate::stream::whole;

/// The key of 8 bytes to which XXH3 without a seed assigns this hash: its steps for such keys, in
/// reverse.
fn forged(hash: u64) -> [u8; 8] {
    const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;
    const FLIP: u64 = 0x1cad_21f7_2c81_017c ^ 0xdb97_9083_e96d_d4de;
    let mut inverse = FACTOR;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(inverse)));
    }
    let mut h = hash ^ hash >> 28 ^ hash >> 56;
    h = h.wrapping_mul(inverse);
    h ^= (h >> 35) + 8;
    h = h.wrapping_mul(inverse);
    // The step is its own inverse after 64 times.
    for _ in 0..63 {
        h ^= h.rotate_left(49) ^ h.rotate_left(24);
    }
    (h ^ FLIP).rotate_left(32).to_le_bytes()
}

/// Keys were once hashed without a secret. Anyone could make 16,000 keys with the same segment
/// and tag, and each look-up compared up to 16,000 keys.
#[test]
fn keys_that_are_made_to_collide_are_spread_by_a_seed() {
    const MANY: u64 = 16_000;
    const SAME: u64 = 0xffff_0000_3fff_ffff;
    let keys: Vec<[u8; 8]> = (0..MANY)
        .map(|n| forged(0x1234_0000_0567_89ab | n << 30))
        .collect();
    let places = |seed| {
        let hashes = keys.iter().map(|key| Key::new(key, seed).hash & SAME);
        hashes.collect::<HashSet<_>>().len()
    };
    assert_eq!(places(HashSeed::default()), 1, "the keys are forged well");
    for seed in [1, 0x9e37_79b9_7f4a_7c15, u64::MAX] {
        assert!(places(HashSeed(seed)) > MANY as usize - 5, "seed {seed}");
    }
}

/// Keys 0 to 2, 9 to 11 and so on have one segment and one tag.
fn key_of(n: u64) -> Vec<u8> {
    if n % 9 < 3 {
        let mut rng = Rng::new(n / 9);
        let hash = rng.next_u64() & 0xffff_0000_3fff_ffff;
        forged(hash | (n % 9) << 30).to_vec()
    } else {
        crate::model::key_of(n)
    }
}

/// A shard and its required contents.
struct Run {
    shard: Shard,
    queue: MemoryQueue,
    rng: Rng,
    model: HashMap<u64, (Vec<u8>, u32)>,
    waiting: HashMap<u64, u64>,
    done: HashMap<u64, Fetched>,
    user: u64,
    now_ms: u64,
    steady_ms: u64,
    longest: u64,
    /// Turns in which nothing was in flight.
    idle: u64,
    lost: u64,
    stored: u64,
    refused: u64,
    seed: u64,
}

fn shard_config(policy: PolicyKind, seed: u64, flash: usize) -> ShardConfig {
    ShardConfig {
        no_evict: true,
        max_item: 512 << 10,
        // Neither may break the promise of -M.
        reinsert: false,
        admission: Admission {
            rule: AdmissionRule::Fetched,
            budget: None,
        },
        ..config_of(3 << 20, (flash >> 12) as u64, policy, seed)
    }
}

impl Run {
    fn new(policy: PolicyKind, seed: u64, flash: usize, longest: u64) -> Run {
        let mut shard = Shard::new(shard_config(policy, seed, flash)).expect("a shard");
        let now_ms = 1_700_000_000_000;
        shard.set_now(now_ms);
        Run {
            shard,
            queue: MemoryQueue::new(flash >> 12, &FRAMES, seed ^ 1),
            rng: Rng::new(seed),
            model: HashMap::new(),
            waiting: HashMap::new(),
            done: HashMap::new(),
            user: 0,
            now_ms,
            steady_ms: 0,
            longest,
            idle: 0,
            lost: 0,
            stored: 0,
            refused: 0,
            seed,
        }
    }

    fn now(&self) -> u32 {
        (self.now_ms / 1000) as u32
    }

    fn live(&self, n: u64) -> Option<&Vec<u8>> {
        let entry = self.model.get(&n)?;
        (entry.1 == 0 || entry.1 > self.now()).then_some(&entry.0)
    }

    fn pass(&mut self) {
        self.steady_ms += 1;
        self.now_ms += 1;
        self.shard.set_steady(self.steady_ms);
        self.shard.set_now(self.now_ms);
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.below(100) {
            0..60 => self.rng.below(400),
            60..90 => self.rng.below(4000),
            90..98 => self.rng.below(40_000),
            _ => self.rng.below(self.longest),
        } as usize;
        let mut byte = self.rng.next_u64();
        let bytes = (0..len).map(|_| {
            byte = byte.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (byte >> 56) as u8
        });
        bytes.collect()
    }

    /// Runs the device and handles the operations that ended.
    fn device(&mut self) {
        if self.queue.pending() == 0 {
            self.idle += 1;
            assert!(
                self.idle < 100_000,
                "seed {}: {:?} wait for ever",
                self.seed,
                self.waiting
            );
        } else {
            self.idle = 0;
        }
        if let Some(completion) = self.queue.complete_one() {
            self.shard.on_disk(&mut self.queue, completion);
        }
        if self.rng.below(8) == 0 {
            self.shard.tick(&mut self.queue);
        }
        while let Some(Done { user, fetched }) = self.shard.next_done(&mut self.queue) {
            match self.waiting.remove(&user) {
                Some(n) => self.answered(n, fetched),
                None => {
                    // Its answer is valid until the next change of the shard: the waiting command
                    // is next.
                    self.done.insert(user, fetched);
                    return;
                }
            }
        }
    }

    /// The end of a get that was in flight together with other commands; none of them changes its
    /// key.
    fn answered(&mut self, n: u64, fetched: Fetched) {
        match fetched {
            Fetched::Answer(item) => {
                let Some((item, buf)) = whole(&mut self.shard, &mut self.queue, item) else {
                    return self.missed(n);
                };
                let value = &buf[item.value];
                let holds = self.live(n).is_none_or(|live| live == value);
                assert!(holds, "seed {}: key {n} has another value", self.seed);
            }
            Fetched::Resident(item) => self.check_resident(n, item),
            Fetched::Changed => self.get(n),
            Fetched::Absent => self.missed(n),
            other => panic!("seed {}: key {n}: {other:?}", self.seed),
        }
    }

    fn check_resident(&mut self, n: u64, item: senko_cache::ItemRef) {
        let mut value = Vec::new();
        self.shard.copy_value(item, &mut value);
        let live = self.live(n);
        assert_eq!(live, Some(&value), "seed {}: key {n}", self.seed);
    }

    fn missed(&mut self, n: u64) {
        if self.live(n).is_some() {
            self.lost += 1;
            assert!(
                self.queue.errors > 0,
                "seed {}: key {n} of {} bytes is lost",
                self.seed,
                self.model[&n].0.len()
            );
        }
        self.model.remove(&n);
    }

    fn get(&mut self, n: u64) {
        let key = key_of(n);
        let key = Key::new(&key, HashSeed::default());
        match self.shard.lookup(&key) {
            Lookup::Dram(item) => {
                self.shard.hit(item);
                self.check_resident(n, item);
            }
            Lookup::Miss => self.missed(n),
            Lookup::Flash(at) => {
                self.user += 1;
                match self
                    .shard
                    .fetch(&mut self.queue, &key, at, Want::Answer, self.user)
                {
                    Fetch::Now(fetched) => self.answered(n, fetched),
                    Fetch::Queued => {
                        self.waiting.insert(self.user, n);
                    }
                }
            }
        }
    }

    /// Waits for a fetch.
    fn fetch(&mut self, n: u64, at: FlashRef, want: Want) -> Fetched {
        let key = key_of(n);
        self.user += 1;
        let user = self.user;
        let key = Key::new(&key, HashSeed::default());
        match self.shard.fetch(&mut self.queue, &key, at, want, user) {
            Fetch::Now(fetched) => fetched,
            Fetch::Queued => loop {
                self.pass();
                self.device();
                if let Some(fetched) = self.done.remove(&user) {
                    return fetched;
                }
            },
        }
    }

    /// No get of this key is in flight.
    fn wait_for_gets(&mut self, n: u64) {
        while self.waiting.values().any(|&m| m == n) {
            self.device();
        }
    }

    /// Removes the key from flash, if it has an item there.
    fn forget(&mut self, n: u64) {
        let key = key_of(n);
        let key = Key::new(&key, HashSeed::default());
        while let Lookup::Flash(at) = self.shard.lookup(&key) {
            match self.fetch(n, at, Want::Header) {
                Fetched::Header(_, at) => {
                    self.shard.remove_flash(&key, at);
                    return;
                }
                Fetched::Absent => return,
                Fetched::Changed => {}
                other => panic!("seed {}: key {n}: {other:?}", self.seed),
            }
        }
    }

    /// Stores, or is refused and changes nothing; returns whether it stored.
    fn set(&mut self, n: u64) -> bool {
        let value = self.value();
        self.store(n, value)
    }

    fn store(&mut self, n: u64, value: Vec<u8>) -> bool {
        self.wait_for_gets(n);
        let expiry = match self.rng.below(10) {
            0 => self.now() + 1 + self.rng.below(20_000) as u32,
            _ => 0,
        };
        let key = key_of(n);
        let key = Key::new(&key, HashSeed::default());
        for round in 0.. {
            assert!(round < 200_000, "seed {}: a set waits for ever", self.seed);
            match self
                .shard
                .alloc(&mut self.queue, &key, 7, expiry, value.len())
            {
                Ok(mut draft) => {
                    self.shard.fill(&mut self.queue, &mut draft, &value);
                    self.device();
                    self.forget(n);
                    self.shard.link(draft, None);
                    self.model.insert(n, (value, expiry));
                    self.stored += 1;
                    return true;
                }
                Err(AllocError::Busy) => {
                    self.pass();
                    self.device();
                }
                Err(AllocError::OutOfMemory) => {
                    self.refused += 1;
                    return false;
                }
                Err(e) => panic!("seed {}: {e}", self.seed),
            }
        }
        unreachable!("the loop ends")
    }

    fn delete(&mut self, n: u64) {
        self.wait_for_gets(n);
        let key = key_of(n);
        let key = Key::new(&key, HashSeed::default());
        self.forget(n);
        if let Lookup::Dram(item) = self.shard.lookup(&key) {
            self.shard.unlink(item);
        }
        self.model.remove(&n);
    }

    /// Brings an item to DRAM, if there is room, and changes its expiry.
    fn touch(&mut self, n: u64) {
        self.wait_for_gets(n);
        let key = key_of(n);
        let key = Key::new(&key, HashSeed::default());
        loop {
            let item = match self.shard.lookup(&key) {
                Lookup::Dram(item) => item,
                Lookup::Miss => return self.missed(n),
                Lookup::Flash(at) => match self.fetch(n, at, Want::Resident) {
                    Fetched::Resident(item) => item,
                    Fetched::Changed => continue,
                    Fetched::Absent => return self.missed(n),
                    Fetched::OutOfMemory => return,
                    other => panic!("{other:?}"),
                },
            };
            let expiry = self.now() + 50_000;
            self.shard.set_expiry(item, expiry);
            self.model.get_mut(&n).expect("it is there").1 = expiry;
            return;
        }
    }

    fn step(&mut self, keys: u64) {
        let n = self.rng.below(keys);
        // Half of the items do not change once they are stored: they go around with the log.
        let what = match self.rng.below(1000) {
            what @ 400..990 if n % 2 == 1 && self.live(n).is_some() => what % 400,
            what => what,
        };
        match what {
            0..400 => self.get(n),
            400..820 => {
                self.set(n);
            }
            820..850 => self.touch(n),
            850..990 => self.delete(n),
            990..999 => {
                self.now_ms += self.rng.below(300_000);
                self.shard.set_now(self.now_ms);
            }
            _ if self.rng.below(20) == 0 => {
                while !self.waiting.is_empty() {
                    self.device();
                }
                self.shard.flush_all();
                self.model.clear();
            }
            _ => {}
        }
        self.pass();
        for _ in 0..self.rng.below(3) {
            self.device();
        }
        while self.waiting.len() > 12 {
            self.device();
        }
    }

    /// Gets every key.
    fn check_all(&mut self, keys: u64) {
        for n in 0..keys {
            self.get(n);
            while self.waiting.len() > 12 {
                self.device();
            }
        }
        while !self.waiting.is_empty() {
            self.device();
        }
    }

    fn assert_nothing_dropped(&self) {
        let s = self.shard.stats();
        let drops = [
            s.evictions,
            s.tag_drops,
            s.flash_overwrites,
            s.drops_budget,
            s.drops_rule,
            s.drops_busy,
            s.drops_size,
            s.drops_error,
            s.drops_index,
            s.reclaim_drops,
            s.flash_checksum_errors,
        ];
        assert_eq!(drops, [0; 11], "seed {}: {s:?}", self.seed);
        assert_eq!(self.lost, 0);
    }
}

#[test]
fn what_was_stored_is_found_in_one_of_the_tiers() {
    for seed in seeds(5_000_000, 2) {
        let policy = policy_of(seed);
        let mut run = Run::new(policy, seed, 6 << 20, 400_000);
        for _ in 0..50_000 {
            run.step(1200);
        }
        run.check_all(1200);
        run.assert_nothing_dropped();
        let s = run.shard.stats();
        assert!(
            s.reclaim_regions > 20 && s.reinsertions > 100 && s.demotions > 1000,
            "seed {seed}: flash is not in use: {s:?}"
        );
        assert!(run.refused > 0, "seed {seed}: both tiers were to be full");
    }
}

/// A full cache refuses items, keeps those that it has, does not loop forever, and accepts more
/// once some items are deleted.
#[test]
fn a_full_cache_refuses_and_takes_again_after_deletes() {
    for seed in seeds(6_000_000, 2) {
        let mut run = Run::new(PolicyKind::S3Fifo, seed, 12 << 20, 200_000);
        let mut next = 0;
        for round in 0..4 {
            let before = run.stored;
            let mut in_a_row = 0;
            while in_a_row < 60 {
                let value = vec![next as u8; 100 + run.rng.below(3000) as usize];
                let value = if next % 64 == 0 {
                    vec![1; 150_000]
                } else {
                    value
                };
                in_a_row = if run.store(next, value) {
                    0
                } else {
                    in_a_row + 1
                };
                next += 1;
            }
            let stored = run.stored - before;
            assert!(stored > 300, "seed {seed} round {round}: {stored} stored");
            run.check_all(next);
            run.assert_nothing_dropped();
            let regions = run.shard.stats().reclaim_regions;
            for _ in 0..3000 {
                run.store(next, vec![0; 1000]);
                run.delete(next);
                run.device();
                run.shard.tick(&mut run.queue);
            }
            let more = run.shard.stats().reclaim_regions - regions;
            assert!(
                more < 60,
                "seed {seed}: {more} regions of 48 went around in vain"
            );
            let mut there: Vec<u64> = run.model.keys().copied().collect();
            there.sort_unstable();
            for n in there.into_iter().filter(|n| n % 3 == round % 3) {
                run.delete(n);
            }
        }
        assert!(run.refused > 100);
    }
}

/// Losses on a device are counted, and nothing else is lost.
#[test]
fn what_a_device_loses_is_counted() {
    for seed in seeds(7_000_000, 3) {
        let mut run = Run::new(PolicyKind::Lru, seed, 6 << 20, 300_000);
        run.queue.fail_one_in = 150;
        for _ in 0..40_000 {
            run.step(1000);
        }
        run.queue.fail_one_in = 0;
        run.check_all(1000);
        let s = run.shard.stats();
        let counted = s.flash_read_errors
            + s.flash_checksum_errors
            + s.flash_misses_out
            + s.flash_read_timeouts
            + s.drops_error;
        assert!(
            run.queue.errors > 20 && s.reclaim_regions > 20 && s.reinsertions > 100,
            "seed {seed}: {s:?}"
        );
        assert!(
            run.lost <= counted,
            "seed {seed}: {} lost, {counted} counted: {s:?}",
            run.lost
        );
        let others = [s.evictions, s.tag_drops, s.flash_overwrites, s.drops_index];
        assert_eq!((others, s.reclaim_drops), ([0; 4], 0), "seed {seed}");
    }
}
