// SPDX-License-Identifier: Apache-2.0
//! Samples that the admin thread takes. Every ten seconds it notes all counters, for a minute. A
//! [`Point`] has what the page draws: one every ten seconds, for ten minutes, and one every ten
//! minutes, for a day. Together they take about 15 KiB.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::sums::Sums;
use crate::shared::Shared;

const DAY: Duration = Duration::from_secs(86_400);
const TEN_MINUTES: Duration = Duration::from_secs(600);
const TEN_SECONDS: Duration = Duration::from_secs(10);

/// Samples of the last minute: one every ten seconds, and one before.
const MOST_RECENT: usize = 7;

/// The counters of the last minute, and the lines of ten minutes and of a day.
#[derive(Debug)]
pub(super) struct History {
    recent: VecDeque<(Instant, Sums)>,
    minutes: Line,
    day: Line,
}

/// Bytes written in a period of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Written {
    pub bytes: u64,
    pub seconds: f64,
}

/// What happened in one step of a line, and how it was at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    /// Gets a second, answered from DRAM, from flash and as misses.
    pub gets: [f32; 3],
    /// Quantiles of the gets' latencies in seconds; `None`: there were no gets.
    pub p50: Option<f32>,
    pub p99: Option<f32>,
    /// Bytes a second that were written to flash.
    pub written: f32,
    /// Items a second that were lost: they left DRAM for nowhere, or flash for new ones.
    pub lost: f32,
    /// Bytes that items take in DRAM, and may take.
    pub dram: f32,
    pub dram_limit: f32,
}

impl Point {
    /// Of the counts since the sample before, in these seconds.
    fn of(now: &Sums, before: &Sums, written: u64, seconds: f64) -> Point {
        let since = now.since(before);
        let each = |count: u64| (count as f64 / seconds.max(1e-3)) as f32;
        let gets = ["dram", "flash", "none"].map(|tier| since.times_of("get", tier));
        let mut all = gets[0].clone();
        gets[1..].iter().for_each(|times| all.merge(times));
        let quantile = |share| all.quantile(share).map(|seconds| seconds as f32);
        Point {
            p50: quantile(0.5),
            p99: quantile(0.99),
            gets: gets.map(|times| each(times.count())),
            written: each(written),
            lost: each(since.cache.evictions + since.cache.reclaim_drops),
            dram: now.cache.dram_bytes as f32,
            dram_limit: now.cache.dram_limit as f32,
        }
    }

    /// The share of the gets that were hits.
    pub(super) fn hits(&self) -> Option<f32> {
        let all: f32 = self.gets.iter().sum();
        (all > 0.0).then(|| (self.gets[0] + self.gets[1]) / all)
    }
}

/// The points of a period, one a step, and what the next one is compared with.
#[derive(Debug)]
pub(super) struct Line {
    step: Duration,
    most: usize,
    /// When each step ended, how many bytes had been written to flash by then, and its point. The
    /// first one only began the line.
    points: VecDeque<(Instant, u64, Point)>,
    before: Option<Sums>,
}

impl Line {
    fn new(step: Duration, period: Duration) -> Line {
        Line {
            step,
            most: (period.as_secs() / step.as_secs()) as usize + 1,
            points: VecDeque::new(),
            before: None,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let last = self.points.back();
        last.is_none_or(|(last, ..)| now.saturating_duration_since(*last) >= self.step)
    }

    /// Takes a sample, at which so many bytes have been written.
    fn add(&mut self, now: Instant, sums: &Sums, written: u64) {
        let point = match (&self.before, self.points.back()) {
            (Some(before), Some((last, bytes, _))) => {
                let seconds = now.saturating_duration_since(*last).as_secs_f64();
                Point::of(sums, before, written.saturating_sub(*bytes), seconds)
            }
            _ => Point::default(),
        };
        self.points.push_back((now, written, point));
        if self.points.len() > self.most {
            self.points.pop_front();
        }
        self.before = Some(sums.clone());
    }

    /// The period that it shows, at most.
    pub(super) fn period(&self) -> Duration {
        self.step * (self.most as u32 - 1)
    }

    /// The length of a step.
    pub(super) fn step(&self) -> Duration {
        self.step
    }

    /// The points of whole steps, each with the time since its step ended.
    pub(super) fn points(&self, now: Instant) -> impl Iterator<Item = (Duration, &Point)> {
        let whole = self.points.iter().skip(1);
        whole.map(move |(at, _, point)| (now.saturating_duration_since(*at), point))
    }
}

impl Default for History {
    fn default() -> History {
        History {
            recent: VecDeque::new(),
            minutes: Line::new(TEN_SECONDS, TEN_MINUTES),
            day: Line::new(TEN_MINUTES, DAY),
        }
    }
}

impl History {
    pub(super) fn note(&mut self, shared: &Shared, now: Instant) {
        if !self.minutes.is_due(now) && !self.day.is_due(now) {
            return;
        }
        let sums = Sums::of(shared);
        let written = sums.written();
        self.add(now, sums, written);
    }

