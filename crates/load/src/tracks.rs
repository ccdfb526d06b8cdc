// SPDX-License-Identifier: Apache-2.0
//! How many changes a counter or a text may have.
//!
//! [`crate::shared`] notes each set and each change when it is sent and when it ends.
//! [`crate::connection`] asks for the bounds when an answer has a count. Each key with changes has
//! a track of 48 bytes, with its own lock.
//!
//! Card. Idea: let A be the changes that were acknowledged before a request was sent, and B those
//! that were sent before its answer came. Then the server's value has at least A and at most B of
//! them. Increments and decrements are counted separately, so both bounds hold with both under way.
//! A lost increment is a lasting deficit. The next request that is alone on its key shows it. An
//! increment that was done twice is a lasting surplus.
//!
//! A set begins an *epoch*: the counts are those of its version. While a set is under way nothing
//! is known, because changes may come before or after it. Changes that are under way when an epoch
//! begins may take effect in it. They count as sent, and are never proven. Changes whose answer was
//! lost are treated in the same way, forever.
//!
//! A key that this run never set is unknown until an answer has a count, which begins an epoch.

use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::changes::{Change, Class, MOST_CHUNKS, MOST_COUNTED};

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeEnd {
    /// The server said that it made the change.
    Done,
    /// The server said that the key does not exist, so the change was not made.
    Absent,
    /// The server reported a failure, so the change may have been made or not.
    Refused,
    /// No answer came, and the change may still be made.
    Lost,
}

/// The changes that were proven when a request was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// 0: nothing is known.
    epoch: u32,
    ups: u32,
    downs: u32,
}

/// The changes in one direction: increments, appends and prepends are ups; decrements are downs.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// Sent in this epoch, or under way when it began.
    sent: u32,
    /// Sent and acknowledged in this epoch, with no set under way in between.
    proven: u32,
    /// Without an answer.
    under_way: u32,
}

/// The changes of one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Track {
    epoch: u32,
    version: u32,
    /// The count with which the epoch began.
    base: i32,
    /// Whether no set is under way, and the server has the newest one.
    settled: bool,
    ups: Way,
    downs: Way,
}

impl Track {
    fn way(&mut self, change: Change) -> &mut Way {
        match change {
            Change::Decr => &mut self.downs,
            Change::Incr | Change::Append | Change::Prepend => &mut self.ups,
        }
    }

    /// Notes that a set of a new version is about to be sent.
    pub fn begin_version(&mut self, version: u32) {
        self.epoch = self.epoch.wrapping_add(1).max(1);
        self.version = version;
        self.base = 0;
        self.settled = false;
        for way in [&mut self.ups, &mut self.downs] {
            way.sent = way.under_way;
            way.proven = 0;
        }
    }

    /// Notes the end of a set, or that it met another one. `settled`: none is under way, and the
    /// last was stored.
    pub fn settle(&mut self, settled: bool) {
        self.settled = settled;
    }

    /// Whether the key must be set again before one more change.
    pub fn is_full(&self, class: Class) -> bool {
        let most = match class {
            Class::Counter => MOST_COUNTED,
            Class::Text | Class::Plain => MOST_CHUNKS,
        };
        i64::from(self.base) + i64::from(self.ups.sent) >= most
            || i64::from(self.downs.sent) - i64::from(self.base) >= most
    }

    /// Notes that a request is about to be sent.
    pub fn mark(&self) -> Mark {
        if !self.settled {
            return Mark::default();
        }
        Mark {
            epoch: self.epoch,
            ups: self.ups.proven,
            downs: self.downs.proven,
        }
    }

    /// Notes that a change is about to be sent.
    pub fn begin(&mut self, change: Change) {
        let way = self.way(change);
        way.sent = way.sent.saturating_add(1);
        way.under_way = way.under_way.saturating_add(1);
    }

    /// Notes the end of a change that was sent at `mark`.
    pub fn end(&mut self, change: Change, mark: Mark, end: ChangeEnd) {
        let proves = mark.epoch != 0 && mark.epoch == self.epoch;
        let way = self.way(change);
        if end != ChangeEnd::Lost {
            way.under_way = way.under_way.saturating_sub(1);
        }
        match end {
            ChangeEnd::Done if proves => way.proven = way.proven.saturating_add(1),
            ChangeEnd::Absent => way.sent = way.sent.saturating_sub(1),
            ChangeEnd::Done | ChangeEnd::Refused | ChangeEnd::Lost => {}
        }
    }

