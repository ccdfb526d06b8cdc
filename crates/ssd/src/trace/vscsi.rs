// SPDX-License-Identifier: Apache-2.0
//! VMware's `vscsiStats` traces in binary, of which CloudPhysics' are the best known.
//!
//! Source: the layouts that libCacheSim documents; commands as in SCSI's SBC-3. Records without a
//! header, little-endian:
//!
//! ```text
//! version 1, 32 bytes                         version 2, 40 bytes
//! 0  u32 number                               0  u16 command
//! 4  u32 bytes                                2  u16 version: 2 in the high byte
//! 8  u32 scatter-gather elements              4  u32 number
//! 12 u16 command                              8  u32 bytes
//! 14 u16 version: 1 in the high byte          12 u32 scatter-gather elements
//! 16 u64 block (512 B)                        16 u64 block (512 B)
//! 24 u64 time, us                             24 u64 time, us
//!                                             32 u64 response time
//! ```
//!
//! Commands that neither read, write, trim nor flush are counted as other events. A record with
//! another version is damaged. Deviation: an unmap has its addresses in its data, and data is not
//! traced. So an unmap counts as another event.

use super::fields::{MICROSECOND, Stamp};
use super::parser::Parsed;
use crate::Op;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

const BLOCK: u64 = 512;
/// Records that are checked to recognise the format.
const LOOKED_AT: usize = 64;

impl Version {
    pub(super) fn record_bytes(self) -> usize {
        match self {
            Version::One => 32,
            Version::Two => 40,
        }
    }

    /// The version of the records in `head`, if nearly all of them have its number and half of them
    /// known commands.
    pub(super) fn recognise(head: &[u8]) -> Option<Version> {
        [Version::One, Version::Two].into_iter().find(|version| {
            let records = head.chunks_exact(version.record_bytes()).take(LOOKED_AT);
            let (mut count, mut right, mut known) = (0, 0, 0);
            for record in records {
                let parsed = version.parse(record);
                count += 1;
                right += usize::from(parsed != Parsed::Damaged(OTHER_VERSION));
                known += usize::from(matches!(parsed, Parsed::Request(_)));
            }
            count > 0 && right * 10 >= count * 9 && known * 2 >= count
        })
    }

    /// One record, of [`Version::record_bytes`].
    pub(super) fn parse(self, record: &[u8]) -> Parsed {
        let word = |at: usize| number(&record[at..at + 2]);
        let (command, found, bytes, expected) = match self {
            Version::One => (word(12), word(14), number(&record[4..8]), 1),
            Version::Two => (word(0), word(2), number(&record[8..12]), 2),
        };
        if found >> 8 != expected {
            return Parsed::Damaged(OTHER_VERSION);
        }
        let Some(op) = operation(command) else {
            return Parsed::Other;
        };
        let Some(offset) = number(&record[16..24]).checked_mul(BLOCK) else {
            return Parsed::Damaged("the address is beyond 2^64");
        };
        let Some(ns) = number(&record[24..32]).checked_mul(MICROSECOND) else {
            return Parsed::Damaged("the time is beyond 2^64 ns");
        };
        Parsed::request(Stamp::at(ns), 0, op, offset, bytes)
    }
}

const OTHER_VERSION: &str = "the record is not of the trace's version";

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[inline]
pub(super) fn operation(command: u64) -> Option<Op> {
    match command {
        // READ (6), (10), (12), (16).
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        // WRITE (6), (10), (12), (16); WRITE AND VERIFY (10), (12), (16); WRITE SAME (10), (16);
        // COMPARE AND WRITE.
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e | 0x41 | 0x93 | 0x89 => Some(Op::Write),
        // SYNCHRONIZE CACHE (10), (16).
        0x35 | 0x91 => Some(Op::Flush),
        _ => None,
    }
}
