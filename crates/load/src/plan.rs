// SPDX-License-Identifier: Apache-2.0
//! The settings, checked against each other and bound to numbers: the keys, their number, order and
//! lengths.
//!
//! [`crate::run`] makes one plan; all threads read it. Everything here depends only on the
//! settings. So a run that loads and a later run that reads back agree on each key, length and
//! byte.

use std::ops::Range;

use senko_workload::permutation::Permutation;
use senko_workload::value::ValueLen;
use senko_workload::{KeyChooser, KeySpace};

use crate::changes::{self, Class, Classes};
use crate::settings::{Amount, KeyCount, Pace, Part, Settings, Step, Target, inserts, writes};
use crate::tls::TlsClient;

/// Most keys that a run of unknown length may insert if they must be tracked.
const TRACKED_INSERTS: u64 = 1 << 22;
/// Most keys that a run of unknown length may insert if nothing is tracked.
const INSERTS: u64 = 1 << 32;
const MOST_KEYS: u64 = 1 << 40;
pub(crate) const MOST_KEYS_PER_GET: usize = 1000;
/// Seed of the load order; it is fixed, so that a later run knows the order.
const ORDER_SEED: u64 = 0x006C_6F61_644F_7264;

/// Settings, and the numbers that follow from them.
pub struct Plan {
    pub settings: Settings,
    /// Keys before any insert: numbers `0..keys`.
    pub keys: u64,
    /// Inserts stop at this number of keys.
    pub most_keys: u64,
    pub tls: Option<TlsClient>,
    pub space: KeySpace,
    pub classes: Classes,
    /// Places of the load order that a read-back covers.
    pub places: Range<u64>,
    /// Bytes of all keys and their values at load, by their lengths.
    pub item_bytes: u64,
    order: Option<Permutation>,
}

impl Plan {
    /// Binds settings.
    ///
    /// # Errors
    /// One sentence, if they cannot be used.
    pub fn new(settings: &Settings) -> Result<Plan, String> {
        check(settings)?;
        let classes = Classes::new(writes(&settings.mix), &settings.changes);
        let space_of = |largest| {
            KeySpace::new(&settings.prefix, settings.key_shape, largest).map_err(|e| e.to_string())
        };
        let (keys, item_bytes) = match settings.keys {
            KeyCount::Keys(keys) if (1..=MOST_KEYS).contains(&keys) => (keys, None),
            KeyCount::Keys(keys) => {
                return Err(format!(
                    "there must be 1 to {MOST_KEYS} keys, and {keys} is not that"
                ));
            }
            KeyCount::Bytes(bytes) => {
                let space = space_of(0)?;
                let keys =
                    keys_of_bytes(bytes, |key_id| item_len(settings, classes, &space, key_id))?;
                (keys.0, Some(keys.1))
            }
        };
        if keys < classes.count() {
            return Err(format!(
                "a mix of {} classes of keys needs as many keys, and there are {keys}",
                classes.count()
            ));
        }
        let most_keys = if inserts(&settings.mix) {
            keys + most_inserts(settings)
        } else {
            keys
        };
        let space = space_of(most_keys - 1)?;
        let tls = match (&settings.tls, &settings.target) {
            (None, _) => None,
            (Some(options), Target::Tcp(address)) => Some(TlsClient::new(options, address.ip())?),
            (Some(_), Target::Unix(_)) => return Err("a Unix socket has no TLS".to_owned()),
        };
        KeyChooser::new(&settings.mix.popularity, keys).map_err(|error| error.to_string())?;
        let order = settings
            .permuted
            .then(|| Permutation::new(keys, ORDER_SEED));
        let mut plan = Plan {
            settings: settings.clone(),
            keys,
            most_keys,
            tls,
            space,
            classes,
            places: 0..keys,
            item_bytes: 0,
            order,
        };
        plan.item_bytes = match (
            item_bytes,
            settings.value_len,
            settings.steps.contains(&Step::Load),
        ) {
            (Some(bytes), _, _) => bytes,
            (None, _, true) => (0..keys).map(|key_id| plan.item_len(key_id)).sum(),
            (None, ValueLen::Fixed(_), false) if settings.changes.is_none() => {
                keys * plan.item_len(0)
            }
            // Only a report uses the sum; without a load step it is not worth the time.
            (None, _, false) => 0,
        };
        plan.places = plan.places_of(settings.part)?;
        Ok(plan)
    }

