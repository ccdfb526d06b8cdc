// SPDX-License-Identifier: Apache-2.0
//! The index: one 8-byte slot per item of either tier, no keys; three bytes for a small record that
//! was written in the order of its hash (`index/sorted.rs`).
//!
//! Card. Paper E, section 3.2: a second hash H_y in DRAM distinguishes keys that collide under H_x,
//! so that keys can stay on flash. Here H_x picks a segment and H_y is the tag in the slot.
//! Differences: the slot also holds the place (the paper chains entries with pointers). Both tiers
//! share one table, so a lookup touches one cache line and knows where the item is. The table grows
//! in waves over the segments, a sixteenth each, so slots stay about 90 % full at any size. A
//! slot's line in its segment follows from the tag alone: a segment is rebuilt without its keys.
//!
//! ```text
//! 63   61    57    55       47    45         T         0
//! | kind | len | hot | expiry | lap |  page  |   tag   |     kind 2: flash; page is p bits, p + T = 46
//! | kind |             |    handle (32)      |   tag   |     kind 1: DRAM
//! ```
//!
//! Lines are 64 bytes, 8 slots; a full line overflows into the segment's next (linear probing).
//! Always holds:
//! - INDEX-1: within a segment at most one slot of kind flash has a given tag.
//! - INDEX-2: from a slot's home line to the line it lies in, every line before the last is full.
//!   Removal moves slots back, so a probe may end at the first line with a hole.

mod aging; // which flash items had hits recently
mod shape; // derived from the sizes that an index was planned for
mod slot; // what the bits of a slot mean
mod sorted; // slots of 21 bits

use std::io::{self, Read, Write};
use std::ops::Range;

use aging::ClockHand;
use senko_io::AlignedBuf;

use crate::arena::{Arena, Handle, SEGMENT_LINES};
pub(crate) use crate::words::Shape;
use crate::words::State;
pub(crate) use slot::Slot;
use slot::{EXPIRY_SHIFT, KIND_DRAM, KIND_FLASH, KIND_SHIFT, LAP_SHIFT, LEN_SHIFT, coarse_expiry};
use sorted::{Candidate, Sorted};
pub(crate) use sorted::{Extent, Ledger, Owner, RUN_PAGES, Run, SavedHead, Starts};

const LINE: usize = 8;
/// Bits of page and tag together.
const PLACE_BITS: u32 = 46;
/// A DRAM handle needs 32 bits above the tag and below the kind.
const MAX_TAG_BITS: u32 = 30;
/// The parts in which the slots of a segment are visited or copied: some hundred slots each.
pub(crate) const PARTS: usize = 32;
/// About this many lines are copied in one step of a segment's growth, or one part.
const COPIED_LINES: usize = 16;
/// A wave continues while more than this percentage of the slots is in use.
const FULL_PERCENT: u64 = 90;

/// The position of a found slot; valid until the next insertion or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pos {
    Wide(WidePos),
    Narrow(Candidate),
}

/// The position of a slot of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WidePos {
    segment: u32,
    at: u16,
}

/// A segment that grows: its slots are copied to a larger one, part by part.
#[derive(Debug)]
struct Growing {
    n: usize,
    /// The larger segment. It has the slots of the first `parts` parts of the tag range, and every
    /// change of the segment is made in it too. The segment's word still names the old one.
    new: Segment,
    parts: usize,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    chunk: Handle,
    /// Slots in use, and how many of them are flash slots.
    count: u16,
    flash: u16,
    step: u8,
}

/// The index of one shard.
#[derive(Debug)]
pub(crate) struct Index {
    lines: Arena,
    /// Where another process finds the segments, if the index outlives its process.
    state: Option<State>,
    segments: Vec<Segment>,
    segment_bits: u32,
    tag_bits: u32,
    tag_mask: u64,
    slots: u64,
    /// How many of them are flash slots.
    flash_slots: u64,
    /// Segments before it have at least the next size step, the others have this step.
    wave: usize,
    step: u8,
    steps: usize,
    growing: Option<Growing>,
    /// The segment that was found to need growth, until it begins. Items may have to leave first,
    /// and with their slots the need would be gone; then they would come back.
    due: Option<usize>,
    /// Memory for the slots that are being copied.
    copied: Vec<Slot>,
    /// The slots of sorted records, if small records are written so.
    sorted: Option<Sorted>,
    /// The state of CLOCK aging.
    hand: ClockHand,
}

