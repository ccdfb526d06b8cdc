// SPDX-License-Identifier: Apache-2.0
//! Traces of Meta's Tectonic file system.
//!
//! Source: the traces of Wong et al., "Baleen: ML Admission & Prefetching for Flash Caches", FAST
//! 2024, and its simulator's list of operations. A comment with the columns' names, then one
//! request per line, with columns separated by spaces: `block_id io_offset io_size op_time op_name`
//! and three to five more, which differ by year.
//!
//! | field | unit |
//! |---|---|
//! | block_id | number of the block; a block has up to 8 MiB (option `block`) |
//! | io_offset, io_size | bytes, within the block |
//! | op_time | seconds since 1970, decimal |
//! | op_name | 1, 2 and 5 get (read), 3, 4 and 6 put (write), by kind of data |
//!
//! A block's address is its number times the bytes of a block. The further columns (pipeline,
//! namespace, user, host, ...) are not used. Deviation: a request that leaves its block, as the
//! last one of a larger block would, is damaged.

use super::fields::{self, SECOND};
use super::parser::{LineParser, Parsed, want};
use crate::Op;

/// Bytes of a block, unless option `block` says otherwise.
pub(super) const BLOCK: u64 = 8 << 20;
pub(super) const LEAST_COLUMNS: usize = 8;

pub(super) struct Tectonic {
    pub block: u64,
}

impl LineParser for Tectonic {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let mut fields = fields::fields(line);
        let mut next = || fields.next().unwrap_or_default();
        let first = next();
        if first.eq_ignore_ascii_case(b"block_id") {
            return Parsed::Heading;
        }
        let block = want!(fields::uint(first), "the block is not a number");
        let within = want!(fields::uint(next()), "the offset is not a number");
        let bytes = want!(fields::uint(next()), "the size is not a number");
        let time = want!(fields::time(next(), SECOND), "the time is not a number");
        let op = match next() {
            b"1" | b"2" | b"5" => Op::Read,
            b"3" | b"4" | b"6" => Op::Write,
            _ => return Parsed::Damaged("the operation is not one of 1 to 6"),
        };
        let end = within.checked_add(bytes);
        if end.is_none_or(|end| end > self.block) {
            return Parsed::Damaged("the request leaves its block (tectonic:block=...)");
        }
        let start = want!(block.checked_mul(self.block), "the address is beyond 2^64");
        let offset = want!(start.checked_add(within), "the address is beyond 2^64");
        Parsed::request(time, 0, op, offset, bytes)
    }
}
