// SPDX-License-Identifier: Apache-2.0
//! Brings applied commits to the device: one group, one write, one flush.
//!
//! One of the waiting threads writes all pending commits, and the others find their commits done
//! (`group.rs`). So the commits that arrive during a flush form the next group.
//!
//! A commit that must only survive the process goes into the tail, and waits there for the log's
//! next group (`tail.rs`).
//!
//! FLUSH-1: after a failed write or flush the database is latched, and nothing is tried again.

use std::sync::atomic::Ordering;

use crate::DbmError;
use crate::blob::Blob;
use crate::core::Core;
use crate::entry::{BODY, Kind};
use crate::log::{GROUP_HEAD, GroupHead, Label, Log, append_bytes};
use crate::space::SEGMENT;
use crate::tail::Tail;
use crate::writer::{CHUNK, Pending, Writer};

/// Pages that are kept for the end of a checkpoint, beyond the counted ones, on a device that
/// cannot grow.
const SLACK: u64 = 4 * SEGMENT;
/// The same on a device that can grow.
pub(crate) const GROWING_SLACK: u64 = 2 * SEGMENT;

impl Core {
    /// Returns when a commit is durable.
    pub fn write_until(&self, commit: u64) -> Result<(), DbmError> {
        let is_done = || self.durable.load(Ordering::Acquire) >= commit;
        self.group.wait(is_done, || {
            let mut log = self.log.lock();
            // A checkpoint may have made it durable.
            if is_done() {
                return Ok(());
            }
            self.write_pending(&mut log, true)
        })
    }

    /// Writes pending commits, and latches if that fails.
    pub fn write_pending(&self, log: &mut Log, sync: bool) -> Result<(), DbmError> {
        self.check()?;
        let pending = {
            let mut writer = self.writer.lock();
            // A commit that does not fit the tail ends its half. Otherwise the half would have a
            // gap.
            if !self.fill_tail(&mut writer)
                && let Some(tail) = &mut writer.tail
            {
                tail.end();
            }
            writer.in_tail = 0;
            std::mem::take(&mut writer.pending)
        };
        self.unlogged.store(0, Ordering::Relaxed);
        self.write_group(log, pending, sync)
            .inspect_err(|error| self.latch(error))
    }

