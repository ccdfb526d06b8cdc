// SPDX-License-Identifier: Apache-2.0
//! Figures of a trace that a user should look at again: a wrong unit, times without order, devices
//! that overlap. Each doubt is a sentence with the option that helps.
//!
//! A doubt is no error. Every one of these can be as it should be, and the user knows.

use super::fold::Fold;
use super::format::Format;
use super::summary::Summary;
use crate::{Op, Request, Time};

/// Requests from which on a habit of all of them is a sign.
const ENOUGH: u64 = 8;
const SECOND: u64 = 1_000_000_000;
/// A trace is recorded over weeks at most.
const LONG_NS: u64 = 180 * 86_400 * SECOND;
/// No host sends more requests a second.
const FASTEST: f64 = 20e6;
/// Sectors of this many bytes that are counted as bytes, or the other way round, are off by this
/// factor.
const SECTOR: u64 = 512;
/// A byte count that is whole sectors is a multiple of this when it is taken for a count of
/// sectors.
const SQUARE: u64 = SECTOR * SECTOR;
/// Sizes below this that are no whole sectors look like counts of sectors.
const FEW: u64 = 4096;

/// Habits of a trace's requests, counted as they pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Signs {
    requests: u64,
    /// Requests with bytes.
    sized: u64,
    /// Of those, with a size that is a multiple of [`SQUARE`].
    square: u64,
    /// Of those, small and no whole sectors.
    odd: u64,
    /// Requests at a whole second.
    whole_seconds: u64,
    /// Times that differ from the one before, and the last.
    times: u64,
    last: Option<Time>,
}

impl Signs {
    pub(super) fn see(&mut self, request: &Request) {
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

/// `nearly` all of `all`.
fn most(nearly: u64, all: u64) -> bool {
    all >= ENOUGH && nearly * 20 >= all * 19
}

impl Summary {
    /// What a user should look at again, each in a sentence.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let Some(format) = self.format else {
            return doubts;
        };
        if self.timed {
            self.doubt_times(format, &mut doubts);
        }
        let signs = &self.signs;
        if format.counts_sectors() && most(signs.square, signs.sized) {
            doubts.push(format!(
                "nearly all sizes are multiples of {SQUARE} bytes: they may be bytes where sectors were read ({format}:sector=1 reads sizes and addresses as bytes)"
            ));
        }
        if !format.counts_sectors() && most(signs.odd, signs.sized) {
            doubts.push(
                "nearly all sizes are small and no whole sectors: they may be sectors where bytes were read"
                    .to_owned(),
            );
        }
        doubts
    }

    fn doubt_times(&self, format: Format, doubts: &mut Vec<String>) {
        let signs = &self.signs;
        let unit = if format.options().contains(&"unit") {
            format!(" ({format}:unit=... says another unit)")
        } else {
            String::new()
        };
        let all_whole = signs.whole_seconds == signs.requests && signs.requests >= ENOUGH;
        if all_whole && self.duration_ns > 0 {
            let each = signs.requests as f64 / signs.times as f64;
            doubts.push(format!(
                "all times are whole seconds, with {each:.1} requests at once on average: response times and queues say little{unit}"
            ));
        }
        let backwards = self.counts.backwards;
        if backwards > 0 {
            doubts.push(format!(
                "{backwards} of {} times are not in order and were raised to their predecessor's: sort the trace by time",
                signs.requests
            ));
        }
        if self.duration_ns > LONG_NS {
            let years = self.duration_ns as f64 / 1e9 / 86_400.0 / 365.25;
            doubts.push(format!(
                "the trace lasts {years:.1} years: the unit of its times may be wrong{unit}"
            ));
        }
        let rate = signs.requests as f64 * 1e9 / self.duration_ns.max(1) as f64;
        if self.duration_ns > 0 && rate > FASTEST {
            doubts.push(format!(
                "{rate:.0} requests a second are more than any host sends: times may only number the requests, or have another unit{unit}"
            ));
        }
    }

    /// The sentence for devices that overlap when the trace is folded into `capacity` bytes, if
    /// they do.
    pub fn overlap(&self, fold: &Fold, capacity: u64) -> Option<String> {
        let ranges = self.devices.values();
        let ranges = ranges.map(|device| (device.first_byte, device.end_byte));
        fold.overlaps(ranges, capacity).then(|| {
            format!(
                "the {} devices of the trace overlap on the drive, so that one overwrites what another wrote: --fold compact keeps them apart, or devices=0*1g+1*500m gives each a part",
                self.devices.len()
            )
        })
    }
}
