// SPDX-License-Identifier: Apache-2.0
//! The pages of a log that are open for small records: each record goes to the page that it fills
//! best.
//!
//! A log opens its own page for small records, and the front of a page in whose rest a large record
//! begins. Which pages lie in write buffers that may still change the log knows, and closes the
//! others.

use senko_io::PAGE_SIZE;

use crate::record::RECORD_ALIGN;

/// Most of them.
const MOST: usize = 32;
/// Less room than this is none: no record is smaller.
pub(super) const SMALLEST_RECORD: usize = 48;

#[derive(Debug)]
struct OpenPage {
    position: u64,
    used: usize,
    /// Where its room ends: with the page, or where a large record begins.
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
pub(super) struct OpenPages(Vec<OpenPage>);

impl OpenPages {
    /// Lets records into a page that is empty, in place of the page with the least room if there
    /// are too many.
    pub fn open(&mut self, position: u64) {
        self.push(position, PAGE_SIZE);
    }

    /// Lets records into the first `end` bytes of a page, in front of one with this tag.
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

    /// Takes room for a record of `len` bytes from the page that has the least that does; position
    /// and offset in the page, or `None` if none has.
    pub fn take(&mut self, len: usize, tag: u64) -> Option<(u64, usize)> {
        let tag = tag as u32; // a tag has at most 30 bits
        let mut best: Option<usize> = None;
        for (n, page) in self.0.iter().enumerate() {
            // Most pages are ruled out by their room; only then are their tags looked at.
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
