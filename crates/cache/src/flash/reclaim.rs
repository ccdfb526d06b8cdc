// SPDX-License-Identifier: Apache-2.0
//! The progress of a log's reclaim: its next read in the oldest region, and the events that it
//! waits for.
//!
//! `shard/reclaim.rs` and `shard/keep.rs` decide which records are kept. They ask
//! [`Flash::reclaim_next`] for the next step, and report its result to this file.

use senko_io::{PAGE_SIZE, PageBuf, Purpose, Queue, Tag};

use super::copying::Copying;
use super::{Flash, TOKEN_DISCARD, TOKEN_RECLAIM, token};
use crate::types::FRAME_PAGES;

/// A frame of the region that reclaim walks through.
#[derive(Debug)]
pub(crate) struct Walk {
    pub frame: PageBuf,
    /// Position of the frame's first page, and pages in it.
    pub first: u64,
    pub pages: u64,
    /// Offset in the frame of the next record.
    pub at: usize,
}

/// The next step of a reclaim.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing can be done now.
    Wait,
    /// Continue the copy of a record larger than a frame.
    Copy,
    /// Walk the records of a frame.
    Walk,
    /// Free the region: all of it was walked, and no read is in it.
    Free,
    /// Read this many pages from this position on.
    Read(u64, u64),
}

/// The reclaim of one log.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    active: bool,
    /// Position of the next page to look at.
    next: u64,
    reading: bool,
    reading_pages: u64,
    walk: Option<Walk>,
    /// Bytes of this region that were reinserted.
    reinserted: usize,
    /// When it last made progress.
    progress_ms: u64,
    /// Pages to read next, if a record needs another number than a frame has.
    span: Option<u64>,
    /// Pages before this position are read one by one, because a read of several failed.
    single_to: u64,
    failed_at: Option<u64>,
    /// A record larger than a frame that is being copied.
    copying: Option<Copying>,
    /// Whether the read under way is useless when it ends.
    stale_read: bool,
    /// Pages that the copies of this region's records took.
    taken: u64,
    /// Whether a live record found no space. Then only more dead records in the region help.
    stuck: bool,
}

impl Reclaim {
    /// Whether a region is being reclaimed.
    pub fn is_active(&self) -> bool {
        self.active
    }
    /// Whether it will free the region once the device completes operations.
    pub fn gets_on(&self) -> bool {
        self.active && !self.stuck
    }
    /// Whether it made no progress for so long that the device must be stalled.
    pub fn stalled(&self, now_ms: u64, limit_ms: u64) -> bool {
        self.active && now_ms.saturating_sub(self.progress_ms) > limit_ms
    }
    /// Bytes of this region that were written again.
    pub fn reinserted(&self) -> usize {
        self.reinserted
    }
    /// Adds to the bytes that were written again.
    pub fn reinsert(&mut self, bytes: usize) {
        self.reinserted += bytes;
    }

    /// The frame to walk.
    pub fn take_walk(&mut self) -> Walk {
        self.walk.take().expect("a frame to walk")
    }
    /// Notes that the walk of a frame continues later, because a record waits for a place.
    pub fn walk_waits(&mut self, walk: Walk) {
        self.walk = Some(walk);
    }
    /// Notes that a frame was walked; continues at `next`.
    fn walked(&mut self, next: u64, now_ms: u64) {
        (self.next, self.span, self.progress_ms) = (next, None, now_ms);
    }
    /// Notes that a record continues beyond its frame. It is read again from its first page, with
    /// `span` pages if given.
    pub fn read_again(&mut self, position: u64, span: Option<u64>) {
        (self.next, self.span) = (position, span);
    }
    /// Handles a failed read of the region. If every live record is kept, its pages are read one by
    /// one, and only unreadable pages are skipped.
    pub fn unread(&mut self, keeps_all: bool) {
        if keeps_all && self.failed_at != Some(self.next) {
            self.failed_at = Some(self.next);
            self.single_to = self.next + self.reading_pages;
        } else if keeps_all {
            self.next += 1;
        } else {
            self.next += self.reading_pages;
        }
        self.span = None;
    }

    /// Notes that a live record found no space, if `no_space`. The attempt took this many pages.
    pub fn tried(&mut self, taken: u64, no_space: bool) {
        self.taken += taken;
        self.stuck = no_space;
    }
    /// Notes that a live record has its new place, which took this many pages.
    fn moved(&mut self, taken: u64, now_ms: u64) {
        self.taken += taken;
        (self.stuck, self.progress_ms) = (false, now_ms);
    }

