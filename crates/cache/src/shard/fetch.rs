// SPDX-License-Identifier: Apache-2.0
//! Reads flash: from a slot whose tag matches, to a verified record in a frame or in DRAM.
//!
//! ```text
//! fetch --> begin --> (waiting for a frame) --> reading --> ready --> finish --> Done
//!              \--> all pages still in write buffers -------------------^  \--> helpers read the rest of a large record
//!                                                                           \--> parked until there is memory
//! ```
//!
//! A record larger than a frame comes to DRAM only if it must be there, or is due for promotion.
//! Otherwise its first piece leaves here with a [`Stream`] for the others.
//!
//! Every record that leaves here has passed three checks: the whole key, the header checksum and
//! the record checksum. The header checksum is seeded with the generation, so it proves that the
//! record is of this lap. A read pins its first region from when it has its frame until it ends. So
//! the region's pages are not reused meanwhile.
//!
//! **Nothing waits in a circle.** Memory waits for the log (eviction writes there), the log for
//! reclaim, and reclaim for pins. So a read that waits for a frame pins nothing; if its region is
//! reclaimed meanwhile, it ends as changed. A read that waits for memory ends once reclaim has
//! walked its region, since its slot is gone then. And reclaim has frames of its own.

use senko_io::{PAGE_SIZE, PageBuf, Queue};

use crate::arena::Handle;
use crate::flash::read::Stage;
use crate::index::{Pos, Slot};
use crate::key::Key;
use crate::record::{self, ANSWER_HEAD, At, Header, PIECE, RECORD_HEADER};
use crate::shard::Shard;
use crate::stream::{PieceRead, Pin, Stream, Whence};
use crate::types::{
    AllocError, Done, FRAME_PAGES, Fetch, Fetched, FlashItem, FlashRef, ItemRef, Listed, Want,
};

/// Reads of a large record under way on its way to DRAM: so many pieces of a stream are read ahead
/// as well.
const HELPERS: usize = 4;

/// Why a record that is larger than a frame has pieces.
const HAS_PIECES: &str = "a record has pieces if it is larger than a frame";

/// The result of checking a frame.
#[derive(Debug)]
pub(crate) enum FrameMatch {
    At(usize, Header),
    OtherKeysOnly,
    Damaged,
}

/// The progress of `finish`.
enum Step {
    Ended(Fetched),
    /// More pages are on the way.
    Reading,
    /// There is no memory now.
    Parked(PageBuf),
}

impl Shard {
    /// Starts a fetch of what `Lookup::Flash` named. With `Want::Answer` it counts as an access.
    pub fn fetch<Q: Queue>(
        &mut self,
        queue: &mut Q,
        key: &Key<'_>,
        at: FlashRef,
        want: Want,
        user: u64,
    ) -> Fetch {
        let Some((pos, slot)) = self.index.find_same(key.hash, Slot(at.0)) else {
            return Fetch::Now(Fetched::Changed);
        };
        if want == Want::Answer {
            self.count_access(&pos, slot);
        }
        let Some(place) = self.place(slot) else {
            return Fetch::Now(Fetched::Changed);
        };
        let n = self.flash.start_read(key, want, user, slot, place);
        self.flash.tries(n, matches!(pos, Pos::Narrow(_)));
        if !self.flash.begin(queue, n) {
            return Fetch::Queued;
        }
        self.stats.flash_buffer_hits += 1;
        match self.finish(queue, n) {
            Some(done) => Fetch::Now(done.fetched),
            None => Fetch::Queued,
        }
    }

    /// Counts an access to what is on flash.
    pub(super) fn count_access(&mut self, pos: &Pos, slot: Slot) {
        if slot.hit() != slot {
            self.index.set_hot(pos, slot, slot.hit().hot());
        }
        self.index.age(self.dram.items());
    }

    /// Whether the next access to what is on flash brings it to DRAM.
    pub(super) fn is_due(&self, slot: Slot) -> bool {
        slot.hits_lately() + 1 >= self.config.promote_after
    }

    /// Bytes of the frame for a fetch of an answer: whole pages, at most [`FRAME_PAGES`]. A larger
    /// record is copied to DRAM instead.
    pub fn frame_bytes(at: FlashRef) -> usize {
        let pages = match Slot(at.0).len() {
            0 => FRAME_PAGES,
            pages => pages.min(FRAME_PAGES),
        };
        pages * PAGE_SIZE
    }

