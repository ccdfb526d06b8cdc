// SPDX-License-Identifier: Apache-2.0
//! Slows writers down before they would have to stop.
//!
//! A writer that finds every log full must wait until one is sealed. That takes as long as writing
//! a block, or longer if compaction must run first. So when the logs are half full, each written
//! byte starts to cost time: a little at first, and twice its sealing time when the logs are full.
//! Writers settle at the rate of sealing, with many short waits instead of one long one. The same
//! holds for space: if compaction falls behind, writers are slowed before they have to stop for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Waiting starts at this share of what the logs can hold.
const FREE: f64 = 0.5;

/// The least that a byte costs when the logs are full, in nanoseconds: 100 MB/s.
const FULL_NS_PER_BYTE: f64 = 10.0;

/// The most that it costs: 0.5 MB/s.
const MOST_NS_PER_BYTE: f64 = 2000.0;

/// Shorter waits are saved up, because the timer is not exact enough.
const LEAST: u64 = 500_000;

/// The longest wait of one write.
const MOST: u64 = 4_000_000;

/// The bytes in logs, and the time at which the next write is due.
pub(crate) struct Pace {
    start: Instant,
    /// Bytes in logs that wait to be sealed.
    frozen: AtomicU64,
    /// When the bytes written so far are paid for, in nanoseconds after `start`.
    paid_until: AtomicU64,
    /// Nanoseconds between two sealed logs, divided by their bytes. It is smoothed, and stored as
    /// the bits of an `f64`.
    drain: AtomicU64,
    /// When a log was last sealed, or was frozen while none waited; nanoseconds after `start`.
    drained_at: AtomicU64,
    /// How far the space in use exceeds its bound, in thousandths of the most that it may.
    space: AtomicU64,
    /// The bytes that the logs can hold.
    capacity: f64,
}

impl Pace {
    pub fn new(capacity: u64) -> Pace {
        Pace {
            start: Instant::now(),
            frozen: AtomicU64::new(0),
            paid_until: AtomicU64::new(0),
            drain: AtomicU64::new(0),
            drained_at: AtomicU64::new(0),
            space: AtomicU64::new(0),
            capacity: capacity as f64,
        }
    }

    /// Sets how far the space in use exceeds its bound; 1 is the most that it may.
    pub fn set_space(&self, share: f64) {
        let thousandths = (share.clamp(0.0, 1.0) * 1000.0) as u64;
        self.space.store(thousandths, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Notes that a log waits to be sealed.
    pub fn froze(&self, bytes: u64) {
        if self.frozen.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.drained_at.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Notes that a frozen log was sealed.
    pub fn sealed(&self, bytes: u64) {
        let now = self.now();
        let took = now.saturating_sub(self.drained_at.swap(now, Ordering::Relaxed));
        let sample = took as f64 / bytes.max(1) as f64;
        let old = f64::from_bits(self.drain.load(Ordering::Relaxed));
        let smoothed = if old == 0.0 {
            sample
        } else {
            0.75 * old + 0.25 * sample
        };
        self.drain.store(smoothed.to_bits(), Ordering::Relaxed);
        let _ = self
            .frozen
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |frozen| {
                Some(frozen.saturating_sub(bytes))
            });
    }

    /// The delay for a write of `bytes`, in nanoseconds, with `active` bytes in the active log.
    fn cost(&self, bytes: u64, active: u64) -> u64 {
        let frozen = self.frozen.load(Ordering::Relaxed);
        let logs = (frozen + active) as f64 / self.capacity;
        let level = logs.max(self.space.load(Ordering::Relaxed) as f64 / 1000.0);
        let over = ((level - FREE) / (1.0 - FREE)).clamp(0.0, 1.0);
        let drain = f64::from_bits(self.drain.load(Ordering::Relaxed));
        let full = (2.0 * drain).clamp(FULL_NS_PER_BYTE, MOST_NS_PER_BYTE);
        (bytes as f64 * over * over * full) as u64
    }

    /// Waits as long as a write of `bytes` costs; returns the time that it waited.
    pub fn wait(&self, bytes: u64, active: u64) -> Duration {
        let cost = self.cost(bytes, active);
        if cost == 0 {
            return Duration::ZERO;
        }
        let now = self.now();
        let due = self
            .paid_until
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid| {
                Some(paid.max(now) + cost)
            })
            .map_or(now, |paid| paid.max(now) + cost);
        let wait = (due - now).min(MOST);
        if wait < LEAST {
            return Duration::ZERO;
        }
        let wait = Duration::from_nanos(wait);
        std::thread::sleep(wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_rise_from_half_full_on() {
        let pace = Pace::new(4 << 20);
        assert_eq!(pace.cost(1000, 2 << 20), 0);
        pace.froze(2 << 20);
        let (three, four) = (pace.cost(1000, 1 << 20), pace.cost(1000, 2 << 20));
        assert!(0 < three && three < four);
        assert!(four >= 10_000);
        pace.sealed(2 << 20);
        assert_eq!(pace.cost(1000, 2 << 20), 0);
        assert!(pace.cost(1000, 4 << 20) <= 2_000_000);
    }
}
