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
//! page (64 KiB to 1 MiB):  | chunk | chunk | chunk | not cut yet ... | rest |
//! free chunk:              | next:4 |               | state = FREE at 15 |
//! ```
//!
//! Each page has its own list of free chunks, and is cut chunk by chunk as these are needed. So no
//! step depends on the number of chunks in a page: neither taking a page, nor freeing it, nor
//! closing it to allocations. Memory is touched, and requested from the file system, in small
//! parts.
//!
//! Always holds:
//! - ARENA-1: a page belongs to one class or is free. `used` counts its chunks in use; the others
//!   before `cut` are on its list.
//! - ARENA-2: a page that has chunks to give out is on its class's list of open pages, unless it is
//!   being emptied.
//! - ARENA-3: the system provides memory for at most the limit's number of pages, or for the pages
//!   in use if these are more.

use senko_io::le::{u16_at, u32_at, u64_at};
use senko_io::{AlignedBuf, MappedMemory, PAGE_SIZE, touch_ahead};

/// A chunk: its offset in the arena in units of 16 bytes, plus one; 0 is null.
pub(crate) type Handle = u32;

/// The offset of a free chunk's link to the next one of its page.
const NEXT: usize = 0;
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
/// At least this much memory is touched ahead of its use: a large page.
const TOUCHED: usize = 2 << 20;
/// From this many pages on, one is kept free.
const RESERVE_FROM: usize = 512;
/// Largest chunk; larger items are chains of these.
pub(crate) const MAX_CHUNK: usize = 16 << 10;
/// Class number of a free page.
const NO_CLASS: u8 = u8::MAX;

/// File systems are asked for this much memory of a page at a time.
const COMMIT: usize = 64 << 10;
/// A page that is on no list.
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Page {
    class: u8,
    /// Whether it is being emptied: none of its chunks is given out.
    emptied: bool,
    /// Chunks in use.
    used: u16,
    /// Chunks that were given out since the page belongs to its class: its first ones.
    cut: u16,
    /// The first free one of them.
    free_head: Handle,
    /// Position in its class's list of pages.
    place: u32,
    /// Position in its class's list of open pages, or [`NOWHERE`].
    open_place: u32,
}

impl Page {
    const FREE: Page = Page {
        class: NO_CLASS,
        emptied: false,
        used: 0,
        cut: 0,
        free_head: 0,
        place: 0,
        open_place: NOWHERE,
    };
}

/// The chunks of one size.
#[derive(Debug)]
pub(crate) struct Class {
    pub size: usize,
    pub per_page: usize,
    pub used: usize,
    /// Chunks that can be given out without another page.
    pub free: usize,
    pages: Vec<u32>,
    /// Pages with chunks to give out.
    open: Vec<u32>,
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
    /// If large pages were requested: the pages that were requested to be touched ahead.
    touched: Option<usize>,
    /// Free pages below the limit that only [`Arena::alloc_reserved`] takes.
    reserve: usize,
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

/// The smallest chunk of an item.
pub(crate) const LEAST_CHUNK: usize = 48;

/// Chunk sizes for items: steps of a twenty-fourth for the sizes of most items, and of a sixth from
/// 2 KiB on, where finer classes would each hold a page for few items. There are 63, the most that
/// clients of memcached expect.
pub(crate) fn item_sizes() -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut size = LEAST_CHUNK;
    while size < MAX_CHUNK {
        sizes.push(size);
        let part = match size {
            0..1024 => 24,
            1024..2048 => 12,
            _ => 6,
        };
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
            arena.touched = Some(0);
            arena.touch_ahead();
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
            pages: Vec::new(),
            open: Vec::new(),
        };
        assert!(sizes.len() < NO_CLASS as usize);
        Arena {
            mem,
            page_bytes,
            pages: vec![Page::FREE; pages],
            free_pages: Vec::new(),
            given_back: 0,
            fresh: 0,
            limit: pages,
            touched: None,
            reserve: 0,
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
        self.is_over_by(0)
    }
    /// Whether that is so by more than this many pages.
    pub fn is_over_by(&self, pages: usize) -> bool {
        self.fresh - self.free_pages.len() > self.limit + pages
    }
    /// Keeps a free page that only [`Arena::alloc_reserved`] takes, unless that is a noticeable
    /// part of the memory.
    pub fn keep_reserve(&mut self) {
        self.reserve = usize::from(self.pages.len() >= RESERVE_FROM);
    }
    /// Whether fewer pages are free than are reserved.
    pub fn lacks_reserve(&self) -> bool {
        self.fresh - self.free_pages.len() + self.reserve > self.limit
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
        self.alloc_but(class, self.reserve)
    }

