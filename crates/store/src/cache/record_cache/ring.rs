// SPDX-License-Identifier: Apache-2.0
//! The bytes of a part's records, one after the other in the order in which they came, in a ring.
//! Called by [`super::shard`].
//!
//! ```text
//!         tail                        head
//!  +------+--------+------+-----------+-----------------+
//!  | free | record | dead | record    | free            |      position = place + laps * capacity
//!  +------+--------+------+-----------+-----------------+
//!  record: u32 length, its low bits the padding, its top bit: dead | u32 check | u64 order | u56 time, u8 uses | u40 expiry, u24 key length
//!          | key | value | padding to 16
//! ```
//! Always holds: a record lies in one piece. If no record fits into the end of the bytes, a dead
//! record fills it. Positions only grow. Between tail and head there is nothing but records, some
//! of them dead.

use senko_io::le::{u32_at, u64_at};

use super::Record;
use crate::KeyHash;

/// Places are multiples of this.
pub(super) const UNIT: usize = 16;
/// Bytes before a key.
pub(super) const HEADER: usize = 32;

const DEAD: u32 = 1 << 31;
const TIME: u64 = (1 << 56) - 1;
const EXPIRY: u64 = (1 << 40) - 1;

/// The highest count of a record's uses.
pub(super) const MOST_USES: u8 = 3;

/// The header of a record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    /// Where it begins.
    pub place: usize,
    /// All of its bytes.
    pub len: usize,
    pub dead: bool,
    pub hash: KeyHash,
    pub time: u64,
    pub uses: u8,
    pub expiry: u64,
    key_len: usize,
    value_len: usize,
}

#[derive(Debug, Default)]
pub(super) struct Ring {
    bytes: Vec<u8>,
    head: u64,
    tail: u64,
}

/// The size of a record.
pub(super) fn record_len(key: usize, value: usize) -> usize {
    (HEADER + key + value).next_multiple_of(UNIT)
}

impl Ring {
    /// A ring of this many bytes, a multiple of [`UNIT`].
    pub fn new(bytes: usize) -> Ring {
        debug_assert!(bytes.is_multiple_of(UNIT));
        Ring {
            // Zeroed pages from the system. They take memory only when records are written to them.
            bytes: vec![0; bytes],
            head: 0,
            tail: 0,
        }
    }

    fn place(&self, position: u64) -> usize {
        (position % self.bytes.len() as u64) as usize
    }

    /// Bytes that a record of `len` needs at the head: its own bytes, and the rest of the ring if
    /// it does not fit there.
    fn taken(&self, len: usize) -> usize {
        let to_end = self.bytes.len() - self.place(self.head);
        if len <= to_end { len } else { to_end + len }
    }

    /// Whether there is room for a record of `len` bytes.
    pub fn fits(&self, len: usize) -> bool {
        self.taken(len) as u64 <= self.bytes.len() as u64 - (self.head - self.tail)
    }

    /// The distance of a place from the tail. A record with a smaller distance is older.
    pub fn age_order(&self, place: usize) -> usize {
        let tail = self.place(self.tail);
        (place + self.bytes.len() - tail) % self.bytes.len()
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32_at(&self.bytes, at)
    }

    fn put_u32(&mut self, at: usize, word: u32) {
        self.bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }

    /// The record at a place.
    pub fn head(&self, place: usize) -> Head {
        let bytes = &self.bytes[place..];
        let word = |at: usize| u64_at(bytes, at);
        let len = self.u32_at(place);
        let (len, pad, dead) = (
            (len & !DEAD) as usize & !(UNIT - 1),
            len as usize & (UNIT - 1),
            len & DEAD != 0,
        );
        if dead {
            // It may be too short for more than its length.
            return Head {
                place,
                len,
                dead,
                ..Head::default()
            };
        }
        let (time, more) = (word(16), word(24));
        let key_len = (more >> 40) as usize;
        Head {
            place,
            len,
            dead,
            hash: KeyHash {
                order: word(8),
                check: self.u32_at(place + 4),
            },
            time: time & TIME,
            uses: (time >> 56) as u8,
            expiry: more & EXPIRY,
            key_len,
            value_len: len - pad - HEADER - key_len,
        }
    }

