// SPDX-License-Identifier: Apache-2.0
//! One part of the cache: an index over a ring of records, and the policy that admits and evicts
//! them. [`super::RecordCache`] has a lock for each part.
//!
//! Card. Idea: the main and the ghost queue of S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues
//! are all you need for cache eviction", SOSP 2023). A hit counts up to three in the record and
//! moves nothing. Eviction takes the oldest record without a count. A record with a count goes to
//! the front again, with its count reduced. A record that is read for the first time is not kept.
//! It leaves a fingerprint, and enters if it is read again while the fingerprint is young.
//!
//! Deviations: there is no small queue. The small queue of S3-FIFO makes records that are read once
//! leave quickly. Here such records never enter. So a load without hot keys costs a word a get and
//! no copy, and the small queue's share of memory holds proven records. The price is one more read
//! for each key that becomes hot. The second read must also come within the ghost's span. Until the
//! first eviction every record enters, as in the server's policy
//! (`docs/measurements/dram-policy.md`). When a newer element of a kept key is read or written, it
//! replaces the record at once and keeps its count.
//!
//! ```text
//! index: lines of 16 words, a line a hash: place in the ring 22 bits, tag 10 bits ---> ring: record, record, record ...
//! ```
//! Always holds: a live record has one word in its line, and a key has one live record. A full line
//! drops its oldest record. So memory is bounded for any sizes of records.

use super::ghost::Ghost;
use super::ring::{HEADER, Head, MOST_USES, Ring, UNIT, record_len};
use super::{CacheCounts, Record, TimeBound};
use crate::KeyHash;
use crate::cache::hit::Hit;

/// The least bytes of a cache.
pub(crate) const MIN_BYTES: u64 = 64 << 10;
/// The most bytes of one part: places are stored in 22 bits.
pub(super) const MAX_BYTES: u64 = 64 << 20;

const TAG_BITS: u32 = 10;
const TAG: u32 = (1 << TAG_BITS) - 1;

/// Words of a line.
const WORDS: usize = 16;
/// Bytes of the part for each line of 64 bytes. With records of 64 bytes, index and ring fill at
/// the same rate.
const BYTES_PER_LINE: usize = 1024 + 64;
/// Bytes of the part for each byte of the ghost.
const BYTES_PER_GHOST_BYTE: usize = 64;
/// The ring holds at least this many records.
const LEAST_RECORDS: usize = 16;
/// The most records that are moved to the front to make room for one. It bounds how long the lock
/// is held.
const MOST_RENEWED: usize = 32;

/// Words of records whose hashes are neighbours; 0 is an empty word.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, Default)]
struct Line([u32; WORDS]);

/// The part.
#[derive(Debug)]
pub(crate) struct Shard {
    /// The size of the three fields below once they are allocated.
    ring_bytes: usize,
    lines: usize,
    ghost_bytes: usize,
    /// The top bits of `order` that all keys of the part share.
    part_bits: u32,

    index: Vec<Line>,
    ring: Ring,
    ghost: Ghost,
    /// Whether a record was evicted. From then on only records that are read twice enter.
    full: bool,
    hits: u64,
    fills: u64,
    records: usize,
}

fn word_of(place: usize, hash: KeyHash) -> u32 {
    ((place / UNIT) as u32 + 1) << TAG_BITS | hash.check & TAG
}

fn place_of(word: u32) -> usize {
    ((word >> TAG_BITS) as usize - 1) * UNIT
}

impl Shard {
    /// A part of at most `bytes`; all memory but this struct is counted. `part_bits` top bits of
    /// every `order` were used to choose it.
    pub fn new(bytes: usize, part_bits: u32) -> Shard {
        let lines = (bytes / BYTES_PER_LINE).max(1);
        let ghost_bytes = Ghost::new(bytes / BYTES_PER_GHOST_BYTE).bytes();
        let rest = bytes - lines * size_of::<Line>() - ghost_bytes;
        let most = (1 << (32 - TAG_BITS)) - 2;
        Shard {
            ring_bytes: (rest / UNIT).min(most) * UNIT,
            lines,
            ghost_bytes,
            part_bits,
            index: Vec::new(),
            ring: Ring::default(),
            ghost: Ghost::default(),
            full: false,
            hits: 0,
            fills: 0,
            records: 0,
        }
    }

    /// Bytes of the longest key and value that the part takes.
    pub fn longest(&self) -> usize {
        self.ring_bytes / LEAST_RECORDS / UNIT * UNIT - HEADER
    }

    /// Allocates the memory.
    fn begin(&mut self) {
        self.index = vec![Line::default(); self.lines];
        self.ring = Ring::new(self.ring_bytes);
        self.ghost = Ghost::new(self.ghost_bytes);
    }

