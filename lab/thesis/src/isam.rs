// SPDX-License-Identifier: Apache-2.0
//! ISAM: elements are appended in the order of their arrival, and DRAM has a table from keys to
//! places.
//!
//! *Idea*: writes are in order, a get is one read. DRAM holds at least key and place of every
//! element, 12 bytes: 1.2 % of elements of 1000 bytes. *Source*: paper A, 4.2.1, figure 26 (and
//! FlashStore, SkimpyStash). *Deviations*: the table has open addresses and is a quarter empty, so
//! that it takes 16 bytes an element. Writes wait until `chunk` pages are full.

use anyhow::{Context, Result, ensure};
use senko_io::{AlignedBuf, Device, Engine, PAGE_SIZE, Purpose, Tag};

use crate::Wanted;
use crate::slot::{self, PER_PAGE, SLOT};

const TAG: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Admit,
};

/// Appended elements with their table.
pub struct Isam<'d> {
    device: &'d dyn Device,
    /// Key and place + 1; a place of 0 is free.
    keys: Vec<u64>,
    places: Vec<u32>,
    chunk: AlignedBuf,
    appended: u64,
    /// Pages on the device.
    durable: u64,
    read: AlignedBuf,
    /// Requests to write.
    pub writes: u64,
    /// Requests to read.
    pub reads: u64,
}

impl<'d> Isam<'d> {
    /// Without elements, for at most `elements`; a write has `chunk` pages.
    ///
    /// # Panics
    /// If there is room for 2^32 elements or more.
    pub fn new(device: &'d dyn Device, elements: u64, chunk: usize) -> Isam<'d> {
        assert!(elements < u64::from(u32::MAX), "places have 32 bits");
        let room = (elements + elements.div_ceil(3)) as usize + 1;
        Isam {
            device,
            keys: vec![0; room],
            places: vec![0; room],
            chunk: AlignedBuf::new(chunk),
            appended: 0,
            durable: 0,
            read: AlignedBuf::new(1),
            writes: 0,
            reads: 0,
        }
    }

    /// The entry that has a key, or the free one where it would go.
    fn entry(&self, wanted: &Wanted) -> usize {
        let room = self.keys.len();
        let key = u64::from_le_bytes(wanted.key);
        let mut at = ((u128::from(wanted.hash.order) * room as u128) >> 64) as usize;
        while self.places[at] != 0 && self.keys[at] != key {
            at = (at + 1) % room;
        }
        at
    }

    /// Appends an element. It is durable once its chunk is full.
    pub fn put(&mut self, wanted: &Wanted) -> Result<()> {
        let place = self.appended;
        ensure!(
            place / PER_PAGE < self.device.pages() && (place as usize) < self.keys.len() - 1,
            "there is no room for another element"
        );
        let entry = self.entry(wanted);
        self.keys[entry] = u64::from_le_bytes(wanted.key);
        self.places[entry] = place as u32 + 1;
        let at = (place - self.durable * PER_PAGE) as usize * SLOT;
        slot::fill(&mut self.chunk[at..at + SLOT], wanted);
        self.appended += 1;
        if at + SLOT == self.chunk.len() {
            self.flush()?;
        }
        Ok(())
    }

    /// Makes durable what was appended; the last page is filled up with empty slots.
    pub fn flush(&mut self) -> Result<()> {
        let slots = self.appended - self.durable * PER_PAGE;
        let bytes = slots.div_ceil(PER_PAGE) as usize * PAGE_SIZE;
        if bytes == 0 {
            return Ok(());
        }
        self.chunk[slots as usize * SLOT..bytes].fill(0);
        self.device
            .write_durable(self.durable, &self.chunk[..bytes], TAG)
            .context("the flash file cannot be written")?;
        self.writes += 1;
        self.durable += (bytes / PAGE_SIZE) as u64;
        self.appended = self.durable * PER_PAGE;
        Ok(())
    }

    /// The value of a key, read from the device.
    /// Another key where the table points to is an error.
    pub fn get(&mut self, wanted: &Wanted) -> Result<Option<&[u8]>> {
        let Some(place) = self.places[self.entry(wanted)].checked_sub(1) else {
            return Ok(None);
        };
        let (page, at) = (
            u64::from(place) / PER_PAGE,
            u64::from(place) % PER_PAGE * SLOT as u64,
        );
        let from = if page < self.durable {
            self.reads += 1;
            self.device
                .read(page, &mut self.read, TAG)
                .context("the flash file cannot be read")?;
            &self.read[at as usize..]
        } else {
            &self.chunk[(page - self.durable) as usize * PAGE_SIZE + at as usize..]
        };
        let slot = &from[..SLOT];
        ensure!(
            slot::key(slot)? == Some(wanted.key),
            "another element lies where the table says"
        );
        Ok(Some(slot::value(slot)))
    }

    /// The table's DRAM, in bytes.
    pub fn dram_bytes(&self) -> u64 {
        self.keys.len() as u64 * 12
    }
}
