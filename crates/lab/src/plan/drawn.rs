// SPDX-License-Identifier: Apache-2.0
//! Requests for a cache of any number of items, by Zipf's law. For `senko plan --items`.
//!
//! Idea: Zipf's law over many ranks is not that over few. The more items there are, the larger is
//! the share of requests for the hottest hundredth of them. So ranks are drawn among all items, and
//! adjacent ranks form a group. A group is requested as often as its items together, and a cache
//! for a part of the items is simulated as one for the same part of the groups. By Che's
//! approximation (Che, Tung, Wang, "Hierarchical Web caching systems", IEEE JSAC 20(7), 2002) both
//! find the same share of requests where the items of a group are about equally popular. Only the
//! hottest group's are not, and nearly every cache holds all of these.

use anyhow::{Result, ensure};
use senko_workload::Rng;
use senko_workload::zipf::{MAX_RANKS, Zipf};

use crate::experiments::dram_policy::requests::Requests;

/// At most this many groups are drawn: so many that all of them are followed.
const GROUPS: u64 = super::FOLLOWED as u64;
/// Requests for each group: half of them bring the cache to its usual state.
const FOR_EACH: usize = 8;

/// Requests, and what they stand for.
pub struct Drawn {
    /// The requests for groups. Each group occurs.
    pub requests: Requests,
    /// How many items a group stands for.
    pub times: f64,
    /// This many requests at the start fill the cache and are not to be counted.
    pub warm: usize,
}

/// Draws requests for `items` items, of which the item with rank `r` has a probability
/// proportional to `r^-exponent`.
///
/// # Errors
/// If there is no item, or more than 2^40, or the exponent is not from 0 to 5.
///
/// # Examples
/// ```
/// let drawn = senko_lab::plan::by_zipf(2_000_000, 0.99, 1)?;
/// assert_eq!(drawn.times, 10.0);
/// assert!(drawn.warm < drawn.requests.objects.len());
/// # Ok::<(), anyhow::Error>(())
/// ```
pub fn by_zipf(items: u64, exponent: f64, seed: u64) -> Result<Drawn> {
    ensure!(
        (1..=MAX_RANKS).contains(&items),
        "{items} items cannot be drawn: there must be 1 to {MAX_RANKS}"
    );
    let law = Zipf::new(items, exponent)?;
    let groups = items.min(GROUPS);
    // Both are below 2^40, so their product fits 128 bits only.
    let group = |rank: u64| (u128::from(rank) * u128::from(groups) / u128::from(items)) as u32;
    let mut rng = Rng::new(seed);
    let drawn = groups as usize * FOR_EACH;
    // One request for each, from the coldest to the hottest, leaves the cache nearly as it is after
    // a long time.
    let mut objects: Vec<u32> = (0..groups as u32).rev().collect();
    objects.extend((0..drawn).map(|_| group(law.draw(&mut rng))));
    Ok(Drawn {
        requests: Requests {
            objects,
            sizes: None,
        },
        times: items as f64 / groups as f64,
        warm: groups as usize + drawn / 2,
    })
}
