// SPDX-License-Identifier: Apache-2.0
//! Items leave the index.

use crate::arena::Handle;
use crate::shard::Shard;

impl Shard {
    /// Removes a linked item and its slot.
    pub(crate) fn unlink_item(&mut self, item: Handle) {
        let hash = self.item_hash(item);
        let slot = self.index.dram_slot(hash, item);
        let (pos, _) = self
            .index
            .find(hash, |s| s == slot)
            .expect("a linked item has a slot (SHARD-1)");
        self.index.remove(pos);
        self.copy_died(self.dram.arena().flash_copy(item));
        self.dram.release(item);
    }

    /// Removes an item that expired or was flushed.
    pub(crate) fn unlink_dead(&mut self, item: Handle) {
        self.stats.reclaimed += 1;
        if !self.dram.arena().header(item).fetched() {
            self.stats.expired_unfetched += 1;
        }
        self.unlink_item(item);
    }
}
