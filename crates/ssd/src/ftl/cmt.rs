// SPDX-License-Identifier: Apache-2.0
//! The cached mapping table of DFTL: which entries of the page table are in RAM, and which of these
//! are newer than on the flash.
//!
//! Idea: segmented LRU. A new entry goes to the front of the probationary segment, and a hit moves
//! it to the front of the protected one. When the protected segment is over its share, its last
//! entry goes back to the front of the probationary one. The last probationary entry leaves.
//!
//! Source: R. Karedla, J. S. Love, B. G. Wherry, "Caching strategies to improve disk system
//! performance", IEEE Computer 27(3), 1994, as DFTL's section 3.3 uses it. Deviations: neither
//! paper states DFTL's shares; the protected segment is half of the table.

use crate::geometry::{Lpn, NONE};
use crate::lists::Lists;

const PROBATION: usize = 0;
const PROTECTED: usize = 1;

#[derive(Clone, Copy, Debug)]
struct Entry {
    lpn: Lpn,
    is_protected: bool,
    dirty: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Cmt {
    /// The slot of each logical page's entry, or [`NONE`].
    slot_of: Vec<u32>,
    slots: Vec<Entry>,
    unused: Vec<u32>,
    /// The slots of both segments, the least recently used first.
    segments: Lists,
    protected: usize,
}

impl Cmt {
    /// A table for `capacity` entries, at least one, of `logical_pages`.
    pub fn new(capacity: u32, logical_pages: u32) -> Self {
        let empty = Entry {
            lpn: NONE,
            is_protected: false,
            dirty: false,
        };
        Self {
            slot_of: vec![NONE; logical_pages as usize],
            slots: vec![empty; capacity as usize],
            unused: (0..capacity).rev().collect(),
            segments: Lists::new(capacity as usize, 2),
            protected: 0,
        }
    }

    pub fn has_room(&self) -> bool {
        !self.unused.is_empty()
    }

    pub fn contains(&self, lpn: Lpn) -> bool {
        self.slot_of[lpn as usize] != NONE
    }

    /// Uses the entry of a page; returns whether it is here.
    pub fn hit(&mut self, lpn: Lpn) -> bool {
        let slot = self.slot_of[lpn as usize];
        if slot == NONE {
            return false;
        }
        self.unlink(slot);
        self.link(slot, PROTECTED);
        if self.protected > self.slots.len() / 2
            && let Some(demoted) = self.segments.front(PROTECTED)
        {
            self.unlink(demoted);
            self.link(demoted, PROBATION);
        }
        true
    }

    /// Adds the entry of a page as the flash has it. There must be room.
    pub fn insert(&mut self, lpn: Lpn) {
        let slot = self.unused.pop().expect("there is room");
        let entry = &mut self.slots[slot as usize];
        (entry.lpn, entry.dirty) = (lpn, false);
        self.slot_of[lpn as usize] = slot;
        self.link(slot, PROBATION);
    }

    /// The entry that leaves next: its page, and whether it is newer than on the flash.
    pub fn victim(&self) -> Option<(Lpn, bool)> {
        let [probation, protected] = [PROBATION, PROTECTED].map(|list| self.segments.front(list));
        let entry = self.slots[probation.or(protected)? as usize];
        Some((entry.lpn, entry.dirty))
    }

    /// Drops the entry of a page, which must be here.
    pub fn remove(&mut self, lpn: Lpn) {
        let slot = std::mem::replace(&mut self.slot_of[lpn as usize], NONE);
        self.unlink(slot);
        self.unused.push(slot);
    }

    /// Marks the entry of a page, which must be here, as newer than on the flash.
    pub fn set_dirty(&mut self, lpn: Lpn) {
        let slot = self.slot_of[lpn as usize];
        self.slots[slot as usize].dirty = true;
    }

    /// Notes that the flash has the entries of these pages.
    pub fn clean(&mut self, pages: std::ops::Range<Lpn>) {
        for slot in &self.slot_of[pages.start as usize..pages.end as usize] {
            if *slot != NONE {
                self.slots[*slot as usize].dirty = false;
            }
        }
    }

    pub fn clear(&mut self) {
        *self = Self::new(self.slots.len() as u32, self.slot_of.len() as u32);
    }

    fn link(&mut self, slot: u32, segment: usize) {
        self.segments.push_back(segment, slot);
        self.slots[slot as usize].is_protected = segment == PROTECTED;
        self.protected += usize::from(segment == PROTECTED);
    }

    fn unlink(&mut self, slot: u32) {
        self.segments.unlink(slot);
        self.protected -= usize::from(self.slots[slot as usize].is_protected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_twice_outlives_what_was_used_once() {
        let mut cmt = Cmt::new(4, 16);
        for lpn in 0..4 {
            assert!(cmt.has_room());
            cmt.insert(lpn);
        }
        assert!(!cmt.has_room());
        // 0 is protected; 1 is now the oldest on probation.
        assert!(cmt.hit(0));
        assert_eq!(cmt.victim(), Some((1, false)));
        // 2 and 3 are used again. The protected segment has room for two, so 0 goes back to the
        // front of probation, before 1.
        assert!(cmt.hit(2));
        assert!(cmt.hit(3));
        cmt.remove(1);
        cmt.set_dirty(0);
        assert_eq!(cmt.victim(), Some((0, true)));
        cmt.clean(0..8);
        assert_eq!(cmt.victim(), Some((0, false)));
        assert!(!cmt.hit(1));
        cmt.remove(0);
        // Only protected entries are left; the least recently used one leaves.
        assert_eq!(cmt.victim(), Some((2, false)));
    }
}
