// SPDX-License-Identifier: Apache-2.0
//! Detects whether a file or device holds foreign data. Engines call it before they create
//! something new there.
//!
//! Always holds: it writes nothing, and reads at most [`MOST_READ`] bytes, however large the device
//! is. It reads a device of up to [`SMALL`] bytes completely. In a larger device it reads head,
//! tail, evenly spaced samples and the places where file systems keep copies of their superblocks.
//! In a sparse file it also reads the first bytes of each part between holes.

use std::fmt;
use std::ops::Range;

use crate::{AlignedBuf, Device, IoError, PAGE_SIZE, Tag};

/// A device of up to this many bytes is read completely.
const SMALL: u64 = 64 << 20;
/// Bytes that are read at the head and at the tail of a larger device.
const ENDS: u64 = 16 << 20;
/// Samples between head and tail.
const SAMPLES: u64 = 256;
/// Bytes of one read, and of a sample.
const READ: u64 = 64 << 10;
/// Where copies of superblocks lie: of btrfs at 64 MiB and 256 GiB; of ext, with blocks of 4 KiB,
/// from the second group on.
const COPIES: [u64; 5] = [64 << 20, 128 << 20, 384 << 20, 640 << 20, 256 << 30];
/// Bytes that are read at the beginning of each part of a sparse file, and of all of them.
const EXTENT: u64 = 1 << 20;
const EXTENTS: u64 = 64 << 20;
/// The most that is ever read.
pub const MOST_READ: u64 = SMALL + COPIES.len() as u64 * READ + EXTENTS;

/// Marks that identify content: their offset, their bytes, and the name of the content. All of them
/// lie in the first [`READ`] bytes and one page. Content without a mark is refused as well, just
/// without a name.
const MARKS: [(usize, &[u8], &str); 29] = [
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (0x200, b"EFI PART", "a partition table"),
    (0x218, b"LVM2", "an LVM volume"),
    (0x18, b"LVM2", "an LVM volume"),
    (0, b"LUKS\xba\xbe", "an encrypted (LUKS) volume"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a part of a RAID"),
    (0, b"\xfc\x4e\x2b\xa9", "a part of a RAID"),
    (
        0x1018,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca",
        "a bcache device",
    ),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (0, b"hsqs", "a squashfs file system"),
    (0x400, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    (0, b"QFI\xfb", "a QCOW disk image"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"SENKODEV", "a flash file of the Senko server"),
    (0, b"SENKODIR", "a superblock of the Senko server"),
    (0, b"SENKOKV\0", "a Senko store"),
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"\x7fELF", "a program"),
    // This is last, because boot sectors of file systems end like this too.
    (510, b"\x55\xaa", "a partition table"),
];

/// Foreign data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The kind of content, if a mark shows it.
    pub name: Option<&'static str>,
    /// The first byte found that is not zero.
    pub offset: u64,
}

impl fmt::Display for Content {
    /// Continues the sentence "PATH holds ...".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "data at byte {}", self.offset),
        }
    }
}

/// Looks for content on a device of `bytes` bytes; `None` if all that was read is zero. `read`
/// reads whole pages at an offset in bytes. `extent` returns the next bytes from an offset on that
/// are not holes, in whole pages; `None` if only holes follow. A page that `ours` recognizes, by
/// its offset and bytes, does not count.
///
/// # Errors
/// The errors of `read`.
pub fn find_content<E>(
    bytes: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    extent: impl FnMut(u64) -> Option<Range<u64>>,
    ours: impl Fn(u64, &[u8]) -> bool,
) -> Result<Option<Content>, E> {
    let page = PAGE_SIZE as u64;
    let end = bytes / page * page;
    let mut buf = AlignedBuf::new((READ / page) as usize + 1);
    let mut extents = Extents {
        left: if end > SMALL { EXTENTS } else { 0 },
        at: 0,
        end,
        extent,
    };
    for (first, last) in ranges(end).into_iter().chain(&mut extents) {
        let mut at = first;
        while at < last {
            // The first read has one more page, which contains the mark of btrfs.
            let most = if at == 0 { READ + page } else { READ };
            let length = (last - at).min(most) as usize;
            let part = &mut buf[..length];
            read(at, part)?;
            for (n, bytes) in part.chunks(PAGE_SIZE).enumerate() {
                let from = at + (n * PAGE_SIZE) as u64;
                let Some(byte) = bytes.iter().position(|&byte| byte != 0) else {
                    continue;
                };
                if !ours(from, bytes) {
                    let name = (at == 0).then(|| name_of(part)).flatten();
                    let offset = from + byte as u64;
                    return Ok(Some(Content { name, offset }));
                }
            }
            at += length as u64;
        }
    }
    Ok(None)
}

