// SPDX-License-Identifier: Apache-2.0
//! From a hash to the run of pages that holds it, in about 8 bits of DRAM a page (2 bits an element
//! at four a page).
//!
//! Idea: a page is known by a *separator*: the `order` of the first element that begins in it, cut
//! to a *cell* of 2^shift. The separators ascend, so an Elias-Fano list holds them. The low bits of
//! each are in an array. The high bits are in unary: a 1 for each page, a 0 where the next high
//! value begins. The place of every 128th 0 is noted, so a look-up goes straight to the pages that
//! share its high bits. The result is the last page whose separator is no larger than the hash's
//! cell. Source: paper A, 9.3 (the page index apart from the pages, so that one read suffices);
//! Elias 1974 and Fano 1971; Vigna 2013 (selection by sampled zeros). Deviation: the paper holds
//! full hashes and reads the index from flash. Cells are 2^-6 of the range of a page, chosen from
//! the block's own density; the writer makes sure that two pages do not share a cell. If this is
//! impossible (two elements that only just fit a page each), the pages get the same separator, and
//! a list beside it keeps the whole hash of the boundary: a *split*. Pages that share a whole hash
//! (many versions of one key) are read together.
//!
//! Always holds: an element of a hash begins and ends in the pages that [`PageIndex::find`] returns
//! for it.

use senko_io::le::u32_at;

/// Cells that a page covers, as a power of two. One more makes the index a bit a page larger and
/// halves what the writer loses by moving elements that share a cell with the next page's first
/// (0.8 % of a page at 6).
const CELL_BITS: u32 = 6;

/// One in this many zeros of the unary part has its place stored.
const SAMPLE: usize = 128;

/// The size of a cell for pages that cover `gap` of the hash range each, as a power of two.
pub(crate) fn shift_for(gap: u64) -> u32 {
    // Rounded to the next power, so that a page covers 45 to 90 cells.
    let log = (gap.max(1) as f64).log2().round() as u32;
    log.saturating_sub(CELL_BITS).min(63)
}

/// The writer's notes about a page that it has closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageNote {
    /// `order` of the first element that begins in it.
    pub first: u64,
    /// `order` of the last element that begins in it.
    pub last: u64,
    /// No element begins in it; `first` and `last` are the previous page's.
    pub rest_only: bool,
    /// It begins with the rest of an earlier element.
    pub tail: bool,
}

/// The separators of a block's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageIndex {
    pages: u32,
    shift: u8,
    low_bits: u8,
    /// The first separator; the others are stored as differences from it.
    base: u64,
    /// Unary: page p is the 1 at place `high(p) + p`.
    high: Box<[u64]>,
    low: Box<[u64]>,
    /// Places of zeros, each [`SAMPLE`]th.
    zeros: Box<[u32]>,
    /// A bit for each page that begins with the rest of an element; empty if none does.
    tails: Box<[u64]>,
    /// Pages with the same separator as the page before but another last hash, with their first
    /// hashes.
    split_pages: Box<[u32]>,
    split_orders: Box<[u64]>,
}

/// Pages `first..end` of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub first: u32,
    pub end: u32,
}

impl PageIndex {
    /// Bytes of the fixed part of the encoded index.
    pub const HEADER: usize = 24;

    /// The index of the pages of a block.
    pub(crate) fn build(notes: &[PageNote]) -> PageIndex {
        let span = notes.last().map_or(0, |last| last.last - notes[0].first);
        let shift = shift_for(span / (notes.len() as u64).max(1));
        let mut separators = Vec::with_capacity(notes.len());
        let (mut pages, mut orders) = (Vec::new(), Vec::new());
        for (nth, note) in notes.iter().enumerate() {
            let mut cell = note.first >> shift;
            if nth > 0 && (note.rest_only || notes[nth - 1].last >> shift == cell) {
                cell = separators[nth - 1];
                if !note.rest_only && notes[nth - 1].last < note.first {
                    pages.push(nth as u32);
                    orders.push(note.first);
                }
            }
            separators.push(cell);
        }
        // Only keys that were chosen to share cells need more. Without more, the pages are read
        // together.
        pages.truncate(split_bound(notes.len()));
        orders.truncate(pages.len());
        let tails: Vec<bool> = notes.iter().map(|note| note.tail).collect();
        let mut index = PageIndex::encode_separators(&separators, shift, &tails);
        index.split_pages = pages.into();
        index.split_orders = orders.into();
        index
    }

