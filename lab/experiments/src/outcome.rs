// SPDX-License-Identifier: Apache-2.0
//! The results of an experiment: bars (named numbers), the gaps among them, settings, tables.
//!
//! Experiments fill an [`Outcome`]; [`crate::Report`] prints it. Always: a key is a bar or missing,
//! never both, and every bar is a finite number.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde_json::{Map, Value};

use crate::rig::median;
use crate::so_far::{self, Notes};

/// A run is noisy if the same probe before and after it differs by more than this share.
pub const NOISE_LIMIT: f64 = 0.15;

/// The result of a run, without machine and commit.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    bars: BTreeMap<String, f64>,
    spread: BTreeMap<String, [f64; 2]>,
    missing: BTreeMap<String, String>,
    noisy: Option<bool>,
    /// The settings: sizes, parameters, options.
    pub settings: Map<String, Value>,
    /// The device that was measured; empty if the run touched none.
    pub device: Map<String, Value>,
    /// Tables for people.
    pub tables: Vec<Table>,
}

impl Outcome {
    pub fn new() -> Self {
        Self::default()
    }

    /// The outcome of a run that was stopped, with everything noted so far.
    pub(crate) fn of_notes(notes: Notes) -> Self {
        Self {
            bars: notes.bars,
            tables: notes.tables.into_iter().map(Table).collect(),
            ..Self::default()
        }
    }

    /// Adds a number. A number that is not finite counts as missing.
    ///
    /// # Panics
    /// If the key was used before.
    pub fn bar(&mut self, key: impl Into<String>, number: f64) {
        let key = key.into();
        if number.is_finite() {
            self.check_new(&key);
            so_far::bar(&key, number);
            self.bars.insert(key, number);
        } else {
            self.miss(key, format!("the measurement gave {number}"));
        }
    }

    /// Adds the median of some rounds, with the lowest and the highest as its spread.
    ///
    /// # Panics
    /// If the key was used before.
    pub fn rounds(&mut self, key: impl Into<String>, rounds: Vec<f64>) {
        let key = key.into();
        let finite = || rounds.iter().copied().filter(|round| round.is_finite());
        let ends = [finite().reduce(f64::min), finite().reduce(f64::max)];
        if let [Some(low), Some(high)] = ends
            && low < high
        {
            self.spread.insert(key.clone(), [low, high]);
        }
        self.bar(key, median(rounds).unwrap_or(f64::NAN));
    }

    /// Notes that a number could not be measured, and why.
    ///
    /// # Panics
    /// If the key was used before.
    pub fn miss(&mut self, key: impl Into<String>, why: impl Into<String>) {
        let key = key.into();
        self.check_new(&key);
        self.missing.insert(key, why.into());
    }

    /// Adds a figure: a number, rounds with their spread, or why there is none.
    ///
    /// # Panics
    /// If the key was used before.
    pub fn put<S: Seen>(&mut self, key: impl Into<String>, figure: Result<S, String>) {
        match figure {
            Ok(seen) => seen.add_to(self, key.into()),
            Err(why) => self.miss(key, why),
        }
    }

    /// Notes how a part of the experiment ended that should have measured these bars. If it failed,
    /// the figures of other parts stay, and those of its own bars that are not measured yet become
    /// gaps. The reason is also noted as a setting, since there may be no gap.
    pub fn part(&mut self, keys: &[&str], ended: anyhow::Result<()>) {
        let Err(error) = ended else {
            return;
        };
        if let Some(first) = keys.first() {
            self.setting(format!("part_with_{first}_failed"), format!("{error:#}"));
        }
        for &key in keys {
            if !self.has(key) {
                self.miss(key, format!("{error:#}"));
            }
        }
    }

    pub fn setting(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.settings.insert(key.into(), value.into());
    }

