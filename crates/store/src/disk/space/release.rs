// SPDX-License-Identifier: Apache-2.0
//! Gives free space back to the file system: cuts off the file's end and makes holes of inner
//! parts. Called by `shrink.rs`, and when a store is opened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use senko_io::{IoError, Purpose, Tag};

use super::{Free, Runs, Space};
use crate::StoreError;
use crate::extent::{UNIT_BYTES, UNIT_PAGES};

/// The most units that are punched at a time: 64 MiB.
const PUNCH_UNITS: u64 = 1024;

/// The background gives space back if this many units are free, and one in this many of the file's
/// units.
const LEAST_RELEASE: u64 = 256;
const LEAST_SHARE: u64 = 16;

impl Free {
    /// Keeps `keep` of the free units and returns the rest. If a piece is long enough, it keeps the
    /// first such piece, so that the file's end becomes free.
    fn all_but(&self, keep: u64) -> Runs {
        let mut rest = self.runs.clone();
        let mut left = keep;
        while left > 0 {
            let whole = rest.iter().find(|&(_, length)| length >= left);
            let Some((first, length)) = whole.or_else(|| rest.longest()) else {
                break;
            };
            let part = length.min(left);
            rest.remove(first, part);
            left -= part;
        }
        rest
    }

    /// The first unit of the free part at the file's end, if no unit of it is to stay.
    fn end_to_cut(&self, rest: &Runs) -> u64 {
        let mut end = self.units;
        while let Some((first, _)) = rest.ending_at(end).or_else(|| self.holes.ending_at(end)) {
            end = first;
        }
        end
    }
}

impl Space {
    /// Called during opening, after all extents of the manifest were claimed. The holes that the
    /// manifest names are holes, as far as they are free.
    pub fn set_holes(&self, holes: &[(u64, u64)]) {
        let mut free = self.free.lock();
        for &(first, units) in holes {
            for (first, units) in free.runs.within(first, units) {
                free.runs.remove(first, units);
                free.holes.add(first, units);
            }
        }
        free.least = free.stored();
    }

    /// The holes that a manifest must name (SPACE-4). `record`: this manifest is being committed.
    pub fn holes(&self, record: bool) -> Vec<(u64, u64)> {
        let mut free = self.free.lock();
        if record {
            free.unrecorded = false;
        }
        free.holes.joined(&free.punching).iter().collect()
    }

    /// Bytes of the file without storage.
    pub fn hole_bytes(&self) -> u64 {
        let free = self.free.lock();
        (free.holes.total() + free.punching.total()) * UNIT_BYTES
    }

    /// Whether the manifest on flash still names holes whose storage is needed.
    pub fn unrecorded(&self) -> bool {
        self.free.lock().unrecorded
    }

    /// Notes that the manifest with the holes did not become durable.
    pub fn not_recorded(&self) {
        self.free.lock().unrecorded = true;
    }

    /// Bytes of free space that were unused since the last call, once `window` has passed. `None`
    /// before that, or if it is not worth the work.
    pub fn idle_bytes(&self, window: Duration) -> Option<u64> {
        let mut free = self.free.lock();
        let now = Instant::now();
        let began = *free.window.get_or_insert(now);
        if now.duration_since(began) < window {
            return None;
        }
        let stored = free.stored();
        let idle = std::mem::replace(&mut free.least, stored);
        free.window = Some(now);
        let worth = idle >= LEAST_RELEASE.max(free.units / LEAST_SHARE);
        worth.then_some(idle * UNIT_BYTES)
    }

    /// Free bytes that have storage.
    pub fn stored_bytes(&self) -> u64 {
        self.free.lock().stored() * UNIT_BYTES
    }

    /// Takes all free space except `keep` bytes. It cuts off the part at the file's end, and
    /// returns the bytes that it cut off. The rest is to be punched.
    ///
    /// # Errors
    /// The system's error.
    pub fn release(&self, keep: u64) -> Result<u64, StoreError> {
        let mut free = self.free.lock();
        free.give_up_logs();
        let mut rest = free.all_but(keep.div_ceil(UNIT_BYTES));
        let old = free.units;
        let end = free.end_to_cut(&rest);
        if end < old {
            self.device
                .shrink(end * UNIT_PAGES)
                .map_err(StoreError::io("cutting the end off the file"))?;
            // A block device keeps its length.
            let units = (self.device.pages() / UNIT_PAGES).clamp(end, old);
            for (first, length) in rest.within(units, old - units) {
                rest.remove(first, length);
                free.runs.remove(first, length);
            }
            for (first, length) in free.holes.within(units, old - units) {
                free.holes.remove(first, length);
                free.unrecorded = true;
            }
            free.units = units;
        }
        for (first, length) in rest.iter() {
            free.runs.remove(first, length);
            free.punching.add(first, length);
        }
        free.least = free.stored();
        Ok((old - free.units) * UNIT_BYTES)
    }

    /// Punches what [`Space::release`] took, after the manifest that names it is durable (SPACE-4).
    /// Returns the bytes. If the device cannot punch holes, all of that space is free again.
    ///
    /// # Errors
    /// The system's error. Space that may not have been punched stays a hole.
    pub fn punch(self: &Arc<Space>) -> Result<u64, StoreError> {
        let mut bytes = 0;
        loop {
            let Some((first, length)) = self.next_to_punch() else {
                return Ok(bytes);
            };
            let (page, pages) = (first * UNIT_PAGES, length * UNIT_PAGES);
            let done = self.device.punch(page, pages, Tag::store(Purpose::Reclaim));
            match done {
                Ok(true) => {
                    self.end_punch(first, length, true);
                    bytes += length * UNIT_BYTES;
                }
                Ok(false) => {
                    self.keep_storage();
                    return Ok(bytes);
                }
                Err(error) => {
                    self.end_punch(first, length, true);
                    self.keep_storage();
                    return Err(punch_error(error));
                }
            }
        }
    }

    fn next_to_punch(&self) -> Option<(u64, u64)> {
        let free = self.free.lock();
        let (first, length) = free.punching.iter().next()?;
        Some((first, length.min(PUNCH_UNITS)))
    }

    fn end_punch(&self, first: u64, length: u64, hole: bool) {
        let mut free = self.free.lock();
        free.punching.remove(first, length);
        if hole {
            free.holes.add(first, length);
        } else {
            free.runs.add(first, length);
        }
    }

    /// Space that was to be punched but was not keeps its storage.
    pub fn keep_storage(&self) {
        let left: Vec<_> = self.free.lock().punching.iter().collect();
        for (first, length) in left {
            self.end_punch(first, length, false);
        }
        self.not_recorded();
    }
}

fn punch_error(source: IoError) -> StoreError {
    StoreError::Io {
        what: "giving space back to the file system",
        source,
    }
}