    fn encode_separators(separators: &[u64], shift: u32, tails: &[bool]) -> PageIndex {
        let pages = separators.len();
        let base = separators.first().copied().unwrap_or(0);
        let largest = separators.last().copied().unwrap_or(0) - base;
        let low_bits = (largest.saturating_add(1) / (pages as u64).max(1))
            .checked_ilog2()
            .unwrap_or(0);
        let mut high = vec![0u64; high_words(pages, largest >> low_bits)];
        let mut low = vec![0u64; (pages * low_bits as usize).div_ceil(64)];
        for (page, separator) in separators.iter().enumerate() {
            let value = separator - base;
            let place = (value >> low_bits) as usize + page;
            high[place / 64] |= 1 << (place % 64);
            put_bits(&mut low, page, low_bits, value & mask(low_bits));
        }
        let mut bits = Vec::new();
        if tails.contains(&true) {
            bits = vec![0u64; pages.div_ceil(64)];
            for page in (0..pages).filter(|page| tails[*page]) {
                bits[page / 64] |= 1 << (page % 64);
            }
        }
        let zeros = sample_zeros(&high);
        PageIndex {
            pages: pages as u32,
            shift: shift as u8,
            low_bits: low_bits as u8,
            base,
            high: high.into(),
            low: low.into(),
            zeros,
            tails: bits.into(),
            split_pages: Box::default(),
            split_orders: Box::default(),
        }
    }

    /// Pages of the block.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Bytes of DRAM besides the `PageIndex` itself.
    pub fn heap_bytes(&self) -> usize {
        8 * (self.high.len() + self.low.len() + self.tails.len() + self.split_orders.len())
            + 4 * (self.zeros.len() + self.split_pages.len())
    }

    /// The pages in which elements of this `order` may lie; none if it is below the block's first.
    #[inline]
    pub(crate) fn find(&self, order: u64) -> Pages {
        let cell = order >> self.shift;
        if self.pages == 0 || cell < self.base {
            return Pages { first: 0, end: 0 };
        }
        let value = cell - self.base;
        let bucket = value >> self.low_bits;
        let low = value & mask(u32::from(self.low_bits));
        // The pages that share the high bits: a run of ones.
        let (mut begin, mut first) = match self.bucket(bucket) {
            Some(place) => (place, (place as u64 - bucket) as u32),
            // Above the separators of all pages.
            None => (self.high.len() * 64, self.pages),
        };
        let mut count = self.ones_from(begin);
        let mut below = first + self.partition(first, count, |page| page <= low);
        if below == first {
            // No page has such a separator, so the result is the last page before it. There always
            // is a page before it, because page 0 has the value 0.
            let last = self.one_before(begin);
            count = self.ones_to(last);
            begin = last + 1 - count as usize;
            first -= count;
            below = first + count;
        }
        debug_assert!(begin < self.high.len() * 64);
        let last = below - 1;
        let same = self.low_of(last);
        let start = first + self.partition(first, last - first, |page| page < same);
        let (start, mut end) = if start == last {
            (start, below)
        } else {
            self.split(start, below, order)
        };
        if self.begins_with_tail(end) {
            // The last element of the run continues in this page.
            end += 1;
        }
        Pages { first: start, end }
    }

    /// The part of the pages `start..end`, which share a separator, that holds a hash.
    #[cold]
    fn split(&self, mut start: u32, mut end: u32, order: u64) -> (u32, u32) {
        let next = self.split_orders.partition_point(|first| *first <= order);
        if let Some(page) = next.checked_sub(1).map(|nth| self.split_pages[nth])
            && page > start
            && page < end
        {
            start = page;
        }
        if let Some(page) = self.split_pages.get(next)
            && *page > start
            && *page < end
        {
            end = *page;
        }
        (start, end)
    }

