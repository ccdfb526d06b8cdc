// SPDX-License-Identifier: Apache-2.0
//! The results of an experiment: bars (named numbers), the gaps among them, settings, tables.
//!
//! Experiments fill an [`Outcome`]; [`crate::Report`] prints it. Always: a key is a bar or missing,
//! never both, and every bar is a finite number.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::so_far::{self, NotedTable, Notes};

/// A run is noisy if the same probe before and after it differs by more than this share.
pub const NOISE_LIMIT: f64 = 0.15;

/// The result of a run, without machine and commit.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    bars: BTreeMap<String, f64>,
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
    /// An empty outcome.
    pub fn new() -> Self {
        Self::default()
    }

    /// The outcome of a run that was stopped, with everything noted so far.
    pub(crate) fn of_notes(notes: Notes) -> Self {
        let table = |noted: NotedTable| Table {
            title: noted.title,
            columns: noted.columns,
            rows: noted.rows,
        };
        Self {
            bars: notes.bars,
            tables: notes.tables.into_iter().map(table).collect(),
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

    /// Notes that a number could not be measured, and why.
    ///
    /// # Panics
    /// If the key was used before.
    pub fn miss(&mut self, key: impl Into<String>, why: impl Into<String>) {
        let key = key.into();
        self.check_new(&key);
        self.missing.insert(key, why.into());
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

    /// Adds a setting.
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

    /// The numbers.
    pub fn bars(&self) -> &BTreeMap<String, f64> {
        &self.bars
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

/// A table for people.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The heading of each column.
    pub columns: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it does not have one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(
            cells.len(),
            self.columns.len(),
            "a row of \"{}\" has the wrong number of cells",
            self.title
        );
        so_far::row(&self.title, &self.columns, &cells);
        self.rows.push(cells);
    }

    /// Title and table in Markdown, with aligned columns so that it reads well in a terminal too.
    pub fn to_markdown(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells
                .chain([self.columns[column].chars().count(), 3])
                .max()
                .unwrap_or(3)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &[String]| {
            let padded: Vec<String> = cells
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| {
                    // Names are aligned left, numbers right.
                    if column == 0 {
                        format!("{cell:<width$}")
                    } else {
                        format!("{cell:>width$}")
                    }
                })
                .collect();
            format!("| {} |\n", padded.join(" | "))
        };
        let rule: Vec<String> = widths
            .iter()
            .enumerate()
            .map(|(column, &width)| {
                if column == 0 {
                    "-".repeat(width)
                } else {
                    format!("{}:", "-".repeat(width - 1))
                }
            })
            .collect();
        let mut text = format!(
            "**{}**\n\n{}{}",
            self.title,
            line(&self.columns),
            line(&rule)
        );
        for row in &self.rows {
            text.push_str(&line(row));
        }
        text
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
