// SPDX-License-Identifier: Apache-2.0
//! Reads in flight: a slab of operations that each carry their key, reused so that a lookup
//! allocates nothing.

use std::collections::VecDeque;

use senko_io::{PAGE_SIZE, PageBuf};

use crate::arena::Handle;
use crate::index::Slot;
use crate::key::{Key, MAX_KEY};
use crate::record::{ANSWER_HEAD, ANSWER_SUMS, PIECE, Pieces, RECORD_HEADER, hcrc, piece_intact};
use crate::types::{FRAME_PAGES, Want};

/// A read of a large record brings a piece.
const _: () = assert!(PIECE == FRAME_PAGES * PAGE_SIZE);

/// The state of a read.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The entry is free.
    Idle,
    /// Waits for a frame.
    Waiting,
    /// Pages are on the way into a frame.
    Reading,
    /// The frame is here, for `next_done`. Also: the read waits for memory for a promotion.
    Here(Result<PageBuf, ()>),
    /// Its region was reclaimed while it waited for a frame.
    Gone,
    /// The device did not answer in time.
    GivenUp,
    /// Its first piece is in DRAM; its helpers read the others.
    Gathering,
    /// The caller has its answer; only the device still knows of the read.
    LeftToDevice,
}

/// A record larger than a frame, on its way into DRAM. The read that found it owns this, and has
/// helpers: reads of one piece after the other.
#[derive(Debug)]
struct Large {
    item: Handle,
    pieces: Pieces,
    /// The checksum of head and key.
    hcrc: u32,
    /// The number of the piece that no helper has begun.
    next: usize,
    /// Pieces that have not come.
    left: usize,
}

/// Where a piece of a large record goes.
#[derive(Debug)]
pub(crate) struct Piece {
    pub item: Handle,
    /// Offset in the record in DRAM.
    pub at: usize,
    /// Where its bytes are in the frame.
    pub bytes: std::ops::Range<usize>,
    /// Whether all others are there.
    pub last: bool,
    pub intact: bool,
}

#[derive(Debug)]
pub(crate) struct ReadOp {
    pub(super) stage: Stage,
    pub(super) user: u64,
    want: Want,
    hash: u64,
    slot: Slot,
    /// The first slot of eight bytes that was read for it, and the first of a sorted record,
    /// without their hits.
    tried: [Slot; 2],
    /// When the current wait began.
    pub(super) since_ms: u64,
    /// Log, position of the item's first page, and pages to read.
    pub(super) log: usize,
    pub(super) position: u64,
    pub(super) pages: u64,
    /// Whether it prevents the reclaim of its region. It does once it has a frame.
    pub(super) pinned: bool,
    /// First page of the current piece, counted from the item's first page.
    pub(super) piece: u64,
    large: Option<Large>,
    /// The read that it helps.
    pub(super) owner: Option<u32>,
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
    pub fn want(&self) -> Want {
        self.want
    }
    pub fn hash(&self) -> u64 {
        self.hash
    }
    pub fn slot(&self) -> Slot {
        self.slot
    }
    /// The first slot of each kind that was read; empty if none was.
    pub fn tried(&self) -> [Slot; 2] {
        self.tried
    }
    /// Notes of which kind its slot is.
    pub(super) fn try_slot(&mut self, is_narrow: bool) {
        self.tried[usize::from(is_narrow)] = self.slot.with_hot(0);
    }
    /// Continues with another slot.
    pub(super) fn go_on(&mut self, slot: Slot, (log, position): (usize, u64)) {
        (self.slot, self.log, self.position) = (slot, log, position);
        if self.tried[1] == Slot::EMPTY {
            self.tried[1] = slot.with_hot(0);
        }
    }
    pub fn log(&self) -> usize {
        self.log
    }
    pub fn position(&self) -> u64 {
        self.position
    }
    /// Pages of the current piece.
    pub fn pages(&self) -> u64 {
        self.pages
    }
    /// Whether its pages are here.
    pub fn is_here(&self) -> bool {
        matches!(self.stage, Stage::Here(_))
    }

