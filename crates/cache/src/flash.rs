// SPDX-License-Identifier: Apache-2.0
//! The flash tier of a shard: one log per device slice, written in order, reclaimed in order.
//!
//! A [`Flash`] knows neither index nor DRAM: it moves pages. The shard decides which records are
//! kept. It places records through [`Flash::log_mut`]. Only the methods of this folder change
//! reads, reclaims, probes and the clock for deadlines of devices.

pub(crate) mod admission; // which items leaving DRAM deserve a write, and how many bytes a second
pub(crate) mod copying; // a record larger than a frame on its way to another place
mod dead; // how much of a log no slot names any more
mod discards; // freed regions that are still being discarded
mod frames; // a read waits for a frame, fills it and ends
pub(crate) mod health; // the state of the device under a log
mod invalid; // positions of a log that may not be read: flushed, unwritten, hidden
pub(crate) mod log; // where records go: pages, write buffers, positions
pub(crate) mod open_pages; // pages of a log that small records may go to
mod outage; // watches for a device that stalls, or is well again
pub(crate) mod read; // reads in flight
pub(crate) mod reclaim; // the progress of a log's reclaim
pub(crate) mod upload; // large values on their way to flash

use senko_io::{FramePool, IoError, PAGE_SIZE, Queue};

use crate::stats::CacheStats;
use admission::Admitter;
use health::{Pauses, STALLED_MS};
use log::{Log, NoPlace};
use read::Reads;
use reclaim::Reclaim;
use upload::Uploads;

/// A queue token has its kind in the top byte, and the number of its shard in the next: the shards
/// of a worker share a queue.
const TOKEN_KIND: u32 = 56;
const TOKEN_SHARD: u32 = 48;
pub(crate) const TOKEN_READ: u64 = 1;
pub(crate) const TOKEN_WRITE: u64 = 2;
pub(crate) const TOKEN_RECLAIM: u64 = 3;
pub(crate) const TOKEN_DISCARD: u64 = 4;
/// A read of another shard's flash.
pub(crate) const TOKEN_AFAR: u64 = 5;
/// A write of an upload.
pub(crate) const TOKEN_UPLOAD: u64 = 6;
pub(crate) const TOKEN_PROBE: u64 = 9;

pub(crate) fn token(kind: u64, shard: u8, value: u64) -> u64 {
    debug_assert!(value < 1 << TOKEN_SHARD);
    kind << TOKEN_KIND | u64::from(shard) << TOKEN_SHARD | value
}

/// Kind and value of a token.
pub(crate) fn untoken(token: u64) -> (u64, u64) {
    (token >> TOKEN_KIND, token & ((1 << TOKEN_SHARD) - 1))
}

pub(crate) fn token_shard(token: u64) -> u8 {
    (token >> TOKEN_SHARD) as u8
}

/// The logs of a shard, and the operations at their devices.
#[derive(Debug)]
pub(crate) struct Flash {
    /// The number of the shard, for tokens.
    shard: u8,
    logs: Vec<Log>,
    reclaims: Vec<Reclaim>,
    /// A frame for the reclaim of each log. Reads may hold all of the loop's frames, and wait for
    /// memory that reclaim frees.
    reclaim_frames: FramePool,
    reads: Reads,
    uploads: Uploads,
    admitter: Admitter,
    /// The log that took the last item.
    last_log: usize,
    /// The clock for deadlines of devices, and the next time when devices are checked.
    steady_ms: u64,
    next_watch_ms: u64,
    /// Whether a device holds frames of the queue for reads of other shards' flash.
    frames_lost: bool,
    /// Whether free frames are for others than waiting reads.
    frames_held: bool,
    /// Whether the shard is ending: nothing is written any more.
    closed: bool,
}

