// SPDX-License-Identifier: Apache-2.0
//! What the next checkpoint must write, and what it may.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use crate::disk::maps::CHUNK;
use crate::writer::dirty::{Began, Dirty};

/// Pages that changed since a checkpoint wrote them, and changed chunks of the translation table.
pub(crate) struct Changed {
    dirty: Dirty,
    /// Chunks, besides those of the pages that the next checkpoint writes.
    nodes: FxHashSet<u32>,
    blobs: FxHashSet<u32>,
    /// Long values since the last checkpoint began: the number of parts, by first part.
    born: BTreeMap<u32, u32>,
}

/// What a checkpoint writes.
pub(crate) struct Taken {
    pub pages: FxHashSet<u32>,
    pub nodes: FxHashSet<u32>,
    pub blobs: FxHashSet<u32>,
    /// Where its replay of the log begins.
    pub replay: Began,
}

impl Changed {
    /// Nothing, since a checkpoint.
    pub fn since(first: Began) -> Changed {
        Changed {
            dirty: Dirty::new(first),
            nodes: FxHashSet::default(),
            blobs: FxHashSet::default(),
            born: BTreeMap::new(),
        }
    }

    /// Changed pages, and those of them that the next checkpoint must write.
    pub fn counts(&self) -> (usize, usize) {
        (self.dirty.len(), self.dirty.shaped())
    }

    /// A page changed. It `is_shaped` as in DIRTY-2.
    pub fn page(&mut self, id: u32, is_shaped: bool) {
        self.dirty.change(id, is_shaped);
    }

    /// A page ended.
    pub fn freed_page(&mut self, id: u32) {
        self.dirty.forget(id);
        self.place(id);
    }

    /// The place of a page changed.
    pub fn place(&mut self, id: u32) {
        self.nodes.insert(id / CHUNK);
    }

    /// Places of parts of long values changed.
    pub fn blobs(&mut self, first: u32, count: u32) {
        self.blobs
            .extend(first / CHUNK..(first + count).div_ceil(CHUNK));
    }

    pub fn born(&mut self, first: u32, count: u32) {
        self.born.insert(first, count);
    }

    /// A long value ended.
    pub fn freed_blobs(&mut self, first: u32, count: u32) {
        self.blobs(first, count);
        self.born.remove(&first);
    }

    /// Chunks must be written again.
    pub fn chunks(&mut self, nodes: Option<u32>, blobs: Option<u32>) {
        self.nodes.extend(nodes);
        self.blobs.extend(blobs);
    }

    /// Takes what a checkpoint writes: as [`Dirty::begin`].
    pub fn begin(
        &mut self,
        began: Began,
        most: usize,
        unit: u64,
        place: impl Fn(u32) -> u64,
    ) -> Taken {
        let (pages, replay) = self.dirty.begin(began, most, unit, place);
        self.born.clear();
        Taken {
            pages,
            nodes: std::mem::take(&mut self.nodes),
            blobs: std::mem::take(&mut self.blobs),
            replay,
        }
    }

    /// The parts of long values since the last checkpoint began: the first, and the count.
    pub fn newborn(&self) -> impl Iterator<Item = (u32, u32)> {
        self.born.iter().map(|(first, count)| (*first, *count))
    }
}
