// SPDX-License-Identifier: Apache-2.0
//! The generations and their maps, as a clean close saves them for the next opening.
//!
//! ```text
//! u32 generations; each: u64 min_time, max_time, elements, u32 members, members: u64 id, u64 live
//! 256 shards; each: u32 maps; each: u32 generation, u32 bytes, the map
//! ```
//! They go to their extent and come from it a piece at a time, since they are most of what a store has in memory: whole copies of them
//! would double that at every close and opening.
//!
//! What always holds:
//! - What was read changes nothing that is shared before all of it was read and its checksum was right.

use std::sync::Arc;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::StoreError;
use crate::core::Core;
use crate::hash::SHARDS;
use crate::index::BlockMap;
use crate::space::{Extent, Held};
use crate::superblock::SavedIndex;
use crate::version::{BlockHandle, Generation, Member, ShardGeneration, Version};

/// Pages that are read or written at a time.
const PIECE_PAGES: usize = 256;

/// Writes the maps of a version to an extent of their own.
///
/// # Errors
/// If there is no space for them, and a failing device's.
pub(crate) fn save(core: &Core, version: &Version) -> Result<(SavedIndex, Held), StoreError> {
    let mut bytes = 0;
    encode(version, &mut |piece| {
        bytes += piece.len() as u64;
        Ok(())
    })?;
    let held = core.space.allocate(bytes)?;
    let mut writer = ExtentWriter {
        device: &*core.device,
        page: held.extent().first,
        buffer: AlignedBuf::new(PIECE_PAGES),
        filled: 0,
        crc: 0,
    };
    let written = encode(version, &mut |piece| writer.push(piece)).and_then(|()| writer.end());
    let saved = SavedIndex {
        extent: held.extent(),
        bytes,
        crc: written.map_err(|error| core.failed(error))?,
    };
    Ok((saved, held))
}

/// Hands the encoding of a version's maps out, piece by piece.
fn encode(
    version: &Version,
    out: &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut generations: Vec<Arc<Generation>> = Vec::new();
    for shard in &version.shards {
        for entry in &shard.generations {
            if !generations
                .iter()
                .any(|known| known.id == entry.generation.id)
            {
                generations.push(Arc::clone(&entry.generation));
            }
        }
    }
    out(&(generations.len() as u32).to_le_bytes())?;
    for generation in &generations {
        for word in [
            generation.min_time,
            generation.max_time,
            generation.elements,
        ] {
            out(&word.to_le_bytes())?;
        }
        out(&(generation.members.len() as u32).to_le_bytes())?;
        for &member in &generation.members {
            // A member that is gone is kept as a number that no block has.
            let live = version.block(member).map(|handle| handle.live());
            let id = if live.is_some() { member.id } else { u64::MAX };
            out(&id.to_le_bytes())?;
            out(&live.unwrap_or(0).to_le_bytes())?;
        }
    }
    let mut map = Vec::new();
    for shard in &version.shards {
        out(&(shard.generations.len() as u32).to_le_bytes())?;
        for entry in &shard.generations {
            let nth = generations
                .iter()
                .position(|known| known.id == entry.generation.id)
                .expect("all generations were gathered");
            map.clear();
            BlockMap::encode(&*entry.map, &mut map);
            out(&(nth as u32).to_le_bytes())?;
            out(&(map.len() as u32).to_le_bytes())?;
            out(&map)?;
        }
    }
    Ok(())
}

/// Adds what was saved to the version that has the blocks.
///
/// # Errors
/// If it is damaged, does not fit the blocks, or cannot be read.
pub(crate) fn load(core: &Core, saved: &SavedIndex) -> Result<Version, StoreError> {
    let mut from = ExtentReader::new(&*core.device, saved)?;
    let mut version = core.current().next();
    let live = decode(&mut from, &mut version, core)?;
    from.end(saved)?;
    for (handle, live) in live {
        handle.set_live(live);
    }
    Ok(version)
}

/// Reads what was saved, for its checksum alone.
///
/// # Errors
/// If it is damaged or cannot be read.
pub(crate) fn check(device: &dyn Device, saved: &SavedIndex) -> Result<(), StoreError> {
    let mut from = ExtentReader::new(device, saved)?;
    let mut piece = [0; 4096];
    while from.left > 0 {
        let some = from.left.min(piece.len() as u64) as usize;
        from.read(&mut piece[..some])?;
    }
    from.end(saved)
}

/// Blocks and how many of their elements are live.
type Live = Vec<(Arc<BlockHandle>, u64)>;

fn decode(
    from: &mut ExtentReader<'_>,
    version: &mut Version,
    core: &Core,
) -> Result<Live, StoreError> {
    let mut live_of = Vec::new();
    let mut generations = Vec::new();
    for _ in 0..from.u32()? {
        let (min_time, max_time, elements) = (from.u64()?, from.u64()?, from.u64()?);
        let mut members = Vec::new();
        for _ in 0..from.u32()? {
            let (id, live) = (from.u64()?, from.u64()?);
            let slot = match version.blocks().find(|(_, handle)| handle.id() == id) {
                Some((slot, handle)) => {
                    live_of.push((Arc::clone(handle), live));
                    slot
                }
                None if id == u64::MAX => u32::MAX,
                None => return Err(from.damaged("name a block that there is not")),
            };
            members.push(Member { slot, id });
        }
        let mut state = core.state.lock();
        generations.push(Arc::new(Generation {
            id: state.next_generation,
            members,
            min_time,
            max_time,
            elements,
        }));
        state.next_generation += 1;
    }
    let mut map = Vec::new();
    for nth in 0..SHARDS {
        let mut index = (*version.shards[nth]).clone();
        for _ in 0..from.u32()? {
            let generation = generations.get(from.u32()? as usize);
            let generation =
                generation.ok_or_else(|| from.damaged("name a generation that there is not"))?;
            from.bytes(&mut map)?;
            let map = crate::index::decode(&map)
                .map_err(|damage| from.damaged(&format!("have a map that is damaged: {damage}")))?;
            index.insert(ShardGeneration {
                generation: Arc::clone(generation),
                map: Arc::new(map),
            });
        }
        version.shards[nth] = Arc::new(index);
    }
    let known: std::collections::HashSet<u64> = generations
        .iter()
        .flat_map(|generation| generation.members.iter().map(|member| member.id))
        .collect();
    // Maps that do not cover a block would hide what it has.
    let covered = version
        .blocks()
        .all(|(_, handle)| known.contains(&handle.id()));
    if covered {
        Ok(live_of)
    } else {
        Err(from.damaged("do not cover all blocks"))
    }
}

