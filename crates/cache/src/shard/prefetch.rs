// SPDX-License-Identifier: Apache-2.0
//! Prefetches the memory that the lookups of a round will read, before the first of them runs.
//!
//! A lookup waits for memory twice: for its line of the index, and, if that leads to DRAM, for the
//! item. The index of a large cache does not fit into processor caches, so each wait takes a tenth
//! of a microsecond or more. If they are prefetched together, the lines of all requests of a round
//! arrive at the same time. The worker calls [`Shard::prefetch_line`] for every key of a round,
//! then [`Shard::prefetch_item`] for every key, then runs the commands.
//!
//! Always holds: this file changes no state and makes no decision. A useless prefetch costs a few
//! nanoseconds.

use senko_io::prefetch;

use crate::index::Slot;
use crate::shard::Shard;

/// Bytes of an item to prefetch: those that a hit reads before it copies the answer. The copy
/// itself reads memory in order, which the processor prefetches on its own.
const PREFETCHED: usize = 256;

impl Shard {
    /// Prefetches the index line of a key that will be looked up soon, by its hash.
    #[inline]
    pub fn prefetch_line(&self, hash: u64) {
        prefetch(self.index.first_line(hash));
    }

    /// Prefetches the item that this key has in DRAM, if its index line leads to one. The line
    /// should have arrived by now.
    #[inline]
    pub fn prefetch_item(&self, hash: u64) {
        let tag = self.index.tag(hash);
        let mut found = false;
        for bytes in self.index.first_line(hash).chunks_exact(8) {
            let slot = Slot(u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
            found |= self.index.tag_of(slot) == tag && slot != Slot::EMPTY;
            if self.index.tag_of(slot) == tag && slot.is_dram() {
                let item = self.index.handle(slot);
                let size = self
                    .dram
                    .arena()
                    .class(self.dram.arena().class_of(item))
                    .size;
                prefetch(self.dram.arena().bytes(item, 0, size.min(PREFETCHED)));
            }
        }
        if !found {
            self.prefetch_narrow(hash);
        }
    }

    /// Prefetches the lines in which a search for sorted slots of a key begins.
    pub(super) fn prefetch_narrow(&self, hash: u64) {
        self.index.narrow_lines(hash).for_each(prefetch);
    }
}
