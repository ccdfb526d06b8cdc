// SPDX-License-Identifier: Apache-2.0
//! Commits that survive the process before they are in the log: their bytes are stored to mapped
//! memory.
//!
//! A `Buffered` commit is one copy of some tens of bytes here; the log would need a page and a
//! system call. The commits also stay pending for the log: its next group has them.
//!
//! Layout: docs/formats/dbm.md. The memory is that of pages of the first segment, which the log
//! does not use: two halves, filled in turn. A half begins with the place in the log after which
//! its commits follow. Then come frames of commits, each with a checksum that continues the
//! previous one. So frames of an earlier filling are never read.
//!
//! A half also says how far its frames go. While the system has not lost power ([`Device::boot`]),
//! fewer frames are damage.
//!
//! HALF-1: when a half begins, every commit is in the log before it or in the other half, and is in
//! this one before the next commit does. So all pending commits go to the log first. Otherwise a
//! half would be overwritten whose commits are nowhere else. After a log that reaches a half's
//! place, the two halves have all commits without a gap. HALF-2: each checkpoint begins a half, so
//! no valid half begins before the log's replay position. HALF-3: a commit that is no longer
//! pending may still be on its way to the log. So a `Buffered` commit returns only when the tail
//! has it, or when the write of its group has returned.

use std::sync::atomic::{Ordering, compiler_fence};

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag, le};

use crate::disk::log::Position;
use crate::error::DbmError;

/// The first page of each half, between the superblock's slots and the log.
const PLACES: [u64; 2] = [2, 10];
const PAGES: usize = 5;
const HALF: usize = PAGES * PAGE_SIZE;
const MAGIC: u32 = 0x4c54_4b53;
/// Bytes of a head, at the end of which is where the frames end and the checksum of the last one.
const HEAD: usize = 56;
const END: usize = HEAD - 8;
/// The copies of the head: at the beginning, and in another page.
const HEADS: [usize; 2] = [0, MOST];
/// Where frames end at the latest.
const MOST: usize = HALF - HEAD;
const FRAME: usize = 8;

/// The memory, as the writing thread holds it.
pub(crate) struct Tail {
    halves: [AlignedBuf; 2],
    boot: u128,
    /// The half in use, and the place of its next frame.
    half: usize,
    at: usize,
    /// Checksum of the last frame.
    crc: u32,
}

impl Tail {
    /// The memory of a device, if the device has any.
    pub fn of(device: &dyn Device) -> Option<Tail> {
        // Without it, each commit takes a page of the log; nothing else changes.
        let map = |place: u64| device.map(place, PAGES).ok()?;
        Some(Tail {
            halves: [map(PLACES[0])?, map(PLACES[1])?],
            boot: device.boot().unwrap_or(0),
            half: 1,
            at: MOST,
            crc: 0,
        })
    }

    /// Continues in the other half; the log has all commits before `position`.
    pub fn begin(&mut self, position: Position) {
        self.half = 1 - self.half;
        let mut head = [0; END];
        head[4..8].copy_from_slice(&MAGIC.to_le_bytes());
        head[8..16].copy_from_slice(&position.page.to_le_bytes());
        head[16..24].copy_from_slice(&position.sequence.to_le_bytes());
        head[24..28].copy_from_slice(&position.previous.to_le_bytes());
        head[32..].copy_from_slice(&self.boot.to_le_bytes());
        self.crc = crc32c::crc32c(&head[4..]);
        head[..4].copy_from_slice(&self.crc.to_le_bytes());
        let half = &mut self.halves[self.half];
        // While one copy changes, the other is whole, and the frames of neither are missing.
        for at in HEADS {
            half[at + END..at + HEAD].fill(0);
            compiler_fence(Ordering::Release);
            half[at..at + END].copy_from_slice(&head);
            compiler_fence(Ordering::Release);
        }
        self.at = HEAD;
        self.tell();
    }

    /// Stores where the frames end.
    fn tell(&mut self) {
        let end = (self.at as u64 | u64::from(self.crc) << 32).to_le_bytes();
        compiler_fence(Ordering::Release);
        for at in HEADS {
            self.halves[self.half][at + END..at + HEAD].copy_from_slice(&end);
        }
    }

    /// Accepts nothing more before the next half.
    pub fn end(&mut self) {
        self.at = MOST;
    }

    /// Appends whole commits. False if there is no room. Then the half ends, because later commits
    /// would follow a gap.
    pub fn append(&mut self, commits: &[u8]) -> bool {
        let end = self.at + FRAME + commits.len();
        if end > MOST {
            self.end();
            return false;
        }
        let half = &mut self.halves[self.half];
        self.crc = crc32c::crc32c_append(self.crc, commits);
        half[self.at + FRAME..end].copy_from_slice(commits);
        half[self.at + 4..self.at + FRAME].copy_from_slice(&self.crc.to_le_bytes());
        half[self.at..self.at + 4].copy_from_slice(&(commits.len() as u32).to_le_bytes());
        self.at = end;
        self.tell();
        true
    }
}

/// A half, as a process left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Half {
    /// The place in the log after which its commits follow.
    pub position: Position,
    /// Its commits in order.
    pub commits: Vec<u8>,
    /// Whether frames are missing that must be there.
    pub is_cut: bool,
}

