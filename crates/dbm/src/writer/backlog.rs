// SPDX-License-Identifier: Apache-2.0
//! Commits that are applied and not in the log yet, and the tail that has some of them meanwhile.
//!
//! A commit that must only survive the process goes into the tail, and waits here for the log's
//! next group (`tail.rs`).

use std::sync::Arc;

use senko_io::Device;

use crate::disk::entry::BODY;
use crate::disk::log::{GROUP_HEAD, Position};
use crate::disk::tail::Tail;
use crate::records::blob::Blob;
use crate::records::changes::{Change, begin_commit, end_commit};
use crate::writer::progress::Progress;

/// The contents of the log's next group.
#[derive(Default)]
pub(crate) struct Pending {
    /// Room for the head of the group, then the commits.
    pub bytes: Vec<u8>,
    /// Long values.
    pub blobs: Vec<(Blob, Arc<[u8]>)>,
    pub commit: u64,
}

#[derive(Default)]
pub(crate) struct Backlog {
    pending: Pending,
    tail: Option<Tail>,
    /// Whether the device was asked for memory.
    asked_for_tail: bool,
    /// Bytes of `pending` that are in the tail.
    in_tail: usize,
}

impl Backlog {
    /// Begins a commit; [`Backlog::end`] gets the result.
    pub fn begin(&mut self, commit: u64) -> usize {
        let bytes = &mut self.pending.bytes;
        if bytes.is_empty() {
            bytes.extend_from_slice(&[0; GROUP_HEAD]);
        }
        self.pending.commit = commit;
        begin_commit(bytes, commit)
    }

    pub fn change(&mut self, change: &Change<'_>) {
        change.encode(&mut self.pending.bytes);
    }

    pub fn long_value(&mut self, blob: Blob, value: Arc<[u8]>) {
        self.pending.blobs.push((blob, value));
    }

    pub fn end(&mut self, begun: usize) {
        end_commit(&mut self.pending.bytes, begun);
    }

    /// Bytes of commits, without their long values.
    pub fn bytes(&self) -> usize {
        self.pending.bytes.len()
    }

    /// Bytes of commits, with the pages of their long values.
    pub fn all_bytes(&self) -> usize {
        let parts = |(blob, _): &(Blob, _)| blob.parts() as usize;
        self.bytes() + self.pending.blobs.iter().map(parts).sum::<usize>() * BODY
    }

    pub fn has_long_values(&self) -> bool {
        !self.pending.blobs.is_empty()
    }

    /// Takes everything for the log.
    pub fn take(&mut self, progress: &Progress) -> Pending {
        // A commit that does not fit the tail ends its half. Otherwise the half would have a gap.
        if !self.fill_tail(progress)
            && let Some(tail) = &mut self.tail
        {
            tail.end();
        }
        self.in_tail = 0;
        std::mem::take(&mut self.pending)
    }

    /// Puts commits into the tail. False if it can't: there is no memory or no room, or a long
    /// value must go to the log first.
    pub fn fill_tail(&mut self, progress: &Progress) -> bool {
        let Some(tail) = &mut self.tail else {
            return false;
        };
        let from = self.in_tail.max(GROUP_HEAD);
        if self.pending.bytes.len() <= from {
            return true;
        }
        if !self.pending.blobs.is_empty() || !tail.append(&self.pending.bytes[from..]) {
            return false;
        }
        self.in_tail = self.pending.bytes.len();
        progress.tail(self.pending.commit);
        true
    }

    /// Asks the device for memory, the first time.
    pub fn ask_for_tail(&mut self, device: &dyn Device) {
        if !std::mem::replace(&mut self.asked_for_tail, true) {
            self.tail = Tail::of(device);
        }
    }

    /// Begins a half of the tail after the log's end. Call it only directly after
    /// [`Backlog::take`] was written: later commits stay in the other half, whose earlier contents
    /// are overwritten.
    pub fn turn_tail(&mut self, end: Position) {
        if let Some(tail) = &mut self.tail {
            tail.begin(end);
            self.in_tail = 0;
        }
    }
}
