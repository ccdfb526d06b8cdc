// SPDX-License-Identifier: Apache-2.0
//! LRU by page.
//!
//! Idea: the page that was written longest ago leaves. The endurance paper (Ogawa and Kise, section
//! 3) puts this buffer before BAST; the order of blocks plays no part. Source: folklore; hit ratios
//! are checked against Megiddo and Modha's (FAST 2003, table of LRU on OLTP and P3). Options:
//! `touch-reads=true` lets a read that hits make a page young too. By default it does not, because
//! the buffer is meant to absorb writes. Only written pages are held, except with
//! `fill-reads=true`: then a page read from the flash also enters, and reads that hit make pages
//! young.

use super::table::Table;
use super::{Buffer, Outgoing, Surroundings};
use crate::Error;
use crate::geometry::Lpn;
use crate::lists::Lists;
use crate::spec::Spec;

struct Lru {
    capacity: usize,
    touch_reads: bool,
    fill_reads: bool,
    /// From page to place.
    places: Table,
    lpns: Vec<Lpn>,
    /// For each place: whether its page was written. Empty if only written pages are held.
    dirty: Vec<bool>,
    free: Vec<u32>,
    /// One list, the oldest first.
    order: Lists,
}

pub(super) fn make(spec: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let capacity = around.capacity;
    let fill_reads = spec.take_quietly("fill-reads", false)?;
    Ok(Box::new(Lru {
        capacity,
        touch_reads: spec.take_quietly("touch-reads", false)? || fill_reads,
        fill_reads,
        places: Table::new(capacity),
        lpns: vec![0; capacity],
        dirty: vec![false; if fill_reads { capacity } else { 0 }],
        free: (0..capacity as u32).rev().collect(),
        order: Lists::new(capacity, 1),
    }))
}

impl Lru {
    #[inline]
    fn touch(&mut self, lpn: Lpn) -> bool {
        let Some(place) = self.places.get(lpn) else {
            return false;
        };
        self.order.unlink(place);
        self.order.push_back(0, place);
        true
    }

    fn remove(&mut self, place: u32) -> Lpn {
        let lpn = self.lpns[place as usize];
        self.order.unlink(place);
        self.places.remove(lpn);
        self.free.push(place);
        lpn
    }

    fn is_dirty(&self, place: u32) -> bool {
        !self.fill_reads || self.dirty[place as usize]
    }

    /// Marks a page as dirty; returns whether it was dirty before.
    fn mark(&mut self, place: u32, dirty: bool) -> bool {
        match self.dirty.get_mut(place as usize) {
            Some(mark) => std::mem::replace(mark, dirty),
            None => true,
        }
    }

    fn insert(&mut self, lpn: Lpn, dirty: bool, out: &mut Outgoing) {
        if self.free.is_empty() {
            let oldest = self.order.front(0).expect("the buffer is full");
            let was_dirty = self.is_dirty(oldest);
            let gone = self.remove(oldest);
            if was_dirty {
                out.dirty(gone);
            }
        }
        let place = self.free.pop().expect("there is room now");
        self.mark(place, dirty);
        self.lpns[place as usize] = lpn;
        self.places.insert(lpn, place);
        self.order.push_back(0, place);
    }
}

impl Buffer for Lru {
    fn len(&self) -> usize {
        self.capacity - self.free.len()
    }

    fn contains(&self, lpn: Lpn) -> bool {
        self.places.get(lpn).is_some()
    }

    fn write(&mut self, lpn: Lpn, out: &mut Outgoing) -> bool {
        if self.touch(lpn) {
            let place = self.places.get(lpn).expect("it was touched");
            return self.mark(place, true);
        }
        self.insert(lpn, true, out);
        false
    }

    fn read(&mut self, lpn: Lpn) -> bool {
        if self.touch_reads {
            self.touch(lpn)
        } else {
            self.contains(lpn)
        }
    }

    fn read_from_flash(&mut self, lpn: Lpn, out: &mut Outgoing) {
        if self.fill_reads && !self.contains(lpn) {
            self.insert(lpn, false, out);
        }
    }

    fn trim(&mut self, lpn: Lpn) {
        if let Some(place) = self.places.get(lpn) {
            self.remove(place);
        }
    }

    fn drain(&mut self, out: &mut Outgoing) {
        while let Some(oldest) = self.order.front(0) {
            let was_dirty = self.is_dirty(oldest);
            let gone = self.remove(oldest);
            if was_dirty {
                out.dirty(gone);
            }
        }
    }

    fn table_bytes(&self) -> u64 {
        // A mark is a byte here; a drive would spend a bit.
        let marks = self.dirty.len() as u64;
        self.places.bytes() + self.order.bytes() + 8 * self.capacity as u64 + marks
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A wrong sum once went unnoticed by tests. For 100 pages there are 256 cells with a page and
    /// a place, 8 bytes each. Each place and the list's end have two neighbours of 4 bytes. Each
    /// place also has its page and its entry in the free list, 4 bytes each.
    #[test]
    fn tables_take_what_they_hold() {
        let around = Surroundings {
            capacity: 100,
            pages_per_block: 8,
            logical_pages: 1024,
            ftl: Spec::plain("page"),
        };
        let lru = make(&mut Spec::plain("lru"), &around).unwrap();
        assert_eq!(lru.table_bytes(), 256 * 8 + 101 * 8 + 100 * 8);
    }
}
