// SPDX-License-Identifier: Apache-2.0
//! The versions of a key's value with which the server may still answer.
//!
//! [`crate::connection`] notes each set when it is sent and when it is answered. It reads the
//! oldest admissible version when a get is sent, and the admissible range when the answer arrives.
//! All threads share one ledger, with 8 bytes for each key.
//!
//! Card. Idea: if a set was sent when no other set of its key was under way, its answer proves that
//! older versions are gone. So a key has a version (the newest sent), a lag (how far behind it the
//! newest proven version is) and a count of sets under way. If a set of the same key is under way,
//! a new set sends *the same version with the same bytes*. The result is then the same in any
//! order. Requests keep their distribution, and no clocks are compared. A refused set may or may
//! not have taken effect, so the lag stays. A set whose answer was lost may even take effect later.
//! From then on the key's floor is unknown forever, and any version is accepted that matches its
//! own bytes.
//!
//! ```text
//!   63            32 31        16 15         0
//!   | version       | lag        | under way |      0: nothing known, nothing sent
//! ```

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The floor is unknown forever.
const LAG_LOST: u64 = 0xFFFF;
/// The floor is unknown until a set is answered. A lag too large for its field is stored like this,
/// too.
const LAG_OPEN: u64 = 0xFFFE;
const MOST_UNDER_WAY: u64 = 0xFFFF;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetEnd {
    Stored,
    Refused,
    /// No answer came, and the set may still take effect.
    Lost,
}

#[derive(Clone, Copy)]
struct State {
    version: u32,
    lag: u64,
    under_way: u64,
}

impl State {
    fn unpack(word: u64) -> State {
        State {
            version: (word >> 32) as u32,
            lag: word >> 16 & 0xFFFF,
            under_way: word & 0xFFFF,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.version) << 32 | self.lag << 16 | self.under_way
    }

    fn floor(self) -> u32 {
        if self.lag >= LAG_OPEN {
            0
        } else {
            self.version.saturating_sub(self.lag as u32)
        }
    }
}

/// The versions of all keys.
pub struct Ledger {
    keys: Box<[AtomicU64]>,
    /// When each key's last set was answered, in seconds of the run plus 1; empty unless items
    /// expire.
    stored_at: Box<[AtomicU32]>,
    /// The first version of a key about which nothing is known.
    first: u32,
}

impl Ledger {
    /// A ledger for `keys` keys. `first` is the version of a key about which nothing is known.
    pub fn new(keys: u64, first: u32, expiring: bool) -> Ledger {
        Ledger {
            keys: (0..keys).map(|_| AtomicU64::new(0)).collect(),
            stored_at: (0..if expiring { keys } else { 0 })
                .map(|_| AtomicU32::new(0))
                .collect(),
            first,
        }
    }

    /// Notes that the server holds `version`, or nothing, of each of the first `keys` keys.
    pub fn assume(&self, keys: u64, version: u32) {
        let word = State {
            version,
            lag: 0,
            under_way: 0,
        }
        .pack();
        for state in &self.keys[..keys as usize] {
            state.store(word, Ordering::Relaxed);
        }
    }

