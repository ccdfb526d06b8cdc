// SPDX-License-Identifier: Apache-2.0
//! Models of the two eviction policies: their decisions, without the data structures that make them
//! fast in a server.
//!
//! The experiment numbers objects densely, so a policy's state is an array by object number.
//!
//! Always holds: the resident objects' weights add up to at most the capacity after every access.

use std::collections::VecDeque;

/// A cache that fills on each miss.
pub trait Policy {
    /// Requests object number `object`, which weighs `weight`; `true` is a hit.
    fn access(&mut self, object: u32, weight: u64) -> bool;
    /// Removes an object, if it is there.
    fn remove(&mut self, object: u32);
}

/// Least recently used.
///
/// Idea: objects are in order of last use, and the least recently used one leaves. Paper E orders
/// its DRAM tier like this. An object heavier than the cache does not enter.
pub struct Lru {
    capacity: u64,
    used: u64,
    /// Neighbours in order of use, by object number; the last entry is the ring's head.
    ring: Vec<(u32, u32)>,
    weights: Vec<u64>,
    resident: Vec<bool>,
}

impl Lru {
    /// A cache of `capacity` for the objects `0..objects`.
    pub fn new(capacity: u64, objects: usize) -> Self {
        let head = objects as u32;
        Self {
            capacity,
            used: 0,
            ring: vec![(head, head); objects + 1],
            weights: vec![0; objects],
            resident: vec![false; objects],
        }
    }

    fn head(&self) -> u32 {
        (self.ring.len() - 1) as u32
    }

    fn unlink(&mut self, object: u32) {
        let (before, after) = self.ring[object as usize];
        self.ring[before as usize].1 = after;
        self.ring[after as usize].0 = before;
    }

    fn link_newest(&mut self, object: u32) {
        let head = self.head();
        let second = self.ring[head as usize].1;
        self.ring[object as usize] = (head, second);
        self.ring[head as usize].1 = object;
        self.ring[second as usize].0 = object;
    }
}

impl Policy for Lru {
    fn access(&mut self, object: u32, weight: u64) -> bool {
        if self.resident[object as usize] {
            self.unlink(object);
            self.link_newest(object);
            return true;
        }
        if weight > self.capacity {
            return false;
        }
        while self.used + weight > self.capacity {
            let oldest = self.ring[self.head() as usize].0;
            self.unlink(oldest);
            self.resident[oldest as usize] = false;
            self.used -= self.weights[oldest as usize];
        }
        self.resident[object as usize] = true;
        self.weights[object as usize] = weight;
        self.used += weight;
        self.link_newest(object);
        false
    }

    fn remove(&mut self, object: u32) {
        if std::mem::take(&mut self.resident[object as usize]) {
            self.unlink(object);
            self.used -= self.weights[object as usize];
        }
    }
}

/// The variable settings of [`S3Fifo`].
#[derive(Clone, Copy, Debug)]
pub struct S3FifoSettings {
    /// How many hits in the small queue earn a place in the main queue (the paper: 2, "accessed
    /// more than once").
    pub promote_at: u8,
    /// Whether, until the first eviction, objects that do not fit into the small queue go to the
    /// main queue. This is libCacheSim's present default. Otherwise they go to an oversized small
    /// queue, as in the paper's own simulation.
    pub fill_main_first: bool,
}

/// S3-FIFO: simple, scalable caching with three static queues.
///
/// Idea: most objects are requested once while they are cached. A small queue (10 % of the cache)
/// takes each newcomer. An object that was hit there twice before it reaches the tail moves to the
/// main queue. The others leave at once, and their names enter a ghost queue (as long as the main
/// queue). A newcomer whose name is a ghost goes straight to the main queue. The main queue is
/// first in, first out, and puts an object back to its head as often as its 2-bit counter says. A
/// hit costs an increment of that counter and no lock. Source: Yang, Zhang, Qiu, Yue and Rashmi,
/// "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1. If the text leaves a
/// choice, we do the same as the authors' libCacheSim: which queue gives way, sizes in bytes, and
/// objects as large as the small queue, which stay out. A test compares the miss counts. Deviation:
/// none in the default settings.
pub struct S3Fifo {
    settings: S3FifoSettings,
    admits_large: bool,
    capacity: u64,
    small: Queue,
    main: Queue,
    ghost: Queue,
    weights: Vec<u64>,
    state: Vec<State>,
    has_evicted: bool,
}

struct Queue {
    capacity: u64,
    used: u64,
    objects: VecDeque<(u32, u32)>,
}

#[derive(Clone, Copy, Default)]
struct State {
    place: Place,
    hits: u8,
    /// Counts an object's stays in the ghost queue and its removals, so that an entry of an earlier
    /// stay is known to be stale.
    stay: u32,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    Small,
    Main,
    Ghost,
}

/// A 2-bit counter's largest value.
const MOST_HITS: u8 = 3;

impl Queue {
    fn new(capacity: u64) -> Self {
        Self {
            capacity,
            used: 0,
            objects: VecDeque::new(),
        }
    }
}

