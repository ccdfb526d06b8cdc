// SPDX-License-Identifier: Apache-2.0
//! The figures of a run so far: bars, rows of tables and rounds, noted as they come, for a run that
//! a signal stops.
//!
//! [`crate::Outcome`], [`crate::Table`] and [`crate::rig::Series`] note.
//! [`crate::run_until_stopped`] takes the notes and makes a report of them. The experiment's own
//! outcome is on its thread's stack, out of reach for the thread that hears the signal. Nothing is
//! noted until a run asks for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Notes of the one run of this process.
#[derive(Default)]
pub(crate) struct Notes {
    /// Numbers by key.
    pub bars: BTreeMap<String, f64>,
    /// Tables in the order of their first rows.
    pub tables: Vec<NotedTable>,
}

/// A table, as far as it has come.
pub(crate) struct NotedTable {
    /// The line above it.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

static NOTES: Mutex<Option<Notes>> = Mutex::new(None);

fn notes() -> MutexGuard<'static, Option<Notes>> {
    // A note is whole before the next begins, so a panic elsewhere does not spoil them.
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, everything is noted.
pub(crate) fn begin() {
    *notes() = Some(Notes::default());
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
        let known = |table: &&mut NotedTable| table.title == title && table.columns == columns;
        if let Some(table) = notes.tables.iter_mut().find(known) {
            table.rows.push(cells.to_vec());
            return;
        }
        notes.tables.push(NotedTable {
            title: title.to_owned(),
            columns: columns.to_vec(),
            rows: vec![cells.to_vec()],
        });
    }
}

/// All that was noted; nothing is noted from now on.
pub(crate) fn take() -> Notes {
    notes().take().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Table};

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
        let so_far = Outcome::of_notes(take());
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
