// SPDX-License-Identifier: Apache-2.0
//! A bus that transfers one thing at a time. The flash's timeline has one for each channel, the
//! host's link one for each direction.
//!
//! On a channel a transfer gets the first gap that is long enough ([`Bus::take`]). On a link it is
//! cut into frames, so it fills all gaps from its start on ([`Bus::fill`]). So a transfer that
//! waits for something else does not delay the transfers after it.

use std::collections::VecDeque;

use crate::Time;

/// When a bus is busy: intervals in order, of which no two touch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bus {
    taken: VecDeque<(Time, Time)>,
}

impl Bus {
    /// Takes the first gap of `length` from `at` on; returns its start.
    pub(crate) fn take(&mut self, at: Time, length: Time) -> Time {
        if length == 0 {
            return at;
        }
        let mut begin = at;
        let mut place = self.taken.len();
        // The place is nearly always at the end.
        while place > 0 && self.taken[place - 1].1 > at {
            place -= 1;
        }
        while let Some(&(start, end)) = self.taken.get(place) {
            if begin + length <= start {
                break;
            }
            begin = begin.max(end);
            place += 1;
        }
        let end = begin + length;
        let joins_last = place > 0 && self.taken[place - 1].1 == begin;
        let joins_next = self.taken.get(place).is_some_and(|next| next.0 == end);
        match (joins_last, joins_next) {
            (true, true) => {
                self.taken[place - 1].1 = self.taken[place].1;
                self.taken.remove(place);
            }
            (true, false) => self.taken[place - 1].1 = end,
            (false, true) => self.taken[place].0 = begin,
            (false, false) => self.taken.insert(place, (begin, end)),
        }
        begin
    }

    /// Takes all gaps from `at` on until they add up to `length`; returns the end of the last one.
    pub(crate) fn fill(&mut self, at: Time, length: Time) -> Time {
        if length == 0 {
            return at;
        }
        let mut place = self.taken.len();
        while place > 0 && self.taken[place - 1].1 >= at {
            place -= 1;
        }
        let (mut start, mut end, mut left) = (at, at, length);
        while let Some(&(next, next_end)) = self.taken.get(place) {
            if next >= end + left {
                break;
            }
            if next <= at {
                start = next;
            } else {
                left -= next - end;
            }
            end = next_end;
            self.taken.remove(place);
        }
        let filled = end + left;
        end = filled;
        if let Some(&(next, next_end)) = self.taken.get(place)
            && next == filled
        {
            end = next_end;
            self.taken.remove(place);
        }
        self.taken.insert(place, (start, end));
        filled
    }

    /// Forgets intervals that end before `now`: nothing will ask for an earlier gap.
    pub(crate) fn forget_before(&mut self, now: Time) {
        while self.taken.front().is_some_and(|first| first.1 < now) {
            self.taken.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_fills_gaps() {
        let mut bus = Bus::default();
        assert_eq!(bus.take(100, 10), 100);
        assert_eq!(bus.take(0, 10), 0, "before what waits for later");
        assert_eq!(bus.take(95, 10), 110, "too long for the gap before 100");
        assert_eq!(bus.take(90, 10), 90, "just fits");
        assert_eq!(bus.taken, [(0, 10), (90, 120)]);
        assert_eq!(bus.take(5, 80), 10, "joins both");
        assert_eq!(bus.taken, [(0, 120)]);
        bus.forget_before(200);
        assert!(bus.taken.is_empty());
    }

    #[test]
    fn a_transfer_in_frames_leaves_no_gap() {
        let mut bus = Bus::default();
        assert_eq!(bus.fill(100, 10), 110);
        assert_eq!(bus.fill(95, 10), 115, "5 before the first, 5 after");
        assert_eq!(bus.taken, [(95, 115)]);
        assert_eq!(bus.fill(100, 5), 120, "within what is taken");
        assert_eq!(bus.fill(0, 10), 10);
        assert_eq!(bus.fill(200, 10), 210);
        assert_eq!(bus.fill(10, 85), 95, "fills one gap, touching both sides");
        assert_eq!(bus.taken, [(0, 120), (200, 210)]);
        assert_eq!(bus.fill(50, 100), 230, "80 before the next, 20 after");
        assert_eq!(bus.taken, [(0, 230)]);
    }

    /// Compares with a bus that keeps each nanosecond.
    #[test]
    fn frames_take_the_first_free_nanoseconds() {
        let mut rng = senko_workload::Rng::new(4);
        for _ in 0..200 {
            let (mut bus, mut taken) = (Bus::default(), [false; 4000]);
            for _ in 0..40 {
                let (at, length) = (rng.below(1000), rng.below(40));
                let mut end = at;
                for _ in 0..length {
                    while taken[end as usize] {
                        end += 1;
                    }
                    taken[end as usize] = true;
                    end += 1;
                }
                assert_eq!(bus.fill(at, length), end);
            }
        }
    }
}