/// The segment has no room and could not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Index {
    /// An empty index in new memory; `None` if the memory can't hold even its smallest form.
    pub fn new(shape: Shape, memory: AlignedBuf, state: Option<State>) -> Option<Index> {
        let mut index = Index::bare(shape, memory, state);
        for n in 0..shape.segments() {
            index.empty(n, 0)?;
        }
        Some(index)
    }

    /// An index without segments, which are added afterwards.
    fn bare(shape: Shape, memory: AlignedBuf, state: Option<State>) -> Index {
        let lines = Arena::for_segments(memory, shape.page_bytes);
        Index {
            steps: lines.classes().len(),
            lines,
            state,
            segments: Vec::with_capacity(shape.segments()),
            segment_bits: shape.segment_bits,
            tag_bits: shape.tag_bits,
            tag_mask: (1 << shape.tag_bits) - 1,
            slots: 0,
            flash_slots: 0,
            wave: 0,
            step: 0,
            growing: None,
            due: None,
            copied: Vec::new(),
            sorted: None,
            hand: ClockHand::default(),
        }
    }

    /// Adds the next segment, number `n`, empty, with this size step.
    fn empty(&mut self, n: usize, step: usize) -> Option<()> {
        let chunk = self.lines.alloc(step)?;
        self.segments.push(Segment {
            chunk,
            count: 0,
            flash: 0,
            step: step as u8,
        });
        self.wipe(n);
        self.publish(n);
        Some(())
    }

    /// The index that another process left in shared memory; returns the memory if it does not hold
    /// one. Every segment must be [mended](Index::mend) before the first look-up, and the sorted
    /// records of `ledger` be [taken over](Index::sort).
    pub fn kept(
        shape: Shape,
        memory: AlignedBuf,
        state: State,
        ledger: Option<&Ledger>,
    ) -> Result<Index, AlignedBuf> {
        let mut index = Index::bare(shape, memory, None);
        for n in 0..shape.segments() {
            let Some((chunk, step)) = state.segment(n) else {
                return Err(index.lines.into_memory());
            };
            index.segments.push(Segment {
                chunk,
                count: 0,
                flash: 0,
                step,
            });
        }
        let of_tables = match ledger.map(|ledger| Sorted::segments_of(&index.lines, ledger)) {
            Some(None) => return Err(index.lines.into_memory()),
            Some(Some(segments)) => segments,
            None => Vec::new(),
        };
        let segments = index.segments.clone();
        let chunks = segments.iter().map(|s| (s.chunk, s.step as usize));
        if !index.lines.adopt(chunks.chain(of_tables)) {
            return Err(index.lines.into_memory());
        }
        index.state = Some(state);
        index.find_wave();
        Ok(index)
    }

    /// An index whose segments have the given size steps, all empty. [`Index::load`] fills it.
    pub fn sized(
        shape: Shape,
        memory: AlignedBuf,
        state: Option<State>,
        steps: &[u8],
    ) -> Option<Index> {
        let mut index = Index::bare(shape, memory, state);
        for (n, &step) in steps.iter().enumerate() {
            if step as usize >= index.steps {
                return None;
            }
            index.empty(n, step as usize)?;
        }
        index.find_wave();
        Some(index)
    }

    /// Bytes of segments with these size steps, without the waste in their pages.
    pub fn bytes_of(steps: &[u8]) -> usize {
        let lines = steps
            .iter()
            .filter_map(|&step| SEGMENT_LINES.get(step as usize));
        lines.map(|&lines| lines as usize * 64).sum()
    }

    /// Puts the wave at the first segment with the smallest step: those before it have grown.
    fn find_wave(&mut self) {
        self.step = self.segments.iter().map(|s| s.step).min().unwrap_or(0);
        self.wave = self
            .segments
            .iter()
            .position(|s| s.step == self.step)
            .unwrap_or(0);
    }

    /// Stores where a segment lies now. Writing this one word replaces a segment by one that was
    /// built elsewhere.
    fn publish(&self, n: usize) {
        if let Some(state) = &self.state {
            let Segment { chunk, step, .. } = self.segments[n];
            state.set_segment(n, chunk, step);
        }
    }

    pub fn shape(&self) -> Shape {
        Shape {
            segment_bits: self.segment_bits,
            tag_bits: self.tag_bits,
            page_bytes: self.lines.page_bytes(),
        }
    }
    /// The size step of a segment.
    pub fn step_of(&self, n: usize) -> u8 {
        self.segments[n].step
    }
    /// Bytes of a segment, as they lie in memory.
    pub fn segment_bytes(&self, n: usize) -> &[u8] {
        let Segment { chunk, step, .. } = self.segments[n];
        self.lines
            .bytes(chunk, 0, SEGMENT_LINES[step as usize] as usize * 64)
    }
    /// The same, to be filled with the output of [`Index::segment_bytes`]. The segment must be
    /// mended afterwards.
    pub fn load(&mut self, n: usize) -> &mut [u8] {
        let Segment { chunk, step, .. } = self.segments[n];
        self.lines
            .bytes_mut(chunk, 0, SEGMENT_LINES[step as usize] as usize * 64)
    }

    /// Puts all slots of a segment into `slots`.
    pub fn slots_of(&self, n: usize, slots: &mut Vec<Slot>) {
        slots.clear();
        let words = self
            .segment_bytes(n)
            .chunks_exact(8)
            .map(|b| Slot(u64::from_le_bytes(b.try_into().expect("8 bytes"))));
        slots.extend(words.filter(|&slot| slot != Slot::EMPTY));
    }

    /// Rebuilds a segment in place from `slots`, at most as many as it had. INDEX-1 and INDEX-2
    /// hold afterwards, even if they did not before. Of several flash slots with the same tag, one
    /// is kept. A kill meanwhile loses slots of this segment only. `new` is memory to use.
    pub fn mend(&mut self, n: usize, slots: impl Iterator<Item = Slot>, new: &mut Vec<u64>) {
        let step = self.segments[n].step;
        let lines = SEGMENT_LINES[step as usize] as usize;
        new.clear();
        new.resize(lines * LINE, 0);
        let (mut kept, mut flash) = (0, 0);
        for slot in slots {
            let tag = self.tag_of(slot);
            let mut at = self.home(tag, lines) * LINE;
            loop {
                let there = Slot(new[at]);
                if there == Slot::EMPTY {
                    new[at] = slot.0;
                    kept += 1;
                    flash += u16::from(slot.is_flash());
                    break;
                }
                let twins = there == slot || there.is_flash() && slot.is_flash();
                if twins && self.tag_of(there) == tag {
                    break;
                }
                // There are fewer slots than places, so one place is empty.
                at = if at + 1 == new.len() { 0 } else { at + 1 };
            }
        }
        let chunk = self.segments[n].chunk;
        for (at, &word) in new.iter().enumerate() {
            self.lines.set_word(chunk, at * 8, word);
        }
        self.holds(n, kept, flash);
    }

    /// Bytes of memory that the index takes.
    pub fn bytes(&self) -> usize {
        let sorted = self.sorted.as_ref().map_or(0, Sorted::bytes);
        self.lines.bytes_in_use() + self.segments.len() * size_of::<Segment>() + sorted
    }
    /// Bytes that growing a segment adds before the old memory is freed.
    pub fn growth_bytes(&self, n: usize) -> usize {
        let step = self.segments[n].step as usize + 1;
        let begins = self.growing.as_ref().is_none_or(|growing| growing.n != n);
        if begins && step < self.steps && self.lines.class(step).free == 0 {
            self.lines.page_bytes()
        } else {
            0
        }
    }
    pub fn flash_slots(&self) -> u64 {
        self.flash_slots + self.sorted_slots()
    }
    /// Notes that a segment holds this many slots, of which this many are flash slots.
    #[inline]
    fn holds(&mut self, n: usize, count: u16, flash: u16) {
        let segment = &mut self.segments[n];
        self.slots = self.slots - u64::from(segment.count) + u64::from(count);
        self.flash_slots = self.flash_slots - u64::from(segment.flash) + u64::from(flash);
        (segment.count, segment.flash) = (count, flash);
    }
    /// Counts a flash slot that a segment got or lost.
    #[inline]
    fn note_flash(&mut self, n: usize, slot: Slot, comes: bool) {
        let one = u16::from(slot.is_flash());
        let Segment { count, flash, .. } = self.segments[n];
        self.holds(n, count, if comes { flash + one } else { flash - one });
    }
    pub fn slots(&self) -> u64 {
        self.slots
    }
    pub fn segments(&self) -> usize {
        self.segments.len()
    }
    #[inline]
    pub fn tag(&self, hash: u64) -> u64 {
        hash & self.tag_mask
    }
    #[inline]
    pub fn segment_of(&self, hash: u64) -> usize {
        if self.segment_bits == 0 {
            0
        } else {
            (hash >> (64 - self.segment_bits)) as usize
        }
    }
    #[inline]
    pub fn handle(&self, slot: Slot) -> Handle {
        (slot.0 >> self.tag_bits) as u32
    }
    #[inline]
    pub fn page(&self, slot: Slot) -> u64 {
        (slot.0 & ((1 << PLACE_BITS) - 1)) >> self.tag_bits
    }
    #[inline]
    pub fn tag_of(&self, slot: Slot) -> u64 {
        slot.0 & self.tag_mask
    }
    #[inline]
    pub fn dram_slot(&self, hash: u64, item: Handle) -> Slot {
        Slot(KIND_DRAM << KIND_SHIFT | u64::from(item) << self.tag_bits | self.tag(hash))
    }
    /// A flash slot without hits; `place` is page and lap ([`crate::flash::log::Log::place_of`]).
    pub fn flash_slot(
        &self,
        hash: u64,
        place: (u64, u64),
        pages: usize,
        expiry: u32,
        now: u32,
    ) -> Slot {
        let (page, lap) = place;
        debug_assert!(page < 1 << (PLACE_BITS - self.tag_bits));
        let len = if pages > 15 { 0 } else { pages as u64 };
        Slot(
            KIND_FLASH << KIND_SHIFT
                | len << LEN_SHIFT
                | coarse_expiry(expiry, now) << EXPIRY_SHIFT
                | (lap & 3) << LAP_SHIFT
                | page << self.tag_bits
                | self.tag(hash),
        )
    }

    /// The line in which a search for the hash begins, and usually ends.
    #[inline]
    pub fn first_line(&self, hash: u64) -> &[u8] {
        let segment = self.segments[self.segment_of(hash)];
        let lines = SEGMENT_LINES[segment.step as usize] as usize;
        let line = self.home(self.tag(hash), lines);
        self.lines.bytes(segment.chunk, line * 64, 64)
    }

    /// Visits the slots of eight bytes that have the hash's tag, in probe order, until `hit`
    /// returns true. Returns that slot and its position.
    #[inline]
    pub fn find(&self, hash: u64, hit: impl FnMut(Slot) -> bool) -> Option<(WidePos, Slot)> {
        self.find_in(self.segment_of(hash), self.tag(hash), hit)
    }

    #[inline]
    fn find_in(
        &self,
        n: usize,
        tag: u64,
        hit: impl FnMut(Slot) -> bool,
    ) -> Option<(WidePos, Slot)> {
        let (at, slot) = self.find_at(self.segments[n], tag, hit)?;
        let segment = n as u32;
        Some((WidePos { segment, at }, slot))
    }

    #[inline]
    fn find_at(
        &self,
        segment: Segment,
        tag: u64,
        mut hit: impl FnMut(Slot) -> bool,
    ) -> Option<(u16, Slot)> {
        let lines = SEGMENT_LINES[segment.step as usize] as usize;
        let mut line = self.home(tag, lines);
        for _ in 0..lines {
            let bytes: &[u8; 64] = self
                .lines
                .bytes(segment.chunk, line * 64, 64)
                .try_into()
                .expect("a line of 64 bytes");
            let mut full = true;
            for i in 0..LINE {
                let slot = Slot(u64::from_le_bytes(
                    bytes[i * 8..i * 8 + 8].try_into().expect("8 bytes"),
                ));
                if slot.0 & self.tag_mask == tag && slot.0 != 0 && hit(slot) {
                    return Some(((line * LINE + i) as u16, slot));
                }
                full &= slot.0 != 0;
            }
            if !full {
                return None;
            }
            line = if line + 1 == lines { 0 } else { line + 1 };
        }
        None
    }

    /// The slot that equals `slot`, apart from its hit bits.
    pub fn find_same(&self, hash: u64, slot: Slot) -> Option<(Pos, Slot)> {
        let wide = self.find(hash, |s| s.with_hot(0) == slot.with_hot(0));
        if let Some((pos, slot)) = wide {
            return Some((Pos::Wide(pos), slot));
        }
        let (pos, narrow) = self.narrow_in(hash, (self.page(slot), slot.lap()))?;
        (slot.is_flash() && narrow.with_hot(0) == slot.with_hot(0)).then_some((pos, narrow))
    }

    /// The slot of a hash's record in this page of this lap.
    pub fn find_in_page(&self, hash: u64, place: (u64, u64)) -> Option<(Pos, Slot)> {
        let here = |slot: Slot| slot.is_flash() && (self.page(slot), slot.lap()) == place;
        let wide = self.find(hash, here);
        wide.map(|(pos, slot)| (Pos::Wide(pos), slot))
            .or_else(|| self.narrow_in(hash, place))
    }

    /// Changes the hits of a slot.
    pub fn set_hot(&mut self, pos: &Pos, slot: Slot, hot: u8) {
        match pos {
            Pos::Wide(pos) => self.set(*pos, slot.with_hot(hot)),
            Pos::Narrow(candidate) => {
                let sorted = self.sorted.as_mut().expect("it was found there");
                sorted.set_hot(&mut self.lines, candidate, hot);
            }
        }
    }

    /// Removes the slot at a position of either kind.
    pub fn remove_at(&mut self, pos: &Pos) {
        match pos {
            Pos::Wide(pos) => self.remove(*pos),
            Pos::Narrow(candidate) => {
                let sorted = self.sorted.as_mut().expect("it was found there");
                sorted.remove(&mut self.lines, candidate);
            }
        }
    }

    /// The segment that must grow next. A segment that was named stays it until it has grown.
    /// Otherwise it is the segment of `hash` if that is almost full, or the next of the wave if the
    /// whole index is full enough.
    pub fn wants_growth(&mut self, hash: u64) -> Option<usize> {
        let growing = self.growing.as_ref().map(|growing| growing.n);
        self.due = growing.or(self.due).or_else(|| self.needs_growth(hash));
        self.due
    }

    fn needs_growth(&self, hash: u64) -> Option<usize> {
        let n = self.segment_of(hash);
        let s = self.segments[n];
        let slots = SEGMENT_LINES[s.step as usize] as usize * LINE;
        // Large segments begin to grow a little earlier, because growth takes many insertions.
        let spare = (slots / 64).max(2);
        if s.count as usize + spare > slots && (s.step as usize) + 1 < self.steps {
            return Some(n);
        }
        let room = self.line_count() * LINE as u64;
        let full = self.slots * 100 > room * FULL_PERCENT && (self.step as usize) + 1 < self.steps;
        full.then_some(self.wave)
    }

    /// Whether the segment of `hash` may have no room for the next insertions, but can grow.
    pub fn is_full_at(&self, hash: u64) -> bool {
        let s = self.segments[self.segment_of(hash)];
        let slots = SEGMENT_LINES[s.step as usize] as usize * LINE;
        s.count as usize + 2 > slots && (s.step as usize) + 1 < self.steps
    }

    /// Slots that the segment of `hash` could still take, including all growth that is possible.
    pub fn room_for(&self, hash: u64) -> usize {
        let s = self.segments[self.segment_of(hash)];
        if (s.step as usize) + 1 < self.steps {
            return usize::MAX;
        }
        SEGMENT_LINES[s.step as usize] as usize * LINE - s.count as usize
    }

    /// Lines of all segments, without the additional lines of segments that grew before the wave.
    #[inline]
    pub fn line_count(&self) -> u64 {
        let lines = |step: u8| u64::from(SEGMENT_LINES[(step as usize).min(self.steps - 1)]);
        let (wave, all) = (self.wave as u64, self.segments.len() as u64);
        wave * lines(self.step + 1) + (all - wave) * lines(self.step)
    }

    /// Rebuilds a segment that [`Index::wants_growth`] named, one step larger unless it grew before
    /// the wave. Returns false if all of the index's memory is in use.
    pub fn grow(&mut self, n: usize) -> bool {
        let other = self.growing.take_if(|growing| growing.n != n);
        let grown = self.grow_by(n, usize::MAX).is_some();
        if other.is_some() {
            self.growing = other;
        }
        grown
    }

    /// Makes a step of that: copies a part of the slots. Returns whether the segment has grown, or
    /// `None` if all of the index's memory is in use.
    pub fn grow_some(&mut self, n: usize) -> Option<bool> {
        self.grow_by(n, COPIED_LINES)
    }

    fn grow_by(&mut self, n: usize, lines: usize) -> Option<bool> {
        self.due = None;
        let of_wave = n == self.wave;
        if !of_wave || self.segments[n].step == self.step {
            if self.growing.is_none() {
                self.begin_growth(n)?;
            }
            if !self.copy_parts(lines) {
                return Some(false);
            }
        }
        if of_wave {
            self.wave += 1;
            if self.wave == self.segments.len() {
                self.wave = 0;
                self.step += 1;
            }
        }
        Some(true)
    }

    fn begin_growth(&mut self, n: usize) -> Option<()> {
        let step = self.segments[n].step as usize + 1;
        if step >= self.steps {
            return None;
        }
        let new = Segment {
            chunk: self.lines.alloc(step)?,
            count: 0,
            flash: 0,
            step: step as u8,
        };
        self.clear(new);
        self.growing = Some(Growing { n, new, parts: 0 });
        Some(())
    }

    /// Copies the slots of some parts of the segment that grows. After the last, the new segment
    /// takes the place of the old one. Returns whether it does.
    fn copy_parts(&mut self, lines: usize) -> bool {
        let Some(&Growing { n, new, parts }) = self.growing.as_ref() else {
            return false;
        };
        let old = self.segments[n];
        let of_all = lines.saturating_mul(PARTS) / SEGMENT_LINES[old.step as usize] as usize;
        let to = PARTS.min(parts + of_all.max(1));
        let mut copied = std::mem::take(&mut self.copied);
        self.each_of_parts(n, parts..to, |slot| copied.push(slot));
        for slot in copied.drain(..) {
            self.put(new, slot)
                .expect("a larger segment holds what a smaller one held");
        }
        self.copied = copied;
        if to < PARTS {
            self.growing = Some(Growing { n, new, parts: to });
            return false;
        }
        self.growing = None;
        let Segment { count, flash, .. } = old;
        self.segments[n] = Segment {
            count,
            flash,
            ..new
        };
        // The old segment stays whole until the new one is complete and named (RESTART-2).
        self.publish(n);
        self.lines.free(old.chunk);
        true
    }

    /// The larger copy of a segment, if the segment grows and the part of this slot was copied.
    #[inline]
    fn copy_of(&self, n: usize, slot: Slot) -> Option<Segment> {
        let growing = self.growing.as_ref().filter(|growing| growing.n == n)?;
        let part = (self.tag_of(slot) * PARTS as u64) >> self.tag_bits;
        ((part as usize) < growing.parts).then_some(growing.new)
    }

    /// Where a slot lies in the larger copy of its segment. Aging changes hits in the segment only.
    fn place_in_copy(&self, n: usize, slot: Slot) -> Option<(Segment, u16)> {
        let copy = self.copy_of(n, slot)?;
        let alike = |s: Slot| s == slot || slot.is_flash() && s.with_hot(0) == slot.with_hot(0);
        let (at, _) = self
            .find_at(copy, self.tag_of(slot), alike)
            .expect("every change was made in the copy too");
        Some((copy, at))
    }

    pub fn insert(&mut self, hash: u64, slot: Slot) -> Result<(), Full> {
        debug_assert_eq!(self.tag_of(slot), self.tag(hash));
        let n = self.segment_of(hash);
        self.put(self.segments[n], slot)?;
        if let Some(copy) = self.copy_of(n, slot) {
            self.put(copy, slot).expect("the copy is larger");
        }
        self.segments[n].count += 1;
        self.slots += 1;
        self.note_flash(n, slot, true);
        Ok(())
    }

    /// Stores a slot in the first free place from its home line on.
    fn put(&mut self, segment: Segment, slot: Slot) -> Result<(), Full> {
        let Segment { chunk, step, .. } = segment;
        let lines = SEGMENT_LINES[step as usize] as usize;
        let mut line = self.home(self.tag_of(slot), lines);
        for _ in 0..lines {
            let mut words = self.lines.bytes(chunk, line * 64, 64).chunks_exact(8);
            if let Some(hole) = words.position(|word| word == [0; 8]) {
                let at = line * LINE + hole;
                self.lines.set_word(chunk, at * 8, slot.0);
                return Ok(());
            }
            line = if line + 1 == lines { 0 } else { line + 1 };
        }
        Err(Full)
    }

    /// Replaces the slot at a position by one with the same tag.
    pub fn set(&mut self, pos: WidePos, slot: Slot) {
        let n = pos.segment as usize;
        let chunk = self.segments[n].chunk;
        let old = Slot(self.lines.u64(chunk, pos.at as usize * 8));
        debug_assert_eq!(self.tag_of(old), self.tag_of(slot));
        if let Some((copy, at)) = self.place_in_copy(n, old) {
            self.lines.set_word(copy.chunk, at as usize * 8, slot.0);
        }
        if old.is_flash() != slot.is_flash() {
            self.note_flash(n, old, false);
            self.note_flash(n, slot, true);
        }
        self.lines.set_word(chunk, pos.at as usize * 8, slot.0);
    }

    /// Removes the slot at a position, and moves later ones back so that INDEX-2 holds.
    pub fn remove(&mut self, pos: WidePos) {
        let n = pos.segment as usize;
        let gone = Slot(self.lines.u64(self.segments[n].chunk, pos.at as usize * 8));
        self.segments[n].count -= 1;
        self.slots -= 1;
        self.note_flash(n, gone, false);
        if let Some((copy, at)) = self.place_in_copy(n, gone) {
            self.take_out(copy, at);
        }
        self.take_out(self.segments[n], pos.at);
    }

    fn take_out(&mut self, segment: Segment, at: u16) {
        let Segment { chunk, step, .. } = segment;
        let lines = SEGMENT_LINES[step as usize] as usize;
        let mut hole = at as usize;
        'holes: loop {
            let hole_line = hole / LINE;
            let was_full =
                (0..LINE).all(|i| self.lines.u64(chunk, (hole_line * LINE + i) * 8) != 0);
            self.lines.set_word(chunk, hole * 8, 0);
            if !was_full {
                return;
            }
            // A slot of a later line may have overflowed past here; the first such moves back.
            for ahead in 1..lines {
                let line = (hole_line + ahead) % lines;
                let mut full = true;
                for i in 0..LINE {
                    let at = line * LINE + i;
                    let slot = Slot(self.lines.u64(chunk, at * 8));
                    if slot == Slot::EMPTY {
                        full = false;
                        continue;
                    }
                    let home = self.home(self.tag_of(slot), lines);
                    // The path from its home line to here leads through the hole's line.
                    if (line + lines - home) % lines >= ahead {
                        self.lines.set_word(chunk, hole * 8, slot.0);
                        hole = at;
                        continue 'holes;
                    }
                }
                if !full {
                    return;
                }
            }
            return;
        }
    }

    // ---- slots of sorted records ----

    /// From now on records may be written in the order of their hashes. Those that the words name
    /// are there ([`Sorted::of`]).
    pub fn sort(&mut self, ledger: &Ledger, holds: impl FnMut(&Run) -> bool) {
        self.sorted = Some(Sorted::of(&self.lines, ledger, holds));
    }
    /// The same with the records of a clean stop; returns how many parts were damaged.
    pub fn load_sorted(
        &mut self,
        head: &SavedHead,
        from: &mut dyn Read,
        ledger: &Ledger,
        holds: impl FnMut(&Run) -> bool,
    ) -> u64 {
        let (sorted, damaged) = Sorted::load(head, from, &mut self.lines, ledger, holds);
        self.sorted = Some(sorted);
        damaged
    }
    /// Writes the slots and places of sorted records ([`Sorted::save`]).
    pub fn save_sorted(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.sorted {
            Some(sorted) => sorted.save(&self.lines, out),
            None => Ok(()),
        }
    }
    /// The slots of sorted records, if there may be such records.
    pub fn sorted(&self) -> Option<&Sorted> {
        self.sorted.as_ref()
    }
    /// Slots of 21 bits in use.
    pub fn sorted_slots(&self) -> u64 {
        self.sorted.as_ref().map_or(0, Sorted::slots)
    }
    /// Bytes of memory that a next batch of about so many records will take.
    pub fn bytes_of_batch(&self, records: u64) -> usize {
        let sorted = self.sorted.as_ref();
        sorted.map_or(0, |sorted| sorted.bytes_of_batch(&self.lines, records))
    }
    /// Forgets the records of the oldest batches, as [`Sorted::forget_oldest`].
    pub fn forget_oldest_sorted(&mut self) -> Option<u64> {
        let sorted = self.sorted.as_mut()?;
        sorted.forget_oldest(&mut self.lines)
    }
    /// Begins a batch of sorted records ([`Sorted::begin_batch`]).
    pub fn begin_batch(&mut self, records: u64) {
        if let Some(sorted) = &mut self.sorted {
            sorted.begin_batch(&self.lines, records);
        }
    }
    /// Notes where records of the batch were written.
    pub fn add_run(&mut self, run: &Run) {
        if let Some(sorted) = &mut self.sorted {
            sorted.add_run(run);
        }
    }

    /// Enters a slot of 21 bits for a record that was written with its batch. False if it was not,
    /// or if there is no room for it.
    pub fn enter_narrow(&mut self, hash: u64, slot: Slot) -> bool {
        let (page, lap) = (self.page(slot), slot.lap());
        let Some(sorted) = &mut self.sorted else {
            return false;
        };
        let batch = sorted.batch_of(page, lap);
        batch.is_some_and(|batch| sorted.insert(&mut self.lines, hash, batch, slot.hot()))
    }

    /// The next slot of a hash among those of sorted records: the newest, or the one before `slot`,
    /// which was one of them.
    pub fn next_narrow(&self, hash: u64, before: Option<Slot>) -> Option<Slot> {
        let sorted = self.sorted.as_ref()?;
        let below = match before {
            Some(slot) => sorted.batch_of(self.page(slot), slot.lap())?,
            None => u32::MAX,
        };
        let candidate = sorted.newest(&self.lines, hash, below)?;
        Some(self.narrow_slot(hash, &candidate))
    }

    /// Whether the record of a slot was sorted later than that of another slot, if there is one.
    pub fn is_newer(&self, slot: Slot, other: Slot) -> bool {
        other == Slot::EMPTY || self.batch_of(slot) > self.batch_of(other)
    }
    fn batch_of(&self, slot: Slot) -> Option<u32> {
        let sorted = self.sorted.as_ref()?;
        sorted.batch_of(self.page(slot), slot.lap())
    }

    fn narrow_in(&self, hash: u64, (page, lap): (u64, u64)) -> Option<(Pos, Slot)> {
        let sorted = self.sorted.as_ref()?;
        let candidate = sorted.at(&self.lines, hash, page, lap)?;
        Some((Pos::Narrow(candidate), self.narrow_slot(hash, &candidate)))
    }

    /// A slot of 21 bits as one of eight bytes: a page, and no expiry.
    fn narrow_slot(&self, hash: u64, candidate: &Candidate) -> Slot {
        let place = (candidate.page, candidate.lap);
        self.flash_slot(hash, place, 1, 0, 0)
            .with_hot(candidate.hot)
    }

    /// Removes all slots of sorted records that may be the one of this hash; returns how many.
    pub fn remove_narrow(&mut self, hash: u64) -> u64 {
        let Some(sorted) = &mut self.sorted else {
            return 0;
        };
        sorted.remove_all(&mut self.lines, hash)
    }

    /// Forgets all sorted records.
    pub fn forget_sorted(&mut self) {
        if let Some(sorted) = &mut self.sorted {
            sorted.clear(&mut self.lines);
        }
    }
    /// Notes that a region will be written again.
    pub fn freed(&mut self, page: u64, region_pages: u64) {
        if let Some(sorted) = &mut self.sorted {
            sorted.freed(&mut self.lines, page, region_pages);
        }
    }

    /// The pages of the next run of a walk over all sorted records ([`Sorted::walk`]), and the next
    /// cursor.
    pub fn walk_sorted(&self, cursor: u64) -> Option<(impl Iterator<Item = Slot>, u64)> {
        let (run, next) = self.sorted.as_ref()?.walk(cursor)?;
        let place = move |nth| self.flash_slot(0, (run.page + nth, run.lap), 1, 0, 0);
        Some(((0..run.starts.pages()).map(place), next))
    }
    /// Whether a slot's page is in a run of sorted records.
    pub fn is_in_run(&self, slot: Slot) -> bool {
        self.batch_of(slot).is_some()
    }

    /// The lines in which a search for a sorted record of the hash begins.
    pub fn narrow_lines(&self, hash: u64) -> impl Iterator<Item = &[u8]> {
        let sorted = self.sorted.iter();
        sorted.flat_map(move |sorted| sorted.lines_of(&self.lines, hash))
    }

    /// Counts the slots of a segment that was loaded whole.
    pub fn count(&mut self, n: usize) {
        let (mut count, mut flash) = (0, 0);
        self.each(n, |slot| {
            count += 1;
            flash += u16::from(slot.is_flash());
        });
        self.holds(n, count, flash);
    }

    /// Removes a slot of a segment by its value.
    pub fn remove_slot(&mut self, segment: usize, slot: Slot) {
        let (pos, _) = self
            .find_in(segment, self.tag_of(slot), |s| s == slot)
            .expect("the caller has just seen it");
        self.remove(pos);
    }

    /// Reads every slot of a segment.
    pub fn each(&self, n: usize, mut visit: impl FnMut(Slot)) {
        let Segment { chunk, step, .. } = self.segments[n];
        for at in 0..SEGMENT_LINES[step as usize] as usize * LINE {
            let slot = Slot(self.lines.u64(chunk, at * 8));
            if slot != Slot::EMPTY {
                visit(slot);
            }
        }
    }

    /// Reads the slots of a segment whose tags are in these parts of the tag range, which has
    /// [`PARTS`] equal parts. They lie in adjacent lines (INDEX-2), and no others are read.
    pub fn each_of_parts(&self, n: usize, parts: Range<usize>, mut visit: impl FnMut(Slot)) {
        let Segment { chunk, step, .. } = self.segments[n];
        let lines = SEGMENT_LINES[step as usize] as usize;
        let tag_at = |part: usize| ((part as u64) << self.tag_bits) / PARTS as u64;
        let tags = tag_at(parts.start)..tag_at(parts.end);
        let (first, last) = (self.home(tags.start, lines), self.home(tags.end - 1, lines));
        for line in first..first + lines {
            let mut full = true;
            for i in 0..LINE {
                let slot = Slot(self.lines.u64(chunk, (line % lines * LINE + i) * 8));
                full &= slot != Slot::EMPTY;
                if slot != Slot::EMPTY && tags.contains(&self.tag_of(slot)) {
                    visit(slot);
                }
            }
            if line >= last && !full {
                return;
            }
        }
    }

    #[inline]
    fn home(&self, tag: u64, lines: usize) -> usize {
        ((tag * lines as u64) >> self.tag_bits) as usize
    }

    pub fn wipe(&mut self, n: usize) {
        self.clear(self.segments[n]);
    }

    fn clear(&mut self, s: Segment) {
        self.lines
            .bytes_mut(s.chunk, 0, SEGMENT_LINES[s.step as usize] as usize * 64)
            .fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn make(flash_pages: u64, dram: usize) -> Index {
        let shape = Shape::plan(flash_pages, dram, false);
        let memory = AlignedBuf::new(Arena::segment_memory(dram, shape.page_bytes));
        Index::new(shape, memory, None).expect("room")
    }

    /// The index against a map of (hash, handle), through growth, with tags that often collide.
    #[test]
    fn model() {
        for seed in 1..20_u64 {
            let mut index = make(1 << (seed % 12), 4 << 20);
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let mut x = seed;
            for step in 1..30_000_u32 {
                x = x
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let hash = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                // Few tags: the low bits repeat.
                let hash = hash & !0xff_ffff | (hash % 4096) << 12;
                if x >> 40 & 3 != 0 {
                    // In one step, or some at a time.
                    while let Some(n) = index.wants_growth(hash)
                        && (seed % 3 == 0 || index.is_full_at(hash))
                        && index.grow(n)
                    {}
                    if let Some(n) = index.wants_growth(hash) {
                        index.grow_by(n, 1);
                    }
                    let slot = index.dram_slot(hash, step);
                    if index.insert(hash, slot).is_ok() {
                        model.insert(step, hash);
                    }
                } else if let Some((&item, &hash)) = model.range((x >> 33) as u32 % step..).next() {
                    let (pos, _) = index
                        .find(hash, |s| index.handle(s) == item)
                        .expect("a slot that was inserted");
                    index.remove(pos);
                    model.remove(&item);
                }
                if step % 5000 == 0 {
                    assert_eq!(index.slots(), model.len() as u64, "seed {seed}");
                    for (&item, &hash) in &model {
                        assert!(
                            index
                                .find(hash, |s| s.is_dram() && index.handle(s) == item)
                                .is_some(),
                            "seed {seed} step {step}"
                        );
                    }
                }
            }
        }
    }

    /// The purpose of the index: at any size from half of the plan on, an item takes less than ten
    /// bytes.
    #[test]
    fn a_slot_takes_less_than_ten_bytes_at_any_size() {
        let mut index = make(1 << 18, 128 << 20);
        let mut x = 1_u64;
        for n in 1..=8_000_000_u64 {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let hash = (x ^ x >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            while let Some(n) = index.wants_growth(hash) {
                assert!(index.grow(n));
            }
            let slot = index.dram_slot(hash, n as u32);
            index.insert(hash, slot).expect("room");
            if n % 50_000 == 0 && n > 3_750_000 {
                let bytes = index.bytes() as f64 / n as f64;
                assert!(bytes < 10.0, "{n} slots, {bytes:.2} bytes each");
            }
        }
    }

    #[test]
    fn a_hit_is_lately_until_its_line_has_aged() {
        let mut index = make(1000, 1 << 20);
        let cold = index.flash_slot(7, (1, 0), 1, 0, 0);
        let hit = [cold, cold.hit(), cold.hit().hit(), cold.hit().hit().hit()];
        assert_eq!(hit.map(Slot::hits_lately), [0, 1, 2, 2]);
        for slot in hit {
            index.insert(7, slot).expect("room");
            let dram = index.dram_slot(7, 5);
            index.insert(7, dram).expect("room");
            let segment = index.segment_of(7);
            let lines = (0..)
                .take_while(|&line| index.age_line(segment, line))
                .count();
            assert!(lines > 0 && !index.age_line(segment, lines));
            let (pos, aged) = index.find_same(7, slot).expect("it was entered");
            assert_eq!(aged.hits_lately(), 0);
            assert_eq!(
                aged.hot() > 0,
                slot.hot() > 0,
                "that it was hit stays known"
            );
            assert_eq!(
                aged.hit().hits_lately(),
                1,
                "and the next hit counts from one"
            );
            index.remove_at(&pos);
            let (pos, _) = index.find_same(7, dram).expect("it was left alone");
            index.remove_at(&pos);
        }
    }

    #[test]
    fn coarse_expiry_never_errs_towards_gone() {
        let index = make(1000, 1 << 20);
        let base = 1_700_000_000_u32;
        for life in [
            1, 60, 4095, 4096, 10_000, 400_000, 519_000, 521_000, 1_000_000, 30_000_000,
        ] {
            for offset in 0..300 {
                let now = base + offset * 977;
                let slot = index.flash_slot(7, (1, 3), 1, now + life, now);
                for later in (0..life).step_by(1 + life as usize / 50) {
                    assert!(!slot.expired(now + later), "life {life}, {later} later");
                }
                if life < 500_000 {
                    assert!(slot.expired(now + life + 4096), "life {life}");
                }
            }
        }
    }

    /// An index that wanted to grow made items leave for it. With their slots the need was gone,
    /// and they came back; so a page was emptied again and again, and the index never grew.
    #[test]
    fn growth_stays_due_until_it_begins() {
        let mut index = make(1 << 12, 4 << 20);
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let wanted = (1..).find_map(|n| {
            let slot = index.dram_slot(hash(n), n as u32);
            index.insert(hash(n), slot).expect("room");
            index.wants_growth(hash(n)).map(|segment| (n, segment))
        });
        let (n, segment) = wanted.expect("it fills");
        for gone in 1..=n {
            let (pos, _) = index.find(hash(gone), |_| true).expect("it is there");
            index.remove(pos);
        }
        assert_eq!(index.wants_growth(hash(1)), Some(segment));
        assert!(index.grow(segment));
        assert_eq!(index.wants_growth(hash(1)), None);
    }

    /// All parts of a segment together have each of its slots once, wherever it overflowed to.
    #[test]
    fn parts_are_the_whole() {
        let mut x = 1_u64;
        for few_tags in [false, true] {
            let mut index = make(1 << 12, 4 << 20);
            for n in 1..20_000 {
                x = x
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let mut hash = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                if few_tags {
                    hash |= hash >> 5 & index.tag_mask;
                }
                while let Some(segment) = index.wants_growth(hash) {
                    assert!(index.grow(segment));
                }
                let slot = index.dram_slot(hash, n);
                index.insert(hash, slot).expect("room");
            }
            let mut longest = 0;
            for n in 0..index.segments() {
                let (mut all, mut parts) = (Vec::new(), Vec::new());
                index.each(n, |slot| all.push(slot.0));
                for part in 0..PARTS {
                    let before = parts.len();
                    index.each_of_parts(n, part..part + 1, |slot| parts.push(slot.0));
                    longest = longest.max(parts.len() - before);
                }
                all.sort_unstable();
                parts.sort_unstable();
                assert_eq!(all, parts, "segment {n}");
            }
            assert!(few_tags || longest < 4096 / PARTS * 2, "{longest}");
        }
    }

    #[test]
    fn flash_slots_are_counted_through_every_change() {
        let mut index = make(1000, 1 << 20);
        let counted = |index: &Index| {
            let mut flash = 0;
            (0..index.segments())
                .for_each(|n| index.each(n, |slot| flash += u64::from(slot.is_flash())));
            assert_eq!(index.flash_slots(), flash);
            flash
        };
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for n in 0..3000 {
            while let Some(segment) = index.wants_growth(hash(n)) {
                assert!(index.grow(segment));
            }
            let (flash, dram) = (
                index.flash_slot(hash(n), (n % 900, 1), 1, 0, 0),
                index.dram_slot(hash(n), n as u32 + 1),
            );
            let slot = if n % 3 == 0 { dram } else { flash };
            index.insert(hash(n), slot).expect("room");
            let (pos, _) = index.find(hash(n), |s| s == slot).expect("it was entered");
            match n % 7 {
                0 => index.remove(pos),
                1 => index.set(pos, if n % 3 == 0 { flash } else { dram }),
                _ => {}
            }
        }
        let flash = counted(&index);
        assert!((1000..2900).contains(&flash));
        let (mut slots, mut new) = (Vec::new(), Vec::new());
        for n in 0..index.segments() {
            index.slots_of(n, &mut slots);
            let on_flash = slots.iter().copied().filter(|slot| slot.is_flash());
            index.mend(n, on_flash, &mut new);
        }
        assert_eq!(counted(&index), flash);
    }

    #[test]
    fn fields_stay_apart() {
        for pages in [1, 1 << 18, 1 << 20, 1 << 28] {
            let index = make(pages, 256 << 20);
            let slot = index
                .flash_slot(u64::MAX, (pages - 1, 2), 15, 0, 0)
                .with_hot(3);
            assert_eq!(
                (index.page(slot), slot.len(), slot.hot(), index.tag_of(slot)),
                (pages - 1, 15, 3, index.tag(u64::MAX))
            );
            assert_eq!(index.flash_slot(1, (0, 0), 16, 0, 0).len(), 0);
            let slot = index.dram_slot(u64::MAX, u32::MAX);
            assert!(slot.is_dram() && !slot.is_flash() && index.handle(slot) == u32::MAX);
        }
    }
}
