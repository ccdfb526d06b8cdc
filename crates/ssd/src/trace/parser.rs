// SPDX-License-Identifier: Apache-2.0
//! The trait of a text format's parser, and the results of a line. A parser knows only its format.
//! The reader applies the rules for all traces, in one place.

use super::fields::Stamp;
use crate::Op;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    /// The time, by the trace's own clock.
    pub time: Stamp,
    pub device: u32,
    pub op: Op,
    /// In bytes.
    pub offset: u64,
    pub bytes: u64,
    pub stream: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Request(Raw),
    /// A heading, a comment, a total.
    Heading,
    /// An event that is no request to the drive, or not the chosen event.
    Other,
    /// Something that the format does not allow, and why.
    Damaged(&'static str),
}

impl Parsed {
    /// A request without a stream, with its offset and its length in bytes.
    #[inline]
    pub(super) fn request(time: Stamp, device: u32, op: Op, offset: u64, bytes: u64) -> Parsed {
        Parsed::Request(Raw {
            time,
            device,
            op,
            offset,
            bytes,
            stream: 0,
        })
    }
}

pub(super) trait LineParser: Send {
    /// Parses one line, which is neither blank nor a `#` comment.
    fn line(&mut self, line: &[u8]) -> Parsed;

    /// Whether the lines so far had times.
    fn timed(&self) -> bool {
        true
    }
}

/// `Some` for a field's value; otherwise it leaves the parser with a reason.
macro_rules! want {
    ($field:expr, $why:literal) => {
        match $field {
            Some(value) => value,
            None => return Parsed::Damaged($why),
        }
    };
}
pub(super) use want;

/// A read or a write by a word such as `R`, `w` or `Read`.
#[inline]
pub(super) fn read_or_write(word: &[u8]) -> Option<Op> {
    match word {
        [b'r' | b'R'] => Some(Op::Read),
        [b'w' | b'W'] => Some(Op::Write),
        _ if word.eq_ignore_ascii_case(b"read") => Some(Op::Read),
        _ if word.eq_ignore_ascii_case(b"write") => Some(Op::Write),
        _ => None,
    }
}
