// SPDX-License-Identifier: Apache-2.0
//! Runs a request stream through a model of an eviction policy, and counts hits.

use crate::policies::Policy;
use crate::requests::{Act, Requests};

/// The counts of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Look-ups.
    pub requests: u64,
    /// Look-ups that hit.
    pub hits: u64,
    /// Bytes requested; 0 without sizes.
    pub bytes: u64,
    /// Bytes of look-ups that hit.
    pub hit_bytes: u64,
    /// What was stored, by sets and after misses, in the unit of the capacity.
    pub stored: u64,
}

impl Counts {
    /// Hits in percent of requests.
    pub fn hit_percent(&self) -> f64 {
        100.0 * self.hits as f64 / self.requests as f64
    }

    /// Hit bytes in percent of the bytes requested.
    pub fn byte_hit_percent(&self) -> f64 {
        100.0 * self.hit_bytes as f64 / self.bytes as f64
    }
}

/// Whether a cache's capacity counts objects or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Each object weighs 1.
    Objects,
    /// Each object weighs its size.
    Bytes,
}

/// Runs a request stream through a policy. The first `warm` requests are not counted.
pub fn count(requests: &Requests, policy: &mut impl Policy, basis: Basis, warm: usize) -> Counts {
    let mut counts = Counts::default();
    for (nth, &object) in requests.objects.iter().enumerate() {
        let size = requests
            .sizes
            .as_ref()
            .map_or(0, |sizes| sizes[object as usize]);
        let by_bytes = basis == Basis::Bytes && requests.sizes.is_some();
        let weight = if by_bytes { size } else { 1 };
        let act = requests.act(nth);
        if act == Act::Delete {
            policy.remove(object);
            continue;
        }
        let hit = policy.access(object, weight);
        if nth < warm {
            continue;
        }
        if act == Act::Set {
            counts.stored += weight;
            continue;
        }
        counts.requests += 1;
        counts.bytes += size;
        if hit {
            counts.hits += 1;
            counts.hit_bytes += size;
        } else if act == Act::Get {
            counts.stored += weight;
        }
    }
    counts
}