/// Looks for content on a device, as [`find_content`], and behind its last whole page.
///
/// # Errors
/// The device's errors.
pub fn content_of(
    device: &dyn Device,
    tag: Tag,
    ours: impl Fn(u64, &[u8]) -> bool,
) -> Result<Option<Content>, IoError> {
    let page = PAGE_SIZE as u64;
    let end = device.pages() * page;
    let found = find_content(
        end,
        |offset, buf| device.read(offset / page, buf, tag),
        |offset| {
            let pages = device.extent(offset / page)?;
            Some(pages.start * page..pages.end * page)
        },
        ours,
    )?;
    if found.is_some() {
        return Ok(found);
    }
    let rest = device.rest()?;
    let byte = rest.iter().position(|&byte| byte != 0);
    Ok(byte.map(|byte| Content {
        name: if end == 0 { name_of(&rest) } else { None },
        offset: end + byte as u64,
    }))
}

/// The parts to read of a sparse file.
struct Extents<F> {
    left: u64,
    at: u64,
    end: u64,
    extent: F,
}

impl<F: FnMut(u64) -> Option<Range<u64>>> Iterator for Extents<F> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        if self.left == 0 || self.at >= self.end {
            return None;
        }
        let found = (self.extent)(self.at)?;
        let (first, last) = (found.start.max(self.at), found.end.min(self.end));
        // Without holes, only the samples are read.
        if first >= last || (first, last) == (0, self.end) {
            return None;
        }
        self.at = last;
        let read = (last - first).min(EXTENT).min(self.left);
        self.left -= read;
        Some((first, first + read))
    }
}

/// The parts to read of a device that ends at `end`, all on page bounds.
fn ranges(end: u64) -> Vec<(u64, u64)> {
    if end <= SMALL {
        return vec![(0, end)];
    }
    let page = PAGE_SIZE as u64;
    let mut ranges = vec![(0, ENDS), (end - ENDS, end)];
    let copies = COPIES.into_iter().filter(|&at| at + READ <= end);
    ranges.extend(copies.map(|at| (at, at + READ)));
    let step = (end - 2 * ENDS) / SAMPLES / page * page;
    ranges.extend((0..SAMPLES).map(|n| (ENDS + n * step, ENDS + n * step + READ)));
    ranges
}

