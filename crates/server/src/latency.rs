// SPDX-License-Identifier: Apache-2.0
//! How long requests took, by command and tier: counted by each worker, shown by the admin
//! listener.
//!
//! Requests are not timed one by one. A worker's round answers many requests, and the answers leave
//! together at its end. So a round reads the clock once more when it ends. The requests that its
//! counters counted in between took the time of the round ([`Meter::end_round`]). A command that
//! waited for flash ([`Waited`]) is an exception: its time runs from the start of the round that
//! first ran it.
//!
//! These times do not include the wait at the socket before the worker reads a request. For a key
//! of another worker's shard, they do not include the time between the workers. The worker that
//! runs a command counts it.

use std::time::Instant;

use senko_io::Times;

use crate::shared::ThreadStats;

/// The series: a label of the command and one of the tier.
pub(crate) const SERIES: [(&str, &str); 11] = [
    ("get", "dram"),
    ("get", "flash"),
    ("get", "none"),
    ("set", "dram"),
    ("set", "flash"),
    ("touch", "dram"),
    ("touch", "flash"),
    ("delete", "dram"),
    ("delete", "flash"),
    ("arithmetic", "dram"),
    ("arithmetic", "flash"),
];

/// The times of each of the [`SERIES`]; empty if nobody watches.
pub(crate) type RequestTimes = Vec<Times>;

/// Answered commands, derived from the worker's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answered {
    hits: u64,
    misses: u64,
    sets: u64,
    touches: u64,
    deletes: u64,
    arithmetic: u64,
}

impl Answered {
    pub(crate) fn of(stats: &ThreadStats) -> Answered {
        Answered {
            hits: stats.get_hits,
            misses: stats.get_misses,
            sets: stats.cmd_set,
            touches: stats.cmd_touch,
            deletes: stats.delete_hits + stats.delete_misses,
            arithmetic: stats.incr_hits + stats.incr_misses + stats.decr_hits + stats.decr_misses,
        }
    }

    /// The difference to `before`; zero if the counters were reset meanwhile.
    fn since(self, before: Answered) -> Answered {
        self.each(before, u64::saturating_sub)
    }

    fn each(self, other: Answered, change: fn(u64, u64) -> u64) -> Answered {
        Answered {
            hits: change(self.hits, other.hits),
            misses: change(self.misses, other.misses),
            sets: change(self.sets, other.sets),
            touches: change(self.touches, other.touches),
            deletes: change(self.deletes, other.deletes),
            arithmetic: change(self.arithmetic, other.arithmetic),
        }
    }

    /// The commands in the order of [`SERIES`]: answered from DRAM, or after a wait for flash.
    fn by_series(self, flash: bool) -> [u64; SERIES.len()] {
        let both = |n: u64| if flash { [0, n] } else { [n, 0] };
        let [hit_dram, hit_flash] = both(self.hits);
        // A miss that needed a flash read counts for flash.
        let [miss, miss_flash] = both(self.misses);
        let [set, set_flash] = both(self.sets);
        let [touch, touch_flash] = both(self.touches);
        let [delete, delete_flash] = both(self.deletes);
        let [sum, sum_flash] = both(self.arithmetic);
        [
            hit_dram,
            hit_flash + miss_flash,
            miss,
            set,
            set_flash,
            touch,
            touch_flash,
            delete,
            delete_flash,
            sum,
            sum_flash,
        ]
    }
}

/// The round's start, for sessions, and the commands whose wait ended in this round.
#[derive(Clone, Debug, Default)]
pub struct Waited {
    /// When the round began; `None` if nobody watches.
    pub began: Option<Instant>,
    ended: Vec<End>,
}

/// Commands that waited and were answered in this round.
#[derive(Clone, Copy, Debug)]
struct End {
    answered: Answered,
    since: Instant,
    flash: bool,
}

impl Waited {
    /// Counts a command that began at `since` and ran again; `before` are the counters before this
    /// run.
    pub(crate) fn ran(
        &mut self,
        since: Option<Instant>,
        flash: bool,
        before: Answered,
        stats: &ThreadStats,
    ) {
        let Some(since) = since else {
            return;
        };
        let answered = Answered::of(stats).since(before);
        if answered != Answered::default() {
            self.ended.push(End {
                answered,
                since,
                flash,
            });
        }
    }
}

#[derive(Debug)]
pub(crate) struct Meter {
    times: RequestTimes,
    before: Answered,
}

impl Meter {
    pub(crate) fn new(watched: bool) -> Meter {
        Meter {
            times: match watched {
                true => vec![Times::default(); SERIES.len()],
                false => Vec::new(),
            },
            before: Answered::default(),
        }
    }

    pub(crate) fn times(&self) -> &RequestTimes {
        &self.times
    }

    pub(crate) fn begin_round(&self, waited: &mut Waited, now: Instant) {
        waited.began = (!self.times.is_empty()).then_some(now);
    }

    /// Ends a round that [`Meter::begin_round`] began, with the present counters.
    pub(crate) fn end_round(&mut self, waited: &mut Waited, stats: &ThreadStats) {
        let Some(began) = waited.began else {
            return;
        };
        let counted = Answered::of(stats);
        let before = std::mem::replace(&mut self.before, counted);
        if counted == before {
            return;
        }
        let now = Instant::now();
        let mut at_once = counted.since(before);
        for end in waited.ended.drain(..) {
            at_once = at_once.since(end.answered);
            self.count(end.answered, end.flash, end.since, now);
        }
        self.count(at_once, false, began, now);
    }

    fn count(&mut self, answered: Answered, flash: bool, since: Instant, now: Instant) {
        let took = now.saturating_duration_since(since);
        let counts = answered.by_series(flash);
        for (times, count) in self.times.iter_mut().zip(counts) {
            if count > 0 {
                times.add(took, count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn counts(meter: &Meter) -> Vec<u64> {
        meter.times().iter().map(Times::count).collect()
    }

    #[test]
    fn what_waited_is_told_from_what_did_not() {
        let mut meter = Meter::new(true);
        let mut waited = Waited::default();
        let mut stats = ThreadStats::default();
        let start = Instant::now();
        meter.begin_round(&mut waited, start);
        stats.get_hits = 5;
        stats.get_misses = 2;
        stats.cmd_set = 1;
        let before = Answered::of(&stats);
        stats.get_hits += 1;
        let earlier = start.checked_sub(Duration::from_secs(9)).or(Some(start));
        waited.ran(earlier, true, before, &stats);
        meter.end_round(&mut waited, &stats);
        assert_eq!(counts(&meter), [5, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0]);
        // After a reset of the counters nothing is counted, and the next round continues.
        stats = ThreadStats::default();
        meter.end_round(&mut waited, &stats);
        stats.delete_misses = 3;
        meter.end_round(&mut waited, &stats);
        assert_eq!(counts(&meter), [5, 1, 2, 1, 0, 0, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn nothing_is_counted_where_nobody_watches() {
        let mut meter = Meter::new(false);
        let mut waited = Waited::default();
        meter.begin_round(&mut waited, Instant::now());
        assert_eq!(waited.began, None);
        let stats = ThreadStats {
            get_hits: 1,
            ..ThreadStats::default()
        };
        waited.ran(waited.began, true, Answered::default(), &stats);
        meter.end_round(&mut waited, &stats);
        assert!(meter.times().is_empty());
    }
}
