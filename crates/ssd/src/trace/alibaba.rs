// SPDX-License-Identifier: Apache-2.0
//! Alibaba Cloud's block traces.
//!
//! Source: the README of Alibaba's `block-traces` repository (Li et al., "An In-Depth Analysis of
//! Cloud Block Storage Workloads in Large-Scale Production", IISWC 2020). Each line has one
//! request: `device_id,opcode,offset,length,timestamp`.
//!
//! | field | unit |
//! |---|---|
//! | device_id | number of the virtual disk |
//! | opcode | `R` or `W` |
//! | offset, length | bytes |
//! | timestamp | microseconds since 1970 |
//!
//! Deviation: none.

use super::fields::{self, MICROSECOND};
use super::parser::{LineParser, Parsed, read_or_write, want};

pub(super) struct Alibaba;

impl LineParser for Alibaba {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let mut fields = fields::commas(line);
        let mut next = || fields.next().unwrap_or_default();
        let first = next();
        if first.eq_ignore_ascii_case(b"device_id") {
            return Parsed::Heading;
        }
        let device = want!(fields::uint32(first), "the device is not a number");
        let op = want!(read_or_write(next()), "the opcode is neither R nor W");
        let offset = want!(fields::uint(next()), "the offset is not a number");
        let bytes = want!(fields::uint(next()), "the length is not a number");
        let time = want!(
            fields::time(next(), MICROSECOND),
            "the timestamp is not a number"
        );
        Parsed::request(time, device, op, offset, bytes)
    }
}
