// SPDX-License-Identifier: Apache-2.0
//! Flash translation layers: they decide where a logical page lies, and what has to move for it.
//!
//! Each layer is a file that opens with its card. [`build`] makes one from a specification such as
//! `bast:log-blocks=16`.
//!
//! Always holds, for every layer:
//! - FTL-1: [`Ftl::locate`] names the page that was programmed last for a logical page, or none if
//!   it was never written or was trimmed since.
//! - FTL-2: each [`Ftl::write`] programs exactly one page under [`Cause::Host`]; all other programs
//!   have another cause.
//! - FTL-3: no write fails. A layer whose logical pages, log blocks and reserve do not fit is
//!   refused when it is made.
//! - FTL-4: after a power cut at any operation, [`Ftl::recover`] uses only the spare areas to make
//!   a state in which FTL-1 holds for every page whose program was done. A trim may be undone by a
//!   power cut.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::geometry::{Lpn, Ppn};
use crate::nand::{Cause, Nand};
use crate::spec::{Part, Spec, parts};
use crate::{Error, Time};

mod free; // the pool of erased blocks that several layers use

pub use free::FreeBlocks;

mod page; // the page-level layer: each page may lie anywhere
mod zns; // zones, written in order
mod logs; // the common parts of layers of block granularity: data blocks and merges
mod block; // block-level mapping
mod bast; // BAST: log blocks, each for one data block
mod fast; // FAST: log blocks that all logical blocks share
mod faster; // FASTer: FAST with a second chance
mod superblock; // superblocks: adjacent blocks in which pages may lie anywhere
mod last; // LAST: log blocks by locality
mod cmt; // DFTL's cached mapping table
mod dftl; // DFTL: page-level, with the map on the flash

pub trait Ftl: Send {
    /// Writes a page; returns when it is on the flash.
    fn write(&mut self, nand: &mut Nand, lpn: Lpn, stream: u16, at: Time) -> Time;

    /// Writes pages one after the other in no time, like [`Ftl::write`], for runs that measure only
    /// write amplification.
    fn write_many(&mut self, nand: &mut Nand, lpns: &[Lpn], stream: u16) {
        for lpn in lpns {
            self.write(nand, *lpn, stream, 0);
        }
    }

    /// Reads a page; returns its place, if it was ever written, and when the data is here.
    fn read(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> (Option<Ppn>, Time) {
        match self.locate(lpn) {
            Some(page) => (Some(page), nand.read(page, at, Cause::Host)),
            None => (None, at),
        }
    }

    fn trim(&mut self, nand: &mut Nand, lpn: Lpn, at: Time) -> Time;

    /// Forgets pages one after the other in no time, like [`Ftl::trim`].
    fn trim_many(&mut self, nand: &mut Nand, lpns: Range<Lpn>) {
        for lpn in lpns {
            self.trim(nand, lpn, 0);
        }
    }

    /// Does one step of background work; returns its end, or `None` if there is none to do.
    fn idle(&mut self, _nand: &mut Nand, _at: Time) -> Option<Time> {
        None
    }

    /// Where a page lies now, without reading or counting anything.
    fn locate(&self, lpn: Lpn) -> Option<Ppn>;

    /// Forgets all volatile state and restores it from the spare areas, after a power cut.
    /// [`Nand::keep_sequence`] must have been on from the start.
    fn recover(&mut self, nand: &mut Nand);

    /// Its work beyond operations on the flash.
    fn counts(&self) -> FtlCounts;

    /// The size of its tables.
    fn mapping(&self) -> Mapping;
}

/// A layer's work, in the terms of layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FtlCounts {
    /// Merges in which a log block became the data block.
    pub switch_merges: u64,
    /// Merges that completed a log block from its data block.
    pub partial_merges: u64,
    /// Merges that wrote a new data block.
    pub full_merges: u64,
    pub gc_blocks: u64,
    pub gc_pages: u64,
    pub map_lookups: u64,
    /// Look-ups that found the entry there.
    pub map_hits: u64,
    /// Pages of the host that went to a cache of single-level blocks.
    pub slc_pages: u64,
    /// Blocks of that cache that were folded.
    pub folded_blocks: u64,
    /// Pages that were moved for that.
    pub folded_pages: u64,
}

senko_io::counters! {
    FtlCounts: switch_merges partial_merges full_merges gc_blocks gc_pages map_lookups map_hits
        slc_pages folded_blocks folded_pages
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    /// In RAM, with entries of whole bits, in bits.
    pub bits: u64,
    /// The same with entries of exactly as many bits as their number of states needs, including
    /// fractions (paper A's table 2).
    pub fractional_bits: f64,
    /// On flash, in bytes.
    pub flash_bytes: u64,
}

impl Mapping {
    /// A table of `entries`, each of which names one of `states`.
    pub fn table(entries: u64, states: u64) -> Self {
        let bits = (states.max(2) as f64).log2();
        Self {
            bits: entries * bits.ceil() as u64,
            fractional_bits: entries as f64 * bits,
            flash_bytes: 0,
        }
    }

    pub fn and(self, other: Self) -> Self {
        Self {
            bits: self.bits + other.bits,
            fractional_bits: self.fractional_bits + other.fractional_bits,
            flash_bytes: self.flash_bytes + other.flash_bytes,
        }
    }
}

/// A layer that was built, or why it can't be.
type Made = Result<Box<dyn Ftl>, Error>;
type Make = fn(&mut Spec, &Nand, u32) -> Made;

/// Every layer, in the order in which they are listed to users.
pub static ALL: &[Part<Make>] = &parts! {
    page::NAME, page::make, page::OPTIONS,
        "each page anywhere, with garbage collection; host streams";
    zns::NAME, zns::make, &["blocks=4"],
        "zones: written in order, reset by trimming all of one; a write elsewhere rewrites the zone";
    block::NAME, block::make, &[],
        "block-level mapping; an overwrite replaces the block";
    bast::NAME, bast::make, &["log-blocks=16", "victim=lru", "rules=paper"],
        "log blocks, each for one data block (Kim et al. 2002)";
    fast::NAME, fast::make, &["log-blocks=16"],
        "one sequential log block, random ones shared by all (Lee et al. 2007)";
    faster::NAME, faster::make, &["log-blocks=16", "isolation-blocks=log-blocks/4"],
        "FAST with a second chance for valid pages (Lim et al. 2010)";
    superblock::NAME, superblock::make, &["log-blocks=16", "size=4"],
        "adjacent blocks whose pages lie freely within (Kang et al. 2006)";
    last::NAME, last::make, &["log-blocks=16", "sequential-blocks=log-blocks/4", "hot-blocks=log-blocks/4", "threshold=8"],
        "sequential, hot and cold log blocks (Lee et al. 2008)";
    dftl::NAME, dftl::make, &["cmt-bytes=65536"],
        "page-level mapping on the flash, cached in RAM (Gupta et al. 2009)";
};

/// Builds the layer that a specification names, for `logical_pages`, on erased flash. Also returns
/// the specification with all options.
///
/// # Errors
/// If there is no such layer or option, or the layer does not fit on the flash.
pub fn build(spec: &Spec, nand: &Nand, logical_pages: u32) -> Result<(Box<dyn Ftl>, Spec), Error> {
    let part = Part::find(ALL, spec, "translation layer")?;
    let mut spec = spec.clone();
    let ftl = (part.make)(&mut spec, nand, logical_pages)?;
    Ok((ftl, spec.finish(part.options)?))
}
