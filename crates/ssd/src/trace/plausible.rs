// SPDX-License-Identifier: Apache-2.0
//! Whether a parser's result for the head of a trace is plausible. That lines can be parsed is not
//! enough: any five columns of numbers can be.
//!
//! A trace shows three signs. Sizes are whole sectors and not too large for a request. Times rise.
//! Operations are named, or both kinds occur. If a line names its operation, it is very likely a
//! request, so another missing sign only makes the guess weak. If all columns are numbers,
//! implausible sizes or times exclude the format.

use super::fields;
use super::format::Format;
use super::parser::{LineParser, Parsed};
use crate::Op;

/// The largest request size that may be frequent in a head.
const USUAL_MOST: u64 = 64 << 20;
/// With at least this many requests, disorder excludes a format.
const ENOUGH: usize = 8;

/// The evidence that one format's parser finds in the head of a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    /// Lines that were parsed as requests.
    pub requests: usize,
    /// Of the requests with bytes, those with a plausible size.
    sized: usize,
    with_bytes: usize,
    /// Of the pairs of neighbours, those in the order of time.
    rising: usize,
    reads: usize,
    writes: usize,
    /// The format has its own sign, which is missing.
    foreign: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Grade {
    /// It can't be this format, and why.
    No(&'static str),
    /// It can be, but a sign is missing.
    Weak(&'static str),
    Good,
}

impl Evidence {
    pub(super) fn of(format: Format, parser: &mut dyn LineParser, lines: &[&[u8]]) -> Evidence {
        let mut found = Evidence::default();
        let mut before = None;
        for line in lines {
            let Parsed::Request(raw) = parser.line(line) else {
                continue;
            };
            found.requests += 1;
            if raw.bytes > 0 {
                found.with_bytes += 1;
                let sectors = format.counts_sectors() || raw.bytes.is_multiple_of(512);
                found.sized += usize::from(sectors && raw.bytes <= USUAL_MOST);
            }
            found.reads += usize::from(raw.op == Op::Read);
            found.writes += usize::from(raw.op == Op::Write);
            let rises = before.is_none_or(|before| raw.time.ns >= before);
            found.rising += usize::from(rises && !raw.time.negative);
            before = Some(raw.time.ns);
        }
        found.foreign = match format {
            Format::Tencent => !lines.iter().all(|line| is_unix_time(line)),
            Format::Lis => !counts_up(lines),
            _ => false,
        };
        found
    }

    /// The strength of the evidence for `format`.
    pub(super) fn grade(&self, format: Format) -> Grade {
        let named = matches!(
            format,
            Format::Spc
                | Format::Msr
                | Format::Fiu
                | Format::Alibaba
                | Format::Systor
                | Format::CloudPhysics
        );
        let doubt = |sure: bool, why| match sure {
            true => Grade::Weak(why),
            false => Grade::No(why),
        };
        if self.with_bytes == 0 || self.sized * 2 < self.with_bytes {
            let why = "most sizes are not whole sectors, or larger than a request";
            // Names of operations are a better sign than sizes, but a SCSI command is only a
            // number.
            return doubt(named && format != Format::CloudPhysics, why);
        }
        if self.rising * 10 < self.requests * 6 && self.requests >= ENOUGH {
            return doubt(named, "times do not rise");
        }
        if self.rising * 20 < self.requests * 19 {
            return Grade::Weak("times do not always rise");
        }
        if self.sized * 10 < self.with_bytes * 9 {
            return Grade::Weak("some sizes are not whole sectors");
        }
        if self.foreign {
            return Grade::Weak(match format {
                Format::Tencent => "its times are not seconds since 1970",
                _ => "its last column does not count the lines",
            });
        }
        if format == Format::Lis || named || self.reads > 0 && self.writes > 0 {
            Grade::Good
        } else {
            Grade::Weak("there is but one kind of operation, and its flag is but a number")
        }
    }
}

/// Whether the first column is a time that a guess accepts as Tencent's: from 2001 to 2286.
fn is_unix_time(line: &[u8]) -> bool {
    let first = fields::commas(line).next().unwrap_or_default();
    fields::uint(first).is_some_and(|second| (1_000_000_000..10_000_000_000).contains(&second))
}

/// Whether the last column rises and the one before is 0, as in the traces of the ARC paper.
fn counts_up(lines: &[&[u8]]) -> bool {
    let mut before = 0;
    lines.iter().all(|line| {
        let mut words = fields::words(line).skip(2).map(fields::uint);
        let (zero, number) = (words.next().flatten(), words.next().flatten());
        let rises = number.is_some_and(|number| number >= before);
        before = number.unwrap_or(0);
        zero == Some(0) && rises
    })
}
