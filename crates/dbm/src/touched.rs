// SPDX-License-Identifier: Apache-2.0
//! The pages that one batch of commits changes in the trees (`tree.rs`), before they are published.
//!
//! TIP-1: the bytes that are carried to the next batch are the newest of their page. Only batches
//! change pages, one after the other.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::node::Page;

/// Entries of maps whose memory the next batch takes over. Larger ones would cost it more than new
/// ones.
const MOST_CARRIED: usize = 1024;

/// What a batch changed.
#[derive(Default)]
pub(crate) struct Touched {
    pub pages: FxHashMap<u32, Arc<Page>>,
    /// Pages whose keys or children are others than before, and new ones.
    pub shaped: FxHashSet<u32>,
    pub freed: Vec<u32>,
    /// Numbers of parts of long values that no record names any more: the first, and how many.
    pub freed_blobs: Vec<(u32, u32)>,
    /// The leaf of the last put, and its root.
    pub last: Option<(u32, Leaf)>,
    /// That leaf as the batch before left it.
    pub tip: Option<Arc<Page>>,
}

impl Touched {
    /// The batch ends: keeps the leaf where ascending keys continue. On another one the next batch
    /// hardly begins.
    pub fn end(&mut self) {
        self.last = self.last.filter(|(_, leaf)| leaf.is_last);
        let page = self.last.and_then(|(_, leaf)| self.pages.get(&leaf.id));
        match (page, self.last) {
            (Some(page), _) => self.tip = Some(Arc::clone(page)),
            (None, Some(_)) => {}
            (None, None) => self.tip = None,
        }
    }

    /// Leaves the memory, and the leaf, to the next batch. Only after [`Touched::end`].
    pub fn clear(&mut self) {
        if self.pages.capacity() + self.shaped.capacity() > MOST_CARRIED {
            self.pages = FxHashMap::default();
            self.shaped = FxHashSet::default();
        }
        self.pages.clear();
        self.shaped.clear();
        self.freed.clear();
        self.freed_blobs.clear();
    }
}

/// A leaf, as a way down a tree found it.
#[derive(Clone, Copy)]
pub(crate) struct Leaf {
    pub id: u32,
    /// No leaf is behind it.
    pub is_last: bool,
}