impl Flash {
    /// The tier over these logs. `reclaim_frames` has a frame for each log, and uploads share
    /// `upload_bytes` of buffers.
    pub fn new(
        shard: u8,
        logs: Vec<Log>,
        reclaim_frames: FramePool,
        upload_bytes: usize,
        admitter: Admitter,
    ) -> Flash {
        Flash {
            shard,
            reclaims: logs.iter().map(|_| Reclaim::default()).collect(),
            logs,
            reclaim_frames,
            reads: Reads::default(),
            uploads: Uploads::new(upload_bytes),
            admitter,
            last_log: 0,
            steady_ms: 0,
            next_watch_ms: 0,
            frames_lost: false,
            frames_held: false,
            closed: false,
        }
    }

    // ---- logs and places ----

    /// The logs, in the order of their pages.
    #[inline]
    pub fn logs(&self) -> &[Log] {
        &self.logs
    }
    #[inline]
    pub fn log(&self, n: usize) -> &Log {
        &self.logs[n]
    }
    /// A log, for placing records in it or for telling it that a record died.
    #[inline]
    pub fn log_mut(&mut self, n: usize) -> &mut Log {
        &mut self.logs[n]
    }
    /// The log that has a page of the shard.
    #[inline]
    pub fn log_at(&self, page: u64) -> usize {
        if self.logs.len() == 1 {
            return 0;
        }
        self.logs.partition_point(|l| l.base() <= page) - 1
    }
    /// The log and position that a page and a lap name; `None` if the record there was reclaimed or
    /// flushed (SHARD-2).
    #[inline]
    pub fn place(&self, page: u64, lap: u64) -> Option<(usize, u64)> {
        let n = self.log_at(page);
        let position = self.logs[n].position_of(page, lap)?;
        (!self.logs[n].is_invalid(position)).then_some((n, position))
    }
    /// Whether the record that a page and a lap name is gone for good, and not only hidden while
    /// its device is out of use.
    pub fn is_gone(&self, page: u64, lap: u64) -> bool {
        let log = &self.logs[self.log_at(page)];
        log.position_of(page, lap)
            .is_none_or(|position| log.is_invalid_for_good(position))
    }

    // ---- writing ----

