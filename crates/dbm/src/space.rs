// SPDX-License-Identifier: Apache-2.0
//! The segments in use, and when a segment may be written again.
//!
//! SEGMENT-1: a free segment holds no page version and nothing that the newest durable checkpoint
//! needs: no named page, and no part of the log. Versions and names are counted separately: a page
//! that changed since the checkpoint has a name and no version. SEGMENT-2: it is reused only when
//! no other process reads from a checkpoint older than the time when the segment became free.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::growing::Growing;
use crate::resident::Resident;
use crate::spare::Spare;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex};

/// Pages of a segment.
pub(crate) const SEGMENT: u64 = 16;

#[derive(Default)]
pub(crate) struct Segment {
    /// Pages that are places of versions and of parts of long values.
    pub live: AtomicU32,
    /// Pages that the newest durable checkpoint names, or the one about to become durable.
    pub named: AtomicU32,
    /// Number of the log's last entry here; 0 if it has none here.
    pub last: AtomicU64,
    /// The log's newest entry at the last write here.
    pub stamp: AtomicU64,
    /// Whether it was taken for the log; true until it is free again.
    taken: AtomicU32,
}

impl Segment {
    fn is_unused(&self) -> bool {
        self.live.load(Ordering::Acquire) == 0 && self.named.load(Ordering::Acquire) == 0
    }

    /// Approximate number of pages that must move before it is free.
    pub fn used(&self) -> u32 {
        let live = self.live.load(Ordering::Acquire);
        live.max(self.named.load(Ordering::Acquire))
    }
}

#[derive(Default)]
struct Free {
    /// Segments, each with the checkpoint that made it free.
    list: BTreeMap<u32, u64>,
    segments: u32,
}

pub(crate) struct Space {
    segments: Growing<Segment>,
    free: Mutex<Free>,
    /// Held while the device grows or shrinks.
    pub growth: Mutex<()>,
    /// The newest checkpoint that has begun.
    pub started: AtomicU64,
    /// Pages of DRAM that versions take.
    pub resident: AtomicUsize,
    /// Pages with bytes there.
    pub queue: Resident,
    /// Bytes that versions dropped.
    pub spare: Spare,
    /// Versions whose bytes are only on the device.
    pub cold: AtomicUsize,
    /// All pages that are places of versions and of parts of long values.
    pub live: AtomicU64,
    /// All pages that the newest durable checkpoint names.
    pub named: AtomicU64,
}

impl Space {
    pub fn new() -> Space {
        Space {
            segments: Growing::new(),
            free: Mutex::default(),
            growth: Mutex::default(),
            started: AtomicU64::new(0),
            resident: AtomicUsize::new(0),
            queue: Resident::new(),
            spare: Spare::default(),
            cold: AtomicUsize::new(0),
            live: AtomicU64::new(0),
            named: AtomicU64::new(0),
        }
    }

    pub fn of(&self, place: u64) -> &Segment {
        self.segments.at((place / SEGMENT) as u32)
    }

    pub fn segment(&self, number: u32) -> &Segment {
        self.segments.at(number)
    }

    pub fn hold(&self, place: u64) {
        self.of(place).live.fetch_add(1, Ordering::AcqRel);
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    pub fn release(&self, place: u64) {
        if place == 0 {
            return;
        }
        self.of(place).live.fetch_sub(1, Ordering::AcqRel);
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that a checkpoint names a page; 0 is none.
    pub fn name(&self, place: u64) {
        if place > 0 {
            self.of(place).named.fetch_add(1, Ordering::AcqRel);
            self.named.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that no valid checkpoint names it any more.
    pub fn unname(&self, place: u64) {
        if place > 0 {
            self.of(place).named.fetch_sub(1, Ordering::AcqRel);
            self.named.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Approximate number of pages with live contents.
    pub fn needed(&self) -> u64 {
        let live = self.live.load(Ordering::Relaxed);
        live.max(self.named.load(Ordering::Relaxed))
    }

    /// Notes that the device has this many pages; new ones are free.
    pub fn grown(&self, pages: u64) {
        let mut free = self.free.lock();
        let segments = (pages / SEGMENT) as u32;
        for number in free.segments.max(1)..segments {
            free.list.insert(number, 0);
        }
        free.segments = free.segments.max(segments);
    }

    /// Removes all segments in use from the free ones, when a database is opened.
    pub fn settle(&self, durable: u64, in_log: &dyn Fn(u32) -> bool) {
        let mut free = self.free.lock();
        free.list.clear();
        for number in 1..free.segments {
            let segment = self.segment(number);
            if segment.is_unused() && !in_log(number) {
                free.list.insert(number, durable);
            } else {
                segment.taken.store(1, Ordering::Release);
            }
        }
    }

    pub fn segments(&self) -> u32 {
        self.free.lock().segments
    }

    pub fn free(&self) -> usize {
        self.free.lock().list.len()
    }

    /// The segment after the last one that is in use, or that became free after checkpoint
    /// `settled`.
    pub fn end(&self, settled: u64) -> u32 {
        let free = self.free.lock();
        let mut end = free.segments;
        while end > 1
            && free
                .list
                .get(&(end - 1))
                .is_some_and(|since| *since <= settled)
        {
            end -= 1;
        }
        end
    }

    /// Removes the segments from `end` on, if they are still free.
    pub fn cut(&self, end: u32) -> bool {
        let mut free = self.free.lock();
        let are_free = (end..free.segments).all(|number| free.list.contains_key(&number));
        if are_free {
            free.list.split_off(&end);
            free.segments = free.segments.min(end);
        }
        are_free
    }

    /// The first free segment that no reader of a checkpoint before `pinned` needs. If possible the
    /// end of the device stays free, and is given back.
    pub fn take(&self, pinned: u64) -> Option<u32> {
        let mut free = self.free.lock();
        let found = free.list.iter().find(|(_, since)| **since <= pinned);
        let number = *found?.0;
        free.list.remove(&number);
        let segment = self.segment(number);
        segment.last.store(0, Ordering::Release);
        segment.taken.store(1, Ordering::Release);
        Some(number)
    }

    /// Frees what SEGMENT-1 allows once checkpoint `durable`, whose log begins with entry `replay`,
    /// is durable. Returns the freed segments.
    pub fn reclaim(&self, durable: u64, replay: u64, open: &[u32]) -> Vec<u32> {
        let mut free = self.free.lock();
        let mut freed = Vec::new();
        for number in 1..free.segments {
            let segment = self.segment(number);
            let idle = segment.taken.load(Ordering::Acquire) == 1
                && segment.is_unused()
                && segment.last.load(Ordering::Acquire) < replay
                && !open.contains(&number);
            if idle {
                segment.taken.store(0, Ordering::Release);
                free.list.insert(number, durable);
                freed.push(number);
            }
        }
        freed
    }
}
