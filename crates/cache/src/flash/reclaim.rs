// SPDX-License-Identifier: Apache-2.0
//! The progress of a log's reclaim: its next read in the oldest region, and the events that it
//! waits for.
//!
//! `shard/reclaim.rs` and `shard/keep.rs` decide what becomes of the records. They ask
//! [`Flash::reclaim_next`] for the next step, and report its result to this file.

use senko_io::{PAGE_SIZE, PageBuf, Purpose, Queue, Tag};

use super::copying::Copying;
use super::{Flash, TOKEN_DISCARD, TOKEN_RECLAIM, token};
use crate::types::FRAME_PAGES;

/// A frame of the region being walked.
#[derive(Debug)]
pub(crate) struct Walk {
    pub frame: PageBuf,
    /// Position of the frame's first page, and pages in it.
    pub first: u64,
    pub pages: u64,
    /// Offset in the frame of the next record.
    pub at: usize,
}

/// What reclaim does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing now.
    Wait,
    /// Goes on with the copy of a record larger than a frame.
    Copy,
    /// Walks the records of a frame.
    Walk,
    /// Frees the region: all of it was walked, and no read is in it.
    Free,
    /// Reads pages from this position on, so many.
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
    /// Bytes reinserted from this region.
    reinserted: usize,
    /// When something last moved.
    progress_ms: u64,
    /// Pages to read next, where a record wants other than a frame.
    span: Option<u64>,
    /// Before this position pages are read one by one: a read of several failed.
    single_to: u64,
    failed_at: Option<u64>,
    /// A record larger than a frame on its way to its new place.
    copying: Option<Copying>,
    /// The read under way is of no use when it ends.
    stale_read: bool,
    /// Pages that copies of this region's records took.
    taken: u64,
    /// A live record found no space: only what dies in the region helps.
    stuck: bool,
}

impl Reclaim {
    /// Whether a region is on its way out.
    pub fn is_active(&self) -> bool {
        self.active
    }
    /// Whether it will free the region as soon as the device has moved.
    pub fn gets_on(&self) -> bool {
        self.active && !self.stuck
    }
    /// Whether nothing has moved for so long that the device must be stalled.
    pub fn stalled(&self, now_ms: u64, limit_ms: u64) -> bool {
        self.active && now_ms.saturating_sub(self.progress_ms) > limit_ms
    }
    /// Bytes that were written again of this region.
    pub fn reinserted(&self) -> usize {
        self.reinserted
    }
    /// This many bytes more were written again.
    pub fn reinsert(&mut self, bytes: usize) {
        self.reinserted += bytes;
    }

    /// The frame to walk.
    pub fn take_walk(&mut self) -> Walk {
        self.walk.take().expect("a frame to walk")
    }
    /// The walk of a frame continues later: a record waits for its place.
    pub fn walk_waits(&mut self, walk: Walk) {
        self.walk = Some(walk);
    }
    /// A frame was walked; continues at `next`.
    fn walked(&mut self, next: u64, now_ms: u64) {
        (self.next, self.span, self.progress_ms) = (next, None, now_ms);
    }
    /// A record continues behind its frame: reads again from its first page, `span` pages if given.
    pub fn read_again(&mut self, position: u64, span: Option<u64>) {
        (self.next, self.span) = (position, span);
    }
    /// A read of the region failed. Where all is kept, its pages are tried one by one, and only
    /// what can't be read then is passed over.
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

    /// A live record found no space, if `no_space`. Its attempt took this many pages.
    pub fn tried(&mut self, taken: u64, no_space: bool) {
        self.taken += taken;
        self.stuck = no_space;
    }
    /// A live record has its new place, which took this many pages.
    fn moved(&mut self, taken: u64, now_ms: u64) {
        self.taken += taken;
        (self.stuck, self.progress_ms) = (false, now_ms);
    }

