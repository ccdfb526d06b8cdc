// SPDX-License-Identifier: Apache-2.0
//! Unused page buffers. Each changed page is a copy, and each page that is read needs memory. The
//! buffer released last is still in the processor's cache.
//!
//! SPARE-1: a page here has no other owner.

use std::sync::Arc;

use senko_io::PAGE_SIZE;

use crate::pages::node::Page;
use crate::sync::Mutex;

/// Most pages that are kept: as many as a commit of a hundred random updates copies and releases.
const MOST: usize = 128;

#[derive(Default)]
pub(crate) struct Spare(Mutex<Vec<Arc<Page>>>);

impl Spare {
    /// Keeps a page for reuse, if nothing else holds it.
    pub fn give(&self, page: Arc<Page>) {
        if Arc::strong_count(&page) == 1 {
            let mut spare = self.0.lock();
            if spare.len() < MOST {
                spare.push(page);
            }
        }
    }

    /// A page with these bytes.
    pub fn filled(&self, bytes: &[u8; PAGE_SIZE]) -> Arc<Page> {
        let mut spare = self.0.lock().pop();
        match spare.as_mut().and_then(Arc::get_mut) {
            Some(page) => page.fill(bytes),
            None => return Arc::new(Page::of(bytes)),
        }
        spare.expect("it was filled")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_without_owners_is_filled_again() {
        let spare = Spare::default();
        let first = spare.filled(Page::new(1, 0).bytes());
        let reader = Arc::clone(&first);
        spare.give(first);
        let second = spare.filled(Page::new(2, 0).bytes());
        assert_eq!((reader.id(), second.id()), (1, 2));
        let at = Arc::as_ptr(&second);
        spare.give(second);
        let third = spare.filled(Page::new(3, 0).bytes());
        assert_eq!((Arc::as_ptr(&third), third.id()), (at, 3));
        let many: Vec<_> = (0..200).map(|id| Arc::new(Page::new(id, 0))).collect();
        many.into_iter().for_each(|page| spare.give(page));
        assert_eq!(spare.0.lock().len(), MOST);
    }
}
