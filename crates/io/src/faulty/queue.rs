// SPDX-License-Identifier: Apache-2.0
//! The queued interface: holds completions back and delivers them in an order drawn from the seed.

use std::sync::Arc;

use super::{FaultyDevice, Rng};
use crate::{
    AlignedBuf, Completion, Device, DeviceId, FramePool, IoError, Op, PAGE_SIZE, PageBuf, Queue,
    Tag,
};

struct Waiting {
    device: DeviceId,
    op: Op,
    page: u64,
    pages: usize,
    frame: Option<PageBuf>,
    source: Option<(Arc<AlignedBuf>, usize)>,
    /// A flush covers the writes with numbers below this.
    before: u64,
    tag: Tag,
    token: u64,
}

impl Waiting {
    /// The data of a write.
    fn data(&self) -> &[u8] {
        match &self.source {
            Some((buf, first)) => &buf[first * PAGE_SIZE..(first + self.pages) * PAGE_SIZE],
            None => &[],
        }
    }
}

/// The queued interface over one or more devices. An operation takes effect at the moment of its
/// completion, which the test requests. [`FaultyQueue::complete_one`] draws the order from the
/// seed.
pub struct FaultyQueue {
    devices: Vec<Arc<FaultyDevice>>,
    frames: FramePool,
    rng: Rng,
    waiting: Vec<Waiting>,
}

impl FaultyQueue {
    /// A queue over `devices`, numbered from 0. It takes frames like [`FramePool::new`].
    pub fn new(
        devices: Vec<Arc<FaultyDevice>>,
        frames: &[(usize, usize)],
        seed: u64,
    ) -> FaultyQueue {
        FaultyQueue {
            devices,
            frames: FramePool::new(frames),
            rng: Rng(seed),
            waiting: Vec::new(),
        }
    }

    /// The devices.
    pub fn devices(&self) -> &[Arc<FaultyDevice>] {
        &self.devices
    }

    /// The pool from which [`Queue::frame`] takes frames.
    pub fn frames(&self) -> &FramePool {
        &self.frames
    }

    /// Operations in flight.
    pub fn pending(&self) -> usize {
        self.waiting.len()
    }

    /// Completes one operation of a device that is not stalled, drawn from the seed; `None` if
    /// there is none.
    pub fn complete_one(&mut self) -> Option<Completion> {
        let stalled: Vec<bool> = self.devices.iter().map(|device| device.stalled()).collect();
        let free = |waiting: &Waiting| !stalled[waiting.device as usize];
        let count = self.waiting.iter().filter(|waiting| free(waiting)).count();
        if count == 0 {
            return None;
        }
        let chosen = self.rng.below(count as u64) as usize;
        let mut able = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, waiting)| free(waiting));
        let (index, _) = able
            .nth(chosen)
            .expect("chosen is below the count of those able");
        let mut waiting = self.waiting.remove(index);
        let device = &self.devices[waiting.device as usize];
        let result = match waiting.op {
            Op::Read => match &mut waiting.frame {
                Some(frame) => {
                    let bytes = &mut frame[..waiting.pages * PAGE_SIZE];
                    device.read(waiting.page, bytes, waiting.tag)
                }
                None => Err(IoError::Os(libc::EFAULT)),
            },
            Op::Write => device.write(waiting.page, waiting.data(), waiting.tag),
            Op::Flush => device.flush_before(waiting.before, waiting.tag),
            Op::Discard => device.discard(waiting.page, waiting.pages as u64, waiting.tag),
        };
        Some(Completion {
            token: waiting.token,
            op: waiting.op,
            result,
            buf: waiting.frame,
        })
    }

    /// Completes all operations of devices that are not stalled.
    pub fn complete_all(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.complete_one()).collect()
    }

    /// Kills the process: each write in flight has happened, has not, or has in part. The devices
    /// keep their contents.
    pub fn kill(mut self) -> Vec<Arc<FaultyDevice>> {
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.op == Op::Write {
                let device = &self.devices[waiting.device as usize];
                match self.rng.below(3) {
                    0 => {}
                    1 => drop(device.write(waiting.page, waiting.data(), waiting.tag)),
                    _ if device.check(waiting.page, waiting.data().len()).is_ok() => {
                        device.write_part(waiting.page, waiting.data());
                    }
                    _ => {}
                }
            }
        }
        self.devices
    }

    /// Loses power: writes in flight as in [`FaultyQueue::kill`], then every device as in
    /// [`FaultyDevice::crash`].
    pub fn crash(self) -> Vec<Arc<FaultyDevice>> {
        let devices = self.kill();
        for device in &devices {
            device.crash();
        }
        devices
    }

    #[allow(clippy::too_many_arguments)]
    fn push(
        &mut self,
        device: DeviceId,
        op: Op,
        page: u64,
        pages: usize,
        frame: Option<PageBuf>,
        source: Option<(Arc<AlignedBuf>, usize)>,
        tag: Tag,
        token: u64,
    ) {
        let before = self.devices[device as usize].next_write();
        self.waiting.push(Waiting {
            device,
            op,
            page,
            pages,
            frame,
            source,
            before,
            tag,
            token,
        });
    }
}

impl Queue for FaultyQueue {
    fn frame(&mut self, pages: usize) -> Option<PageBuf> {
        self.frames.take(pages)
    }

    fn read(
        &mut self,
        device: DeviceId,
        page: u64,
        pages: usize,
        buf: PageBuf,
        tag: Tag,
        token: u64,
    ) {
        assert!(buf.pages() >= pages, "the frame holds the pages asked for");
        self.push(device, Op::Read, page, pages, Some(buf), None, tag, token);
    }

    fn write(
        &mut self,
        device: DeviceId,
        page: u64,
        buf: Arc<AlignedBuf>,
        first: usize,
        pages: usize,
        tag: Tag,
        token: u64,
    ) {
        assert!(
            first + pages <= buf.pages(),
            "the buffer holds the pages to write"
        );
        self.push(
            device,
            Op::Write,
            page,
            pages,
            None,
            Some((buf, first)),
            tag,
            token,
        );
    }

    fn flush(&mut self, device: DeviceId, tag: Tag, token: u64) {
        self.push(device, Op::Flush, 0, 0, None, None, tag, token);
    }

    fn discard(&mut self, device: DeviceId, page: u64, pages: u64, tag: Tag, token: u64) {
        self.push(
            device,
            Op::Discard,
            page,
            pages as usize,
            None,
            None,
            tag,
            token,
        );
    }
}
