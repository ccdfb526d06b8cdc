// SPDX-License-Identifier: Apache-2.0
//! Merged pages and parts of the translation table: they fill their own segments, separate from the
//! log's, and the thread that writes them does not hold the log.
//!
//! Card: separate hot and cold data (Rosenblum and Ousterhout, SOSP 1991). The log's contents are
//! all dead a few checkpoints later. A merged page lives until the page is written again. If both
//! were in one segment, each would hold the other's space. Deviation: paper D, 2.2, writes one log.
//! Here only a checkpoint says where these pages are. So a crash before the checkpoint loses
//! nothing, and no commit waits for a page to be written.
//!
//! IMAGE-1: pages written here are durable before the checkpoint that names them
//! ([`Images::flush`]). IMAGE-2: the segment being filled is not freed or cleaned
//! ([`Images::open_segment`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::disk::entry::{HEAD, Head, place_of};
use crate::disk::log::Label;
use crate::disk::space::{SEGMENT, Space, UNIT, Use};
use crate::error::DbmError;

/// The segment that is being filled.
pub(crate) struct Images {
    device: Arc<dyn Device>,
    space: Arc<Space>,
    life: u32,
    /// The next page; at the beginning of a segment, no segment was taken yet.
    next: u64,
    /// Pages before `next` that are not written yet.
    buf: AlignedBuf,
    buffered: usize,
    /// Whether something was written since the last flush.
    unflushed: bool,
    /// The time of a page: the log's next entry, and the durable checkpoint, both as of the last
    /// [`Images::begin`].
    sequence: u64,
    checkpoint: u64,
}

impl Images {
    pub fn new(device: &Arc<dyn Device>, space: &Arc<Space>, life: u32) -> Images {
        Images {
            device: Arc::clone(device),
            space: Arc::clone(space),
            life,
            next: 0,
            buf: AlignedBuf::new(UNIT as usize),
            buffered: 0,
            unflushed: false,
            sequence: 0,
            checkpoint: 0,
        }
    }

    /// Pages that can be written before another segment is needed.
    pub fn left(&self) -> usize {
        ((SEGMENT - self.next % SEGMENT) % SEGMENT) as usize
    }

    /// The segment that is partly filled.
    pub fn open_segment(&self) -> Option<u32> {
        (self.left() > 0).then_some((self.next / SEGMENT) as u32)
    }

    /// Sets the time of the following pages: the log's next entry, and its durable checkpoint.
    pub fn begin(&mut self, sequence: u64, checkpoint: u64) {
        self.sequence = sequence;
        self.checkpoint = checkpoint;
    }

    /// Appends a page. What an erase unit holds is written at once, at its end or by
    /// [`Images::write_out`]. `fill` writes its body and returns how many bytes it used. Returns
    /// the page's place.
    pub fn append(
        &mut self,
        label: Label,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<u64, DbmError> {
        if self.left() == 0 {
            let last = self.next.saturating_sub(1) / SEGMENT;
            let segment = self.space.take(last as u32, self.checkpoint, Use::Pages)?;
            let next = u64::from(segment) * SEGMENT;
            if next != self.next {
                self.write_out()?;
            }
            self.next = next;
        }
        let number = self.next;
        let at = self.buffered * PAGE_SIZE;
        let page = &mut self.buf[at..at + PAGE_SIZE];
        let used = fill(&mut page[HEAD..]);
        page[HEAD + used..].fill(0);
        let head = Head {
            crc: 0,
            previous: 0,
            sequence: self.sequence,
            commit: label.commit,
            life: self.life,
            left: label.left,
            next_segment: 0,
            used: used as u16,
            kind: label.kind,
            first: label.first,
        };
        let place = place_of(number, head.seal(page));
        let stamp = &self.space.of(place).stamp;
        stamp.store(self.sequence, Ordering::Release);
        self.buffered += 1;
        self.next += 1;
        if self.next.is_multiple_of(UNIT) {
            self.write_out()?;
        }
        Ok(place)
    }

    pub fn write_out(&mut self) -> Result<(), DbmError> {
        if self.buffered == 0 {
            return Ok(());
        }
        let first = self.next - self.buffered as u64;
        let bytes = &self.buf[..self.buffered * PAGE_SIZE];
        self.buffered = 0;
        self.unflushed = true;
        self.space.wrote((bytes.len() / PAGE_SIZE) as u64);
        self.device
            .write(first, bytes, Tag::dbm(Purpose::Log))
            .map_err(DbmError::io("writing pages"))
    }

    /// Makes all written pages durable (IMAGE-1).
    pub fn flush(&mut self) -> Result<(), DbmError> {
        if self.unflushed {
            self.device
                .flush(Tag::dbm(Purpose::Log))
                .map_err(DbmError::io("making pages durable"))?;
            self.unflushed = false;
        }
        Ok(())
    }
}
