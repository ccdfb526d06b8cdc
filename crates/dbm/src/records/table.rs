// SPDX-License-Identifier: Apache-2.0
//! Tables: the handle of a caller, and the entries of the catalogue.

use std::sync::Arc;

/// The table of a name: keys and values in order. Cheap to clone.
///
/// It means the table that has the name when it is used. So it stays good after
/// [`Database::refresh`](crate::Database::refresh) and
/// [`Database::reorganize`](crate::Database::reorganize), in another database, and for a table that
/// was dropped and made again.
///
/// ```
/// # let db = senko_dbm::example::database();
/// let table = db.create_table("colours")?;
/// assert_eq!(table.name(), "colours");
/// # Ok::<(), senko_dbm::DbmError>(())
/// ```
#[derive(Clone)]
pub struct Table {
    name: Arc<str>,
    /// Its number in the catalogue that gave it. Another catalogue may give the number to another
    /// table, so it only says where to look first.
    number: u32,
}

impl Table {
    pub(crate) fn of(info: &TableInfo) -> Table {
        Table {
            name: Arc::clone(&info.name),
            number: info.id,
        }
    }

    /// Its number in the catalogue that gave it.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The table of the name in a catalogue.
    #[inline]
    pub(crate) fn find<'a>(&self, catalogue: &'a Catalogue) -> Option<&'a TableInfo> {
        let is_it = |info: &&TableInfo| *info.name == *self.name;
        let nth = catalogue.binary_search_by_key(&self.number, |info| info.id);
        let likely = nth.ok().map(|nth| &catalogue[nth]).filter(is_it);
        likely.or_else(|| catalogue.iter().find(is_it))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.name == other.name
    }
}

impl Eq for Table {}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({:?})", self.name)
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
