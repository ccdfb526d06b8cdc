// SPDX-License-Identifier: Apache-2.0
//! Records in DRAM that are read repeatedly: a look-up that had to read the device keeps the record
//! for the next one.
//!
//! [`crate::read::lookup`] asks it before each read, and offers records after a read.
//! [`crate::write`] reports writes, so that the cache's version of a key stays the newest.
//! [`crate::background::seal`] reports seals. A record is the whole element of a key. It is found
//! by its hash and compared by its key. Only inline values are kept. The reference to a large value
//! would save one read of many, and a tombstone may stand for an expired element that a snapshot
//! still sees.
//!
//! ```text
//! a get: ticket -> version -> logs: index -> in DRAM: done
//!                             |              on the device: record of just that time? done, else read --+
//!                             not there                                                              +--> offer(ticket)
//!                               -> record no later than asked for? done, else blocks: read ----------+
//! a seal: log frozen -> a new ticket -> for each key of it: older records go -> block published
//! ```
//!
//! Always holds:
//! - RECORD-1: a record is an element that was written, byte for byte; its key and time identify
//!   it, since no two writes of a key have the same time.
//! - RECORD-2: no record is older than the key's element in a sealed block of the current version,
//!   nor than its element in a log whose sealing has passed it. So a get that found nothing in its
//!   version's logs may answer with a record, if that record is not later than the get's bound.
//!   Every write up to that bound is in the version (WRITE-2). So the version has the record too,
//!   or a newer write of the key.
//! - RECORD-3: a log's index knows the time of a key's newest element in that log. If a look-up
//!   finds the key there, it takes only the record with that exact time.
//! - RECORD-4: a record enters only with a ticket that was taken before loading the version in
//!   which the record was found, and only while that ticket is current. A sealing makes a new
//!   ticket current when its log is frozen. Then it removes all records that are older than the
//!   log's, part by part, under the part's lock. So a record that was found without the log's last
//!   writes is refused, or enters before the removal and is removed. A look-up with the new ticket
//!   sees the whole log, or its block. No thread waits, and no insertion is delayed. A put needs no
//!   ticket: it only replaces an older record, and RECORD-2 is a lower bound.
//! - RECORD-5: nothing else makes a record wrong. Compaction moves elements. If compaction, sealing
//!   or time turns an element into a tombstone, the element has expired, and every get checks
//!   expiry itself. A merge drops tombstones, which the cache never holds.
//! - RECORD-6: all memory is counted ([`CacheCounts::bytes`]) and never exceeds the requested
//!   bytes.
//!
//! A look-up that sees only an old moment (a snapshot, an older version of a key) uses records but
//! offers none, because its result need not be the newest.

mod ghost; // what was asked for lately and not kept
mod ring; // bytes of records, in the order in which they came
mod shard; // one part: index, policy, counts

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::KeyHash;
use crate::cache::hit::Hit;
use crate::element::{Element, LARGE, TOMBSTONE};

use shard::Shard;

pub(crate) use shard::MIN_BYTES;

/// The least bytes of a part if there is more than one. With this size, each part has nearly the
/// same share of hot keys.
const PART_BYTES: u64 = 512 << 10;
/// The number of parts, unless they would be too large for their index.
const PARTS: u64 = 64;

/// Keys of a log that are gathered before a part is locked.
const GATHERED: usize = 256;

/// Represents the seals that had begun when it was taken (RECORD-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FillTicket(u64);

/// A key's element that the cache may keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub hash: KeyHash,
    pub key: &'a [u8],
    pub time: u64,
    pub expiry: u64,
    pub value: &'a [u8],
}

/// Which record of a key a look-up may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeBound {
    /// The record with this time (RECORD-3).
    Exactly(u64),
    /// Any record that is not later (RECORD-2).
    UpTo(u64),
}

/// A part behind a lock. A test runs the same protocol with the lock and counter of a scheduler
/// that tries interleavings.
pub(crate) trait Locked {
    /// Puts it behind a lock.
    fn new(part: Shard) -> Self;
    /// Runs `work` under the lock.
    fn with<R>(&self, work: impl FnOnce(&mut Shard) -> R) -> R;
}

/// A number that grows; see [`Locked`].
pub(crate) trait Counted: Default {
    /// The count. A thread that reads it sees everything that happened before each counted
    /// [`Counted::add`].
    fn get(&self) -> u64;
    fn add(&self);
}

impl Locked for Mutex<Shard> {
    fn new(part: Shard) -> Self {
        Mutex::new(part)
    }

    fn with<R>(&self, work: impl FnOnce(&mut Shard) -> R) -> R {
        work(&mut self.lock())
    }
}

impl Counted for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn add(&self) {
        self.fetch_add(1, Ordering::AcqRel);
    }
}

/// The contents and counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheCounts {
    /// Look-ups that the cache answered.
    pub hits: u64,
    /// Records that entered.
    pub fills: u64,
    /// Records in the cache.
    pub records: u64,
    /// Bytes of DRAM.
    pub bytes: u64,
}

pub(crate) struct RecordCache<L = Mutex<Shard>, C = AtomicU64> {
    parts: Box<[L]>,
    /// The bits of a hash's `order` that choose the part.
    part_bits: u32,
    /// The longest record that is kept.
    longest: usize,
    seals: C,
}

