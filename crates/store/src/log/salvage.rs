// SPDX-License-Identifier: Apache-2.0
//! The readable part of a log with damaged pages. Called by `verify` and `repair`; an undamaged log
//! is opened with [`super::Log::replay`].
//!
//! Elements are followed from page to page as in a replay. If a page is damaged and a later one
//! says that the page was durable, reading continues at the first element that begins in the next
//! intact page. If no page says so, the log may have ended there. Pages after it could be remains
//! of a crash, which no reader ever saw again, and stay there.

use std::ops::Range;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::element::{Element, MORE};
use crate::{Extent, StoreError};

use super::page::{PageHeader, UNKNOWN};
use super::stream::{Assembler, Spot, Visitor};

/// What [`salvage`] met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Elements that were given.
    pub elements: u64,
    /// Runs of pages of the log that are lost, counted from its first; none in a sound log.
    pub lost: Vec<Range<u32>>,
}

impl Salvaged {
    /// The bytes of the file that are lost, of a log in `extent`.
    pub fn lost_bytes(&self, extent: Extent) -> impl Iterator<Item = Range<u64>> {
        let offset = move |page| (extent.first + u64::from(page)) * PAGE_SIZE as u64;
        self.lost
            .iter()
            .map(move |run| offset(run.start)..offset(run.end))
    }
}

/// Keeps the elements of a batch until it is whole, or its rest is lost.
struct Batch<'a> {
    encoded: Vec<u8>,
    ready: bool,
    each: &'a mut dyn FnMut(&Element<'_>) -> Result<(), StoreError>,
    elements: u64,
    /// What `each` said.
    failed: Option<StoreError>,
}

impl Batch<'_> {
    fn give(&mut self) -> Result<(), StoreError> {
        let mut at = 0;
        while at < self.encoded.len() {
            let (element, taken) =
                Element::decode(&self.encoded[at..]).expect("it was encoded here");
            (self.each)(&element)?;
            self.elements += 1;
            at += taken;
        }
        self.encoded.clear();
        self.ready = false;
        Ok(())
    }
}

impl Visitor for Batch<'_> {
    fn element(&mut self, _: Spot, element: &Element<'_>) -> Result<(), StoreError> {
        if self.ready
            && let Err(error) = self.give()
        {
            self.failed = Some(error.clone());
            return Err(error);
        }
        let flags = element.flags & !MORE;
        Element { flags, ..*element }.encode(&mut self.encoded);
        Ok(())
    }

    fn whole(&mut self) {
        self.ready = true;
    }

    fn void(&mut self) {
        if !self.ready {
            self.encoded.clear();
        }
    }
}

/// Reads page `number`; a page that cannot be read is not intact.
fn read(
    device: &dyn Device,
    id: u64,
    extent: Extent,
    number: u32,
    buf: &mut [u8],
) -> Option<PageHeader> {
    let page = extent.first + u64::from(number);
    let tag = Tag::store(Purpose::Recover);
    device.read(page, buf, tag).ok()?;
    PageHeader::read(buf, id, number)
}

/// Gives every intact element of the log to `each`, in the order of appending; of batches that
/// damage cut, what is left of them. The log is known to have had `known` pages. Fails only where
/// `each` does, or where the device has no such extent.
pub fn salvage(
    device: &dyn Device,
    id: u64,
    extent: Extent,
    known: u32,
    each: &mut dyn FnMut(&Element<'_>) -> Result<(), StoreError>,
) -> Result<Salvaged, StoreError> {
    super::check_extent(device, extent)?;
    let mut buf = AlignedBuf::new(1);
    let mut durable = known.min(extent.pages);
    for number in 0..extent.pages {
        let header = read(device, id, extent, number, &mut buf);
        if let Some(header) = header.filter(|header| header.behind != UNKNOWN) {
            durable = durable.max(number.saturating_sub(u32::from(header.behind)));
        }
    }
    let mut batch = Batch {
        encoded: Vec::new(),
        ready: false,
        each,
        elements: 0,
        failed: None,
    };
    let mut assembler = Assembler::new(id, extent);
    let mut lost: Vec<Range<u32>> = Vec::new();
    for number in 0..extent.pages {
        let header = read(device, id, extent, number, &mut buf);
        let behind_a_gap = lost.last().is_some_and(|run| run.end == number);
        let fits = header.filter(|header| {
            assembler.fits(header) || behind_a_gap && assembler.may_resume(header)
        });
        let taken = fits.is_some_and(|header| {
            if behind_a_gap {
                assembler.resume(number, &header);
            }
            // Elements that cannot be are damage like any other.
            assembler.page(&header, &buf, &mut batch).is_ok()
        });
        if let Some(error) = batch.failed.take() {
            return Err(error);
        }
        if !taken {
            if number >= durable {
                break;
            }
            if !behind_a_gap {
                // The part of a batch before the damage.
                batch.give()?;
                assembler.lose();
                lost.push(number..number);
            }
            if let Some(run) = lost.last_mut() {
                run.end = number + 1;
            }
        }
    }
    assembler.void(&mut batch);
    if batch.ready {
        batch.give()?;
    }
    Ok(Salvaged {
        elements: batch.elements,
        lost,
    })
}
