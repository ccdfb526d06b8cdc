// SPDX-License-Identifier: Apache-2.0
//! Places records on flash: a circular log of pages over one slice of a device.
//!
//! Pages have *absolute* positions that only grow; position modulo the slice's pages is the place
//! on the device. A region is an aligned run of pages, the unit of reclaim. Its number (the
//! *generation* of its records) never repeats, and it is the seed of their header checksums. So a
//! record of an earlier lap is never taken for a current one.
//!
//! ```text
//!            tail                                        head
//!  ...free... | oldest region | region | ... | region with | chunk chunk | ...free (tail + pages) |
//!               being reclaimed   on flash     in flight      being filled
//! ```
//!
//! Paper E: an item that never straddles a 4 KB page costs one read. So records of up to a page are
//! packed by best fit into a few open pages. Paper B: a larger record takes the fewest pages that
//! hold it. Here it ends at the end of its last page, and small records fill the front of its first
//! page. In paper B it starts at the start of its first page, and half a page per record stays
//! empty. Where sizes leave pages empty all the same, records cross from page to page, which costs
//! a larger read and no second one (`open_pages.rs`). Chunks (runs of pages in DRAM) are written in
//! order, each once. The two newest stay open for small records, so pages leave nearly full.
//!
//! Always holds:
//! - LOG-1: `tail <= head <= tail + pages`, and `tail` is the start of a region.
//! - LOG-2: of a run of pages of one record or one region, those in write buffers are the end.
//! - LOG-3: no record wraps around the end of the slice.
//! - LOG-4: a page never holds two records whose keys have the same tag, so it never holds two
//!   records of one key. A slot consists of a tag and a page, so it names exactly one record.
//!   Otherwise a look-up could find a second record through it, long after that record's own slot
//!   is gone.
//! - LOG-7: a record of up to a page ends in the region in which it begins. A page in which a
//!   record without pieces ends that begins in an earlier page has a mark, unless the record fills
//!   it. The mark says where the next record may begin.

mod ahead; // regions ahead of the head, for values that are written as they arrive
mod mark; // where a log of an earlier process continues

use std::sync::Arc;

use senko_io::{AlignedBuf, DeviceId, PAGE_SIZE, Purpose, Queue, Tag};

use super::dead::Dead;
use super::discards::Discards;
use super::health::Health;
use super::invalid::InvalidRanges;
use super::open_pages::{OpenPages, Sizes};
use super::{TOKEN_PROBE, TOKEN_WRITE, token};
use crate::config::DeviceSlice;
use crate::record::{self, RECORD_ALIGN};
use crate::stream::Streams;
use crate::types::FRAME_PAGES;
use crate::words::{LogWord, State};
use ahead::Ahead;

pub(crate) use mark::LogMark;

/// Chunks that stay open for small records.
const OPEN_CHUNKS: usize = 2;

/// Why a record gets no place now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// All write buffers are on their way to the device.
    Buffers,
    /// The log is full: a region must be reclaimed first.
    Space,
}

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Of its first page, and where it begins in it.
    pub position: u64,
    pub offset: usize,
    /// Where the next record may begin, counted from the start of that page.
    end: usize,
}

impl Place {
    /// Pages in which the record lies.
    pub fn pages(&self) -> usize {
        self.end.div_ceil(PAGE_SIZE)
    }
}

#[derive(Debug)]
struct Chunk {
    buf: Arc<AlignedBuf>,
    /// Absolute position of its first page.
    first: u64,
    /// Pages given out.
    used: usize,
    submitted_ms: u64,
    written: bool,
}

/// The state of a region besides its place.
#[derive(Clone, Copy, Debug, Default)]
struct Region {
    /// Reads in flight in this region.
    pins: u32,
    /// First page, counted within the region, at which a record starts.
    first_record: u32,
    /// Whether it was given to uploads (`log/ahead.rs`).
    uploads: bool,
}