    /// Compares the same probe before and after the run. A single difference above [`NOISE_LIMIT`]
    /// makes the run noisy.
    pub fn probe(&mut self, before: f64, after: f64) {
        let difference = (after - before).abs();
        let differs = difference.is_nan() || difference > NOISE_LIMIT * before.abs();
        self.noisy = Some(self.noisy.unwrap_or(false) || differs);
    }

    pub fn bars(&self) -> &BTreeMap<String, f64> {
        &self.bars
    }

    /// The lowest and the highest round of the numbers that have several.
    pub fn spread(&self) -> &BTreeMap<String, [f64; 2]> {
        &self.spread
    }

    /// The gaps, with their reasons.
    pub fn missing(&self) -> &BTreeMap<String, String> {
        &self.missing
    }

    /// Whether the run was noisy; `None` if nothing depends on time and nothing was probed.
    pub fn noisy(&self) -> Option<bool> {
        self.noisy
    }

    fn has(&self, key: &str) -> bool {
        self.bars.contains_key(key) || self.missing.contains_key(key)
    }

    fn check_new(&self, key: &str) {
        assert!(!self.has(key), "the experiment reports \"{key}\" twice");
    }
}

/// What an outcome can take: one number, or the numbers of several rounds.
pub trait Seen {
    fn add_to(self, outcome: &mut Outcome, key: String);
}

impl Seen for f64 {
    fn add_to(self, outcome: &mut Outcome, key: String) {
        outcome.bar(key, self);
    }
}

impl Seen for Vec<f64> {
    fn add_to(self, outcome: &mut Outcome, key: String) {
        outcome.rounds(key, self);
    }
}

/// The sentence of an error, for what is missing because of it.
pub trait Reason<T> {
    fn reason(self) -> Result<T, String>;
}

impl<T> Reason<T> for anyhow::Result<T> {
    fn reason(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:#}"))
    }
}

/// A table for people, whose rows are noted for a run that a signal stops.
#[derive(Clone, Debug)]
pub struct Table(senko_plan::Table);

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, columns: &[impl AsRef<str>]) -> Self {
        let columns: Vec<&str> = columns.iter().map(AsRef::as_ref).collect();
        Self(senko_plan::Table::new(title, &columns))
    }

    pub fn titled(title: impl Into<String>) -> Self {
        Self::new(title, &[""; 0])
    }

    /// Adds a row, each cell beside the heading of its column.
    ///
    /// # Panics
    /// If rows differ in their columns.
    pub fn add<const N: usize>(&mut self, cells: [(&str, String); N]) {
        let columns = cells.each_ref().map(|(column, _)| *column);
        if self.0.columns.is_empty() {
            self.0.columns = columns.map(str::to_owned).to_vec();
        }
        assert_eq!(columns[..], self.0.columns, "rows of \"{}\"", self.0.title);
        self.row(cells.map(|(_, cell)| cell).to_vec());
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it does not have one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        so_far::row(&self.0.title, &self.0.columns, &cells);
        self.0.row(cells);
    }
}

impl From<senko_plan::Table> for Table {
    fn from(table: senko_plan::Table) -> Self {
        Self(table)
    }
}

impl Deref for Table {
    type Target = senko_plan::Table;

    fn deref(&self) -> &senko_plan::Table {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_failed_leaves_what_it_had_come_to() {
        let mut outcome = Outcome::new();
        outcome.bar("first", 1.0);
        outcome.miss("second", "no device");
        outcome.part(
            &["first", "second", "third"],
            Err(anyhow::anyhow!("killed")),
        );
        outcome.part(&["fourth"], Ok(()));
        assert_eq!(outcome.bars().len(), 1);
        assert_eq!(outcome.settings["part_with_first_failed"], "killed");
        assert_eq!(outcome.settings.len(), 1);
        let missing: Vec<_> = outcome
            .missing()
            .iter()
            .map(|(k, why)| (&**k, &**why))
            .collect();
        assert_eq!(missing, [("second", "no device"), ("third", "killed")]);
    }
}
