// SPDX-License-Identifier: Apache-2.0
//! A large record on its way from flash to a client, piece by piece, without an item in DRAM.
//!
//! ```text
//!  look (fetch.rs, afar.rs): the first piece is here --> Stream --next--> PieceRead --> device --check--> sent
//!                                                          |  `- one for each further piece, in order
//!                                                          `- dropped: its region may be reclaimed
//! ```
//!
//! The shard keeps nothing about a stream but a count for each region. The worker of the client
//! owns it, whichever worker has the shard, and reads the pieces on its own queue.
//!
//! Always holds:
//! - STREAM-1: a piece is used only after its checksum was compared. It is seeded with the record's
//!   `hcrc`, so the piece is of the record that the look-up found (PIECE-1).
//! - STREAM-2: while a stream lives, its first region is not reclaimed, so its pages stay. A stream
//!   that reclaim waits for is told so ([`Stream::is_awaited`]).
//! - STREAM-3: a piece that can't be used takes the slot of its record along
//!   ([`Stream::damaged`]), so the next look-up is a miss.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use senko_io::{DeviceId, PAGE_SIZE, PageBuf, Purpose, Queue, Tag};

use crate::index::Slot;
use crate::record::{PIECE, Pieces, piece_intact};

/// The streams of a log, as the log sees them. Streams of any thread share it.
#[derive(Debug)]
pub(crate) struct Streams {
    /// How many streams are in each region.
    pins: Box<[AtomicU32]>,
    region_pages: u64,
    /// The number of the region that reclaim waits for, plus 1.
    awaited: AtomicU64,
    /// Whether the last stream of that region has ended.
    freed: AtomicBool,
    /// Whether the device is out of use.
    out: AtomicBool,
    /// Records that can't be read: their keys' hashes, and their slots.
    damaged: Mutex<Vec<(u64, Slot)>>,
    any_damaged: AtomicBool,
}

impl Streams {
    pub fn new(regions: usize, region_pages: u64) -> Streams {
        Streams {
            pins: (0..regions).map(|_| AtomicU32::new(0)).collect(),
            region_pages,
            awaited: AtomicU64::new(0),
            freed: AtomicBool::new(false),
            out: AtomicBool::new(false),
            damaged: Mutex::new(Vec::new()),
            any_damaged: AtomicBool::new(false),
        }
    }

    fn region(&self, position: u64) -> usize {
        (position / self.region_pages % self.pins.len() as u64) as usize
    }

    /// How many streams begin in the region of a position.
    pub fn pins(&self, position: u64) -> u32 {
        self.pins[self.region(position)].load(Ordering::Acquire)
    }

    /// Notes that reclaim waits for the streams of the region that begins at a position; `None`: it
    /// waits for none.
    pub fn wait_for(&self, tail: Option<u64>) {
        let number = tail.map_or(0, |tail| tail / self.region_pages + 1);
        self.awaited.store(number, Ordering::Relaxed);
    }

    /// Whether a region that reclaim waited for has lost its last stream since the last call.
    pub fn take_freed(&self) -> bool {
        self.freed.load(Ordering::Relaxed) && self.freed.swap(false, Ordering::Relaxed)
    }

    /// Notes whether the device is out of use: then no stream gets a further piece.
    pub fn set_out(&self, out: bool) {
        self.out.store(out, Ordering::Relaxed);
    }

    /// Takes the records that streams could not read.
    pub fn take_damaged(&self) -> Vec<(u64, Slot)> {
        if !self.any_damaged.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        self.any_damaged.store(false, Ordering::Relaxed);
        std::mem::take(&mut damaged)
    }
}

/// Keeps a record where it is.
#[derive(Debug)]
pub(crate) struct Pin {
    streams: Arc<Streams>,
    position: u64,
}

impl Pin {
    /// Keeps the record that begins at a position of the streams' log.
    pub fn new(streams: &Arc<Streams>, position: u64) -> Pin {
        streams.pins[streams.region(position)].fetch_add(1, Ordering::Relaxed);
        Pin {
            streams: Arc::clone(streams),
            position,
        }
    }

    fn is_awaited(&self) -> bool {
        let number = self.position / self.streams.region_pages + 1;
        self.streams.awaited.load(Ordering::Relaxed) == number
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let region = self.streams.region(self.position);
        let before = self.streams.pins[region].fetch_sub(1, Ordering::Release);
        if before == 1 && self.is_awaited() {
            self.streams.freed.store(true, Ordering::Relaxed);
        }
    }
}

