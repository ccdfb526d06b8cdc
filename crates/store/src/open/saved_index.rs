// SPDX-License-Identifier: Apache-2.0
//! The generations and their maps, which a clean close saves for the next opening.
//!
//! ```text
//! u32 generations; each: u64 min_time, max_time, elements, u32 members, members: u64 id, u64 live
//! 256 shards; each: u32 maps; each: u32 generation, u32 bytes, the map
//! ```
//! They are written and read a piece at a time. They are most of a store's memory, and a second
//! copy would double it at every close and opening.
//!
//! Always holds:
//! - A read changes no shared state until all of it was read and its checksum was right.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::StoreError;
use crate::core::Core;
use crate::core::version::{BlockHandle, Generation, Member, Version};
use crate::disk::space::Held;
use crate::disk::superblock::SavedIndex;
use crate::hash::SHARDS;
use crate::index::{BlockMap, MAX_BLOCKS};

/// Pages that are read or written at a time.
const PIECE_PAGES: usize = 256;

/// Writes the maps of a version to their own extent.
///
/// # Errors
/// If there is no space for them, or the device fails.
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
        left: bytes,
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

/// Encodes a version's maps, piece by piece.
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
            // A removed member is saved as a number that no block has.
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

/// Adds the saved maps to the version with their blocks.
///
/// # Errors
/// If the saved maps are damaged, do not fit the blocks, or cannot be read.
pub(crate) fn load(core: &Core, saved: &SavedIndex) -> Result<Version, StoreError> {
    let mut from = ExtentReader::new(&*core.device, saved)?;
    let mut version = core.current().next();
    let first = core.manifests.lock().take_generations(0);
    let decoded = decode(&mut from, &mut version, first)?;
    from.end(saved)?;
    core.manifests.lock().take_generations(decoded.generations);
    for (handle, live) in decoded.live {
        handle.set_live(live);
    }
    Ok(version)
}

/// Reads the saved maps, only to verify their checksum.
///
/// # Errors
/// If they are damaged or cannot be read.
pub(crate) fn check(device: &dyn Device, saved: &SavedIndex) -> Result<(), StoreError> {
    let mut from = ExtentReader::new(device, saved)?;
    let mut piece = [0; 4096];
    while from.left > 0 {
        let some = from.left.min(piece.len() as u64) as usize;
        from.read(&mut piece[..some])?;
    }
    from.end(saved)
}

/// The shared state. It changes only if all was right.
struct Decoded {
    generations: u64,
    /// Blocks, with their numbers of live elements.
    live: Vec<(Arc<BlockHandle>, u64)>,
}

/// Adds maps and generations to `version`. The generations' numbers begin with `first`.
fn decode(
    from: &mut ExtentReader<'_>,
    version: &mut Version,
    first: u64,
) -> Result<Decoded, StoreError> {
    let there = version.blocks().map(|(member, _)| (member.id, member));
    let there: HashMap<u64, Member> = there.collect();
    let mut live_of = Vec::new();
    let mut generations = Vec::new();
    for _ in 0..from.u32()? {
        let (min_time, max_time, elements) = (from.u64()?, from.u64()?, from.u64()?);
        let count = from.u32()?;
        if count > MAX_BLOCKS {
            return Err(from.damaged("have a generation of too many blocks"));
        }
        let mut members = Vec::new();
        for _ in 0..count {
            let (id, live) = (from.u64()?, from.u64()?);
            let gone = Member { slot: u32::MAX, id };
            let member = match there.get(&id) {
                _ if id == u64::MAX => gone,
                Some(&member) => member,
                None => return Err(from.damaged("name a block that there is not")),
            };
            if let Some(handle) = version.block(member) {
                live_of.push((Arc::clone(handle), live));
            }
            members.push(member);
        }
        generations.push(Arc::new(Generation {
            id: first + generations.len() as u64,
            members,
            min_time,
            max_time,
            elements,
        }));
    }
    let mut map = Vec::new();
    for nth in 0..SHARDS {
        for _ in 0..from.u32()? {
            let generation = generations.get(from.u32()? as usize);
            let generation =
                generation.ok_or_else(|| from.damaged("name a generation that there is not"))?;
            from.bytes(&mut map)?;
            let map = crate::index::decode(&map)
                .map_err(|damage| from.damaged(&format!("have a map that is damaged: {damage}")))?;
            version.add_map(nth, generation, map);
        }
    }
    let known: HashSet<u64> = generations
        .iter()
        .flat_map(|generation| generation.members.iter().map(|member| member.id))
        .collect();
    // Maps that do not cover a block would hide its elements.
    let covered = version
        .blocks()
        .all(|(member, _)| known.contains(&member.id));
    if !covered {
        return Err(from.damaged("do not cover all blocks"));
    }
    Ok(Decoded {
        generations: generations.len() as u64,
        live: live_of,
    })
}

/// Fills an extent.
struct ExtentWriter<'d> {
    device: &'d dyn Device,
    /// The page that the buffer will be written to.
    page: u64,
    /// Bytes that may still be written, out of those that were counted before.
    left: u64,
    buffer: AlignedBuf,
    filled: usize,
    crc: u32,
}

