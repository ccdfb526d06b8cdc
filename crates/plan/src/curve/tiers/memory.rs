// SPDX-License-Identifier: Apache-2.0
//! DRAM of a simulated server: pages, cut into chunks of one size each, as in
//! `senko_cache`'s arena.
//!
//! Always holds:
//! - MEMORY-1: a page belongs to one class, or is free. A chunk is free, or an object has it.
//! - MEMORY-2: without pages (a few bytes of DRAM, or a small part of them), objects take bytes of
//!   one room, and all are of one class.

use senko_cache::Footprint;

use super::{Chunks, Item, Machine};

/// DRAM of fewer pages has none: a server has more, unless it is too small to start.
const LEAST_PAGES: f64 = 24.0;
/// The largest chunk.
const LARGEST: f64 = 16384.0;

/// A page: its class, and the object of each chunk.
#[derive(Clone, Debug, Default)]
struct Page {
    class: u8,
    owners: Vec<u32>,
    used: u32,
}

/// No object.
const FREE: u32 = u32::MAX;

/// Chunks of one size.
#[derive(Clone, Debug, Default)]
struct Size {
    per_page: u32,
    /// Page and number in it.
    free: Vec<(u32, u32)>,
    pages: usize,
}

/// The memory for objects.
pub(super) struct Memory {
    room: f64,
    used: f64,
    /// Bytes of a page, for the rest of it that no chunk has.
    page: u32,
    /// The items have room for copies on flash.
    flash: bool,
    /// Empty without pages.
    sizes: Vec<Size>,
    pages: Vec<Page>,
    free_pages: Vec<u32>,
    /// Of each object.
    chunks: Vec<Vec<(u32, u32)>>,
    /// The object that is taking memory.
    taking: u32,
}

impl Memory {
    pub fn new(machine: Machine, scale: f64, items: &[Item]) -> Memory {
        let page = page_bytes(machine.dram);
        let part = (f64::from(page) * scale).max(LARGEST);
        let pages = (machine.dram * scale / part).floor();
        let sizes = match pages < LEAST_PAGES {
            true => Vec::new(),
            false => {
                let sizes = Footprint::default();
                let sizes = sizes.chunk_sizes().iter().map(|size| {
                    // The rest of a page that no chunk has is as large a part of a part.
                    let chunks = f64::from(page / *size as u32) * part / f64::from(page);
                    Size {
                        per_page: chunks.round().max(1.0) as u32,
                        ..Size::default()
                    }
                });
                sizes.collect()
            }
        };
        let has_pages = !sizes.is_empty();
        Memory {
            room: machine.dram * scale,
            used: 0.0,
            page,
            flash: machine.flash > 0.0,
            sizes,
            pages: vec![Page::default(); if has_pages { pages as usize } else { 0 }],
            free_pages: (0..if has_pages { pages as u32 } else { 0 })
                .rev()
                .collect(),
            chunks: vec![Vec::new(); if has_pages { items.len() } else { 0 }],
            taking: FREE,
        }
    }

    pub fn classes(&self) -> usize {
        self.sizes.len().max(1)
    }

    fn of(&self, items: &[Item], object: u32) -> Chunks {
        items[object as usize].chunks[usize::from(self.flash)]
    }

    /// The class of an object's first chunk.
    pub fn class(&self, items: &[Item], object: u32) -> usize {
        let item = self.of(items, object);
        match (self.sizes.len(), item.count) {
            (0, _) => 0,
            (_, 1) => usize::from(item.last),
            (classes, _) => classes - 1,
        }
    }

    pub fn pages_of(&self, class: usize) -> usize {
        self.sizes.get(class).map_or(1, |size| size.pages)
    }

    /// The page of an object's first chunk, and the objects in it, unless one is taking memory
    /// there.
    pub fn page_of(&self, object: u32) -> Option<(u32, Vec<u32>)> {
        let (page, _) = *self.chunks.get(object as usize)?.first()?;
        let owners = self.pages[page as usize].owners.iter();
        let owners: Vec<u32> = owners.copied().filter(|owner| *owner != FREE).collect();
        (!owners.contains(&self.taking)).then_some((page, owners))
    }

