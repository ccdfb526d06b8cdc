// SPDX-License-Identifier: Apache-2.0
//! The page references of the ARC paper (`.lis`), as requests to a drive.
//!
//! Source: Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003. Each
//! line has one run, `start count ignored ignored`: references to the pages `start`, `start + 1`,
//! ... A line becomes one request of `count` pages. So the number of references of a trace is the
//! number of its pages, not of its requests.
//!
//! Options: `op` says whether references read (the default) or write; `page` is the bytes of a page
//! (4096). The format has no times: all requests come at time 0.

use senko_workload::trace::arc_line;

use super::fields::Stamp;
use super::parser::{LineParser, Parsed, want};
use crate::Op;

pub(super) struct Lis {
    pub op: Op,
    pub page: u64,
}

impl LineParser for Lis {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let run = arc_line(line).ok();
        let (start, count) = want!(run, "it is not a first page, count and two more numbers");
        let offset = want!(start.checked_mul(self.page), "the address is beyond 2^64");
        let bytes = count.checked_mul(self.page);
        let bytes = want!(bytes, "the count is beyond 2^64 bytes");
        Parsed::request(Stamp::at(0), 0, self.op, offset, bytes)
    }

    fn timed(&self) -> bool {
        false
    }
}
