// SPDX-License-Identifier: Apache-2.0
//! How much DRAM and flash a cache needs: hit ratios of all sizes from one pass over a trace of
//! keys. For `senko plan`.
//!
//! Waldspurger et al., "Efficient MRC construction with SHARDS", FAST 2015. The stack distance of a
//! reference is the bytes of its object and of all objects used since the object's last use. An LRU
//! cache hits if it is at least as large as this distance. SHARDS samples only objects whose hash
//! is below a threshold, and divides distances by the sampled share. Its correction is applied: if
//! the sample has too few or too many references, the difference counts at distance 0. If a trace
//! has few objects, the share is 1 and the curve is exact.
//!
//! S3-FIFO has no stack distance. Its curve comes from small simulations with the sampled objects,
//! with caches smaller by the same share (Waldspurger et al., "Cache modeling and optimization
//! using miniature simulations", ATC 2017). Between simulated sizes it is a straight line.

mod drawn; // requests for a number of items, without a trace

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::experiments::dram_policy::policies::S3FifoSettings;
use crate::experiments::dram_policy::requests::Requests;
use crate::experiments::dram_policy::{Basis, simulate};
pub use drawn::{Drawn, by_zipf};

/// About this many objects are sampled, if a trace has so many.
pub const FOLLOWED: usize = 200_000;

/// The eviction policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Least recently used.
    Lru,
    /// S3-FIFO, as `senko serve` uses it by default.
    S3Fifo,
}

/// S3-FIFO with the settings of its authors' simulator.
pub const S3_FIFO: S3FifoSettings = S3FifoSettings {
    promote_at: 2,
    fill_main_first: true,
};

/// Hit ratios by size.
#[derive(Clone, Debug)]
pub struct Curve {
    /// LRU: the occurring stack distances, ascending, each with the number of references that have
    /// at most this distance. S3-FIFO: the simulated sizes, and their hits.
    steps: Vec<(u64, f64)>,
    policy: Policy,
    references: f64,
    /// The share of objects that was sampled.
    pub share: f64,
    /// The size of all objects, in the curve's unit.
    pub footprint: u64,
}

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

