// SPDX-License-Identifier: Apache-2.0
//! The pages of a buffer, grouped by logical block: a slab of groups with a bit for each page, and
//! a [`Table`] to find them.
//!
//! Buffers that evict whole blocks use it. Their lists hold a group's place in the slab (`slot`). A
//! page needs no entry of its own.

use super::table::Table;
use super::{Outgoing, Surroundings};
use crate::geometry::Lpn;

#[derive(Clone, Debug)]
pub struct Groups {
    pages_per_block: u32,
    logical_pages: u32,
    words: usize,
    slots: Table,
    block: Vec<u32>,
    count: Vec<u32>,
    bits: Vec<u64>,
    free: Vec<u32>,
    held: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Entered {
    pub slot: u32,
    pub new_group: bool,
    pub hit: bool,
}

impl Groups {
    pub fn new(around: &Surroundings) -> Self {
        let places = around.capacity;
        let words = around.pages_per_block.div_ceil(64) as usize;
        Self {
            pages_per_block: around.pages_per_block,
            logical_pages: around.logical_pages,
            words,
            slots: Table::new(places),
            block: vec![0; places],
            count: vec![0; places],
            bits: vec![0; places * words],
            free: (0..places as u32).rev().collect(),
            held: 0,
        }
    }

    #[inline]
    pub fn held(&self) -> usize {
        self.held
    }

    #[inline]
    pub fn count(&self, slot: u32) -> u32 {
        self.count[slot as usize]
    }

    /// The most groups.
    pub fn places(&self) -> usize {
        self.block.len()
    }

    pub fn len(&self) -> usize {
        self.block.len() - self.free.len()
    }

    #[inline]
    fn bit(&self, slot: u32, lpn: Lpn) -> (usize, u64) {
        let page = lpn % self.pages_per_block;
        let word = slot as usize * self.words + page as usize / 64;
        (word, 1 << (page % 64))
    }

    #[inline]
    pub fn find(&self, lpn: Lpn) -> Option<u32> {
        let slot = self.slots.get(lpn / self.pages_per_block)?;
        let (word, mask) = self.bit(slot, lpn);
        (self.bits[word] & mask != 0).then_some(slot)
    }

    /// Adds a page. There must be room for it, or it must be held already.
    #[inline]
    pub fn enter(&mut self, lpn: Lpn) -> Entered {
        let block = lpn / self.pages_per_block;
        let found = self.slots.get(block);
        let slot = match found {
            Some(slot) => slot,
            None => {
                let slot = self
                    .free
                    .pop()
                    .expect("a group has a page at least, and there is room for a page");
                self.slots.insert(block, slot);
                self.block[slot as usize] = block;
                slot
            }
        };
        let (word, mask) = self.bit(slot, lpn);
        let hit = self.bits[word] & mask != 0;
        if !hit {
            self.bits[word] |= mask;
            self.count[slot as usize] += 1;
            self.held += 1;
        }
        Entered {
            slot,
            new_group: found.is_none(),
            hit,
        }
    }

    pub fn remove(&mut self, lpn: Lpn) -> bool {
        let Some(slot) = self.find(lpn) else {
            return false;
        };
        let (word, mask) = self.bit(slot, lpn);
        self.bits[word] &= !mask;
        self.count[slot as usize] -= 1;
        self.held -= 1;
        if self.count[slot as usize] == 0 {
            self.free_slot(slot);
        }
        true
    }

    fn free_slot(&mut self, slot: u32) {
        self.slots.remove(self.block[slot as usize]);
        self.free.push(slot);
    }

    /// The pages of a group, ascending, each with whether it is held; from the block's first page
    /// to its last.
    fn whole(&self, slot: u32) -> impl Iterator<Item = (Lpn, bool)> + '_ {
        let first = self.block[slot as usize] * self.pages_per_block;
        let last = (first + self.pages_per_block).min(self.logical_pages);
        (first..last).map(move |lpn| {
            let (word, mask) = self.bit(slot, lpn);
            (lpn, self.bits[word] & mask != 0)
        })
    }

    /// The held pages of a group, ascending.
    pub fn pages(&self, slot: u32) -> impl Iterator<Item = Lpn> + Clone + '_ {
        let first = self.block[slot as usize] * self.pages_per_block;
        let words = &self.bits[slot as usize * self.words..][..self.words];
        words.iter().enumerate().flat_map(move |(index, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(first + index as u32 * 64 + bit)
            })
        })
    }

    /// The logical blocks of which a page is held, in no order.
    pub fn blocks(&self) -> impl Iterator<Item = u32> + '_ {
        let held = self.block.iter().zip(&self.count);
        held.filter(|(_, count)| **count > 0)
            .map(|(block, _)| *block)
    }

    pub fn held_pages(&self) -> impl Iterator<Item = Lpn> + Clone + '_ {
        let slots = (0..self.block.len() as u32).filter(|slot| self.count[*slot as usize] > 0);
        slots.flat_map(|slot| self.pages(slot))
    }

    /// The held pages of a logical block, ascending.
    pub fn pages_of(&self, block: u32) -> impl Iterator<Item = Lpn> + '_ {
        let slot = self.slots.get(block);
        slot.into_iter().flat_map(|slot| self.pages(slot))
    }

    /// Evicts a whole group, in ascending order. With `pad`, the pages between are padded.
    pub fn let_go(&mut self, slot: u32, pad: bool, out: &mut Outgoing) {
        if pad {
            for (lpn, held) in self.whole(slot) {
                if held {
                    out.dirty(lpn);
                } else {
                    out.pad(lpn);
                }
            }
        } else {
            for lpn in self.pages(slot) {
                out.dirty(lpn);
            }
        }
        self.bits[slot as usize * self.words..][..self.words].fill(0);
        self.held -= self.count[slot as usize] as usize;
        self.count[slot as usize] = 0;
        self.free_slot(slot);
    }

    pub fn bytes(&self) -> u64 {
        let slabs = 12 * self.block.len() + 8 * self.bits.len();
        self.slots.bytes() + slabs as u64
    }
}
