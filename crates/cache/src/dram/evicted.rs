// SPDX-License-Identifier: Apache-2.0
//! Evicted items that are kept until a reader takes them (`watch evictions`).
//!
//! Always holds: there are at most [`MOST`]; further ones are only counted.

use crate::types::Evicted;

/// The most evicted items that are kept.
const MOST: usize = 256;

/// The evicted items of a shard.
#[derive(Debug, Default)]
pub(super) struct EvictedItems {
    /// `None`: nobody watches evictions.
    kept: Option<Vec<Evicted>>,
    /// Items that were not kept for lack of room.
    untold: u64,
}

impl EvictedItems {
    pub fn watch(&mut self, on: bool) {
        if on != self.kept.is_some() {
            self.kept = on.then(Vec::new);
        }
    }

    /// Keeps an item, if somebody watches and there is room.
    pub fn note(&mut self, item: impl FnOnce() -> Evicted) {
        let Some(kept) = &mut self.kept else {
            return;
        };
        if kept.len() >= MOST {
            self.untold += 1;
            return;
        }
        kept.push(item());
    }

    /// The items since the last call, and the number of items that were not kept.
    pub fn take(&mut self) -> (Vec<Evicted>, u64) {
        let kept = self.kept.as_mut().map(std::mem::take);
        let untold = std::mem::take(&mut self.untold);
        (kept.unwrap_or_default(), untold)
    }
}
