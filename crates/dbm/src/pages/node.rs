// SPDX-License-Identifier: Apache-2.0
//! A page of a B+tree, in the body of a log entry: sorted slots grow up, cells grow down.
//!
//! The same bytes are in DRAM and in the log. Leaves (level 0) have records. A cell of an inner
//! page has a separator and a child, whose keys are not below the separator. Keys below the first
//! separator belong to the first child.
//!
//! A *dense* leaf has keys of one length and values of one length. It holds the two lengths once,
//! and its records follow each other without slots. A record with other lengths turns it into a
//! leaf with slots. A leaf with slots becomes dense again when it lacks room.
//!
//! NODE-1: keys ascend strictly. NODE-2: no cell has more than [`MAX_CELL`] bytes, so any cell fits
//! on the half of an inner page. A cell may not fit on the half of a dense leaf; then that half is
//! split too.

use std::cmp::Ordering;

use senko_io::{PAGE_SIZE, le};

use crate::disk::entry::HEAD;
use crate::records::blob::MAX_INLINE;
use crate::records::changes::MAX_KEY_BYTES;

const MAX_CELL: usize = MAX_INLINE + CELL_HEAD;
/// The highest level: more than a tree of all numbers of pages needs.
pub(crate) const MAX_LEVEL: u8 = 63;
const CELL_HEAD: usize = 4;
const SLOTS: usize = HEAD + 16;
/// The flag of a dense leaf, and the lengths of its keys and values.
const FORM: usize = HEAD + 5;
const DENSE: u8 = 1;
const KEY_BYTES: usize = HEAD + 12;
const VALUE_BYTES: usize = HEAD + 14;
/// A flag in a cell's value length: the value is a reference to a long one.
const BLOB: u16 = 0x8000;
/// With at most this many cells, only binary search is used.
const FEW: usize = 8;
/// The fault of a page whose keys do not ascend.
pub(crate) const OUT_OF_ORDER: &str = "a page of a tree has keys that are not in their order";
/// Bytes for slots and cells.
pub(crate) const ROOM: usize = PAGE_SIZE - SLOTS;
const _: () = assert!(ROOM / 2 + MAX_CELL + 2 + (MAX_CELL + 2) / 2 <= ROOM);

/// One page, shared in an `Arc`, copied to be changed.
#[derive(Clone)]
pub(crate) struct Page([u8; PAGE_SIZE]);

impl Page {
    pub fn new(id: u32, level: u8) -> Page {
        let mut page = Page([0; PAGE_SIZE]);
        page.set_id(id);
        page.0[HEAD + 4] = level;
        page.set_u16(HEAD + 8, PAGE_SIZE as u16);
        page
    }

    /// A page that was read; `None` if it has a fault ([`Page::fault`]).
    pub fn read(bytes: &[u8]) -> Option<Page> {
        let page = Page(bytes.try_into().ok()?);
        page.fault().is_none().then_some(page)
    }