    /// Takes a sample, at which so many bytes have been written.
    pub(super) fn add(&mut self, now: Instant, sums: Sums, written: u64) {
        if self.day.is_due(now) {
            self.day.add(now, &sums, written);
        }
        if self.minutes.is_due(now) {
            self.minutes.add(now, &sums, written);
            self.recent.push_back((now, sums));
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

    /// The last ten minutes, and the last day.
    pub(super) fn lines(&self) -> [&Line; 2] {
        [&self.minutes, &self.day]
    }

    /// Bytes written in the last day, or since the start if that is shorter. `bytes` is the total
    /// at `now`.
    pub(super) fn last_day(&self, now: Instant, bytes: u64) -> Written {
        let Some((first, before, _)) = self.day.points.front() else {
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
    use crate::latency::SERIES;
    use senko_io::Times;

    /// The counters after so many steps of ten seconds: in each one 30 hits in DRAM, 20 on flash
    /// and 50 misses.
    fn sums(step: u64) -> Sums {
        let mut sums = Sums::default();
        sums.times.resize(SERIES.len(), Times::default());
        for (series, count, micros) in [(0, 30, 10), (1, 20, 100), (2, 50, 5)] {
            sums.times[series].add(Duration::from_micros(micros), count * step);
        }
        sums.cache.evictions = 7 * step;
        sums.cache.dram_bytes = 1000 + step;
        sums
    }

    /// Bytes that are written in each of them.
    const WRITTEN: u64 = 40_960;

    #[test]
    fn it_forgets_what_is_older_than_a_day() {
        let start = Instant::now();
        let mut history = History::default();
        assert_eq!(history.last_day(start, 7), Written::default());
        const STEPS: u64 = 200;
        for step in 0..=STEPS {
            history.add(
                start + TEN_MINUTES * step as u32,
                sums(step),
                step * WRITTEN,
            );
        }
        let now = start + TEN_MINUTES * STEPS as u32;
        let day = history.last_day(now, STEPS * WRITTEN + 5);
        assert_eq!(day.seconds, DAY.as_secs_f64());
        assert_eq!(day.bytes, 144 * WRITTEN + 5);
        let [minutes, day] = history.lines();
        assert_eq!((minutes.period(), day.period()), (TEN_MINUTES, DAY));
        assert_eq!(
            (minutes.points(now).count(), day.points(now).count()),
            (60, 144)
        );
    }

    #[test]
    fn a_point_is_what_came_since_the_one_before() {
        let start = Instant::now();
        let mut history = History::default();
        for step in 0..=3 {
            history.add(
                start + TEN_SECONDS * step as u32,
                sums(step),
                step * WRITTEN,
            );
        }
        let now = start + TEN_SECONDS * 3;
        let [minutes, day] = history.lines();
        let points: Vec<_> = minutes.points(now).collect();
        assert_eq!(points.len(), 3);
        assert_eq!(day.points(now).count(), 0);
        let (age, point) = points[0];
        assert_eq!(age, TEN_SECONDS * 2);
        assert_eq!(point.gets, [3.0, 2.0, 5.0]);
        assert_eq!((point.hits(), point.lost), (Some(0.5), 0.7));
        assert_eq!(point.written, WRITTEN as f32 / 10.0);
        assert_eq!((point.dram, points[2].1.dram), (1001.0, 1003.0));
        let micros = |seconds: Option<f32>| (seconds.unwrap_or(0.0) * 1e6) as u32;
        assert!((4..=6).contains(&micros(point.p50)), "{point:?}");
        assert!((80..=120).contains(&micros(point.p99)), "{point:?}");
        // A step without gets has no latency, and no ratio.
        history.add(start + TEN_SECONDS * 4, sums(3), 3 * WRITTEN);
        let points: Vec<_> = history.lines()[0].points(now).collect();
        assert_eq!((points[3].1.p99, points[3].1.hits()), (None, None));
    }
}
