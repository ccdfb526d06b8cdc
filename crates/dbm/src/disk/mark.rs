// SPDX-License-Identifier: Apache-2.0
//! How far the log reached: numbers in mapped memory, stored after each write of the log.
//!
//! Nothing in the log itself proves its last group: an entry that is not whole may be one that a
//! crash cut off, or one that was acknowledged and is damaged now. The mark tells them apart. It
//! costs a commit one small store, is never flushed, and outlives the process.
//!
//! Layout: docs/formats/dbm.md. Two slots are filled in turn, so that a process that is killed
//! within a store leaves the other.
//!
//! REACH-1: every number of a mark was true when it was stored, and stays true: `durable` and
//! `checkpoint` always, so an old mark after a power cut does no harm; `written` as long as the
//! system has not lost power since ([`Device::boot`]). A mark ends with whole groups, so a group
//! that a crash cut off is behind it.

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag, le};

use crate::error::DbmError;

/// The page of the marks, between the halves of the tail.
pub(crate) const PAGE: u64 = 7;
const MAGIC: u32 = 0x4b4d_4b53;
const SLOT: usize = 64;
/// Bytes of the page that the slots take; the rest is zero.
pub(crate) const USED: usize = 2 * SLOT;

/// What was known of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The last entry that is durable.
    pub durable: u64,
    /// The last entry that was written.
    pub written: u64,
    /// The newest durable checkpoint.
    pub checkpoint: u64,
}

impl Mark {
    /// The last entry that must be there.
    pub fn reach(&self) -> u64 {
        self.durable.max(self.written)
    }
}

/// The memory of the marks, as the writing process holds it.
pub(crate) struct Marks {
    memory: AlignedBuf,
    /// Of the database.
    database: u64,
    boot: u128,
    /// Counts the marks.
    number: u64,
}

impl Marks {
    /// The memory of a device, if the device has any.
    pub fn of(device: &dyn Device, database: u64) -> Option<Marks> {
        let memory = device.map(PAGE, 1).ok()??;
        let slots = memory[..USED].chunks(SLOT).filter_map(Slot::read);
        Some(Marks {
            number: slots.map(|slot| slot.number).max().unwrap_or(0),
            memory,
            database,
            boot: device.boot().unwrap_or(0),
        })
    }

    pub fn store(&mut self, mark: Mark) {
        self.number += 1;
        let mut slot = [0; SLOT];
        slot[4..8].copy_from_slice(&MAGIC.to_le_bytes());
        slot[8..16].copy_from_slice(&self.database.to_le_bytes());
        slot[16..24].copy_from_slice(&self.number.to_le_bytes());
        slot[24..32].copy_from_slice(&mark.durable.to_le_bytes());
        slot[32..40].copy_from_slice(&mark.written.to_le_bytes());
        slot[40..48].copy_from_slice(&mark.checkpoint.to_le_bytes());
        slot[48..].copy_from_slice(&self.boot.to_le_bytes());
        let crc = crc32c::crc32c(&slot[4..]);
        slot[..4].copy_from_slice(&crc.to_le_bytes());
        let at = (self.number % 2) as usize * SLOT;
        self.memory[at..at + SLOT].copy_from_slice(&slot);
    }
}

struct Slot {
    database: u64,
    number: u64,
    boot: u128,
    mark: Mark,
}

impl Slot {
    fn read(bytes: &[u8]) -> Option<Slot> {
        let whole =
            le::u32_at(bytes, 4) == MAGIC && crc32c::crc32c(&bytes[4..]) == le::u32_at(bytes, 0);
        let u64_at = |at| le::u64_at(bytes, at);
        whole.then(|| Slot {
            database: u64_at(8),
            number: u64_at(16),
            mark: Mark {
                durable: u64_at(24),
                written: u64_at(32),
                checkpoint: u64_at(40),
            },
            boot: u128::from(u64_at(56)) << 64 | u128::from(u64_at(48)),
        })
    }
}

/// The marks of a device, as they were found.
pub(crate) struct Found {
    slots: Vec<Slot>,
    boot: Option<u128>,
}

impl Found {
    /// What may be relied on, of the database with this number (REACH-1).
    pub fn of(&self, database: u64) -> Mark {
        let mut all = Mark::default();
        for slot in self.slots.iter().filter(|slot| slot.database == database) {
            all.durable = all.durable.max(slot.mark.durable);
            all.checkpoint = all.checkpoint.max(slot.mark.checkpoint);
            if slot.boot != 0 && self.boot == Some(slot.boot) {
                all.written = all.written.max(slot.mark.written);
            }
        }
        all
    }
}

/// Reads the marks. It comes before the superblock and the log are read: all that a mark names is
/// there by then.
pub(crate) fn read(device: &dyn Device) -> Result<Found, DbmError> {
    let mut page = AlignedBuf::new(1);
    device
        .read(PAGE, &mut page, Tag::dbm(Purpose::Recover))
        .map_err(DbmError::io("reading how far the log reached"))?;
    Ok(Found {
        slots: page[..USED].chunks(SLOT).filter_map(Slot::read).collect(),
        boot: device.boot(),
    })
}

const _: () = assert!(USED <= PAGE_SIZE);

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte table of docs/formats/dbm.md, and which numbers count.
    #[test]
    fn a_mark_lies_as_documented_and_counts_while_it_is_true() {
        let device = senko_io::faulty::FaultyDevice::new(100, 1);
        let mut marks = Marks::of(&*device, 0x0807_0605_0403_0201).expect("it has memory");
        marks.boot = 0x2827_2625_2423_2221_201f_1e1d_1c1b_1a19;
        marks.number = 0x1009;
        let mark = Mark {
            durable: 0x1817_1615_1413_1211,
            written: 0x2019,
            checkpoint: 0x3021,
        };
        marks.store(mark);
        let slot = &marks.memory[..SLOT];
        assert_eq!(slot[4..8], *b"SKMK");
        assert_eq!(slot[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(slot[16..18], [0x0a, 0x10]);
        assert_eq!(slot[24..32], (0x11..=0x18).collect::<Vec<u8>>()[..]);
        assert_eq!((slot[32], slot[40]), (0x19, 0x21));
        assert_eq!(slot[48..], (0x19..=0x28).collect::<Vec<u8>>()[..]);

        let mut marks = Marks::of(&*device, 7).expect("it has memory");
        marks.store(mark);
        let newer = Mark {
            written: 0x2020,
            ..mark
        };
        marks.store(newer);
        let found = |device: &senko_io::faulty::FaultyDevice| {
            let found = read(device).expect("it reads");
            (found.of(7), found.of(8))
        };
        assert_eq!(found(&device.copy(1)), (newer, Mark::default()));
        let torn = device.copy(1);
        torn.flip_bit(PAGE, 8 * (SLOT * (marks.number % 2) as usize + 33));
        assert_eq!(found(&torn), (mark, Mark::default()));
        let lost = device.copy(1);
        lost.crash();
        let kept = Mark {
            written: 0,
            ..newer
        };
        assert_eq!(found(&lost), (kept, Mark::default()));
    }
}
