// SPDX-License-Identifier: Apache-2.0
//! LRU's curve, from stack distances.
//!
//! A deleted object leaves a *hole* in the stack: room that a cache which held the object has free.
//! The next object that moves up or comes in from below fills the newest hole, and leaves one where
//! it was. So all sizes of a cache are still followed at once (Mattson et al., "Evaluation
//! techniques for storage hierarchies", IBM Systems Journal 9(2), 1970, with deletions as in their
//! section on invalidations). With objects of one size this is exact.

use std::collections::BTreeMap;

use super::{Level, Step};
use crate::requests::Act;

/// More steps than this are thinned out.
const MOST_STEPS: usize = 1 << 20;

/// Prefix sums of a growing array, in logarithmic time.
struct Sums(Vec<u64>);

impl Sums {
    fn add(&mut self, at: usize, change: i64) {
        let mut at = at + 1;
        while at < self.0.len() {
            self.0[at] = self.0[at].wrapping_add_signed(change);
            at += at & at.wrapping_neg();
        }
    }

    /// The sum of all before `at`.
    fn before(&self, at: usize) -> u64 {
        let (mut at, mut sum) = (at, 0u64);
        while at > 0 {
            sum = sum.wrapping_add(self.0[at]);
            at -= at & at.wrapping_neg();
        }
        sum
    }
}

/// The stack, by the time of each object's last use.
struct Stack {
    sums: Sums,
    /// Of each object that is there.
    last: Vec<Option<u32>>,
    holes: BTreeMap<usize, u64>,
}

impl Stack {
    /// Uses an object at a time; returns the bytes above it, if it is there.
    fn access(&mut self, object: u32, now: usize, weight: u64) -> Option<u64> {
        let before = self.last[object as usize].replace(now as u32);
        let before = before.map(|before| before as usize);
        let above = before.map(|at| self.sums.before(now).wrapping_sub(self.sums.before(at + 1)));
        let mut filled = 0;
        while filled < weight {
            let newer = before.map_or(0, |at| at + 1);
            let Some((&at, &room)) = self.holes.range(newer..).next_back() else {
                break;
            };
            let taken = room.min(weight - filled);
            self.sums.add(at, -(taken as i64));
            match taken == room {
                true => drop(self.holes.remove(&at)),
                false => drop(self.holes.insert(at, room - taken)),
            }
            filled += taken;
        }
        if let Some(before) = before {
            self.sums.add(before, filled as i64 - weight as i64);
            if filled > 0 {
                self.holes.insert(before, filled);
            }
        }
        self.sums.add(now, weight as i64);
        above
    }

    fn delete(&mut self, object: u32, weight: u64) {
        if let Some(at) = self.last[object as usize].take() {
            self.holes.insert(at as usize, weight);
        }
    }
}

/// What is stored if nothing hits.
pub(super) fn stored(level: &Level) -> u64 {
    let counted = level.warm..level.requests.objects.len();
    counted
        .filter(|nth| matches!(level.requests.act(*nth), Act::Get | Act::Set))
        .map(|nth| level.weight(level.requests.objects[nth]))
        .sum()
}

