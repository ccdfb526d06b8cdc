// SPDX-License-Identifier: Apache-2.0
//! The schedule of an open loop.
//!
//! Card. Idea: due times are drawn in advance from the law of the gaps, and never depend on the
//! answers. A request that finds no free connection is sent late, and its latency still counts from
//! its due time. So a server that stalls is charged for every request that the stall delayed (no
//! coordinated omission; Gil Tene, "How NOT to measure latency", 2013). Deviation: none. The queue
//! of late requests is the schedule itself, read up to the present, so it needs no memory.

use senko_workload::{Arrivals, Rng};

use crate::settings::Gaps;

/// Due times of one thread, in nanoseconds.
pub struct Schedule {
    arrivals: Arrivals,
    rng: Rng,
    next_ns: f64,
}

impl Schedule {
    /// One of `shares` equal parts of the whole rate, from `start_ns` on.
    ///
    /// # Errors
    /// If there is no rate and the law has none of its own.
    pub fn new(
        rate: Option<f64>,
        gaps: Gaps,
        shares: usize,
        start_ns: u64,
        mut rng: Rng,
    ) -> Result<Schedule, String> {
        let part = rate.map(|rate| rate / shares as f64);
        let arrivals = match (gaps, part) {
            (Gaps::Even, Some(rate)) => Arrivals::even(rate),
            (Gaps::Poisson, Some(rate)) => Arrivals::poisson(rate),
            (Gaps::Etc, Some(rate)) => Arrivals::etc(Some(rate)),
            (Gaps::Etc, None) => {
                let own = Arrivals::etc(None).map_err(|error| error.to_string())?;
                Arrivals::etc(Some(1e9 / own.mean_ns() / shares as f64))
            }
            (Gaps::Even | Gaps::Poisson, None) => {
                return Err("an open loop needs a rate".to_owned());
            }
        }
        .map_err(|error| error.to_string())?;
        // The threads' schedules start at different phases, so that even gaps stay even over all of
        // them on average.
        let next_ns = start_ns as f64 + arrivals.mean_ns() * rng.next_f64();
        Ok(Schedule {
            arrivals,
            rng,
            next_ns,
        })
    }

    /// When the next request is due.
    pub fn next_due(&self) -> u64 {
        self.next_ns as u64
    }

    /// Takes the next request if it is due by `now`; returns when it was due.
    pub fn take(&mut self, now: u64) -> Option<u64> {
        let due = self.next_due();
        if due > now {
            return None;
        }
        self.next_ns += self.arrivals.draw_ns(&mut self.rng);
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_gaps_do_not_drift_and_ignore_when_they_are_asked() {
        let mut schedule = Schedule::new(Some(3_000.0), Gaps::Even, 1, 1_000_000, Rng::new(1))
            .expect("a rate is given");
        let mut dues = Vec::new();
        // Called at irregular times, once with a stall of 200 ms.
        for now in (0..1_000_000_000u64)
            .step_by(777_777)
            .filter(|now| !(300_000_000..500_000_000).contains(now))
        {
            while let Some(due) = schedule.take(now) {
                assert!(due <= now);
                dues.push(due);
            }
        }
        assert!(
            (2990..=3000).contains(&dues.len()),
            "{} requests",
            dues.len()
        );
        for pair in dues.windows(2) {
            assert!(
                (333_332..=333_335).contains(&(pair[1] - pair[0])),
                "{pair:?}"
            );
        }
    }

    #[test]
    fn every_law_keeps_its_rate_over_all_shares() {
        for (gaps, rate, wanted) in [
            (Gaps::Poisson, Some(100_000.0), 100_000.0),
            (Gaps::Etc, Some(50_000.0), 50_000.0),
            (Gaps::Etc, None, 52_717.0),
        ] {
            let mut taken = 0u64;
            for share in 0..4 {
                let mut schedule = Schedule::new(rate, gaps, 4, 0, Rng::new(share))
                    .expect("a rate or a law with one");
                while schedule.take(10_000_000_000).is_some() {
                    taken += 1;
                }
            }
            let rate = taken as f64 / 10.0;
            assert!(
                (rate / wanted - 1.0).abs() < 0.02,
                "{gaps:?}: {rate} a second, {wanted} wanted"
            );
        }
        assert!(Schedule::new(None, Gaps::Even, 1, 0, Rng::new(0)).is_err());
    }
}
