// SPDX-License-Identifier: Apache-2.0
//! Answers that leave flash without coming through the shard: a place to send from, kept from reuse while it is read.
//!
//! ```text
//! can_transfer? --> begin_transfer --> Transfer::find (any thread, on the pages read) --> end_transfer
//! ```
//!
//! This is the other way of `fetch.rs` for an answer, for a server that sends from the file itself (paper B's prototype). The record
//! passes the same three checks. A transfer counts as an access, but promotes nothing: a hit that is due to promote is not
//! transferred, so the caller fetches it, and what is in DRAM is the same whichever way answers go.
//!
//! Always holds: the region that a transfer starts in is pinned from begin to end.

use std::ops::Range;

use senko_io::{DeviceId, IoError};

use crate::index::{Pos, Slot};
use crate::key::{Key, MAX_KEY};
use crate::record::{self, RECORD_HEADER};
use crate::shard::Shard;
use crate::shard::fetch::{Found, find_record};
use crate::types::{FRAME_PAGES, FlashRef};

/// What the pages held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// They were not looked at.
    Unseen,
    Found,
    OtherKeysOnly,
    Damaged,
    Expired,
}

/// A place on flash that is being sent from. Must end in [`Shard::end_transfer`].
#[derive(Debug)]
#[must_use]
pub struct Transfer {
    key: [u8; MAX_KEY],
    key_len: u8,
    hash: u64,
    slot: Slot,
    log: usize,
    position: u64,
    generation: u32,
    now: u32,
    device: DeviceId,
    page: u64,
    verdict: Verdict,
    /// Bytes of the record that was found.
    record_len: usize,
}

impl Transfer {
    /// The device, and the first page on it.
    pub fn place(&self) -> (DeviceId, u64) {
        (self.device, self.page)
    }

    /// Pages to read, at most [`FRAME_PAGES`].
    pub fn pages(&self) -> usize {
        self.slot.len()
    }

    /// Where in the pages the complete answer lies (`VALUE key flags n\r\n data\r\nEND\r\n`), if they hold a record of the key that passes
    /// every check.
    pub fn find(&mut self, pages: &[u8]) -> Option<Range<usize>> {
        let key = &self.key[..self.key_len as usize];
        let found = find_record(pages, key, self.generation);
        let (verdict, range) = match found {
            Found::OtherKeysOnly => (Verdict::OtherKeysOnly, None),
            Found::Damaged => (Verdict::Damaged, None),
            Found::At(at, header) => match pages.get(at..at + header.record_len()) {
                Some(bytes) if record::intact(bytes) => {
                    if record::expired(header.expiry, self.now) {
                        (Verdict::Expired, None)
                    } else {
                        self.record_len = bytes.len();
                        (Verdict::Found, Some(at + RECORD_HEADER..at + bytes.len()))
                    }
                }
                _ => (Verdict::Damaged, None),
            },
        };
        self.verdict = verdict;
        range
    }
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferEnd {
    /// The pages were read, [`Transfer::find`] has looked at them, and what it found was sent.
    Read,
    /// The pages could not be read.
    Unread(IoError),
    /// Nothing was tried.
    Unused,
}

impl Shard {
    /// Whether what `Lookup::Flash` named may be sent from where it lies: all of it on the device, in at most [`FRAME_PAGES`] pages, and
    /// not so often hit that it is due in DRAM.
    pub fn can_transfer(&self, key: &Key<'_>, at: FlashRef) -> bool {
        self.transfer_place(key, at).is_some()
    }

    fn transfer_place(&self, key: &Key<'_>, at: FlashRef) -> Option<(Pos, Slot, usize, u64)> {
        let (pos, slot) = self.index.find_same(key.hash, Slot(at.0))?;
        let (log, position) = self.place(slot)?;
        let pages = slot.len();
        let fits = (1..=FRAME_PAGES).contains(&pages);
        let promotes = slot.hits_lately() + 1 >= self.config.promote_after;
        // What is still in write buffers is the end of the run (L2). A slot that does not know how long its record is says 0.
        let last = position + (pages as u64).max(1) - 1;
        (fits && !promotes && self.logs[log].buffered(last).is_none())
            .then_some((pos, slot, log, position))
    }

    /// Begins a transfer, which counts as an access; `None` if [`Shard::can_transfer`] is false by now.
    pub fn begin_transfer(&mut self, key: &Key<'_>, at: FlashRef) -> Option<Transfer> {
        let (pos, slot, n, position) = self.transfer_place(key, at)?;
        self.index.set(pos, slot.hit());
        self.index.age(self.dram_items);
        let log = &mut self.logs[n];
        log.pin(position, true);
        let mut bytes = [0; MAX_KEY];
        bytes[..key.bytes.len()].copy_from_slice(key.bytes);
        Some(Transfer {
            key: bytes,
            key_len: key.bytes.len() as u8,
            hash: key.hash,
            slot,
            log: n,
            position,
            generation: log.generation(position),
            now: self.now,
            device: log.device(),
            page: log.device_page(position),
            verdict: Verdict::Unseen,
            record_len: 0,
        })
    }

    /// Ends a transfer: lets the region go and counts, also in the item's class. What was lost or is past its time leaves the index.
    pub fn end_transfer(&mut self, transfer: Transfer, end: TransferEnd) {
        self.logs[transfer.log].pin(transfer.position, false);
        let read = match end {
            TransferEnd::Read => Some(Ok(())),
            TransferEnd::Unread(error) => Some(Err(error)),
            TransferEnd::Unused => None,
        };
        if let Some(read) = read
            && self.logs[transfer.log]
                .health
                .note_read(read, self.steady_ms)
        {
            self.state_changed(transfer.log);
        }
        let lost = match (end, transfer.verdict) {
            (TransferEnd::Unused, _) | (TransferEnd::Read, Verdict::Unseen) => false,
            (TransferEnd::Unread(_), _) => {
                self.stats.flash_read_errors += 1;
                true
            }
            (TransferEnd::Read, Verdict::Found) => {
                self.stats.flash_hits += 1;
                self.stats.flash_sendfile_transfers += 1;
                // Nobody else sees how long the record is.
                self.counts_of(transfer.record_len).get_hits += 1;
                false
            }
            (TransferEnd::Read, Verdict::OtherKeysOnly) => {
                self.stats.flash_false_matches += 1;
                false
            }
            (TransferEnd::Read, Verdict::Damaged) => {
                self.stats.flash_checksum_errors += 1;
                true
            }
            (TransferEnd::Read, Verdict::Expired) => {
                self.stats.reclaimed += 1;
                true
            }
        };
        if lost {
            self.drop_flash_slot(transfer.hash, transfer.slot);
        }
    }
}
