// SPDX-License-Identifier: Apache-2.0
//! Checks everything that a snapshot sees: every page of every tree, every long value, and the
//! counts.

use crate::core::Core;
use crate::table::TableInfo;
use crate::{Database, DbmError};

/// The result of [`Database::verify`].
///
/// ```
/// # let db = senko_dbm::example::database();
/// assert!(db.verify()?.problems.is_empty());
/// # Ok::<(), senko_dbm::DbmError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables.
    pub tables: u64,
    /// Pages of trees.
    pub pages: u64,
    /// Records.
    pub records: u64,
    /// The problems found, each with the table's name.
    pub problems: Vec<(String, DbmError)>,
}

impl Database {
    /// Reads everything committed so far, from the device if it is not in DRAM, and checks it.
    /// Damage does not end the check: readable parts after it are checked as well.
    ///
    /// # Errors
    /// Damage is not an error: it is in the report. [`DbmError::SnapshotExpired`] if the check took
    /// longer than a snapshot may.
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// assert_eq!(db.verify()?.records, 0);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn verify(&self) -> Result<VerifyReport, DbmError> {
        let seen = self.core().see();
        let mut report = VerifyReport::default();
        for table in seen.catalogue.iter() {
            report.tables += 1;
            let (before, sound) = (report.records, report.problems.len());
            let all = (None, None);
            check_tree(&seen.core, seen.commit, table, table.root, all, &mut report);
            let found = report.records - before;
            if found != table.count && report.problems.len() == sound {
                let what = format!("{found} records were found, {} are counted", table.count);
                report
                    .problems
                    .push((table.name.to_string(), DbmError::damaged(0, what)));
            }
            if seen.is_expired() {
                return Err(DbmError::SnapshotExpired);
            }
        }
        Ok(report)
    }
}

type Border = Option<Vec<u8>>;

fn check_tree(
    core: &Core,
    commit: u64,
    table: &TableInfo,
    id: u32,
    (from, to): (Border, Border),
    report: &mut VerifyReport,
) {
    let page = match core.page_at(id, commit) {
        Ok(page) => page,
        Err(error) => {
            report.problems.push((table.name.to_string(), error));
            return;
        }
    };
    report.pages += 1;
    let count = page.count();
    let inside = (0..count).all(|nth| {
        let key = page.key(nth);
        from.as_deref().is_none_or(|from| from <= key) && to.as_deref().is_none_or(|to| key < to)
    });
    if !inside || !page.is_sorted() {
        let what = match inside {
            true => format!("page {id} has keys that are not in their order"),
            false => format!("page {id} has keys that belong elsewhere"),
        };
        let error = DbmError::damaged(0, what);
        report.problems.push((table.name.to_string(), error));
    }
    if page.level() == 0 {
        report.records += count as u64;
        for nth in 0..count {
            if let (reference, true) = page.value(nth)
                && let Err(error) = core.long_value(reference)
            {
                report.problems.push((table.name.to_string(), error));
            }
        }
        return;
    }
    for nth in 0..=count {
        let border = |nth: usize| page.key(nth).to_vec();
        let low = if nth > 0 {
            Some(border(nth - 1))
        } else {
            from.clone()
        };
        let high = if nth < count {
            Some(border(nth))
        } else {
            to.clone()
        };
        check_tree(core, commit, table, page.child(nth), (low, high), report);
    }
}