    /// Starts to read the key and the metadata of what [`Shard::scan`] found on flash; it ends in
    /// [`Fetched::Listed`], or in another result if the item is gone or cannot be read. It does not
    /// count as an access.
    pub fn list<Q: Queue>(&mut self, queue: &mut Q, at: FlashRef, user: u64) -> Fetch {
        let (slot, want) = match Slot(at.0).of_page() {
            Some(slot) => (slot, Want::ListedPage),
            None => (Slot(at.0), Want::Listed),
        };
        let Some(place) = self.place(slot) else {
            return Fetch::Now(Fetched::Changed);
        };
        let unknown = Key {
            bytes: &[],
            hash: 0,
        };
        let n = self.flash.start_read(&unknown, want, user, slot, place);
        if !self.flash.begin(queue, n) {
            return Fetch::Queued;
        }
        match self.finish(queue, n) {
            Some(done) => Fetch::Now(done.fetched),
            None => Fetch::Queued,
        }
    }

    /// Whether the next frames are for certain reads: those that wait for one, or those of others
    /// ([`Shard::hold_frames`]).
    pub fn frames_wanted(&self) -> bool {
        self.flash.frames_wanted()
    }

    /// Notes whether free frames are for others than this shard's reads, which then wait.
    pub fn hold_frames(&mut self, held: bool) {
        self.flash.hold_frames(held);
    }

    /// Lets waiting reads start after frames were returned (answers were sent).
    pub fn frames_freed<Q: Queue>(&mut self, queue: &mut Q) {
        self.flash.frames_freed(queue);
    }

    /// The next fetch that ended. Items in it are valid as long as any [`ItemRef`].
    pub fn next_done<Q: Queue>(&mut self, queue: &mut Q) -> Option<Done> {
        self.forget_damaged();
        while let Some(n) = self.flash.next_ready(queue) {
            if let Some(done) = self.finish(queue, n) {
                return Some(done);
            }
        }
        self.reclaim_unpinned(queue);
        None
    }

    /// Continues reclaims that may have waited for ended reads. This does not happen when each read
    /// ends, because its record must stay in place until the caller has used it.
    fn reclaim_unpinned<Q: Queue>(&mut self, queue: &mut Q) {
        if self.flash.take_unpinned() {
            for log in 0..self.flash.logs().len() {
                self.reclaim(queue, log);
            }
        }
    }

    /// Checks a read whose pages are here.
    fn finish<Q: Queue>(&mut self, queue: &mut Q, n: u32) -> Option<Done> {
        loop {
            let owner = self.flash.read(n).owner().unwrap_or(n);
            let step = match self.flash.take_stage(n) {
                Stage::Here(Ok(frame)) if owner != n => self.help(queue, n, frame),
                Stage::Here(Ok(frame)) => self.look(queue, n, frame),
                Stage::Here(Err(())) => {
                    self.stats.flash_read_errors += 1;
                    Step::Ended(self.forget(owner))
                }
                Stage::Gone => Step::Ended(Fetched::Changed),
                Stage::GivenUp => {
                    self.stats.flash_read_timeouts += 1;
                    Step::Ended(self.forget(owner))
                }
                Stage::Idle
                | Stage::Waiting
                | Stage::Reading
                | Stage::Gathering
                | Stage::LeftToDevice => unreachable!("only reads that are here are ready"),
            };
            match step {
                Step::Ended(fetched) => {
                    let absent = matches!(fetched, Fetched::Absent);
                    let fetched = if absent && self.stored_meanwhile(owner) {
                        Fetched::Changed
                    } else {
                        fetched
                    };
                    let user = self.flash.end_read(owner);
                    return Some(Done { user, fetched });
                }
                Step::Parked(frame) => {
                    self.flash.park(n, frame);
                    return None;
                }
                // The next page was in write buffers, so it is here already.
                Step::Reading if self.flash.read(n).is_here() => {}
                Step::Reading => return None,
            }
        }
    }

