// SPDX-License-Identifier: Apache-2.0
//! The superblock of a data directory, and the label on each of its flash files.
//!
//! The superblock has two pages. Every change is written to both, one after the other, and each
//! page is durable before the next is written. So one of them is complete at any time, and the page
//! with the greater number counts. After a change has returned, damage to either page can't restore
//! the previous state. `docs/formats/data-directory.md` has the tables.
//!
//! Always holds: a process that has read a clean mark may restore from the files of that stop until
//! it clears the mark. The cleared mark is durable before the first command.

use crate::key::HashSeed;
use senko_io::le::{put, u32_at, u64_at};
use senko_io::{AlignedBuf, Device, IoError, PAGE_SIZE, Purpose, Tag};

const MAGIC: &[u8; 8] = b"SENKODIR";
const LABEL_MAGIC: &[u8; 8] = b"SENKODEV";
/// Version of everything that a cache keeps for its next start, and of its flash files. There is
/// only one version number, so the superblock's applies to all of them.
pub(crate) const VERSION: u32 = 7;
const DEVICES_AT: usize = 144;
const DEVICE_BYTES: usize = 16;
/// Most flash files of one server.
const MOST_DEVICES: usize = (PAGE_SIZE - DEVICES_AT) / DEVICE_BYTES;

/// The contents of a superblock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Superblock {
    /// The number of changes.
    pub sequence: u64,
    /// Random number of the directory; flash files and shared memory carry it.
    pub id: u64,
    /// Random number in the name of the folder in shared memory; 0: none was drawn yet.
    pub memory: u64,
    pub shards: u32,
    /// Bytes of a region; 0 without flash.
    pub region: u64,
    /// How often the directory was opened; labels carry it too.
    pub opened: u64,
    /// The start with this number may have written labels. If it is more than `opened`, that start
    /// did not get as far as serving.
    pub opening: u64,
    /// Not 0 if the previous stop was clean: the files of the stop with this number hold
    /// everything. 0: it was not clean, or the directory is in use.
    pub clean: u64,
    /// All CAS values given out so far are less than this.
    pub cas_reserved: u64,
    /// The latest Unix second that the server's clock has shown.
    pub last_second: u64,
    /// Unix second of a planned `flush_all`; 0: none.
    pub flush_due: u64,
    /// A shard was saved before it had applied the last `flush_all`, so every shard applies one at
    /// the next start.
    pub flush_missed: bool,
    /// The clean stop also saved items of DRAM.
    pub items_saved: bool,
    /// The seed of the hash of keys in all shards.
    pub hash_seed: HashSeed,
    /// Pages of each flash file.
    pub devices: Vec<u64>,
}

/// Why a superblock or label can't be used. The text continues "PATH ...".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// Nothing was ever written there.
    #[error("holds nothing")]
    Blank,
    /// It is not a superblock or label.
    #[error("is not what senko wrote there, or is damaged")]
    Damaged,
    /// Another version of the format.
    #[error("is of format version {found}, this senko writes version {VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
    /// More devices than fit.
    #[error("can't hold more than {MOST_DEVICES} flash files")]
    TooMany,
    /// The device failed.
    #[error("can't be read or written: {0}")]
    Io(#[from] IoError),
}

fn tag() -> Tag {
    Tag::cache(Purpose::Meta)
}

fn set(page: &mut [u8], at: usize, value: u64) {
    put(page, at, &value.to_le_bytes());
}

/// Completes a head: magic, version, and the checksum of everything after its first 16 bytes. The
/// files of a clean stop have such heads too.
pub(crate) fn seal(head: &mut [u8], magic: &[u8; 8]) {
    put(head, 0, magic);
    put(head, 8, &VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&head[16..]);
    put(head, 12, &crc.to_le_bytes());
}

/// Whether the checksum of a head is right.
pub(crate) fn is_sealed(head: &[u8]) -> bool {
    u32_at(head, 12) == crc32c::crc32c(&head[16..])
}