    /// Continues as a record that goes to `item`; the frame has its first piece.
    pub fn begin_large(&mut self, item: Handle, pieces: Pieces, frame: &[u8]) {
        self.large = Some(Large {
            item,
            pieces,
            hcrc: hcrc(frame),
            next: 1,
            left: pieces.count(),
        });
        self.stage = Stage::Gathering;
    }
    /// Ends that; returns the item.
    pub fn take_large(&mut self) -> Option<Handle> {
        self.large.take().map(|large| large.item)
    }
    /// The read that it helps.
    pub fn owner(&self) -> Option<u32> {
        self.owner
    }
    /// Continues with a piece: its number and pages.
    pub(super) fn take_on(&mut self, (number, pages): (usize, usize)) {
        (self.piece, self.pages) = ((number * FRAME_PAGES) as u64, pages as u64);
    }
    /// The number of its current piece.
    pub fn number(&self) -> usize {
        self.piece as usize / FRAME_PAGES
    }
    /// Takes a piece of a large record.
    pub fn take_piece(&mut self, n: usize, frame: &[u8]) -> Piece {
        let large = self.large.as_mut().expect("an owner has its item");
        let pieces = large.pieces;
        large.left -= 1;
        // DRAM has the record without its checksums; its head is put by the caller.
        let (at, from) = match n {
            0 => (ANSWER_HEAD, RECORD_HEADER),
            _ => (pieces.before(n * PIECE) - ANSWER_SUMS, 0),
        };
        Piece {
            item: large.item,
            at,
            bytes: from..pieces.data(n),
            last: large.left == 0,
            intact: piece_intact(&frame[..pieces.bytes(n)], large.hcrc, n),
        }
    }
    /// The number of the next piece to read, and its pages; `None` if all have begun.
    pub(super) fn next_piece(&mut self) -> Option<(usize, usize)> {
        let large = self.large.as_mut()?;
        let n = large.next;
        (n < large.pieces.count()).then(|| {
            large.next += 1;
            (n, large.pieces.bytes(n).div_ceil(PAGE_SIZE))
        })
    }
}

/// The reads of a shard.
#[derive(Debug, Default)]
pub(super) struct Reads {
    ops: Vec<ReadOp>,
    free: Vec<u32>,
    /// Reads that wait for a frame, in order.
    pub waiting: VecDeque<u32>,
    /// Reads whose frame is here, in order.
    pub ready: VecDeque<u32>,
    /// Reads whose item waits for memory.
    pub parked: Vec<u32>,
    pub in_flight: usize,
    /// Whether a read has ended that prevented the reclaim of a region, while a reclaim was under
    /// way.
    pub unpinned: bool,
}

impl Reads {
    /// An entry for a new read.
    pub fn start(&mut self, key: &Key<'_>, want: Want, user: u64, slot: Slot) -> u32 {
        let n = self.free.pop().unwrap_or_else(|| {
            self.ops.push(ReadOp {
                stage: Stage::Idle,
                user: 0,
                want,
                hash: 0,
                slot,
                tried: [Slot::EMPTY; 2],
                since_ms: 0,
                log: 0,
                position: 0,
                pages: 0,
                pinned: false,
                piece: 0,
                large: None,
                owner: None,
                key_len: 0,
                key: [0; MAX_KEY],
            });
            self.ops.len() as u32 - 1
        });
        let op = &mut self.ops[n as usize];
        debug_assert!(matches!(op.stage, Stage::Idle));
        (op.user, op.want, op.hash, op.slot) = (user, want, key.hash, slot);
        op.tried = [Slot::EMPTY; 2];
        op.piece = 0;
        op.pinned = false;
        op.large = None;
        op.owner = None;
        op.key_len = key.bytes.len() as u8;
        op.key[..key.bytes.len()].copy_from_slice(key.bytes);
        n
    }

    pub fn look(&self, n: u32) -> &ReadOp {
        &self.ops[n as usize]
    }
    pub fn op(&mut self, n: u32) -> &mut ReadOp {
        &mut self.ops[n as usize]
    }

    /// Entries, used or not.
    pub fn len(&self) -> u32 {
        self.ops.len() as u32
    }

    /// Leaves a read's number to the device, which will return it when the read ends. Returns the
    /// read's purpose, for another number.
    pub fn leave_to_device(&mut self, n: u32) -> u32 {
        let op = self.op(n);
        let (user, want, slot, log, position) = (op.user, op.want, op.slot, op.log, op.position);
        let (pinned, owner, tried) = (std::mem::take(&mut op.pinned), op.owner.take(), op.tried);
        let (key, hash, len) = (op.key, op.hash, op.key_len as usize);
        op.stage = Stage::LeftToDevice;
        let key = Key {
            bytes: &key[..len],
            hash,
        };
        let heir = self.start(&key, want, user, slot);
        let op = self.op(heir);
        (op.log, op.position, op.pinned, op.owner) = (log, position, pinned, owner);
        op.tried = tried;
        op.stage = Stage::GivenUp;
        heir
    }

    /// Ends the read.
    pub fn end(&mut self, n: u32) {
        let op = self.op(n);
        (op.stage, op.large, op.owner) = (Stage::Idle, None, None);
        self.free.push(n);
    }
}