impl ExtentWriter<'_> {
    fn push(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left =
            left.expect("a version's maps do not change, so they are as long as they were counted");
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

    /// Writes the buffer, up to the end of a page.
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

    /// Writes the rest, and returns the checksum of everything.
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
    /// The offset of the first byte, for errors.
    offset: u64,
    /// The next page to read into the buffer.
    page: u64,
    buffer: AlignedBuf,
    /// The rest of the buffer.
    at: usize,
    filled: usize,
    /// Bytes that were not taken yet.
    left: u64,
    crc: u32,
}

impl<'d> ExtentReader<'d> {
    fn new(device: &'d dyn Device, saved: &SavedIndex) -> Result<ExtentReader<'d>, StoreError> {
        let reader = ExtentReader {
            device,
            offset: saved.extent.offset(),
            page: saved.extent.first,
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

    /// Bytes with their length before them.
    fn bytes(&mut self, into: &mut Vec<u8>) -> Result<(), StoreError> {
        let length = self.u32()?;
        if u64::from(length) > self.left {
            return Err(self.damaged("end too early"));
        }
        into.resize(length as usize, 0);
        self.read(into)
    }

    /// Checks that all bytes were taken, and that the checksum is right.
    fn end(self, saved: &SavedIndex) -> Result<(), StoreError> {
        if self.left > 0 {
            return Err(self.damaged("continue past their end"));
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use senko_io::faulty::FaultyDevice;

    use super::*;
    use crate::{Extent, Options, Store};

    /// Tests every length up to some kilobytes, over several pieces and a part of a page.
    #[test]
    fn pieces_are_read_as_they_were_written() {
        let device = FaultyDevice::new(1024, 1);
        let bytes: Vec<u8> = (0..2_500_123u32)
            .map(|n| (n.wrapping_mul(n) >> 7) as u8)
            .collect();
        let extent = Extent::new(3, bytes.len().div_ceil(PAGE_SIZE) as u32);
        let mut writer = ExtentWriter {
            device: &*device,
            page: extent.first,
            left: bytes.len() as u64,
            buffer: AlignedBuf::new(PIECE_PAGES),
            filled: 0,
            crc: 0,
        };
        let lengths = || (0..).map(|n: usize| n * 7919 % 5000);
        let (mut rest, mut lens) = (&bytes[..], lengths());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(lens.next().unwrap().min(rest.len()));
            writer.push(piece).unwrap();
            rest = behind;
        }
        let saved = SavedIndex {
            extent,
            bytes: bytes.len() as u64,
            crc: writer.end().unwrap(),
        };
        let read = |saved: &SavedIndex| {
            let mut reader = ExtentReader::new(&*device, saved)?;
            let (mut all, mut lens) = (Vec::new(), lengths());
            while reader.left > 0 {
                let len = lens.next().unwrap().min(reader.left as usize);
                let at = all.len();
                all.resize(at + len, 0);
                reader.read(&mut all[at..])?;
            }
            reader.end(saved).map(|()| all)
        };
        assert!(read(&saved).unwrap() == bytes);
        check(&*device, &saved).unwrap();
        let shorter = SavedIndex {
            bytes: saved.bytes - 1,
            ..saved
        };
        assert!(read(&shorter).is_err());
        let longer = SavedIndex {
            bytes: extent.bytes() + 1,
            ..saved
        };
        assert!(read(&longer).is_err());
        device.flip_bit(300, 5);
        assert!(read(&saved).is_err());
        check(&*device, &saved).unwrap_err();
    }

    /// If one bit of the saved maps is wrong, the maps are built again. They answer like the saved
    /// ones.
    #[test]
    fn damaged_maps_are_not_used() {
        const KEYS: u32 = 20_000;
        let device = FaultyDevice::new(1 << 14, 1);
        let options = Options {
            block_bytes: 1 << 20,
            background: false,
            ..Options::default()
        };
        let store = Store::open_device(device.clone(), options.clone()).unwrap();
        for key in 0..KEYS {
            store.put(&key.to_le_bytes(), &key.to_be_bytes()).unwrap();
            if key % 5000 == 4999 {
                store.seal().unwrap();
            }
        }
        store.close().unwrap();
        let core = crate::open::open(device.copy(2), options.clone()).unwrap();
        let saved = core.manifests.lock().manifest().index.unwrap();
        load(&core, &saved).unwrap();
        drop(core);
        for nth in 0..40 {
            let at = saved.bytes * 8 / 40 * nth + nth % 8;
            let bits = PAGE_SIZE as u64 * 8;
            let copy = device.copy(3);
            copy.flip_bit(saved.extent.first + at / bits, (at % bits) as usize);
            let core = crate::open::open(copy.clone(), options.clone()).unwrap();
            assert!(load(&core, &saved).is_err(), "bit {at}");
            drop(core);
            let store = Store::open_device(copy, options.clone()).unwrap();
            for key in (0..KEYS).step_by(97) {
                let value = store.get(&key.to_le_bytes()).unwrap();
                assert_eq!(value.as_deref(), Some(&key.to_be_bytes()[..]), "bit {at}");
            }
            assert_eq!(store.stats().live_elements, u64::from(KEYS), "bit {at}");
        }
    }
}