impl<L: Locked, C: Counted> RecordCache<L, C> {
    /// A cache that takes at most `bytes`; `None` if that is too little for a cache. Memory is
    /// allocated when the first records enter.
    pub fn new(bytes: u64) -> Option<Self> {
        if bytes < MIN_BYTES {
            return None;
        }
        let own = size_of::<Self>() as u64;
        let mut parts = 1 << (bytes / PART_BYTES).clamp(1, PARTS).ilog2();
        let share = |parts: u64| (bytes - own) / parts - size_of::<L>() as u64;
        while share(parts) > shard::MAX_BYTES {
            parts *= 2;
        }
        let part_bits = parts.ilog2();
        let part = |_| L::new(Shard::new(share(parts) as usize, part_bits));
        let longest = Shard::new(share(parts) as usize, part_bits).longest();
        Some(RecordCache {
            parts: (0..parts).map(part).collect(),
            part_bits,
            longest,
            seals: C::default(),
        })
    }

    /// Take it before loading a version, to offer records that are found in the version (RECORD-4).
    pub fn ticket(&self) -> FillTicket {
        FillTicket(self.seals.get())
    }

    fn part(&self, hash: KeyHash) -> &L {
        &self.parts[self.part_of(hash)]
    }

    fn part_of(&self, hash: KeyHash) -> usize {
        // Shifted twice, because a word cannot be shifted by its full width.
        (hash.order >> 1 >> (63 - self.part_bits)) as usize
    }

    /// The record of a key, if it satisfies `which`.
    pub fn get(&self, hash: KeyHash, key: &[u8], want: TimeBound) -> Option<Hit> {
        self.part(hash).with(|part| part.get(hash, key, want))
    }

    /// Notes an element that was read from the device, and keeps it if the policy says so.
    pub fn offer(&self, ticket: FillTicket, hash: KeyHash, key: &[u8], found: &Hit) {
        let record = Record {
            hash,
            key,
            time: found.time,
            expiry: found.expiry,
            value: &found.value,
        };
        if !self.takes(found.flags, &record) {
            return;
        }
        self.part(hash).with(|part| {
            // Checked under the lock: a sealing that begins now comes to this part later, and then
            // removes the record if it is too old (RECORD-4).
            if self.ticket() == ticket {
                part.offer(&record);
            }
        });
    }

    /// Notes an element that was appended to a log. It replaces the record of its key, if there is
    /// one. So the element need not be read when the log no longer has a copy in DRAM.
    pub fn written(&self, hash: KeyHash, element: &Element<'_>) {
        let record = Record {
            hash,
            key: element.key,
            time: element.time,
            expiry: element.expiry,
            value: element.value,
        };
        let takes = self.takes(element.flags, &record);
        self.part(hash).with(|part| {
            if takes {
                part.renew(&record);
            } else {
                part.remove_older(hash, element.time);
            }
        });
    }

    /// Whether such an element can be kept at all.
    fn takes(&self, flags: u8, record: &Record<'_>) -> bool {
        flags & (TOMBSTONE | LARGE) == 0 && record.key.len() + record.value.len() <= self.longest
    }

    /// Begins the sealing of a log that accepts no more writes. Pass each of its keys, with its
    /// newest time, to [`Sealing::key`]. When that is [done](Sealing::done), the log's block may be
    /// published.
    pub fn seal(&self) -> Sealing<'_, L, C> {
        self.seals.add();
        Sealing {
            cache: self,
            part: 0,
            gathered: Vec::with_capacity(GATHERED),
        }
    }

    /// The cache's contents and counters.
    pub fn counts(&self) -> CacheCounts {
        let own = size_of::<Self>() + self.parts.len() * size_of::<L>();
        let mut all = CacheCounts {
            bytes: own as u64,
            ..CacheCounts::default()
        };
        for part in &self.parts {
            let counts = part.with(|part| part.counts());
            all.hits += counts.hits;
            all.fills += counts.fills;
            all.records += counts.records;
            all.bytes += counts.bytes;
        }
        all
    }
}

/// Passes the keys of a log that is being sealed to the cache.
pub(crate) struct Sealing<'c, L, C> {
    cache: &'c RecordCache<L, C>,
    part: usize,
    gathered: Vec<(KeyHash, u64)>,
}

impl<L: Locked, C: Counted> Sealing<'_, L, C> {
    /// Passes a key with the time of its newest element in the log. Keys come in the order of their
    /// hashes, so that each lock serves many of them.
    pub fn key(&mut self, hash: KeyHash, time: u64) {
        let part = self.cache.part_of(hash);
        if part != self.part || self.gathered.len() == GATHERED {
            self.remove();
            self.part = part;
        }
        self.gathered.push((hash, time));
    }

    /// Ends the pass: from now on no record is older than the log.
    pub fn done(mut self) {
        self.remove();
    }

    fn remove(&mut self) {
        if !self.gathered.is_empty() {
            self.cache.parts[self.part].with(|part| {
                for &(hash, time) in &self.gathered {
                    part.remove_older(hash, time);
                }
            });
            self.gathered.clear();
        }
    }
}

#[cfg(test)]
mod tests;
