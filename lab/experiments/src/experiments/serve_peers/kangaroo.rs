// SPDX-License-Identifier: Apache-2.0
//! A model of Kangaroo's flash: a small log in front of pages that are sets.
//!
//! Card. Idea: objects wait in a log until several of one set can be written with one page. Source:
//! McAllister et al., "Kangaroo: Caching Billions of Tiny Objects on Flash", SOSP 2021, sections 3
//! and 4, and its public sources (the `kangaroo` folder of CacheLib's engine).
//!
//! From the sources:
//! - Pages have 4 KiB, segments 256 KiB, with the heads of pages and records that they have there.
//! - A log entry takes 48 bits (9 tag, 19 place, 16 next, 3 hits, 1 valid), a chain 16.
//! - A removal from a set writes its page.
//!
//! From memory of the paper, since its text was not to be had:
//! - The log has 5 % of the flash. 90 % of the objects are admitted. The threshold is 2, and an
//!   object below it stays if it was hit.
//! - RRIParoo has three bits. A new object is at 6, and each hit in the log brings it one nearer. A
//!   hit in the set sets 0. At equal bits the set's objects come first.
//! - An object in a set takes three bits of a Bloom filter and one hit bit.
//!
//! Deviations:
//! - There is one partition. A segment is at most a sixteenth of the log.
//! - Filters never err. An error would cost reads, which are not counted here.
//! - Every object of a set has a hit bit, where the paper has one for some.
//! - An object that no longer fits into its set goes. The sources put it back into the log.

use std::collections::VecDeque;

use senko_io::PAGE_SIZE;
use senko_ssd::Request;
use senko_workload::Rng;
use senko_workload::rng::mix64;

use super::tier::{Object, PAGE_HEAD, Tier, Writes};

/// RRIParoo's predictions: that of a new object, and the farthest.
const LONG: u8 = 6;
const FAR: u8 = 7;
/// Bits of DRAM: an object in the log, a chain of the log's index, an object in a set.
const LOG_ENTRY_BITS: f64 = 48.0;
const CHAIN_BITS: f64 = 16.0;
const SET_BITS: f64 = 4.0;
const SEGMENT_PAGES: usize = 64;
/// The least segments of a log.
const LEAST_SEGMENTS: usize = 16;

/// The parameters that tests change.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The log's share of the flash.
    pub log: f64,
    /// Percent of the objects that are admitted.
    pub admitted: u64,
    /// Objects of one set that are worth a write.
    pub threshold: usize,
}

pub const PAPER: Rules = Rules {
    log: 0.05,
    admitted: 90,
    threshold: 2,
};

#[derive(Clone, Copy, Debug)]
struct Stored {
    object: Object,
    prediction: u8,
    hit: bool,
}

#[derive(Clone, Copy, Debug)]
struct Logged {
    object: Object,
    hits: u8,
    segment: u64,
}

/// The segment that is being filled, in DRAM.
#[derive(Debug, Default)]
struct Open {
    number: u64,
    /// Full pages, and the bytes in the next one.
    pages: usize,
    bytes: usize,
    /// The set of each object.
    sets: Vec<u32>,
}

#[derive(Debug)]
pub struct Kangaroo {
    rules: Rules,
    mean: f64,
    sets: Vec<Vec<Stored>>,
    /// The objects in the log, by set.
    log: Vec<Vec<Logged>>,
    segment_pages: usize,
    segments: usize,
    /// The sets of the segments on flash, oldest first.
    closed: VecDeque<(u64, Vec<u32>)>,
    open: Open,
    rng: Rng,
    items: u64,
    admitted: u64,
    writes: Writes,
}

impl Kangaroo {
    /// An empty cache of `flash` bytes, for objects of `mean` bytes.
    pub fn new(flash: u64, mean: f64, rules: Rules, seed: u64) -> Self {
        let pages = flash as usize / PAGE_SIZE;
        let log = ((pages as f64 * rules.log) as usize).max(LEAST_SEGMENTS);
        let segment_pages = SEGMENT_PAGES.min(log / LEAST_SEGMENTS);
        let segments = log / segment_pages;
        let sets = pages - segments * segment_pages;
        Self {
            rules,
            mean,
            sets: vec![Vec::new(); sets],
            log: vec![Vec::new(); sets],
            segment_pages,
            segments,
            closed: VecDeque::new(),
            open: Open::default(),
            rng: Rng::new(seed),
            items: 0,
            admitted: 0,
            writes: Writes::default(),
        }
    }

