// SPDX-License-Identifier: Apache-2.0
//! The superblock and the manifest: the parts of the store, one commit switches them to the next
//! state.
//!
//! The superblock lies in the file's first unit, in two slots of two equal pages each; commit
//! number n goes to slot n mod 2, so that a torn write leaves the previous state. It names the
//! manifest, its own extent with the lists of blocks and logs. A commit writes the manifest to a
//! new place, flushes, writes the slot, flushes (MANIFEST-1: everything that a superblock names is
//! durable before the superblock). The extents that only the previous state named are free once the
//! commit has returned (SPACE-1).
//!
//! Each slot has two equal pages, to distinguish damage from a torn write. A torn write happened
//! before any space of the old state was reused, so the other slot is right. If a single page goes
//! bad later, its twin is still whole.

use senko_io::le::{u32_at, u64_at};
use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::block::BlockRecord;
use crate::disk::mark;
use crate::disk::space::{Held, Space};
use crate::disk::wear::Wear;
use crate::extent::{Extent, UNIT_PAGES};
use crate::index::IndexKind;
use crate::{Options, StoreError};
use std::ops::Range;
use std::sync::Arc;

/// First bytes of a superblock page.
pub(crate) const MAGIC: &[u8; 8] = b"SENKOKV\0";

/// Version of everything on flash.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// Pages of each slot: two copies, far apart.
const COPIES: [[u64; 2]; 2] = [[0, 8], [4, 12]];

const META: Tag = Tag::store(Purpose::Meta);

/// A log as the manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogRecord {
    /// The log's number, which no other log or block has.
    pub id: u64,
    /// The log's extent.
    pub extent: Extent,
    /// Pages that were durable at the last clean close, or later. If the log ends earlier,
    /// something was lost. 0: unknown.
    pub pages: u32,
}

/// The maps that a clean close saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SavedIndex {
    pub extent: Extent,
    pub bytes: u64,
    pub crc: u32,
}

/// The parts of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manifest {
    /// The next number for a log or block.
    pub next_id: u64,
    /// No element's time is above this, except those of elements in logs.
    pub last_time: u64,
    /// Blocks, each with its elements that were live when last counted.
    pub blocks: Vec<(BlockRecord, u64)>,
    /// Logs, oldest first.
    pub logs: Vec<LogRecord>,
    /// Valid only after a clean close.
    pub index: Option<SavedIndex>,
    /// Free parts of the file that may have no storage: first unit and units.
    pub holes: Vec<(u64, u64)>,
}

const HEADER_BYTES: usize = 64;
const BLOCK_BYTES: usize = BlockRecord::BYTES + 8;
const LOG_BYTES: usize = 24;
const HOLE_BYTES: usize = 16;

