// SPDX-License-Identifier: Apache-2.0
//! The table of device operations in flight, which both backends use.
//!
//! The facade adds an operation here. A backend does the part that [`DiskOp::rest`] names and
//! passes the result to [`Core::finish`], which says whether the operation ended or continues. The
//! table owns the buffers of all operations in flight, so backends and their threads only have
//! addresses. Invariant DISK-1: memory that the device may still touch is reachable only from here.

use std::sync::Arc;
use std::time::Instant;

use crate::fault::Fault;
use crate::stats::{DeviceTimes, DiskStats};
use crate::{
    AlignedBuf, Completion, DeviceId, Event, FlashFile, FramePool, IoError, Op, PAGE_SIZE, PageBuf,
    Tag,
};

/// Ends the free list.
const NONE: u32 = u32::MAX;
/// How often an interrupted operation is submitted again.
const MOST_RETRIES: u8 = 100;

/// An operation in flight.
pub(crate) struct DiskOp {
    pub(crate) op: Op,
    pub(crate) device: DeviceId,
    tag: Tag,
    token: u64,
    address: *mut u8,
    offset: u64,
    bytes: u64,
    done: u64,
    retries: u8,
    other_way: bool,
    /// Where the frame of a read ends among all frames.
    pub(crate) frame_end: Option<usize>,
    frame: Option<PageBuf>,
    source: Option<Arc<AlignedBuf>>,
    /// When it was submitted to the device.
    since: Instant,
    next_free: u32,
}

impl DiskOp {
    /// The rest of an operation: memory, bytes, offset on the device.
    pub(crate) fn rest(&self) -> (*mut u8, u64, u64) {
        // SAFETY: `done` never exceeds `bytes`, the length of the memory at `address` (0 for
        // operations without memory).
        let address = unsafe {
            self.address.add(if self.address.is_null() {
                0
            } else {
                self.done as usize
            })
        };
        (address, self.bytes - self.done, self.offset + self.done)
    }

    /// Whether the first way of doing it is unsupported here (discards have two).
    pub(crate) fn other_way(&self) -> bool {
        self.other_way
    }
}

/// The facade's state for a backend: devices, operations in flight, events that are already known.
pub(crate) struct Core {
    pub(crate) devices: Vec<Arc<FlashFile>>,
    pub(crate) frames: FramePool,
    pub(crate) ops: Vec<DiskOp>,
    free: u32,
    pub(crate) in_flight: usize,
    /// How many of these are reads.
    pub(crate) reads_in_flight: usize,
    pub(crate) stats: DiskStats,
    /// Durations of operations, by device.
    pub(crate) times: Vec<DeviceTimes>,
    /// Operations that the next poll submits: their time begins then.
    fresh: Vec<u32>,
    started: Instant,
    /// When the results now being handled were found; read once a poll, if there are any.
    found: Option<Instant>,
    /// Events that need no waiting; the next poll delivers them.
    pub(crate) ready: Vec<Event>,
    /// Operations that a test's fault holds back (`fault.rs`).
    pub(crate) held: Vec<u32>,
}

/// A requested device operation.
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) device: DeviceId,
    pub(crate) page: u64,
    pub(crate) pages: u64,
    pub(crate) tag: Tag,
    pub(crate) token: u64,
}

