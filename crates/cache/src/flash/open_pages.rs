// SPDX-License-Identifier: Apache-2.0
//! The pages of a log that are open for small records, and where a record goes: to the page that it
//! fills best, or to new pages.
//!
//! A log opens whole pages for small records. It also opens the front of a page if a large record
//! begins in the rest of it, and the rest of a page in which a record ends. The log knows which
//! pages are in write buffers that may still change, and closes the others.
//!
//! **Records that cross.** A record that crosses the end of a page needs a larger read. So no small
//! record crosses while other records fill the pages, as they do if sizes are mixed. If pages close
//! with more than [`ALLOWED`] bytes empty on average, a record that fits no open page begins in the
//! newest page and ends in the next one (or a later one).

use senko_io::PAGE_SIZE;

use crate::record::{self, RECORD_ALIGN};
use crate::types::FRAME_PAGES;

/// The most open pages.
const MOST: usize = 32;
/// A page with less room than this is closed: hardly a record is smaller.
const SMALLEST_RECORD: usize = 32;
/// Empty bytes of a page, on average, for which no record crosses: 3 %.
const ALLOWED: usize = 128;

#[derive(Debug)]
struct OpenPage {
    position: u64,
    used: usize,
    /// The end of its room: the end of the page, or the start of a large record.
    end: usize,
    /// Tags of the records in it (LOG-4).
    tags: Vec<u32>,
}

impl OpenPage {
    fn room(&self) -> usize {
        self.end - self.used
    }
}

/// What the place of a record depends on: its length, its bytes before the value, its key's tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub len: usize,
    pub prefix: usize,
    pub tag: u64,
}

/// A place for a record in new pages, or in the newest open page and new ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// Where it begins in its first page.
    pub offset: usize,
    /// New pages that it takes.
    pub pages: u64,
    /// Whether its first page is the one before those.
    pub shares: bool,
    /// Where the next record may begin, counted from the start of its first page.
    pub end: usize,
    /// Whether other records may follow it in its last page.
    followed: bool,
}

/// The open pages of a log.
#[derive(Debug, Default)]
pub(crate) struct OpenPages {
    pages: Vec<OpenPage>,
    /// Bytes that were empty when pages were closed, less what is allowed for each.
    lost: usize,
}

impl OpenPages {
    /// Whether pages are closed with so much room that records should cross.
    pub fn lose(&self) -> bool {
        self.lost > 0
    }

    /// The place of a record that fits no open page. The next new page is `head`, and `left` pages
    /// from there on are in the region of the page before it. If it `crosses`, it begins in that
    /// page, and other records may follow it.
    pub fn spot(&self, record: Sizes, head: u64, left: u64, crosses: bool) -> Spot {
        let Sizes { len, prefix, tag } = record;
        let fits = |page: &&OpenPage| {
            page.position + 1 == head
                && page.end == PAGE_SIZE
                && page.room() >= prefix
                && !page.tags.contains(&(tag as u32))
        };
        if crosses && let Some(page) = self.pages.iter().find(fits) {
            let (offset, end) = (page.used, record::place_end(page.used, len));
            let pages = end.div_ceil(PAGE_SIZE) as u64 - 1;
            // A slot can name one page less than a frame has.
            if pages <= left && pages + 1 < FRAME_PAGES as u64 {
                return Spot {
                    offset,
                    pages,
                    shares: true,
                    end,
                    followed: true,
                };
            }
        }
        let pages = len.div_ceil(PAGE_SIZE);
        let mut offset = 0;
        if !crosses && pages > 1 {
            let left = (pages * PAGE_SIZE - len).min(PAGE_SIZE - prefix);
            offset = left - left % RECORD_ALIGN;
            if offset < SMALLEST_RECORD {
                offset = 0;
            }
        }
        Spot {
            offset,
            pages: pages as u64,
            shares: false,
            end: record::place_end(offset, len),
            followed: crosses || pages == 1,
        }
    }

    /// Notes that a record went to its spot; `position` is its first page.
    pub fn fill(&mut self, spot: &Spot, position: u64, tag: u64) {
        if spot.shares {
            self.pages.retain(|page| page.position != position);
            self.closed(0);
        } else if spot.offset > 0 {
            self.push(position, 0, spot.offset).push(tag as u32);
        }
        let (last, used) = ((spot.end / PAGE_SIZE) as u64, spot.end % PAGE_SIZE);
        if used > 0 && PAGE_SIZE - used >= SMALLEST_RECORD && spot.followed {
            let tags = self.push(position + last, used, PAGE_SIZE);
            if last == 0 {
                tags.push(tag as u32);
            }
        } else {
            self.closed((PAGE_SIZE - used) % PAGE_SIZE);
        }
    }

