// SPDX-License-Identifier: Apache-2.0
//! A table of narrow slots: 21 bits for a record, three slots in a word.
//!
//! ```text
//! 20        17  16  15  14            0
//! |   batch   |  hot  |   remainder   |     batch 0: empty
//! ```
//!
//! A bucket is two lines of memory, 48 slots. The hash picks the bucket, and the 15 bits of it that
//! come next are the remainder. The first of these picks the line of a slot. If that is full, the
//! slot lies in the other line, and the full one gets a mark (bit 63 of its first word). A slot
//! names a batch, counted from the table's first, and nothing else: the page follows from the hash
//! (`runs.rs`). A full bucket takes no more slots, so a table never grows: at 92 % about three
//! records of a hundred find no place, and get a slot of eight bytes. It is dropped as a whole once
//! its batches are gone.
//!
//! Always holds:
//! - TABLE-1: each change is one store of a word (RESTART-1), or a mark and then one store.
//! - TABLE-2: at most one slot has a given bucket, remainder and batch. The writer of a batch sees
//!   to that (SORTED-1).

use senko_io::le::u64_at;

use super::ledger::{Directory, KeptTable, Range};
use crate::arena::{Arena, Handle, SEGMENT_LINES};

const SLOT_BITS: u32 = 21;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const REMAINDER_BITS: u32 = 15;
const REMAINDER: u64 = (1 << REMAINDER_BITS) - 1;
const HOT_SHIFT: u32 = 15;
const HOT: u64 = 3 << HOT_SHIFT;
const BATCH_SHIFT: u32 = 17;
/// Batches of a table.
pub(super) const MOST_BATCHES: u32 = (1 << (SLOT_BITS - BATCH_SHIFT)) - 1;
const SLOTS_OF_WORD: u32 = 64 / SLOT_BITS;
/// A word with this number in each slot.
const ONES: u64 = 1 | 1 << SLOT_BITS | 1 << (2 * SLOT_BITS);
/// In a line's first word: slots of this line lie in the other line of the bucket.
const MARK: u64 = 1 << 63;
const LINE_BYTES: usize = 64;
const BUCKET_LINES: usize = 2;
const BUCKET_BYTES: usize = BUCKET_LINES * LINE_BYTES;
const BUCKET_SLOTS: u64 = (BUCKET_BYTES / 8) as u64 * SLOTS_OF_WORD as u64;
/// A table of this many records per hundred slots is full.
const FULL_PERCENT: u64 = 92;
/// Lines of a segment, at most. Its memory is taken at once, and pages of the index's memory hold
/// whole segments.
const MOST_LINES: usize = 128;

/// Where a slot lies; valid until the next change of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    chunk: Handle,
    word: u32,
    nth: u32,
}

/// Where the slots of a hash may lie, and what distinguishes them.
struct Home {
    segment: usize,
    /// Offset of the bucket in its segment.
    bucket: usize,
    remainder: u64,
}

impl Home {
    /// The offset of the line that it prefers.
    fn line(&self) -> usize {
        self.bucket + (self.remainder >> (REMAINDER_BITS - 1)) as usize * LINE_BYTES
    }
    /// The offset of its other line.
    fn other(&self) -> usize {
        2 * self.bucket + LINE_BYTES - self.line()
    }
}

/// A slot that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub spot: Spot,
    /// Its batch, counted from 1.
    pub batch: u32,
    pub hot: u8,
}

#[derive(Debug)]
pub(super) struct Table {
    /// Chunks of buckets; 0 until a first slot needs it.
    segments: Vec<Handle>,
    /// The size class of a segment.
    step: usize,
    slots: u64,
    /// Where the segments are named.
    range: Range,
}

impl Table {
    /// A table for about this many records, from this batch on. It has no memory yet. `None` if
    /// there are too many tables.
    pub fn new(
        lines: &Arena,
        directory: &mut Directory,
        first: u32,
        records: u64,
    ) -> Option<Table> {
        let (step, segments) = Table::shape(lines, records);
        Table::empty(directory, first, step, segments)
    }

