// SPDX-License-Identifier: Apache-2.0
//! The words of a shard that outlive its process: the states of its logs, the places of its index
//! segments.
//!
//! `docs/formats/data-directory.md` has the table. Each fact is one word, which one store writes.
//! If a word depends on another, the other one is stored first. The words that change carry a
//! checksum of 16 bits each. The slots themselves are in the index's own file, and an item's link
//! to its flash copy is in the items' file.

use std::sync::Arc;

use senko_io::Words;

use crate::arena::Handle;
use crate::superblock::VERSION;

/// `SENKOMEM`, little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"SENKOMEM");

const AT_MAGIC: usize = 0;
const AT_VERSION: usize = 1;
const AT_ID: usize = 2;
const AT_SHARD: usize = 3;
const AT_LIFE: usize = 4;
const AT_SHAPE: usize = 5;
const AT_PAGE_BYTES: usize = 6;
const AT_LOGS: usize = 7;
const AT_REGIONS: usize = 8;
const AT_REGION_PAGES: usize = 9;
/// CRC-32C of the words before it, none of which ever changes.
const AT_CRC: usize = 10;
const AT_LIVE: usize = 11;
const AT_FLUSHES: usize = 12;
const AT_LOG: usize = 16;
const LOG_WORDS: usize = 4;

/// The part of an index that follows from its planned sizes. It stays fixed as long as its slots
/// are used. A slot lacks the hash bits that name its segment, and bits that a wider tag would
/// need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub segment_bits: u32,
    pub tag_bits: u32,
    /// Bytes of a page of the arena of segments.
    pub page_bytes: usize,
}

/// The meaning of a log's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogWord {
    /// Everything before this position was given to a write buffer, or may have been.
    Opened = 0,
    /// The position before which all writes have ended.
    Written = 1,
    /// The oldest position in use.
    Tail = 2,
    /// The position before which `flush_all` flushed everything.
    Flushed = 3,
}

/// The identity of the words. A state with another identity is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Belongs {
    /// The data directory's number.
    pub id: u64,
    pub shard: u32,
    pub logs: usize,
    /// Regions of all logs together.
    pub regions: usize,
    pub region_pages: u64,
}

impl Belongs {
    /// Words of a state with an index of this shape.
    pub fn words(&self, shape: &Shape) -> usize {
        AT_LOG + self.logs * LOG_WORDS + self.regions + shape.segments()
    }
}

/// The state of one shard.
#[derive(Clone, Debug)]
pub(crate) struct State {
    words: Arc<Words>,
    regions_at: usize,
    segments_at: usize,
}

impl State {
    /// A new state in zeroed words, not yet live.
    pub fn new(words: Arc<Words>, belongs: &Belongs, life: u32, shape: &Shape) -> State {
        assert!(
            words.count() >= belongs.words(shape),
            "the words were counted"
        );
        let shape_word = u64::from(shape.segment_bits) | u64::from(shape.tag_bits) << 8;
        for (at, value) in [
            (AT_MAGIC, MAGIC),
            (AT_VERSION, u64::from(VERSION)),
            (AT_ID, belongs.id),
            (AT_SHARD, u64::from(belongs.shard)),
            (AT_LIFE, u64::from(life)),
            (AT_SHAPE, shape_word),
            (AT_PAGE_BYTES, shape.page_bytes as u64),
            (AT_LOGS, belongs.logs as u64),
            (AT_REGIONS, belongs.regions as u64),
            (AT_REGION_PAGES, belongs.region_pages),
        ] {
            words.set(at, value);
        }
        words.set(AT_CRC, u64::from(checksum(&words)));
        let state = State::over(words, belongs);
        state.set_flushes(0);
        state
    }

    fn over(words: Arc<Words>, belongs: &Belongs) -> State {
        let regions_at = AT_LOG + belongs.logs * LOG_WORDS;
        State {
            words,
            regions_at,
            segments_at: regions_at + belongs.regions,
        }
    }