pub(super) fn steps(level: &Level) -> Vec<Step> {
    let objects = &level.requests.objects;
    let mut stack = Stack {
        sums: Sums(vec![0; objects.len() + 1]),
        last: vec![None; level.requests.footprint_objects()],
        holes: BTreeMap::new(),
    };
    // Distances of look-ups, and what a hit does not store.
    let mut distances: Vec<(u64, u64)> = Vec::new();
    for (now, object) in objects.iter().enumerate() {
        let (act, weight) = (level.requests.act(now), level.weight(*object));
        if act == Act::Delete {
            stack.delete(*object, weight);
            continue;
        }
        let above = stack.access(*object, now, weight);
        if let Some(above) = above
            && now >= level.warm
            && act != Act::Set
        {
            let saved = if act == Act::Get { weight } else { 0 };
            distances.push(((above as f64 / level.scale) as u64 + weight, saved));
        }
    }
    distances.sort_unstable();
    let (missing, mut left) = (level.missing(), stored(level));
    let every = distances.len() / MOST_STEPS + 1;
    let mut steps: Vec<Step> = Vec::new();
    let all = distances.len();
    for (nth, (distance, saved)) in distances.into_iter().enumerate() {
        left -= saved;
        let step = level.step(distance, (nth + 1) as f64 + missing, left as f64);
        match steps.last_mut() {
            Some(last) if last.size == distance => *last = step,
            _ if (nth + 1) % every == 0 || nth + 1 == all => steps.push(step),
            _ => {}
        }
    }
    steps
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::count::{Basis, count};
    use crate::curve::{Curve, Policy};
    use crate::policies::Lru;
    use crate::requests::{Act, Requests};
    use senko_workload::Rng;

    #[test]
    fn distances_of_a_short_stream() {
        // a b c a a b d a: distances 3, 1, 3, 3.
        let requests =
            Requests::of_lookups(vec![0, 1, 2, 0, 0, 1, 3, 0], Some(vec![10, 20, 30, 40]));
        let curve = Curve::of_policy(Policy::Lru, &requests, Basis::Objects, 0, (100, 1));
        assert_eq!(curve.hit_ratio(0), 0.0);
        assert_eq!(curve.hit_ratio(1), 1.0 / 8.0);
        assert_eq!(curve.hit_ratio(2), 1.0 / 8.0);
        assert_eq!(curve.hit_ratio(3), 4.0 / 8.0);
        assert_eq!((curve.size_for(0.5), curve.size_for(0.6)), (Some(3), None));
        let curve = Curve::of_policy(Policy::Lru, &requests, Basis::Bytes, 0, (100, 1));
        // a after b and c: 20 + 30 + 10 bytes.
        assert_eq!(
            (curve.hit_ratio(59), curve.hit_ratio(60)),
            (1.0 / 8.0, 3.0 / 8.0)
        );
        assert_eq!(curve.footprint, 100.0);
        // Nothing hits: 10 + 20 + 30 + 10 + 10 + 20 + 40 + 10 bytes. All hit: each object once.
        assert_eq!(curve.stored(0), 150.0 / 8.0);
        assert_eq!(curve.stored(1000), 100.0 / 8.0);
    }

    /// Deletes were left out of a plan, and sets were look-ups. One pass gives the same hits and
    /// the same stored items as an LRU cache of each size that is simulated.
    #[test]
    fn sets_and_deletes_are_as_in_a_simulated_cache() {
        let mut rng = Rng::new(7);
        let objects: Vec<u32> = (0..4000)
            .map(|_| (rng.below(60) * rng.below(3)) as u32)
            .collect();
        let acts: Vec<Act> = (0..4000)
            .map(|_| {
                [Act::Get, Act::Get, Act::GetThenSet, Act::Set, Act::Delete][rng.below(5) as usize]
            })
            .collect();
        let gets = acts
            .iter()
            .filter(|act| matches!(act, Act::Get | Act::GetThenSet));
        let requests = Requests {
            lookups: gets.count() as f64,
            acts,
            ..Requests::of_lookups(objects, None)
        };
        let curve = Curve::of_policy(Policy::Lru, &requests, Basis::Objects, 0, (1000, 1));
        for size in 1..=120 {
            let mut lru = Lru::new(size, requests.footprint_objects());
            let counts = count(&requests, &mut lru, Basis::Objects, 0);
            let hits = curve.hit_ratio(size) * requests.lookups;
            assert!(
                (hits - counts.hits as f64).abs() < 1e-6,
                "{size}: {hits} and {counts:?}"
            );
            let stored = curve.stored(size) * requests.all;
            assert!(
                (stored - counts.stored as f64).abs() < 1e-6,
                "{size}: {stored}, {counts:?}"
            );
        }
    }
}