fn check(page: &[u8], magic: &[u8; 8]) -> Result<(), SuperblockError> {
    if page.iter().all(|&b| b == 0) {
        return Err(SuperblockError::Blank);
    }
    if &page[..8] != magic {
        return Err(SuperblockError::Damaged);
    }
    match u32_at(page, 8) {
        VERSION => {}
        found => return Err(SuperblockError::Version { found }),
    }
    if is_sealed(page) {
        Ok(())
    } else {
        Err(SuperblockError::Damaged)
    }
}

impl Superblock {
    /// Pages that a superblock takes on its device.
    pub const PAGES: u64 = 2;

    /// The page of a superblock.
    ///
    /// # Errors
    /// If there are too many devices.
    pub fn encode(&self, page: &mut [u8]) -> Result<(), SuperblockError> {
        if self.devices.len() > MOST_DEVICES {
            return Err(SuperblockError::TooMany);
        }
        let page = &mut page[..PAGE_SIZE];
        page.fill(0);
        for (at, value) in [
            (16, self.sequence),
            (24, self.id),
            (32, u64::from(self.shards)),
            (40, self.region),
            (48, self.opened),
            (56, self.clean),
            (64, self.cas_reserved),
            (72, self.last_second),
            (80, self.flush_due),
            (88, self.devices.len() as u64),
            (96, u64::from(self.flush_missed)),
            (104, self.opening),
            (112, u64::from(self.items_saved)),
            (120, self.hash_seed.0),
            (128, self.memory),
        ] {
            set(page, at, value);
        }
        for (n, &pages) in self.devices.iter().enumerate() {
            set(page, DEVICES_AT + n * DEVICE_BYTES, pages);
        }
        seal(page, MAGIC);
        Ok(())
    }

    /// Decodes the superblock in a page.
    pub fn decode(page: &[u8]) -> Result<Superblock, SuperblockError> {
        let page = page.get(..PAGE_SIZE).ok_or(SuperblockError::Damaged)?;
        check(page, MAGIC)?;
        let devices = usize::try_from(u64_at(page, 88)).unwrap_or(usize::MAX);
        if devices > MOST_DEVICES {
            return Err(SuperblockError::Damaged);
        }
        Ok(Superblock {
            sequence: u64_at(page, 16),
            id: u64_at(page, 24),
            shards: u32_at(page, 32),
            region: u64_at(page, 40),
            opened: u64_at(page, 48),
            clean: u64_at(page, 56),
            cas_reserved: u64_at(page, 64),
            last_second: u64_at(page, 72),
            flush_due: u64_at(page, 80),
            flush_missed: u64_at(page, 96) != 0,
            opening: u64_at(page, 104),
            items_saved: u64_at(page, 112) != 0,
            hash_seed: HashSeed(u64_at(page, 120)),
            memory: u64_at(page, 128),
            devices: (0..devices)
                .map(|n| u64_at(page, DEVICES_AT + n * DEVICE_BYTES))
                .collect(),
        })
    }

    /// Reads both pages of a device and returns the newer intact one.
    ///
    /// # Errors
    /// If neither is intact; [`SuperblockError::Blank`] only if both are blank.
    pub fn read(device: &dyn Device) -> Result<Superblock, SuperblockError> {
        let read = |page| {
            let mut buf = AlignedBuf::new(1);
            device.read(page, &mut buf, tag())?;
            Superblock::decode(&buf)
        };
        match (read(0), read(1)) {
            (Ok(a), Ok(b)) => Ok(if a.sequence >= b.sequence { a } else { b }),
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
            (Err(SuperblockError::Blank), Err(other)) => Err(other),
            (Err(other), Err(_)) => Err(other),
        }
    }

    /// Writes both pages, one after the other, each durable before the next.
    ///
    /// # Errors
    /// The device's errors. One of the pages may have the new contents then.
    pub fn write(&mut self, device: &dyn Device) -> Result<(), SuperblockError> {
        self.sequence += 1;
        let mut buf = AlignedBuf::new(1);
        self.encode(&mut buf)?;
        for page in 0..Superblock::PAGES {
            device.write(page, &buf, tag())?;
            device.flush(tag())?;
        }
        Ok(())
    }
}

/// The label on the first page of a flash file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLabel {
    /// The data directory that the file belongs to; 0: it was last used without one.
    pub id: u64,
    /// The file's number in the directory.
    pub number: u32,
    /// The file's pages.
    pub pages: u64,
    /// How often the directory had been opened when the label was written.
    pub opened: u64,
}