    /// What is wrong with a page: a cell or the slots lie outside of it, or its keys do not ascend.
    /// Every read of the device checks that, once for all that use the page. A right checksum says
    /// only that the bytes are as somebody wrote them.
    pub fn fault(&self) -> Option<&'static str> {
        if !self.is_well_formed() {
            return Some("a page of a tree is not well formed");
        }
        (!self.is_sorted()).then_some(OUT_OF_ORDER)
    }

    /// A page with these bytes, unchecked.
    pub fn of(bytes: &[u8; PAGE_SIZE]) -> Page {
        Page(*bytes)
    }

    /// Gives the page other bytes, unchecked.
    pub fn fill(&mut self, bytes: &[u8; PAGE_SIZE]) {
        self.0 = *bytes;
    }

    /// Whether all cells and the slots lie inside, and the cells take the bytes that the head says.
    fn is_well_formed(&self) -> bool {
        if self.0[FORM] != 0 {
            let (key, bytes) = self.shape();
            return self.0[FORM] == DENSE
                && self.level() == 0
                && key <= MAX_KEY_BYTES
                && bytes <= MAX_INLINE
                && self.count() * bytes <= ROOM
                && (bytes > 0 || self.count() < 2);
        }
        let (count, low) = (self.count(), usize::from(self.u16(HEAD + 8)));
        if low > PAGE_SIZE || SLOTS + 2 * count > low || self.level() > MAX_LEVEL {
            return false;
        }
        let is_leaf = self.level() == 0;
        let slots = self.0[SLOTS..SLOTS + 2 * count].chunks_exact(2);
        let mut at = slots.map(|slot| usize::from(le::u16_at(slot, 0)));
        let mut taken = usize::from(self.u16(HEAD + 10));
        let are_inside = at.all(|at| {
            if at < low || at + CELL_HEAD > PAGE_SIZE {
                return false;
            }
            let head = self.u32(at);
            let (key, is_long) = ((head & 0xffff) as usize, head >> 31 == 1);
            let value = (head >> 16 & u32::from(!BLOB)) as usize;
            let bytes = CELL_HEAD + key + value;
            taken += bytes;
            let fits = match (is_leaf, is_long) {
                (true, true) => value == 16,
                (true, false) => true,
                (false, _) => value == 4 && !is_long,
            };
            fits && bytes <= MAX_CELL && at + bytes <= PAGE_SIZE
        });
        are_inside && taken == PAGE_SIZE - low
    }

    /// Whether keys ascend (NODE-1).
    pub fn is_sorted(&self) -> bool {
        let (key, bytes) = self.shape();
        match self.is_dense() {
            true => {
                let records = self.0[SLOTS..].chunks_exact(bytes.max(1));
                ascend(records.take(self.count()).map(|record| &record[..key]))
            }
            false => ascend((0..self.count()).map(|nth| self.key(nth))),
        }
    }

    pub fn bytes(&self) -> &[u8; PAGE_SIZE] {
        &self.0
    }

    fn u16(&self, at: usize) -> u16 {
        le::u16_at(&self.0, at)
    }

    fn set_u16(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn u32(&self, at: usize) -> u32 {
        le::u32_at(&self.0, at)
    }

    pub fn id(&self) -> u32 {
        self.u32(HEAD)
    }

    pub fn set_id(&mut self, id: u32) {
        self.0[HEAD..HEAD + 4].copy_from_slice(&id.to_le_bytes());
    }

    pub fn level(&self) -> u8 {
        self.0[HEAD + 4]
    }

    pub fn count(&self) -> usize {
        usize::from(self.u16(HEAD + 6))
    }

    fn is_dense(&self) -> bool {
        self.0[FORM] == DENSE
    }

    /// For a dense leaf: the bytes of a key, and of a record.
    fn shape(&self) -> (usize, usize) {
        let key = usize::from(self.u16(KEY_BYTES));
        (key, key + usize::from(self.u16(VALUE_BYTES)))
    }

    /// Where record `nth` of a dense leaf begins; a record has this many bytes.
    pub fn dense_at(nth: usize, bytes: usize) -> usize {
        SLOTS + nth * bytes
    }

    /// The bytes of a key and of a record, if it is a dense leaf.
    pub fn dense_shape(&self) -> Option<(usize, usize)> {
        self.is_dense().then(|| self.shape())
    }

    /// Whether this is a dense leaf with records of `bytes` bytes whose record `nth` has `key`.
    pub fn has_dense(&self, nth: usize, bytes: usize, key: &[u8]) -> bool {
        let at = Page::dense_at(nth, bytes);
        self.0.get(at..at + key.len()) == Some(key)
            && self.is_dense()
            && self.shape() == (key.len(), bytes)
            && nth < self.count()
    }

    fn cell(&self, nth: usize) -> usize {
        usize::from(self.u16(SLOTS + 2 * nth))
    }

    fn cell_bytes(&self, at: usize) -> usize {
        CELL_HEAD + usize::from(self.u16(at)) + usize::from(self.u16(at + 2) & !BLOB)
    }

    pub fn key(&self, nth: usize) -> &[u8] {
        if self.is_dense() {
            let (key, bytes) = self.shape();
            let at = SLOTS + nth * bytes;
            return &self.0[at..at + key];
        }
        let at = self.cell(nth);
        let bytes = usize::from(self.u16(at));
        &self.0[at + CELL_HEAD..at + CELL_HEAD + bytes]
    }

    /// A leaf's value, and whether it is a reference to a long one.
    pub fn value(&self, nth: usize) -> (&[u8], bool) {
        if self.is_dense() {
            let (key, bytes) = self.shape();
            let at = SLOTS + nth * bytes;
            return (&self.0[at + key..at + bytes], false);
        }
        let at = self.cell(nth);
        let from = at + CELL_HEAD + usize::from(self.u16(at));
        let long = self.u16(at + 2) & BLOB != 0;
        (&self.0[from..at + self.cell_bytes(at)], long)
    }

    /// Child `nth` of `count() + 1`.
    pub fn child(&self, nth: usize) -> u32 {
        match nth {
            0 => self.u32(HEAD + 12),
            nth => le::u32_at(self.value(nth - 1).0, 0),
        }
    }

    pub fn set_first_child(&mut self, id: u32) {
        self.0[HEAD + 12..HEAD + 16].copy_from_slice(&id.to_le_bytes());
    }

    /// The place of a key, or the place where it would be.
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut from, mut to) = (0, self.count());
        if to > 0 {
            let last = self.key(to - 1);
            // Ascending inserts end here.
            if last < key {
                return Err(to);
            }
            if to > FEW {
                (from, to) = self.guess(key, last);
            }
        }
        while from < to {
            let middle = (from + to) / 2;
            match self.key(middle).cmp(key) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(from)
    }

    /// The cells among which to search for a key that is not after `last`. It interpolates, then
    /// moves in steps of growing width. Keys are in different cache lines, usually in DRAM,
    /// and a binary search of the page would wait for many of them. A wrong guess costs a few
    /// comparisons.
    fn guess(&self, key: &[u8], last: &[u8]) -> (usize, usize) {
        let count = self.count();
        let first = self.key(0);
        if key <= first {
            return (0, 1);
        }
        // A key between two others has their common prefix, except in a damaged page.
        let same = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let rest = |key: &[u8]| number(key.get(same..).unwrap_or_default());
        let (first, last, wanted) = (rest(first), rest(last), rest(key));
        let share = wanted.saturating_sub(first) as f64 / last.saturating_sub(first).max(1) as f64;
        let at = ((share * (count - 1) as f64) as usize).min(count - 1);
        let mut width = 2;
        if self.key(at) < key {
            let mut from = at + 1;
            while from + width < count && self.key(from + width) < key {
                from += width + 1;
                width *= 2;
            }
            (from, count.min(from + width + 1))
        } else {
            let mut to = at + 1;
            while to > width && self.key(to - width) >= key {
                to -= width - 1;
                width *= 2;
            }
            (to.saturating_sub(width), to)
        }
    }

    /// The child for `key`; with `below`, the child with the keys just below it.
    pub fn child_for(&self, key: &[u8], below: bool) -> usize {
        match self.search(key) {
            Ok(nth) if below => nth,
            Ok(nth) => nth + 1,
            Err(nth) => nth,
        }
    }

    /// Bytes of records or cells, including their slots.
    pub fn used(&self) -> usize {
        if self.is_dense() {
            return self.count() * self.shape().1;
        }
        ROOM - (usize::from(self.u16(HEAD + 8)) - SLOTS - 2 * self.count())
            - usize::from(self.u16(HEAD + 10))
    }

    /// Bytes that the cells of both pages would take on one page.
    pub fn used_with(&self, other: &Page) -> usize {
        let slotted = |page: &Page| match page.is_dense() {
            true => page.count() * (page.shape().1 + CELL_HEAD + 2),
            false => page.used(),
        };
        let is_empty = self.count() == 0 || other.count() == 0;
        let same = self.is_dense() && other.is_dense() && self.shape() == other.shape();
        match is_empty || same {
            true => self.used() + other.used(),
            false => slotted(self) + slotted(other),
        }
    }

    /// Inserts a cell before cell `nth`; false if there is no room.
    pub fn insert(&mut self, nth: usize, key: &[u8], value: &[u8], long: bool) -> bool {
        if self.level() == 0 && self.count() == 0 {
            self.begin(key.len(), value.len(), long);
        }
        if self.is_dense() {
            if !long && self.shape() == (key.len(), key.len() + value.len()) {
                return self.insert_dense(nth, key, value);
            }
            if !self.give_slots(CELL_HEAD + key.len() + value.len() + 2) {
                return false;
            }
        }
        let bytes = CELL_HEAD + key.len() + value.len();
        debug_assert!(bytes <= MAX_CELL);
        if self.used() + bytes + 2 > ROOM {
            let fits = !long && self.is_uniform(key.len(), value.len());
            return fits && self.take_slots() && self.insert_dense(nth, key, value);
        }
        let count = self.count();
        if usize::from(self.u16(HEAD + 8)) < SLOTS + 2 * (count + 1) + bytes {
            self.compact();
        }
        let at = usize::from(self.u16(HEAD + 8)) - bytes;
        self.set_u16(at, key.len() as u16);
        self.set_u16(at + 2, value.len() as u16 | if long { BLOB } else { 0 });
        self.0[at + CELL_HEAD..at + CELL_HEAD + key.len()].copy_from_slice(key);
        self.0[at + CELL_HEAD + key.len()..at + bytes].copy_from_slice(value);
        let slot = SLOTS + 2 * nth;
        self.0.copy_within(slot..SLOTS + 2 * count, slot + 2);
        self.set_u16(slot, at as u16);
        self.set_u16(HEAD + 6, count as u16 + 1);
        self.set_u16(HEAD + 8, at as u16);
        true
    }

    fn insert_dense(&mut self, nth: usize, key: &[u8], value: &[u8]) -> bool {
        let (count, bytes) = (self.count(), key.len() + value.len());
        if (count + 1) * bytes > ROOM {
            return false;
        }
        let at = SLOTS + nth * bytes;
        self.0.copy_within(at..SLOTS + count * bytes, at + bytes);
        self.0[at..at + key.len()].copy_from_slice(key);
        self.0[at + key.len()..at + bytes].copy_from_slice(value);
        self.set_u16(HEAD + 6, count as u16 + 1);
        true
    }

    /// Gives an empty leaf the form that suits its first record.
    fn begin(&mut self, key: usize, value: usize, long: bool) {
        let (key, value) = if long { (0, 0) } else { (key, value) };
        self.0[FORM] = if long { 0 } else { DENSE };
        self.set_u16(HEAD + 8, PAGE_SIZE as u16);
        self.set_u16(HEAD + 10, 0);
        self.set_u16(KEY_BYTES, key as u16);
        self.set_u16(VALUE_BYTES, value as u16);
        self.0[SLOTS..].fill(0);
    }

    /// Turns a dense leaf into one with slots; false if that leaves no room for `more` bytes.
    fn give_slots(&mut self, more: usize) -> bool {
        let (key, bytes) = self.shape();
        let cell = CELL_HEAD + bytes;
        if self.count() * (cell + 2) + more > ROOM {
            return false;
        }
        let old = self.0;
        self.begin(0, 0, true);
        let records = old[SLOTS..].chunks_exact(bytes.max(1));
        let mut low = PAGE_SIZE;
        for (nth, record) in records.take(self.count()).enumerate() {
            low -= cell;
            self.set_u16(low, key as u16);
            self.set_u16(low + 2, (bytes - key) as u16);
            self.0[low + CELL_HEAD..low + cell].copy_from_slice(&record[..bytes]);
            self.set_u16(SLOTS + 2 * nth, low as u16);
        }
        self.set_u16(HEAD + 8, low as u16);
        true
    }

    /// Whether a page with slots is a leaf all of whose records have these lengths.
    fn is_uniform(&self, key: usize, value: usize) -> bool {
        self.level() == 0
            && (0..self.count()).all(|nth| {
                let at = self.cell(nth);
                usize::from(self.u16(at)) == key && usize::from(self.u16(at + 2)) == value
            })
    }

    /// Makes a leaf dense if its records have equal lengths; true if it did.
    fn take_slots(&mut self) -> bool {
        let old = self.clone();
        let at = self.cell(0);
        let (key, value) = (usize::from(self.u16(at)), usize::from(self.u16(at + 2)));
        self.begin(key, value, false);
        for nth in 0..old.count() {
            let (from, to) = (old.cell(nth) + CELL_HEAD, SLOTS + nth * (key + value));
            self.0[to..to + key + value].copy_from_slice(&old.0[from..from + key + value]);
        }
        true
    }

    pub fn remove(&mut self, nth: usize) {
        if self.is_dense() {
            let (count, (_, bytes)) = (self.count(), self.shape());
            let (at, end) = (SLOTS + nth * bytes, SLOTS + count * bytes);
            self.0.copy_within(at + bytes..end, at);
            self.0[end - bytes..end].fill(0);
            self.set_u16(HEAD + 6, count as u16 - 1);
            return;
        }
        let (count, at) = (self.count(), self.cell(nth));
        let garbage = self.u16(HEAD + 10) + self.cell_bytes(at) as u16;
        let slot = SLOTS + 2 * nth;
        self.0.copy_within(slot + 2..SLOTS + 2 * count, slot);
        self.set_u16(HEAD + 6, count as u16 - 1);
        self.set_u16(HEAD + 10, garbage);
    }

    /// Overwrites a value by one of the same length; false if the lengths differ.
    pub fn overwrite(&mut self, nth: usize, value: &[u8], long: bool) -> bool {
        if self.is_dense() {
            let (key, bytes) = self.shape();
            let at = SLOTS + nth * bytes;
            let same = !long && value.len() == bytes - key;
            if same {
                self.0[at + key..at + bytes].copy_from_slice(value);
            }
            return same;
        }
        let at = self.cell(nth);
        let from = at + CELL_HEAD + usize::from(self.u16(at));
        let says = value.len() as u16 | if long { BLOB } else { 0 };
        let same = self.u16(at + 2) == says;
        if same {
            self.0[from..from + value.len()].copy_from_slice(value);
        }
        same
    }

    /// Packs the cells again, without removed ones.
    fn compact(&mut self) {
        let old = self.0;
        let mut low = PAGE_SIZE;
        for nth in 0..self.count() {
            let at = self.cell(nth);
            let key = usize::from(le::u16_at(&old, at));
            let value = usize::from(le::u16_at(&old, at + 2) & !BLOB);
            let bytes = CELL_HEAD + key + value;
            low -= bytes;
            self.0[low..low + bytes].copy_from_slice(&old[at..at + bytes]);
            self.set_u16(SLOTS + 2 * nth, low as u16);
        }
        self.set_u16(HEAD + 8, low as u16);
        self.set_u16(HEAD + 10, 0);
        let slots = SLOTS + 2 * self.count();
        self.0[slots..low].fill(0);
    }

    /// Appends copies of the cells from `from` on to another page.
    pub fn move_cells(&self, from: usize, to: &mut Page) {
        for nth in from..self.count() {
            let (value, long) = self.value(nth);
            let fits = to.insert(to.count(), self.key(nth), value, long);
            debug_assert!(fits, "a part of a page fits on a page");
        }
    }

    /// Keeps the first `count` cells.
    pub fn truncate(&mut self, count: usize) {
        if self.is_dense() {
            let (had, bytes) = (self.count(), self.shape().1);
            self.0[SLOTS + count * bytes..SLOTS + had * bytes].fill(0);
            self.set_u16(HEAD + 6, count as u16);
            return;
        }
        while self.count() > count {
            self.remove(self.count() - 1);
        }
        self.compact();
    }

    /// The cell before which the page is split most evenly; at least 1, and less than the count.
    /// Each side has at most half of the bytes plus half of a cell.
    pub fn middle(&self) -> usize {
        if self.is_dense() {
            return self.count() / 2;
        }
        let (used, mut left) = (self.used(), 0);
        let mut best = (usize::MAX, 1);
        for nth in 1..self.count() {
            left += self.cell_bytes(self.cell(nth - 1)) + 2;
            best = best.min((left.abs_diff(used - left), nth));
        }
        best.1
    }
}