    /// A free chunk of the pages that a class has.
    pub fn alloc_in_pages(&mut self, class: usize) -> Option<Handle> {
        if self.classes[class].open.is_empty() {
            return None;
        }
        self.alloc(class)
    }

    /// As [`Arena::alloc`], but it takes reserved pages too.
    pub fn alloc_reserved(&mut self, class: usize) -> Option<Handle> {
        self.alloc_but(class, 0)
    }

    fn alloc_but(&mut self, class: usize, reserve: usize) -> Option<Handle> {
        loop {
            let page = match self.classes[class].open.last() {
                Some(&page) => page as usize,
                None => self.grow(class, reserve)?,
            };
            let chunk = self.take(page, class);
            let p = &self.pages[page];
            if chunk.is_none() || p.free_head == 0 && p.cut as usize == self.per_page(page) {
                self.set_open(page, false);
            }
            let Some(chunk) = chunk else { continue };
            self.classes[class].used += 1;
            self.classes[class].free -= 1;
            self.pages[page].used += 1;
            return Some(chunk);
        }
    }

    /// A free chunk of a page, or the next one of its rest; `None` if the file system has no memory
    /// for that.
    fn take(&mut self, page: usize, class: usize) -> Option<Handle> {
        let head = self.pages[page].free_head;
        if head != 0 {
            self.pages[page].free_head = self.u32(head, NEXT);
            return Some(head);
        }
        let (cut, size) = (self.pages[page].cut as usize, self.classes[class].size);
        let has = self
            .first_commit(class)
            .max((cut * size).next_multiple_of(COMMIT));
        let needs = ((cut + 1) * size)
            .next_multiple_of(COMMIT)
            .min(self.page_bytes);
        if needs > has && !self.commit(page, has, needs) {
            return None;
        }
        self.pages[page].cut += 1;
        Some(self.chunk_of(page, cut, class))
    }

    /// Bytes of a new page of a class for which the file system is asked at once.
    fn first_commit(&self, class: usize) -> usize {
        self.classes[class]
            .size
            .next_multiple_of(COMMIT)
            .min(self.page_bytes)
    }

    fn commit(&mut self, page: usize, from: usize, to: usize) -> bool {
        let first = (page * self.page_bytes + from) / PAGE_SIZE;
        self.mem.commit(first, (to - from) / PAGE_SIZE)
    }

    fn per_page(&self, page: usize) -> usize {
        self.classes[self.pages[page].class as usize].per_page
    }

    /// Puts a page on its class's list of open pages, or takes it off.
    fn set_open(&mut self, page: usize, on: bool) {
        let open = &mut self.classes[self.pages[page].class as usize].open;
        let at = self.pages[page].open_place;
        if on == (at != NOWHERE) {
            return;
        }
        if on {
            self.pages[page].open_place = open.len() as u32;
            open.push(page as u32);
            return;
        }
        open.swap_remove(at as usize);
        if let Some(&moved) = open.get(at as usize) {
            self.pages[moved as usize].open_place = at;
        }
        self.pages[page].open_place = NOWHERE;
    }

    /// Gives a chunk back. Its page is freed if no other chunk of it is in use and it is being
    /// emptied, or the class has free chunks elsewhere.
    pub fn free(&mut self, chunk: Handle) {
        let page = self.page_of(chunk);
        let class = self.pages[page].class as usize;
        debug_assert!(class < self.classes.len() && self.pages[page].used > 0);
        self.list(page, chunk);
        self.classes[class].used -= 1;
        self.pages[page].used -= 1;
        let emptied = self.pages[page].emptied;
        if !emptied {
            self.classes[class].free += 1;
            self.set_open(page, true);
        }
        let spare = self.classes[class].free >= 2 * self.classes[class].per_page;
        if self.pages[page].used == 0 && (self.eager || spare || emptied || self.over_limit()) {
            self.release(page);
        }
    }