    /// The admission: which items may be written, and what they spend.
    pub fn admitter_mut(&mut self) -> &mut Admitter {
        &mut self.admitter
    }
    /// The log for the next item. The logs whose device takes items take turns; none does after the
    /// shard was closed.
    pub fn choose_log(&mut self) -> Option<usize> {
        if self.closed {
            return None;
        }
        for _ in 0..self.logs.len() {
            self.last_log = (self.last_log + 1) % self.logs.len();
            if self.logs[self.last_log].health.takes_items() {
                return Some(self.last_log);
            }
        }
        None
    }
    /// Whether a record of `pages` pages could be placed in a log at once, and leave `leave` pages
    /// free ([`Log::room_now`]).
    pub fn room_now<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        pages: u64,
        leave: u64,
    ) -> Result<(), NoPlace> {
        self.logs[n].room_now(queue, pages, leave, self.steady_ms)
    }
    /// Sends the full write buffers of a log to its device. Call it after each record is put.
    pub fn settle<Q: Queue>(&mut self, queue: &mut Q, n: usize) {
        self.logs[n].settle(queue, self.steady_ms);
    }
    /// Handles a write of a log that ended. Returns the log, the pages of the write, and whether
    /// the state of the log's device became worse.
    pub fn write_ended(&mut self, value: u64, result: Result<(), IoError>) -> (usize, usize, bool) {
        let n = (value >> 40) as usize;
        let log = &mut self.logs[n];
        let pages = log.written(value, result.is_ok());
        self.admitter.written((pages * PAGE_SIZE) as u64);
        log.health.end(self.steady_ms);
        (n, pages, log.health.note_write(result, self.steady_ms))
    }
    /// Handles the end of a region's discard.
    pub fn discard_ended(&mut self, value: u64) {
        let (log, region) = ((value >> 40) as usize, value & ((1 << 40) - 1));
        self.logs[log].discards.end(region, self.steady_ms);
    }

    // ---- whether a log will have room ----

    /// Whether the write buffers of a log have been with its device for too long.
    pub fn buffers_stall(&self, n: usize) -> bool {
        self.logs[n]
            .oldest_write_ms()
            .is_some_and(|since| self.steady_ms.saturating_sub(since) > STALLED_MS)
    }
    /// Whether the device of a log ends no operation, so that nobody waits for it.
    pub fn device_stalls(&self, n: usize) -> bool {
        self.logs[n].health.is_silent(self.steady_ms, STALLED_MS)
    }
    /// Whether the operations that free space in a log have stalled for too long.
    pub fn space_stalls(&self, n: usize) -> bool {
        self.reclaims[n].stalled(self.steady_ms, STALLED_MS)
            || self.logs[n].discards.stall(self.steady_ms, STALLED_MS)
    }
    /// Whether a log gets space once its device completes operations.
    pub fn space_comes(&self, n: usize) -> bool {
        let (log, reclaim) = (&self.logs[n], &self.reclaims[n]);
        let discards =
            log.discards.regions() > 0 && !log.discards.stall(self.steady_ms, STALLED_MS);
        discards || reclaim.gets_on() && !reclaim.stalled(self.steady_ms, STALLED_MS)
    }
    /// Whether a log may take a record, now or once its device completes operations.
    pub fn takes_records(&self) -> bool {
        let takes = |(log, r): (&Log, &Reclaim)| {
            log.health.takes_items() && (log.may_take() || r.gets_on())
        };
        !self.closed && self.logs.iter().zip(&self.reclaims).any(takes)
    }

    // ---- time and the end ----

    /// The clock for deadlines of devices, in milliseconds.
    pub fn steady_ms(&self) -> u64 {
        self.steady_ms
    }
    /// Sets the clock; it never goes back.
    pub fn set_steady(&mut self, ms: u64) {
        self.steady_ms = self.steady_ms.max(ms);
    }
    /// Whether nothing may be written: the shard is ending, or is loading its saved state.
    pub fn set_closed(&mut self, closed: bool) {
        self.closed = closed;
    }
    /// Sends all write buffers to the devices; nothing is placed any more.
    pub fn close<Q: Queue>(&mut self, queue: &mut Q) {
        self.closed = true;
        for log in &mut self.logs {
            log.close(queue, self.steady_ms);
        }
    }
    /// Whether all write buffers are on the device.
    pub fn is_closed(&self) -> bool {
        self.closed && self.logs.iter().all(Log::is_written)
    }
    /// Makes everything stored so far invalid.
    pub fn flush_all(&mut self) {
        for log in &mut self.logs {
            log.flush_all();
        }
    }

    // ---- statistics ----

    /// Adds the counters and gauges of the logs to the shard's.
    pub fn show(&self, s: &mut CacheStats) {
        s.flash_capacity = self.logs.iter().map(|l| l.pages() * PAGE_SIZE as u64).sum();
        s.flash_bytes = self
            .logs
            .iter()
            .map(|l| l.used_pages() * PAGE_SIZE as u64)
            .sum();
        s.page_fill_record_bytes = self.logs.iter().map(|l| l.record_bytes).sum();
        s.page_fill_page_bytes = self.logs.iter().map(|l| l.page_bytes).sum();
        s.device_pauses = self.logs.iter().map(|l| l.health.pauses.count).sum();
        s.device_pause_ms = self.logs.iter().map(|l| l.health.pauses.ms).sum();
    }
    pub fn reset_counts(&mut self) {
        for log in &mut self.logs {
            (log.record_bytes, log.page_bytes) = (0, 0);
            log.health.pauses = Pauses::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kind_shard_and_value() {
        let largest = (1 << 48) - 1;
        assert_eq!(token(TOKEN_RECLAIM, 0, 5), 0x0300_0000_0000_0005);
        assert_eq!(token(TOKEN_PROBE, 7, largest), 0x0907_ffff_ffff_ffff);
        for kind in [TOKEN_READ, TOKEN_WRITE, TOKEN_DISCARD, TOKEN_PROBE] {
            for value in [0, 1, 7 | 1 << 32, largest] {
                let token = token(kind, 255, value);
                assert_eq!((untoken(token), token_shard(token)), ((kind, value), 255));
            }
        }
    }
}