/// Whether keys ascend strictly. Most are told apart by their first eight bytes.
fn ascend<'a>(keys: impl Iterator<Item = &'a [u8]>) -> bool {
    keys.map(|key| (number(key), key))
        .is_sorted_by(|a, b| a.0 < b.0 || a.0 == b.0 && is_before(a.1, b.1))
}

/// Whether a key comes before another. Eight bytes of each at a time are cheaper than a call that
/// compares all.
fn is_before(mut key: &[u8], mut other: &[u8]) -> bool {
    while let (Some((a, rest)), Some((b, other_rest))) =
        (key.split_first_chunk(), other.split_first_chunk())
    {
        if a != b {
            return u64::from_be_bytes(*a) < u64::from_be_bytes(*b);
        }
        (key, other) = (rest, other_rest);
    }
    key < other
}

/// The first eight bytes as a number, whose order agrees with the order of the keys.
pub(crate) fn number(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    // Short keys are read without a copy: their two halves overlap.
    if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_be_bytes(*half)));
        return first << 32 | last << (64 - 8 * key.len());
    }
    let shifted = |(nth, byte): (usize, &u8)| u64::from(*byte) << (56 - 8 * nth);
    key.iter().enumerate().map(shifted).sum()
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Page({}, level {}, {} cells)",
            self.id(),
            self.level(),
            self.count()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_page_is_a_sorted_map_that_can_be_full() {
        let mut rng = 7u64;
        let (mut dense, mut slotted) = (0, 0);
        for round in 0..50 {
            let mut page = Page::new(3, 0);
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let mut full = 0;
            for step in 0..2000 {
                rng = rng.wrapping_mul(6364136223846793005).wrapping_add(99);
                let key = ((rng >> 40) % 90).to_be_bytes()[7..].to_vec();
                let mut value = vec![(rng >> 33) as u8; (rng >> 50) as usize % 200];
                // Values of one length for a while make leaves dense.
                if (step / 100 + round) % 2 == 0 {
                    value.resize(60 + round, 3);
                }
                match page.search(&key) {
                    Ok(nth) if rng & 1 << 20 == 0 => {
                        if rng & 1 << 21 == 0 {
                            value.resize(model[&key].len(), 1);
                        }
                        let same = value.len() == model[&key].len();
                        assert_eq!(page.overwrite(nth, &value, false), same);
                        if same {
                            model.insert(key, value);
                        }
                    }
                    Ok(nth) => {
                        page.remove(nth);
                        model.remove(&key);
                    }
                    Err(nth) => {
                        if page.insert(nth, &key, &value, false) {
                            model.insert(key, value);
                        } else {
                            full += 1;
                        }
                    }
                }
                match page.is_dense() {
                    true => dense += 1,
                    false => slotted += 1,
                }
            }
            assert!(full > 0, "the page was never full");
            let page = Page::read(page.bytes()).expect("it is well formed");
            assert!(page.is_sorted());
            let found: BTreeMap<Vec<u8>, Vec<u8>> = (0..page.count())
                .map(|nth| (page.key(nth).to_vec(), page.value(nth).0.to_vec()))
                .collect();
            assert_eq!(found, model);
        }
        assert!(dense > 1000 && slotted > 1000, "{dense} and {slotted}");
    }

    /// The byte table of docs/formats/dbm.md, and what a leaf of paper D's records holds.
    #[test]
    fn numbers_are_the_first_eight_bytes() {
        let key: Vec<u8> = (200..=255).collect();
        for bytes in 0..key.len() {
            let mut first = [0; 8];
            let kept = bytes.min(8);
            first[..kept].copy_from_slice(&key[..kept]);
            assert_eq!(number(&key[..bytes]), u64::from_be_bytes(first), "{bytes}");
        }
    }

    /// Keys of all lengths around the eight bytes that are compared at a time, equal ones too.
    #[test]
    fn keys_ascend_as_bytes_do() {
        let mut keys: Vec<Vec<u8>> = vec![b"".to_vec()];
        for bytes in 1..20 {
            for last in [0, 1, 0xff] {
                keys.push([&[7; 20][..bytes - 1], &[last]].concat());
            }
        }
        for a in &keys {
            for b in &keys {
                let pair = [&a[..], b].into_iter();
                assert_eq!(ascend(pair), a < b, "{a:?}, {b:?}");
            }
        }
        assert!(ascend(std::iter::empty()) && ascend([&b"x"[..]].into_iter()));
    }

    #[test]
    fn a_dense_leaf_lies_as_documented() {
        let mut page = Page::new(3, 0);
        let mut key = 0u32;
        while page.insert(page.count(), &key.to_be_bytes(), &[7; 8], false) {
            key += 1;
        }
        assert_eq!(page.count(), 336);
        assert_eq!(page.bytes()[45], 1);
        assert_eq!(page.bytes()[52..56], [4, 0, 8, 0]);
        assert_eq!(
            page.bytes()[56 + 12..56 + 24],
            [0, 0, 0, 1, 7, 7, 7, 7, 7, 7, 7, 7]
        );
        assert!(!page.insert(0, b"other", b"", false), "slots take more");
        page.truncate(200);
        assert!(page.insert(0, b"\0", b"", false));
        assert_eq!(page.bytes()[45], 0);
        assert_eq!((page.count(), page.key(2)), (201, &[0, 0, 0, 1][..]));
        page.remove(0);
        for key in 200u32..220 {
            assert!(page.insert(page.count(), &key.to_be_bytes(), &[7; 8], false));
        }
        assert_eq!(page.bytes()[45], 0);
        for key in 220u32..336 {
            assert!(page.insert(page.count(), &key.to_be_bytes(), &[7; 8], false));
        }
        assert_eq!(page.bytes()[45], 1, "a leaf that lacks room is dense again");
    }
}
