// SPDX-License-Identifier: Apache-2.0
//! Samples that the admin thread takes. Every ten minutes it notes the bytes written to flash, for
//! a day. Every ten seconds it notes all counters, for a minute.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use senko_io::{Op, PAGE_SIZE};

use super::sums::Sums;
use crate::shared::Shared;

const STEP: Duration = Duration::from_secs(600);
const DAY: Duration = Duration::from_secs(86_400);
/// Samples of a day, and one before.
const MOST: usize = (DAY.as_secs() / STEP.as_secs()) as usize + 1;

/// Samples of the last minute: one every ten seconds, and one before.
const RECENT_STEP: Duration = Duration::from_secs(10);
const MOST_RECENT: usize = 7;

/// The bytes that devices had been given, at several times, and the counters of the last minute.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: VecDeque<(Instant, u64)>,
    recent: VecDeque<(Instant, Sums)>,
}

/// Bytes written in a period of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Written {
    pub bytes: u64,
    pub seconds: f64,
}

/// Bytes that were given to the flash devices since the start. No reset of statistics changes them.
pub(super) fn written(shared: &Shared) -> u64 {
    let mut pages = 0;
    shared.for_others(usize::MAX, |any| pages += any.disk.total(Op::Write).pages);
    pages * PAGE_SIZE as u64
}

impl History {
    pub(super) fn note(&mut self, shared: &Shared, now: Instant) {
        let due = self
            .samples
            .back()
            .is_none_or(|(last, _)| now.saturating_duration_since(*last) >= STEP);
        if due {
            self.add(now, written(shared));
        }
        let due = self
            .recent
            .back()
            .is_none_or(|(last, _)| now.saturating_duration_since(*last) >= RECENT_STEP);
        if due {
            self.recent.push_back((now, Sums::of(shared)));
            if self.recent.len() > MOST_RECENT {
                self.recent.pop_front();
            }
        }
    }

    /// The counts of the last minute, or since the start if that is shorter, up to `sums`. Also
    /// returns the seconds of that period.
    pub(super) fn recent(&self, now: Instant, sums: &Sums) -> (Sums, f64) {
        match self.recent.front() {
            Some((at, before)) => {
                let seconds = now.saturating_duration_since(*at).as_secs_f64();
                (sums.since(before), seconds)
            }
            None => (sums.clone(), 0.0),
        }
    }

    fn add(&mut self, now: Instant, bytes: u64) {
        self.samples.push_back((now, bytes));
        while self.samples.len() > MOST {
            self.samples.pop_front();
        }
    }

    /// Bytes written in the last day, or since the start if that is shorter. `bytes` is the total
    /// at `now`.
    pub(super) fn last_day(&self, now: Instant, bytes: u64) -> Written {
        let Some((first, before)) = self.samples.front() else {
            return Written::default();
        };
        Written {
            bytes: bytes.saturating_sub(*before),
            seconds: now.saturating_duration_since(*first).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_forgets_what_is_older_than_a_day() {
        let start = Instant::now();
        let mut history = History::default();
        assert_eq!(history.last_day(start, 7), Written::default());
        for step in 0..=300_u32 {
            history.add(start + STEP * step, u64::from(step) * 10);
        }
        let now = start + STEP * 300;
        let day = history.last_day(now, 3005);
        assert_eq!(day.seconds, DAY.as_secs_f64());
        assert_eq!(day.bytes, 144 * 10 + 5);
        assert_eq!(history.samples.len(), MOST);
    }
}
