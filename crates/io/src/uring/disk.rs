// SPDX-License-Identifier: Apache-2.0
//! Devices on the ring: reads into registered frames, writes, flushes, discards.
//!
//! Frames and descriptors are registered as far as the kernel allows it. Then it need not pin pages
//! and look up files at every read. Beyond that (RLIMIT_MEMLOCK, see `limit.rs`) the same
//! operations use plain buffers: small frames come first, whose reads gain most.

use io_uring::opcode;
use io_uring::types::{Fd, Fixed, FsyncFlags};

use super::ring::Done;
use super::{Kind, Uring, limit};
use crate::disk::Core;
use crate::page::{PAGE_SIZE, REGISTER_SPAN};
use crate::{DeviceId, Event, FlashFile, FramePool, Op};

/// Most devices whose descriptors are registered. Further devices work too, at the price of a
/// look-up.
pub(super) const REGISTERED_DEVICES: u32 = 64;
/// `BLOCK_URING_CMD_DISCARD` of the kernel's `linux/blkdev.h`.
const BLOCK_DISCARD: u32 = 0x1200;

impl Uring {
    /// Registers frames, from the first on; returns their bytes.
    pub(super) fn register_frames(&self, frames: &FramePool) -> usize {
        let (start, bytes) = frames.region();
        // Half of the memory that may be locked is left to the rings of this user's other loops.
        let most = limit::lockable().map_or(usize::MAX, |limit| limit as usize / 2);
        let bytes = bytes.min(most / PAGE_SIZE * PAGE_SIZE);
        let spans: Vec<libc::iovec> = (0..bytes)
            .step_by(REGISTER_SPAN)
            .map(|at| libc::iovec {
                // SAFETY: `at` is inside the mapping.
                iov_base: unsafe { start.add(at) }.cast(),
                iov_len: (bytes - at).min(REGISTER_SPAN),
            })
            .collect();
        // SAFETY: the frames live until the ring is gone: the loop holds the pool and drops it
        // after the ring, or leaks it.
        let done = unsafe { self.ring.submitter().register_buffers(&spans) };
        if done.is_ok() { bytes } else { 0 }
    }

    pub(crate) fn attach(&mut self, device: DeviceId, file: &FlashFile) {
        let registered = self.files_table
            && u32::from(device) < REGISTERED_DEVICES
            && self
                .ring
                .submitter()
                .register_files_update(u32::from(device), &[file.raw_fd()])
                .is_ok();
        self.files_registered.push(registered);
    }

    pub(crate) fn submit_disk(&mut self, core: &Core, index: u32) {
        let op = &core.ops[index as usize];
        let file = &core.devices[op.device as usize];
        let (address, bytes, offset) = op.rest();
        let length = bytes.min(1 << 30) as u32;
        let fixed = self.files_registered[op.device as usize];
        let registered = op.frame_end.filter(|&end| end <= self.registered);
        let registered = registered.map(|end| ((end - 1) / REGISTER_SPAN) as u16);
        // The two kinds of file descriptor are different types, so each operation is built by a
        // macro.
        macro_rules! entry {
            ($fd:expr) => {
                match op.op {
                    Op::Read => match registered {
                        Some(buffer) => opcode::ReadFixed::new($fd, address, length, buffer)
                            .offset(offset)
                            .build(),
                        None => opcode::Read::new($fd, address, length)
                            .offset(offset)
                            .build(),
                    },
                    Op::Write => opcode::Write::new($fd, address, length)
                        .offset(offset)
                        .build(),
                    Op::Flush => opcode::Fsync::new($fd).flags(FsyncFlags::DATASYNC).build(),
                    Op::Discard if file.block_device() && !op.other_way() => {
                        let mut end = [0; 16];
                        end[..8].copy_from_slice(&bytes.to_ne_bytes());
                        opcode::UringCmd16::new($fd, BLOCK_DISCARD)
                            .addr(Some(offset))
                            .cmd(end)
                            .build()
                    }
                    Op::Discard => opcode::Fallocate::new($fd, bytes)
                        .offset(offset)
                        .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                        .build(),
                }
            };
        }
        let entry = if fixed {
            entry!(Fixed(u32::from(op.device)))
        } else {
            entry!(Fd(file.raw_fd()))
        };
        self.push(entry, Kind::Disk, index);
    }

    pub(super) fn on_disk(
        &mut self,
        core: &mut Core,
        index: u32,
        done: &Done,
        events: &mut Vec<Event>,
    ) {
        match core.finish(index, done.result) {
            Some(completion) => events.push(Event::Disk(completion)),
            None => self.submit_disk(core, index),
        }
    }
}
