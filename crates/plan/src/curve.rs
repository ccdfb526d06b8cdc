// SPDX-License-Identifier: Apache-2.0
//! How much DRAM and flash a cache needs: hit ratios of all sizes from one pass over a trace of
//! keys, or for keys by Zipf's law. For `senko plan`.
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
//!
//! The few objects that a small cache holds are badly sampled. So a curve has several *levels*,
//! each for a range of sizes: below a 1,024th of everything, no object is left out.

mod drawn; // requests for a number of items, without a trace
pub mod server; // the smallest server with wanted hits
mod stack; // LRU: stack distances
pub mod tiers; // DRAM and flash of a server together

use std::collections::{BTreeMap, VecDeque};

use anyhow::Result;

use crate::count::{Basis, Counts, count};
use crate::policies::{Lru, S3Fifo, S3FifoSettings};
use crate::requests::{Act, Requests};

/// About this many objects are sampled, if a trace has so many.
pub const FOLLOWED: usize = 200_000;

/// By so much hit ratios are off, at most: the largest deviation that the tests found for twenty
/// kinds of requests, rounded up.
pub const HIT_RATIO_ERROR: f64 = 0.02;

/// Bytes written are off by this part, at most, on the same condition: the server's DRAM and flash
/// are full.
pub const WRITTEN_ERROR: f64 = 0.05;

/// A cache that is smaller than this part of everything is simulated with all objects.
const HOT_END: u64 = 1024;
/// A straight line between two simulated sizes may be so far off.
const OFF: f64 = 0.005;
/// Hits rise by at most so much between two simulated sizes, unless these are close together.
const RISE: f64 = 0.02;
/// About this many requests are simulated for a curve.
const SIMULATED: usize = 300_000_000;
/// The most requests that are used for the hot end.
const HOT_REQUESTS: usize = 4_000_000;

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

/// A size, and what a cache of that size does.
#[derive(Clone, Copy, Debug)]
struct Step {
    size: u64,
    /// The share of look-ups that hit.
    hits: f64,
    /// Bytes (or items) that are stored for each request.
    stored: f64,
}

/// Hit ratios by size.
#[derive(Clone, Debug)]
pub struct Curve {
    levels: Vec<Level>,
    /// LRU: the occurring stack distances, ascending. S3-FIFO: the simulated sizes.
    steps: Vec<Step>,
    policy: Policy,
    /// Stored for each request if nothing hits.
    stored: f64,
    /// The share of objects that was sampled.
    pub share: f64,
    /// Items that a simulated object stands for, at most.
    pub times: f64,
    /// The size of all objects, in the curve's unit: bytes or items.
    pub footprint: f64,
    pub objects: f64,
}

/// Requests from which the curve has a range of sizes.
#[derive(Clone, Debug)]
struct Level {
    requests: Requests,
    basis: Basis,
    /// This many requests fill the cache, and are not counted.
    warm: usize,
    /// The look-ups that are counted, as many as a sample of this share should have.
    lookups: f64,
    /// Requests of any kind of the whole, of which it counts its part.
    whole: f64,
    /// A size here, divided by that of the whole.
    scale: f64,
    /// The range of sizes of the whole, the first excluded.
    range: (u64, u64),
}

impl Level {
    /// The look-ups that the sample has too few; negative if it has too many.
    fn missing(&self) -> f64 {
        let counted = self.warm..self.requests.objects.len();
        let lookups = match self.requests.acts.is_empty() {
            true => counted.len(),
            false => counted
                .filter(|nth| matches!(self.requests.act(*nth), Act::Get | Act::GetThenSet))
                .count(),
        };
        self.lookups - lookups as f64
    }

    /// The step of a cache that counted this.
    fn step(&self, size: u64, hits: f64, stored: f64) -> Step {
        Step {
            size,
            hits: (hits / self.lookups.max(1.0)).clamp(0.0, 1.0),
            stored: stored / self.scale / self.whole.max(1.0),
        }
    }

    fn weight(&self, object: u32) -> u64 {
        let sizes = self.requests.sizes.as_ref();
        let sizes = sizes.filter(|_| self.basis == Basis::Bytes);
        sizes.map_or(1, |sizes| sizes[object as usize])
    }

    /// The steps of S3-FIFO.
    fn simulated(&self) -> Vec<Step> {
        let missing = self.missing();
        let most = self.step(0, 0.0, stack::stored(self) as f64).stored;
        // Short traces cost little.
        let limit = (SIMULATED / self.requests.objects.len().max(1)).clamp(160, 600);
        refined(self.range, most, limit, |size| {
            let capacity = ((size as f64 * self.scale).round() as u64).max(1);
            let counts = simulate(
                Policy::S3Fifo,
                &self.requests,
                self.basis,
                capacity,
                self.warm,
            );
            self.step(size, counts.hits as f64 + missing, counts.stored as f64)
        })
    }