#[derive(Debug)]
pub(crate) struct Log {
    /// The numbers of the shard and of the log in it, for tokens.
    shard: u8,
    number: usize,
    device: DeviceId,
    first_page: u64,
    pages: u64,
    /// The shard's page number of this log's first page.
    base: u64,
    region_pages: u64,
    regions: Vec<Region>,
    head: u64,
    /// Regions given to uploads.
    ahead: Ahead,
    /// The place in the slice of the first page that was not given out, and its lap.
    head_at: u64,
    lap: u64,
    tail: u64,
    chunk_pages: u64,
    /// Chunks being filled, oldest first.
    open: Vec<Chunk>,
    in_flight: Vec<Chunk>,
    /// Free buffers, with the bytes of their last use.
    spare: Vec<Arc<AlignedBuf>>,
    /// Pages that small records may go to.
    open_pages: OpenPages,
    /// Records on their way to clients.
    streams: Arc<Streams>,
    /// Where the streamed record starts and ends.
    stream: Option<(u64, u64)>,
    /// Free pages for the largest record that found no space.
    wanted: u64,
    /// If every live record is kept: free pages that only reclaim may take, and the most pages of a
    /// record (KEEP-4).
    kept: Option<(u64, u64)>,
    /// Bytes of records that no slot names any more.
    dead: Dead,
    /// Freed regions that can't be written yet.
    pub(super) discards: Discards,
    /// Positions that were flushed, that were never written, or whose device is out of use.
    invalid: InvalidRanges,
    /// The state of its device.
    pub(super) health: Health,
    /// The pages of a probe, while it is written.
    probe: Option<Arc<AlignedBuf>>,
    /// Bytes of records, and bytes of their pages.
    pub(super) record_bytes: u64,
    pub(super) page_bytes: u64,
    /// A random number of this life of the shard, so that records of an earlier life have other
    /// generations.
    life: u32,
    /// Whether placing has ended for good.
    closed: bool,
    /// Where another process finds the progress of this log, if the log outlives its process.
    state: Option<State>,
}

impl Log {
    pub fn new(
        (shard, number): (u8, usize),
        slice: DeviceSlice,
        base: u64,
        region_pages: u64,
        chunk_pages: u64,
        chunks: usize,
    ) -> Log {
        assert!(chunks > OPEN_CHUNKS && region_pages.is_multiple_of(chunk_pages));
        let regions = slice.pages / region_pages;
        Log {
            shard,
            number,
            device: slice.device,
            first_page: slice.first_page,
            pages: regions * region_pages,
            base,
            region_pages,
            regions: vec![Region::default(); regions as usize],
            head: 0,
            ahead: Ahead::default(),
            head_at: 0,
            lap: 0,
            tail: 0,
            chunk_pages,
            open: Vec::new(),
            in_flight: Vec::new(),
            spare: (0..chunks)
                .map(|_| Arc::new(AlignedBuf::new(chunk_pages as usize)))
                .collect(),
            open_pages: OpenPages::default(),
            streams: Arc::new(Streams::new(regions as usize, region_pages)),
            stream: None,
            wanted: 0,
            kept: None,
            dead: Dead::default(),
            discards: Discards::default(),
            invalid: InvalidRanges::default(),
            health: Health::new(),
            probe: None,
            record_bytes: 0,
            page_bytes: 0,
            life: 0,
            closed: false,
            state: None,
        }
    }

    /// Sets the log's life, and the words where it stores its progress.
    pub fn live(&mut self, life: u32, state: Option<State>) {
        (self.life, self.state) = (life, state);
        self.tell(LogWord::Tail, self.tail);
        self.tell(LogWord::Flushed, self.invalid.flushed());
        // `written` is never beyond `opened`, even for a reader that sees only one of the two
        // updates.
        self.tell(LogWord::Opened, self.head);
        self.tell(LogWord::Written, self.head);
        for n in 0..self.regions.len() {
            self.tell_region(n);
        }
    }

    fn tell(&self, word: LogWord, position: u64) {
        if let Some(state) = &self.state {
            state.set_log(self.number, word, position);
        }
    }

    fn tell_region(&self, n: usize) {
        if let Some(state) = &self.state {
            let first = (self.base / self.region_pages) as usize;
            state.set_region(first + n, self.regions[n].word());
        }
    }

    /// The position before which all writes have ended.
    pub fn written_to(&self) -> u64 {
        let oldest = self.in_flight.first().or(self.open.first());
        oldest.map_or(self.head, |chunk| chunk.first)
    }

