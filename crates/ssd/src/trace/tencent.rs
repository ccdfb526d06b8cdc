// SPDX-License-Identifier: Apache-2.0
//! Tencent's traces of cloud block storage.
//!
//! Source: the README of the SNIA IOTTA set 27917 (Zhang et al., "OSCA: An Online-Model Based Cache
//! Allocation Scheme in Cloud Block Storage Systems", USENIX ATC 2020). Each line has one request:
//! `Timestamp,Offset,Size,IOType,VolumeID`.
//!
//! | field | unit |
//! |---|---|
//! | Timestamp | whole seconds since 1970 (option `unit`) |
//! | Offset, Size | 512 B sectors (option `sector`) |
//! | IOType | 0 reads, 1 writes |
//! | VolumeID | number of the volume |
//!
//! Deviation: requests of the same second come at once, since the format has no finer times.

use super::fields;
use super::parser::{LineParser, Parsed, want};
use crate::Op;

pub(super) struct Tencent {
    pub unit_ns: u64,
    pub sector: u64,
}

/// Unix times that a guess accepts as Tencent's: from 2001 to 2286.
pub(super) fn is_unix_time(line: &[u8]) -> bool {
    let first = fields::commas(line).next().unwrap_or_default();
    fields::uint(first).is_some_and(|second| (1_000_000_000..10_000_000_000).contains(&second))
}

impl LineParser for Tencent {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let mut fields = fields::commas(line);
        let mut next = || fields.next().unwrap_or_default();
        let first = next();
        if first.eq_ignore_ascii_case(b"timestamp") {
            return Parsed::Heading;
        }
        let time = want!(
            fields::time(first, self.unit_ns),
            "the timestamp is not a number"
        );
        let offset = want!(fields::uint(next()), "the offset is not a number");
        let size = want!(fields::uint(next()), "the size is not a number");
        let op = match next() {
            b"0" => Op::Read,
            b"1" => Op::Write,
            _ => return Parsed::Damaged("the I/O type is neither 0 nor 1"),
        };
        let device = want!(fields::uint32(next()), "the volume is not a number");
        let offset = offset.checked_mul(self.sector);
        let offset = want!(offset, "the address is beyond 2^64");
        let bytes = want!(size.checked_mul(self.sector), "the size is beyond 2^64");
        Parsed::request(time, device, op, offset, bytes)
    }
}