impl Manifest {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        out.extend_from_slice(&self.next_id.to_le_bytes());
        out.extend_from_slice(&self.last_time.to_le_bytes());
        out.extend_from_slice(&(self.blocks.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.logs.len() as u32).to_le_bytes());
        let index = self.index.unwrap_or_default();
        out.extend_from_slice(&index.extent.first.to_le_bytes());
        out.extend_from_slice(&index.bytes.to_le_bytes());
        out.extend_from_slice(&index.extent.pages.to_le_bytes());
        out.extend_from_slice(&index.crc.to_le_bytes());
        out.extend_from_slice(&(self.holes.len() as u32).to_le_bytes());
        out.resize(HEADER_BYTES, 0);
        for (record, live) in &self.blocks {
            out.extend_from_slice(&record.encode());
            out.extend_from_slice(&live.to_le_bytes());
        }
        for log in &self.logs {
            out.extend_from_slice(&log.id.to_le_bytes());
            out.extend_from_slice(&log.extent.first.to_le_bytes());
            out.extend_from_slice(&log.extent.pages.to_le_bytes());
            out.extend_from_slice(&log.pages.to_le_bytes());
        }
        for (first, units) in &self.holes {
            out.extend_from_slice(&(first * UNIT_PAGES).to_le_bytes());
            out.extend_from_slice(&(units * UNIT_PAGES).to_le_bytes());
        }
        out
    }

    fn encoded_len(&self) -> usize {
        HEADER_BYTES
            + self.blocks.len() * BLOCK_BYTES
            + self.logs.len() * LOG_BYTES
            + self.holes.len() * HOLE_BYTES
    }

    fn decode(bytes: &[u8]) -> Option<Manifest> {
        let header = bytes.get(..HEADER_BYTES)?;
        let (blocks, logs) = (u32_at(header, 16) as usize, u32_at(header, 20) as usize);
        let index = SavedIndex {
            extent: Extent::new(u64_at(header, 24), u32_at(header, 40)),
            bytes: u64_at(header, 32),
            crc: u32_at(header, 44),
        };
        let logs_at = HEADER_BYTES.checked_add(blocks.checked_mul(BLOCK_BYTES)?)?;
        // It is 0 in manifests of version 1.
        let holes = u32_at(header, 48) as usize;
        let holes_at = logs_at.checked_add(logs.checked_mul(LOG_BYTES)?)?;
        if bytes.len() != holes_at.checked_add(holes.checked_mul(HOLE_BYTES)?)? {
            return None;
        }
        let blocks = bytes[HEADER_BYTES..logs_at]
            .chunks_exact(BLOCK_BYTES)
            .map(|entry| {
                let record = entry[..BlockRecord::BYTES].try_into().ok()?;
                let record = BlockRecord::decode(record).ok()?;
                Some((record, u64_at(entry, BlockRecord::BYTES)))
            });
        let holes = bytes[holes_at..].chunks_exact(HOLE_BYTES).map(|entry| {
            let (first, pages) = (u64_at(entry, 0), u64_at(entry, 8));
            (first / UNIT_PAGES, pages / UNIT_PAGES)
        });
        let logs = bytes[logs_at..holes_at]
            .chunks_exact(LOG_BYTES)
            .map(|entry| LogRecord {
                id: u64_at(entry, 0),
                extent: Extent::new(u64_at(entry, 8), u32_at(entry, 16)),
                pages: u32_at(entry, 20),
            });
        Some(Manifest {
            next_id: u64_at(header, 0),
            last_time: u64_at(header, 8),
            blocks: blocks.collect::<Option<_>>()?,
            logs: logs.collect(),
            index: (index.extent.pages > 0).then_some(index),
            holes: holes.collect(),
        })
    }
}

/// The settings that are fixed when a store is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub secret: [u8; 16],
    pub page_bytes: u32,
    pub keep_versions: u32,
    pub block_bytes: u64,
    pub log_bytes: u64,
    pub inline_max: u32,
    pub index: IndexKind,
    pub fingerprint_bits: u32,
}

impl Shape {
    /// The shape that `options` request.
    pub fn of(options: &Options, secret: [u8; 16]) -> Shape {
        Shape {
            secret,
            page_bytes: options.page_bytes as u32,
            keep_versions: options.keep_versions,
            block_bytes: options.block_bytes,
            log_bytes: options.log_bytes,
            inline_max: options.inline_max as u32,
            index: options.index,
            fingerprint_bits: options.fingerprint_bits,
        }
    }

    /// `options`, with the fixed settings taken from this shape.
    pub fn apply(&self, options: Options) -> Options {
        Options {
            page_bytes: self.page_bytes as usize,
            keep_versions: self.keep_versions,
            block_bytes: self.block_bytes,
            log_bytes: self.log_bytes,
            inline_max: self.inline_max as usize,
            index: self.index,
            fingerprint_bits: self.fingerprint_bits,
            ..options
        }
    }
}

/// Where the manifest lies, according to a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    sequence: u64,
    shape: Shape,
    extent: Extent,
    bytes: u32,
    crc: u32,
    wear: [u8; Wear::BYTES],
}

const WEAR: Range<usize> = 96..96 + Wear::BYTES;
const CRC_AT: usize = 12;

