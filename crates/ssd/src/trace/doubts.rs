// SPDX-License-Identifier: Apache-2.0
//! Figures of a trace that a user should check: a wrong unit, times without order, devices that
//! overlap. Each doubt is a sentence with the option that helps.
//!
//! A doubt is not an error. Each of these can be correct, and only the user knows.

use super::fields::SECOND;
use super::fold::Fold;
use super::format::Format;
use super::signs::SQUARE;
use super::summary::Summary;

/// With at least this many requests, a common habit of all of them is a sign.
const ENOUGH: u64 = 8;
/// Traces are recorded over weeks at most.
const LONG_NS: u64 = 180 * 86_400 * SECOND;
/// No host sends more requests a second than this.
const FASTEST: f64 = 20e6;

/// `nearly` all of `all`.
fn most(nearly: u64, all: u64) -> bool {
    all >= ENOUGH && nearly * 20 >= all * 19
}

impl Summary {
    /// The doubts of a trace, each in a sentence.
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
                "nearly all sizes are small and not whole sectors: they may be sectors where bytes were read"
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