    /// Size class and number of the segments for about this many records.
    fn shape(lines: &Arena, records: u64) -> (usize, usize) {
        let needed = (records * 100).div_ceil(FULL_PERCENT * BUCKET_SLOTS).max(1) * 2;
        // Segments of all tables have the same size, so that they share pages.
        let most = MOST_LINES.min(lines.page_bytes() / 64) as u64;
        let segments = needed.div_ceil(most);
        let of_each = needed.min(most);
        let step = SEGMENT_LINES.partition_point(|&n| u64::from(n) < of_each || n % 2 == 1);
        (step, segments as usize)
    }

    /// Bytes of memory of a table for about this many records.
    pub fn bytes_for(lines: &Arena, records: u64) -> usize {
        let (step, segments) = Table::shape(lines, records);
        segments * usize::from(SEGMENT_LINES[step]) * LINE_BYTES
    }

    /// A table with segments of this size class, which have no memory yet.
    pub fn empty(
        directory: &mut Directory,
        first: u32,
        step: usize,
        segments: usize,
    ) -> Option<Table> {
        Some(Table {
            segments: vec![0; segments],
            step,
            slots: 0,
            range: directory.add(first, step, segments)?,
        })
    }

    /// A table that another process left, and the newest batch in it.
    pub fn kept(lines: &Arena, kept: KeptTable) -> (Table, u32) {
        let mut table = Table {
            segments: kept.chunks,
            step: kept.step,
            slots: 0,
            range: kept.range,
        };
        let newest = (0..table.segments.len()).map(|n| table.count(lines, n));
        let newest = newest.max().unwrap_or(0);
        (table, newest)
    }

    /// Whether segments of a table can have this size class.
    pub fn takes(lines: &Arena, step: usize) -> bool {
        step < lines.classes().len() && SEGMENT_LINES[step].is_multiple_of(BUCKET_LINES as u16)
    }

    /// Counts the slots of a segment, and returns the newest batch in it.
    fn count(&mut self, lines: &Arena, segment: usize) -> u32 {
        let (mut newest, mut slots) = (0, 0);
        let bytes = self.segment_bytes(lines, segment).unwrap_or(&[]);
        for word in bytes.chunks_exact(8).map(|bytes| u64_at(bytes, 0)) {
            for nth in 0..SLOTS_OF_WORD {
                let batch = (word >> (nth * SLOT_BITS) & SLOT_MASK) >> BATCH_SHIFT;
                slots += u64::from(batch != 0);
                newest = newest.max(batch as u32);
            }
        }
        self.slots += slots;
        newest
    }

    /// The size class of its segments.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Bytes of a segment.
    pub fn segment_len(&self) -> usize {
        usize::from(SEGMENT_LINES[self.step]) * LINE_BYTES
    }

