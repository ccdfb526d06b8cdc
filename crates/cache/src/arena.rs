// SPDX-License-Identifier: Apache-2.0
//! DRAM of one shard: pages cut into chunks of a size class. One arena holds items, another the
//! segments of the index.
//!
//! It is one mapping, reserved at start. Its pages move between classes, so the general allocator
//! is never used. A limit bounds the pages in use, and free pages above it go back to the system. A
//! chunk is named by a [`Handle`], 32 bits in units of 16 bytes: 64 GiB a shard. All accesses go
//! through bounds-checked slices of the mapping; there is no `unsafe` here.
//!
//! ```text
//! page (64 KiB to 1 MiB):  | chunk | chunk | chunk | ... | rest |
//! free chunk:              | prev:4 | next:4 |       | state = FREE at 15 |
//! ```
//!
//! Always holds: a page belongs to one class or is free; `used` of a page counts its chunks that
//! are not on the class's free list. The system provides memory for at most the limit's number of
//! pages, or for the pages in use if these are more.

use senko_io::le::{u16_at, u32_at, u64_at};
use senko_io::{AlignedBuf, MappedMemory, PAGE_SIZE};

/// A chunk: its offset in the arena in units of 16 bytes, plus one; 0 is null.
pub(crate) type Handle = u32;

/// The offset of the state byte in every chunk of an item class.
pub(crate) const STATE_AT: usize = 15;
/// On the free list.
pub(crate) const FREE: u8 = 0;
/// First chunk of an item that the index names.
pub(crate) const LINKED: u8 = 1;
/// First chunk of an item that the index does not name: a draft, or an item kept only by its pins.
pub(crate) const LOOSE: u8 = 2;
/// A further chunk of an item.
pub(crate) const CHAINED: u8 = 3;

/// The unit of handles, in bytes.
pub(crate) const UNIT: usize = 16;
/// From this many bytes of items on, large pages are requested.
const LARGE_PAGES_FROM: usize = 256 << 20;
/// Largest chunk; larger items are chains of these.
pub(crate) const MAX_CHUNK: usize = 16 << 10;
/// Class number of a free page.
const NO_CLASS: u8 = u8::MAX;

#[derive(Clone, Debug)]
struct Page {
    class: u8,
    used: u16,
    /// Position in its class's list of pages.
    place: u32,
}

/// The chunks of one size.
#[derive(Debug)]
pub(crate) struct Class {
    pub size: usize,
    pub per_page: usize,
    pub used: usize,
    pub free: usize,
    free_head: Handle,
    pages: Vec<u32>,
}

impl Class {
    pub fn pages(&self) -> usize {
        self.pages.len()
    }
}

#[derive(Debug)]
pub(crate) struct Arena {
    mem: AlignedBuf,
    page_bytes: usize,
    pages: Vec<Page>,
    /// The first `given_back` of the free pages have no memory behind them.
    free_pages: Vec<u32>,
    given_back: usize,
    fresh: usize,
    limit: usize,
    /// Whether a page is freed as soon as none of its chunks is in use. Otherwise a class keeps a
    /// page or two.
    eager: bool,
    classes: Vec<Class>,
}

/// Memory of about `bytes` bytes in whole pages of an arena, in pages of the system.
fn whole_pages(bytes: usize, page_bytes: usize) -> usize {
    (bytes / page_bytes).max(1) * page_bytes / PAGE_SIZE
}

/// Steps of segment sizes: 1 to 16 lines, then sixteen per doubling, up to 128 KiB (or a page, if
/// that is less).
pub(crate) const SEGMENT_STEPS: usize = 16 + 16 * 7;

/// Segment sizes, in lines of 64 bytes.
pub(crate) const SEGMENT_LINES: [u16; SEGMENT_STEPS] = segment_lines();

const fn segment_lines() -> [u16; SEGMENT_STEPS] {
    let mut lines = [0; SEGMENT_STEPS];
    let mut n = 0;
    while n < SEGMENT_STEPS {
        lines[n] = if n < 16 {
            n as u16 + 1
        } else {
            (17 + n as u16 % 16) << (n / 16 - 1)
        };
        n += 1;
    }
    lines
}

