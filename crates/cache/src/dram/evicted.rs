// SPDX-License-Identifier: Apache-2.0
//! Evicted items that are kept until somebody takes them (`watch evictions`).
//!
//! Always holds: there are at most [`MOST`]; those beyond are counted.

use crate::types::Evicted;

/// Evicted items that are kept until they are taken.
const MOST: usize = 256;

/// The evicted items of a shard.
#[derive(Debug, Default)]
pub(super) struct EvictedItems {
    /// `None`: nobody asks.
    kept: Option<Vec<Evicted>>,
    /// Items that there was no room for.
    untold: u64,
}

impl EvictedItems {
    pub fn watch(&mut self, on: bool) {
        if on != self.kept.is_some() {
            self.kept = on.then(Vec::new);
        }
    }

    /// Keeps an item, if somebody asks and there is room.
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

    /// The items since the last call, and how many more there were.
    pub fn take(&mut self) -> (Vec<Evicted>, u64) {
        let kept = self.kept.as_mut().map(std::mem::take);
        let untold = std::mem::take(&mut self.untold);
        (kept.unwrap_or_default(), untold)
    }
}
