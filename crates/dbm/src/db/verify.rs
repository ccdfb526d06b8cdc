// SPDX-License-Identifier: Apache-2.0
//! Checks a database: every page of every tree that a snapshot sees, every long value and the
//! counts; and on the device the superblocks, the checkpoint, the translation table, the log and
//! the tail.

use rustc_hash::FxHashSet;

use crate::core::Core;
use crate::pages::lookup::{Borders, check_borders, check_level, children, out_of_order};
use crate::records::blob::Blob;
use crate::records::table::TableInfo;
use crate::{Database, DbmError, open};

/// How often the device is read again. Something that a writer changes meanwhile looks like damage.
const ATTEMPTS: usize = 5;

/// The result of [`Database::verify`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables that were read.
    pub tables: u64,
    /// Pages of trees.
    pub pages: u64,
    /// Records that were read.
    pub records: u64,
    /// The problems found, each with the table's name. It is empty for what belongs to no table:
    /// the superblocks, the checkpoint, the translation table and the log.
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
        let seen = self.core().see(false);
        let mut check = Check {
            core: &seen.core,
            commit: seen.commit,
            reached: FxHashSet::default(),
            parts: FxHashSet::default(),
            report: VerifyReport::default(),
        };
        check.device()?;
        for table in seen.catalogue.iter() {
            check.report.tables += 1;
            let (before, sound) = (check.report.records, check.report.problems.len());
            check.tree(table, table.root, (None, None), None);
            let found = check.report.records - before;
            if found != table.count && check.report.problems.len() == sound {
                let what = format!("{found} records were found, {} are counted", table.count);
                check.problem(table, DbmError::damaged(0, what));
            }
            if seen.is_expired() {
                return Err(DbmError::SnapshotExpired);
            }
        }
        Ok(check.report)
    }
}

/// Notes the parts of a long value, which was read: no other record has them.
pub(crate) fn is_alone(parts: &mut FxHashSet<u32>, reference: &[u8]) -> Result<(), DbmError> {
    let numbers = Blob::parse(reference)
        .into_iter()
        .flat_map(|blob| blob.numbers());
    let mut is_new = true;
    numbers.for_each(|part| is_new &= parts.insert(part));
    match is_new {
        true => Ok(()),
        false => Err(DbmError::damaged(
            0,
            "a record has the long value of another",
        )),
    }
}

struct Check<'a> {
    core: &'a Core,
    commit: u64,
    /// Pages to which trees lead.
    reached: FxHashSet<u32>,
    /// Parts of long values to which records lead.
    parts: FxHashSet<u32>,
    report: VerifyReport,
}

impl Check<'_> {
    fn problem(&mut self, table: &TableInfo, error: DbmError) {
        self.report.problems.push((table.name.to_string(), error));
    }

    /// What belongs to no table.
    fn device(&mut self) -> Result<(), DbmError> {
        // No checkpoint of this process comes meanwhile.
        let maps = self.core.maps.lock();
        let mut problems = Vec::new();
        for _ in 0..ATTEMPTS {
            let last = self.core.log.lock().reached;
            problems = open::check(&*self.core.device, maps.superblock(), last)?;
            if problems.is_empty() {
                break;
            }
        }
        let parts = maps.places().nodes.iter().chain(&maps.places().blobs);
        for part in parts.filter(|part| **part != 0) {
            match open::map_words(&*self.core.device, *part) {
                Err(error @ DbmError::Damaged { .. }) => problems.push(error),
                read => drop(read?),
            }
        }
        drop(maps);
        let problems = problems.into_iter();
        let problems = problems.map(|error| (String::new(), error));
        self.report.problems.extend(problems);
        Ok(())
    }

    fn tree(&mut self, table: &TableInfo, id: u32, borders: Borders, above: Option<u8>) {
        let page = self.core.pages.page_at(id, self.commit);
        let page = page.and_then(|page| check_level(&page, above).map(|()| page));
        let page = match page {
            Ok(page) if self.reached.insert(id) => page,
            Ok(_) => {
                let what = format!("page {id} has two places in the trees");
                return self.problem(table, DbmError::damaged(0, what));
            }
            Err(error) => return self.problem(table, error),
        };
        self.report.pages += 1;
        let count = page.count();
        // A page that was read has them in order; one that a writer changed may not.
        if !page.is_sorted() {
            self.problem(table, out_of_order());
        } else if let Err(error) = check_borders(&page, (&borders.0, &borders.1)) {
            self.problem(table, error);
        }
        if page.level() == 0 {
            self.report.records += count as u64;
            for nth in 0..count {
                if let (reference, true) = page.value(nth) {
                    let read = self.core.pages.long_value(reference);
                    let alone = read.and_then(|_| is_alone(&mut self.parts, reference));
                    if let Err(error) = alone {
                        self.problem(table, error);
                    }
                }
            }
            return;
        }
        for (child, borders) in children(&page, &borders) {
            self.tree(table, child, borders, Some(page.level()));
        }
    }
}