    fn change(&self, key_id: u64, with: impl Fn(State) -> Option<State>) -> Option<State> {
        let mut next = None;
        self.keys[key_id as usize]
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                next = with(State::unpack(word));
                next.map(State::pack)
            })
            .ok()?;
        next
    }

    /// Notes a set that is about to be sent, and returns the version to write. `None` if 65,535
    /// sets of this key are under way. The load step names its `version`.
    pub fn begin_set(&self, key_id: u64, version: Option<u32>) -> Option<u32> {
        let first = self.first;
        let begun = self.change(key_id, |state| {
            if state.under_way == MOST_UNDER_WAY {
                return None;
            }
            if state.under_way > 0 {
                return Some(State {
                    under_way: state.under_way + 1,
                    ..state
                });
            }
            if state.version == 0 {
                // Values of an earlier run may still be returned until this set is answered.
                return Some(State {
                    version: version.unwrap_or(first),
                    lag: LAG_OPEN,
                    under_way: 1,
                });
            }
            let next = version
                .filter(|wanted| *wanted > state.version)
                .unwrap_or(state.version.saturating_add(1));
            let lag = match state.lag {
                LAG_LOST => LAG_LOST,
                lag => (lag + u64::from(next - state.version)).min(LAG_OPEN),
            };
            Some(State {
                version: next,
                lag,
                under_way: 1,
            })
        });
        begun.map(|state| state.version)
    }

    /// Notes the end of a set, `second` seconds into the run.
    pub fn end_set(&self, key_id: u64, end: SetEnd, second: u32) {
        self.change(key_id, |state| {
            debug_assert!(state.under_way > 0, "a set ended that had not begun");
            let lag = match end {
                SetEnd::Stored if state.lag != LAG_LOST => 0,
                SetEnd::Stored | SetEnd::Refused => state.lag,
                SetEnd::Lost => LAG_LOST,
            };
            Some(State {
                lag,
                under_way: state.under_way - 1,
                ..state
            })
        });
        if end == SetEnd::Stored
            && let Some(at) = self.stored_at.get(key_id as usize)
        {
            at.fetch_max(second + 1, Ordering::AcqRel);
        }
    }

    /// Notes a get that is about to be sent: returns the oldest version that its answer may have.
    pub fn floor(&self, key_id: u64) -> u32 {
        State::unpack(self.keys[key_id as usize].load(Ordering::Acquire)).floor()
    }

    /// The correct versions for an answer to a get that was sent when the floor was `floor` (0:
    /// unknown).
    pub fn admissible(&self, key_id: u64, floor: u32) -> RangeInclusive<u32> {
        let state = State::unpack(self.keys[key_id as usize].load(Ordering::Acquire));
        if floor == 0 {
            0..=u32::MAX
        } else {
            floor..=state.version
        }
    }

    /// Whether no set of the key is under way.
    pub fn is_quiet(&self, key_id: u64) -> bool {
        State::unpack(self.keys[key_id as usize].load(Ordering::Acquire)).under_way == 0
    }

    /// Whether no set of the key is under way, and the newest is the one that the server has.
    pub fn is_settled(&self, key_id: u64) -> bool {
        let state = State::unpack(self.keys[key_id as usize].load(Ordering::Acquire));
        state.under_way == 0 && state.lag == 0
    }

    /// Whether a get sent at `second` must miss, because the key's last value, stored with `life`
    /// seconds to live, had expired before. Memcached's clock ticks once a second and may be a tick
    /// late, so two seconds are allowed for.
    pub fn must_have_expired(&self, key_id: u64, life: u32, second: u32) -> bool {
        let Some(at) = self.stored_at.get(key_id as usize) else {
            return false;
        };
        let stored = at.load(Ordering::Acquire);
        let state = State::unpack(self.keys[key_id as usize].load(Ordering::Acquire));
        let settled = state.under_way == 0 && state.lag == 0;
        settled && stored > 0 && second > (stored - 1).saturating_add(life).saturating_add(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use senko_workload::Rng;

    #[test]
    fn an_answered_set_ends_older_versions() {
        let ledger = Ledger::new(2, 100, false);
        assert_eq!(ledger.floor(0), 0);
        assert_eq!(ledger.begin_set(0, None), Some(100));
        assert_eq!(
            ledger.admissible(0, ledger.floor(0)),
            0..=u32::MAX,
            "an earlier run's value may still be there"
        );
        ledger.end_set(0, SetEnd::Stored, 0);
        assert_eq!(ledger.admissible(0, ledger.floor(0)), 100..=100);
        let before = ledger.floor(0);
        assert_eq!(ledger.begin_set(0, None), Some(101));
        assert_eq!(ledger.admissible(0, before), 100..=101);
        ledger.end_set(0, SetEnd::Refused, 0);
        assert_eq!(ledger.admissible(0, ledger.floor(0)), 100..=101);
        assert_eq!(ledger.begin_set(0, None), Some(102));
        ledger.end_set(0, SetEnd::Stored, 0);
        assert_eq!(ledger.admissible(0, ledger.floor(0)), 102..=102);
        assert_eq!(
            ledger.admissible(0, before),
            100..=102,
            "a get sent earlier may hold what was right then"
        );
        assert_eq!(ledger.floor(1), 0);
    }

    #[test]
    fn sets_that_meet_send_the_same_version() {
        let ledger = Ledger::new(1, 7, false);
        assert_eq!(ledger.begin_set(0, Some(1)), Some(1));
        assert_eq!(ledger.begin_set(0, None), Some(1));
        ledger.end_set(0, SetEnd::Stored, 0);
        assert_eq!(
            ledger.begin_set(0, None),
            Some(1),
            "the second is still under way"
        );
        ledger.end_set(0, SetEnd::Stored, 0);
        ledger.end_set(0, SetEnd::Stored, 0);
        assert_eq!(ledger.begin_set(0, None), Some(2));
    }

    #[test]
    fn a_lost_answer_leaves_the_floor_open_for_ever() {
        let ledger = Ledger::new(1, 7, false);
        ledger.assume(1, 5);
        ledger.begin_set(0, None);
        ledger.end_set(0, SetEnd::Lost, 0);
        ledger.begin_set(0, None);
        ledger.end_set(0, SetEnd::Stored, 0);
        assert_eq!(ledger.admissible(0, ledger.floor(0)), 0..=u32::MAX);
    }

    #[test]
    fn an_item_past_its_life_must_be_gone() {
        let ledger = Ledger::new(1, 1, true);
        assert!(!ledger.must_have_expired(0, 3, 1000));
        ledger.begin_set(0, None);
        assert!(!ledger.must_have_expired(0, 3, 1000), "a set is under way");
        ledger.end_set(0, SetEnd::Stored, 10);
        assert!(!ledger.must_have_expired(0, 3, 15));
        assert!(ledger.must_have_expired(0, 3, 16));
    }

    /// A model of one key on a server. A set takes effect at a random moment between sending and
    /// answer, and a get sees the value of a random moment between its own. No correct answer may
    /// be called wrong. An answer must be called wrong if a later set had replaced its value and
    /// was answered before the get was sent.
    #[test]
    fn agrees_with_a_server_that_reorders_what_overlaps() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let ledger = Ledger::new(1, 1, false);
            ledger.assume(1, 1);
            let mut stored = 1;
            // (version, took effect), and for gets (floor at sending, version seen so far)
            let mut sets: Vec<(u32, bool)> = Vec::new();
            let mut gets: Vec<(u32, Option<u32>)> = Vec::new();
            let mut quiet_versions_gone = 0;
            for step in 0..2000 {
                match rng.below(6) {
                    0 if sets.len() < 4 => {
                        sets.push((ledger.begin_set(0, None).expect("few are under way"), false))
                    }
                    1 if gets.len() < 4 => gets.push((ledger.floor(0), None)),
                    2 if !sets.is_empty() => {
                        let at = rng.below(sets.len() as u64) as usize;
                        stored = sets[at].0;
                        sets[at].1 = true;
                    }
                    3 if !gets.is_empty() => {
                        let at = rng.below(gets.len() as u64) as usize;
                        gets[at].1 = Some(stored);
                    }
                    4 if !sets.is_empty() => {
                        let at = rng.below(sets.len() as u64) as usize;
                        let (version, took_effect) = sets.swap_remove(at);
                        if !took_effect {
                            stored = version;
                        }
                        ledger.end_set(0, SetEnd::Stored, 0);
                        if sets.is_empty() {
                            quiet_versions_gone = version - 1;
                        }
                    }
                    5 if !gets.is_empty() => {
                        let at = rng.below(gets.len() as u64) as usize;
                        let (floor, seen) = gets.swap_remove(at);
                        let seen = seen.unwrap_or(stored);
                        let right = ledger.admissible(0, floor);
                        assert!(
                            right.contains(&seen),
                            "seed {seed}, step {step}: {seen} is right, {right:?} was said"
                        );
                    }
                    _ => {}
                }
                if sets.is_empty() {
                    let right = ledger.admissible(0, ledger.floor(0));
                    assert!(
                        *right.start() > quiet_versions_gone,
                        "seed {seed}, step {step}: {quiet_versions_gone} is stale, {right:?} was said"
                    );
                    assert!(right.contains(&stored));
                }
            }
        }
    }
}
