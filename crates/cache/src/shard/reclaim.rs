// SPDX-License-Identifier: Apache-2.0
//! The oldest region becomes free: its records are walked, those that were hit are written again,
//! the rest are forgotten.
//!
//! ```text
//! idle --(free pages below the mark)--> reading --> walking --(end of region)--> draining --(no reads pinned)--> idle
//!                                          ^---(next frame)---/
//! ```
//!
//! Where nothing may be evicted, every live record is written again: `keep.rs` walks the frames
//! then.
//!
//! Always holds: after the walk no slot of an intact record names the region. Slots of damaged ones
//! stay, but name a lap that is over, so they are never followed (SHARD-2); one pass over the index
//! each lap removes them before lap numbers repeat. Reinsertion takes at most half of a region, so
//! each round frees space.

use senko_io::{Completion, PAGE_SIZE, PageBuf, Purpose, Queue, Tag};

use super::fate::Fate;
use super::keep::Copying;
use crate::flash::log::NoPlace;
use crate::flash::{TOKEN_DISCARD, TOKEN_RECLAIM, token};
use crate::index::{Index, Slot};
use crate::key::Key;
use crate::record::{self, At, Header, RECORD_HEADER};
use crate::shard::Shard;
use crate::types::FRAME_PAGES;

/// A frame of the region being walked.
#[derive(Debug)]
pub(super) struct Walk {
    pub frame: PageBuf,
    /// Position of the frame's first page, and pages in it.
    pub first: u64,
    pub pages: u64,
    /// Offset in the frame of the next record.
    pub at: usize,
}

/// The reclaim of one log.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    active: bool,
    /// Position of the next page to look at.
    pub(super) next: u64,
    pub(super) reading: bool,
    pub(super) reading_pages: u64,
    pub(super) walk: Option<Walk>,
    /// Bytes reinserted from this region.
    reinserted: usize,
    /// When something last moved.
    pub(super) progress_ms: u64,
    /// Pages to read next, where a record wants other than a frame.
    pub(super) span: Option<u64>,
    /// Before this position pages are read one by one: a read of several failed.
    pub(super) single_to: u64,
    pub(super) failed_at: Option<u64>,
    /// A record larger than a frame on its way to its new place.
    pub(super) copying: Option<Copying>,
    /// The read under way is of no use when it ends.
    pub(super) stale_read: bool,
    /// Pages that copies of this region's records took.
    pub(super) taken: u64,
    /// A live record found no space: only what dies in the region helps.
    pub(super) stuck: bool,
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
}

impl Shard {
    /// Goes on with reclaim as far as it can now.
    pub(crate) fn reclaim<Q: Queue>(&mut self, queue: &mut Q, n: usize) {
        if self.closed {
            return;
        }
        loop {
            let (log, r) = (&mut self.logs[n], &mut self.reclaims[n]);
            if !log.health.takes_items() {
                return; // it needs no space, and what is written again would be lost
            }
            if !r.active {
                if !log.runs_out() {
                    return;
                }
                *r = Reclaim {
                    active: true,
                    next: log.oldest_region_first(),
                    progress_ms: self.steady_ms,
                    ..Reclaim::default()
                };
            }
            if r.reading {
                return;
            }
            if r.copying.is_some() {
                if !self.copy_on(queue, n) {
                    return;
                }
                continue;
            }
            if r.walk.is_some() {
                let went = if self.keeps_all() {
                    self.walk_kept(queue, n)
                } else {
                    self.walk(queue, n)
                };
                if !went {
                    return;
                }
                continue;
            }
            let end = log.tail() + log.region_pages();
            if r.next >= end {
                if log.oldest_region_pins() > 0 {
                    return;
                }
                let (device, page, pages) = (
                    log.device(),
                    log.device_page(log.tail()),
                    log.region_pages(),
                );
                let taken = self.reclaims[n].taken;
                let region = self.logs[n].free_oldest(taken, self.steady_ms);
                self.stats.reclaim_regions += 1;
                self.shed_in_vain = false;
                self.sweep_for_region(n);
                self.reclaims[n] = Reclaim::default();
                queue.discard(
                    device,
                    page,
                    pages,
                    Tag::cache(Purpose::Reclaim),
                    token(TOKEN_DISCARD, (n as u64) << 40 | region),
                );
                continue;
            }
            let left = (end - r.next).min(FRAME_PAGES as u64);
            let pages = match r.span {
                Some(span) => span,
                None if r.next < r.single_to => 1,
                None => left,
            };
            let first = r.next;
            match self.reclaim_fill(queue, n, first, pages) {
                Some(frame) => {
                    let r = &mut self.reclaims[n];
                    r.walk = Some(Walk {
                        frame,
                        first,
                        pages,
                        at: 0,
                    });
                }
                None => return,
            }
        }
    }

