// SPDX-License-Identifier: Apache-2.0
//! The cache's hit ratios compared with those of the published S3-FIFO and of LRU, on the same
//! requests; and its work under a load without hot keys.
//!
//! `docs/measurements/dram-policy.md` compares models of both with the literature. The models here
//! are as simple as possible, with records of one size.

use std::collections::{HashMap, VecDeque};

use senko_workload::Rng;
use senko_workload::popularity::{KeyChooser, Popularity};

use super::*;

const VALUE: usize = 200;

/// Bytes of a cache that holds about this many records.
fn bytes_for(records: u64) -> u64 {
    records * ring::record_len(8, VALUE) as u64 * 1100 / 1000
}

/// The share of hits in the second half of the requests, and records that entered in it for each
/// miss.
fn ours(popularity: &Popularity, keys: u64, records: u64, requests: u64) -> (f64, f64) {
    let cache: RecordCache = RecordCache::new(bytes_for(records)).expect("a cache");
    let hasher = hasher();
    let mut chooser = KeyChooser::new(popularity, keys).expect("a law");
    let mut rng = Rng::new(11);
    let hit = found(1, VALUE);
    let (mut hits, mut fills) = (0, 0);
    for request in 0..requests {
        if request == requests / 2 {
            (hits, fills) = (0, cache.counts().fills);
        }
        let key = chooser.next_key(&mut rng).to_be_bytes();
        let hash = hasher.hash(&key);
        if cache.get(hash, &key, TimeBound::UpTo(u64::MAX)).is_some() {
            hits += 1;
        } else {
            cache.offer(cache.ticket(), hash, &key, &hit);
        }
    }
    let counts = cache.counts();
    assert!(counts.records <= records * 12 / 10);
    let half = requests as f64 / 2.0;
    let filled = (counts.fills - fills) as f64 / (half - hits as f64);
    (hits as f64 / half, filled)
}

/// S3-FIFO's algorithm 1.
#[derive(Default)]
struct S3Fifo {
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghost: VecDeque<u64>,
    uses: HashMap<u64, u8>,
    ghosts: HashMap<u64, u64>,
}

impl S3Fifo {
    fn get(&mut self, key: u64, records: usize) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while self.uses.len() >= records {
            self.evict(records);
        }
        if self.ghosts.remove(&key).is_some() {
            self.main.push_front(key);
        } else {
            self.small.push_front(key);
        }
        self.uses.insert(key, 0);
        false
    }

    fn evict(&mut self, records: usize) {
        if self.small.len() >= records / 10 {
            while let Some(key) = self.small.pop_back() {
                if self.uses[&key] > 1 {
                    self.uses.insert(key, 0);
                    self.main.push_front(key);
                } else {
                    self.uses.remove(&key);
                    self.ghost.push_front(key);
                    *self.ghosts.entry(key).or_default() += 1;
                    if self.ghost.len() > records
                        && let Some(old) = self.ghost.pop_back()
                        && let Some(count) = self.ghosts.get_mut(&old)
                    {
                        *count -= 1;
                        if *count == 0 {
                            self.ghosts.remove(&old);
                        }
                    }
                    return;
                }
            }
        }
        while let Some(key) = self.main.pop_back() {
            let uses = self.uses.get_mut(&key).expect("it is in a queue");
            if *uses == 0 {
                self.uses.remove(&key);
                return;
            }
            *uses -= 1;
            self.main.push_front(key);
        }
    }
}

/// LRU, with a stamp for each key.
#[derive(Default)]
struct Lru {
    last: HashMap<u64, u64>,
    order: std::collections::BTreeMap<u64, u64>,
    clock: u64,
}

impl Lru {
    fn get(&mut self, key: u64, records: usize) -> bool {
        self.clock += 1;
        let before = self.last.insert(key, self.clock);
        self.order.insert(self.clock, key);
        match before {
            Some(before) => drop(self.order.remove(&before)),
            None if self.last.len() > records => {
                let (_, old) = self.order.pop_first().expect("there are keys");
                self.last.remove(&old);
            }
            None => {}
        }
        before.is_some()
    }
}

fn ratio(
    popularity: &Popularity,
    keys: u64,
    requests: u64,
    mut get: impl FnMut(u64) -> bool,
) -> f64 {
    let mut chooser = KeyChooser::new(popularity, keys).expect("a law");
    let mut rng = Rng::new(11);
    let mut hits = 0;
    for request in 0..requests {
        if request == requests / 2 {
            hits = 0;
        }
        hits += u64::from(get(chooser.next_key(&mut rng)));
    }
    hits as f64 / (requests as f64 / 2.0)
}

#[test]
fn hits_are_as_many_as_s3_fifo_finds() {
    const KEYS: u64 = 50_000;
    const REQUESTS: u64 = 400_000;
    let zipf = Popularity::Zipf {
        s: 0.99,
        scrambled: true,
    };
    for (law, percent) in [(&zipf, 1), (&zipf, 5), (&zipf, 10), (&zipf, 40)] {
        let records = KEYS * percent / 100;
        let (mut s3, mut lru) = (S3Fifo::default(), Lru::default());
        let (ours, filled) = ours(law, KEYS, records, REQUESTS);
        let s3 = ratio(law, KEYS, REQUESTS, |key| s3.get(key, records as usize));
        let lru = ratio(law, KEYS, REQUESTS, |key| lru.get(key, records as usize));
        println!(
            "{law}, {percent} % of the keys: {ours:.4} ours, {s3:.4} S3-FIFO, {lru:.4} LRU, {filled:.3} fills a miss"
        );
        assert!(ours > s3 - 0.01 && ours > lru, "{ours} of {s3} and {lru}");
    }
}

#[test]
fn a_load_without_hot_keys_fills_next_to_nothing() {
    for law in [Popularity::Uniform, Popularity::Sequential] {
        let (hits, filled) = ours(&law, 50_000, 2500, 300_000);
        println!("{law}: {hits:.4} hits, {filled:.4} fills a miss");
        assert!(hits > 0.03, "what is kept is of use: {hits}");
        assert!(filled < 0.08, "{filled} records entered for each miss");
    }
}
