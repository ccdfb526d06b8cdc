// SPDX-License-Identifier: Apache-2.0
//! Remembers which keys were read lately and not kept, as fingerprints that fade. Called by
//! [`super::shard`].
//!
//! A key has a set of eight words, of which the oldest is replaced. An entry counts until as many
//! later entries came as the part has records; S3-FIFO's ghost queue has the same length. A coarse
//! clock measures this span in eight ticks. After 4096 ticks an old entry looks young again, but by
//! then most sets have new entries.

use crate::KeyHash;

/// Words of a set.
const SET: usize = 8;
/// Ticks after which an entry has faded.
const SPAN: u32 = 8;
const STAMP_BITS: u32 = 12;
const STAMP: u32 = (1 << STAMP_BITS) - 1;

/// The fingerprints.
#[derive(Debug, Default)]
pub(super) struct Ghost {
    words: Vec<u32>,
    /// A word in use is never 0, so an empty word matches no key.
    tick: u32,
    /// Entries since the last tick.
    since: usize,
}

impl Ghost {
    /// A ghost of about this many bytes.
    pub fn new(bytes: usize) -> Ghost {
        Ghost {
            words: vec![0; (bytes / 4 / SET).max(1) * SET],
            tick: 1,
            since: 0,
        }
    }

    fn set(&mut self, hash: KeyHash) -> (&mut [u32], u32) {
        // The bits of `check`, because those of `order` chose the part.
        let sets = (self.words.len() / SET) as u64;
        let mixed = (hash.order as u32 ^ hash.check.rotate_left(16)).wrapping_mul(0x9e37_79b1);
        let at = ((u64::from(mixed) * sets) >> 32) as usize * SET;
        let print = (hash.check ^ (hash.order as u32)) & !STAMP;
        (&mut self.words[at..at + SET], print)
    }

    /// Removes the key and returns true if it is there; otherwise adds it. `span` is the number of
    /// later entries for which an entry counts.
    pub fn take_or_put(&mut self, hash: KeyHash, span: usize) -> bool {
        let tick = self.tick;
        let age = |word: u32| (tick.wrapping_sub(word)) & STAMP;
        let (set, print) = self.set(hash);
        if let Some(word) = set.iter_mut().find(|word| **word & !STAMP == print)
            && *word & STAMP != 0
        {
            let young = age(*word) <= SPAN;
            if young {
                *word = 0;
                return true;
            }
        }
        let same = set.iter().position(|word| *word & !STAMP == print);
        let at = same.or_else(|| set.iter().position(|&word| word == 0));
        let at = at.unwrap_or_else(|| {
            let oldest = (0..SET).max_by_key(|&at| age(set[at]));
            oldest.expect("a set has words")
        });
        set[at] = print | tick;
        self.since += 1;
        if self.since >= (span / SPAN as usize).max(1) {
            self.since = 0;
            self.tick = if self.tick == STAMP { 1 } else { self.tick + 1 };
        }
        false
    }

    /// Bytes of DRAM.
    pub fn bytes(&self) -> usize {
        self.words.len() * 4
    }
}