    /// Fills a frame with pages of the log: at once if they are all in write buffers, else
    /// [`Shard::reclaim_read`] gets it, or the next call if there is no frame.
    pub(super) fn reclaim_fill<Q: Queue>(
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

    /// A piece of the oldest region was read.
    pub(crate) fn reclaim_read<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        completion: Completion,
    ) {
        let r = &mut self.reclaims[n];
        r.reading = false;
        r.progress_ms = self.steady_ms;
        self.logs[n].health.end(self.steady_ms);
        let stale = std::mem::take(&mut r.stale_read);
        match (completion.result, completion.buf) {
            _ if stale => {}
            (Ok(()), Some(frame)) if r.copying.is_some() => self.copy_read(n, Some(frame)),
            _ if r.copying.is_some() => {
                self.stats.flash_read_errors += 1;
                self.copy_read(n, None);
            }
            (Ok(()), Some(frame)) => {
                r.walk = Some(Walk {
                    frame,
                    first: r.next,
                    pages: r.reading_pages,
                    at: 0,
                })
            }
            _ => {
                // Their slots are caught when they are followed (SHARD-2).
                self.stats.flash_read_errors += 1;
                self.region_unread(n);
            }
        }
        self.reclaim(queue, n);
    }

    /// Walks the records of a frame; false if it has to wait for a write buffer.
    fn walk<Q: Queue>(&mut self, queue: &mut Q, n: usize) -> bool {
        let mut walk = self.reclaims[n].walk.take().expect("a frame to walk");
        let generation = self.logs[n].generation(walk.first);
        let end = walk.pages as usize * PAGE_SIZE;
        while walk.at < end {
            let page = walk.at / PAGE_SIZE;
            let run = &walk.frame[page * PAGE_SIZE..end];
            let in_page = record::skip_gap(run, walk.at % PAGE_SIZE, PAGE_SIZE);
            let header = match record::peek(run, in_page, PAGE_SIZE) {
                At::Record(header) if record::head_intact(&run[in_page..], &header, generation) => {
                    header
                }
                _ => {
                    walk.at = (page + 1) * PAGE_SIZE;
                    continue;
                }
            };
            let len = header.record_len();
            let position = walk.first + page as u64;
            let next_at = page * PAGE_SIZE
                + if in_page + len > PAGE_SIZE {
                    (in_page + len).next_multiple_of(PAGE_SIZE)
                } else {
                    record::next_offset(in_page, len)
                };
            match self.fate(n, run, in_page, &header, position) {
                Fate::Forget => {}
                Fate::Reinsert(..)
                    if in_page + len > run.len() && page > 0 && len <= FRAME_PAGES * PAGE_SIZE =>
                {
                    // It goes on behind this frame: read again from its start (its slot is
                    // untouched).
                    self.reclaims[n].next = position;
                    return true;
                }
                Fate::Reinsert(slot, hash) => {
                    if !self.reinsert(
                        queue,
                        n,
                        slot,
                        hash,
                        &header,
                        run.get(in_page..in_page + len),
                    ) {
                        self.reclaims[n].walk = Some(walk);
                        return false;
                    }
                }
            }
            walk.at = next_at;
        }
        // A record may reach beyond the frame.
        self.reclaims[n].next = walk.first + (walk.at.div_ceil(PAGE_SIZE)) as u64;
        self.reclaims[n].progress_ms = self.steady_ms;
        true
    }

