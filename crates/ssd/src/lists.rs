// SPDX-License-Identifier: Apache-2.0
//! Doubly linked lists over the places of a slab: any number of lists, each place is in at most one
//! of them. All operations are O(1), and nothing is allocated after the start.

use crate::geometry::NONE;

/// Lists of places `0..places`. Each list is a ring through its own sentinel, which follows the
/// places in the arrays.
#[derive(Clone, Debug)]
pub struct Lists {
    next: Vec<u32>,
    prev: Vec<u32>,
    places: u32,
}

impl Lists {
    pub fn new(places: usize, lists: usize) -> Self {
        let places = places as u32;
        let mut next = vec![NONE; places as usize + lists];
        for sentinel in places..next.len() as u32 {
            next[sentinel as usize] = sentinel;
        }
        Self {
            prev: next.clone(),
            next,
            places,
        }
    }

    #[inline]
    fn link(&mut self, before: u32, place: u32, after: u32) {
        debug_assert_eq!(self.next[place as usize], NONE, "a place is in one list");
        self.next[place as usize] = after;
        self.prev[place as usize] = before;
        self.next[before as usize] = place;
        self.prev[after as usize] = place;
    }

    #[inline]
    pub fn push_back(&mut self, list: usize, place: u32) {
        let sentinel = self.places + list as u32;
        self.link(self.prev[sentinel as usize], place, sentinel);
    }

    #[inline]
    pub fn push_front(&mut self, list: usize, place: u32) {
        let sentinel = self.places + list as u32;
        self.link(sentinel, place, self.next[sentinel as usize]);
    }

    #[inline]
    pub fn insert_before(&mut self, other: u32, place: u32) {
        self.link(self.prev[other as usize], place, other);
    }

    #[inline]
    pub fn unlink(&mut self, place: u32) {
        let (before, after) = (self.prev[place as usize], self.next[place as usize]);
        debug_assert_ne!(after, NONE, "the place is in a list");
        self.next[before as usize] = after;
        self.prev[after as usize] = before;
        self.next[place as usize] = NONE;
        self.prev[place as usize] = NONE;
    }

    #[inline]
    pub fn front(&self, list: usize) -> Option<u32> {
        let first = self.next[self.places as usize + list];
        (first < self.places).then_some(first)
    }

    /// The place after another in its list.
    #[inline]
    pub fn after(&self, place: u32) -> Option<u32> {
        let next = self.next[place as usize];
        (next < self.places).then_some(next)
    }

    pub fn bytes(&self) -> u64 {
        8 * self.next.len() as u64
    }
}

/// Places by size, in the order of their last touch within a size: finds the largest in constant
/// time.
#[derive(Clone, Debug)]
pub struct BySize {
    lists: Lists,
    /// A bit for each size that occurs.
    sizes: Vec<u64>,
    /// Each place's size, 0 if the place is not in.
    size_of: Vec<u32>,
}

impl BySize {
    pub fn new(places: usize, largest: u32) -> Self {
        Self {
            lists: Lists::new(places, largest as usize + 1),
            sizes: vec![0; largest as usize / 64 + 1],
            size_of: vec![0; places],
        }
    }

    /// Adds a place as the last touched of its size, wherever it was before.
    #[inline]
    pub fn touch(&mut self, place: u32, size: u32) {
        self.remove(place);
        self.lists.push_back(size as usize, place);
        self.set(place, size);
    }

    #[inline]
    fn set(&mut self, place: u32, size: u32) {
        self.size_of[place as usize] = size;
        self.sizes[size as usize / 64] |= 1 << (size % 64);
    }

    /// Adds a place as the first of its size to leave.
    pub fn enter_first(&mut self, place: u32, size: u32) {
        self.remove(place);
        self.lists.push_front(size as usize, place);
        self.set(place, size);
    }

    #[inline]
    pub fn remove(&mut self, place: u32) {
        let size = std::mem::take(&mut self.size_of[place as usize]) as usize;
        if size == 0 {
            return;
        }
        self.lists.unlink(place);
        if self.lists.front(size).is_none() {
            self.sizes[size / 64] &= !(1 << (size % 64));
        }
    }

    #[inline]
    pub fn has(&self, place: u32) -> bool {
        self.size_of[place as usize] != 0
    }

    /// The largest; of several, the one that was touched longest ago.
    #[inline]
    pub fn largest(&self) -> Option<u32> {
        let (word, bits) = self
            .sizes
            .iter()
            .enumerate()
            .rev()
            .find(|(_, bits)| **bits != 0)?;
        self.lists
            .front(word * 64 + 63 - bits.leading_zeros() as usize)
    }

    /// For each size that occurs, in ascending order: the place that was touched longest ago.
    pub fn oldest_of_each(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.sizes.iter().enumerate().flat_map(move |(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                let size = word * 64 + bit as usize;
                let place = self.lists.front(size);
                Some((size as u32, place.expect("there is one of this size")))
            })
        })
    }

    pub fn bytes(&self) -> u64 {
        self.lists.bytes() + 8 * self.sizes.len() as u64 + 4 * self.size_of.len() as u64
    }
}
