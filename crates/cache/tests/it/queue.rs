// SPDX-License-Identifier: Apache-2.0
//! A queue over memory whose operations end when the test says so, in an order drawn from a seed,
//! with errors on demand.

use std::sync::Arc;

use senko_io::{
    AlignedBuf, Completion, DeviceId, FramePool, IoError, Op, PAGE_SIZE, PageBuf, Queue, Tag,
};
use senko_workload::Rng;

enum Pending {
    Read {
        page: u64,
        pages: usize,
        buf: PageBuf,
        token: u64,
    },
    Write {
        page: u64,
        buf: Arc<AlignedBuf>,
        first: usize,
        pages: usize,
        token: u64,
    },
    Discard {
        page: u64,
        pages: u64,
        token: u64,
    },
    Flush {
        token: u64,
    },
}

/// The queue; one device.
pub struct MemoryQueue {
    device: Vec<u8>,
    frames: FramePool,
    pending: Vec<Pending>,
    rng: Rng,
    /// One operation in this many fails; 0: none.
    pub fail_one_in: u64,
    /// One write in this many is torn: only a part reaches the device, and the write reports
    /// success.
    pub tear_one_in: u64,
    /// No operation ends.
    pub stalled: bool,
    pub reads: u64,
    pub errors: u64,
}

impl MemoryQueue {
    pub fn new(pages: usize, frames: &[(usize, usize)], seed: u64) -> MemoryQueue {
        MemoryQueue {
            // An old device does not contain zeros.
            device: vec![0xa5; pages * PAGE_SIZE],
            frames: FramePool::new(frames),
            pending: Vec::new(),
            rng: Rng::new(seed),
            fail_one_in: 0,
            tear_one_in: 0,
            stalled: false,
            reads: 0,
            errors: 0,
        }
    }

    /// The content of the device after a kill of the process: some of the writes in flight were
    /// completed, some in part.
    pub fn after_kill(&self, seed: u64) -> Vec<u8> {
        let mut rng = Rng::new(seed);
        let mut device = self.device.clone();
        for pending in &self.pending {
            if let &Pending::Discard { page, pages, .. } = pending
                && rng.below(2) == 0
            {
                discard(&mut device, page, pages);
            }
            let Pending::Write {
                page,
                buf,
                first,
                pages,
                ..
            } = pending
            else {
                continue;
            };
            let len = match rng.below(3) {
                0 => 0,
                1 => pages * PAGE_SIZE,
                _ => rng.below(*pages as u64 * 8) as usize * 512,
            };
            let (at, from) = (*page as usize * PAGE_SIZE, first * PAGE_SIZE);
            device[at..at + len].copy_from_slice(&buf[from..from + len]);
        }
        device
    }

    /// A new queue over a device that holds something.
    pub fn with_device(device: Vec<u8>, frames: &[(usize, usize)], seed: u64) -> MemoryQueue {
        MemoryQueue {
            device,
            ..MemoryQueue::new(0, frames, seed)
        }
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Completes one operation, any one.
    pub fn complete_one(&mut self) -> Option<Completion> {
        if self.pending.is_empty() || self.stalled {
            return None;
        }
        let n = self.rng.below(self.pending.len() as u64) as usize;
        Some(self.complete(n))
    }

    /// Reads under way.
    pub fn reading(&self) -> usize {
        let reads = self.pending.iter();
        reads
            .filter(|op| matches!(op, Pending::Read { .. }))
            .count()
    }

    /// Completes the operation that was submitted last.
    pub fn complete_last(&mut self) -> Completion {
        let n = self.pending.len();
        self.complete(n - 1)
    }

    fn complete(&mut self, n: usize) -> Completion {
        let fails = self.fail_one_in != 0 && self.rng.below(self.fail_one_in) == 0;
        let result = if fails {
            self.errors += 1;
            Err(IoError::Os(5))
        } else {
            Ok(())
        };
        match self.pending.swap_remove(n) {
            Pending::Read {
                page,
                pages,
                mut buf,
                token,
            } => {
                let at = page as usize * PAGE_SIZE;
                if result.is_ok() {
                    buf[..pages * PAGE_SIZE]
                        .copy_from_slice(&self.device[at..at + pages * PAGE_SIZE]);
                }
                Completion {
                    token,
                    op: Op::Read,
                    result,
                    buf: Some(buf),
                }
            }
            Pending::Write {
                page,
                buf,
                first,
                pages,
                token,
            } => {
                let mut len = pages * PAGE_SIZE;
                if self.tear_one_in != 0 && self.rng.below(self.tear_one_in) == 0 {
                    len = self.rng.below(len as u64) as usize;
                }
                let (at, from) = (page as usize * PAGE_SIZE, first * PAGE_SIZE);
                if result.is_ok() {
                    self.device[at..at + len].copy_from_slice(&buf[from..from + len]);
                }
                drop(buf);
                Completion {
                    token,
                    op: Op::Write,
                    result,
                    buf: None,
                }
            }
            Pending::Discard { page, pages, token } => {
                if result.is_ok() {
                    discard(&mut self.device, page, pages);
                }
                Completion {
                    token,
                    op: Op::Discard,
                    result,
                    buf: None,
                }
            }
            Pending::Flush { token } => Completion {
                token,
                op: Op::Flush,
                result,
                buf: None,
            },
        }
    }

    /// Flips a bit of a page.
    pub fn flip_in(&mut self, page: u64, byte: usize) {
        self.device[page as usize * PAGE_SIZE + byte] ^= 4;
    }

    /// The page where the device has these bytes.
    pub fn page_with(&self, bytes: &[u8]) -> Option<u64> {
        let mut pages = self.device.chunks(PAGE_SIZE);
        let found = pages.position(|page| page.windows(bytes.len()).any(|part| part == bytes));
        found.map(|page| page as u64)
    }

    /// Flips a bit somewhere.
    pub fn flip_a_bit(&mut self) {
        let bit = self.rng.below(self.device.len() as u64 * 8);
        self.device[bit as usize / 8] ^= 1 << (bit % 8);
    }
}

impl Queue for MemoryQueue {
    fn frame(&mut self, pages: usize) -> Option<PageBuf> {
        self.frames.take(pages)
    }
    fn read(&mut self, _: DeviceId, page: u64, pages: usize, buf: PageBuf, _: Tag, token: u64) {
        self.reads += 1;
        self.pending.push(Pending::Read {
            page,
            pages,
            buf,
            token,
        });
    }
    fn write(
        &mut self,
        _: DeviceId,
        page: u64,
        buf: Arc<AlignedBuf>,
        first: usize,
        pages: usize,
        _: Tag,
        token: u64,
    ) {
        self.pending.push(Pending::Write {
            page,
            buf,
            first,
            pages,
            token,
        });
    }
    fn flush(&mut self, _: DeviceId, _: Tag, token: u64) {
        self.pending.push(Pending::Flush { token });
    }
    fn discard(&mut self, _: DeviceId, page: u64, pages: u64, _: Tag, token: u64) {
        self.pending.push(Pending::Discard { page, pages, token });
    }
}

/// Discarded pages may read as anything.
fn discard(device: &mut [u8], page: u64, pages: u64) {
    let at = page as usize * PAGE_SIZE;
    device[at..at + pages as usize * PAGE_SIZE].fill(0x5a);
}