    pub fn counts(&self) -> CacheCounts {
        let taken = if self.index.is_empty() {
            0
        } else {
            self.ring_bytes + self.lines * size_of::<Line>() + self.ghost_bytes
        };
        CacheCounts {
            hits: self.hits,
            fills: self.fills,
            records: self.records as u64,
            bytes: taken as u64,
        }
    }

    /// Keys in the order of their hashes go to successive lines.
    fn line_of(&self, hash: KeyHash) -> usize {
        let bits = hash.order << self.part_bits >> 32;
        ((bits * self.lines as u64) >> 32) as usize
    }

    /// The word of a hash's record, and its place; if a key is given, only of that key.
    fn find(&self, hash: KeyHash, key: Option<&[u8]>) -> Option<(usize, Head)> {
        let line = self.index.get(self.line_of(hash))?;
        let tag = hash.check & TAG;
        for (at, &word) in line.0.iter().enumerate() {
            if word == 0 || word & TAG != tag {
                continue;
            }
            let place = place_of(word);
            if self.ring.has_hash(place, hash) {
                let head = self.ring.head(place);
                if key.is_none_or(|key| key == self.ring.key(&head)) {
                    return Some((at, head));
                }
            }
        }
        None
    }

    /// See [`super::RecordCache::get`].
    pub fn get(&mut self, hash: KeyHash, key: &[u8], want: TimeBound) -> Option<Hit> {
        let (_, head) = self.find(hash, Some(key))?;
        let wanted = match want {
            TimeBound::Exactly(time) => head.time == time,
            TimeBound::UpTo(time) => head.time <= time,
        };
        if !wanted {
            return None;
        }
        if head.uses < MOST_USES {
            self.ring.set_uses(head.place, head.uses + 1);
        }
        self.hits += 1;
        Some(Hit {
            flags: 0,
            time: head.time,
            expiry: head.expiry,
            value: self.ring.value(&head).to_vec(),
        })
    }

    /// See [`super::RecordCache::offer`].
    pub fn offer(&mut self, new: &Record<'_>) {
        if self.index.is_empty() {
            self.begin();
        }
        let known = self.renew(new);
        if !known && (!self.full || self.ghost.take_or_put(new.hash, self.records)) {
            self.enter(new, 0);
        }
    }

    /// Replaces the record of a kept key by a newer element; returns whether the key is kept.
    pub fn renew(&mut self, new: &Record<'_>) -> bool {
        let Some((at, head)) = self.find(new.hash, Some(new.key)) else {
            return false;
        };
        if head.time < new.time {
            self.take_out(self.line_of(new.hash), at);
            self.enter(new, head.uses);
        }
        true
    }

    fn enter(&mut self, new: &Record<'_>, uses: u8) {
        self.make_room(record_len(new.key.len(), new.value.len()));
        let line = self.line_of(new.hash);
        let at = self.free_word(line);
        let place = self.ring.push(new, uses);
        self.index[line].0[at] = word_of(place, new.hash);
        self.records += 1;
        self.fills += 1;
    }

    /// Removes the record of a hash if it is older than `time`.
    pub fn remove_older(&mut self, hash: KeyHash, time: u64) {
        if let Some((at, head)) = self.find(hash, None)
            && head.time < time
        {
            self.take_out(self.line_of(hash), at);
        }
    }

    /// Removes a record from the index; its bytes are dead.
    fn take_out(&mut self, line: usize, at: usize) {
        let word = std::mem::take(&mut self.index[line].0[at]);
        self.ring.kill(place_of(word));
        self.records -= 1;
    }

    /// A free word of a line. If there is none, the line's oldest record is dropped.
    fn free_word(&mut self, line: usize) -> usize {
        let words = &self.index[line].0;
        if let Some(free) = words.iter().position(|&word| word == 0) {
            return free;
        }
        let oldest = (0..WORDS).min_by_key(|&at| self.ring.age_order(place_of(words[at])));
        let oldest = oldest.expect("a line has words");
        self.take_out(line, oldest);
        self.full = true;
        oldest
    }

    /// Evicts until a record of `len` bytes fits.
    fn make_room(&mut self, len: usize) {
        let mut renewed = 0;
        while !self.ring.fits(len) {
            let oldest = self.ring.oldest();
            if oldest.dead {
                self.ring.drop_oldest(&oldest);
                continue;
            }
            let line = self.line_of(oldest.hash);
            let word = word_of(oldest.place, oldest.hash);
            let at = self.index[line].0.iter().position(|&has| has == word);
            let at = at.expect("a record that is not dead has a word in its line");
            let mut moved = None;
            if oldest.uses > 0 && renewed < MOST_RENEWED {
                renewed += 1;
                self.ring.set_uses(oldest.place, oldest.uses - 1);
                moved = self.ring.renew_oldest(&oldest);
            } else {
                self.ring.drop_oldest(&oldest);
            }
            self.index[line].0[at] = match moved {
                Some(place) => word_of(place, oldest.hash),
                None => {
                    self.records -= 1;
                    self.full = true;
                    0
                }
            };
        }
    }
}