/// Reads the state that a process left.
pub(crate) fn read(device: &dyn Device) -> Result<Vec<Half>, DbmError> {
    let mut halves = Vec::new();
    let (mut half, mut last) = (AlignedBuf::new(PAGES), AlignedBuf::new(1));
    for place in PLACES {
        let read = |page, to: &mut [u8]| {
            device
                .read(page, to, Tag::dbm(Purpose::Recover))
                .map_err(DbmError::io("reading commits that are not in the log"))
        };
        // Both copies of the head are read before the frames: a living writer may add some.
        read(place + PAGES as u64 - 1, &mut last)?;
        read(place, &mut half)?;
        halves.extend(read_half(&half, &last[PAGE_SIZE - HEAD..], device.boot()));
    }
    halves.sort_by_key(|half| half.position.sequence);
    Ok(halves)
}

/// The half that `copy` of the head and these bytes have.
fn read_half(half: &[u8], copy: &[u8], boot: Option<u128>) -> Option<Half> {
    let is_whole = |head: &&[u8]| {
        le::u32_at(head, 0) == crc32c::crc32c(&head[4..END]) && le::u32_at(head, 4) == MAGIC
    };
    // A copy of an earlier half is left if the process was killed when it began this one.
    let heads = [&half[..HEAD], copy].into_iter().filter(is_whole);
    let head = heads.max_by_key(|head| (le::u64_at(head, 16), le::u32_at(head, END)))?;
    let position = Position {
        page: le::u64_at(head, 8),
        sequence: le::u64_at(head, 16),
        previous: le::u32_at(head, 24),
    };
    let mut crc = le::u32_at(head, 0);
    let (mut at, mut commits) = (HEAD, Vec::new());
    while at + FRAME <= MOST {
        let from = at + FRAME;
        let bytes = half[..MOST].get(from..from + le::u32_at(half, at) as usize);
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        crc = crc32c::crc32c_append(crc, bytes);
        if le::u32_at(half, at + 4) != crc {
            break;
        }
        commits.extend_from_slice(bytes);
        at = from + bytes.len();
    }
    let of = u128::from(le::u64_at(head, 40)) << 64 | u128::from(le::u64_at(head, 32));
    let is_cut = of != 0 && boot == Some(of) && at < le::u32_at(head, END) as usize;
    Some(Half {
        position,
        commits,
        is_cut,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte table of docs/formats/dbm.md, and what is read of a half that was cut anywhere.
    #[test]
    fn a_half_lies_as_documented_and_tells_where_it_was_cut() {
        let device = senko_io::faulty::FaultyDevice::new(100, 1);
        let mut tail = Tail::of(&*device).expect("the device has memory");
        let position = Position {
            page: 0x0807_0605_0403_0201,
            sequence: 0x100f_0e0d_0c0b_0a09,
            previous: 0x1413_1211,
        };
        tail.begin(position);
        assert!(tail.append(b"first") && tail.append(b"second"));
        let boot = device.boot();
        let memory = tail.halves[0].to_vec();
        assert_eq!(memory[4..8], *b"SKTL");
        assert_eq!(memory[8..28], (1..=20).collect::<Vec<u8>>()[..]);
        assert_eq!(memory[32..48], boot.expect("it has one").to_le_bytes());
        assert_eq!(memory[48..52], 83u32.to_le_bytes());
        assert_eq!(memory[56..60], 5u32.to_le_bytes());
        assert_eq!(memory[64..69], *b"first");
        let whole = |commits: &str, is_cut| {
            Some(Half {
                position,
                commits: commits.as_bytes().to_vec(),
                is_cut,
            })
        };
        assert_eq!(
            read_half(&memory, &memory[MOST..], boot),
            whole("firstsecond", false)
        );
        // The copy of the head serves, and says what is missing.
        for (zeros, left) in [
            (0..1, whole("firstsecond", false)),
            (0..PAGE_SIZE, whole("", true)),
            (60..61, whole("", true)),
            (68..69, whole("", true)),
            (69..HALF, whole("first", true)),
            (82..83, whole("first", true)),
            (83..HALF, whole("firstsecond", false)),
            (0..HALF, None),
        ] {
            let mut half = memory.clone();
            half[zeros.clone()].fill(0);
            assert_eq!(
                read_half(&half, &half[MOST..], boot),
                left,
                "zeros at {zeros:?}"
            );
            // After another boot, a power cut may have taken it.
            let left = left.map(|half| Half {
                is_cut: false,
                ..half
            });
            assert_eq!(
                read_half(&half, &half[MOST..], Some(u128::MAX)),
                left,
                "zeros at {zeros:?}"
            );
        }
        tail.begin(Position {
            sequence: 1,
            ..position
        });
        let most = MOST - HEAD - FRAME;
        assert!(tail.append(&vec![7; most]) && !tail.append(b""));
        let halves = read(&*device).expect("it has");
        assert_eq!(
            halves
                .iter()
                .map(|half| (half.commits.len(), half.is_cut))
                .collect::<Vec<_>>(),
            [(most, false), (11, false)]
        );
    }
}
