// SPDX-License-Identifier: Apache-2.0
//! Free space that goes back to the file system: the file's end is cut off, inner parts become
//! holes. Called by `shrink.rs`, and at the opening.

use std::sync::Arc;
use std::time::{Duration, Instant};

use senko_io::{IoError, Purpose, Tag};

use super::{Free, Runs, Space};
use crate::StoreError;
use crate::extent::{UNIT_BYTES, UNIT_PAGES};

/// Units that are punched at a time, at most: 64 MiB.
const PUNCH_UNITS: u64 = 1024;

/// The background gives space back when this many units are free, and one in so many of the file's.
const LEAST_RELEASE: u64 = 256;
const LEAST_SHARE: u64 = 16;

/// Bytes that went back to the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    pub cut: u64,
    pub punched: u64,
}

impl Free {
    /// Keeps `keep` units of what is free, in one piece where there is one: the first long enough,
    /// so that the file's end becomes free. Gives the rest.
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

    /// The first unit of the free part at the file's end, none of which is to stay.
    fn end_to_cut(&self, rest: &Runs) -> u64 {
        let mut end = self.units;
        while let Some((first, _)) = rest.ending_at(end).or_else(|| self.holes.ending_at(end)) {
            end = first;
        }
        end
    }
}

impl Space {
    /// At the opening, once all is claimed that the manifest names: what it calls holes counts as
    /// such, as far as it is free.
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

    /// The holes that a manifest is to name (SPACE-4). `record`: this manifest is being committed.
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

    /// Whether the manifest on flash names holes that have storage, which is relied on.
    pub fn unrecorded(&self) -> bool {
        self.free.lock().unrecorded
    }

    /// The manifest that was to name the holes did not become durable.
    pub fn not_recorded(&self) {
        self.free.lock().unrecorded = true;
    }

    /// Bytes of free space that nobody needed since the last answer, once `window` has passed;
    /// `None` before that, or if it is not worth the work.
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

    /// Bytes that are free and have storage.
    pub fn stored_bytes(&self) -> u64 {
        self.free.lock().stored() * UNIT_BYTES
    }

    /// Takes what is free, but for `keep` bytes: cuts off what lies at the file's end, and gives
    /// the rest to be punched. Gives the bytes that were cut off.
    ///
    /// # Errors
    /// What the system says.
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
            // A device keeps its length.
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
    /// Gives the bytes; where the device can't do it, all of that is free again.
    ///
    /// # Errors
    /// What the system says. Space that may not have been punched stays a hole.
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

    /// Space that was to be punched, and was not, keeps its storage.
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
