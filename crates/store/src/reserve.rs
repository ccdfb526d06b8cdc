// SPDX-License-Identifier: Apache-2.0
//! The space that is kept, so that a full store can be emptied: the place of a log, and the
//! space in which logs are sealed and blocks compacted (SPACE-6 of `space.rs`).

use std::sync::Arc;
use std::time::Duration;

use crate::StoreError;
use crate::block::bytes_expected;
use crate::core::Core;
use crate::extent::UNIT_BYTES;
use crate::log::Log;
use crate::space::{Held, Space};
use crate::state::counters::Counters;

/// A log for the deletes of a full store is sealed when it takes one in so many of what others may
/// take: then there is space to compact a block, and the deletes free more.
const TIGHT: u64 = 5;

/// Milliseconds that the reads of an ended snapshot are waited for, at most.
const RELEASE_MS: u32 = 100;

impl Core {
    /// Takes space; where there is none, the oldest snapshot ends, and another try is made.
    pub fn allocate(&self, bytes: u64) -> Result<Held, StoreError> {
        self.allocate_between(bytes, bytes)
    }

    /// Takes up to `most` bytes in one piece, and at least `least`; see
    /// [`Space::allocate_between`].
    pub fn allocate_between(&self, most: u64, least: u64) -> Result<Held, StoreError> {
        self.with_expiry(|space| space.allocate_between(most, least))
    }

    /// Takes space with `take`; where there is none, the oldest snapshot ends, and another try is
    /// made.
    pub fn with_expiry(
        &self,
        take: impl Fn(&Arc<Space>) -> Result<Held, StoreError>,
    ) -> Result<Held, StoreError> {
        loop {
            match take(&self.space) {
                Err(StoreError::NoSpace(why)) => {
                    if !self.expire_oldest_snapshot() {
                        return Err(StoreError::NoSpace(why));
                    }
                }
                Ok(held) => {
                    // After a failure, extents are let go that the manifest on the device may name:
                    // none of them is given out. The latch is set before they are let go, so
                    // whoever got one sees it.
                    self.health.check_writable()?;
                    return Ok(held);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The most that a log takes as blocks, or a block when it is compacted.
    fn sealed_most(&self) -> u64 {
        let most = self.options.block_bytes.max(self.options.log_bytes);
        most + most / 4
    }

    /// Space in which a log is sealed and then a block compacted (SPACE-6 of `space.rs`), and
    /// manifests. The sealed log gives its own place to the compaction.
    pub fn work_bytes(&self) -> u64 {
        let most = self.options.block_bytes.max(self.options.log_bytes);
        self.sealed_most() + most / 4 + 4 * UNIT_BYTES
    }

    /// Whether a log with `elements` and `bytes` more takes as much as a block as there is kept for
    /// it (SPACE-6); `tight`: for one that was taken though there is no room for it.
    pub fn seals_to_the_most(&self, log: &Log, tight: bool, elements: u64, bytes: u64) -> bool {
        let most = self.sealed_most();
        let most = if tight { most / TIGHT } else { most };
        self.sealed_bytes(log, elements, bytes) > most
    }

    /// Whether the place of a log is kept, and with it the space to seal a short log and then to
    /// compact a block.
    pub fn reserve_is_whole(&self) -> bool {
        let there = self.reserve.is_there() || self.spare.is_there();
        let bytes = self.work_bytes() - self.options.log_bytes;
        there && self.space.left_in_file(bytes) >= bytes
    }

    /// Bytes of the blocks that a log with `elements` and `bytes` more becomes.
    fn sealed_bytes(&self, log: &Log, elements: u64, bytes: u64) -> u64 {
        let elements = log.elements() + elements;
        bytes_expected(elements, log.bytes_used() + bytes, self.options.page_bytes)
    }

    /// Bytes that sealing all logs takes, beyond the places that they give back.
    fn sealing_bytes(&self) -> u64 {
        let version = self.current();
        let more = version.logs.iter().map(|handle| {
            let sealed = self.sealed_bytes(&handle.log, 0, 0);
            sealed.saturating_sub(self.options.log_bytes)
        });
        more.sum()
    }

    /// Whether a log can be prepared without taking the space in which logs are sealed, and without
    /// the end of a snapshot.
    pub fn room_for_spare(&self) -> bool {
        let log = self.options.log_bytes;
        let bytes = self.work_bytes() + log;
        self.space.left(bytes) >= bytes && self.space.has_place_for_log(log)
    }

    /// Whether space is kept for deletes and compaction, before `bytes` are taken. A store that has
    /// nothing but its first log, on a file system with plenty of room, keeps none: its file stays
    /// small.
    pub fn keeps_reserve(&self, bytes: u64) -> bool {
        let version = self.current();
        let more = version.logs.len() > 1 || version.blocks().next().is_some();
        let reserve = self.work_bytes() + self.options.log_bytes;
        more || self.space.bounded() || !self.space.plenty(reserve.saturating_add(bytes))
    }

    /// Takes the space for a log that deletes need, where it is free in one piece.
    pub fn refill_reserve(&self) {
        if self.keeps_reserve(0) {
            self.reserve
                .fill(|| self.space.allocate_log(self.options.log_bytes).ok());
            self.record_storage();
        }
    }

    /// Makes the manifest on flash say that what the reserve relies on has storage (SPACE-4 of
    /// `space.rs`).
    fn record_storage(&self) {
        if self.space.unrecorded() && !self.health.is_latched() {
            // After a failure the store is latched; without space there is another try.
            let _ = self.commit();
        }
    }

    /// Makes sure that values leave what deletes and compaction need: a log in one piece, a block,
    /// and manifests. All of it is in the file already, because the file system may be full when it
    /// is needed. Otherwise a full store could never be emptied. Where there is less, snapshots end
    /// and the background is given the chance to free some.
    ///
    /// `bytes`, which the write takes, is asked again at each look: the background may have taken
    /// them for it.
    pub fn leave_reserve(&self, bytes: impl Fn() -> u64) -> Result<(), StoreError> {
        let mut last_look = false;
        loop {
            let bytes = bytes();
            if !self.keeps_reserve(bytes) {
                break;
            }
            self.refill_reserve();
            let wanted = self.work_bytes() + self.sealing_bytes();
            let wanted = wanted.saturating_add(bytes);
            let enough = self.space.left_in_file(wanted) >= wanted;
            if enough && self.reserve.is_there() {
                self.record_storage();
                break;
            }
            if last_look {
                return Err(StoreError::NoSpace(
                    "all but what deletes and compaction need is in use".to_owned(),
                ));
            }
            // While nothing could be done, a reader may have let go of what was wanting: one more
            // look.
            last_look = !self.expire_oldest_snapshot() && !self.wait_for_space()?;
        }
        Ok(())
    }

    /// Ends the oldest snapshot, and waits for the reads under way in it, since its space is not
    /// free before; false if there is none.
    pub fn expire_oldest_snapshot(&self) -> bool {
        let Some(version) = self.pins.end_oldest() else {
            return false;
        };
        Counters::add(&self.counters.snapshots_expired, 1);
        if Arc::ptr_eq(&version, &self.current()) {
            return true;
        }
        let held = Arc::downgrade(&version);
        drop(version);
        // A piece of work may hold it too, and is not waited for.
        for _ in 0..RELEASE_MS {
            if held.strong_count() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}