    /// The bytes of a segment, if it has memory.
    pub fn segment_bytes<'a>(&self, lines: &'a Arena, segment: usize) -> Option<&'a [u8]> {
        let chunk = self.segments[segment];
        (chunk != 0).then(|| lines.bytes(chunk, 0, self.segment_len()))
    }

    /// Gives a segment its bytes, which are as [`Table::segment_bytes`] told them. `None` if there
    /// is no memory.
    pub fn load(
        &mut self,
        lines: &mut Arena,
        directory: &Directory,
        segment: usize,
        bytes: &[u8],
    ) -> Option<()> {
        self.give_memory(lines, directory, segment)?;
        let chunk = self.segments[segment];
        for (n, word) in bytes.chunks_exact(8).enumerate() {
            lines.set_word(chunk, n * 8, u64_at(word, 0));
        }
        self.count(lines, segment);
        Some(())
    }

    /// Takes memory for a segment that has none, and names it.
    fn give_memory(
        &mut self,
        lines: &mut Arena,
        directory: &Directory,
        segment: usize,
    ) -> Option<()> {
        let chunk = lines.alloc(self.step)?;
        for at in (0..self.segment_len()).step_by(8) {
            lines.set_word(chunk, at, 0);
        }
        directory.place(self.range, segment, chunk);
        self.segments[segment] = chunk;
        Some(())
    }

    fn buckets_of_segment(&self) -> u64 {
        u64::from(SEGMENT_LINES[self.step]) / BUCKET_LINES as u64
    }

    fn home(&self, hash: u64) -> Home {
        let times = |n: u64, part: u64| {
            let product = u128::from(n) * u128::from(part);
            ((product >> 64) as usize, product as u64)
        };
        let (segment, rest) = times(self.segments.len() as u64, hash);
        let (bucket, rest) = times(self.buckets_of_segment(), rest);
        Home {
            segment,
            bucket: bucket * BUCKET_BYTES,
            remainder: rest >> (64 - REMAINDER_BITS),
        }
    }

    /// Whether two hashes have the same bucket and remainder. If so, no other hash between them has
    /// another.
    pub fn are_twins(&self, a: u64, b: u64) -> bool {
        let (a, b) = (self.home(a), self.home(b));
        (a.segment, a.bucket, a.remainder) == (b.segment, b.bucket, b.remainder)
    }

    /// Slots in use.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Whether it should take no further batch.
    pub fn is_full(&self) -> bool {
        let all = self.buckets_of_segment() * self.segments.len() as u64 * BUCKET_SLOTS;
        self.slots * 100 >= all * FULL_PERCENT
    }

    /// The line in which a search for a hash begins, and usually ends, if it has memory.
    pub fn line<'a>(&self, lines: &'a Arena, hash: u64) -> Option<&'a [u8]> {
        let home = self.home(hash);
        let chunk = self.segments[home.segment];
        (chunk != 0).then(|| lines.bytes(chunk, home.line(), LINE_BYTES))
    }

    /// The slot of a hash that has the newest batch below `below`.
    #[inline]
    pub fn newest(&self, lines: &Arena, hash: u64, below: u32) -> Option<Found> {
        let mut newest: Option<Found> = None;
        self.each_of(lines, hash, |found| {
            if found.batch < below && newest.is_none_or(|n| n.batch < found.batch) {
                newest = Some(found);
            }
        });
        newest
    }

    /// The slot of a hash in this batch.
    pub fn of_batch(&self, lines: &Arena, hash: u64, batch: u32) -> Option<Found> {
        let found = self.newest(lines, hash, batch + 1)?;
        (found.batch == batch).then_some(found)
    }

    #[inline]
    fn each_of(&self, lines: &Arena, hash: u64, mut each: impl FnMut(Found)) {
        let home = self.home(hash);
        let chunk = self.segments[home.segment];
        if chunk != 0 && each_in(lines, chunk, home.line(), home.remainder, &mut each) {
            each_in(lines, chunk, home.other(), home.remainder, &mut each);
        }
    }

    /// Enters a slot; false if its bucket is full, or there is no memory for its segment.
    pub fn insert(
        &mut self,
        lines: &mut Arena,
        directory: &Directory,
        hash: u64,
        (batch, hot): (u32, u8),
    ) -> bool {
        debug_assert!((1..=MOST_BATCHES).contains(&batch));
        debug_assert_eq!(self.of_batch(lines, hash, batch), None, "TABLE-2");
        let home = self.home(hash);
        if self.segments[home.segment] == 0
            && self.give_memory(lines, directory, home.segment).is_none()
        {
            return false;
        }
        let chunk = self.segments[home.segment];
        let slot = u64::from(batch) << BATCH_SHIFT | u64::from(hot.min(3)) << HOT_SHIFT;
        let slot = slot | home.remainder;
        for (line, other) in [(home.line(), false), (home.other(), true)] {
            for word in (line..line + LINE_BYTES).step_by(8) {
                let now = lines.u64(chunk, word);
                let holes = (0..SLOTS_OF_WORD).map(|nth| nth * SLOT_BITS);
                let Some(shift) = holes.into_iter().find(|n| now >> n & SLOT_MASK == 0) else {
                    continue;
                };
                if other {
                    let first = lines.u64(chunk, home.line());
                    lines.set_word(chunk, home.line(), first | MARK);
                }
                lines.set_word(chunk, word, now | slot << shift);
                self.slots += 1;
                return true;
            }
        }
        false
    }

    /// Sets the hits of a slot.
    pub fn set_hot(&self, lines: &mut Arena, spot: Spot, hot: u8) {
        let (now, shift) = (
            lines.u64(spot.chunk, spot.word as usize),
            spot.nth * SLOT_BITS,
        );
        let hot = u64::from(hot.min(3)) << HOT_SHIFT << shift;
        lines.set_word(spot.chunk, spot.word as usize, now & !(HOT << shift) | hot);
    }

    pub fn remove(&mut self, lines: &mut Arena, spot: Spot) {
        let now = lines.u64(spot.chunk, spot.word as usize);
        let slot = SLOT_MASK << (spot.nth * SLOT_BITS);
        debug_assert_ne!(now & slot, 0);
        lines.set_word(spot.chunk, spot.word as usize, now & !slot);
        self.slots -= 1;
    }

    pub fn segments(&self) -> usize {
        self.segments.len()
    }
    /// Lines of all segments.
    pub fn lines(&self) -> u64 {
        u64::from(SEGMENT_LINES[self.step]) * self.segments.len() as u64
    }

    /// Turns recent hits in a line of a segment into old ones; false if there is no such line.
    pub fn age_line(&self, lines: &mut Arena, segment: usize, line: usize) -> bool {
        let chunk = self.segments[segment];
        if chunk == 0 || line >= usize::from(SEGMENT_LINES[self.step]) {
            return false;
        }
        for word in (line * 64..(line + 1) * 64).step_by(8) {
            let now = lines.u64(chunk, word);
            let mut aged = now;
            for nth in 0..SLOTS_OF_WORD {
                // 2 and 3 become 1 (`Slot::hits_lately`).
                if now >> (nth * SLOT_BITS) & HOT > 1 << HOT_SHIFT {
                    aged = aged & !(HOT << (nth * SLOT_BITS)) | 1 << (nth * SLOT_BITS + HOT_SHIFT);
                }
            }
            if aged != now {
                lines.set_word(chunk, word, aged);
            }
        }
        true
    }

    /// Frees its memory.
    pub fn end(self, lines: &mut Arena) {
        for chunk in self.segments.into_iter().filter(|&chunk| chunk != 0) {
            lines.free(chunk);
        }
    }
}