impl Core {
    pub(crate) fn new(frames: FramePool) -> Core {
        Core {
            devices: Vec::new(),
            frames,
            ops: Vec::with_capacity(1024),
            free: NONE,
            in_flight: 0,
            reads_in_flight: 0,
            stats: DiskStats::default(),
            times: Vec::new(),
            fresh: Vec::with_capacity(1024),
            started: Instant::now(),
            found: None,
            ready: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Begins a poll: the operations added since the last one are submitted now.
    pub(crate) fn begin_poll(&mut self) {
        self.found = None;
        if self.fresh.is_empty() {
            return;
        }
        let now = Instant::now();
        for index in self.fresh.drain(..) {
            self.ops[index as usize].since = now;
        }
    }

    /// Counts, records and adds an operation, and returns its number. `None` if it ended here (out
    /// of the device's range, or nothing to do); its completion is in `ready` then.
    pub(crate) fn begin(
        &mut self,
        request: &Request,
        frame: Option<PageBuf>,
        source: Option<(Arc<AlignedBuf>, usize)>,
    ) -> Option<u32> {
        let file = &self.devices[request.device as usize];
        let outside = request
            .page
            .checked_add(request.pages)
            .is_none_or(|end| end > file.pages());
        if outside || (request.op == Op::Discard && !file.discards()) {
            let mut result = Ok(());
            if outside {
                self.stats.failed(request.tag, request.op);
                result = Err(IoError::Os(libc::EINVAL));
            }
            let (token, op) = (request.token, request.op);
            self.ready.push(Event::Disk(Completion {
                token,
                op,
                result,
                buf: frame,
            }));
            return None;
        }
        file.record(request.tag, request.op, request.page, request.pages);
        self.stats.submitted(request.tag, request.op, request.pages);
        let fault = file.fault(request.op, request.page, request.pages);
        let index = self.enter(request, frame, source);
        match fault {
            None => Some(index),
            Some(fault) => {
                self.meet(index, fault);
                None
            }
        }
    }

    /// Applies a test's fault to an operation.
    #[cold]
    fn meet(&mut self, index: u32, fault: Fault) {
        match fault {
            Fault::Stall => self.held.push(index),
            Fault::Errno(errno) => {
                match self.finish(index, -errno) {
                    Some(ended) => self.ready.push(Event::Disk(ended)),
                    None => self.held.push(index), // it is tried again
                }
            }
        }
    }

    /// The operations that were held back and may continue now.
    pub(crate) fn released(&mut self) -> Vec<u32> {
        let mut free = Vec::new();
        for index in std::mem::take(&mut self.held) {
            let op = &self.ops[index as usize];
            let (page, pages) = (op.offset / PAGE_SIZE as u64, op.bytes / PAGE_SIZE as u64);
            match self.devices[op.device as usize].fault(op.op, page, pages) {
                None => free.push(index),
                Some(fault) => self.meet(index, fault),
            }
        }
        free
    }

    fn enter(
        &mut self,
        request: &Request,
        frame: Option<PageBuf>,
        source: Option<(Arc<AlignedBuf>, usize)>,
    ) -> u32 {
        let bytes = request.pages * PAGE_SIZE as u64;
        let mut address = std::ptr::null_mut();
        let mut frame_end = None;
        if let Some(frame) = &frame {
            assert!(
                frame.len() as u64 >= bytes,
                "the frame holds the pages asked for"
            );
            address = frame.start();
            frame_end = self.frames.end_of(frame);
        }
        let source = source.map(|(buf, first)| {
            let from = first * PAGE_SIZE;
            address = buf[from..from + bytes as usize].as_ptr().cast_mut();
            buf
        });
        let op = DiskOp {
            op: request.op,
            device: request.device,
            tag: request.tag,
            token: request.token,
            address,
            offset: request.page * PAGE_SIZE as u64,
            bytes,
            done: 0,
            retries: 0,
            other_way: false,
            frame_end,
            frame,
            source,
            // Until the next poll.
            since: self.started,
            next_free: NONE,
        };
        self.in_flight += 1;
        self.reads_in_flight += usize::from(op.op == Op::Read);
        let index = if self.free == NONE {
            self.ops.push(op);
            (self.ops.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = self.ops[index as usize].next_free;
            self.ops[index as usize] = op;
            index
        };
        self.fresh.push(index);
        index
    }

    /// Takes the result for the part that [`DiskOp::rest`] named (bytes, or a negative error
    /// number). Returns the completion if the operation ended; `None` means that its rest must be
    /// submitted.
    pub(crate) fn finish(&mut self, index: u32, result: i32) -> Option<Completion> {
        let op = &mut self.ops[index as usize];
        let ended = if result < 0 {
            let again = matches!(-result, libc::EINTR | libc::EAGAIN) && op.retries < MOST_RETRIES;
            if again {
                op.retries += 1;
                return None;
            }
            let unsupported = matches!(-result, libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS);
            if op.op == Op::Discard && unsupported && !op.other_way {
                op.other_way = true;
                return None;
            }
            Err(IoError::Os(-result))
        } else if op.address.is_null() {
            Ok(())
        } else {
            op.done += result as u64;
            if op.done == op.bytes {
                Ok(())
            } else if result > 0 && (result as usize).is_multiple_of(PAGE_SIZE) {
                return None;
            } else {
                Err(IoError::Short {
                    want: op.bytes as usize,
                    got: op.done as usize,
                })
            }
        };
        if ended.is_err() {
            self.stats.failed(op.tag, op.op);
        }
        let found = *self.found.get_or_insert_with(Instant::now);
        // An operation that a test makes fail at once was not submitted.
        if op.since > self.started {
            let took = found.saturating_duration_since(op.since);
            self.times[op.device as usize].ended(op.op, took);
        }
        op.source = None;
        self.reads_in_flight -= usize::from(op.op == Op::Read);
        let completion = Completion {
            token: op.token,
            op: op.op,
            result: ended,
            buf: op.frame.take(),
        };
        op.next_free = self.free;
        self.free = index;
        self.in_flight -= 1;
        Some(completion)
    }

    /// Leaks all memory in flight, for a loop that gave up waiting for the kernel.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.ops));
        self.frames.leak();
    }
}
