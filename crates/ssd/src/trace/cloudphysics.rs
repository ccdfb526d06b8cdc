// SPDX-License-Identifier: Apache-2.0
//! CloudPhysics traces as text.
//!
//! Source: the traces of Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015,
//! in the form that libCacheSim's users distribute. A heading, then one request per line:
//! `version,time,op,size,lbn`.
//!
//! | field | unit |
//! |---|---|
//! | version | of the binary format that it was made of; not used |
//! | time | whole seconds (option `unit`) |
//! | op | the SCSI command, hexadecimal: 28 reads, 2a writes; the others as in `vscsi.rs` |
//! | size | bytes |
//! | lbn | 512 B blocks (option `sector`) |
//!
//! Deviation: requests of the same second come at once, since the format has no finer times; the
//! binary format has.

use super::fields;
use super::parser::{LineParser, Parsed, want};
use super::vscsi;

pub(super) struct CloudPhysics {
    pub unit_ns: u64,
    pub sector: u64,
}

impl LineParser for CloudPhysics {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let mut fields = fields::commas(line);
        let mut next = || fields.next().unwrap_or_default();
        let first = next();
        if first.eq_ignore_ascii_case(b"version") {
            return Parsed::Heading;
        }
        want!(fields::uint(first), "the version is not a number");
        let time = want!(
            fields::time(next(), self.unit_ns),
            "the time is not a number"
        );
        let command = want!(
            fields::hex(next()),
            "the SCSI command is not a hexadecimal number"
        );
        let bytes = want!(fields::uint(next()), "the size is not a number");
        let lbn = want!(fields::uint(next()), "the block is not a number");
        let Some(op) = vscsi::operation(command) else {
            return Parsed::Other;
        };
        let offset = want!(lbn.checked_mul(self.sector), "the address is beyond 2^64");
        Parsed::request(time, 0, op, offset, bytes)
    }
}