/// A hash of the object's number.
fn mixed(object: u32, seed: u64) -> u64 {
    let mut x = (u64::from(object) ^ seed.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Curve {
    /// The curve of a policy for these requests. It counts sizes if they are known and `basis` says
    /// so. It samples about `followed` objects, if there are more. The first `warm` requests
    /// fill the cache, and are not counted.
    pub fn of_policy(
        policy: Policy,
        requests: &Requests,
        basis: Basis,
        warm: usize,
        (followed, seed): (usize, u64),
    ) -> Self {
        let sample = Sample::of(requests, warm, followed, seed);
        match policy {
            Policy::Lru => Curve::lru(requests, basis, sample),
            Policy::S3Fifo => Curve::simulated(requests, basis, sample),
        }
    }

    /// The curve of S3-FIFO.
    fn simulated(requests: &Requests, basis: Basis, sample: Sample) -> Self {
        let share = sample.share;
        let sizes = requests.sizes.as_ref().filter(|_| basis == Basis::Bytes);
        let objects = requests.footprint_objects();
        let footprint = sizes.map_or(objects as u64, |sizes| sizes.iter().sum());
        let (references, missing) = (sample.references, sample.missing());
        let of = |objects: &[u32]| Requests {
            objects: objects.to_vec(),
            sizes: requests.sizes.clone(),
        };
        let (all, warm) = (of(&sample.objects), of(&sample.objects[..sample.warm]));
        let hits_at = |size: u64| {
            let capacity = ((size as f64 * share) as u64).max(1);
            let hits = |of| simulate(of, Some(S3_FIFO), basis, capacity).hits as f64;
            hits(&all) - hits(&warm) + missing
        };
        let steps = refined(footprint, references, hits_at);
        Self {
            steps,
            policy: Policy::S3Fifo,
            references,
            share,
            footprint,
        }
    }

    /// The curve of LRU.
    fn lru(requests: &Requests, basis: Basis, sample: Sample) -> Self {
        let sizes = requests.sizes.as_ref().filter(|_| basis == Basis::Bytes);
        let size = |object: u32| sizes.map_or(1, |sizes| sizes[object as usize]);
        let objects = requests.footprint_objects();
        let (share, sampled) = (sample.share, &sample.objects);
        let mut sums = Sums(vec![0; sampled.len() + 1]);
        let mut last: HashMap<u32, usize> = HashMap::new();
        let mut distances = Vec::new();
        for (now, object) in sampled.iter().enumerate() {
            let bytes = size(*object);
            if let Some(before) = last.insert(*object, now) {
                let between = sums.before(now).wrapping_sub(sums.before(before + 1));
                if now >= sample.warm {
                    distances.push((between as f64 / share) as u64 + bytes);
                }
                sums.add(before, -(bytes as i64));
            }
            sums.add(now, bytes as i64);
        }
        distances.sort_unstable();
        let (references, missing) = (sample.references, sample.missing());
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
            policy: Policy::Lru,
            references,
            share,
            footprint,
        }
    }

    /// The share of references that hit a cache of this size.
    pub fn hit_ratio(&self, capacity: u64) -> f64 {
        let at = self.steps.partition_point(|step| step.0 <= capacity);
        let below = at.checked_sub(1).map_or((0, 0.0), |at| self.steps[at]);
        let hits = match (self.policy, self.steps.get(at)) {
            (Policy::S3Fifo, Some(above)) => {
                let part = (capacity - below.0) as f64 / (above.0 - below.0) as f64;
                below.1 + part * (above.1 - below.1)
            }
            _ => below.1,
        };
        (hits / self.references.max(1.0)).clamp(0.0, 1.0)
    }

    /// The smallest size with at least this hit ratio, if any has it.
    pub fn size_for(&self, hit_ratio: f64) -> Option<u64> {
        let wanted = hit_ratio * self.references;
        // S3-FIFO's curve may fall now and then.
        let at = self.steps.iter().position(|step| step.1 >= wanted)?;
        let above = self.steps[at];
        if self.policy == Policy::Lru {
            return Some(above.0);
        }
        let below = at.checked_sub(1).map_or((0, 0.0), |at| self.steps[at]);
        let part = (wanted - below.1) / (above.1 - below.1).max(f64::MIN_POSITIVE);
        Some(below.0 + ((above.0 - below.0) as f64 * part.clamp(0.0, 1.0)).ceil() as u64)
    }
}

/// The objects that are sampled.
struct Sample {
    /// Their share of all.
    share: f64,
    /// The references to them.
    objects: Vec<u32>,
    /// This many of them fill the cache, and are not counted.
    warm: usize,
    /// The number of references that a sample of this share should have.
    references: f64,
}

impl Sample {
    fn of(requests: &Requests, warm: usize, followed: usize, seed: u64) -> Self {
        let objects = requests.footprint_objects();
        let share = (followed as f64 / objects.max(1) as f64).min(1.0);
        let limit = (share * u64::MAX as f64) as u64;
        let is_followed = |object: &&u32| share >= 1.0 || mixed(**object, seed) < limit;
        let warm = warm.min(requests.objects.len());
        let (before, counted) = requests.objects.split_at(warm);
        Sample {
            share,
            objects: requests
                .objects
                .iter()
                .filter(is_followed)
                .copied()
                .collect(),
            warm: before.iter().filter(is_followed).count(),
            references: counted.len() as f64 * share,
        }
    }

    /// The number of references that the sample has too few; negative if it has too many.
    fn missing(&self) -> f64 {
        self.references - (self.objects.len() - self.warm) as f64
    }
}

/// A curve from simulations. Sizes are halved, starting with the size of all objects. An interval
/// between two sizes is divided while its middle is off a straight line, as at the cliff of a loop.
fn refined(footprint: u64, references: f64, hits_at: impl Fn(u64) -> f64) -> Vec<(u64, f64)> {
    const HALVINGS: u32 = 10;
    const MOST: usize = 160;
    const OFF: f64 = 0.005;
    let mut sizes: Vec<u64> = (0..=HALVINGS).map(|half| footprint >> half).collect();
    sizes.retain(|size| *size > 0);
    sizes.sort_unstable();
    sizes.dedup();
    let mut steps: BTreeMap<u64, f64> = sizes.iter().map(|size| (*size, hits_at(*size))).collect();
    let mut open: VecDeque<(u64, u64)> = sizes.windows(2).map(|pair| (pair[0], pair[1])).collect();
    while let Some((from, to)) = open.pop_front() {
        let middle = from.midpoint(to);
        if middle == from || steps.len() >= MOST {
            continue;
        }
        let hits = hits_at(middle);
        steps.insert(middle, hits);
        let part = (middle - from) as f64 / (to - from) as f64;
        let straight = steps[&from] + part * (steps[&to] - steps[&from]);
        if (hits - straight).abs() > OFF * references {
            open.extend([(from, middle), (middle, to)]);
        }
    }
    steps.into_iter().collect()
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
        assert_eq!(curve.footprint, 100);
    }
}
