// SPDX-License-Identifier: Apache-2.0
//! Write buffers: RAM before the translation layer. A buffer absorbs overwrites and chooses the
//! pages that leave, and their order.
//!
//! A buffer knows only page numbers. It fills an [`Outgoing`] with the pages that leave, in the
//! order of writing; the drive moves the data.
//!
//! Always holds, for every buffer:
//! - BUFFER-1: a written page is either held ([`Buffer::contains`]) or has left as [`Leave::Dirty`]
//!   since its last write, unless it was trimmed.
//! - BUFFER-2: a page leaves as dirty only if it was held and dirty, and is no longer dirty
//!   afterwards. Pads ([`Leave::Pad`]) name pages that are not held dirty.
//! - BUFFER-3: it holds no more pages than its capacity.

use crate::Error;
use crate::geometry::Lpn;
use crate::spec::{Part, Spec, parts};

// Page and block numbers to places, pages by logical block.
mod groups;
mod table;
mod blockwise; // the common part of buffers that evict whole blocks

// The buffers, one file each.
mod bplru;
mod cflru;
mod fab;
mod lb_clock;
mod lru;
mod none;
mod pud_lru;
mod rent;
mod seldom;
mod adaptive; // the buffer that chooses among them

/// How a page leaves a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The buffer writes its contents to the flash.
    Dirty,
    /// The flash's own contents are read and written again, to complete a block. If the flash has
    /// none, nothing is done.
    Pad,
}

/// Pages that leave a buffer, in the order of writing.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    /// Pages, each with what to do.
    pub pages: Vec<(Lpn, Leave)>,
}

impl Outgoing {
    /// Evicts a dirty page.
    pub fn dirty(&mut self, lpn: Lpn) {
        self.pages.push((lpn, Leave::Dirty));
    }

    /// Pads a page.
    pub fn pad(&mut self, lpn: Lpn) {
        self.pages.push((lpn, Leave::Pad));
    }
}

pub trait Buffer: Send {
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether every written page leaves at once, as if there were no buffer.
    fn passes_through(&self) -> bool {
        false
    }

    /// Whether it holds this page. The call does not affect which pages leave.
    fn contains(&self, lpn: Lpn) -> bool;

    /// Takes a written page. Returns whether it held a dirty copy before, which saves a write to
    /// the flash. Pages that make room for it go to `out`.
    fn write(&mut self, lpn: Lpn, out: &mut Outgoing) -> bool;

    /// The host reads a page. Returns whether the buffer holds it.
    fn read(&mut self, lpn: Lpn) -> bool;

    /// The host read a page from the flash that was not here. A buffer that also caches reads may
    /// keep it.
    fn read_from_flash(&mut self, _lpn: Lpn, _out: &mut Outgoing) {}

    /// Forgets a page, unwritten.
    fn trim(&mut self, lpn: Lpn);

    /// Evicts everything dirty, in the buffer's own order. Clean pages may stay.
    fn drain(&mut self, out: &mut Outgoing);

    /// RAM for the buffer's own tables, in bytes, beyond the pages' contents.
    fn table_bytes(&self) -> u64;
}

/// The facts of the drive that a buffer may know.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Pages that the buffer may hold.
    pub capacity: usize,
    pub pages_per_block: u32,
    /// Logical pages: 0 to this.
    pub logical_pages: u32,
    /// The translation layer below, with its options. Only the adaptive buffer uses this.
    pub ftl: Spec,
}

type Make = fn(&mut Spec, &Surroundings) -> Result<Box<dyn Buffer>, Error>;

/// Every buffer, in the order in which they are listed to users.
pub static ALL: &[Part<Make>] = &parts! {
    "none", none::make, &[],
        "each page goes to the flash as it comes";
    "lru", lru::make, &["touch-reads=false", "fill-reads=false"],
        "the page that was written longest ago leaves";
    "fab", fab::make, &[],
        "the logical block with the most pages leaves";
    "cflru", cflru::make, &["window=0.5"],
        "LRU that holds read pages too and lets them go first";
    "bplru", bplru::make, &["padding=true", "compensation=true"],
        "LRU by logical block, made whole from the flash";
    "lb-clock", lb_clock::make, &["padding=false", "sequential=true"],
        "a clock over logical blocks; the largest that was not written lately leaves";
    "pud-lru", pud_lru::make, &["padding=false", "runs=true", "memory=1", "threshold=1"],
        "logical blocks by how often and how lately they were written; the largest of the seldom written leaves";
    "rent", rent::make, &["power=2", "uses=0", "gaps=false", "padding=false"],
        "the logical block that has taken the most room for the longest leaves";
    "seldom", seldom::make, &[],
        "the logical block whose last write lies back the farthest, against how often it was written, leaves";
    "adaptive", adaptive::make, &[],
        "does what would cost the fewest erases lately, by ghosts of the other policies and of the layer below";
};

/// Builds the buffer that a specification names. Also returns the specification with the options
/// that differ from their defaults.
///
/// # Errors
/// If there is no such buffer or option.
pub fn build(spec: &Spec, around: &Surroundings) -> Result<(Box<dyn Buffer>, Spec), Error> {
    let part = Part::find(ALL, spec, "write buffer")?;
    if around.capacity == 0 && part.name != "none" {
        return Err(Error::Spec(format!(
            "the write buffer {} needs RAM, and the drive has none for it: set buffer_bytes, or use none",
            part.name
        )));
    }
    let mut spec = spec.clone();
    let buffer = (part.make)(&mut spec, around)?;
    Ok((buffer, spec.finish(part.options)?))
}