    fn steps(&self, policy: Policy) -> Vec<Step> {
        let mut steps = match policy {
            Policy::Lru => stack::steps(self),
            Policy::S3Fifo => self.simulated(),
        };
        steps.retain(|step| step.size > self.range.0 && step.size <= self.range.1);
        steps
    }
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
        let weight = |object: usize| match (&requests.sizes, basis) {
            (Some(sizes), Basis::Bytes) => sizes[object],
            _ => 1,
        };
        let objects = requests.footprint_objects();
        let kept: u64 = (0..objects).map(weight).sum();
        let footprint = kept as f64 / requests.share;
        let share = (followed as f64 / objects.max(1) as f64).min(1.0);
        let limit = (share * u64::MAX as f64) as u64;
        let is_followed = |object: u32| share >= 1.0 || mixed(object, seed) < limit;
        let sampled: u64 = (0..objects)
            .filter(|object| is_followed(*object as u32))
            .map(weight)
            .sum();
        let warm = warm.min(requests.objects.len());
        let hot = match share < 1.0 {
            true => footprint as u64 / HOT_END,
            false => 0,
        };
        let length = requests.objects.len();
        let mut levels = Vec::new();
        if hot > 0 {
            let from = length.saturating_sub(HOT_REQUESTS);
            let fills = if from > 0 { HOT_REQUESTS / 4 } else { 0 };
            let mut level = Level::of(
                part_of(requests, from, |_| true),
                basis,
                requests.share,
                warm.saturating_sub(from).max(fills),
            );
            if requests.share < 1.0 {
                let part = (length - from - level.warm) as f64 / length as f64;
                level.lookups = requests.lookups * requests.share * part;
            }
            level.range = (0, hot);
            levels.push(level);
        }
        let before = (0..warm).filter(|nth| is_followed(requests.objects[*nth]));
        let counted = 1.0 - warm as f64 / length.max(1) as f64;
        levels.push(Level {
            lookups: requests.lookups * counted * requests.share * share,
            whole: requests.all * counted,
            range: (hot, footprint.ceil() as u64),
            ..Level::of(
                part_of(requests, 0, is_followed),
                basis,
                sampled as f64 / footprint.max(1.0),
                before.count(),
            )
        });
        Curve {
            share: share * requests.share,
            times: 1.0,
            footprint,
            objects: objects as f64 / requests.share,
            ..Curve::of_levels(policy, levels)
        }
    }

    /// The curve for `items` items, of which the item with rank `r` has a probability proportional
    /// to `r^-exponent`. Sizes are numbers of items.
    ///
    /// # Errors
    /// If there is no item, or more than 2^40, or the exponent is not from 0 to 5.
    ///
    /// # Examples
    /// ```
    /// use senko_plan::curve::{Curve, Policy};
    ///
    /// let curve = Curve::of_zipf(Policy::Lru, 10_000, 0.99, 1)?;
    /// assert_eq!(curve.hit_ratio(10_000), 1.0);
    /// assert!((0.35..0.45).contains(&curve.hit_ratio(100)));
    /// # Ok::<(), anyhow::Error>(())
    /// ```
    pub fn of_zipf(policy: Policy, items: u64, exponent: f64, seed: u64) -> Result<Self> {
        let curve = Curve::of_levels(policy, drawn::levels(items, exponent, seed)?);
        Ok(Curve {
            times: curve.levels.last().map_or(1.0, |level| 1.0 / level.scale),
            footprint: items as f64,
            objects: items as f64,
            ..curve
        })
    }

    /// The curve of levels, in the order of their ranges; the last one reaches the size of all.
    fn of_levels(policy: Policy, levels: Vec<Level>) -> Self {
        let steps: Vec<Step> = levels
            .iter()
            .flat_map(|level| level.steps(policy))
            .collect();
        let none = levels.last().map_or(0.0, |level| {
            let stored = stack::stored(level);
            level.step(0, 0.0, stored as f64).stored
        });
        Self {
            steps,
            levels,
            policy,
            stored: none,
            share: 1.0,
            times: 1.0,
            footprint: 0.0,
            objects: 0.0,
        }
    }

    /// The step of a cache of this size.
    fn at(&self, capacity: u64) -> Step {
        let at = self.steps.partition_point(|step| step.size <= capacity);
        let below = at
            .checked_sub(1)
            .map_or(self.nothing(), |at| self.steps[at]);
        match (self.policy, self.steps.get(at)) {
            (Policy::S3Fifo, Some(above)) => {
                let part = (capacity - below.size) as f64 / (above.size - below.size) as f64;
                between(&below, above, part)
            }
            _ => below,
        }
    }

    fn nothing(&self) -> Step {
        Step {
            size: 0,
            hits: 0.0,
            stored: self.stored,
        }
    }

    /// The share of look-ups that hit a cache of this size.
    pub fn hit_ratio(&self, capacity: u64) -> f64 {
        self.at(capacity).hits
    }

    /// What a cache of this size stores for each request, in the curve's unit: what misses, and
    /// what is set.
    pub fn stored(&self, capacity: u64) -> f64 {
        self.at(capacity).stored
    }

    /// The smallest size with at least this hit ratio, if any has it.
    pub fn size_for(&self, hit_ratio: f64) -> Option<u64> {
        // A share such as 0.55 of 100 requests may be a little more than 55 of them.
        let wanted = hit_ratio * (1.0 - 1e-9);
        // S3-FIFO's curve may fall now and then.
        let at = self.steps.iter().position(|step| step.hits >= wanted)?;
        let above = self.steps[at];
        let below = at
            .checked_sub(1)
            .map_or(self.nothing(), |at| self.steps[at]);
        // Few large objects make a staircase: on its steps only what was simulated is known.
        let rise = above.hits - below.hits;
        if self.policy == Policy::Lru || rise <= 0.0 || rise > RISE {
            return Some(above.size);
        }
        let part = (wanted - below.hits) / rise;
        Some(between(&below, &above, part.clamp(0.0, 1.0)).size)
    }
}

