// SPDX-License-Identifier: Apache-2.0
//! Recovery of leaves that a checkpoint did not write (`checkpoint.rs`): applies the commits up to
//! the checkpoint's to those leaves that lack them. Called by `open.rs`.
//!
//! CATCHUP-1: the trees have the shape of the checkpoint's commit, and a leaf that lacks a commit
//! has had its place in the tree since before that commit. So the current leaf of a change's key is
//! the leaf that got the change, or it is newer than the change. CATCHUP-2: a leaf has the same
//! records as after each of these commits, so it neither overflows nor merges.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::core::Core;
use crate::disk::entry::commit_of;
use crate::error::DbmError;
use crate::pages::Pages;
use crate::pages::lookup::out_of_order;
use crate::pages::mapping::Version;
use crate::pages::node::Page;
use crate::records::changes::Change;
use crate::records::table::Catalogue;

/// Applies the changes of a commit before the checkpoint to the leaves that lack them. Tables,
/// counts and long values are already as of the checkpoint.
pub(crate) fn catch_up(core: &Core, commit: u64, changes: &[Change<'_>]) -> Result<(), DbmError> {
    let mut writer = core.writer.lock();
    let mut late = Late {
        pages: &core.pages,
        commit,
        catalogue: writer.visible().catalogue,
        leaves: FxHashMap::default(),
    };
    for change in changes {
        late.change(change)?;
    }
    for (id, page) in late.leaves {
        let Some(page) = page else { continue };
        let version = Version::new(id, commit, Some(page), None, core.pages.dram());
        core.pages.set(id, Some(Arc::new(version)));
        writer.changed.page(id, false);
    }
    core.room.set_changed(writer.changed.counts());
    core.pages.evict();
    Ok(())
}

/// Leaves that a commit changes.
struct Late<'a> {
    pages: &'a Pages,
    commit: u64,
    catalogue: Arc<Catalogue>,
    /// `None`: it has the commit.
    leaves: FxHashMap<u32, Option<Arc<Page>>>,
}

impl Late<'_> {
    fn change(&mut self, change: &Change<'_>) -> Result<(), DbmError> {
        match *change {
            Change::Put(table, key, value) => self.put(table, key, value, false),
            Change::PutLong(table, key, blob) => self.put(table, key, &blob.encode(), true),
            Change::Delete(table, key) => {
                let Some((leaf, _)) = self.leaf(table, key)? else {
                    return Ok(());
                };
                if let Some(page) = leaf
                    && let Ok(nth) = page.search(key)
                {
                    page.remove(nth);
                }
                Ok(())
            }
            Change::DeleteRange(table, from, to) => self.delete_range(table, from, to),
            Change::CreateTable(..) | Change::DropTable(_) => Ok(()),
        }
    }

    /// The leaf of a key, if it lacks the commit, and the first key after the leaf. `None` if the
    /// checkpoint has no such table.
    #[allow(clippy::type_complexity)]
    fn leaf(
        &mut self,
        table: u32,
        key: &[u8],
    ) -> Result<Option<(Option<&mut Page>, Option<Vec<u8>>)>, DbmError> {
        let Ok(nth) = self.catalogue.binary_search_by_key(&table, |t| t.id) else {
            return Ok(None);
        };
        let root = self.catalogue[nth].root;
        let found = self.pages.find(u64::MAX, root, Some(key), false)?;
        let id = found.page.id();
        let leaf = match self.leaves.entry(id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let version = self.pages.newest(id);
                let has = match version.map_or(0, |version| version.commit) {
                    0 => commit_of(found.page.bytes()),
                    commit => commit,
                };
                entry.insert((has < self.commit).then(|| Arc::clone(&found.page)))
            }
        };
        Ok(Some((leaf.as_mut().map(Arc::make_mut), found.to)))
    }

    fn put(&mut self, table: u32, key: &[u8], value: &[u8], long: bool) -> Result<(), DbmError> {
        let Some((Some(page), _)) = self.leaf(table, key)? else {
            return Ok(());
        };
        let found = page.search(key);
        if let Ok(nth) = found {
            if page.overwrite(nth, value, long) {
                return Ok(());
            }
            page.remove(nth);
        }
        let (Ok(nth) | Err(nth)) = found;
        if page.insert(nth, key, value, long) {
            return Ok(());
        }
        let what = format!(
            "page {} has no room for what it held (CATCHUP-2)",
            page.id()
        );
        Err(DbmError::damaged(0, what))
    }

    fn delete_range(&mut self, table: u32, from: &[u8], to: Option<&[u8]>) -> Result<(), DbmError> {
        let mut at = from.to_vec();
        loop {
            let Some((leaf, behind)) = self.leaf(table, &at)? else {
                return Ok(());
            };
            if let Some(page) = leaf {
                let (Ok(first) | Err(first)) = page.search(&at);
                let end = to.map_or(page.count(), |to| {
                    let (Ok(end) | Err(end)) = page.search(to);
                    end
                });
                for nth in (first..end).rev() {
                    page.remove(nth);
                }
            }
            match behind {
                Some(next) if next <= at => return Err(out_of_order()),
                Some(next) if to.is_none_or(|to| *next < *to) => at = next,
                _ => return Ok(()),
            }
        }
    }
}
