// SPDX-License-Identifier: Apache-2.0
//! Memory for items: chunks from the arena, by eviction if none is left.
//!
//! A victim of the requesting class frees a chunk of the right size. Now and then a page moves from
//! the class whose items stay longest to the class whose items turn over fastest (`emptying.rs`).
//! So items of all classes reach a similar age, and the classes together behave like one queue.

use senko_io::Queue;

use crate::arena::{Handle, MAX_CHUNK};
use crate::dram::item::CHAIN_HEADER;
use crate::shard::Shard;
use crate::types::AllocError;

/// The most victims for one chunk: a bound far above what is ever needed.
const MOST_VICTIMS: usize = 4096;
/// The most items of the page being emptied that leave DRAM for one chunk, and as many more if they
/// are the class's oldest.
const EMPTIED_BY_ALLOCATION: usize = 8;

/// The same while the index waits for its memory, if nothing may be evicted.
const EMPTIED_FASTER: usize = 12;
/// Pages that a full segment of the index may take although items have not yet given them up, if
/// nothing may be evicted.
const LENT_PAGES: usize = 6;

impl Shard {
    /// Chunks for a record of `len` bytes in DRAM, as an item whose record is not yet written.
    pub(crate) fn take_item<Q: Queue>(
        &mut self,
        queue: &mut Q,
        len: usize,
    ) -> Result<Handle, AllocError> {
        let words = self.words(len);
        let first_class = self.dram.arena().item_class(len, words);
        let item = self.take_chunk(queue, first_class)?;
        self.dram.init_item(item, self.now, words);
        let mut left = len.saturating_sub(MAX_CHUNK - words.header());
        let mut last = item;
        while left > 0 {
            let class = self
                .dram
                .arena()
                .class_for((left + CHAIN_HEADER).min(MAX_CHUNK));
            let chunk = match self.take_chunk(queue, class) {
                Ok(chunk) => chunk,
                Err(e) => {
                    self.dram.free_item(item);
                    return Err(e);
                }
            };
            self.dram.chain(item, last, chunk);
            last = chunk;
            left = left.saturating_sub(MAX_CHUNK - CHAIN_HEADER);
        }
        Ok(item)
    }

    fn take_chunk<Q: Queue>(&mut self, queue: &mut Q, class: usize) -> Result<Handle, AllocError> {
        // Where nothing may be lost, the index must have its memory before a segment is full.
        let faster = self.keeps_all() && self.dram.arena().over_limit();
        let most = if faster {
            EMPTIED_FASTER
        } else {
            EMPTIED_BY_ALLOCATION
        };
        self.empty_some(queue, most);
        for victims in 0..MOST_VICTIMS {
            if let Some(chunk) = self.dram.alloc(class) {
                match victims {
                    0 => self.chunk_taken(queue, class),
                    _ => self.left_alone(class),
                }
                return Ok(chunk);
            }
            if victims == 0
                && self.seal_or_gather(queue, class)?
                && let Some(chunk) = self.dram.alloc(class)
            {
                self.chunk_taken(queue, class);
                return Ok(chunk);
            }
            if victims >= EMPTIED_BY_ALLOCATION
                && let Some(chunk) = self.chunk_of_emptied(class)
            {
                return Ok(chunk);
            }
            let made = if self.config.no_evict && !self.keeps_all() {
                Err(AllocError::OutOfMemory)
            } else {
                self.make_room(queue, class)
            };
            if made == Err(AllocError::OutOfMemory) && self.config.no_evict {
                if let Some(chunk) = self.chunk_of_emptied(class) {
                    return Ok(chunk);
                }
                self.dram.refused(class);
            }
            if let Some(chunk) = made? {
                return Ok(chunk);
            }
        }
        self.dram.refused(class);
        Err(AllocError::OutOfMemory)
    }

    /// Frees at least one chunk of a class or one page, or takes a chunk of a reserved page, or
    /// says why not.
    fn make_room<Q: Queue>(
        &mut self,
        queue: &mut Q,
        class: usize,
    ) -> Result<Option<Handle>, AllocError> {
        if self.dram.rebalance_due() {
            if self.dram.forget_growth() {
                self.share_memory(0);
            }
            if let Some(class) = self.dram.class_to_shrink() {
                self.empty_page_of(class);
            }
        }
        if let Some(victim) = self.next_victim(class) {
            match self.evict(queue, victim) {
                // Nothing is evicted, and the victim can't leave: perhaps others can.
                Err(AllocError::OutOfMemory) if self.keeps_all() => {}
                result => return result.map(|()| None),
            }
        }
        if let Some(chunk) = self.dram.alloc_reserved(class) {
            return Ok(Some(chunk));
        }
        if self.keeps_all() && !self.flash.takes_records() {
            return Err(AllocError::OutOfMemory);
        }
        self.shed_page(queue).map(|()| None)
    }

    /// Continues the growth of a segment of the index, or begins it if a segment is almost full, at
    /// the cost of items, once these have given up the memory. It copies a part of a segment,
    /// unless the segment of `hash` is full. If nothing may be evicted, a full segment grows before
    /// items have given up the last pages for it.
    pub(crate) fn grow_index<Q: Queue>(&mut self, queue: &mut Q, hash: u64) {
        while let Some(segment) = self.index.wants_growth(hash) {
            self.keep_index_small(self.index.growth_bytes(segment));
            // From now on, so that items do not take back what they give up for it.
            self.dram.index_grew();
            self.share_memory(self.index.growth_bytes(segment));
            while self.dram.arena().over_limit() {
                if !self.keeps_all() || !self.index.is_full_at(hash) {
                    return;
                }
                // Pages that are being emptied are soon free.
                if !self.dram.arena().is_over_by(LENT_PAGES) {
                    break;
                }
                if self.shed_page(queue).is_err() {
                    return;
                }
            }
            if self.index.grow_some(segment).is_none() || !self.index.is_full_at(hash) {
                return;
            }
        }
    }
}
