// SPDX-License-Identifier: Apache-2.0
//! Shares the memory of a shard between index and items.
//!
//! While the index grows, it keeps the memory that it frees for its next growth. A wave takes and
//! frees pages in turn. If items gave up memory for each page, they would be evicted by the page,
//! and not one by one in the policy's order.

/// Pages that items keep, whatever the index needs.
pub(crate) const LEAST_PAGES: usize = 4;

/// The memory of a shard, in bytes.
#[derive(Debug)]
pub(super) struct Share {
    /// Bytes for items and index together.
    memory: usize,
    /// The same at start.
    reserved: usize,
    /// The most that the index took recently. Items do not get this memory.
    index: usize,
    /// Whether the index has grown since the last due rebalancing.
    index_grew: bool,
}

impl Share {
    pub fn new(memory: usize) -> Share {
        Share {
            memory,
            reserved: memory,
            index: 0,
            index_grew: false,
        }
    }

    pub fn memory(&self) -> usize {
        self.memory
    }
    pub fn reserved(&self) -> usize {
        self.reserved
    }
    pub fn set_memory(&mut self, bytes: usize) {
        self.memory = bytes;
    }

    /// Bytes for items if the index takes `index` bytes.
    pub fn of_items(&mut self, index: usize) -> usize {
        self.index = self.index.max(index);
        self.memory.saturating_sub(self.index)
    }

    /// Notes that the index has grown.
    pub fn index_grew(&mut self) {
        self.index_grew = true;
    }

    /// Forgets the memory that the index gave back, unless the index has grown since the last call.
    /// Returns whether it did.
    pub fn forget_growth(&mut self) -> bool {
        let rests = !std::mem::take(&mut self.index_grew);
        if rests {
            self.index = 0;
        }
        rests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index keeps the memory that it gave back, until a rebalancing finds that it has stopped
    /// growing.
    #[test]
    fn items_get_back_what_the_index_left_once_it_rests() {
        let mut share = Share::new(1000);
        assert_eq!(share.of_items(100), 900);
        share.index_grew();
        assert_eq!(share.of_items(300), 700);
        assert_eq!(share.of_items(150), 700);
        assert!(!share.forget_growth());
        assert_eq!(share.of_items(150), 700);
        assert!(share.forget_growth());
        assert_eq!(share.of_items(150), 850);
        share.set_memory(100);
        assert_eq!(share.of_items(150), 0);
        assert_eq!(share.reserved(), 1000);
    }
}
