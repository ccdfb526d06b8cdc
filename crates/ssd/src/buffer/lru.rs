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

/// The lists. LRU has one, of all pages. CFLRU (`cflru.rs`) has the young part, and the dirty and
/// the clean pages of its clean-first region. Each has the oldest first.
const WORKING: usize = 0;
const DIRTY: usize = 1;
const CLEAN: usize = 2;

/// LRU, and CFLRU, which adds the clean-first region.
pub(super) struct Lru {
    pub capacity: usize,
    pub touch_reads: bool,
    pub fill_reads: bool,
    /// Pages of the clean-first region, if there is one. A flush keeps its clean pages.
    pub region: Option<usize>,
    /// RAM for what is known of a page, beside its place in lists and table.
    pub bytes_per_page: u64,
}

pub(super) fn make(spec: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let fill_reads = spec.take_quietly("fill-reads", false)?;
    let policy = Lru {
        capacity: around.capacity,
        touch_reads: spec.take_quietly("touch-reads", false)? || fill_reads,
        fill_reads,
        region: None,
        // The mark of a dirty page is a byte here; a drive would spend a bit.
        bytes_per_page: if fill_reads { 9 } else { 8 },
    };
    Ok(policy.build())
}

/// A buffer of single pages.
struct Pages {
    policy: Lru,
    /// Pages in the working list.
    working: usize,
    places: Table,
    lpns: Vec<Lpn>,
    dirty: Vec<bool>,
    in_working: Vec<bool>,
    free: Vec<u32>,
    order: Lists,
}

impl Lru {
    pub fn build(self) -> Box<dyn Buffer> {
        let capacity = self.capacity;
        Box::new(Pages {
            working: 0,
            places: Table::new(capacity),
            lpns: vec![0; capacity],
            dirty: vec![false; capacity],
            in_working: vec![false; capacity],
            free: (0..capacity as u32).rev().collect(),
            order: Lists::new(capacity, self.lists().len()),
            policy: self,
        })
    }

    /// The lists, in the order in which pages leave.
    fn lists(&self) -> &'static [usize] {
        match self.region {
            Some(_) => &[CLEAN, DIRTY, WORKING],
            None => &[WORKING],
        }
    }
}

impl Pages {
    fn unlink(&mut self, place: u32) {
        self.order.unlink(place);
        if std::mem::take(&mut self.in_working[place as usize]) {
            self.working -= 1;
        }
    }

    /// Makes a page the youngest; the working list's oldest moves into the region.
    fn enter(&mut self, place: u32) {
        self.order.push_back(WORKING, place);
        self.in_working[place as usize] = true;
        self.working += 1;
        if self.working > self.policy.capacity - self.policy.region.unwrap_or(0) {
            let oldest = self.order.front(WORKING).expect("it has one at least");
            self.unlink(oldest);
            let list = if self.dirty[oldest as usize] {
                DIRTY
            } else {
                CLEAN
            };
            self.order.push_back(list, oldest);
        }
    }

    fn touch(&mut self, place: u32) {
        self.unlink(place);
        self.enter(place);
    }

    fn remove(&mut self, place: u32) -> Lpn {
        self.unlink(place);
        let lpn = self.lpns[place as usize];
        self.places.remove(lpn);
        self.free.push(place);
        lpn
    }

    /// Removes a page, which is written if it is dirty.
    fn evict(&mut self, place: u32, out: &mut Outgoing) {
        let lpn = self.remove(place);
        if self.dirty[place as usize] {
            out.dirty(lpn);
        }
    }

    fn insert(&mut self, lpn: Lpn, dirty: bool, out: &mut Outgoing) {
        if self.free.is_empty() {
            let mut lists = self.policy.lists().iter();
            let first = lists.find_map(|list| self.order.front(*list));
            self.evict(first.expect("the buffer is full"), out);
        }
        let place = self.free.pop().expect("there is room now");
        self.lpns[place as usize] = lpn;
        self.dirty[place as usize] = dirty;
        self.places.insert(lpn, place);
        self.enter(place);
    }
}

impl Buffer for Pages {
    fn len(&self) -> usize {
        self.policy.capacity - self.free.len()
    }

    fn contains(&self, lpn: Lpn) -> bool {
        self.places.get(lpn).is_some()
    }

    fn write(&mut self, lpn: Lpn, out: &mut Outgoing) -> bool {
        let Some(place) = self.places.get(lpn) else {
            self.insert(lpn, true, out);
            return false;
        };
        let was_dirty = std::mem::replace(&mut self.dirty[place as usize], true);
        self.touch(place);
        was_dirty
    }

    fn read(&mut self, lpn: Lpn) -> bool {
        let place = self.places.get(lpn);
        if self.policy.touch_reads
            && let Some(place) = place
        {
            self.touch(place);
        }
        place.is_some()
    }

    fn read_from_flash(&mut self, lpn: Lpn, out: &mut Outgoing) {
        if self.policy.fill_reads && !self.contains(lpn) {
            self.insert(lpn, false, out);
        }
    }

    fn trim(&mut self, lpn: Lpn) {
        if let Some(place) = self.places.get(lpn) {
            self.remove(place);
        }
    }

    fn drain(&mut self, out: &mut Outgoing) {
        for list in self.policy.lists() {
            let mut at = self.order.front(*list);
            while let Some(place) = at {
                at = self.order.after(place);
                if self.dirty[place as usize] || self.policy.region.is_none() {
                    self.evict(place, out);
                }
            }
        }
    }

    fn table_bytes(&self) -> u64 {
        let pages = self.policy.bytes_per_page * self.policy.capacity as u64;
        self.places.bytes() + self.order.bytes() + pages
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
