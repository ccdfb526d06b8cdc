// SPDX-License-Identifier: Apache-2.0
//! SPC traces: Financial and WebSearch of the UMass trace repository.
//!
//! Source: "SPC Trace File Format Specification", revision 1.0.1, Storage Performance Council, 2002.
//! Each line has one request: `ASU,LBA,bytes,opcode,seconds[,more]`.
//!
//! | field | unit |
//! |---|---|
//! | ASU | application-specific unit, the device; from 0 |
//! | LBA | 512 B blocks from the start of the ASU (option `sector`) |
//! | bytes | bytes; 0 and no multiple of 512 both occur |
//! | opcode | `R` or `W`, in any case |
//! | seconds | decimal, from the start of the trace |
//!
//! Deviation: further fields are ignored, as the specification requires; so are spaces around
//! fields.

use super::fields::{self, SECOND};
use super::parser::{LineParser, Parsed, read_or_write, want};

pub(super) struct Spc {
    pub sector: u64,
}

impl LineParser for Spc {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let mut fields = fields::commas(line);
        let mut next = || fields.next().unwrap_or_default();
        let device = want!(fields::uint32(next()), "the ASU is not a number");
        let lba = want!(fields::uint(next()), "the LBA is not a number");
        let bytes = want!(fields::uint(next()), "the size is not a number");
        let op = want!(read_or_write(next()), "the opcode is neither R nor W");
        let time = want!(fields::time(next(), SECOND), "the time is not a number");
        let offset = want!(lba.checked_mul(self.sector), "the address is beyond 2^64");
        Parsed::request(time, device, op, offset, bytes)
    }
}
