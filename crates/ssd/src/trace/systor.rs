// SPDX-License-Identifier: Apache-2.0
//! The VDI traces of SYSTOR '17.
//!
//! Source: the SNIA IOTTA set 4964 (Lee et al., "Understanding Storage Traffic Characteristics on
//! Enterprise Virtual Desktop Infrastructure", SYSTOR 2017). Each line has one request:
//! `Timestamp,Response,IOType,LUN,Offset,Size`.
//!
//! | field | unit |
//! |---|---|
//! | Timestamp | seconds since 1970, decimal |
//! | Response | seconds; not used, and empty at times |
//! | IOType | `R` or `W` |
//! | LUN | number of the volume |
//! | Offset, Size | bytes |
//!
//! Deviation: none.

use super::fields::{self, SECOND};
use super::parser::{LineParser, Parsed, read_or_write, want};

pub(super) struct Systor;

impl LineParser for Systor {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let mut fields = fields::commas(line);
        let mut next = || fields.next().unwrap_or_default();
        let first = next();
        if first.eq_ignore_ascii_case(b"timestamp") {
            return Parsed::Heading;
        }
        let time = want!(fields::time(first, SECOND), "the timestamp is not a number");
        let _response = next();
        let op = want!(read_or_write(next()), "the type is neither R nor W");
        let device = want!(fields::uint32(next()), "the LUN is not a number");
        let offset = want!(fields::uint(next()), "the offset is not a number");
        let bytes = want!(fields::uint(next()), "the size is not a number");
        Parsed::request(time, device, op, offset, bytes)
    }
}