    /// Forgets a record of the oldest region, or says that it should be written again.
    pub(super) fn fate(
        &mut self,
        n: usize,
        run: &[u8],
        at: usize,
        header: &Header,
        position: u64,
    ) -> Fate {
        let key = Key::new(record::key_at(run, at, header), self.config.hash_seed);
        let (page, lap) = self.logs[n].place_of(position);
        let here = |index: &Index, slot: Slot| index.page(slot) == page && slot.lap() == lap & 3;
        // A promoted item loses its clean copy.
        let mut promoted = 0;
        let found = self.index.find(key.hash, |slot| {
            if slot.is_flash() {
                return here(&self.index, slot);
            }
            let item = self.index.handle(slot);
            let copy = self.arena.flash_copy(item);
            if copy != Slot::EMPTY
                && self.index.page(copy) == page
                && self.arena.item_key(item) == key.bytes
            {
                promoted = item;
            }
            false
        });
        if promoted != 0 {
            self.arena.set_flash_copy(promoted, Slot::EMPTY);
        }
        let Some((pos, slot)) = found else {
            return Fate::Forget;
        };
        let live = !record::expired(header.expiry, self.now)
            && !self.logs[n].is_invalid_for_good(position);
        let room = self.reclaims[n].reinserted + header.record_len()
            <= self.logs[n].region_pages() as usize * PAGE_SIZE / 2;
        let hot = slot.hot() > 0 && self.config.reinsert && room;
        if live && (hot || self.keeps_all()) {
            return Fate::Reinsert(slot, key.hash);
        }
        self.index.remove(pos);
        if self.keeps_all() && self.logs[n].is_unwritten(position) {
            self.stats.drops_error += 1;
        } else if live {
            self.stats.reclaim_drops += 1;
        } else {
            self.stats.reclaimed += 1;
        }
        Fate::Forget
    }

    /// Writes a record that was hit again; false if it has to wait for a write buffer. Without
    /// bytes (it is larger than a frame), without space, over budget, or damaged, it is forgotten.
    fn reinsert<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        slot: Slot,
        hash: u64,
        header: &Header,
        bytes: Option<&[u8]>,
    ) -> bool {
        let len = header.record_len();
        let pages = len.div_ceil(PAGE_SIZE) as u64;
        let mut place = bytes.filter(|b| record::intact(b));
        if place.is_some() {
            match self.logs[n].room_now(queue, pages, 0, self.steady_ms) {
                Ok(()) => {}
                Err(NoPlace::Buffers) => return false,
                Err(NoPlace::Space) => place = None,
            }
        }
        if place.is_some() && self.admitter.spend(len).is_err() {
            place = None;
            self.stats.drops_budget += 1;
        }
        let Some(bytes) = place else {
            self.drop_flash_slot(hash, slot);
            self.stats.reclaim_drops += 1;
            return true;
        };
        // It was hit: its record says so from now on, and its slot forgets.
        let mut header = *header;
        let m = header.meta(0);
        header.set_marks(true, m.stale, m.won, m.binary_key);
        self.write_again(queue, n, slot.with_hot(0), hash, &header, bytes);
        self.reclaims[n].reinserted += len;
        true
    }

    /// Copies an intact record to a new place, for which there is room; its slot then names that,
    /// as hot as `slot` (else it is the one that there is).
    pub(super) fn write_again<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        slot: Slot,
        hash: u64,
        header: &Header,
        bytes: &[u8],
    ) {
        let len = header.record_len();
        let (log, tag) = (&mut self.logs[n], self.index.tag(hash));
        let placed = if len <= PAGE_SIZE {
            log.place_small(len, tag)
        } else {
            log.place_large(len, header.prefix_len(), tag)
        };
        let (position, offset) = placed.expect("room was asked for");
        let text = &bytes[RECORD_HEADER..header.prefix_len()];
        let mut head = record::flash_head(header, log.generation(position), text);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[4..]), &bytes[RECORD_HEADER..]);
        head[..4].copy_from_slice(&crc.to_le_bytes());
        log.put(position, offset, &head);
        log.put(position, offset + RECORD_HEADER, &bytes[RECORD_HEADER..]);
        log.settle(queue, self.steady_ms);
        let (pos, _) = self
            .index
            .find_same(hash, slot)
            .expect("the slot was just found");
        let moved = self.moved_slot(n, position, slot, hash, header);
        self.index.set(pos, moved);
    }

    /// The slot of a record that was written again, which is counted.
    pub(super) fn moved_slot(
        &mut self,
        n: usize,
        position: u64,
        slot: Slot,
        hash: u64,
        header: &Header,
    ) -> Slot {
        let len = header.record_len();
        self.stats.reinsertions += 1;
        self.stats.reinserted_bytes += len as u64;
        let page = self.logs[n].place_of(position);
        let pages = len.div_ceil(PAGE_SIZE);
        self.index
            .flash_slot(hash, page, pages, header.expiry, self.now)
            .with_hot(slot.hot())
    }
}
