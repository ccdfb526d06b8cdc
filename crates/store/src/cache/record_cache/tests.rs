// SPDX-License-Identifier: Apache-2.0
//! The cache of records against a model, its bound, its hit ratios, and its cost for a load without
//! hot keys.

mod policy; // hit ratios
mod protocol; // RECORD-4 under a scheduler that tries interleavings

use std::collections::HashMap;

use senko_workload::Rng;

use super::*;
use crate::Hasher;

fn hasher() -> Hasher {
    Hasher::new([3; 16])
}

fn key_of(number: u64) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    key.resize(8 + number as usize % 40, 7);
    key
}

fn found(time: u64, len: usize) -> Hit {
    let mut value = time.to_le_bytes().to_vec();
    value.resize(len.max(8), time as u8);
    Hit {
        flags: 0,
        time,
        expiry: time % 3 * 1000,
        value,
    }
}

/// Each key's element in "blocks", and the cache before them.
struct Model {
    cache: RecordCache,
    hasher: Hasher,
    sealed: HashMap<u64, Hit>,
    time: u64,
}

impl Model {
    fn new(bytes: u64) -> Model {
        Model {
            cache: RecordCache::new(bytes).expect("enough for a cache"),
            hasher: hasher(),
            sealed: HashMap::new(),
            time: 0,
        }
    }

    /// Seals new elements of some keys.
    fn seal(&mut self, rng: &mut Rng, keys: u64) {
        let mut log = HashMap::new();
        for _ in 0..1 + rng.below(700) {
            self.time += 1;
            let len = match rng.below(50) {
                0 => rng.below(9000),
                1..10 => rng.below(20),
                _ => rng.below(600),
            };
            log.insert(rng.below(keys), found(self.time, len as usize));
        }
        let mut sorted: Vec<(KeyHash, u64)> = log
            .iter()
            .map(|(&number, hit)| (self.hasher.hash(&key_of(number)), hit.time))
            .collect();
        sorted.sort_unstable_by_key(|&(hash, _)| hash);
        let mut sealing = self.cache.seal();
        for (hash, time) in sorted {
            sealing.key(hash, time);
        }
        sealing.done();
        self.sealed.extend(log);
    }

    fn get(&self, number: u64, rng: &mut Rng) -> bool {
        let key = key_of(number);
        let hash = self.hasher.hash(&key);
        let Some(truth) = self.sealed.get(&number) else {
            assert_eq!(self.cache.get(hash, &key, TimeBound::UpTo(u64::MAX)), None);
            return false;
        };
        let want = match rng.below(8) {
            0 => TimeBound::UpTo(truth.time),
            1 => TimeBound::Exactly(truth.time),
            2 => {
                let early = self.cache.get(hash, &key, TimeBound::UpTo(truth.time - 1));
                assert_eq!(early, None, "later than asked for");
                let other = self
                    .cache
                    .get(hash, &key, TimeBound::Exactly(truth.time + 1));
                assert_eq!(other, None, "another than asked for");
                return false;
            }
            _ => TimeBound::UpTo(u64::MAX),
        };
        let ticket = self.cache.ticket();
        let hit = self.cache.get(hash, &key, want);
        if let Some(hit) = &hit {
            assert_eq!(hit, truth, "key {number}");
        } else {
            self.cache.offer(ticket, hash, &key, truth);
        }
        hit.is_some()
    }
}

#[test]
fn what_is_found_is_the_newest_and_memory_stays_within_its_bound() {
    for (seed, bytes) in [(1, 64 << 10), (2, 300_000), (3, 1 << 20), (4, 2_500_001)] {
        let mut rng = Rng::new(seed);
        let mut model = Model::new(bytes);
        let keys = 3 * bytes / 300;
        let mut hits = 0;
        for _ in 0..60_000 {
            if rng.below(1000) == 0 {
                model.seal(&mut rng, keys);
            }
            // Squaring makes low numbers hot.
            let hot = rng.next_f64() * rng.next_f64();
            hits += u64::from(model.get((hot * hot * keys as f64) as u64, &mut rng));
        }
        let counts = model.cache.counts();
        assert!(counts.bytes <= bytes, "{counts:?} of {bytes}");
        assert!(counts.bytes > bytes / 10 * 9, "{counts:?} of {bytes}");
        assert!(
            hits > 2000 && counts.hits == hits,
            "{hits} hits, {counts:?}"
        );
        assert!(counts.records > 0 && counts.fills > counts.records);
    }
}

