// SPDX-License-Identifier: Apache-2.0
//! The pages of a log that are open for small records: each record goes to the page that it fills
//! best.
//!
//! A log opens whole pages for small records. It also opens the front of a page if a large record
//! begins in the rest of it. The log knows which pages are in write buffers that may still change,
//! and closes the others.

use senko_io::PAGE_SIZE;

use crate::record::RECORD_ALIGN;

/// The most open pages.
const MOST: usize = 32;
/// A page with less room than this is closed: hardly a record is smaller.
pub(crate) const SMALLEST_RECORD: usize = 32;

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

/// The open pages of a log.
#[derive(Debug, Default)]
pub(crate) struct OpenPages(Vec<OpenPage>);

impl OpenPages {
    /// Opens an empty page for records. If there are too many open pages, it replaces the page with
    /// the least room.
    pub fn open(&mut self, position: u64) {
        self.push(position, PAGE_SIZE);
    }

    /// Opens the first `end` bytes of a page for records; the record after them has this tag.
    pub fn open_front(&mut self, position: u64, end: usize, tag: u64) {
        self.push(position, end).push(tag as u32);
    }

    fn push(&mut self, position: u64, end: usize) -> &mut Vec<u32> {
        let mut tags = Vec::new();
        if self.0.len() >= MOST {
            let fullest = (0..self.0.len())
                .min_by_key(|&n| self.0[n].room())
                .expect("not empty");
            tags = self.0.swap_remove(fullest).tags;
            tags.clear();
        }
        self.0.push(OpenPage {
            position,
            used: 0,
            end,
            tags,
        });
        &mut self.0.last_mut().expect("just pushed").tags
    }

    /// Takes room for a record of `len` bytes from the page with the least sufficient room. Returns
    /// position and offset in the page, or `None` if no page has enough.
    pub fn take(&mut self, len: usize, tag: u64) -> Option<(u64, usize)> {
        let tag = tag as u32; // a tag has at most 30 bits
        let mut best: Option<usize> = None;
        for (n, page) in self.0.iter().enumerate() {
            // Room rules out most pages; tags are compared only after that.
            if page.room() >= len
                && best.is_none_or(|b| page.room() < self.0[b].room())
                && !page.tags.contains(&tag)
            {
                best = Some(n);
            }
        }
        let n = best?;
        let page = &mut self.0[n];
        let (position, used) = (page.position, page.used);
        page.tags.push(tag);
        // The end of a front is a multiple of it too.
        page.used = (used + len).next_multiple_of(RECORD_ALIGN);
        if page.room() < SMALLEST_RECORD {
            self.0.swap_remove(n);
        }
        Some((position, used))
    }

    /// Closes the pages before a position.
    pub fn close_before(&mut self, position: u64) {
        self.0.retain(|page| page.position >= position);
    }

    /// Closes all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
