// SPDX-License-Identifier: Apache-2.0
//! The reserve, which makes it possible to empty a full store. It has the space for a log, and the
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

/// A log for the deletes of a full store takes this fraction of another log's elements and is then
/// sealed. After that there is space to compact a block, and the deletes free more.
const TIGHT: u64 = 5;

/// The longest wait for the reads of an ended snapshot, in milliseconds.
const RELEASE_MS: u32 = 100;

impl Core {
    /// Allocates space. If there is none, it ends the oldest snapshot and tries again.
    pub fn allocate(&self, bytes: u64) -> Result<Held, StoreError> {
        self.allocate_between(bytes, bytes)
    }

    /// Allocates up to `most` bytes in one piece, and at least `least`; see
    /// [`Space::allocate_between`].
    pub fn allocate_between(&self, most: u64, least: u64) -> Result<Held, StoreError> {
        self.with_expiry(|space| space.allocate_between(most, least))
    }

    /// Allocates space with `take`. If there is none, it ends the oldest snapshot and tries again.
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
                    // After a failure, extents are released that the manifest on the device may
                    // still name. They must not be reused. The latch is set before they are
                    // released, so a thread that got one sees the latch.
                    self.health.check_writable()?;
                    return Ok(held);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The most space that a log takes as blocks, or that a block takes when it is compacted.
    fn sealed_most(&self) -> u64 {
        let most = self.options.block_bytes.max(self.options.log_bytes);
        most + most / 4
    }

    /// Space to seal a log and then to compact a block (SPACE-6 of `space.rs`), and for manifests.
    /// The sealed log gives its own space to the compaction.
    pub fn work_bytes(&self) -> u64 {
        let most = self.options.block_bytes.max(self.options.log_bytes);
        self.sealed_most() + most / 4 + 4 * UNIT_BYTES
    }

    /// Whether a log with `elements` and `bytes` more needs more space to be sealed than is kept
    /// for it (SPACE-6). `tight`: the log was allocated for deletes in a full store.
    pub fn seals_to_the_most(&self, log: &Log, tight: bool, elements: u64, bytes: u64) -> bool {
        let most = self.sealed_most();
        let most = if tight { most / TIGHT } else { most };
        self.sealed_bytes(log, elements, bytes) > most
    }

    /// Whether the space for a log is kept, with the space to seal a short log and then to compact
    /// a block.
    pub fn reserve_is_whole(&self) -> bool {
        let there = self.reserve.is_there() || self.spare.is_there();
        let bytes = self.work_bytes() - self.options.log_bytes;
        there && self.space.left_in_file(bytes) >= bytes
    }

    /// Bytes of the blocks that a log becomes, with `elements` and `bytes` more.
    fn sealed_bytes(&self, log: &Log, elements: u64, bytes: u64) -> u64 {
        let elements = log.elements() + elements;
        bytes_expected(elements, log.bytes_used() + bytes, self.options.page_bytes)
    }

    /// Bytes that sealing all logs takes, beyond the space that they give back.
    fn sealing_bytes(&self) -> u64 {
        let version = self.current();
        let more = version.logs.iter().map(|handle| {
            let sealed = self.sealed_bytes(&handle.log, 0, 0);
            sealed.saturating_sub(self.options.log_bytes)
        });
        more.sum()
    }

    /// Whether a log can be prepared without using the space for sealing, and without ending a
    /// snapshot.
    pub fn room_for_spare(&self) -> bool {
        let log = self.options.log_bytes;
        let bytes = self.work_bytes() + log;
        self.space.left(bytes) >= bytes && self.space.has_place_for_log(log)
    }

    /// Whether space must be kept for deletes and compaction before `bytes` are allocated. A store
    /// that has only its first log keeps none on a file system with plenty of space, so its file
    /// stays small.
    pub fn keeps_reserve(&self, bytes: u64) -> bool {
        let version = self.current();
        let more = version.logs.len() > 1 || version.blocks().next().is_some();
        let reserve = self.work_bytes() + self.options.log_bytes;
        more || self.space.bounded() || !self.space.plenty(reserve.saturating_add(bytes))
    }

    /// Allocates the space for a log that deletes need, if it is free in one piece.
    pub fn refill_reserve(&self) {
        if self.keeps_reserve(0) {
            self.reserve
                .fill(|| self.space.allocate_log(self.options.log_bytes).ok());
            self.record_storage();
        }
    }

    /// Commits a manifest that says which of the reserve's space has storage (SPACE-4 of
    /// `space.rs`).
    fn record_storage(&self) {
        if self.space.unrecorded() && !self.health.is_latched() {
            // After a failure the store is latched. Without space it tries again later.
            let _ = self.commit();
        }
    }

    /// Makes sure that values leave the space that deletes and compaction need: a log in one piece,
    /// a block, and manifests. This space must be in the file already, because the file system may
    /// be full when it is needed. Otherwise a full store could never be emptied. If there is less,
    /// snapshots end, and the background gets the chance to free some.
    ///
    /// `bytes` returns what the write will take. It is called again each time, because the
    /// background may have allocated that space for the write.
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
            // Try once more: a reader may have released the missing space meanwhile.
            last_look = !self.expire_oldest_snapshot() && !self.wait_for_space()?;
        }
        Ok(())
    }

    /// Ends the oldest snapshot; false if there is none. It waits for the snapshot's reads under
    /// way, since its space is not free before.
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
        // Background work may hold it too, and is not waited for.
        for _ in 0..RELEASE_MS {
            if held.strong_count() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}