/// Chunk sizes for items: steps of a twelfth for the sizes of most items, and of a sixth from 2 KiB
/// on, where finer classes would each hold a page for few items.
pub(crate) fn item_sizes() -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut size = 96_usize;
    while size < MAX_CHUNK {
        sizes.push(size);
        let part = if size < 2048 { 12 } else { 6 };
        size = (size + (size / part).max(UNIT)).next_multiple_of(UNIT);
    }
    sizes.push(MAX_CHUNK);
    sizes
}

impl Arena {
    /// The most bytes that handles can name.
    pub const MOST_BYTES: usize = (u32::MAX as usize) * UNIT;

    pub fn for_items(mem: AlignedBuf) -> Arena {
        let bytes = mem.pages() * PAGE_SIZE;
        let mut arena = Arena::new(mem, Arena::item_page_bytes(bytes), &item_sizes());
        // Below this size, rounding up to a large page would waste a noticeable part of the memory.
        if bytes >= LARGE_PAGES_FROM {
            arena.mem.prefer_large();
        }
        arena
    }

    /// Bytes of a page of an arena for `bytes` bytes of items.
    pub fn item_page_bytes(bytes: usize) -> usize {
        (bytes / 2048).next_power_of_two().clamp(64 << 10, 1 << 20)
    }

    /// Classes of an arena for items.
    pub fn item_classes() -> usize {
        item_sizes().len()
    }

    /// The memory that an arena for `bytes` bytes of items needs, in pages of the system.
    pub fn item_memory(bytes: usize) -> usize {
        whole_pages(bytes, Arena::item_page_bytes(bytes))
    }

    /// Bytes of a page of an arena for segments, when the shard has `bytes` bytes of memory.
    pub fn segment_page_bytes(bytes: usize) -> usize {
        (bytes / 256).next_power_of_two().clamp(64 << 10, 1 << 20)
    }

    /// The memory that an arena for segments needs, in pages of the system.
    pub fn segment_memory(bytes: usize, page_bytes: usize) -> usize {
        whole_pages(bytes, page_bytes)
    }

    /// An arena for segments of the index; one class for each step of [`SEGMENT_LINES`] that fits
    /// into a page.
    pub fn for_segments(mem: AlignedBuf, page_bytes: usize) -> Arena {
        let sizes: Vec<usize> = SEGMENT_LINES
            .iter()
            .map(|&lines| lines as usize * 64)
            .filter(|&size| size <= page_bytes)
            .collect();
        Arena {
            eager: true,
            ..Arena::new(mem, page_bytes, &sizes)
        }
    }

    fn new(mem: AlignedBuf, page_bytes: usize, sizes: &[usize]) -> Arena {
        let pages = mem.pages() * PAGE_SIZE / page_bytes;
        let class = |&size: &usize| Class {
            size,
            per_page: page_bytes / size,
            used: 0,
            free: 0,
            free_head: 0,
            pages: Vec::new(),
        };
        assert!(sizes.len() < NO_CLASS as usize);
        Arena {
            mem,
            page_bytes,
            pages: vec![
                Page {
                    class: NO_CLASS,
                    used: 0,
                    place: 0
                };
                pages
            ],
            free_pages: Vec::new(),
            given_back: 0,
            fresh: 0,
            limit: pages,
            eager: false,
            classes: sizes.iter().map(class).collect(),
        }
    }

    /// The owner of the memory, which keeps it in place.
    pub fn mapping(&self) -> MappedMemory {
        self.mem.mapping()
    }

