// SPDX-License-Identifier: Apache-2.0
//! A set of units, stored as runs. `space.rs` has such sets of the free units, and of the free
//! units without storage.

use std::collections::BTreeMap;

/// A set of units; neighbouring runs are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Lengths by first unit.
    runs: BTreeMap<u64, u64>,
    total: u64,
}

impl Runs {
    /// Units in the set.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The runs, each with its first unit and its length.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(&first, &length)| (first, length))
    }

    /// Adds units that are not in the set.
    pub fn add(&mut self, first: u64, units: u64) {
        self.total += units;
        let (mut first, mut units) = (first, units);
        if let Some((&before, &length)) = self.runs.range(..first).next_back()
            && before + length == first
        {
            self.runs.remove(&before);
            first = before;
            units += length;
        }
        if let Some(length) = self.runs.remove(&(first + units)) {
            units += length;
        }
        self.runs.insert(first, units);
    }

    /// Removes given units; false, and nothing removed, if not all of them are in the set.
    pub fn remove(&mut self, first: u64, units: u64) -> bool {
        let Some((&run, &length)) = self.runs.range(..=first).next_back() else {
            return false;
        };
        if first + units > run + length {
            return false;
        }
        self.runs.remove(&run);
        if first > run {
            self.runs.insert(run, first - run);
        }
        if run + length > first + units {
            self.runs
                .insert(first + units, run + length - first - units);
        }
        self.total -= units;
        true
    }

    /// The shortest run of at least this many units; the first of several.
    pub fn shortest(&self, least: u64) -> Option<(u64, u64)> {
        let fits = self.iter().filter(|&(_, length)| length >= least);
        fits.min_by_key(|&(_, length)| length)
    }

    /// The longest run.
    pub fn longest(&self) -> Option<(u64, u64)> {
        self.iter().max_by_key(|&(_, length)| length)
    }

    /// The run that ends before a unit.
    pub fn ending_at(&self, end: u64) -> Option<(u64, u64)> {
        let last = self.runs.range(..end).next_back();
        let found = last.map(|(&first, &length)| (first, length));
        found.filter(|&(first, length)| first + length == end)
    }

    /// The parts of a range of units that are in the set.
    pub fn within(&self, first: u64, units: u64) -> Vec<(u64, u64)> {
        let end = first.saturating_add(units);
        let before = self.runs.range(..first).next_back();
        let runs = before.into_iter().chain(self.runs.range(first..end));
        runs.filter_map(|(&run, &length)| {
            let (from, to) = (run.max(first), (run + length).min(end));
            (from < to).then(|| (from, to - from))
        })
        .collect()
    }

    /// Joins two sets that share no unit.
    pub fn joined(&self, other: &Runs) -> Runs {
        let mut all = self.clone();
        for (first, units) in other.iter() {
            all.add(first, units);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_and_part() {
        let mut runs = Runs::default();
        runs.add(10, 5);
        runs.add(20, 5);
        assert_eq!(runs.shortest(5), Some((10, 5)));
        runs.add(15, 5);
        assert_eq!(runs.iter().collect::<Vec<_>>(), [(10, 15)]);
        assert!(!runs.remove(9, 2) && !runs.remove(24, 2) && !runs.remove(30, 1));
        assert!(runs.remove(12, 3));
        assert_eq!(runs.iter().collect::<Vec<_>>(), [(10, 2), (15, 10)]);
        assert_eq!((runs.total(), runs.longest()), (12, Some((15, 10))));
        assert_eq!(runs.within(11, 5), [(11, 1), (15, 1)]);
        assert_eq!(
            (runs.ending_at(25), runs.ending_at(24)),
            (Some((15, 10)), None)
        );
        let mut other = Runs::default();
        other.add(12, 3);
        assert_eq!(runs.joined(&other).iter().collect::<Vec<_>>(), [(10, 15)]);
    }
}