    /// Whether the key of a read that found nothing may have got an item since. Then it has an item
    /// in DRAM, or another flash slot with its tag. A command that creates an absent item (`add`)
    /// must not replace it.
    fn stored_meanwhile(&mut self, n: u32) -> bool {
        let op = self.flash.read(n);
        if op.want().lists() {
            return false;
        }
        let (key, [first, newest]) = (op.key(), op.tried());
        let found = self.index.find(key.hash, |s| {
            if s.is_dram() {
                self.dram.arena().item_key(self.index.handle(s)) == key.bytes
            } else {
                s.with_hot(0) != first
            }
        });
        if found.is_some() {
            return true;
        }
        // A record that was sorted since is in a newer batch.
        let now = self.next_candidate(key.hash, None);
        now.is_some_and(|(slot, _)| self.index.is_newer(slot, newest))
    }

    /// Removes the slot of a read that can't return its record. A walk has no hash to find the slot
    /// with, and leaves it to the next command for the key.
    fn forget(&mut self, n: u32) -> Fetched {
        let op = self.flash.read_mut(n);
        if op.want().lists() {
            return Fetched::Absent;
        }
        let (hash, slot) = (op.hash(), op.slot());
        if let Some(item) = op.take_large() {
            self.dram.free_item(item);
            self.flash.end_helpers(n);
        }
        self.drop_flash_slot(hash, slot);
        Fetched::Absent
    }

    /// Checks the first piece, which is usually the only one.
    fn look<Q: Queue>(&mut self, queue: &mut Q, n: u32, mut frame: PageBuf) -> Step {
        let op = self.flash.read(n);
        let (want, slot, hash) = (op.want(), op.slot(), op.hash());
        let run = &mut frame[..op.pages() as usize * PAGE_SIZE];
        if want.lists() {
            return Step::Ended(self.look_listed(n, run, want == Want::ListedPage));
        }
        let generation = self.flash.log(op.log()).generation(op.position());
        let found = find_record(run, op.key().bytes, generation);
        let (at, header) = match found {
            FrameMatch::At(at, header) => (at, header),
            FrameMatch::OtherKeysOnly => {
                self.stats.flash_false_matches += 1;
                return self.look_further(queue, n, frame);
            }
            FrameMatch::Damaged => {
                self.stats.flash_checksum_errors += 1;
                return Step::Ended(self.forget(n));
            }
        };
        let (pieces, end) = (header.pieces(), at + header.flash_len());
        let whole = end <= run.len();
        // The slot knows the length of the record, unless it has more than 15 pages.
        let cut = want != Want::Header && !whole && (slot.len() != 0 || pieces.is_none());
        if cut || whole && !record::intact(&run[at..end], &header) {
            self.stats.flash_checksum_errors += 1;
            return Step::Ended(self.forget(n));
        }
        if record::expired(header.expiry, self.now) {
            self.stats.reclaimed += 1;
            return Step::Ended(self.forget(n));
        }
        match want {
            // A flush_all meanwhile keeps the slot, but its record is invalid.
            Want::Header if self.place(slot).is_none() => Step::Ended(Fetched::Changed),
            Want::Header => Step::Ended(match self.index.find_same(hash, slot) {
                Some((_, now)) => Fetched::Header(self.flash_meta(&header, slot), FlashRef(now.0)),
                None => Fetched::Changed,
            }),
            _ if !whole => self.large(queue, n, frame, &header),
            Want::Answer | Want::Peek => {
                if want == Want::Answer && self.is_due(slot) {
                    // No need to wait for it: the answer is here.
                    let _ = self.promote(queue, n, &frame[at..end]);
                }
                Step::Ended(self.answer(frame, at, &header, slot, None))
            }
            Want::Resident => match self.promote(queue, n, &frame[at..end]) {
                Ok(Some(item)) => Step::Ended(Fetched::Resident(ItemRef(item))),
                Ok(None) => Step::Ended(Fetched::Changed),
                Err(AllocError::Busy) => Step::Parked(frame),
                Err(_) => Step::Ended(Fetched::OutOfMemory),
            },
            Want::Listed | Want::ListedPage => unreachable!("looked at above"),
        }
    }

