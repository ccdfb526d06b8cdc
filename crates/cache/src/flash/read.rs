// SPDX-License-Identifier: Apache-2.0
//! Reads in flight: a slab of operations that each carry their key, reused so that a lookup
//! allocates nothing.

use std::collections::VecDeque;

use senko_io::PageBuf;

use crate::arena::Handle;
use crate::index::Slot;
use crate::key::{Key, MAX_KEY};
use crate::types::Want;

/// How far a read has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The place is free.
    Idle,
    /// Waits for a frame.
    Waiting,
    /// Pages are on the way into a frame.
    Reading,
    /// The frame is here; to be looked at by `next_done`. Also: waits for memory to promote into.
    Here(Result<PageBuf, ()>),
    /// Its region was reclaimed while it waited for a frame.
    Gone,
    /// The device did not answer in time.
    GivenUp,
    /// The caller was answered; only the device still knows of it.
    LeftToDevice,
}

/// A record larger than a frame, on its way into DRAM piece by piece.
#[derive(Debug)]
pub(crate) struct Large {
    pub item: Handle,
    /// Bytes of the record, and how many of them have come.
    pub total: usize,
    pub have: usize,
    pub crc: u32,
    /// The checksum that the record carries.
    pub want_crc: u32,
}

/// One read.
#[derive(Debug)]
pub(crate) struct ReadOp {
    pub stage: Stage,
    pub user: u64,
    pub want: Want,
    pub hash: u64,
    pub slot: Slot,
    /// When it began to wait for what it waits for.
    pub since_ms: u64,
    /// Log, position of the item's first page, and pages to read.
    pub log: usize,
    pub position: u64,
    pub pages: u64,
    /// It keeps its region from being reclaimed: since it has a frame.
    pub pinned: bool,
    /// First page of the current piece, counted from the item's first page.
    pub piece: u64,
    pub large: Option<Large>,
    key_len: u8,
    key: [u8; MAX_KEY],
}

impl ReadOp {
    pub fn key(&self) -> Key<'_> {
        Key {
            bytes: &self.key[..self.key_len as usize],
            hash: self.hash,
        }
    }
}

/// The reads of a shard.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    ops: Vec<ReadOp>,
    free: Vec<u32>,
    /// Reads that wait for a frame, in order.
    pub waiting: VecDeque<u32>,
    /// Reads whose frame is here, in order.
    pub ready: VecDeque<u32>,
    /// Reads whose item waits for memory.
    pub parked: Vec<u32>,
    /// One of them waits for the frame of the largest record.
    pub wants_whole: bool,
    pub in_flight: usize,
    /// A read ended that kept a region from being reclaimed, while a reclaim was under way.
    pub unpinned: bool,
}

impl Reads {
    /// A place for a read.
    pub fn start(&mut self, key: &Key<'_>, want: Want, user: u64, slot: Slot) -> u32 {
        let n = self.free.pop().unwrap_or_else(|| {
            self.ops.push(ReadOp {
                stage: Stage::Idle,
                user: 0,
                want,
                hash: 0,
                slot,
                since_ms: 0,
                log: 0,
                position: 0,
                pages: 0,
                pinned: false,
                piece: 0,
                large: None,
                key_len: 0,
                key: [0; MAX_KEY],
            });
            self.ops.len() as u32 - 1
        });
        let op = &mut self.ops[n as usize];
        debug_assert!(matches!(op.stage, Stage::Idle));
        (op.user, op.want, op.hash, op.slot) = (user, want, key.hash, slot);
        op.piece = 0;
        op.pinned = false;
        op.large = None;
        op.key_len = key.bytes.len() as u8;
        op.key[..key.bytes.len()].copy_from_slice(key.bytes);
        n
    }

    pub fn op(&mut self, n: u32) -> &mut ReadOp {
        &mut self.ops[n as usize]
    }

    /// Places, used or not.
    pub fn len(&self) -> u32 {
        self.ops.len() as u32
    }

    /// Leaves a read's number to the device, which will name it when it ends, and gives what it was
    /// for another one.
    pub fn leave_to_device(&mut self, n: u32) -> u32 {
        let op = self.op(n);
        let (user, want, slot, log, position) = (op.user, op.want, op.slot, op.log, op.position);
        let (pinned, large) = (std::mem::take(&mut op.pinned), op.large.take());
        let (key, hash, len) = (op.key, op.hash, op.key_len as usize);
        op.stage = Stage::LeftToDevice;
        let key = Key {
            bytes: &key[..len],
            hash,
        };
        let heir = self.start(&key, want, user, slot);
        let op = self.op(heir);
        (op.log, op.position, op.pinned, op.large) = (log, position, pinned, large);
        op.stage = Stage::GivenUp;
        heir
    }

    /// The read ended.
    pub fn end(&mut self, n: u32) {
        self.ops[n as usize].stage = Stage::Idle;
        self.ops[n as usize].large = None;
        self.free.push(n);
    }
}
