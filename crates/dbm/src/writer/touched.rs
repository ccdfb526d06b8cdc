// SPDX-License-Identifier: Apache-2.0
//! The pages that one batch of commits changes in the trees (`tree.rs`), before they are published.
//!
//! TIP-1: the bytes that pass to the next batch are the newest of their page. Only batches change
//! pages, one after the other.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::pages::node::Page;

/// Most entries of maps whose memory the next batch reuses. Larger ones would cost it more than new
/// ones.
const MOST_CARRIED: usize = 1024;

/// What a batch changed.
#[derive(Default)]
pub(crate) struct Touched {
    pub pages: FxHashMap<u32, Arc<Page>>,
    /// Pages whose keys or children changed, and new ones.
    pub shaped: FxHashSet<u32>,
    pub freed: Vec<u32>,
    /// Numbers of parts of long values that no record names any more: the first, and the count.
    pub freed_blobs: Vec<(u32, u32)>,
    /// The leaf of the last put, and its root.
    pub last: Option<(u32, Leaf)>,
    /// That leaf as the previous batch left it.
    pub tip: Option<Arc<Page>>,
}

impl Touched {
    /// Ends the batch. Keeps the leaf if ascending keys continue there; the next batch rarely
    /// begins on another leaf.
    pub fn end(&mut self) {
        self.last = self.last.filter(|(_, leaf)| leaf.is_last);
        let page = self.last.and_then(|(_, leaf)| self.pages.get(&leaf.id));
        match (page, self.last) {
            (Some(page), _) => self.tip = Some(Arc::clone(page)),
            (None, Some(_)) => {}
            (None, None) => self.tip = None,
        }
    }

    /// Leaves the memory and the leaf to the next batch. Only after [`Touched::end`].
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

/// A leaf, found on a path down a tree.
#[derive(Clone, Copy)]
pub(crate) struct Leaf {
    pub id: u32,
    /// Whether no leaf comes after it.
    pub is_last: bool,
}
