// SPDX-License-Identifier: Apache-2.0
//! The combined block structure as a system: blocks are young when they are closed, and later
//! become sorted blocks.
//!
//! *Idea*: elements arrive in young blocks, whose pages have a map in DRAM. When there are too many
//! young blocks, the oldest is read back, sorted and written again, without a map. So DRAM holds
//! page maps of the young blocks alone. One Bloom Filter Map finds the block. *Source*: paper A,
//! 6.2, figure 39 (young blocks unsorted, sorted ones with scattered headers), and chapter 9 (young
//! blocks are hash tables, sorted ones have their index at the head). A young block may be closed
//! early, at two thirds, when memory is short (9.2). *Deviations*: a young block is filled in
//! memory and written once; an early block becomes a sorted one of two thirds of the pages.
//!
//! ```text
//!   put -> Young (map of pages in DRAM) --older than `most_young`--> read, sort, write -> Sorted
//! ```
//!
//! SYSTEM-1: each element lies in exactly one block, before and after that block is sorted.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use anyhow::{Result, ensure};
use senko_io::Device;
use senko_store::index::Candidates;

use crate::bloom::BlockBloom;
use crate::hashed::{self, Hashed, Sized};
use crate::sorted::{self, Head, Scattered, SortedFile};
use crate::unsorted::{self, Unsorted};
use crate::{BlockIndex, Geometry, Keys, Layout, Place, Reader, Wanted, page};

/// The layout of young blocks, with the bits of the page map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Young {
    /// In the order of arrival.
    Unsorted(u32),
    /// As hash tables, with a map that is sized for a part of the elements.
    Hashed(u32, Sized),
}

/// How sorted blocks are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Old {
    /// By the headers of their pages.
    Scattered,
    /// By the index at their head.
    Head,
}

/// A system's settings.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Young blocks.
    pub young: Young,
    /// Sorted blocks.
    pub old: Old,
    /// The number of blocks that stay young.
    pub most_young: usize,
    /// The share of a block that is filled, above 0 and at most 1.
    pub fill: f64,
    /// Bits of the map over blocks, an element.
    pub bits: u32,
}

/// The cost of putting all elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Bytes written, both times.
    pub written: u64,
    /// Bytes read back to be sorted.
    pub read: u64,
    pub seconds: f64,
    /// Blocks that became sorted.
    pub sorted: u64,
}

/// Blocks, their maps, and where they lie.
pub struct System {
    blocks: Vec<Box<dyn Layout>>,
    /// The first element of each block, and after the last.
    starts: Vec<u64>,
    young: usize,
    index: BlockBloom,
    pub cost: Cost,
    /// The device page after the last block.
    pub end: u64,
}

/// A young block, until it is sorted.
struct Waiting {
    number: usize,
    geometry: Geometry,
}

impl System {
    /// Puts all elements of `geometry` in order, from the device's first page on.
    /// Lost elements are an error.
    pub fn fill(device: &dyn Device, keys: &Keys, geometry: &Geometry, kind: Kind) -> Result<Self> {
        ensure!(
            kind.fill > 0.0 && kind.fill <= 1.0,
            "a block is filled to a share above 0 and at most 1"
        );
        let start = Instant::now();
        let each = ((geometry.per_block() as f64 * kind.fill) as u64).max(1);
        let count = geometry.elements.div_ceil(each) as usize;
        let stride = geometry.block_bytes() / senko_io::PAGE_SIZE as u64;
        // Young blocks take turns on the places at the front. There is one more place, since a
        // block is sorted while the next one exists.
        let mut free: Vec<u64> = (0..=kind.most_young as u64)
            .map(|nth| nth * stride)
            .collect();
        let mut system = System {
            blocks: Vec::with_capacity(count),
            starts: vec![0],
            young: 0,
            index: BlockBloom::new(each, count as u32, kind.bits),
            cost: Cost::default(),
            end: free.len() as u64 * stride,
        };
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        for number in 0..count {
            let first = number as u64 * each;
            let place = free.pop().expect("a place is free");
            let one = Geometry {
                elements: each.min(geometry.elements - first),
                first_element: first,
                first_page: place,
                ..*geometry
            };
            for element in one.members(0) {
                system.index.insert(&keys.wanted(element), number as u32);
            }
            system
                .blocks
                .push(write_young(device, keys, &one, kind.young)?);
            system.cost.written += one.block_bytes();
            system.starts.push(first + one.elements);
            waiting.push_back(Waiting {
                number,
                geometry: one,
            });
            if waiting.len() > kind.most_young {
                let oldest = waiting.pop_front().expect("there are several");
                system.sort(device, keys, &oldest, kind.old)?;
                free.push(oldest.geometry.first_page);
            }
        }
        system.young = waiting.len();
        system.cost.seconds = start.elapsed().as_secs_f64();
        Ok(system)
    }

