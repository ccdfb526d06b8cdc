// SPDX-License-Identifier: Apache-2.0
//! Whether write amplification was steady during a run: counts at a few moments, and from these the
//! quarters of the host's writes.

use crate::precondition::{Window, agree};

/// Most samples. When there are as many, every second one is dropped.
const MOST_SAMPLES: usize = 256;

/// Parts into which a run's writes are cut.
const PARTS: u64 = 4;

/// The last parts must agree. In the first part a run still moves away from the state before it.
const LAST_PARTS: usize = 3;

/// The most by which write amplification of those may vary, as a share of their mean. A quarter of
/// a short run has few writes, so this is wider than for preconditioning.
const WITHIN: f64 = 0.1;

/// Counts at moments of a run: the host's pages and the flash's programs, since the drive was new.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    every: u64,
    samples: Vec<(u64, u64)>,
}

impl Course {
    /// A run that begins with these counts.
    pub(crate) fn new(counts: (u64, u64)) -> Self {
        Self {
            every: 1,
            samples: vec![counts],
        }
    }

    /// Whether the counts after this many requests are wanted.
    #[inline]
    pub(crate) fn wants(&self, requests: u64) -> bool {
        requests & (self.every - 1) == 0
    }

    pub(crate) fn add(&mut self, counts: (u64, u64)) {
        self.samples.push(counts);
        if self.samples.len() >= MOST_SAMPLES {
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// The run's writes in quarters, with the counts at its end; empty if it wrote too little.
    pub(crate) fn quarters(mut self, end: (u64, u64)) -> Vec<Window> {
        self.samples.push(end);
        let (first, last) = (self.samples[0], end);
        let all = last.0 - first.0;
        let mut cuts = vec![first];
        for part in 1..PARTS {
            let cut = first.0 + all * part / PARTS;
            let reached = self.samples.iter().find(|sample| sample.0 >= cut);
            cuts.extend(reached);
        }
        cuts.push(last);
        if cuts.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Vec::new();
        }
        let window =
            |pair: &[(u64, u64)]| Window::new(pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        cuts.windows(2).map(window).collect()
    }
}

/// Whether the quarters of a run agree, except the first. `None` if there are none.
pub(crate) fn steady(quarters: &[Window]) -> Option<bool> {
    (!quarters.is_empty()).then(|| agree(quarters, LAST_PARTS, WITHIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100,000 requests of a page, of which each of the last half costs two programs.
    #[test]
    fn quarters_come_from_few_samples() {
        let counts = |n: u64| (n, n + n.saturating_sub(50_000));
        let mut course = Course::new(counts(0));
        for n in 1..=100_000 {
            if course.wants(n) {
                course.add(counts(n));
            }
        }
        assert!(course.samples.len() < MOST_SAMPLES);
        let quarters = course.quarters(counts(100_000));
        let amplification: Vec<f64> = quarters.iter().map(|q| q.write_amplification).collect();
        assert_eq!(quarters.iter().map(|q| q.host_pages).sum::<u64>(), 100_000);
        for (found, right) in amplification.iter().zip([1.0, 1.0, 2.0, 2.0]) {
            assert!((found - right).abs() < 0.05, "{amplification:?}");
        }
        assert_eq!(steady(&quarters), Some(false));
        assert_eq!(steady(&quarters[..0]), None);
        let same = [quarters[0], quarters[2], quarters[3], quarters[3]];
        assert_eq!(steady(&same), Some(true), "the first may differ");
    }

    #[test]
    fn the_last_windows_agree() {
        let windows = [(100, 150), (100, 199), (100, 200)].map(|(a, b)| Window::new(a, b));
        assert!(agree(&windows, 2, 0.02) && !agree(&windows, 3, 0.02));
        assert!(!agree(&windows, 4, 0.9), "there are not as many");
    }

    #[test]
    fn a_run_that_wrote_little_has_no_quarters() {
        assert!(Course::new((7, 9)).quarters((7, 9)).is_empty());
        assert!(Course::new((7, 9)).quarters((9, 11)).is_empty());
    }
}
