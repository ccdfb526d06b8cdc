// SPDX-License-Identifier: Apache-2.0
//! CFLRU: clean-first LRU.
//!
//! Idea: the buffer also holds pages that were read. The least recently used part of the list is
//! the clean-first region. Its oldest clean page leaves first, which costs nothing. Only if it has
//! no clean page does the oldest dirty page leave. A larger region saves writes and costs read
//! hits. Source: Park, Jung, Kang, Kim, Lee, "CFLRU: A Replacement Algorithm for Flash Memory",
//! CASES 2006, section 4. Deviation: theirs manages the page cache of an operating system; this one
//! is in the drive. Parameter: `window`, the region's share of the buffer (their w; static, as in
//! their first variant), half by default. A flush writes the dirty pages and keeps the clean ones.

use super::table::Table;
use super::{Buffer, Outgoing, Surroundings};
use crate::Error;
use crate::geometry::Lpn;
use crate::lists::Lists;
use crate::spec::Spec;

/// The lists: the young part, and the clean-first region's dirty and clean pages, each with the
/// oldest first.
const WORKING: usize = 0;
const DIRTY: usize = 1;
const CLEAN: usize = 2;

struct Cflru {
    capacity: usize,
    /// Pages that the working list may have.
    working_capacity: usize,
    working: usize,
    places: Table,
    lpns: Vec<Lpn>,
    dirty: Vec<bool>,
    in_working: Vec<bool>,
    free: Vec<u32>,
    order: Lists,
}

pub(super) fn make(spec: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let capacity = around.capacity;
    let window: f64 = spec.take_quietly("window", 0.5)?;
    if !(0.0..=1.0).contains(&window) {
        return Err(Error::spec(format!(
            "cflru: window is a share of the buffer, from 0 to 1, and not {window}"
        )));
    }
    let region = ((capacity as f64 * window).ceil() as usize).clamp(1, capacity);
    Ok(Box::new(Cflru {
        capacity,
        working_capacity: capacity - region,
        working: 0,
        places: Table::new(capacity),
        lpns: vec![0; capacity],
        dirty: vec![false; capacity],
        in_working: vec![false; capacity],
        free: (0..capacity as u32).rev().collect(),
        order: Lists::new(capacity, 3),
    }))
}

impl Cflru {
    /// The part of the list that a page is in.
    fn region(&self, place: u32) -> usize {
        if self.dirty[place as usize] {
            DIRTY
        } else {
            CLEAN
        }
    }

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
        if self.working > self.working_capacity {
            let oldest = self.order.front(WORKING).expect("it has one at least");
            self.unlink(oldest);
            self.order.push_back(self.region(oldest), oldest);
        }
    }

    fn remove(&mut self, place: u32) -> Lpn {
        self.unlink(place);
        let lpn = self.lpns[place as usize];
        self.places.remove(lpn);
        self.free.push(place);
        lpn
    }

    fn insert(&mut self, lpn: Lpn, dirty: bool, out: &mut Outgoing) {
        if self.free.is_empty() {
            let first = [CLEAN, DIRTY, WORKING]
                .into_iter()
                .find_map(|list| self.order.front(list));
            let victim = first.expect("the buffer is full");
            let gone = self.remove(victim);
            if self.dirty[victim as usize] {
                out.dirty(gone);
            }
        }
        let place = self.free.pop().expect("there is room now");
        self.lpns[place as usize] = lpn;
        self.dirty[place as usize] = dirty;
        self.places.insert(lpn, place);
        self.enter(place);
    }
}

impl Buffer for Cflru {
    fn len(&self) -> usize {
        self.capacity - self.free.len()
    }

    fn contains(&self, lpn: Lpn) -> bool {
        self.places.get(lpn).is_some()
    }

    fn write(&mut self, lpn: Lpn, out: &mut Outgoing) -> bool {
        let Some(place) = self.places.get(lpn) else {
            self.insert(lpn, true, out);
            return false;
        };
        self.unlink(place);
        let was_dirty = std::mem::replace(&mut self.dirty[place as usize], true);
        self.enter(place);
        was_dirty
    }

    fn read(&mut self, lpn: Lpn) -> bool {
        let Some(place) = self.places.get(lpn) else {
            return false;
        };
        self.unlink(place);
        self.enter(place);
        true
    }

    fn read_from_flash(&mut self, lpn: Lpn, out: &mut Outgoing) {
        self.insert(lpn, false, out);
    }

    fn trim(&mut self, lpn: Lpn) {
        if let Some(place) = self.places.get(lpn) {
            self.remove(place);
        }
    }

    fn drain(&mut self, out: &mut Outgoing) {
        for list in [DIRTY, WORKING] {
            let mut at = self.order.front(list);
            while let Some(place) = at {
                at = self.order.after(place);
                if self.dirty[place as usize] {
                    out.dirty(self.remove(place));
                }
            }
        }
    }

    fn table_bytes(&self) -> u64 {
        self.places.bytes() + self.order.bytes() + 10 * self.capacity as u64
    }
}
