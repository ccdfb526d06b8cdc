// SPDX-License-Identifier: Apache-2.0
//! Tables: the handle of a caller, and the entries of the catalogue.

use std::sync::Arc;

/// A table of a database: a name for keys and values in order. Cheap to clone.
///
/// ```
/// # let db = senko_dbm::example::database();
/// let table = db.create_table("colours")?;
/// assert_eq!(table.name(), "colours");
/// # Ok::<(), senko_dbm::DbmError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
}

impl Table {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A table, as of a commit.
#[derive(Clone, Debug)]
pub(crate) struct TableInfo {
    pub id: u32,
    pub name: Arc<str>,
    pub root: u32,
    pub count: u64,
}

/// All tables, as of a commit; sorted by id.
pub(crate) type Catalogue = Vec<TableInfo>;
