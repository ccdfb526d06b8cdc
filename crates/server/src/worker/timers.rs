// SPDX-License-Identifier: Apache-2.0
//! When a worker's upkeep is due, and the clock for deadlines of devices.
//!
//! Upkeep uses the machine's own time, because a test may stop the server's clock.

use std::time::{Duration, Instant};

/// Longest wait for events, which bounds the delay of a tick, a delayed flush or another worker's
/// counters.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// The most time that counts for devices in one round.
const LONGEST_ROUND_MS: u64 = 250;
/// How often idle connections are looked for.
const SWEEP: Duration = Duration::from_secs(1);

pub(super) struct Timers {
    next_tick: Instant,
    next_sweep: Instant,
    sweeps: u64,
    last_round: Instant,
    steady_ms: u64,
    /// The clock's second that was last noted.
    second: u32,
}

impl Timers {
    pub fn new(now: Instant) -> Timers {
        Timers {
            next_tick: now,
            next_sweep: now,
            sweeps: 0,
            last_round: now,
            steady_ms: 0,
            second: 0,
        }
    }

    /// Whether a tick is due: about ten times a second.
    pub fn tick(&mut self, now: Instant) -> bool {
        let due = now >= self.next_tick;
        if due {
            self.next_tick = now + TICK;
        }
        due
    }

    /// The number of the sweep that is due now, once a second.
    pub fn sweep(&mut self, now: Instant) -> Option<u64> {
        if now < self.next_sweep {
            return None;
        }
        self.next_sweep = now + SWEEP;
        self.sweeps += 1;
        Some(self.sweeps)
    }

    /// Begins a round: counts the milliseconds in which this thread was running. Of an overlong
    /// round only a little counts, because the machine slept or the process was stopped. With more
    /// `patience` the time passes more slowly.
    pub fn begin_round(&mut self, now: Instant, patience: u32) -> u64 {
        let passed = now.saturating_duration_since(self.last_round);
        let patience = u64::from(patience.max(1));
        // The rest of a millisecond is left to the next round.
        let ms = passed.as_millis() as u64 / patience;
        self.last_round += Duration::from_millis(ms * patience);
        self.steady_ms += ms.min(LONGEST_ROUND_MS.div_ceil(patience));
        self.steady_ms
    }
    pub fn steady_ms(&self) -> u64 {
        self.steady_ms
    }

    /// Whether the clock's second differs from that of the last call.
    pub fn is_new(&mut self, second: u32) -> bool {
        std::mem::replace(&mut self.second, second) != second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_sweeps_come_once_each() {
        let start = Instant::now();
        let mut timers = Timers::new(start);
        assert!(timers.tick(start) && !timers.tick(start + TICK / 2));
        assert!(timers.tick(start + TICK) && !timers.tick(start + TICK));
        assert_eq!(timers.sweep(start), Some(1));
        assert_eq!(timers.sweep(start + SWEEP / 2), None);
        assert_eq!(timers.sweep(start + 9 * SWEEP), Some(2));
        assert!(timers.is_new(7) && !timers.is_new(7) && timers.is_new(6));
    }

    /// A machine that slept for an hour blames no device: only a quarter of a second has passed.
    #[test]
    fn a_long_round_counts_little() {
        let start = Instant::now();
        let mut timers = Timers::new(start);
        let after = |us| start + Duration::from_micros(us);
        assert_eq!(timers.begin_round(after(900), 1), 0);
        assert_eq!(timers.begin_round(after(1900), 1), 1);
        assert_eq!(timers.begin_round(after(2000), 1), 2);
        assert_eq!(
            timers.begin_round(start + Duration::from_secs(3600), 1),
            252
        );
        // With twenty times the patience, 40 ms count as two.
        let later = start + Duration::from_secs(3600) + Duration::from_millis(40);
        assert_eq!(timers.begin_round(later, 20), 254);
        assert_eq!(timers.steady_ms(), 254);
    }
}
