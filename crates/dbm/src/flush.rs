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
use crate::tail::Tail;
use crate::writer::{CHUNK, Pending, Writer};

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
}
