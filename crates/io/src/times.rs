// SPDX-License-Identifier: Apache-2.0
//! A histogram of durations: counted by one thread without a lock, and copied for display.
//!
//! It is log-linear: each doubling from one microsecond to 69 seconds has [`PARTS`] cells of equal
//! width, so the error of a quantile is at most an eighth. Counting takes a shift, a mask and two
//! additions. Workers count requests and event loops device operations; the server's admin listener
//! shows both.

use std::time::Duration;

/// Cells per doubling.
const PARTS: u64 = 4;
/// The first cell ends at 2^10 ns, about a microsecond.
const FIRST: u32 = 10;
/// The last bounded cell ends at 2^36 ns, about 69 s.
const LAST: u32 = 36;
/// All cells: one up to a microsecond, those of the doublings, and one for longer durations.
const CELLS: usize = 2 + (LAST - FIRST) as usize * PARTS as usize;

/// The durations of many operations.
///
/// ```
/// use senko_io::Times;
/// use std::time::Duration;
///
/// let mut times = Times::default();
/// times.add(Duration::from_micros(100), 99);
/// times.add(Duration::from_millis(5), 1);
/// assert_eq!(times.count(), 100);
/// let median = times.quantile(0.5).unwrap();
/// assert!((0.000_08..0.000_12).contains(&median));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    cells: [u64; CELLS],
    sum_ns: u64,
}

impl Default for Times {
    fn default() -> Times {
        Times {
            cells: [0; CELLS],
            sum_ns: 0,
        }
    }
}

/// The cell of a duration in nanoseconds. The duration is longer than the end of the previous cell,
/// and at most the end of this cell.
fn cell(ns: u64) -> usize {
    let ns = ns.saturating_sub(1);
    if ns < 1 << FIRST {
        return 0;
    }
    let doubling = ns.ilog2();
    let part = (ns >> (doubling - PARTS.ilog2())) & (PARTS - 1);
    let cell = 1 + u64::from(doubling - FIRST) * PARTS + part;
    (cell as usize).min(CELLS - 1)
}

/// The end of a bounded cell, in nanoseconds.
fn end(cell: usize) -> u64 {
    if cell == 0 {
        return 1 << FIRST;
    }
    let (doubling, part) = ((cell as u64 - 1) / PARTS, (cell as u64 - 1) % PARTS);
    (PARTS + part + 1) << (u64::from(FIRST) + doubling - u64::from(PARTS.ilog2()))
}

impl Times {
    /// Counts `times` operations that each took `took`.
    #[inline]
    pub fn add(&mut self, took: Duration, times: u64) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.cells[cell(ns)] += times;
        self.sum_ns = self.sum_ns.wrapping_add(ns.wrapping_mul(times));
    }

    /// Adds another thread's durations.
    pub fn merge(&mut self, other: &Times) {
        for (cell, other) in self.cells.iter_mut().zip(&other.cells) {
            *cell += other;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// Subtracts an earlier state of the same thread's (or threads') durations.
    pub fn take_away(&mut self, before: &Times) {
        for (cell, before) in self.cells.iter_mut().zip(&before.cells) {
            *cell = cell.saturating_sub(*before);
        }
        self.sum_ns = self.sum_ns.wrapping_sub(before.sum_ns);
    }

    /// The number of counted operations.
    pub fn count(&self) -> u64 {
        self.cells.iter().sum()
    }

    /// Their total duration in seconds.
    pub fn seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The duration, in seconds, that a given share of the operations does not exceed: the middle
    /// of the cell in which the share ends. `None` if there are no operations.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let count = self.count();
        let wanted = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (at, cell) in self.cells.iter().enumerate() {
            seen += cell;
            if seen >= wanted {
                let from = if at == 0 { 0 } else { end(at - 1) };
                let to = if at == CELLS - 1 { from } else { end(at) };
                return Some((from + to) as f64 / 2e9);
            }
        }
        None
    }

    /// For each half of a doubling: its end in seconds, and how many operations took no longer.
    /// Longer durations count only in [`Times::count`].
    pub fn bounds(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut seen = 0;
        let bounded = self.cells.iter().take(CELLS - 1).enumerate();
        bounded.filter_map(move |(at, cell)| {
            seen += cell;
            // The first cell, and then every second one.
            at.is_multiple_of(2).then(|| (end(at) as f64 / 1e9, seen))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_ends_where_the_next_begins() {
        for at in 0..CELLS - 1 {
            assert_eq!(cell(end(at)), at);
            assert_eq!(cell(end(at) + 1), at + 1);
        }
        assert_eq!(end(CELLS - 2), 1 << LAST);
        assert_eq!((cell(0), cell(u64::MAX)), (0, CELLS - 1));
    }

    #[test]
    fn quantiles_are_right_within_an_eighth() {
        let mut times = Times::default();
        for us in 1..=1000 {
            times.add(Duration::from_micros(us), 1);
        }
        for (share, us) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
            let found = times.quantile(share).unwrap() * 1e6;
            assert!((found / us - 1.0).abs() < 0.125, "{share}: {found}");
        }
        assert_eq!(Times::default().quantile(0.5), None);
        assert!((times.seconds() - 0.5005).abs() < 1e-9);
    }

    #[test]
    fn bounds_count_what_is_below() {
        let mut times = Times::default();
        times.add(Duration::from_nanos(1), 2);
        times.add(Duration::from_micros(100), 3);
        times.add(Duration::from_secs(500), 4);
        let bounds: Vec<_> = times.bounds().collect();
        assert_eq!(bounds[0], (1024e-9, 2));
        assert_eq!(bounds.last().unwrap().1, 5);
        assert_eq!(times.count(), 9);
        assert!(bounds.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
    }
}