    /// The state that another process left, with its life and the shape of its index, or why it is
    /// unusable.
    pub fn kept(
        words: Arc<Words>,
        belongs: &Belongs,
        flash_pages: u64,
    ) -> Result<(State, u32, Shape), &'static str> {
        if words.get(AT_MAGIC) != MAGIC || words.get(AT_CRC) != u64::from(checksum(&words)) {
            return Err("the shared memory is damaged");
        }
        if words.get(AT_VERSION) != u64::from(VERSION) {
            return Err("the shared memory is of another version of senko");
        }
        if words.get(AT_LIVE) != 1 {
            return Err("the start before was not finished");
        }
        let mine = [
            (AT_ID, belongs.id),
            (AT_SHARD, u64::from(belongs.shard)),
            (AT_LOGS, belongs.logs as u64),
            (AT_REGIONS, belongs.regions as u64),
            (AT_REGION_PAGES, belongs.region_pages),
        ];
        let shape = Shape {
            segment_bits: (words.get(AT_SHAPE) & 255) as u32,
            tag_bits: (words.get(AT_SHAPE) >> 8 & 255) as u32,
            page_bytes: words.get(AT_PAGE_BYTES) as usize,
        };
        if mine.iter().any(|&(at, value)| words.get(at) != value) || !shape.fits(flash_pages) {
            return Err("the shared memory is of other flash");
        }
        if words.count() < belongs.words(&shape) {
            return Err("the shared memory is damaged");
        }
        let life = words.get(AT_LIFE) as u32;
        let state = State::over(words, belongs);
        match state.get(AT_FLUSHES) {
            Some(_) => Ok((state, life, shape)),
            None => Err("the shared memory is damaged"),
        }
    }

    /// Marks the state as complete: a process that finds it may continue from it.
    pub fn set_live(&self) {
        self.words.set(AT_LIVE, 1);
    }

    /// How many `flush_all` of the server this shard has applied.
    pub fn flushes(&self) -> u64 {
        self.get(AT_FLUSHES).unwrap_or(0)
    }
    pub fn set_flushes(&self, flushes: u64) {
        self.set(AT_FLUSHES, flushes);
    }
    /// A word of a log; `None` if it is damaged.
    pub fn log(&self, n: usize, word: LogWord) -> Option<u64> {
        self.get(AT_LOG + n * LOG_WORDS + word as usize)
    }
    pub fn set_log(&self, n: usize, word: LogWord, position: u64) {
        self.set(AT_LOG + n * LOG_WORDS + word as usize, position);
    }
    /// The word of a region (`flash/log/ahead.rs`). Regions are numbered across all logs. `None` if
    /// it is damaged.
    pub fn region(&self, n: usize) -> Option<u32> {
        Some(self.get(self.regions_at + n)? as u32)
    }
    pub fn set_region(&self, n: usize, word: u32) {
        self.set(self.regions_at + n, u64::from(word));
    }
    /// Chunk and size step of a segment of the index; `None` if the word is damaged.
    pub fn segment(&self, n: usize) -> Option<(Handle, u8)> {
        let word = self.get(self.segments_at + n)?;
        Some((word as Handle, (word >> 32) as u8))
    }
    pub fn set_segment(&self, n: usize, chunk: Handle, step: u8) {
        self.set(
            self.segments_at + n,
            u64::from(chunk) | u64::from(step) << 32,
        );
    }

    fn get(&self, n: usize) -> Option<u64> {
        get_checked(&self.words, n)
    }

    fn set(&self, n: usize, value: u64) {
        set_checked(&self.words, n, value);
    }
}

/// The 48 bits of a word with a checksum; `None` if it is damaged.
pub(crate) fn get_checked(words: &Words, n: usize) -> Option<u64> {
    let word = words.get(n);
    let value = word >> CHECK_BITS;
    (word == value << CHECK_BITS | check(n, value)).then_some(value)
}

/// Stores 48 bits with their checksum.
pub(crate) fn set_checked(words: &Words, n: usize, value: u64) {
    debug_assert!(value < 1 << (64 - CHECK_BITS));
    words.set(n, value << CHECK_BITS | check(n, value));
}

/// The checksum of a word that changes, in its low bits.
const CHECK_BITS: u32 = 16;

/// It depends on the word's number, so that words can't be confused. Never 0 for 0: a word that was
/// never written is damaged.
fn check(n: usize, value: u64) -> u64 {
    let crc = crc32c::crc32c_append(n as u32 + 1, &value.to_le_bytes());
    u64::from(crc >> 16 ^ crc & 0xffff).max(1)
}

fn checksum(words: &Words) -> u32 {
    (0..AT_CRC).fold(0, |crc, n| {
        crc32c::crc32c_append(crc, &words.get(n).to_le_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_where_the_format_document_says() {
        let belongs = Belongs {
            id: 7,
            shard: 1,
            logs: 2,
            regions: 10,
            region_pages: 64,
        };
        let shape = Shape::plan(640, 1 << 20, false);
        // Memory comes in whole pages, so small tests once did not notice a number that was too
        // small.
        assert_eq!(belongs.words(&shape), 16 + 4 * 2 + 10 + shape.segments());
        let words = Arc::new(Words::anonymous(belongs.words(&shape)).expect("memory"));
        let state = State::new(Arc::clone(&words), &belongs, 99, &shape);
        assert!(State::kept(Arc::clone(&words), &belongs, 640).is_err());
        state.set_live();
        state.set_log(1, LogWord::Tail, 5);
        state.set_region(9, 3);
        state.set_segment(0, 17, 4);
        let values = [22, 33, 34].map(|n| words.get(n) >> CHECK_BITS);
        assert_eq!(values, [5, 3, 17 | 4 << 32]);
        for bit in 0..64 {
            let word = words.get(22);
            words.set(22, word ^ 1 << bit);
            assert_eq!(state.log(1, LogWord::Tail), None);
            words.set(22, word);
        }
        let (again, life, same) = State::kept(Arc::clone(&words), &belongs, 640).expect("live");
        assert_eq!((life, same, again.segment(0)), (99, shape, Some((17, 4))));
        for bit in 0..AT_CRC * 64 {
            let word = words.get(bit / 64);
            words.set(bit / 64, word ^ 1 << (bit % 64));
            assert!(State::kept(Arc::clone(&words), &belongs, 640).is_err());
            words.set(bit / 64, word);
        }
    }
}