    /// The key at a place of the load order.
    #[inline]
    pub fn key_at(&self, place: u64) -> u64 {
        self.order
            .as_ref()
            .map_or(place, |order| order.apply(place))
    }

    /// The length of a value as a set writes it.
    #[inline]
    pub fn value_len(&self, key_id: u64, version: u32) -> usize {
        value_len(&self.settings, self.classes, key_id, version)
    }

    /// The longest value that a get of this key may return.
    pub fn longest(&self, key_id: u64) -> usize {
        match self.classes.of(key_id) {
            Class::Plain => self.settings.value_len.longest(),
            Class::Counter => changes::LONGEST_COUNTER,
            Class::Text => changes::LONGEST_TEXT,
        }
    }

    /// Bytes of a key and its value at load.
    fn item_len(&self, key_id: u64) -> u64 {
        item_len(&self.settings, self.classes, &self.space, key_id)
    }

    /// Whether answers must be compared with earlier requests, key by key.
    pub fn needs_ledger(&self) -> bool {
        let settings = &self.settings;
        let mixes = settings
            .steps
            .iter()
            .any(|step| matches!(step, Step::Mix(_) | Step::WarmUp(_)));
        let reads_back = settings.steps.contains(&Step::ReadBack);
        // A change that can't continue becomes a set, so changes are counted in any case.
        mixes && !settings.changes.is_none()
            || settings.verify
                && (mixes && writes(&settings.mix)
                    || settings.set_on_miss && (mixes || reads_back)
                    || settings.expire > 0)
    }

    fn places_of(&self, part: Part) -> Result<Range<u64>, String> {
        match part {
            Part::All => Ok(0..self.keys),
            Part::Places(first, last) if first <= last && last < self.keys => Ok(first..last + 1),
            Part::Places(first, last) => Err(format!(
                "the keys run from 0 to {}, and {first} to {last} is no part of that",
                self.keys - 1
            )),
            Part::LastBytes(bytes) => {
                let mut first = self.keys;
                let mut sum = 0;
                while first > 0 && sum < bytes {
                    first -= 1;
                    sum += self.item_len(self.key_at(first));
                }
                Ok(first..self.keys)
            }
        }
    }
}

#[inline]
fn value_len(settings: &Settings, classes: Classes, key_id: u64, version: u32) -> usize {
    if classes.of(key_id) == Class::Counter {
        return changes::digits(changes::counter(version));
    }
    let version = if settings.vary_len { version } else { 0 };
    settings.value_len.len_of(key_id, version)
}

fn item_len(settings: &Settings, classes: Classes, space: &KeySpace, key_id: u64) -> u64 {
    (space.key_len(key_id) + value_len(settings, classes, key_id, settings.generation)) as u64
}

/// The fewest keys whose items have at least `bytes` bytes, and the bytes of these.
fn keys_of_bytes(bytes: u64, item_len: impl Fn(u64) -> u64) -> Result<(u64, u64), String> {
    let (mut keys, mut sum) = (0, 0);
    while sum < bytes && keys < MOST_KEYS {
        sum += item_len(keys);
        keys += 1;
    }
    if keys == 0 || sum < bytes {
        return Err(format!("{bytes} bytes of items are out of range"));
    }
    Ok((keys, sum))
}

fn most_inserts(settings: &Settings) -> u64 {
    let unknown = if settings.verify {
        TRACKED_INSERTS
    } else {
        INSERTS
    };
    settings
        .steps
        .iter()
        .map(|step| match step {
            Step::Mix(Amount::Requests(requests)) => *requests,
            Step::Mix(Amount::For(_)) | Step::WarmUp(_) => unknown,
            Step::Load | Step::ReadBack => 0,
        })
        .sum()
}