    /// Notes that a copy is under way, or has to wait.
    pub fn copy_waits(&mut self, copying: Copying) {
        self.span = None;
        self.copying = Some(copying);
    }
    /// The copy under way.
    pub fn take_copy(&mut self) -> Copying {
        self.copying.take().expect("a copy")
    }
    /// Notes that a copy ended, with or without success; continues at `next`.
    fn copied(&mut self, next: u64, now_ms: u64) {
        (self.next, self.progress_ms) = (next, now_ms);
    }
    /// Notes that a piece of a copy was placed on this many new pages.
    pub(super) fn placed(&mut self, pages: u64, now_ms: u64) {
        self.taken += pages;
        self.progress_ms = now_ms;
    }
    /// Gives up the copy under way.
    fn cancel_copy(&mut self) -> Option<Copying> {
        let copying = self.copying.take()?;
        self.stale_read = self.reading;
        self.next = copying.from();
        Some(copying)
    }
}

impl Flash {
    /// The reclaim of a log.
    pub fn reclaim(&self, n: usize) -> &Reclaim {
        &self.reclaims[n]
    }
    /// The same, for reporting the result of a step.
    pub fn reclaim_mut(&mut self, n: usize) -> &mut Reclaim {
        &mut self.reclaims[n]
    }

    /// Notes that a frame of a log's oldest region was walked; continues at `next`.
    pub fn walked(&mut self, n: usize, next: u64) {
        self.reclaims[n].walked(next, self.steady_ms);
    }
    /// Notes that a live record has its new place in a log, which took this many pages.
    pub fn moved(&mut self, n: usize, taken: u64) {
        self.reclaims[n].moved(taken, self.steady_ms);
    }
    /// Notes that a copy ended, with or without success.
    pub fn copied(&mut self, n: usize, copying: &Copying) {
        self.reclaims[n].copied(copying.end(), self.steady_ms);
    }

    /// Begins a reclaim if the log runs out of pages.
    fn begin_reclaim<Q: Queue>(&mut self, queue: &mut Q, n: usize) -> bool {
        let log = &mut self.logs[n];
        if !log.runs_out() {
            return false;
        }
        log.leave_oldest(queue, self.steady_ms);
        self.reclaims[n] = Reclaim {
            active: true,
            next: log.oldest_region_first(),
            progress_ms: self.steady_ms,
            ..Reclaim::default()
        };
        // From now on no record of the region gets a slot.
        self.fail_uploads(n, false);
        true
    }

    /// The next step of a log's reclaim. It begins a reclaim if the log runs out of pages.
    pub fn reclaim_next<Q: Queue>(&mut self, queue: &mut Q, n: usize) -> Next {
        if self.closed {
            return Next::Wait;
        }
        if !self.logs[n].health().takes_items() {
            return Next::Wait; // it needs no space, and writing records again would lose them
        }
        if !self.reclaims[n].active && !self.begin_reclaim(queue, n) {
            return Next::Wait;
        }
        let (log, r) = (&mut self.logs[n], &mut self.reclaims[n]);
        if r.reading {
            return Next::Wait;
        }
        if r.copying.is_some() {
            return Next::Copy;
        }
        if r.walk.is_some() {
            return Next::Walk;
        }
        let end = log.tail() + log.region_pages();
        if r.next >= end {
            if !log.leave_oldest(queue, self.steady_ms) {
                return Next::Wait; // for the writes of its last chunks
            }
            if log.oldest_region_pins() == 0 {
                return Next::Free;
            }
            log.streams().wait_for(Some(log.tail()));
            // The last one may have ended before it could know.
            return match log.oldest_region_pins() {
                0 => Next::Free,
                _ => Next::Wait,
            };
        }
        let pages = match r.span {
            Some(span) => span,
            None if r.next < r.single_to => 1,
            None => (end - r.next).min(FRAME_PAGES as u64),
        };
        Next::Read(r.next, pages)
    }

    /// Frees the oldest region of a log and starts its discard.
    pub fn free_oldest<Q: Queue>(&mut self, queue: &mut Q, n: usize) {
        let (log, r) = (&mut self.logs[n], &mut self.reclaims[n]);
        let (device, page) = (log.device(), log.device_page(log.tail()));
        let region = log.free_oldest(r.taken, self.steady_ms);
        *r = Reclaim::default();
        queue.discard(
            device,
            page,
            log.region_pages(),
            Tag::cache(Purpose::Reclaim),
            token(TOKEN_DISCARD, self.shard, (n as u64) << 40 | region),
        );
    }