    /// Takes the memory that an object still lacks. An error has the class that lacks a chunk, or
    /// nothing if the object is too large.
    pub fn take(&mut self, items: &[Item], object: u32) -> Result<(), Option<usize>> {
        let item = self.of(items, object);
        if self.sizes.is_empty() {
            let bytes = self.bytes(&item);
            if bytes > self.room {
                return Err(None);
            }
            if self.used + bytes > self.room {
                return Err(Some(0));
            }
            self.used += bytes;
            return Ok(());
        }
        if f64::from(item.bytes) > self.room / 2.0 {
            return Err(None);
        }
        self.taking = object;
        while self.chunks[object as usize].len() < item.count as usize {
            let is_last = self.chunks[object as usize].len() + 1 == item.count as usize;
            let class = match is_last {
                true => usize::from(item.last),
                false => self.sizes.len() - 1,
            };
            let Some((page, at)) = self.chunk(class) else {
                return Err(Some(class));
            };
            self.pages[page as usize].owners[at as usize] = object;
            self.pages[page as usize].used += 1;
            self.chunks[object as usize].push((page, at));
        }
        self.taking = FREE;
        Ok(())
    }

    /// Gives back what an object took that gets no more.
    pub fn give_up(&mut self, object: u32) {
        self.taking = FREE;
        self.free_chunks(object);
    }

    fn chunk(&mut self, class: usize) -> Option<(u32, u32)> {
        let size = &mut self.sizes[class];
        if let Some(chunk) = size.free.pop() {
            return Some(chunk);
        }
        let page = self.free_pages.pop()?;
        size.pages += 1;
        size.free
            .extend((1..size.per_page).rev().map(|at| (page, at)));
        self.pages[page as usize] = Page {
            class: class as u8,
            owners: vec![FREE; size.per_page as usize],
            used: 0,
        };
        Some((page, 0))
    }

    /// Frees the memory of an object.
    pub fn free(&mut self, items: &[Item], object: u32) {
        if self.sizes.is_empty() {
            self.used -= self.bytes(&self.of(items, object));
            return;
        }
        self.free_chunks(object);
    }

    fn free_chunks(&mut self, object: u32) {
        for (page, at) in std::mem::take(&mut self.chunks[object as usize]) {
            let of = &mut self.pages[page as usize];
            of.owners[at as usize] = FREE;
            of.used -= 1;
            let size = &mut self.sizes[usize::from(of.class)];
            size.free.push((page, at));
            // A class keeps a page or two.
            if of.used == 0 && size.free.len() >= 2 * size.per_page as usize {
                self.release(page);
            }
        }
    }

    /// Frees a page without objects.
    fn release(&mut self, page: u32) {
        let size = &mut self.sizes[usize::from(self.pages[page as usize].class)];
        size.free.retain(|(other, _)| *other != page);
        size.pages -= 1;
        self.pages[page as usize].owners.clear();
        self.free_pages.push(page);
    }

    /// Frees a page, unless it has objects or is free already.
    pub fn release_if_empty(&mut self, page: u32) {
        let of = &self.pages[page as usize];
        if of.used == 0 && !of.owners.is_empty() {
            self.release(page);
        }
    }

    /// Bytes of an object without pages, with its share of the rest of a page.
    fn bytes(&self, item: &Chunks) -> f64 {
        match self.page / item.bytes {
            0 => f64::from(item.bytes),
            chunks => f64::from(self.page) / f64::from(chunks),
        }
    }
}

/// Bytes of a page, as a shard cuts so much DRAM.
fn page_bytes(dram: f64) -> u32 {
    let part = (dram / 2048.0).max(1.0) as u32;
    part.next_power_of_two().clamp(64 << 10, 1 << 20)
}
