// SPDX-License-Identifier: Apache-2.0
//! Logs of `fio` (`write_iolog`), versions 2 and 3.
//!
//! Source: "Trace file format" v2 and v3 of fio's HOWTO. The first line names the version. Then, in
//! version 2,
//!
//! ```text
//! file add|open|close
//! file read|write|trim|sync|datasync|wait offset length
//! ```
//!
//! and in version 3 the same, with a time in microseconds before each line, and without `wait`.
//! Offset and length are bytes, except for `wait`, whose offset is a time in microseconds since the
//! `wait` before it. `sync` and `datasync` are flushes.
//!
//! Files are numbered as devices in the order in which they are first named. A version 2 log
//! without `wait` has no times: all of its requests come at time 0.
//!
//! Deviations: fio ignores waits of less than 100 us; here they count. Logs of several runs one
//! after the other are one trace.

use std::collections::HashMap;

use super::fields::{self, MICROSECOND, Stamp};
use super::parser::{LineParser, Parsed, want};
use crate::Op;

/// How a log starts, before the version.
pub(super) const START: &[u8] = b"fio version ";
/// Most files that are distinguished.
const MAX_FILES: usize = 1 << 16;

pub(super) struct Fio {
    /// 0 before the first line.
    version: u8,
    files: HashMap<Box<[u8]>, u32>,
    last: (Box<[u8]>, u32),
    /// The time that waits add up to.
    now: u64,
    /// Whether there are times: those of version 3, or waits.
    timed: bool,
}

impl Fio {
    /// A parser for a log that starts with `head`.
    pub(super) fn new(head: &[u8]) -> Fio {
        let third = head.starts_with(START) && head.get(START.len()) == Some(&b'3');
        Fio {
            version: 0,
            files: HashMap::new(),
            last: (Box::default(), 0),
            now: 0,
            // Known from the start if the head says it.
            timed: third || memchr::memmem::find(head, b" wait ").is_some(),
        }
    }

    fn file(&mut self, name: &[u8]) -> Option<u32> {
        if *self.last.0 == *name {
            return Some(self.last.1);
        }
        let number = match self.files.get(name) {
            Some(&number) => number,
            None if self.files.len() < MAX_FILES => {
                let number = self.files.len() as u32;
                self.files.insert(name.into(), number);
                number
            }
            None => return None,
        };
        self.last = (name.into(), number);
        Some(number)
    }

    fn first_line(&mut self, line: &[u8]) -> Parsed {
        self.version = match line.strip_prefix(START) {
            Some([b'2', ..]) => 2,
            Some([b'3', ..]) => {
                self.timed = true;
                3
            }
            Some(_) => {
                // Read as the newest known version: a later one may have only added to it.
                self.version = 3;
                return Parsed::Damaged("only versions 2 and 3 of fio's logs are known");
            }
            None => {
                self.version = 2;
                return Parsed::Damaged("the log does not start with \"fio version\"");
            }
        };
        Parsed::Heading
    }
}

impl LineParser for Fio {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        if self.version == 0 || line.starts_with(START) {
            return self.first_line(line);
        }
        let mut words = fields::words(line);
        let mut next = || words.next().unwrap_or_default();
        let mut time = Stamp::at(self.now);
        if self.version == 3 {
            time = want!(
                fields::time(next(), MICROSECOND),
                "the time is not a number"
            );
        }
        let (name, action) = (next(), next());
        let op = match action {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Trim,
            b"sync" | b"datasync" | b"sync_file_range" => Op::Flush,
            b"add" | b"open" | b"close" => {
                want!(self.file(name), "there are more than 65,536 files");
                return Parsed::Other;
            }
            b"wait" if self.version == 2 => {
                let wait = want!(
                    fields::uint(next()).and_then(|us| us.checked_mul(MICROSECOND)),
                    "the wait is not a number"
                );
                self.now = want!(self.now.checked_add(wait), "the time is beyond 2^64 ns");
                self.timed = true;
                return Parsed::Other;
            }
            _ => return Parsed::Damaged("the action is not one of fio's"),
        };
        let (offset, length) = (next(), next());
        let (offset, bytes) = if op == Op::Flush {
            (0, 0)
        } else {
            (
                want!(fields::uint(offset), "the offset is not a number"),
                want!(fields::uint(length), "the length is not a number"),
            )
        };
        let device = want!(self.file(name), "there are more than 65,536 files");
        Parsed::request(time, device, op, offset, bytes)
    }

    fn timed(&self) -> bool {
        self.timed
    }
}