fn name_of(head: &[u8]) -> Option<&'static str> {
    let has = |&&(at, mark, _): &&(usize, &[u8], &str)| {
        head.get(at..at + mark.len())
            .is_some_and(|found| found == mark)
    };
    MARKS.iter().find(has).map(|&(_, _, name)| name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A device of this size that is zero except for these bytes. Returns what is read of it.
    fn look(bytes: u64, at: u64, mark: &[u8]) -> (Option<Content>, u64) {
        let sum = Cell::new(0);
        let read = |offset: u64, buf: &mut [u8]| {
            assert!(offset.is_multiple_of(4096) && buf.len().is_multiple_of(PAGE_SIZE));
            assert!(offset + buf.len() as u64 <= bytes, "within the device");
            sum.set(sum.get() + buf.len() as u64);
            buf.fill(0);
            for (n, &byte) in mark.iter().enumerate() {
                if let Some(at) = (at + n as u64).checked_sub(offset)
                    && at < buf.len() as u64
                {
                    buf[at as usize] = byte;
                }
            }
            Ok::<(), ()>(())
        };
        let found = find_content(bytes, read, |_| None, |_, _| false).unwrap();
        (found, sum.get())
    }

    /// `senko serve --flash /dev/sdb` once overwrote an unmounted file system, and
    /// `senko store put` a btrfs volume, whose pages 0, 4, 8 and 12 are zero.
    #[test]
    fn each_mark_is_found_and_named() {
        for (at, mark, name) in MARKS {
            for bytes in [1 << 20, 1 << 40] {
                let (found, _) = look(bytes, at as u64, mark);
                let found = found.unwrap_or_else(|| panic!("{name} at {at}"));
                assert_eq!(found.to_string(), name);
                assert_eq!(found.offset, at as u64);
            }
        }
    }

    #[test]
    fn a_single_byte_anywhere_in_a_small_file_is_content() {
        for at in [0, 1, 4095, 65_535, 65_536, 69_632, 9 << 20, (10 << 20) - 1] {
            let (found, sum) = look(10 << 20, at, b"x");
            assert_eq!(found.unwrap().offset, at, "byte {at}");
            assert!(sum <= 10 << 20);
        }
        assert_eq!(look(10 << 20, 0, b"").0, None);
        assert_eq!(look(0, 0, b"").0, None);
    }

    #[test]
    fn of_terabytes_a_bounded_part_is_read_and_copies_of_superblocks_are_found() {
        let large = 8 << 40;
        let (found, sum) = look(large, 0, b"");
        assert_eq!(found, None);
        assert!(sum > 0 && sum <= MOST_READ, "{sum} bytes were read");
        let end = large - 1;
        for at in [ENDS - 1, large - ENDS, end, 64 << 20, 128 << 20, 256 << 30] {
            assert_eq!(look(large, at, b"x").0.unwrap().offset, at);
        }
        // Data of a sixteenth of the device, wherever it lies.
        let (step, mut met) = (large / 16, 0);
        for (first, last) in ranges(large) {
            met |= 1_u32 << (first / step).min(15);
            assert!(first < last && last <= large);
        }
        assert_eq!(met, 0xffff);
    }

    #[test]
    fn pages_that_the_asker_knows_do_not_count() {
        let read = |_: u64, buf: &mut [u8]| {
            buf.fill(7);
            Ok::<(), ()>(())
        };
        let all = find_content(1 << 20, read, |_| None, |_, page| page[0] == 7);
        assert_eq!(all, Ok(None));
        let but_one = find_content(1 << 20, read, |_| None, |at, _| at != 8192).unwrap();
        assert_eq!(but_one.unwrap().offset, 8192);
    }

    /// All samples once missed 18 bytes in the middle of a sparse file of 1 GB.
    #[test]
    fn what_lies_between_holes_is_looked_at() {
        let (large, at) = (1 << 30, 777_777_777_u64);
        let (page, sum) = (at / 4096 * 4096, Cell::new(0));
        let read = |offset: u64, buf: &mut [u8]| {
            sum.set(sum.get() + buf.len() as u64);
            buf.fill(0);
            if let Some(byte) = at.checked_sub(offset).filter(|n| *n < buf.len() as u64) {
                buf[byte as usize] = 1;
            }
            Ok::<(), ()>(())
        };
        let mine = [0..8192, page..page + 4096, page + (1 << 20)..large];
        let extent = |from: u64| {
            let next = mine.iter().find(|extent| extent.end > from)?;
            Some(next.start.max(from)..next.end)
        };
        let found = find_content(large, read, extent, |_, _| false).unwrap();
        assert_eq!(found.unwrap().offset, at);
        // If the file is one part, or nothing is known, only the samples are read.
        let whole = |from: u64| Some(from..large);
        assert_eq!(find_content(large, read, whole, |_, _| false), Ok(None));
        // However many parts there are, at most the bound is read.
        sum.set(0);
        let many = |from: u64| Some(from + 4096..from + 12_288);
        let zero = |_: u64, buf: &mut [u8]| {
            sum.set(sum.get() + buf.len() as u64);
            buf.fill(0);
            Ok::<(), ()>(())
        };
        assert_eq!(find_content(8 << 40, zero, many, |_, _| false), Ok(None));
        assert!(sum.get() <= MOST_READ, "{} bytes were read", sum.get());
    }
}