impl Slot {
    fn encode(&self, page: &mut [u8]) {
        page.fill(0);
        let shape = &self.shape;
        page[0..8].copy_from_slice(MAGIC);
        page[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        page[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        page[24..40].copy_from_slice(&shape.secret);
        page[40..44].copy_from_slice(&shape.page_bytes.to_le_bytes());
        page[44..48].copy_from_slice(&shape.keep_versions.to_le_bytes());
        page[48..56].copy_from_slice(&shape.block_bytes.to_le_bytes());
        page[56..64].copy_from_slice(&shape.log_bytes.to_le_bytes());
        page[64..68].copy_from_slice(&shape.inline_max.to_le_bytes());
        page[68] = shape.index.byte();
        page[69] = shape.fingerprint_bits as u8;
        page[72..80].copy_from_slice(&self.extent.first.to_le_bytes());
        page[80..84].copy_from_slice(&self.extent.pages.to_le_bytes());
        page[84..88].copy_from_slice(&self.bytes.to_le_bytes());
        page[88..92].copy_from_slice(&self.crc.to_le_bytes());
        page[WEAR].copy_from_slice(&self.wear);
        let crc = crc32c::crc32c(page);
        page[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes an intact page; `Err` for a page of another version.
    fn decode(page: &[u8]) -> Result<Option<Slot>, StoreError> {
        let found = crc32c::crc32c(&page[..CRC_AT]);
        let found = crc32c::crc32c_append(found, &[0; 4]);
        let found = crc32c::crc32c_append(found, &page[CRC_AT + 4..]);
        if &page[0..8] != MAGIC || found != u32_at(page, CRC_AT) {
            return Ok(None);
        }
        let version = u32_at(page, 8);
        if version > FORMAT_VERSION {
            return Err(StoreError::NewerVersion {
                found: version,
                known: FORMAT_VERSION,
            });
        }
        let mut secret = [0; 16];
        secret.copy_from_slice(&page[24..40]);
        let mut wear = [0; Wear::BYTES];
        wear.copy_from_slice(&page[WEAR]);
        let Some(index) = IndexKind::from_byte(page[68]) else {
            return Ok(None);
        };
        Ok(Some(Slot {
            sequence: u64_at(page, 16),
            shape: Shape {
                secret,
                page_bytes: u32_at(page, 40),
                keep_versions: u32_at(page, 44),
                block_bytes: u64_at(page, 48),
                log_bytes: u64_at(page, 56),
                inline_max: u32_at(page, 64),
                index,
                fingerprint_bits: u32::from(page[69]),
            },
            extent: Extent::new(u64_at(page, 72), u32_at(page, 80)),
            bytes: u32_at(page, 84),
            crc: u32_at(page, 88),
            wear,
        }))
    }
}

/// The state of one of the four copies of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyState {
    /// The copy is intact.
    Whole,
    /// It cannot be read, or its checksum is wrong.
    Broken,
    /// The copy is intact, but its version is unknown.
    Newer(u32),
}

/// The copies with their pages, and the shape that the newest intact copy has. For `verify` and
/// `repair`, which continue where an opening stops.
pub(crate) fn copies(device: &dyn Device) -> (Vec<(u64, CopyState)>, Option<Shape>) {
    let mut best: Option<Slot> = None;
    let mut found = Vec::with_capacity(4);
    for &copy in COPIES.as_flattened() {
        let state = match read_copy(device, copy).and_then(|page| Slot::decode(&page)) {
            Ok(Some(slot)) => {
                if best.is_none_or(|best| slot.sequence > best.sequence) {
                    best = Some(slot);
                }
                CopyState::Whole
            }
            Err(StoreError::NewerVersion { found, .. }) => CopyState::Newer(found),
            Ok(None) | Err(_) => CopyState::Broken,
        };
        found.push((copy, state));
    }
    (found, best.map(|slot| slot.shape))
}

fn read_copy(device: &dyn Device, copy: u64) -> Result<AlignedBuf, StoreError> {
    let mut page = AlignedBuf::new(1);
    device
        .read(copy, &mut page, Tag::store(Purpose::Recover))
        .map_err(StoreError::io("reading the superblock"))?;
    Ok(page)
}

/// The contents of a device.
pub(crate) enum OnDevice {
    /// Only zeros where a superblock would be, or a superblock whose creation was interrupted.
    /// Nothing was acknowledged.
    Nothing,
    Store(Superblock, Box<Manifest>),
}

/// The state of commits.
pub(crate) struct Superblock {
    pub shape: Shape,
    sequence: u64,
    /// Where the manifest of the durable state lies; not yet claimed after [`Superblock::find`].
    place: Extent,
    held: Option<Held>,
    /// Where the next manifest will lie, usually where the previous one did. So a store without any
    /// free space can still commit that it gives space up.
    next: Option<Held>,
    /// The manifest of a commit that failed.
    doubtful: Option<Held>,
    /// Each commit keeps these counts.
    wear: Arc<Wear>,
}

impl Superblock {
    fn new(shape: Shape, sequence: u64, place: Extent, wear: Wear) -> Superblock {
        Superblock {
            shape,
            sequence,
            place,
            held: None,
            next: None,
            doubtful: None,
            wear: Arc::new(wear),
        }
    }

    /// Goes on to count with `wear`, to which it adds what it has.
    pub fn count_with(&mut self, wear: &Arc<Wear>) {
        wear.add(&self.wear);
        self.wear = Arc::clone(wear);
    }

    /// Whether the device begins with a superblock, whole or not.
    pub fn may_begin(device: &dyn Device) -> Result<bool, StoreError> {
        if device.pages() == 0 {
            return Ok(false);
        }
        Ok(&read_copy(device, 0)?[0..8] == MAGIC)
    }

    /// Whether a page is one that the creation of a store writes before all copies of its
    /// superblock are whole: a copy, or the first manifest.
    pub fn may_be_left(offset: u64, page: &[u8]) -> bool {
        let number = offset / PAGE_SIZE as u64;
        if COPIES.as_flattened().contains(&number) {
            return &page[0..8] == MAGIC;
        }
        let first = Manifest {
            next_id: 1,
            ..Manifest::default()
        }
        .encode();
        let rest = page.get(first.len()..);
        page.starts_with(&first) && rest.is_some_and(|rest| rest.iter().all(|&byte| byte == 0))
    }

    /// Reads the superblock and the manifest.
    ///
    /// # Errors
    /// The content is foreign or newer, damaged, or the device fails.
    pub fn find(device: &dyn Device) -> Result<OnDevice, StoreError> {
        if device.pages() < crate::extent::UNIT_PAGES {
            return Err(StoreError::Foreign(format!(
                "it has {} bytes, a superblock takes 65536",
                device.pages() * PAGE_SIZE as u64
            )));
        }
        let mut best: Option<Slot> = None;
        let (mut zero, mut ours) = (0, 0);
        for &copy in COPIES.as_flattened() {
            let page = read_copy(device, copy)?;
            zero += usize::from(page.iter().all(|&byte| byte == 0));
            ours += usize::from(&page[0..8] == MAGIC);
            if let Some(slot) = Slot::decode(&page)?
                && best.is_none_or(|best| slot.sequence > best.sequence)
            {
                best = Some(slot);
            }
        }
        let Some(slot) = best else {
            // A store has four written pages. Only during its creation are two of them still zero.
            if zero == 4 || (zero >= 2 && ours > 0) {
                return Ok(OnDevice::Nothing);
            }
            return Err(if ours > 0 {
                StoreError::damaged(0, "no copy of the superblock is whole")
            } else {
                StoreError::Foreign("its first bytes are not a superblock".to_owned())
            });
        };
        let mut manifest = read_manifest(device, &slot)?;
        if let Some((log, pages)) = mark::read(device) {
            if log >= manifest.next_id {
                let what = format!("the superblock that names log {log} is gone");
                return Err(StoreError::damaged(0, what));
            }
            for record in manifest.logs.iter_mut().filter(|record| record.id == log) {
                record.pages = record.pages.max(pages);
            }
        }
        let wear = Wear::decode(&slot.wear);
        let superblock = Superblock::new(slot.shape, slot.sequence, slot.extent, wear);
        Ok(OnDevice::Store(superblock, Box::new(manifest)))
    }

    /// Writes the copies again that a commit, cut short, left broken or behind: as the other copy
    /// of the slot, or if both are broken, as the newest one. The next flush makes them durable.
    pub fn mend_copies(device: &dyn Device) -> Result<(), StoreError> {
        let mut found = Vec::with_capacity(4);
        for &copy in COPIES.as_flattened() {
            let page = read_copy(device, copy)?;
            let sequence = Slot::decode(&page)?.map(|slot| slot.sequence);
            found.push((copy, sequence, page));
        }
        let newest = found.iter().max_by_key(|(_, sequence, _)| *sequence);
        for (nth, (copy, sequence, _)) in found.iter().enumerate() {
            let other = &found[nth ^ 1];
            let from = Some(other).filter(|other| other.1.is_some()).or(newest);
            if let Some((_, better, page)) = from
                && better > sequence
            {
                device
                    .write(*copy, page, META)
                    .map_err(StoreError::io("writing the superblock"))?;
            }
        }
        Ok(())
    }

    /// Makes an empty store. It writes both slots and makes each durable, so that a store always
    /// has four whole pages.
    pub fn make(
        device: &dyn Device,
        space: &Arc<Space>,
        shape: Shape,
    ) -> Result<(Superblock, Manifest), StoreError> {
        let mut superblock = Superblock::new(shape, 0, Extent::default(), Wear::default());
        let manifest = Manifest {
            next_id: 1,
            ..Manifest::default()
        };
        superblock.commit(device, space, &manifest)?;
        superblock.commit(device, space, &manifest)?;
        Ok((superblock, manifest))
    }

    /// Where the manifest lies.
    pub fn manifest_extent(&self) -> Extent {
        self.place
    }

    /// Marks the manifest's extent as used, after the free space is known.
    pub fn claim(&mut self, space: &Arc<Space>) -> Result<(), StoreError> {
        if self.held.is_none() {
            self.held = Some(space.claim(self.place)?);
        }
        Ok(())
    }

    /// Allocates the place of the next manifest, if there is space, after all extents of the
    /// manifest were claimed.
    pub fn prepare(&mut self, space: &Arc<Space>) {
        if self.next.is_none() {
            self.next = space.allocate(self.place.bytes()).ok();
        }
    }

    /// Makes `manifest` the store's state. After it returns `Ok`, extents that only the previous
    /// state named may be reused.
    pub fn commit(
        &mut self,
        device: &dyn Device,
        space: &Arc<Space>,
        manifest: &Manifest,
    ) -> Result<(), StoreError> {
        let mut manifest = manifest.clone();
        // Allocating its place may fill a hole, or split one.
        for record in [false, true] {
            manifest.holes = space.holes(record);
            let bytes = manifest.encoded_len() + if record { 0 } else { 4 * HOLE_BYTES };
            let pages = bytes.div_ceil(PAGE_SIZE);
            let fits = |next: &Held| next.extent().pages as usize >= pages;
            if !self.next.as_ref().is_some_and(fits) {
                // With room to grow, so that the next manifest fits too.
                let bytes = (pages * PAGE_SIZE) as u64;
                self.next = Some(space.allocate_between(bytes + bytes / 4, bytes)?);
            }
        }
        let encoded = manifest.encode();
        let pages = encoded.len().div_ceil(PAGE_SIZE);
        let Some(held) = self.next.take() else {
            return Err(StoreError::NoSpace(
                "there is no place for a manifest".to_owned(),
            ));
        };
        let mut buf = AlignedBuf::new(pages);
        buf[..encoded.len()].copy_from_slice(&encoded);
        let slot = Slot {
            sequence: self.sequence + 1,
            shape: self.shape,
            extent: held.extent(),
            bytes: encoded.len() as u32,
            crc: crc32c::crc32c(&encoded),
            wear: self.wear.encode(),
        };
        if let Err(error) = write_commit(device, &slot, &buf) {
            // The manifest may have reached the device all the same, so it keeps its place.
            self.doubtful = Some(held);
            space.not_recorded();
            return Err(error);
        }
        self.sequence = slot.sequence;
        self.place = held.extent();
        // Write next to the slot that named the previous state.
        self.next = self.held.replace(held);
        Ok(())
    }
}

/// Writes a manifest and the slot that names it, each durable before the next.
fn write_commit(device: &dyn Device, slot: &Slot, manifest: &[u8]) -> Result<(), StoreError> {
    device
        .write(slot.extent.first, manifest, META)
        .map_err(StoreError::io("writing the manifest"))?;
    device
        .flush(META)
        .map_err(StoreError::io("flushing the manifest"))?;
    let mut page = AlignedBuf::new(1);
    slot.encode(&mut page);
    for copy in COPIES[(slot.sequence % 2) as usize] {
        device
            .write(copy, &page, META)
            .map_err(StoreError::io("writing the superblock"))?;
    }
    device
        .flush(META)
        .map_err(StoreError::io("flushing the superblock"))
}

fn read_manifest(device: &dyn Device, slot: &Slot) -> Result<Manifest, StoreError> {
    let damaged = |what: &str| StoreError::damaged(slot.extent.offset(), what);
    if !slot.extent.lies_within(device.pages()) || u64::from(slot.bytes) > slot.extent.bytes() {
        return Err(damaged("the manifest lies beyond the end of the file"));
    }
    let pages = (slot.bytes as usize).div_ceil(PAGE_SIZE);
    let mut buf = AlignedBuf::new(pages.max(1));
    device
        .read(slot.extent.first, &mut buf, Tag::store(Purpose::Recover))
        .map_err(StoreError::io("reading the manifest"))?;
    let bytes = &buf[..slot.bytes as usize];
    if crc32c::crc32c(bytes) != slot.crc {
        return Err(damaged("the manifest's checksum does not match"));
    }
    Manifest::decode(bytes).ok_or_else(|| damaged("the manifest's lists do not add up"))
}
