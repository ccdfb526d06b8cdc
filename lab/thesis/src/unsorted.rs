// SPDX-License-Identifier: Apache-2.0
//! The unsorted block: elements in the order of their arrival, and a Bloom Filter Map over its
//! pages in DRAM.
//!
//! *Idea*: a block that is written once from front to back; the page map, of 16 or 24 bits an
//! element, names the pages that may hold a key, and each is read whole. *Source*: paper A, 6.2 and
//! 7.2. *Deviation*: none. The order is the same for every block size, so one file serves them all.

use std::time::Instant;

use anyhow::Result;
use senko_io::Device;

use crate::bloom::PageMap;
use crate::page::PageWriter;
use crate::{Built, Geometry, Keys, Layout, Place, Reader, Sequential, Wanted};

/// Blocks in append order.
pub struct Unsorted {
    name: &'static str,
    geometry: Geometry,
    pages: Vec<PageMap>,
}

pub fn file_bytes(geometry: &Geometry) -> u64 {
    u64::from(geometry.blocks()) * geometry.block_bytes()
}

/// Writes all elements in order.
pub fn write(device: &dyn Device, keys: &Keys, geometry: &Geometry) -> Result<Built> {
    let start = Instant::now();
    let mut out = Sequential::new(device, geometry.page_bytes, geometry.first_page);
    let per_page = geometry.per_page() as u64;
    let pages = u64::from(geometry.blocks()) * u64::from(geometry.block_pages);
    for number in 0..pages {
        // The number continues over blocks, since the same file is cut into blocks of several
        // sizes.
        let mut page = PageWriter::new(out.page()?, number as u32)?;
        for element in number * per_page..((number + 1) * per_page).min(geometry.elements) {
            let element = geometry.first_element + element;
            let wanted = keys.wanted(element);
            page.put(
                wanted.hash.order,
                &wanted.key,
                element,
                geometry.value_bytes,
            )?;
        }
        page.finish();
    }
    Ok(Built {
        written: out.finish()?,
        seconds: start.elapsed().as_secs_f64(),
    })
}

impl Unsorted {
    /// Builds the page maps of what [`write()`] wrote, at `bits` bits an element.
    pub fn new(name: &'static str, keys: &Keys, geometry: &Geometry, bits: u32) -> Unsorted {
        let positions = geometry.per_page() as u64 * u64::from(bits);
        let per_page = geometry.per_page() as u64;
        let pages = (0..geometry.blocks())
            .map(|block| {
                let mut map = PageMap::new(geometry.block_pages, positions, bits);
                let members = geometry.members(block);
                for number in members.clone() {
                    let page = (number - members.start) / per_page;
                    map.insert(&keys.wanted(number), page as u32);
                }
                map
            })
            .collect();
        Unsorted {
            name,
            geometry: *geometry,
            pages,
        }
    }
}

impl Layout for Unsorted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn look(&self, block: u32, wanted: &Wanted, reader: &mut Reader<'_>) -> Result<Place> {
        let first = block * self.geometry.block_pages;
        for page in self.pages[block as usize].candidates(wanted) {
            let number = first + page;
            let at = u64::from(number) * self.geometry.device_pages();
            let at = self.geometry.first_page + at;
            if let Some(found) = reader.find(at, number, &wanted.key)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn dram_bytes(&self) -> u64 {
        self.pages.iter().map(PageMap::bytes).sum()
    }
}