    /// The hash of the record at a place, without the rest.
    pub fn has_hash(&self, place: usize, hash: KeyHash) -> bool {
        let order = &self.bytes[place + 8..place + 16];
        order == hash.order.to_le_bytes() && self.u32_at(place + 4) == hash.check
    }

    pub fn key(&self, head: &Head) -> &[u8] {
        let at = head.place + HEADER;
        &self.bytes[at..at + head.key_len]
    }

    pub fn value(&self, head: &Head) -> &[u8] {
        let at = head.place + HEADER + head.key_len;
        &self.bytes[at..at + head.value_len]
    }

    pub fn set_uses(&mut self, place: usize, uses: u8) {
        self.bytes[place + 23] = uses;
    }

    /// Marks a record as dead. It leaves when the tail reaches it.
    pub fn kill(&mut self, place: usize) {
        let len = self.u32_at(place) & !(UNIT as u32 - 1);
        self.put_u32(place, len | DEAD);
    }

    /// The oldest record. The ring must not be empty.
    pub fn oldest(&self) -> Head {
        debug_assert!(self.tail < self.head, "a record is in the ring");
        self.head(self.place(self.tail))
    }

    /// Drops the oldest record.
    pub fn drop_oldest(&mut self, head: &Head) {
        self.tail += head.len as u64;
    }

    /// Reserves `len` bytes at the head; the caller has checked that they are free. Returns their
    /// place. Also returns the place and length of a gap that a dead record must fill.
    fn advance(&mut self, len: usize) -> (usize, Option<(usize, u32)>) {
        let at = self.place(self.head);
        let taken = self.taken(len);
        self.head += taken as u64;
        if taken == len {
            (at, None)
        } else {
            (0, Some((at, (taken - len) as u32)))
        }
    }

    fn fill(&mut self, gap: Option<(usize, u32)>) {
        if let Some((at, len)) = gap {
            self.put_u32(at, len | DEAD);
        }
    }

    /// Moves the oldest record to the head and returns its new place. If it does not fit there, it
    /// is dropped and the result is `None`.
    pub fn renew_oldest(&mut self, head: &Head) -> Option<usize> {
        self.drop_oldest(head);
        if !self.fits(head.len) {
            return None;
        }
        let (to, gap) = self.advance(head.len);
        self.bytes
            .copy_within(head.place..head.place + head.len, to);
        // Fill the gap only after the copy: the gap may begin where the record was.
        self.fill(gap);
        Some(to)
    }

    /// Writes a record at the head, if it fits; returns its place.
    pub fn push(&mut self, new: &Record<'_>, uses: u8) -> usize {
        let (hash, key, value) = (new.hash, new.key, new.value);
        let own = HEADER + key.len() + value.len();
        let len = record_len(key.len(), value.len());
        let (at, gap) = self.advance(len);
        self.fill(gap);
        let time = new.time & TIME | u64::from(uses) << 56;
        let more = new.expiry & EXPIRY | (key.len() as u64) << 40;
        let record = &mut self.bytes[at..at + len];
        record[..4].copy_from_slice(&((len | (len - own)) as u32).to_le_bytes());
        record[4..8].copy_from_slice(&hash.check.to_le_bytes());
        record[8..16].copy_from_slice(&hash.order.to_le_bytes());
        record[16..24].copy_from_slice(&time.to_le_bytes());
        record[24..32].copy_from_slice(&more.to_le_bytes());
        record[HEADER..HEADER + key.len()].copy_from_slice(key);
        record[HEADER + key.len()..own].copy_from_slice(value);
        at
    }
}
