// SPDX-License-Identifier: Apache-2.0
//! Which segments are in use, and when one may be written again.
//!
//! S1: a segment is free only if no version has its place in it, the newest durable checkpoint
//! names nothing in it, and no log that this checkpoint needs lies in it.
//! S2: it is written again only when no process reads beside this one from a checkpoint that is
//! older than its becoming free.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::mapping::Growing;

/// Pages of a segment.
pub(crate) const SEGMENT: u64 = 16;

#[derive(Default)]
pub(crate) struct Segment {
    /// Pages that somebody names.
    pub live: AtomicU32,
    /// The newest checkpoint that had begun when a page was last let go.
    stamp: AtomicU64,
    /// Number of the last entry written here.
    pub last: AtomicU64,
    /// Taken for the log, from then on until it is free again.
    taken: AtomicU32,
}

#[derive(Default)]
struct Free {
    /// Segments, and the checkpoint with which each became free.
    list: Vec<(u32, u64)>,
    segments: u32,
}

pub(crate) struct Space {
    segments: Growing<Segment>,
    free: Mutex<Free>,
    /// The newest checkpoint that has begun.
    pub started: AtomicU64,
    /// Pages of DRAM that versions take.
    pub resident: AtomicUsize,
    /// Versions whose bytes are on the device only.
    pub cold: AtomicUsize,
    /// Pages that somebody names.
    pub live: AtomicU64,
}

impl Space {
    pub fn new() -> Space {
        Space {
            segments: Growing::new(),
            free: Mutex::default(),
            started: AtomicU64::new(0),
            resident: AtomicUsize::new(0),
            cold: AtomicUsize::new(0),
            live: AtomicU64::new(0),
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
        let segment = self.of(place);
        segment
            .stamp
            .fetch_max(self.started.load(Ordering::Acquire), Ordering::AcqRel);
        segment.live.fetch_sub(1, Ordering::AcqRel);
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// The device has so many pages; what is new is free.
    pub fn grown(&self, pages: u64) {
        let mut free = self.free.lock();
        let segments = (pages / SEGMENT) as u32;
        for number in (free.segments.max(1)..segments).rev() {
            free.list.push((number, 0));
        }
        free.segments = free.segments.max(segments);
    }

    /// Takes out of the free ones all that hold something, when a database is opened.
    pub fn settle(&self, durable: u64, in_log: &dyn Fn(u32) -> bool) {
        let mut free = self.free.lock();
        free.list.clear();
        for number in 1..free.segments {
            let segment = self.segment(number);
            // What replay replaced is still named by the checkpoint.
            let unnamed = segment.live.load(Ordering::Acquire) == 0
                && segment.stamp.load(Ordering::Acquire) < durable;
            if unnamed && !in_log(number) {
                free.list.push((number, durable));
            } else {
                segment.taken.store(1, Ordering::Release);
            }
        }
        free.list.reverse();
    }

    pub fn segments(&self) -> u32 {
        self.free.lock().segments
    }

    pub fn free(&self) -> usize {
        self.free.lock().list.len()
    }

    /// A free segment that no reader of a checkpoint before `pinned` needs.
    pub fn take(&self, pinned: u64) -> Option<u32> {
        let mut free = self.free.lock();
        let nth = free.list.iter().rposition(|(_, since)| *since <= pinned)?;
        let (number, _) = free.list.remove(nth);
        self.segment(number).taken.store(1, Ordering::Release);
        Some(number)
    }

    /// Frees what S1 allows once checkpoint `durable` is durable, whose log begins with entry
    /// `replay`. Gives what became free.
    pub fn reclaim(&self, durable: u64, replay: u64, open: &[u32]) -> Vec<u32> {
        let mut free = self.free.lock();
        let mut freed = Vec::new();
        for number in 1..free.segments {
            let segment = self.segment(number);
            let idle = segment.taken.load(Ordering::Acquire) == 1
                && segment.live.load(Ordering::Acquire) == 0
                && segment.stamp.load(Ordering::Acquire) < durable
                && segment.last.load(Ordering::Acquire) < replay
                && !open.contains(&number);
            if idle {
                segment.taken.store(0, Ordering::Release);
                free.list.push((number, durable));
                freed.push(number);
            }
        }
        freed
    }
}
