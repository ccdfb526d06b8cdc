// SPDX-License-Identifier: Apache-2.0
//! Changes the trees, one batch of commits at a time, on copies that are not published yet.
//!
//! A root keeps its number forever: when it is full, its content moves to a new page below it. So a
//! table's record in the catalogue does not change, and a page that moves or splits changes one
//! parent.
//!
//! TREE-1: each page of a tree but the root has exactly one parent. TREE-2: the keys below child n
//! lie from separator n (inclusive) to n + 1. TREE-3: a child's level is its parent's less one.
//! Every way down checks that ([`check_level`]), so that also a forged tree has an end.

use std::sync::Arc;

use crate::error::DbmError;
use crate::pages::Pages;
use crate::pages::lookup::{check_level, out_of_order};
use crate::pages::mapping::Ids;
use crate::pages::node::{MAX_LEVEL, Page};
use crate::records::blob::Blob;
use crate::writer::touched::{Leaf, Touched};

/// A page with fewer bytes looks for a neighbour to merge with.
const SMALL: usize = crate::pages::node::ROOM / 4;
/// Two pages merge if the result leaves room.
const MERGED: usize = crate::pages::node::ROOM * 3 / 4;

/// The pages while a batch changes them.
pub(crate) struct Batch<'a> {
    read: &'a Pages,
    pub ids: &'a mut Ids,
    touched: &'a mut Touched,
}

/// The path to a page: its ancestors, each with the child that was taken.
type Path = Vec<(u32, usize)>;