    /// Whether a page begins with the rest of an element that began before it.
    pub(crate) fn begins_with_tail(&self, page: u32) -> bool {
        let word = self.tails.get(page as usize / 64);
        word.is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// How many of the pages `first..first + count`, which share their high bits, come first by
    /// their low bits.
    fn partition(&self, first: u32, count: u32, before: impl Fn(u64) -> bool) -> u32 {
        let (mut from, mut to) = (0, count);
        while from < to {
            let middle = from + (to - from) / 2;
            if before(self.low_of(first + middle)) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }

    #[inline]
    fn low_of(&self, page: u32) -> u64 {
        let bits = usize::from(self.low_bits);
        if bits == 0 {
            return 0;
        }
        let at = page as usize * bits;
        let (word, bit) = (at / 64, at % 64);
        let mut value = self.low[word] >> bit;
        if bit + bits > 64 {
            value |= self.low[word + 1] << (64 - bit);
        }
        value & mask(bits as u32)
    }

    /// The place at which the pages with these high bits begin: after the zero that ends the
    /// previous bucket. `None` after the last bucket.
    #[inline]
    fn bucket(&self, bucket: u64) -> Option<usize> {
        let Some(before) = bucket.checked_sub(1) else {
            return Some(0);
        };
        let before = usize::try_from(before).ok()?;
        let mut place = *self.zeros.get(before / SAMPLE)? as usize;
        let mut skip = before % SAMPLE;
        let mut word = !self.high[place / 64] & (u64::MAX << (place % 64));
        loop {
            let zeros = word.count_ones() as usize;
            if skip < zeros {
                for _ in 0..skip {
                    word &= word - 1;
                }
                return Some((place & !63) + word.trailing_zeros() as usize + 1);
            }
            skip -= zeros;
            place = (place & !63) + 64;
            word = !*self.high.get(place / 64)?;
        }
    }

    /// Ones in a row from this place on.
    #[inline]
    fn ones_from(&self, place: usize) -> u32 {
        let mut count = 0;
        let mut at = place;
        while let Some(word) = self.high.get(at / 64) {
            let ones = (!(word >> (at % 64)))
                .trailing_zeros()
                .min(64 - (at % 64) as u32);
            count += ones;
            at += ones as usize;
            if ones == 0 || !at.is_multiple_of(64) {
                break;
            }
        }
        count
    }

    /// Ones in a row that end at this place, which holds a one.
    fn ones_to(&self, place: usize) -> u32 {
        let mut count = 0;
        let mut end = place + 1;
        while end > 0 {
            let (word, bits) = ((end - 1) / 64, (end - 1) % 64 + 1);
            let ones = (self.high[word] << (64 - bits))
                .leading_ones()
                .min(bits as u32);
            count += ones;
            end -= ones as usize;
            if (ones as usize) < bits {
                break;
            }
        }
        count
    }

    /// The last place before this one that holds a one.
    fn one_before(&self, place: usize) -> usize {
        let mut word = place / 64;
        let mut bits = match self.high.get(word) {
            Some(bits) => bits & !(u64::MAX << (place % 64)),
            None => 0,
        };
        while bits == 0 {
            // Page 0 is the one at place 0.
            word -= 1;
            bits = self.high[word];
        }
        word * 64 + 63 - bits.leading_zeros() as usize
    }

    /// Bytes that [`PageIndex::encode`] appends.
    pub(crate) fn encoded_len(&self) -> usize {
        PageIndex::HEADER
            + 8 * (self.high.len() + self.low.len() + self.tails.len())
            + 12 * self.split_pages.len()
    }

    /// The most bytes that the saved index of a block with this many pages can take.
    pub(crate) fn encoded_bound(pages: u64) -> u64 {
        // 6.5 bits of cells, 3 in unary, a bit of tails, 3 of splits; words that are not full.
        PageIndex::HEADER as u64 + 2 * pages + 12 * split_bound(0) as u64 + 32
    }

    /// Appends what is saved in the block's head.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.base.to_le_bytes());
        out.extend_from_slice(&self.pages.to_le_bytes());
        out.extend_from_slice(&(self.high.len() as u32).to_le_bytes());
        out.push(self.shift);
        out.push(self.low_bits);
        out.push(u8::from(!self.tails.is_empty()));
        out.push(0);
        out.extend_from_slice(&(self.split_pages.len() as u32).to_le_bytes());
        let words = [&self.high, &self.low, &self.tails, &self.split_orders];
        for word in words.into_iter().flatten() {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for page in &self.split_pages {
            out.extend_from_slice(&page.to_le_bytes());
        }
    }

    /// Reads a saved index. If it is accepted, every look-up ends and returns pages of the block.
    pub(crate) fn decode(from: &[u8]) -> Result<PageIndex, &'static str> {
        const CUT: &str = "the page index has another length than it says";
        let (head, words) = from.split_at_checked(PageIndex::HEADER).ok_or(CUT)?;
        let half = |at: usize| u32_at(head, at);
        let base = u64::from_le_bytes(head[..8].try_into().expect("8 bytes"));
        let (pages, high_len) = (half(8), half(12) as usize);
        let (shift, low_bits, has_tails) = (head[16], head[17], head[18]);
        if shift > 63 || low_bits > 63 || has_tails > 1 || head[19] != 0 {
            return Err("the page index has settings that there are not");
        }
        let low_len = (pages as usize * usize::from(low_bits)).div_ceil(64);
        let tails_len = usize::from(has_tails) * (pages as usize).div_ceil(64);
        let (high, rest) = words.split_at_checked(8 * high_len).ok_or(CUT)?;
        let (low, rest) = rest.split_at_checked(8 * low_len).ok_or(CUT)?;
        let (tails, rest) = rest.split_at_checked(8 * tails_len).ok_or(CUT)?;
        let splits = half(20) as usize;
        let (split_orders, split_pages) = rest.split_at_checked(8 * splits).ok_or(CUT)?;
        if split_pages.len() != 4 * splits {
            return Err(CUT);
        }
        let high = read_words(high);
        if high.len() > u32::MAX as usize / 64 {
            return Err(CUT);
        }
        let index = PageIndex {
            pages,
            shift,
            low_bits,
            base,
            zeros: sample_zeros(&high),
            high,
            low: read_words(low),
            tails: read_words(tails),
            split_pages: split_pages
                .chunks_exact(4)
                .map(|page| u32::from_le_bytes(page.try_into().expect("4 bytes")))
                .collect(),
            split_orders: read_words(split_orders),
        };
        index.check()?;
        Ok(index)
    }

    /// Checks that the index read is one that [`PageIndex::encode_separators`] can write.
    fn check(&self) -> Result<(), &'static str> {
        const ORDER: &str = "the page index is not in order";
        let mut before = None;
        let mut page = 0u32;
        for (nth, word) in self.high.iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                let place = nth * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                if page == self.pages {
                    return Err("the page index knows more pages than the block has");
                }
                let high = (place - page as usize) as u64;
                let value = (high << self.low_bits) | self.low_of(page);
                let fits = high <= u64::MAX >> self.low_bits;
                let cell = self.base.checked_add(value);
                if !fits || cell.is_none_or(|cell| cell > u64::MAX >> self.shift) {
                    return Err("the page index leads out of the hash range");
                }
                if before.is_some_and(|before| before > value) || (page == 0 && value != 0) {
                    return Err(ORDER);
                }
                before = Some(value);
                page += 1;
            }
        }
        if page != self.pages {
            return Err("the page index knows fewer pages than the block has");
        }
        if self.high.len() != high_words(page as usize, before.unwrap_or(0) >> self.low_bits) {
            return Err("the page index has another length than it says");
        }
        let beyond =
            (self.pages..self.pages.next_multiple_of(64)).any(|page| self.begins_with_tail(page));
        if beyond || self.begins_with_tail(0) {
            return Err("the page index begins in the middle of an element");
        }
        if !self.split_pages.is_sorted() || !self.split_orders.is_sorted() {
            return Err(ORDER);
        }
        Ok(())
    }
}

