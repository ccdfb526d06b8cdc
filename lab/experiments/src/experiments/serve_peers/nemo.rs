// SPDX-License-Identifier: Apache-2.0
//! A model of a cache like Nemo: groups of sets, filled in DRAM, written once, found by filters.
//!
//! Card. Idea: a key has its page in every group of pages. A group fills in DRAM, is written as a
//! whole, in order, and goes as a whole, the oldest first; objects that were hit return to DRAM.
//! Source: Yang et al., "Nemo: A Low-Write-Amplification Cache for Tiny Objects on Log-Structured
//! Flash Devices", ASPLOS 2026 (arXiv 2603.09605). Only its abstract and introduction were to be
//! had: sets of few choices for a better fill, an index of Bloom filters, and hotness tracked in
//! two ways.
//!
//! The rest is this model's own, so its figures are not Nemo's:
//! - There are 1,024 groups, and eight in DRAM. The oldest of these is written when an object fits
//!   into none.
//! - Filters cost an absent key a tenth of a read. All are in DRAM, while Nemo keeps a part on
//!   flash.
//! - An object has one hit bit. A copy that is replaced costs nothing.

use std::collections::{HashMap, VecDeque};

use senko_io::PAGE_SIZE;
use senko_ssd::Request;
use senko_workload::rng::mix64;

use super::tier::{Object, PAGE_HEAD, Tier, Writes};

/// Groups on flash, and in DRAM.
const GROUPS: usize = 1024;
const OPEN: usize = 8;
/// Pages read in vain for an absent key.
const FALSE_READS: f64 = 0.1;

/// A group of pages. The last ones are in DRAM, the others on flash.
#[derive(Debug)]
struct Group {
    free: Vec<usize>,
    objects: Vec<Object>,
}

#[derive(Debug)]
pub struct Nemo {
    mean: f64,
    pages: usize,
    /// Number of the oldest group.
    oldest: u64,
    groups: VecDeque<Group>,
    /// The group of each object, its version, and whether it was hit there.
    places: HashMap<u32, (u64, u32, bool)>,
    admitted: u64,
    writes: Writes,
}

impl Nemo {
    /// An empty cache of `flash` bytes, for objects of `mean` bytes.
    pub fn new(flash: u64, mean: f64) -> Self {
        let pages = (flash as usize / PAGE_SIZE / GROUPS).max(1);
        let mut empty = Self {
            mean,
            pages,
            oldest: 0,
            groups: VecDeque::new(),
            places: HashMap::new(),
            admitted: 0,
            writes: Writes::default(),
        };
        for _ in 0..OPEN {
            empty.open();
        }
        empty
    }

    fn open(&mut self) {
        self.groups.push_back(Group {
            free: vec![PAGE_SIZE - PAGE_HEAD; self.pages],
            objects: Vec::new(),
        });
    }

    /// Places an object in DRAM, and whatever has to move for it.
    fn place(&mut self, object: Object) {
        let mut waiting = vec![object];
        while let Some(object) = waiting.pop() {
            let page = (mix64(u64::from(object.id)) % self.pages as u64) as usize;
            let oldest = self.groups.len() - OPEN;
            let fits = |at: &usize| self.groups[*at].free[page] >= object.stored();
            let Some(at) = (oldest..oldest + OPEN).find(fits) else {
                waiting.push(object);
                self.write(&mut waiting);
                continue;
            };
            let number = self.oldest + at as u64;
            let group = &mut self.groups[at];
            group.free[page] -= object.stored();
            group.objects.push(object);
            self.places
                .insert(object.id, (number, object.version, false));
        }
    }

    /// Writes the oldest group in DRAM over the oldest on flash, whose hit objects return.
    fn write(&mut self, waiting: &mut Vec<Object>) {
        if self.groups.len() == GROUPS + OPEN
            && let Some(group) = self.groups.pop_front()
        {
            let number = self.oldest;
            self.oldest += 1;
            for object in group.objects {
                if let Some((at, version, hit)) = self.places.get(&object.id).copied()
                    && (at, version) == (number, object.version)
                {
                    self.places.remove(&object.id);
                    waiting.extend(hit.then_some(object));
                }
            }
        }
        let number = self.oldest as usize + self.groups.len() - OPEN;
        let first = number % GROUPS * self.pages;
        self.writes.pages(first, self.pages);
        self.open();
    }
}

impl Tier for Nemo {
    fn find(&mut self, id: u32) -> Option<u32> {
        let (_, version, hit) = self.places.get_mut(&id)?;
        *hit = true;
        Some(*version)
    }

    fn holds(&self, id: u32) -> bool {
        self.places.contains_key(&id)
    }

    fn put(&mut self, object: Object) {
        self.admitted += u64::from(object.bytes);
        self.place(object);
    }

    fn remove(&mut self, id: u32) {
        self.places.remove(&id);
    }

    fn items(&self) -> u64 {
        self.places.len() as u64
    }

    fn admitted(&self) -> u64 {
        self.admitted
    }

    fn writes(&self) -> &[Request] {
        self.writes.recorded()
    }

    fn index_bytes(&self) -> u64 {
        let objects = (GROUPS * self.pages * PAGE_SIZE) as f64 / self.mean;
        let filter = (GROUPS as f64 / FALSE_READS).log2() * std::f64::consts::LOG2_E;
        (objects * (filter + 1.0) / 8.0) as u64
    }

    fn buffer_bytes(&self) -> u64 {
        (OPEN * self.pages * PAGE_SIZE) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::serve_peers::tier::{Cached, answers_are_the_newest};

    #[test]
    fn pages_hold_their_bytes_and_answers_are_the_newest() {
        let mut cache = Cached::new(Nemo::new(8 << 20, 300.0), 300_000, 40_000);
        answers_are_the_newest(&mut cache, |rng| {
            rng.below(40_000) * rng.below(40_000) / 40_000
        });
        let tier = &cache.tier;
        assert!(tier.oldest > 10, "groups went");
        for group in &tier.groups {
            let mut bytes = vec![0; tier.pages];
            for object in &group.objects {
                let page = mix64(object.id.into()) % tier.pages as u64;
                bytes[page as usize] += object.stored();
            }
            assert!(bytes.iter().all(|bytes| *bytes <= PAGE_SIZE - PAGE_HEAD));
        }
        // Whole groups, in order, over and over.
        let group = (tier.pages * PAGE_SIZE) as u64;
        for (nth, write) in tier.writes().iter().enumerate() {
            let expected = (nth % GROUPS) as u64 * group;
            assert_eq!((write.offset, write.bytes), (expected, group));
        }
        let opened = tier.oldest + tier.groups.len() as u64;
        assert_eq!(tier.writes().len(), opened as usize - OPEN);
    }
}