impl<'a> Batch<'a> {
    /// `touched` is what the previous batch left ([`Touched::clear`]).
    pub fn new(read: &'a Pages, ids: &'a mut Ids, touched: &'a mut Touched) -> Batch<'a> {
        Batch { read, ids, touched }
    }

    fn page(&mut self, id: u32) -> Result<&mut Page, DbmError> {
        use std::collections::hash_map::Entry;
        match self.touched.pages.entry(id) {
            Entry::Occupied(entry) => Ok(Arc::make_mut(entry.into_mut())),
            Entry::Vacant(entry) => {
                // Readers have the page, so it is copied.
                let page = match self.touched.tip.take_if(|tip| tip.id() == id) {
                    Some(tip) => tip,
                    None => self.read.page_at(id, u64::MAX)?,
                };
                let copy = self.read.copy(&page);
                Ok(Arc::make_mut(entry.insert(copy)))
            }
        }
    }

    /// A page's contents, without a copy if it is unchanged.
    fn look<T>(&self, id: u32, work: impl FnOnce(&Page) -> T) -> Result<T, DbmError> {
        let tip = || self.touched.tip.as_ref().filter(|tip| tip.id() == id);
        match self.touched.pages.get(&id).or_else(tip) {
            Some(page) => Ok(work(page)),
            None => Ok(work(&*self.read.page_at(id, u64::MAX)?)),
        }
    }

    /// A new tree.
    pub fn root(&mut self) -> u32 {
        let id = self.ids.take();
        self.touched.pages.insert(id, Arc::new(Page::new(id, 0)));
        self.touched.shaped.insert(id);
        id
    }

    /// The leaf of a key. If requested, `border` gets the first key that belongs after the leaf.
    fn leaf_for(
        &self,
        root: u32,
        key: &[u8],
        mut border: Option<&mut Option<Vec<u8>>>,
    ) -> Result<(Path, Leaf), DbmError> {
        let mut path = Path::new();
        let leaf = self.descend(root, key, |id, nth, page| {
            if let Some(border) = &mut border
                && nth < page.count()
            {
                **border = Some(page.key(nth).to_vec());
            }
            path.push((id, nth));
        })?;
        Ok((path, leaf))
    }

    /// The leaf of a key. `step` gets each page above it, and the child that was taken.
    fn descend(
        &self,
        root: u32,
        key: &[u8],
        mut step: impl FnMut(u32, usize, &Page),
    ) -> Result<Leaf, DbmError> {
        let (mut id, mut is_last, mut above) = (root, true, None);
        loop {
            let down = self.look(id, |page| {
                check_level(page, above.replace(page.level()))?;
                if page.level() == 0 {
                    return Ok(None);
                }
                let nth = page.child_for(key, false);
                is_last &= nth == page.count();
                step(id, nth, page);
                Ok(Some(page.child(nth)))
            })??;
            match down {
                Some(child) => id = child,
                None => return Ok(Leaf { id, is_last }),
            }
        }
    }

    /// Whether a key is known to belong to a leaf, without reading the pages above it.
    fn fits(&self, leaf: Leaf, key: &[u8]) -> Result<bool, DbmError> {
        self.look(leaf.id, |page| {
            let count = page.count();
            count > 0 && page.key(0) <= key && (leaf.is_last || key <= page.key(count - 1))
        })
    }

    fn drop_blob(&mut self, reference: &[u8]) {
        if let Some(blob) = Blob::parse(reference) {
            self.touched.freed_blobs.push((blob.first, blob.parts()));
        }
    }

    /// Puts a record; true if the key is new.
    pub fn put(
        &mut self,
        root: u32,
        key: &[u8],
        value: &[u8],
        long: bool,
    ) -> Result<bool, DbmError> {
        // Ascending keys stay on the leaf of the previous one.
        let leaf = match self.touched.last.take() {
            Some((of, leaf)) if of == root && self.fits(leaf, key)? => leaf,
            _ => self.descend(root, key, |_, _, _| ())?,
        };
        let (new, done) = self.put_on(leaf.id, key, value, long)?;
        if done {
            self.touched.last = Some((root, leaf));
            return Ok(new);
        }
        let (mut path, leaf) = self.leaf_for(root, key, None)?;
        let mut id = leaf.id;
        while !self.split_and_insert(&mut path, id, key, value, long)? {
            // A record of another shape than a dense leaf's may need more than its half.
            let leaf;
            (path, leaf) = self.leaf_for(root, key, None)?;
            id = leaf.id;
        }
        Ok(new)
    }

    /// Puts a record on its leaf. Returns whether the key is new, and whether there was room.
    fn put_on(
        &mut self,
        id: u32,
        key: &[u8],
        value: &[u8],
        long: bool,
    ) -> Result<(bool, bool), DbmError> {
        let page = self.page(id)?;
        let found = page.search(key);
        let mut old = None;
        let mut done = false;
        if let Ok(nth) = found {
            let (value_before, was_long) = page.value(nth);
            old = was_long.then(|| value_before.to_vec());
            done = page.overwrite(nth, value, long);
            if !done {
                page.remove(nth);
            }
        }
        let (Ok(nth) | Err(nth)) = found;
        done = done || page.insert(nth, key, value, long);
        if let Some(reference) = old {
            self.drop_blob(&reference);
        }
        Ok((found.is_err(), done))
    }

    /// Splits a page without room for a cell, and puts the cell on the half where it belongs. False
    /// if there is no room on that half either.
    fn split_and_insert(
        &mut self,
        path: &mut Path,
        id: u32,
        key: &[u8],
        value: &[u8],
        long: bool,
    ) -> Result<bool, DbmError> {
        self.touched.last = None;
        let mut id = id;
        if path.is_empty() {
            // The root stays in its place, and its contents move down.
            let below = self.ids.take();
            let root = self.page(id)?;
            let level = root.level() + 1;
            if level > MAX_LEVEL {
                return Err(DbmError::damaged(0, "a tree has too many levels"));
            }
            let mut content = std::mem::replace(root, Page::new(id, level));
            root.set_first_child(below);
            content.set_id(below);
            self.touched.pages.insert(below, Arc::new(content));
            self.touched.shaped.insert(id);
            path.push((id, 0));
            id = below;
        }
        let right_id = self.ids.take();
        let page = self.page(id)?;
        let mut right = Page::new(right_id, page.level());
        let (Ok(nth) | Err(nth)) = page.search(key);
        let separator;
        let mut fits = true;
        if nth == page.count() {
            // Ascending keys: the left page stays full.
            separator = key.to_vec();
            if page.level() == 0 {
                right.insert(0, key, value, long);
            } else {
                right.set_first_child(u32::from_le_bytes(value.try_into().expect("a child")));
            }
        } else {
            let middle = page.middle();
            separator = page.key(middle).to_vec();
            if page.level() == 0 {
                page.move_cells(middle, &mut right);
            } else {
                right.set_first_child(page.child(middle + 1));
                page.move_cells(middle + 1, &mut right);
            }
            page.truncate(middle);
            let half = if *key < *separator {
                &mut *page
            } else {
                &mut right
            };
            let (Ok(nth) | Err(nth)) = half.search(key);
            fits = half.insert(nth, key, value, long);
            assert!(
                fits || half.level() == 0,
                "NODE-2: a cell fits on the half of an inner page"
            );
        }
        self.touched.pages.insert(right_id, Arc::new(right));
        self.touched.shaped.extend([id, right_id]);
        let (parent, _) = path.pop().expect("only the root has no parent");
        let child = right_id.to_le_bytes();
        self.touched.shaped.insert(parent);
        let page = self.page(parent)?;
        let (Ok(nth) | Err(nth)) = page.search(&separator);
        if !page.insert(nth, &separator, &child, false) {
            self.split_and_insert(path, parent, &separator, &child, false)?;
        }
        Ok(fits)
    }

    /// Deletes a key; true if it was there.
    pub fn delete(&mut self, root: u32, key: &[u8]) -> Result<bool, DbmError> {
        let (mut path, leaf) = self.leaf_for(root, key, None)?;
        let Ok(nth) = self.look(leaf.id, |page| page.search(key))? else {
            return Ok(false);
        };
        self.remove_cells(leaf.id, nth, nth + 1)?;
        self.shrink(&mut path, leaf.id)?;
        Ok(true)
    }

    fn remove_cells(&mut self, id: u32, from: usize, to: usize) -> Result<(), DbmError> {
        let mut long = Vec::new();
        let page = self.page(id)?;
        for nth in (from..to).rev() {
            if let (reference, true) = page.value(nth) {
                long.push(reference.to_vec());
            }
            page.remove(nth);
        }
        for reference in long {
            self.drop_blob(&reference);
        }
        Ok(())
    }

    /// Deletes a range; returns the number of its records.
    pub fn delete_range(
        &mut self,
        root: u32,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<u64, DbmError> {
        let mut removed = 0;
        let mut at = from.to_vec();
        loop {
            let mut border = None;
            let (mut path, leaf) = self.leaf_for(root, &at, Some(&mut border))?;
            let (first, end) = self.look(leaf.id, |page| {
                let (Ok(first) | Err(first)) = page.search(&at);
                let end = match to {
                    Some(to) => {
                        let (Ok(end) | Err(end)) = page.search(to);
                        end
                    }
                    None => page.count(),
                };
                (first, end)
            })?;
            if first < end {
                removed += (end - first) as u64;
                self.remove_cells(leaf.id, first, end)?;
                self.shrink(&mut path, leaf.id)?;
            }
            match border {
                Some(next) if next <= at => return Err(out_of_order()),
                Some(next) if to.is_none_or(|to| *next < *to) => at = next,
                _ => return Ok(removed),
            }
        }
    }

    pub fn drop_tree(&mut self, root: u32) -> Result<(), DbmError> {
        self.delete_range(root, b"", None)?;
        self.free(root);
        Ok(())
    }

    fn free(&mut self, id: u32) {
        self.touched.last = None;
        self.touched.pages.remove(&id);
        self.touched.shaped.remove(&id);
        self.touched.freed.push(id);
    }

    /// After a removal: an empty page is removed, a small one merges with a neighbour.
    fn shrink(&mut self, path: &mut Path, id: u32) -> Result<(), DbmError> {
        self.touched.last = None;
        let (used, count, level) = self.look(id, |p| (p.used(), p.count(), p.level()))?;
        let Some((parent, nth)) = path.pop() else {
            if level > 0 && count == 0 {
                self.lower_root(id)?;
            }
            return Ok(());
        };
        if used >= SMALL {
            return Ok(());
        }
        let siblings = self.look(parent, Page::count)?;
        // The pair to merge: this page and the next, or the previous one and this.
        let left = if nth < siblings {
            nth
        } else {
            nth.wrapping_sub(1)
        };
        if left < siblings && self.merge(parent, left)? {
            return self.shrink(path, parent);
        }
        Ok(())
    }

    /// Merges child `left` of `parent` with the next one, if they fit on one page.
    fn merge(&mut self, parent: u32, left: usize) -> Result<bool, DbmError> {
        let (a, b, separator) = self.look(parent, |page| {
            (
                page.child(left),
                page.child(left + 1),
                page.key(left).to_vec(),
            )
        })?;
        let above = self.look(parent, Page::level)?;
        let right = self.look(b, Page::clone)?;
        check_level(&right, Some(above))?;
        self.look(a, |page| check_level(page, Some(above)))??;
        let (used_a, level) = self.look(a, |page| (page.used(), page.level()))?;
        let (used_b, used) = (right.used(), self.look(a, |page| page.used_with(&right))?);
        let extra = if level > 0 { separator.len() + 10 } else { 0 };
        // An empty page may fill its neighbour completely.
        let most = if used_a == 0 || used_b == 0 {
            crate::pages::node::ROOM
        } else {
            MERGED
        };
        if used + extra > most {
            return Ok(false);
        }
        let page = self.page(a)?;
        if level > 0 {
            let child = right.child(0).to_le_bytes();
            let fits = page.insert(page.count(), &separator, &child, false);
            debug_assert!(fits, "merged pages leave room");
        }
        right.move_cells(0, page);
        self.page(parent)?.remove(left);
        self.touched.shaped.extend([a, parent]);
        self.free(b);
        Ok(true)
    }

    /// A root with one child takes over that child's contents.
    fn lower_root(&mut self, root: u32) -> Result<(), DbmError> {
        let (child, level) = self.look(root, |page| (page.child(0), page.level()))?;
        let mut content = self.look(child, Page::clone)?;
        check_level(&content, Some(level))?;
        content.set_id(root);
        let again = content.level() > 0 && content.count() == 0;
        self.touched.pages.insert(root, Arc::new(content));
        self.touched.shaped.insert(root);
        self.free(child);
        if again {
            return self.lower_root(root);
        }
        Ok(())
    }
}