/// Most splits of this many pages.
fn split_bound(pages: usize) -> usize {
    16 + pages / 32
}

/// Words of the unary part: a one for each page, a zero after each bucket.
fn high_words(pages: usize, largest: u64) -> usize {
    if pages == 0 {
        return 0;
    }
    (pages + largest as usize + 1).div_ceil(64)
}

fn sample_zeros(high: &[u64]) -> Box<[u32]> {
    let mut samples = Vec::new();
    let mut count = 0usize;
    for (nth, word) in high.iter().enumerate() {
        let mut zeros = !*word;
        let ones = zeros.count_ones() as usize;
        // The next sampled zero may lie in this word.
        let next = count.next_multiple_of(SAMPLE);
        if next < count + ones {
            for _ in count..next {
                zeros &= zeros - 1;
            }
            samples.push((nth * 64) as u32 + zeros.trailing_zeros());
        }
        count += ones;
    }
    samples.into()
}

fn mask(bits: u32) -> u64 {
    if bits == 0 {
        0
    } else {
        u64::MAX >> (64 - bits)
    }
}

fn put_bits(words: &mut [u64], nth: usize, bits: u32, value: u64) {
    if bits == 0 {
        return;
    }
    let at = nth * bits as usize;
    words[at / 64] |= value << (at % 64);
    if at % 64 + bits as usize > 64 {
        words[at / 64 + 1] |= value >> (64 - at % 64);
    }
}

fn read_words(from: &[u8]) -> Box<[u64]> {
    from.chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "page_index_tests.rs"]
mod tests;