    /// Sends all write buffers to the device, and accepts no more records.
    pub fn close<Q: Queue>(&mut self, queue: &mut Q, now_ms: u64) {
        self.closed = true;
        while !self.open.is_empty() {
            self.submit_oldest(queue, now_ms);
        }
    }

    /// Whether every write has ended.
    pub fn is_written(&self) -> bool {
        self.open.is_empty() && self.in_flight.is_empty()
    }

    pub fn life(&self) -> u32 {
        self.life
    }
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    pub fn health(&self) -> &Health {
        &self.health
    }
    pub fn device(&self) -> DeviceId {
        self.device
    }
    /// Records on their way to clients.
    pub fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }
    pub fn pages(&self) -> u64 {
        self.pages
    }
    /// The most pages of a record. With the empty end of the slice before it, it takes less than
    /// all regions but one. So reclaim, which makes room region by region, never reaches the region
    /// of the head.
    pub fn most_pages(&self) -> u64 {
        let most = (self.pages - self.region_pages) / 2;
        self.kept.map_or(most, |(_, largest)| largest)
    }
    pub fn base(&self) -> u64 {
        self.base
    }
    pub fn region_pages(&self) -> u64 {
        self.region_pages
    }
    pub fn tail(&self) -> u64 {
        self.tail
    }
    /// Pages that can be given out now.
    pub fn free_pages(&self) -> u64 {
        self.tail + self.pages - self.taken() - self.discarding_pages()
    }
    fn discarding_pages(&self) -> u64 {
        self.discards.regions() * self.region_pages
    }
    /// Notes that a record of `pages` pages found no space, so reclaim must free more regions than
    /// usual.
    pub fn want(&mut self, pages: u64) {
        self.wanted = self.wanted.max(self.with_wrap(pages));
    }
    /// Lets reclaim free a sixteenth of the pages in use although there is room, because the index
    /// has no memory for more items.
    pub fn want_fewer_items(&mut self) {
        let (coming, used) = (
            self.free_pages() + self.discarding_pages(),
            self.used_pages(),
        );
        if self.wanted <= coming && used > 4 * self.region_pages {
            self.wanted = coming + (used / 16).max(self.region_pages);
        }
    }
    /// Whether a region should be reclaimed.
    pub fn runs_out(&mut self) -> bool {
        let coming = self.free_pages() + self.discarding_pages();
        if coming >= self.wanted {
            self.wanted = 0;
        }
        coming < (2 * self.region_pages).max(self.wanted) + self.reserve() && self.reclaim_pays()
    }
    pub fn used_pages(&self) -> u64 {
        self.taken() - self.tail
    }

    // ---- if every live record is kept (`docs/architecture/no-eviction.md`) ----

    /// Makes the log keep every live record. No record has more than `largest` pages.
    pub fn keep_all(&mut self, largest: u64) {
        let largest = largest.min(self.region_pages);
        self.kept = Some((2 * self.region_pages + largest, largest));
    }
    /// Pages that a record which is not yet in the log must leave free (KEEP-4).
    pub fn reserve(&self) -> u64 {
        self.kept.map_or(0, |(reserve, _)| reserve)
    }
    fn used_bytes(&self) -> u64 {
        self.used_pages() * PAGE_SIZE as u64
    }
    fn region_bytes(&self) -> u64 {
        self.region_pages * PAGE_SIZE as u64
    }
    /// Notes that a slot or a clean copy is gone. Its record in this log has this many pages
    /// ([`crate::index::Slot::len`]).
    pub fn died(&mut self, pages: usize) {
        self.dead.died(pages);
    }
    /// Notes that a region was freed whose copies took this many pages.
    fn gained(&mut self, taken: u64) {
        let gain = (self.region_pages as i64 - taken as i64) * PAGE_SIZE as i64;
        let (regions, used) = (self.regions.len() as u64, self.used_bytes());
        self.dead
            .reclaimed(gain, regions, self.region_bytes(), used);
    }
    /// Whether a new record of a page may find a place, now or after reclaim.
    pub fn may_take(&self) -> bool {
        self.free_pages() + self.discarding_pages() > self.reserve() || self.reclaim_pays()
    }
    fn reclaim_pays(&self) -> bool {
        self.kept.is_none() || self.dead.pays(self.region_bytes(), self.used_bytes())
    }

    // ---- positions ----

    /// The position before which everything was given out.
    fn taken(&self) -> u64 {
        self.ahead.regions_end().unwrap_or(self.head)
    }
    fn note_taken(&mut self) {
        let taken = self.taken();
        (self.lap, self.head_at) = (taken / self.pages, taken % self.pages);
    }
    /// Tells the next process that positions before this may have been given out.
    fn tell_opened(&self, position: u64) {
        self.tell(LogWord::Opened, position.max(self.taken()));
    }
    /// Moves the head past the regions of uploads if `pages` pages do not fit before them.
    fn make_way(&mut self, pages: u64) {
        if !self.ahead.is_before(self.head + pages) {
            self.pass();
        }
    }
    /// Moves the head past the regions of uploads. The rest of its region stays as it was on the
    /// device: records there have an older generation.
    fn pass(&mut self) {
        if let Some(end) = self.ahead.pass() {
            self.head = end;
        }
    }

    fn region_of(&self, position: u64) -> usize {
        (position / self.region_pages % self.regions.len() as u64) as usize
    }
    /// The shard's page number of a position, and its lap.
    pub fn place_of(&self, position: u64) -> (u64, u64) {
        (self.base + position % self.pages, position / self.pages)
    }
    pub fn device_page(&self, position: u64) -> u64 {
        self.first_page + position % self.pages
    }
    /// The position that a slot's page and lap (modulo 4) name, if the record there still exists.
    /// It does no division, because every slot that is met goes through here.
    #[inline]
    pub fn position_of(&self, page: u64, lap: u64) -> Option<u64> {
        let at = page - self.base;
        let newest = if at < self.head_at {
            self.lap
        } else {
            self.lap.checked_sub(1)?
        };
        let position = newest * self.pages + at;
        (newest & 3 == lap && position >= self.tail).then_some(position)
    }
    /// Whether a position is invalid. The record at a valid position may be read: it was not
    /// flushed, its write did not fail, and its device is in use.
    #[inline]
    pub fn is_invalid(&self, position: u64) -> bool {
        self.invalid.has(position)
    }
    /// The same, but positions that are only hidden while the device is out of use count as valid.
    pub fn is_invalid_for_good(&self, position: u64) -> bool {
        self.invalid.for_good(position)
    }
    /// Whether the record at a position is gone because of a failed write, and not because of an
    /// earlier `flush_all`.
    pub fn is_unwritten(&self, position: u64) -> bool {
        self.invalid.is_unwritten(position)
    }
    /// Hides the records of this log, or shows them again.
    pub fn hide(&mut self, on: bool) {
        self.invalid.hide(on);
        self.streams.set_out(on);
    }
    /// The seed of the header checksum of a record at this position: the number of its region,
    /// counted from the start of the log's life.
    pub fn generation(&self, position: u64) -> u32 {
        ((position / self.region_pages) as u32)
            .wrapping_add(1)
            .wrapping_add(self.life)
    }
    /// Makes everything stored so far invalid. Later records go to other pages.
    pub fn flush_all(&mut self) {
        self.open_pages.clear();
        self.pass();
        self.ahead.end();
        self.invalid.flush(self.head);
        self.dead.all(self.used_bytes());
        // The head may lie within the opened pages, but another process would only know the end of
        // those. So no record is placed before that end any more.
        self.tell(LogWord::Flushed, self.head);
    }
    /// When the oldest unfinished write was submitted.
    pub fn oldest_write_ms(&self) -> Option<u64> {
        self.in_flight.first().map(|c| c.submitted_ms)
    }

    /// Pages from `from` on that a record of `pages` pages would take, including pages left empty
    /// at the end of the slice (LOG-3).
    fn with_wrap(&self, pages: u64) -> u64 {
        let left = self.pages - self.head % self.pages;
        if pages > left { left + pages } else { pages }
    }

    /// Whether a record of `pages` pages has a place that leaves `leave` pages free, and whether
    /// there are buffers for all of it.
    fn room(&self, pages: u64, leave: u64) -> Result<(), NoPlace> {
        if self.closed {
            return Err(NoPlace::Buffers);
        }
        let pages = self.with_wrap(pages);
        // Pages before the regions of uploads are the head's already.
        if !self.ahead.is_before(self.head + pages) && pages + leave > self.free_pages() {
            return Err(NoPlace::Space);
        }
        if pages > self.buffered_room() {
            Err(NoPlace::Buffers)
        } else {
            Ok(())
        }
    }

    /// Pages for which there are buffers.
    fn buffered_room(&self) -> u64 {
        self.open_room() + self.chunk_pages * self.spare.len() as u64
    }

    /// Pages at the head that the last open chunk takes.
    fn open_room(&self) -> u64 {
        let last = self.open.last();
        let at_head = last.filter(|c| c.first + c.used as u64 == self.head);
        at_head.map_or(0, |c| self.chunk_pages - c.used as u64)
    }

    /// Finds a place for a record, if there are space and buffers for all of it: in the open page
    /// that it fills best, or in new pages. [`Log::put`] the bytes, then [`Log::end_record`], then
    /// [`Log::settle`]. A record larger than a frame shares no page: its pieces are whole pages. In
    /// a log that keeps all, the record crosses pages only if it `may_cross` (KEEP-5).
    pub fn place_record(&mut self, record: Sizes, may_cross: bool) -> Result<Place, NoPlace> {
        let Sizes { len, tag, .. } = record;
        if len <= PAGE_SIZE
            && let Some((position, offset)) = self.open_pages.take(len, tag)
        {
            self.placed(len);
            return Ok(Place {
                position,
                offset,
                end: record::place_end(offset, len),
            });
        }
        let pages = len.div_ceil(PAGE_SIZE) as u64;
        if pages > FRAME_PAGES as u64 {
            let position = self.place(pages, pages)?;
            self.placed(len);
            return Ok(Place {
                position,
                offset: 0,
                end: pages as usize * PAGE_SIZE,
            });
        }
        let crosses = match self.kept {
            None => self.open_pages.lose(),
            Some(_) => may_cross,
        };
        if self.stream.is_none() {
            self.make_way(pages);
        }
        let left = match self.head % self.region_pages {
            0 => 0,
            inside => self.region_pages - inside,
        };
        let spot = self.open_pages.spot(record, self.head, left, crosses);
        // A record may begin in the page in which this one ends.
        let whole = spot.pages - u64::from(!spot.end.is_multiple_of(PAGE_SIZE));
        let position = self.place(spot.pages, whole)? - u64::from(spot.shares);
        self.placed(len);
        self.open_pages.fill(&spot, position, tag);
        Ok(Place {
            position,
            offset: spot.offset,
            end: spot.end,
        })
    }

    fn placed(&mut self, len: usize) {
        self.record_bytes += len as u64;
        self.dead.placed(len);
    }

    /// Marks the page in which a record ends, if it begins in an earlier one. All of the record has
    /// been put to its place.
    pub fn end_record(&mut self, place: &Place) {
        let Some((mark, at)) = record::mark_end(place.end) else {
            return;
        };
        let page = place.position + (at / PAGE_SIZE) as u64;
        let first = self.buffered(page).expect("its chunk is open");
        let word: [u8; RECORD_ALIGN] = *first.first_chunk().expect("a page");
        self.put(place.position, place.end - RECORD_ALIGN, &word);
        self.put(page, 0, &mark);
    }

    /// Takes `pages` contiguous pages at the head, of which a record fills the first `whole`.
    fn place(&mut self, pages: u64, whole: u64) -> Result<u64, NoPlace> {
        if self.stream.is_some() {
            return Err(NoPlace::Buffers);
        }
        self.make_way(pages);
        self.room(pages, 0)?;
        let position = self.skip_wrap(pages);
        self.enter(pages, position, position + whole);
        Ok(position)
    }

    /// Pages of a run of sorted records: at most `most`, and none after its region.
    pub fn run_pages(&self, most: u64) -> u64 {
        most.min(self.region_pages - self.head % self.region_pages)
    }

    /// Takes pages for a run of sorted records that have this many bytes. There is room for it.
    pub fn place_run(&mut self, pages: u64, bytes: usize) -> u64 {
        let position = self.place(pages, pages).expect("room was asked for");
        self.placed(bytes);
        position
    }

    /// Whether a record is larger than all write buffers together, and so must be streamed.
    pub fn must_stream(&self, len: usize) -> bool {
        let buffers = self.open.len() + self.in_flight.len() + self.spare.len();
        len.div_ceil(PAGE_SIZE) as u64 > self.chunk_pages * (buffers - OPEN_CHUNKS) as u64
    }

    /// Reserves contiguous pages for a record that is larger than the write buffers. Until its last
    /// byte came ([`Log::stream`]), no other record gets new pages. It leaves `leave` pages free.
    /// Call [`Log::settle`] afterwards, even if there are no buffers for it.
    pub fn begin_stream(&mut self, len: usize, leave: u64) -> Result<u64, NoPlace> {
        let pages = len.div_ceil(PAGE_SIZE) as u64;
        if self.stream.is_some() {
            return Err(NoPlace::Buffers);
        }
        self.make_way(pages);
        let own = self.ahead.is_before(self.head + pages);
        if !own && self.with_wrap(pages) + leave > self.free_pages() {
            return Err(NoPlace::Space);
        }
        // The pages left empty at the end of the slice need buffers too.
        self.room(1, 0)?;
        let skip = self.with_wrap(pages) - pages;
        if skip > 0 && self.room(skip, 0).is_err() {
            // The end of the slice may be longer than all buffers together, so it is left empty in
            // parts, as buffers become free.
            let part = skip.min(self.buffered_room());
            if part > 0 {
                self.enter(part, self.head, self.head);
            }
            return Err(NoPlace::Buffers);
        }
        let position = self.skip_wrap(pages);
        self.placed(len);
        self.stream = Some((position, position + pages));
        Ok(position)
    }

    /// Gives up the stream of a record of `len` bytes before anything of it was placed. Call
    /// [`Log::settle`] afterwards.
    pub fn cancel_stream(&mut self, len: usize) {
        debug_assert_eq!(self.stream.map(|(start, _)| start), Some(self.head));
        self.record_bytes -= len as u64;
        self.stream = None;
    }

    /// Whether a record of `pages` pages could be placed at once, and leave `leave` pages free. If
    /// it does not fit into the end of the slice, that end is left empty right away, because
    /// buffers for both together might never be free.
    pub fn room_now<Q: Queue>(
        &mut self,
        queue: &mut Q,
        pages: u64,
        leave: u64,
        now_ms: u64,
    ) -> Result<(), NoPlace> {
        if self.stream.is_none() {
            self.make_way(pages);
        }
        let skip = self.with_wrap(pages) - pages;
        if skip > 0 && leave > 0 && skip + pages + leave > self.free_pages() {
            return Err(NoPlace::Space);
        }
        if skip > 0 && self.stream.is_none() && self.room(skip, leave).is_ok() {
            self.skip_wrap(pages);
            self.settle(queue, now_ms);
        }
        if self.stream.is_some() {
            Err(NoPlace::Buffers)
        } else {
            self.room(pages, leave)
        }
    }

    /// Takes the next pages of the streamed record, as many as fit the open chunk or a spare one,
    /// but at most `most`; `None` if no buffer is free. Returns their position and number;
    /// [`Log::put`], then [`Log::settle`].
    pub fn stream(&mut self, most: u64) -> Option<(u64, u64)> {
        let (start, end) = self.stream.filter(|_| !self.closed)?;
        let open = self.open_room();
        let room = if open > 0 {
            open
        } else {
            self.chunk_pages * u64::from(!self.spare.is_empty())
        };
        let pages = room.min(end - self.head).min(most);
        if pages == 0 {
            return None;
        }
        let position = self.head;
        self.enter(pages, start, end);
        if self.head == end {
            self.stream = None;
        }
        Some((position, pages))
    }

    /// Leaves the rest of the slice empty if `pages` pages don't fit it (LOG-3); returns the
    /// position where these pages start.
    fn skip_wrap(&mut self, pages: u64) -> u64 {
        let skip = self.with_wrap(pages) - pages;
        if skip > 0 {
            self.enter(skip, self.head, self.head);
        }
        self.head
    }

    /// Moves the head over `pages` pages of a record that reaches from `start` to `end`. Opens
    /// chunks on the way.
    fn enter(&mut self, pages: u64, start: u64, end: u64) {
        let to = self.head + pages;
        self.page_bytes += pages * PAGE_SIZE as u64;
        let mut at = self.head.next_multiple_of(self.region_pages);
        while at < to {
            let n = self.region_of(at);
            let inside = if at <= start {
                0
            } else {
                end.saturating_sub(at).min(self.region_pages)
            };
            let region = &mut self.regions[n];
            (region.first_record, region.uploads) = (inside as u32, false);
            self.tell_region(n);
            at += self.region_pages;
        }
        while self.head < to {
            if self.open_room() == 0 {
                let buf = self.spare.pop().expect("room was asked for");
                // Done before anything can name a page of it (RESTART-4).
                self.tell_opened(self.head + self.chunk_pages);
                self.open.push(Chunk {
                    buf,
                    first: self.head,
                    used: 0,
                    submitted_ms: 0,
                    written: false,
                });
            }
            let chunk = self.open.last_mut().expect("just opened");
            let take = (to - self.head).min(self.chunk_pages - chunk.used as u64);
            // Bytes between records are zero.
            clear(&mut chunk.buf, chunk.used, take as usize);
            chunk.used += take as usize;
            self.head += take;
        }
        self.note_taken();
    }

    /// Submits all chunks but the two newest: nothing more goes into those. Call it after each
    /// record is put.
    pub fn settle<Q: Queue>(&mut self, queue: &mut Q, now_ms: u64) {
        while self.open.len() > OPEN_CHUNKS {
            self.submit_oldest(queue, now_ms);
        }
    }

    /// Sends the oldest open chunk to the device; its pages then accept no more records.
    fn submit_oldest<Q: Queue>(&mut self, queue: &mut Q, now_ms: u64) {
        let mut chunk = self.open.remove(0);
        let end = chunk.first + chunk.used as u64;
        self.open_pages.close_before(end);
        chunk.submitted_ms = now_ms;
        self.health.begin(now_ms);
        queue.write(
            self.device,
            self.device_page(chunk.first),
            Arc::clone(&chunk.buf),
            0,
            chunk.used,
            Tag::cache(Purpose::Admit),
            token(
                TOKEN_WRITE,
                self.shard,
                (self.number as u64) << 40 | chunk.first & 0xff_ffff_ffff,
            ),
        );
        self.in_flight.push(chunk);
    }

    /// Handles a write that ended, with or without success. Buffers are freed in order, so that the
    /// buffered pages are always the end of the log (LOG-2). Pages that were not written are
    /// invalid. Returns the pages of the write.
    pub fn written(&mut self, value: u64, ok: bool) -> usize {
        let same = |c: &&mut Chunk| c.first & 0xff_ffff_ffff == value & 0xff_ffff_ffff;
        let Some(chunk) = self.in_flight.iter_mut().find(same) else {
            return 0;
        };
        chunk.written = true;
        let pages = chunk.used;
        if !ok {
            let range = chunk.first..chunk.first + pages as u64;
            self.invalid.unwritten(range, self.tail);
        }
        while self.in_flight.first().is_some_and(|c| c.written) {
            // Its pages are cleared one by one, as they are given out again.
            self.spare.push(self.in_flight.remove(0).buf);
        }
        self.tell(LogWord::Written, self.written_to());
        pages
    }
    /// Gives up the stream under way. The part that it has placed stays as a record without an end,
    /// which no slot names. The next record begins after that.
    pub fn break_stream(&mut self) {
        let Some((start, _)) = self.stream.take() else {
            return;
        };
        let inside = self.head % self.region_pages;
        if inside > 0 && self.head - inside > start {
            let n = self.region_of(self.head);
            self.regions[n].first_record = inside as u32;
            self.tell_region(n);
        }
    }
    /// Whether a record is being streamed.
    pub fn is_streaming(&self) -> bool {
        self.stream.is_some()
    }

    /// Writes zeros to free pages ahead of the head, to test the device; false if there are no free
    /// pages, or no buffer.
    pub fn write_probe<Q: Queue>(&mut self, queue: &mut Q, now_ms: u64) -> bool {
        let pages = self
            .free_pages()
            .min(self.pages - self.head_at)
            .min(self.chunk_pages);
        if pages == 0 {
            return false;
        }
        let Some(mut buf) = self.spare.pop() else {
            return false;
        };
        clear(&mut buf, 0, pages as usize);
        self.health.begin(now_ms);
        queue.write(
            self.device,
            self.first_page + self.head_at,
            Arc::clone(&buf),
            0,
            pages as usize,
            Tag::cache(Purpose::Meta),
            token(TOKEN_PROBE, self.shard, self.number as u64),
        );
        self.probe = Some(buf);
        true
    }
    /// Notes that the write of a probe ended.
    pub fn probe_written(&mut self) {
        self.spare.extend(self.probe.take());
    }
    /// The page for a probe to read: the page that it wrote, if it could write.
    pub fn probe_page(&self) -> u64 {
        self.first_page + self.head_at
    }

    /// Writes bytes into pages that were given out and are still open.
    pub fn put(&mut self, position: u64, offset: usize, mut bytes: &[u8]) {
        let mut at = position * PAGE_SIZE as u64 + offset as u64;
        while !bytes.is_empty() {
            let page = at / PAGE_SIZE as u64;
            let chunk = self
                .open
                .iter_mut()
                .find(|c| c.first <= page && page < c.first + c.used as u64)
                .expect("pages are filled while their chunk is open");
            let from = (at - chunk.first * PAGE_SIZE as u64) as usize;
            let n = bytes.len().min(chunk.used * PAGE_SIZE - from);
            let buf = Arc::get_mut(&mut chunk.buf).expect("an open chunk is not shared");
            buf[from..from + n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            at += n as u64;
        }
    }

    /// The page at a position, if it is still in a write buffer.
    pub fn buffered(&self, position: u64) -> Option<&[u8]> {
        let chunk = self
            .open
            .iter()
            .chain(&self.in_flight)
            .find(|c| c.first <= position && position < c.first + c.used as u64)?;
        let at = (position - chunk.first) as usize * PAGE_SIZE;
        Some(&chunk.buf[at..at + PAGE_SIZE])
    }

    /// Copies those pages of a run that are still in write buffers into a frame; they are its end
    /// (LOG-2). Returns how many pages must be read from the device.
    pub fn copy_buffered(&self, first: u64, pages: u64, frame: &mut [u8]) -> u64 {
        let mut from_device = pages;
        while from_device > 0 {
            let Some(page) = self.buffered(first + from_device - 1) else {
                break;
            };
            let at = (from_device - 1) as usize * PAGE_SIZE;
            frame[at..at + PAGE_SIZE].copy_from_slice(page);
            from_device -= 1;
        }
        from_device
    }

    /// Counts a read in flight of a record that starts at a position. Regions are freed in order,
    /// so this protects the whole record, wherever it ends.
    pub fn pin(&mut self, position: u64, on: bool) {
        let n = self.region_of(position);
        let pins = &mut self.regions[n].pins;
        *pins = if on { *pins + 1 } else { *pins - 1 };
    }
    pub fn oldest_region_pins(&self) -> u32 {
        self.regions[self.region_of(self.tail)].pins + self.streams.pins(self.tail)
    }
    /// First page of the oldest region at which a record starts.
    pub fn oldest_region_first(&self) -> u64 {
        let region = self.regions[self.region_of(self.tail)];
        self.tail + u64::from(region.first_record)
    }
    /// Frees the oldest region and returns its number in the log. The caller discards it. After the
    /// discard it is given out again ([`Log::discards`]). `taken` pages went to copies of its
    /// records.
    pub fn free_oldest(&mut self, taken: u64, now_ms: u64) -> u64 {
        debug_assert_eq!(self.oldest_region_pins(), 0);
        let region = self.region_of(self.tail) as u64;
        self.discards.begin(region, now_ms);
        self.streams.wait_for(None);
        self.tail += self.region_pages;
        self.invalid.forget(self.tail);
        self.tell(LogWord::Tail, self.tail);
        self.gained(taken);
        region
    }
}

/// Fills pages of a write buffer with zeros.
fn clear(buf: &mut Arc<AlignedBuf>, first: usize, pages: usize) {
    let buf = Arc::get_mut(buf).expect("the queue drops its reference before it completes a write");
    buf[first * PAGE_SIZE..(first + pages) * PAGE_SIZE].fill(0);
}

#[cfg(test)]
mod tests;
