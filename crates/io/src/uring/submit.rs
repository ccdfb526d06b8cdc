// SPDX-License-Identifier: Apache-2.0
//! Entries of the submission queue, each with what its completion is of.

use io_uring::{opcode, squeue};

use super::Uring;

/// The kind of a submission, in the top byte of its user data; the rest is a slot or index.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(super) enum Kind {
    Nothing = 0,
    Recv = 1,
    Send = 2,
    Accept = 3,
    Wake = 4,
    Disk = 5,
}

fn user_data(kind: Kind, index: u32) -> u64 {
    (kind as u64) << 56 | u64::from(index)
}

impl Uring {
    /// Queues an entry. It is private to this backend, whose invariants keep the entries' targets
    /// valid. The table in `Core` owns the buffers of device operations (DISK-1). The connection's
    /// slot owns batches until their completion (URING-1). The pool owns receive buffers.
    /// `shut_down` waits for all of them or leaks them.
    pub(super) fn push(&mut self, entry: squeue::Entry, kind: Kind, index: u32) {
        let entry = entry.user_data(user_data(kind, index));
        // SAFETY: as said above.
        unsafe { self.ring.push(entry) };
    }

    pub(super) fn cancel(&mut self, kind: Kind, index: u32) {
        let entry = opcode::AsyncCancel::new(user_data(kind, index)).build();
        self.push(entry, Kind::Nothing, 0);
    }
}
