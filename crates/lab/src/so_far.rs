// SPDX-License-Identifier: Apache-2.0
//! The figures of a run so far: bars, rows of tables and rounds, noted as they come, for a run that
//! a signal stops.
//!
//! [`crate::Outcome`], [`crate::Table`] and [`crate::rig::Series`] note;
//! [`crate::run_until_stopped`] makes a report of it. The experiment's own outcome is on its
//! thread's stack, out of reach for the thread that hears the signal. Nothing is noted until a run
//! asks for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Outcome, Table};

/// Notes of the one run of this process.
struct Notes {
    bars: BTreeMap<String, f64>,
    tables: Vec<Table>,
}

static NOTES: Mutex<Option<Notes>> = Mutex::new(None);

fn notes() -> MutexGuard<'static, Option<Notes>> {
    // A note is whole before the next begins, so a panic elsewhere does not spoil them.
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, everything is noted.
pub(crate) fn begin() {
    let (bars, tables) = (BTreeMap::new(), Vec::new());
    *notes() = Some(Notes { bars, tables });
}

/// A bar was measured.
pub(crate) fn bar(key: &str, number: f64) {
    if let Some(notes) = &mut *notes() {
        notes.bars.insert(key.to_owned(), number);
    }
}

/// A table got a row.
pub(crate) fn row(title: &str, columns: &[String], cells: &[String]) {
    if let Some(notes) = &mut *notes() {
        let known = |table: &&mut Table| table.title == title && table.columns == columns;
        if let Some(table) = notes.tables.iter_mut().find(known) {
            table.rows.push(cells.to_vec());
            return;
        }
        notes.tables.push(Table {
            title: title.to_owned(),
            columns: columns.to_vec(),
            rows: vec![cells.to_vec()],
        });
    }
}

/// All that was noted, as an outcome.
pub(crate) fn outcome() -> Outcome {
    let mut outcome = Outcome::new();
    // The lock is free again before the outcome notes its bars.
    let taken = notes().take();
    if let Some(notes) = taken {
        for (key, number) in notes.bars {
            outcome.bar(key, number);
        }
        outcome.tables = notes.tables;
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that was stopped after an hour had printed nothing.
    #[test]
    fn what_was_measured_so_far_is_an_outcome() {
        begin();
        let mut outcome = Outcome::new();
        outcome.bar("measured before the signal", 2.5);
        let mut table = Table::new("Rows before the signal", &["what", "how many"]);
        table.row(vec!["a".to_owned(), "1".to_owned()]);
        table.row(vec!["b".to_owned(), "2".to_owned()]);
        // Dropped, as they are with their thread.
        drop((outcome, table));
        let so_far = super::outcome();
        // Other tests of this process may have noted theirs.
        assert_eq!(so_far.bars()["measured before the signal"], 2.5);
        let noted = so_far
            .tables
            .iter()
            .find(|table| table.title == "Rows before the signal")
            .expect("it was noted");
        assert_eq!(noted.rows.len(), 2);
    }
}