impl Level {
    /// All of these requests, of a whole that is larger by `1 / scale`.
    fn of(requests: Requests, basis: Basis, scale: f64, warm: usize) -> Level {
        let mut level = Level {
            whole: (requests.objects.len() - warm) as f64 / scale,
            requests,
            basis,
            warm,
            lookups: 0.0,
            scale,
            range: (0, u64::MAX),
        };
        level.lookups = -level.missing();
        level
    }
}

/// Simulates a cache. The first `warm` requests fill it, and are not counted.
pub fn simulate(
    policy: Policy,
    requests: &Requests,
    basis: Basis,
    capacity: u64,
    warm: usize,
) -> Counts {
    let objects = requests.footprint_objects();
    match policy {
        Policy::Lru => count(requests, &mut Lru::new(capacity, objects), basis, warm),
        Policy::S3Fifo => {
            let mut policy = S3Fifo::new(capacity, objects, S3_FIFO).admitting_large();
            count(requests, &mut policy, basis, warm)
        }
    }
}

/// The requests from one on, for some of the objects.
fn part_of(requests: &Requests, from: usize, wanted: impl Fn(u32) -> bool) -> Requests {
    let kept = || (from..requests.objects.len()).filter(|nth| wanted(requests.objects[*nth]));
    let acts = match requests.acts.is_empty() {
        true => Vec::new(),
        false => kept().map(|nth| requests.acts[nth]).collect(),
    };
    Requests {
        acts,
        sizes: requests.sizes.clone(),
        ..Requests::of_lookups(kept().map(|nth| requests.objects[nth]).collect(), None)
    }
}

/// A hash of the object's number.
fn mixed(object: u32, seed: u64) -> u64 {
    let mut x = (u64::from(object) ^ seed.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A step on the straight line between two.
fn between(below: &Step, above: &Step, part: f64) -> Step {
    Step {
        size: below.size + ((above.size - below.size) as f64 * part).ceil() as u64,
        hits: below.hits + part * (above.hits - below.hits),
        stored: below.stored + part * (above.stored - below.stored),
    }
}

/// A curve from simulations, over a range of sizes. Sizes are halved, starting with the largest,
/// until hardly anything hits. An interval between two sizes is divided while its middle is off a
/// straight line, as at the cliff of a loop. So is one over which hits rise far, because few large
/// objects make a staircase. `most` is what is stored if nothing hits, and `limit` the most sizes
/// that are simulated.
fn refined((from, to): (u64, u64), most: f64, limit: usize, at: impl Fn(u64) -> Step) -> Vec<Step> {
    /// A cache with fewer hits is of no use to anybody.
    const HARDLY: f64 = 0.001;
    let mut steps: BTreeMap<u64, Step> = BTreeMap::new();
    let mut size = to;
    while size > from && size > 0 {
        let step = at(size);
        steps.insert(size, step);
        if step.hits < HARDLY {
            break;
        }
        size /= 2;
    }
    let sizes: Vec<u64> = steps.keys().copied().collect();
    let mut open: VecDeque<(u64, u64)> = sizes.windows(2).map(|pair| (pair[0], pair[1])).collect();
    while let Some((from, to)) = open.pop_front() {
        let middle = from.midpoint(to);
        if middle == from || steps.len() >= limit {
            continue;
        }
        let step = at(middle);
        steps.insert(middle, step);
        let part = (middle - from) as f64 / (to - from) as f64;
        let straight = between(&steps[&from], &steps[&to], part);
        let off = (step.hits - straight.hits).abs() > OFF
            || (step.stored - straight.stored).abs() > OFF * most;
        for (from, to) in [(from, middle), (middle, to)] {
            if off || (steps[&to].hits - steps[&from].hits).abs() > RISE {
                open.push_back((from, to));
            }
        }
    }
    steps.into_values().collect()
}