/// Visits the slots of a line that have this remainder. Returns whether the other line may have
/// some too.
#[inline]
fn each_in(
    lines: &Arena,
    chunk: Handle,
    line: usize,
    remainder: u64,
    each: &mut impl FnMut(Found),
) -> bool {
    let bytes = lines.bytes(chunk, line, LINE_BYTES);
    let words: [u64; LINE_BYTES / 8] = std::array::from_fn(|n| u64_at(bytes, n * 8));
    // For each slot, the bit above its remainder is 0 if the remainder is the right one.
    let (wanted, remainders) = (remainder * ONES, REMAINDER * ONES);
    let differ = |word: u64| ((word ^ wanted) & remainders) + remainders;
    let above = (REMAINDER + 1) * ONES;
    let found = words.map(|word| !differ(word) & above);
    if found.iter().fold(0, |all, word| all | word) != 0 {
        for (n, found) in found.into_iter().enumerate() {
            for nth in 0..SLOTS_OF_WORD {
                let slot = words[n] >> (nth * SLOT_BITS) & SLOT_MASK;
                let batch = (slot >> BATCH_SHIFT) as u32;
                if found >> (nth * SLOT_BITS + REMAINDER_BITS) & 1 == 1 && batch != 0 {
                    let word = (line + n * 8) as u32;
                    each(Found {
                        spot: Spot { chunk, word, nth },
                        batch,
                        hot: (slot >> HOT_SHIFT & 3) as u8,
                    });
                }
            }
        }
    }
    words[0] & MARK != 0
}
