// SPDX-License-Identifier: Apache-2.0
//! Counts of what reached the devices, by purpose and operation.

use std::time::Duration;

use crate::{Op, Purpose, Tag, Times};

const PURPOSES: usize = 9;
const OPS: usize = 5;

/// Counts of one purpose and operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCount {
    /// Operations submitted.
    pub ops: u64,
    /// Pages that they covered.
    pub pages: u64,
    /// Operations that failed.
    pub errors: u64,
}

impl DiskCount {
    fn add(&mut self, other: DiskCount) {
        self.ops += other.ops;
        self.pages += other.pages;
        self.errors += other.errors;
    }
}

/// Counts for every purpose and operation. Operations are counted when they are submitted, errors
/// when they end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    cells: [[DiskCount; OPS]; PURPOSES],
}

impl DiskStats {
    /// The counts of one purpose and operation.
    pub fn get(&self, purpose: Purpose, op: Op) -> DiskCount {
        self.cells[purpose as usize][op as usize]
    }

    /// The counts of one operation over all purposes.
    pub fn total(&self, op: Op) -> DiskCount {
        let mut sum = DiskCount::default();
        for row in &self.cells {
            sum.add(row[op as usize]);
        }
        sum
    }

    /// All operations submitted.
    ///
    /// ```
    /// assert_eq!(senko_io::DiskStats::default().operations(), 0);
    /// ```
    pub fn operations(&self) -> u64 {
        self.cells.iter().flatten().map(|count| count.ops).sum()
    }

    /// Adds another loop's counts.
    pub fn merge(&mut self, other: &DiskStats) {
        for (row, other) in self.cells.iter_mut().zip(&other.cells) {
            for (cell, other) in row.iter_mut().zip(other) {
                cell.add(*other);
            }
        }
    }

    pub(crate) fn submitted(&mut self, tag: Tag, op: Op, pages: u64) {
        let cell = &mut self.cells[tag.purpose as usize][op as usize];
        cell.ops += 1;
        cell.pages += pages;
    }

    pub(crate) fn failed(&mut self, tag: Tag, op: Op) {
        self.cells[tag.purpose as usize][op as usize].errors += 1;
    }
}

/// Durations of the operations of one device, from their submission until the loop saw their end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceTimes {
    of: [Times; OPS],
}

impl DeviceTimes {
    /// The durations of one operation.
    pub fn get(&self, op: Op) -> &Times {
        &self.of[op as usize]
    }

    /// Adds another loop's durations.
    pub fn merge(&mut self, other: &DeviceTimes) {
        for (own, other) in self.of.iter_mut().zip(&other.of) {
            own.merge(other);
        }
    }

    /// Subtracts earlier durations of the same loops.
    pub fn take_away(&mut self, before: &DeviceTimes) {
        for (own, before) in self.of.iter_mut().zip(&before.of) {
            own.take_away(before);
        }
    }

    /// How many operations ended.
    ///
    /// ```
    /// assert_eq!(senko_io::DeviceTimes::default().count(), 0);
    /// ```
    pub fn count(&self) -> u64 {
        self.of.iter().map(Times::count).sum()
    }

    pub(crate) fn ended(&mut self, op: Op, took: Duration) {
        self.of[op as usize].add(took, 1);
    }
}
