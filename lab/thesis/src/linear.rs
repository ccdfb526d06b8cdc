// SPDX-License-Identifier: Apache-2.0
//! A hash table on the device: an element is where its hash says, or in the next free slot.
//!
//! *Idea*: nothing is in DRAM. Each slot of a search is a read, and each put one write. *Source*:
//! paper A, 4.2.3, figures 30 and 31, table 6. *Deviation*: the thesis reads a slot's header
//! through the page cache. Here every read goes to the device.
//!
//! A good hash needs (1 + 1 / (1 - a)^2) / 2 slots to put an element into a table that is full to a
//! share of a (Knuth, volume 3, 6.4): [`expected_slots`].

use anyhow::{Context, Result};
use senko_io::{AlignedBuf, Device, Engine, Purpose, Tag};

use crate::Wanted;
use crate::slot::{self, PER_PAGE, SLOT};

const TAG: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Admit,
};

/// Average slots that a put reads, in a table of this fill (0 to below 1).
///
/// ```
/// let slots = senko_thesis::linear::expected_slots(0.5);
/// assert!((slots - 2.5).abs() < 1e-9);
/// ```
pub fn expected_slots(fill: f64) -> f64 {
    0.5 * (1.0 + 1.0 / (1.0 - fill).powi(2))
}

pub struct Table<'d> {
    device: &'d dyn Device,
    slots: u64,
    taken: u64,
    buf: AlignedBuf,
    /// Slots that were searched, each by a read of its page.
    pub reads: u64,
    /// Pages written, each durable before the next.
    pub writes: u64,
}

impl<'d> Table<'d> {
    /// A table without elements, on a device that reads as zeros.
    ///
    /// # Panics
    /// If `slots` is 0 or more than the device holds.
    pub fn new(device: &'d dyn Device, slots: u64) -> Table<'d> {
        assert!(slots > 0 && slots.div_ceil(PER_PAGE) <= device.pages());
        Table {
            device,
            slots,
            taken: 0,
            buf: AlignedBuf::new(1),
            reads: 0,
            writes: 0,
        }
    }

    /// The share of slots that are taken.
    pub fn fill(&self) -> f64 {
        self.taken as f64 / self.slots as f64
    }

    /// Reads the page of a slot; the slot's place in the buffer, and its key.
    fn look(&mut self, slot: u64) -> Result<(usize, Option<[u8; 8]>)> {
        self.reads += 1;
        self.device
            .read(slot / PER_PAGE, &mut self.buf, TAG)
            .context("the flash file cannot be read")?;
        let at = (slot % PER_PAGE) as usize * SLOT;
        Ok((at, slot::key(&self.buf[at..at + SLOT])?))
    }

    /// The slot of a key: its number, its place in the buffer, whether the key is there. Without
    /// the key it is the first free slot, if there is one.
    fn find(&mut self, wanted: &Wanted) -> Result<Option<(u64, usize, bool)>> {
        let home = ((u128::from(wanted.hash.order) * u128::from(self.slots)) >> 64) as u64;
        for step in 0..self.slots {
            let slot = (home + step) % self.slots;
            match self.look(slot)? {
                (at, None) => return Ok(Some((slot, at, false))),
                (at, Some(key)) if key == wanted.key => return Ok(Some((slot, at, true))),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Puts an element, durably; returns false when the table is full.
    pub fn put(&mut self, wanted: &Wanted) -> Result<bool> {
        let Some((slot, at, known)) = self.find(wanted)? else {
            return Ok(false);
        };
        slot::fill(&mut self.buf[at..at + SLOT], wanted);
        self.device
            .write_durable(slot / PER_PAGE, &self.buf, TAG)
            .context("the flash file cannot be written")?;
        self.writes += 1;
        self.taken += u64::from(!known);
        Ok(true)
    }

    /// The value of a key.
    pub fn get(&mut self, wanted: &Wanted) -> Result<Option<&[u8]>> {
        Ok(match self.find(wanted)? {
            Some((_, at, true)) => Some(slot::value(&self.buf[at..at + SLOT])),
            _ => None,
        })
    }
}