    fn write_group(&self, log: &mut Log, mut pending: Pending, sync: bool) -> Result<(), DbmError> {
        let mut places = Vec::new();
        if !pending.bytes.is_empty() {
            let head = GroupHead {
                durable: log.durable,
                database: log.database,
            };
            head.encode(&mut pending.bytes);
            let parts: usize = pending
                .blobs
                .iter()
                .map(|(blob, _)| blob.parts() as usize)
                .sum();
            let entries = parts + pending.bytes.len().div_ceil(BODY);
            for (blob, value) in &pending.blobs {
                for (id, part) in blob.numbers().zip(value.chunks(Blob::PART)) {
                    let label = Label {
                        kind: Kind::Blob,
                        commit: pending.commit,
                        left: (entries - 1 - places.len()) as u32,
                        first: places.is_empty(),
                    };
                    let place = log.append(label, |body| blob.fill(body, id, part))?;
                    places.push((id, place));
                }
            }
            let first = places.is_empty();
            append_bytes(log, Kind::Changes, pending.commit, first, &pending.bytes)?;
        }
        if sync {
            log.sync()?;
        } else {
            log.write_out()?;
        }
        if !places.is_empty() {
            let mut writer = self.writer.lock();
            for &(id, place) in &places {
                self.space.hold(place);
                self.blobs.at(id).store(place, Ordering::Release);
                writer.changed_blobs.insert(id / CHUNK);
            }
        }
        let mut unwritten = self.unwritten.lock();
        for (blob, _) in &pending.blobs {
            unwritten.remove(&blob.first);
        }
        drop(unwritten);
        self.written.fetch_max(pending.commit, Ordering::AcqRel);
        if sync {
            let written = self.written.load(Ordering::Acquire);
            self.durable.fetch_max(written, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Puts pending commits into the tail. False if it can't: there is no memory or no room, or a
    /// long value must go to the log first.
    pub fn fill_tail(&self, writer: &mut Writer) -> bool {
        let Some(tail) = &mut writer.tail else {
            return false;
        };
        let pending = &writer.pending;
        let from = writer.in_tail.max(GROUP_HEAD);
        if pending.bytes.len() <= from {
            return true;
        }
        if !pending.blobs.is_empty() || !tail.append(&pending.bytes[from..]) {
            return false;
        }
        writer.in_tail = pending.bytes.len();
        self.tailed.fetch_max(pending.commit, Ordering::AcqRel);
        true
    }

    /// Writes a commit to the log, and begins a half of the tail, so that the next commits find
    /// room.
    pub fn write_past_tail(&self, commit: u64) -> Result<(), DbmError> {
        let mut log = self.log.lock();
        if self.written.load(Ordering::Acquire) >= commit {
            return Ok(());
        }
        self.write_pending(&mut log, false)?;
        let mut writer = self.writer.lock();
        if writer.tail.is_none() && !std::mem::replace(&mut writer.asked_for_tail, true) {
            writer.tail = Tail::of(&*self.device);
        }
        self.turn_tail(&log, &mut writer);
        Ok(())
    }

    /// Begins a half of the tail after the log's end. Call it only directly after
    /// [`Core::write_pending`]: later commits stay in the other half, whose earlier contents are
    /// overwritten.
    pub fn turn_tail(&self, log: &Log, writer: &mut Writer) {
        if let Some(tail) = &mut writer.tail {
            tail.begin(log.position());
            writer.in_tail = 0;
        }
    }

    /// Pages that are kept free for the next checkpoint on a device that can grow.
    pub fn reserve(&self) -> u64 {
        let shaped = self.shaped.load(Ordering::Relaxed);
        let others = self.dirty.load(Ordering::Relaxed).saturating_sub(shaped);
        let due = self.due.load(Ordering::Relaxed);
        (shaped + others.min(self.step()) + due) as u64 + GROWING_SLACK
    }

    /// Pages that are free, and those that must stay free for a commit and a checkpoint after it. A
    /// device that can grow keeps as many as the next checkpoint takes. A device that cannot grow
    /// keeps as many as a checkpoint of everything takes. There, deletes may use a part of the
    /// reserve; otherwise a full database could not be emptied.
    fn room(&self, size: &Size) -> (u64, u64) {
        let have = self.space.free() as u64 * SEGMENT;
        if !self.space.is_full() {
            let unlogged = self.unlogged.load(Ordering::Relaxed);
            let need = (size.bytes + unlogged).div_ceil(BODY) + 2 * size.bytes / crate::node::ROOM;
            return (have, need as u64 + self.reserve());
        }
        let slack = if size.only_deletes { SLACK / 2 } else { SLACK };
        let pages = self.pages.load(Ordering::Relaxed).min(size.changes);
        let unlogged = self.unlogged.load(Ordering::Relaxed);
        let need = (size.bytes + unlogged).div_ceil(BODY)
            + pages
            + 2 * size.bytes / crate::node::ROOM
            + self.dirty.load(Ordering::Relaxed)
            + self.due.load(Ordering::Relaxed);
        let map = u64::from(self.space.segments()) * SEGMENT / u64::from(CHUNK);
        (have, need as u64 + map + slack)
    }

    /// Makes sure that the log has room for a commit, before anything of it happens.
    pub fn admit(self: &std::sync::Arc<Core>, size: &Size) -> Result<(), DbmError> {
        self.check()?;
        let (have, need) = self.room(size);
        if have >= need {
            return Ok(());
        }
        let missing = (need - have).div_ceil(SEGMENT);
        let grown = self.space.grow(missing);
        if !matches!(grown, Err(DbmError::NoSpace(_))) {
            return grown;
        }
        // The device is full. Checkpoints and cleaning free the space of the log and of dead pages.
        for _ in 0..8 {
            self.make_room()?;
            let (have, need) = self.room(size);
            if have >= need {
                return Ok(());
            }
        }
        Err(DbmError::NoSpace(need - have))
    }
}

/// The space that a commit takes in the log, including the checkpoint after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub bytes: usize,
    /// Records and ranges, each of which may change a page.
    pub changes: usize,
    pub only_deletes: bool,
}