fn check(settings: &Settings) -> Result<(), String> {
    let Settings {
        connections,
        threads,
        pipeline,
        keys_per_get,
        ..
    } = *settings;
    if threads == 0 || connections < threads {
        return Err(format!(
            "each thread needs a connection: {connections} connections for {threads} threads"
        ));
    }
    if connections > 60_000 || threads > 1024 {
        return Err("at most 60000 connections and 1024 threads".to_owned());
    }
    if pipeline == 0 || pipeline > 10_000 {
        return Err(format!(
            "a connection can have 1 to 10000 requests under way, not {pipeline}"
        ));
    }
    if keys_per_get == 0 || keys_per_get > MOST_KEYS_PER_GET {
        return Err(format!(
            "a get can have 1 to {MOST_KEYS_PER_GET} keys, not {keys_per_get}"
        ));
    }
    if settings.steps.is_empty() {
        return Err("there is nothing to do: no load, no read-back, no mix".to_owned());
    }
    if settings.generation == 0 {
        return Err("generations count from 1".to_owned());
    }
    if settings.timeout.is_zero() {
        return Err("the timeout must be more than nothing".to_owned());
    }
    if let Pace::Open {
        rate: Some(rate), ..
    } = settings.pace
        && !(rate.is_finite() && rate > 0.0)
    {
        return Err(format!(
            "a request rate must be a positive number, and {rate} is not"
        ));
    }
    if settings.noreply && matches!(settings.pace, Pace::Open { .. }) {
        return Err(
            "sets without an answer have no latency: use noreply in a closed loop".to_owned(),
        );
    }
    let changed = &settings.changes;
    if !changed.is_none() && settings.noreply {
        return Err(
            "incr, decr, append and prepend need their answers: leave noreply out of such a mix"
                .to_owned(),
        );
    }
    if !changed.is_none() && inserts(&settings.mix) {
        return Err(
            "a mix that inserts keys can't have incr, decr, append or prepend as well".to_owned(),
        );
    }
    let longest = settings.value_len.longest();
    if changed.are_on(Class::Text) && longest > changes::LONGEST_BASE {
        return Err(format!(
            "values of up to {longest} bytes leave no room to append: use {} or less with append and prepend",
            changes::LONGEST_BASE
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use senko_workload::KeyShape;

    fn etc() -> Settings {
        Settings {
            keys: KeyCount::Bytes(3_000_000),
            key_shape: KeyShape::Etc,
            value_len: ValueLen::Etc { cap: 100_000 },
            steps: vec![Step::ReadBack],
            ..Settings::default()
        }
    }

    #[test]
    fn bytes_make_the_fewest_keys() {
        let plan = Plan::new(&etc()).expect("good settings");
        let sum = |keys: Range<u64>| {
            keys.map(|key_id| plan.item_len(plan.key_at(key_id)))
                .sum::<u64>()
        };
        assert!(sum(0..plan.keys) >= 3_000_000 && sum(0..plan.keys - 1) < 3_000_000);
        assert_eq!(plan.item_bytes, sum(0..plan.keys));
    }

    #[test]
    fn the_last_bytes_are_the_fewest_last_places() {
        for permuted in [false, true] {
            let settings = Settings {
                part: Part::LastBytes(1_000_000),
                permuted,
                ..etc()
            };
            let plan = Plan::new(&settings).expect("good settings");
            let sum = |places: Range<u64>| {
                places
                    .map(|place| plan.item_len(plan.key_at(place)))
                    .sum::<u64>()
            };
            assert_eq!(plan.places.end, plan.keys);
            assert!(sum(plan.places.clone()) >= 1_000_000);
            assert!(sum(plan.places.start + 1..plan.keys) < 1_000_000);
        }
        let all = Plan::new(&Settings {
            part: Part::LastBytes(1 << 40),
            ..etc()
        })
        .expect("good settings");
        assert_eq!(all.places, 0..all.keys);
    }

    #[test]
    fn contradictions_are_refused() {
        let contradictions: [fn(&mut Settings); 8] = [
            |s| (s.connections, s.threads) = (1, 2),
            |s| s.pipeline = 0,
            |s| s.keys = KeyCount::Keys(0),
            |s| s.part = Part::Places(5, 4),
            |s| s.part = Part::Places(0, 1 << 50),
            |s| s.steps.clear(),
            |s| {
                s.keys = KeyCount::Keys(1 << 39);
                s.key_shape = KeyShape::Fixed(5);
            },
            |s| s.prefix = "a b".to_owned(),
        ];
        for contradict in contradictions {
            let mut settings = etc();
            contradict(&mut settings);
            assert!(Plan::new(&settings).is_err());
        }
    }
}
