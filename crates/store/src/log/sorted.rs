// SPDX-License-Identifier: Apache-2.0
//! Elements in DRAM, in the order of a sorted block: the whole log, as the input of a seal and of a
//! scan, or what a repair has gathered.
//!
//! The log is read once, from its first page to its last; the bytes of its elements and 16 bytes
//! more for each are kept.

use senko_io::{PAGE_SIZE, Purpose, Tag};

use crate::element::{Element, ExtentRef, MORE};
use crate::{KeyHash, StoreError};

use super::Log;
use super::page::PageHeader;
use super::stream::{Assembler, Spot, Visitor, read_pages};

#[derive(Clone, Copy)]
struct Place {
    order: u64,
    check: u32,
    at: u32,
}

impl Place {
    fn hash(&self) -> KeyHash {
        KeyHash {
            order: self.order,
            check: self.check,
        }
    }
}

/// Elements that are gathered and then sorted.
#[derive(Default)]
pub struct SortedElements {
    encoded: Vec<u8>,
    places: Vec<Place>,
}

impl SortedElements {
    fn with_capacity(bytes: usize, elements: usize) -> SortedElements {
        SortedElements {
            encoded: Vec::with_capacity(bytes),
            places: Vec::with_capacity(elements),
        }
    }

    /// Adds an element; less than 4 GiB of them fit.
    pub(crate) fn push(&mut self, hash: KeyHash, element: &Element<'_>) {
        let KeyHash { order, check } = hash;
        let at = self.encoded.len() as u32;
        self.places.push(Place { order, check, at });
        element.encode(&mut self.encoded);
    }

    /// Sorts by (order, check, key), and each key's elements from the youngest to the oldest. Of
    /// two of one key in one batch, the later comes first.
    pub(crate) fn sort(&mut self) {
        let element = |place: &Place| Element::of_encoded(&self.encoded[place.at as usize..]);
        self.places.sort_unstable_by(|a, b| {
            a.hash().cmp(&b.hash()).then_with(|| {
                let (one, other) = (element(a), element(b));
                (one.key, other.time, b.at).cmp(&(other.key, one.time, a.at))
            })
        });
    }

    /// Bytes of the elements.
    pub(crate) fn bytes(&self) -> usize {
        self.encoded.len()
    }

    /// Forgets all elements.
    pub(crate) fn clear(&mut self) {
        self.encoded.clear();
        self.places.clear();
    }

    /// The element with a number, in the order of [`SortedElements::iter`].
    pub fn get(&self, nth: usize) -> Option<(KeyHash, Element<'_>)> {
        self.places.get(nth).map(|place| self.at(place))
    }

    /// The elements in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (KeyHash, Element<'_>)> {
        self.places.iter().map(|place| self.at(place))
    }

    fn at(&self, place: &Place) -> (KeyHash, Element<'_>) {
        let element = Element::of_encoded(&self.encoded[place.at as usize..]);
        (place.hash(), element)
    }
}

/// Collects what a walk meets.
struct Collect<'a> {
    log: &'a Log,
    elements: SortedElements,
    /// Elements of whole batches.
    whole: usize,
}

impl Visitor for Collect<'_> {
    fn element(&mut self, _: Spot, element: &Element<'_>) -> Result<(), StoreError> {
        let flags = element.flags & !MORE;
        let hash = self.log.hasher.hash(element.key);
        self.elements.push(hash, &Element { flags, ..*element });
        Ok(())
    }

    fn whole(&mut self) {
        self.whole = self.elements.places.len();
    }

    fn void(&mut self) {
        self.elements.places.truncate(self.whole);
    }
}

impl Log {
    /// Where the large values lie that its elements name. Reads the log, unless it has none.
    pub fn large(&self) -> Result<Vec<ExtentRef>, StoreError> {
        if !self.index.has_large() {
            return Ok(Vec::new());
        }
        let sorted = self.sorted()?;
        let large = sorted.iter().filter(|(_, element)| element.is_large());
        large
            .map(|(_, element)| {
                ExtentRef::decode(element.value).ok_or_else(|| {
                    let offset = self.extent.first * PAGE_SIZE as u64;
                    StoreError::damaged(offset, "a log's reference to a large value cannot be read")
                })
            })
            .collect()
    }

    /// All elements of the log, sorted, in DRAM. Goes together with appends; what is appended
    /// meanwhile is in it or not, batch by batch.
    pub fn sorted(&self) -> Result<SortedElements, StoreError> {
        let (written, unwritten) = {
            let tail = self.tail.read();
            (tail.written(), tail.unwritten())
        };
        let bytes = written as usize * PAGE_SIZE + unwritten.len();
        let mut collect = Collect {
            log: self,
            elements: SortedElements::with_capacity(bytes, self.elements() as usize),
            whole: 0,
        };
        let mut assembler = Assembler::new(self.id, self.extent);
        let mut take = |page: &[u8]| {
            let number = assembler.next();
            let header = PageHeader::read(page, self.id, number).filter(|h| assembler.fits(h));
            let Some(header) = header else {
                let what = format!(
                    "log {}: page {number} is not what was written there",
                    self.id
                );
                return Err(StoreError::damaged(assembler.offset(number), what));
            };
            assembler.page(&header, page, &mut collect)
        };
        let tag = Tag::store(Purpose::Reclaim);
        read_pages(&*self.device, self.extent, written, tag, |_, page| {
            take(page).map(|()| true)
        })?;
        unwritten.chunks_exact(PAGE_SIZE).try_for_each(take)?;
        assembler.void(&mut collect);
        collect.void();
        collect.elements.sort();
        Ok(collect.elements)
    }
}