    /// The correct counts for an answer with `version` to a request sent at `mark`. `own` is the
    /// change that it answers, which is still under way. `None`: nothing is known.
    pub fn bounds(
        &self,
        mark: Mark,
        version: u32,
        own: Option<Change>,
    ) -> Option<RangeInclusive<i64>> {
        if mark.epoch == 0 || mark.epoch != self.epoch || version != self.version {
            return None;
        }
        let base = i64::from(self.base);
        let own_up = own.is_some_and(|change| change != Change::Decr);
        let own_down = own == Some(Change::Decr);
        // A request's own change is among those sent, and was certainly made.
        let least = base + i64::from(mark.ups) + i64::from(own_up) - i64::from(self.downs.sent);
        let most = base + i64::from(self.ups.sent) - i64::from(mark.downs) - i64::from(own_down);
        Some(least..=most)
    }

    /// An answer had the count of a key about which this run knew nothing. Counting starts from
    /// there.
    pub fn learn(&mut self, version: u32, count: i64) {
        if self.epoch == 0
            && let Ok(base) = i32::try_from(count)
        {
            (self.epoch, self.version, self.base) = (1, version, base);
            self.settled = true;
        }
    }
}

/// The tracks of all keys with changes.
pub struct Tracks {
    keys: Box<[Mutex<Track>]>,
}

impl Tracks {
    /// Tracks for `keys` keys about which nothing is known.
    pub fn new(keys: u64) -> Tracks {
        Tracks {
            keys: (0..keys).map(|_| Mutex::default()).collect(),
        }
    }

