// SPDX-License-Identifier: Apache-2.0
//! The way down a tree, as of a commit.

use std::sync::Arc;

use crate::error::DbmError;
use crate::pages::Pages;
use crate::pages::node::{OUT_OF_ORDER, Page};

/// Checks the level of a page that another page, or the catalogue, names (TREE-3). `above` is that
/// page's level.
pub(crate) fn check_level(page: &Page, above: Option<u8>) -> Result<(), DbmError> {
    if above.is_none_or(|above| page.level() + 1 == above) {
        return Ok(());
    }
    let what = format!(
        "page {} of a tree has another level than belongs there",
        page.id()
    );
    Err(DbmError::damaged(0, what))
}

/// A page's keys, or its separators, are not in their order.
pub(crate) fn out_of_order() -> DbmError {
    DbmError::damaged(0, OUT_OF_ORDER)
}

/// Checks that the keys of a page, or its separators, lie within its borders (TREE-2). They ascend.
pub(crate) fn check_borders(page: &Page, (from, to): (&Border, &Border)) -> Result<(), DbmError> {
    let count = page.count();
    let inside = count == 0
        || from.as_deref().is_none_or(|from| from <= page.key(0))
            && to.as_deref().is_none_or(|to| page.key(count - 1) < to);
    if inside {
        return Ok(());
    }
    let what = format!(
        "page {} of a tree has keys that belong elsewhere",
        page.id()
    );
    Err(DbmError::damaged(0, what))
}

/// A key between two pages; `None` at the ends of a tree.
pub(crate) type Border = Option<Vec<u8>>;
/// The lowest key of a page, and the first one beyond it.
pub(crate) type Borders = (Border, Border);

/// The children of an inner page, each with its borders.
pub(crate) fn children(page: &Page, (from, to): &Borders) -> Vec<(u32, Borders)> {
    let count = page.count();
    let border = |nth: usize| match nth {
        0 => from.clone(),
        nth if nth > count => to.clone(),
        nth => Some(page.key(nth - 1).to_vec()),
    };
    let child = |nth| (page.child(nth), (border(nth), border(nth + 1)));
    (0..=count).map(child).collect()
}

/// A leaf on a reader's path, and the keys that belong to it.
pub(crate) struct Found {
    pub page: Arc<Page>,
    pub from: Border,
    pub to: Border,
}

impl Pages {
    /// The leaf of `key` as of a commit; with `below`, the leaf of the keys just below it. Without
    /// a key: the first leaf, or, with `below`, the last. Its keys lie within its borders, so a
    /// scan that goes from border to border gets each key once.
    pub fn find(
        &self,
        commit: u64,
        root: u32,
        key: Option<&[u8]>,
        below: bool,
    ) -> Result<Found, DbmError> {
        let mut found = Found {
            page: self.page_at(root, commit)?,
            from: None,
            to: None,
        };
        while found.page.level() > 0 {
            let page = &found.page;
            let nth = match key {
                Some(key) => page.child_for(key, below),
                None if below => page.count(),
                None => 0,
            };
            if nth > 0 {
                found.from = Some(page.key(nth - 1).to_vec());
            }
            if nth < page.count() {
                found.to = Some(page.key(nth).to_vec());
            }
            let child = self.page_at(page.child(nth), commit)?;
            check_level(&child, Some(page.level()))?;
            check_borders(&child, (&found.from, &found.to))?;
            found.page = child;
        }
        Ok(found)
    }

    /// The value of a key as of a commit.
    pub fn value_at(
        &self,
        commit: u64,
        root: u32,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, DbmError> {
        let leaf = self.leaf(commit, root, key)?;
        match leaf.search(key) {
            Ok(nth) => self.value(&leaf, nth).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The leaf of a key, without its borders.
    fn leaf(&self, commit: u64, root: u32, key: &[u8]) -> Result<Arc<Page>, DbmError> {
        let mut page = self.page_at(root, commit)?;
        while page.level() > 0 {
            let child = self.page_at(page.child(page.child_for(key, false)), commit)?;
            check_level(&child, Some(page.level()))?;
            page = child;
        }
        Ok(page)
    }
}
