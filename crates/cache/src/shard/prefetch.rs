// SPDX-License-Identifier: Apache-2.0
//! Prefetch: memory that the lookups of a round will read is requested before the first of them
//! runs.
//!
//! A lookup waits for memory twice: for its line of the index, and, if that leads to DRAM, for the
//! item. The index of a large cache is in no processor cache, so each wait is a tenth of a
//! microsecond or more. Asked for together, the lines of all requests of a round come at the same
//! time. The worker calls [`Shard::prefetch_line`] for every key of a round, then
//! [`Shard::prefetch_item`] for every key, then runs the commands.
//!
//! Always holds: nothing here changes anything or decides anything; a prefetch in vain costs a few
//! nanoseconds.

use senko_io::prefetch;

use crate::index::Slot;
use crate::shard::Shard;

/// Bytes of an item that are requested: what a hit reads before its answer is copied. The copy
/// itself runs through memory in order, which the processor sees by itself.
const PREFETCHED: usize = 256;

impl Shard {
    /// A key of this hash will be looked up soon: asks for its line of the index.
    #[inline]
    pub fn prefetch_line(&self, hash: u64) {
        prefetch(self.index.first_line(hash));
    }

    /// Asks for the item that this key has in DRAM, if its line (which should be here by now) leads
    /// to one.
    #[inline]
    pub fn prefetch_item(&self, hash: u64) {
        let tag = self.index.tag(hash);
        for bytes in self.index.first_line(hash).chunks_exact(8) {
            let slot = Slot(u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
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
    }
}