/// Fills an extent.
struct ExtentWriter<'d> {
    device: &'d dyn Device,
    /// Where the buffer goes.
    page: u64,
    buffer: AlignedBuf,
    filled: usize,
    crc: u32,
}

impl ExtentWriter<'_> {
    fn push(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        while !bytes.is_empty() {
            let some = bytes.len().min(self.buffer.len() - self.filled);
            let (piece, rest) = bytes.split_at(some);
            self.buffer[self.filled..self.filled + some].copy_from_slice(piece);
            self.filled += some;
            bytes = rest;
            if self.filled == self.buffer.len() {
                self.write()?;
            }
        }
        Ok(())
    }

    /// Writes what the buffer has, up to the end of a page.
    fn write(&mut self) -> Result<(), StoreError> {
        let whole = self.filled.next_multiple_of(PAGE_SIZE);
        self.buffer[self.filled..whole].fill(0);
        self.device
            .write(self.page, &self.buffer[..whole], Tag::store(Purpose::Meta))
            .map_err(StoreError::io("saving the maps"))?;
        self.page += (whole / PAGE_SIZE) as u64;
        self.filled = 0;
        Ok(())
    }

    /// Writes the rest, and tells the checksum of all.
    fn end(mut self) -> Result<u32, StoreError> {
        if self.filled > 0 {
            self.write()?;
        }
        Ok(self.crc)
    }
}

/// Reads an extent from its beginning.
struct ExtentReader<'d> {
    device: &'d dyn Device,
    /// Where the first byte lies, for errors.
    offset: u64,
    /// The next page that goes into the buffer.
    page: u64,
    buffer: AlignedBuf,
    /// What of the buffer was not taken yet.
    at: usize,
    filled: usize,
    /// Bytes that were not taken yet.
    left: u64,
    crc: u32,
}

impl<'d> ExtentReader<'d> {
    fn new(device: &'d dyn Device, saved: &SavedIndex) -> Result<ExtentReader<'d>, StoreError> {
        let Extent { first, .. } = saved.extent;
        let reader = ExtentReader {
            device,
            offset: first.saturating_mul(PAGE_SIZE as u64),
            page: first,
            buffer: AlignedBuf::new(PIECE_PAGES),
            at: 0,
            filled: 0,
            left: saved.bytes,
            crc: 0,
        };
        if saved.bytes > saved.extent.bytes() {
            return Err(reader.damaged("are larger than their extent"));
        }
        Ok(reader)
    }

    /// Fills `into` with the next bytes.
    fn read(&mut self, into: &mut [u8]) -> Result<(), StoreError> {
        if into.len() as u64 > self.left {
            return Err(self.damaged("end too early"));
        }
        let mut done = 0;
        while done < into.len() {
            if self.at == self.filled {
                self.refill()?;
            }
            let some = (into.len() - done).min(self.filled - self.at);
            into[done..done + some].copy_from_slice(&self.buffer[self.at..self.at + some]);
            self.at += some;
            self.left -= some as u64;
            done += some;
        }
        self.crc = crc32c::crc32c_append(self.crc, into);
        Ok(())
    }

    fn refill(&mut self) -> Result<(), StoreError> {
        let some = self.left.min(self.buffer.len() as u64) as usize;
        let whole = some.next_multiple_of(PAGE_SIZE);
        self.device
            .read(
                self.page,
                &mut self.buffer[..whole],
                Tag::store(Purpose::Recover),
            )
            .map_err(StoreError::io("reading the saved maps"))?;
        self.page += (whole / PAGE_SIZE) as u64;
        (self.at, self.filled) = (0, some);
        Ok(())
    }

    fn u32(&mut self) -> Result<u32, StoreError> {
        let mut word = [0; 4];
        self.read(&mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    fn u64(&mut self) -> Result<u64, StoreError> {
        let mut word = [0; 8];
        self.read(&mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Bytes behind their length.
    fn bytes(&mut self, into: &mut Vec<u8>) -> Result<(), StoreError> {
        let length = self.u32()?;
        if u64::from(length) > self.left {
            return Err(self.damaged("end too early"));
        }
        into.resize(length as usize, 0);
        self.read(into)
    }

    /// All was taken, and is what was written.
    fn end(self, saved: &SavedIndex) -> Result<(), StoreError> {
        if self.left > 0 {
            return Err(self.damaged("go on behind their end"));
        }
        if self.crc != saved.crc {
            return Err(self.damaged("have another checksum"));
        }
        Ok(())
    }

    fn damaged(&self, what: &str) -> StoreError {
        StoreError::damaged(self.offset, format!("the saved maps {what}"))
    }
}
