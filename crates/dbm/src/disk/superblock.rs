// SPDX-License-Identifier: Apache-2.0
//! The superblock: it names the newest checkpoint. It has two slots, used in turn, so that a torn
//! write leaves the other one. Each slot has two copies, so that damage of one loses nothing.

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag, le};

use crate::disk::log::Position;
use crate::disk::wear::Wear;
use crate::error::DbmError;

pub(crate) const MAGIC: [u8; 8] = *b"SENKODB\0";
pub(crate) const VERSION: u32 = 3;
/// The oldest version that can be read: its superblock lacks [`Wear`].
const OLDEST: u32 = 2;
/// First page of each slot.
const SLOTS: [u64; 2] = [0, 8];
/// Adjacent pages of a slot, each with a copy.
pub(crate) const COPIES: u64 = 2;

/// Above all numbers of checkpoints and of entries: both count, and locks on bytes of the file
/// stand for checkpoints.
const MOST: u64 = 1 << 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub checkpoint: u64,
    /// Its place in the log.
    pub at: Position,
    /// Pages that the device had.
    pub pages: u64,
    pub wear: Wear,
}

impl Superblock {
    fn encode(&self, page: &mut [u8]) {
        page.fill(0);
        page[..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[16..24].copy_from_slice(&self.checkpoint.to_le_bytes());
        page[24..32].copy_from_slice(&self.at.page.to_le_bytes());
        page[32..40].copy_from_slice(&self.at.sequence.to_le_bytes());
        page[40..44].copy_from_slice(&self.at.previous.to_le_bytes());
        page[48..56].copy_from_slice(&self.pages.to_le_bytes());
        page[56..64].copy_from_slice(&self.wear.put.to_le_bytes());
        page[64..72].copy_from_slice(&self.wear.written.to_le_bytes());
        page[72..80].copy_from_slice(&self.wear.discarded.to_le_bytes());
        let crc = crc32c::crc32c(page);
        page[12..16].copy_from_slice(&crc.to_le_bytes());
    }

    fn decode(page: &[u8]) -> Result<Option<Superblock>, DbmError> {
        if page[..8] != MAGIC {
            return Ok(None);
        }
        let mut bytes = page.to_vec();
        bytes[12..16].fill(0);
        if crc32c::crc32c(&bytes).to_le_bytes() != page[12..16] {
            return Ok(None);
        }
        let (u32_at, u64_at) = (|at| le::u32_at(page, at), |at| le::u64_at(page, at));
        let found = u32_at(8);
        let known = VERSION;
        if found > known {
            return Err(DbmError::NewerVersion { found, known });
        }
        if found < OLDEST {
            return Err(DbmError::OlderVersion { found, known });
        }
        if u64_at(16) >= MOST || u64_at(32) >= MOST {
            return Ok(None);
        }
        Ok(Some(Superblock {
            checkpoint: u64_at(16),
            at: Position {
                page: u64_at(24),
                sequence: u64_at(32),
                previous: u32_at(40),
            },
            pages: u64_at(48),
            wear: Wear {
                put: u64_at(56),
                written: u64_at(64),
                discarded: u64_at(72),
            },
        }))
    }

    /// Writes both copies to its slot, durably.
    pub fn write(&self, device: &dyn Device) -> Result<(), DbmError> {
        let mut pages = AlignedBuf::new(COPIES as usize);
        for copy in pages.chunks_mut(PAGE_SIZE) {
            self.encode(copy);
        }
        let slot = SLOTS[(self.checkpoint % 2) as usize];
        device
            .write_durable(slot, &pages, Tag::dbm(Purpose::Meta))
            .map_err(DbmError::io("writing the superblock"))
    }

    /// The newest one; `None` if the device was never a database.
    pub fn read(device: &dyn Device) -> Result<Option<Superblock>, DbmError> {
        let mut newest: Option<Superblock> = None;
        let (mut zero, mut magic) = (true, false);
        each_copy(device, |_, page| {
            zero &= page.iter().all(|byte| *byte == 0);
            magic |= page[..8] == MAGIC;
            let found = Superblock::decode(page)?;
            if found.map(|s| s.checkpoint) > newest.map(|s| s.checkpoint) {
                newest = found;
            }
            Ok(())
        })?;
        match newest {
            None if magic => Err(DbmError::damaged(0, "no superblock is whole")),
            None if !zero => {
                let text = "the first page has another program's content".to_owned();
                Err(DbmError::Foreign(text))
            }
            found => Ok(found),
        }
    }

    /// The copies that are not whole, or older than the other copy of their slot, although this
    /// superblock is there.
    pub fn broken_copies(&self, device: &dyn Device) -> Result<Vec<DbmError>, DbmError> {
        let mut broken = Vec::new();
        for slot in self.copies(device)?.chunks(COPIES as usize) {
            let newest = slot
                .iter()
                .filter_map(|copy| Some(copy.found?.checkpoint))
                .max();
            for copy in slot.iter().filter(|copy| copy.is_used) {
                let what = match copy.found {
                    Some(found) if Some(found.checkpoint) == newest => continue,
                    Some(_) => "a copy of the superblock is older than the other one",
                    None => "a copy of the superblock is not whole",
                };
                broken.push(DbmError::damaged(copy.number, what));
            }
        }
        Ok(broken)
    }

    /// Writes the copies again that a write, cut short, left broken or behind: as the other copy of
    /// the slot, or if both are broken, as this newest one. The next flush makes them durable.
    pub fn mend_copies(&self, device: &dyn Device) -> Result<(), DbmError> {
        for slot in self.copies(device)?.chunks(COPIES as usize) {
            let newest = slot.iter().filter_map(|copy| copy.found);
            let newest = newest.max_by_key(|found| found.checkpoint).unwrap_or(*self);
            for copy in slot.iter().filter(|copy| copy.is_used) {
                if copy.found != Some(newest) {
                    let mut page = AlignedBuf::new(1);
                    newest.encode(&mut page);
                    device
                        .write(copy.number, &page, Tag::dbm(Purpose::Meta))
                        .map_err(DbmError::io("writing the superblock"))?;
                }
            }
        }
        Ok(())
    }

    /// All copies. A new database has one slot, and zeros in the other.
    fn copies(&self, device: &dyn Device) -> Result<Vec<Copy>, DbmError> {
        let mut copies = Vec::new();
        each_copy(device, |number, page| {
            let is_zero = page.iter().all(|byte| *byte == 0);
            copies.push(Copy {
                number,
                found: Superblock::decode(page)?,
                is_used: self.checkpoint > 1 || number >= SLOTS[1] || !is_zero,
            });
            Ok(())
        })?;
        Ok(copies)
    }
}

/// A copy as it was read.
struct Copy {
    number: u64,
    /// `None` if it is not whole.
    found: Option<Superblock>,
    /// Whether it must be whole.
    is_used: bool,
}

/// Reads all copies; `work` gets the number of each page, and its bytes.
fn each_copy(
    device: &dyn Device,
    mut work: impl FnMut(u64, &[u8]) -> Result<(), DbmError>,
) -> Result<(), DbmError> {
    let mut page = AlignedBuf::new(1);
    for number in SLOTS.into_iter().flat_map(|slot| slot..slot + COPIES) {
        if number >= device.pages() {
            continue;
        }
        device
            .read(number, &mut page, Tag::dbm(Purpose::Recover))
            .map_err(DbmError::io("reading the superblock"))?;
        work(number, &page)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte table of docs/formats/dbm.md.
    #[test]
    fn it_lies_as_documented() {
        let superblock = Superblock {
            checkpoint: 0x1111,
            at: Position {
                page: 0x2222,
                sequence: 0x3333,
                previous: 0x4444,
            },
            pages: 0x5555,
            wear: Wear {
                put: 0x6666,
                written: 0x7777,
                discarded: 0x8888,
            },
        };
        let mut page = vec![0xff; PAGE_SIZE];
        superblock.encode(&mut page);
        assert_eq!(page[..12], *b"SENKODB\0\x03\0\0\0");
        let fields = [16, 24, 32, 40, 48, 56, 64, 72];
        for (at, value) in fields.into_iter().zip((0x11..).step_by(0x11)) {
            assert_eq!(page[at..at + 4], [value, value, 0, 0], "at byte {at}");
        }
        assert_eq!(Superblock::decode(&page).expect("known"), Some(superblock));
        // Sums with such numbers used to end a program of a debug build.
        for (checkpoint, sequence) in [(MOST, 1), (1, u64::MAX)] {
            let at = Position {
                sequence,
                ..superblock.at
            };
            let forged = Superblock {
                checkpoint,
                at,
                ..superblock
            };
            let mut page = vec![0; PAGE_SIZE];
            forged.encode(&mut page);
            assert_eq!(Superblock::decode(&page).expect("known"), None);
        }
        let as_version = |page: &mut [u8], version| {
            page[8] = version;
            page[12..16].fill(0);
            let crc = crc32c::crc32c(page).to_le_bytes();
            page[12..16].copy_from_slice(&crc);
        };
        // Version 2 has zeros there.
        page[56..80].fill(0);
        as_version(&mut page, 2);
        let older = Superblock {
            wear: Wear::default(),
            ..superblock
        };
        assert_eq!(Superblock::decode(&page).expect("known"), Some(older));
        for (version, text) in [(4, "version 4"), (1, "dump")] {
            as_version(&mut page, version);
            let other = Superblock::decode(&page).expect_err("of another version");
            assert!(other.to_string().contains(text), "{other}");
        }
    }
}
