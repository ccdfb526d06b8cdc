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
//! HALF-1: when a half begins, every commit is in the log before it or in the other half, and is in
//! this one before the next commit does. So all pending commits go to the log first. Otherwise a
//! half would be overwritten whose commits are nowhere else. After a log that reaches a half's
//! place, the two halves have all commits without a gap. HALF-2: each checkpoint begins a half, so
//! no valid half begins before the log's replay position. HALF-3: a commit that is no longer
//! pending may still be on its way to the log. So a `Buffered` commit returns only when the tail
//! has it, or when the write of its group has returned.

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag, le};

use crate::DbmError;
use crate::log::Position;

/// The first page of each half, between the superblock's slots and the log.
const PLACES: [u64; 2] = [1, 9];
const PAGES: usize = 7;
const HALF: usize = PAGES * PAGE_SIZE;
const MAGIC: u32 = 0x4c54_4b53;
const HEAD: usize = 32;
const FRAME: usize = 8;

/// The memory, as the writing thread holds it.
pub(crate) struct Tail {
    halves: [AlignedBuf; 2],
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
            half: 1,
            at: HALF,
            crc: 0,
        })
    }

    /// Continues in the other half; the log has all commits before `position`.
    pub fn begin(&mut self, position: Position) {
        self.half = 1 - self.half;
        let mut head = [0; HEAD];
        head[4..8].copy_from_slice(&MAGIC.to_le_bytes());
        head[8..16].copy_from_slice(&position.page.to_le_bytes());
        head[16..24].copy_from_slice(&position.sequence.to_le_bytes());
        head[24..28].copy_from_slice(&position.previous.to_le_bytes());
        self.crc = crc32c::crc32c(&head[4..]);
        head[..4].copy_from_slice(&self.crc.to_le_bytes());
        self.halves[self.half][..HEAD].copy_from_slice(&head);
        self.at = HEAD;
    }

    /// Accepts nothing more before the next half.
    pub fn end(&mut self) {
        self.at = HALF;
    }

    /// Appends whole commits. False if there is no room. Then the half ends, because later commits
    /// would follow a gap.
    pub fn append(&mut self, commits: &[u8]) -> bool {
        let end = self.at + FRAME + commits.len();
        if end > HALF {
            self.end();
            return false;
        }
        let half = &mut self.halves[self.half];
        self.crc = crc32c::crc32c_append(self.crc, commits);
        half[self.at + FRAME..end].copy_from_slice(commits);
        half[self.at + 4..self.at + FRAME].copy_from_slice(&self.crc.to_le_bytes());
        half[self.at..self.at + 4].copy_from_slice(&(commits.len() as u32).to_le_bytes());
        self.at = end;
        true
    }
}

/// Reads the state that a process left: each half's place in the log, and its commits in order.
pub(crate) fn read(device: &dyn Device) -> Result<Vec<(Position, Vec<u8>)>, DbmError> {
    let mut halves = Vec::new();
    let mut half = AlignedBuf::new(PAGES);
    for place in PLACES {
        device
            .read(place, &mut half, Tag::dbm(Purpose::Recover))
            .map_err(DbmError::io("reading commits that are not in the log"))?;
        halves.extend(read_half(&half));
    }
    halves.sort_by_key(|(position, _)| position.sequence);
    Ok(halves)
}

fn read_half(half: &[u8]) -> Option<(Position, Vec<u8>)> {
    let (u32_at, u64_at) = (|at| le::u32_at(half, at), |at| le::u64_at(half, at));
    let mut crc = crc32c::crc32c(&half[4..HEAD]);
    if u32_at(0) != crc || u32_at(4) != MAGIC {
        return None;
    }
    let position = Position {
        page: u64_at(8),
        sequence: u64_at(16),
        previous: u32_at(24),
    };
    let (mut at, mut commits) = (HEAD, Vec::new());
    while at + FRAME <= HALF {
        let from = at + FRAME;
        let bytes = half.get(from..from + u32_at(at) as usize);
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        crc = crc32c::crc32c_append(crc, bytes);
        if u32_at(at + 4) != crc {
            break;
        }
        commits.extend_from_slice(bytes);
        at = from + bytes.len();
    }
    Some((position, commits))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte table of docs/formats/dbm.md, and what is read of a half that was cut anywhere.
    #[test]
    fn a_half_lies_as_documented_and_ends_where_it_was_cut() {
        let device = senko_io::faulty::FaultyDevice::new(100, 1);
        let mut tail = Tail::of(&*device).expect("the device has memory");
        let position = Position {
            page: 0x0807_0605_0403_0201,
            sequence: 0x100f_0e0d_0c0b_0a09,
            previous: 0x1413_1211,
        };
        tail.begin(position);
        assert!(tail.append(b"first") && tail.append(b"second"));
        let memory = &tail.halves[0];
        assert_eq!(memory[4..8], *b"SKTL");
        assert_eq!(memory[8..28], (1..=20).collect::<Vec<u8>>()[..]);
        assert_eq!(memory[32..36], 5u32.to_le_bytes());
        assert_eq!(memory[40..45], *b"first");
        for (cut, left) in [
            (0, None),
            (39, Some("")),
            (44, Some("")),
            (45, Some("first")),
            (58, Some("first")),
            (59, Some("firstsecond")),
        ] {
            let mut half = memory[..HALF].to_vec();
            half[cut..].fill(0);
            let left = left.map(|left| (position, left.as_bytes().to_vec()));
            assert_eq!(read_half(&half), left, "cut at {cut}");
        }
        tail.begin(Position {
            sequence: 1,
            ..position
        });
        let most = HALF - HEAD - FRAME;
        assert!(tail.append(&vec![7; most]) && !tail.append(b""));
        let halves = read(&*device).expect("it has");
        assert_eq!(
            halves
                .iter()
                .map(|(_, commits)| commits.len())
                .collect::<Vec<_>>(),
            [most, 11]
        );
    }
}
