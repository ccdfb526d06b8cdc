// SPDX-License-Identifier: Apache-2.0
//! Commands that change a value on the server: `incr`, `decr`, `append` and `prepend`. This file
//! has their shares in a mix, their keys, and the form of their values.
//!
//! [`crate::plan`] assigns the keys, [`crate::source`] draws the commands, and [`crate::request`]
//! writes them. [`mod@crate::check`] parses the values, and [`crate::tracks`] says how many changes
//! a value may have.
//!
//! Card. Idea: the number of a key determines its class, so that any process knows the form of its
//! value. The mix determines the classes in use: sets have plain values, `incr` and `decr` have
//! counters, `append` and `prepend` have texts. Keys are assigned to them in turn, by number. A
//! command draws a key and takes the nearest key of its class, so popularity does not change. Gets
//! read keys of all classes.
//!
//! Every set of a key has a new version, as its flags, as for other values. A value shows its
//! version and the number of changes after the set:
//!
//! ```text
//!   counter    version * 10^9 + 500,000,000 + increments - decrements, in decimal
//!   text       | prepended chunks | the value of this version | appended chunks |
//! ```
//!
//! A counter starts at the middle of its billion. It has room on both sides, so neither its number
//! of digits nor its version changes. A chunk has 16 bytes, which depend only on the key and the
//! command. So the number of chunks of a whole text is known, and half a chunk is noticed.
//!
//! A change of a missing key (`NOT_FOUND`, `NOT_STORED`) is a miss: the key is set again. The key
//! is also set again instead of an `append` to a text with 32 chunks, and instead of an `incr`
//! after 400 million.

use std::str::FromStr;

use senko_workload::units::share;
use senko_workload::{Mix, Popularity, Rng, ValueLen, fill_value};

/// A command that changes a value on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Incr,
    Decr,
    Append,
    Prepend,
}

impl Change {
    pub const ALL: [Change; 4] = [Change::Incr, Change::Decr, Change::Append, Change::Prepend];

    /// The command's word, and its name in a mix.
    pub fn name(self) -> &'static str {
        match self {
            Change::Incr => "incr",
            Change::Decr => "decr",
            Change::Append => "append",
            Change::Prepend => "prepend",
        }
    }

    /// The class of its keys.
    pub fn class(self) -> Class {
        match self {
            Change::Incr | Change::Decr => Class::Counter,
            Change::Append | Change::Prepend => Class::Text,
        }
    }
}

/// The form of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The bytes of [`fill_value`].
    Plain,
    /// A decimal number.
    Counter,
    /// The same bytes as a plain value, between chunks.
    Text,
}

/// The shares of changes in a mix; the rest are gets and sets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Changes {
    shares: [f64; 4],
    /// Their sum, which every request needs.
    total: f64,
}

impl Changes {
    /// Shares in the order of [`Change::ALL`].
    ///
    /// # Errors
    /// One sentence, if one is negative or their sum is above 1.
    pub fn new(shares: [f64; 4]) -> Result<Changes, String> {
        let sum: f64 = shares.iter().sum();
        if shares.iter().any(|share| share.is_nan() || *share < 0.0) || sum > 1.0 + 1e-6 {
            return Err(format!(
                "the shares of incr, decr, append and prepend must be 0 or more and not above 1 together, and {shares:?} are not"
            ));
        }
        Ok(Changes { shares, total: sum })
    }

    pub fn share(&self, change: Change) -> f64 {
        self.shares[change as usize]
    }

    pub fn total(&self) -> f64 {
        self.total
    }

    #[inline]
    pub fn is_none(&self) -> bool {
        self.total() == 0.0
    }

    /// Whether there are any on keys of `class`.
    pub fn are_on(&self, class: Class) -> bool {
        Change::ALL
            .iter()
            .any(|change| change.class() == class && self.share(*change) > 0.0)
    }

