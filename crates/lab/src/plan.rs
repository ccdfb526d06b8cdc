// SPDX-License-Identifier: Apache-2.0
//! How much DRAM and flash a cache needs: hit ratios of all sizes from one pass over a trace of
//! keys. For `senko plan`.
//!
//! Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015. The stack distance of a
//! reference is the bytes of its object and of all objects that were used since the object's last
//! use. An LRU cache hits if it is at least as large. SHARDS follows only objects whose hash falls
//! below a share, and divides distances by it. Its correction is applied: references that the
//! sample has too few or too many count at distance 0. Where a trace has few objects the share is 1
//! and the curve is exact.

use std::collections::HashMap;

use crate::experiments::dram_policy::Basis;
use crate::experiments::dram_policy::requests::Requests;

/// Objects to be followed, at least, where a trace has so many.
pub const FOLLOWED: usize = 200_000;

/// Hit ratios by size.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Stack distances that occur, rising, and the references that have at most this one.
    steps: Vec<(u64, f64)>,
    references: f64,
    /// The share of objects that was followed.
    pub share: f64,
    /// All objects' size, in the curve's measure.
    pub footprint: u64,
}

/// Sums of a growing array, in logarithmic time.
struct Sums(Vec<u64>);

impl Sums {
    fn add(&mut self, at: usize, change: i64) {
        let mut at = at + 1;
        while at < self.0.len() {
            self.0[at] = self.0[at].wrapping_add_signed(change);
            at += at & at.wrapping_neg();
        }
    }

    /// Of all before `at`.
    fn before(&self, at: usize) -> u64 {
        let (mut at, mut sum) = (at, 0u64);
        while at > 0 {
            sum = sum.wrapping_add(self.0[at]);
            at -= at & at.wrapping_neg();
        }
        sum
    }
}

/// A number that looks random, by the object's number.
fn mixed(object: u32, seed: u64) -> u64 {
    let mut x = (u64::from(object) ^ seed.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Curve {
    /// The curve of these requests; sizes count where they are known and `basis` says so.
    pub fn of(requests: &Requests, basis: Basis, followed: usize, seed: u64) -> Self {
        let sizes = requests.sizes.as_ref().filter(|_| basis == Basis::Bytes);
        let size = |object: u32| sizes.map_or(1, |sizes| sizes[object as usize]);
        let objects = requests.footprint_objects();
        let share = (followed as f64 / objects.max(1) as f64).min(1.0);
        let limit = (share * u64::MAX as f64) as u64;
        let is_followed = |object: u32| share >= 1.0 || mixed(object, seed) < limit;
        let sampled: Vec<u32> = requests
            .objects
            .iter()
            .copied()
            .filter(|one| is_followed(*one))
            .collect();
        let mut sums = Sums(vec![0; sampled.len() + 1]);
        let mut last: HashMap<u32, usize> = HashMap::new();
        let mut distances = Vec::new();
        for (now, object) in sampled.iter().enumerate() {
            let bytes = size(*object);
            if let Some(before) = last.insert(*object, now) {
                let between = sums.before(now).wrapping_sub(sums.before(before + 1));
                distances.push((between as f64 / share) as u64 + bytes);
                sums.add(before, -(bytes as i64));
            }
            sums.add(now, bytes as i64);
        }
        distances.sort_unstable();
        let references = requests.objects.len() as f64 * share;
        let missing = references - sampled.len() as f64;
        let mut steps: Vec<(u64, f64)> = Vec::new();
        for (nth, distance) in distances.into_iter().enumerate() {
            let hits = (nth + 1) as f64 + missing;
            match steps.last_mut() {
                Some(step) if step.0 == distance => step.1 = hits,
                _ => steps.push((distance, hits)),
            }
        }
        let footprint = (0..objects as u32).map(size).sum();
        Self {
            steps,
            references,
            share,
            footprint,
        }
    }

    /// The share of references that hit a cache of this size.
    pub fn hit_ratio(&self, capacity: u64) -> f64 {
        let at = self.steps.partition_point(|step| step.0 <= capacity);
        let hits = at.checked_sub(1).map_or(0.0, |at| self.steps[at].1);
        (hits / self.references.max(1.0)).clamp(0.0, 1.0)
    }

    /// The smallest size with at least this hit ratio, if any has it.
    pub fn size_for(&self, hit_ratio: f64) -> Option<u64> {
        let wanted = hit_ratio * self.references;
        let at = self.steps.partition_point(|step| step.1 < wanted);
        self.steps.get(at).map(|step| step.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_of_a_short_stream() {
        // a b c a a b d a: distances 3, 1, 3, 3.
        let requests = Requests {
            objects: vec![0, 1, 2, 0, 0, 1, 3, 0],
            sizes: Some(vec![10, 20, 30, 40]),
        };
        let curve = Curve::of(&requests, Basis::Objects, 100, 1);
        assert_eq!(curve.hit_ratio(0), 0.0);
        assert_eq!(curve.hit_ratio(1), 1.0 / 8.0);
        assert_eq!(curve.hit_ratio(2), 1.0 / 8.0);
        assert_eq!(curve.hit_ratio(3), 4.0 / 8.0);
        assert_eq!((curve.size_for(0.5), curve.size_for(0.6)), (Some(3), None));
        let curve = Curve::of(&requests, Basis::Bytes, 100, 1);
        // a after b and c: 20 + 30 + 10 bytes.
        assert_eq!(
            (curve.hit_ratio(59), curve.hit_ratio(60)),
            (1.0 / 8.0, 3.0 / 8.0)
        );
        assert_eq!(curve.footprint, 100);
    }
}