/// The rest of a large record whose first piece is in a frame.
#[derive(Debug)]
pub struct Stream {
    pin: Pin,
    hash: u64,
    slot: Slot,
    log: usize,
    device: DeviceId,
    /// The device's page of the first piece.
    page: u64,
    pieces: Pieces,
    hcrc: u32,
    /// The number of the piece to read next.
    next: usize,
    /// Whether all of it was on the device at the look-up.
    on_device: bool,
}

/// What a look-up says about a record that is sent piece by piece.
#[derive(Debug)]
pub(crate) struct Whence {
    pub pin: Pin,
    pub hash: u64,
    pub slot: Slot,
    pub log: usize,
    pub device: DeviceId,
    pub page: u64,
    /// The position before which all is on the device.
    pub written_to: u64,
}

impl Stream {
    /// The pieces after the first of a record with this `hcrc`.
    pub(crate) fn new(of: Whence, pieces: Pieces, hcrc: u32) -> Stream {
        let end = of.pin.position + pieces.flash_len().div_ceil(PAGE_SIZE) as u64;
        Stream {
            on_device: end <= of.written_to,
            pin: of.pin,
            hash: of.hash,
            slot: of.slot,
            log: of.log,
            device: of.device,
            page: of.page,
            pieces,
            hcrc,
            next: 1,
        }
    }

    /// Bytes of the record in the first piece.
    pub fn begun(&self) -> usize {
        self.pieces.data(0)
    }
    /// Whether a worker that has not the shard can read it: all of it is on the device.
    pub fn is_on_device(&self) -> bool {
        self.on_device
    }
    /// The hash of its key.
    pub fn hash(&self) -> u64 {
        self.hash
    }
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }
    /// Whether reclaim waits for its end.
    pub fn is_awaited(&self) -> bool {
        self.pin.is_awaited()
    }
    /// Whether its device is out of use.
    pub fn is_out(&self) -> bool {
        self.pin.streams.out.load(Ordering::Relaxed)
    }

    /// Notes that a piece could not be used: the record's slot goes (STREAM-3).
    pub fn damaged(&self) {
        let streams = &self.pin.streams;
        let mut damaged = streams
            .damaged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        damaged.push((self.hash, self.slot));
        streams.any_damaged.store(true, Ordering::Relaxed);
    }

    /// The read of the next piece; `None` after the last one.
    pub fn next_read(&mut self) -> Option<PieceRead> {
        let n = self.next;
        if n >= self.pieces.count() {
            return None;
        }
        self.next += 1;
        let first = (n * PieceRead::PAGES) as u64;
        Some(PieceRead {
            log: self.log,
            position: self.pin.position + first,
            device: self.device,
            page: self.page + first,
            hcrc: self.hcrc,
            number: n,
            bytes: self.pieces.bytes(n),
            data: self.pieces.data(n),
        })
    }

    /// Bytes of the record in the next piece; 0 after the last one.
    pub fn next_bytes(&self) -> usize {
        let more = self.next < self.pieces.count();
        if more { self.pieces.data(self.next) } else { 0 }
    }
}

#[derive(Debug)]
pub struct PieceRead {
    log: usize,
    position: u64,
    device: DeviceId,
    page: u64,
    hcrc: u32,
    number: usize,
    bytes: usize,
    data: usize,
}

impl PieceRead {
    /// Pages of its frame.
    pub const PAGES: usize = PIECE / PAGE_SIZE;

    /// Bytes of the record in it.
    pub fn data(&self) -> usize {
        self.data
    }
    /// Pages to read.
    pub fn pages(&self) -> usize {
        self.bytes.div_ceil(PAGE_SIZE)
    }
    pub(crate) fn place(&self) -> (usize, u64) {
        (self.log, self.position)
    }

    /// Reads its first `pages` pages into a frame.
    pub(crate) fn read<Q: Queue>(&self, queue: &mut Q, pages: usize, frame: PageBuf, token: u64) {
        let tag = Tag::cache(Purpose::LookupRest);
        queue.read(self.device, self.page, pages, frame, tag, token);
    }

    /// Where the record's bytes are in a frame; `None` if they are not those that were written
    /// (STREAM-1).
    pub fn check(&self, frame: &[u8]) -> Option<Range<usize>> {
        piece_intact(&frame[..self.bytes], self.hcrc, self.number).then_some(0..self.data)
    }
}