    /// Gets pages of the log to walk. Returns whether they are here at once. If not, they come with
    /// [`Flash::reclaim_read`], or no frame is free.
    pub fn read_to_walk<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        first: u64,
        pages: u64,
    ) -> bool {
        let Some(frame) = self.reclaim_fill(queue, n, first, pages) else {
            return false;
        };
        self.reclaims[n].walk = Some(Walk {
            frame,
            first,
            pages,
            at: 0,
        });
        true
    }

    /// Fills a frame with pages of the log: at once if they are all in write buffers. Otherwise
    /// [`Flash::reclaim_read`] gets it, or the next call does if no frame is free.
    fn reclaim_fill<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        first: u64,
        pages: u64,
    ) -> Option<PageBuf> {
        let frame = queue.frame(pages as usize);
        let mut frame = frame.or_else(|| self.reclaim_frames.take(pages as usize))?;
        let (log, r) = (&mut self.logs[n], &mut self.reclaims[n]);
        let from_device = log.copy_buffered(first, pages, &mut frame);
        if from_device == 0 {
            return Some(frame);
        }
        r.reading = true;
        r.reading_pages = pages;
        log.health.begin(self.steady_ms);
        queue.read(
            log.device(),
            log.device_page(first),
            from_device as usize,
            frame,
            Tag::cache(Purpose::Reclaim),
            token(TOKEN_RECLAIM, self.shard, n as u64),
        );
        None
    }

    /// Gets the next piece of the record being copied. `Some` if the piece is here at once, with
    /// whether it is intact.
    pub fn read_to_copy<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        copying: Copying,
    ) -> Option<bool> {
        let (first, pages) = copying.next_piece();
        self.reclaims[n].copying = Some(copying);
        let frame = self.reclaim_fill(queue, n, first, pages)?;
        self.reclaims[n].reading_pages = pages;
        Some(self.copy_read(n, Some(frame)))
    }

    /// Handles a read of the oldest region that ended; without a frame, it failed. A read that came
    /// too late, for a copy that was given up, counts as well.
    pub fn reclaim_read(&mut self, n: usize, frame: Option<PageBuf>, keeps_all: bool) -> Read {
        let (log, r) = (&mut self.logs[n], &mut self.reclaims[n]);
        r.reading = false;
        r.progress_ms = self.steady_ms;
        log.health.end(self.steady_ms);
        if std::mem::take(&mut r.stale_read) {
            return Read::Well;
        }
        let failed = frame.is_none();
        let whole = if r.copying.is_some() {
            self.copy_read(n, frame)
        } else {
            match frame {
                Some(frame) => {
                    r.walk = Some(Walk {
                        frame,
                        first: r.next,
                        pages: r.reading_pages,
                        at: 0,
                    });
                }
                // A look-up notices their slots when it follows them (SHARD-2).
                None => r.unread(keeps_all),
            }
            true
        };
        match (failed, whole) {
            (true, _) => Read::Failed,
            (false, false) => Read::Damaged,
            (false, true) => Read::Well,
        }
    }

    /// Takes a piece of the record being copied, or `None` if it can't be read. False if it is
    /// damaged.
    fn copy_read(&mut self, n: usize, frame: Option<PageBuf>) -> bool {
        let r = &mut self.reclaims[n];
        let copying = r.copying.as_mut().expect("a copy");
        let of = |position| self.logs[n].generation(position);
        let generations = (of(copying.from()), of(copying.to()));
        copying.take_piece(frame, r.reading_pages, generations)
    }

    /// Gives up the copy under way to a log whose device accepts no more writes. The record stays
    /// in its old place, and is copied again when the device is back.
    pub fn cancel_copy(&mut self, n: usize) {
        if let Some(copying) = self.reclaims[n].cancel_copy() {
            self.logs[n].break_stream();
            self.logs[n].died(copying.slot().len());
        }
    }

    /// The bytes of a region that reinsertion may write again: half of the region.
    pub fn reinsertion_room(&self, n: usize) -> usize {
        self.logs[n].region_pages() as usize * PAGE_SIZE / 2
    }
}

/// The result of a read of the oldest region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Well,
    Failed,
    /// The record to which it belongs is not whole.
    Damaged,
}