    /// A copy is under way, or has to wait.
    pub fn copy_waits(&mut self, copying: Copying) {
        self.span = None;
        self.copying = Some(copying);
    }
    /// The copy under way.
    pub fn take_copy(&mut self) -> Copying {
        self.copying.take().expect("a copy")
    }
    /// A copy ended, well or not; continues at `next`.
    fn copied(&mut self, next: u64, now_ms: u64) {
        (self.next, self.progress_ms) = (next, now_ms);
    }
    /// A piece of a copy was placed, on this many new pages.
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
    /// The same, to tell it how a step went.
    pub fn reclaim_mut(&mut self, n: usize) -> &mut Reclaim {
        &mut self.reclaims[n]
    }

    /// A frame of a log's oldest region was walked; continues at `next`.
    pub fn walked(&mut self, n: usize, next: u64) {
        self.reclaims[n].walked(next, self.steady_ms);
    }
    /// A live record has its new place in a log, which took this many pages.
    pub fn moved(&mut self, n: usize, taken: u64) {
        self.reclaims[n].moved(taken, self.steady_ms);
    }
    /// A copy ended, well or not.
    pub fn copied(&mut self, n: usize, copying: &Copying) {
        self.reclaims[n].copied(copying.end(), self.steady_ms);
    }

    /// The next step of a log's reclaim. Begins one if the log runs out of pages.
    pub fn reclaim_next(&mut self, n: usize) -> Next {
        if self.closed {
            return Next::Wait;
        }
        let (log, r) = (&mut self.logs[n], &mut self.reclaims[n]);
        if !log.health().takes_items() {
            return Next::Wait; // it needs no space, and what is written again would be lost
        }
        if !r.active {
            if !log.runs_out() {
                return Next::Wait;
            }
            *r = Reclaim {
                active: true,
                next: log.oldest_region_first(),
                progress_ms: self.steady_ms,
                ..Reclaim::default()
            };
        }
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
            return if log.oldest_region_pins() > 0 {
                Next::Wait
            } else {
                Next::Free
            };
        }
        let pages = match r.span {
            Some(span) => span,
            None if r.next < r.single_to => 1,
            None => (end - r.next).min(FRAME_PAGES as u64),
        };
        Next::Read(r.next, pages)
    }

    /// Frees the oldest region of a log, and has it discarded.
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
            token(TOKEN_DISCARD, (n as u64) << 40 | region),
        );
    }

    /// Gets pages of the log to walk; whether they are here at once. If not, they come with
    /// [`Flash::reclaim_read`], or there is no frame now.
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

    /// Fills a frame with pages of the log: at once if they are all in write buffers, else
    /// [`Flash::reclaim_read`] gets it, or the next call if there is no frame.
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
            token(TOKEN_RECLAIM, n as u64),
        );
        None
    }

    /// Gets the next piece of the record being copied; whether it is here at once (`Some`: whether
    /// it is whole).
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

    /// A read of the oldest region ended; no frame: it failed. A read that came too late, for a
    /// copy that was given up, counts as well.
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
                // Their slots are caught when they are followed (SHARD-2).
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

    /// A piece of the record being copied is here; `None` if it can't be read. False if it is
    /// damaged.
    fn copy_read(&mut self, n: usize, frame: Option<PageBuf>) -> bool {
        let r = &mut self.reclaims[n];
        let copying = r.copying.as_mut().expect("a copy");
        let generation = self.logs[n].generation(copying.from());
        copying.take_piece(frame, r.reading_pages, generation)
    }

    /// Gives up the copy under way to a log whose device accepts no more: the record stays where it
    /// is, and is copied again when the device is back.
    pub fn cancel_copy(&mut self, n: usize) {
        if let Some(copying) = self.reclaims[n].cancel_copy() {
            self.logs[n].break_stream();
            self.logs[n].died(copying.slot().len());
        }
    }

    /// The bytes that reinsertion may take of a region: half of it.
    pub fn reinsertion_room(&self, n: usize) -> usize {
        self.logs[n].region_pages() as usize * PAGE_SIZE / 2
    }
}

/// How a read of the oldest region ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Well,
    Failed,
    /// The record that it is of is not whole.
    Damaged,
}