impl DeviceLabel {
    /// Decodes the label in a page.
    pub fn decode(page: &[u8]) -> Result<DeviceLabel, SuperblockError> {
        let page = page.get(..PAGE_SIZE).ok_or(SuperblockError::Damaged)?;
        check(page, LABEL_MAGIC)?;
        Ok(DeviceLabel {
            id: u64_at(page, 16),
            number: u32_at(page, 24),
            pages: u64_at(page, 32),
            opened: u64_at(page, 40),
        })
    }

    /// The page of a label.
    pub fn encode(&self, page: &mut [u8]) {
        let page = &mut page[..PAGE_SIZE];
        page.fill(0);
        set(page, 16, self.id);
        set(page, 24, u64::from(self.number));
        set(page, 32, self.pages);
        set(page, 40, self.opened);
        seal(page, LABEL_MAGIC);
    }

    /// Whether a page begins like a label, intact or not, of any version.
    pub fn marks(page: &[u8]) -> bool {
        page.starts_with(LABEL_MAGIC)
    }

    /// Reads the label of a device.
    pub fn read(device: &dyn Device) -> Result<DeviceLabel, SuperblockError> {
        let mut buf = AlignedBuf::new(1);
        device.read(0, &mut buf, tag())?;
        DeviceLabel::decode(&buf)
    }

    /// Writes the label, durably.
    pub fn write(&self, device: &dyn Device) -> Result<(), SuperblockError> {
        let mut buf = AlignedBuf::new(1);
        self.encode(&mut buf);
        device.write(0, &buf, tag())?;
        device.flush(tag())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use senko_io::faulty::FaultyDevice;

    fn block() -> Superblock {
        Superblock {
            sequence: 1,
            id: 2,
            shards: 3,
            region: 4,
            opened: 5,
            opening: 77,
            clean: 6,
            cas_reserved: 7,
            last_second: 8,
            flush_due: 9,
            flush_missed: true,
            items_saved: true,
            hash_seed: HashSeed(78),
            memory: 79,
            devices: vec![10, 11],
        }
    }

    #[test]
    fn fields_are_where_the_format_document_says_and_no_bit_flips_unseen() {
        let mut page = vec![0; PAGE_SIZE];
        block().encode(&mut page).expect("two devices fit");
        let words: Vec<u64> = (2..17).map(|n| u64_at(&page, n * 8)).collect();
        assert_eq!(words, [1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 1, 77, 1, 78, 79]);
        assert_eq!((u64_at(&page, 144), u64_at(&page, 160)), (10, 11));
        assert_eq!(Superblock::decode(&page), Ok(block()));
        let label = DeviceLabel {
            id: 1,
            number: 2,
            pages: 3,
            opened: 4,
        };
        let mut labelled = vec![0; PAGE_SIZE];
        label.encode(&mut labelled);
        assert_eq!(DeviceLabel::decode(&labelled), Ok(label));
        for bit in 0..PAGE_SIZE * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            labelled[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&page).is_err(), "bit {bit}");
            assert!(DeviceLabel::decode(&labelled).is_err(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
            labelled[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Power is lost at every write and flush of a change. A reader then gets the superblock from
    /// before or after the change. Once the change has returned, it gets the new one, whichever
    /// page is damaged then.
    #[test]
    fn a_change_is_whole_or_was_not_made() {
        for seed in 0..500 {
            let device = FaultyDevice::new(Superblock::PAGES, seed);
            let mut before = block();
            before.write(&*device).expect("no faults yet");
            let mut after = before.clone();
            after.clean = 0;
            device.fail_from(
                if seed % 2 == 0 {
                    senko_io::Op::Write
                } else {
                    senko_io::Op::Flush
                },
                1 + seed / 2 % 3,
                5,
            );
            let done = after.write(&*device).is_ok();
            device.heal();
            device.crash();
            let found = Superblock::read(&*device).expect("one page is whole");
            assert!(found == after || !done && found == before, "seed {seed}");
            if done {
                device.flip_bit(seed % 2, 300);
                assert_eq!(Superblock::read(&*device), Ok(after), "seed {seed}");
            }
        }
    }
}