    /// Draws a command; `None` for a request that is not a change.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> Option<Change> {
        if self.is_none() {
            return None;
        }
        self.draw_one(rng)
    }

    fn draw_one(&self, rng: &mut Rng) -> Option<Change> {
        let mut at = rng.next_f64();
        for change in Change::ALL {
            at -= self.share(change);
            if at < 0.0 {
                return Some(change);
            }
        }
        None
    }
}

/// The argument of `senko load --mix`: a YCSB workload, or shares such as `set=0.1,incr=0.2`. The
/// rest, up to 1, are gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests {
    /// Gets and sets, relative to each other.
    pub mix: Mix,
    /// The share of all requests that are changes.
    pub changes: Changes,
}

impl FromStr for Requests {
    type Err = String;

    fn from_str(text: &str) -> Result<Requests, String> {
        if !text.contains('=') {
            let wrong = |error| {
                format!(
                    "{error}; or write shares, such as set=0.1,incr=0.2, of which gets are the rest"
                )
            };
            let mix = text.parse().map_err(wrong)?;
            return Ok(Requests {
                mix,
                changes: Changes::default(),
            });
        }
        let (mut gets, mut sets, mut changes) = (None, None, [None; 4]);
        for part in text.split(',') {
            let (name, of) = part
                .split_once('=')
                .ok_or_else(|| format!("\"{part}\" in \"{text}\" is no NAME=SHARE"))?;
            let place = match name {
                "get" => &mut gets,
                "set" => &mut sets,
                _ => {
                    let change = Change::ALL.into_iter().find(|change| change.name() == name);
                    let change = change.ok_or_else(|| {
                        format!(
                            "\"{name}\" is no command of a mix: use get, set, incr, decr, append and prepend"
                        )
                    })?;
                    &mut changes[change as usize]
                }
            };
            if place.is_some() {
                return Err(format!("\"{text}\" names {name} twice"));
            }
            *place = Some(share(of).map_err(|error| format!("{name}: {error}"))?);
        }
        let shares: [f64; 4] = changes.map(|share| share.unwrap_or(0.0));
        let sets: f64 = sets.unwrap_or(0.0);
        let named = sets + shares.iter().sum::<f64>() + gets.unwrap_or(0.0);
        // Unnamed gets are the rest.
        if named > 1.0 + 1e-6 || gets.is_some() && named < 1.0 - 1e-6 {
            return Err(format!(
                "the shares of \"{text}\" add up to {named}, and not to 1"
            ));
        }
        let changes = Changes::new(shares)?;
        let rest = 1.0 - changes.total();
        let sets = if rest > 1e-6 {
            (sets / rest).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let zipf = Popularity::Zipf {
            s: 0.99,
            scrambled: true,
        };
        let mix = Mix::new(1.0 - sets, sets, 0.0, 0.0, zipf).map_err(|error| error.to_string())?;
        Ok(Requests { mix, changes })
    }
}

/// The classes of the keys, by key number.
#[derive(Clone, Copy, Debug)]
pub struct Classes {
    /// The classes in use come first; of these, the plain class is the first.
    all: [Class; 3],
    used: u64,
}

impl Classes {
    /// The classes of a mix that has `sets` and `changes`.
    pub fn new(sets: bool, changes: &Changes) -> Classes {
        let mut classes = Classes {
            all: [Class::Plain; 3],
            used: 0,
        };
        let uses = [
            (Class::Plain, sets || changes.is_none()),
            (Class::Counter, changes.are_on(Class::Counter)),
            (Class::Text, changes.are_on(Class::Text)),
        ];
        for (class, _) in uses.into_iter().filter(|(_, used)| *used) {
            classes.all[classes.used as usize] = class;
            classes.used += 1;
        }
        classes
    }

    pub fn count(&self) -> u64 {
        self.used
    }

    #[inline]
    pub fn of(&self, key_id: u64) -> Class {
        if self.used == 1 {
            return self.all[0];
        }
        self.all[(key_id % self.used) as usize]
    }