impl S3Fifo {
    /// A cache of `capacity` for the objects `0..objects`.
    pub fn new(capacity: u64, objects: usize, settings: S3FifoSettings) -> Self {
        let small = (capacity / 10).max(1);
        Self {
            settings,
            admits_large: false,
            capacity,
            small: Queue::new(small),
            main: Queue::new(capacity - small.min(capacity)),
            ghost: Queue::new((capacity as f64 * 0.9) as u64),
            weights: vec![0; objects],
            state: vec![State::default(); objects],
            has_evicted: false,
        }
    }

    /// Takes objects as large as the small queue, too, as `senko serve` does: its queues count
    /// items. They pass through the small queue, and empty it.
    pub fn admitting_large(self) -> Self {
        Self {
            admits_large: true,
            ..self
        }
    }

    fn put(&mut self, object: u32, place: Place) {
        let queue = if place == Place::Small {
            &mut self.small
        } else {
            &mut self.main
        };
        let state = &mut self.state[object as usize];
        queue.objects.push_back((object, state.stay));
        queue.used += self.weights[object as usize];
        (state.place, state.hits) = (place, 0);
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        if self.main.used > self.main.capacity || self.small.objects.is_empty() {
            self.evict_from_main();
        } else {
            self.evict_from_small();
        }
    }

    /// The object of a queue's entry, unless it was removed since.
    fn live(&self, (object, stay): (u32, u32), place: Place) -> Option<u32> {
        let state = self.state[object as usize];
        (state.place == place && state.stay == stay).then_some(object)
    }

    fn evict_from_small(&mut self) {
        while let Some(entry) = self.small.objects.pop_front() {
            let Some(object) = self.live(entry, Place::Small) else {
                continue;
            };
            self.small.used -= self.weights[object as usize];
            if self.state[object as usize].hits >= self.settings.promote_at {
                self.put(object, Place::Main);
            } else {
                self.remember(object);
                return;
            }
        }
    }

    fn evict_from_main(&mut self) {
        while let Some(entry) = self.main.objects.pop_front() {
            let Some(object) = self.live(entry, Place::Main) else {
                continue;
            };
            self.main.used -= self.weights[object as usize];
            let hits = self.state[object as usize].hits;
            if hits == 0 {
                self.state[object as usize].place = Place::Nowhere;
                return;
            }
            self.put(object, Place::Main);
            self.state[object as usize].hits = hits - 1;
        }
    }

    fn remember(&mut self, object: u32) {
        let weight = self.weights[object as usize];
        if weight > self.ghost.capacity {
            self.state[object as usize].place = Place::Nowhere;
            return;
        }
        // Stale entries at the front are removed too, which bounds the queue by the number of
        // entries since its oldest ghost.
        while let Some(&(oldest, stay)) = self.ghost.objects.front() {
            let state = &mut self.state[oldest as usize];
            let is_ghost = state.place == Place::Ghost && state.stay == stay;
            if is_ghost && self.ghost.used + weight <= self.ghost.capacity {
                break;
            }
            self.ghost.objects.pop_front();
            if is_ghost {
                state.place = Place::Nowhere;
                self.ghost.used -= self.weights[oldest as usize];
            }
        }
        let state = &mut self.state[object as usize];
        state.place = Place::Ghost;
        state.stay = state.stay.wrapping_add(1);
        self.ghost.objects.push_back((object, state.stay));
        self.ghost.used += weight;
    }
}

impl Policy for S3Fifo {
    fn access(&mut self, object: u32, weight: u64) -> bool {
        let state = &mut self.state[object as usize];
        let was_ghost = match state.place {
            Place::Small | Place::Main => {
                state.hits = (state.hits + 1).min(MOST_HITS);
                return true;
            }
            Place::Ghost => {
                // Its queue entry becomes stale, and its room is free now.
                state.place = Place::Nowhere;
                self.ghost.used -= self.weights[object as usize];
                true
            }
            Place::Nowhere => false,
        };
        if weight > self.capacity || (weight > self.small.capacity && !self.admits_large) {
            return false;
        }
        while self.small.used + self.main.used + weight > self.capacity {
            self.evict();
        }
        // An object as heavy as the small queue would sweep it empty. With weights of 1 the rule
        // would close a small queue of one object forever, so it starts at 2.
        let is_large = weight >= self.small.capacity && weight > 1;
        if !was_ghost && is_large && !self.admits_large {
            return false;
        }
        self.weights[object as usize] = weight;
        let small_is_full = self.small.used >= self.small.capacity;
        let fills = self.settings.fill_main_first && !self.has_evicted && small_is_full;
        self.put(
            object,
            if was_ghost || fills {
                Place::Main
            } else {
                Place::Small
            },
        );
        false
    }

    fn remove(&mut self, object: u32) {
        let weight = self.weights[object as usize];
        let state = &mut self.state[object as usize];
        match state.place {
            Place::Nowhere => return,
            Place::Small => self.small.used -= weight,
            Place::Main => self.main.used -= weight,
            Place::Ghost => self.ghost.used -= weight,
        }
        // Its entry becomes stale.
        state.place = Place::Nowhere;
        state.stay = state.stay.wrapping_add(1);
    }
}