    /// Begins or ends the emptying of a page. Meanwhile none of its chunks is given out.
    pub fn set_emptied(&mut self, page: usize, on: bool) {
        if self.pages[page].emptied == on || self.pages[page].class == NO_CLASS {
            return;
        }
        let unused = self.per_page(page) - self.pages[page].used as usize;
        let free = &mut self.classes[self.pages[page].class as usize].free;
        *free = if on { *free - unused } else { *free + unused };
        self.pages[page].emptied = on;
        self.set_open(page, !on && unused > 0);
    }

    /// A free chunk of a page that is being emptied, after all.
    pub fn alloc_emptied(&mut self, page: usize) -> Option<Handle> {
        let head = self.pages[page].free_head;
        if !self.pages[page].emptied || head == 0 {
            return None;
        }
        self.pages[page].free_head = self.u32(head, NEXT);
        self.pages[page].used += 1;
        self.classes[self.pages[page].class as usize].used += 1;
        Some(head)
    }

    /// Whether a page is being emptied.
    pub fn is_emptied(&self, page: usize) -> bool {
        self.pages[page].emptied
    }

    /// Frees a page with no chunk in use.
    pub fn release(&mut self, page: usize) {
        assert_eq!(
            self.pages[page].used, 0,
            "a page is released only when all its chunks are free"
        );
        self.set_emptied(page, true);
        let class = &mut self.classes[self.pages[page].class as usize];
        let place = self.pages[page].place as usize;
        class.pages.swap_remove(place);
        if let Some(&moved) = class.pages.get(place) {
            self.pages[moved as usize].place = place as u32;
        }
        self.pages[page] = Page::FREE;
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

    /// The class of a page; `None` if it is free.
    #[cfg(test)]
    pub fn class_of_page(&self, page: usize) -> Option<usize> {
        let class = self.pages[page].class;
        (class != NO_CLASS).then_some(class as usize)
    }
    /// How many of a page's chunks were ever given out: its first ones.
    pub fn cut_of(&self, page: usize) -> usize {
        self.pages[page].cut as usize
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
    /// Copies a chunk to another of its class.
    pub fn copy_chunk(&mut self, from: Handle, to: Handle) {
        let (start, size) = (self.at(from), self.classes[self.class_of(from)].size);
        let at = self.at(to);
        self.mem.copy_within(start..start + size, at);
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
            p.cut = p.cut.max((inside / c.size + 1) as u16);
            c.used += 1;
        }
        for page in 0..self.fresh {
            let class = self.pages[page].class;
            if class == NO_CLASS {
                self.free_pages.push(page as u32);
                continue;
            }
            // The file system has memory for the chunks before the last used one.
            for n in (0..self.cut_of(page)).rev() {
                let chunk = self.chunk_of(page, n, class as usize);
                if !used.contains(&chunk) {
                    self.list(page, chunk);
                }
            }
            let free = self.per_page(page) - self.pages[page].used as usize;
            self.classes[class as usize].free += free;
            self.set_open(page, free > 0);
        }
        true
    }

    /// Takes a free page for a class, and leaves `reserve` free.
    fn grow(&mut self, class: usize, reserve: usize) -> Option<usize> {
        if self.fresh - self.free_pages.len() + reserve >= self.limit {
            return None;
        }
        let page = self.free_pages.last().map_or(self.fresh, |&p| p as usize);
        if !self.commit(page, 0, self.first_commit(class)) {
            return None;
        }
        if self.free_pages.pop().is_none() {
            self.fresh += 1;
            self.touch_ahead();
        }
        self.given_back = self.given_back.min(self.free_pages.len());
        let of = &mut self.classes[class];
        self.pages[page] = Page {
            class: class as u8,
            place: of.pages.len() as u32,
            ..Page::FREE
        };
        of.pages.push(page as u32);
        of.free += of.per_page;
        self.set_open(page, true);
        Some(page)
    }

    /// Has the system find memory for the next large page before it is used: the first touch of a
    /// large page takes long.
    fn touch_ahead(&mut self) {
        let Some(touched) = self.touched else { return };
        let step = TOUCHED / self.page_bytes;
        let to = (self.fresh + step).next_multiple_of(step).min(self.limit);
        if to > touched {
            let pages = self.page_bytes / PAGE_SIZE;
            let count = (to - touched) * pages;
            touch_ahead(self.mem.mapping(), touched * pages, count);
            self.touched = Some(to);
        }
    }

    /// Puts a chunk on its page's list of free chunks.
    fn list(&mut self, page: usize, chunk: Handle) {
        let head = self.pages[page].free_head;
        self.set_u32(chunk, NEXT, head);
        self.set_u8(chunk, STATE_AT, FREE);
        self.pages[page].free_head = chunk;
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

    /// A page of small chunks was once listed chunk by chunk when it was taken and when it was
    /// freed: ten thousand chunks of a page of 1 MiB. Now a chunk is written when it is given out
    /// or comes back, and no other is.
    #[test]
    fn no_step_touches_more_than_its_chunk() {
        for eager in [false, true] {
            let mut a = Arena::for_items(AlignedBuf::new(2 << 30 >> 12));
            a.eager = eager;
            assert_eq!(a.page_bytes, 1 << 20);
            a.mem[..4 << 20].fill(0xee);
            let touched = |a: &Arena| {
                let words = a.mem[..4 << 20].chunks_exact(16);
                words.filter(|word| *word != [0xee; 16]).count()
            };
            let per_page = a.class(0).per_page;
            let chunks: Vec<Handle> = (0..per_page + 1).filter_map(|_| a.alloc(0)).collect();
            assert_eq!(touched(&a), 0);
            a.set_emptied(0, true);
            for (n, &chunk) in chunks[..per_page].iter().enumerate() {
                assert_eq!(a.class_of_page(0), Some(0));
                a.free(chunk);
                assert_eq!(touched(&a), n + 1);
            }
            assert_eq!(a.class_of_page(0), None);
            assert_eq!((a.class(0).used, a.class(0).free), (1, per_page - 1));
            // The page is cut again, for another class.
            assert_eq!(a.alloc(5).map(|chunk| a.page_of(chunk)), Some(0));
            assert_eq!(touched(&a), per_page);
        }
    }

    /// A large page is 2 MiB, and its first touch once took up to 13 ms of a SET.
    #[test]
    fn memory_is_touched_before_its_first_use_but_not_much_before() {
        let mut a = Arena::for_items(AlignedBuf::new(256 << 20 >> 12));
        let class = a.class_for(MAX_CHUNK);
        let limit = a.pages.len() - 5;
        a.set_limit(limit);
        while a.alloc(class).is_some() {
            let touched = a.touched.expect("large pages") * a.page_bytes;
            let used = a.fresh * a.page_bytes;
            assert!(touched >= (used + TOUCHED).min(limit * a.page_bytes));
            assert!(touched < used + 2 * TOUCHED);
        }
        assert_eq!((a.fresh, a.touched), (limit, Some(limit)));
        let small = Arena::for_items(AlignedBuf::new(255 << 20 >> 12));
        assert_eq!(small.touched, None);
    }

    #[test]
    fn a_page_that_is_emptied_gives_out_nothing() {
        let mut a = Arena::for_items(AlignedBuf::new(1 << 20 >> 12));
        let class = a.class_for(1000);
        let per_page = a.class(class).per_page;
        let chunks: Vec<Handle> = (0..per_page).filter_map(|_| a.alloc(class)).collect();
        a.free(chunks[3]);
        let page = a.page_of(chunks[0]);
        a.set_emptied(page, true);
        assert_eq!(a.class(class).free, 0);
        a.free(chunks[4]);
        let other = a.alloc(class).expect("room");
        assert_ne!(a.page_of(other), page);
        a.set_emptied(page, false);
        assert_eq!(a.class(class).free, per_page + 1);
        let rest: Vec<Handle> = (0..per_page + 1).filter_map(|_| a.alloc(class)).collect();
        assert!(rest.contains(&chunks[3]) && rest.contains(&chunks[4]));
        assert_eq!(a.class(class).pages(), 2);
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
        assert_eq!(Arena::item_classes(), 63);
        let a = Arena::for_items(AlignedBuf::new(64 << 20 >> 12));
        for len in 1..=MAX_CHUNK {
            let c = a.class_for(len);
            assert!(a.class(c).size >= len && (c == 0 || a.class(c - 1).size < len));
        }
    }
}