    /// Reads a young block back and writes it sorted (SYSTEM-1).
    fn sort(&mut self, device: &dyn Device, keys: &Keys, old: &Waiting, how: Old) -> Result<()> {
        let young = &old.geometry;
        let mut reader = Reader::new(device, young.page_bytes);
        let mut found = 0;
        for number in 0..young.block_pages {
            let at = young.first_page + u64::from(number) * young.device_pages();
            found += u64::from(page::header(reader.page(at)?, number)?.count);
        }
        ensure!(
            found == young.elements,
            "a young block has {found} elements, and {} were put",
            young.elements
        );
        let geometry = Geometry {
            block_pages: young.elements.div_ceil(young.per_page() as u64) as u32,
            first_page: self.end,
            ..*young
        };
        let pages = sorted::file_bytes(&geometry) / senko_io::PAGE_SIZE as u64;
        ensure!(
            self.end + pages <= device.pages(),
            "the flash file has no room for another sorted block"
        );
        let (file, built) = SortedFile::write(device, keys, &geometry)?;
        self.end += pages;
        self.cost.read += reader.counts.bytes;
        self.cost.written += built.written;
        self.cost.sorted += 1;
        self.blocks[old.number] = match how {
            Old::Scattered => Box::new(Scattered::cold(file)),
            Old::Head => Box::new(Head(file)),
        };
        Ok(())
    }

    /// The elements that lie in young blocks, and those in sorted ones.
    pub fn parts(&self) -> (Range<u64>, Range<u64>) {
        let first = self.starts[self.blocks.len() - self.young];
        let all = *self.starts.last().expect("there is a start");
        (first..all, 0..first)
    }
}

/// Writes a young block.
fn write_young(
    device: &dyn Device,
    keys: &Keys,
    one: &Geometry,
    young: Young,
) -> Result<Box<dyn Layout>> {
    Ok(match young {
        Young::Unsorted(bits) => {
            unsorted::write(device, keys, one)?;
            Box::new(Unsorted::new("young", keys, one, bits))
        }
        Young::Hashed(bits, sized) => {
            let (file, _) = hashed::write(device, keys, one)?;
            Box::new(Hashed::new("young", keys, &file, bits, sized))
        }
    })
}

impl BlockIndex for System {
    fn candidates(&self, wanted: &Wanted, out: &mut Candidates) {
        self.index.candidates(wanted, out);
    }

    fn dram_bytes(&self) -> u64 {
        self.index.dram_bytes()
    }
}

/// A system under the name of a row of results. Its page maps count here; the map over blocks
/// counts in the index.
pub struct Named<'s>(pub &'static str, pub &'s System);

impl Layout for Named<'_> {
    fn name(&self) -> &'static str {
        self.0
    }

    fn look(&self, block: u32, wanted: &Wanted, reader: &mut Reader<'_>) -> Result<Place> {
        self.1.blocks[block as usize].look(0, wanted, reader)
    }

    fn dram_bytes(&self) -> u64 {
        self.1.blocks.iter().map(|block| block.dram_bytes()).sum()
    }
}
