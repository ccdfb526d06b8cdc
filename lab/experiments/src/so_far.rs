// SPDX-License-Identifier: Apache-2.0
//! The figures of a run so far: bars, rows of tables and rounds. They are noted when they are
//! measured, for a run that a signal stops.
//!
//! [`crate::Outcome`], [`crate::Table`] and [`crate::rig::Series`] write notes.
//! [`crate::run_until_stopped`] turns them into a report. The experiment's own outcome is on its
//! thread's stack, which the thread that receives the signal can't reach. Nothing is noted until a
//! run asks for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use senko_plan::Table;

/// Notes of the one run of this process.
#[derive(Default)]
pub(crate) struct Notes {
    /// Numbers by key.
    pub bars: BTreeMap<String, f64>,
    /// Tables in the order of their first rows.
    pub tables: Vec<Table>,
}

static NOTES: Mutex<Option<Notes>> = Mutex::new(None);

fn notes() -> MutexGuard<'static, Option<Notes>> {
    // Each note is complete before the next begins, so a panic elsewhere does no harm.
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

/// A row was added to a table.
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

/// Returns all notes; nothing is noted from now on.
pub(crate) fn take() -> Notes {
    notes().take().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;

    /// A run that was stopped after an hour used to print nothing.
    #[test]
    fn what_was_measured_so_far_is_an_outcome() {
        begin();
        let mut outcome = Outcome::new();
        outcome.bar("measured before the signal", 2.5);
        let mut table = crate::Table::new("Rows before the signal", &["what", "how many"]);
        table.row(vec!["a".to_owned(), "1".to_owned()]);
        table.row(vec!["b".to_owned(), "2".to_owned()]);
        // Dropped, as they would be with their thread.
        drop((outcome, table));
        let so_far = Outcome::of_notes(take());
        // Other tests of this process may have added their own notes.
        assert_eq!(so_far.bars()["measured before the signal"], 2.5);
        let noted = so_far
            .tables
            .iter()
            .find(|table| table.title == "Rows before the signal")
            .expect("it was noted");
        assert_eq!(noted.rows.len(), 2);
    }
}
