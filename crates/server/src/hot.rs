// SPDX-License-Identifier: Apache-2.0
//! Hot keys: the keys that are looked up most, from a sample of the lookups (`--hot-keys`).
//!
//! Each worker samples lookups at random distances and counts their keys by Space-Saving (Metwally,
//! Agrawal and El Abbadi 2005), with [`MOST`] counters. A key without a counter takes over the
//! smallest one, whose count becomes its error. Counts are halved each minute, so that the list
//! shows the present. A lookup that is not sampled costs a decrement.

use std::collections::BTreeMap;

/// Keys that a worker counts.
const MOST: usize = 64;
/// Keys that are listed.
pub(crate) const LISTED: usize = 20;

/// A key with its counter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counter {
    key: Vec<u8>,
    count: u64,
    /// How many of these may belong to earlier keys of the counter.
    error: u64,
}

/// A worker's sample.
#[derive(Clone, Debug, Default)]
pub struct HotKeys {
    /// One lookup in this many is counted; 0: none.
    every: u32,
    /// Lookups until the next one that is counted.
    left: u32,
    random: u64,
    counters: Vec<Counter>,
}

impl HotKeys {
    /// A sample of one lookup in `every`; 0: none.
    pub(crate) fn new(every: u32, seed: u64) -> HotKeys {
        HotKeys {
            every,
            left: every,
            random: seed | 1,
            counters: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn note(&mut self, key: &[u8]) {
        if self.every == 0 {
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            self.count(key);
        }
    }

    #[cold]
    fn count(&mut self, key: &[u8]) {
        // xorshift: distances from 1 to twice the mean, so that no rhythm of the clients distorts
        // the sample.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let spread = u64::from(self.every) * 2 - 1;
        self.left = 1 + (self.random % spread) as u32;
        if let Some(found) = self.counters.iter_mut().find(|c| c.key == key) {
            found.count += 1;
            return;
        }
        if self.counters.len() < MOST {
            self.counters.push(Counter {
                key: key.to_vec(),
                count: 1,
                error: 0,
            });
            return;
        }
        if let Some(least) = self.counters.iter_mut().min_by_key(|c| c.count) {
            least.key.clear();
            least.key.extend_from_slice(key);
            least.error = least.count;
            least.count += 1;
        }
    }

    /// Halves the counts after a minute.
    pub(crate) fn age(&mut self) {
        for counter in &mut self.counters {
            counter.count /= 2;
            counter.error /= 2;
        }
        self.counters.retain(|counter| counter.count > 0);
    }

    /// The keys, each with the lookups that were certainly its own, scaled to all lookups.
    pub(crate) fn keys(&self) -> Vec<(Vec<u8>, u64)> {
        self.counters
            .iter()
            .map(|c| (c.key.clone(), (c.count - c.error) * u64::from(self.every)))
            .collect()
    }
}

/// The hottest of several workers' keys, the hottest first.
pub(crate) fn hottest(all: impl IntoIterator<Item = (Vec<u8>, u64)>) -> Vec<(Vec<u8>, u64)> {
    let mut sums: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (key, count) in all {
        *sums.entry(key).or_default() += count;
    }
    let mut keys: Vec<(Vec<u8>, u64)> = sums.into_iter().collect();
    keys.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    keys.truncate(LISTED);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_keys_are_found_among_many_others() {
        let mut hot = HotKeys::new(10, 7);
        for n in 0..200_000_u32 {
            // One lookup in four is of one of two keys, the others of ten thousand.
            match n % 8 {
                0 => hot.note(b"hottest"),
                1 if n % 16 == 1 => hot.note(b"second"),
                _ => hot.note(format!("key{}", n * 7919 % 10_000).as_bytes()),
            }
        }
        let keys = hottest(hot.keys());
        assert_eq!(
            (&keys[0].0[..], &keys[1].0[..]),
            (&b"hottest"[..], &b"second"[..])
        );
        let share = keys[0].1 as f64 / 25_000.0;
        assert!((0.8..1.2).contains(&share), "{share}");
        assert!(keys.len() <= LISTED && hot.counters.len() == MOST);
        for _ in 0..20 {
            hot.age();
        }
        assert!(hot.keys().is_empty());
    }

    #[test]
    fn nothing_is_sampled_unless_asked_for() {
        let mut hot = HotKeys::default();
        hot.note(b"key");
        assert!(hot.keys().is_empty());
    }
}
