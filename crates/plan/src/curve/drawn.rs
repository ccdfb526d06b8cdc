// SPDX-License-Identifier: Apache-2.0
//! Requests for a cache of any number of items, by Zipf's law. For `senko plan --items`.
//!
//! Idea: Zipf's law over many ranks is not that over few. The more items there are, the larger is
//! the share of requests for the hottest hundredth of them. So ranks are drawn among all items, and
//! adjacent ranks form a group. A group is requested as often as its items together, and a cache
//! for a part of the items is simulated as one for the same part of the groups. By Che's
//! approximation (Che, Tung, Wang, "Hierarchical Web caching systems", IEEE JSAC 20(7), 2002) both
//! find the same share of requests where the items of a group are about equally popular. Only the
//! hottest group's are not. So a cache must hold many groups, and for smaller caches groups are
//! smaller: each level has groups of a sixteenth of the last one's.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use senko_workload::Rng;
use senko_workload::zipf::{MAX_RANKS, Zipf};

use super::Level;
use crate::count::Basis;
use crate::requests::Requests;

/// At most this many groups are drawn for large caches.
const GROUPS: u64 = 65_536;
/// Requests for each group: half of them bring the cache to its usual state.
const FOR_EACH: u64 = 16;
/// Groups become smaller by this factor from level to level.
const FINER: f64 = 16.0;
/// Below this many groups, the next level's are used.
const LEAST_GROUPS: f64 = 4096.0;
/// Requests of each further level, and the hottest groups that are there before.
const FURTHER: (u64, u64) = (1_000_000, 2 * (LEAST_GROUPS * FINER) as u64);

/// Draws requests for `items` items, for smaller caches first.
pub(super) fn levels(items: u64, exponent: f64, seed: u64) -> Result<Vec<Level>> {
    ensure!(
        (1..=MAX_RANKS).contains(&items),
        "{items} items cannot be drawn: there must be 1 to {MAX_RANKS}"
    );
    let law = Zipf::new(items, exponent)?;
    let groups = items.min(GROUPS);
    let mut levels = Vec::new();
    let (mut times, mut to) = (items as f64 / groups as f64, items);
    let (mut draws, mut held) = (groups * FOR_EACH, groups);
    loop {
        let from = match times > 1.0 {
            true => (LEAST_GROUPS * times) as u64,
            false => 0,
        };
        let requests = draw(&law, (times, items), draws, held, seed);
        let warm = requests.objects.len() - (draws - draws / 2) as usize;
        let mut level = Level::of(requests, Basis::Objects, 1.0 / times, warm);
        level.range = (from, to);
        levels.insert(0, level);
        if from == 0 {
            return Ok(levels);
        }
        times = (times / FINER).max(1.0);
        (to, draws, held) = (from, FURTHER.0, FURTHER.1);
    }
}

/// Draws requests for groups of `times` items.
fn draw(law: &Zipf, (times, items): (f64, u64), draws: u64, held: u64, seed: u64) -> Requests {
    let last = (items as f64 / times).ceil() as u64 - 1;
    let group = |rank: u64| ((rank as f64 / times) as u64).min(last);
    let (mut rng, mut shuffles) = (Rng::new(seed), Rng::new(seed ^ 0x5e7f));
    let mut numbers: HashMap<u64, u32> = HashMap::new();
    let mut number = |group: u64| {
        let next = numbers.len() as u32;
        *numbers.entry(group).or_insert(next)
    };
    // One request for each fills the cache. In the order of their ranks, a log would hold the
    // hottest side by side, as it never does later.
    let mut objects: Vec<u32> = (0..held).rev().map(&mut number).collect();
    for at in 1..objects.len() {
        objects.swap(at, shuffles.below(at as u64 + 1) as usize);
    }
    let drawn = (0..draws).map(|_| number(group(law.draw(&mut rng))));
    objects.extend(drawn);
    Requests::of_lookups(objects, None)
}