    /// Opens the part of a page for records. If there are too many open pages, it replaces the page
    /// with the least room.
    fn push(&mut self, position: u64, used: usize, end: usize) -> &mut Vec<u32> {
        let mut tags = Vec::new();
        if self.pages.len() >= MOST {
            let fullest = (0..self.pages.len())
                .min_by_key(|&n| self.pages[n].room())
                .expect("not empty");
            let page = self.pages.swap_remove(fullest);
            self.closed(page.room());
            tags = page.tags;
            tags.clear();
        }
        self.pages.push(OpenPage {
            position,
            used,
            end,
            tags,
        });
        &mut self.pages.last_mut().expect("just pushed").tags
    }

    /// Takes room for a record of `len` bytes from the page with the least sufficient room. Returns
    /// position and offset in the page, or `None` if no page has enough.
    pub fn take(&mut self, len: usize, tag: u64) -> Option<(u64, usize)> {
        let tag = tag as u32; // a tag has at most 30 bits
        let mut best: Option<usize> = None;
        for (n, page) in self.pages.iter().enumerate() {
            // Room rules out most pages; tags are compared only after that.
            if page.room() >= len
                && best.is_none_or(|b| page.room() < self.pages[b].room())
                && !page.tags.contains(&tag)
            {
                best = Some(n);
            }
        }
        let n = best?;
        let page = &mut self.pages[n];
        let (position, used) = (page.position, page.used);
        page.tags.push(tag);
        // The end of a front is a multiple of it too.
        page.used = (used + len).next_multiple_of(RECORD_ALIGN);
        let room = page.room();
        if room < SMALLEST_RECORD {
            self.pages.swap_remove(n);
            self.closed(room);
        }
        Some((position, used))
    }

    /// Closes the pages before a position.
    pub fn close_before(&mut self, position: u64) {
        let mut n = 0;
        while n < self.pages.len() {
            if self.pages[n].position < position {
                let room = self.pages.swap_remove(n).room();
                self.closed(room);
            } else {
                n += 1;
            }
        }
    }

    /// Closes all.
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    /// Counts a page that was closed with `room` empty bytes.
    fn closed(&mut self, room: usize) {
        let lost = (self.lost + room).saturating_sub(ALLOWED);
        self.lost = lost.min(MOST * PAGE_SIZE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places records of these lengths, in a region without an end. Returns how full the pages are,
    /// and how many records crossed.
    fn fill(lens: impl Iterator<Item = usize>) -> (f64, u32) {
        let (mut open, mut head, mut bytes, mut crossed) = (OpenPages::default(), 0, 0, 0);
        for (tag, len) in lens.enumerate() {
            let (prefix, tag) = (len.min(50), tag as u64);
            bytes += len.next_multiple_of(RECORD_ALIGN);
            if len > PAGE_SIZE || open.take(len, tag).is_none() {
                let record = Sizes { len, prefix, tag };
                let spot = open.spot(record, head, u64::MAX, open.lose());
                let position = head - u64::from(spot.shares);
                head += spot.pages;
                crossed += u32::from(spot.offset + len > PAGE_SIZE && spot.shares);
                open.fill(&spot, position, tag);
                open.close_before(head.saturating_sub(64));
            }
        }
        (bytes as f64 / (head * PAGE_SIZE as u64) as f64, crossed)
    }

    #[test]
    fn pages_are_full_at_every_size() {
        for len in (40..4096).step_by(23).chain((4100..60_000).step_by(501)) {
            let (full, _) = fill(std::iter::repeat_n(len, 200_000_000 / (len + 500)));
            assert!(full > 0.96, "{len}: {full:.3}");
        }
    }

    #[test]
    fn records_cross_only_where_pages_would_stay_empty() {
        // Sizes that fill pages by themselves.
        for len in [100, 204, 408, 680, 816, 1020, 1364, 2044, 4090] {
            assert_eq!(fill(std::iter::repeat_n(len, 50_000)).1, 0, "{len}");
        }
        // Small records fill what large ones leave.
        let mixed = (0..200_000).map(|n| {
            if n % 20 == 0 {
                2100
            } else {
                60 + n * 7919 % 340
            }
        });
        let (full, crossed) = fill(mixed);
        assert!(full > 0.96 && crossed == 0, "{full:.3}, {crossed}");
        // Once the small ones stay away, the others cross; once they are back, soon no more.
        let small = || (0..100_000).map(|n| 60 + n * 7919 % 340);
        let large = || std::iter::repeat_n(2100, 10_000);
        let (_, before) = fill(small().chain(large()));
        let (full, after) = fill(small().chain(large()).chain(small()));
        assert!(
            full > 0.96 && before > 3000 && after < before + 500,
            "{full:.3}: {before}, {after}"
        );
    }
}
