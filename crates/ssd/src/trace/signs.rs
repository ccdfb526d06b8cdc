// SPDX-License-Identifier: Apache-2.0
//! Habits of a trace's requests, counted while they are read. `doubts.rs` judges them.

use super::fields::SECOND;
use crate::{Op, Request, Time};

/// If sectors of this many bytes are counted as bytes, or the other way round, the error is this
/// factor.
const SECTOR: u64 = 512;
/// If a byte count of whole sectors is taken for a count of sectors, it is a multiple of this.
pub(super) const SQUARE: u64 = SECTOR * SECTOR;
/// Smaller sizes than this that are not whole sectors look like counts of sectors.
const FEW: u64 = 4096;

/// Habits of a trace's requests, counted while they are read.
#[derive(Clone, Debug, Default)]
pub(super) struct Signs {
    pub requests: u64,
    pub sized: u64,
    /// Of those, with a size that is a multiple of [`SQUARE`].
    pub square: u64,
    /// Of those, small and not whole sectors.
    pub odd: u64,
    pub whole_seconds: u64,
    /// Times that differ from the previous one, and the last time.
    pub times: u64,
    pub last: Option<Time>,
}

impl Signs {
    pub fn see(&mut self, request: &Request) {
        self.requests += 1;
        self.whole_seconds += u64::from(request.time.is_multiple_of(SECOND));
        self.times += u64::from(self.last != Some(request.time));
        self.last = Some(request.time);
        if request.op != Op::Flush {
            self.sized += 1;
            self.square += u64::from(request.bytes.is_multiple_of(SQUARE));
            let odd = request.bytes < FEW && !request.bytes.is_multiple_of(SECTOR);
            self.odd += u64::from(odd);
        }
    }
}
