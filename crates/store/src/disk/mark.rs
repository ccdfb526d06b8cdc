// SPDX-License-Identifier: Apache-2.0
//! How far the youngest log is durable, in memory that survives the process. Part of `core.rs`.
//!
//! A page of a log proves that pages before it were durable, so damage there is not taken for a
//! crash. Nothing comes after the last page, so nothing proves that one. The mark does: it is
//! stored to a page of the file that is mapped, after the flush and before the write is
//! acknowledged. That takes no system call, and no flush.
//!
//! MARK-1: a mark is stored only after what it says is durable. So it is true whether it reaches
//! the device or not, and an old mark stays true. Layout: docs/formats/store.md.

use parking_lot::Mutex;
use senko_io::le::{u32_at, u64_at};
use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

/// The page of the mark, in the superblock's unit.
const PAGE: u64 = 14;
const MAGIC: u32 = 0x4d4b_4e53;

/// Two marks, stored in turn: a process may be killed while it stores one.
const PLACES: [usize; 2] = [0, 512];
const BYTES: usize = 24;

/// Where the youngest log is durable, and the memory that says so.
#[derive(Default)]
pub(crate) struct Mark {
    memory: Mutex<Option<Memory>>,
}

struct Memory {
    page: AlignedBuf,
    /// The log and its durable pages, as stored last.
    log: u64,
    pages: u32,
    next: usize,
}

impl Mark {
    /// Maps the page. Without it, nothing else changes.
    pub fn open(&self, device: &dyn Device) {
        let page = device.map(PAGE, 1).ok().flatten();
        *self.memory.lock() = page.map(|page| Memory {
            page,
            log: 0,
            pages: 0,
            next: 0,
        });
    }

    /// Notes that `pages` pages of a log are durable.
    pub fn note(&self, log: u64, pages: u32) {
        let mut memory = self.memory.lock();
        let Some(memory) = memory.as_mut() else {
            return;
        };
        if pages == 0 || (log, pages) <= (memory.log, memory.pages) {
            return;
        }
        (memory.log, memory.pages) = (log, pages);
        let mut mark = [0; BYTES];
        mark[4..8].copy_from_slice(&MAGIC.to_le_bytes());
        mark[8..16].copy_from_slice(&log.to_le_bytes());
        mark[16..20].copy_from_slice(&pages.to_le_bytes());
        let crc = crc32c::crc32c(&mark[4..]);
        mark[..4].copy_from_slice(&crc.to_le_bytes());
        let place = PLACES[memory.next];
        memory.page[place..place + BYTES].copy_from_slice(&mark);
        memory.next = 1 - memory.next;
    }
}

/// The log that the newest whole mark names, and its durable pages.
pub(crate) fn read(device: &dyn Device) -> Option<(u64, u32)> {
    let mut page = AlignedBuf::new(1);
    let read = device.read(PAGE, &mut page, Tag::store(Purpose::Recover));
    read.ok()?;
    let marks = PLACES.iter().filter_map(|&place| {
        let mark = &page[place..place + BYTES];
        let whole = u32_at(mark, 0) == crc32c::crc32c(&mark[4..]) && u32_at(mark, 4) == MAGIC;
        whole.then(|| (u64_at(mark, 8), u32_at(mark, 16)))
    });
    marks.max()
}

const _: () = assert!(PLACES[1] + BYTES <= PAGE_SIZE);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The byte table of docs/formats/store.md. A torn mark leaves the one before.
    #[test]
    fn the_newest_whole_mark_counts() {
        let device = senko_io::faulty::FaultyDevice::new(16, 1);
        assert_eq!(read(&*device), None);
        let mark = Mark::default();
        mark.note(1, 1);
        mark.open(&*device);
        mark.note(0x0807_0605_0403_0201, 0x0c0b_0a09);
        mark.note(3, 4);
        mark.note(0x0807_0605_0403_0201, 0x0c0b_0a0a);
        mark.note(0x0807_0605_0403_0201, 0x0c0b_0a09);
        let memory = |at: usize, bytes: usize| {
            let memory = mark.memory.lock();
            memory.as_ref().unwrap().page[at..at + bytes].to_vec()
        };
        assert_eq!(memory(4, 4), *b"SNKM");
        assert_eq!(memory(8, 12), (1..=12).collect::<Vec<u8>>());
        let newest = (0x0807_0605_0403_0201, 0x0c0b_0a0a);
        assert_eq!(read(&*device), Some(newest));
        mark.memory.lock().as_mut().unwrap().page[512] ^= 1;
        assert_eq!(read(&*device), Some((newest.0, newest.1 - 1)));
    }
}