#[test]
fn records_of_all_lengths_come_back_as_they_were() {
    let cache: RecordCache = RecordCache::new(1 << 20).expect("a cache");
    let hasher = hasher();
    for len in (0..600).chain([5000, cache.longest - 8]) {
        let key = (len as u64).to_be_bytes();
        let hit = Hit {
            flags: 0,
            time: (1 << 56) - 1,
            expiry: (1 << 40) - 1,
            value: (0..len).map(|at| at as u8).collect(),
        };
        let hash = hasher.hash(&key);
        cache.offer(cache.ticket(), hash, &key, &hit);
        assert_eq!(cache.get(hash, &key, TimeBound::UpTo(u64::MAX)), Some(hit));
    }
    let long = vec![1; 65_536];
    let hash = hasher.hash(&long);
    cache.offer(cache.ticket(), hash, &long, &found(1, 10));
    assert_eq!(cache.get(hash, &long, TimeBound::UpTo(u64::MAX)), None);
    // A larger cache takes the longest possible key.
    let cache: RecordCache = RecordCache::new(256 << 20).expect("a cache");
    cache.offer(cache.ticket(), hash, &long, &found(1, 10));
    assert_eq!(
        cache.get(hash, &long, TimeBound::UpTo(u64::MAX)),
        Some(found(1, 10))
    );
}

#[test]
fn tombstones_and_large_values_are_not_kept_and_a_newer_element_takes_the_place() {
    let cache: RecordCache = RecordCache::new(64 << 10).expect("a cache");
    let hash = hasher().hash(b"key");
    let get = || cache.get(hash, b"key", TimeBound::UpTo(u64::MAX));
    for flags in [TOMBSTONE, LARGE] {
        let hit = Hit {
            flags,
            ..found(5, 24)
        };
        cache.offer(cache.ticket(), hash, b"key", &hit);
        assert_eq!(get(), None);
    }
    for (time, has) in [(6, 6), (8, 8), (7, 8), (8, 8)] {
        cache.offer(cache.ticket(), hash, b"key", &found(time, 50));
        assert_eq!(get(), Some(found(has, 50)));
    }
    assert_eq!(cache.counts().records, 1);
    // Two keys with the same hash are distinguished.
    assert_eq!(cache.get(hash, b"yek", TimeBound::UpTo(u64::MAX)), None);
    let old = cache.ticket();
    let mut sealing = cache.seal();
    sealing.key(hash, 8);
    sealing.done();
    assert_eq!(get(), Some(found(8, 50)), "what is sealed stays");
    let mut sealing = cache.seal();
    sealing.key(hash, 9);
    sealing.done();
    assert_eq!(get(), None);
    cache.offer(old, hash, b"key", &found(8, 50));
    assert_eq!(get(), None, "found before the seal");
}

#[test]
fn a_cache_is_as_large_as_was_asked_for_or_there_is_none() {
    for bytes in [0, 1, MIN_BYTES - 1] {
        assert!(<RecordCache>::new(bytes).is_none());
    }
    for bytes in [MIN_BYTES, 3 << 20, 32 << 20, 1 << 30, 40 << 30] {
        let cache: RecordCache = RecordCache::new(bytes).expect("a cache");
        let empty = cache.counts().bytes;
        let most = MIN_BYTES.max(bytes / 10_000);
        assert!(empty < most, "{empty} bytes before anything is in it");
        assert!(cache.longest > 2000);
    }
}