    /// Reads the next candidate of a key that was not among the records of a page. Those of sorted
    /// records come after the slot of eight bytes, the newest first.
    fn look_further<Q: Queue>(&mut self, queue: &mut Q, n: u32, frame: PageBuf) -> Step {
        let op = self.flash.read(n);
        let (hash, want, [_, newest]) = (op.hash(), op.want(), op.tried());
        let before = (newest != Slot::EMPTY).then_some(op.slot());
        let Some((slot, place)) = self.next_candidate(hash, before) else {
            return Step::Ended(Fetched::Absent);
        };
        if want == Want::Answer
            && let Some((pos, slot)) = self.index.find_same(hash, slot)
        {
            self.count_access(&pos, slot);
        }
        self.flash.read_other(queue, n, frame, slot, place);
        Step::Reading
    }

    /// Finds a slot's item among the records of its page: the one whose key has the slot's hash. Or
    /// finds `all` items of a page of sorted records, also those that were promoted from there.
    fn look_listed(&mut self, n: u32, run: &[u8], all: bool) -> Fetched {
        let op = self.flash.read(n);
        let slot = op.slot();
        let generation = self.flash.log(op.log()).generation(op.position());
        let mut listed = Vec::new();
        let mut end = 0;
        // A flush_all meanwhile keeps the slot, but its record is invalid.
        while self.place(slot).is_some() {
            let at = record::skip_gap(run, end, PAGE_SIZE);
            let At::Record(header) = record::peek(run, at, PAGE_SIZE) else {
                break;
            };
            let key = record::key_at(run, at, &header);
            end = record::end_at(at, &header).min(PAGE_SIZE);
            let hash = Key::new(key, self.config.hash_seed).hash;
            let named = match all {
                true => self.is_of_page(hash, key, slot),
                false => self.index.find_same(hash, slot).is_some(),
            };
            if named
                && record::intact_at(run, at, &header, generation)
                && record::joined(run, at, &header).is_none_or(|r| record::intact(&r, &header))
                && !record::expired(header.expiry, self.now)
            {
                if !all {
                    // Of two records with this tag, the slot names the later one.
                    listed.clear();
                }
                listed.push(Listed {
                    key: key.to_vec(),
                    meta: self.flash_meta(&header, slot),
                    footprint: header.dram_len() + self.words(header.dram_len()).header(),
                });
            }
        }
        match listed.is_empty() {
            true => Fetched::Absent,
            false => Fetched::Listed(listed),
        }
    }

    /// Whether a key's item is the record in this page of sorted records, or an unchanged copy of
    /// it in DRAM.
    fn is_of_page(&self, hash: u64, key: &[u8], page: Slot) -> bool {
        let place = (self.index.page(page), page.lap());
        if matches!(
            self.index.find_in_page(hash, place),
            Some((Pos::Narrow(_), _))
        ) {
            return true;
        }
        let arena = self.dram.arena();
        let copy = self.index.find(hash, |slot| {
            let item = self.index.handle(slot);
            slot.is_dram() && arena.item_key(item) == key && {
                let copy = arena.flash_copy(item);
                copy != Slot::EMPTY && (self.index.page(copy), copy.lap()) == place
            }
        });
        copy.is_some()
    }

    /// The verified record at `at` in a frame, as an answer. Counts the hit.
    pub(super) fn answer(
        &mut self,
        frame: PageBuf,
        at: usize,
        header: &Header,
        slot: Slot,
        rest: Option<Stream>,
    ) -> Fetched {
        self.stats.flash_hits += 1;
        let value_at = at + header.flash_prefix();
        Fetched::Answer(FlashItem {
            answer: header
                .has_answer()
                .then(|| at + RECORD_HEADER..at + header.bare_len()),
            value: value_at..value_at + header.value_len as usize,
            meta: self.flash_meta(header, slot),
            buf: frame,
            rest: rest.map(Box::new),
        })
    }

    pub(super) fn flash_meta(&self, header: &Header, slot: Slot) -> crate::record::Meta {
        let mut meta = header.meta(record::exact_access(header.access, self.now));
        meta.fetched |= slot.hot() > 0;
        meta
    }

