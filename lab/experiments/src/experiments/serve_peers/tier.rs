// SPDX-License-Identifier: Apache-2.0
//! What the models share: objects, the recorded writes, and DRAM in front of a flash tier.

use std::collections::VecDeque;

use senko_io::PAGE_SIZE;
use senko_ssd::{Op, Request};

use crate::experiments::endurance_loads::request;

/// An object: key and value together have `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    pub id: u32,
    pub version: u32,
    pub bytes: u32,
}

/// Bytes of a page's head. Kangaroo's sources have 24 (`RripBucket`).
pub const PAGE_HEAD: usize = 24;
/// Bytes beside key and value on flash. Kangaroo's sources have 12 (`RripBucketEntry`), and the
/// slot around them.
pub const RECORD_HEAD: usize = 16;

impl Object {
    pub fn stored(&self) -> usize {
        self.bytes as usize + RECORD_HEAD
    }
}

/// The writes to the device, in order.
#[derive(Debug, Default)]
pub struct Writes(Vec<Request>);

impl Writes {
    pub fn pages(&mut self, first: usize, count: usize) {
        let (offset, bytes) = (first * PAGE_SIZE, count * PAGE_SIZE);
        self.0.push(request(Op::Write, offset as u64, bytes as u64));
    }

    pub fn recorded(&self) -> &[Request] {
        &self.0
    }
}

pub trait Tier {
    /// The version of an object that is found; the hit counts.
    fn find(&mut self, id: u32) -> Option<u32>;
    fn holds(&self, id: u32) -> bool;
    /// Takes an object that it does not hold, or refuses it.
    fn put(&mut self, object: Object);
    fn remove(&mut self, id: u32);
    fn items(&self) -> u64;
    /// Key and value bytes that it took.
    fn admitted(&self) -> u64;
    fn writes(&self) -> &[Request];
    /// Bytes of DRAM for the index and the filters.
    fn index_bytes(&self) -> u64;
    /// Bytes of DRAM for what waits to be written.
    fn buffer_bytes(&self) -> u64;
}

/// An object in DRAM; `used` is 0 if it is not there.
#[derive(Clone, Copy, Debug, Default)]
struct Resident {
    used: u64,
    version: u32,
    bytes: u32,
    cost: u32,
}

/// LRU in DRAM in front of a tier. An object that leaves DRAM goes to the tier, unless it is there.
/// A hit on flash brings the object back to DRAM, and its copy stays.
#[derive(Debug)]
pub struct Cached<T> {
    pub tier: T,
    left: i64,
    now: u64,
    objects: Vec<Resident>,
    /// Uses, oldest first. One that is not an object's last counts for nothing.
    uses: VecDeque<(u32, u64)>,
    pub requests: u64,
    pub misses: u64,
}

impl<T: Tier> Cached<T> {
    /// `memory` bytes of DRAM for all: objects, the tier's index and its buffers.
    pub fn new(tier: T, memory: u64, objects: usize) -> Self {
        let left = memory as i64 - (tier.index_bytes() + tier.buffer_bytes()) as i64;
        Self {
            tier,
            left,
            now: 0,
            objects: vec![Resident::default(); objects],
            uses: VecDeque::new(),
            requests: 0,
            misses: 0,
        }
    }

    /// Looks an object up: the version that is found. One that is missing is stored.
    pub fn get(&mut self, object: Object, cost: u32) -> Option<u32> {
        self.requests += 1;
        let resident = self.objects[object.id as usize];
        if resident.used > 0 {
            self.touch(object.id);
            return Some(resident.version);
        }
        let found = self.tier.find(object.id);
        self.misses += u64::from(found.is_none());
        let version = found.unwrap_or(object.version);
        self.admit(Object { version, ..object }, cost);
        found
    }

    /// Stores an object; older copies are gone.
    pub fn set(&mut self, object: Object, cost: u32) {
        if self.tier.holds(object.id) {
            self.tier.remove(object.id);
        }
        let resident = std::mem::take(&mut self.objects[object.id as usize]);
        self.left += i64::from(resident.cost);
        self.admit(object, cost);
    }

    fn touch(&mut self, id: u32) {
        self.now += 1;
        self.objects[id as usize].used = self.now;
        self.uses.push_back((id, self.now));
    }

    fn admit(&mut self, object: Object, cost: u32) {
        self.objects[object.id as usize] = Resident {
            used: 0,
            version: object.version,
            bytes: object.bytes,
            cost,
        };
        self.touch(object.id);
        self.left -= i64::from(cost);
        while self.left < 0 {
            let Some((id, used)) = self.uses.pop_front() else {
                break;
            };
            if self.objects[id as usize].used != used {
                continue;
            }
            let leaving = std::mem::take(&mut self.objects[id as usize]);
            self.left += i64::from(leaving.cost);
            if !self.tier.holds(id) {
                self.tier.put(Object {
                    id,
                    version: leaving.version,
                    bytes: leaving.bytes,
                });
            }
        }
    }
}

/// Sets and gets at random objects that `draw` names: what is found is the newest.
#[cfg(test)]
pub fn answers_are_the_newest<T: Tier>(
    cache: &mut Cached<T>,
    draw: impl Fn(&mut senko_workload::Rng) -> u64,
) {
    let mut newest = vec![0; cache.objects.len()];
    let mut rng = senko_workload::Rng::new(3);
    for _ in 0..300_000 {
        let id = draw(&mut rng) as u32;
        let bytes = 20 + (senko_workload::rng::mix64(id.into()) % 1_000) as u32;
        let mut version = newest[id as usize];
        if rng.chance(20) {
            version += 1;
            newest[id as usize] = version;
            cache.set(Object { id, version, bytes }, bytes);
            continue;
        }
        let found = cache.get(Object { id, version, bytes }, bytes);
        assert!(found.is_none() || found == Some(version), "{id}: {found:?}");
    }
}