    fn set_of(&self, id: u32) -> usize {
        (mix64(u64::from(id)) % self.sets.len() as u64) as usize
    }

    /// Adds an object to the open segment; the oldest segment leaves if there is no room.
    fn append(&mut self, object: Object) {
        let mut waiting = vec![object];
        while let Some(object) = waiting.pop() {
            if self.open.bytes + object.stored() > PAGE_SIZE - PAGE_HEAD {
                self.open.pages += 1;
                self.open.bytes = 0;
            }
            if self.open.pages == self.segment_pages {
                waiting.push(object);
                self.close_segment(&mut waiting);
                continue;
            }
            self.open.bytes += object.stored();
            let set = self.set_of(object.id);
            self.open.sets.push(set as u32);
            self.items += 1;
            self.log[set].push(Logged {
                object,
                hits: 0,
                segment: self.open.number,
            });
        }
    }

    /// Writes the open segment over the oldest one, whose objects move, wait or go.
    fn close_segment(&mut self, waiting: &mut Vec<Object>) {
        if self.closed.len() == self.segments
            && let Some((number, sets)) = self.closed.pop_front()
        {
            for set in sets {
                self.leave(set as usize, number, waiting);
            }
        }
        let next = Open {
            number: self.open.number + 1,
            ..Open::default()
        };
        let open = std::mem::replace(&mut self.open, next);
        let slot = open.number as usize % self.segments;
        let first = self.sets.len() + slot * self.segment_pages;
        self.writes.pages(first, self.segment_pages);
        self.closed.push_back((open.number, open.sets));
    }

    /// The objects of a set leave the log with the segment `number`: all of them into the set if
    /// they are enough, or only that segment's.
    fn leave(&mut self, set: usize, number: u64, waiting: &mut Vec<Object>) {
        let logged = &mut self.log[set];
        if !logged.iter().any(|logged| logged.segment == number) {
            return;
        }
        if logged.len() >= self.rules.threshold {
            let moving = std::mem::take(logged);
            self.merge(set, &moving);
            return;
        }
        let old: Vec<Logged> = logged
            .extract_if(.., |logged| logged.segment == number)
            .collect();
        self.items -= old.len() as u64;
        let hit = old.iter().filter(|logged| logged.hits > 0);
        waiting.extend(hit.map(|logged| logged.object));
    }

    /// Writes a set with the objects that are nearest to their next use.
    fn merge(&mut self, set: usize, moving: &[Logged]) {
        let mut all = std::mem::take(&mut self.sets[set]);
        self.items -= (all.len() + moving.len()) as u64;
        for stored in &mut all {
            if std::mem::take(&mut stored.hit) {
                stored.prediction = 0;
            }
        }
        let bytes = |stored: &Stored| stored.object.stored();
        let needed: usize = all.iter().map(bytes).sum::<usize>()
            + moving.iter().map(|l| l.object.stored()).sum::<usize>();
        if needed > PAGE_SIZE - PAGE_HEAD {
            let farthest = all.iter().map(|stored| stored.prediction).max();
            let older = FAR - farthest.unwrap_or(FAR);
            for stored in all.iter_mut().filter(|stored| stored.prediction > 0) {
                stored.prediction += older;
            }
        }
        all.extend(moving.iter().map(|logged| Stored {
            object: logged.object,
            prediction: LONG.saturating_sub(logged.hits),
            hit: false,
        }));
        // Stable: at equal predictions the set's own objects come first.
        all.sort_by_key(|stored| stored.prediction);
        let mut free = PAGE_SIZE - PAGE_HEAD;
        all.retain(|stored| match free.checked_sub(bytes(stored)) {
            Some(rest) => {
                free = rest;
                true
            }
            None => false,
        });
        self.items += all.len() as u64;
        self.sets[set] = all;
        self.writes.pages(set, 1);
    }
}

impl Tier for Kangaroo {
    fn find(&mut self, id: u32) -> Option<u32> {
        let set = self.set_of(id);
        if let Some(logged) = self.log[set].iter_mut().find(|l| l.object.id == id) {
            logged.hits = (logged.hits + 1).min(FAR);
            return Some(logged.object.version);
        }
        let stored = self.sets[set].iter_mut().find(|s| s.object.id == id)?;
        stored.hit = true;
        Some(stored.object.version)
    }

    fn holds(&self, id: u32) -> bool {
        let set = self.set_of(id);
        self.log[set].iter().any(|l| l.object.id == id)
            || self.sets[set].iter().any(|s| s.object.id == id)
    }