    /// Copies a verified record into DRAM; its flash copy is kept. `None`: the key changed
    /// meanwhile.
    fn promote<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: u32,
        bytes: &[u8],
    ) -> Result<Option<Handle>, AllocError> {
        let op = self.flash.read(n);
        let (hash, slot) = (op.hash(), op.slot());
        if self.index.find_same(hash, slot).is_none() {
            return Ok(None);
        }
        let header = Header::read(bytes);
        let (head, len) = (header.head_len(), header.dram_len());
        let item = self.take_item(queue, len)?;
        self.dram.put(item, 0, &bytes[..head]);
        self.dram.put(item, head, &bytes[header.flash_body()..]);
        Ok(self.adopt(n, item))
    }

    /// Links a complete copy of a flash record as the key's item, if the key is still where it was
    /// read.
    fn adopt(&mut self, n: u32, item: Handle) -> Option<Handle> {
        let op = self.flash.read(n);
        let (hash, slot, want) = (op.hash(), op.slot(), op.want());
        // Making room may have moved or dropped this very slot.
        let Some((pos, _)) = self
            .index
            .find_same(hash, slot)
            .filter(|_| self.place(slot).is_some())
        else {
            self.dram.free_item(item);
            return None;
        };
        self.turn_to_dram(&pos, hash, item);
        self.dram.set_flash_copy(item, slot.with_hot(0));
        let coarse = self.dram.arena().header(item).access;
        let access = if want == Want::Answer {
            self.now
        } else {
            record::exact_access(coarse, self.now)
        };
        self.dram.set_access(item, access);
        self.dram.set_epoch(item, self.epoch);
        if want == Want::Answer || slot.hot() > 0 {
            self.dram.mark_fetched(item);
        }
        self.dram.link(item, hash, true);
        self.stats.promotions += 1;
        Some(item)
    }

    /// Continues with a record larger than a frame, whose first piece is here. It goes to DRAM, by
    /// helpers, if it must be there. Otherwise the caller gets its pieces, as for any other
    /// item that is not due for promotion. So a burst of large values evicts nothing.
    fn large<Q: Queue>(&mut self, queue: &mut Q, n: u32, frame: PageBuf, header: &Header) -> Step {
        let op = self.flash.read(n);
        let (hash, slot, want) = (op.hash(), op.slot(), op.want());
        if self.index.find_same(hash, slot).is_none() {
            // It must not wait for memory: reclaim frees memory and may be waiting for this read.
            return Step::Ended(Fetched::Changed);
        }
        let fits = self.fits_dram(header.dram_len());
        let due = want == Want::Answer && self.is_due(slot) && fits;
        if !due && want != Want::Resident {
            return self.stream(n, frame, header);
        }
        if !fits {
            return Step::Ended(Fetched::OutOfMemory);
        }
        let item = match self.take_item(queue, header.dram_len()) {
            Ok(item) => item,
            Err(_) if due => return self.stream(n, frame, header),
            Err(AllocError::Busy) => return Step::Parked(frame),
            Err(_) => return Step::Ended(Fetched::OutOfMemory),
        };
        let pieces = header.pieces().expect(HAS_PIECES);
        self.flash.read_mut(n).begin_large(item, pieces, &frame);
        if let Some(fetched) = self.put_piece(n, 0, &frame) {
            return Step::Ended(fetched);
        }
        let mut frame = Some(frame);
        for _ in 0..HELPERS {
            let Some(helper) = self.flash.start_helper(queue, n, frame.take()) else {
                break;
            };
            if self.flash.read(helper).is_here()
                && let Stage::Here(Ok(frame)) = self.flash.take_stage(helper)
                && let Step::Ended(fetched) = self.help(queue, helper, frame)
            {
                return Step::Ended(fetched);
            }
        }
        Step::Reading
    }

    /// Ends a read with the first piece of a record and a stream for the others.
    fn stream(&mut self, n: u32, frame: PageBuf, header: &Header) -> Step {
        let hcrc = record::hcrc(&frame);
        if !record::piece_intact(&frame[..PIECE], hcrc, 0) {
            self.stats.flash_checksum_errors += 1;
            return Step::Ended(self.forget(n));
        }
        let op = self.flash.read(n);
        let whence = self.whence(op.hash(), op.slot(), (op.log(), op.position()));
        let pieces = header.pieces().expect(HAS_PIECES);
        let (slot, rest) = (whence.slot, Stream::new(whence, pieces, hcrc));
        Step::Ended(self.answer(frame, 0, header, slot, Some(rest)))
    }

    /// Where a record lies that is sent piece by piece. From now on its region stays.
    pub(super) fn whence(&self, hash: u64, slot: Slot, (n, position): (usize, u64)) -> Whence {
        let log = self.flash.log(n);
        Whence {
            pin: Pin::new(log.streams(), position),
            hash,
            slot,
            log: n,
            device: log.device(),
            page: log.device_page(position),
            // An upload was written before it got its slot.
            written_to: match log.is_of_uploads(position) {
                true => u64::MAX,
                false => log.written_to(),
            },
        }
    }

    /// Fills those pages of a piece of a record of this shard that are still in write buffers.
    /// Returns how many pages must be read from the device.
    pub fn fill_buffered(&self, piece: &PieceRead, frame: &mut [u8]) -> usize {
        let (log, position) = piece.place();
        let pages = piece.pages() as u64;
        self.flash.log(log).copy_buffered(position, pages, frame) as usize
    }

    /// Counts a piece that could not be used: it is damaged, or could not be read.
    pub fn count_broken(&mut self, damaged: bool) {
        if damaged {
            self.stats.flash_checksum_errors += 1;
        } else {
            self.stats.flash_read_errors += 1;
        }
    }

    /// Removes the slots of records that streams could not read (STREAM-3).
    pub(crate) fn forget_damaged(&mut self) {
        for n in 0..self.flash.logs().len() {
            for (hash, slot) in self.flash.log(n).streams().take_damaged() {
                self.drop_flash_slot(hash, slot);
            }
        }
    }

    /// Takes the pieces of a large record that a helper brings, as far as they are here.
    fn help<Q: Queue>(&mut self, queue: &mut Q, n: u32, mut frame: PageBuf) -> Step {
        loop {
            let helper = self.flash.read(n);
            let (owner, number) = (helper.owner().unwrap_or(n), helper.number());
            if let Some(fetched) = self.put_piece(owner, number, &frame) {
                return Step::Ended(fetched);
            }
            if !self.flash.help_on(queue, n, frame) {
                return Step::Reading;
            }
            let Stage::Here(Ok(next)) = self.flash.take_stage(n) else {
                return Step::Reading;
            };
            frame = next;
        }
    }

    /// Puts a piece of a large record into its item. Returns how the read ends: with the last
    /// piece, or early.
    fn put_piece(&mut self, owner: u32, number: usize, frame: &[u8]) -> Option<Fetched> {
        let op = self.flash.read_mut(owner);
        let (log, piece) = (op.log(), op.take_piece(number, frame));
        let item = piece.item;
        if !piece.intact {
            self.stats.flash_checksum_errors += 1;
            return Some(self.forget(owner));
        }
        if number == 0 {
            self.dram.put(item, 0, &frame[..ANSWER_HEAD]);
        }
        self.dram.put(item, piece.at, &frame[piece.bytes]);
        if !piece.last {
            let out = self.flash.log(log).health().is_out();
            self.stats.flash_misses_out += u64::from(out);
            return out.then(|| self.forget(owner));
        }
        if record::expired(self.dram.arena().item_expiry(item), self.now) {
            self.stats.reclaimed += 1;
            return Some(self.forget(owner));
        }
        self.flash.end_helpers(owner);
        self.flash.read_mut(owner).take_large();
        Some(match self.adopt(owner, item) {
            Some(item) => {
                self.stats.flash_hits += 1;
                Fetched::Resident(ItemRef(item))
            }
            None => Fetched::Changed,
        })
    }
}

/// Searches for a key among the records that begin in the first page of a run. A page never holds
/// two records of a key (LOG-4). If the record is all here, its bytes are joined.
pub(crate) fn find_record(run: &mut [u8], key: &[u8], generation: u32) -> FrameMatch {
    let mut end = 0;
    loop {
        let at = record::skip_gap(run, end, PAGE_SIZE);
        match record::peek(run, at, PAGE_SIZE) {
            At::Record(header) => {
                if record::key_at(run, at, &header) == key {
                    let here = record::join(run, at, &header) || header.has_answer();
                    return if here && record::head_intact(&run[at..], &header, generation) {
                        FrameMatch::At(at, header)
                    } else {
                        FrameMatch::Damaged
                    };
                }
                end = record::end_at(at, &header).min(PAGE_SIZE);
            }
            At::End if end == 0 => return FrameMatch::Damaged,
            At::End => return FrameMatch::OtherKeysOnly,
            At::Damaged => return FrameMatch::Damaged,
        }
    }
}