    /// The key of `class` that replaces `key_id`, among keys below `keys`. There must be at least
    /// as many keys as classes, and `class` must be one of them.
    pub fn nearest(&self, key_id: u64, class: Class, keys: u64) -> u64 {
        let at = self.all[..self.used as usize]
            .iter()
            .position(|one| *one == class)
            .unwrap_or(0) as u64;
        let found = key_id - key_id % self.used + at;
        if found < keys {
            found
        } else {
            found - self.used
        }
    }

    /// The number of this key among the keys with changes, counted from 0, if it is one of them.
    #[inline]
    pub fn changed(&self, key_id: u64) -> Option<u64> {
        let plain = u64::from(self.all[0] == Class::Plain);
        let changed = self.used - plain;
        let at = (key_id % self.used).checked_sub(plain)?;
        Some(key_id / self.used * changed + at)
    }

    /// How many of the keys below `keys` have changes, or up to two more.
    pub fn changed_below(&self, keys: u64) -> u64 {
        let plain = u64::from(self.all[0] == Class::Plain);
        keys.div_ceil(self.used) * (self.used - plain)
    }
}

pub const CHUNK: usize = 16;
/// A text with this many chunks is set again.
pub const MOST_CHUNKS: i64 = 32;
/// A counter this far from its start is set again.
pub const MOST_COUNTED: i64 = 400_000_000;
/// The longest value that leaves room to append, in bytes.
pub const LONGEST_BASE: usize = ValueLen::ETC_CAP;
/// The longest text that is checked, in bytes.
pub const LONGEST_TEXT: usize = 1 << 20;
/// The longest counter, in digits.
pub const LONGEST_COUNTER: usize = 20;

const SPAN: u64 = 1_000_000_000;
const MIDDLE: u64 = SPAN / 2;

/// The number that a set of this version writes.
pub fn counter(version: u32) -> u64 {
    u64::from(version) * SPAN + MIDDLE
}

/// The version in a counter's number, and how far it has counted since it was set; `None` if the
/// number is not from this generator.
pub fn counted(number: u64) -> Option<(u32, i64)> {
    let version = u32::try_from(number / SPAN).ok()?;
    Some((version, (number % SPAN) as i64 - MIDDLE as i64))
}

/// A number as a server stores it: only digits, and the first is not 0.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > LONGEST_COUNTER || digits.len() > 1 && digits[0] == b'0'
    {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

pub fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// The bytes that an `append` or a `prepend` adds to a key's value.
pub fn chunk(key_id: u64, change: Change) -> [u8; CHUNK] {
    let mut chunk = [0; CHUNK];
    // Without the version, because a change that was sent before a set may take effect after it.
    fill_value(&mut chunk, !key_id, change as u32);
    chunk
}

#[cfg(test)]
mod tests {
    use super::*;
    use senko_workload::Op;

    fn parse(text: &str) -> Requests {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn shares_leave_the_rest_to_gets() {
        let some = parse("set=0.2,incr=30%,append=0.1");
        assert_eq!(some.changes.share(Change::Incr), 0.3);
        assert_eq!(some.changes.share(Change::Append), 0.1);
        assert!((some.mix.share(Op::Update) - 0.2 / 0.6).abs() < 1e-9);
        assert!((some.mix.share(Op::Read) - 0.4 / 0.6).abs() < 1e-9);
        assert!((parse("incr=0.5,decr=0.5").changes.total() - 1.0).abs() < 1e-9);
        assert_eq!(parse("get=0.7,set=0.3").changes, Changes::default());
        assert_eq!(parse("ycsb-a").mix.share(Op::Update), 0.5);
    }

    #[test]
    fn bad_mixes_are_refused_in_one_sentence() {
        for (text, words) in [
            ("incr=0.8,append=0.3", "add up to 1.1"),
            ("get=0.5,incr=0.1", "add up to 0.6"),
            ("incr=-1", "incr"),
            ("incr=x", "incr"),
            ("incr=0.1,incr=0.2", "incr twice"),
            ("gets=0.1,incr=0.2", "\"gets\" is no command of a mix"),
            ("incr=0.1,append", "no NAME=SHARE"),
            ("touch=0.1", "use get, set, incr, decr, append and prepend"),
            ("ycsb-z", "write shares"),
        ] {
            let why = text.parse::<Requests>().expect_err(text);
            assert!(why.contains(words), "{text}: {why}");
            assert!(!why.contains('\n'), "{why}");
        }
        assert!(Changes::new([0.5, 0.5, 0.1, 0.0]).is_err());
        assert!(Changes::new([-0.1, 0.5, 0.1, 0.0]).is_err());
    }

    #[test]
    fn draws_have_their_shares() {
        let changes = Changes::new([0.1, 0.0, 0.3, 0.2]).expect("good shares");
        let mut rng = Rng::new(4);
        let mut seen = [0; 5];
        for _ in 0..100_000 {
            seen[changes.draw(&mut rng).map_or(4, |change| change as usize)] += 1;
        }
        for (at, share) in [0.1, 0.0, 0.3, 0.2, 0.4].into_iter().enumerate() {
            let drawn = f64::from(seen[at]) / 100_000.0;
            assert!((drawn - share).abs() < 0.01, "{seen:?}");
        }
    }

    #[test]
    fn every_key_has_a_class_and_a_command_finds_one_of_its_own() {
        for (text, wanted) in [
            (
                "set=0.1,incr=0.1,append=0.1",
                &[Class::Plain, Class::Counter, Class::Text][..],
            ),
            ("incr=0.1,prepend=0.1", &[Class::Counter, Class::Text]),
            ("set=0.1,decr=0.1", &[Class::Plain, Class::Counter]),
            ("append=1", &[Class::Text]),
            ("ycsb-c", &[Class::Plain]),
        ] {
            let requests = parse(text);
            let sets = requests.mix.share(Op::Update) > 0.0;
            let classes = Classes::new(sets, &requests.changes);
            assert_eq!(classes.count(), wanted.len() as u64, "{text}");
            let mut changed = 0;
            for keys in classes.count()..20 {
                for key_id in 0..keys {
                    for class in wanted {
                        let found = classes.nearest(key_id, *class, keys);
                        assert_eq!(classes.of(found), *class, "{text}, key {key_id} of {keys}");
                        assert!(found < keys && found.abs_diff(key_id) <= classes.count());
                    }
                }
            }
            for key_id in 0..20 {
                let plain = classes.of(key_id) == Class::Plain;
                let number = (!plain).then_some(changed);
                assert_eq!(classes.changed(key_id), number, "{text}, key {key_id}");
                changed += u64::from(!plain);
            }
        }
    }

    #[test]
    fn a_counter_tells_its_version_and_count_and_keeps_its_length() {
        for version in [0, 1, 9, 10, 1_800_000_000, u32::MAX] {
            let set = counter(version);
            assert_eq!(counted(set), Some((version, 0)));
            for by in [-MOST_COUNTED, -1, 1, MOST_COUNTED] {
                let now = set.wrapping_add_signed(by);
                assert_eq!(counted(now), Some((version, by)));
                assert!(version == 0 || digits(now) == digits(set), "{now}");
                assert_eq!(now.to_string().len(), digits(now));
                assert_eq!(number(now.to_string().as_bytes()), Some(now));
            }
        }
        assert_eq!(counted(u64::MAX), None);
        for bad in ["", "01", "1 ", "-1", "18446744073709551616", "1x"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(number(b"0"), Some(0));
    }

    #[test]
    fn chunks_differ_by_key_and_command() {
        let all = [
            chunk(1, Change::Append),
            chunk(1, Change::Prepend),
            chunk(2, Change::Append),
        ];
        assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2]);
        assert_eq!(chunk(1, Change::Append), all[0]);
    }
}
