// SPDX-License-Identifier: Apache-2.0
//! The pages in DRAM, and which of them leave it next.
//!
//! Card: CLOCK (Corbato 1968) as a queue, which is FIFO with reinsertion. A page that was read
//! since it came loses its mark and goes to the end of the queue. A page that was not read leaves
//! DRAM. The queue has only pages with bytes in DRAM. A database may have many times what its cache
//! holds.
//!
//! RESIDENT-1: a page with bytes in DRAM is in the queue, or with the thread that took it out.
//! RESIDENT-2: a number is in the queue once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::disk::space::Space;
use crate::growing::Growing;
use crate::pages::spare::Spare;
use crate::sync::{AtomicBool, AtomicUsize, Mutex};

pub(crate) struct Resident {
    queue: Mutex<VecDeque<u32>>,
    /// Whether a page is in the queue.
    queued: Growing<AtomicBool>,
}

impl Resident {
    pub fn new() -> Resident {
        Resident {
            queue: Mutex::default(),
            queued: Growing::new(),
        }
    }

    /// Notes that a page's bytes came into DRAM: it goes to the end, unless it is in the queue.
    pub fn enter(&self, id: u32) {
        let queued = self.queued.at(id);
        if !queued.swap(true, Ordering::AcqRel) {
            self.queue.lock().push_back(id);
        }
    }

    /// Takes the first page out. The caller checks its bytes, and adds it again if they stay.
    pub fn leave(&self) -> Option<u32> {
        let id = self.queue.lock().pop_front()?;
        // Done before its bytes are checked: bytes that arrive later add it again.
        self.queued.at(id).swap(false, Ordering::AcqRel);
        Some(id)
    }
}

/// What all versions of pages share.
pub(crate) struct Dram {
    pub space: Arc<Space>,
    pub queue: Resident,
    /// Bytes that versions dropped.
    pub spare: Spare,
    /// The most pages in DRAM.
    most: usize,
    /// Pages of DRAM that versions take.
    resident: AtomicUsize,
    /// Those of them that are not written, so that they stay.
    unwritten: AtomicUsize,
    /// Versions whose bytes are only on the device.
    cold: AtomicUsize,
}

impl Dram {
    pub fn new(space: &Arc<Space>, most: usize) -> Dram {
        Dram {
            space: Arc::clone(space),
            queue: Resident::new(),
            spare: Spare::default(),
            most,
            resident: AtomicUsize::new(0),
            unwritten: AtomicUsize::new(0),
            cold: AtomicUsize::new(0),
        }
    }

    /// Pages in DRAM.
    pub fn resident(&self) -> usize {
        self.resident.load(Ordering::Relaxed)
    }

    /// Whether pages must leave DRAM. A quarter of it is for those that are written, however many
    /// are not.
    pub fn is_over(&self) -> bool {
        let unwritten = self.unwritten.load(Ordering::Relaxed);
        self.resident() > self.most.max(unwritten + self.most / 4)
    }

    /// Whether bytes of some version are only on the device.
    pub fn has_cold(&self) -> bool {
        self.cold.load(Ordering::Relaxed) > 0
    }

    /// Bytes of a version came to DRAM, or left it.
    pub fn count_resident(&self, came: bool) {
        match came {
            true => self.resident.fetch_add(1, Ordering::Relaxed),
            false => self.resident.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// A version came that is not written, or such a one was written or ended.
    pub fn count_unwritten(&self, came: bool) {
        match came {
            true => self.unwritten.fetch_add(1, Ordering::Relaxed),
            false => self.unwritten.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// A version has its bytes only on the device, or no longer.
    pub fn count_cold(&self, came: bool) {
        match came {
            true => self.cold.fetch_add(1, Ordering::Relaxed),
            false => self.cold.fetch_sub(1, Ordering::Relaxed),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_stands_once_and_comes_in_its_turn() {
        let resident = Resident::new();
        for id in [7, 3, 7, 9] {
            resident.enter(id);
        }
        assert_eq!(resident.leave(), Some(7));
        resident.enter(7);
        let rest: Vec<u32> = std::iter::from_fn(|| resident.leave()).collect();
        assert_eq!(rest, [3, 9, 7]);
        assert_eq!(resident.leave(), None);
    }
}