    /// The memory of an arena that is no longer needed.
    pub fn into_memory(self) -> AlignedBuf {
        self.mem
    }

    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }
    /// Sets the most pages that may be used.
    pub fn set_limit(&mut self, pages: usize) {
        self.limit = pages.min(self.pages.len());
        self.give_back();
    }
    /// Gives the memory of free pages above the limit back to the system.
    fn give_back(&mut self) {
        let pages = self.page_bytes / PAGE_SIZE;
        while self.fresh - self.given_back > self.limit {
            let Some(&page) = self.free_pages.get(self.given_back) else {
                return;
            };
            self.mem.release(page as usize * pages, pages);
            if !self.eager {
                self.mem.prefer_small(page as usize * pages, pages);
            }
            self.given_back += 1;
        }
    }
    /// Whether more pages are in use than the limit allows.
    pub fn over_limit(&self) -> bool {
        self.fresh - self.free_pages.len() > self.limit
    }
    /// Whether a page can be taken without freeing another.
    pub fn has_free_page(&self) -> bool {
        self.fresh - self.free_pages.len() < self.limit
    }
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }
    pub fn class(&self, class: usize) -> &Class {
        &self.classes[class]
    }
    /// Bytes in pages that belong to a class.
    pub fn bytes_in_use(&self) -> usize {
        (self.fresh - self.free_pages.len()) * self.page_bytes
    }

    /// The smallest class whose chunks hold `len` bytes.
    #[inline]
    pub fn class_for(&self, len: usize) -> usize {
        debug_assert!(len <= MAX_CHUNK);
        self.classes.partition_point(|c| c.size < len)
    }
    /// A chunk of a class: a free one, or the first chunk of a free page; `None` if there is
    /// neither.
    pub fn alloc(&mut self, class: usize) -> Option<Handle> {
        if self.classes[class].free_head == 0 {
            self.grow(class)?;
        }
        let chunk = self.classes[class].free_head;
        self.unlist(class, chunk);
        self.classes[class].used += 1;
        let page = self.page_of(chunk);
        self.pages[page].used += 1;
        Some(chunk)
    }

    /// Gives a chunk back. Its page is freed if no other chunk of it is in use and the class has
    /// free chunks elsewhere.
    pub fn free(&mut self, chunk: Handle) {
        let page = self.page_of(chunk);
        let class = self.pages[page].class as usize;
        debug_assert!(class < self.classes.len() && self.pages[page].used > 0);
        self.list(class, chunk);
        self.classes[class].used -= 1;
        self.pages[page].used -= 1;
        let spare = self.classes[class].free >= 2 * self.classes[class].per_page;
        if self.pages[page].used == 0 && (self.eager || spare || self.over_limit()) {
            self.release(page);
        }
    }

    /// Frees a page with no chunk in use.
    pub fn release(&mut self, page: usize) {
        let class = self.pages[page].class as usize;
        assert_eq!(
            self.pages[page].used, 0,
            "a page is released only when all its chunks are free"
        );
        for n in 0..self.classes[class].per_page {
            let chunk = self.chunk_of(page, n, class);
            self.unlist(class, chunk);
        }
        let place = self.pages[page].place as usize;
        self.classes[class].pages.swap_remove(place);
        if let Some(&moved) = self.classes[class].pages.get(place) {
            self.pages[moved as usize].place = place as u32;
        }
        self.pages[page].class = NO_CLASS;
        self.free_pages.push(page as u32);
        self.give_back();
    }

    /// Frees a page if it belongs to a class and none of its chunks is in use. Returns whether the
    /// page is free then.
    pub fn release_if_empty(&mut self, page: usize) -> bool {
        let p = &self.pages[page];
        if p.class != NO_CLASS && p.used == 0 {
            self.release(page);
        }
        self.pages[page].class == NO_CLASS
    }

    /// The `n`-th page of a class.
    pub fn page_in_class(&self, class: usize, n: usize) -> usize {
        self.classes[class].pages[n] as usize
    }
    /// Chunk `n` of a page.
    pub fn chunk_of(&self, page: usize, n: usize, class: usize) -> Handle {
        ((page * self.page_bytes + n * self.classes[class].size) / UNIT) as Handle + 1
    }
    pub fn page_of(&self, chunk: Handle) -> usize {
        self.at(chunk) / self.page_bytes
    }
    /// The class of a chunk's page.
    #[inline]
    pub fn class_of(&self, chunk: Handle) -> usize {
        self.pages[self.page_of(chunk)].class as usize
    }

    /// Offset of a chunk.
    #[inline]
    pub fn at(&self, chunk: Handle) -> usize {
        debug_assert!(chunk != 0);
        (chunk as usize - 1) * UNIT
    }
    /// Bytes `from..from + len` of a chunk.
    #[inline]
    pub fn bytes(&self, chunk: Handle, from: usize, len: usize) -> &[u8] {
        let at = self.at(chunk) + from;
        &self.mem[at..at + len]
    }
    /// As [`Arena::bytes`].
    #[inline]
    pub fn bytes_mut(&mut self, chunk: Handle, from: usize, len: usize) -> &mut [u8] {
        let at = self.at(chunk) + from;
        &mut self.mem[at..at + len]
    }
    #[inline]
    pub fn u8(&self, chunk: Handle, from: usize) -> u8 {
        self.mem[self.at(chunk) + from]
    }
    #[inline]
    pub fn set_u8(&mut self, chunk: Handle, from: usize, v: u8) {
        let at = self.at(chunk) + from;
        self.mem[at] = v;
    }
    #[inline]
    pub fn u16(&self, chunk: Handle, from: usize) -> u16 {
        u16_at(self.bytes(chunk, from, 2), 0)
    }
    #[inline]
    pub fn set_u16(&mut self, chunk: Handle, from: usize, v: u16) {
        self.bytes_mut(chunk, from, 2)
            .copy_from_slice(&v.to_le_bytes());
    }
    #[inline]
    pub fn u32(&self, chunk: Handle, from: usize) -> u32 {
        u32_at(self.bytes(chunk, from, 4), 0)
    }
    #[inline]
    pub fn set_u32(&mut self, chunk: Handle, from: usize, v: u32) {
        self.bytes_mut(chunk, from, 4)
            .copy_from_slice(&v.to_le_bytes());
    }
    #[inline]
    pub fn u64(&self, chunk: Handle, from: usize) -> u64 {
        u64_at(self.bytes(chunk, from, 8), 0)
    }
    /// Stores a word of a chunk, as [`AlignedBuf::set_word`] does.
    #[inline]
    pub fn set_word(&mut self, chunk: Handle, from: usize, word: u64) {
        let at = self.at(chunk) + from;
        self.mem.set_word(at, word);
    }

    /// Takes over the chunks that a new arena's memory already holds, as handles and classes. False
    /// if they can't be chunks of one arena. Memory without a chunk is free.
    pub fn adopt(&mut self, chunks: impl Iterator<Item = (Handle, usize)> + Clone) -> bool {
        let mut used = std::collections::HashSet::new();
        for (chunk, class) in chunks.clone() {
            if chunk == 0 || class >= self.classes.len() || !used.insert(chunk) {
                return false;
            }
            let (page, at) = (self.page_of(chunk), self.at(chunk));
            let Some(p) = self.pages.get_mut(page) else {
                return false;
            };
            let c = &mut self.classes[class];
            let inside = at % self.page_bytes;
            if !inside.is_multiple_of(c.size) || inside / c.size >= c.per_page {
                return false;
            }
            if p.class == NO_CLASS {
                p.class = class as u8;
                p.place = c.pages.len() as u32;
                c.pages.push(page as u32);
                self.fresh = self.fresh.max(page + 1);
            }
            if p.class as usize != class {
                return false;
            }
            p.used += 1;
            c.used += 1;
        }
        for page in 0..self.fresh {
            let class = self.pages[page].class;
            if class == NO_CLASS {
                self.free_pages.push(page as u32);
                continue;
            }
            for n in (0..self.classes[class as usize].per_page).rev() {
                let chunk = self.chunk_of(page, n, class as usize);
                if !used.contains(&chunk) {
                    self.list(class as usize, chunk);
                }
            }
        }
        true
    }

    /// Takes a free page for a class and lists its chunks, lowest first.
    fn grow(&mut self, class: usize) -> Option<()> {
        if !self.has_free_page() {
            return None;
        }
        let page = self.free_pages.last().map_or(self.fresh, |&p| p as usize);
        let pages = self.page_bytes / PAGE_SIZE;
        if !self.mem.commit(page * pages, pages) {
            return None;
        }
        if self.free_pages.pop().is_none() {
            self.fresh += 1;
        }
        self.given_back = self.given_back.min(self.free_pages.len());
        self.pages[page] = Page {
            class: class as u8,
            used: 0,
            place: self.classes[class].pages.len() as u32,
        };
        self.classes[class].pages.push(page as u32);
        for n in (0..self.classes[class].per_page).rev() {
            let chunk = self.chunk_of(page, n, class);
            self.list(class, chunk);
        }
        Some(())
    }

    fn list(&mut self, class: usize, chunk: Handle) {
        let head = self.classes[class].free_head;
        self.set_u32(chunk, 0, 0);
        self.set_u32(chunk, 4, head);
        self.set_u8(chunk, STATE_AT, FREE);
        if head != 0 {
            self.set_u32(head, 0, chunk);
        }
        self.classes[class].free_head = chunk;
        self.classes[class].free += 1;
    }

    fn unlist(&mut self, class: usize, chunk: Handle) {
        let (prev, next) = (self.u32(chunk, 0), self.u32(chunk, 4));
        if prev == 0 {
            self.classes[class].free_head = next;
        } else {
            self.set_u32(prev, 4, next);
        }
        if next != 0 {
            self.set_u32(next, 0, prev);
        }
        self.classes[class].free -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_move_between_classes_and_no_chunk_is_given_twice() {
        let mut a = Arena::for_items(AlignedBuf::new(1 << 20 >> 12));
        let mut rng = 1_u64;
        let mut live: Vec<(Handle, usize, u8)> = Vec::new();
        for step in 0..200_000_u32 {
            rng = rng
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let r = (rng >> 33) as usize;
            // Phases that favour different sizes, so that pages must move.
            let class = (r % 7 + (step as usize / 20_000) * 5) % a.classes.len();
            if r % 100 < 55 {
                if let Some(h) = a.alloc(class) {
                    let size = a.class(class).size;
                    let mark = (step % 251) as u8 + 1;
                    a.bytes_mut(h, 0, size).fill(mark);
                    live.push((h, size, mark));
                }
            } else if !live.is_empty() {
                let (h, size, mark) = live.swap_remove(r / 100 % live.len());
                assert!(
                    a.bytes(h, 0, size).iter().all(|&b| b == mark),
                    "chunk {h} was written through another"
                );
                a.free(h);
            }
            if step % 20_000 == 19_999 {
                for (h, size, mark) in live.drain(..) {
                    assert!(a.bytes(h, 0, size).iter().all(|&b| b == mark));
                    a.free(h);
                }
            }
        }
        assert!(a.bytes_in_use() / a.page_bytes() <= a.classes.len() * 2);
    }

    #[test]
    fn memory_that_was_free_before_the_limit_fell_goes_back() {
        let mut a = Arena::for_items(AlignedBuf::new(4 << 20 >> 12));
        let class = a.class_for(MAX_CHUNK);
        let chunks: Vec<Handle> = std::iter::from_fn(|| a.alloc(class)).collect();
        for &chunk in &chunks {
            a.bytes_mut(chunk, 0, MAX_CHUNK).fill(1);
        }
        let kept = chunks[0];
        for &chunk in &chunks[1..] {
            a.free(chunk);
        }
        let pages = a.pages.len();
        // A page filled with ones is one that the system still has memory for.
        let behind = |a: &Arena| {
            (0..pages)
                .filter(|&page| a.mem[(page + 1) * a.page_bytes - 1] != 0)
                .count()
        };
        assert_eq!(behind(&a), pages);
        for limit in [pages - 3, pages / 2, 5] {
            a.set_limit(limit);
            assert_eq!(behind(&a), limit);
        }
        // The limit is below the pages in use: each freed page goes back at once.
        a.set_limit(0);
        let left = a.bytes_in_use() / a.page_bytes();
        assert_eq!(behind(&a), left);
        a.free(kept);
        for page in 0..pages {
            a.release_if_empty(page);
        }
        assert_eq!((behind(&a), a.bytes_in_use()), (0, 0));
        // All pages come back, each once.
        a.set_limit(pages);
        let again: std::collections::HashSet<Handle> =
            std::iter::from_fn(|| a.alloc(class)).collect();
        assert_eq!(again.len(), chunks.len());
        assert_eq!(a.given_back, 0);
    }

    #[test]
    fn classes_hold_what_they_say() {
        let a = Arena::for_items(AlignedBuf::new(64 << 20 >> 12));
        for len in 1..=MAX_CHUNK {
            let c = a.class_for(len);
            assert!(a.class(c).size >= len && (c == 0 || a.class(c - 1).size < len));
        }
    }
}