    /// The track of a key, by its number among the keys with changes.
    pub fn of(&self, number: u64) -> MutexGuard<'_, Track> {
        self.keys[number as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use senko_workload::Rng;

    const VERSION: u32 = 7;

    fn set() -> Track {
        let mut track = Track::default();
        track.begin_version(VERSION);
        track.settle(true);
        track
    }

    fn done(track: &mut Track, change: Change) {
        let mark = track.mark();
        track.begin(change);
        track.end(change, mark, ChangeEnd::Done);
    }

    #[test]
    fn a_quiet_key_has_one_right_count() {
        let mut track = set();
        for _ in 0..5 {
            done(&mut track, Change::Incr);
        }
        done(&mut track, Change::Decr);
        assert_eq!(track.bounds(track.mark(), VERSION, None), Some(4..=4));
        let mark = track.mark();
        track.begin(Change::Incr);
        assert_eq!(track.bounds(mark, VERSION, Some(Change::Incr)), Some(5..=5));
        track.end(Change::Incr, mark, ChangeEnd::Absent);
        let mark = track.mark();
        track.begin(Change::Decr);
        assert_eq!(track.bounds(mark, VERSION, Some(Change::Decr)), Some(3..=3));
        track.end(Change::Decr, mark, ChangeEnd::Refused);
        assert_eq!(
            track.bounds(track.mark(), VERSION, None),
            Some(3..=4),
            "a refused change may have been made"
        );
        assert_eq!(track.bounds(track.mark(), VERSION + 1, None), None);
    }

    #[test]
    fn a_set_begins_anew_and_what_is_under_way_may_come_after_it() {
        let mut track = set();
        done(&mut track, Change::Append);
        let old = track.mark();
        track.begin(Change::Append);
        track.begin_version(VERSION + 1);
        assert_eq!(track.bounds(track.mark(), VERSION + 1, None), None);
        track.settle(true);
        let mark = track.mark();
        assert_eq!(track.bounds(mark, VERSION + 1, None), Some(0..=1));
        assert_eq!(track.bounds(old, VERSION + 1, None), None);
        track.end(Change::Append, old, ChangeEnd::Done);
        assert_eq!(track.bounds(track.mark(), VERSION + 1, None), Some(0..=1));
        let mark = track.mark();
        track.begin(Change::Append);
        track.end(Change::Append, mark, ChangeEnd::Lost);
        track.begin_version(VERSION + 2);
        track.settle(true);
        assert_eq!(
            track.bounds(track.mark(), VERSION + 2, None),
            Some(0..=1),
            "a lost change may still be made"
        );
    }

    #[test]
    fn an_unknown_key_counts_on_from_the_first_answer() {
        let mut track = Track::default();
        let mark = track.mark();
        track.begin(Change::Incr);
        assert_eq!(track.bounds(mark, 3, Some(Change::Incr)), None);
        track.learn(3, 41);
        track.end(Change::Incr, mark, ChangeEnd::Done);
        done(&mut track, Change::Incr);
        // The first one may have come before or after the count was read.
        assert_eq!(track.bounds(track.mark(), 3, None), Some(42..=43));
        track.learn(3, 0);
        assert_eq!(track.bounds(track.mark(), 3, None), Some(42..=43));
    }

    #[test]
    fn a_full_text_and_a_far_counter_are_set_anew() {
        let mut track = set();
        for _ in 0..MOST_CHUNKS {
            assert!(!track.is_full(Class::Text));
            done(&mut track, Change::Prepend);
        }
        assert!(track.is_full(Class::Text) && !track.is_full(Class::Counter));
        track.begin_version(VERSION + 1);
        assert!(!track.is_full(Class::Text));
        let mut far = Track::default();
        far.learn(1, -MOST_COUNTED);
        assert!(far.is_full(Class::Counter));
    }

    /// A change or a read of the model below.
    struct UnderWay {
        change: Option<Change>,
        mark: Mark,
        /// The version and count that the server saw, once it has handled it.
        seen: Option<(u32, i64)>,
    }

    /// A model of one key on a server: sets and changes take effect at a random moment between
    /// sending and answer. No correct count may be called wrong. When nothing else is under way,
    /// the bounds are equal, except for the changes that an epoch inherited.
    #[test]
    fn agrees_with_a_server_that_reorders_what_overlaps() {
        let mut exact = 0;
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut track = Track::default();
            let (mut version, mut count) = (1, 0);
            track.begin_version(1);
            track.settle(true);
            let mut newest = 1;
            // The set under way, and whether it took effect.
            let mut set: Option<bool> = None;
            let mut all: Vec<UnderWay> = Vec::new();
            for step in 0..1500 {
                // Periods in which requests meet, and others in which none does.
                let most = if step / 100 % 2 == 0 { 4 } else { 1 };
                match rng.below(10) {
                    0..=3 if all.len() < most => {
                        let change =
                            [None, Some(Change::Incr), Some(Change::Decr)][rng.below(3) as usize];
                        let mark = track.mark();
                        if let Some(change) = change {
                            track.begin(change);
                        }
                        all.push(UnderWay {
                            change,
                            mark,
                            seen: None,
                        });
                    }
                    4..=5 if !all.is_empty() => {
                        let at = rng.below(all.len() as u64) as usize;
                        if all[at].seen.is_none() {
                            count += by(all[at].change);
                            all[at].seen = Some((version, count));
                        }
                    }
                    6..=8 if !all.is_empty() => {
                        let at = rng.below(all.len() as u64) as usize;
                        let mut one = all.swap_remove(at);
                        let (told, seen) = *one.seen.get_or_insert_with(|| {
                            count += by(one.change);
                            (version, count)
                        });
                        if let Some(right) = track.bounds(one.mark, told, one.change) {
                            assert!(
                                right.contains(&seen),
                                "seed {seed}, step {step}: {seen} is right, {right:?} was said"
                            );
                            exact += u64::from(right.start() == right.end());
                        }
                        if let Some(change) = one.change {
                            track.end(change, one.mark, ChangeEnd::Done);
                        }
                    }
                    9 => match set {
                        None if all.len() < most && rng.below(10) == 0 => {
                            newest += 1;
                            track.begin_version(newest);
                            set = Some(false);
                        }
                        None => {}
                        Some(false) => {
                            (version, count) = (newest, 0);
                            set = Some(true);
                        }
                        Some(true) => {
                            track.settle(true);
                            set = None;
                        }
                    },
                    _ => {}
                }
            }
        }
        assert!(exact > 5_000, "{exact} answers had one right count");
    }

    fn by(change: Option<Change>) -> i64 {
        match change {
            None => 0,
            Some(Change::Decr) => -1,
            Some(_) => 1,
        }
    }
}