    fn put(&mut self, object: Object) {
        if self.rng.chance(self.rules.admitted) {
            self.admitted += u64::from(object.bytes);
            self.append(object);
        }
    }

    fn remove(&mut self, id: u32) {
        let set = self.set_of(id);
        let logged = self.log[set].len();
        self.log[set].retain(|logged| logged.object.id != id);
        if self.log[set].len() < logged {
            self.items -= 1;
            return;
        }
        let stored = self.sets[set].len();
        self.sets[set].retain(|stored| stored.object.id != id);
        if self.sets[set].len() < stored {
            self.items -= 1;
            self.writes.pages(set, 1);
        }
    }

    fn items(&self) -> u64 {
        self.items
    }

    fn admitted(&self) -> u64 {
        self.admitted
    }

    fn writes(&self) -> &[Request] {
        self.writes.recorded()
    }

    fn index_bytes(&self) -> u64 {
        let a_page = PAGE_SIZE as f64 / self.mean;
        let log = (self.segments * self.segment_pages) as f64 * a_page * LOG_ENTRY_BITS;
        let sets = self.sets.len() as f64 * (CHAIN_BITS + a_page * SET_BITS);
        ((log + sets) / 8.0) as u64
    }

    fn buffer_bytes(&self) -> u64 {
        (self.segment_pages * PAGE_SIZE) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::serve_peers::tier::{Cached, RECORD_HEAD, answers_are_the_newest};

    /// Writes for the bytes of new objects of one size, by the closed form: when a set's first
    /// object leaves the log, K - 1 more came in the meantime, as many as Poisson's law of `turn`
    /// says. A page is written if K reaches the threshold.
    fn closed_form(turn: f64, per_page: f64, threshold: usize) -> f64 {
        let mut chance = (-turn).exp();
        let mut below = 0.0;
        for more in 0..threshold.saturating_sub(1) {
            below += chance;
            chance *= turn / (more + 1) as f64;
        }
        1.0 + per_page * (1.0 - below) / (1.0 + turn)
    }

    #[test]
    fn write_amplification_of_new_objects_has_its_closed_form() {
        const BYTES: u32 = 100;
        let stored = BYTES as usize + RECORD_HEAD;
        let per_page = (PAGE_SIZE - PAGE_HEAD) / stored;
        for (log, threshold) in [(0.05, 1), (0.05, 2), (0.1, 2), (0.02, 1)] {
            let rules = Rules {
                log,
                admitted: 100,
                threshold,
            };
            let mut cache = Kangaroo::new(16 << 20, stored as f64, rules, 1);
            let log_objects = cache.segments * cache.segment_pages * per_page;
            let put = |cache: &mut Kangaroo, ids: std::ops::Range<u32>| {
                for id in ids {
                    cache.put(Object {
                        id,
                        version: 0,
                        bytes: BYTES,
                    });
                }
                cache.writes.recorded().iter().map(|w| w.bytes).sum::<u64>()
            };
            let before = put(&mut cache, 0..300_000);
            let written = put(&mut cache, 300_000..900_000) - before;
            // In pages of objects, so that heads and rounding are in neither.
            let seen = written as f64 / (600_000.0 / per_page as f64 * PAGE_SIZE as f64);
            let turn = log_objects as f64 / cache.sets.len() as f64;
            let expected = closed_form(turn, per_page as f64, threshold);
            assert!(
                (seen / expected - 1.0).abs() < 0.03,
                "log {log}, threshold {threshold}: {seen} instead of {expected}"
            );
        }
    }

    #[test]
    fn sets_never_hold_more_than_a_page_and_answers_are_the_newest() {
        let tier = Kangaroo::new(1 << 20, 300.0, PAPER, 2);
        let mut cache = Cached::new(tier, 300_000, 6_000);
        answers_are_the_newest(&mut cache, |rng| rng.below(6_000));
        assert!(cache.misses > 1_000 && cache.misses < cache.requests);
        let tier = &cache.tier;
        for set in &tier.sets {
            let bytes: usize = set.iter().map(|stored| stored.object.stored()).sum();
            assert!(bytes <= PAGE_SIZE - PAGE_HEAD);
        }
        let held = tier.sets.iter().map(Vec::len).sum::<usize>()
            + tier.log.iter().map(Vec::len).sum::<usize>();
        assert_eq!(held as u64, tier.items);
        assert!(tier.writes().iter().all(|w| w.offset + w.bytes <= 1 << 20));
    }
}
